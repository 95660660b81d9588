"""One row of a small table serialises enqueues or finishes.

A counter, a semaphore or a "last run" row that every job updates is locked from the update to the end of its transaction. However many
workers there are, only one of them is past that update at any time, and each update leaves a dead version of the same row.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated

from pgqdoctor import remedy
from pgqdoctor.check import ACTIVITY, Check
from pgqdoctor.claimguards import PAIRED, calls_of
from pgqdoctor.finding import Evidence, Finding, Remedy, Severity
from pgqdoctor.observation import Observation
from pgqdoctor.queue import Queue
from pgqdoctor.rows import TriggerRow
from pgqdoctor.sampled import sampled
from pgqdoctor.sqlfacts import RowLock, Statement, TableName, Write
from pgqdoctor.sqlread import read_function, read_sql
from pgqdoctor.sqlrewrite import quote_ident
from pgqdoctor.words import percent, shortened

LEAST_CALLS = 20
"""Executions in the window from which equal counts of two statements are no chance."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """When a row is hot."""

    samples: Annotated[int, "samples of waiting sessions: fewer are chance"] = 5
    waiting: Annotated[float, "share of the samples of active sessions that wait for it"] = 0.1
    critical_waiting: Annotated[float, "share from which the queue does little else than wait for it"] = 0.6
    few_rows: Annotated[
        float, "rows of the table, where they are known: in a large table updates seldom meet"
    ] = 1_000.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """What updates the row, or locks it: a trigger of the queue, or a statement of the sessions that work on it."""

    table: TableName
    trigger: TriggerRow | None
    statement: str
    locks: bool = False
    """True for SELECT ... FOR UPDATE, as of a semaphore; whether the row is changed afterwards is not known."""


def evaluate(seen: Observation, queue: Queue, limits: Limits) -> Iterator[Finding]:
    """Accuse the small table whose row the queue's sessions wait for."""
    at_work = {one.session.pid for one in queue.sessions}
    active, blamed, tuple_waits = sampled(seen).active, Counter[TableName](), Counter[TableName]()
    sources: dict[TableName, Source] = {}
    triggered = _from_triggers(queue)
    of_text: dict[tuple[int, bool], Source | None] = {}
    for session in sampled(seen).waiting("Lock", "tuple", "transactionid"):
        asked = session.text, session.pid in at_work
        if asked not in of_text:
            of_text[asked] = _source(seen, queue, session.text, triggered, works=asked[1])
        source = of_text[asked]
        if source is not None:
            blamed[source.table] += 1
            tuple_waits[source.table] += session.wait_event == "tuple"
            sources[source.table] = source
    for table, waits in blamed.most_common(1):
        share = waits / active
        rows = _rows(queue, table)
        if waits < limits.samples or share < limits.waiting or (rows is not None and rows > limits.few_rows):
            return
        severity: Severity = "critical" if share >= limits.critical_waiting else "warning"
        source = sources[table]
        name = (
            f"{quote_ident(table.schema)}.{quote_ident(table.name)}"
            if table.schema
            else quote_ident(table.name)
        )
        by = (
            f"trigger {quote_ident(source.trigger.name)} of {queue.name}"
            if source.trigger is not None
            else "its statements"
        )
        evidence = [
            Evidence(
                what="active sessions waiting for its row lock",
                value=round(share, 3),
                unit="ratio",
                source="pg_stat_activity, samples",
            ),
            Evidence(
                what="of those behind another waiter",
                value=tuple_waits[table],
                unit="samples",
                source="pg_stat_activity (Lock:tuple)",
            ),
            Evidence(
                what="locked by" if source.locks else "updated by",
                value=shortened(source.statement, 200),
                unit="",
                source="statements and functions seen",
            ),
        ]
        if rows is not None:
            evidence.append(
                Evidence(what=f"rows of {name}", value=round(rows), unit="rows", source="pg_class.reltuples")
            )
        yield Finding(
            check=CHECK.id,
            severity=severity,
            queue=queue.name,
            subject=f"{table.schema}.{table.name}" if table.schema else table.name,
            title=(
                f"{percent(share)} of the samples of active sessions wait for a row of {name} that {by} "
                f"{'lock' if source.locks else 'update'}{'s' if source.trigger else ''} for each job"
            ),
            why=(
                f"{'A row locked by SELECT ... FOR UPDATE' if source.locks else 'An updated row'} stays locked until its transaction ends. "
                f"When every job {'locks' if source.locks else 'updates'} the same row, all jobs stand in line for it, and more workers only "
                "make the line longer."
            ),
            evidence=tuple(evidence),
            remedies=tuple(_remedies(queue, source, name)),
            relations=(queue.oid,),
        )


