"""When jobs of a queue are usually taken, and who last took one: the statements of a bounded look, and what they tell.

A single look cannot tell a queue whose workers are gone from one that is drained once a night: in both, jobs wait and nobody
takes one. The jobs taken before can, where the table keeps them. Those are met by the key, at distances of 1, 2, 4, 8 ... from
the oldest and the newest ready job, a few at each step: the cost is the same however many jobs the table keeps, and the last
minutes are told as well as the last weeks. Workers that rest at night or at weekends leave few jobs to wait, too few to be met so:
those of the same hour some days and weeks ago are searched for, by halving the range of the key.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Any, Final

from psycopg import sql

from pgqdoctor.observation import QueueIdentity, ServedKind
from pgqdoctor.rows import ColumnRow, TableRow
from pgqdoctor.sqlwords import KINDS

LATE_S: Final = 60.0
"""Seconds that a ready job must have waited for the look to be taken: a busy queue never pays for it."""
STEPS: Final = 34
"""Distances from the oldest and the newest ready job, each twice the one before: the last is 17 thousand million keys away."""
AT_STEP: Final = 5
"""Jobs looked at per step."""
WIDTH: Final = 64
"""Keys that one step searches at most: where deleted jobs have left their index entries behind, it walks no further."""
AS_LONG: Final = 3.0
"""A job waited as long as one that waits now from this part of its wait on: it may have come late in the same pause."""
DAYS_BACK: Final = (1, 2, 3, 7, 14, 21)
"""Days before, of whose same hour jobs are looked for: nights repeat daily, weekends weekly."""
HALVINGS: Final = 40
"""Steps by which one of them is searched for: enough for a million million keys."""
MOST_READY: Final = 10_000
"""Ready jobs that are looked at, as many as are counted."""
MOST_KEPT: Final = 200
"""Ranks kept of a list of durations."""
MOST_KINDS: Final = 5
"""Kinds told apart, those with the oldest ready jobs."""
KIND_LETTERS: Final = 63
"""Letters of a kind's name that are kept."""
MOST_PAUSES: Final = 3
"""Columns looked at for a paused queue: frameworks have one."""

_PAUSED: Final = re.compile(r"^(is_)?paused(_at|_since)?$")
_PAUSES: Final = re.compile(r"queue|pause|lane|worker_pool")


