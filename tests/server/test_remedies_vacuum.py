"""The SQL of vacuum, bloat, HOT and index remedies, proven: sick, finding, remedy applied, finding gone, and the way back."""

from __future__ import annotations

import threading
import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import psycopg
import pytest

from pgqdoctor.collect import ObserveOptions, observe
from pgqdoctor.engine import diagnose
from pgqdoctor.finding import Remedy
from pgqdoctor.lab.load import Load
from pgqdoctor.lab.scenario import load_scenario
from pgqdoctor.lab.server import ScratchServer
from pgqdoctor.report import Report, ReportedFinding

WINDOW_S = 2.0
LONGEST_S = 30.0

CLAIM = (
    "UPDATE jobs SET state = 'running' WHERE id = (SELECT id FROM jobs WHERE state = 'ready' ORDER BY id LIMIT 1 "
    "FOR UPDATE SKIP LOCKED)"
)
JOBS = (
    "CREATE TABLE jobs (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, state text NOT NULL DEFAULT 'ready', "
    "run_at timestamptz NOT NULL DEFAULT now(), note text NOT NULL DEFAULT '') WITH (autovacuum_enabled = off)"
)


def run(dsn: str, *statements: str) -> None:
    """Run statements one by one; the counters are there once the session has ended (up to 14 a moment later)."""
    with psycopg.connect(dsn, autocommit=True, prepare_threshold=None) as connection:
        for one in statements:
            connection.execute(one.encode())
    time.sleep(0.7)


def value(dsn: str, query: str) -> Any:
    with psycopg.connect(dsn, autocommit=True) as connection:
        row = connection.execute(query.encode()).fetchone()
        return row[0] if row is not None else None


def look(dsn: str, check: str, **limits: object) -> Report:
    chosen: Mapping[str, Mapping[str, object]] | None = {check: limits} if limits else None
    report = diagnose(observe(dsn, ObserveOptions(window_seconds=WINDOW_S)), only={check}, limits=chosen)
    assert not report.crashed, report.crashed
    assert not report.skipped, report.skipped
    return report


def the_finding(report: Report) -> ReportedFinding:
    assert len(report.findings) == 1, [one.title for one in report.findings] or [
        one.name for one in report.queues
    ]
    return report.findings[0]


def gone(dsn: str, check: str, **limits: object) -> None:
    """Wait until nothing is found any more: counters and workers need a moment."""
    until = time.monotonic() + LONGEST_S
    while True:
        report = look(dsn, check, **limits)
        if not report.findings:
            return
        assert time.monotonic() < until, [(one.severity, one.title) for one in report.findings]


def shape(dsn: str, table: str = "jobs") -> tuple[Any, Any, Any]:
    """Storage options of the table and of its TOAST table, and all index definitions."""
    options = value(
        dsn,
        f"SELECT array_agg(o ORDER BY o) FROM pg_class, unnest(reloptions) o WHERE oid = '{table}'::regclass",
    )
    toast = value(
        dsn,
        "SELECT array_agg(o ORDER BY o) FROM pg_class t, unnest(t.reloptions) o "
        f"WHERE t.oid = (SELECT reltoastrelid FROM pg_class WHERE oid = '{table}'::regclass)",
    )
    indexes = value(
        dsn,
        f"SELECT array_agg(pg_get_indexdef(indexrelid) ORDER BY indexrelid::regclass::text) FROM pg_index WHERE indrelid = '{table}'::regclass",
    )
    return options, toast, indexes


def apply(dsn: str, remedy: Remedy) -> None:
    assert remedy.sql, remedy.title
    run(dsn, *remedy.sql)


def take_back(dsn: str, remedy: Remedy) -> None:
    assert remedy.undo, remedy.title
    run(dsn, *remedy.undo)


