"""How columns act by their names and types: as state, lease, time to run, owner. Pure."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence

from pgqdoctor.discovery.moved import Moved
from pgqdoctor.lifesigns import HEARTBEAT
from pgqdoctor.observation import ColumnRoles
from pgqdoctor.predicates import flat, predicate_conditions
from pgqdoctor.rows import ColumnRow, IndexRow
from pgqdoctor.sqlfacts import Claim, Condition

_STATE = re.compile(
    r"(^|_)(state|status|stage|phase|visible|picked|running|processed|is_available|done)$|^(state|status)"
)
_RUN_AT = re.compile(
    r"^(run_?(at|after|time)|scheduled(_?(at|for|time))?|schedule_at|eta|available_?(at|after)|not_?before|execut(e|ion)_?"
    r"(at|after|time)|start_?after|next_?(run|attempt|retry)\w*|visible_?(at|after)|vt|due(_at)?|process_after|ready_at|deliver_at|send_at)$"
)
_LEASE = re.compile(
    r"(lease|lock(ed)?_?until|lock_?expires|expire[sd]?(_at|_on)?|visible_until|deadline|reserved_until|invisible_until|timeout_at)"
)
CLAIMED = re.compile(
    r"(claimed|locked|started|picked|attempted|taken|reserved|dequeued|fetched|processing_?at|acquired|begun|executing)(_?(at|on|time))?$"
)
FINISHED_AT = re.compile(
    r"(finished|completed|done|processed|ended|failed|finalized|succeeded|sent|delivered)(_?(at|on|time))$"
)
_CREATED = re.compile(r"(created|enqueued|inserted|queued|added)(_?(at|on|time|ts|date))?$")
_ATTEMPTS = re.compile(
    r"(^|_)(attempts?|tries|retries|retry_count|try_count|read_ct|failures|error_count|attempt_count|num_attempts|retrycount)$"
)
_OWNER = re.compile(
    r"(locked_by|claimed_by|worker(_id)?|owner|node|picked_by|taken_by|reserved_by|attempted_by|executor_id|lock_id|locked_by_id)$"
)
_PRIORITY = re.compile(r"(^|_)(priority|prio|rank)$")
DENIED = re.compile(
    r"(^|_)(running|processed|processing|done|sent|published|handled|consumed|finished|completed|dispatched|delivered|busy|paused|blocked)$"
)
UNDER_WAY = re.compile(r"(^|_)(picked|running|processing|locked|claimed|taken|executing|busy)$")
TIME_CATEGORY = "D"
"""Of dates and times in pg_type.typcategory."""


def column_pattern() -> str:
    """Return one pattern of all names by which a column may act as state, lease, attempts or time to run, for the server."""
    shapes = (_STATE, _RUN_AT, _LEASE, HEARTBEAT, CLAIMED, _ATTEMPTS, DENIED)
    return "|".join(f"({one.pattern})" for one in shapes)


def claimed_pattern() -> str:
    """Return the pattern of names of columns that tell when a job was claimed, for the server."""
    return CLAIMED.pattern


def acts_as_state(column: ColumnRow) -> bool:
    """Tell whether a column that a statement tests may tell what state a job is in, or who has it."""
    name = column.name.lower()
    if column.type_category == TIME_CATEGORY:
        return bool(
            _LEASE.search(name) or CLAIMED.search(name) or FINISHED_AT.search(name) or _RUN_AT.match(name)
        )
    return bool(
        _STATE.search(name)
        or _LEASE.search(name)
        or _OWNER.search(name)
        or column.type_category == "E"
        or CLAIMED.search(name)
    )


def roles_of(
    columns: Sequence[ColumnRow],
    indexes: Sequence[IndexRow],
    claims: Sequence[Claim],
    polled: Sequence[Condition],
    moved: Moved,
) -> ColumnRoles:
    """Tell which column acts as what: by what the claims test and move on, then by name and type."""
    conditions = [*(one for claim in claims for one in flat(claim.conditions)), *polled]
    by_name = {column.name: column for column in columns}
    tested: Counter[str | None] = Counter(one.column for one in conditions if one.column in by_name)

    def timed(pattern: re.Pattern[str]) -> list[ColumnRow]:
        return [
            one
            for one in columns
            if one.type_category in (TIME_CATEGORY, "N")
            and pattern.search(one.name.lower())
            and not one.generated
        ]

    state = _state_column(columns, indexes, conditions, tested, moved)
    run_at = next(
        (
            one.column
            for one in conditions
            if one.column in by_name
            and one.column != state
            and by_name[one.column].type_category == TIME_CATEGORY
            and one.operator in ("<", "<=")
            and not _LEASE.search(one.column.lower())
            and not HEARTBEAT.search(one.column.lower())
            and not CLAIMED.search(one.column.lower())
        ),
        None,
    ) or next((one.name for one in timed(_RUN_AT)), None)
    taken = {state, run_at}

    def first(pattern: re.Pattern[str]) -> str | None:
        return next((one.name for one in timed(pattern) if one.name not in taken), None)

    def named(pattern: re.Pattern[str]) -> str | None:
        return next(
            (one.name for one in columns if pattern.search(one.name.lower()) and one.name not in taken), None
        )

    return ColumnRoles(
        state=state,
        run_at=run_at,
        lease=first(_LEASE),
        heartbeat=first(HEARTBEAT),
        claimed_at=state
        if state and CLAIMED.search(state.lower()) and by_name[state].type_category == TIME_CATEGORY
        else first(CLAIMED),
        finished_at=first(FINISHED_AT),
        created_at=first(_CREATED) or _born_at(moved, taken),
        attempts=next(
            (one.name for one in columns if one.type_category == "N" and _ATTEMPTS.search(one.name.lower())),
            None,
        ),
        owner=named(_OWNER),
        priority=next(
            (one.name for one in columns if one.type_category == "N" and _PRIORITY.search(one.name.lower())),
            None,
        ),
        key=key_of(columns, indexes),
    )


def _born_at(moved: Moved, taken: set[str | None]) -> str | None:
    """Return the time a row is born with, unless its name says that it tells something else."""
    if moved.born_at is None or moved.born_at in taken:
        return None
    name = moved.born_at.lower()
    others = (_RUN_AT, _LEASE, HEARTBEAT, CLAIMED, FINISHED_AT)
    return None if any(one.search(name) for one in others) else moved.born_at


def key_of(columns: Sequence[ColumnRow], indexes: Sequence[IndexRow]) -> tuple[str, ...]:
    """Return the columns of the primary key, none where there is none."""
    primary = next((index for index in indexes if index.primary), None)
    numbers = {column.number: column.name for column in columns}
    return tuple(numbers[number] for number in primary.key_columns if number in numbers) if primary else ()


def _state_column(
    columns: Sequence[ColumnRow],
    indexes: Sequence[IndexRow],
    conditions: Sequence[Condition],
    tested: Counter[str | None],
    moved: Moved,
) -> str | None:
    """The tested column that acts as state: what the claim moves on first, then a named one, what is moved on after it, enum,
    boolean, then a timestamp tested for NULL. Names, types and partial indexes choose among several that are moved on.
    """
    by_name = {column.name: column for column in columns}
    named = [
        one.name
        for one in columns
        if _STATE.search(one.name.lower()) and one.type_category in ("S", "E", "B", "N", "U")
    ]
    typed = [one.name for one in columns if one.type_category in ("E", "B")]
    both = (*moved.by_claim, *moved.by_others)
    guarded = (
        {one.column for index in indexes for one in flat(predicate_conditions(index))} if both else set()
    )
    pools = (
        [name for name in named if name in both],
        [name for name in typed if name in moved.by_claim],
        moved.by_claim,
        named,
        [name for name in typed if name in moved.by_others],
        typed,
        moved.by_others,
    )
    for pool in pools:
        seen = sorted(
            (name for name in pool if tested[name]),
            key=lambda name: (name in both and name not in guarded, -tested[name]),
        )
        if seen:
            return seen[0]
    nulls = [
        one.column
        for one in conditions
        if one.operator == "is null" and one.column in by_name and not _RUN_AT.match(one.column.lower())
    ]
    if nulls:
        return Counter(nulls).most_common(1)[0][0]
    if conditions:
        return None
    return named[0] if named else None
