"""Evidence by reads without a lock: jobs polled by state, then written by key. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from pgqdoctor.discovery.columns import TIME_CATEGORY, acts_as_state
from pgqdoctor.discovery.signs import Signs
from pgqdoctor.observation import ColumnRoles
from pgqdoctor.predicates import flat
from pgqdoctor.rows import ColumnRow
from pgqdoctor.sqlfacts import Condition, OrderKey

TWO_STATEMENTS: Final = "polled by state without a lock, then written by key"
"""How a queue was recognised whose claim is no single statement."""


def polls_of(signs: Signs, columns: Mapping[str, ColumnRow]) -> list[tuple[Condition, ...]]:
    """Return the conditions of unlocked reads with a LIMIT that test something acting as a state."""
    found = []
    for _, statement in signs.statements:
        if statement.claims or statement.locks or statement.writes:
            continue
        for read in statement.reads:
            if read.limit_kind == "none" or read.counts or _newest_first(read.order, columns):
                continue
            tested = [one.column for one in flat(read.conditions) if one.column in columns]
            if any(name is not None and acts_as_state(columns[name]) for name in tested):
                found.append(read.conditions)
    return found


def _newest_first(order: Sequence[OrderKey], columns: Mapping[str, ColumnRow]) -> bool:
    """Tell whether a read lists the latest rows, as a page for people does: a worker asks for the oldest."""
    first = next(iter(order), None)
    row = columns.get(first.column) if first is not None and first.column is not None else None
    return first is not None and row is not None and first.descending and row.type_category == TIME_CATEGORY


def written_by_key(signs: Signs, roles: ColumnRoles) -> bool:
    """Tell whether the state is set by an UPDATE that finds its row by key."""
    acting = {roles.state, roles.claimed_at, roles.lease, roles.owner} - {None}
    return any(
        write.kind == "update" and write.by_key_only and acting & {one.column for one in write.sets}
        for _, statement in signs.statements
        for write in statement.writes
    )
