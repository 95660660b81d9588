"""Servers and users that mean harm, or are merely in trouble: nothing of theirs runs, and the report stands."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import psycopg
import pytest

from pgqdoctor.collect import ObserveOptions, Observer, observe
from pgqdoctor.engine import diagnose
from pgqdoctor.errors import PgqdoctorError
from pgqdoctor.lab.server import ScratchServer
from pgqdoctor.observation import Observation
from pgqdoctor.render import FORMATS, render

SETUP = """
CREATE TABLE jobs (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, status varchar NOT NULL DEFAULT 'queued',
                   kind text NOT NULL DEFAULT 'mail', run_at timestamptz NOT NULL DEFAULT now());
CREATE INDEX jobs_queued_idx ON jobs (run_at, id) WHERE status = 'queued';
INSERT INTO jobs (status) SELECT 'queued' FROM generate_series(1, 300);
ANALYZE jobs;
CREATE SEQUENCE trap;
"""
TRAP = "BEGIN PERFORM pg_advisory_lock(4711, pg_backend_pid()); RAISE LOG 'trap: %', pg_backend_pid(); RETURN {value}; END"
"""A READ ONLY transaction refuses to write, so the trap takes a session's lock, which outlives the rollback."""
CLAIM = "SELECT id FROM jobs WHERE status = 'queued' AND run_at <= now() {more} ORDER BY run_at, id LIMIT 1 FOR UPDATE SKIP LOCKED"


@pytest.fixture
def queue(database: str) -> str:
    with psycopg.connect(database, autocommit=True) as connection:
        connection.execute(SETUP.encode())
    return database


def run(dsn: str, *statements: str) -> None:
    with psycopg.connect(dsn, autocommit=True) as connection:
        for statement in statements:
            connection.execute(statement.encode())


def trap(
    name: str,
    arguments: str,
    returns: str,
    value: str,
    *,
    volatility: str = "IMMUTABLE",
    language: str = "plpgsql",
) -> str:
    body = TRAP.format(value=value)
    return f"CREATE FUNCTION {name}({arguments}) RETURNS {returns} {volatility} LANGUAGE {language} AS $trap${body}$trap$"


@contextmanager
def sprung(dsn: str) -> Iterator[list[str]]:
    """Collect the traps' locks of the doctor's sessions while the block runs."""
    found: list[str] = []
    over = threading.Event()

    def watch() -> None:
        with psycopg.connect(dsn, autocommit=True) as connection:
            while not over.is_set():
                found.extend(
                    one[0]
                    for one in connection.execute(
                        "SELECT a.query FROM pg_locks l JOIN pg_stat_activity a USING (pid) WHERE l.locktype = 'advisory' "
                        "AND l.classid = 4711 AND a.application_name = 'pgqdoctor' AND a.datname = current_database()"
                    ).fetchall()
                )
                time.sleep(0.02)

    thread = threading.Thread(target=watch)
    thread.start()
    try:
        yield found
    finally:
        time.sleep(0.1)
        over.set()
        thread.join()


def look(dsn: str, claim: str | None = None, *, explain: str = "select", window: float = 0.3) -> Observation:
    return observe(
        dsn,
        ObserveOptions(
            window_seconds=window,
            queues=("public.jobs",),
            claim_queries={"public.jobs": claim} if claim else {},
            explain=explain,
            probe_seconds=5.0,
        ),
    )


