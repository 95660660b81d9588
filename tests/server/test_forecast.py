"""What is foretold comes to pass: ids that run out at a known rate, transaction ids and MultiXactIds that are used up."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import psycopg
import pytest

from pgqdoctor.collect import ObserveOptions, observe
from pgqdoctor.engine import diagnose
from pgqdoctor.forecast import claim_cost
from pgqdoctor.lab.server import ScratchServer
from pgqdoctor.queue import build_queues
from pgqdoctor.report import Report, ReportedFinding
from pgqdoctor.story import number_of
from pgqdoctor.wraparound import STOP_AGE

WINDOW_S = 4.0
NEAR = 0.2
"""Share by which a forecast from a window of four seconds may be off: counters and statements end within it, not with it."""
LEFT = "time left at this rate"
JOBS = """
CREATE TABLE jobs (id smallint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, status text NOT NULL DEFAULT 'queued', body text);
CREATE INDEX jobs_queued_idx ON jobs (id) WHERE status = 'queued';
"""
CLAIM = "DELETE FROM jobs WHERE id = (SELECT id FROM jobs WHERE status = 'queued' ORDER BY id LIMIT 1 FOR UPDATE SKIP LOCKED) RETURNING id"

Work = Callable[[psycopg.Connection, threading.Event], None]


@contextmanager
def working(dsn: str, work: Work, times: int = 1) -> Iterator[threading.Event]:
    """Run ``work`` on connections of its own until the block is left; it is handed the event that says so."""
    stop = threading.Event()

    def run() -> None:
        with psycopg.connect(dsn, autocommit=True) as connection:
            work(connection, stop)

    threads = [threading.Thread(target=run, daemon=True) for _ in range(times)]
    for thread in threads:
        thread.start()
    try:
        yield stop
    finally:
        stop.set()
        for thread in threads:
            thread.join(timeout=20)


def found(report: Report, check: str) -> ReportedFinding:
    told = [f"{one.severity} {one.key}: {one.title}" for one in report.findings]
    return next((one for one in report.findings if one.check == check), None) or pytest.fail(
        f"no {check} in {told}"
    )


def test_ids_end_when_it_was_foretold(database: str) -> None:
    """A smallint identity with 1,500 ids left, 60 of which are taken each second."""
    ended: list[float] = []

    def enqueue(connection: psycopg.Connection, stop: threading.Event) -> None:
        began, done = time.monotonic(), 0
        while not stop.is_set():
            try:
                connection.execute("INSERT INTO jobs (body) VALUES ('x')")
            except psycopg.errors.SequenceGeneratorLimitExceeded:
                ended.append(time.monotonic())
                return
            done += 1
            if done % 3 == 0:
                connection.execute(CLAIM.encode())
            time.sleep(max(0.0, began + done / 60 - time.monotonic()))

    with psycopg.connect(database, autocommit=True) as connection:
        connection.execute(JOBS.encode())
        connection.execute("SELECT setval(pg_get_serial_sequence('jobs', 'id'), 32767 - 1500)")
    with working(database, enqueue):
        time.sleep(1.0)
        report = diagnose(observe(database, ObserveOptions(window_seconds=WINDOW_S)))
        seen_at = time.monotonic()
        finding = found(report, "id-exhaustion")
        foretold = number_of(finding, LEFT)
        assert foretold is not None
        assert finding.severity == "critical"
        (said,) = [one.source for one in finding.evidence if one.what == LEFT]
        assert said.startswith("computed: ")
        assert "ids left" in said
        until = seen_at + 2 * foretold
        while not ended and time.monotonic() < until:
            time.sleep(0.1)
    assert ended, f"foretold in {foretold} s, and still not ended"
    # The finding is made shortly after the window's end, to which the forecast counts.
    assert ended[0] - seen_at == pytest.approx(foretold, rel=NEAR, abs=1.5)


def paced(work: Callable[[psycopg.Connection], object], per_second: float) -> Work:
    """Return a load that does ``work`` so often."""

    def run(connection: psycopg.Connection, stop: threading.Event) -> None:
        began, done = time.monotonic(), 0
        while not stop.is_set():
            work(connection)
            done += 1
            time.sleep(max(0.0, began + done / per_second - time.monotonic()))

    return run


def test_a_backlog_of_jobs_without_times_grows_as_told(database: str) -> None:
    """6,000 jobs wait, 100 arrive per second and 40 are taken; no column tells since when."""
    with psycopg.connect(database, autocommit=True) as connection:
        connection.execute(JOBS.replace("smallint", "bigint").encode())
        connection.execute("INSERT INTO jobs (body) SELECT 'x' FROM generate_series(1, 6000)")
    # The counters of a session that ends are there at once, those of one that idles after ten seconds.
    with psycopg.connect(database, autocommit=True) as connection:

        def ready() -> int:
            row = connection.execute("SELECT count(*) FROM jobs").fetchone()
            assert row is not None
            return int(row[0])

        with (
            working(database, paced(lambda one: one.execute("INSERT INTO jobs (body) VALUES ('x')"), 100)),
            working(database, paced(lambda one: one.execute(CLAIM.encode()), 40)),
        ):
            time.sleep(1.0)
            finding = found(
                diagnose(observe(database, ObserveOptions(window_seconds=WINDOW_S))), "backlog-growing"
            )
            before, began = ready(), time.monotonic()
            time.sleep(4.0)
            grown = (ready() - before) / (time.monotonic() - began)
    arrivals, taken = number_of(finding, "arrivals"), number_of(finding, "taken")
    assert arrivals is not None
    assert taken is not None
    # The table's counters are up to a second late, of the four of the window.
    assert arrivals - taken == pytest.approx(grown, rel=2 * NEAR)
    assert finding.severity == "warning"


def test_one_batch_is_no_growing_backlog(database: str) -> None:
    def enqueue(jobs: int) -> None:
        with psycopg.connect(database, autocommit=True) as connection:
            connection.execute(f"INSERT INTO jobs (body) SELECT 'x' FROM generate_series(1, {jobs})".encode())

    with psycopg.connect(database, autocommit=True) as connection:
        connection.execute(JOBS.replace("smallint", "bigint").encode())
    enqueue(6_000)
    with working(database, paced(lambda one: one.execute(CLAIM.encode()), 40)):
        time.sleep(1.5)
        batch = threading.Timer(3.0, enqueue, [3_000])
        batch.start()
        seen = observe(database, ObserveOptions(window_seconds=WINDOW_S))
        batch.join()
    (queue,) = build_queues(seen)
    assert queue.churn.inserted == 3_000
    report = diagnose(seen)
    assert [one.key for one in report.findings if one.check == "backlog-growing"] == []


def test_the_cost_of_a_claim_grows_along_one_line(database: str) -> None:
    """Windows of one held horizon foretell the same moment, whatever a single EXPLAIN took."""
    with psycopg.connect(database, autocommit=True) as connection:
        connection.execute(JOBS.replace("smallint", "bigint").encode())
        connection.execute("INSERT INTO jobs (body) SELECT 'x' FROM generate_series(1, 30000)")
        connection.execute("VACUUM ANALYZE jobs")
    with psycopg.connect(database) as holder:
        holder.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        holder.execute("SELECT count(*) FROM jobs")
        # The counters of a session that ends are there at once, those of one that idles after ten seconds.
        with psycopg.connect(database) as connection:
            connection.execute("DELETE FROM jobs WHERE id <= 20000")
        times = []
        with working(database, paced(lambda one: one.execute(CLAIM.encode()), 40)):
            time.sleep(1.5)
            for _ in range(3):
                seen = observe(database, ObserveOptions(window_seconds=WINDOW_S))
                (queue,) = build_queues(seen)
                coming = claim_cost(seen, queue)
                assert coming is not None
                assert coming.seconds is not None
                assert "on average of" in coming.how
                times.append(coming.seconds)
        holder.rollback()
    # The rate at which rows die is that of a window of four seconds, of which the counters may miss one.
    assert max(times) < 2 * min(times), times


@pytest.fixture(scope="module")
def unfrozen() -> Iterator[str]:
    """A server that forces vacuum as early as it can be told, and whose autovacuum comes too late."""
    settings: dict[str, str | int | float | bool] = {
        "autovacuum_freeze_max_age": 100_000,
        "autovacuum_multixact_freeze_max_age": 10_000,
        "autovacuum_naptime": "1h",
    }
    with ScratchServer(settings=settings) as server:
        dsn = server.create_database("app")
        with psycopg.connect(dsn, autocommit=True) as connection:
            connection.execute("CREATE TABLE jobs (id bigint PRIMARY KEY, status text)")
            connection.execute("INSERT INTO jobs VALUES (1, 'queued')")
            connection.execute(
                "CREATE PROCEDURE burn(n int) LANGUAGE plpgsql AS "
                "$$ BEGIN FOR i IN 1..n LOOP PERFORM pg_current_xact_id(); COMMIT; END LOOP; END $$"
            )
        yield dsn


def age(dsn: str, function: str, column: str) -> int:
    with psycopg.connect(dsn, autocommit=True) as connection:
        row = connection.execute(
            f"SELECT {function}({column}) FROM pg_database WHERE datname = current_database()".encode()
        ).fetchone()
        assert row is not None
        return int(row[0])


def compared(dsn: str, check: str, function: str, column: str) -> None:
    """The rate that the time left stands for is the rate at which the age grows afterwards."""
    report = diagnose(observe(dsn, ObserveOptions(window_seconds=WINDOW_S)))
    finding = found(report, check)
    left = number_of(finding, LEFT)
    assert left is not None
    assert "used up in about" in finding.title
    (now,) = [one.value for one in finding.evidence if one.what.startswith("age of the oldest")]
    foretold = (STOP_AGE - float(now)) / left
    before, began = age(dsn, function, column), time.monotonic()
    time.sleep(5.0)
    grown = (age(dsn, function, column) - before) / (time.monotonic() - began)
    assert foretold == pytest.approx(grown, rel=NEAR)


def test_transaction_ids_are_used_as_fast_as_foretold(unfrozen: str) -> None:
    with psycopg.connect(unfrozen, autocommit=True) as connection:
        connection.execute("CALL burn(115000)")

    def write(connection: psycopg.Connection, stop: threading.Event) -> None:
        began, done = time.monotonic(), 0
        while not stop.is_set():
            connection.execute("SELECT pg_current_xact_id()")
            done += 1
            time.sleep(max(0.0, began + done / 200 - time.monotonic()))

    with working(unfrozen, write):
        compared(unfrozen, "xid-wraparound", "age", "datfrozenxid")


def test_multixactids_are_used_as_fast_as_foretold(unfrozen: str) -> None:
    def share(connection: psycopg.Connection, stop: threading.Event) -> None:
        while not stop.is_set():
            connection.execute("BEGIN")
            connection.execute("SELECT FROM jobs WHERE id = 1 FOR SHARE")
            connection.execute("COMMIT")

    with working(unfrozen, share, times=3):
        until = time.monotonic() + 60
        while age(unfrozen, "mxid_age", "datminmxid") < 11_500:
            assert time.monotonic() < until
            time.sleep(0.5)
        compared(unfrozen, "multixact-wraparound", "mxid_age", "datminmxid")
