"""Finished jobs pile up in the table that workers claim from.

A finished job is history, and the queue's table is the worst place for it: it raises the dead rows that autovacuum waits for,
makes every index and backup larger, and where no partial index leaves it out, each claim walks over it. Deleting
finished jobs, or moving them to an archive, in small batches keeps the table as large as the work that is left; a
table partitioned by time lets them go with DROP TABLE, without a single dead row.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated

from pgqdoctor import remedy
from pgqdoctor.check import Check
from pgqdoctor.finding import Evidence, Finding, Remedy, Severity
from pgqdoctor.observation import Observation
from pgqdoctor.queue import Queue
from pgqdoctor.rows import ColumnRow
from pgqdoctor.sqlrewrite import quote_ident
from pgqdoctor.words import count, percent, size

BATCH = 10_000
"""Jobs moved per transaction: some ten milliseconds of work, so that nothing waits and the horizon moves on."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """When history is too much for the hot table."""

    share: Annotated[float, "share of finished jobs among all rows: below it most of the table is work"] = 0.8
    rows: Annotated[
        int, "finished jobs: from here on the default scale factor waits for 20,000 dead rows because of them"
    ] = 100_000
    felt_rows: Annotated[
        int, "finished jobs from which a claim that walks over them is reported: some hundred pages"
    ] = 10_000
    removed: Annotated[
        int, "rows a claim reads and refuses, from which it pays for the history: some ten pages of them"
    ] = 1_000


def evaluate(seen: Observation, queue: Queue, limits: Limits) -> Iterator[Finding]:
    """Count the finished jobs by state or by their time of finishing, as the statistics tell."""
    found = _finished(queue)
    if found is None:
        return
    rows, condition, source = found
    everything = max(queue.rows, rows, 1)
    facts = queue.plan.facts if queue.plan is not None else None
    removed = (facts.rows_removed_by_filter or 0) if facts is not None else 0
    pays = removed >= limits.removed
    if rows < limits.share * everything or rows < (limits.felt_rows if pays else limits.rows):
        return
    severity: Severity = "warning" if pays else "notice"
    share = rows / everything
    held = queue.probe.table_bytes if queue.probe is not None else None
    said = f", {size(held * share)} of {size(held)}" if held else ""
    evidence = [
        Evidence(what="finished jobs", value=rows, unit="rows", source=source),
        Evidence(what="rows", value=everything, unit="rows", source="pg_class.reltuples"),
        Evidence(what="share", value=round(share, 3), unit="ratio", source=source),
    ]
    if held:
        evidence.append(Evidence(what="table", value=held, unit="bytes", source="pg_relation_size"))
    if facts is not None:
        evidence.append(
            Evidence(
                what="rows a claim reads and refuses",
                value=removed,
                unit="rows",
                source="EXPLAIN (ANALYZE, BUFFERS)",
            )
        )
    yield Finding(
        check=CHECK.id,
        severity=severity,
        queue=queue.name,
        title=(
            f"{percent(share)} of {queue.name} are finished jobs: {count(rows)} rows{said}"
            + (f", and a claim reads {count(removed)} rows in vain" if pays else "")
        ),
        why=(
            "Nobody will claim them again. They put off autovacuum, whose trigger grows with the rows, and take up pages, index "
            "entries and backups."
            + (
                " The claim walks over them, because no index leaves them out."
                if pays
                else " The claim does not walk over them now."
            )
        ),
        evidence=tuple(evidence),
        remedies=tuple(_remedies(queue, condition)),
        relations=tuple(sorted(queue.oids)),
    )


def _finished(queue: Queue) -> tuple[int, str, str] | None:
    """Finished jobs, the condition that finds them and where the number comes from."""
    roles, identity = queue.identity.roles, queue.identity
    if (
        roles.state is not None
        and identity.finished_values
        and queue.probe is not None
        and queue.probe.states
    ):
        rows = sum(one.rows for one in queue.probe.states if one.value in identity.finished_values)
        listed = ", ".join(remedy.literal(value).strip() for value in identity.finished_values)
        return rows, f"{quote_ident(roles.state)} IN ({listed})", "pg_stats"
    column = _finished_at(queue)
    if column is None or column.null_fraction is None or column.not_null:
        return None
    return (
        round((1 - column.null_fraction) * queue.rows),
        f"{quote_ident(column.name)} IS NOT NULL",
        "pg_stats",
    )


def _finished_at(queue: Queue) -> ColumnRow | None:
    """The time of finishing; a time that acts as the state and marks no claim is one too."""
    roles = queue.identity.roles
    if roles.finished_at is not None:
        return queue.column(roles.finished_at)
    if roles.state is None or roles.state in (roles.claimed_at, roles.lease, roles.heartbeat):
        return None
    column = queue.column(roles.state)
    return column if column is not None and column.type_category == "D" else None


def _remedies(queue: Queue, condition: str) -> Iterator[Remedy]:
    if len(queue.identity.roles.key) != 1:
        return
    key = quote_ident(queue.identity.roles.key[0])
    archive = remedy.qualified(queue.table.schema, f"{queue.table.name}_archive")
    columns = ", ".join(quote_ident(one.name) for one in queue.columns if not one.generated)
    yield remedy.statement(
        sql=(
            f"CREATE TABLE IF NOT EXISTS {archive} (LIKE {queue.name});",
            _loop(
                queue.name,
                key,
                condition,
                f"kept AS (INSERT INTO {archive} ({columns}) SELECT {columns} FROM gone RETURNING {key})",
                "kept",
            ),
        ),
        undo=(
            f"INSERT INTO {queue.name} ({columns}) OVERRIDING SYSTEM VALUE SELECT {columns} FROM {archive};",
            f"DROP TABLE {archive};",
        ),
        title=f"Move finished jobs to {archive}, {count(BATCH)} at a time",
        expect=(
            "each batch commits by itself; run it again at intervals. The table's pages are used again by new jobs, and VACUUM FULL "
            "would give them back"
        ),
        risk=(
            "not inside a transaction block; leaves a dead row for each job moved, and fails where another table's foreign key still "
            "refers to one"
        ),
        lock="ROW EXCLUSIVE",
    )
    finished_at = _finished_at(queue)
    if finished_at is not None:
        old = f"{condition} AND {quote_ident(finished_at.name)} < now() - interval '30 days'"
        yield remedy.statement(
            sql=(_loop(queue.name, key, old, "", "gone"),),
            title="Or delete those finished more than 30 days ago (put your own period), in batches",
            expect="each batch commits by itself; put it into a daily job",
            risk="the jobs deleted are gone; there is no way back but a backup",
            lock="ROW EXCLUSIVE",
        )


def _loop(table: str, key: str, condition: str, also: str, last: str) -> str:
    """A DO block that walks the key in batches, so that no batch reads what an earlier one has deleted."""
    more = f",\n         {also}" if also else ""
    return f"""DO $pgqdoctor$
DECLARE
  reached {table}.{key}%TYPE;
BEGIN
  SELECT q.{key} INTO reached FROM {table} q ORDER BY q.{key} LIMIT 1;
  LOOP
    WITH batch AS MATERIALIZED (
           SELECT q.{key} FROM {table} q WHERE q.{key} >= reached AND {condition}
            ORDER BY q.{key} LIMIT {BATCH} FOR UPDATE SKIP LOCKED),
         gone AS (DELETE FROM {table} WHERE {key} = ANY (ARRAY(SELECT b.{key} FROM batch b)) RETURNING *){more}
    SELECT l.{key} INTO reached FROM {last} l ORDER BY l.{key} DESC LIMIT 1;
    EXIT WHEN NOT FOUND;
    COMMIT;
  END LOOP;
END
$pgqdoctor$;"""


CHECK = Check(
    title="Finished jobs are kept in the queue",
    needs=(),
    limits=Limits(),
    evaluate=evaluate,
    references=("https://www.postgresql.org/docs/current/ddl-partitioning.html",),
    look_alikes=(
        "some thousand finished jobs that a partial index leaves out",
        "a backlog of jobs scheduled for later",
    ),
)
