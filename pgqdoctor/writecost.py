"""What a job's updates write: index entries, and WAL where the server does not count it.

WAL record sizes follow the structures of xlogrecord.h, heapam_xlog.h and nbtxlog.h; tests/server/test_triangle.py compares them with
pg_stat_statements.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Final

from pgqdoctor.claimcost import LINE_POINTER_BYTES, entry_bytes
from pgqdoctor.indexfacts import SeenUpdate, columns_in, mentioned_columns
from pgqdoctor.pageroom import ROW_OVERHEAD_BYTES, row_bytes_of
from pgqdoctor.queue import Queue
from pgqdoctor.rows import IndexRow

BLOCK_BYTES: Final = 20
RECORD_BYTES: Final = 24 + BLOCK_BYTES + 2
"""Header of a WAL record, of its one block, and of its main data (XLogRecord, XLogRecordBlockHeader with RelFileLocator)."""
BTREE_INSERT_BYTES: Final = 2
HEAP_LOCK_BYTES: Final = 8
HEAP_DELETE_BYTES: Final = 8
HEAP_UPDATE_BYTES: Final = 14 + 5 + 4
"""xl_heap_update, xl_heap_header, and the lengths of what the new version shares with the old one at both ends."""
HEAP_INSERT_BYTES: Final = 3 + 5


def entry_wal(size: int) -> float:
    """Return the WAL bytes of one index entry of ``size`` bytes.

    The record of the insertion, and the page splits: each logs half a page for half a page of entries that arrive anywhere, nothing
    for entries that arrive at the end; half of the first is taken.
    """
    return RECORD_BYTES + BTREE_INSERT_BYTES + size + (size + LINE_POINTER_BYTES) / 2


def index_entry_bytes(queue: Queue, index: IndexRow) -> int:
    """Return the size of an index's entries; an expression counts as a bigint."""
    by_number = {row.number: row.name for row in queue.columns}
    return entry_bytes(
        queue, [by_number.get(one, "") for one in (*index.key_columns, *index.included_columns)]
    )


def entered(queue: Queue, index: IndexRow, update: SeenUpdate | None) -> float:
    """Return the share of an update's new versions (of inserted rows, for None) that get an entry in the index.

    Every one where it has no predicate. A claim leaves the ready state, so it enters no index whose predicate it sets; other updates
    enter one where they set the ready value. Where the predicate's columns are not set, the share of rows in the index stands for it.
    A new job is ready, so it enters every index about the state. BRIN has no entry per row.
    """
    if index.method == "brin":
        return 0.0
    if not index.has_predicate:
        return 1.0
    columns = columns_in(index.predicate) if index.predicate is not None else None
    state = queue.identity.roles.state
    if update is None:
        return 1.0 if columns and state in columns else _held(queue, index)
    if columns is not None and columns & set(update.columns):
        ready = queue.identity.ready_values
        back = any(one.column == state and one.value.strip("'") in ready for one in update.write.sets)
        return 1.0 if back and not update.claims else 0.0
    return _held(queue, index)


def entries(queue: Queue, indexes: Collection[IndexRow], update: SeenUpdate | None) -> float:
    """Return the index entries that one update which is not heap-only writes (one insert, for None)."""
    return sum(entered(queue, index, update) for index in indexes)


def entries_wal(queue: Queue, indexes: Collection[IndexRow], update: SeenUpdate | None) -> float:
    """Return the WAL bytes of those entries."""
    return sum(
        entered(queue, index, update) * entry_wal(index_entry_bytes(queue, index)) for index in indexes
    )


def heap_update_wal(queue: Queue, update: SeenUpdate) -> float:
    """Return the WAL bytes of an update's new row version on the same page.

    What it shares with the old version before the first and after the last changed column is left out, unless wal_level is
    logical. A claim that locks its row first logs that too.
    """
    lock = RECORD_BYTES + HEAP_LOCK_BYTES if update.claims else 0
    return RECORD_BYTES + HEAP_UPDATE_BYTES + _changed_bytes(queue, update) + lock


def moved_row_wal(queue: Queue, update: SeenUpdate) -> float:
    """Return the WAL bytes that a new version on another page takes beyond that: a second block, the rest of the row, the old one's lock."""
    row = (row_bytes_of(queue) or ROW_OVERHEAD_BYTES) - ROW_OVERHEAD_BYTES
    return BLOCK_BYTES + max(0.0, row - _changed_bytes(queue, update)) + RECORD_BYTES + HEAP_LOCK_BYTES


def _changed_bytes(queue: Queue, update: SeenUpdate) -> int:
    if queue.catalog.setting("wal_level") == "logical":
        # Logical decoding needs the whole row, so nothing of it is left out (log_heap_update() in heapam.c).
        return max(0, (row_bytes_of(queue) or ROW_OVERHEAD_BYTES) - ROW_OVERHEAD_BYTES)
    numbers = [row.number for name in update.columns if (row := queue.column(name)) is not None]
    return sum(
        row.average_width or 0
        for row in queue.columns
        if numbers and min(numbers) <= row.number <= max(numbers)
    )


def heap_insert_wal(queue: Queue) -> float:
    """Return the WAL bytes of an inserted row."""
    row = row_bytes_of(queue) or ROW_OVERHEAD_BYTES
    return RECORD_BYTES + HEAP_INSERT_BYTES + row - ROW_OVERHEAD_BYTES


def heap_delete_wal() -> float:
    """Return the WAL bytes of a deleted row."""
    return RECORD_BYTES + HEAP_DELETE_BYTES


def known_names(queue: Queue, index: IndexRow) -> frozenset[str]:
    """Return the columns an index depends on; every column where they cannot be told, so that nothing is promised."""
    columns = mentioned_columns(queue, index)
    return frozenset(row.name for row in queue.columns) if columns is None else columns


def blocking(queue: Queue, indexes: Sequence[IndexRow], columns: Collection[str]) -> tuple[IndexRow, ...]:
    """Return the indexes that keep an update of these columns from being heap-only."""
    return tuple(one for one in indexes if known_names(queue, one) & set(columns))


def _held(queue: Queue, index: IndexRow) -> float:
    return min(1.0, max(index.rows, 0.0) / queue.rows) if queue.rows > 0 else 1.0
