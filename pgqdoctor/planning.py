"""Which SELECT to explain for a claim, and with what in the place of its parameters. Pure.

A normalised statement has lost its constants. They are put back from what is known: the partial index's
predicate for the state, the planner's statistics for other columns, now() for times, 1 for a LIMIT. What was
put in is shown.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from pgqdoctor.observation import Catalog, QueueIdentity
from pgqdoctor.rows import ColumnRow
from pgqdoctor.sqlfacts import Claim, ParameterUse, Statement
from pgqdoctor.sqlrewrite import (
    fill_parameters,
    finding_select,
    is_harmless,
    locking_select,
    parameters_of,
    renumber_parameters,
)

CLAIMED_AT_ONCE: Final = "1"
"""LIMIT where the text does not show it: one job, so that buffers are those of one job."""
NO_PRIVILEGE: Final = "<insufficient privilege>"


@dataclass(frozen=True, slots=True, kw_only=True)
class Explainable:
    """A claim made ready for EXPLAIN.

    ``select`` finds the jobs without locking, ``locking`` with its lock, ``whole`` is the statement itself;
    ``harmless`` tells whether it may be executed at all, ``reason`` why not. ``unknown`` are parameters that
    no value could be found for: they stand as NULL, and the plan is not executed.
    """

    select: str | None
    locking: str | None
    whole: str | None
    parameters: dict[str, str]
    unknown: tuple[str, ...]
    harmless: bool
    reason: str


def make_explainable(
    statement: Statement, claim: Claim, identity: QueueIdentity, catalog: Catalog
) -> Explainable:
    """Prepare a claim for EXPLAIN."""
    columns = {row.name: row for row in catalog.columns_of(identity.oid)}
    values: dict[int, str] = {}
    unknown: list[str] = []
    select = finding_select(statement.text, claim)
    locking = locking_select(statement.text, claim)
    needed = {use.number for use in parameters_of(select)} if select else set()
    for use in parameters_of(statement.text):
        value = literal_for(use, identity, columns)
        if value is None:
            value = "NULL"
            if use.number in needed:
                unknown.append(f"${use.number}")
        if values.get(use.number) in (None, "NULL"):
            values[use.number] = value
    filled = fill_parameters(select, values) if select else None
    harmless = filled is not None and is_harmless(filled)
    reason = "" if harmless else "it calls a function that is not known to be harmless"
    row = catalog.table(identity.oid)
    if row is not None and row.row_security:
        harmless, reason = False, "row security policies of the table may call functions"
    if select is None:
        harmless, reason = False, "the part that finds the job could not be taken out of the statement"
    return Explainable(
        select=filled,
        locking=fill_parameters(locking, values) if locking else None,
        whole=fill_parameters(statement.text, values),
        parameters={f"${number}": value for number, value in sorted(values.items()) if number in needed},
        unknown=tuple(unknown),
        harmless=harmless,
        reason=reason,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Generic:
    """The SELECT of a claim with its parameters, numbered from 1 without gaps as PREPARE wants them."""

    select: str
    parameters: int


def make_generic(statement: Statement, claim: Claim) -> Generic | None:
    """Return the SELECT that finds a claim's jobs for a generic plan; None where it has no parameters."""
    select = finding_select(statement.text, claim)
    if select is None or not parameters_of(select):
        return None
    try:
        text, numbers = renumber_parameters(select)
    except ValueError:
        return None
    return Generic(select=text, parameters=len(numbers))


def literal_for(use: ParameterUse, identity: QueueIdentity, columns: dict[str, ColumnRow]) -> str | None:
    """Return an SQL literal for one parameter, None where nothing tells a value that the statement would use."""
    if use.role == "limit":
        return CLAIMED_AT_ONCE
    if use.role == "offset":
        return "0"
    if use.role == "interval":
        return "'1 minute'"
    column = columns.get(use.column) if use.column else None
    if column is None:
        return None
    values = _values_for(column, use.operator, identity)
    if use.role == "set" and column.name == identity.roles.state and identity.running_values:
        # A claim that left the state as it is would not be measured as the update it is.
        values = [_literal(identity.running_values[0])]
    if not values:
        return None
    if use.array:
        return f"ARRAY[{', '.join(values)}]::{use.cast or column.type_name + '[]'}"
    # A list that the server squashed into one parameter takes all the values.
    return ", ".join(values) if use.operator in ("in", "not in") else values[0]


def _values_for(column: ColumnRow, operator: str | None, identity: QueueIdentity) -> Sequence[str]:
    roles = identity.roles
    if column.name == roles.state and operator not in ("<>", "not in", ">", ">="):
        if column.type_category == "B":
            return [identity.ready_values[0] if identity.ready_values else "true"]
        # The commonest state is often a finished one, which no claim asks for.
        settled = {_literal(value) for value in (*identity.finished_values, *identity.running_values)}
        return [_literal(value) for value in identity.ready_values] or [
            one for one in _common(column) if one not in settled
        ]
    if column.name == roles.state:
        return [_literal(value) for value in identity.finished_values or identity.running_values]
    if column.type_category == "D":
        return ["now()"]
    if column.name == roles.attempts:
        return ["1000"]
    return _common(column)


def _common(column: ColumnRow) -> list[str]:
    """The commonest values by the planner's statistics: what most claims ask for."""
    if column.common_values:
        return [_literal(column.common_values[0])]
    if column.type_category == "B":
        return ["true"]
    return []


def _literal(value: str) -> str:
    return "'" + value.replace("'", "''") + "'"
