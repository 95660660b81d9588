"""Cutting .sql files into statements, as psql and pgbench read them.

Meta-commands, COPY data and psql variables are not SQL; they are taken out or replaced here, and every statement keeps the way
back to its place in the file.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Final

FIRST_VARIABLE: Final = 9001
"""psql's variables stand as parameters from this number on: statements hold fewer of their own."""

_TOKEN: Final = re.compile(
    r"""
      (?P<space>\s+)
    | (?P<line>--[^\n\r]*)
    | (?P<block>/\*)
    | (?P<string>[eE]'(?:[^'\\]|''|\\.)*' | (?:[uU]&|[bBxXnN])?'(?:[^']|'')*')
    | (?P<quoted>(?:[uU]&)?"(?:[^"]|"")*")
    | (?P<dollar>\$(?:[^\W\d]\w*)?\$)
    | (?P<cast>::|:=)
    | (?P<variable>:(?:'\w+'|"\w+"|\{\?\w+\}|[^\W\d]\w*))
    | (?P<word>[^\W\d][\w$]*)
    | (?P<meta>\\)
    | (?P<end>;)
    | (?P<open>[(\[])
    | (?P<close>[)\]])
    | (?P<number>\d+|\$\d+)
    | (?P<other>.)
    """,
    re.VERBOSE | re.DOTALL,
)
_SENDS: Final = frozenset(
    {"g", "gx", "gset", "gexec", "gdesc", "aset", "watch", "crosstabview", "crosstabviewx", ";", "parse"}
)
"""Meta-commands of psql and pgbench that send what was typed before them."""
_BEFORE_NAMES: Final = frozenset(
    {
        "FROM", "INTO", "UPDATE", "TABLE", "JOIN", "ON", "SCHEMA", "TO", "ONLY", "EXISTS", "DATABASE", "ROLE",
        "OWNER", "USER", "FUNCTION", "INDEX", "VIEW", "TYPE",
    }
)  # fmt: skip
"""Words after which a variable stands for a name rather than for a value."""
_LINE_END: Final = re.compile(r";[ \t]*\r?$", re.MULTILINE)
_IGNORE: Final = re.compile(r"(?:--|/\*).*?\bpgqdoctor:\s*ignore=([\w-]+(?:\s*,\s*[\w-]+)*)")


@dataclass(frozen=True, slots=True, kw_only=True)
class Piece:
    """One statement of a file. ``text`` is without its semicolon, with psql variables as parameters.

    ``offsets`` maps positions of ``text`` to positions of the file: (position here, position there), ascending.
    """

    text: str
    offsets: tuple[tuple[int, int], ...]

    def at(self, position: int) -> int:
        """Return where a position of ``text`` stands in the file."""
        place = max(0, bisect_right(self.offsets, (position, 1 << 62)) - 1)
        here, there = self.offsets[place]
        return there + position - here


@dataclass(frozen=True, slots=True, kw_only=True)
class Broken:
    """Text that is no statement, from a position of the file on."""

    offset: int
    error: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """One file, cut up. ``variables`` are psql's, by the parameter number that stands for each."""

    name: str
    text: str
    pieces: tuple[Piece, ...]
    broken: tuple[Broken, ...]
    variables: dict[int, str]
    lines: tuple[int, ...]
    """Where each line begins."""
    ignored: dict[int, frozenset[str]]
    """Check ids that a comment suppresses, by the number of its line."""

    def place(self, offset: int) -> tuple[int, int]:
        """Return line and column of a position, both from 1."""
        line = bisect_right(self.lines, offset)
        return line, offset - self.lines[line - 1] + 1

    def suppressed(self, check: str, first: int, last: int) -> bool:
        """Tell whether a comment on lines ``first`` to ``last``, or on the line above them, suppresses the check."""
        return any(check in self.ignored.get(line, ()) for line in range(first - 1, last + 1))

    def after(self, piece: Piece) -> Source | None:
        """Return the rest of the file behind the first line end in a statement that a quote may have swallowed.

        A quote that is missing turns SQL into strings and strings into SQL up to the end of the file. None where no string of the
        statement holds a semicolon at the end of a line.
        """
        start, end = piece.at(0), piece.at(len(piece.text))
        swallowed = any(
            found.lastgroup == "string" and _LINE_END.search(found[0])
            for found in _TOKEN.finditer(self.text, start, end)
        )
        first = _LINE_END.search(self.text, start)
        if not swallowed or first is None:
            return None
        blank = re.sub(r"[^\n]", " ", self.text[: first.end()])
        rest = read_source(self.name, blank + self.text[first.end() :])
        return replace(rest, text=self.text, lines=self.lines, ignored=self.ignored)

    def with_variables(self, sql: str) -> str:
        """Return a statement with psql's variables in the place of the parameters that stand for them."""

        def back(found: re.Match[str]) -> str:
            return self.variables.get(int(found[1]), found[0])

        return re.sub(r"\$(\d{4,})\b", back, sql)


