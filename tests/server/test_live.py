"""The poller under a server that restarts, stops answering, loses the table; signals; and recordings made of it."""

from __future__ import annotations

import gzip
import json
import os
import signal as signals
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import psycopg
import pytest

from pgqdoctor import live
from pgqdoctor.feed import LiveFeed, Posted, Snapshot
from pgqdoctor.frames import Frame, Judging, frame_of
from pgqdoctor.lab.server import ScratchServer
from pgqdoctor.live import Dropped, LinkState, LiveOptions, Poller, Signal, SignalOutcome
from pgqdoctor.observation import Observation
from pgqdoctor.recording import last_observation, write_history
from pgqdoctor.window import Beat, Look, Scene, Stream, observation_of, window_of

ROOT = Path(__file__).parents[2]
SETUP = """
CREATE TABLE jobs (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, state text NOT NULL DEFAULT 'queued',
                   run_at timestamptz NOT NULL DEFAULT now());
CREATE INDEX jobs_queued_idx ON jobs (run_at) WHERE state = 'queued';
INSERT INTO jobs (state) SELECT 'queued' FROM generate_series(1, 50);
ANALYZE jobs;
"""
CLAIM = (
    "UPDATE jobs SET state = 'running' WHERE id = (SELECT id FROM jobs WHERE state = 'queued' "
    "ORDER BY run_at LIMIT 1 FOR UPDATE SKIP LOCKED)"
)
FAST = LiveOptions(interval_s=0.5, window_s=2.0)


class Heard:
    """What was posted, and waiting for it."""

    def __init__(self) -> None:
        self.all: list[Any] = []
        self._more = threading.Condition()

    def __call__(self, message: object) -> None:
        with self._more:
            self.all.append(message)
            self._more.notify_all()

    def wait(self, wanted: Callable[[Any], bool], *, after: int = 0, within_s: float = 30.0) -> Any:
        until = time.monotonic() + within_s
        with self._more:
            while True:
                for one in self.all[after:]:
                    if wanted(one):
                        return one
                left = until - time.monotonic()
                assert left > 0, f"not heard: {[type(one).__name__ for one in self.all[after:]]}"
                self._more.wait(left)


@contextmanager
def polled(dsn: str, options: LiveOptions = FAST, **how: bool) -> Iterator[tuple[Poller, Heard]]:
    heard = Heard()
    poller = Poller(dsn, options, heard, **how)
    poller.start()
    try:
        yield poller, heard
    finally:
        poller.stop()
        assert not poller.is_alive()


def make_queue(dsn: str, *, claims: int = 20) -> None:
    with psycopg.connect(dsn, autocommit=True) as connection:
        for statement in SETUP.split(";"):
            if statement.strip():
                connection.execute(statement.encode())
        for _ in range(claims):
            connection.execute(CLAIM.encode())


def beats(one: object) -> bool:
    return isinstance(one, Beat)


def seen_by(heard: Heard) -> Observation:
    stream = Stream()
    moments = [
        moment
        for part in heard.all
        if isinstance(part, (Scene, Beat, Look)) and (moment := stream.take(part))
    ]
    seen = observation_of(window_of(moments, 2.0))
    assert seen is not None
    return seen


def test_a_stream_makes_an_observation(database: str) -> None:
    make_queue(database)
    with polled(database) as (_, heard):
        heard.wait(lambda one: isinstance(one, Look))
        place = len(heard.all)
        heard.wait(beats, after=place)
        seen = seen_by(heard)
    assert [one.name for one in seen.queues] == ["public.jobs"]
    assert seen.probes[0].ready_rows == 30
    assert seen.samples
    assert seen.seconds >= 0.4


def test_it_survives_a_lost_connection(database: str) -> None:
    make_queue(database)
    with polled(database) as (_, heard):
        heard.wait(beats)
        with psycopg.connect(database, autocommit=True) as connection:
            connection.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
                "WHERE application_name = 'pgqdoctor' AND datname = current_database()"
            )
        lost = heard.wait(lambda one: isinstance(one, LinkState) and one.kind == "reconnecting")
        assert "connection was lost" in lost.reason
        place = len(heard.all)
        resumed = heard.wait(beats, after=place)
    assert resumed.resumed, "no window reaches across the gap"


