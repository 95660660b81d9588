"""Servers and users that mean harm, or are merely in trouble: nothing of theirs runs, and the report stands."""

from __future__ import annotations

import threading
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import psycopg
import pytest

from pgqdoctor.collect import ObserveOptions, observe
from pgqdoctor.engine import diagnose
from pgqdoctor.observation import Observation

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
CLAIM = (
    "SELECT id FROM jobs WHERE status = 'queued' AND run_at <= now() {more} ORDER BY run_at, id LIMIT 1 FOR UPDATE SKIP LOCKED"
)


@pytest.fixture
def queue(database: str) -> str:
    with psycopg.connect(database, autocommit=True) as connection:
        connection.execute(SETUP.encode())
    return database


def run(dsn: str, *statements: str) -> None:
    with psycopg.connect(dsn, autocommit=True) as connection:
        for statement in statements:
            connection.execute(statement.encode())


def trap(name: str, arguments: str, returns: str, value: str, *, volatility: str = "IMMUTABLE", language: str = "plpgsql") -> str:
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
def test_even_when_asked_to_execute_the_claim_no_code_of_a_user_runs(queue: str, explain: str, place: str) -> None:
    function = trap("public.noted", "", "trigger" if place == "trigger" else "text", "NEW" if place == "trigger" else "'x'", volatility="VOLATILE")
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
        {"bytea_output": "escape", "DateStyle": "'German'", "IntervalStyle": "'sql_standard'", "TimeZone": "'Asia/Kathmandu'"},
        {"default_transaction_isolation": "'serializable'", "default_transaction_deferrable": "on"},
        {"default_transaction_read_only": "on"},
        {"idle_session_timeout": "'150ms'"},
        {"statement_timeout": "'5ms'"},
        {"lock_timeout": "'1ms'", "idle_in_transaction_session_timeout": "'20ms'"},
        {"log_min_duration_statement": "0", "client_min_messages": "debug5", "log_statement": "'all'"},
        {"extra_float_digits": "-15", "array_nulls": "off", "backslash_quote": "off", "xmlbinary": "hex", "quote_all_identifiers": "on"},
        {"row_security": "off", "enable_seqscan": "off", "enable_indexscan": "off", "plan_cache_mode": "force_generic_plan"},
        {"track_activities": "off"},
        {"compute_query_id": "off"},
        {"search_path": "''"},
        {"search_path": "nowhere"},
        {"client_encoding": "'LATIN1'"},
        {"force_parallel_mode": "on"},
        {"synchronize_seqscans": "off", "work_mem": "'64kB'", "temp_file_limit": "'0'", "jit_above_cost": "0"},
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
            except psycopg.errors.UndefinedObject:
                pytest.skip(f"this server has no {setting}")
        seen = look(psycopg.conninfo.make_conninfo(queue, user=name), CLAIM.format(more=""))
        plan = seen.probes[0].plans[0]
        assert (plan.mode, plan.error) == ("select", None)
        assert seen.probes[0].ready_rows == 300
        assert seen.seconds > 0.2
        assert not diagnose(seen).crashed
    finally:
        run(queue, f"DROP ROLE {name}")