def taken_before(
    *,
    table: sql.Composable,
    key: sql.Composable | None,
    ready: str,
    since: sql.Composable,
    taken: Sequence[sql.Composable],
    ran: tuple[sql.Composable, sql.Composable] | None,
    kind: sql.Composable | None,
    most: int,
) -> sql.Composed:
    """Return the query for the jobs taken before and for those that wait since, one row per kind.

    ``key`` is a column of whole numbers with an index; without one the first ``most`` rows are read, for a table that has no more.
    ``since`` tells from when a job waits, ``taken`` are the times of claim and finish there are, ``ran`` both of them,
    ``kind`` the column by which workers choose their jobs.
    """
    known = sql.SQL(" OR ").join(sql.SQL("isfinite({})").format(one) for one in taken)
    first = sql.SQL("coalesce({})").format(sql.SQL(", ").join(taken))
    last = sql.SQL("greatest({})").format(sql.SQL(", ").join(taken))
    run = (
        sql.SQL("extract(epoch FROM {} - {})").format(ran[1], ran[0]) if ran is not None else sql.SQL("NULL")
    )
    of_kind = (
        sql.SQL("left({}::text, {})").format(kind, sql.Literal(KIND_LETTERS))
        if kind is not None
        else sql.SQL("NULL::text")
    )
    facts = sql.SQL(
        "extract(epoch FROM clock_timestamp() - {since})::float8 AS since_age, extract(epoch FROM {first} - {since})::float8 AS wait, "
        "extract(epoch FROM clock_timestamp() - {last})::float8 AS taken_age, ({run})::float8 AS run, {kind} AS kind"
    ).format(since=since, first=first, last=last, run=run, kind=of_kind)
    steps: sql.Composable
    column: sql.Composable
    if key is None:
        found = sql.SQL("(SELECT {facts} FROM (SELECT * FROM {table} LIMIT {most}) q WHERE {known})").format(
            facts=facts, table=table, most=sql.Literal(most), known=known
        )
        steps = sql.SQL("")
        column = sql.SQL("NULL::bigint")
    else:
        column = sql.SQL("({})::bigint").format(key)
        ends = sql.SQL(
            "ends AS (SELECT (array_agg(k ORDER BY age DESC NULLS LAST))[1] AS oldest, max(k) AS newest FROM ready), "
        )
        steps = sql.SQL(
            "steps AS (SELECT DISTINCT s FROM ends, unnest(ARRAY[{powers}]::bigint[]) AS p, "
            "unnest(ARRAY[oldest - p, newest - p, newest + p]) AS s WHERE s >= 0 UNION SELECT high FROM days_back), "
        ).format(powers=sql.SQL(", ").join(sql.Literal(2**place) for place in range(STEPS)))
        halves = sql.SQL(
            "halves AS (SELECT d.age, 0::bigint AS low, ends.newest AS high, 0 AS step FROM ends, "
            "(SELECT n * 86400.0 + max(ready.age) / 2 AS age FROM ready, unnest(ARRAY[{days}]) AS n GROUP BY n) AS d "
            "UNION ALL SELECT h.age, CASE WHEN met.age < h.age THEN h.low ELSE h.middle END, "
            "CASE WHEN met.age < h.age THEN h.middle ELSE h.high END, h.step + 1 "
            "FROM (SELECT *, (low + high) / 2 AS middle FROM halves WHERE step < {halvings} AND high - low > 1) AS h "
            "LEFT JOIN LATERAL (SELECT extract(epoch FROM clock_timestamp() - {since})::float8 AS age FROM {table} "
            "WHERE {key} <= h.middle AND {key} > h.middle - {width} ORDER BY {key} DESC LIMIT 1) AS met ON true), "
            "days_back AS (SELECT DISTINCT ON (age) high FROM halves ORDER BY age, step DESC), "
        ).format(
            days=sql.SQL(", ").join(map(sql.Literal, DAYS_BACK)),
            halvings=sql.Literal(HALVINGS),
            since=since,
            table=table,
            key=key,
            width=sql.Literal(WIDTH),
        )
        steps = ends + halves + steps
        found = sql.SQL(
            "(SELECT DISTINCT q.* FROM steps CROSS JOIN LATERAL (SELECT {key} AS k, {facts} FROM {table} "
            "WHERE {key} <= steps.s AND {key} > steps.s - {width} AND ({known}) ORDER BY {key} DESC LIMIT {few}) q)"
        ).format(
            key=key,
            facts=facts,
            table=table,
            width=sql.Literal(WIDTH),
            known=known,
            few=sql.Literal(AT_STEP),
        )
    return sql.SQL(
        "WITH RECURSIVE ready AS MATERIALIZED (SELECT {column} AS k, {kind} AS kind, extract(epoch FROM clock_timestamp() - {since})::float8 AS age "
        "FROM {table} WHERE {ready} LIMIT {most_ready}), {steps}"
        "before AS MATERIALIZED (SELECT * FROM {found} f WHERE f.wait IS NOT NULL AND f.taken_age >= 0), "
        "kinds AS (SELECT kind, max(age) AS oldest FROM ready GROUP BY kind ORDER BY 2 DESC NULLS LAST LIMIT {most_kinds}) "
        "SELECT kinds.kind, told.*, waits.*, again.* FROM kinds CROSS JOIN LATERAL ("
        "SELECT array_agg(greatest(wait, 0) ORDER BY wait) AS waits, array_agg(run ORDER BY run) FILTER (WHERE run >= 0) AS runs, "
        "max(since_age) AS first_age, min(taken_age) AS last_age FROM before WHERE before.kind IS NOT DISTINCT FROM kinds.kind"
        ") told CROSS JOIN LATERAL (SELECT count(*) AS waiting, max(ready.age) AS waiting_s, min(ready.age) AS newest_s FROM ready "
        "WHERE ready.kind IS NOT DISTINCT FROM kinds.kind AND (told.last_age IS NULL OR ready.age < told.last_age)) waits "
        "CROSS JOIN LATERAL (SELECT coalesce(max(turns), 0) AS again FROM (SELECT count(*) AS turns FROM ("
        "SELECT period, floor(since_age / period) FROM before, unnest(ARRAY[86400.0, 604800.0]::float8[]) AS period "
        "WHERE before.kind IS NOT DISTINCT FROM kinds.kind AND kinds.oldest < period AND since_age >= period "
        "AND since_age - period * floor(since_age / period) <= kinds.oldest "
        "GROUP BY 1, 2 HAVING 2 * count(*) FILTER (WHERE wait >= kinds.oldest / {as_long}) > count(*)"
        ") AS turn GROUP BY period) AS counted) AS again"
    ).format(
        column=column,
        kind=of_kind,
        since=since,
        table=table,
        ready=sql.SQL(ready),
        most_ready=sql.Literal(MOST_READY),
        steps=steps,
        found=found,
        most_kinds=sql.Literal(MOST_KINDS),
        as_long=sql.Literal(AS_LONG),
    )


