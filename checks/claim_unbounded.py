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
from pgqdoctor.check import CLAIMS, STATEMENTS, Check
from pgqdoctor.finding import Evidence, Finding, Remedy, Severity
from pgqdoctor.lint import claims as lint_claims
from pgqdoctor.observation import Observation
from pgqdoctor.queue import Queue, SeenClaim
from pgqdoctor.statements import SeenStatement
from pgqdoctor.words import count, duration, shortened


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """When an unbounded claim takes too much."""

    rows: Annotated[float, "jobs per claim on average: batches on purpose are met up to about a hundred"] = (
        100.0
    )
    critical_rows: Annotated[
        float, "jobs per claim: a worker that finishes ten a second holds them for minutes"
    ] = 1_000.0
    held_s: Annotated[
        float,
        "seconds that a transaction stays open after its rows were locked: one that moves them on commits at once",
    ] = 1.0
    most: Annotated[
        int, "jobs that a bounded claim is advised to take at most: some frameworks' largest batch"
    ] = 100


def evaluate(seen: Observation, queue: Queue, limits: Limits) -> Iterator[Finding]:
    """Report the claim without a LIMIT that takes the most jobs at a time."""
    free = [(_per_call(one.seen), one) for one in queue.claims if one.seen.seen and _unbounded(one)]
    per_call, one = max(free, key=lambda each: each[0], default=(0.0, None))
    if one is None or per_call < limits.rows:
        yield from _hoarded(seen, queue, limits)
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
            claiming.text_evidence(one.seen),
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


def _per_call(one: SeenStatement) -> float:
    """Jobs per execution in the window; of all time for a claim that only a session shows."""
    if one.calls:
        return one.rows / one.calls
    return one.all_rows / one.all_calls if one.all_calls else 0.0


def _hoarded(seen: Observation, queue: Queue, limits: Limits) -> Iterator[Finding]:
    """Report an UPDATE behind SKIP LOCKED without LIMIT whose words do not say that it takes jobs, where its transaction
    stays open: whatever it is meant for, the workers pass over every row it has locked."""
    for one in queue.statements:
        if not _locks_all(queue, one):
            continue
        holders = {
            each.session.pid: each.session.xact_age_s
            for each in queue.sessions
            if each.statement == one.statement
            and each.session.state == "idle in transaction"
            and (each.session.xact_age_s or 0.0) >= limits.held_s
        }
        rows = one.all_rows / one.all_calls if one.all_calls else _passed_over(queue)
        if not holders or rows < limits.rows:
            continue
        pid = min(holders)
        found = (
            f"{count(rows)} on average" if one.all_calls else f"and claims pass over {count(rows)} ready ones"
        )
        yield Finding(
            check=CHECK.id,
            severity="critical" if rows >= limits.critical_rows else "warning",
            queue=queue.name,
            title=(
                f"An UPDATE of {queue.name} without LIMIT has locked the jobs it found, {found}, and session {pid} "
                f"keeps its transaction open for {duration(holders[pid] or 0.0)}"
            ),
            why=(
                "The statement locks every row that its condition finds until its transaction ends. SKIP LOCKED lets the workers pass over them, so "
                "that they return empty-handed while the backlog waits."
            ),
            evidence=(
                Evidence(what="statement", value=shortened(one.text, 300), unit="", source=one.source),
                Evidence(
                    what="rows per execution" if one.all_calls else "ready jobs that claims pass over",
                    value=round(rows, 1),
                    unit="rows",
                    source="pg_stat_statements" if one.all_calls else "bounded look",
                ),
                Evidence(
                    what="transaction open",
                    value=round(holders[pid] or 0.0, 1),
                    unit="seconds",
                    source="pg_stat_activity",
                ),
                *claiming.rate_evidence(queue),
            ),
            remedies=tuple(_bounded_by(queue, limits)),
            pids=tuple(sorted(holders)),
            relations=(queue.oid,),
        )
        return


def _passed_over(queue: Queue) -> int:
    """Ready jobs that no claim of the window got: what a statement unknown to pg_stat_statements may have locked."""
    taken = sum(one.seen.rows for one in queue.claims)
    asked = sum(one.seen.calls for one in queue.claims)
    if taken or not asked or queue.probe is None:
        return 0
    return queue.probe.ready_rows or 0


def _locks_all(queue: Queue, one: SeenStatement) -> bool:
    """Tell whether a statement locks and updates the queue's rows behind SKIP LOCKED with no LIMIT anywhere, and is no claim by
    its words."""
    said = one.statement
    words = set(one.text.lower().split())
    return (
        not any(queue.is_this(claim.table) for claim in said.claims)
        and any(queue.is_this(lock.table) and lock.wait == "skip locked" for lock in said.locks)
        and any(queue.is_this(write.table) and write.kind == "update" for write in said.writes)
        and not words & {"limit", "fetch"}
    )


def _bounded_by(queue: Queue, limits: Limits) -> Iterator[Remedy]:
    limit = _batch(queue, limits)
    sql = claiming.composed_claim(queue, limit)
    if sql is not None:
        yield remedy.corrected_statement(
            sql=(sql,),
            title=f"Take at most {limit} jobs at a time, and commit before the work begins",
            expect="the other workers find jobs at once",
        )


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
    needs=(STATEMENTS, CLAIMS),
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
