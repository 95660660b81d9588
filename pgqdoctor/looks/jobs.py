"""Looks at the jobs themselves: how many are ready, in which states, claimed since when, and tried how often."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import psycopg
from psycopg import sql

from pgqdoctor import serving
from pgqdoctor.check import ATTEMPTS, CLAIMED
from pgqdoctor.connect import Link, Session
from pgqdoctor.looks.look import LOOK_TIMEOUT_MS, MOST_COST, QueueLook, plan_document
from pgqdoctor.looks.times import instant, is_time, ready_since
from pgqdoctor.observation import AttemptsProbe, QueueIdentity, StateCount, StuckProbe
from pgqdoctor.sqltext import marked
from pgqdoctor.usercode import user_code

MOST_ROWS: Final = 10_000
"""Rows a look reads at most: enough to tell a backlog from none."""
MOST_STATES: Final = 20
"""States that are looked up in an index: frameworks have up to a dozen; a column with more is no state."""
EXAMPLES: Final = 5
OFTEN_TRIED: Final = 10
"""Attempts from which a job counts as tried often: most frameworks give up, or wait for hours, before."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadyJobs:
    """The jobs that may be claimed now: how many (None where not counted), and how long the oldest waits (seconds)."""

    rows: int | None = None
    exact: bool = False
    """False where there are more than ``rows``."""
    oldest_age_s: float | None = None


def ready_jobs(look: QueueLook) -> ReadyJobs:
    """Count the jobs that may be claimed now, up to a limit, and find the oldest of them."""
    if look.identity.ready_predicate is None:
        look.lack("ready", "the condition for a ready job could not be told")
        return ReadyJobs()
    since = ready_since(look)
    age = (
        sql.SQL("max(extract(epoch FROM clock_timestamp() - {}))::float8").format(since)
        if since
        else sql.SQL("NULL")
    )
    query = sql.SQL(
        "SELECT count(*) AS rows, {age} AS age FROM (SELECT * FROM {table} WHERE {ready} LIMIT {most}) q"
    ).format(
        age=age,
        table=look.table,
        ready=sql.SQL(look.identity.ready_predicate),
        most=sql.Literal(MOST_ROWS + 1),
    )
    found = look.bounded("ready", query)
    if not found:
        return ReadyJobs()
    rows = int(found[0]["rows"])
    return ReadyJobs(rows=min(rows, MOST_ROWS), exact=rows <= MOST_ROWS, oldest_age_s=found[0]["age"])


def job_states(look: QueueLook) -> tuple[StateCount, ...]:
    """Count rows by state where the whole table is small; else the planner's statistics tell it."""
    state = look.identity.roles.state
    row = look.catalog.table(look.identity.oid)
    if state is None or row is None or look.columns[state].type_category == "D":
        return ()
    query = sql.SQL(
        "SELECT s::text AS value, count(*) AS rows FROM (SELECT {state} AS s FROM {table} LIMIT {most}) q "
        "GROUP BY 1 ORDER BY 2 DESC LIMIT 20"
    ).format(state=sql.Identifier(state), table=look.table, most=sql.Literal(MOST_ROWS + 1))
    rows = look.estimated_rows
    if rows <= MOST_ROWS:
        found = look.bounded("states", query)
        counted = sum(int(one["rows"]) for one in found or ())
        if found and counted <= MOST_ROWS:
            return tuple(
                StateCount(
                    value=one["value"] if one["value"] is not None else "NULL",
                    rows=int(one["rows"]),
                    exact=True,
                )
                for one in found
            )
    column = look.columns[state]
    return tuple(
        StateCount(value=value, rows=round(fraction * rows), exact=False)
        for value, fraction in zip(column.common_values, column.common_fractions, strict=False)
    )


def states_by_index(session: Session, link: Link, identity: QueueIdentity, column: str) -> tuple[str, ...]:
    """Return the first states that the table holds, each found by one descent of an index that begins with the state.

    Empty where the look would cost too much, takes too long or is not allowed.
    """
    query = sql.SQL(
        "WITH RECURSIVE found AS ((SELECT {state} AS s FROM {table} WHERE {state} IS NOT NULL ORDER BY {state} LIMIT 1) UNION ALL "
        "SELECT (SELECT t.{state} FROM {table} t WHERE t.{state} > f.s ORDER BY t.{state} LIMIT 1) FROM found f "
        "WHERE f.s IS NOT NULL) SELECT s::text AS value FROM found WHERE s IS NOT NULL LIMIT {most}"
    ).format(
        state=sql.Identifier(column),
        table=sql.Identifier(identity.schema, identity.table),
        most=sql.Literal(MOST_STATES),
    )
    path = (identity.schema, *link.search_path)
    try:
        reached = user_code(session, query.as_string(), path, timeout_ms=LOOK_TIMEOUT_MS)
        if reached.executing() is not None:
            return ()
        with session.transaction(
            statement_timeout_ms=LOOK_TIMEOUT_MS,
            search_path=path,
            local={"max_parallel_workers_per_gather": "0", "jit": "off", "enable_seqscan": "off"},
        ) as cursor:
            cursor.execute(sql.SQL("EXPLAIN (FORMAT JSON) ") + query)
            if float(plan_document(cursor.fetchone())[0]["Plan"]["Total Cost"]) > MOST_COST:
                return ()
            cursor.execute(marked(query.as_string()).encode())
            return tuple(one["value"] for one in cursor.fetchall())
    except (psycopg.Error, ValueError):
        return ()