def kind_told(row: dict[str, Any]) -> ServedKind:
    """Return what a row of the query of taken_before() tells."""
    waits = [float(one) for one in row["waits"] or ()]
    last = None if row["last_age"] is None else float(row["last_age"])
    return ServedKind(
        name=row["kind"],
        jobs=len(waits),
        waits_s=thinned(waits),
        runs_s=thinned([float(one) for one in row["runs"] or ()]),
        span_s=0.0 if last is None else max(float(row["first_age"]) - last, 0.0),
        last_taken_age_s=last,
        waiting=int(row["waiting"]),
        waiting_s=None if row["waiting_s"] is None else float(row["waiting_s"]),
        newest_s=None if row["newest_s"] is None else float(row["newest_s"]),
        again=int(row["again"]),
    )


def kind_column(columns: Iterable[ColumnRow]) -> str | None:
    """Return the column by which a worker chooses its jobs, None where no name tells one."""
    known = {row.name for row in columns if row.type_category in ("S", "E", "N")}
    return next((name for name in KINDS if name in known), None)


def thinned(ages: list[float], most: int = MOST_KEPT) -> tuple[float, ...]:
    """Keep a long sorted list short: both ends and evenly spaced ranks between."""
    if len(ages) <= most:
        return tuple(ages)
    step = (len(ages) - 1) / (most - 1)
    return tuple(ages[round(place * step)] for place in range(most))


LAST_ASKED: Final = (
    "SELECT count(*) AS connected, min(extract(epoch FROM clock_timestamp() - a.state_change))::float8 AS last_asked_s "
    "FROM pg_stat_activity a WHERE a.query_id = ANY (%(ids)s::bigint[]) AND a.datname = current_database() "
    "AND a.state = 'idle' AND a.pid <> pg_backend_pid() AND a.application_name <> 'pgqdoctor'"
)
"""Connected sessions whose last statement was one of those: a worker that waits before it asks again."""

STATEMENTS_AGE: Final = "SELECT extract(epoch FROM clock_timestamp() - stats_reset)::float8 AS age FROM {schema}.pg_stat_statements_info"
"""Since when pg_stat_statements counts; from version 1.9 of the extension on."""

PAUSE_COLUMNS: Final = (
    "SELECT a.attrelid::bigint AS oid, a.attname::text AS name, t.typcategory::text AS category "
    "FROM unnest(%(oids)s::oid[]) AS o JOIN pg_attribute a ON a.attrelid = o JOIN pg_type t ON t.oid = a.atttypid "
    "WHERE a.attnum > 0 AND NOT a.attisdropped"
)


def neighbours(identity: QueueIdentity, tables: Iterable[TableRow]) -> tuple[TableRow, ...]:
    """Return the tables that may say that a queue is paused: named for queues or pauses, of the queue's schema and family.

    River keeps that in river_queue, Solid Queue in solid_queue_pauses, Chancy in chancy_queues, Roost in queues.
    """
    family = re.split(r"_|(?=s$)", identity.table, maxsplit=1)[0]
    return tuple(
        row
        for row in tables
        if row.schema == identity.schema
        and row.oid != identity.oid
        and row.kind == "r"
        and row.may_select
        and not row.row_security
        and row.rows <= MOST_READY
        and _PAUSES.search(row.name)
        and (row.name.startswith(family) or _PAUSES.match(row.name))
    )


def pause_conditions(
    tables: Sequence[TableRow], columns: Sequence[dict[str, Any]]
) -> tuple[tuple[TableRow, str, sql.Composable], ...]:
    """Return (table, column, condition) of each column that marks a queue as paused."""
    by_oid = {row.oid: row for row in tables}
    found: list[tuple[TableRow, str, sql.Composable]] = []
    for one in columns:
        row, name, category = by_oid[one["oid"]], str(one["name"]), one["category"]
        column = sql.Identifier(name)
        if _PAUSED.match(name) and category == "B":
            found.append((row, name, column))
        elif _PAUSED.match(name) and category == "D":
            found.append((row, name, sql.SQL("{} <= now()").format(column)))
        elif name in ("state", "status") and category in ("S", "E"):
            found.append((row, name, sql.SQL("{}::text IN ('paused', 'PAUSED')").format(column)))
        elif name == "queue_name" and row.name.endswith("_pauses"):
            found.append((row, name, sql.SQL("{} IS NOT NULL").format(column)))
    return tuple(found[:MOST_PAUSES])
