"""One claim locks the whole backlog.

A locking SELECT, or a claiming UPDATE, without a LIMIT takes every job that is ready. One worker then holds
them all until it commits; the others skip them and find nothing, though jobs are ready, and whoever wants to
cancel one of them waits. The longer the backlog, the longer one transaction keeps it from everybody else.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated

from pgqdoctor import claiming, remedy, sqlcorrect
from pgqdoctor.check import STATEMENTS, Check
from pgqdoctor.finding import Evidence, Finding, Remedy, Severity
from pgqdoctor.lint import claims as lint_claims
from pgqdoctor.observation import Observation
from pgqdoctor.queue import Queue, SeenClaim
from pgqdoctor.words import count, shortened


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """When an unbounded claim takes too much."""

    rows: Annotated[float, "jobs per claim on average: batches on purpose are met up to about a hundred"] = (
        100.0
    )
    critical_rows: Annotated[
        float, "jobs per claim: a worker that finishes ten a second holds them for minutes"
    ] = 1_000.0
    most: Annotated[
        int, "jobs that a bounded claim is advised to take at most: some frameworks' largest batch"
    ] = 100


def evaluate(seen: Observation, queue: Queue, limits: Limits) -> Iterator[Finding]:
    """Report the claim without a LIMIT that takes the most jobs at a time."""
    free = [(_per_call(one), one) for one in queue.claims if one.seen.seen and _unbounded(one)]
    if not free:
        return
    per_call, one = max(free, key=lambda each: each[0])
    if per_call < limits.rows:
        return
    severity: Severity = "critical" if per_call >= limits.critical_rows else "warning"
    yield Finding(
        check=CHECK.id,
        severity=severity,
        queue=queue.name,
        title=f"One claim of {queue.name} takes {count(per_call)} jobs at a time: it has no LIMIT, and the other workers find nothing",
        why=(
            "The statement locks every ready job for one transaction. SKIP LOCKED lets the others pass over them, so that they return empty-handed while "
            "the backlog waits for a single worker."
        ),
        evidence=(
            Evidence(what="claim", value=shortened(one.seen.text, 300), unit="", source=one.seen.source),
            Evidence(
                what="jobs per claim", value=round(per_call, 1), unit="rows", source="pg_stat_statements"
            ),
            *claiming.rate_evidence(queue),
        ),
        remedies=tuple(_remedies(queue, one, limits)),
        pids=tuple(
            sorted({each.session.pid for each in queue.sessions if each.statement == one.seen.statement})
        ),
        relations=(queue.oid,),
    )


def _unbounded(one: SeenClaim) -> bool:
    claim = one.claim
    if claim.limit_kind != "none" or claim.by_key or claim.shape in ("advisory", "function", "unknown"):
        return False
    return claim.lock is not None or claim.shape == "guarded"


def _per_call(one: SeenClaim) -> float:
    """Jobs per execution in the window; of all time for a claim that only a session shows."""
    if one.seen.calls:
        return one.seen.rows / one.seen.calls
    return one.seen.all_rows / one.seen.all_calls if one.seen.all_calls else 0.0


def _remedies(queue: Queue, one: SeenClaim, limits: Limits) -> Iterator[Remedy]:
    limit = _batch(queue, limits)
    text = sqlcorrect.bounded(one.seen.statement.text, one.claim, limit)
    sql = claiming.printed(queue, text) if text is not None else claiming.composed_claim(queue, limit)
    if sql is not None:
        yield remedy.corrected_statement(
            sql=(sql,),
            title=f"Take at most {limit} jobs at a time",
            expect=(
                f"the other workers find jobs at once; {limit} is what one worker finishes in about a second at today's rate.{claiming.with_parameters(sql)}"
            ),
        )


def _batch(queue: Queue, limits: Limits) -> int:
    """Jobs that one worker finishes in a second: finishes per second over the workers seen, between 1 and the
    most advised."""
    finished = queue.churn.per_second(queue.churn.deleted or queue.churn.updated)
    workers = len({one.session.pid for one in queue.sessions}) or 1
    return max(1, min(limits.most, round(finished / workers)))


CHECK = Check(
    title="A claim without LIMIT takes the backlog",
    needs=(STATEMENTS,),
    limits=Limits(),
    evaluate=evaluate,
    lint=lint_claims.unbounded,
    references=("https://www.postgresql.org/docs/current/sql-select.html#SQL-FOR-UPDATE-SHARE",),
    look_alikes=(
        "a claim by key, as after a notification: one row by nature",
        "a claim without LIMIT that finds a few jobs at a time",
        "a sweep that prunes finished jobs",
    ),
)