@contextmanager
def working(dsn: str, *steps: str, pause_s: float = 0.002) -> Iterator[None]:
    """Run the statements over and over in a session of their own."""
    stop = threading.Event()

    def loop() -> None:
        with psycopg.connect(dsn, autocommit=True, prepare_threshold=None) as connection:
            while not stop.is_set():
                for one in steps:
                    connection.execute(one.encode())
                stop.wait(pause_s)

    thread = threading.Thread(target=loop)
    thread.start()
    time.sleep(1.0)
    try:
        yield
    finally:
        stop.set()
        thread.join()


def scenario_remedy(
    database: str, name: str, check: str, choose: Callable[[ReportedFinding], Remedy], **limits: object
) -> None:
    """A scenario's load goes on while the remedy is applied and, after the finding has gone, taken back."""
    with Load(load_scenario(name), database) as load:
        time.sleep(load.scenario.settle_s)
        load.check()
        before = shape(load.dsn)
        finding = the_finding(look(load.dsn, check, **limits))
        remedy = choose(finding)
        apply(load.dsn, remedy)
        assert shape(load.dsn) != before
        gone(load.dsn, check, **limits)
        take_back(load.dsn, remedy)
        assert shape(load.dsn) == before


def first_sql(finding: ReportedFinding) -> Remedy:
    return next(one for one in finding.remedies if one.kind == "sql")


def test_autovacuum_threshold(database: str) -> None:
    scenario_remedy(database, "autovacuum-default-large", "autovacuum-settings", first_sql)


def test_autovacuum_switched_on(database: str) -> None:
    scenario_remedy(database, "autovacuum-off", "autovacuum-settings", first_sql)


def test_fillfactor(database: str) -> None:
    """The same rows written anew, without and with the room: only the fillfactor makes the difference."""
    run(
        database,
        JOBS,
        "INSERT INTO jobs (state, note) SELECT 'running', repeat('x', 900) FROM generate_series(1, 20000)",
        "VACUUM FULL jobs",
        "ANALYZE jobs",
        CLAIM,
    )
    # A sub-select makes random() one value, which the primary key finds.
    beat = "UPDATE jobs SET run_at = clock_timestamp() WHERE id = (SELECT 1 + floor(random() * 20000)::int)"
    before = shape(database)
    with working(database, beat):
        remedy = first_sql(the_finding(look(database, "hot-no-page-room")))
    apply(database, remedy)
    run(database, "VACUUM FULL jobs")
    with working(database, beat):
        assert look(database, "hot-no-page-room").findings == ()
    take_back(database, remedy)
    assert shape(database) == before
    run(database, "VACUUM FULL jobs")
    with working(database, beat):
        the_finding(look(database, "hot-no-page-room"))


def test_index_that_blocks_heap_only_updates(database: str) -> None:
    """Counters are minutes old in a test: with the default age no index is dropped, whatever it costs."""
    with Load(load_scenario("hot-indexed-heartbeat"), database) as load:
        time.sleep(load.scenario.settle_s)
        run(load.dsn, "SELECT pg_stat_reset()")
        time.sleep(1.5)
        careful = the_finding(look(load.dsn, "hot-blocked-by-index"))
        assert not any("DROP INDEX" in sql for one in careful.remedies for sql in one.sql)
        before = shape(load.dsn)
        finding = the_finding(look(load.dsn, "hot-blocked-by-index", counters_age_s=0.0))
        remedy = first_sql(finding)
        apply(load.dsn, remedy)
        gone(load.dsn, "hot-blocked-by-index", counters_age_s=0.0)
        take_back(load.dsn, remedy)
        assert shape(load.dsn) == before


