"""Do no harm: what the doctor leaves, holds and waits for, and how it bears a server in trouble."""

from __future__ import annotations

import socket
import threading
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager

import psycopg
import pytest

from pgqdoctor.collect import ObserveOptions, observe
from pgqdoctor.collecting.catalogs import bare_catalog
from pgqdoctor.collecting.prober import Prober
from pgqdoctor.connect import connect, survey
from pgqdoctor.engine import diagnose
from pgqdoctor.errors import UNREACHABLE, PgqdoctorError
from pgqdoctor.observation import Observation

SETUP = """
CREATE TABLE jobs (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, state text NOT NULL DEFAULT 'ready',
                   run_at timestamptz NOT NULL DEFAULT now(), attempts int NOT NULL DEFAULT 0);
CREATE INDEX jobs_ready_idx ON jobs (run_at, id) WHERE state = 'ready';
INSERT INTO jobs (state) SELECT CASE WHEN g % 3 = 0 THEN 'ready' ELSE 'done' END FROM generate_series(1, 3000) g;
ANALYZE jobs;
"""
CLAIM = (
    "UPDATE jobs SET state = 'running', attempts = attempts + 1 WHERE id = (SELECT id FROM jobs WHERE state = 'ready' "
    "AND run_at <= now() ORDER BY run_at, id LIMIT 1 FOR UPDATE SKIP LOCKED) RETURNING id"
)


@pytest.fixture
def queue(database: str) -> str:
    with psycopg.connect(database, autocommit=True) as connection:
        connection.execute(SETUP.encode())
        for _ in range(20):
            connection.execute(CLAIM.encode())
    return database


def look(dsn: str, window: float = 1.0) -> Observation:
    return observe(dsn, ObserveOptions(window_seconds=window))


@contextmanager
def watching_the_doctor(dsn: str) -> Iterator[list[tuple[str | None, float | None]]]:
    """Collect (state, seconds in transaction) of the doctor's sessions while the block runs."""
    seen: list[tuple[str | None, float | None]] = []
    over = threading.Event()

    def watch() -> None:
        with psycopg.connect(dsn, autocommit=True) as connection:
            while not over.is_set():
                seen.extend(
                    connection.execute(
                        "SELECT state, extract(epoch FROM clock_timestamp() - xact_start)::float8 FROM pg_stat_activity "
                        "WHERE application_name = 'pgqdoctor' AND datname = current_database()"
                    ).fetchall()
                )
                time.sleep(0.005)

    thread = threading.Thread(target=watch)
    thread.start()
    try:
        yield seen
    finally:
        over.set()
        thread.join()


def test_no_transaction_stays_open_between_polls(queue: str) -> None:
    with watching_the_doctor(queue) as seen:
        look(queue, 2.0)
    assert len(seen) > 50
    assert sum(1 for state, _ in seen if state == "idle") > len(seen) / 2
    longest = max((age or 0.0 for state, age in seen if state != "idle"), default=0.0)
    assert longest < 1.0


def test_nothing_is_changed_and_no_setting_leaks(queue: str) -> None:
    with psycopg.connect(queue, autocommit=True) as connection:
        before = connection.execute("SELECT count(*), sum(xmin::text::bigint) FROM jobs").fetchone()
    session = connect(queue)
    try:
        names = (
            "statement_timeout",
            "lock_timeout",
            "idle_in_transaction_session_timeout",
            "search_path",
            "default_transaction_read_only",
        )
        held = {name: session.records(f"SHOW {name}", search_path=None) for name in names}
        with session.transaction(statement_timeout_ms=123) as cursor:
            cursor.execute("SHOW statement_timeout")
            assert cursor.fetchone() == {"statement_timeout": "123ms"}
            with pytest.raises(psycopg.errors.ReadOnlySqlTransaction):
                cursor.execute("DELETE FROM public.jobs")
        after = {name: session._connection.execute(f"SHOW {name}".encode()).fetchone() for name in names}
        assert after["statement_timeout"] == {"statement_timeout": "0"}
        assert after["default_transaction_read_only"] == {"default_transaction_read_only": "off"}
        assert held["lock_timeout"] == [{"lock_timeout": "100ms"}]
    finally:
        session.close()
    look(queue)
    with psycopg.connect(queue, autocommit=True) as connection:
        assert connection.execute("SELECT count(*), sum(xmin::text::bigint) FROM jobs").fetchone() == before


def test_nothing_waits_for_a_table_behind_an_exclusive_lock(queue: str) -> None:
    window = 1.0
    with psycopg.connect(queue) as holder:
        holder.execute("LOCK TABLE jobs IN ACCESS EXCLUSIVE MODE")
        waits: list[int] = []
        over = threading.Event()

        def watch() -> None:
            with psycopg.connect(queue, autocommit=True) as connection:
                while not over.is_set():
                    row = connection.execute(
                        "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'pgqdoctor' AND wait_event_type = 'Lock' "
                        "AND datname = current_database()"
                    ).fetchone()
                    assert row is not None
                    waits.append(int(row[0]))
                    time.sleep(0.01)

        thread = threading.Thread(target=watch)
        thread.start()
        begun = time.monotonic()
        seen = look(queue, window)
        took = time.monotonic() - begun
        over.set()
        thread.join()
    assert took < window + 1.5
    assert sum(waits) == 0
    report = diagnose(seen)
    assert [one.name for one in report.queues] == ["public.jobs"]
    assert any("exclusive lock" in one.reason for one in seen.lacks)
    assert not report.crashed


