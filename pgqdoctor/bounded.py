"""The bounded one-time looks at one queue: sizes, ready jobs, claimed jobs and the claim's plan.

Nothing here may cost more than a claim does. Each look is a LIMIT over the queue; before it runs, plain
EXPLAIN tells what it would cost, and what would cost more than the limit is skipped and said so.
"""

from __future__ import annotations

import json
import os
import re
import time
from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Any, Final

import psycopg
from psycopg import sql

from pgqdoctor import serving
from pgqdoctor.check import ATTEMPTS, CLAIMED
from pgqdoctor.connect import Link, Session, in_schema, one_line, quote
from pgqdoctor.discover import SeenText
from pgqdoctor.features import Feature
from pgqdoctor.observation import (
    AttemptsProbe,
    Catalog,
    Lack,
    MeasuredSpace,
    PlanProbe,
    QueueIdentity,
    QueueProbe,
    ServedProbe,
    StateCount,
    StuckProbe,
)
from pgqdoctor.planning import Explainable, Generic, make_explainable, make_generic
from pgqdoctor.queue import GENERIC
from pgqdoctor.readiness import UTC_NOW, in_utc, is_naive
from pgqdoctor.rows import ColumnRow
from pgqdoctor.sqlfacts import Claim, Statement
from pgqdoctor.sqlread import read_sql, text_fingerprint
from pgqdoctor.sqlrewrite import is_harmless, joining_select
from pgqdoctor.usercode import user_code

MOST_ROWS: Final = 10_000
"""Rows a look reads at most: enough to tell a backlog from none."""
MOST_COST: Final = 4_000.0
"""Planner cost up to which a look is taken: about 4,000 sequential pages, 32 MB, which a server reads from
its cache in some ten milliseconds.
"""
LOOK_TIMEOUT_MS: Final = 400
MOST_MEASURED: Final = 4_000
"""Pages of a relation up to which pgstattuple reads it: the cost of a look, see MOST_COST. Larger ones are estimated."""
EXPLAIN_TIMEOUT_MS: Final = 1_000
"""A claim that does not find its job within a second is a diagnosis of its own."""
MOST_STATES: Final = 20
"""States that are looked up in an index: frameworks have up to a dozen; a column with more is no state."""
MOST_PLANS: Final = 3
EXAMPLES: Final = 5
OFTEN_TRIED: Final = 10
"""Attempts from which a job counts as tried often: most frameworks give up, or wait for hours, before."""


QUERY_ID: Final = re.compile(r"-?\d+/")


class Budget:
    """Seconds left for all looks together; the report is due soon after the window."""

    def __init__(self, seconds: float) -> None:
        self._until = time.monotonic() + seconds

    @property
    def spent(self) -> bool:
        """True once the time is used up."""
        return time.monotonic() >= self._until

    def milliseconds(self, most: int) -> int:
        """Return a statement timeout within what is left (at least 50 ms)."""
        return max(50, min(most, int((self._until - time.monotonic()) * 1000)))


def probe_queue(
    session: Session,
    link: Link,
    catalog: Catalog,
    identity: QueueIdentity,
    texts: tuple[SeenText, ...],
    *,
    explain: str,
    locked: frozenset[int],
    budget: Budget,
) -> QueueProbe:
    """Take the bounded looks at one queue."""
    look = _Look(session, link, catalog, identity, budget)
    leaves = {leaf.oid for leaf in catalog.partitions_of(identity.oid)}
    behind_lock = bool((leaves | {identity.oid}) & locked)
    if behind_lock:
        for what in ("plan", "rows", "sizes"):
            look.lack(what, f"{identity.name} is behind an exclusive lock")
        return look.result()
    row = catalog.table(identity.oid)
    look.sizes(tuple(sorted(leaves | {identity.oid})))
    look.space(tuple(sorted(leaves | {identity.oid})))
    if row is not None and not row.may_select and not link.server.superuser:
        grant = f"GRANT SELECT ON {identity.name} TO {quote(link.server.role)}"
        for what in ("plan", "rows"):
            look.lack(what, f"the role may not read {identity.name}", grant)
        return look.result()
    if row is not None and row.row_security and not link.server.superuser:
        look.lack("rows", f"row security of {identity.name} may hide rows and call functions")
    else:
        look.ready()
        look.states()
        look.claimed()
        look.attempts()
        look.served(texts)
    look.plan(texts, explain)
    return look.result()


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
            if float(_document(cursor.fetchone())[0]["Plan"]["Total Cost"]) > MOST_COST:
                return ()
            cursor.execute(query)
            return tuple(one["value"] for one in cursor.fetchall())
    except (psycopg.Error, ValueError):
        return ()


