"""The numbers of one queue that are watched over time, at one moment. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from pgqdoctor.observation import Observation
from pgqdoctor.queue import Queue, build_queues
from pgqdoctor.report import QueueFacts, queue_facts
from pgqdoctor.sqlwords import purpose
from pgqdoctor.statements import SeenStatement
from pgqdoctor.waits import Share, idle_in_transaction, shares


@dataclass(frozen=True, slots=True, kw_only=True)
class QueuePulse:
    """One queue at one moment; rates are per second over the window, ages in seconds, None is not known.

    ``ready`` is a lower bound where ``ready_exact`` is false. ``in_flight`` counts the jobs in a running state: exactly
    where the table is small enough to be counted, else by the planner's statistics. ``buffers`` are those of
    the claim's plan. ``vacuum_s`` is the time since any VACUUM finished.
    """

    name: str
    ready: int | None
    ready_exact: bool
    in_flight: int | None
    in_flight_exact: bool
    oldest_s: float | None
    enqueued_per_s: float
    claimed_per_s: float | None
    finished_per_s: float | None
    updates_per_s: float
    buffers: int | None
    hot_ratio: float | None
    dead: int
    live: int
    vacuum_s: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Pulse:
    """All queues at one moment. ``at`` is the server's clock; ``waits`` are average active sessions by group."""

    at: float
    queues: tuple[QueuePulse, ...]
    waits: tuple[Share, ...]
    idle_in_transaction: float

    def of(self, name: str) -> QueuePulse | None:
        """Return the queue of that name, or None."""
        return next((one for one in self.queues if one.name == name), None)


def pulse(seen: Observation, queues: tuple[Queue, ...] | None = None, *, since: float | None = None) -> Pulse:
    """Return the numbers of every queue over the window; waits are those of the samples after ``since``."""
    found = build_queues(seen) if queues is None else queues
    samples = [one for one in seen.samples if since is None or one.at > since]
    return Pulse(
        at=seen.last.at,
        queues=tuple(pulse_of(one) for one in found),
        waits=shares(samples),
        idle_in_transaction=idle_in_transaction(samples),
    )


def pulse_of(queue: Queue, facts: QueueFacts | None = None) -> QueuePulse:
    """Return the numbers of one queue."""
    facts = queue_facts(queue) if facts is None else facts
    running, exact = in_flight(queue)
    return QueuePulse(
        name=facts.name,
        ready=facts.ready.rows,
        ready_exact=facts.ready.exact,
        in_flight=running,
        in_flight_exact=exact,
        oldest_s=facts.ready.oldest_age_s,
        enqueued_per_s=facts.rates.enqueued_per_s,
        claimed_per_s=facts.rates.claimed_per_s,
        finished_per_s=finished_per_s(queue),
        updates_per_s=facts.rates.updates_per_s,
        buffers=facts.claim.plan.buffers if facts.claim.plan is not None else None,
        hot_ratio=facts.rates.hot_ratio,
        dead=facts.table.dead_rows,
        live=facts.table.live_rows,
        vacuum_s=queue.last_any_vacuum_s,
    )


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