def test_a_function_kept_as_a_tree_is_not_written_back_while_its_table_is_locked(queue: str) -> None:
    with psycopg.connect(queue, autocommit=True) as connection:
        connection.execute(
            b"CREATE FUNCTION take() RETURNS bigint LANGUAGE sql BEGIN ATOMIC "
            b"DELETE FROM jobs WHERE id IN (SELECT j.id FROM jobs j ORDER BY j.id LIMIT 1 FOR UPDATE SKIP LOCKED) RETURNING id; END"
        )
    session = connect(queue)
    prober = Prober(session)
    try:
        with psycopg.connect(queue) as holder:
            holder.execute("LOCK TABLE jobs IN ACCESS EXCLUSIVE MODE")
            assert bare_catalog(prober).functions == ()
            # The lock may also be taken after it was asked for.
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(Prober, "locked", lambda self: frozenset())
                assert bare_catalog(prober).functions == ()
        (function,) = bare_catalog(prober).functions
        assert "SKIP LOCKED" in function.body
        assert not prober.lacks
    finally:
        session.close()


def test_a_dropped_table_does_not_end_the_report(queue: str) -> None:
    def drop() -> None:
        time.sleep(0.5)
        with psycopg.connect(queue, autocommit=True) as connection:
            connection.execute("DROP TABLE jobs")

    thread = threading.Thread(target=drop)
    thread.start()
    seen = look(queue, 1.5)
    thread.join()
    report = diagnose(seen)
    assert not report.crashed
    assert any("dropped" in one.reason for one in seen.probes[0].lacks)


def test_a_killed_connection_is_survived(queue: str) -> None:
    def kill() -> None:
        time.sleep(0.6)
        with psycopg.connect(queue, autocommit=True) as connection:
            connection.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'pgqdoctor' AND datname = current_database()"
            )

    thread = threading.Thread(target=kill)
    thread.start()
    seen = look(queue, 2.0)
    thread.join()
    assert any(one.what == "connection" for one in seen.lacks)
    assert seen.seconds > 1.0, "the second reading was taken over a new connection"
    assert not diagnose(seen).crashed


@pytest.fixture
def roles(queue: str) -> Iterator[dict[str, str]]:
    """DSNs of a bare role and of one with pg_monitor alone."""
    suffix = uuid.uuid4().hex[:8]
    names = {"plain": f"plain_{suffix}", "monitor": f"monitor_{suffix}"}
    with psycopg.connect(queue, autocommit=True) as connection:
        for name in names.values():
            connection.execute(f"CREATE ROLE {name} LOGIN".encode())
        connection.execute(f"GRANT pg_monitor TO {names['monitor']}".encode())
    yield {kind: psycopg.conninfo.make_conninfo(queue, user=name) for kind, name in names.items()}
    with psycopg.connect(queue, autocommit=True) as connection:
        for name in names.values():
            connection.execute(f"DROP OWNED BY {name}; DROP ROLE {name}".encode())


def test_pg_monitor_and_nothing_more_is_enough(roles: dict[str, str]) -> None:
    report = diagnose(look(roles["monitor"]))
    assert [one.name for one in report.queues] == ["public.jobs"]
    assert report.queues[0].claim.shape == "skip-locked"
    assert not report.crashed
    grants = {one.grant for one in report.skipped if one.grant}
    asked = (
        "GRANT SELECT ON public.jobs TO monitor_",
        "GRANT SELECT ON SEQUENCE public.jobs_id_seq TO monitor_",
    )
    assert all(grant.startswith(asked) for grant in grants)


def test_a_bare_role_is_told_what_it_cannot_see_and_which_grant_shows_it(roles: dict[str, str]) -> None:
    seen = look(roles["plain"])
    grants = " ".join(one.grant or "" for one in seen.lacks)
    assert "GRANT pg_monitor TO plain_" in grants
    assert "GRANT pg_read_all_stats TO plain_" in grants
    assert not diagnose(seen).crashed


def test_a_pooler_is_noticed_by_its_pid_only(queue: str) -> None:
    session = connect(queue)
    try:
        assert survey(session).server.pooler is False
    finally:
        session.close()


def test_what_is_not_postgresql_is_one_sentence() -> None:
    listener = socket.create_server(("127.0.0.1", 0))
    port = listener.getsockname()[1]

    def answer() -> None:
        for _ in range(2):
            try:
                peer, _address = listener.accept()
            except OSError:
                return
            peer.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")
            peer.close()

    thread = threading.Thread(target=answer, daemon=True)
    thread.start()
    with pytest.raises(PgqdoctorError) as caught:
        connect(f"postgresql://somebody@127.0.0.1:{port}/app")
    listener.close()
    assert caught.value.exit_code == UNREACHABLE
    assert "could not connect" in caught.value.message
    assert "\n" not in caught.value.message


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"port": "1"}, "Connection refused"),
        ({"dbname": "no such database"}, "does not exist"),
        ({"user": "no such role"}, "does not exist"),
        ({"host": "no-such-host.invalid"}, "could not connect"),
    ],
)
def test_unreachable_servers_are_one_sentence(database: str, change: dict[str, str], words: str) -> None:
    with pytest.raises(PgqdoctorError) as caught:
        connect(psycopg.conninfo.make_conninfo(database, password="hunter2", **change))
    assert caught.value.exit_code == UNREACHABLE
    assert words in caught.value.message
    assert "\n" not in caught.value.message
    assert "hunter2" not in caught.value.message + caught.value.hint
    assert caught.value.hint
