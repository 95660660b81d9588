"""Escaping for GitHub-flavoured Markdown: what a server's names hold must appear as text and do nothing."""

from __future__ import annotations

import re
from typing import Final

from pgqdoctor.render.clean import CleanSql, one_line

_MARKUP: Final = re.compile(r"[`*\[\]~$#&<>|\\]|(?<![^\W_])_|_(?![^\W_])")
"""An underscore between letters or digits marks nothing, and names are full of them."""
_ENTITIES: Final = {"&": "&amp;", "<": "&lt;", ">": "&gt;", "|": "&#124;", "\\": "&#92;"}
"""A pipe ends a table cell even in code, and a backslash before it changes that: entities do neither."""
_BLOCK_START: Final = re.compile(r"^(?:[-+](?=\s|$)|--|==|\d+[.)](?=\s|$))")
_LINKS: Final = re.compile(r"@(?=[\w-])|#(?=\d)|(?<=:)//|\bwww(?=\.)|\bGH(?=-\d)", re.IGNORECASE)
"""What GitHub turns into a mention, a reference or a link although nothing marks it as one."""
_BREAK: Final = "\u200b"
"""A zero-width space: an escape hinders no mention, since those are looked for in the finished text."""


def text(value: str) -> str:
    """Return any text as one line of Markdown that shows it as it is, also inside a table."""
    line = _LINKS.sub(_broken, one_line(value))
    line = _MARKUP.sub(lambda found: _ENTITIES.get(found[0], "\\" + found[0]), line)
    return _BLOCK_START.sub(lambda found: found[0][:-1] + "\\" + found[0][-1], line)


def code(value: str) -> str:
    """Return a name as code, also inside a table; one that code cannot hold there comes as text."""
    line = one_line(value)
    if not line or any(letter in line for letter in "`|\\"):
        return text(value)
    return f"`{line}`"


def sql_block(statements: list[CleanSql]) -> list[str]:
    """Return the lines of a code block that no backtick in it can end."""
    lines = [line for one in statements for line in one.lines()]
    longest = max((len(run) for line in lines for run in re.findall(r"`+", line)), default=0)
    fence = "`" * max(3, longest + 1)
    return [f"{fence}sql", *lines, fence]


def table(headers: tuple[str, ...], rows: list[tuple[str, ...]], *, right: range = range(0)) -> list[str]:
    """Return the lines of a table; the cells must be Markdown already."""
    rule = ["---:" if place in right else "---" for place in range(len(headers))]
    return ["| " + " | ".join(row) + " |" for row in (headers, rule, *rows)]


def _broken(found: re.Match[str]) -> str:
    return _BREAK + found[0] if found[0] == "//" else found[0] + _BREAK
