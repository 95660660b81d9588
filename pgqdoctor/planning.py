"""Which SELECT to explain for a claim, and with what in the place of its parameters. Pure.

A normalised statement has lost its constants. They are put back from what is known: the partial index's
predicate for the state, the planner's statistics for other columns, now() for times, 1 for a LIMIT. What was
put in is shown.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
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
    no value could be found for: they stand as NULL, and the plan is not executed. ``wanted`` are the columns they
    are compared with: a value that a job has would do.
    """

    select: str | None
    locking: str | None
    whole: str | None
    parameters: dict[str, str]
    unknown: tuple[str, ...]
    harmless: bool
    reason: str
    wanted: tuple[str, ...] = ()


def make_explainable(
    statement: Statement,
    claim: Claim,
    identity: QueueIdentity,
    catalog: Catalog,
    job: Mapping[str, str] = MappingProxyType({}),
    *,
    superuser: bool = False,
) -> Explainable:
    """Prepare a claim for EXPLAIN.

    ``job`` maps columns to the values of some job, for what nothing else tells. Row security does not concern a ``superuser``.
    """
    columns = {row.name: row for row in catalog.columns_of(identity.oid)}
    values: dict[int, str] = {}
    wanted: dict[int, str] = {}
    select = finding_select(statement.text, claim)
    locking = locking_select(statement.text, claim)
    needed = {use.number for use in parameters_of(select)} if select else set()
    for use in parameters_of(statement.text):
        value = literal_for(use, identity, columns, job)
        if value is None:
            value = "NULL"
            if use.role == "compare" and use.column in columns:
                wanted.setdefault(use.number, use.column or "")
        if values.get(use.number) in (None, "NULL"):
            values[use.number] = value
    unknown = [number for number in sorted(needed) if values[number] == "NULL"]
    filled = _filled(select, values) if select else None
    harmless = filled is not None and is_harmless(filled)
    reason = "" if harmless else "it calls a function that is not known to be harmless"
    row = catalog.table(identity.oid)
    if row is not None and row.row_security and not superuser:
        harmless, reason = False, "row security policies of the table may call functions"
    if select is None:
        harmless, reason = False, "the part that finds the job could not be taken out of the statement"
    return Explainable(
        select=filled,
        locking=_filled(locking, values) if locking else None,
        whole=_filled(statement.text, values),
        parameters={f"${number}": value for number, value in sorted(values.items()) if number in needed},
        unknown=tuple(f"${number}" for number in unknown),
        harmless=harmless,
        reason=reason,
        wanted=tuple(dict.fromkeys(wanted[number] for number in unknown if number in wanted)),
    )


def _filled(text: str, values: dict[int, str]) -> str | None:
    """Return the text with values in the place of its parameters, None where it cannot be written back."""
    try:
        return fill_parameters(text, values)
    except ValueError:
        return None


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


def literal_for(
    use: ParameterUse,
    identity: QueueIdentity,
    columns: dict[str, ColumnRow],
    job: Mapping[str, str] = MappingProxyType({}),
) -> str | None:
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
    if use.role == "other" and use.factor:
        # now() - make_interval(secs => $1): nothing more than the time itself.
        return "0" if column.type_category == "D" else None
    values = _values_for(column, use.operator, identity)
    if not values and column.name in job:
        values = [_literal(job[column.name])]
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
    if column.type_category == "D":
        return ["now()"]
    if column.name == roles.state and operator in ("<", ">") and identity.ready_values:
        return [_literal(value) for value in _beside(column, operator, identity.ready_values)]
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
    if column.name == roles.attempts:
        return ["1000"]
    return _common(column)


def _beside(column: ColumnRow, operator: str, ready: Sequence[str]) -> Sequence[str]:
    """A bound that the ready states keep: ``state < 'active' AND state = 'created'`` must not become false.

    The next label of an enum, the next whole number, and for a text one that sorts after (or before) in every collation.
    """
    above = operator == "<"
    if column.enum_labels:
        places = [column.enum_labels.index(value) for value in ready if value in column.enum_labels]
        if not places:
            return ()
        place = max(places) + 1 if above else min(places) - 1
        return column.enum_labels[place : place + 1] if place >= 0 else ()
    if column.type_category == "N":
        numbers = [int(value) for value in ready if value.lstrip("-").isdigit()]
        if not numbers:
            return ()
        return [str(max(numbers) + 1 if above else min(numbers) - 1)]
    if column.type_category == "S":
        return [max(ready) + "z"] if above else [""]
    return ()


def _common(column: ColumnRow) -> list[str]:
    """The commonest values by the planner's statistics: what most claims ask for."""
    if column.common_values:
        return [_literal(column.common_values[0])]
    if column.type_category == "B":
        return ["true"]
    return []


def _literal(value: str) -> str:
    return "'" + value.replace("'", "''") + "'"