COMPARED = "CREATE OPERATOR public.= (LEFTARG = varchar, RIGHTARG = varchar, PROCEDURE = public.same)"
HIJACKS: dict[str, tuple[tuple[str, ...], str]] = {
    "operator that fits better": (
        (trap("public.same", "varchar, varchar", "boolean", "true"), COMPARED),
        "",
    ),
    "function that fits better": (
        (trap("public.lower", "varchar", "text", "'queued'"),),
        "AND lower(status) = 'queued'",
    ),
    "age of a transaction": (
        (trap("public.age", "varchar", "interval", "'1 day'::interval"),),
        "AND age(status) > '1 hour'",
    ),
    "immutable function, evaluated while planning": (
        (trap("public.eligible", "text", "boolean", "true"),),
        "AND eligible('x')",
    ),
    "SQL function that hides one": (
        (
            trap("public.hidden", "text", "boolean", "true"),
            "CREATE FUNCTION public.eligible(bigint) RETURNS boolean LANGUAGE sql AS $$SELECT public.hidden('x')$$",
        ),
        "AND eligible(id)",
    ),
    "volatile function": (
        (trap("public.eligible", "bigint", "boolean", "true", volatility="VOLATILE"),),
        "AND eligible(id)",
    ),
    "function with a dot in its name": (
        (trap('public."pg_catalog.now"', "", "timestamptz", "clock_timestamp()", volatility="VOLATILE"),),
        'AND run_at <= "pg_catalog.now"()',
    ),
    "function called as a column": (
        (trap("public.due", "public.jobs", "boolean", "true", volatility="VOLATILE"),),
        "AND jobs.due",
    ),
    "view": (
        (
            trap("public.hidden", "text", "boolean", "true", volatility="VOLATILE"),
            "CREATE VIEW active AS SELECT 'mail'::text AS kind WHERE public.hidden('x')",
        ),
        "AND EXISTS (SELECT 1 FROM active a WHERE a.kind = jobs.kind)",
    ),
    "partial index": (
        (
            trap("public.hidden", "text", "boolean", "true"),
            "CREATE INDEX ON jobs (id) WHERE public.hidden('x')",
        ),
        "",
    ),
    "expression index": (
        (
            trap("public.hidden", "text", "boolean", "true"),
            "CREATE FUNCTION public.shown(bigint) RETURNS boolean IMMUTABLE LANGUAGE sql AS $$SELECT public.hidden('x')$$",
            "CREATE INDEX ON jobs (public.shown(id))",
        ),
        "",
    ),
    "extended statistics": (
        (
            trap("public.hidden", "text", "boolean", "true"),
            "CREATE STATISTICS s ON (public.hidden('x' || kind)), id FROM jobs",
        ),
        "",
    ),
    "domain": (
        (
            trap("public.hidden", "text", "boolean", "true"),
            "CREATE DOMAIN public.state AS text CHECK (public.hidden(VALUE))",
        ),
        "AND kind = 'mail'::state",
    ),
    "cast": (
        (
            "CREATE TYPE public.colour AS ENUM ('red')",
            trap("public.painted", "text", "public.colour", "'red'::public.colour"),
            "CREATE CAST (text AS public.colour) WITH FUNCTION public.painted(text) AS IMPLICIT",
        ),
        "AND ('red'::text)::colour = 'red'::colour",
    ),
    "row security": (
        (
            trap("public.hidden", "text", "boolean", "true"),
            "ALTER TABLE jobs ENABLE ROW LEVEL SECURITY",
            "ALTER TABLE jobs FORCE ROW LEVEL SECURITY",
            "CREATE POLICY p ON jobs USING (public.hidden('x'))",
        ),
        "",
    ),
}


@pytest.mark.parametrize("kind", sorted(HIJACKS))
@pytest.mark.parametrize("explain", ["select", "plan"])
def test_no_code_of_a_user_is_executed(queue: str, kind: str, explain: str) -> None:
    statements, more = HIJACKS[kind]
    run(queue, *statements)
    claim = CLAIM.format(more=more)
    with sprung(queue) as traps, psycopg.connect(queue, autocommit=True) as worker:
        with suppress(psycopg.Error):
            worker.execute(claim.encode())
        seen = look(queue, claim, explain=explain)
        with suppress(psycopg.Error):
            worker.execute(claim.encode(), prepare=True)
    assert traps == []
    report = diagnose(seen)
    assert [one.name for one in report.queues] == ["public.jobs"]
    assert not report.crashed


@pytest.mark.parametrize("explain", ["lock", "full"])
@pytest.mark.parametrize("place", ["claim", "trigger", "default"])
def test_even_when_asked_to_execute_the_claim_no_code_of_a_user_runs(
    queue: str, explain: str, place: str
) -> None:
    function = trap(
        "public.noted",
        "",
        "trigger" if place == "trigger" else "text",
        "NEW" if place == "trigger" else "'x'",
        volatility="VOLATILE",
    )
    run(queue, function)
    returned = ""
    if place == "trigger":
        run(queue, "CREATE TRIGGER noted BEFORE UPDATE ON jobs FOR EACH ROW EXECUTE FUNCTION noted()")
    elif place == "default":
        run(queue, "ALTER TABLE jobs ALTER kind SET DEFAULT public.noted()")
    else:
        returned = ", noted()"
    kind = ", kind = DEFAULT" if place == "default" else ""
    claim = f"UPDATE jobs SET status = 'running'{kind} WHERE id = ({CLAIM.format(more='')}) RETURNING id{returned}"
    with sprung(queue) as traps:
        seen = look(queue, claim, explain=explain)
    assert traps == []
    assert seen.probes[0].plans