def test_reapers_index_replaced_by_one_on_the_state(database: str) -> None:
    run(
        database,
        JOBS.replace("autovacuum_enabled = off", "fillfactor = 50"),
        "INSERT INTO jobs (state) SELECT 'running' FROM generate_series(1, 400)",
        "INSERT INTO jobs (state) SELECT 'done' FROM generate_series(1, 20000)",
        "INSERT INTO jobs (state) SELECT 'ready' FROM generate_series(1, 20)",
        "CREATE INDEX jobs_run_at_idx ON jobs (run_at)",
        "CREATE INDEX jobs_ready_idx ON jobs (id) WHERE state = 'ready'",
        "VACUUM ANALYZE jobs",
        CLAIM,
    )
    beat = "UPDATE jobs SET run_at = clock_timestamp() WHERE id = (SELECT 1 + floor(random() * 400)::int)"
    reap = "UPDATE jobs SET state = 'ready' WHERE state = 'running' AND run_at < now() - interval '1 hour'"
    before = shape(database)
    with working(database, *([beat] * 20), reap, pause_s=0.0005):
        finding = the_finding(look(database, "hot-blocked-by-index"))
        remedy = first_sql(finding)
        assert "partial index" in remedy.title
        apply(database, remedy)
        gone(database, "hot-blocked-by-index")
    plan = value(database, f"EXPLAIN (FORMAT JSON) {reap}")
    assert "jobs_running_idx" in str(plan)
    take_back(database, remedy)
    assert shape(database) == before


def test_vacuum_by_hand(database: str) -> None:
    run(
        database,
        JOBS,
        "INSERT INTO jobs (state) SELECT 'done' FROM generate_series(1, 5000)",
        "INSERT INTO jobs DEFAULT VALUES",
        "ANALYZE jobs",
        "UPDATE jobs SET state = 'archived' WHERE state = 'done'",
        "DELETE FROM jobs WHERE state = 'archived'",
        CLAIM,
    )
    finding = the_finding(look(database, "dead-tuples"))
    apply(database, first_sql(finding))
    gone(database, "dead-tuples")


def test_finished_jobs_archived_and_brought_back(database: str) -> None:
    run(
        database,
        JOBS,
        "INSERT INTO jobs (state) SELECT 'done' FROM generate_series(1, 120000)",
        "INSERT INTO jobs (state) SELECT 'ready' FROM generate_series(1, 500)",
        "CREATE INDEX jobs_ready_idx ON jobs (id) WHERE state = 'ready'",
        "ANALYZE jobs",
        CLAIM,
    )
    finding = the_finding(look(database, "finished-jobs-kept"))
    remedy = first_sql(finding)
    rows = "SELECT md5(string_agg(j::text, ',' ORDER BY id)) FROM jobs j"
    before = value(database, rows)
    apply(database, remedy)
    assert value(database, "SELECT count(*) FROM jobs") == 500
    assert value(database, "SELECT count(*) FROM jobs_archive") == 120_000
    run(database, "ANALYZE jobs")
    gone(database, "finished-jobs-kept")
    take_back(database, remedy)
    assert value(database, rows) == before
    assert value(database, "SELECT to_regclass('jobs_archive')") is None


def test_finished_jobs_deleted_in_batches(database: str) -> None:
    run(
        database,
        JOBS.replace("note text", "finished_at timestamptz, note text"),
        "INSERT INTO jobs (state, finished_at) SELECT 'done', now() - interval '40 days' FROM generate_series(1, 110000)",
        "INSERT INTO jobs (state, finished_at) SELECT 'done', now() FROM generate_series(1, 7)",
        "INSERT INTO jobs (state) SELECT 'ready' FROM generate_series(1, 500)",
        "CREATE INDEX jobs_ready_idx ON jobs (id) WHERE state = 'ready'",
        "ANALYZE jobs",
        CLAIM,
        "UPDATE jobs SET finished_at = now(), state = 'done' WHERE id = 110001",
    )
    finding = the_finding(look(database, "finished-jobs-kept"))
    apply(database, finding.remedies[1])
    assert value(database, "SELECT count(*) FROM jobs") == 507
    run(database, "ANALYZE jobs")
    gone(database, "finished-jobs-kept")


