"""A lab report for a terminal."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator

from pgqdoctor.labreport.document import Document
from pgqdoctor.render.clean import one_line, statement
from pgqdoctor.render.tables import text_table


def render_text(document: Document, *, width: int) -> str:
    """The report as text of ``width`` columns; tables whose words do not fit are wider."""
    return "\n".join(_lines(document, width)) + "\n"


def _lines(document: Document, width: int) -> Iterator[str]:
    yield document.title
    yield ""
    for sentence in document.says:
        yield from textwrap.wrap(one_line(sentence), width, initial_indent="- ", subsequent_indent="  ")
    for table in document.tables:
        yield ""
        yield table.title
        rows = [[one_line(cell) for cell in row] for row in table.rows]
        yield from text_table(table.headers, rows, width=width, right=table.right)
    for listing in (one for one in document.listings if one.important):
        yield ""
        yield listing.title
        for one in listing.statements:
            yield from (f"  {line}" for line in statement(one).lines())
    yield ""
    for sentence in document.method:
        yield from textwrap.wrap(one_line(sentence), width)
    yield ""
    for key, value in document.facts:
        yield from textwrap.wrap(f"{one_line(key)}: {one_line(value)}", width, subsequent_indent="  ")
