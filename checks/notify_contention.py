"""Commits wait in line for the lock that NOTIFY takes.

A transaction that has called NOTIFY takes a lock of the whole server when it commits, so that notifications keep the order of commits, and
holds it until the commit record is on disk. All commits that notify, of all databases, therefore happen one after the other. A
trigger that notifies for each job makes every enqueue such a commit.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated

from pgqdoctor import remedy
from pgqdoctor.check import ACTIVITY, Check
from pgqdoctor.finding import Evidence, Finding, Remedy, Severity
from pgqdoctor.observation import Observation
from pgqdoctor.queue import Queue
from pgqdoctor.rows import FunctionRow, LockRow, TriggerRow
from pgqdoctor.sampled import sampled
from pgqdoctor.sqlread import read_sql
from pgqdoctor.sqlrewrite import quote_ident
from pgqdoctor.words import count, percent, rate, shortened

PG_DATABASE = 1262
"""Oid of the catalog pg_database: NOTIFY locks object 0 of it, in database 0."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """When waiting for NOTIFY's lock hurts."""

    samples: Annotated[int, "samples of waiting sessions: fewer are chance"] = 5
    waiting: Annotated[float, "share of the samples of active sessions that wait for it"] = 0.1
    critical_waiting: Annotated[float, "share from which on most of the enqueueing sessions stand still"] = (
        0.5
    )


def evaluate(seen: Observation, queue: Queue, limits: Limits) -> Iterator[Finding]:
    """Accuse the queue's notifying trigger or statements where commits wait for the lock."""
    active = sampled(seen).active
    waiting = list(sampled(seen).waiting("Lock", "object"))
    share = len(waiting) / active if active else 0.0
    if len(waiting) < limits.samples or share < limits.waiting:
        return
    lock = [row for row in (*seen.first.locks, *seen.last.locks) if _is_notify(row)]
    trigger = _notifying_trigger(queue)
    statement = _notifying_statement(seen, queue)
    if trigger is None and statement is None:
        return
    if not lock and any(
        row.locktype == "object" and not row.granted for row in (*seen.first.locks, *seen.last.locks)
    ):
        # What is waited for is another object: DDL on a database, a role, an extension.
        return
    severity: Severity = "critical" if share >= limits.critical_waiting else "warning"
    evidence = [
        Evidence(
            what="active sessions waiting for it",
            value=round(share, 3),
            unit="ratio",
            source="pg_stat_activity, samples of Lock:object",
        ),
        Evidence(
            what="rows inserted into the queue",
            value=round(queue.churn.per_second(queue.churn.inserted), 1),
            unit="per second",
            source="pg_stat_user_tables",
        ),
    ]
    if lock:
        behind = max(
            sum(1 for row in reading.locks if _is_notify(row) and not row.granted)
            for reading in (seen.first, seen.last)
        )
        evidence.append(
            Evidence(
                what="commits in line at one moment",
                value=behind,
                unit="sessions",
                source="pg_locks (object, database 0)",
            )
        )
    if trigger is not None:
        who = f"trigger {shortened(trigger[0].name, 63)} of {queue.name}"
        evidence.append(Evidence(what="notifies", value=who, unit="", source="pg_trigger, pg_proc"))
    else:
        who = "a statement"
        evidence.append(
            Evidence(
                what="notifies", value=shortened(statement or "", 200), unit="", source="statements seen"
            )
        )
    yield Finding(
        check=CHECK.id,
        severity=severity,
        queue=queue.name,
        title=f"{percent(share)} of the samples of active sessions wait for the commit lock of NOTIFY, which {who} takes",
        why=(
            "NOTIFY makes its transaction take one lock of the whole server at commit and keep it until the commit is on disk. Commits that "
            "notify happen one at a time, whatever they did before: enqueues wait, while processor and disk are idle."
        ),
        evidence=tuple(evidence),
        remedies=tuple(_remedies(queue, trigger, count(queue.churn.per_second(queue.churn.inserted)))),
        relations=(queue.oid,),
    )


def _is_notify(row: LockRow) -> bool:
    return row.locktype == "object" and row.database == 0 and row.classid == PG_DATABASE and row.objid == 0


def _notifies(function: FunctionRow) -> bool:
    body = function.body.lower()
    return "pg_notify" in body or "notify " in body


def _notifying_trigger(queue: Queue) -> tuple[TriggerRow, FunctionRow] | None:
    bodies = {row.oid: row for row in queue.catalog.functions if _notifies(row)}
    return next(
        (
            (row, bodies[row.function_oid])
            for row in queue.triggers
            if row.enabled and row.function_oid in bodies
        ),
        None,
    )


def _notifying_statement(seen: Observation, queue: Queue) -> str | None:
    """A statement of the window that notifies: NOTIFY itself, pg_notify() or a function of the queue that does."""
    names = {
        "pg_notify",
        *(
            row.name
            for row in queue.catalog.functions
            if row.oid in queue.identity.functions and _notifies(row)
        ),
    }
    calls = {row.key: row.calls for row in seen.last.statements}
    before = {row.key: row.calls for row in seen.first.statements}
    for row in seen.statement_texts:
        if row.text is None or calls.get(row.key, 0) <= before.get(row.key, 0):
            continue
        for statement in read_sql(row.text).statements:
            if (
                statement.kind == "notify"
                or {name.rpartition(".")[2] for name in statement.functions} & names
            ):
                return statement.text
    for text in seen.texts:
        if any(one.kind == "notify" for one in read_sql(text).statements):
            return text
    return None


def _remedies(queue: Queue, trigger: tuple[TriggerRow, FunctionRow] | None, inserts: str) -> Iterator[Remedy]:
    if trigger is not None:
        name, table = quote_ident(trigger[0].name), _table_of(queue, trigger[0])
        yield Remedy(
            title=f"Stop notifying for each job: disable trigger {shortened(trigger[0].name, 63)}, and let workers poll",
            kind="sql",
            sql=(remedy.LOCK_TIMEOUT, f"ALTER TABLE {table} DISABLE TRIGGER {name};"),
            undo=(remedy.LOCK_TIMEOUT, f"ALTER TABLE {table} ENABLE TRIGGER {name};"),
            lock="SHARE ROW EXCLUSIVE",
            blocks="writes",
            restart=False,
            risk="workers that wait for notifications alone sleep until they poll: set their poll interval first (a second is usual)",
            expect=f"enqueues commit side by side again, {inserts} per second and more",
        )
    yield remedy.corrected_statement(
        sql=(
            "-- one process, once per poll interval, instead of every enqueue:",
            f"SELECT pg_notify('queue', '') WHERE EXISTS (SELECT 1 FROM {queue.name}"
            + (f" WHERE {queue.identity.ready_predicate}" if queue.identity.ready_predicate else "")
            + ");",
        ),
        title="Notify from one place at most every so often, outside of the enqueueing transactions",
        expect=f"the lock is taken a few times per second instead of {rate(queue.churn.per_second(queue.churn.inserted))}",
        risk="a change of the application; a job is noticed up to one interval later",
    )


def _table_of(queue: Queue, trigger: TriggerRow) -> str:
    row = queue.catalog.table(trigger.table)
    return remedy.qualified(row.schema, row.name) if row is not None else queue.name


CHECK = Check(
    title="Commits wait for the lock of NOTIFY",
    needs=(ACTIVITY,),
    limits=Limits(),
    evaluate=evaluate,
    references=("https://www.postgresql.org/docs/current/sql-notify.html",),
    look_alikes=(
        "idle sessions that LISTEN",
        "NOTIFY at a rate at which commits do not meet",
        "waits for other objects, such as a database that is being dropped",
    ),
)
