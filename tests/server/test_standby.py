"""A hot standby: what can be told is told, what cannot is said, and its feedback is seen on the primary."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

import psycopg
import pytest

from pgqdoctor import horizon
from pgqdoctor.collect import ObserveOptions, observe
from pgqdoctor.engine import diagnose
from pgqdoctor.lab.server import ScratchServer

SETUP = """
CREATE TABLE jobs (id bigserial PRIMARY KEY, state text NOT NULL DEFAULT 'ready', run_at timestamptz NOT NULL DEFAULT now());
CREATE INDEX jobs_ready_idx ON jobs (run_at, id) WHERE state = 'ready';
INSERT INTO jobs (state) SELECT 'ready' FROM generate_series(1, 5000);
ANALYZE jobs;
"""
CLAIM = "DELETE FROM jobs WHERE id = (SELECT id FROM jobs WHERE state = 'ready' ORDER BY run_at, id LIMIT 1 FOR UPDATE SKIP LOCKED) RETURNING id"


def await_true(question: Callable[[], bool], seconds: float = 15.0) -> None:
    until = time.monotonic() + seconds
    while not question():
        assert time.monotonic() < until, "the awaited state did not come"
        time.sleep(0.05)


@pytest.fixture(scope="module")
def pair() -> Iterator[tuple[ScratchServer, ScratchServer]]:
    with ScratchServer() as primary:
        dsn = primary.create_database("app")
        with psycopg.connect(dsn, autocommit=True) as connection:
            connection.execute(SETUP.encode())
        settings: dict[str, str | int | float | bool] = {
            "hot_standby_feedback": True,
            "wal_receiver_status_interval": "100ms",
        }
        with ScratchServer(standby_of=primary, settings=settings) as standby:
            yield primary, standby


def caught_up(primary: ScratchServer, standby: ScratchServer) -> None:
    with psycopg.connect(primary.dsn("app"), autocommit=True) as connection:
        row = connection.execute("SELECT pg_current_wal_lsn()").fetchone()
    assert row is not None
    with psycopg.connect(standby.dsn("app"), autocommit=True) as connection:
        await_true(
            lambda: bool(
                (
                    connection.execute("SELECT pg_last_wal_replay_lsn() >= %s::pg_lsn", [row[0]]).fetchone()
                    or (False,)
                )[0]
            )
        )


def test_a_standby_is_observed_and_says_what_it_cannot_tell(
    pair: tuple[ScratchServer, ScratchServer],
) -> None:
    primary, standby = pair
    caught_up(primary, standby)
    seen = observe(standby.dsn("app"), ObserveOptions(window_seconds=0.5, queues=("public.jobs",)))
    report = diagnose(seen)
    assert report.server.in_recovery
    assert not report.crashed
    assert any("standby" in note for note in report.notes)
    assert report.queues[0].name == "public.jobs"
    assert report.queues[0].ready.rows == 5000
    assert not [one for one in report.findings if one.severity != "notice"]
    # Its counters are its own: whoever needs those of the primary is skipped, never passed.
    assert {"dead-tuples", "vacuum-horizon-held"} <= {one.check for one in report.skipped}


def test_a_query_on_the_standby_holds_the_primarys_horizon(pair: tuple[ScratchServer, ScratchServer]) -> None:
    primary, standby = pair
    caught_up(primary, standby)
    with (
        psycopg.connect(standby.dsn("app")) as reader,
        psycopg.connect(primary.dsn("app"), autocommit=True) as worker,
    ):
        reader.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        reader.execute("SELECT count(*) FROM jobs")

        def fed_back() -> bool:
            row = worker.execute(
                "SELECT count(*) FROM pg_stat_replication WHERE backend_xmin IS NOT NULL"
            ).fetchone()
            return row is not None and row[0] == 1

        await_true(fed_back)
        for _ in range(3000):
            worker.execute(CLAIM.encode())
        worker.execute("VACUUM jobs")
        worker.execute("SELECT pg_sleep(1.1)")
        worker.execute(CLAIM.encode())
        seen = observe(primary.dsn("app"), ObserveOptions(window_seconds=3.2))
        oldest = horizon.of(seen).oldest
        assert oldest is not None
        assert oldest.kind == "standby"
        report = diagnose(seen)
        held = next(one for one in report.findings if one.check == "vacuum-horizon-held")
        assert "hot_standby_feedback" in held.title
        assert not any("pg_terminate_backend" in sql for remedy in held.remedies for sql in remedy.sql)
