"""An index of the queue takes far more pages than its entries need.

A queue's index grows at one end and empties at the other. Vacuum frees a btree page only when its last entry is gone, so one old
job per page keeps it; and a GIN index never gives pages back. Bloat of the claim's index is felt, if the claim has to walk
over pages that hold nothing for it; of other indexes it costs cache and disk.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated

from pgqdoctor import remedy, rowsize, vacuuming
from pgqdoctor.check import COUNTERS, Check
from pgqdoctor.finding import Evidence, Finding, Remedy, Severity
from pgqdoctor.observation import Observation
from pgqdoctor.pageroom import PAGE_BYTES
from pgqdoctor.planfacts import dead_walk
from pgqdoctor.queue import Queue
from pgqdoctor.rows import IndexRow, TableRow
from pgqdoctor.words import count, percent, size


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """When an index is larger than the ordinary wear makes it."""

    share: Annotated[
        float,
        "share of a btree's pages that its entries do not need: entries that come at random leave a third",
    ] = 0.7
    least_bytes: Annotated[
        int, "bytes not needed, from which they are told: an eighth of the default shared_buffers"
    ] = 16 * 1024 * 1024
    gin_factor: Annotated[
        float, "times the data indexed: a GIN index built anew is smaller than its data in most cases"
    ] = 4.0
    felt_buffers: Annotated[
        int, "buffers a claim reads beyond what it finds: ten times a clean index's three"
    ] = 30


def evaluate(seen: Observation, queue: Queue, limits: Limits) -> Iterator[Finding]:
    """Compare each index's file with what its entries need."""
    if queue.probe is None:
        return
    sizes = dict(queue.probe.index_sizes)
    walk = dead_walk(queue.plan.facts) if queue.plan is not None else None
    paid = walk.unexplained_buffers if walk is not None else 0
    used = {name for one in queue.plans for name in one.facts.indexes}
    for leaf in queue.leaves:
        for index in queue.catalog.indexes_of(leaf.oid):
            held = sizes.get(index.oid, 0)
            needed = _needed(queue, leaf, index, limits)
            if not index.valid or needed is None or held - needed < limits.least_bytes:
                continue
            if index.method == "btree" and held - needed < limits.share * held:
                continue
            felt = index.name in used and paid >= limits.felt_buffers
            yield _finding(seen, queue, index, held, needed, paid if felt else 0)


def _entries(queue: Queue, leaf: TableRow, index: IndexRow) -> float | None:
    """Entries by the statistics; for a partial index its own count, which vacuum and ANALYZE keep."""
    if not index.has_predicate:
        live = next((row.live for row in queue.counters if row.oid == leaf.oid), 0)
        return max(leaf.rows, live) if leaf.rows >= 0 else None
    return index.rows if index.rows >= 0 else None


def _needed(queue: Queue, leaf: TableRow, index: IndexRow, limits: Limits) -> float | None:
    """Bytes that the index may take; None where no estimate can be made."""
    measured = (
        next((one for one in queue.probe.measured if one.oid == index.oid), None) if queue.probe else None
    )
    if measured is not None:
        return measured.pages * measured.used / rowsize.BTREE_FILLFACTOR * PAGE_BYTES
    entries = _entries(queue, leaf, index)
    if entries is None:
        return None
    # Dead entries wait for vacuum in every index.
    entries += vacuuming.trigger_of(leaf, queue.catalog)
    if index.method == "btree":
        entry = rowsize.entry_bytes(queue, index)
        return None if entry is None else rowsize.btree_pages(entries, entry) * PAGE_BYTES
    if index.method == "gin":
        data = rowsize.indexed_data(queue, index, entries)
        return None if data is None else data * limits.gin_factor
    return None


def _finding(
    seen: Observation, queue: Queue, index: IndexRow, held: int, needed: float, paid: int
) -> Finding:
    name = remedy.qualified(index.schema, index.name)
    spare = held - needed
    severity: Severity = "warning" if paid else "notice"
    return Finding(
        check=CHECK.id,
        severity=severity,
        queue=queue.name,
        subject=index.name,
        title=(
            f"{percent(spare / held)} of index {name} ({size(spare)} of {size(held)}) is more than its entries need"
            + (f": a claim reads {count(paid)} buffers in vain" if paid else "")
        ),
        why=(
            "A GIN index keeps the pages of its largest day: vacuum removes entries and gives no page back."
            if index.method == "gin"
            else "A btree page is used again only when its last entry is gone. Jobs that stay behind, or dead entries that vacuum could "
            "not remove in time, keep pages that hold next to nothing."
        ),
        evidence=(
            Evidence(what="index", value=held, unit="bytes", source="pg_relation_size"),
            Evidence(
                what="needed at most",
                value=round(needed),
                unit="bytes",
                source="estimate from pg_stats and pg_class",
            ),
            Evidence(
                what="entries", value=round(max(index.rows, 0.0)), unit="rows", source="pg_class.reltuples"
            ),
            Evidence(what="definition", value=index.definition or name, unit="", source="pg_index"),
        ),
        remedies=tuple(_remedies(seen, name)),
        relations=tuple(sorted(queue.oids)),
    )


def _remedies(seen: Observation, name: str) -> Iterator[Remedy]:
    """A held horizon makes REINDEX CONCURRENTLY wait for its holder, and dead entries would come along."""
    if vacuuming.held_horizon(seen) is not None:
        return
    yield remedy.statement(
        sql=(remedy.CONCURRENT_LOCK_TIMEOUT, f"REINDEX INDEX CONCURRENTLY {name};"),
        title=f"Build {name} anew beside the old one",
        expect="the new index has only the entries there are, on full pages",
        risk=(
            "reads the table twice, takes the space of the new index meanwhile and waits for transactions older than itself; a failure "
            "leaves an invalid index with the suffix _ccnew to drop"
        ),
        lock="SHARE UPDATE EXCLUSIVE",
    )


CHECK = Check(
    title="An index is larger than its entries need",
    needs=(COUNTERS,),
    limits=Limits(),
    evaluate=evaluate,
    references=("https://www.postgresql.org/docs/current/routine-reindex.html",),
    look_alikes=(
        "a btree whose entries come at random, a third of it empty",
        "a small index with a page or two more than it needs",
        "dead entries that the next vacuum removes",
    ),
)
