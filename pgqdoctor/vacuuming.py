"""When autovacuum visits a table, and how fast the queue makes what only vacuum can remove.

The trigger follows relation_needs_vacanalyze() (autovacuum.c): threshold + scale_factor * reltuples, from 18 on at
most autovacuum_vacuum_max_threshold. A storage option of the table goes before the server's setting.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from pgqdoctor import horizon
from pgqdoctor.horizon import Holder
from pgqdoctor.observation import Catalog, Observation
from pgqdoctor.rows import TableCounterRow, TableRow

if TYPE_CHECKING:
    from pgqdoctor.queue import Queue

DEFAULTS: Final = {
    "autovacuum_vacuum_threshold": 50.0,
    "autovacuum_vacuum_scale_factor": 0.2,
    "autovacuum_vacuum_max_threshold": -1.0,
    "autovacuum_naptime": 60.0,
    "autovacuum_max_workers": 3.0,
    "autovacuum_vacuum_cost_delay": 2.0,
    "vacuum_cost_limit": 200.0,
    "vacuum_cost_page_hit": 1.0,
    "vacuum_cost_page_miss": 2.0,
    "vacuum_cost_page_dirty": 20.0,
}
"""PostgreSQL's own defaults (seconds, milliseconds, rows), used where the role may not see the settings. No maximal
threshold stands for the versions that have none."""

HELD_S: Final = horizon.LASTING_S
"""Seconds a transaction must have been open to count as holding the horizon: claims last milliseconds."""
HELD_AGE: Final = 1_000
"""Transactions by which short transactions, one after the other, keep the horizon behind at every sample. Busy
workers keep it behind by about as many transactions as there are workers."""

LEAST_THRESHOLD: Final = 1_000
"""Dead rows: the smallest threshold suggested, as each vacuum reads every index whatever it removes."""
MOST_THRESHOLD: Final = 10_000
"""Dead rows: the largest threshold suggested, half of FAR_TRIGGER."""
FAR_TRIGGER: Final = 20_000
"""Dead rows that a trigger may let pile up: four times the 5,000 scattered ones that made a claim read 5,017 buffers instead of 3.
"""

BULK_ROWS: Final = 5_000
"""Rows per call from which a statement is no claim or finish of a batch, but a purge or a mending by hand: frameworks prune up to
1,000 or 10,000 at a time, and the largest batches of claims met have 1,000."""

_OFF = ("false", "off", "no", "0")


def options_of(table: TableRow) -> dict[str, str]:
    """Return a table's storage options; those of its TOAST table begin with "toast."."""
    return dict(one.partition("=")[::2] for one in table.options)


def parameter(table: TableRow, catalog: Catalog, name: str) -> float:
    """Return a number that governs vacuum on this table: storage option, else setting, else PostgreSQL's default."""
    text = options_of(table).get(name) or catalog.setting(name)
    return float(text) if text is not None else DEFAULTS[name]


def server_allows(catalog: Catalog) -> bool:
    """Tell whether autovacuum runs on this server at all: it needs the cumulative counters as well."""
    return "off" not in (catalog.setting("autovacuum"), catalog.setting("track_counts"))


def enabled_for(table: TableRow) -> bool:
    """Tell whether the table's own options let autovacuum visit it."""
    return options_of(table).get("autovacuum_enabled", "true").lower() not in _OFF


def trigger_of(table: TableRow, catalog: Catalog) -> int:
    """Return how many dead rows bring autovacuum to the table."""
    rows = max(table.rows, 0.0)
    trigger = parameter(table, catalog, "autovacuum_vacuum_threshold")
    trigger += parameter(table, catalog, "autovacuum_vacuum_scale_factor") * rows
    most = parameter(table, catalog, "autovacuum_vacuum_max_threshold")
    return int(min(trigger, most) if most >= 0 else trigger)


def threshold_for(
    making: float, naptime_s: float, *, least: int = LEAST_THRESHOLD, most: int = MOST_THRESHOLD
) -> tuple[int, float]:
    """Return the threshold (dead rows) and the period (seconds) that it gives at ``making`` dead rows per second.

    One naptime's worth of dead rows is the least that can be had; it is rounded to two digits and kept between ``least`` and
    ``most``.
    """
    wanted = making * naptime_s
    digits = max(len(str(int(wanted))) - 2, 0)
    rounded = round(wanted, -digits)
    threshold = int(min(max(rounded, least), most))
    return threshold, max(threshold / making, naptime_s)


