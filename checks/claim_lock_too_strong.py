"""The claim's lock makes writers of child tables wait.

A row that refers to a job must see that the job exists: its foreign key check takes FOR KEY SHARE on the job.
FOR UPDATE conflicts with that, FOR NO KEY UPDATE does not, and it excludes other workers just as well. While
a claim holds FOR UPDATE, everybody who adds a log line, an execution or an event for the job waits, and
crossed waits end in a deadlock.

A lock can also reach too far: FOR UPDATE without OF locks the rows of every table that the claim joins. Where all jobs share
one row there, such as their queue's settings, SKIP LOCKED passes over every job as soon as one worker holds it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated

from pgqdoctor import claiming, remedy, sqlcorrect
from pgqdoctor.check import ACTIVITY, CLAIMS, STATEMENTS, Check
from pgqdoctor.finding import Evidence, Finding, Severity
from pgqdoctor.lint import claims as lint_claims
from pgqdoctor.names import same_table
from pgqdoctor.observation import Observation
from pgqdoctor.queue import Queue
from pgqdoctor.rows import ForeignKeyRow
from pgqdoctor.sampled import sampled
from pgqdoctor.sqlread import read_sql
from pgqdoctor.sqlrewrite import quote_ident
from pgqdoctor.words import count, percent

ROW_WAITS = ("transactionid", "tuple")


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """When the waits matter."""

    waiting: Annotated[
        float,
        "sessions that wait at an average moment while they write a child row: a fifth of a session is felt",
    ] = 0.2
    critical: Annotated[float, "sessions that wait at an average moment: as many as a small pool has"] = 5.0
    in_vain: Annotated[
        float,
        "ratio of claims that find nothing although jobs are ready: a late worker now and then is chance",
    ] = 0.3
    in_vain_calls: Annotated[int, "such claims in the window: fewer show nothing"] = 20
    critical_in_vain: Annotated[
        float, "ratio of claims in vain from which the workers do the work of less than two"
    ] = 0.75


def evaluate(seen: Observation, queue: Queue, limits: Limits) -> Iterator[Finding]:
    """Report claims that lock the rows they join, and FOR UPDATE beside waiting writers of tables that refer to the queue."""
    yield from _too_wide(queue, limits)
    yield from _too_strong(seen, queue, limits)


def _too_wide(queue: Queue, limits: Limits) -> Iterator[Finding]:
    """Tell of the busiest claim that locks rows of another table and finds nothing while jobs wait."""
    probe = queue.probe
    if probe is None or not probe.ready_rows or (probe.oldest_ready_age_s or 0.0) < queue.churn.seconds:
        return
    for one in queue.claims:
        others = [
            lock.table
            for lock in one.seen.statement.locks
            if lock.wait == "skip locked" and not queue.is_this(lock.table) and lock.table in one.claim.joins
        ]
        empty = one.seen.calls - one.seen.rows
        if not others or empty < limits.in_vain_calls or empty < limits.in_vain * one.seen.calls:
            continue
        share = empty / one.seen.calls
        other = others[0]
        name = ".".join(quote_ident(part) for part in (other.schema, other.name) if part)
        text = sqlcorrect.own_rows_only(one.seen.statement.text, one.claim)
        sql = claiming.printed(queue, text) if text is not None else None
        ready = f"{'' if probe.ready_exact else 'more than '}{count(probe.ready_rows)}"
        yield Finding(
            check=CHECK.id,
            severity="critical" if share >= limits.critical_in_vain else "warning",
            queue=queue.name,
            subject=f"joins {other.schema}.{other.name}" if other.schema else f"joins {other.name}",
            title=(
                f"The claim of {queue.name} locks rows of {name} as well: {percent(share)} of the claims find nothing while {ready} jobs are ready"
            ),
            why=(
                "A locking clause without OF locks the rows of every table of its SELECT. Jobs that share a row of the joined table are locked "
                "together: while one worker holds that row, SKIP LOCKED passes over all of them."
            ),
            evidence=(
                claiming.text_evidence(one.seen),
                claiming.in_vain_evidence(empty),
                *claiming.ready_evidence(queue),
            ),
            remedies=(
                remedy.corrected_statement(
                    sql=(sql,),
                    title=f"Lock the job alone: FOR UPDATE OF, so that rows of {name} are only read",
                    expect=f"every worker finds the next free job.{claiming.with_parameters(sql)}",
                ),
            )
            if sql is not None
            else (),
            relations=(queue.oid,),
        )
        return


def _too_strong(seen: Observation, queue: Queue, limits: Limits) -> Iterator[Finding]:
    strong = [
        one
        for one in queue.claims
        if one.seen.seen and one.claim.lock is not None and one.claim.lock.strength == "update"
    ]
    children = [row for row in queue.foreign_keys if row.parent in queue.oids and row.child not in queue.oids]
    if not strong or not children or not queue.sample_count:
        return
    key, waiting, pids = _waiting(seen, queue, children)
    if key is None or waiting < limits.waiting:
        return
    severity: Severity = "critical" if waiting >= limits.critical else "warning"
    one = strong[0]
    text = sqlcorrect.weaker_lock(one.seen.statement.text, one.claim)
    sql = claiming.printed(queue, text) if text is not None else None
    yield Finding(
        check=CHECK.id,
        severity=severity,
        queue=queue.name,
        title=(
            f"{count(waiting)} writers of {key.child_name} wait at any moment for claims of {queue.name}: "
            f"FOR UPDATE shuts out the checks of foreign key {quote_ident(key.name)}"
        ),
        why=(
            "The foreign key check locks the job FOR KEY SHARE. That conflicts with FOR UPDATE, which announces that the key may change, "
            "and not with FOR NO KEY UPDATE, which excludes other workers all the same."
        ),
        evidence=(
            claiming.text_evidence(one.seen),
            Evidence(what="foreign key", value=key.name, unit="", source="pg_constraint"),
            Evidence(
                what="waiting writers",
                value=round(waiting, 2),
                unit="sessions",
                source="samples of pg_stat_activity",
            ),
        ),
        remedies=(
            remedy.corrected_statement(
                sql=(sql,),
                title="Lock with FOR NO KEY UPDATE",
                expect=(
                    "child rows are written while the job is claimed; other workers still skip it. A DELETE of the job in the same transaction takes "
                    f"the strong lock all the same.{claiming.with_parameters(sql)}"
                ),
            ),
        )
        if sql is not None
        else (),
        subject=key.name,
        pids=pids,
        relations=(queue.oid, key.child),
    )


def _waiting(
    seen: Observation, queue: Queue, children: list[ForeignKeyRow]
) -> tuple[ForeignKeyRow | None, float, tuple[int, ...]]:
    """Return the foreign key whose child has the most waiting writers, how many at an average moment, and
    who."""
    tables = {row.oid: row for row in seen.catalog.tables}
    writes: dict[int, ForeignKeyRow] = {}
    for place, text in enumerate(seen.texts):
        for statement in read_sql(text).statements:
            for write in statement.writes:
                for key in children:
                    row = tables.get(key.child)
                    schema, name = (row.schema, row.name) if row is not None else _split(key.child_name)
                    if write.kind in ("insert", "update") and same_table(write.table, schema, name):
                        writes.setdefault(place, key)
    waits = [
        (writes[session.text], session.pid)
        for session in sampled(seen).waiting("Lock", *ROW_WAITS)
        if session.text in writes
    ]
    if not waits:
        return None, 0.0, ()
    keys = [key for key, _ in waits]
    worst = max(keys, key=keys.count)
    return (
        worst,
        keys.count(worst) / queue.sample_count,
        tuple(sorted({pid for key, pid in waits if key == worst})),
    )


def _split(name: str) -> tuple[str, str]:
    schema, _, table = name.rpartition(".")
    return schema.strip('"') or "public", table.strip('"')


CHECK = Check(
    title="The claim's lock is stronger than it needs",
    needs=(STATEMENTS, CLAIMS, ACTIVITY),
    limits=Limits(),
    evaluate=evaluate,
    lint=lint_claims.lock_too_strong,
    references=("https://www.postgresql.org/docs/current/explicit-locking.html#LOCKING-ROWS",),
    look_alikes=(
        "FOR UPDATE on a queue that no table refers to",
        "FOR NO KEY UPDATE, which is a full lock for a claim",
        "child rows written without waiting",
        "a join whose rows are locked, with a row of its own for each job",
    ),
)
