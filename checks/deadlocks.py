"""Statements lock job rows in different orders and end in deadlocks.

Two statements that each lock many rows, in different orders, can hold what the other waits for. PostgreSQL notices after deadlock_timeout, a
second by default, and makes one of them fail: a second of standing still for both and everybody behind them, and work
to be done again. Statements that lock their rows in one order cannot meet like that.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated

from pgqdoctor import remedy
from pgqdoctor.check import COUNTERS, Check
from pgqdoctor.finding import Evidence, Finding, Remedy, Severity
from pgqdoctor.observation import Observation
from pgqdoctor.queue import Queue
from pgqdoctor.sqlcombine import in_order
from pgqdoctor.sqlfacts import Statement
from pgqdoctor.sqlrewrite import quote_ident
from pgqdoctor.statements import SeenStatement
from pgqdoctor.words import count, plural, shortened

ROW_WAITS = ("transactionid", "tuple")
"""Lock waits for a row: for the transaction that holds it, or for one's turn among those who wait."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """When deadlocks are worth a word."""

    in_window: Annotated[
        int, "deadlocks of this database in the window: each stops two sessions for deadlock_timeout"
    ] = 1
    waited_s: Annotated[
        float,
        "seconds that sessions were caught waiting for rows at a statement: one deadlock costs deadlock_timeout, by default a second",
    ] = 1.0
    critical_per_minute: Annotated[
        float, "deadlocks per minute: with a second each, a noticeable part of the time"
    ] = 30.0


def evaluate(seen: Observation, queue: Queue, limits: Limits) -> Iterator[Finding]:
    """Report deadlocks of the window where this queue's statements lock many rows in no order."""
    deadlocks = max(seen.last.database.deadlocks - seen.first.database.deadlocks, 0)
    suspects = _suspects(queue)
    one_by_one = [] if suspects else _one_by_one(queue, limits)
    if deadlocks < limits.in_window or not (suspects or one_by_one) or seen.seconds <= 0:
        return
    per_minute = deadlocks / seen.seconds * 60
    severity: Severity = "critical" if per_minute >= limits.critical_per_minute else "warning"
    evidence = [
        Evidence(
            what="deadlocks in the window", value=deadlocks, unit="deadlocks", source="pg_stat_database"
        ),
        Evidence(what="deadlocks", value=round(per_minute, 1), unit="per minute", source="pg_stat_database"),
    ]
    for one in (suspects or one_by_one)[:3]:
        evidence.append(
            Evidence(
                what="locks rows in no order" if suspects else "waits for rows, one call after the other",
                value=shortened(one.statement.text, 200),
                unit="",
                source=one.source,
            )
        )
        if one.calls:
            evidence.append(
                Evidence(
                    what="rows per call of it",
                    value=round(one.rows / one.calls, 1),
                    unit="rows",
                    source=one.source,
                )
            )
    during = (
        f"{plural(len(suspects), 'statement')} at {queue.name} lock{'s' if len(suspects) == 1 else ''} many rows in no fixed order"
        if suspects
        else f"transactions at {queue.name} lock rows one by one and wait for each other"
    )
    yield Finding(
        check=CHECK.id,
        severity=severity,
        queue=queue.name,
        title=f"{plural(deadlocks, 'deadlock')} in {count(seen.seconds)} s, while {during}",
        why=(
            "A transaction that changes one row after the other keeps the lock on each until it ends. Two of them that come to the same rows in "
            "different order each hold a row that the other needs; after deadlock_timeout one of them is made to fail."
            if not suspects
            else "A statement that changes many rows locks them in the order its plan finds them. Two of them with different plans, or different "
            "lists of ids, can each hold a row that the other needs; after deadlock_timeout one of them is made to fail."
        ),
        evidence=tuple(evidence),
        remedies=tuple(_remedies(queue, suspects) if suspects else _first_in_order(queue)),
        relations=(queue.oid,),
    )


