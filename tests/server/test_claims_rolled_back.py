"""claims-rolled-back, live: workers whose work fails, and workers that roll back after finding nothing."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterator

import psycopg
import pytest

from pgqdoctor.collect import ObserveOptions, observe
from pgqdoctor.engine import diagnose

SETUP = """
CREATE TABLE mails (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, run_at timestamptz NOT NULL DEFAULT now(), body text);
CREATE INDEX mails_run_at_idx ON mails (run_at, id);
INSERT INTO mails (run_at, body) SELECT now() - interval '1 hour' + g * interval '1 s', 'x' FROM generate_series(1, 500) g;
ANALYZE mails;
"""
CLAIM = b"SELECT id FROM mails WHERE run_at <= now() ORDER BY run_at, id LIMIT 1 FOR UPDATE SKIP LOCKED"
Work = Callable[[psycopg.Connection[tuple[int]], tuple[int] | None], None]


@contextlib.contextmanager
def working(dsn: str, work: Work, workers: int = 3) -> Iterator[None]:
    """Workers that claim, work on what they got for 20 ms, and end their transaction as ``work`` does."""
    over = threading.Event()

    def run() -> None:
        with psycopg.connect(dsn, application_name="worker") as connection:
            while not over.is_set():
                got = connection.execute(CLAIM).fetchone()
                time.sleep(0.02)
                work(connection, got)

    threads = [threading.Thread(target=run) for _ in range(workers)]
    for thread in threads:
        thread.start()
    try:
        time.sleep(1.0)
        yield
    finally:
        over.set()
        for thread in threads:
            thread.join()


def fails(connection: psycopg.Connection[tuple[int]], got: tuple[int] | None) -> None:
    connection.rollback()


def finishes(connection: psycopg.Connection[tuple[int]], got: tuple[int] | None) -> None:
    if got is None:
        # Drivers that open a transaction for every statement end it so where there was nothing to do.
        connection.rollback()
        return
    connection.execute("DELETE FROM mails WHERE id = %s", got)
    connection.commit()


@pytest.mark.parametrize(
    ("work", "rest", "accused"), [(fails, 500, True), (finishes, 500, False), (finishes, 0, False)]
)
def test_who_is_accused(database: str, work: Work, rest: int, accused: bool) -> None:
    with psycopg.connect(database, autocommit=True) as connection:
        connection.execute(SETUP.encode())
        connection.execute("DELETE FROM mails WHERE id > %s", [rest])
    with working(database, work):
        report = diagnose(observe(database, ObserveOptions(window_seconds=2.0)))
    found = [one for one in report.findings if one.check == "claims-rolled-back"]
    assert [one.severity for one in found] == (["critical"] if accused else [])
