"""A transaction with more than 64 open subtransactions makes every snapshot check look ids up.

A backend publishes up to 64 ids of its subtransactions in shared memory. With one more the list is incomplete, and every session whose
snapshot was taken while it runs has to ask the subtransaction cache for the parent of each recent id it meets. One batch with a
savepoint per row, left open beside a busy queue, turns into millions of lookups per second.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated

from pgqdoctor import multixacts, remedy
from pgqdoctor.check import Check
from pgqdoctor.finding import Evidence, Finding, Remedy, Severity
from pgqdoctor.observation import Observation
from pgqdoctor.queue import Queue
from pgqdoctor.rows import SessionRow
from pgqdoctor.sampled import sampled
from pgqdoctor.words import count, duration, percent, shortened

WAITS = frozenset({"SubtransSLRU", "SubtransBuffer"})
CACHED = 64
"""PGPROC_MAX_CACHED_SUBXIDS; pg_stat_get_backend_subxact() counts no further, pg_locks does."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """When overflowed subtransactions hurt."""

    lookups: Annotated[
        float,
        "lookups of subtransactions per second: a savepoint costs one (200 per second in a storm of 200 jobs), an overflow beside "
        "writers was measured at more than a million",
    ] = 10_000.0
    samples: Annotated[int, "samples of waiting sessions: fewer are chance"] = 5
    critical_waiting: Annotated[float, "share of the samples of active sessions that wait for the cache"] = (
        0.05
    )


def evaluate(seen: Observation, queue: Queue | None, limits: Limits) -> Iterator[Finding]:
    """Report many lookups, with the session whose subtransactions overflowed where it was seen."""
    _, hits, reads = multixacts.slru_growth(seen, "subtransaction")
    lookups = hits / seen.seconds if seen.seconds > 0 else 0.0
    active = sampled(seen).active
    waiting = sum(1 for _ in sampled(seen).waiting("LWLock", *WAITS))
    share = waiting / active if active else 0.0
    waits_hurt = waiting >= limits.samples and share >= limits.critical_waiting
    if lookups < limits.lookups and not waits_hurt:
        return
    guilty = _overflowed(seen)
    severity: Severity = "critical" if waits_hurt else "warning"
    evidence = [
        Evidence(
            what="lookups of subtransactions", value=round(lookups), unit="per second", source="pg_stat_slru"
        ),
        Evidence(
            what="of them read from disk",
            value=round(reads / max(seen.seconds, 0.1), 1),
            unit="per second",
            source="pg_stat_slru",
        ),
        Evidence(
            what="active sessions waiting for the cache",
            value=round(share, 3),
            unit="ratio",
            source="pg_stat_activity, samples",
        ),
    ]
    if guilty is not None:
        who = f"session {guilty.pid} ({shortened(guilty.application, 40)})"
        at_least = f"{CACHED} or more" if guilty.subxact_overflowed else count(guilty.subtransactions or 0)
        evidence.append(
            Evidence(
                what="overflowed in", value=who, unit="", source="pg_stat_get_backend_subxact() or pg_locks"
            )
        )
        evidence.append(
            Evidence(
                what="its open subtransactions",
                value=at_least,
                unit="",
                source="pg_stat_get_backend_subxact() or pg_locks",
            )
        )
        if guilty.query:
            evidence.append(
                Evidence(
                    what="last statement",
                    value=shortened(guilty.query, 200),
                    unit="",
                    source="pg_stat_activity",
                )
            )
        title = (
            f"S{who[1:]} has more than {CACHED} subtransactions in one transaction, open {duration(guilty.xact_age_s or 0.0)}: the others look "
            f"subtransactions up {count(lookups)} times per second"
        )
    else:
        writer = max(
            (
                row
                for row in seen.last.sessions
                if row.xid is not None and (row.xact_age_s or 0.0) >= seen.seconds
            ),
            key=lambda row: row.xact_age_s or 0.0,
            default=None,
        )
        if writer is not None:
            # Before 16 nothing counts subtransactions that are released or in a finished EXCEPTION block.
            evidence.append(
                Evidence(
                    what="longest open writer, perhaps the one",
                    value=f"session {writer.pid} ({shortened(writer.application, 40)}, open {duration(writer.xact_age_s or 0.0)})",
                    unit="",
                    source="pg_stat_activity",
                )
            )
        title = f"Subtransactions are looked up {count(lookups)} times per second: some transaction has more than {CACHED} of them"
    if waits_hurt:
        title += f", and {percent(share)} of active sessions wait for that"
    yield Finding(
        check=CHECK.id,
        severity=severity,
        queue=None,
        title=title,
        why=(
            f"Up to {CACHED} subtransaction ids per backend are listed in shared memory. Beyond that every snapshot is marked incomplete, and "
            "whoever uses it must look up the parent of each recent transaction id it meets, for as long as a snapshot from that time lives."
        ),
        evidence=tuple(evidence),
        remedies=tuple(_remedies(guilty)),
        pids=(guilty.pid,) if guilty is not None else (),
    )


def _overflowed(seen: Observation) -> SessionRow | None:
    """The session that overflowed, the longest open where there are several."""
    for reading in (seen.last, seen.first):
        found = [
            row for row in reading.sessions if row.subxact_overflowed or (row.subtransactions or 0) > CACHED
        ]
        if found:
            return max(found, key=lambda row: row.xact_age_s or 0.0)
    return None


def _remedies(guilty: SessionRow | None) -> Iterator[Remedy]:
    if guilty is not None:
        idle = (guilty.state or "").startswith("idle")
        yield remedy.end_session(
            pid=guilty.pid,
            gently=not idle,
            title=f"{'End' if idle else 'Cancel the statement of'} session {guilty.pid}",
            expect="lookups stop when the snapshots taken meanwhile are gone, usually at once",
            risk="all its transaction has written is rolled back",
        )
    yield remedy.corrected_statement(
        sql=(
            "BEGIN;",
            f"-- at most {CACHED} rows, each with its savepoint or EXCEPTION block",
            "COMMIT;",
            "-- then the next ones",
        ),
        title=f"Commit after at most {CACHED} savepoints, or check rows beforehand so that they need none",
        expect="the list of subtransactions never overflows",
        risk="a change of the application: what was one transaction becomes several",
    )


CHECK = Check(
    title="Too many subtransactions in one transaction",
    needs=(),
    limits=Limits(),
    evaluate=evaluate,
    scope="server",
    references=("https://www.postgresql.org/docs/current/subxacts.html",),
    look_alikes=(
        "savepoints of short transactions, one lookup each",
        "a transaction that overflowed while nobody writes: nothing has to be looked up",
    ),
)
