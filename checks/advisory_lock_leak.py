"""Advisory locks outlive what they were taken for.

A lock taken with pg_advisory_lock() belongs to the session, not to the transaction. Through a pooler the next transaction runs on another
session, which cannot release it: it stays with an idle connection, and the job or the role it stands for is nobody's. pg_advisory_xact_lock()
ends with the transaction and cannot leak.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated, Final

from pgqdoctor import remedy
from pgqdoctor.check import Check
from pgqdoctor.finding import Evidence, Finding, Remedy, Severity
from pgqdoctor.observation import Observation, Reading
from pgqdoctor.queue import Queue
from pgqdoctor.sampled import sampled
from pgqdoctor.words import count, duration, plural

Key = tuple[int | None, int | None]


_TRIES: Final = re.compile(r"\bpg_try_advisory_lock", re.IGNORECASE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """When an advisory lock of an idle session is a leak."""

    wait_s: Annotated[float, "seconds that another session has waited for a lock an idle session holds"] = 1.0
    many: Annotated[
        int, "advisory locks of one idle session: a leader holds one, a worker one per job it runs"
    ] = 20


def evaluate(seen: Observation, queue: Queue | None, limits: Limits) -> Iterator[Finding]:
    """Report locks that idle sessions kept through the window and that others wait for, or that pile up."""
    first, last = _held(seen.first), _held(seen.last)
    busy = sampled(seen).pids | {row.pid for row in seen.last.sessions}
    waits: dict[int, float] = {}
    for row in seen.last.locks:
        if row.locktype == "advisory" and not row.granted and (row.wait_age_s or 0.0) >= limits.wait_s:
            for pid in row.blocked_by:
                waits[pid] = max(waits.get(pid, 0.0), row.wait_age_s or 0.0)
    starved = _starved(seen)
    guilty: list[tuple[int, int, int]] = []
    for pid, keys in last.items():
        if pid in busy:
            continue
        kept = len(keys & first.get(pid, set()))
        grown = len(keys) - len(first.get(pid, set()))
        if (kept and pid in waits) or (kept >= limits.many and (grown > 0 or starved)):
            guilty.append((pid, len(keys), grown))
    if not guilty:
        return
    guilty.sort(key=lambda one: (-waits.get(one[0], 0.0), -one[1], one[0]))
    waited = max((waits[pid] for pid, _, _ in guilty if pid in waits), default=0.0)
    severity: Severity = "critical" if starved else "warning" if waited else "notice"
    total = sum(number for _, number, _ in guilty)
    pids = tuple(pid for pid, _, _ in guilty)
    evidence = [
        Evidence(
            what="idle sessions that hold such locks",
            value=len(guilty),
            unit="sessions",
            source="pg_locks and pg_stat_activity",
        ),
        Evidence(what="their advisory locks", value=total, unit="locks", source="pg_locks"),
        Evidence(
            what="growth in the window",
            value=sum(grown for _, _, grown in guilty),
            unit="locks",
            source="pg_locks",
        ),
    ]
    if waited:
        evidence.append(
            Evidence(
                what="longest wait for one",
                value=round(waited, 1),
                unit="seconds",
                source="pg_locks.waitstart",
            )
        )
    if seen.server.pooler:
        evidence.append(
            Evidence(what="connection", value="through a pooler", unit="", source="backend pid and port")
        )
    who = f"Idle session {pids[0]} holds" if len(pids) == 1 else f"{count(len(pids))} idle sessions hold"
    after = ", and more by the second"
    if waited:
        after = f", and others have waited for up to {duration(waited)}"
    elif starved:
        after = f", and no job of {starved} was taken while jobs wait"
    yield Finding(
        check=CHECK.id,
        severity=severity,
        queue=None,
        title=f"{who} {plural(total, 'advisory lock')} without running anything{after}",
        why=(
            "A session-level advisory lock is released by the session that took it or by its end. Through a pooler the release runs on another "
            "connection and fails, and after an error it is often forgotten: the lock stays with an idle connection."
        ),
        evidence=tuple(evidence),
        remedies=tuple(_remedies(pids)),
        pids=pids,
    )


def _starved(seen: Observation) -> str | None:
    """Return a queue whose workers lock jobs with advisory locks, that has ready jobs, and of which no row was changed; None without.

    Who only tries a lock never waits for it: workers that pass over jobs locked by a leak look like workers without jobs.
    """
    if not any(_TRIES.search(row.text or "") for row in seen.statement_texts):
        return None
    before = {row.oid: row.updated + row.deleted for row in seen.first.tables}
    asked = {row.oid: row.seq_scan + (row.idx_scan or 0) for row in seen.first.tables}
    for queue in seen.queues:
        probe = seen.probe_of(queue.oid)
        oids = {queue.oid, *(row.oid for row in seen.catalog.partitions_of(queue.oid))}
        changed = sum(
            row.updated + row.deleted - before.get(row.oid, 0) for row in seen.last.tables if row.oid in oids
        )
        polled = any(
            row.seq_scan + (row.idx_scan or 0) > asked.get(row.oid, 0)
            for row in seen.last.tables
            if row.oid in oids
        )
        late = probe is not None and (probe.oldest_ready_age_s or 0.0) > seen.seconds
        if queue.certain and polled and late and changed <= 0:
            return queue.name
    return None


def _held(reading: Reading) -> dict[int, set[Key]]:
    found: dict[int, set[Key]] = defaultdict(set)
    for row in reading.locks:
        if row.locktype == "advisory" and row.granted and row.pid is not None:
            found[row.pid].add((row.classid, row.objid))
    return found


def _remedies(pids: tuple[int, ...]) -> Iterator[Remedy]:
    yield remedy.end_session(
        pid=pids[0],
        gently=False,
        title=f"End idle session {pids[0]}, which releases its locks",
        expect="whoever waits for the lock gets it at once",
        risk="if the lock is meant to be held by an idle client (a leader), that client loses it",
    )
    yield remedy.corrected_statement(
        sql=("SELECT pg_try_advisory_xact_lock($1);",),
        title="Take the lock for the transaction instead of the session",
        expect="it ends with the transaction, whatever happens to the client or the pooler",
        risk="a change of the application: the work it protects has to be done within that transaction",
    )


CHECK = Check(
    title="Advisory locks stay with idle sessions",
    needs=(),
    limits=Limits(),
    evaluate=evaluate,
    scope="server",
    references=("https://www.postgresql.org/docs/current/explicit-locking.html#ADVISORY-LOCKS",),
    look_alikes=(
        "a leader that keeps one lock on an idle connection, for which nobody waits",
        "a worker that holds a lock while its statement or transaction runs",
    ),
)
