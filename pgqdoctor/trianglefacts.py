"""What is said of a queue between claim index, fillfactor and heap-only updates: the corners, the knobs, the recommendation."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from pgqdoctor.finding import Remedy

CornerName = Literal["claim index, no HOT", "HOT, claims scan", "both", "neither"]
Action = Literal["leave", "create-index", "use-index", "remove-blocker", "set-fillfactor"]
KnobVerdict = Literal["keep", "change", "cannot help", "does not pay", "not known"]


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
    """The one thing to do, which may be nothing.

    ``asked_by`` are keys of the findings whose remedy it is; empty where no finding asks for it.
    """

    action: Action
    title: str
    reason: str
    remedies: tuple[Remedy, ...] = ()
    asked_by: tuple[str, ...] = ()


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