def _suspects(queue: Queue) -> list[SeenStatement]:
    """Statements of the window that change or lock several rows of the queue and wait for each, without an order."""
    found: dict[str, SeenStatement] = {}
    for kind in ("update", "delete"):
        for one, _ in queue.writes(kind):
            if one.seen and not one.statement.locks and (one.rows > one.calls or _lists(one)):
                found[one.key] = one
    for one in queue.statements:
        for claim in one.statement.claims:
            waits = claim.lock is not None and claim.lock.wait == "block" and queue.is_this(claim.table)
            if one.seen and waits and not claim.order and claim.limit != 1:
                found[one.key] = one
    return sorted(found.values(), key=lambda one: (-one.calls, -one.samples, one.text))


def _one_by_one(queue: Queue, limits: Limits) -> list[SeenStatement]:
    """Updates and deletes of single rows by key at which sessions were caught waiting for a row, for as long as a deadlock lasts.

    Both sessions of a deadlock stand in a wait until deadlock_timeout has passed. Workers that do so at another table's statements
    have their deadlocks there.
    """
    if not queue.sample_count:
        return []
    waits: Counter[Statement] = Counter()
    pids: dict[Statement, set[int]] = defaultdict(set)
    for one in queue.sessions:
        if (
            one.statement is not None
            and one.session.wait_type == "Lock"
            and one.session.wait_event in ROW_WAITS
        ):
            waits[one.statement] += 1
            pids[one.statement].add(one.session.pid)
    each_s = queue.churn.seconds / queue.sample_count
    found = {
        one.key: one
        for kind in ("update", "delete")
        for one, write in queue.writes(kind)
        if one.seen
        and write.by_key_only
        and not one.statement.claims
        and len(pids[one.statement]) > 1
        and waits[one.statement] * each_s >= limits.waited_s
    }
    return sorted(found.values(), key=lambda one: (-waits[one.statement], one.text))


def _lists(one: SeenStatement) -> bool:
    """True for a statement by a list of keys that was seen in sessions only, without row counts."""
    return not one.calls and any(
        condition.operator == "in" for write in one.statement.writes for condition in write.conditions
    )


def _first_in_order(queue: Queue) -> Iterator[Remedy]:
    key = queue.identity.roles.key
    if len(key) != 1:
        return
    name = quote_ident(key[0])
    yield remedy.corrected_statement(
        sql=(
            f"SELECT {name} FROM {queue.name} WHERE {name} = ANY ($1) ORDER BY {name} FOR NO KEY UPDATE; "
            "-- all rows of the transaction, before the first of them is changed",
        ),
        title="Lock the transaction's rows in the order of their key before the first of them is changed",
        expect="transactions that lock in one order wait for each other, but never in a circle",
        risk="a change of the application: every transaction that changes several jobs must do so; FOR UPDATE where it deletes them",
    )


def _remedies(queue: Queue, suspects: list[SeenStatement]) -> Iterator[Remedy]:
    for one in suspects[:2]:
        ordered = in_order(one.statement.text, table=queue.table.name, keys=queue.identity.roles.key)
        if ordered is not None:
            yield remedy.corrected_statement(
                sql=(f"{ordered};",),
                title="Lock the rows in the order of their key before they are changed",
                expect="statements that lock in one order wait for each other, but never in a circle",
                risk="a change of the application: all statements that lock several jobs must keep to the same order",
            )


CHECK = Check(
    title="Deadlocks between statements that lock many jobs",
    needs=(COUNTERS,),
    limits=Limits(),
    evaluate=evaluate,
    references=("https://www.postgresql.org/docs/current/explicit-locking.html#LOCKING-DEADLOCKS",),
    look_alikes=(
        "deadlocks of other tables, where the queue's statements change one row each",
        "batches that pass over locked rows with SKIP LOCKED: they wait for nobody",
    ),
)
