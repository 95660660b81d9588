"""A lab report in GitHub-flavoured Markdown. GitHub strips SVG out of the text, so charts are files beside it."""

from __future__ import annotations

from collections.abc import Iterator

from pgqdoctor.labreport.document import Document
from pgqdoctor.render import escape
from pgqdoctor.render.clean import statement


def render_markdown(document: Document, *, charts_at: str | None) -> str:
    """The report; its charts are referred to below ``charts_at``, where that is given."""
    return "\n".join(_lines(document, charts_at)) + "\n"


def _lines(document: Document, charts_at: str | None) -> Iterator[str]:
    yield f"# {escape.text(document.title)}"
    yield ""
    for sentence in document.says:
        yield f"- {escape.text(sentence)}"
    if charts_at is not None:
        for chart in document.charts:
            yield ""
            yield f"![{escape.text(chart.title)}](<{charts_at}/{chart.name}.svg>)"
    for table in document.tables:
        yield ""
        yield f"## {escape.text(table.title)}"
        yield ""
        rows = [tuple(escape.text(cell) for cell in row) for row in table.rows]
        headers = tuple(escape.text(head) for head in table.headers)
        yield from _table(headers, rows, table.right)
    for listing in document.listings:
        yield ""
        yield f"## {escape.text(listing.title)}"
        yield ""
        yield from escape.sql_block([statement(one) for one in listing.statements])
    yield ""
    yield "## How it was measured"
    for sentence in document.method:
        yield ""
        yield escape.text(sentence)
    yield ""
    yield from _table(
        ("what", "value"), [(escape.text(key), escape.text(value)) for key, value in document.facts], ()
    )


def _table(headers: tuple[str, ...], rows: list[tuple[str, ...]], right: tuple[int, ...]) -> list[str]:
    rule = ["---:" if place in right else "---" for place in range(len(headers))]
    return ["| " + " | ".join(row) + " |" for row in (headers, rule, *rows)]
