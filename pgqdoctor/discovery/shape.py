"""Evidence by the shape of a table: its indexes, the columns that speak of work, and whether its rows move. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from pgqdoctor.discovery.columns import TIME_CATEGORY
from pgqdoctor.discovery.states import PUBLIC_WORDS, READY_WORDS, RUNNING_WORDS, StateNames, plain_word
from pgqdoctor.lookalikes import is_kept_record
from pgqdoctor.observation import Catalog, ColumnRoles
from pgqdoctor.predicates import flat, predicate_conditions
from pgqdoctor.rows import ColumnRow, IndexRow, TableCounterRow, TableRow
from pgqdoctor.sqlrewrite import quote_ident

CERTAIN_SHAPE: Final = 5
"""Shape points from which a table without a visible claim counts as a queue, if it also churns: a partial
index on a ready-like state (3), and two of run-at, attempts and lease columns, which no look-alike met so far
has.
"""


def shape(
    roles: ColumnRoles, indexes: Sequence[IndexRow], columns: Mapping[str, ColumnRow], states: StateNames
) -> tuple[list[str], int]:
    """Return what the shape says for a queue, in words, and in points."""
    reasons: list[str] = []
    points = 0
    if roles.state is not None:
        partial = [
            index
            for index in indexes
            if any(one.column == roles.state for one in flat(predicate_conditions(index)))
        ]
        leading = [
            index
            for index in indexes
            if index.key_columns and columns[roles.state].number == index.key_columns[0]
        ]
        if partial:
            reasons.append(f"partial index on {quote_ident(roles.state)}")
            points += 3
        elif leading:
            reasons.append(f"index led by {quote_ident(roles.state)}")
            points += 1
        if states.ready or columns[roles.state].type_category in (TIME_CATEGORY, "B"):
            reasons.append(f"{quote_ident(roles.state)} acts as state")
            points += 1
    for name, what in (
        (roles.run_at, "run-at"),
        (roles.lease or roles.heartbeat or roles.claimed_at, "lease"),
        (roles.attempts, "attempts"),
    ):
        if name is not None:
            reasons.append(f"{what} column {quote_ident(name)}")
            points += 1
    return reasons, points


def worked_on(roles: ColumnRoles) -> bool:
    """Tell whether columns speak of work: tried, due, taken by somebody, alive. A state alone has every second table."""
    return any((roles.attempts, roles.run_at, roles.claimed_at, roles.heartbeat, roles.owner))


def works_jobs(
    roles: ColumnRoles, indexes: Sequence[IndexRow], columns: Mapping[str, ColumnRow], states: StateNames
) -> bool:
    """Tell whether a table that is read by state and then written by key holds work, and not what people publish and close.

    A list of vacancies has a status, an index on it and a date of expiry as well. Work is taken: by whom or when, how often,
    when it is due, or in which state meanwhile.
    """
    told = (roles.run_at, roles.attempts, roles.owner, roles.claimed_at, roles.heartbeat)
    state = columns[roles.state] if roles.state is not None else None
    if any(told) or state is None or state.type_category not in ("S", "E"):
        return True
    partial = any(one.column == roles.state for index in indexes for one in flat(predicate_conditions(index)))
    words = {plain_word(value) for value in (*states.ready, *states.running)}
    return partial or not words or bool(words & ((READY_WORDS - PUBLIC_WORDS) | RUNNING_WORDS))


def is_consumed(row: TableRow, catalog: Catalog, counters: Sequence[TableCounterRow]) -> bool:
    """Tell whether rows are updated or deleted: what is only inserted into keeps records. True where nothing was counted."""
    if is_kept_record(row.name):
        return False
    oids = {row.oid, *(leaf.oid for leaf in catalog.partitions_of(row.oid))}
    counted = [one for one in counters if one.oid in oids]
    return not any(one.inserted for one in counted) or any(one.updated + one.deleted for one in counted)


def leaf_moves(catalog: Catalog, row: TableRow, moving: frozenset[int]) -> bool:
    """Tell whether a partition of a table moves."""
    return row.kind == "p" and any(leaf.oid in moving for leaf in catalog.partitions_of(row.oid))
