"""How much room heap-only updates need on a page, and the fillfactor that leaves it.

A heap-only tuple (HOT) update puts the new row version on the page of the old one. The old version's place comes free only when
no transaction can see it any more and the page is next pruned, so a page must hold its rows and the versions made meanwhile.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

from pgqdoctor import vacuuming
from pgqdoctor.observation import Observation
from pgqdoctor.queue import Queue
from pgqdoctor.rows import TableRow
from pgqdoctor.sampled import sampled
from pgqdoctor.words import count, duration, plural

PAGE_BYTES: Final = 8192
PAGE_HEADER_BYTES: Final = 24
ROW_OVERHEAD_BYTES: Final = 28
"""Heap tuple header of 23 bytes, aligned to 24, and its line pointer of 4 (heap layout in bufpage.h, htup_details.h)."""
ALIGNMENT_BYTES: Final = 8
LEAST_LAG_S: Final = 1.0
"""Seconds a version must be kept at least: shorter transactions are not told apart by the samples."""
STEP: Final = 5
"""Percent: a fillfactor is rounded down to a multiple of it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PageRoom:
    """How a fillfactor was computed."""

    row_bytes: int
    """A row with its header and line pointer, as it takes up a page."""
    rows_per_page: int
    updates_per_life: float | None
    updates_per_page: float
    """Updates a page gets while its old versions cannot yet be pruned."""
    lag_s: float
    spare: int
    """Row versions that a page shall have room for."""
    fillfactor: int

    def heap_only_share(self, fillfactor: int) -> float:
        """Return the share of the updates without an index in their way that find room on pages filled to ``fillfactor``.

        (versions that fit - rows put on the page) / versions needed, at most 1. Measured on 14 to 18 with 1,000 rows updated once in
        one transaction, where a page needs room for all of its rows: the share of heap-only updates is that of the formula.
        """
        filled = max(1, self.rows_per_page * fillfactor // 100)
        return min(1.0, (self.rows_per_page - filled) / self.spare)

    def arithmetic(self) -> tuple[str, ...]:
        """Return how the fillfactor comes about, a line per step."""
        lives = (
            ""
            if self.updates_per_life is None
            else f"; a row is updated {count(self.updates_per_life)} times in its life"
        )
        left = 100 * (self.rows_per_page - self.spare) // self.rows_per_page
        return (
            f"a page of {PAGE_BYTES:,} bytes holds {plural(self.rows_per_page, 'row')} of {self.row_bytes:,} bytes",
            f"each page is updated {count(self.updates_per_page)} times in the {duration(self.lag_s)} before old versions can be pruned{lives}: "
            f"room for {plural(self.spare, 'version')} is needed",
            f"{count(self.rows_per_page - self.spare)} of {count(self.rows_per_page)} rows are {left}% of the page; in steps of {STEP}, "
            f"fillfactor {self.fillfactor}",
        )

    def reason(self) -> str:
        """Return in one clause why pages need this fillfactor."""
        return f"each page needs room for {plural(self.spare, 'more version')} beside its {plural(self.rows_per_page - self.spare, 'row')}"


def page_room(seen: Observation, queue: Queue, *, least: int = 50, most: int = 90) -> PageRoom | None:
    """Compute a fillfactor from the row's width, the updates per row's life and how soon pages can be pruned.

    A page must hold its rows and the versions that may not be pruned yet: those of transactions younger than the oldest one
    running (``lag_s``, as sampled, one second at least). More than the updates of a row's life are never needed. ``least`` and
    ``most`` bound the fillfactor, in percent. None where fewer than two rows fit on a page, or nothing tells the width.
    """
    row_bytes = row_bytes_of(queue)
    if row_bytes is None:
        return None
    per_page = (PAGE_BYTES - PAGE_HEADER_BYTES) // row_bytes
    if per_page < 2:
        return None
    inserted = sum(row.inserted for row in queue.counters)
    updated = sum(row.updated for row in queue.counters)
    life = updated / inserted if inserted else None
    pages = max(sum(leaf.pages for leaf in queue.leaves), 1)
    lag = max(LEAST_LAG_S, sampled(seen).oldest_s)
    meanwhile = queue.churn.per_second(queue.churn.updated) * lag / pages
    spare = math.ceil(1 + meanwhile)
    if life is not None:
        spare = min(spare, math.ceil(per_page * max(life, 1 / per_page)))
    percent_left = 100 * (per_page - spare) / per_page
    rounded = int(percent_left // STEP * STEP)
    return PageRoom(
        row_bytes=row_bytes,
        rows_per_page=per_page,
        updates_per_life=life,
        updates_per_page=meanwhile,
        lag_s=lag,
        spare=spare,
        fillfactor=min(max(rounded, least), most),
    )


def row_bytes_of(queue: Queue) -> int | None:
    """Return what a row takes up on a page in bytes, from pg_stats, else from the table's pages over its rows."""
    widths = [column.average_width for column in queue.columns]
    if widths and all(width is not None for width in widths):
        data = sum(
            (width or 0) * (1 - (column.null_fraction or 0.0))
            for width, column in zip(widths, queue.columns, strict=True)
        )
        return math.ceil(data / ALIGNMENT_BYTES) * ALIGNMENT_BYTES + ROW_OVERHEAD_BYTES
    rows = sum(max(leaf.rows, 0.0) for leaf in queue.leaves)
    pages = sum(leaf.pages for leaf in queue.leaves)
    if rows < 1 or pages < 1:
        return None
    return max(ROW_OVERHEAD_BYTES, int(pages * (PAGE_BYTES - PAGE_HEADER_BYTES) / rows))


def fillfactor_of(table: TableRow) -> int:
    """Return a table's fillfactor in percent: the option, or PostgreSQL's default of 100."""
    return int(vacuuming.options_of(table).get("fillfactor", "100"))
