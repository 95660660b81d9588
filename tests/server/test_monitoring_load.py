"""Counting live: a count that works is load, one that sleeps or waits for a lock is none."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator

import psycopg
import pytest

from pgqdoctor.collect import ObserveOptions, observe
from pgqdoctor.engine import diagnose

WINDOW_S = 4.0
JOBS = """
CREATE TABLE jobs (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, status text NOT NULL DEFAULT 'queued');
CREATE INDEX jobs_queued_idx ON jobs (id) WHERE status = 'queued';
"""
CLAIM = "DELETE FROM jobs WHERE id = (SELECT id FROM jobs WHERE status = 'queued' ORDER BY id LIMIT 1 FOR UPDATE SKIP LOCKED) RETURNING id"


@pytest.fixture
def claimed(database: str) -> Iterator[str]:
    """A queue that one worker claims from, with a job enqueued for each one taken."""
    with psycopg.connect(database, autocommit=True) as connection:
        connection.execute(JOBS.encode())
    stop = threading.Event()

    def work() -> None:
        with psycopg.connect(database, autocommit=True) as connection:
            while not stop.is_set():
                connection.execute("INSERT INTO jobs (status) VALUES ('queued')")
                connection.execute(CLAIM.encode())
                time.sleep(0.02)

    worker = threading.Thread(target=work, daemon=True)
    worker.start()
    yield database
    stop.set()
    worker.join(timeout=20)


def found(dsn: str, counting: str, held: str = "") -> list[str]:
    """Titles of monitoring-load while one session runs ``counting`` over and over, and another holds ``held``."""
    stop = threading.Event()

    def count() -> None:
        with psycopg.connect(dsn, autocommit=True) as connection:
            while not stop.is_set():
                connection.execute(counting.encode())

    with psycopg.connect(dsn) as holder:
        if held:
            holder.execute(held.encode())
        counter = threading.Thread(target=count, daemon=True)
        counter.start()
        time.sleep(1.0)
        if held:
            # Counters are written at a statement's end: it waits within the window and ends in it.
            threading.Timer(WINDOW_S - 1.0, holder.rollback).start()
        report = diagnose(observe(dsn, ObserveOptions(window_seconds=WINDOW_S)))
        stop.set()
        counter.join(timeout=20)
    return [one.title for one in report.findings if one.check == "monitoring-load"]


def test_a_count_that_works_is_load(claimed: str) -> None:
    with psycopg.connect(claimed, autocommit=True) as connection:
        connection.execute("INSERT INTO jobs (status) SELECT 'done' FROM generate_series(1, 100000)")
    (title,) = found(claimed, "SELECT status, count(*) FROM jobs GROUP BY status")
    assert title.startswith("Counting public.jobs takes ")


def test_a_count_that_sleeps_is_none(claimed: str) -> None:
    with psycopg.connect(claimed, autocommit=True) as connection:
        connection.execute("INSERT INTO jobs (status) SELECT 'done' FROM generate_series(1, 50)")
    assert found(claimed, "SELECT count(pg_sleep(0.01)) FROM jobs") == []


def test_a_count_that_waits_for_a_lock_is_none(claimed: str) -> None:
    with psycopg.connect(claimed, autocommit=True) as connection:
        connection.execute("INSERT INTO jobs (status) SELECT 'done' FROM generate_series(1, 50)")
    waiting = "SELECT count(pg_advisory_xact_lock_shared(7)) FROM jobs"
    assert found(claimed, waiting, held="SELECT pg_advisory_xact_lock(7)") == []
