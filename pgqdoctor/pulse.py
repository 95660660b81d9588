"""The numbers of one queue that are watched over time, at one moment. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from pgqdoctor.finishing import finished_per_s, in_flight
from pgqdoctor.observation import Observation
from pgqdoctor.queue import Queue, build_queues
from pgqdoctor.report import QueueFacts, queue_facts
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