def _source(
    seen: Observation, queue: Queue, text: int, triggered: Source | None, *, works: bool
) -> Source | None:
    """Return what a session waits for with that text; ``works`` is true where it was seen at work on the queue."""
    if text < 0:
        return None
    for statement in read_sql(seen.texts[text]).statements:
        other = _update_elsewhere(queue, statement) or _lock_elsewhere(queue, statement)
        if other is not None:
            locks = isinstance(other, RowLock)
            return (
                Source(table=other.table, trigger=None, statement=statement.text, locks=locks)
                if works or _goes_with(seen, queue, seen.texts[text])
                else None
            )
        # Claims that wait are row locks of the queue itself: another check speaks about those.
        if (
            triggered is not None
            and not statement.claims
            and any(queue.is_this(one.table) for one in statement.writes)
        ):
            return triggered
    return None


def _goes_with(seen: Observation, queue: Queue, text: str) -> bool:
    """Tell whether a statement runs as often as one that takes or enqueues jobs: statements of milliseconds are seldom caught in a sample."""
    calls = calls_of(seen, text)
    mine = {one.seen.calls for one in queue.claims} | {one.calls for one, _ in queue.writes("insert")}
    return calls >= LEAST_CALLS and any(abs(calls - each) <= PAIRED * each for each in mine)


def _update_elsewhere(queue: Queue, statement: Statement) -> Write | None:
    """Return the UPDATE of another table, or the INSERT ... ON CONFLICT DO UPDATE."""
    return next(
        (
            one
            for one in statement.writes
            if (one.kind == "update" or (one.kind == "insert" and one.sets)) and not queue.is_this(one.table)
        ),
        None,
    )


def _lock_elsewhere(queue: Queue, statement: Statement) -> RowLock | None:
    """Return the lock that a SELECT waits for on another table's row; a claim that joins it is another check's affair."""
    if statement.writes or statement.claims:
        return None
    return next(
        (
            one
            for one in statement.locks
            if one.wait == "block"
            and one.strength in ("update", "no key update")
            and not queue.is_this(one.table)
        ),
        None,
    )


def _from_triggers(queue: Queue) -> Source | None:
    bodies = {row.oid: row for row in queue.catalog.functions}
    for trigger in queue.triggers:
        function = bodies.get(trigger.function_oid)
        if function is None or not trigger.enabled:
            continue
        for statement in read_function(function.name, function.language, function.body).statements:
            write = _update_elsewhere(queue, statement)
            if write is not None:
                return Source(table=write.table, trigger=trigger, statement=statement.text)
    return None


def _rows(queue: Queue, table: TableName) -> float | None:
    return next(
        (
            row.rows
            for row in queue.catalog.tables
            if row.name == table.name and table.schema in (None, row.schema) and row.rows >= 0
        ),
        None,
    )


def _remedies(queue: Queue, source: Source, name: str) -> Iterator[Remedy]:
    if source.locks:
        yield remedy.corrected_statement(
            sql=(
                "BEGIN;",
                f"{source.statement.strip().rstrip(';')};",
                "-- take the job here, and nothing else",
                "COMMIT;",
                "-- the job runs here, outside of any transaction",
            ),
            title=f"Hold the lock on the row of {name} for the claim alone, and commit before the job runs",
            expect="the lock lasts for two statements and the commit, not for the whole job",
            risk="a change of the application: what limits the jobs that run has to count claimed jobs, not open transactions",
        )
        return
    yield remedy.corrected_statement(
        sql=(
            f"-- instead of: {shortened(source.statement, 200)}",
            f"-- insert one row per job into a table of changes beside {name}, and let one process add them up every few seconds",
        ),
        title=f"Insert changes instead of updating the one row of {name}",
        expect="inserts do not wait for each other; jobs are enqueued and finished side by side",
        risk="a change of the application: the total is some seconds old",
    )
    if source.trigger is not None:
        row = queue.catalog.table(source.trigger.table)
        table = remedy.qualified(row.schema, row.name) if row is not None else queue.name
        trigger = quote_ident(source.trigger.name)
        yield Remedy(
            title=f"For the moment, disable trigger {quote_ident(source.trigger.name)}",
            kind="sql",
            sql=(remedy.LOCK_TIMEOUT, f"ALTER TABLE {table} DISABLE TRIGGER {trigger};"),
            undo=(remedy.LOCK_TIMEOUT, f"ALTER TABLE {table} ENABLE TRIGGER {trigger};"),
            lock="SHARE ROW EXCLUSIVE",
            blocks="writes",
            restart=False,
            risk=f"{name} is no longer kept up to date and has to be counted anew afterwards",
            expect="the waits are gone at once",
        )
    else:
        yield remedy.corrected_statement(
            sql=(
                "BEGIN;",
                "-- everything else of the transaction",
                f"{source.statement.strip().rstrip(';')};",
                "COMMIT;",
            ),
            title="Or make it the last statement before COMMIT",
            expect="the lock lasts for one statement and the commit, not for the whole transaction",
        )


CHECK = Check(
    title="One row serialises the jobs",
    needs=(ACTIVITY,),
    limits=Limits(),
    evaluate=evaluate,
    references=("https://www.postgresql.org/docs/current/explicit-locking.html#LOCKING-ROWS",),
    look_alikes=(
        "workers that wait for job rows: that is the claim's affair",
        "updates of a large table that seldom meet",
        "single samples of a wait",
    ),
)