def unseen(identity: QueueIdentity, reason: str) -> QueueProbe:
    """Return what is known of a queue that could not be looked at: why."""
    return QueueProbe(
        oid=identity.oid,
        table_bytes=None,
        index_bytes=None,
        toast_bytes=None,
        index_sizes=(),
        ready_rows=None,
        ready_exact=False,
        oldest_ready_age_s=None,
        states=(),
        stuck=(),
        plans=(),
        lacks=tuple(
            Lack(what=what, reason=reason, queue=identity.name) for what in ("plan", "rows", "sizes")
        ),
    )


class _Look:
    """Gathers one QueueProbe; every part survives the failure of the others."""

    def __init__(
        self, session: Session, link: Link, catalog: Catalog, identity: QueueIdentity, budget: Budget
    ) -> None:
        self.session = session
        self.link = link
        self.catalog = catalog
        self.identity = identity
        self.budget = budget
        self.columns = {row.name: row for row in catalog.columns_of(identity.oid)}
        self.table = sql.Identifier(identity.schema, identity.table)
        self._lacks: list[Lack] = []
        self._sizes: tuple[int | None, int | None, int | None] = (None, None, None)
        self._index_sizes: tuple[tuple[int, int], ...] = ()
        self._ready: tuple[int | None, bool, float | None] = (None, False, None)
        self._states: tuple[StateCount, ...] = ()
        self._stuck: list[StuckProbe] = []
        self._plans: list[PlanProbe] = []
        self._measured: tuple[MeasuredSpace, ...] = ()
        self._whole_plans: list[PlanProbe] = []
        self._attempts: AttemptsProbe | None = None
        self._served: ServedProbe | None = None
        self._path = (identity.schema, *link.search_path)

    def result(self) -> QueueProbe:
        return QueueProbe(
            oid=self.identity.oid,
            table_bytes=self._sizes[0],
            index_bytes=self._sizes[1],
            toast_bytes=self._sizes[2],
            index_sizes=self._index_sizes,
            ready_rows=self._ready[0],
            ready_exact=self._ready[1],
            oldest_ready_age_s=self._ready[2],
            states=self._states,
            stuck=tuple(self._stuck),
            plans=tuple(self._plans),
            lacks=tuple(self._lacks),
            measured=self._measured,
            whole_plans=tuple(self._whole_plans),
            attempts=self._attempts,
            served=self._served,
        )

    def lack(self, what: str, reason: str, grant: str | None = None) -> None:
        self._lacks.append(Lack(what=what, reason=reason, grant=grant, queue=self.identity.name))

    # -- sizes ------------------------------------------------------------------------------------

    def sizes(self, oids: tuple[int, ...]) -> None:
        """Read the sizes: one stat() per file, and a lock on the relation for that moment."""
        try:
            found = self.session.records(
                "SELECT sum(pg_relation_size(o))::bigint AS heap, sum(pg_indexes_size(o))::bigint AS indexes, "
                "sum(coalesce(pg_total_relation_size(nullif(c.reltoastrelid, 0)), 0))::bigint AS toast "
                "FROM unnest(%(oids)s::oid[]) AS o JOIN pg_class c ON c.oid = o",
                {"oids": list(oids)},
                statement_timeout_ms=LOOK_TIMEOUT_MS,
            )[0]
            indexes = self.session.records(
                "SELECT i.indexrelid::bigint AS oid, pg_relation_size(i.indexrelid)::bigint AS bytes "
                "FROM pg_index i WHERE i.indrelid = ANY (%(oids)s::oid[])",
                {"oids": list(oids)},
                statement_timeout_ms=LOOK_TIMEOUT_MS,
            )
        except psycopg.Error as error:
            self._failed("sizes", error)
            return
        self._sizes = (found["heap"], found["indexes"], found["toast"])
        self._index_sizes = tuple((one["oid"], one["bytes"]) for one in indexes)

    def space(self, oids: tuple[int, ...]) -> None:
        """Measure small relations with pgstattuple, where it is installed and the role may use it."""
        server = self.link.server
        extension = server.extension("pgstattuple")
        if (
            extension is None
            or not server.member_of("pg_stat_scan_tables", "pg_monitor")
            or self.budget.spent
        ):
            return
        tables = [one.oid for one in self.catalog.tables if one.oid in oids and one.kind == "r"]
        indexes = [
            one.oid
            for one in self.catalog.indexes
            if one.table in tables and one.method == "btree" and one.valid
        ]
        found: list[MeasuredSpace] = []
        density = (
            "CASE WHEN s.leaf_pages > 0 THEN s.avg_leaf_density / 100 * s.leaf_pages "
            "/ (s.leaf_pages + s.empty_pages + s.deleted_pages) ELSE 0 END"
        )
        for function, used, relations in (
            ("pgstattuple_approx", "1 - s.approx_free_percent / 100", tables),
            ("pgstatindex", density, indexes),
        ):
            # OFFSET 0 keeps the size's test before the function that reads the whole relation.
            query = in_schema(
                f"SELECT o.oid::bigint AS oid, o.pages, ({used})::float8 AS used FROM (SELECT o AS oid, (pg_relation_size(o) / 8192)::int AS pages "
                f"FROM unnest(%(oids)s::oid[]) AS o WHERE pg_relation_size(o) BETWEEN 1 AND %(most)s OFFSET 0) o, {{schema}}.{function}(o.oid::regclass) s",
                extension.schema,
            )
            try:
                found += self.session.rows(
                    MeasuredSpace,
                    query,
                    {"oids": relations, "most": MOST_MEASURED * 8192},
                    statement_timeout_ms=self.budget.milliseconds(LOOK_TIMEOUT_MS),
                )
            except psycopg.Error as error:
                self._failed("space", error)
        self._measured = tuple(found)

    # -- rows --------------------------------------------------------------------------------------

    def ready(self) -> None:
        """Count the jobs that may be claimed now, up to a limit, and find the oldest of them."""
        if self.identity.ready_predicate is None:
            self.lack("ready", "the condition for a ready job could not be told")
            return
        since = self._ready_since()
        age = (
            sql.SQL("max(extract(epoch FROM clock_timestamp() - {}))::float8").format(since)
            if since
            else sql.SQL("NULL")
        )
        query = sql.SQL(
            "SELECT count(*) AS rows, {age} AS age FROM (SELECT * FROM {table} WHERE {ready} LIMIT {most}) q"
        ).format(
            age=age,
            table=self.table,
            ready=sql.SQL(self.identity.ready_predicate),
            most=sql.Literal(MOST_ROWS + 1),
        )
        found = self._bounded("ready", query)
        if found:
            rows = int(found[0]["rows"])
            self._ready = (min(rows, MOST_ROWS), rows <= MOST_ROWS, found[0]["age"])

    def _ready_since(self) -> sql.Composable | None:
        """The time from which a ready job waits: when it became due, else when it was made."""
        times = [
            name
            for name in (self.identity.roles.run_at, self.identity.roles.created_at)
            if name is not None and name in self.columns and _is_time(self.columns[name])
        ]
        if not times:
            return None
        # A sentinel such as year 9999 or -infinity is no age: only times of the past count.
        parts = [
            sql.SQL("CASE WHEN {c} <= now() AND isfinite({c}) THEN {c} END").format(c=self._instant(name))
            for name in times
        ]
        return sql.SQL("greatest({})").format(sql.SQL(", ").join(parts)) if len(parts) > 1 else parts[0]

    def _instant(self, name: str) -> sql.Composable:
        """A column as a point in time: one without time zone may hold UTC, whatever the session's zone is."""
        column = self.columns[name]
        utc = is_naive(column) and (
            UTC_NOW in (self.identity.ready_predicate or "") or in_utc(column, self.columns.values())
        )
        return sql.SQL("({} AT TIME ZONE 'UTC')" if utc else "{}").format(sql.Identifier(name))

    def states(self) -> None:
        """Count rows by state where the whole table is small; else the planner's statistics tell it."""
        state = self.identity.roles.state
        row = self.catalog.table(self.identity.oid)
        if state is None or row is None or self.columns[state].type_category == "D":
            return
        query = sql.SQL(
            "SELECT s::text AS value, count(*) AS rows FROM (SELECT {state} AS s FROM {table} LIMIT {most}) q "
            "GROUP BY 1 ORDER BY 2 DESC LIMIT 20"
        ).format(state=sql.Identifier(state), table=self.table, most=sql.Literal(MOST_ROWS + 1))
        rows = sum(max(leaf.rows, 0.0) for leaf in self.catalog.partitions_of(self.identity.oid))
        if rows <= MOST_ROWS:
            found = self._bounded("states", query)
            counted = sum(int(one["rows"]) for one in found or ())
            if found and counted <= MOST_ROWS:
                self._states = tuple(
                    StateCount(
                        value=one["value"] if one["value"] is not None else "NULL",
                        rows=int(one["rows"]),
                        exact=True,
                    )
                    for one in found
                )
                return
        column = self.columns[state]
        self._states = tuple(
            StateCount(value=value, rows=round(fraction * rows), exact=False)
            for value, fraction in zip(column.common_values, column.common_fractions, strict=False)
        )

    def claimed(self) -> None:
        """Look at claimed jobs by their sign of life: heartbeat, else lease, else the time of the claim."""
        roles = self.identity.roles
        condition = self._claimed_condition()
        if condition is None:
            self.lack(
                CLAIMED,
                "the state of a job that is being worked on could not be told from the statements seen and the states there are",
            )
            return
        signs = tuple(
            (measure, column)
            for measure, column in (
                ("heartbeat", roles.heartbeat),
                ("lease", roles.lease),
                ("claimed", roles.claimed_at),
            )
            if column is not None and column in self.columns and _is_time(self.columns[column])
        )
        if not signs:
            self.lack(CLAIMED, "no column tells since when a job is claimed")
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
                since=self._instant(column),
                column=sql.Identifier(column),
                table=self.table,
                condition=condition,
                most=sql.Literal(MOST_ROWS),
            )
            found = self._bounded(CLAIMED, query)
            if found is None:
                return
            ages = [float(one["age"]) for one in found]
            self._stuck.append(
                StuckProbe(
                    measure=measure,
                    column=column,
                    rows=len(ages),
                    ages_s=tuple(_thinned(ages)),
                    limit=MOST_ROWS,
                    examples=tuple(one["key"] for one in found[:EXAMPLES]),
                )
            )

    def attempts(self) -> None:
        """Look at how often the ready jobs were tried, and which were tried most."""
        roles, ready = self.identity.roles, self.identity.ready_state_predicate
        column = roles.attempts
        if column is None or column not in self.columns or ready is None:
            self.lack(
                ATTEMPTS, "no column counts attempts, or the condition for a ready job could not be told"
            )
            return
        key = sql.SQL(" || ',' || ").join(
            sql.SQL("q.{}::text").format(sql.Identifier(one)) for one in roles.key
        )
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
            table=self.table,
            ready=sql.SQL(ready),
            most_rows=sql.Literal(MOST_ROWS),
        )
        found = self._bounded(ATTEMPTS, query)
        if found:
            row = found[0]
            self._attempts = AttemptsProbe(
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

    def served(self, texts: tuple[SeenText, ...]) -> None:
        """Where a ready job has waited for a while, look when jobs were taken before, and who may take one."""
        age, since, ready = self._ready[2], self._ready_since(), self.identity.ready_predicate
        if age is None or age < serving.LATE_S or since is None or ready is None:
            return
        roles = self.identity.roles
        times = {
            name: self._instant(name)
            for name in (roles.claimed_at, roles.finished_at)
            if name is not None and name in self.columns and _is_time(self.columns[name])
        }
        rows = sum(max(leaf.rows, 0.0) for leaf in self.catalog.partitions_of(self.identity.oid))
        key = self._numbered_key()
        kind = serving.kind_column(self.columns.values())
        self._served = ServedProbe()
        if times and (key is not None or rows <= MOST_ROWS):
            query = serving.taken_before(
                table=self.table,
                key=key if rows > MOST_ROWS else None,
                ready=ready,
                since=since,
                taken=tuple(times.values()),
                ran=(self._instant(roles.claimed_at), self._instant(roles.finished_at))
                if len(times) == 2 and roles.claimed_at is not None and roles.finished_at is not None
                else None,
                kind=sql.Identifier(kind) if kind is not None else None,
                most=MOST_ROWS,
            )
            found = self._bounded("served", query)
            if found:
                self._served = ServedProbe(
                    column=next(iter(times)),
                    kind_column=kind or "",
                    kinds=tuple(serving.kind_told(one) for one in found),
                )
        try:
            self._served = replace(self._served, **self._asking(texts), paused=self._paused())
        except psycopg.Error as error:
            self._failed("served", error)

    def _numbered_key(self) -> sql.Identifier | None:
        """The column of whole numbers that counts the jobs and leads an index, None for another kind of key."""
        key = self.identity.roles.key
        row = self.columns.get(key[0]) if len(key) == 1 else None
        if row is None or row.type_name not in ("bigint", "integer", "smallint"):
            return None
        indexes = self.catalog.indexes_of(self.identity.oid)
        led = any(
            one.valid
            and not one.has_predicate
            and one.method == "btree"
            and one.key_columns[:1] == (row.number,)
            for one in indexes
        )
        return sql.Identifier(row.name) if led else None

    def _asking(self, texts: tuple[SeenText, ...]) -> dict[str, Any]:
        """Look who is connected that has asked for jobs, and since when statements are counted."""
        mine = {self.identity.table, *(leaf.name for leaf in self.catalog.partitions_of(self.identity.oid))}
        written = {name.replace('"', '""') for name in mine}
        keys = set(self.identity.claim_keys) | {
            one.key
            for one in texts
            if QUERY_ID.match(one.key) and any(name in one.text for name in written)
            for statement in one.read().statements
            for write in statement.writes
            if write.kind in ("update", "delete") and write.table.name in mine
        }
        found = self.session.records(
            serving.LAST_ASKED,
            {"ids": [int(key.split("/")[0]) for key in keys if QUERY_ID.match(key)]},
            statement_timeout_ms=self.budget.milliseconds(LOOK_TIMEOUT_MS),
        )[0]
        extension = self.link.server.extension("pg_stat_statements")
        if extension is None or self.link.server.statements != "ready":
            return found
        try:
            age = self.session.records(
                in_schema(serving.STATEMENTS_AGE, extension.schema),
                statement_timeout_ms=self.budget.milliseconds(LOOK_TIMEOUT_MS),
            )
        except psycopg.errors.UndefinedTable:  # before version 1.9 of the extension
            return found
        return {**found, "statements_age_s": age[0]["age"]}

    def _paused(self) -> str | None:
        """Return the column of a neighbouring table that says that a queue is paused."""
        near = serving.neighbours(self.identity, self.catalog.tables)
        if not near:
            return None
        columns = self.session.records(
            serving.PAUSE_COLUMNS,
            {"oids": [row.oid for row in near]},
            statement_timeout_ms=self.budget.milliseconds(LOOK_TIMEOUT_MS),
        )
        for row, column, condition in serving.pause_conditions(near, columns):
            query = sql.SQL("SELECT count(*) AS rows FROM (SELECT 1 FROM {table} WHERE {paused} LIMIT 1) q")
            found = self._bounded(
                "served", query.format(table=sql.Identifier(row.schema, row.name), paused=condition)
            )
            if found and found[0]["rows"]:
                return f"{quote(row.schema)}.{quote(row.name)}.{quote(column)}"
        return None

    def _claimed_condition(self) -> sql.Composable | None:
        roles, identity = self.identity.roles, self.identity
        parts: list[sql.Composable] = []
        if roles.state is not None and identity.running_values and not _is_time(self.columns[roles.state]):
            parts.append(
                sql.SQL("{} IN ({})").format(
                    sql.Identifier(roles.state),
                    sql.SQL(", ").join(sql.Literal(one) for one in identity.running_values),
                )
            )
        elif roles.state is None or _is_time(self.columns[roles.state]):
            held = roles.claimed_at or roles.lease
            if held is None or held not in self.columns:
                return None
            parts.append(sql.SQL("{} IS NOT NULL").format(sql.Identifier(held)))
            if (
                roles.finished_at is not None
                and roles.finished_at in self.columns
                and roles.finished_at != held
            ):
                parts.append(sql.SQL("{} IS NULL").format(sql.Identifier(roles.finished_at)))
            elif roles.state is not None and roles.state != held:
                parts.append(sql.SQL("{} IS NULL").format(sql.Identifier(roles.state)))
        return sql.SQL(" AND ").join(parts) if parts else None

    def _bounded(self, what: str, query: sql.Composed) -> list[dict[str, Any]] | None:
        """Run a look that plain EXPLAIN finds cheap enough."""
        if self.budget.spent:
            self.lack(what, "the time for bounded looks was used up")
            return None
        try:
            if (why := self._unsafe(query.as_string(), execute=True)) is not None:
                self.lack(what, f"looking at {what} jobs was left out: {why}")
                return None
            with self.session.transaction(
                statement_timeout_ms=self.budget.milliseconds(LOOK_TIMEOUT_MS),
                search_path=self._path,
                local={"max_parallel_workers_per_gather": "0", "jit": "off"},
            ) as cursor:
                cursor.execute(sql.SQL("EXPLAIN (FORMAT JSON) ") + query)
                cost = float(_document(cursor.fetchone())[0]["Plan"]["Total Cost"])
                if cost > MOST_COST:
                    self.lack(
                        what,
                        f"looking at {what} jobs of {self.identity.name} would cost {cost:,.0f} planner units, the limit is {MOST_COST:,.0f}: "
                        "no index serves it",
                    )
                    return None
                cursor.execute(query)
                return cursor.fetchall()
        except psycopg.Error as error:
            self._failed(what, error)
            return None

    # -- plan --------------------------------------------------------------------------------------

    def plan(self, texts: tuple[SeenText, ...], explain: str) -> None:
        """Explain the busiest claims."""
        if explain == "off":
            self.lack("plan", "EXPLAIN is off (--explain off)")
            return
        tried: list[str] = []
        explained: set[str] = set()
        for known, text in self._claim_texts(texts):
            own = [one.text for one in read_sql(known).statements]
            for place, statement in enumerate(read_sql(text).statements):
                for claim in statement.claims:
                    if claim.table.name != self.identity.table and not self._is_leaf(claim.table.name):
                        continue
                    ready = self._explainable(statement, claim)
                    if ready.wanted:
                        job = self._some_job(ready.wanted)
                        ready = self._explainable(statement, claim, job)
                    if ready.select is None:
                        tried.append(ready.reason)
                        continue
                    if ready.select in explained:
                        continue
                    if self.budget.spent:
                        self.lack("plan", "the time for bounded looks was used up")
                        return
                    explained.add(ready.select)
                    name = own[place] if place < len(own) else statement.text
                    self._plans.append(replace(self._explain(ready, explain), statement=name))
                    if claim.repeatable_limit and claim.writes and ready.whole and not self._whole_plans:
                        self._whole(ready)
            if len(self._plans) >= MOST_PLANS:
                break
        if not any(one.document for one in self._plans):
            errors = [one.error for one in self._plans if one.error] + tried
            self.lack("plan", errors[0] if errors else "no claim statement was seen that could be explained")
        self._generic_plans(texts)

    def _explainable(
        self, statement: Statement, claim: Claim, job: Mapping[str, str] = MappingProxyType({})
    ) -> Explainable:
        return make_explainable(
            statement, claim, self.identity, self.catalog, job, superuser=self.link.server.superuser
        )

    def _some_job(self, columns: tuple[str, ...]) -> dict[str, str]:
        """Return values that a ready job has, any job where none is ready: the claim is for such a one."""
        names = sql.SQL(", ").join(
            sql.SQL("q.{0}::text AS {0}").format(sql.Identifier(one)) for one in columns
        )
        known = sql.SQL(" AND ").join(
            sql.SQL("{} IS NOT NULL").format(sql.Identifier(one)) for one in columns
        )
        row = self.catalog.table(self.identity.oid)
        if row is not None and row.row_security and not self.link.server.superuser:
            return {}
        for ready in dict.fromkeys((self.identity.ready_predicate or "true", "true")):
            query = sql.SQL(
                "SELECT {names} FROM (SELECT * FROM {table} WHERE {ready} AND {known} LIMIT 1) q"
            ).format(names=names, table=self.table, ready=sql.SQL(ready), known=known)
            found = self._bounded("plan", query)
            if found:
                return dict(found[0])
        return {}

    def _generic_plans(self, texts: tuple[SeenText, ...]) -> None:
        """Ask for the plans that the claims get where their parameters are bound.

        A session's own text shows what is bound. In a text that pg_stat_statements has normalised a parameter may be a constant in
        truth, so such a text is asked about only where no session was caught with it.
        """
        known: set[str] = set()
        found: list[PlanProbe] = []
        for text, bound in self._parameter_texts(texts):
            key = text_fingerprint(text)
            if key in known:
                continue
            known.add(key)
            for statement in read_sql(text).statements:
                for claim in statement.claims:
                    if claim.table.name != self.identity.table and not self._is_leaf(claim.table.name):
                        continue
                    generic = make_generic(statement, claim)
                    if generic is None or any(one.sql == generic.select for one in found):
                        continue
                    if self.budget.spent or len(found) >= MOST_PLANS:
                        self._plans.extend(found)
                        return
                    found.append(self._explain_generic(generic, statement.text, bound))
        self._plans.extend(found)

    def _parameter_texts(self, texts: tuple[SeenText, ...]) -> list[tuple[str, bool]]:
        """Texts of claims, each with whether it shows what is bound, those that do first."""
        by_key = {one.key: one.text for one in texts}
        keys = [key for key in self.identity.claim_keys if key in by_key]
        own = [(by_key[key], True) for key in keys if key.startswith("text:")]
        own += [(text, True) for text in self._last_texts(keys)]
        if self.identity.claim_sql is not None and self.identity.claim_source in ("option", "framework"):
            own.insert(0, (self.identity.claim_sql, True))
        return own + [(by_key[key], False) for key in keys if not key.startswith("text:")]

    def _last_texts(self, keys: list[str]) -> list[str]:
        """The texts as sessions sent them last: a claim of a millisecond is hardly ever caught running."""
        ids = [int(key.split("/")[0]) for key in keys if QUERY_ID.match(key)]
        if not ids:
            return []
        try:
            found = self.session.records(
                "SELECT DISTINCT ON (a.query_id) left(a.query, 8192) AS query FROM pg_stat_activity a "
                "WHERE a.query_id = ANY (%(ids)s::bigint[]) AND a.datname = current_database() AND a.query <> ''",
                {"ids": ids},
                statement_timeout_ms=self.budget.milliseconds(LOOK_TIMEOUT_MS),
            )
        except psycopg.Error:
            return []
        cut_at = self.catalog.activity_text_bytes
        return [one["query"] for one in found if not read_sql(one["query"], cut_at=cut_at).unread]

    def _unsafe(self, text: str, *, execute: bool, writes: bool = False) -> str | None:
        """Say what of users' code planning (or executing) a statement could run, None for nothing."""
        try:
            reached = user_code(
                self.session, text, self._path, timeout_ms=self.budget.milliseconds(LOOK_TIMEOUT_MS)
            )
        except ValueError as error:
            return f"what it calls could not be read: {error}"
        found = reached.executing(writes=writes) if execute else reached.planning(writes=writes)
        return str(found) if found is not None else None

    def _explain_generic(self, generic: Generic, statement: str, bound: bool) -> PlanProbe:
        document = error = None
        try:
            if (why := self._unsafe(generic.select, execute=False)) is not None:
                return PlanProbe(
                    mode=GENERIC,
                    sql=generic.select,
                    error=f"not planned: {why}",
                    statement=statement,
                    bound=bound,
                )
            with self.session.transaction(
                statement_timeout_ms=self.budget.milliseconds(EXPLAIN_TIMEOUT_MS),
                search_path=self._path,
                local={
                    "max_parallel_workers_per_gather": "0",
                    "jit": "off",
                    "plan_cache_mode": "force_generic_plan",
                },
            ) as cursor:
                if self.link.server.has(Feature.GENERIC_PLAN):
                    cursor.execute(f"EXPLAIN (GENERIC_PLAN, FORMAT JSON) {generic.select}".encode())
                    document = json.dumps(_document(cursor.fetchone()))
                else:
                    document = _explain_prepared(cursor, generic)
        except psycopg.Error as failure:
            error = one_line(failure)
        return PlanProbe(
            mode=GENERIC, sql=generic.select, document=document, error=error, statement=statement, bound=bound
        )

    def _is_leaf(self, name: str) -> bool:
        return any(leaf.name == name for leaf in self.catalog.partitions_of(self.identity.oid))

    def _claim_texts(self, texts: tuple[SeenText, ...]) -> list[tuple[str, str]]:
        """Texts of claims, the busiest first: as they are known, and as a session sent them where one was seen.

        What a worker sent still has the constants that a normalised text has lost.
        """
        by_key = {one.key: one.text for one in texts}
        found = [self.identity.claim_sql] if self.identity.claim_sql else []
        keys = [key for key in self.identity.claim_keys if key in by_key]
        live = [by_key[key] for key in keys if key.startswith("text:")]
        rest = [by_key[key] for key in keys if not key.startswith("text:")]
        # A constant LIMIT may hide what a parameter in its place lets one think: that it is a claim at all.
        sent = {
            text_fingerprint(text): text
            for text in (*live, *self._last_texts(keys))
            if any(statement.claims for statement in read_sql(text).statements)
        }
        chosen: dict[str, str] = {}
        for text in (*found, *rest, *live):
            chosen.setdefault(sent.get(text_fingerprint(text), text), text)
        return [(known, shown) for shown, known in chosen.items()][: MOST_PLANS * 2]

    def _explain(self, ready: Explainable, explain: str) -> PlanProbe:
        mode, text = explain, ready.select or ""
        note: str | None = None
        if explain == "lock" and ready.locking:
            text = ready.locking
        elif explain == "full" and ready.whole:
            text = ready.whole
        if mode != "plan" and not ready.harmless:
            mode, note = "plan", f"not executed: {ready.reason}"
        elif mode == "full" and text == ready.whole and not is_harmless(text):
            mode, note = (
                "plan",
                "not executed: the statement calls a function that is not known to be harmless",
            )
        if mode != "plan" and ready.unknown:
            mode, note = "plan", f"not executed: no value is known for {', '.join(ready.unknown)}"
        timeout_ms = self.budget.milliseconds(EXPLAIN_TIMEOUT_MS)
        planned: str | None = None
        try:
            if (why := self._unsafe(ready.select or "", execute=False)) is not None:
                return PlanProbe(
                    mode="plan",
                    sql=ready.select or "",
                    parameters=ready.parameters,
                    error=f"not planned: {why}",
                )
            if (
                mode != "plan"
                and (why := self._unsafe(text, execute=True, writes=mode == "full")) is not None
            ):
                mode, note = "plan", f"not executed: {why}"
            with self.session.transaction(
                statement_timeout_ms=timeout_ms,
                search_path=self._path,
                read_only=mode in ("plan", "select"),
                local={"max_parallel_workers_per_gather": "0", "jit": "off"},
            ) as cursor:
                # Planning first fills the backend's catalog caches: otherwise their look-ups are charged to
                # the scan.
                cursor.execute(f"EXPLAIN (FORMAT JSON) {ready.select}".encode())
                planned = json.dumps(_document(cursor.fetchone()))
                options = "FORMAT JSON" if mode == "plan" else "ANALYZE, BUFFERS, TIMING OFF, FORMAT JSON"
                cursor.execute(f"EXPLAIN ({options}) {ready.select if mode == 'plan' else text}".encode())
                document = json.dumps(_document(cursor.fetchone()))
        except psycopg.errors.QueryCanceled:
            return PlanProbe(
                mode=mode,
                sql=text,
                parameters=ready.parameters,
                document=planned,
                error=f"the claim did not find its job within {timeout_ms} ms",
                # A timeout cut short because the doctor's own time was used up says nothing about the claim.
                timed_out=timeout_ms >= EXPLAIN_TIMEOUT_MS,
            )
        except psycopg.Error as error:
            return PlanProbe(mode=mode, sql=text, parameters=ready.parameters, error=one_line(error))
        return PlanProbe(mode=mode, sql=text, parameters=ready.parameters, document=document, error=note)

    def _whole(self, ready: Explainable) -> None:
        """Plan the whole statement without executing it: whether a join repeats its LIMIT shows there only.

        A role that may only read gets the plan of a SELECT that joins in the same way.
        """
        for text, writes in ((ready.whole or "", True), (joining_select(ready.whole or "") or "", False)):
            if not text:
                return
            try:
                if self._unsafe(text, execute=False, writes=writes) is not None:
                    return
                with self.session.transaction(
                    statement_timeout_ms=self.budget.milliseconds(LOOK_TIMEOUT_MS),
                    search_path=self._path,
                ) as cursor:
                    cursor.execute(f"EXPLAIN (FORMAT JSON) {text}".encode())
                    document = json.dumps(_document(cursor.fetchone()))
            except psycopg.errors.InsufficientPrivilege:
                continue
            except psycopg.Error:
                return
            self._whole_plans.append(
                PlanProbe(mode="plan", sql=text, parameters=ready.parameters, document=document)
            )
            return

    def _failed(self, what: str, error: psycopg.Error) -> None:
        if isinstance(error, psycopg.errors.LockNotAvailable):
            self.lack(what, f"{self.identity.name} is locked")
        elif isinstance(error, psycopg.errors.QueryCanceled):
            self.lack(what, f"looking at {what} took longer than the doctor allows itself")
        elif isinstance(error, psycopg.errors.UndefinedTable):
            self.lack(what, f"{self.identity.name} was dropped during the observation")
        elif isinstance(error, psycopg.errors.InsufficientPrivilege):
            grant = f"GRANT SELECT ON {self.identity.name} TO {quote(self.link.server.role)}"
            self.lack(what, one_line(error), grant)
        else:
            self.lack(what, one_line(error))


def _explain_prepared(cursor: psycopg.Cursor[dict[str, Any]], generic: Generic) -> str:
    """Explain a generic plan where EXPLAIN has no GENERIC_PLAN: by a prepared statement.

    A prepared statement outlives its transaction, and through a pooler it would be left to somebody else. A savepoint keeps the
    transaction usable whatever EXPLAIN says, so that DEALLOCATE reaches the backend that has it.
    """
    name = sql.Identifier(f"pgqdoctor_generic_{os.getpid()}")
    nothing = sql.SQL(", ").join([sql.SQL("NULL")] * generic.parameters)
    cursor.execute(sql.SQL("PREPARE {} AS ").format(name).as_bytes() + generic.select.encode())
    try:
        cursor.execute("SAVEPOINT pgqdoctor")
        cursor.execute(sql.SQL("EXPLAIN (FORMAT JSON) EXECUTE {} ({})").format(name, nothing))
        return json.dumps(_document(cursor.fetchone()))
    except psycopg.Error:
        cursor.execute("ROLLBACK TO SAVEPOINT pgqdoctor")
        raise
    finally:
        if not cursor.connection.broken:
            cursor.execute(sql.SQL("DEALLOCATE {}").format(name))


def _document(row: dict[str, Any] | None) -> Any:
    if row is None:
        raise psycopg.DataError("EXPLAIN returned nothing")
    value = next(iter(row.values()))
    return json.loads(value) if isinstance(value, str) else value


def _is_time(column: ColumnRow) -> bool:
    return column.type_category == "D" and column.type_name.startswith(("timestamp", "date"))


def _thinned(ages: list[float], most: int = 200) -> list[float]:
    """Keep a long sorted list short: every rank of the extremes, evenly spaced ranks between."""
    if len(ages) <= most:
        return ages
    step = (len(ages) - 1) / (most - 1)
    return [ages[round(place * step)] for place in range(most)]