@pytest.mark.parametrize("measured", [False, True], ids=["estimated", "pgstattuple"])
def test_table_written_anew(database: str, measured: bool) -> None:
    if measured:
        if not value(database, "SELECT count(*) FROM pg_available_extensions WHERE name = 'pgstattuple'"):
            pytest.skip("this server was built without contrib/pgstattuple")
        run(database, "CREATE EXTENSION pgstattuple")
    run(
        database,
        JOBS,
        "INSERT INTO jobs (state, note) SELECT 'done', repeat('x', 100) FROM generate_series(1, 60000)",
        "INSERT INTO jobs (note) SELECT repeat('x', 100) FROM generate_series(1, 20)",
        "DELETE FROM jobs WHERE state = 'done'",
        "VACUUM ANALYZE jobs",
        CLAIM.replace("ORDER BY id ", ""),
    )
    finding = the_finding(look(database, "heap-bloat"))
    assert finding.severity == "warning"
    assert ("pgstattuple_approx" in {one.source for one in finding.evidence}) == measured
    apply(database, first_sql(finding))
    gone(database, "heap-bloat")


@pytest.mark.parametrize("method", ["btree", "gin"])
def test_index_built_anew(database: str, method: str) -> None:
    extra = (
        "CREATE INDEX jobs_note_idx ON jobs (note) WHERE state = 'done'"
        if method == "btree"
        else "CREATE INDEX jobs_note_idx ON jobs USING gin (to_tsvector('simple', note))"
    )
    run(
        database,
        JOBS,
        extra,
        "INSERT INTO jobs (state, note) SELECT 'done', md5(g::text) || repeat(md5((g + 1)::text), 3) FROM generate_series(1, 200000) g",
        "INSERT INTO jobs (state) SELECT 'ready' FROM generate_series(1, 500)",
        "DELETE FROM jobs WHERE state = 'done' AND id % 300 <> 0",
        "VACUUM ANALYZE jobs",
        CLAIM,
    )
    before = shape(database)
    finding = the_finding(look(database, "index-bloat"))
    if value(database, "SELECT count(*) FROM pg_available_extensions WHERE name = 'pgstattuple'"):
        run(database, "CREATE EXTENSION pgstattuple")
        assert the_finding(look(database, "index-bloat")).title.startswith(finding.title[:2])
    assert "jobs_note_idx" in finding.title
    apply(database, first_sql(finding))
    gone(database, "index-bloat")
    assert shape(database) == before


def toasted(database: str) -> None:
    run(
        database,
        "CREATE TABLE jobs (id int PRIMARY KEY, state text NOT NULL, console text NOT NULL) "
        "WITH (autovacuum_enabled = off, toast.autovacuum_enabled = off)",
        "ALTER TABLE jobs ALTER console SET STORAGE EXTERNAL",
        "INSERT INTO jobs SELECT g, 'running', repeat('x', 19000) FROM generate_series(1, 20) g",
        "INSERT INTO jobs SELECT g, 'ready', '' FROM generate_series(21, 30) g",
        CLAIM,
    )


def test_toast_table_vacuumed(database: str) -> None:
    toasted(database)
    before = shape(database)
    write = "UPDATE jobs SET console = repeat(md5(random()::text), 600) WHERE id = 1 + (random() * 18)::int"
    with working(database, *([write] * 50)):
        time.sleep(4.0)
        finding = the_finding(look(database, "toast-bloat"))
    assert "console" in finding.title
    setting, by_hand, written_anew = finding.remedies
    assert written_anew.kind == "application"
    apply(database, setting)
    take_back(database, setting)
    assert shape(database) == before
    apply(database, by_hand)
    until = time.monotonic() + LONGEST_S
    while (report := look(database, "toast-bloat")).findings and "dead chunks" in report.findings[0].title:
        assert time.monotonic() < until
    for one in report.findings:
        # The file keeps its size: what is left is room.
        apply(database, first_sql(one))
    gone(database, "toast-bloat")


