"""The queue's table takes far more pages than its rows need.

A queue that once had a large backlog, or that vacuum could not clean for a while, keeps the pages of that day. New jobs use
them again, so spare room by itself is no fault. It is one where statements read the table from end to end: a claim or a
dashboard without a suitable index then reads empty pages, each time.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated

from pgqdoctor import remedy, rowsize, vacuuming
from pgqdoctor.check import COUNTERS, Check
from pgqdoctor.finding import Evidence, Finding, Remedy, Severity
from pgqdoctor.observation import Observation
from pgqdoctor.pageroom import PAGE_BYTES, fillfactor_of
from pgqdoctor.queue import Queue
from pgqdoctor.words import count, percent, rate, size

HEAP_SCANS = ("Seq Scan", "Bitmap Heap Scan", "Sample Scan")


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """When spare room is more than a queue needs between two vacuums, and when it hurts."""

    share: Annotated[float, "share of the pages that no row needs: half is what an ordinary ebb leaves"] = 0.5
    least_bytes: Annotated[
        int, "bytes not needed, from which they are told: as much as the default shared_buffers"
    ] = 128 * 1024 * 1024
    claim_buffers: Annotated[
        int, "buffers of needless pages that one claim reads: some hundred times a good claim"
    ] = 500
    scanned_per_s: Annotated[
        float, "buffers of needless pages that sequential scans read per second: 80 MB/s through the cache"
    ] = 10_000.0


def evaluate(seen: Observation, queue: Queue, limits: Limits) -> Iterator[Finding]:
    """Compare the file with what rows, and the dead rows of an ordinary day, need."""
    row = rowsize.row_bytes(queue)
    held = queue.probe.table_bytes if queue.probe is not None else None
    if row is None or not held or any(leaf.rows < 0 for leaf in queue.leaves):
        return
    pages = held / PAGE_BYTES
    leaves = vacuuming.leaves_of(seen, queue)
    # One row version for each live row, and the dead ones that wait for an ordinary vacuum.
    rows = max(queue.rows, queue.churn.live)
    ordinary = sum(
        max(one.trigger, one.making * vacuuming.parameter(one.table, queue.catalog, "autovacuum_naptime"))
        for one in leaves
    )
    fillfactor = min(fillfactor_of(leaf) for leaf in queue.leaves)
    measured = _measured_pages(queue, fillfactor)
    if measured is None:
        needed = rowsize.heap_pages(rows + ordinary, row, fillfactor) + len(queue.leaves)
    else:
        needed = measured + rowsize.heap_pages(ordinary, row, fillfactor)
    spare = max(0.0, pages - needed)
    share = spare / pages
    if share < limits.share:
        return
    facts = queue.plan.facts if queue.plan is not None else None
    by_claim = 0
    if facts is not None and facts.scan_type in HEAP_SCANS:
        by_claim = round((facts.scan_buffers or 0) * share)
    per_s = queue.churn.per_second(queue.churn.seq_scans) * spare / max(len(queue.leaves), 1)
    hurts = by_claim >= limits.claim_buffers or per_s >= limits.scanned_per_s
    if not hurts and spare * PAGE_BYTES < limits.least_bytes:
        return
    severity: Severity = "warning" if hurts else "notice"
    if by_claim >= limits.claim_buffers:
        harm = f": each claim reads {count(by_claim)} of its empty pages"
    elif per_s >= limits.scanned_per_s:
        harm = f": sequential scans read {rate(per_s)} empty pages"
    else:
        harm = ""
    yield Finding(
        check=CHECK.id,
        severity=severity,
        queue=queue.name,
        title=f"{percent(share)} of {queue.name} ({size(spare * PAGE_BYTES)} of {size(held)}) is more than its rows need{harm}",
        why=(
            "Vacuum makes room within the file and gives back only empty pages at its end. The room is used again by new jobs; "
            + (
                "until then every sequential scan reads it."
                if hurts
                else "no statement was seen that pays for it."
            )
        ),
        evidence=(
            Evidence(what="table", value=held, unit="bytes", source="pg_relation_size"),
            Evidence(what="rows", value=rows, unit="rows", source="pg_class.reltuples, pg_stat_user_tables"),
            Evidence(what="row with header", value=row, unit="bytes", source="pg_stats"),
            Evidence(what="fillfactor", value=fillfactor, unit="", source="pg_class.reloptions"),
            Evidence(
                what="dead rows of an ordinary day",
                value=round(ordinary),
                unit="rows",
                source="autovacuum's trigger",
            ),
            Evidence(
                what="pages needed",
                value=round(needed),
                unit="buffers",
                source="estimate" if measured is None else "pgstattuple_approx",
            ),
            Evidence(
                what="sequential scans",
                value=round(queue.churn.per_second(queue.churn.seq_scans), 2),
                unit="per second",
                source="pg_stat_user_tables",
            ),
        ),
        remedies=tuple(_remedies(seen, queue, row * rows)),
        relations=tuple(sorted(queue.oids)),
    )


def _measured_pages(queue: Queue, fillfactor: int) -> float | None:
    """Pages that what is in the table needs, where pgstattuple has measured all of it."""
    found = {one.oid: one for one in queue.probe.measured} if queue.probe is not None else {}
    if not all(leaf.oid in found for leaf in queue.leaves):
        return None
    return sum(found[leaf.oid].pages * found[leaf.oid].used for leaf in queue.leaves) * 100 / fillfactor


def _remedies(seen: Observation, queue: Queue, live_bytes: float) -> Iterator[Remedy]:
    """Rewriting helps only where the dead rows may go."""
    if vacuuming.held_horizon(seen) is not None:
        return
    for leaf in queue.leaves[:1] if len(queue.leaves) == 1 else ():
        target = remedy.qualified(leaf.schema, leaf.name)
        yield Remedy(
            title=f"Write {target} anew, when the queue can pause",
            kind="sql",
            sql=(remedy.LOCK_TIMEOUT, f"VACUUM (FULL, ANALYZE) {target};"),
            undo=(),
            lock="ACCESS EXCLUSIVE",
            blocks="reads and writes",
            restart=False,
            risk=(
                f"workers wait while about {size(live_bytes)} are written and the indexes are built; pg_repack does the same without the "
                "wait"
            ),
            expect="the file becomes as large as its rows; it grows again where the cause remains",
        )


CHECK = Check(
    title="The table is larger than its rows need",
    needs=(COUNTERS,),
    limits=Limits(),
    evaluate=evaluate,
    references=("https://www.postgresql.org/docs/current/routine-vacuuming.html#VACUUM-FOR-SPACE-RECOVERY",),
    look_alikes=(
        "an empty queue table whose spare room the next jobs use",
        "room that a fillfactor keeps free on purpose",
        "the dead rows between two ordinary vacuums",
    ),
)