def claimed_jobs(look: QueueLook) -> tuple[StuckProbe, ...]:
    """Look at claimed jobs by their sign of life: heartbeat, else lease, else the time of the claim."""
    roles = look.identity.roles
    condition = _claimed_condition(look)
    if condition is None:
        look.lack(
            CLAIMED,
            "the state of a job that is being worked on could not be told from the statements seen and the states there are",
        )
        return ()
    signs = tuple(
        (measure, column)
        for measure, column in (
            ("heartbeat", roles.heartbeat),
            ("lease", roles.lease),
            ("claimed", roles.claimed_at),
        )
        if column is not None and column in look.columns and is_time(look.columns[column])
    )
    if not signs:
        look.lack(CLAIMED, "no column tells since when a job is claimed")
    probes: list[StuckProbe] = []
    for measure, column in signs:
        key = sql.SQL(" || ',' || ").join(
            sql.SQL("{}::text").format(sql.Identifier(one)) for one in roles.key
        )
        query = sql.SQL(
            "SELECT {key} AS key, extract(epoch FROM clock_timestamp() - {since})::float8 AS age "
            "FROM (SELECT * FROM {table} WHERE {condition} AND {column} IS NOT NULL AND isfinite({column}) LIMIT {most}) q "
            "ORDER BY 2 DESC"
        ).format(
            key=key if roles.key else sql.SQL("''::text"),
            since=instant(look, column),
            column=sql.Identifier(column),
            table=look.table,
            condition=condition,
            most=sql.Literal(MOST_ROWS),
        )
        found = look.bounded(CLAIMED, query)
        if found is None:
            break
        ages = [float(one["age"]) for one in found]
        probes.append(
            StuckProbe(
                measure=measure,
                column=column,
                rows=len(ages),
                ages_s=serving.thinned(ages),
                limit=MOST_ROWS,
                examples=tuple(one["key"] for one in found[:EXAMPLES]),
            )
        )
    return tuple(probes)


def _claimed_condition(look: QueueLook) -> sql.Composable | None:
    roles, identity = look.identity.roles, look.identity
    parts: list[sql.Composable] = []
    if roles.state is not None and identity.running_values and not is_time(look.columns[roles.state]):
        parts.append(
            sql.SQL("{} IN ({})").format(
                sql.Identifier(roles.state),
                sql.SQL(", ").join(sql.Literal(one) for one in identity.running_values),
            )
        )
    elif roles.state is None or is_time(look.columns[roles.state]):
        held = roles.claimed_at or roles.lease
        if held is None or held not in look.columns:
            return None
        parts.append(sql.SQL("{} IS NOT NULL").format(sql.Identifier(held)))
        if roles.finished_at is not None and roles.finished_at in look.columns and roles.finished_at != held:
            parts.append(sql.SQL("{} IS NULL").format(sql.Identifier(roles.finished_at)))
        elif roles.state is not None and roles.state != held:
            parts.append(sql.SQL("{} IS NULL").format(sql.Identifier(roles.state)))
    return sql.SQL(" AND ").join(parts) if parts else None


def tried_jobs(look: QueueLook) -> AttemptsProbe | None:
    """Look at how often the ready jobs were tried, and which were tried most."""
    roles, ready = look.identity.roles, look.identity.ready_state_predicate
    column = roles.attempts
    if column is None or column not in look.columns or ready is None:
        look.lack(ATTEMPTS, "no column counts attempts, or the condition for a ready job could not be told")
        return None
    key = sql.SQL(" || ',' || ").join(sql.SQL("q.{}::text").format(sql.Identifier(one)) for one in roles.key)
    tried = sql.SQL("q.{}").format(sql.Identifier(column))
    query = sql.SQL(
        "SELECT count(*) AS rows, coalesce(sum({tried}), 0)::bigint AS attempts, coalesce(max({tried}), 0)::bigint AS most, "
        "count(*) FILTER (WHERE {tried} >= {often}) AS often_rows, "
        "coalesce(sum({tried}) FILTER (WHERE {tried} >= {often}), 0)::bigint AS often_attempts, "
        "(array_agg({key} ORDER BY {tried} DESC) FILTER (WHERE {tried} >= {often}))[1:{examples}] AS examples "
        "FROM (SELECT * FROM {table} WHERE {ready} LIMIT {most_rows}) q"
    ).format(
        tried=tried,
        often=sql.Literal(OFTEN_TRIED),
        key=key if roles.key else sql.SQL("''::text"),
        examples=sql.Literal(EXAMPLES),
        table=look.table,
        ready=sql.SQL(ready),
        most_rows=sql.Literal(MOST_ROWS),
    )
    found = look.bounded(ATTEMPTS, query)
    if not found:
        return None
    row = found[0]
    return AttemptsProbe(
        column=column,
        rows=int(row["rows"]),
        attempts=int(row["attempts"]),
        most=int(row["most"]),
        often=OFTEN_TRIED,
        often_rows=int(row["often_rows"]),
        often_attempts=int(row["often_attempts"]),
        limit=MOST_ROWS,
        examples=tuple(row["examples"] or ()),
    )
