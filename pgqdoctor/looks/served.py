"""The look at when jobs of a queue were taken before, who may take one now, and whether the queue is paused."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import psycopg
from psycopg import sql

from pgqdoctor import serving, upkeep
from pgqdoctor.connect import in_schema, quote
from pgqdoctor.discovery.seen import SeenText, query_id_of
from pgqdoctor.looks.jobs import MOST_ROWS
from pgqdoctor.looks.look import LOOK_TIMEOUT_MS, QueueLook
from pgqdoctor.looks.times import instant, is_time, ready_since
from pgqdoctor.observation import ServedProbe


def served_jobs(
    look: QueueLook, texts: tuple[SeenText, ...], oldest_ready_age_s: float | None
) -> ServedProbe | None:
    """Where a ready job has waited for a while, look when jobs were taken before, and who may take one."""
    age, since, ready = oldest_ready_age_s, ready_since(look), look.identity.ready_predicate
    if age is None or age < serving.LATE_S or since is None or ready is None:
        return None
    roles = look.identity.roles
    times = {
        name: instant(look, name)
        for name in (roles.claimed_at, roles.finished_at)
        if name is not None and name in look.columns and is_time(look.columns[name])
    }
    rows = look.estimated_rows
    key = _numbered_key(look)
    kind = serving.kind_column(look.columns.values())
    probe = ServedProbe()
    if times and (key is not None or rows <= MOST_ROWS):
        query = serving.taken_before(
            table=look.table,
            key=key if rows > MOST_ROWS else None,
            ready=ready,
            since=since,
            taken=tuple(times.values()),
            ran=(instant(look, roles.claimed_at), instant(look, roles.finished_at))
            if len(times) == 2 and roles.claimed_at is not None and roles.finished_at is not None
            else None,
            kind=sql.Identifier(kind) if kind is not None else None,
            most=MOST_ROWS,
        )
        found = look.bounded("served", query)
        if found:
            probe = ServedProbe(
                column=next(iter(times)),
                kind_column=kind or "",
                kinds=tuple(serving.kind_told(one) for one in found),
            )
    try:
        return replace(probe, **_asking(look, texts), paused=_paused(look))
    except psycopg.Error as error:
        look.failed("served", error)
        return probe


def _numbered_key(look: QueueLook) -> sql.Identifier | None:
    """The column of whole numbers that counts the jobs and leads an index, None for another kind of key."""
    key = look.identity.roles.key
    row = look.columns.get(key[0]) if len(key) == 1 else None
    if row is None or row.type_name not in ("bigint", "integer", "smallint"):
        return None
    indexes = look.catalog.indexes_of(look.identity.oid)
    led = any(
        one.valid and not one.has_predicate and one.method == "btree" and one.key_columns[:1] == (row.number,)
        for one in indexes
    )
    return sql.Identifier(row.name) if led else None


def _asking(look: QueueLook, texts: tuple[SeenText, ...]) -> dict[str, Any]:
    """Look who is connected that has asked for jobs, and since when statements are counted."""
    mine = {look.identity.table, *(leaf.name for leaf in look.catalog.partitions_of(look.identity.oid))}
    written = {name.replace('"', '""') for name in mine}
    keys = set(look.identity.claim_keys) | {
        one.key
        for one in texts
        if query_id_of(one.key) is not None and any(name in one.text for name in written)
        for statement in one.read().statements
        for write in statement.writes
        if write.kind in ("update", "delete")
        and write.table.name in mine
        # Who clears away finished jobs, or ages those that wait, is no worker.
        and not upkeep.clears(look.identity, statement, lambda table: table.name in mine)
        and not upkeep.ages(look.identity, statement, lambda table: table.name in mine)
    }
    found = look.session.records(
        serving.LAST_ASKED,
        {"ids": [number for key in keys if (number := query_id_of(key)) is not None]},
        statement_timeout_ms=look.budget.milliseconds(LOOK_TIMEOUT_MS),
    )[0]
    extension = look.link.server.extension("pg_stat_statements")
    if extension is None or look.link.server.statements != "ready":
        return found
    try:
        age = look.session.records(
            in_schema(serving.STATEMENTS_AGE, extension.schema),
            statement_timeout_ms=look.budget.milliseconds(LOOK_TIMEOUT_MS),
        )
    except psycopg.errors.UndefinedTable:  # before version 1.9 of the extension
        return found
    return {**found, "statements_age_s": age[0]["age"]}


def _paused(look: QueueLook) -> str | None:
    """Return the column of a neighbouring table that says that a queue is paused."""
    near = serving.neighbours(look.identity, look.catalog.tables)
    if not near:
        return None
    columns = look.session.records(
        serving.PAUSE_COLUMNS,
        {"oids": [row.oid for row in near]},
        statement_timeout_ms=look.budget.milliseconds(LOOK_TIMEOUT_MS),
    )
    for row, column, condition in serving.pause_conditions(near, columns):
        query = sql.SQL("SELECT count(*) AS rows FROM (SELECT 1 FROM {table} WHERE {paused} LIMIT 1) q")
        found = look.bounded(
            "served", query.format(table=sql.Identifier(row.schema, row.name), paused=condition)
        )
        if found and found[0]["rows"]:
            return f"{quote(row.schema)}.{quote(row.name)}.{quote(column)}"
    return None