@pytest.mark.parametrize("first", ["evil, pg_catalog", "evil, public", "pg_catalog, evil", '"$user", evil'])
def test_a_role_whose_search_path_puts_users_before_the_catalog(queue: str, first: str) -> None:
    name = f"path_{uuid.uuid4().hex[:8]}"
    run(
        queue,
        "CREATE SCHEMA evil",
        trap("evil.current_setting", "text", "text", "'14.0'", volatility="VOLATILE"),
        trap("evil.current_setting", "text, boolean", "text", "'14.0'", volatility="VOLATILE"),
        trap("evil.current_schemas", "boolean", "name[]", "'{}'", volatility="VOLATILE"),
        trap("evil.same", "name, name", "boolean", "true"),
        "CREATE OPERATOR evil.= (LEFTARG = name, RIGHTARG = name, PROCEDURE = evil.same)",
        trap("evil.pg_is_in_recovery", "", "boolean", "false", volatility="VOLATILE"),
        "CREATE DOMAIN evil.text AS pg_catalog.text CHECK (evil.same('a', 'b'))",
        "CREATE VIEW evil.pg_roles AS SELECT * FROM pg_catalog.pg_roles WHERE evil.same('a', 'b')",
        f"CREATE ROLE {name} LOGIN SUPERUSER",
        f"ALTER ROLE {name} SET search_path = {first}",
    )
    try:
        with sprung(queue) as traps:
            seen = look(psycopg.conninfo.make_conninfo(queue, user=name), CLAIM.format(more=""))
        assert traps == []
        assert seen.server.version_num >= 140000 and seen.server.superuser
    finally:
        run(queue, f"DROP ROLE {name}")


def test_operators_beside_the_statistics_extension_are_not_used(queue: str) -> None:
    """pg_stat_statements lies in public, where users may lay operators that fit a probe's arithmetic better."""
    run(
        queue,
        trap("public.times", "numeric, integer", "numeric", "$1"),
        "CREATE OPERATOR public.* (LEFTARG = numeric, RIGHTARG = integer, PROCEDURE = public.times)",
        trap("public.same", "text, name", "boolean", "true"),
        "CREATE OPERATOR public.!~* (LEFTARG = text, RIGHTARG = name, PROCEDURE = public.same)",
        trap("public.concat_ws", "text, bigint, oid, integer", "text", "'x'"),
        trap("public.left", "text, bigint", "text", "'x'"),
        trap("public.pg_get_userbyid", "bigint", "name", "'x'"),
    )
    with sprung(queue) as traps:
        seen = look(queue)
    assert traps == []
    assert seen.statement_texts


def test_operators_of_a_trusted_extension_do_not_keep_the_claim_from_being_measured(queue: str) -> None:
    run(queue, "CREATE EXTENSION citext", "CREATE EXTENSION hstore", "CREATE EXTENSION pg_trgm")
    (plan,) = [one for one in look(queue, CLAIM.format(more="")).probes[0].plans if one.mode != "generic"]
    assert (plan.mode, plan.error) == ("select", None)


def test_a_volatile_function_of_the_application_is_planned(queue: str) -> None:
    run(
        queue,
        "CREATE FUNCTION eligible(bigint) RETURNS boolean LANGUAGE plpgsql AS $$BEGIN RETURN true; END$$",
    )
    plan = look(queue, CLAIM.format(more="AND eligible(id)")).probes[0].plans[0]
    assert plan.mode == "plan" and plan.document is not None
    assert "not executed" in (plan.error or "")


