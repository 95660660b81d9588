"""Everything that a set of .sql files says together: statements with their places, function bodies, tables. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from pgqdoctor.lint.sources import Piece, Source
from pgqdoctor.lint.tables import Schema, read_definitions
from pgqdoctor.lint.views import read_views
from pgqdoctor.lookalikes import names_work
from pgqdoctor.names import same_table
from pgqdoctor.sqlbody import read_definition
from pgqdoctor.sqlfacts import Claim, FunctionBody, Statement, TableName, Unread
from pgqdoctor.sqlread import read_sql
from pgqdoctor.sqltext import MAX_NESTING, Unparsable, nesting, split
from pgqdoctor.sqlwords import tests_state

MOST_ATTEMPTS: Final = 20
"""How often a file is cut anew behind a quote that is missing; each time costs as much as the first."""


SHORT: Final = 400
"""Characters of an INSERT which cannot nest so deep that the parser's stack is at risk."""
_INSERT: Final = re.compile(r"INSERT\b", re.IGNORECASE)
_MORE: Final = re.compile(r"\b(?:SELECT|UPDATE|DELETE|WITH|TABLE)\b", re.IGNORECASE)
"""Words by which an INSERT does more than to write values."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Placed:
    """One statement with its place. ``unit`` tells statements apart that do not run in one sequence (files, function bodies).

    ``guarded`` is true inside an EXCEPTION block or between SAVEPOINT and its release: the statement has a transaction id of its
    own. ``definition`` is the line where the function around it begins.
    """

    statement: Statement
    source: Source
    offset: int
    unit: str
    function: str | None
    guarded: bool
    definition: int | None = None

    @property
    def line(self) -> int:
        """Line of the file, from 1."""
        return self.source.place(self.offset)[0]

    @property
    def column(self) -> int:
        """Column of the line, from 1."""
        return self.source.place(self.offset)[1]

    @property
    def last_line(self) -> int:
        """Line on which the statement ends."""
        return self.line + self.statement.text.count("\n")


@dataclass(frozen=True, slots=True, kw_only=True)
class PlacedClaim:
    """One claim of a placed statement."""

    placed: Placed
    claim: Claim


@dataclass(frozen=True, slots=True, kw_only=True)
class Unparsed:
    """What could not be read: the line where it begins and the reason."""

    file: str
    line: int
    error: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Program:
    """All files together."""

    statements: tuple[Placed, ...]
    schema: Schema
    unparsed: tuple[Unparsed, ...]

    @property
    def claims(self) -> tuple[PlacedClaim, ...]:
        """The claims that are certain without a catalog to look at."""
        found = [
            PlacedClaim(placed=placed, claim=claim)
            for placed in self.statements
            for claim in placed.statement.claims
            if not claim.by_key
        ]
        certain = [one for one in found if _certain(one.claim)]
        names = [one.claim.table for one in certain]
        return tuple(
            one for one in found if one in certain or any(same(one.claim.table, name) for name in names)
        )

    def is_queue(self, table: TableName) -> bool:
        """Tell whether some statement of the files claims from a table."""
        return any(same(one.claim.table, table) for one in self.claims)

    def units(self) -> Iterator[tuple[Placed, ...]]:
        """Yield the statements that run one after another: those of each function body, and those of each file."""
        by_unit: dict[str, list[Placed]] = {}
        for one in self.statements:
            by_unit.setdefault(one.unit, []).append(one)
        yield from (tuple(found) for found in by_unit.values())


def same(one: TableName, other: TableName) -> bool:
    """Tell whether two names as written may mean one table."""
    return one.schema is None or same_table(other, one.schema, one.name) if one.name == other.name else False


def _certain(claim: Claim) -> bool:
    """Tell whether a statement takes jobs for certain.

    A lock that waits also protects rows which are nobody's job: the newest balance of an account, the open items of an order.
    """
    if claim.shape in ("skip-locked", "delete-skip-locked", "unguarded", "advisory"):
        return True
    if claim.shape == "guarded" and claim.limit_kind == "none":
        # Orders, accounts and subscriptions are moved on by such an update as well.
        return names_work(claim.table.name)
    asks = not claim.conditions or any(tests_state(one) for one in claim.conditions)
    return claim.limit_kind != "none" and asks if claim.lock is not None else claim.writes


def read_program(sources: Sequence[Source]) -> Program:
    """Read what the files say; a statement that does not parse is listed and the others are read."""
    statements: list[Placed] = []
    unparsed: list[Unparsed] = []
    definitions: list[tuple[str, Source, int]] = []
    for whole in sources:
        savepoints = 0
        for number, (source, piece) in enumerate(_pieces(whole, unparsed)):
            reading = read_sql(piece.text)
            unparsed.extend(_unparsed(source, piece, 0, reading.unread))
            for statement in reading.statements:
                savepoints = _savepoints(savepoints, statement)
                offset = piece.at(statement.offset)
                statements.append(
                    Placed(
                        statement=statement,
                        source=source,
                        offset=offset,
                        unit=source.name,
                        function=None,
                        guarded=savepoints > 0 and statement.kind != "savepoint",
                    )
                )
                if statement.kind == "ddl":
                    definitions.append((statement.text, source, offset))
            body = read_definition(piece.text) if _defines(piece.text) else None
            if body is not None:
                start = _body_offset(piece.text)
                unparsed.extend(_unparsed(source, piece, start, body.unread))
                inside = list(_inside(source, piece, start, body, f"{source.name}:{number}"))
                statements.extend(inside)
                if not body.name:
                    # A DO block runs when the file does; what a function would create does not exist yet.
                    definitions.extend(
                        (one.statement.text, source, one.offset)
                        for one in inside
                        if one.statement.kind == "ddl"
                    )
    unparsed.sort(key=lambda one: ([each.name for each in sources].index(one.file), one.line))
    views = read_views(text for text, _, _ in definitions)
    return Program(
        statements=tuple(replace(one, statement=views.expanded(one.statement)) for one in statements)
        if views.queries
        else tuple(statements),
        schema=read_definitions(definitions),
        unparsed=tuple(dict.fromkeys(unparsed)),
    )


def _pieces(source: Source, unparsed: list[Unparsed]) -> Iterator[tuple[Source, Piece]]:
    """Yield the statements of a file; where a missing quote has swallowed others, those as well."""
    for _ in range(MOST_ATTEMPTS):
        rest: Source | None = None
        for piece in source.pieces:
            if _only_inserts(piece.text):
                continue
            yield source, piece
            reading = read_sql(piece.text)
            rest = source.after(piece) if reading.unread and not reading.statements else None
            if rest is not None:
                break
        if rest is None:
            unparsed.extend(
                Unparsed(file=source.name, line=source.place(one.offset)[0], error=one.error)
                for one in source.broken
            )
            return
        source = rest


def _only_inserts(text: str) -> bool:
    """Tell whether a statement is an INSERT of plain values that parses: dumps have thousands, and they claim nothing.

    Checking the grammar alone costs a fortieth of reading the statement.
    """
    from pglast import parser

    if not _INSERT.match(text) or _MORE.search(text):
        return False
    try:
        if len(text) > SHORT and nesting(next(split(text)).tokens) > MAX_NESTING:
            return False
        parser.fingerprint(text)
    except (Unparsable, StopIteration, parser.ParseError, UnicodeError):
        return False
    return True


def _savepoints(depth: int, statement: Statement) -> int:
    if statement.kind == "savepoint":
        return depth + 1
    if statement.kind == "release":
        return max(0, depth - 1)
    return 0 if statement.kind in ("begin", "commit", "rollback") else depth


def _unparsed(source: Source, piece: Piece, start: int, unread: Iterable[Unread]) -> Iterator[Unparsed]:
    for one in unread:
        yield Unparsed(file=source.name, line=source.place(piece.at(start + one.offset))[0], error=one.error)


def _defines(text: str) -> bool:
    first = text[:400].upper()
    return first.startswith("DO") or ("CREATE" in first and ("FUNCTION" in first or "PROCEDURE" in first))


def _inside(source: Source, piece: Piece, start: int, body: FunctionBody, unit: str) -> Iterator[Placed]:
    line = source.place(piece.at(0))[0]
    for statement, guarded in zip(body.statements, body.in_exception_block, strict=True):
        yield Placed(
            statement=statement,
            source=source,
            offset=piece.at(max(0, start + statement.offset)),
            unit=unit,
            function=body.name,
            guarded=guarded,
            definition=line,
        )


def _body_offset(text: str) -> int:
    """Return where a function's body begins in its definition."""
    try:
        tokens: tuple[Any, ...] = next(iter(split(text))).tokens
    except (Unparsable, StopIteration):
        return 0
    strings = [one for one in tokens if one.name == "SCONST"]
    if strings and not any(one.name == "ATOMIC" for one in tokens):
        # The body is the longest string of the definition; defaults and options are short.
        longest = max(strings, key=lambda one: one.end - one.start)
        token = text[longest.start : longest.end + 1]
        return int(longest.start) + (token.index("$", 1) + 1 if token.startswith("$") else 1)
    for one in tokens:
        if one.name in ("BEGIN_P", "RETURN"):
            return int(one.start)
    return 0
