"""Transaction ids run out because rows are not frozen in time.

Old rows have to be marked frozen before their transaction ids come round again; autovacuum is forced to do so from autovacuum_freeze_max_age
on. Where something keeps it from finishing, the age goes on growing, and three million ids before the end the server accepts
no more writes: no claim, no enqueue.
"""

from __future__ import annotations

from collections.abc import Iterator

from pgqdoctor import horizon
from pgqdoctor.check import Check
from pgqdoctor.finding import Evidence, Finding, Remedy
from pgqdoctor.observation import Observation
from pgqdoctor.queue import Queue
from pgqdoctor.wraparound import Countdown, TimeLeft, ending, evidence_of, vacuum_oldest


def evaluate(seen: Observation, queue: Queue | None, limits: TimeLeft) -> Iterator[Finding]:
    """Report an overdue freeze with the time left at the present rate."""
    used = max(seen.last.database.next_xid - seen.first.database.next_xid, 0)
    clock = Countdown(
        age=seen.last.database.xid_age,
        per_second=used / seen.seconds if seen.seconds > 0 and not seen.restarted else 0.0,
        forced_at=int(seen.catalog.setting("autovacuum_freeze_max_age") or 200_000_000),
        what="transaction id",
        unit="transactions",
        source="age(datfrozenxid)",
        setting="autovacuum_freeze_max_age",
    )
    severity = clock.severity(limits)
    if severity is None:
        return
    found = horizon.of(seen).oldest
    holder = found if found is not None and found.age >= clock.forced_at else None
    evidence = [
        *clock.evidence(),
        Evidence(
            what="transaction ids used",
            value=round(clock.per_second, 1),
            unit="per second",
            source="pg_current_snapshot()",
        ),
        *evidence_of(clock.coming),
    ]
    if holder is not None:
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
        title=clock.title(seen.server.database) + ending(clock.coming),
        why=(
            "Autovacuum must freeze old rows before their ids come round again, and should have finished. Something keeps it from it: a held "
            "horizon, a lock it waits for, or too little speed. Three million ids before the end the server takes no more writes."
        ),
        evidence=tuple(evidence),
        remedies=() if holder is not None else tuple(_remedies(seen)),
        pids=(holder.pid,) if holder is not None and holder.pid is not None else (),
    )


def _remedies(seen: Observation) -> Iterator[Remedy]:
    yield from vacuum_oldest(
        seen.catalog.tables,
        lambda row: row.frozen_xid_age,
        database_age=seen.last.database.xid_age,
        function="age",
        column="relfrozenxid",
        settings=(),
        title="Freeze {}, the table that is oldest, without the slow parts",
        risk="reads and writes the whole table; bloat in its indexes is left for the next ordinary vacuum",
    )


CHECK = Check(
    title="Transaction ids run out",
    needs=(),
    limits=TimeLeft(),
    evaluate=evaluate,
    scope="server",
    references=("https://www.postgresql.org/docs/current/routine-vacuuming.html#VACUUM-FOR-WRAPAROUND",),
    look_alikes=(
        "an age below the point at which vacuum is forced, at any rate",
        "an old database in which nothing is written",
    ),
)