def test_foreign_key_index(database: str) -> None:
    run(
        database,
        JOBS,
        "CREATE TABLE job_log (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, "
        "job_id bigint REFERENCES jobs ON DELETE CASCADE, line text)",
        "INSERT INTO jobs (state) SELECT 'ready' FROM generate_series(1, 20000)",
        "INSERT INTO job_log (job_id, line) SELECT g, 'x' FROM generate_series(1, 20000) g",
        "ANALYZE jobs, job_log",
        CLAIM,
    )
    before = shape(database, "job_log")
    with working(database, "DELETE FROM jobs WHERE id = (SELECT min(id) FROM jobs)"):
        finding = the_finding(look(database, "foreign-key-unindexed"))
        assert finding.severity == "warning"
        remedy = first_sql(finding)
        apply(database, remedy)
        gone(database, "foreign-key-unindexed")
    take_back(database, remedy)
    assert shape(database, "job_log") == before


def test_unused_index_dropped(database: str) -> None:
    run(
        database,
        JOBS,
        "CREATE INDEX jobs_note_idx ON jobs (note)",
        "CREATE INDEX jobs_ready_idx ON jobs (id) WHERE state = 'ready'",
        "SELECT pg_stat_reset()",
    )
    before = shape(database)
    insert = "INSERT INTO jobs DEFAULT VALUES"
    with working(database, insert, CLAIM):
        assert look(database, "unused-index").findings == ()
        finding = the_finding(look(database, "unused-index", counters_age_s=0.0))
        remedy = first_sql(finding)
        apply(database, remedy)
        gone(database, "unused-index", counters_age_s=0.0)
    take_back(database, remedy)
    assert shape(database) == before


def test_duplicate_index_dropped(database: str) -> None:
    run(
        database,
        JOBS,
        "CREATE INDEX jobs_id_idx ON jobs (id)",
        "CREATE INDEX jobs_ready_idx ON jobs (id) WHERE state = 'ready'",
        "INSERT INTO jobs DEFAULT VALUES",
        CLAIM,
    )
    before = shape(database)
    finding = the_finding(look(database, "duplicate-index"))
    assert "public.jobs_id_idx repeats public.jobs_pkey" in finding.title
    remedy = first_sql(finding)
    apply(database, remedy)
    gone(database, "duplicate-index")
    take_back(database, remedy)
    assert shape(database) == before


@pytest.mark.parametrize("kind", ["int GENERATED ALWAYS AS IDENTITY", "serial"])
def test_ids_get_room(database: str, kind: str) -> None:
    run(
        database,
        f"CREATE TABLE jobs (id {kind} PRIMARY KEY, state text NOT NULL DEFAULT 'ready', tag text UNIQUE)",
        "CREATE TABLE job_log (job_id int REFERENCES jobs, line text)",
        "INSERT INTO jobs (tag) VALUES ('a')",
        "ALTER SEQUENCE jobs_id_seq RESTART WITH 2147400000",
        CLAIM,
    )
    types = (
        "SELECT array_agg(attrelid::regclass || '.' || attname || ' ' || format_type(atttypid, atttypmod) ORDER BY 1) FROM pg_attribute "
        "WHERE attrelid IN ('jobs'::regclass, 'job_log'::regclass) AND attnum > 0"
    )
    sequence = (
        "SELECT seqtypid::regtype || ' ' || seqmax FROM pg_sequence WHERE seqrelid = 'jobs_id_seq'::regclass"
    )
    before = value(database, types), value(database, sequence)
    burn = "INSERT INTO jobs (tag) VALUES ('a') ON CONFLICT (tag) DO NOTHING"
    with working(database, burn):
        finding = the_finding(look(database, "id-exhaustion"))
        assert finding.severity == "critical"
        assert "ids were taken for 0 rows" in finding.why
        remedy, statement = finding.remedies
        apply(database, remedy)
        gone(database, "id-exhaustion")
    assert value(database, sequence) == f"bigint {2**63 - 1}"
    run(database, "INSERT INTO job_log SELECT id FROM jobs")
    burned = value(database, "SELECT last_value FROM jobs_id_seq")
    with psycopg.connect(database, autocommit=True) as connection:
        for tag in ("a", "b", "b"):
            connection.execute(
                statement.sql[0].replace("$1", "%s").encode(), [tag] * statement.sql[0].count("$1")
            )
    assert value(database, "SELECT last_value FROM jobs_id_seq") == burned + 1
    run(database, "DELETE FROM jobs WHERE tag = 'b'")
    take_back(database, remedy)
    assert (value(database, types), value(database, sequence)) == before


