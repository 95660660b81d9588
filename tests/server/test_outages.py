"""Servers that start, restart, crash or vanish, and databases, tables and rights that do: retried where that can help,
told in one sentence where it cannot."""

from __future__ import annotations

import os
import signal
import socket
import struct
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import psycopg
import pytest

from pgqdoctor import connect as connecting
from pgqdoctor.collect import ObserveOptions, Observer, observe
from pgqdoctor.engine import diagnose
from pgqdoctor.errors import PgqdoctorError
from pgqdoctor.lab.server import ScratchServer
from pgqdoctor.observation import Observation
from pgqdoctor.recording import last_observation
from tests.server.attempts_queue import CLAIM, SETUP

KILL = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'pgqdoctor' AND datname = current_database()"


def run(dsn: str, *statements: str) -> None:
    with psycopg.connect(dsn, autocommit=True) as connection:
        for statement in statements:
            connection.execute(statement.encode())


def look(dsn: str, window: float = 0.5) -> Observation:
    return observe(dsn, ObserveOptions(window_seconds=window, queues=("public.jobs",)))


@pytest.fixture
def own_server() -> Iterator[ScratchServer]:
    """A server that a test may stop, with a queue in database app."""
    with ScratchServer() as server:
        run(server.create_database("app"), SETUP, CLAIM)
        yield server


def strike(monkeypatch: pytest.MonkeyPatch, phase: str, what: Callable[[], object], times: int = 1) -> None:
    """Let ``what`` happen just before a phase of a run begins, the first so many times."""
    original = getattr(Observer, phase)
    struck: list[bool] = []

    def struck_then(self: Observer, *arguments: object, **named: object) -> object:
        if len(struck) < times:
            struck.append(True)
            what()
        return original(self, *arguments, **named)

    monkeypatch.setattr(Observer, phase, struck_then)


# -- before the first reading --------------------------------------------------------------------------


@contextmanager
def refusing(port_behind: int | None, refusals: int, message: str) -> Iterator[tuple[int, list[float]]]:
    """A listener that answers like a server that starts (57P03, in its own language), then hands on to the server behind it."""
    listener = socket.create_server(("127.0.0.1", 0))
    asked: list[float] = []

    def serve(peer: socket.socket) -> None:
        with peer:
            while True:
                head = peer.recv(8, socket.MSG_WAITALL)
                if len(head) < 8:
                    return
                length, code = struct.unpack("!ii", head)
                body = peer.recv(length - 8, socket.MSG_WAITALL)
                if code not in (
                    80877103,
                    80877104,
                ):  # requests for TLS and GSSAPI come before the startup message
                    break
                peer.sendall(b"N")
            asked.append(time.monotonic())
            if len(asked) <= refusals or port_behind is None:
                fields = b"SFATAL\0VFATAL\0C57P03\0M" + message.encode() + b"\0\0"
                peer.sendall(b"E" + struct.pack("!i", len(fields) + 4) + fields)
                return
            with socket.create_connection(("127.0.0.1", port_behind)) as behind:
                behind.sendall(struct.pack("!ii", length, code) + body)
                back = threading.Thread(target=pump, args=(behind, peer), daemon=True)
                back.start()
                pump(peer, behind)

    def pump(source: socket.socket, target: socket.socket) -> None:
        try:
            while data := source.recv(65536):
                target.sendall(data)
            target.shutdown(socket.SHUT_WR)
        except OSError:
            return

    def accept() -> None:
        while True:
            try:
                peer, _ = listener.accept()
            except OSError:
                return
            threading.Thread(target=serve, args=(peer,), daemon=True).start()

    threading.Thread(target=accept, daemon=True).start()
    try:
        yield listener.getsockname()[1], asked
    finally:
        listener.close()


@pytest.mark.parametrize("message", ["the database system is starting up", "das Datenbanksystem startet"])
def test_a_server_that_starts_is_asked_again(database: str, message: str) -> None:
    run(database, SETUP, CLAIM)
    port = int(psycopg.conninfo.conninfo_to_dict(database)["port"] or 0)
    with refusing(port, 4, message) as (own, asked):
        # In a process of its own: libpq's ping lets no other thread run, so none could answer it.
        ended = subprocess.run(
            [
                sys.executable,
                "-m",
                "pgqdoctor",
                "queues",
                psycopg.conninfo.make_conninfo(database, port=own),
                "--window",
                "0.3s",
            ],
            capture_output=True,
            text=True,
            timeout=60,
        )
    assert len(asked) > 4
    assert (ended.returncode, ended.stderr) == (0, "")
    assert "public.jobs" in ended.stdout


