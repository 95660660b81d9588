"""A large column that is written again and again fills the queue's TOAST table.

Values that do not fit on a page are cut into chunks of about 2 kB in a table of their own. An UPDATE that sets such a column
writes all its chunks anew, and the old ones are dead. The queue's own pages stay few and clean meanwhile, so a look at
n_dead_tup of the queue finds nothing: the TOAST table has its own counters, its own trigger and its own options.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated

from pgqdoctor import indexfacts, remedy, vacuuming
from pgqdoctor.check import COUNTERS, Check
from pgqdoctor.finding import Evidence, Finding, Remedy, Severity
from pgqdoctor.observation import Observation
from pgqdoctor.queue import Queue
from pgqdoctor.rows import TableCounterRow, TableRow
from pgqdoctor.sqlrewrite import quote_ident
from pgqdoctor.words import count, duration, rate, shortened, size

CHUNK_BYTES = 2_048
"""Four chunks share a page (TOAST_TUPLES_PER_PAGE in heaptoast.h), with their headers."""
WIDE_TYPES = ("text", "jsonb", "json", "bytea", "xml", "character varying")


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """When a TOAST table is more than its values."""

    dead_chunks: Annotated[int, "dead chunks of 2 kB: 20 MB of them"] = 10_000
    times_live: Annotated[
        float, "dead chunks as a multiple of the live ones: as many as live is one full rewrite"
    ] = 2.0
    least_bytes: Annotated[
        int, "bytes without a live chunk, from which they are told: half the default shared_buffers"
    ] = 64 * 1024 * 1024
    share: Annotated[float, "share of the TOAST table without a live chunk: above it most of it is room"] = (
        0.8
    )
    chunks_per_s: Annotated[
        float,
        "chunks that die per second, from which it is a warning: 200 kB/s, a gigabyte in less than two hours",
    ] = 100.0


def evaluate(seen: Observation, queue: Queue, limits: Limits) -> Iterator[Finding]:
    """Look at the TOAST table of each leaf."""
    for leaf in queue.leaves:
        counters = next((row for row in seen.last.tables if row.oid == leaf.toast), None)
        if counters is None:
            continue
        before = next((row for row in seen.first.tables if row.oid == leaf.toast), None)
        dying = (
            max(0, counters.deleted - before.deleted) / seen.seconds
            if before is not None and seen.seconds > 0
            else 0.0
        )
        held = (queue.probe.toast_bytes or 0) if queue.probe is not None and len(queue.leaves) == 1 else 0
        spare = max(0, held - counters.live * CHUNK_BYTES)
        many = counters.dead >= limits.dead_chunks and counters.dead >= limits.times_live * counters.live
        large = spare >= limits.least_bytes and spare >= limits.share * held
        if many or large:
            severity: Severity = "warning" if dying >= limits.chunks_per_s and many else "notice"
            yield _finding(seen, queue, leaf, counters, dying, held, spare, many, severity)


def _finding(
    seen: Observation,
    queue: Queue,
    leaf: TableRow,
    counters: TableCounterRow,
    dying: float,
    held: int,
    spare: int,
    many: bool,
    severity: Severity,
) -> Finding:
    target = remedy.qualified(leaf.schema, leaf.name)
    columns, text = _written(seen, queue)
    held_back = vacuuming.held_horizon(seen)
    what = f"{count(counters.dead)} dead chunks beside {count(counters.live)} live ones"
    if not many:
        what = f"{size(spare)} of {size(held)} hold no live chunk"
    by = f", written by updates of {', '.join(map(quote_ident, columns))}" if columns else ""
    evidence = [
        Evidence(what="dead chunks", value=counters.dead, unit="rows", source="pg_stat_all_tables"),
        Evidence(what="live chunks", value=counters.live, unit="rows", source="pg_stat_all_tables"),
        Evidence(
            what="chunks that die", value=round(dying, 1), unit="per second", source="pg_stat_all_tables"
        ),
    ]
    if held:
        evidence.append(
            Evidence(what="TOAST table with index", value=held, unit="bytes", source="pg_total_relation_size")
        )
    if text is not None:
        evidence.append(
            Evidence(what="statement", value=shortened(text, 200), unit="", source="pg_stat_statements")
        )
    return Finding(
        check=CHECK.id,
        severity=severity,
        queue=queue.name,
        subject="" if len(queue.leaves) == 1 else leaf.name,
        title=f"The TOAST table of {target} is bloated: {what}{by}",
        why=(
            "Each update that sets a value stored out of line writes all its chunks anew, and the old ones wait for vacuum. "
            + (
                f"Vacuum may not remove them now: the horizon is held {count(held_back.age)} transactions back."
                if held_back is not None
                else "The table's own pages show nothing of it. Vacuum makes the room usable again; it gives back only empty pages at the end."
            )
        ),
        evidence=tuple(evidence),
        remedies=tuple(_remedies(queue, leaf, counters, dying, columns, many)) if held_back is None else (),
        relations=tuple(sorted(queue.oids)),
    )


def _written(seen: Observation, queue: Queue) -> tuple[tuple[str, ...], str | None]:
    """The wide columns that observed updates set, and the busiest such statement."""
    wide = {row.name for row in queue.columns if row.type_name.startswith(WIDE_TYPES)}
    found: list[str] = []
    text: str | None = None
    for one in indexfacts.seen_updates(seen, queue):
        columns = [name for name in one.columns if name in wide and name != queue.identity.roles.state]
        if columns and text is None:
            text = one.statement.text
        found.extend(columns)
    return tuple(dict.fromkeys(found)), text


def _remedies(
    queue: Queue,
    leaf: TableRow,
    counters: TableCounterRow,
    dying: float,
    columns: tuple[str, ...],
    many: bool,
) -> Iterator[Remedy]:
    target = remedy.qualified(leaf.schema, leaf.name)
    if many:
        yield from _vacuum(queue, leaf, counters, dying, target)
    if columns and dying > 0:
        names = ", ".join(map(quote_ident, columns))
        yield remedy.change_application(
            title=f"Write {names} once, when the job ends, or append to a table of its own: not with every sign of life",
            risk="a change of the application",
            expect=f"{rate(dying)} chunks no longer die; an update that leaves the column alone keeps its chunks",
        )
    if not many:
        yield Remedy(
            title=f"Write {target} anew, when the queue can pause",
            kind="sql",
            sql=(remedy.LOCK_TIMEOUT, f"VACUUM (FULL, ANALYZE) {target};"),
            undo=(),
            lock="ACCESS EXCLUSIVE",
            blocks="reads and writes",
            restart=False,
            risk=f"workers wait while about {size(counters.live * CHUNK_BYTES)} of values are written anew",
            expect="the TOAST table becomes as large as its values; it grows again where the cause remains",
        )


def _vacuum(
    queue: Queue, leaf: TableRow, counters: TableCounterRow, dying: float, target: str
) -> Iterator[Remedy]:
    """Let autovacuum come to the TOAST table in time, and clean it once now."""
    options = vacuuming.options_of(leaf)
    off = options.get("toast.autovacuum_enabled", "true").lower() in ("false", "off", "no", "0")
    naptime = vacuuming.parameter(leaf, queue.catalog, "autovacuum_naptime")
    threshold = max(1_000, round(dying * naptime, -2))
    wanted = {"toast.autovacuum_enabled": "true"} if off else {}
    if dying > 0:
        wanted["toast.autovacuum_vacuum_scale_factor"] = "0"
        wanted["toast.autovacuum_vacuum_threshold"] = str(round(threshold))
    if wanted and any(options.get(name) != value for name, value in wanted.items()):
        yield remedy.set_storage(
            target,
            wanted,
            options,
            title=f"Let autovacuum come to the TOAST table of {target} every {count(threshold)} dead chunks",
            expect=(
                f"{rate(dying)} chunks die; times a naptime of {duration(naptime)} that is a visit at each round, whatever the number of "
                "live chunks"
            ),
            risk="the TOAST table is vacuumed apart from the table, by a worker of its own",
        )
    yield remedy.statement(
        sql=(remedy.LOCK_TIMEOUT, f"VACUUM (TRUNCATE false) {target};"),
        title=f"Vacuum {target} with its TOAST table once, by hand",
        expect="the dead chunks become room for the next values; the file keeps its size",
        risk="reads both tables and their indexes once",
        lock="SHARE UPDATE EXCLUSIVE",
    )


CHECK = Check(
    title="The TOAST table is bloated",
    needs=(COUNTERS,),
    limits=Limits(),
    evaluate=evaluate,
    references=("https://www.postgresql.org/docs/current/storage-toast.html",),
    look_alikes=(
        "large payloads that are written once and deleted with the job",
        "updates that leave the large column alone",
        "a TOAST table just before its next autovacuum",
    ),
)
