"""What a claim reads to find its job, computed: through the index that would serve it, and without one.

Buffers are those of the select that finds the job, as EXPLAIN (ANALYZE, BUFFERS) counts them for planfacts: a page visited twice
counts twice, the change of the row is left out. The formulas are compared with measured plans in tests/server/test_triangle.py.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from pgqdoctor import claiming
from pgqdoctor.pageroom import PAGE_BYTES
from pgqdoctor.queue import Queue
from pgqdoctor.rows import IndexRow
from pgqdoctor.sqlfacts import OrderKey
from pgqdoctor.sqlrewrite import quote_ident
from pgqdoctor.words import buffers as said_buffers
from pgqdoctor.words import count, plural

PAGE_USABLE_BYTES: Final = 8192 - 24 - 16
"""A btree page without its header and special space (nbtree.h)."""
LEAF_FILL: Final = 0.9
"""Default fillfactor of btree leaf pages (BTREE_DEFAULT_FILLFACTOR)."""
INNER_FILL: Final = 0.7
"""Fillfactor of btree pages above the leaves (BTREE_NONLEAF_FILLFACTOR)."""
ENTRY_HEADER_BYTES: Final = 8
LINE_POINTER_BYTES: Final = 4
UNKNOWN_WIDTH: Final = 8
"""Bytes of a column without statistics: a bigint, a timestamp."""
RANDOM_PAGE_COST: Final = 4.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ComputedClaim:
    """Buffers of one execution that finds its jobs, and the arithmetic, a line per step."""

    buffers: float
    arithmetic: tuple[str, ...]


def entry_bytes(queue: Queue, names: Sequence[str]) -> int:
    """Return the size of an index entry with these columns: header, and the columns' average widths, aligned to 8."""
    width = 0
    for name in names:
        row = queue.column(name)
        width += row.average_width if row is not None and row.average_width is not None else UNKNOWN_WIDTH
    return ENTRY_HEADER_BYTES + max(8, math.ceil(width / 8) * 8)


def height_of(entries: float, size: int) -> tuple[int, int]:
    """Return the pages from root to leaf of a btree of so many entries of ``size`` bytes, and the entries on a leaf page."""
    on_leaf = max(2, int(PAGE_USABLE_BYTES * LEAF_FILL / (size + LINE_POINTER_BYTES)))
    on_inner = max(2, int(PAGE_USABLE_BYTES * INNER_FILL / (size + LINE_POINTER_BYTES)))
    levels, pages = 1, math.ceil(max(entries, 1) / on_leaf)
    while pages > 1:
        pages = math.ceil(pages / on_inner)
        levels += 1
    return levels, on_leaf


def through_advised(queue: Queue, advice: claiming.IndexAdvice) -> ComputedClaim:
    """Return what a claim reads through an index that does not exist yet, as large a batch as its plan takes now."""
    ready = claiming.rows_in_ready_state(queue) if advice.predicate is not None else queue.rows
    return through_index(queue, advice.names, float(queue.rows if ready is None else ready), batch_of(queue))


def served(queue: Queue, advice: claiming.IndexAdvice) -> str:
    """Return what to expect of an advised index, as every remedy says it: "a claim reads about 3 buffers"."""
    return f"a claim reads about {said_buffers(through_advised(queue, advice).buffers)}"


def batch_of(queue: Queue) -> float:
    """Return the jobs that one claim takes, as its plan says; at least one."""
    return max(1.0, (queue.plan.facts.rows or 1.0) if queue.plan is not None else 1.0)


