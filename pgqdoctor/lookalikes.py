"""What is locked, swept or guarded like a queue and is none. Pure.

Helper tables take SKIP LOCKED too: key-value stores, schedules, registries of workers, results that are pruned. Locks,
orders and carts are guarded like jobs. Each rule here names what a queue does not do.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from pgqdoctor.observation import ColumnRoles
from pgqdoctor.rows import ColumnRow, IndexRow
from pgqdoctor.sqlfacts import Claim, Condition, Statement, TableName

_AGED: Final = re.compile(
    r"heart_?beat|last_?seen|last_?alive|ping|expire|deadline|(^|_)(finish|complet|finali[sz]|done|process|end|fail|cancel)\w*$"
)
"""Times that tell how old something is. A worker does not ask for jobs by them."""
_MADE: Final = re.compile(r"^(created|inserted|updated|added|modified|date)")
_DUE: Final = re.compile(
    r"run|sched|due|avail|visib|start|after|next|retry|eta|vt$|exec|deliver|send|publish|process_?(at|after|on)$"
)
_MUTEX: Final = re.compile(r"(?<!b)(?<!c)lock(s|ed)?$|mutex(es)?$|leaders?$|semaphores?$|leases?$|election$")
_KEPT: Final = re.compile(
    r"(^|_)(archived?|archives|history|histories|logs?|audits?|results?|completed|finished|failed|failures?|dlq|graveyard|poison(ed)?)$"
    r"|results?$|archives?$|(^|_)dead_?(letters?|jobs?|messages?|tasks?)|(^|_)(failed|poison(ed)?)_(jobs?|messages?|tasks?|events?)$"
)
_WORK: Final = re.compile(
    r"job|task|queue|outbox|inbox|work|message|event|mail|notification|delivery|webhook|command",
    re.IGNORECASE,
)
_REFERENCE: Final = re.compile(r"_(id|uuid)$")


def is_mutex(table: str) -> bool:
    """Tell whether a table is named as one that holds locks: its rows are taken and given back, not worked on."""
    return bool(_MUTEX.search(table.lower()))


def is_kept_record(table: str) -> bool:
    """Tell whether a table is named as one that keeps what is over."""
    return bool(_KEPT.search(table.lower()))


def names_work(table: str) -> bool:
    """Tell whether a table is named for work to do."""
    return bool(_WORK.search(table))


def pins_known_row(claim: Claim, columns: Mapping[str, ColumnRow], indexes: Iterable[IndexRow]) -> bool:
    """Tell whether a claim's equalities name one row by a unique key: whoever asks so knows what it wants."""
    equal = {
        columns[one.column].number
        for one in claim.conditions
        if one.operator == "="
        and one.column in columns
        and one.value_kind != "column"
        and one.column is not None
    }
    return any(
        index.unique and not index.has_predicate and index.key_columns and set(index.key_columns) <= equal
        for index in indexes
    )


def sweeps(claim: Claim, columns: Mapping[str, ColumnRow]) -> bool:
    """Tell whether a claim looks for what is old: results to prune, dead workers, sessions that ran out.

    Beside a test of the state the time of making is no sign: an outbox may let its messages rest.
    """
    aged = [one for one in claim.conditions if _is_age(one, columns)]
    if not aged:
        return False
    others = [one for one in claim.conditions if one not in aged]
    return not others or any(_AGED.search((one.column or "").lower()) for one in aged)


def _is_age(one: Condition, columns: Mapping[str, ColumnRow]) -> bool:
    column = columns.get(one.column) if one.column is not None else None
    if column is None or one.operator not in ("<", "<="):
        return False
    name = column.name.lower()
    if column.type_category in ("D", "N") and _AGED.search(name) and not _DUE.search(name):
        return True
    if column.type_category != "D":
        return False
    earlier = one.value_kind == "now" and any(" - " in value for value in one.values)
    return (bool(_MADE.match(name)) or earlier) and not _DUE.search(name)


def finds_known_owner(claim: Claim) -> bool:
    """Tell whether a blocking lock asks for somebody's row (``user_id = $1 LIMIT 1``) rather than the next in an order."""
    return (
        claim.shape in ("blocking", "nowait")
        and not claim.writes
        and not claim.order
        and any(
            one.operator == "="
            and _REFERENCE.search((one.column or "").lower())
            and "queue" not in (one.column or "")
            for one in claim.conditions
        )
    )


def is_schedule(
    roles: ColumnRoles, claims: Sequence[Claim], statements: Sequence[Statement], tables: frozenset[TableName]
) -> bool:
    """Tell whether rows only move on in time: found when due, given their next time, never taken, finished or deleted."""
    if (
        roles.state is not None
        or roles.attempts is not None
        or roles.claimed_at is not None
        or roles.lease is not None
    ):
        return False
    if roles.run_at is None or not claims or any(claim.shape == "delete-skip-locked" for claim in claims):
        return False
    writes = [write for statement in statements for write in statement.writes if write.table in tables]
    moved = any(
        write.kind == "update" and any(one.column == roles.run_at for one in write.sets) for write in writes
    )
    return moved and not any(write.kind == "delete" for write in writes)
