"""Transaction ids run out because rows are not frozen in time.

Old rows have to be marked frozen before their transaction ids come round again; autovacuum is forced to do so from autovacuum_freeze_max_age
on. Where something keeps it from finishing, the age goes on growing, and three million ids before the end the server accepts
no more writes: no claim, no enqueue.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated

from pgqdoctor import horizon, remedy
from pgqdoctor.check import Check
from pgqdoctor.finding import Evidence, Finding, Remedy
from pgqdoctor.observation import Observation
from pgqdoctor.queue import Queue
from pgqdoctor.words import count, duration
from pgqdoctor.wraparound import Countdown


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """How much time must be left, once the forced vacuum is overdue."""

    critical_s: Annotated[float, "seconds left at the present rate: less than a day is an emergency"] = (
        86_400.0
    )
    warning_s: Annotated[
        float, "seconds left at the present rate: two weeks, in which large tables can be vacuumed"
    ] = 1_209_600.0


def evaluate(seen: Observation, queue: Queue | None, limits: Limits) -> Iterator[Finding]:
    """Report an overdue freeze with the time left at the present rate."""
    used = max(seen.last.database.next_xid - seen.first.database.next_xid, 0)
    clock = Countdown(
        age=seen.last.database.xid_age,
        per_second=used / seen.seconds if seen.seconds > 0 and not seen.restarted else 0.0,
        forced_at=int(seen.catalog.setting("autovacuum_freeze_max_age") or 200_000_000),
    )
    severity = clock.severity(limits.critical_s, limits.warning_s)
    if severity is None:
        return
    left = clock.left_s
    holder = horizon.of(seen).oldest
    evidence = [
        Evidence(
            what="age of the oldest transaction id",
            value=clock.age,
            unit="transactions",
            source="age(datfrozenxid)",
        ),
        Evidence(
            what="vacuum is forced from",
            value=clock.forced_at,
            unit="transactions",
            source="autovacuum_freeze_max_age",
        ),
        Evidence(
            what="transaction ids used",
            value=round(clock.per_second, 1),
            unit="per second",
            source="pg_current_snapshot()",
        ),
    ]
    if left is not None:
        evidence.append(
            Evidence(what="time left at this rate", value=round(left), unit="seconds", source="computed")
        )
    if holder is not None and holder.age >= clock.forced_at:
        evidence.append(
            Evidence(
                what="horizon held by",
                value=f"{holder.kind} {holder.name}",
                unit="",
                source="pg_stat_activity and others",
            )
        )
    yield Finding(
        check=CHECK.id,
        severity=severity,
        queue=None,
        title=(
            f"The oldest transaction id of database {seen.server.database} is {count(clock.age)} transactions old, beyond the "
            f"{count(clock.forced_at)} at which vacuum is forced"
            + (
                f"; {duration(left)} are left at {count(clock.per_second)} per second"
                if left is not None
                else ""
            )
        ),
        why=(
            "Autovacuum must freeze old rows before their ids come round again, and should have finished. Something keeps it from it: a held "
            "horizon, a lock it waits for, or too little speed. Three million ids before the end the server takes no more writes."
        ),
        evidence=tuple(evidence),
        remedies=() if holder is not None and holder.age >= clock.forced_at else tuple(remedies(seen)),
        pids=(holder.pid,)
        if holder is not None and holder.pid is not None and holder.age >= clock.forced_at
        else (),
    )


def remedies(seen: Observation) -> Iterator[Remedy]:
    """Vacuum the oldest table, where the catalog read holds it; else say how to find it."""
    oldest = max(
        (row for row in seen.catalog.tables if row.frozen_xid_age is not None and row.kind == "r"),
        key=lambda row: row.frozen_xid_age or 0,
        default=None,
    )
    if oldest is not None and (oldest.frozen_xid_age or 0) >= 0.95 * seen.last.database.xid_age:
        name = remedy.qualified(oldest.schema, oldest.name)
        yield remedy.statement(
            sql=(f"VACUUM (VERBOSE, INDEX_CLEANUP off, TRUNCATE off) {name};",),
            title=f"Freeze {name}, the table that is oldest, without the slow parts",
            expect="age(datfrozenxid) falls to the age of the next oldest table",
            risk="reads and writes the whole table; bloat in its indexes is left for the next ordinary vacuum",
            lock="SHARE UPDATE EXCLUSIVE",
        )
        return
    yield remedy.statement(
        sql=(
            "SELECT format('VACUUM (VERBOSE, INDEX_CLEANUP off, TRUNCATE off) %I.%I;', n.nspname, c.relname), age(c.relfrozenxid) "
            "FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace "
            "WHERE c.relkind IN ('r', 'm', 't') ORDER BY age(c.relfrozenxid) DESC LIMIT 5;",
        ),
        title="List the tables that are oldest with the VACUUM of each, and run those from the top",
        expect="age(datfrozenxid) falls with each one that finishes",
        risk="each VACUUM reads and writes its whole table",
    )


CHECK = Check(
    title="Transaction ids run out",
    needs=(),
    limits=Limits(),
    evaluate=evaluate,
    scope="server",
    references=("https://www.postgresql.org/docs/current/routine-vacuuming.html#VACUUM-FOR-WRAPAROUND",),
    look_alikes=(
        "an age below the point at which vacuum is forced, at any rate",
        "an old database in which nothing is written",
    ),
)