def test_it_says_that_a_table_was_dropped_and_finds_it_again(
    database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(live, "CATALOG_SOON_S", 1.0)
    make_queue(database)
    with polled(database) as (_, heard):
        heard.wait(lambda one: isinstance(one, Scene) and len(one.queues) == 1)
        with psycopg.connect(database, autocommit=True) as connection:
            connection.execute("DROP TABLE jobs")
        assert heard.wait(lambda one: isinstance(one, Dropped)).name == "public.jobs"
        place = len(heard.all)
        heard.wait(lambda one: isinstance(one, Scene) and not one.queues, after=place)
        make_queue(database)
        heard.wait(lambda one: isinstance(one, Scene) and len(one.queues) == 1, after=place)
        heard.wait(beats, after=len(heard.all))


def test_a_queue_asked_for_by_name_may_go_and_come_back(database: str) -> None:
    make_queue(database)
    options = LiveOptions(interval_s=0.5, window_s=2.0, queues=("public.jobs",))
    with polled(database, options) as (_, heard):
        heard.wait(beats)
        with psycopg.connect(database, autocommit=True) as connection:
            connection.execute("DROP TABLE jobs")
        heard.wait(lambda one: isinstance(one, LinkState) and "there is no table public.jobs" in one.reason)
        place = len(heard.all)
        make_queue(database)
        heard.wait(beats, after=place)


def test_a_queue_that_never_was_is_a_mistake(database: str) -> None:
    heard = Heard()
    poller = Poller(database, LiveOptions(queues=("public.nothing",)), heard)
    poller.start()
    assert (
        "public.nothing" in heard.wait(lambda one: isinstance(one, LinkState) and one.kind == "failed").reason
    )
    poller.join(5.0)
    assert not poller.is_alive()


def test_a_locked_table_keeps_nobody_waiting(database: str) -> None:
    """Behind ACCESS EXCLUSIVE the counters go on; what would open the table is left out and said."""
    make_queue(database)
    with psycopg.connect(database) as holder, polled(database) as (_, heard):
        heard.wait(lambda one: isinstance(one, Look))
        holder.execute("LOCK TABLE jobs IN ACCESS EXCLUSIVE MODE")
        place = len(heard.all)
        look = heard.wait(lambda one: isinstance(one, Look), after=place)
        heard.wait(beats, after=len(heard.all), within_s=5.0)
        assert {one.what for one in look.probes[0].lacks} >= {"plan", "rows", "sizes"}
        assert not [one for one in heard.all if isinstance(one, LinkState) and one.kind == "reconnecting"]


def test_signals_reach_the_backend_that_was_meant(database: str) -> None:
    make_queue(database)
    with psycopg.connect(database, application_name="victim") as victim, polled(database) as (poller, heard):
        victim.execute(CLAIM.encode())
        pid = victim.info.backend_pid

        def row(one: object) -> bool:
            return isinstance(one, Beat) and any(each.pid == pid for each in one.reading.sessions)

        beat = heard.wait(row)
        session = next(each for each in beat.reading.sessions if each.pid == pid)
        started = beat.at - session.backend_start_s
        wrong = Signal(action="terminate", pid=pid, started=started - 3600)
        poller.request(wrong)
        outcome = heard.wait(lambda one: isinstance(one, SignalOutcome))
        assert not outcome.done
        assert "gone already" in outcome.message
        victim.execute("SELECT 1")
        assert session.xact_age_s is not None and session.xid is not None
        shown = Signal(
            action="terminate",
            pid=pid,
            started=started,
            transaction=beat.at - session.xact_age_s,
            wrote=True,
        )

        def answer(asked: Signal) -> SignalOutcome:
            poller.request(asked)
            told: SignalOutcome = heard.wait(
                lambda one: isinstance(one, SignalOutcome) and one.signal == asked
            )
            return told

        idle = replace(shown, transaction=None, wrote=False)
        earlier = replace(shown, transaction=beat.at - session.xact_age_s - 60.0)
        unwritten = replace(shown, wrote=False)
        for other in (idle, earlier, unwritten):
            outcome = answer(other)
            assert not outcome.done
            assert "not in the transaction any more that was shown" in outcome.message
        victim.execute("SELECT 1")
        assert answer(shown).done
        with pytest.raises(psycopg.OperationalError):
            victim.execute("SELECT 1")


def test_a_signal_for_a_session_that_was_idle_spares_the_transaction_it_is_in_now(database: str) -> None:
    make_queue(database)
    with psycopg.connect(database, application_name="victim") as victim, polled(database) as (poller, heard):
        started = float(
            victim.execute(
                "SELECT extract(epoch FROM backend_start)::float8 FROM pg_stat_activity WHERE pid = pg_backend_pid()"
            ).fetchall()[0][0]
        )
        shown = Signal(action="terminate", pid=victim.info.backend_pid, started=started)
        heard.wait(beats)
        poller.request(shown)
        outcome = heard.wait(lambda one: isinstance(one, SignalOutcome))
        assert not outcome.done
        victim.rollback()
        place = len(heard.all)
        poller.request(shown)
        assert heard.wait(lambda one: isinstance(one, SignalOutcome), after=place).done


def test_a_read_only_poller_sends_nothing(database: str) -> None:
    make_queue(database)
    with psycopg.connect(database) as victim, polled(database, read_only=True) as (poller, heard):
        heard.wait(beats)
        poller.request(Signal(action="terminate", pid=victim.info.backend_pid, started=0.0))
        assert not heard.wait(lambda one: isinstance(one, SignalOutcome)).done
        victim.execute("SELECT 1")


def test_the_server_refuses_what_the_role_may_not(database: str) -> None:
    make_queue(database)
    with psycopg.connect(database, autocommit=True) as admin:
        admin.execute("DROP ROLE IF EXISTS live_weak")
        admin.execute("CREATE ROLE live_weak LOGIN IN ROLE pg_monitor")
        weak = psycopg.conninfo.make_conninfo(database, user="live_weak")
        try:
            with psycopg.connect(database) as victim, polled(weak) as (poller, heard):
                heard.wait(beats)
                (found,) = admin.execute(
                    "SELECT extract(epoch FROM backend_start)::float8 FROM pg_stat_activity WHERE pid = %s",
                    [victim.info.backend_pid],
                ).fetchall()
                poller.request(Signal(action="terminate", pid=victim.info.backend_pid, started=found[0]))
                outcome = heard.wait(lambda one: isinstance(one, SignalOutcome))
                assert not outcome.done
                assert "refused" in outcome.message
                victim.execute("SELECT 1")
        finally:
            admin.execute("DROP ROLE live_weak")


class TestServerTrouble:
    """A server of its own, as others would not like what happens to it."""

    @pytest.fixture(scope="class")
    def server(self) -> Iterator[ScratchServer]:
        with ScratchServer() as running:
            yield running

    @pytest.fixture(scope="class")
    def dsn(self, server: ScratchServer) -> str:
        dsn = server.create_database("app")
        with psycopg.connect(dsn, autocommit=True) as connection:
            connection.execute("CREATE EXTENSION IF NOT EXISTS pg_stat_statements")
        make_queue(dsn)
        return dsn

    def test_it_survives_a_restart(self, server: ScratchServer, dsn: str) -> None:
        with polled(dsn) as (_, heard):
            heard.wait(beats)
            server.restart()
            heard.wait(lambda one: isinstance(one, LinkState) and one.kind == "reconnecting")
            place = len(heard.all)
            beat = heard.wait(beats, after=place)
        assert beat.resumed
        assert beat.reading.database.started_s < 30

    def test_it_gives_up_on_a_backend_that_does_not_answer(
        self, server: ScratchServer, dsn: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(live, "HANG_S", 2.0)
        with polled(dsn) as (_, heard):
            heard.wait(beats)
            with psycopg.connect(dsn) as connection:
                found = connection.execute(
                    "SELECT pid FROM pg_stat_activity WHERE application_name = 'pgqdoctor'"
                ).fetchall()
            for (pid,) in found:
                os.kill(pid, signals.SIGSTOP)
            try:
                heard.wait(lambda one: isinstance(one, LinkState) and "has not answered" in one.reason)
                place = len(heard.all)
                heard.wait(beats, after=place)
            finally:
                for (pid,) in found:
                    os.kill(pid, signals.SIGCONT)

    def test_the_first_connection_may_come_late(self, server: ScratchServer) -> None:
        name = f"late_{uuid.uuid4().hex[:8]}"
        with polled(server.dsn(name)) as (_, heard):
            told = heard.wait(lambda one: isinstance(one, LinkState) and one.reason != "")
            assert told.kind == "connecting"
            make_queue(server.create_database(name))
            heard.wait(beats)


def test_a_feed_posts_frames_and_goes_back_in_time(database: str) -> None:
    make_queue(database)
    heard = Heard()
    feed: LiveFeed[Frame] = LiveFeed(database, FAST, Judging(window_s=2.0), lambda frame: frame)
    feed.start(heard)

    def frame(one: Posted[Frame]) -> bool:
        return isinstance(one, Snapshot)

    try:
        heard.wait(lambda one: frame(one) and one.number >= 5)
        place = len(heard.all)
        feed.show(2)
        back = heard.wait(lambda one: frame(one) and not one.newest, after=place)
        assert back.number == 2
        assert back.shown.at == feed.history.times()[2]
        later = heard.wait(lambda one: frame(one) and one.last > back.last, after=place)
        assert later.number == 2, "an older moment stays while the stream goes on"
        assert later.pulses[-1].at > back.pulses[-1].at
        feed.show(None)
        assert heard.wait(lambda one: frame(one) and one.newest, after=len(heard.all)).number > 5
    finally:
        feed.stop()


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "pgqdoctor", *arguments],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )


