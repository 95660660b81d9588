"""When it will hurt: what the rates of this window come to if they go on.

Every forecast is a straight line through two readings, and says so. It holds as long as the rates do: a load that doubles
halves the time. Pure.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from pgqdoctor import claiming, vacuuming
from pgqdoctor.finding import Evidence
from pgqdoctor.observation import Observation
from pgqdoctor.planfacts import DeadWalk, dead_walk
from pgqdoctor.queue import Queue, ReadPlan
from pgqdoctor.words import count, duration, plural, rate

SLOW_CLAIM_MS: Final = 100.0
"""Milliseconds: at this cost one connection claims ten jobs per second, and every backend that claims keeps a core busy."""
FARTHEST_S: Final = 10 * 365 * 86_400.0
"""Seconds: a straight line through a few seconds says nothing about the time beyond ten years."""
HARM_WITHIN_S: Final = 86_400.0
"""Seconds: one day. Until then somebody looks again in any case, and a line through a window of seconds foretells no further than
the next daily peak. What comes later is left out of texts; ids and wraparound, which change over weeks, have limits of their own."""
COUNTERS_LATE_S: Final = 1.0
"""Seconds by which a table's counters may be late (PGSTAT_MIN_INTERVAL in pgstat.c): over a window of ten seconds an error of a tenth."""
LEAST_CLAIMS: Final = 10
"""Executions of the claim in the window, from which their mean says more than one EXPLAIN."""
LOCK_WAITS: Final = 0.1
"""Share of the samples at the claim that wait for a lock, from which the claims' mean time is not that of their work."""
AGREE: Final = 2.0
"""Factor within which two estimates are one: single executions of an unchanged claim were timed at 8, 34 and 9.2 ms in a row."""
LEAST_BACKLOG_S: Final = 10.0
"""Seconds of work: fewer ready jobs than are finished in that time are between two polls of workers, and no backlog."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Forecast:
    """One thing that will come to pass. ``seconds`` counts from the end of the window, None where nothing is coming.

    Where ``what`` gives a range, ``seconds`` is by the estimate that many measurements support. ``what`` says it in words with the
    time in it; ``how`` says how it was computed.
    """

    what: str
    queue: str | None
    seconds: float | None
    how: str


def evidence(what: str, forecast: Forecast | None) -> tuple[Evidence, ...]:
    """Return a forecast as evidence of a finding, nothing where nothing is coming."""
    if forecast is None or forecast.seconds is None:
        return ()
    return (
        Evidence(
            what=what, value=round(forecast.seconds), unit="seconds", source=f"computed: {forecast.how}"
        ),
    )


def sentence(forecast: Forecast | None) -> str:
    """Return a forecast as a sentence that follows others, "" for none."""
    return "" if forecast is None or not matters(forecast) else f" If it goes on, {forecast.what}."


def matters(forecast: Forecast) -> bool:
    """Tell whether a forecast is near enough to be told: a backlog that grows has no end, and matters now."""
    return forecast.seconds is None or forecast.seconds <= HARM_WITHIN_S


def time_until(now: float, limit: float, per_second: float) -> float | None:
    """Return the seconds until ``now`` has grown to ``limit``: 0.0 where it has, None where it never will."""
    if now >= limit:
        return 0.0
    if per_second <= 0:
        return None
    seconds = (limit - now) / per_second
    return seconds if seconds <= FARTHEST_S else None


def exhausted(
    *, what: str, used: float, limit: float, per_second: float, queue: str | None = None, unit: str = "ids"
) -> Forecast | None:
    """Return when a space of numbers (ids, members, transactions) is used up, None where it is not in sight."""
    seconds = time_until(used, limit, per_second)
    if seconds is None:
        return None
    return Forecast(
        what=f"{what} is used up in about {duration(seconds)}" if seconds else f"{what} is used up",
        queue=queue,
        seconds=seconds,
        how=f"{count(max(limit - used, 0))} of {count(limit)} {unit} left, {rate(per_second)} used",
    )


def dead_made_per_s(seen: Observation, queue: Queue) -> float:
    """Return the dead rows per second that only vacuum can remove."""
    return sum(one.making for one in vacuuming.leaves_of(seen, queue))


def dead_rows_in(seen: Observation, queue: Queue, seconds: float) -> float:
    """Return the dead rows of the queue after so many seconds without a vacuum that removes any."""
    return queue.churn.dead_last + dead_made_per_s(seen, queue) * seconds


@dataclass(frozen=True, slots=True, kw_only=True)
class _Cost:
    """What a claim costs now in milliseconds, the part of it for dead entries, and how it was measured."""

    took_ms: float
    dead_ms: float
    how: str


def claim_cost(seen: Observation, queue: Queue, *, limit_ms: float = SLOW_CLAIM_MS) -> Forecast | None:
    """Return when a claim will take longer than ``limit_ms`` because of the dead rows it walks over.

    Both its buffers and its time grow with the dead rows: what one of them costs today is what the claim spent on dead entries
    over the dead rows there are. The time is the mean of the window's claims where there were enough of them, else that of the one
    that EXPLAIN executed; where the two differ by more than AGREE, both are told. None where vacuum can remove the dead rows and
    comes before that, where nothing dies, and where EXPLAIN did not execute the claim.
    """
    plan = queue.plan
    walk = dead_walk(plan.facts) if plan is not None else None
    if plan is None or walk is None or walk.unexplained_buffers <= 0 or queue.churn.dead_last <= 0:
        return None
    explained, timed = _explained(plan, walk), _timed(queue, plan, walk)
    if explained is None:
        return None
    best = timed or explained
    making = dead_made_per_s(seen, queue)
    times = [
        time_until(one.took_ms, limit_ms, one.dead_ms / queue.churn.dead_last * making)
        for one in (best, explained)
    ]
    seconds, by_one = times
    if seconds is None or by_one is None:
        return None
    if vacuuming.held_horizon(seen) is None and _vacuumed_within(seen, queue, max(seconds, by_one)):
        return None
    how = f"{best.how} with {count(queue.churn.dead_last)} dead rows, {rate(making)} more"
    if seconds == 0:
        what = f"a claim of {queue.name} takes {duration(best.took_ms / 1000)} already"
    else:
        what = f"a claim of {queue.name} will take more than {limit_ms:.0f} ms {_when(seconds, by_one)}"
        if not _agree(seconds, by_one):
            how = f"{how}; by one EXPLAIN {explained.how}"
    return Forecast(what=what, queue=queue.name, seconds=seconds, how=how)


def _explained(plan: ReadPlan, walk: DeadWalk) -> _Cost | None:
    took = plan.facts.time_ms if plan.facts.time_ms is not None else plan.plan.execution_ms
    if not took or not walk.buffers:
        return None
    return _Cost(
        took_ms=took,
        dead_ms=claiming.dead_ms(plan, walk),
        how=f"{duration(took / 1000)} and {count(walk.buffers)} buffers now",
    )


def _timed(queue: Queue, plan: ReadPlan, walk: DeadWalk) -> _Cost | None:
    """Return what the claims of the window took on average, None where too few of them ran or they waited for locks."""
    claim = claiming.claim_of_plan(queue, plan)
    if claim is None or claim.seen.calls < LEAST_CLAIMS or claim.seen.total_ms <= 0 or claim.seen.blocks <= 0:
        return None
    at_it = [one.session for one in queue.sessions if one.statement == claim.seen.statement]
    if sum(one.wait_type == "Lock" for one in at_it) > LOCK_WAITS * len(at_it):
        return None
    mean_ms, buffers = (
        claim.seen.total_ms / claim.seen.calls,
        claim.seen.blocks / claim.seen.calls,
    )
    # The mean has the buffers of what the claim writes as well, which the plan of its SELECT does not.
    return _Cost(
        took_ms=mean_ms,
        dead_ms=mean_ms * min(1.0, walk.unexplained_buffers / buffers),
        how=f"{duration(mean_ms / 1000)} and {count(buffers)} buffers on average of {count(claim.seen.calls)} claims",
    )


def _agree(one: float, other: float) -> bool:
    return max(one, other) <= AGREE * min(one, other)


def _when(seconds: float, by_one: float) -> str:
    """Say "in about 30 min", or the range between two estimates that do not agree."""
    if _agree(seconds, by_one):
        return f"in about {duration(seconds)}"
    low, high = duration(min(seconds, by_one)), duration(max(seconds, by_one))
    if min(seconds, by_one) == 0:
        return f"within about {high}"
    number, _, unit = low.partition(" ")
    return f"in {number if high.partition(' ')[2] == unit else low} to {high}"


def _vacuumed_within(seen: Observation, queue: Queue, seconds: float) -> bool:
    """Tell whether autovacuum comes to every leaf that makes dead rows before the time is over.

    It comes once the trigger is passed. Where the dead rows stand at twice the trigger already, it should have come and did not.
    """
    if not vacuuming.server_allows(queue.catalog):
        return False
    leaves = [one for one in vacuuming.leaves_of(seen, queue) if one.making > 0]
    return all(
        one.enabled and one.beyond < 2.0 and one.dead + one.making * seconds >= one.trigger for one in leaves
    )


def backlog(queue: Queue, *, finished_per_s: float | None) -> Forecast | None:
    """Return when the ready jobs are worked off, or how fast they pile up.

    The line runs through arrivals and finishes of the window. None where either is not known, where the two are too close to tell
    which is larger, and where there is no backlog.
    """
    ready = queue.probe.ready_rows if queue.probe is not None else None
    if ready is None or finished_per_s is None or queue.churn.seconds <= 0:
        return None
    arriving = queue.churn.per_second(queue.churn.inserted)
    gaining = finished_per_s - arriving
    noise = COUNTERS_LATE_S / queue.churn.seconds
    if ready < LEAST_BACKLOG_S * finished_per_s or abs(gaining) <= noise * max(arriving, finished_per_s):
        return None
    exact = queue.probe is not None and queue.probe.ready_exact
    how = f"{plural(ready, 'ready job')}{'' if exact else ' at least'}, {count(arriving)} arrive and {count(finished_per_s)} finish per second"
    if gaining < 0:
        return Forecast(
            what=f"the backlog of {queue.name} grows by {rate(-gaining)}, {count(-gaining * 3600)} jobs an hour",
            queue=queue.name,
            seconds=None,
            how=how,
        )
    seconds = ready / gaining
    least = "" if exact else "at the earliest "
    return Forecast(
        what=f"the backlog of {queue.name} is cleared {least}in about {duration(seconds)}",
        queue=queue.name,
        seconds=seconds,
        how=how,
    )


def piled_up(queue: Queue, *, growing_per_s: float, seconds: float = 3_600.0) -> Forecast | None:
    """Return how many jobs are ready after so long, where the backlog is known to grow."""
    ready = queue.probe.ready_rows if queue.probe is not None else None
    if ready is None or growing_per_s <= 0:
        return None
    return Forecast(
        what=f"{count(ready + growing_per_s * seconds)} jobs are ready in {duration(seconds)}",
        queue=queue.name,
        seconds=seconds,
        how=f"{plural(ready, 'ready job')} now, {rate(growing_per_s)} more",
    )


def forecasts(seen: Observation, queue: Queue, *, finished_per_s: float | None) -> tuple[Forecast, ...]:
    """Return what the rates of the window foretell of one queue within HARM_WITHIN_S."""
    found = (claim_cost(seen, queue), backlog(queue, finished_per_s=finished_per_s))
    return tuple(one for one in found if one is not None and matters(one))
