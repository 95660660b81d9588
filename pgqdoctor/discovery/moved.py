"""Which columns statements move on: compared with a value to find a job, and set to another one when it is taken. Pure.

That is what a state is, whatever its name and its words. Names only tell here what is no state: a lane is compared and may be
set when a job moves to another one, a count and a version go up with every write.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from pgqdoctor.predicates import allowed_values, flat
from pgqdoctor.rows import ColumnRow
from pgqdoctor.sqlfacts import Assignment, Claim, Condition, Statement, Write
from pgqdoctor.sqlwords import is_key

_NO_STATE: Final = re.compile(
    r"(^|_)(queue|queue_?name|lane|topic|channel|kind|type|class|job_?name|task_?name|name|tenant|customer|account|user|shard|bucket"
    r"|partition|region|batch|group|pool|exchange|routing_?key|handler|priority|prio|rank|weight|position|seq|sequence|hash|checksum|key"
    r"|version|row_?version|revision|rev|etag|xmin|generation|epoch|optlock|\w*(attempts?|tries|retries|count|failures)|read_ct)$"
    r"|_id$|_by$|^(worker|owner|node|host|hostname|pid|executor|token|lock_?id)$"
)
"""Names of columns that statements compare and set without any change of state: lanes, ranks, counts, versions, owners."""
_CLOCK: Final = re.compile(
    r"^\(?(now\(\)|current_timestamp|localtimestamp|(clock|statement|transaction)_timestamp\(\)"
    r"|timezone\('utc'[^,]*, now\(\)\)|now\(\) at time zone 'utc'\S*)\)?$",
    re.IGNORECASE,
)
_CHANGED: Final = re.compile(r"updat|modif|chang|touch|seen")
_CATEGORIES: Final = ("S", "E", "N", "B", "U")


@dataclass(frozen=True, slots=True, kw_only=True)
class Moved:
    """Names of columns, in the order met."""

    by_claim: tuple[str, ...] = ()
    """Compared and set by one claim: found in one state, left in the next."""
    by_others: tuple[str, ...] = ()
    """Compared by a claim that only locks, and set by a statement that finds its row by key."""
    born_at: str | None = None
    """The time that the server gives a new row, which no statement changes and in whose order jobs are claimed, or which is the
    only one of its kind."""


def moved_columns(
    columns: Sequence[ColumnRow],
    key: Iterable[str],
    claims: Sequence[tuple[Statement, Claim]],
    statements: Iterable[Statement],
) -> Moved:
    """Return the columns of a table that ``claims`` compare, and that they or ``statements`` after them set.

    ``key`` is the primary key, which no statement moves.
    """
    known = set(key)
    written = list(statements)
    able = {
        column.name
        for column in columns
        if column.type_category in _CATEGORIES
        and not column.generated
        and column.name not in known
        and not is_key(column.name)
        and not _NO_STATE.search(column.name.lower())
    }
    tables = {claim.table.name for _, claim in claims}
    tests = [
        (statement, one)
        for statement, claim in claims
        for one in flat(claim.conditions)
        if one.column in able and _compares(one)
    ]
    by_claim = [
        one.column
        for statement, one in tests
        for write in statement.writes
        if _updates(write, tables) and any(_moves(each, one) for each in write.sets)
    ]
    later = [
        write
        for statement in written
        if not statement.claims
        for write in statement.writes
        if _updates(write, tables) and write.by_key_only
    ]
    by_others = [
        one.column
        for _, one in tests
        for write in later
        if any(each.column == one.column and _is_value(each) for each in write.sets)
    ]
    return Moved(
        by_claim=tuple(dict.fromkeys(name for name in by_claim if name is not None)),
        by_others=tuple(dict.fromkeys(name for name in by_others if name is not None)),
        born_at=_born_at(columns, claims, written, tables),
    )


def _born_at(
    columns: Sequence[ColumnRow],
    claims: Sequence[tuple[Statement, Claim]],
    statements: Sequence[Statement],
    tables: set[str],
) -> str | None:
    if not claims:
        return None
    changed = {
        each.column
        for statement in (*statements, *(statement for statement, _ in claims))
        for write in statement.writes
        if _updates(write, tables)
        for each in write.sets
    }
    stamped = [
        column.name
        for column in columns
        if column.type_category == "D"
        and column.type_name.startswith("timestamp")
        and not column.generated
        and _CLOCK.search(column.default_expression or "")
        and column.name not in changed
        and not _CHANGED.search(column.name.lower())
    ]
    ordered = [
        key.column
        for _, claim in claims
        for key in claim.order
        if not key.descending and key.column in stamped
    ]
    return ordered[0] if ordered else stamped[0] if len(stamped) == 1 else None


def _compares(one: Condition) -> bool:
    return one.operator in ("is true", "is false") or (
        one.operator in ("=", "in") and one.value_kind in ("constant", "parameter", "list", "boolean")
    )


def _updates(write: Write, tables: set[str]) -> bool:
    return write.kind == "update" and write.table.name in tables


def _moves(each: Assignment, one: Condition) -> bool:
    """Tell whether a column is set to another value than it was compared with; two parameters may hold any two."""
    return each.column == one.column and _is_value(each) and each.value not in allowed_values(one)


def _is_value(each: Assignment) -> bool:
    return each.value_kind in ("constant", "parameter", "boolean")
