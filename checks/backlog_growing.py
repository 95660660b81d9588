"""More jobs arrive than are finished.

The queue is growing, and the oldest ready job waits longer with every minute. If something else here slows
the claims or the workers, that is the cause and comes first; if nothing does, there are too few workers, or
they are too slow, for what arrives.

Where no column tells since when a job is ready, the counters decide: a backlog that was there when the window began, that is more
than the workers take in a minute, and to which more was added in several statements than was taken.

Jobs may be taken by statements that do not look like it: through a view, or by whoever has just added them. Rows that changed for no
known reason may be such jobs. Where a queue grows only if they are none, this check does not judge it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated

from pgqdoctor import claiming, finishing, forecast, remedy, taking, upkeep
from pgqdoctor.check import COUNTERS, ROWS, STATEMENTS, Check
from pgqdoctor.finding import Evidence, Finding, Remedy, Severity
from pgqdoctor.observation import Observation
from pgqdoctor.queue import Queue
from pgqdoctor.words import count, duration, percent, rate


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """When a backlog is more than a busy moment."""

    ready: Annotated[int, "ready jobs: fewer are waiting in any busy queue"] = 100
    oldest_s: Annotated[
        float, "seconds that the oldest ready job has waited: peaks shorter than that go by themselves"
    ] = 60.0
    growth: Annotated[
        float, "ratio of arrivals that are not taken: a window of seconds does not measure finer"
    ] = 0.1
    growth_rate: Annotated[float, "jobs per second by which the backlog grows"] = 1.0
    critical_s: Annotated[
        float, "seconds that the oldest ready job has waited while the backlog still grows"
    ] = 900.0
    enqueues: Annotated[
        int,
        "executions of an INSERT in the window, where jobs have no time of their own: what came in fewer is a batch, and no rate",
    ] = 3
    longer: Annotated[
        float,
        "times as long as jobs waited before, where none is taken now: a batch that comes in turns may miss one turn",
    ] = 3.0
    unusual: Annotated[
        float,
        "ratio of earlier jobs that waited a third as long: one in twenty lived through an earlier outage",
    ] = 0.05
    known_jobs: Annotated[int, "earlier jobs seen: with fewer, one in twenty means nothing"] = 20


def evaluate(seen: Observation, queue: Queue, limits: Limits) -> Iterator[Finding]:
    """Compare arrivals with claims, and look at how long the oldest ready job has waited, or will a new one."""
    probe = queue.probe
    if probe is None or probe.ready_rows is None:
        return
    if probe.oldest_ready_age_s is None:
        yield from _by_counters(queue, limits)
        return
    taken = _taken(queue)
    arrived = queue.churn.inserted
    if probe.ready_rows < limits.ready or probe.oldest_ready_age_s < limits.oldest_s:
        return
    if not _grows(queue, arrived, taken, limits) or _between_turns(queue, taken, limits):
        return
    severity: Severity = "critical" if probe.oldest_ready_age_s >= limits.critical_s else "warning"
    yield _finding(
        queue,
        severity,
        arrived,
        taken,
        told=f"the oldest for {duration(probe.oldest_ready_age_s)}",
        why="",
        evidence=(
            Evidence(
                what="oldest ready job",
                value=round(probe.oldest_ready_age_s, 1),
                unit="seconds",
                source="bounded look",
            ),
        ),
    )


def _by_counters(queue: Queue, limits: Limits) -> Iterator[Finding]:
    """Judge a queue whose jobs do not tell since when they are ready.

    A computed wait is no measured one, so this is a warning at most.
    """
    taken, arrived = _taken(queue), _steady_arrivals(queue, limits)
    if not _told_apart(queue, arrived, taken, limits) or taken <= 0:
        return
    left = _left_over(queue, taken)
    wait_s = left / queue.churn.per_second(taken)
    if left < limits.ready or wait_s < limits.oldest_s:
        return
    yield _finding(
        queue,
        "warning",
        arrived,
        taken,
        told=f"{duration(wait_s)} of work at the rate at which they are taken",
        why=" No column tells since when a job is ready, so this is judged by the counters of the window alone.",
        evidence=(
            Evidence(
                what="backlog when the window began",
                value=round(left),
                unit="rows",
                source="ready jobs, less what the window added",
            ),
            Evidence(
                what="time to take it",
                value=round(wait_s, 1),
                unit="seconds",
                source="computed: that backlog over the rate of jobs taken",
            ),
        ),
    )


def _unjudged(seen: Observation, queue: Queue, limits: Limits) -> str | None:
    """Say why a queue that seems to grow could not be judged, None where it was."""
    probe = queue.probe
    if probe is None or probe.ready_rows is None:
        lacks = probe.lacks if probe is not None else ()
        return next((one.reason for one in lacks if one.what == "ready"), None)
    if probe.ready_rows < limits.ready:
        return None
    taken, seen_taken = _taken(queue), claiming.taken(queue)
    if probe.oldest_ready_age_s is not None:
        arrived = queue.churn.inserted
        if probe.oldest_ready_age_s < limits.oldest_s or not _grows(queue, arrived, seen_taken, limits):
            return None
        return None if _grows(queue, arrived, taken, limits) else _unknown(queue, taken - seen_taken)
    arrived = _steady_arrivals(queue, limits)
    if not _told_apart(queue, arrived, taken, limits):
        return None
    no_time = "no column tells since when a job is ready"
    if taken <= 0:
        return f"{no_time}, and none was seen to be taken"
    wait_s = _left_over(queue, taken) / queue.churn.per_second(taken)
    if probe.ready_exact or wait_s >= limits.oldest_s:
        return None
    return f"{no_time}, and the look at ready jobs ends at {count(probe.ready_rows)}, too few to tell how long they wait"


def _unknown(queue: Queue, rows: int) -> str:
    return (
        f"{rate(queue.churn.per_second(rows))} rows changed by statements that were not seen to take jobs, "
        "and how many of them were ready before is not known"
    )


def _between_turns(queue: Queue, taken: int, limits: Limits) -> bool:
    """Tell whether jobs come between two turns of a batch: none is taken now, and they often waited so long before."""
    served = queue.probe.served if queue.probe is not None else None
    late = [one for one in served.kinds if (one.waiting_s or 0.0) >= limits.oldest_s] if served else []
    return (
        taken <= 0
        and bool(late)
        and all(
            one.often_waited(
                (one.waiting_s or 0.0) / limits.longer, of_jobs=limits.known_jobs, unusual=limits.unusual
            )
            for one in late
        )
    )


def _grows(queue: Queue, arrived: int, taken: int, limits: Limits) -> bool:
    more = arrived - taken
    return queue.churn.per_second(more) >= limits.growth_rate and more >= limits.growth * arrived


def _told_apart(queue: Queue, arrived: int, taken: int, limits: Limits) -> bool:
    """Tell whether arrivals exceed what is taken by more than the table's counters may be late."""
    late = forecast.COUNTERS_LATE_S / queue.churn.seconds if queue.churn.seconds > 0 else 1.0
    return _grows(queue, arrived, taken, limits) and arrived - taken > late * arrived


