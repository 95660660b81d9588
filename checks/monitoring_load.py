"""Counting the queue costs more than working on it.

A dashboard or a metrics exporter that counts jobs by state reads every row each time, finished ones included,
from each node every few seconds. The claims take a fraction of a millisecond beside it. The count is the
load; nothing is wrong with the claim. Only time spent working counts: a count that waits for a lock, or sleeps,
keeps no core from the queue.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated

from pgqdoctor import remedy
from pgqdoctor.check import STATEMENTS, Check
from pgqdoctor.finding import Evidence, Finding, Remedy, Severity
from pgqdoctor.observation import Observation
from pgqdoctor.queue import Queue
from pgqdoctor.statements import SeenStatement
from pgqdoctor.words import count, percent, rate, shortened

LEAST_SAMPLES = 5
"""Samples of a statement from which their share without a wait is taken for the share of its time: fewer say too little."""
BLOCK_MS = 1.0
"""Milliseconds that one block of 8 kB can keep a count at work at most: 200 rows from the cache take 0.02 ms to count, a block
from a slow disk and its rows less than one. What a statement takes beyond that it waits or sleeps."""
_AT_WORK = (None, "", "IO", "LWLock", "BufferPin")
"""Wait events during which a statement works or keeps others from it; Lock, Timeout, Client, IPC and Extension are waits."""
COUNTED_AT_MOST = 10_000
"""Where the bounded count stops: enough to tell a backlog from none, and about a millisecond through an
index."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """When counting is the load."""

    core: Annotated[
        float,
        "ratio of one core spent counting: what a hundred claims of half a millisecond take each second",
    ] = 0.05
    times: Annotated[
        float, "times the time spent in claims: below it the queue's own work is the larger part"
    ] = 3.0
    critical_core: Annotated[float, "ratio of one core"] = 1.0


def evaluate(seen: Observation, queue: Queue, limits: Limits) -> Iterator[Finding]:
    """Compare the time of statements that count the queue's rows with that of its claims."""
    counting = sorted(
        (one for one in queue.statements if one.calls > 0 and _counts(queue, one)),
        key=lambda one: -_working_ms(queue, one),
    )
    if not counting or queue.churn.seconds <= 0:
        return
    counted_ms = sum(_working_ms(queue, one) for one in counting)
    elapsed_ms = sum(one.total_ms for one in counting)
    claims = {claim.seen.key: claim.seen for claim in queue.claims}.values()
    claims_ms = sum(one.total_ms * (_share_at_work(queue, one) or 1.0) for one in claims)
    core, claiming = (each / 1000 / queue.churn.seconds for each in (counted_ms, claims_ms))
    if core < limits.core or counted_ms < limits.times * claims_ms:
        return
    severity: Severity = "critical" if core >= limits.critical_core else "warning"
    worst = counting[0]
    each = _working_ms(queue, worst) / worst.calls
    yield Finding(
        check=CHECK.id,
        severity=severity,
        queue=queue.name,
        title=(
            f"Counting {queue.name} takes {percent(core)} of a core and its claims {percent(claiming)}: "
            f"{rate(queue.churn.per_second(worst.calls))} counts of {count(each)} ms each"
        ),
        why=(
            "A count reads every row that it counts, and finished jobs are most of them. Asked every few seconds by every node, it becomes the queue's "
            "dearest statement and grows with what is kept."
        ),
        evidence=(
            Evidence(
                what="counting statement", value=shortened(worst.text, 300), unit="", source=worst.source
            ),
            Evidence(
                what="time in counts",
                value=round(core, 3),
                unit="ratio",
                source="pg_stat_statements, of one core, without waits",
            ),
            Evidence(
                what="time in claims",
                value=round(claiming, 3),
                unit="ratio",
                source="pg_stat_statements, of one core",
            ),
            *(
                (
                    Evidence(
                        what="time in which counts waited",
                        value=round((elapsed_ms - counted_ms) / 1000, 3),
                        unit="seconds",
                        source="pg_stat_statements and samples of sessions",
                    ),
                )
                if elapsed_ms - counted_ms >= 0.01 * elapsed_ms
                else ()
            ),
            Evidence(
                what="counts",
                value=sum(one.calls for one in counting),
                unit="calls",
                source="pg_stat_statements, in the window",
            ),
            Evidence(
                what="buffers per count",
                value=round(worst.blocks / worst.calls),
                unit="buffers",
                source="pg_stat_statements",
            ),
        ),
        remedies=tuple(_remedies(queue)),
        relations=(queue.oid,),
    )


def _working_ms(queue: Queue, one: SeenStatement) -> float:
    """Milliseconds of the window in which a count was at work, as the samples of its sessions tell, else as its blocks allow."""
    share = _share_at_work(queue, one)
    if share is not None:
        return one.total_ms * share
    return min(one.total_ms, BLOCK_MS * (one.blocks + one.temp_blocks))


def _share_at_work(queue: Queue, one: SeenStatement) -> float | None:
    """Share of the samples of a statement's active sessions without a wait, None where there are too few."""
    sampled = [
        each.session
        for each in queue.sessions
        if one.query_id is not None
        and each.session.query_id == one.query_id
        and each.session.state == "active"
    ]
    if len(sampled) < LEAST_SAMPLES:
        return None
    return sum(1 for each in sampled if each.wait_type in _AT_WORK) / len(sampled)


def _counts(queue: Queue, one: SeenStatement) -> bool:
    if one.statement.claims or one.statement.writes:
        return False
    return any(
        read.counts and read.limit_kind == "none" and queue.is_this(read.table)
        for read in one.statement.reads
    )


def _remedies(queue: Queue) -> Iterator[Remedy]:
    ready = queue.identity.ready_predicate
    if ready is not None:
        yield remedy.corrected_statement(
            sql=(
                f"SELECT count(*) FROM (SELECT 1 FROM {queue.name} WHERE {ready} LIMIT {COUNTED_AT_MOST + 1}) AS ready;",
            ),
            title=f"Count ready jobs only, and no further than {COUNTED_AT_MOST:,}",
            expect=(
                "the claim's index answers it, and its cost is bounded. Finished jobs are counted from time to time, by one node, or estimated from "
                "pg_stats; the answer is cached for all readers"
            ),
            risk="a change of the dashboard or exporter: it shows 'more than' from there on",
        )


CHECK = Check(
    title="Counting costs more than claiming",
    needs=(STATEMENTS,),
    limits=Limits(),
    evaluate=evaluate,
    references=("https://www.postgresql.org/docs/current/planner-stats.html",),
    look_alikes=(
        "a count that is asked seldom",
        "a count bounded by LIMIT",
        "a count that sleeps or waits for a lock",
        "an aggregate inside of the claim itself",
    ),
)
