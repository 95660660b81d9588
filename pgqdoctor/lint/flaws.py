"""What a check says about .sql files: a fault with its place. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from pgqdoctor import remedy
from pgqdoctor.finding import Remedy, Severity
from pgqdoctor.lint.program import Placed, Program
from pgqdoctor.lint.sources import Source
from pgqdoctor.sqlfacts import TableName
from pgqdoctor.sqlrewrite import quote_ident


@dataclass(frozen=True, slots=True, kw_only=True)
class Flaw:
    """One fault. A comment on any of its lines, or on the one above the statement or the function, suppresses it."""

    severity: Severity
    source: Source
    offset: int
    last_line: int
    title: str
    why: str
    remedies: tuple[Remedy, ...] = ()
    definition: int | None = None


Lint = Callable[[Program], Iterable[Flaw]]


def flaw_at(
    placed: Placed, *, severity: Severity, title: str, why: str, remedies: Iterable[Remedy] = ()
) -> Flaw:
    """Return a fault of one statement."""
    return Flaw(
        severity=severity,
        source=placed.source,
        offset=placed.offset,
        last_line=placed.last_line,
        title=title,
        why=why,
        remedies=tuple(remedies),
        definition=placed.definition,
    )


def corrected(placed: Placed, sql: str | None, *, title: str, expect: str) -> tuple[Remedy, ...]:
    """Return the statement as it should read as a remedy, nothing where it could not be written."""
    if sql is None:
        return ()
    if placed.function is not None:
        expect += "; what the function had around it, such as INTO, stays"
    text = placed.source.with_variables(sql).rstrip().rstrip(";") + ";"
    return (remedy.corrected_statement(sql=(text,), title=title, expect=expect),)


def named(table: TableName) -> str:
    """Return a table as SQL writes it."""
    return ".".join(quote_ident(one) for one in (table.schema, table.name) if one is not None)