def _steady_arrivals(queue: Queue, limits: Limits) -> int:
    """Return the rows that arrived, without those of INSERTs that ran so rarely that they were a batch.

    The table's counters of a session that idles after its batch come up to ten seconds late (PGSTAT_IDLE_INTERVAL in pgstat.c), the
    statements' at once: where INSERTs are known, only what they inserted within the window counts.
    """
    inserts = {one.key: one for one, _ in queue.writes("insert")}.values()
    if not inserts:
        return queue.churn.inserted
    return min(queue.churn.inserted, sum(one.rows for one in inserts if one.calls >= limits.enqueues))


def _left_over(queue: Queue, taken: int) -> int:
    """Return the jobs that were ready when the window began.

    Where the look found more than it counts, the planner's statistics tell how many are in the ready state.
    """
    probe = queue.probe
    ready = (probe.ready_rows or 0) if probe is not None else 0
    if probe is not None and not probe.ready_exact:
        ready = max(ready, claiming.rows_in_ready_state(queue) or 0)
    # What a batch added within the window was not there before it either.
    return ready - queue.churn.inserted + taken


def _finding(
    queue: Queue,
    severity: Severity,
    arrived: int,
    taken: int,
    *,
    told: str,
    why: str,
    evidence: tuple[Evidence, ...],
) -> Finding:
    probe = queue.probe
    assert probe is not None and probe.ready_rows is not None
    growth = queue.churn.per_second(arrived - taken)
    more = "" if probe.ready_exact else "more than "
    return Finding(
        check=CHECK.id,
        severity=severity,
        queue=queue.name,
        title=f"{queue.name} grows by {rate(growth)}: {more}{count(probe.ready_rows)} jobs are ready, {told}",
        why=f"{rate(queue.churn.per_second(arrived))} jobs arrive and {rate(queue.churn.per_second(taken))} are taken, so the wait grows for every new job."
        f"{why}{forecast.sentence(forecast.piled_up(queue, growing_per_s=growth))}",
        evidence=(
            Evidence(
                what="arrivals",
                value=round(queue.churn.per_second(arrived), 1),
                unit="per second",
                source="pg_stat_user_tables",
            ),
            Evidence(
                what="taken",
                value=round(queue.churn.per_second(taken), 1),
                unit="per second",
                source="pg_stat_statements"
                if taken == claiming.taken(queue)
                else "at most: pg_stat_statements and pg_stat_user_tables",
            ),
            Evidence(
                what="ready jobs",
                value=probe.ready_rows,
                unit="rows",
                source=f"bounded look: {queue.identity.ready_predicate}",
            ),
            *evidence,
        ),
        remedies=tuple(_remedies(queue, arrived, taken)),
        relations=(queue.oid,),
    )


