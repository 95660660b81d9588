"""More jobs arrive than are finished.

The queue is growing, and the oldest ready job waits longer with every minute. If something else here slows
the claims or the workers, that is the cause and comes first; if nothing does, there are too few workers, or
they are too slow, for what arrives.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated

from pgqdoctor import claiming, forecast, remedy
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


def evaluate(seen: Observation, queue: Queue, limits: Limits) -> Iterator[Finding]:
    """Compare arrivals with claims, and look at how long the oldest ready job has waited."""
    probe = queue.probe
    if probe is None or probe.ready_rows is None or probe.oldest_ready_age_s is None:
        return
    taken = _taken(queue)
    arrived = queue.churn.inserted
    growth = queue.churn.per_second(arrived - taken)
    if probe.ready_rows < limits.ready or probe.oldest_ready_age_s < limits.oldest_s:
        return
    if growth < limits.growth_rate or arrived - taken < limits.growth * arrived:
        return
    more = "" if probe.ready_exact else "more than "
    severity: Severity = "critical" if probe.oldest_ready_age_s >= limits.critical_s else "warning"
    yield Finding(
        check=CHECK.id,
        severity=severity,
        queue=queue.name,
        title=(
            f"{queue.name} grows by {rate(growth)}: {more}{count(probe.ready_rows)} jobs are ready, the oldest for {duration(probe.oldest_ready_age_s)}"
        ),
        why=f"{rate(queue.churn.per_second(arrived))} jobs arrive and {rate(queue.churn.per_second(taken))} are taken, so the wait grows for every new job."
        f"{forecast.sentence(forecast.piled_up(queue, growing_per_s=growth))}",
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
                source="pg_stat_statements",
            ),
            Evidence(
                what="ready jobs",
                value=probe.ready_rows,
                unit="rows",
                source=f"bounded look: {queue.identity.ready_predicate}",
            ),
            Evidence(
                what="oldest ready job",
                value=round(probe.oldest_ready_age_s, 1),
                unit="seconds",
                source="bounded look",
            ),
        ),
        remedies=tuple(_remedies(queue, arrived, taken)),
        relations=(queue.oid,),
    )


def _taken(queue: Queue) -> int:
    """Jobs taken in the window: rows of the claims, else rows that left the table."""
    return claiming.taken(queue) or queue.churn.deleted


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
    look_alikes=(
        "jobs scheduled for the future: they are not ready",
        "a peak that is worked off",
        "a large backlog that shrinks",
    ),
)
