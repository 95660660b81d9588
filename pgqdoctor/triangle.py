"""Index, fillfactor and heap-only updates of one queue: which corner it is in, what the others would cost, what to do.

The three pull against each other. The index that lets a claim find its job mentions the job's state, and an update that changes an
indexed column cannot be heap-only: it writes an entry into every index, whatever room the page has. Without that index the updates
may be heap-only, and each claim reads what was consumed before. A fillfactor helps only the updates no index blocks.

Two designs are compared by what they cost in a second, in buffers:

    claims * buffers a claim reads + index entries written * ENTRY_BUFFERS + WAL bytes / 8192 * WAL_PAGE_BUFFERS

Pure: an Observation and a Queue in, a Triangle out.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final, Literal

from pgqdoctor import claimcost, claiming, indexfacts, pageroom, remedy, vacuuming, writecost
from pgqdoctor.claiming import IndexAdvice
from pgqdoctor.finding import Remedy
from pgqdoctor.indexfacts import SeenUpdate
from pgqdoctor.observation import Observation
from pgqdoctor.planfacts import dead_walk
from pgqdoctor.queue import Queue
from pgqdoctor.rows import IndexRow
from pgqdoctor.sqlfacts import Condition, OrderKey
from pgqdoctor.statements import SeenStatement
from pgqdoctor.words import count, duration, percent, rate, shortened, size

ENTRY_BUFFERS: Final = 1.0
"""Buffers of a claim's scan that cost as much time as one index entry. Measured on 17 with everything cached: a scanned page of
65 rows took 3.9 to 4.5 µs, an entry 2.5 to 3.1 µs more per update and 0.4 to 0.6 µs of the next vacuum. Rounded against the index.
"""
WAL_PAGE_BUFFERS: Final = 20.0
"""Buffers that 8 kB of WAL count for: PostgreSQL's own ratio of a page written to a page found (vacuum_cost_page_dirty over
vacuum_cost_page_hit)."""
PAYS: Final = 2.0
"""An index must save this many times what it costs: the computed buffers are within that factor of the measured ones."""
LEAST_SAVED: Final = 10.0
"""Buffers a claim must save for an index to be worth having: three times the three that a served claim was measured to read."""
SMALL: Final = 30.0
"""Buffers (and refused rows along an index) up to which the planner may rightly read a small table beside the index that is there for a larger one."""
HEAP_ONLY: Final = 0.5
"""Share of heap-only updates from which a corner is named for them: they spare more index entries than are written."""
FEW: Final = 0.1
"""Share of updates below which a fillfactor is said not to help."""
NEAR: Final = 0.9
"""Share of the reachable heap-only updates from which pages have room enough."""
UPDATES: Final = 100
"""Updates in the window without an index in their way: fewer show no pattern (as in hot-no-page-room)."""
PER_S: Final = 20.0
"""Updates per second that are worth a change (as in hot-no-page-room and hot-blocked-by-index)."""
NO_ROOM: Final = 0.3
"""Share of the unblocked updates without room from which a fillfactor is recommended (as in hot-no-page-room)."""
BROWSED: Final = 10
"""Rows that a SELECT returns per updated row, up to which it may look for jobs: losers of races and batches find more than they take."""
MOST_UPDATES: Final = 10
"""Statements listed, the busiest first."""

CornerName = Literal["claim index, no HOT", "HOT, claims scan", "both", "neither"]
Action = Literal["leave", "create-index", "use-index", "remove-blocker", "set-fillfactor"]
KnobVerdict = Literal["keep", "change", "cannot help", "does not pay", "not known"]
_DESIGNS: Final[tuple[CornerName, ...]] = ("claim index, no HOT", "HOT, claims scan", "both")


@dataclass(frozen=True, slots=True, kw_only=True)
class UpdateShare:
    """One observed UPDATE: the columns it changes, and the indexes that keep it from being heap-only."""

    statement: str
    rows_per_s: float
    columns: tuple[str, ...]
    blocked_by: tuple[str, ...]
    claims: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Corner:
    """One design: today's, or another with what makes it.

    ``claim_buffers`` are per claimed job, ``hot_ratio`` is the share of heap-only updates, ``cost_per_s`` is in buffers (see the
    module). A figure is measured or computed as the two flags say, None where it could not be told. ``why_not`` says why a corner
    cannot be had; its figures are then None.
    """

    name: CornerName
    now: bool
    change: str
    claim_buffers: float | None = None
    claim_measured: bool = False
    hot_ratio: float | None = None
    hot_measured: bool = False
    entries_per_job: float | None = None
    wal_bytes_per_job: float | None = None
    cost_per_s: float | None = None
    arithmetic: tuple[str, ...] = ()
    why_not: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Knob:
    """One thing that can be set: today's value, the computed one, whether it can work here and why."""

    name: str
    today: str
    computed: str | None
    verdict: KnobVerdict
    reason: str
    arithmetic: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Recommendation:
    """The one thing to do, which may be nothing."""

    action: Action
    title: str
    reason: str
    remedies: tuple[Remedy, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Triangle:
    """Where a queue stands between claim index, fillfactor and heap-only updates.

    Rates are those of the window. ``jobs_per_s`` is what per-job figures are divided by: claimed jobs, else enqueued ones.
    ``updates_blocked_by_claim_index`` and ``updates_blocked_by_others`` are shares of the updates whose statements were seen, as is
    ``hot_reachable``. ``wal_measured`` tells whether WAL comes from pg_stat_statements or from the sizes of its records.
    """

    corner: CornerName
    jobs_per_s: float
    updates_per_s: float
    updates_per_job: float | None
    updates_blocked_by_claim_index: float | None
    updates_blocked_by_others: float | None
    hot_reached: float | None
    hot_reachable: float | None
    entries_per_job: float | None
    wal_bytes_per_job: float | None
    wal_measured: bool
    wal_page_images: int | None
    updates: tuple[UpdateShare, ...]
    corners: tuple[Corner, ...]
    knobs: tuple[Knob, ...]
    recommendation: Recommendation
    notes: tuple[str, ...] = ()


def triangle_of(seen: Observation, queue: Queue) -> Triangle | None:
    """Return where the queue stands, None where nothing tells: on a standby, after a restart in the window, without a claim."""
    if seen.server.in_recovery or seen.restarted or seen.seconds <= 0 or not queue.counters:
        return None
    if finder_of(queue) is None and queue.plan is None:
        return None
    return _Reckoning(seen, queue).triangle()


@dataclass(frozen=True, slots=True, kw_only=True)
class _Writes:
    """What the updates of one design write in the window."""

    hot: float
    entries: float
    wal: float


@dataclass(frozen=True, slots=True, kw_only=True)
class _Cost:
    """Buffers of one execution of the claim, and how they are known."""

    buffers: float
    measured: bool
    arithmetic: tuple[str, ...]


class _Reckoning:
    """Everything derived once for one queue; it lives as long as one call of triangle_of()."""

    def __init__(self, seen: Observation, queue: Queue) -> None:
        self.seen, self.queue, self.churn = seen, queue, queue.churn
        self.updates = changed_rows(indexfacts.seen_updates(seen, queue), queue.churn.updated)
        self.rows_seen = sum(one.rows for one in self.updates)
        self.known = self.rows_seen >= HEAP_ONLY * self.churn.updated and self.rows_seen > 0
        self.plan = queue.plan
        self.finder = finder_of(queue)
        claims_per_s, self.jobs = _claimed(queue, self.updates)
        self.claims_per_s = max(claims_per_s, self.finder.per_s if self.finder is not None else 0.0)
        self.advice = (
            claiming.index_for(queue, self.finder.conditions, self.finder.order) if self.finder else None
        )
        self.indexes = tuple(one for one in queue.indexes if one.valid)
        self.serving, self.served = self._serving()
        self.held = vacuuming.held_horizon(seen)
        self.room = pageroom.page_room(seen, queue)
        self.fillfactor = max((pageroom.fillfactor_of(leaf) for leaf in queue.leaves), default=100)
        self.lost = self._lost()
        self.moved = self._moved()
        self.batch = max(1.0, (self.plan.facts.rows or 1.0) if self.plan is not None else 1.0)

    # -- what there is ---------------------------------------------------------------------------

    def _serving(self) -> tuple[IndexRow | None, bool]:
        """The index that leads the claim to ready jobs, and whether anything does."""
        queue, plan = self.queue, self.plan
        fitting = claiming.served_already(queue, self.advice) if self.advice is not None else None
        if fitting is None and queue.table.kind == "p":
            # The plan names the indexes of the partitions, the catalog the one they belong to.
            fitting = next(
                (one for one in self.indexes if not one.primary and indexfacts.fits_claim(queue, one)), None
            )
        if plan is None:
            return fitting, fitting is not None
        facts = plan.facts
        refused = (facts.rows_removed_by_filter or 0) + (facts.rows_removed_by_index_recheck or 0)
        few = facts.measured and refused <= SMALL and claiming.timed_out(queue) is None
        if facts.indexes and (claiming.state_by_index(queue, facts) or (few and facts.sort is None)):
            return next((one for one in self.indexes if one.name in facts.indexes), fitting), True
        # The planner reads a table of a few pages rather than the index that is there for the day it has more.
        small = facts.measured and facts.buffers is not None and facts.buffers <= SMALL
        return (fitting, True) if fitting is not None and small else (None, False)

    def _lost(self) -> float:
        """Share of the blocked updates that did change an indexed value: columns set to equal values stay heap-only."""
        blocked = sum(one.rows for one in self.updates if one.blockers)
        scaled = blocked * self._scale()
        return min(1.0, (self.churn.updated - self.churn.hot_updated) / scaled) if scaled > 0 else 1.0

    def _moved(self) -> float:
        """Share of the blocked updates whose new version went to another page; none where the server does not count them."""
        blocked = self.lost * self._scale() * sum(one.rows for one in self.updates if one.blockers)
        if self.churn.newpage_updated is None or blocked <= 0:
            return 0.0
        roomless = max(0.0, self.churn.updated - blocked - self.churn.hot_updated)
        return min(1.0, max(0.0, self.churn.newpage_updated - roomless) / blocked)

    def _scale(self) -> float:
        """Updates counted over updates seen: statements in functions are not seen one by one."""
        return self.churn.updated / self.rows_seen if self.rows_seen else 0.0

    def _blocked(self, indexes: Sequence[IndexRow], update: SeenUpdate) -> bool:
        standing = [one for one in indexes if indexfacts.blocks_hot(self.seen.server, one)]
        return bool(writecost.blocking(self.queue, standing, update.columns))

    def free_share(self, indexes: Sequence[IndexRow]) -> float | None:
        """Share of the updates that none of the indexes blocks."""
        if not self.known:
            return None
        blocked = sum(one.rows for one in self.updates if self._blocked(indexes, one))
        return 1.0 - self.lost * blocked / self.rows_seen

    def wasteful(self) -> tuple[IndexRow, float] | None:
        """The index that claims do not need and that blocks most of the updates nothing else blocks, and how many a second."""
        if not self.known or (self.churn.hot_ratio or 0.0) >= NEAR:
            return None
        needed = {
            one.oid
            for one in self.indexes
            if one is self.serving
            or indexfacts.serves_claim(self.queue, one)
            or indexfacts.fits_claim(self.queue, one)
        }
        found: dict[int, float] = {}
        for update in self.updates:
            if not any(blocker.index.oid in needed for blocker in update.blockers):
                for blocker in update.blockers:
                    per_s = self.per_s(update.rows * self.lost)
                    found[blocker.index.oid] = found.get(blocker.index.oid, 0.0) + per_s
        oid, per_s = max(found.items(), key=lambda item: item[1], default=(0, 0.0))
        if per_s < PER_S:
            return None
        return next(one for one in self.queue.indexes if one.oid == oid), per_s

    def room_now(self) -> float | None:
        """Share of the unblocked updates that found room on their page, None where too few were unblocked."""
        free = self.free_share(self.indexes)
        if free is None or free * self.churn.updated < UPDATES:
            return None
        return min(1.0, self.churn.hot_updated / (free * self.churn.updated))

    def room_at(self, fillfactor: int) -> float:
        """Share of unblocked updates that would find room at a fillfactor, as far as it can be computed."""
        if self.room is None:
            return 0.0
        return self.room.heap_only_share(fillfactor)

    def lowered(self) -> int | None:
        """The computed fillfactor where it is below today's and pages can be pruned."""
        if self.room is None or self.held is not None or self.room.fillfactor >= self.fillfactor:
            return None
        return self.room.fillfactor

    # -- what a design writes and reads ----------------------------------------------------------

    def writes(self, indexes: Sequence[IndexRow], room: float) -> _Writes:
        """Index entries and WAL of the window in a design; every update is taken for blocked where no statement was seen."""
        queue, scale = self.queue, self._scale()
        hot = entries = wal = 0.0
        for one in self.updates:
            rows = one.rows * scale
            blocked = rows * self.lost if self._blocked(indexes, one) else 0.0
            heap_only = (rows - blocked) * room
            hot += heap_only
            entries += (rows - heap_only) * writecost.entries(queue, indexes, one)
            wal += rows * writecost.heap_update_wal(queue, one)
            moved = (rows - blocked) * (1 - room) + blocked * self.moved
            wal += moved * writecost.moved_row_wal(queue, one)
            wal += (rows - heap_only) * writecost.entries_wal(queue, indexes, one)
        if not self.updates and self.churn.updated:
            rest = self.churn.updated - self.churn.hot_updated
            full = [one for one in indexes if not one.has_predicate]
            entries += rest * len(full)
            wal += rest * sum(writecost.entry_wal(writecost.index_entry_bytes(queue, one)) for one in full)
            hot = float(self.churn.hot_updated)
        inserted = self.churn.inserted
        entries += inserted * writecost.entries(queue, indexes, None)
        wal += inserted * (writecost.heap_insert_wal(queue) + writecost.entries_wal(queue, indexes, None))
        wal += self.churn.deleted * writecost.heap_delete_wal()
        return _Writes(hot=hot, entries=entries, wal=wal)

    def measured_wal(self) -> tuple[int, int] | None:
        """WAL bytes and page images of the queue's statements in the window, None where one of them is not counted."""
        ran = [one for one in self.queue.statements if one.calls > 0]
        if not ran or (not self.known and self.churn.updated):
            return None
        counted = [(one.wal_bytes, one.wal_page_images or 0) for one in ran if one.wal_bytes is not None]
        if len(counted) < len(ran):
            return None
        return sum(one for one, _ in counted), sum(images for _, images in counted)

    def claim_now(self) -> _Cost | None:
        """What the claim reads now: as the plan measured it, else computed."""
        facts = self.plan.facts if self.plan is not None else None
        if facts is not None and facts.measured and facts.buffers is not None:
            lines = [
                f"measured: {count(facts.buffers)} buffers for {count(facts.rows or 0)} rows, {facts.scan_type}"
            ]
            if dead := self.dead_buffers():
                lines.append(
                    f"{count(dead)} of them on entries of dead rows, which vacuum removes as soon as it may"
                )
            return _Cost(buffers=float(facts.buffers), measured=True, arithmetic=tuple(lines))
        return self.claim_with(self.serving) if self.served else self.claim_without()

    def dead_buffers(self) -> int:
        """Buffers that the claim spends on entries of dead rows."""
        walk = dead_walk(self.plan.facts) if self.plan is not None else None
        return walk.unexplained_buffers if walk is not None else 0

    def claim_with(self, index: IndexRow | IndexAdvice | None) -> _Cost | None:
        """What the claim would read through an index."""
        if index is None:
            return None
        names = index.names if isinstance(index, IndexAdvice) else self.queue.index_columns(index)
        partial = index.predicate is not None
        ready = claiming.rows_in_ready_state(self.queue) if partial else self.queue.rows
        found = claimcost.through_index(
            self.queue, names, float(self.queue.rows if ready is None else ready), self.batch
        )
        return _Cost(buffers=found.buffers, measured=False, arithmetic=found.arithmetic)

    def claim_without(self) -> _Cost | None:
        """What the claim would read without the index that serves it."""
        left = self._without_serving()
        if self.finder is None:
            return None
        found = claimcost.without_index(self.queue, self.finder.order, left, self.batch)
        return (
            None
            if found is None
            else _Cost(buffers=found.buffers, measured=False, arithmetic=found.arithmetic)
        )

    # -- corners ---------------------------------------------------------------------------------

    def corner(
        self,
        *,
        now: bool,
        served: bool,
        change: str,
        indexes: Sequence[IndexRow],
        claim: _Cost | None,
        room: float,
        reckoned_now: _Writes,
    ) -> Corner:
        """One design with its figures. WAL is what was measured, moved by what the records of the difference take."""
        churn = self.churn
        writes = reckoned_now if now else self.writes(indexes, room)
        measured = self.measured_wal()
        wal = (
            writes.wal if measured is None else max(0.0, measured[0] + writes.wal - reckoned_now.wal)
        ) or 0.0
        reckoned = writes.hot / churn.updated if churn.updated and self.known else None
        ratio = churn.hot_ratio if now else reckoned
        jobs = self.per_job()
        cost = None
        if claim is not None and (self.known or not churn.updated):
            cost = self.claims_per_s * claim.buffers + _in_buffers(
                (self.per_s(writes.entries), self.per_s(wal))
            )
        heap_only = churn.updated == 0 or (ratio or 0.0) >= HEAP_ONLY
        return Corner(
            name=_name(served, heap_only),
            now=now,
            change=change,
            claim_buffers=None if claim is None else round(claim.buffers / self.batch, 1),
            claim_measured=claim is not None and claim.measured,
            hot_ratio=None if ratio is None else round(ratio, 4),
            hot_measured=now,
            entries_per_job=round(writes.entries / jobs, 2) if jobs else None,
            wal_bytes_per_job=round(wal / jobs, 1) if jobs else None,
            cost_per_s=None if cost is None else round(cost, 1),
            arithmetic=(
                *(claim.arithmetic if claim is not None else ()),
                *self._write_lines(indexes, writes, room, now=now),
            ),
        )

    def per_s(self, count_: float) -> float:
        """A number of the window as a rate."""
        return count_ / self.churn.seconds if self.churn.seconds > 0 else 0.0

    def per_job(self) -> float:
        """Jobs of the window: claimed ones, else enqueued ones."""
        return float(self.jobs or self.churn.inserted)

    def _write_lines(
        self, indexes: Sequence[IndexRow], writes: _Writes, room: float, *, now: bool
    ) -> Iterator[str]:
        churn, free = self.churn, self.free_share(indexes)
        if not churn.updated:
            yield "no update in the window"
        elif now:
            yield f"measured: {count(churn.hot_updated)} of {count(churn.updated)} updates heap-only"
        elif free is not None:
            yield f"heap-only: {percent(free)} of the updates that no index blocks * {percent(room)} that find room"
        jobs = self.per_job()
        if jobs:
            yield f"index entries: {count(writes.entries)} in the window / {count(jobs)} jobs = {writes.entries / jobs:.2f} a job"

    def triangle(self) -> Triangle:
        """Put it together."""
        churn = self.churn
        free = self.free_share(self.indexes)
        room_now = self.room_now()
        room_today = room_now if room_now is not None else self.room_at(self.fillfactor)
        reckoned = self.writes(self.indexes, room_today)
        today = self.corner(
            now=True,
            served=self.served,
            change="as it is",
            indexes=self.indexes,
            claim=self.claim_now(),
            room=room_today,
            reckoned_now=reckoned,
        )
        others = list(self._others(today, room_today, reckoned))
        corners = (today, *others, *self._unreachable(today, others))
        measured = self.measured_wal()
        jobs = self.per_job()
        without = self.free_share(self._without_serving())
        advice = _Advice(self, today, others)
        recommendation = advice.recommendation()
        return Triangle(
            corner=today.name,
            jobs_per_s=round(self.per_s(jobs), 3),
            updates_per_s=round(churn.per_second(churn.updated), 3),
            updates_per_job=round(churn.updated / jobs, 2) if jobs else None,
            updates_blocked_by_claim_index=None
            if free is None or without is None
            else round(without - free, 4),
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
                for one in self.updates[:MOST_UPDATES]
            ),
            corners=corners,
            knobs=tuple(advice.knobs(recommendation)),
            recommendation=recommendation,
            notes=tuple(self._notes(measured is not None)),
        )

    def _others(self, today: Corner, room_today: float, reckoned: _Writes) -> Iterator[Corner]:
        """The designs one step away: fillfactor, and the claim's index made or dropped."""
        lowered = self.lowered()
        free = self.free_share(self.indexes)
        if (
            lowered is not None
            and free is not None
            and free >= FEW
            and room_today < NEAR
            and self.churn.updated
        ):
            yield self.corner(
                now=False,
                served=self.served,
                change=f"with fillfactor {lowered}",
                indexes=self.indexes,
                claim=self.claim_now(),
                room=self.room_at(lowered),
                reckoned_now=reckoned,
            )
        blocker = self.wasteful()
        if blocker is not None:
            index = blocker[0]
            yield self.corner(
                now=False,
                served=self.served,
                change=f"without index {index.name}",
                indexes=tuple(one for one in self.indexes if one is not index),
                claim=self.claim_now(),
                room=self.room_at(self.fillfactor) if self.room_now() is None else room_today,
                reckoned_now=reckoned,
            )
        if self.served:
            if self.serving is None or _stays(self.serving) is not None:
                return
            rest = self._without_serving()
            change, claim = f"without index {self.serving.name}", self.claim_without()
        else:
            if self.advice is None or claiming.served_already(self.queue, self.advice) is not None:
                return
            rest = (*self.indexes, imagined(self.queue, self.advice))
            predicate = f" WHERE {self.advice.predicate}" if self.advice.predicate else ""
            change = f"with an index on ({', '.join(self.advice.columns)}){predicate}"
            claim = self.claim_with(self.advice)
        room = room_today
        share = self.free_share(rest)
        if lowered is not None and share is not None and share >= FEW and room < NEAR and self.churn.updated:
            room, change = self.room_at(lowered), f"{change} and fillfactor {lowered}"
        yield self.corner(
            now=False,
            served=not self.served,
            change=change,
            indexes=rest,
            claim=claim,
            room=room,
            reckoned_now=reckoned,
        )

    def _unreachable(self, today: Corner, others: Sequence[Corner]) -> Iterator[Corner]:
        """The corners that no step leads to, and why."""
        there = {today.name, *(one.name for one in others)}
        for name in _DESIGNS:
            if name not in there:
                yield Corner(name=name, now=False, change="", why_not=self._why_not(name))

    def _why_not(self, name: CornerName) -> str:
        if name == "HOT, claims scan":
            if self.served and self.serving is not None and (reason := _stays(self.serving)) is not None:
                return f"the claim is served by {self.serving.name}, and {reason}"
            return (
                "most updates would stay blocked by other indexes"
                if self.known
                else "the updates were not seen"
            )
        if not self.served and self.advice is None:
            return "no index that would serve the claim could be told from its conditions"
        if not self.served and claiming.served_already(self.queue, self.advice) is not None:  # type: ignore[arg-type]
            return "the index is there, and the claim's plan does not use it"
        if name == "both":
            blocked, others = self.blocked_columns(), 1.0 - (self.free_share(self._without_serving()) or 0.0)
            if blocked and others < HEAP_ONLY:
                return f"most updates set {', '.join(blocked)}, which the claim's index must mention"
            return "most updates find no room or are blocked by other indexes"
        return "most updates stay heap-only beside the claim's index"

    def _without_serving(self) -> tuple[IndexRow, ...]:
        return tuple(one for one in self.indexes if one is not self.serving)

    def blocked_columns(self) -> tuple[str, ...]:
        """Columns that the updates set and that the claim's index, present or advised, mentions; the most often set first."""
        index = self.serving if self.served else (imagined(self.queue, self.advice) if self.advice else None)
        if index is None:
            return ()
        mentioned = writecost.known_names(self.queue, index)
        return tuple(dict.fromkeys(name for one in self.updates for name in one.columns if name in mentioned))

    def _notes(self, wal_measured: bool) -> Iterator[str]:
        if self.churn.updated and not self.known:
            yield (
                "Too few of the statements behind the updates were seen (functions hide theirs unless pg_stat_statements.track "
                "is all), so what blocks them is not known."
            )
        if not wal_measured:
            yield "WAL is estimated from the sizes of its records: pg_stat_statements did not count it for these statements."
        if self.held is not None:
            yield "The xmin horizon is held back: pages cannot be pruned, so heap-only updates find less room than they would."
        if self.claims_per_s <= 0:
            yield "No claim ran in the window, so nothing can be weighed per second."