def test_record_and_every_command_that_reads_it(database: str, tmp_path: Path) -> None:
    make_queue(database)
    file = tmp_path / "taken.pgqd"
    done = run("record", database, str(file), "--for", "3s", "--interval", "1s")
    assert done.returncode == 0, done.stderr
    assert done.stdout == ""
    assert "readings over" in done.stderr
    report = run("report", "--from", str(file), "--format", "json")
    assert report.returncode in (0, 1), report.stderr
    assert [one["name"] for one in json.loads(report.stdout)["queues"]] == ["public.jobs"]
    for command in ("triage", "fix", "queues"):
        assert run(command, "--from", str(file)).returncode in (0, 1)
    top = run("top", "--from", str(file))
    assert top.returncode == 2
    assert "needs a terminal" in top.stderr


def test_a_recording_holds_no_password(database: str, tmp_path: Path) -> None:
    make_queue(database)
    with psycopg.connect(database, autocommit=True) as admin:
        admin.execute("DROP ROLE IF EXISTS live_secret")
        admin.execute("CREATE ROLE live_secret LOGIN IN ROLE pg_monitor PASSWORD 'open-sesame-42'")
        try:
            file = tmp_path / "taken.pgqd"
            dsn = psycopg.conninfo.make_conninfo(database, user="live_secret", password="open-sesame-42")
            done = run("record", dsn, str(file), "--for", "2s", "--interval", "500ms", "--redact")
            assert done.returncode == 0, done.stderr
            assert "open-sesame" not in done.stderr
            text = gzip.decompress(file.read_bytes())
            assert b"open-sesame" not in text
            assert b"live_secret" not in text, "redacted"
        finally:
            admin.execute("DROP OWNED BY live_secret")
            admin.execute("DROP ROLE live_secret")


