"""Writing a lab result down: text, JSON, Markdown and HTML of one model. Pure.

The modules are imported on first use: the names of the formats must not cost the start of every command.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pgqdoctor.errors import USAGE, PgqdoctorError

if TYPE_CHECKING:
    from pgqdoctor.lab.results import LabResult
    from pgqdoctor.labreport.document import Document

FORMATS: Final = ("text", "json", "markdown", "html")


def render_lab(result: LabResult, format: str, *, width: int = 100, charts_at: str | None = None) -> str:
    """Write the result in a format of FORMATS, with a newline at its end.

    ``charts_at`` is the directory, relative to a Markdown report, that holds its charts as SVG files; without
    it the report has no charts. Raises PgqdoctorError (usage) for another format.
    """
    if format == "json":
        from pgqdoctor.lab.results import to_json

        return to_json(result)
    if format == "text":
        from pgqdoctor.labreport.text import render_text

        return render_text(document_of(result), width=width)
    if format == "markdown":
        from pgqdoctor.labreport.markdown import render_markdown

        return render_markdown(document_of(result), charts_at=charts_at)
    if format == "html":
        from pgqdoctor.labreport.html import render_html

        return render_html(document_of(result))
    raise PgqdoctorError(
        f"a lab result cannot be written as {format!r}",
        hint=f"Choose {' or '.join(FORMATS)}.",
        exit_code=USAGE,
    )


def chart_files(result: LabResult) -> dict[str, str]:
    """The charts as SVG files, by file name: what a Markdown report refers to."""
    return {f"{one.name}.svg": one.file for one in document_of(result).charts}


def document_of(result: LabResult) -> Document:
    """The report of a result, independent of the format."""
    from pgqdoctor.labreport.prove import prove_document
    from pgqdoctor.labreport.race import race_document
    from pgqdoctor.labreport.storm import storm_document
    from pgqdoctor.labreport.triangle import triangle_document

    writers = {
        "race": race_document,
        "triangle": triangle_document,
        "storm": storm_document,
        "prove": prove_document,
    }
    return writers[result.experiment](result)
