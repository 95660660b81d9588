"""The designs a queue may have, today's and those one step away, and what each reads and writes in the window.

The parts of the cost in a second and their weights are explained in pgqdoctor.triangle.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final

from pgqdoctor import claimcost, claiming, indexfacts, pageroom, taking, vacuuming, writecost
from pgqdoctor.claiming import IndexAdvice
from pgqdoctor.indexfacts import SeenUpdate
from pgqdoctor.observation import Observation
from pgqdoctor.planfacts import dead_walk
from pgqdoctor.queue import Queue
from pgqdoctor.rows import IndexRow
from pgqdoctor.sqlfacts import Condition, OrderKey
from pgqdoctor.sqlrewrite import quote_ident
from pgqdoctor.trianglefacts import Corner, CornerName
from pgqdoctor.words import buffers, count, percent, plural

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
IMAGES: Final = 0.2
"""Share of the WAL that page images of 8 kB may take up before they are mentioned."""
SKEW: Final = 0.3
"""Share by which table counters may be off in a window of a few seconds: each backend is up to one second behind."""
BROWSED: Final = 10
"""Rows that a SELECT returns per updated row, up to which it may look for jobs: losers of races and batches find more than they take."""
MOST_UPDATES: Final = 10
"""Statements listed, the busiest first."""

_DESIGNS: Final[tuple[CornerName, ...]] = ("claim index, no HOT", "HOT, claims scan", "both")


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


class Reckoning:
    """Everything derived once for one queue; it lives as long as one call of triangle_of()."""

    def __init__(self, seen: Observation, queue: Queue) -> None:
        self.seen, self.queue, self.churn = seen, queue, queue.churn
        self.updates = changed_rows(indexfacts.seen_updates(seen, queue), queue.churn.updated)
        self.rows_seen = sum(one.rows for one in self.updates)
        self.known = self.rows_seen >= HEAP_ONLY * self.churn.updated and self.rows_seen > 0
        self.plan = queue.plan
        self.finder = finder_of(queue)
        jobs = taking.taken(queue)
        claims_per_s, self.jobs = queue.churn.per_second(jobs.calls), jobs.jobs
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
        self.batch = claimcost.batch_of(queue)

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

    def _volume(self, seen: int, counted: int) -> float:
        """What a statement's rows stand for: themselves, where statements and the table's counters tell about the same.

        A backend hands in its table counters once a second at most, so in a short window jobs and statements fit together better
        than either does with the counters.
        """
        ratio = counted / seen if seen else 0.0
        return 1.0 if abs(ratio - 1.0) <= SKEW else ratio

    def updated(self) -> float:
        """Updates of the window."""
        return (
            self.rows_seen * self._volume(self.rows_seen, self.churn.updated)
            if self.known
            else self.churn.updated
        )

    def inserted(self) -> float:
        """Inserts of the window."""
        seen = sum(one.rows for one, _ in self.queue.writes("insert"))
        return seen * self._volume(seen, self.churn.inserted) if seen else self.churn.inserted

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

    def orders(self) -> bool:
        """Tell whether the advised index gives the order that the claim asks for, or the claim asks for none."""
        return self.advice is None or self.advice.ordered or self.finder is None or not self.finder.order

    def lowered(self) -> int | None:
        """The computed fillfactor where it is below today's and pages can be pruned."""
        if self.room is None or self.held is not None or self.room.fillfactor >= self.fillfactor:
            return None
        return self.room.fillfactor

    # -- what a design writes and reads ----------------------------------------------------------

    def writes(self, indexes: Sequence[IndexRow], room: float) -> _Writes:
        """Index entries and WAL of the window in a design; every update is taken for blocked where no statement was seen."""
        queue, scale = self.queue, self._volume(self.rows_seen, self.churn.updated)
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
        inserted = self.inserted()
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
                f"measured by EXPLAIN: {buffers(facts.buffers)} for {plural(facts.rows or 0, 'job')}, by {facts.scan_type}"
            ]
            if dead := self.dead_buffers():
                lines.append(
                    f"{count(dead)} of them for entries of dead rows, which vacuum removes as soon as it may"
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
        if isinstance(index, IndexAdvice):
            found = claimcost.through_advised(self.queue, index)
        else:
            partial = index.predicate is not None
            ready = claiming.rows_in_ready_state(self.queue) if partial else self.queue.rows
            found = claimcost.through_index(
                self.queue,
                self.queue.index_columns(index),
                float(self.queue.rows if ready is None else ready),
                self.batch,
            )
        return _Cost(buffers=found.buffers, measured=False, arithmetic=found.arithmetic)

    def claim_without(self) -> _Cost | None:
        """What the claim would read without the index that serves it."""
        left = self.without_serving()
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
        reckoned = writes.hot / self.updated() if churn.updated and self.known else None
        ratio = churn.hot_ratio if now else reckoned
        jobs = self.per_job()
        cost = None
        if claim is not None and (self.known or not churn.updated):
            cost = self.claims_per_s * claim.buffers + in_buffers(
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
            yield "no row was updated in the window"
        elif now:
            yield f"{count(churn.hot_updated)} of {count(churn.updated)} updates were heap-only"
        elif free is not None:
            yield f"no index keeps {percent(free)} of the updates from being heap-only, and {percent(room)} of those find room on their page"
        jobs = self.per_job()
        if jobs:
            yield f"{count(writes.entries)} index entries for {count(jobs)} jobs of the window: {count(writes.entries / jobs)} a job"

    def others(self, today: Corner, room_today: float, reckoned: _Writes) -> Iterator[Corner]:
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
                change=f"without index {quote_ident(index.name)}",
                indexes=tuple(one for one in self.indexes if one is not index),
                claim=self.claim_now(),
                room=self.room_at(self.fillfactor) if self.room_now() is None else room_today,
                reckoned_now=reckoned,
            )
        if self.served:
            if self.serving is None or stays(self.serving) is not None:
                return
            rest = self.without_serving()
            change, claim = f"without index {quote_ident(self.serving.name)}", self.claim_without()
        else:
            if self.advice is None or not self.orders():
                return
            if claiming.served_already(self.queue, self.advice) is not None:
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

    def unreachable(self, today: Corner, others: Sequence[Corner]) -> Iterator[Corner]:
        """The corners that no step leads to, and why; without updates they differ by nothing else than the claim's index."""
        if not self.churn.updated:
            return
        there = {today.name, *(one.name for one in others)}
        for name in _DESIGNS:
            if name not in there:
                yield Corner(name=name, now=False, change="", why_not=self._why_not(name))

    def _why_not(self, name: CornerName) -> str:
        if name == "HOT, claims scan":
            if self.served and self.serving is not None and (reason := stays(self.serving)) is not None:
                return f"the claim is served by {quote_ident(self.serving.name)}, and {reason}"
            return (
                "most updates would stay blocked by other indexes"
                if self.known
                else "the updates were not seen"
            )
        if not self.served and self.advice is None:
            return "no index that would serve the claim could be told from its conditions"
        if not self.served and not self.orders():
            return "the claim's order is an expression that no index gives"
        if not self.served and claiming.served_already(self.queue, self.advice) is not None:  # type: ignore[arg-type]
            return "the index is there, and the claim's plan does not use it"
        if name == "both":
            blocked, others = self.blocked_columns(), 1.0 - (self.free_share(self.without_serving()) or 0.0)
            if blocked and others < HEAP_ONLY:
                return f"most updates set {', '.join(blocked)}, which the claim's index must mention"
            return "most updates find no room or are blocked by other indexes"
        return "most updates stay heap-only beside the claim's index"

    def without_serving(self) -> tuple[IndexRow, ...]:
        """The indexes but the one that serves the claim."""
        return tuple(one for one in self.indexes if one is not self.serving)

    def blocked_columns(self) -> tuple[str, ...]:
        """Columns that the updates set and that the claim's index, present or advised, mentions; the most often set first."""
        index = self.serving if self.served else (imagined(self.queue, self.advice) if self.advice else None)
        if index is None:
            return ()
        mentioned = writecost.known_names(self.queue, index)
        return tuple(dict.fromkeys(name for one in self.updates for name in one.columns if name in mentioned))

    def notes(self, wal_measured: bool) -> Iterator[str]:
        if self.churn.updated and not self.known:
            yield (
                "Too few of the statements behind the updates were seen (functions hide theirs unless pg_stat_statements.track "
                "is all), so what blocks them is not known."
            )
        if not wal_measured:
            yield "WAL is estimated from the sizes of its records: pg_stat_statements did not count it for these statements."
        measured = self.measured_wal()
        if measured is not None and measured[1] * pageroom.PAGE_BYTES > IMAGES * measured[0]:
            yield (
                f"{count(measured[1])} full page images, which a checkpoint brings about, stand in the WAL measured: as much as the "
                "design, or more."
            )
        if self.held is not None:
            yield "The xmin horizon is held back: pages cannot be pruned, so heap-only updates find less room than they would."
        if self.claims_per_s <= 0:
            yield "No claim was seen in the window, so nothing can be weighed per second."


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


def in_buffers(costs: tuple[float, float]) -> float:
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


def _name(served: bool, heap_only: bool) -> CornerName:
    if served:
        return "both" if heap_only else "claim index, no HOT"
    return "HOT, claims scan" if heap_only else "neither"


def stays(index: IndexRow) -> str | None:
    """Why an index is not given away for heap-only updates at all."""
    if index.primary:
        return "it is the primary key"
    if index.constraint is not None:
        return f"it enforces {quote_ident(index.constraint)}"
    return "it keeps values unique" if index.unique else None
