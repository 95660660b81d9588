"""Deleting a job scans a whole child table.

Each deleted row of the referenced table makes PostgreSQL look for its children, whatever ON DELETE says. Where no index of the
child begins with the foreign key's columns, that look reads the child from end to end, once for every job: a retention job
that deletes thousands runs for minutes, although its own plan is perfect.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated

from pgqdoctor import claiming, remedy
from pgqdoctor.check import COUNTERS, Check
from pgqdoctor.finding import Evidence, Finding, Remedy, Severity
from pgqdoctor.lint import definitions as lint_definitions
from pgqdoctor.observation import Observation
from pgqdoctor.queue import Queue
from pgqdoctor.rows import ForeignKeyRow
from pgqdoctor.sqlrewrite import quote_ident
from pgqdoctor.words import count, rate

LONGEST_NAME = 63
"""Bytes of an identifier that PostgreSQL keeps (NAMEDATALEN - 1)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """When an unindexed foreign key is felt."""

    child_rows: Annotated[
        int, "rows of the child table, from which a scan for each deleted job counts: some hundred pages"
    ] = 10_000
    rows_per_s: Annotated[
        float,
        "child rows read per second for deleted jobs, from which it is a warning: one core reads some ten million, so this is "
        "a percent of it",
    ] = 100_000.0


def evaluate(seen: Observation, queue: Queue, limits: Limits) -> Iterator[Finding]:
    """Look at the foreign keys that refer to the queue."""
    for key in queue.foreign_keys:
        if key.parent not in queue.oids or key.indexed:
            continue
        rows = _child_rows(seen, key)
        deleted = queue.churn.deleted
        read = _scanned(seen, key) if deleted else 0
        per_s = queue.churn.per_second(read)
        if rows < limits.child_rows and per_s < limits.rows_per_s:
            continue
        severity: Severity = "warning" if per_s >= limits.rows_per_s else "notice"
        yield _finding(seen, queue, key, rows, per_s, severity)


def _child_rows(seen: Observation, key: ForeignKeyRow) -> int:
    if key.child_rows >= 0:
        return round(key.child_rows)
    return next((row.live for row in seen.last.tables if row.oid == key.child), 0)


def _scanned(seen: Observation, key: ForeignKeyRow) -> int:
    """Rows that sequential scans of the child read in the window."""
    before = next((row for row in seen.first.tables if row.oid == key.child), None)
    after = next((row for row in seen.last.tables if row.oid == key.child), None)
    return max(0, after.seq_tup_read - before.seq_tup_read) if before is not None and after is not None else 0


def _finding(
    seen: Observation, queue: Queue, key: ForeignKeyRow, rows: int, per_s: float, severity: Severity
) -> Finding:
    child = seen.catalog.table(key.child)
    deletes = queue.churn.per_second(queue.churn.deleted)
    columns = ", ".join(quote_ident(column) for column in key.child_columns)
    felt = (
        f"{rate(deletes)} deletes read {rate(per_s)} of its {count(rows)} rows"
        if severity == "warning"
        else f"each deleted job will scan its {count(rows)} rows"
    )
    evidence = [
        Evidence(what="foreign key", value=key.name, unit="", source="pg_constraint"),
        Evidence(what="rows of the child", value=rows, unit="rows", source="pg_class.reltuples"),
        Evidence(
            what="jobs deleted", value=round(deletes, 1), unit="per second", source="pg_stat_user_tables"
        ),
        Evidence(
            what="child rows scanned", value=round(per_s, 1), unit="per second", source="pg_stat_user_tables"
        ),
    ]
    remedies: tuple[Remedy, ...] = ()
    if child is not None:
        name = f"{child.name}_{'_'.join(key.child_columns)}_idx".encode()[:LONGEST_NAME].decode(
            "utf-8", "ignore"
        )
        remedies = (
            remedy.create_index(
                schema=child.schema,
                table=child.name,
                name=name,
                columns=[quote_ident(column) for column in key.child_columns],
                predicate=None,
                title=f"Index {columns} of {key.child_name}",
                expect="each deleted job finds its children with one index look-up instead of a scan",
                risk="one more index that inserts into the child must write",
                partitioned=child.kind == "p",
                remnant=claiming.invalid_index(queue.catalog, child.schema, name),
            ),
        )
    return Finding(
        check=CHECK.id,
        severity=severity,
        queue=queue.name,
        subject=key.name,
        title=f"No index on {key.child_name} ({columns}) serves the foreign key {quote_ident(key.name)}: {felt}",
        why=(
            "The foreign key makes each delete look for rows that refer to the job. Without an index that begins with its columns "
            "the look is a scan of the whole child table, charged to the delete and not shown in its plan."
        ),
        evidence=tuple(evidence),
        remedies=remedies,
        relations=(*sorted(queue.oids), key.child),
    )


CHECK = Check(
    title="A foreign key onto the queue has no index",
    needs=(COUNTERS,),
    limits=Limits(),
    evaluate=evaluate,
    lint=lint_definitions.foreign_key_unindexed,
    references=("https://www.postgresql.org/docs/current/ddl-constraints.html#DDL-CONSTRAINTS-FK",),
    look_alikes=(
        "a child of a few rows",
        "a wider index that begins with the foreign key's columns",
        "the queue's own foreign key onto a table whose rows are never deleted",
    ),
)