class _Advice:
    """From figures to one recommendation and what stands beside it."""

    def __init__(self, reckoning: _Reckoning, today: Corner, others: Sequence[Corner]) -> None:
        self.its, self.today, self.others = reckoning, today, others
        self.other_side = next((one for one in others if _is_served(one.name) != reckoning.served), None)

    # -- the recommendation ----------------------------------------------------------------------

    def recommendation(self) -> Recommendation:
        """Return the step with the greatest effect that can work, else say why it is well as it is."""
        its = self.its
        if its.claims_per_s <= 0:
            return Recommendation(
                action="leave",
                title="Leave it as it is",
                reason="no claim ran in the window, so nothing tells whether a change would pay",
            )
        if not its.served:
            found = self._claim_side()
            if found is not None:
                return found
        return self._wasteful() or self._roomless() or self._leave()

    def _claim_side(self) -> Recommendation | None:
        its, queue = self.its, self.its.queue
        if its.advice is None:
            return None
        present = claiming.served_already(queue, its.advice)
        saved = self.saved_per_claim()
        if present is not None:
            if saved is None or saved < LEAST_SAVED:
                return None
            name = remedy.qualified(present.schema, present.name)
            return Recommendation(
                action="use-index",
                title=f"Let the claim use {name}, which is there",
                reason=(
                    f"its plan does not take the index and reads {count(self.today.claim_buffers or 0)} buffers; another index "
                    "would be passed by in the same way"
                ),
            )
        if not self.index_pays():
            return None
        other = self.other_side
        after = (
            ""
            if other is None or other.claim_buffers is None
            else f" instead of {count(other.claim_buffers)}"
        )
        return Recommendation(
            action="create-index",
            title=f"Create the claim's index on ({', '.join(its.advice.columns)})",
            reason=(
                f"a claim reads {count(self.today.claim_buffers or 0)} buffers{after}; "
                + "; ".join(self.break_even()[-1:])
            ),
            remedies=(
                claiming.create_index(
                    queue,
                    its.advice,
                    title=f"Create the claim's index on ({', '.join(its.advice.columns)})",
                    expect=(
                        f"a claim reads about {count(other.claim_buffers)} buffers instead of {count(self.today.claim_buffers or 0)}"
                        if other is not None and other.claim_buffers is not None
                        else "a claim reads a few buffers"
                    ),
                ),
            ),
        )

    def saved_per_claim(self) -> float | None:
        """Buffers that one claim saves through its index, None where either side is not known."""
        its = self.its
        scan = its.claim_without() if its.served else its.claim_now()
        # Entries of dead rows are no fault of the index: it is judged as it is after a vacuum.
        through = (
            (its.claim_with(its.serving) or its.claim_now()) if its.served else its.claim_with(its.advice)
        )
        return None if scan is None or through is None else scan.buffers - through.buffers

    def index_costs(self) -> tuple[float, float] | None:
        """Index entries and WAL bytes per second that the claim's index costs, None where the other side is not known."""
        its, churn = self.its, self.its.churn
        if its.served:
            serving = its.serving
            if serving is None:
                return None
            with_it: Sequence[IndexRow] = its.indexes
            without: Sequence[IndexRow] = tuple(one for one in its.indexes if one is not serving)
        elif its.advice is not None:
            with_it, without = (*its.indexes, imagined(its.queue, its.advice)), its.indexes
        else:
            return None
        # Against the index: every update it does not block is taken to find room, as a fillfactor can bring about.
        one, other = its.writes(with_it, 1.0), its.writes(without, 1.0)
        if not its.known and churn.updated:
            full = sum(1 for index in without if not index.has_predicate)
            return its.per_s(churn.hot_updated * full + churn.inserted), 0.0
        return its.per_s(one.entries - other.entries), its.per_s(one.wal - other.wal)

    def index_pays(self) -> bool:
        """Tell whether the claim's index saves PAYS times what it costs, and enough per claim to matter."""
        saved, costs = self.saved_per_claim(), self.index_costs()
        if saved is None or costs is None or saved < LEAST_SAVED:
            return False
        return saved * self.its.claims_per_s >= PAYS * _in_buffers(costs)

    def break_even(self) -> tuple[str, ...]:
        """The arithmetic of the claim's index, a line per step."""
        saved, costs = self.saved_per_claim(), self.index_costs()
        if saved is None or costs is None:
            return ()
        claims = self.its.claims_per_s
        weight = _in_buffers(costs)
        lines = (
            f"saves {count(saved)} buffers a claim * {rate(claims)} claims = {rate(max(saved, 0) * claims)} buffers",
            f"costs {rate(costs[0])} index entries * {ENTRY_BUFFERS:g} + {size(costs[1])}/s of WAL / 8 kB * {WAL_PAGE_BUFFERS:g} = "
            f"{rate(weight)} buffers",
        )
        if saved <= 0:
            return (*lines, "it saves nothing at any rate")
        return (*lines, f"it pays from {rate(max(weight, 0) / saved)} claims on, and {rate(claims)} are made")

    def _wasteful(self) -> Recommendation | None:
        """An index that claims do not need and that blocks updates nothing else blocks."""
        its, queue = self.its, self.its.queue
        blocker = its.wasteful()
        if blocker is None:
            return None
        index, per_s = blocker
        name = remedy.qualified(index.schema, index.name)
        kept = indexfacts.why_kept(its.seen, queue, index, least_age_s=14 * indexfacts.DAY_S)
        reason = f"it keeps {rate(per_s)} updates from being heap-only, and claims do not need it"
        if kept is not None:
            return Recommendation(
                action="remove-blocker",
                title=f"Set {', '.join(_set_by(its.updates, index))} less often, or do without {name}",
                reason=f"{reason}. It is not for dropping unseen: {kept}",
            )
        return Recommendation(
            action="remove-blocker",
            title=f"Drop {name}",
            reason=reason,
            remedies=(
                remedy.drop_index(
                    schema=index.schema,
                    name=index.name,
                    definition=index.definition,
                    title=f"Drop {name}",
                    expect=f"{rate(per_s)} updates may be heap-only",
                    risk="a rare report that would have used it reads the table instead; the undo builds it again",
                ),
            )
            if index.definition is not None
            else (),
        )

    def _roomless(self) -> Recommendation | None:
        """Updates that no index blocks and that find no room: the one case for a fillfactor."""
        its = self.its
        lowered = its.lowered()
        lacking = self.without_room()
        if lowered is None or its.room is None or lacking is None or its.per_s(lacking[0]) < PER_S:
            return None
        if lacking[0] < NO_ROOM * lacking[1]:
            return None
        title = f"Set fillfactor {lowered}"
        tables = [leaf for leaf in its.queue.leaves if pageroom.fillfactor_of(leaf) > lowered]
        groups: dict[tuple[str, ...], list[str]] = {}
        for leaf in tables:
            groups.setdefault(leaf.options, []).append(remedy.qualified(leaf.schema, leaf.name))
        return Recommendation(
            action="set-fillfactor",
            title=title,
            reason=(
                f"{percent(lacking[0] / lacking[1])} of the updates that no index blocks find no room on their page; "
                f"{its.room.arithmetic()[-1]}"
            ),
            remedies=tuple(
                remedy.set_storage(
                    names[0],
                    {"fillfactor": str(lowered)},
                    dict(one.partition("=")[::2] for one in options),
                    partitions=names,
                    title=title,
                    expect="; ".join(its.room.arithmetic())
                    + ". Pages get the room as their rows are updated away",
                    risk=f"the table takes up to {percent(100 / lowered - 1)} more pages",
                )
                for options, names in groups.items()
            ),
        )

    def without_room(self) -> tuple[float, float] | None:
        """Updates of the window that no index blocked and that found no room, and all that no index blocked."""
        its, churn = self.its, self.its.churn
        free = its.free_share(its.indexes)
        if free is None or free * churn.updated < UPDATES:
            return None
        lacking = max(0.0, free * churn.updated - churn.hot_updated)
        if churn.newpage_updated is not None:
            lacking = min(lacking, churn.newpage_updated)
        return lacking, free * churn.updated

    def _leave(self) -> Recommendation:
        its, today, other = self.its, self.today, self.other_side
        reasons = []
        if its.served:
            at = f" at {count(today.claim_buffers)} buffers" if today.claim_buffers is not None else ""
            by = f" by {its.serving.name}" if its.serving is not None else ""
            dead = its.dead_buffers()
            fault = (
                f", {count(dead)} of them on entries of dead rows, which is no fault of the index"
                if dead
                else ""
            )
            reasons.append(f"the claim is served{by}{at}{fault}")
            if other is not None and other.claim_buffers is not None:
                reasons.append(
                    f"without it a claim would read {count(other.claim_buffers)} with the table as it is, and more with each job that "
                    f"is finished and kept"
                    + (f", for {_hot(other)} heap-only updates" if its.churn.updated else "")
                )
        elif its.advice is None:
            reasons.append("no index that would serve the claim could be told from its conditions")
        elif claiming.served_already(its.queue, its.advice) is None:
            saved = self.saved_per_claim()
            if saved is None:
                reasons.append("what an index would save could not be told")
            elif saved < LEAST_SAVED:
                reasons.append(f"an index would save a claim {count(max(saved, 0))} buffers only")
            else:
                reasons.append("an index does not pay: " + "; ".join(self.break_even()))
        reasons.append(self._fillfactor_reason())
        return Recommendation(action="leave", title="Leave it as it is", reason="; ".join(reasons))

    # -- the knobs -------------------------------------------------------------------------------

    def knobs(self, recommendation: Recommendation) -> Iterator[Knob]:
        """Return each knob with today's value, the computed one and whether it can work."""
        yield self._index_knob(recommendation)
        yield self._fillfactor_knob(recommendation)
        yield from self._autovacuum_knobs()

    def _index_knob(self, recommendation: Recommendation) -> Knob:
        its = self.its
        arithmetic = self.break_even()
        wanted = None
        if its.advice is not None:
            predicate = f" WHERE {its.advice.predicate}" if its.advice.predicate else ""
            wanted = f"({', '.join(its.advice.columns)}){predicate}"
        verdict: KnobVerdict
        if its.served:
            name = its.serving.name if its.serving is not None else "an index on each partition"
            verdict, reason = "keep", "the claim finds its job through it"
            today, wanted = name, None
        elif recommendation.action == "create-index":
            today, verdict, reason = "none", "change", recommendation.reason
        elif recommendation.action == "use-index":
            today, verdict, reason = "not used", "keep", recommendation.reason
            wanted = None
        elif wanted is None:
            today, verdict, reason = "none", "not known", "the claim's conditions do not tell what to index"
        elif self.saved_per_claim() is None or its.claims_per_s <= 0:
            today, verdict, reason = "none", "not known", "what it would save could not be weighed"
        else:
            today, verdict = "none", "does not pay"
            reason = (
                "a claim reads little without it"
                if (self.saved_per_claim() or 0) < LEAST_SAVED
                else "claims are too rare"
            )
        return Knob(
            name="claim index",
            today=today,
            computed=wanted,
            verdict=verdict,
            reason=reason,
            arithmetic=arithmetic,
        )

    def _fillfactor_reason(self) -> str:
        its, churn = self.its, self.its.churn
        free = its.free_share(its.indexes)
        if not churn.updated:
            return "a fillfactor has nothing to work on: no row was updated"
        if free is None:
            return "whether a fillfactor could help is not known, because the updates were not seen"
        if free < FEW:
            return f"no fillfactor can help: {percent(1 - free)} of the updates set {self._blocking()}"
        if its.held is not None:
            return "no fillfactor lasts while the horizon is held: full pages cannot be pruned"
        if its.room is None:
            return "no fillfactor can be computed: fewer than two rows fit on a page, or their width is not known"
        room = its.room_now()
        if room is not None and room >= NEAR:
            return f"{percent(room)} of the updates that no index blocks are heap-only already"
        if its.lowered() is None:
            return (
                f"the fillfactor is {its.fillfactor} already, and computed {its.room.fillfactor}: pages written before it was set "
                "get the room as their rows are updated away"
            )
        return "too few updates lack room on their page for a fillfactor to matter"

    def _blocking(self) -> str:
        """ "state, which jobs_ready_idx mentions" for the indexes that block most."""
        its = self.its
        names: dict[str, dict[str, None]] = {}
        for one in its.updates:
            for blocker in one.blockers[:1]:
                names.setdefault(blocker.index.name, {}).update(dict.fromkeys(blocker.columns))
        return " and ".join(
            f"{', '.join(columns)}, which {index} mentions" for index, columns in list(names.items())[:2]
        )

    def _fillfactor_knob(self, recommendation: Recommendation) -> Knob:
        its = self.its
        free = its.free_share(its.indexes)
        computed = its.room.fillfactor if its.room is not None else None
        can_help = free is not None and free >= FEW and its.churn.updated > 0 and its.held is None
        verdict: KnobVerdict
        if recommendation.action == "set-fillfactor":
            verdict, reason = "change", recommendation.reason
        else:
            reason = self._fillfactor_reason()
            verdict = (
                "keep" if can_help else ("not known" if free is None and its.churn.updated else "cannot help")
            )
        shown = verdict in ("change", "keep") and computed is not None
        return Knob(
            name="fillfactor",
            today=str(its.fillfactor),
            computed=str(computed) if shown else None,
            verdict=verdict,
            reason=reason,
            arithmetic=its.room.arithmetic() if its.room is not None and shown else (),
        )

    def _autovacuum_knobs(self) -> Iterator[Knob]:
        its, queue = self.its, self.its.queue
        leaves = vacuuming.leaves_of(its.seen, queue)
        leaf = max(leaves, key=lambda one: one.making, default=None)
        if leaf is None:
            return
        scale = vacuuming.parameter(leaf.table, queue.catalog, "autovacuum_vacuum_scale_factor")
        base = vacuuming.parameter(leaf.table, queue.catalog, "autovacuum_vacuum_threshold")
        naptime = vacuuming.parameter(leaf.table, queue.catalog, "autovacuum_naptime")
        today = f"threshold {base:g}, scale factor {scale:g}"
        lines = [
            f"comes after {count(base)} + {scale:g} * {count(max(leaf.table.rows, 0))} rows = {count(leaf.trigger)} dead rows"
        ]
        computed = None
        if leaf.making > 0:
            threshold, period = vacuuming.threshold_for(leaf.making, naptime)
            computed = f"threshold {threshold}, scale factor 0"
            lines.append(
                f"{rate(leaf.making)} dead rows that only vacuum removes * {duration(naptime)} of autovacuum_naptime = "
                f"{count(leaf.making * naptime)}, between {count(vacuuming.LEAST_THRESHOLD)} and {count(vacuuming.MOST_THRESHOLD)}: "
                f"{count(threshold)}, one vacuum every {duration(period)}"
            )
        verdict: KnobVerdict
        if its.held is not None:
            verdict, reason = "cannot help", "no setting removes a row while the horizon is held"
        elif not (vacuuming.server_allows(queue.catalog) and leaf.enabled):
            verdict, reason, today = "change", "it is switched off", "off"
        elif leaf.trigger >= vacuuming.FAR_TRIGGER and leaf.making >= 1.0:
            verdict = "change"
            reason = f"{count(leaf.trigger)} dead rows may pile up before it comes, every {duration(leaf.trigger / leaf.making)}"
        else:
            verdict, reason = "keep", f"it comes after {count(leaf.trigger)} dead rows"
            computed = None
        yield Knob(
            name="autovacuum",
            today=today,
            computed=computed,
            verdict=verdict,
            reason=reason,
            arithmetic=tuple(lines),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Finder:
    """The select that finds a job: what it asks for, and how often it runs per second."""

    conditions: tuple[Condition, ...]
    order: tuple[OrderKey, ...]
    per_s: float


def finder_of(queue: Queue) -> Finder | None:
    """Return what looks for jobs: the busiest claim that looks itself, else the busiest SELECT that looks for a caller's claim by key."""
    plan = queue.plan
    named = claiming.claim_of_plan(queue, plan) if plan is not None else next(iter(queue.claims), None)
    if named is not None and not named.claim.by_key:
        calls = queue.churn.per_second(named.seen.calls)
        return Finder(conditions=named.claim.conditions, order=named.claim.order, per_s=calls)
    # A list that people browse finds far more rows than are ever changed.
    found = (one for one in claiming.polls(queue) if one.seen.rows <= BROWSED * queue.churn.updated)
    poll = next(found, None)
    if poll is not None:
        return Finder(
            conditions=poll.read.conditions,
            order=poll.read.order,
            per_s=queue.churn.per_second(poll.seen.calls),
        )
    return None


def imagined(queue: Queue, advice: IndexAdvice) -> IndexRow:
    """Return the advised index as if it stood in the catalog."""
    number = {row.name: row.number for row in queue.columns}
    ready = claiming.rows_in_ready_state(queue) if advice.predicate is not None else queue.rows
    return IndexRow(
        oid=0,
        table=queue.oid,
        schema=queue.table.schema,
        name="",
        method="btree",
        unique=False,
        primary=False,
        constraint=None,
        valid=True,
        key_columns=tuple(number[name] for name in advice.names),
        included_columns=(),
        has_predicate=advice.predicate is not None,
        has_expressions=False,
        predicate=advice.predicate,
        definition=None,
        expressions=None,
        pages=0,
        rows=float(ready or 0),
        replica_identity=False,
        descending=tuple(False for _ in advice.names),
    )


def _in_buffers(costs: tuple[float, float]) -> float:
    return costs[0] * ENTRY_BUFFERS + costs[1] / pageroom.PAGE_BYTES * WAL_PAGE_BUFFERS


def changed_rows(updates: tuple[SeenUpdate, ...], updated: int) -> tuple[SeenUpdate, ...]:
    """Return the updates with the rows they changed.

    pg_stat_statements counts the rows a statement returned: where the UPDATE stands in WITH under a SELECT, these need not be the rows
    it changed. The ``updated`` rows that no other statement explains are its own, by the share of calls where there are several.
    """
    inside = [one for one in updates if one.statement.statement.kind == "select"]
    missing = updated - sum(one.rows for one in updates)
    calls = sum(one.statement.calls for one in inside)
    if missing <= 0 or not calls:
        return updates
    return tuple(
        replace(one, rows=one.rows + round(missing * one.statement.calls / calls)) if one in inside else one
        for one in updates
    )


def _claimed(queue: Queue, updates: Sequence[SeenUpdate]) -> tuple[float, int]:
    """Claims per second, and jobs they took in the window."""
    changed = {one.statement.key: one.rows for one in updates if one.claims}
    ran: dict[str, SeenStatement] = {
        one.seen.key: one.seen
        for one in queue.claims
        if one.seen.calls and (one.claim.writes or one.claim.lock)
    }
    # A function may also return a row of NULLs for "nothing": its rows are then an upper bound.
    ran.update({one.key: one for one in queue.function_claims if one.calls})
    jobs = sum(changed.get(key, one.rows) for key, one in ran.items())
    return queue.churn.per_second(sum(one.calls for one in ran.values())), jobs


def _name(served: bool, heap_only: bool) -> CornerName:
    if served:
        return "both" if heap_only else "claim index, no HOT"
    return "HOT, claims scan" if heap_only else "neither"


def _is_served(name: CornerName) -> bool:
    return name in ("both", "claim index, no HOT")


def _stays(index: IndexRow) -> str | None:
    """Why an index is not given away for heap-only updates at all."""
    if index.primary:
        return "it is the primary key"
    if index.constraint is not None:
        return f"it enforces {index.constraint}"
    return "it keeps values unique" if index.unique else None


def _set_by(updates: Sequence[SeenUpdate], index: IndexRow) -> tuple[str, ...]:
    return tuple(
        dict.fromkeys(
            name
            for one in updates
            for blocker in one.blockers
            if blocker.index.oid == index.oid
            for name in blocker.columns
        )
    )


def _hot(corner: Corner) -> str:
    return percent(corner.hot_ratio) if corner.hot_ratio is not None else "an unknown share of"