@pytest.mark.parametrize(
    "settings",
    [
        {"standard_conforming_strings": "off"},
        {
            "bytea_output": "escape",
            "DateStyle": "'German'",
            "IntervalStyle": "'sql_standard'",
            "TimeZone": "'Asia/Kathmandu'",
        },
        {"default_transaction_isolation": "'serializable'", "default_transaction_deferrable": "on"},
        {"default_transaction_read_only": "on"},
        {"idle_session_timeout": "'150ms'"},
        {"statement_timeout": "'5ms'"},
        {"lock_timeout": "'1ms'", "idle_in_transaction_session_timeout": "'20ms'"},
        {"log_min_duration_statement": "0", "client_min_messages": "debug5", "log_statement": "'all'"},
        {
            "extra_float_digits": "-15",
            "array_nulls": "off",
            "backslash_quote": "off",
            "xmlbinary": "hex",
            "quote_all_identifiers": "on",
        },
        {
            "row_security": "off",
            "enable_seqscan": "off",
            "enable_indexscan": "off",
            "plan_cache_mode": "force_generic_plan",
        },
        {"track_activities": "off"},
        {"compute_query_id": "off"},
        {"search_path": "''"},
        {"search_path": "nowhere"},
        {"client_encoding": "'LATIN1'"},
        {"force_parallel_mode": "on"},
        {"debug_parallel_query": "on", "parallel_setup_cost": "0", "min_parallel_table_scan_size": "0"},
        {"jit": "on", "jit_above_cost": "0", "jit_inline_above_cost": "0", "jit_optimize_above_cost": "0"},
        {"log_statement": "'all'", "log_duration": "on", "log_min_error_statement": "'debug5'"},
        {"lc_messages": "'de_DE.UTF-8'", "lc_numeric": "'de_DE.UTF-8'", "lc_time": "'de_DE.UTF-8'"},
        {"client_encoding": "'EUC_JP'"},
        {"extra_float_digits": "3", "geqo": "off", "constraint_exclusion": "on", "row_security": "off"},
        {
            "transform_null_equals": "on",
            "default_text_search_config": "'simple'",
            "escape_string_warning": "off",
        },
        {
            "synchronize_seqscans": "off",
            "work_mem": "'64kB'",
            "temp_file_limit": "'0'",
            "jit_above_cost": "0",
        },
    ],
    ids=lambda one: ",".join(one),
)
def test_odd_settings_of_a_role_change_nothing(queue: str, settings: dict[str, str]) -> None:
    name = f"odd_{uuid.uuid4().hex[:8]}"
    run(queue, f"CREATE ROLE {name} LOGIN SUPERUSER")
    try:
        for setting, value in settings.items():
            try:
                run(queue, f"ALTER ROLE {name} SET {setting} = {value}")
            except (psycopg.errors.UndefinedObject, psycopg.errors.InvalidParameterValue):
                pytest.skip(f"this server has no {setting} = {value}")
        seen = look(psycopg.conninfo.make_conninfo(queue, user=name), CLAIM.format(more=""))
        plan = seen.probes[0].plans[0]
        assert (plan.mode, plan.error) == ("select", None)
        assert seen.probes[0].ready_rows == 300
        assert seen.seconds > 0.2
        assert not diagnose(seen).crashed
    finally:
        run(queue, f"DROP ROLE {name}")


@pytest.mark.parametrize("setting", ["on", "off"])
def test_row_security_of_the_queue_is_told_and_no_number_is_made_up(queue: str, setting: str) -> None:
    """Under row_security = off the server refuses what a policy would filter; under on it hides rows from a count."""
    name = f"tenant_{uuid.uuid4().hex[:8]}"
    run(
        queue,
        f"CREATE ROLE {name} LOGIN",
        f"GRANT pg_monitor TO {name}",
        f"GRANT SELECT, UPDATE ON jobs TO {name}",
        f"ALTER ROLE {name} SET row_security = {setting}",
        "ALTER TABLE jobs ENABLE ROW LEVEL SECURITY",
        "CREATE POLICY own ON jobs USING (kind = current_user)",
    )
    try:
        seen = look(psycopg.conninfo.make_conninfo(queue, user=name), CLAIM.format(more=""))
        report = diagnose(seen)
        assert not report.crashed
        assert [one.name for one in report.queues] == ["public.jobs"]
        assert seen.probes[0].ready_rows is None
        assert any("row security" in one.reason for one in seen.probes[0].lacks)
    finally:
        run(queue, f"DROP OWNED BY {name}", f"DROP ROLE {name}")


DISASTERS: dict[str, tuple[str, ...]] = {
    "killed": (
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'pgqdoctor' AND datname = current_database()",
    ),
    "dropped": ("DROP TABLE jobs",),
    "renamed": ("ALTER TABLE jobs RENAME TO gone",),
    "truncated": ("TRUNCATE jobs",),
    "recreated": ("DROP TABLE jobs", "CREATE TABLE jobs (id int)"),
    "column dropped": ("ALTER TABLE jobs DROP COLUMN status",),
    "schema renamed": ("ALTER SCHEMA public RENAME TO elsewhere",),
    "statistics reset": ("SELECT pg_stat_reset(), pg_stat_statements_reset()",),
    "extension dropped": ("DROP EXTENSION pg_stat_statements",),
}


