"""Conditions as data: those of a partial index's predicate, and what a comparison allows. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from pgqdoctor.rows import IndexRow
from pgqdoctor.sqlfacts import Condition
from pgqdoctor.sqlread import read_sql


def flat(conditions: Iterable[Condition]) -> Iterator[Condition]:
    """Return the conditions and, behind each OR, those of its branches."""
    for one in conditions:
        yield one
        for branch in one.branches:
            yield from flat(branch)


def predicate_conditions(index: IndexRow) -> tuple[Condition, ...]:
    """Return the conjuncts of a partial index's predicate, read with the same reader as statements."""
    if index.predicate is None:
        return ()
    statements = read_sql(f"SELECT FROM t WHERE {index.predicate}").statements
    return tuple(one for statement in statements for read in statement.reads for one in read.conditions)


def allowed_values(one: Condition) -> tuple[str, ...]:
    """Return the values that a comparison allows; those of a boolean test are "true" and "false"."""
    if one.operator in ("is true", "is false"):
        return (one.operator.removeprefix("is "),)
    return one.values if one.operator in ("=", "in") else ()


def predicate_values(index: IndexRow, column: str) -> tuple[str, ...]:
    """Return the constants that a partial index's predicate allows for ``column``."""
    return tuple(
        value
        for one in flat(predicate_conditions(index))
        if one.column == column
        for value in allowed_values(one)
    )
