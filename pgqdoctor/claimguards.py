"""Locks that workers take around their claims: on the queue's table, or advisory ones. Pure.

Such a lock makes an unguarded claim safe, and it makes the workers stand in line.
"""

from __future__ import annotations

from typing import Final

from pgqdoctor.observation import Observation
from pgqdoctor.queue import Queue
from pgqdoctor.sqlread import read_sql, text_fingerprint

TABLE: Final = "a lock on the table"
ADVISORY: Final = "an advisory lock"
WAITS: Final = {ADVISORY: "advisory", TABLE: "relation"}
"""The wait event of pg_stat_activity that shows the wait for each."""
PAIRED: Final = 0.15
"""Ratio by which two statements of one loop may differ in calls: a few are between the two when the window begins and ends."""
_FUNCTIONS: Final = ("pg_advisory_lock", "pg_advisory_xact_lock")


def guard_of(seen: Observation, queue: Queue, text: str) -> str | None:
    """Return what a statement locks that workers take around a claim of this queue, None where it takes no such lock.

    An advisory lock has no name: it belongs to the claims that run as often as it is taken.
    """
    if "lock" not in text.lower():
        return None
    for one in read_sql(text).statements:
        if one.kind == "lock" and queue.table.name.casefold() in one.text.casefold():
            return TABLE
        if any(called.rpartition(".")[2] in _FUNCTIONS for called in one.functions):
            claims = max(
                (
                    each.calls
                    for each in queue.statements
                    if any(queue.is_this(claim.table) for claim in each.statement.claims)
                ),
                default=0,
            )
            if claims and abs(calls_of(seen, text) - claims) <= PAIRED * claims:
                return ADVISORY
    return None


def guarded(seen: Observation, queue: Queue, claims: int) -> bool:
    """Tell whether a lock is taken around ``claims`` executions of the window.

    LOCK TABLE has no counters where those of the queue's statements alone were read: then that it was ever run has to do.
    """
    counted = {row.key for row in seen.last.statements}
    return any(
        row.text is not None
        and guard_of(seen, queue, row.text) is not None
        and (row.key not in counted or calls_of(seen, row.text) >= (1 - PAIRED) * claims)
        for row in seen.statement_texts
    )


def calls_of(seen: Observation, text: str) -> int:
    """Return the executions in the window of a statement, whatever its constants."""
    wanted = text_fingerprint(text)
    keys = {row.key for row in seen.statement_texts if row.text and text_fingerprint(row.text) == wanted}
    before = {row.key: row.calls for row in seen.first.statements}
    return sum(row.calls - before.get(row.key, 0) for row in seen.last.statements if row.key in keys)