def test_a_recording_has_the_findings_that_were_seen_live(database: str, tmp_path: Path) -> None:
    """The same stream, once through the feed and once through the file."""
    make_queue(database)
    heard = Heard()
    feed: LiveFeed[Frame] = LiveFeed(database, FAST, Judging(), lambda frame: frame)
    with psycopg.connect(database) as holder:
        holder.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        holder.execute("SELECT count(*) FROM jobs")
        feed.start(heard)
        try:
            with psycopg.connect(database, autocommit=True) as worker:
                for _ in range(1_500):
                    worker.execute("UPDATE jobs SET run_at = now() WHERE id <= 3")
            last = heard.wait(lambda one: isinstance(one, Snapshot) and one.number >= 8)
        finally:
            feed.stop()
    file = tmp_path / "taken.pgqd"
    write_history(feed.history, file)
    newest = [one for one in heard.all if isinstance(one, Snapshot)][-1]
    assert last.shown.report.findings
    again = frame_of(last_observation(file))
    if newest.number == feed.history.span()[1] - 1:
        assert again.report == newest.shown.report
    assert {one.key for one in again.report.findings} == {one.key for one in newest.shown.report.findings}


def test_unreachable_server_is_one_sentence(tmp_path: Path) -> None:
    done = run("record", "postgresql://127.0.0.1:1/x", str(tmp_path / "x"), "--for", "1s")
    assert done.returncode == 3
    assert done.stderr.count("\n") == 1
    assert not (tmp_path / "x").exists()
