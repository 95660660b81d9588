"""How many jobs are being worked on, and how many get finished. Pure."""

from __future__ import annotations

from pgqdoctor.queue import Queue
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

    Where updates finish jobs, their rows count, and deletes are taken for pruning; else every deleted row is a finished job.
    """
    updates = [one for one in _updating(queue) if _finishes(queue, one)]
    updated = sum(one.rows for one in updates)
    # An update that was seen once, but not in this window, is not how jobs finish now.
    if updated or (updates and not queue.churn.deleted):
        return queue.churn.per_second(updated)
    if queue.churn.deleted or queue.writes("delete"):
        return queue.churn.per_second(queue.churn.deleted)
    return None


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