def _taken(queue: Queue) -> int:
    """Jobs taken in the window, at most: rows of the claims, and those that changed and may have been taken unseen.

    An update counts that sets a column by which jobs are ready, and a delete but for those that clear away what is finished. Where
    claims were seen, only updates count that no statement seen explains: the others are what workers do with the jobs they took.
    """
    known = taking.taken(queue)
    if known.known:
        if any(one.calls for one in queue.function_claims):
            return known.jobs
        updates = [one for one, _ in queue.writes("update")]
        # Of rows that a claim changed and did not return, it is known already that they were taken.
        silent = max(known.jobs - sum(one.rows for one in claiming.statements_of(queue.claims)), 0)
        return known.jobs + max(finishing.beyond(queue, "update", updates) - silent, 0)
    harmless = [
        one
        for one, _ in queue.writes("update")
        if not upkeep.may_leave_ready(queue.identity, one.statement, queue.is_this)
    ]
    clearing = [one for one, _ in queue.writes("delete") if finishing.clears(queue, one.statement)]
    return finishing.beyond(queue, "update", harmless) + finishing.beyond(queue, "delete", clearing)


def _remedies(queue: Queue, arrived: int, taken: int) -> Iterator[Remedy]:
    if taken <= 0:
        return
    factor = arrived / taken
    yield remedy.change_application(
        title=f"Unless another finding explains it: add {percent(factor - 1)} more workers at least, or take several jobs per claim",
        risk="more workers need more connections, and whatever the jobs call is called more often",
        expect=f"at {count(factor)} times today's {rate(queue.churn.per_second(taken))} the backlog stops growing; beyond that it shrinks",
    )


CHECK = Check(
    title="The backlog grows",
    needs=(ROWS, COUNTERS, STATEMENTS),
    limits=Limits(),
    evaluate=evaluate,
    unjudged=_unjudged,
    look_alikes=(
        "jobs scheduled for the future: they are not ready",
        "a peak that is worked off",
        "a large backlog that shrinks",
        "a batch that was enqueued within the window, or a producer that has just begun, where jobs have no time of their own",
    ),
)
