"""Sessions wait for the caches of MultiXacts, or lookups there have to read pages.

Whoever meets a row with a MultiXact in its xmax looks up its members, first their offset and then the members themselves, in two small
caches shared by the whole server. While the pages needed fit, lookups cost little time each; beyond that they read files,
one page at a time under a lock, and all sessions wait in line. The cure is to make fewer MultiXacts, or to end the
transaction that keeps old ones alive.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated

from pgqdoctor import multixacts
from pgqdoctor.check import Check
from pgqdoctor.finding import Evidence, Finding, Severity
from pgqdoctor.observation import Observation
from pgqdoctor.queue import Queue
from pgqdoctor.sampled import sampled
from pgqdoctor.words import count, percent

WAITS = frozenset(
    {
        "MultiXactOffsetSLRU",
        "MultiXactMemberSLRU",
        "MultiXactOffsetBuffer",
        "MultiXactMemberBuffer",
        "MultiXactGen",
    }
)
"""Wait events of type LWLock, the same in 14 to 19."""
CONTENT_WAITS = frozenset(
    {("LWLock", "BufferContent"), ("Buffer", "BufferExclusive"), ("Buffer", "BufferShared")}
)
"""A page's content lock: held while each of its tuples' MultiXacts is looked up."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """When waits or reads of the MultiXact caches are an incident."""

    samples: Annotated[int, "samples of waiting sessions: fewer are chance"] = 5
    waiting: Annotated[float, "share of the samples of active sessions that wait for MultiXact caches"] = 0.05
    critical_waiting: Annotated[float, "share from which on the server does little else"] = 0.25
    reads: Annotated[
        float,
        "pages of the MultiXact caches read per second: each one is a system call under a lock (I/O waits may not show on a small server)",
    ] = 100.0
    content_lookups: Annotated[
        float,
        "lookups of members per second beside which waits for page contents count as well: savepoint storms of 200 jobs per second "
        "were measured at 75,000 and more, foreign key checks alone at 800",
    ] = 10_000.0


def evaluate(seen: Observation, queue: Queue | None, limits: Limits) -> Iterator[Finding]:
    """Report waits for the MultiXact caches, or reads that miss them; hits alone are no incident."""
    made = multixacts.activity(seen)
    reads = (made.misses + made.offset_misses) / made.seconds if made.seconds > 0 else 0.0
    lookups = made.lookups / made.seconds if made.seconds > 0 else 0.0
    active, waits = _waits(seen, content=lookups >= limits.content_lookups)
    waiting = sum(waits.values())
    share = waiting / active if active else 0.0
    waits_hurt = waiting >= limits.samples and share >= limits.waiting
    if not waits_hurt and reads < limits.reads:
        return
    severity: Severity = "critical" if waits_hurt and share >= limits.critical_waiting else "warning"
    evidence = [
        Evidence(
            what="pages of the MultiXact caches read",
            value=round(reads, 1),
            unit="per second",
            source="pg_stat_slru.blks_read",
        ),
        Evidence(
            what="lookups of MultiXact members",
            value=round(lookups, 1),
            unit="per second",
            source="pg_stat_slru (hits and reads)",
        ),
        Evidence(
            what="MultiXacts made",
            value=round(made.per_second, 1),
            unit="per second",
            source="mxid_age() at both ends of the window",
        ),
    ]
    if active:
        evidence.append(
            Evidence(
                what="active sessions waiting for them",
                value=round(share, 3),
                unit="ratio",
                source="pg_stat_activity, samples",
            )
        )
    for event, times in waits.most_common(3):
        evidence.append(Evidence(what=event, value=times, unit="samples", source="pg_stat_activity"))
    oldest = _oldest(seen)
    if oldest is not None:
        evidence.append(
            Evidence(
                what="oldest transaction open",
                value=round(oldest, 1),
                unit="seconds",
                source="pg_stat_activity",
            )
        )
    if waits_hurt:
        event = max(waits, key=lambda one: (one.partition(":")[2] in WAITS, waits[one]))
        title = f"{percent(share)} of the samples of active sessions wait for the MultiXact caches ({event})"
    else:
        title = f"Lookups of MultiXacts miss their caches: {count(reads)} pages read per second, beside {count(lookups)} lookups"
    yield Finding(
        check=CHECK.id,
        severity=severity,
        queue=None,
        title=title,
        why=(
            "Every session that meets a row locked or changed by two transaction ids looks the members up in two small caches shared by "
            "the whole server. A MultiXact older than every running transaction is not looked up: one long transaction makes all "
            "made since it began count."
        ),
        evidence=tuple(evidence),
        remedies=(),
    )


def _waits(seen: Observation, *, content: bool) -> tuple[int, Counter[str]]:
    """Samples of active sessions, and of those that wait for a MultiXact cache by event."""
    waits = Counter(
        {
            f"{kind}:{event}": len(found)
            for (kind, event), found in sampled(seen).active_at.items()
            if (kind == "LWLock" and event in WAITS) or (content and (kind, event) in CONTENT_WAITS)
        }
    )
    return sampled(seen).active, waits


def _oldest(seen: Observation) -> float | None:
    return max((row.xact_age_s for row in seen.last.sessions if row.xact_age_s is not None), default=None)


CHECK = Check(
    title="Waits for the MultiXact caches",
    needs=(),
    limits=Limits(),
    evaluate=evaluate,
    scope="server",
    references=(
        "https://www.postgresql.org/docs/current/monitoring-stats.html#MONITORING-PG-STAT-SLRU-VIEW",
        "https://www.postgresql.org/docs/current/runtime-config-resource.html#GUC-MULTIXACT-MEMBER-BUFFERS",
    ),
    look_alikes=(
        "many lookups that all hit the cache, without waits",
        "single samples of a wait",
        "waits for page contents without MultiXact lookups",
    ),
)
