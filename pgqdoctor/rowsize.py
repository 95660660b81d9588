"""How much space rows and index entries need: estimates from the planner's statistics, page layout as in bufpage.h.

All sizes are bytes. An estimate is None where a column's width is not known: the role may not read the table, or ANALYZE has
never run.
"""

from __future__ import annotations

import math
from typing import Final

from pgqdoctor.indexfacts import mentioned_columns
from pgqdoctor.pageroom import ALIGNMENT_BYTES, PAGE_BYTES, PAGE_HEADER_BYTES, ROW_OVERHEAD_BYTES
from pgqdoctor.queue import Queue
from pgqdoctor.rows import IndexRow

HEAP_PAGE_SPACE: Final = PAGE_BYTES - PAGE_HEADER_BYTES
"""A page without its header."""
BTREE_PAGE_SPACE: Final = HEAP_PAGE_SPACE - 16
"""A btree page without its header and its special space."""
BTREE_FILLFACTOR: Final = 0.9
"""How full CREATE INDEX leaves a btree's leaf pages by default."""
ENTRY_OVERHEAD: Final = 12
"""Index tuple header of 8 bytes and a line pointer of 4."""


def row_bytes(queue: Queue) -> int | None:
    """Return what an average row takes up on its page; values stored out of line count as their pointers."""
    return _aligned(queue, frozenset(one.name for one in queue.columns), ROW_OVERHEAD_BYTES)


def entry_bytes(queue: Queue, index: IndexRow) -> int | None:
    """Return what an entry of a btree takes up on its page at most: equal keys may share one (13 and newer)."""
    if index.has_expressions:
        return None
    by_number = {row.number: row.name for row in queue.columns}
    names = frozenset(
        by_number[one] for one in (*index.key_columns, *index.included_columns) if one in by_number
    )
    return _aligned(queue, names, ENTRY_OVERHEAD)


def indexed_data(queue: Queue, index: IndexRow, rows: float) -> float | None:
    """Return the bytes of the columns an index reads, over ``rows`` rows."""
    names = mentioned_columns(queue, index)
    width = _aligned(queue, names, 0) if names is not None else None
    return None if width is None else width * rows


def _aligned(queue: Queue, names: frozenset[str], overhead: int) -> int | None:
    width = 0.0
    for column in queue.columns:
        if column.name not in names:
            continue
        if column.average_width is None:
            return None
        width += column.average_width * (1 - (column.null_fraction or 0.0))
    return math.ceil(width / ALIGNMENT_BYTES) * ALIGNMENT_BYTES + overhead


def heap_pages(rows: float, row: int, fillfactor: int) -> float:
    """Return how many heap pages ``rows`` rows of ``row`` bytes need at a fillfactor (percent)."""
    per_page = max(1, int(HEAP_PAGE_SPACE * fillfactor / 100) // max(row, 1))
    return math.ceil(max(rows, 0.0) / per_page)


def btree_pages(rows: float, entry: int) -> float:
    """Return how many pages a freshly built btree of ``rows`` entries needs, its metapage and root included."""
    per_page = max(1, int(BTREE_PAGE_SPACE * BTREE_FILLFACTOR) // max(entry, 1))
    leaves = math.ceil(max(rows, 0.0) / per_page)
    return leaves + leaves / max(per_page - 1, 1) + 2