@dataclass(frozen=True, slots=True, kw_only=True)
class LeafUpkeep:
    """One table, or one partition, between two vacuums."""

    table: TableRow
    counters: TableCounterRow
    dead: int
    trigger: int
    enabled: bool
    making: float
    """Dead rows per second that only vacuum can remove.

    A page gets rid of the old versions of heap-only updates by itself, when it is next read. Each deleted row and each
    update that is not heap-only leaves a line pointer that n_dead_tup counts until vacuum has cleaned the indexes.
    """

    @property
    def beyond(self) -> float:
        """Dead rows as a multiple of the trigger."""
        return self.dead / max(self.trigger, 1)


def overdue_s(queue: Queue, leaf: LeafUpkeep) -> float | None:
    """Seconds since the dead rows passed the trigger, at today's rate; None where they have not.

    A vacuum that passed since leaves what it could not remove: then it was passed at the latest when vacuum ended. So it was
    where autovacuum has only analyzed the table: it looks at both triggers in one visit. Rows that a statement for thousands
    makes at once are not of today's rate: when they came is not known, and they may just have come.
    """
    if leaf.dead <= leaf.trigger:
        return None
    counters = leaf.counters
    ages = (counters.last_autovacuum_s, counters.last_vacuum_s, counters.last_autoanalyze_s)
    since_visit = min((age for age in ages if age is not None), default=None)
    beyond = leaf.dead - leaf.trigger - made_at_once(queue)
    if beyond <= 0:
        return 0.0
    if leaf.making <= 0:
        return since_visit if since_visit is not None else float("inf")
    grown = beyond / leaf.making
    return grown if since_visit is None else min(grown, since_visit)


def made_at_once(queue: Queue) -> int:
    """Return the rows that statements for BULK_ROWS and more per call have updated or deleted since they are counted."""
    bulk = {
        one.key: one.all_rows
        for kind in ("update", "delete")
        for one, _ in queue.writes(kind)
        if one.all_calls and one.all_rows >= BULK_ROWS * one.all_calls
    }
    return sum(bulk.values())


def leaves_of(seen: Observation, queue: Queue) -> tuple[LeafUpkeep, ...]:
    """Return the queue's tables with their counters, the one furthest beyond its trigger first."""
    before = {row.oid: row for row in seen.first.tables}
    after = {row.oid: row for row in queue.counters}
    found = [
        LeafUpkeep(
            table=leaf,
            counters=after[leaf.oid],
            dead=after[leaf.oid].dead,
            trigger=trigger_of(leaf, queue.catalog),
            enabled=enabled_for(leaf),
            making=_lasting(before.get(leaf.oid), after[leaf.oid]) / seen.seconds
            if seen.seconds > 0
            else 0.0,
        )
        for leaf in queue.leaves
        if leaf.oid in after
    ]
    return tuple(sorted(found, key=lambda one: (-one.beyond, -one.dead, one.table.oid)))


def _lasting(before: TableCounterRow | None, after: TableCounterRow) -> int:
    """A table that was not counted at first, or whose counters were reset meanwhile, tells nothing."""
    if before is None:
        return 0
    deleted, updated = after.deleted - before.deleted, after.updated - before.updated
    return (
        max(0, deleted + updated - (after.hot_updated - before.hot_updated))
        if min(deleted, updated) >= 0
        else 0
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class HeldHorizon:
    """Why vacuum cannot remove what it finds: one holder, or short transactions that follow one another."""

    holder: Holder | None
    age: int
    """Transactions by which the horizon stays behind."""


def held_horizon(seen: Observation) -> HeldHorizon | None:
    """Return what keeps vacuum from removing dead rows, or None where nothing does for longer than HELD_S."""
    for one in horizon.of(seen).holders:
        if one.seconds is not None and one.seconds < HELD_S:
            continue
        if horizon.stayed(seen, one) or (one.seconds is not None and one.seconds >= seen.seconds):
            return HeldHorizon(holder=one, age=one.age)
    least = horizon.least_age(seen)
    return HeldHorizon(holder=None, age=least) if least >= HELD_AGE else None
