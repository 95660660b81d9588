"""An index of the queue is written for every job and read by nobody.

Each insert and each update that is not heap-only writes an entry into every index of the table, and vacuum reads every index
whole. An index that nothing has scanned while its counters were kept long enough costs that for nothing. So does an invalid
one, the remnant of a CREATE INDEX CONCURRENTLY that failed: it is maintained, and no query can use it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated

from pgqdoctor import indexfacts, remedy
from pgqdoctor.check import COUNTERS, Check
from pgqdoctor.finding import Evidence, Finding
from pgqdoctor.observation import Observation
from pgqdoctor.queue import Queue
from pgqdoctor.rows import IndexRow
from pgqdoctor.words import duration, rate, size

PAGE_BYTES = 8192


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """When an index counts as unused."""

    counters_age_s: Annotated[
        float,
        "seconds for which scans must have been counted: two weekly reports, and a month's end in most cases",
    ] = 14 * indexfacts.DAY_S
    entries_per_s: Annotated[float, "entries per second written into it: fewer are no burden"] = 1.0


def evaluate(seen: Observation, queue: Queue, limits: Limits) -> Iterator[Finding]:
    """Look for indexes that nothing needs, and for invalid ones."""
    churn = queue.churn
    written = churn.per_second(churn.inserted + churn.updated - churn.hot_updated)
    for index in queue.indexes:
        if not index.valid:
            if not _being_built(seen, index):
                yield _invalid(queue, index)
            continue
        if written < limits.entries_per_s or index.definition is None:
            continue
        if indexfacts.why_kept(seen, queue, index, least_age_s=limits.counters_age_s) is None:
            yield _unused(seen, queue, index, written)


def _being_built(seen: Observation, index: IndexRow) -> bool:
    """CREATE INDEX CONCURRENTLY holds SHARE UPDATE EXCLUSIVE on the table while it works: so may others, but then we wait."""
    return any(
        row.locktype == "relation" and row.relation == index.table and row.mode == "ShareUpdateExclusiveLock"
        for row in seen.last.locks
    )


def _bytes(queue: Queue, index: IndexRow) -> int:
    sizes = dict(queue.probe.index_sizes) if queue.probe is not None else {}
    return sizes.get(index.oid, index.pages * PAGE_BYTES)


def _unused(seen: Observation, queue: Queue, index: IndexRow, written: float) -> Finding:
    name = remedy.qualified(index.schema, index.name)
    age = indexfacts.counters_age_s(seen) or 0.0
    taken = size(_bytes(queue, index))
    partial = "up to " if index.has_predicate else ""
    return Finding(
        check=CHECK.id,
        severity="notice",
        queue=queue.name,
        subject=index.name,
        title=f"Nothing has used index {name} for {duration(age)}: {taken}, {partial}{rate(written)} entries written into it",
        why=(
            "It enforces nothing, no claim needs it, and no scan has been counted. Inserts and updates that are not heap-only "
            "write into it all the same, and each vacuum reads it whole."
        ),
        evidence=(
            Evidence(what="scans since the counters began", value=0, unit="", source="pg_stat_user_indexes"),
            Evidence(
                what="counters kept for",
                value=round(age),
                unit="seconds",
                source="pg_stat_database.stats_reset",
            ),
            Evidence(what="size", value=_bytes(queue, index), unit="bytes", source="pg_relation_size"),
            Evidence(
                what="entries written",
                value=round(written, 1),
                unit="per second",
                source="pg_stat_user_tables",
            ),
            Evidence(what="index", value=index.definition or name, unit="", source="pg_index"),
        ),
        remedies=(
            remedy.drop_index(
                schema=index.schema,
                name=index.name,
                definition=index.definition or "",
                title=f"Drop {name}, after asking whether a standby reads it: its scans are counted there",
                expect=f"{taken} less, and one entry less for each row written",
                risk="a rare report that would have used it reads the table instead; the undo builds it again",
            ),
        ),
        relations=tuple(sorted(queue.oids)),
    )


def _invalid(queue: Queue, index: IndexRow) -> Finding:
    name = remedy.qualified(index.schema, index.name)
    partitioned = queue.table.kind == "p"
    return Finding(
        check=CHECK.id,
        severity="notice",
        queue=queue.name,
        subject=index.name,
        title=f"Index {name} is invalid: it is written ({size(_bytes(queue, index))}) and no query can use it",
        why=(
            "CREATE INDEX on a partitioned table stays invalid until every partition has its index attached."
            if partitioned
            else "A CREATE INDEX CONCURRENTLY or REINDEX CONCURRENTLY failed and left it behind. It also keeps updates "
            "from being heap-only."
        ),
        evidence=(
            Evidence(what="size", value=_bytes(queue, index), unit="bytes", source="pg_relation_size"),
            Evidence(what="index", value=index.definition or name, unit="", source="pg_index"),
        ),
        remedies=()
        if partitioned
        else (
            remedy.statement(
                sql=(remedy.CONCURRENT_LOCK_TIMEOUT, f"REINDEX INDEX CONCURRENTLY {name};"),
                title=f"Build {name} anew, where it was wanted",
                expect="the index becomes valid",
                risk="reads the table twice, and waits for transactions that are older than itself",
                lock="SHARE UPDATE EXCLUSIVE",
            ),
            remedy.drop_index(
                schema=index.schema,
                name=index.name,
                definition=index.definition or "",
                title=f"Or drop {name}",
                expect="nothing is slower: no query could use it",
                risk="none: it is no use as it is",
            ),
        ),
        relations=tuple(sorted(queue.oids)),
    )


CHECK = Check(
    title="An index is not used",
    needs=(COUNTERS,),
    limits=Limits(),
    evaluate=evaluate,
    references=(
        "https://www.postgresql.org/docs/current/monitoring-stats.html#MONITORING-PG-STAT-ALL-INDEXES-VIEW",
    ),
    look_alikes=(
        "no scans on counters that are minutes old",
        "an index that enforces a constraint, is the replica identity or serves a foreign key",
        "the claim's index on a queue that was idle in the window",
        "an invalid index whose CREATE INDEX CONCURRENTLY still runs",
    ),
)