@pytest.fixture(scope="module")
def eager() -> Iterator[ScratchServer]:
    """A server with a single autovacuum worker that looks every second."""
    with ScratchServer(autovacuum_naptime_s=1, settings={"autovacuum_max_workers": 1}) as running:
        yield running


DUE = (
    "INSERT INTO jobs (state) SELECT 'done' FROM generate_series(1, 6000)",
    "INSERT INTO jobs DEFAULT VALUES",
    "DELETE FROM jobs WHERE state = 'done'",
    CLAIM,
)
ON = "ALTER TABLE jobs SET (autovacuum_enabled = on, autovacuum_vacuum_threshold = 100, autovacuum_vacuum_scale_factor = 0)"


def prepared(server: ScratchServer, name: str) -> str:
    dsn = server.create_database(f"{name}_{uuid.uuid4().hex[:8]}")
    run(dsn, "CREATE EXTENSION IF NOT EXISTS pg_stat_statements", JOBS)
    return dsn


def until_vacuumed(dsn: str, table: str) -> None:
    """Wait until a vacuum is at work on the table."""
    end = time.monotonic() + LONGEST_S
    while not value(dsn, f"SELECT count(*) FROM pg_stat_progress_vacuum WHERE relid = '{table}'::regclass"):
        assert time.monotonic() < end
        time.sleep(0.2)


def test_autovacuum_turned_away_by_a_lock(eager: ScratchServer) -> None:
    dsn = prepared(eager, "turned_away")
    with psycopg.connect(dsn, application_name="migrate") as holder:
        holder.execute("LOCK TABLE jobs IN SHARE UPDATE EXCLUSIVE MODE")
        run(dsn, *DUE)
        with psycopg.connect(dsn, autocommit=True) as other:
            # The option needs the same lock, so it is written where ALTER TABLE would write it.
            other.execute(
                "UPDATE pg_class SET reloptions = '{autovacuum_vacuum_threshold=100,autovacuum_vacuum_scale_factor=0}' "
                "WHERE oid = 'jobs'::regclass"
            )
        time.sleep(3.0)
        finding = the_finding(look(dsn, "autovacuum-behind"))
        assert "migrate" in finding.title
        apply(dsn, first_sql(finding))
        gone(dsn, "autovacuum-behind")
        holder.close()


def test_worker_busy_elsewhere(eager: ScratchServer) -> None:
    dsn = prepared(eager, "busy_elsewhere")
    run(
        dsn,
        "CREATE TABLE events WITH (autovacuum_vacuum_cost_delay = 100, autovacuum_vacuum_cost_limit = 1) AS "
        "SELECT g AS id, repeat('x', 500) AS body FROM generate_series(1, 30000) g",
        "DELETE FROM events WHERE id % 2 = 0",
    )
    until_vacuumed(dsn, "events")
    run(dsn, *DUE, ON)
    finding = the_finding(look(dsn, "autovacuum-behind"))
    assert "The only autovacuum worker is busy elsewhere (public.events)" in finding.title
    by_hand, more = finding.remedies
    assert more.restart == (value(dsn, "SELECT current_setting('server_version_num')::int") < 180000)
    apply(dsn, by_hand)
    gone(dsn, "autovacuum-behind")
    run(dsn, *more.sql)
    assert (
        value(
            dsn,
            "SELECT count(*) FROM pg_file_settings WHERE name = 'autovacuum_max_workers' AND setting = '3'",
        )
        == 1
    )
    run(dsn, *more.undo)
    run(
        dsn,
        "ALTER TABLE events SET (autovacuum_enabled = off)",
        "SELECT pg_cancel_backend(pid) FROM pg_stat_progress_vacuum",
    )