def read_source(name: str, text: str) -> Source:
    """Cut a file into statements; what has no end is in ``broken``, and reading goes on after it."""
    cutter = _Cutter(text)
    cutter.run()
    lines = [0, *(found.end() for found in re.finditer(r"\n", text))]
    ignored = {
        number: frozenset(one.strip() for one in found[1].split(","))
        for number, line in enumerate(text.split("\n"), 1)
        if (found := _IGNORE.search(line)) is not None
    }
    return Source(
        name=name,
        text=text,
        pieces=tuple(cutter.pieces),
        broken=tuple(cutter.broken),
        variables={number: spelled for spelled, number in cutter.variables.items()},
        lines=tuple(lines),
        ignored=ignored,
    )


@dataclass(slots=True)
class _Statement:
    """The statement being read: its parts, and what of it decides where it ends."""

    parts: list[tuple[int, str]] = field(default_factory=list)
    words: list[str] = field(default_factory=list)
    brackets: list[str] = field(default_factory=list)
    atomic: int = 0
    started: bool = False


class _Cutter:
    def __init__(self, text: str) -> None:
        self.text = text
        self.pieces: list[Piece] = []
        self.broken: list[Broken] = []
        self.variables: dict[str, int] = {}
        self.now = _Statement()
        self.last = ""

    def run(self) -> None:
        at = 0
        while at < len(self.text):
            found = _TOKEN.match(self.text, at)
            assert found is not None and found.lastgroup is not None
            at = self.token(found.lastgroup, found[0], at)
        self.finish()

    def token(self, kind: str, token: str, at: int) -> int:
        """Take one token and return where the next begins."""
        after = at + len(token)
        now = self.now
        if kind == "block":
            return self.comment(at)
        if kind in ("space", "line"):
            if now.started:
                now.parts.append((at, token))
            return after
        if kind == "meta":
            return self.command(at)
        if kind == "end":
            return self.semicolon(at)
        if kind == "dollar":
            close = self.text.find(token, after)
            if close < 0:
                return self.unterminated(at, "unterminated dollar-quoted string")
            token, after = self.text[at : close + len(token)], close + len(token)
        elif kind == "other" and token in "'\"":
            return self.unterminated(
                at, "unterminated quoted string" if token == "'" else "unterminated quoted identifier"
            )
        now.started = True
        if kind == "variable" and self.is_variable(at):
            token = self.variable(token, after)
        elif kind == "open":
            now.brackets.append(token)
        elif kind == "close" and now.brackets:
            now.brackets.pop()
        elif kind == "word":
            self.word(token.upper())
        now.parts.append((at, token))
        self.last = token
        return after

    def word(self, word: str) -> None:
        now = self.now
        before = now.words[-1] if now.words else ""
        if word == "ATOMIC" and before == "BEGIN":
            now.atomic = 1
        elif now.atomic and word == "CASE":
            now.atomic += 1
        elif now.atomic and word == "END":
            now.atomic -= 1
        now.words.append(word)

    def comment(self, at: int) -> int:
        """Skip a block comment; they nest."""
        depth, place = 0, at
        for found in re.finditer(r"/\*|\*/", self.text[at:]):
            depth += 1 if found[0] == "/*" else -1
            place = at + found.end()
            if depth == 0:
                break
        if depth:
            return self.unterminated(at, "unterminated comment")
        if self.now.started:
            # As blanks of the same length: a comment says nothing, and positions stay.
            self.now.parts.append((at, re.sub(r"[^\n]", " ", self.text[at:place])))
        return place

    def command(self, at: int) -> int:
        """Take a meta-command out, up to the end of its line; pgbench's go on after a backslash there."""
        end = self.line_end(at)
        while self.text[at:end].rstrip().endswith("\\") and end < len(self.text) and end > at + 1:
            end = self.line_end(end + 1)
        names = re.findall(r"\\(\w+|;)", self.text[at:end])
        if names[:1] == [";"]:
            self.finish()
            return at + 2
        if names[:1] in (["r"], ["reset"]):
            self.now = _Statement()
        elif any(name in _SENDS for name in names):
            self.finish()
        elif names[:1] == ["copy"] and re.search(r"\bfrom\s+(?:p?stdin)\b", self.text[at:end], re.IGNORECASE):
            return self.data(end)
        return end

    def semicolon(self, at: int) -> int:
        now = self.now
        inside = now.atomic > 0 or (now.brackets and ("RULE" in now.words[:4] or not self.ends_line(at)))
        if inside:
            now.parts.append((at, ";"))
            return at + 1
        words = now.words
        self.finish()
        if words[:1] == ["COPY"] and ("FROM", "STDIN") in pairwise(words):
            return self.data(self.line_end(at))
        return at + 1

    def ends_line(self, at: int) -> bool:
        """A bracket that was never closed must not swallow the rest of the file."""
        return re.match(r";[ \t]*(?:--[^\n]*)?(?:\r?\n|\Z)", self.text[at:]) is not None

    def data(self, end: int) -> int:
        """Skip the lines of COPY data up to the one that ends them."""
        found = re.compile(r"^\\\.[ \t]*\r?$", re.MULTILINE).search(self.text, min(end + 1, len(self.text)))
        return found.end() if found is not None else len(self.text)

    def unterminated(self, at: int, error: str) -> int:
        """Note text without an end, and go on behind the next line that ends in a semicolon."""
        start = self.now.parts[0][0] if self.now.parts else at
        self.broken.append(Broken(offset=start, error=error))
        self.now = _Statement()
        # From the statement's start on: the quote that has no end may be a later one than the quote that is missing.
        found = _LINE_END.search(self.text, start)
        return max(found.end(), start + 1) if found is not None else len(self.text)

    def is_variable(self, at: int) -> bool:
        """In ``[1:n]`` the colon makes a slice."""
        return not (self.now.brackets and self.now.brackets[-1] == "[") and self.text[at - 1 : at] != ":"

    def variable(self, token: str, after: int) -> str:
        if token.startswith(":{"):
            return "true"
        if token.startswith(':"'):
            return token[1:]
        name = token[1:].strip("'")
        before = self.now.words[-1] if self.now.words else ""
        named = (
            self.last == "."
            or self.text[after : after + 1] == "."
            or (self.last.upper() == before and before in _BEFORE_NAMES)
        )
        if named and token[1] != "'":
            return name
        number = self.variables.setdefault(token, FIRST_VARIABLE + len(self.variables))
        return f"${number}"

    def line_end(self, at: int) -> int:
        end = self.text.find("\n", at)
        return end if end >= 0 else len(self.text)

    def finish(self) -> None:
        """Close the statement being read, where there is one."""
        parts = self.now.parts
        self.now, self.last = _Statement(), ""
        if not parts:
            return
        offsets, here = [], 0
        for there, text in parts:
            offsets.append((here, there))
            here += len(text)
        self.pieces.append(Piece(text="".join(text for _, text in parts).rstrip(), offsets=tuple(offsets)))