@pytest.mark.parametrize("what", sorted(DISASTERS))
@pytest.mark.parametrize("phase", ["reading", "sample_window", "_last_reading", "identify", "look"])
def test_what_happens_during_a_phase_is_survived(
    queue: str, what: str, phase: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each phase of a run begins after the disaster; ``prepare`` is the one that may end in an error."""
    original = getattr(Observer, phase)
    struck: list[bool] = []

    def strike(self: Observer, *arguments: object, **named: object) -> object:
        if not struck:
            struck.append(True)
            run(queue, *DISASTERS[what])
        return original(self, *arguments, **named)

    monkeypatch.setattr(Observer, phase, strike)
    try:
        seen = look(queue, CLAIM.format(more=""))
    except PgqdoctorError as error:
        assert what == "killed" and phase == "reading", error
        assert error.exit_code == 3
        return
    report = diagnose(seen)
    assert not report.crashed
    assert [one.name for one in report.queues] == ["public.jobs"]
    if what == "killed" and phase != "reading":
        assert any(one.what == "connection" for one in seen.lacks)
        assert seen.probes[0].plans[0].document is not None, "the looks were taken over a new connection"


@pytest.mark.parametrize("phase", ["reading", "sample_window", "_last_reading", "look"])
def test_a_lock_taken_during_a_phase_is_not_waited_for(
    queue: str, phase: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    original = getattr(Observer, phase)
    with psycopg.connect(queue) as holder:

        def strike(self: Observer, *arguments: object, **named: object) -> object:
            holder.execute("LOCK TABLE jobs IN ACCESS EXCLUSIVE MODE")
            return original(self, *arguments, **named)

        monkeypatch.setattr(Observer, phase, strike)
        begun = time.monotonic()
        seen = look(queue, CLAIM.format(more=""))
        assert time.monotonic() - begun < 5.0
    assert not diagnose(seen).crashed
    assert any("exclusive lock" in one.reason for one in seen.probes[0].lacks)


@pytest.mark.parametrize("encoding", ["LATIN1", "SQL_ASCII", "EUC_JP"])
def test_databases_of_other_encodings(any_server: str, encoding: str) -> None:
    name = f"encoded_{uuid.uuid4().hex[:8]}"
    run(
        any_server,
        f"CREATE DATABASE {name} ENCODING '{encoding}' TEMPLATE template0 LC_COLLATE 'C' LC_CTYPE 'C'",
    )
    dsn = psycopg.conninfo.make_conninfo(any_server, dbname=name)
    try:
        run(dsn, "CREATE EXTENSION pg_stat_statements", SETUP)
        with psycopg.connect(dsn, autocommit=True) as worker:
            if encoding == "SQL_ASCII":
                worker.execute(
                    "INSERT INTO jobs (status, kind) SELECT convert_from('\\xe9ff'::bytea, 'SQL_ASCII'), convert_from('\\xc328'::bytea, 'SQL_ASCII') "
                    "FROM generate_series(1, 300)"
                )
                worker.execute(b'ALTER TABLE jobs ADD COLUMN "caf\xe9" text')
                worker.execute(
                    b"SELECT id FROM jobs WHERE status = 'queued' AND kind <> '\xff\xe9' ORDER BY run_at, id LIMIT 1 FOR UPDATE SKIP LOCKED"
                )
            elif encoding == "LATIN1":
                worker.execute('ALTER TABLE jobs ADD COLUMN "café" text')
                worker.execute("INSERT INTO jobs (status) SELECT 'terminé' FROM generate_series(1, 300)")
            worker.execute("ANALYZE jobs")
            worker.execute(CLAIM.format(more="").encode())
        seen = look(dsn, CLAIM.format(more=""))
        report = diagnose(seen)
        assert not report.crashed
        assert [one.name for one in report.queues] == ["public.jobs"]
        for format_ in FORMATS:
            assert render(report, format_, color=False, width=80).encode("utf-8")
    finally:
        # The texts outlive the database, and one with bytes that are no UTF-8 makes pg_stat_statements unreadable from
        # every other database of the server.
        run(dsn, "SELECT pg_stat_statements_reset()")
        run(any_server, f"DROP DATABASE {name} WITH (FORCE)")


@pytest.fixture
def role(queue: str) -> Iterator[str]:
    """A bare role's name; what it owns goes with it."""
    name = f"guest_{uuid.uuid4().hex[:8]}"
    run(queue, f"CREATE ROLE {name} LOGIN")
    yield name
    run(queue, f"DROP OWNED BY {name}", f"DROP ROLE {name}")


@pytest.mark.parametrize(
    "statements",
    [
        ("CREATE SCHEMA inner_jobs", "ALTER TABLE jobs SET SCHEMA inner_jobs", "GRANT pg_monitor TO {role}"),
        (
            "CREATE SCHEMA inner_jobs",
            "ALTER TABLE jobs SET SCHEMA inner_jobs",
            "GRANT pg_monitor TO {role}",
            "GRANT SELECT ON inner_jobs.jobs TO {role}",
        ),
        ("GRANT pg_monitor TO {role}", "ALTER ROLE {role} NOINHERIT"),
        ("GRANT SELECT (id, run_at) ON jobs TO {role}",),
        (
            "GRANT pg_monitor TO {role}",
            "REVOKE EXECUTE ON FUNCTION pg_get_multixact_members(xid) FROM PUBLIC",
        ),
    ],
    ids=["no usage", "select without usage", "noinherit", "some columns", "revoked function"],
)
def test_roles_with_odd_rights_get_a_report_and_the_grant(
    queue: str, role: str, statements: tuple[str, ...]
) -> None:
    run(queue, *(one.format(role=role) for one in statements))
    seen = observe(psycopg.conninfo.make_conninfo(queue, user=role), ObserveOptions(window_seconds=0.3))
    report = diagnose(seen)
    assert not report.crashed
    for grant in [one.grant for one in report.skipped if one.grant]:
        if ";" not in grant and grant.startswith("GRANT"):
            run(queue, grant)


def test_a_role_without_connect_is_told_so(queue: str, role: str) -> None:
    database = psycopg.conninfo.conninfo_to_dict(queue)["dbname"]
    run(queue, f"REVOKE CONNECT ON DATABASE {database} FROM PUBLIC")
    with pytest.raises(PgqdoctorError) as caught:
        observe(psycopg.conninfo.make_conninfo(queue, user=role), ObserveOptions(window_seconds=0.3))
    assert "GRANT CONNECT" in caught.value.hint and caught.value.exit_code == 3


def test_a_claim_query_of_several_statements_changes_nothing(queue: str) -> None:
    claim = f"{CLAIM.format(more='')}; COMMIT; DELETE FROM jobs; SELECT nextval('trap')"
    look(queue, claim, explain="full")
    with psycopg.connect(queue) as connection:
        assert connection.execute("SELECT count(*), (SELECT is_called FROM trap) FROM jobs").fetchone() == (
            300,
            False,
        )


CLI_PHASES = [0.15, 0.3, 0.5, 0.8, 1.2, 1.8, 2.3]


@pytest.mark.parametrize("command", ["report", "triage", "queues", "fix", "explain"])
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_signals_end_the_command_without_a_traceback(
    queue: str, command: str, number: signal.Signals
) -> None:
    for delay in CLI_PHASES:
        running = subprocess.Popen(
            [sys.executable, "-m", "pgqdoctor", command, queue, "--window", "1.5s"],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        time.sleep(delay)
        running.send_signal(number)
        _, errors = running.communicate(timeout=20)
        # Before its first line the program is not there to answer: that traceback is the interpreter's.
        assert "Traceback" not in errors or "pgqdoctor" not in errors, (delay, errors)
        assert "internal error" not in errors, (delay, errors)


def test_a_server_that_is_gone_during_the_window_leaves_a_report() -> None:
    with ScratchServer() as server:
        dsn = server.create_database("app")
        run(dsn, SETUP, CLAIM.format(more=""))
        stopper = threading.Timer(1.5, server.stop)
        stopper.start()
        seen = look(dsn, CLAIM.format(more=""), window=4.0)
        stopper.join()
    report = diagnose(seen)
    assert [one.name for one in report.queues] == ["public.jobs"]
    assert any(one.what == "connection" for one in seen.lacks)
    assert not report.crashed
