"""How many jobs are being worked on, and how many get finished. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from pgqdoctor import upkeep
from pgqdoctor.forecast import COUNTERS_LATE_S
from pgqdoctor.queue import Queue
from pgqdoctor.sqlfacts import Statement
from pgqdoctor.sqlwords import purpose
from pgqdoctor.statements import SeenStatement


def in_flight(queue: Queue) -> tuple[int | None, bool]:
    """Return how many jobs are in a running state, and whether they were counted."""
    running = queue.identity.running_values
    if queue.probe is None or not queue.probe.states or not running:
        return None, False
    states = queue.probe.states
    return sum(one.rows for one in states if one.value in running), all(one.exact for one in states)


def finished_per_s(queue: Queue) -> float | None:
    """Return how many jobs finish per second, None where no statement tells how a job finishes.

    Where updates finish jobs, their rows count, and deletes are taken for pruning; else every deleted row is a finished job, but
    for those of statements that clear away what was finished before.
    """
    updates = [one for one in _updating(queue) if _finishes(queue, one)]
    updated = sum(one.rows for one in updates)
    deletes = {one.key: one for one, _ in queue.writes("delete")}.values()
    clearing = [one for one in deletes if clears(queue, one.statement)]
    deleted = beyond(queue, "delete", clearing)
    # An update that was seen once, but not in this window, is not how jobs finish now.
    if updated or (updates and not deleted):
        return queue.churn.per_second(updated)
    if deleted or len(deletes) > len(clearing):
        return queue.churn.per_second(deleted)
    return None


def clears(queue: Queue, statement: Statement) -> bool:
    """Tell whether a statement of the queue deletes jobs that are over, and takes none."""
    return upkeep.clears(queue.identity, statement, queue.is_this) and not any(
        one.seen.statement == statement for one in queue.claims
    )


def beyond(queue: Queue, kind: str, known: Iterable[SeenStatement]) -> int:
    """Return the rows that were updated or deleted (``kind``) beyond those of the ``known`` statements.

    The table's counters are late and the statements' are not: a session hands them in after the first execution that ends
    COUNTERS_LATE_S or more after it last did. What that and two executions bring about, the late one and the one before it, is
    none beyond.
    """
    ran = [one for one in {one.key: one for one in known}.values() if one.calls]
    changed = queue.churn.updated if kind == "update" else queue.churn.deleted
    rows = sum(one.rows for one in ran)
    one_execution = max((one.rows / one.calls for one in ran), default=0.0)
    late = queue.churn.per_second(rows) * COUNTERS_LATE_S + 2 * one_execution
    return changed - rows if changed - rows > late else 0


def rows_move(queue: Queue, *, sweeps: bool = False) -> bool:
    """Tell whether rows were updated or deleted for another reason than that statements age or clear away jobs.

    With ``sweeps`` false those do not count either that change whatever a condition finds, as a promotion of scheduled jobs does.
    """
    return any(beyond(queue, kind, _others(queue, kind, sweeps)) for kind in ("update", "delete"))


def _others(queue: Queue, kind: str, sweeps: bool) -> Iterator[SeenStatement]:
    """Yield the statements that change rows and are no sign of a worker."""
    for one, write in queue.writes(kind):
        sweep = not one.statement.claims and not write.by_key_only
        ages = kind == "update" and upkeep.ages(queue.identity, one.statement, queue.is_this)
        if ages or (sweep and not sweeps) or (kind == "delete" and clears(queue, one.statement)):
            yield one


def _updating(queue: Queue) -> list[SeenStatement]:
    claims = {one.seen.key for one in queue.claims}
    return [one for one, _ in queue.writes("update") if one.key not in claims]


def _finishes(queue: Queue, seen: SeenStatement) -> bool:
    """Tell whether an update finishes jobs.

    Normalised texts hide the state that is set. Where the claim itself sets the running state, an update that sets the
    state of a known row can only follow it.
    """
    writes = [one for one in seen.statement.writes if one.kind == "update" and queue.is_this(one.table)]
    meanings = {purpose(one.sets, one.conditions) for one in writes}
    if "finish" in meanings:
        return True
    if meanings != {None}:
        return False
    state = queue.identity.roles.state
    claims_write = any(one.claim.writes for one in queue.claims)
    return claims_write and any(
        one.by_key_only and any(each.column == state for each in one.sets) for one in writes
    )