def through_index(queue: Queue, names: Sequence[str], entries: float, jobs: float) -> ComputedClaim:
    """Return what a claim of ``jobs`` jobs reads through an index on ``names`` that holds ``entries`` entries in the claim's order.

    pages from root to leaf + further leaf pages of a batch + one page per job
    """
    size = entry_bytes(queue, names)
    levels, on_leaf = height_of(entries, size)
    more = int(jobs // on_leaf)
    buffers = levels + more + jobs
    return ComputedClaim(
        buffers=buffers,
        arithmetic=(
            f"an index of {count(entries)} entries of {size} bytes, {on_leaf} on a leaf page, has {levels} pages from root to leaf",
            f"{levels + more} index pages and {plural(jobs, 'page')} of the table: {count(buffers)} buffers a claim",
        ),
    )


def without_index(
    queue: Queue, order: Sequence[OrderKey], left: Sequence[IndexRow], jobs: float
) -> ComputedClaim | None:
    """Return what a claim of ``jobs`` jobs reads where only the indexes ``left`` remain; None where the rows' states are not known.

    With an order and no index that gives it, every page of the table is read and sorted. Along an index in the claim's order, all
    consumed rows come before the first ready one, because a queue is consumed from its old end; how many heap pages they cost follows
    the planner's own interpolation by pg_stats.correlation (cost_index() in costsize.c):

        heap pages = C + r² * (P * C / N - C)

    for C consumed rows of N on P pages. Without an order, the scan ends at the first ready row after P * C / N pages.
    The planner takes the index where a share of 1 / ready rows of its whole scan is cheaper than reading the table.
    """
    pages, rows = pages_of(queue), queue.rows
    if pages <= 0 or rows <= 0:
        return None
    ready = claiming.rows_in_ready_state(queue)
    along = order_index(queue, order, left)
    if order and along is None:
        return ComputedClaim(
            buffers=pages,
            arithmetic=(f"no index gives the order: all {count(pages)} pages of the table, sorted",),
        )
    if ready is None:
        return None
    consumed = max(rows - ready, 0)
    low = math.ceil(pages * consumed / rows)
    share = f"of {count(rows)} rows {count(ready)} are in a ready state; {count(consumed)} others stand before the first of them"
    if along is None:
        buffers = min(pages, low + jobs)
        return ComputedClaim(
            buffers=buffers,
            arithmetic=(
                share,
                f"that part of the table's {count(pages)} pages is read first: {count(buffers)} buffers a claim",
            ),
        )
    names = queue.index_columns(along)
    levels, on_leaf = height_of(rows, entry_bytes(queue, names))
    first = queue.column(names[0])
    correlation = first.correlation if first is not None and first.correlation is not None else 0.0
    heap = consumed + correlation**2 * (low - consumed)
    buffers = levels + consumed // on_leaf + heap + jobs
    if _sorts_instead(queue, pages, rows, max(ready, 1), on_leaf, correlation):
        return ComputedClaim(
            buffers=pages,
            arithmetic=(
                share,
                f"reading and sorting all {count(pages)} pages is cheaper than walking {quote_ident(along.name)}",
            ),
        )
    return ComputedClaim(
        buffers=buffers,
        arithmetic=(
            share,
            f"along {quote_ident(along.name)}: {count(levels + consumed // on_leaf)} index pages and {count(heap + jobs)} visits of table pages "
            f"(correlation {correlation:.2f}): {count(buffers)} buffers a claim",
        ),
    )


def pages_of(queue: Queue) -> int:
    """Return the pages of the table's main fork: as measured, else as pg_class has them."""
    if queue.probe is not None and queue.probe.table_bytes:
        return queue.probe.table_bytes // PAGE_BYTES
    return sum(leaf.pages for leaf in queue.leaves)


def order_index(queue: Queue, order: Sequence[OrderKey], indexes: Sequence[IndexRow]) -> IndexRow | None:
    """Return an index over all rows that begins with the first column of the claim's order, or None."""
    if not order or order[0].column is None:
        return None
    for index in indexes:
        if index.valid and index.method == "btree" and not index.has_predicate and not index.has_expressions:
            names = queue.index_columns(index)
            if names and names[0] == order[0].column:
                return index
    return None


def _sorts_instead(queue: Queue, pages: int, rows: int, ready: int, on_leaf: int, correlation: float) -> bool:
    text = queue.catalog.setting("random_page_cost")
    random_cost = float(text) if text else RANDOM_PAGE_COST
    # Mackert and Lohman's formula for a table that fits in the cache, as index_pages_fetched() has it.
    most = 2 * pages * rows / (2 * pages + rows) * random_cost
    least = random_cost + pages - 1
    whole = rows / on_leaf * random_cost + most + correlation**2 * (least - most)
    return whole / ready > pages
