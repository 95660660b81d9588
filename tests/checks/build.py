"""Building observations by hand: a small, sound queue, of which a test changes what it is about.

``observation()`` describes ``public.jobs`` of 1,000 jobs with a partial index on the ready state, claimed
with SKIP LOCKED.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from pgqdoctor.check import Check
from pgqdoctor.discover import discover
from pgqdoctor.discovery.seen import seen_texts
from pgqdoctor.finding import Finding
from pgqdoctor.observation import (
    Catalog,
    Extension,
    Observation,
    QueueProbe,
    Reading,
    Sample,
    SampledSession,
    Server,
)
from pgqdoctor.queue import Queue, build_queue
from pgqdoctor.rows import (
    ColumnRow,
    DatabaseRow,
    ForeignKeyRow,
    IndexCounterRow,
    IndexRow,
    LockRow,
    MultixactRow,
    SessionRow,
    SettingRow,
    SlruRow,
    StatementCounterRow,
    StatementTextRow,
    TableCounterRow,
    TableRow,
)

WINDOW_S = 10.0
JOBS = 1000
"""Oid of public.jobs."""

CLAIM = (
    "UPDATE jobs SET state = $1, attempts = attempts + 1 WHERE id = (SELECT id FROM jobs WHERE state = $2 AND run_at <= now() "
    "ORDER BY run_at, id LIMIT $3 FOR UPDATE SKIP LOCKED) RETURNING id"
)
FINISH = "DELETE FROM jobs WHERE id = $1"
ENQUEUE = "INSERT INTO jobs (payload) VALUES ($1)"


def server(version_num: int = 180000, **changes: Any) -> Server:
    known = Server(
        version=str(version_num // 10000),
        version_num=version_num,
        database="app",
        role="doctor",
        superuser=True,
        granted_roles=("pg_monitor",),
        extensions=(Extension(name="pg_stat_statements", version="1.10", schema="public"),),
        statements="ready",
        in_recovery=False,
        pooler=False,
        started_at="2026-01-01T00:00:00Z",
        backend_pid=1,
    )
    return replace(known, **changes)


def table(oid: int = JOBS, name: str = "jobs", **changes: Any) -> TableRow:
    known = TableRow(
        oid=oid,
        schema="public",
        name=name,
        kind="r",
        persistence="p",
        rows=1000.0,
        pages=20,
        options=(),
        parent=None,
        toast=None,
        frozen_xid_age=1000,
        min_multixact_age=10,
        row_security=False,
        visible=True,
        may_select=True,
        owner="app",
    )
    return replace(known, **changes)


def column(
    number: int, name: str, type_name: str = "text", category: str = "S", table: int = JOBS, **changes: Any
) -> ColumnRow:
    known = ColumnRow(
        table=table,
        number=number,
        name=name,
        type_name=type_name,
        type_category=category,
        not_null=True,
        generated=False,
        enum_labels=(),
        average_width=8,
        null_fraction=0.0,
        distinct=-1.0,
        common_values=(),
        common_fractions=(),
        statistics_target=None,
        inherited_statistics=False,
    )
    return replace(known, **changes)


def job_columns() -> tuple[ColumnRow, ...]:
    return (
        column(1, "id", "bigint", "N"),
        column(
            2,
            "state",
            distinct=3.0,
            common_values=("done", "queued", "running"),
            common_fractions=(0.7, 0.2, 0.1),
        ),
        column(3, "payload", "jsonb", "U", average_width=100),
        column(4, "attempts", "integer", "N"),
        column(5, "run_at", "timestamp with time zone", "D"),
        column(6, "heartbeat_at", "timestamp with time zone", "D", not_null=False),
    )


def index(
    oid: int, name: str, keys: Sequence[int], predicate: str | None = None, table: int = JOBS, **changes: Any
) -> IndexRow:
    known = IndexRow(
        oid=oid,
        table=table,
        schema="public",
        name=name,
        method="btree",
        unique=False,
        primary=False,
        constraint=None,
        valid=True,
        key_columns=tuple(keys),
        included_columns=(),
        has_predicate=predicate is not None,
        has_expressions=0 in keys,
        predicate=predicate,
        definition=f"CREATE INDEX {name} ON public.jobs USING btree (...)",
        expressions=None,
        pages=5,
        rows=1000.0,
        replica_identity=False,
        descending=tuple(False for _ in keys),
    )
    return replace(known, **changes)


def job_indexes() -> tuple[IndexRow, ...]:
    return (
        index(2001, "jobs_pkey", [1], unique=True, primary=True, constraint="jobs_pkey"),
        index(2002, "jobs_ready_idx", [5, 1], predicate="(state = 'queued'::text)"),
    )


def counters(oid: int = JOBS, **changes: Any) -> TableCounterRow:
    known = TableCounterRow(
        oid=oid,
        seq_scan=0,
        seq_tup_read=0,
        idx_scan=0,
        inserted=0,
        updated=0,
        hot_updated=0,
        newpage_updated=0,
        deleted=0,
        live=1000,
        dead=0,
        modified_since_analyze=0,
        inserted_since_vacuum=0,
        last_vacuum_s=None,
        last_autovacuum_s=30.0,
        last_analyze_s=None,
        last_autoanalyze_s=30.0,
        vacuums=0,
        autovacuums=10,
    )
    return replace(known, **changes)


def database(**changes: Any) -> DatabaseRow:
    known = DatabaseRow(
        commits=0,
        rollbacks=0,
        deadlocks=0,
        temp_bytes=0,
        blocks_hit=0,
        blocks_read=0,
        next_multixact=1000,
        multixact_age=999,
        next_xid=100_000,
        xid_age=90_000,
        notify_usage=0.0,
        stats_reset_s=86_400.0,
        backends=10,
        started_s=100_000.0,
    )
    return replace(known, **changes)


def reading(at: float, **changes: Any) -> Reading:
    known = Reading(
        at=at,
        database=database(started_s=100_000.0 + at),
        tables=(counters(),),
        indexes=(),
        statements=(),
        slru=(),
        sessions=(),
        locks=(),
        prepared=(),
        slots=(),
        standbys=(),
        vacuums=(),
    )
    return replace(known, **changes)


def statement(key: str, text: str) -> StatementTextRow:
    return StatementTextRow(key=key, query_id=int(key.split("/")[0]), role="app", toplevel=True, text=text)


def calls(key: str, count: int, rows: int | None = None, **changes: Any) -> StatementCounterRow:
    known = StatementCounterRow(
        key=key,
        calls=count,
        rows=count if rows is None else rows,
        total_ms=count * 0.1,
        blocks_hit=count * 5,
        blocks_read=0,
        blocks_dirtied=count,
        temp_blocks_written=0,
    )
    return replace(known, **changes)


def session(pid: int, **changes: Any) -> SessionRow:
    known = SessionRow(
        pid=pid,
        database="app",
        role="app",
        application="worker",
        backend_type="client backend",
        state="active",
        wait_type=None,
        wait_event=None,
        xid=None,
        xid_age=None,
        xmin=None,
        xmin_age=None,
        xact_age_s=0.01,
        query_age_s=0.01,
        state_age_s=0.01,
        query_id=None,
        query=None,
        vacuuming=False,
        backend_start_s=1000.0,
    )
    return replace(known, **changes)


def sampled(pid: int, text: int = -1, **changes: Any) -> SampledSession:
    known = SampledSession(
        pid=pid,
        state="active",
        wait_type=None,
        wait_event=None,
        xid_age=None,
        xmin_age=None,
        xact_age_s=0.01,
        query_age_s=0.01,
        state_age_s=0.01,
        text=text,
        application="worker",
    )
    return replace(known, **changes)


def slru(name: str, zeroed: int = 0, hit: int = 0, read: int = 0) -> SlruRow:
    return SlruRow(name=name, blocks_zeroed=zeroed, blocks_hit=hit, blocks_read=read, blocks_written=0)


def setting(name: str, value: str) -> SettingRow:
    return SettingRow(name=name, setting=value, unit=None, source="default")


def foreign_key(
    name: str, child: int, parent: int, child_column: str, parent_column: str = "id", **changes: Any
) -> ForeignKeyRow:
    known = ForeignKeyRow(
        name=name,
        child=child,
        parent=parent,
        child_name="public.child",
        parent_name="public.parent",
        child_columns=(child_column,),
        parent_columns=(parent_column,),
        on_delete="a",
        indexed=False,
        parent_rows=1.0,
        child_rows=1000.0,
    )
    return replace(known, **changes)


def catalog(**changes: Any) -> Catalog:
    known = Catalog(
        tables=(table(),),
        columns=job_columns(),
        indexes=job_indexes(),
        foreign_keys=(),
        triggers=(),
        functions=(),
        settings=(setting("autovacuum", "on"),),
    )
    return replace(known, **changes)


def probe(**changes: Any) -> QueueProbe:
    known = QueueProbe(
        oid=JOBS,
        table_bytes=163_840,
        index_bytes=81_920,
        toast_bytes=0,
        index_sizes=(),
        ready_rows=100,
        ready_exact=True,
        oldest_ready_age_s=0.5,
        states=(),
        stuck=(),
        plans=(),
    )
    return replace(known, **changes)


def observation(
    *,
    statements: Mapping[str, tuple[str, int, int]] | None = None,
    first: Reading | None = None,
    last: Reading | None = None,
    samples: tuple[Sample, ...] = (),
    texts: tuple[str, ...] = (),
    of: Catalog | None = None,
    on: Server | None = None,
    probes: tuple[QueueProbe, ...] | None = None,
    forced: tuple[str, ...] = (),
    **changes: Any,
) -> Observation:
    """Make an observation. ``statements`` maps a key such as "1/10/1" to (text, calls in the window, rows in
    the window)."""
    used = (
        statements if statements is not None else {"1/10/1": (CLAIM, 100, 100), "2/10/1": (FINISH, 100, 100)}
    )
    begin = first or reading(0.0)
    end = last or reading(WINDOW_S)
    if not end.statements:
        begin = replace(begin, statements=tuple(calls(key, 0) for key in used))
        end = replace(
            end, statements=tuple(calls(key, count, rows) for key, (_, count, rows) in used.items())
        )
    cat = of or catalog()
    rows = tuple(statement(key, text) for key, (text, _, _) in used.items())
    if not samples:
        samples = tuple(Sample(at=place / 10, sessions=()) for place in range(int(WINDOW_S * 10)))
    moving = frozenset(row.oid for row in cat.tables)
    identities = discover(
        cat,
        seen_texts(rows, {row.key: row.calls for row in end.statements}, texts),
        moving=moving,
        counters=end.tables,
        forced=forced,
    )
    known = Observation(
        generated_at="2026-01-01T00:00:00Z",
        tool_version="0.0.0",
        server=on or server(),
        catalog=cat,
        statement_texts=rows,
        texts=texts,
        first=begin,
        last=end,
        samples=samples,
        queues=identities,
        probes=(probe(),) if probes is None else probes,
        lacks=(),
    )
    return replace(known, **changes)


def the_queue(seen: Observation) -> Queue:
    """The queue of oid JOBS."""
    identity = next(one for one in seen.queues if one.oid == JOBS)
    return build_queue(seen, identity)


def evaluated(check: Check, seen: Observation, **limits: Any) -> list[Finding]:
    """What a check says about public.jobs (about the server, for a check of that scope)."""
    bounds = replace(check.limits, **limits) if limits else check.limits
    return list(check.evaluate(seen, the_queue(seen) if check.scope == "queue" else None, bounds))


def index_counters(oid: int, scans: int) -> IndexCounterRow:
    return IndexCounterRow(oid=oid, scans=scans, entries_read=scans, rows_fetched=scans)


def multixact_samples(
    *modes: tuple[str, ...], pids: tuple[int, ...] = (), sessions: tuple[SampledSession, ...] = ()
) -> tuple[Sample, ...]:
    """One sample per second, each with a look at one MultiXact of each of the given member modes."""
    return tuple(
        Sample(
            at=float(second),
            sessions=sessions,
            multixacts=tuple(
                MultixactRow(id=1000 + second * 100 + place, modes=mode, pids=pids)
                for place, mode in enumerate(modes)
            ),
            next_multixact=1000 + second * 100 + len(modes),
        )
        for second in range(int(WINDOW_S))
    )


def multixacts_made(per_second: float, **changes: Any) -> Reading:
    """The reading at the end of a window in which so many MultiXacts were made."""
    made = round(per_second * WINDOW_S)
    return reading(
        WINDOW_S,
        database=database(
            started_s=100_000.0 + WINDOW_S, next_multixact=1000 + made, multixact_age=999 + made
        ),
        **changes,
    )


def lock(pid: int | None, mode: str = "AccessShareLock", **changes: Any) -> LockRow:
    """A granted lock on public.jobs; with ``blocked_by`` and ``wait_age_s`` a waiting one."""
    known = LockRow(
        pid=pid,
        locktype="relation",
        database=5,
        relation=JOBS,
        mode=mode,
        granted="blocked_by" not in changes,
        wait_age_s=None,
        classid=None,
        objid=None,
        blocked_by=(),
    )
    return replace(known, **changes)


def held_open(pid: int, text: int, seconds: float, **changes: Any) -> tuple[Sample, ...]:
    """Samples, ten per second, of a session that has been idle in transaction for ``seconds`` at the end of the window."""
    found = []
    for place in range(int(WINDOW_S * 10)):
        at = place / 10
        age = seconds - (WINDOW_S - 0.1 - at)
        one = sampled(pid, text, state="idle in transaction", xact_age_s=age, state_age_s=age, xid_age=100)
        found.append(Sample(at=at, sessions=(replace(one, **changes),) if age >= 0 else ()))
    return tuple(found)