@pytest.mark.parametrize("command", [["report"], ["triage"], ["queues"], ["record"]], ids=lambda one: one[0])
def test_a_server_that_goes_on_starting_is_one_sentence(command: list[str], tmp_path: Path) -> None:
    file = [str(tmp_path / "seen.pgqdoctor")] if command == ["record"] else []
    with refusing(None, 0, "the database system is starting up") as (port, asked):
        begun = time.monotonic()
        ended = subprocess.run(
            [
                sys.executable,
                "-m",
                "pgqdoctor",
                *command,
                f"postgresql://somebody@127.0.0.1:{port}/app",
                *file,
            ],
            capture_output=True,
            text=True,
            timeout=60,
        )
        took = time.monotonic() - begun
    assert ended.returncode == 3 and ended.stdout == ""
    assert len(ended.stderr.splitlines()) == 1
    assert "the database system is starting up" in ended.stderr and "try again" in ended.stderr
    assert len(asked) > 4 and took < connecting.PATIENCE_S + 5


def test_what_no_waiting_cures_is_told_at_once(database: str) -> None:
    for change in ({"port": "1"}, {"dbname": "no_such_database"}, {"user": "no_such_role"}):
        begun = time.monotonic()
        with pytest.raises(PgqdoctorError) as caught:
            look(psycopg.conninfo.make_conninfo(database, **change))
        assert caught.value.exit_code == 3
        assert time.monotonic() - begun < 1.0


