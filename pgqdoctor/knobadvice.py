"""From the designs of a queue to one recommendation, and to each knob with today's value, the computed one and its reason."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from pgqdoctor import claimcost, claiming, indexfacts, pageroom, remedy, vacuuming
from pgqdoctor.designs import (
    ENTRY_BUFFERS,
    FEW,
    LEAST_SAVED,
    NEAR,
    NO_ROOM,
    PAYS,
    PER_S,
    UPDATES,
    WAL_PAGE_BUFFERS,
    Reckoning,
    imagined,
    in_buffers,
)
from pgqdoctor.indexfacts import SeenUpdate
from pgqdoctor.rows import IndexRow
from pgqdoctor.sqlrewrite import quote_ident
from pgqdoctor.trianglefacts import Corner, CornerName, Knob, KnobVerdict, Recommendation
from pgqdoctor.words import buffers, count, duration, percent, rate, size


class Advice:
    """From figures to one recommendation and what stands beside it."""

    def __init__(self, reckoning: Reckoning, today: Corner, others: Sequence[Corner]) -> None:
        self.its, self.today, self.others = reckoning, today, others
        self.other_side = next((one for one in others if is_served(one.name) != reckoning.served), None)

        # Figures of a design are those of one job; a claim that takes a batch reads as many for each.
        self.each = " for each job" if reckoning.batch > 1 else ""

    # -- the recommendation ----------------------------------------------------------------------

    def recommendation(self) -> Recommendation:
        """Return the step with the greatest effect that can work, else say why it is well as it is."""
        its = self.its
        if its.claims_per_s <= 0:
            return Recommendation(
                action="leave",
                title="Leave it as it is",
                reason="no claim was seen in the window, so nothing tells whether a change would pay",
            )
        if not its.served:
            found = self._claim_side()
            if found is not None:
                return found
        return self._wasteful() or self._roomless() or self._leave()

    def _claim_side(self) -> Recommendation | None:
        its, queue = self.its, self.its.queue
        if its.advice is None or not its.orders():
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
                    f"its plan does not take the index and reads {buffers(self.today.claim_buffers or 0)}; another index "
                    "would be passed by in the same way"
                ),
            )
        if not self.index_pays():
            return None
        other = self.other_side
        after = (
            ""
            if other is None or other.claim_buffers is None
            else f", and would read about {buffers(other.claim_buffers)} through it"
        )
        return Recommendation(
            action="create-index",
            title=f"Create the claim's index on ({', '.join(its.advice.columns)})",
            reason=f"a claim reads {buffers(self.today.claim_buffers or 0)}{self.each} without an index of its own{after}",
            remedies=(
                claiming.create_index(
                    queue,
                    its.advice,
                    title=f"Create the claim's index on ({', '.join(its.advice.columns)})",
                    expect=(
                        f"{claimcost.served(queue, its.advice)} instead of {count(self.today.claim_buffers or 0)}"
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
        return saved * self.its.claims_per_s >= PAYS * in_buffers(costs)

    def break_even(self) -> tuple[str, ...]:
        """The arithmetic of the claim's index, a line per step."""
        saved, costs = self.saved_per_claim(), self.index_costs()
        if saved is None or costs is None:
            return ()
        claims = self.its.claims_per_s
        weight = in_buffers(costs)
        lines = (
            f"it saves {buffers(max(saved, 0))} a claim, {buffers(max(saved, 0) * claims)} per second at {rate(claims)} claims",
            f"it costs {count(max(costs[0], 0))} index entries and {size(max(costs[1], 0))} of WAL per second, which weigh as much as "
            f"{buffers(max(weight, 0))} per second (an entry as {ENTRY_BUFFERS:g}, a page of WAL as {WAL_PAGE_BUFFERS:g})",
        )
        if saved <= 0:
            return (*lines, "it saves nothing, however often claims run")
        if weight <= 0:
            return (lines[0], "it costs nothing while rows are written as in the window")
        return (
            *lines,
            f"it is worth it from {rate(PAYS * weight / saved)} claims on, where it saves {PAYS:g} times what it costs; {rate(claims)} were seen",
        )

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
                title=f"Set {', '.join(map(quote_ident, _set_by(its.updates, index)))} less often, or do without {name}",
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
                f"{percent(lacking[0] / lacking[1])} of the updates that no index keeps from being heap-only find no room on their page, and "
                f"{its.room.reason()}"
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
            at = (
                f" and reads {buffers(today.claim_buffers)}{self.each}"
                if today.claim_buffers is not None
                else ""
            )
            by = f" by {quote_ident(its.serving.name)}" if its.serving is not None else ""
            dead = its.dead_buffers() / its.batch
            fault = (
                f", {count(dead)} of them for entries of dead rows, which is no fault of the index"
                if dead
                else ""
            )
            reasons.append(f"the claim is served{by}{at}{fault}")
            if other is not None and other.claim_buffers is not None:
                reasons.append(
                    f"without it a claim would read about {buffers(other.claim_buffers)}{self.each} with the table as it is, and more with each job "
                    "that is finished and kept"
                    + (f", and {_hot(other)} of the updates would be heap-only" if its.churn.updated else "")
                )
        elif its.advice is None:
            reasons.append("no index that would serve the claim could be told from its conditions")
        elif not its.orders():
            reasons.append(
                "no index can give the order the claim asks for, which is an expression, so each claim would sort all the same"
            )
        elif claiming.served_already(its.queue, its.advice) is None:
            saved = self.saved_per_claim()
            if saved is None:
                reasons.append("what an index would save could not be told")
            elif saved < LEAST_SAVED:
                reasons.append(f"an index would save a claim {buffers(max(saved, 0))} only")
            else:
                reasons.append(
                    "an index for the claim would cost more than it saves: " + "; ".join(self.break_even())
                )
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
            name = quote_ident(its.serving.name) if its.serving is not None else "an index on each partition"
            verdict, reason = "keep", "the claim finds its job through it"
            today, wanted = name, None
        elif recommendation.action == "create-index":
            today, verdict, reason = "none", "change", recommendation.reason
        elif recommendation.action == "use-index":
            today, verdict, reason = "not used", "keep", recommendation.reason
            wanted = None
        elif wanted is None:
            today, verdict, reason = "none", "not known", "the claim's conditions do not tell what to index"
        elif not its.orders():
            today, verdict, wanted = "none", "cannot help", None
            reason = "the claim's order is an expression that no index gives, so each claim would sort all the same"
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
            f"{', '.join(map(quote_ident, columns))}, which {quote_ident(index)} mentions"
            for index, columns in list(names.items())[:2]
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
            f"a vacuum is due after {count(leaf.trigger)} dead rows: {count(base)} and {percent(scale)} of {count(max(leaf.table.rows, 0))} rows"
        ]
        computed = None
        if leaf.making > 0:
            threshold, period = vacuuming.threshold_for(leaf.making, naptime)
            computed = f"threshold {threshold}, scale factor 0"
            lines.append(
                f"{count(leaf.making)} dead rows per second can be removed by vacuum only, {count(leaf.making * naptime)} in one autovacuum_naptime of "
                f"{duration(naptime)}; a threshold of {count(threshold)} (never below {count(vacuuming.LEAST_THRESHOLD)} nor above "
                f"{count(vacuuming.MOST_THRESHOLD)}) means one vacuum every {duration(period)}"
            )
        verdict: KnobVerdict
        if its.held is not None:
            verdict, reason = "cannot help", "no setting removes a row while the horizon is held"
        elif not (vacuuming.server_allows(queue.catalog) and leaf.enabled):
            today, lines = "off", []
            if leaf.making > 0:
                verdict, reason, computed = "change", "dead rows stay until it is on again", "on"
            else:
                verdict, reason, computed = (
                    "keep",
                    "no row died in the window that a vacuum would remove",
                    None,
                )
        elif leaf.trigger >= vacuuming.FAR_TRIGGER and leaf.making >= 1.0:
            verdict = "change"
            reason = f"{count(leaf.trigger)} dead rows pile up before a vacuum is due, which takes {duration(leaf.trigger / leaf.making)}"
        else:
            verdict, reason = "keep", f"a vacuum is due after {count(leaf.trigger)} dead rows"
            computed = None
        yield Knob(
            name="autovacuum",
            today=today,
            computed=computed,
            verdict=verdict,
            reason=reason,
            arithmetic=tuple(lines),
        )


def is_served(name: CornerName) -> bool:
    return name in ("both", "claim index, no HOT")


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
