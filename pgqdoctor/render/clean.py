"""Making names, titles and SQL harmless for a terminal: they come from the server and may aim at it."""

from __future__ import annotations

import re
import unicodedata
from dataclasses import dataclass
from typing import Final

_ESCAPE_SEQUENCE: Final = re.compile(r"(?:\x1b\[|\x9b)[0-?]*[ -/]*[@-~]|\x1b[ -/]*[0-~]?")
"""Complete control sequences (colours, cursor movement), and the beginnings of all others.

What an unfinished or a string sequence (a title, a link) would swallow stays: text behind a hostile name must not vanish.
"""
LEFT_OUT: Final = "-- Control characters are left out here; --format json has the whole statement:"
_JOINERS: Final = "\u200c\u200d"
"""Format characters that scripts and emoji need."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CleanSql:
    """A statement for showing. ``complete`` is false where something had to be left out."""

    text: str
    complete: bool

    def lines(self) -> list[str]:
        """Return its lines; an incomplete one as a comment, since pasted it would do something else."""
        lines = self.text.split("\n")
        return lines if self.complete else [LEFT_OUT, *(f"-- {line}" for line in lines)]


def one_line(text: str) -> str:
    """Return the text on one line, without escape sequences, control characters, bidirectional controls."""
    return " ".join(_without_controls(text).split())


def statement(sql: str) -> CleanSql:
    """Return SQL with its newlines and tabs, and without everything else that a terminal would obey."""
    text = sql.replace("\r\n", "\n")
    clean = "".join(
        part if part in "\n\t" else _without_controls(part) for part in re.split(r"([\n\t])", text)
    )
    return CleanSql(text=clean.strip("\n"), complete=clean == text)


def _without_controls(text: str) -> str:
    if text.isascii() and text.isprintable():
        return text
    return "".join(map(_shown, _ESCAPE_SEQUENCE.sub("", text)))


def _shown(letter: str) -> str:
    category = unicodedata.category(letter)
    if category in ("Zl", "Zp") or letter in "\n\t\r\v\f":
        return " "
    if category == "Cs":
        # Half of a surrogate pair cannot be written as UTF-8.
        return "\ufffd"
    return "" if category in ("Cc", "Cf") and letter not in _JOINERS else letter
