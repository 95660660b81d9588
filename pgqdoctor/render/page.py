"""What HTML pages have in common: every text escaped, nothing loaded from elsewhere, no script."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from html import escape
from typing import Final

from pgqdoctor.render.clean import one_line, statement

CONTENT_POLICY: Final = (
    "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\">"
)
"""Forbids what a page does not need: a name that got through as markup could still load and run nothing."""


def shown(text: str) -> str:
    """Return any text on one line, for between tags and inside quoted attributes."""
    return escape(one_line(text))


def code(text: str) -> str:
    """Return a name as code."""
    return f"<code>{shown(text)}</code>"


def sql_block(statements: Sequence[str]) -> str:
    """Return statements as they are to be copied."""
    lines = [line for one in statements for line in statement(one).lines()]
    # The parser drops one newline behind the tag, which may be part of a string.
    return f"<pre>\n{escape(chr(10).join(lines))}</pre>"


def table(
    headers: Sequence[str], rows: Sequence[Sequence[str]], *, caption: str, right: Sequence[int] = ()
) -> Iterator[str]:
    """The lines of a table with a caption for those who hear it; the cells must be HTML, the first of a row is its header."""

    numeric = [' class="n"' if place in right else "" for place in range(len(headers))]
    yield f'<div class="wide"><table><caption>{shown(caption)}</caption><thead><tr>'
    yield "".join(
        f'<th scope="col"{kind}>{shown(head)}</th>' for kind, head in zip(numeric, headers, strict=True)
    )
    yield "</tr></thead><tbody>"
    for first, *others in rows:
        cells = "".join(f"<td{kind}>{text}</td>" for kind, text in zip(numeric[1:], others, strict=True))
        yield f'<tr><th scope="row">{first}</th>{cells}</tr>'
    yield "</tbody></table></div>"