@pytest.mark.parametrize("phase", ["prepare", "reading"])
def test_a_restart_before_the_first_reading_begins_the_run_anew(
    own_server: ScratchServer, phase: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    strike(monkeypatch, phase, own_server.restart)
    seen = look(own_server.dsn("app"))
    assert [one.name for one in seen.queues] == ["public.jobs"]
    assert any("before the first reading" in one.reason for one in seen.lacks)
    assert not seen.restarted and seen.seconds > 0.3
    assert not diagnose(seen).crashed


def test_a_connection_lost_again_and_again_is_one_sentence(
    database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    run(database, SETUP)
    strike(monkeypatch, "reading", lambda: run(database, KILL), times=99)
    begun = time.monotonic()
    with pytest.raises(PgqdoctorError) as caught:
        look(database)
    assert caught.value.exit_code == 3 and "broke off" in caught.value.message
    assert time.monotonic() - begun < 10


def test_no_session_is_left_behind(database: str, monkeypatch: pytest.MonkeyPatch) -> None:
    run(database, SETUP, CLAIM)
    strike(monkeypatch, "_last_reading", lambda: run(database, KILL))
    look(database)
    with psycopg.connect(database, autocommit=True) as connection:
        left = connection.execute(
            "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'pgqdoctor' AND datname = current_database()"
        ).fetchone()
    assert left == (0,)


def opens(recording: Path) -> bool:
    """Tell whether a recording holds the two readings that a report needs."""
    try:
        last_observation(recording)
    except PgqdoctorError:
        return False
    return True


def test_recording_a_server_that_is_gone_for_good_ends(
    own_server: ScratchServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "seen.pgqdoctor"
    script = "from pgqdoctor import cli_record, cli; import sys; cli_record.LATE_S = 1.0; sys.exit(cli.run(sys.argv[1:]))"
    running = subprocess.Popen(
        [
            sys.executable,
            "-c",
            script,
            "record",
            own_server.dsn("app"),
            str(file),
            "--for",
            "10s",
            "--interval",
            "1s",
        ],
        stderr=subprocess.PIPE,
        text=True,
    )
    until = time.monotonic() + 9.0
    while not opens(file):
        assert time.monotonic() < until, "two readings take a second"
        time.sleep(0.1)
    own_server.stop()
    _, errors = running.communicate(timeout=30)
    assert running.returncode == 0, errors
    assert "did not answer to the end" in errors


# -- within the window -----------------------------------------------------------------------------------


def crash(server: ScratchServer) -> None:
    """Kill one backend as the kernel's out-of-memory killer does: the server starts anew within its postmaster."""
    with psycopg.connect(server.dsn("app"), autocommit=True) as victim:
        os.kill(victim.info.backend_pid, signal.SIGKILL)
        deadline = time.monotonic() + 20
        while time.monotonic() < deadline:
            try:
                run(server.dsn("app"), "SELECT 1")
            except psycopg.OperationalError:
                break
            time.sleep(0.02)


def immediate(server: ScratchServer) -> None:
    """As pg_ctl restart -m immediate does."""
    server._stop_postmaster(signal.SIGQUIT)
    server._launch()


@pytest.mark.parametrize("how", [crash, immediate], ids=lambda one: one.__name__)
def test_a_crash_within_the_window_is_told_and_no_counter_runs_backwards(
    own_server: ScratchServer, how: Callable[[ScratchServer], None]
) -> None:
    dsn = own_server.dsn("app")
    with psycopg.connect(dsn, autocommit=True) as worker:
        for _ in range(200):
            worker.execute(CLAIM.encode())
        worker.execute("SELECT pg_stat_force_next_flush()")
    striker = threading.Timer(1.2, how, [own_server])
    striker.start()
    seen = look(dsn, 4.0)
    striker.join()
    report = diagnose(seen)
    assert not report.crashed
    assert [one.name for one in report.queues] == ["public.jobs"]
    assert any(one.what == "connection" for one in seen.lacks)
    told = "restarted during the window" if how is immediate else "began anew during the window"
    assert any(told in one for one in report.notes)
    rates = report.queues[0].rates
    assert rates.updates_per_s >= 0 and rates.enqueued_per_s >= 0 and (rates.claimed_per_s or 0) >= 0


def test_a_database_dropped_within_the_window(any_server: str) -> None:
    name = f"gone_{uuid.uuid4().hex[:8]}"
    run(any_server, f"CREATE DATABASE {name}")
    dsn = psycopg.conninfo.make_conninfo(any_server, dbname=name)
    run(dsn, "CREATE EXTENSION pg_stat_statements", SETUP, CLAIM)
    striker = threading.Timer(1.0, run, [any_server, f"DROP DATABASE {name} WITH (FORCE)"])
    striker.start()
    seen = look(dsn, 2.0)
    striker.join()
    report = diagnose(seen)
    assert not report.crashed
    assert [one.name for one in report.queues] == ["public.jobs"]
    assert any(one.what == "connection" for one in seen.lacks)
    assert any(one.what == "counters" for one in seen.lacks)


@pytest.mark.parametrize("phase", ["reading", "sample_window", "_last_reading", "look"])
def test_rights_revoked_within_the_window(database: str, phase: str, monkeypatch: pytest.MonkeyPatch) -> None:
    name = f"guest_{uuid.uuid4().hex[:8]}"
    run(
        database,
        SETUP,
        CLAIM,
        f"CREATE ROLE {name} LOGIN",
        f"GRANT pg_monitor TO {name}",
        f"GRANT SELECT ON jobs TO {name}",
    )
    try:
        strike(
            monkeypatch,
            phase,
            lambda: run(
                database,
                f"REVOKE pg_monitor FROM {name}",
                f"REVOKE SELECT ON jobs FROM {name}",
                "REVOKE USAGE ON SCHEMA public FROM PUBLIC",
                "REVOKE CONNECT ON DATABASE "
                + str(psycopg.conninfo.conninfo_to_dict(database)["dbname"])
                + " FROM PUBLIC",
            ),
        )
        seen = look(psycopg.conninfo.make_conninfo(database, user=name))
        report = diagnose(seen)
        assert not report.crashed
        assert [one.name for one in report.queues] == ["public.jobs"]
        assert any("permission denied" in one.reason for one in seen.probes[0].lacks)
    finally:
        run(database, f"DROP OWNED BY {name}", f"DROP ROLE {name}")


def test_a_client_whose_clock_is_an_hour_off_sees_the_same(
    database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    run(database, SETUP, *[CLAIM] * 5)
    right = look(database)
    real = time.time
    monkeypatch.setattr(time, "time", lambda: real() - 3600)
    wrong = look(database)
    assert abs(wrong.probes[0].oldest_ready_age_s - (right.probes[0].oldest_ready_age_s or 0)) < 60  # type: ignore[operator]
    assert abs(wrong.first.at - right.first.at) < 60
    assert 0.3 < wrong.seconds < 5
    assert all(wrong.first.at - 1 <= one.at <= wrong.last.at + 1 for one in wrong.samples)
