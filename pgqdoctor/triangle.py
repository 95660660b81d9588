"""Index, fillfactor and heap-only updates of one queue: which corner it is in, what the others would cost, what to do.

The three pull against each other. The index that lets a claim find its job mentions the job's state, and an update that changes an
indexed column cannot be heap-only: it writes an entry into every index, whatever room the page has. Without that index the updates
may be heap-only, and each claim reads what was consumed before. A fillfactor helps only the updates no index blocks.

Two designs are compared by what they cost in a second, in buffers:

    claims * buffers a claim reads + index entries written * ENTRY_BUFFERS + WAL bytes / 8192 * WAL_PAGE_BUFFERS

Pure: an Observation and a Queue in, a Triangle out.
"""

from __future__ import annotations

from pgqdoctor.designs import MOST_UPDATES, Reckoning, finder_of
from pgqdoctor.knobadvice import Advice
from pgqdoctor.observation import Observation
from pgqdoctor.queue import Queue
from pgqdoctor.trianglefacts import (
    Action,
    Corner,
    CornerName,
    Knob,
    KnobVerdict,
    Recommendation,
    Triangle,
    UpdateShare,
)
from pgqdoctor.words import shortened

__all__ = [
    "Action",
    "Corner",
    "CornerName",
    "Knob",
    "KnobVerdict",
    "Recommendation",
    "Triangle",
    "UpdateShare",
    "triangle_of",
]


def triangle_of(seen: Observation, queue: Queue) -> Triangle | None:
    """Return where the queue stands, None where nothing tells: on a standby, after a restart in the window, without a claim."""
    if seen.server.in_recovery or seen.counters_lost or seen.seconds <= 0 or not queue.counters:
        return None
    if finder_of(queue) is None and queue.plan is None:
        return None
    return _put_together(Reckoning(seen, queue))


def _put_together(its: Reckoning) -> Triangle:
    churn = its.churn
    free = its.free_share(its.indexes)
    room_now = its.room_now()
    room_today = room_now if room_now is not None else its.room_at(its.fillfactor)
    reckoned = its.writes(its.indexes, room_today)
    today = its.corner(
        now=True,
        served=its.served,
        change="as it is",
        indexes=its.indexes,
        claim=its.claim_now(),
        room=room_today,
        reckoned_now=reckoned,
    )
    others = list(its.others(today, room_today, reckoned))
    corners = (today, *others, *its.unreachable(today, others))
    measured = its.measured_wal()
    jobs = its.per_job()
    without = its.free_share(its.without_serving())
    advice = Advice(its, today, others)
    recommendation = advice.recommendation()
    return Triangle(
        corner=today.name,
        jobs_per_s=round(its.per_s(jobs), 3),
        updates_per_s=round(churn.per_second(churn.updated), 3),
        updates_per_job=round(its.updated() / jobs, 2) if jobs else None,
        updates_blocked_by_claim_index=None if free is None or without is None else round(without - free, 4),
        updates_blocked_by_others=None if without is None else round(1.0 - without, 4),
        hot_reached=None if churn.hot_ratio is None else round(churn.hot_ratio, 4),
        hot_reachable=None if free is None else round(max(free, churn.hot_ratio or 0.0), 4),
        entries_per_job=today.entries_per_job,
        wal_bytes_per_job=today.wal_bytes_per_job,
        wal_measured=measured is not None,
        wal_page_images=None if measured is None else measured[1],
        updates=tuple(
            UpdateShare(
                statement=shortened(one.statement.text, 200),
                rows_per_s=round(churn.per_second(one.rows), 3),
                columns=one.columns,
                blocked_by=tuple(blocker.index.name for blocker in one.blockers),
                claims=one.claims,
            )
            for one in its.updates[:MOST_UPDATES]
        ),
        corners=corners,
        knobs=tuple(advice.knobs(recommendation)),
        recommendation=recommendation,
        notes=tuple(its.notes(measured is not None)),
    )