def test_vacuum_that_sleeps_too_much(eager: ScratchServer) -> None:
    dsn = prepared(eager, "sleepy")
    run(
        dsn,
        "INSERT INTO jobs (note) SELECT repeat('x', 500) FROM generate_series(1, 30000)",
        "DELETE FROM jobs WHERE id % 2 = 0",
        CLAIM,
        ON,
        "ALTER TABLE jobs SET (autovacuum_vacuum_cost_delay = 100, autovacuum_vacuum_cost_limit = 1)",
    )
    until_vacuumed(dsn, "jobs")
    before = shape(dsn)
    finding = the_finding(look(dsn, "autovacuum-behind"))
    assert "sleeps" in finding.title
    remedy = first_sql(finding)
    # The worker at work is asked to go: the next one starts with the new limit.
    apply(dsn, remedy)
    take_back(dsn, remedy)
    assert shape(dsn) == before
    apply(dsn, remedy)
    run(
        dsn,
        "ALTER TABLE jobs SET (autovacuum_vacuum_cost_limit = 10000)",
        "SELECT pg_cancel_backend(pid) FROM pg_stat_progress_vacuum",
    )
    gone(dsn, "autovacuum-behind")


def test_sequence_that_may_not_be_read_is_said_so(database: str) -> None:
    role = f"reader_{value(database, 'SELECT oid FROM pg_database WHERE datname = current_database()')}"
    run(
        database,
        JOBS,
        CLAIM,
        f"CREATE ROLE {role} LOGIN",
        f"GRANT pg_monitor TO {role}",
        f"GRANT SELECT ON jobs TO {role}",
    )
    try:
        dsn = psycopg.conninfo.make_conninfo(database, user=role)
        report = diagnose(observe(dsn, ObserveOptions(window_seconds=1)), only={"id-exhaustion"})
        (skipped,) = [one for one in report.skipped if one.check == "id-exhaustion"]
        assert skipped.grant is not None
        run(database, skipped.grant)
        report = diagnose(observe(dsn, ObserveOptions(window_seconds=1)), only={"id-exhaustion"})
        assert not [one for one in report.skipped if one.check == "id-exhaustion"]
    finally:
        run(database, f"DROP OWNED BY {role}", f"DROP ROLE {role}")


def test_cost_limits_that_let_no_pass_end(database: str) -> None:
    run(
        database,
        JOBS.replace(
            "autovacuum_enabled = off",
            "autovacuum_vacuum_threshold = 2000, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_cost_delay = 100, "
            "autovacuum_vacuum_cost_limit = 1",
        ),
        "INSERT INTO jobs (state, note) SELECT 'done', repeat('x', 500) FROM generate_series(1, 20000)",
        "CREATE INDEX jobs_ready_idx ON jobs (id) WHERE state = 'ready'",
        "VACUUM ANALYZE jobs",
        CLAIM,
    )
    before = shape(database)
    with working(
        database, "INSERT INTO jobs DEFAULT VALUES", CLAIM, "DELETE FROM jobs WHERE state = 'running'"
    ):
        finding = the_finding(look(database, "autovacuum-settings"))
        assert finding.key.endswith(":pace")
        remedy = first_sql(finding)
        apply(database, remedy)
        gone(database, "autovacuum-settings")
    take_back(database, remedy)
    assert shape(database) == before


def test_autovacuum_switched_on_for_the_server(eager: ScratchServer) -> None:
    dsn = prepared(eager, "all_off")
    run(dsn, *DUE, ON, "ALTER SYSTEM SET autovacuum = off", "SELECT pg_reload_conf()")
    try:
        finding = the_finding(look(dsn, "autovacuum-settings"))
        assert finding.key.endswith(":server")
        (remedy,) = finding.remedies
        apply(dsn, remedy)
        gone(dsn, "autovacuum-settings")
        take_back(dsn, remedy)
        time.sleep(0.5)
        assert value(dsn, "SELECT current_setting('autovacuum')") == "off"
    finally:
        run(dsn, "ALTER SYSTEM RESET autovacuum", "SELECT pg_reload_conf()")
