"""The look at jobs taken before: what it tells on a server, and that it costs the same on a table twenty times as large."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

import psycopg
import pytest
from psycopg import sql

from pgqdoctor import serving
from pgqdoctor.collect import ObserveOptions, observe
from pgqdoctor.engine import diagnose
from pgqdoctor.observation import Observation, QueueProbe
from pgqdoctor.report import ReportedFinding

TABLE = 'public."Late ""Jobs"'
SETUP = """
CREATE TABLE public."Late ""Jobs" (
    {key}, state text NOT NULL DEFAULT 'queued', created_at {time} NOT NULL DEFAULT {now},
    started_at {time}, finished_at {time}
);
CREATE INDEX ready_idx ON public."Late ""Jobs" (created_at) WHERE state = 'queued';
INSERT INTO public."Late ""Jobs" (state, created_at, started_at, finished_at)
SELECT 'done', made, made + interval '1 second', made + interval '3 seconds'
  FROM (SELECT {now} - interval '30 minutes' - g * interval '10 seconds' AS made FROM generate_series({done}, 1, -1) g) t;
INSERT INTO public."Late ""Jobs" (created_at) SELECT {now} - g * interval '1 minute' FROM generate_series(30, 1, -1) g;
ANALYZE public."Late ""Jobs";
"""
NUMBERED = "id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY"
CLAIM = """UPDATE public."Late ""Jobs" SET state = 'running', started_at = {now} WHERE id = (SELECT id FROM public."Late ""Jobs"
WHERE state = 'queued' ORDER BY created_at LIMIT 1 FOR UPDATE SKIP LOCKED) RETURNING id"""
BUFFERS = 2_000
"""The steps are some 70 descents of three pages and 200 rows, each at worst on a page of its own."""


def prepare(dsn: str, *, done: int, key: str = NUMBERED, naive: bool = False, table: str = TABLE) -> None:
    """Make the queue and let one claim be seen, which is rolled back."""
    kind, now = ("timestamp", "(now() AT TIME ZONE 'UTC')") if naive else ("timestamptz", "now()")
    with psycopg.connect(dsn, autocommit=True) as connection:
        setup = SETUP.format(key=key, time=kind, now=now, done=done).replace(TABLE, table)
        connection.execute(setup.encode())
        with connection.transaction(force_rollback=True):
            connection.execute(CLAIM.format(now=now).replace(TABLE, table).encode())


def looked(dsn: str, **options: object) -> tuple[Observation, QueueProbe]:
    seen = observe(dsn, ObserveOptions(window_seconds=1.5, **options))  # type: ignore[arg-type]
    (probe,) = seen.probes
    return seen, probe


def said(seen: Observation) -> ReportedFinding:
    report = diagnose(seen, only=("queue-unserved",))
    assert not report.crashed
    (finding,) = report.findings
    return finding


@pytest.mark.parametrize(
    ("done", "key", "naive"),
    [
        (20_000, NUMBERED, False),
        (20_000, NUMBERED, True),
        (2_000, NUMBERED, False),
        (2_000, "id uuid PRIMARY KEY DEFAULT gen_random_uuid()", False),
    ],
    ids=["steps", "steps without time zone", "whole", "whole by uuid"],
)
def test_gone_workers(database: str, done: int, key: str, naive: bool) -> None:
    prepare(database, done=done, key=key, naive=naive)
    seen, probe = looked(database)
    assert probe.served is not None, probe.lacks
    assert (probe.served.column, probe.served.kind_column) == ("started_at", "")
    (found,) = probe.served.kinds
    assert found.name is None
    assert found.jobs == done if done < serving.MOST_READY else 30 <= found.jobs <= 600
    assert set(found.waits_s) == {1.0} and set(found.runs_s) == {2.0}
    assert found.last_taken_age_s == pytest.approx(1_800 + 10 - 3, abs=60)
    assert found.span_s > 4 * 3_600
    assert found.waiting == 30
    assert found.waiting_s == pytest.approx(1_800, abs=60)
    finding = said(seen)
    assert finding.severity == "critical"
    assert finding.title.startswith(f"Nobody takes jobs from {TABLE}: 30 jobs wait, the oldest for 30 min")
    with psycopg.connect(database, autocommit=True) as connection:
        for statement in finding.remedies[0].sql:
            assert connection.execute(statement.encode()).fetchall()


def test_a_large_table_whose_key_counts_nothing_leaves_it_at_a_notice(database: str) -> None:
    prepare(database, done=20_000, key="id uuid PRIMARY KEY DEFAULT gen_random_uuid()")
    seen, probe = looked(database)
    assert probe.served is not None and probe.served.kinds == ()
    assert said(seen).severity == "notice"


def test_a_queue_that_is_served_pays_nothing(database: str) -> None:
    prepare(database, done=200)
    with psycopg.connect(database, autocommit=True) as connection:
        connection.execute(f"UPDATE {TABLE} SET state = 'done' WHERE state = 'queued'".encode())
        connection.execute(f"INSERT INTO {TABLE} DEFAULT VALUES".encode())
    _, probe = looked(database)
    assert (probe.ready_rows, probe.served) == (1, None)


def test_a_job_left_over_is_passed_over(database: str) -> None:
    prepare(database, done=20_000)
    with psycopg.connect(database, autocommit=True) as connection:
        connection.execute(
            f"UPDATE {TABLE} SET state = 'done', started_at = now(), finished_at = now() WHERE state = 'queued' AND id % 10 <> 1".encode()
        )
    seen, probe = looked(database)
    assert probe.served is not None and [one.waiting for one in probe.served.kinds] == [0]
    assert probe.ready_rows == 3
    assert diagnose(seen, only=("queue-unserved",)).findings == ()


def test_kinds_are_told_apart(database: str) -> None:
    prepare(database, done=20_000)
    with psycopg.connect(database, autocommit=True) as connection:
        connection.execute(f"ALTER TABLE {TABLE} ADD queue text NOT NULL DEFAULT 'mails'".encode())
        connection.execute(
            f"INSERT INTO {TABLE} (queue, state, created_at, started_at, finished_at) SELECT 'orders', 'done', made, made, made "
            "FROM (SELECT now() - g * interval '1 second' AS made FROM generate_series(500, 1, -1) g) t".encode()
        )
    seen, probe = looked(database)
    assert probe.served is not None and probe.served.kind_column == "queue"
    assert [(one.name, one.waiting) for one in probe.served.kinds] == [("mails", 30)]
    assert said(seen).title.startswith(f"Nobody takes jobs from {TABLE}: 30 jobs wait")


@contextmanager
def worker_that_waits(dsn: str) -> Iterator[None]:
    """A session whose last statement finished a job."""
    with psycopg.connect(dsn, autocommit=True, application_name="worker") as connection:
        connection.execute(
            f"UPDATE {TABLE} SET state = 'done', finished_at = now() WHERE id = -1 AND state = 'running'".encode()
        )
        yield


def test_a_worker_that_waits_to_ask_again(database: str) -> None:
    prepare(database, done=2_000)
    with worker_that_waits(database):
        time.sleep(0.2)
        seen, probe = looked(database)
    assert probe.served is not None and probe.served.connected == 1
    assert probe.served.last_asked_s is not None and 0 < probe.served.last_asked_s < 10
    finding = said(seen)
    assert finding.severity == "notice" and "a connected worker asked" in finding.why


@pytest.mark.parametrize(
    ("table", "paused", "column"),
    [
        (
            "river_queue (name text PRIMARY KEY, paused_at timestamptz)",
            "UPDATE river_queue SET paused_at = now()",
            "public.river_queue.paused_at",
        ),
        (
            "queues (name text PRIMARY KEY, paused bool NOT NULL DEFAULT false)",
            "UPDATE queues SET paused = true",
            "public.queues.paused",
        ),
        (
            "queue_pauses (queue_name text NOT NULL UNIQUE)",
            None,
            "public.queue_pauses.queue_name",
        ),
        (
            "chancy_queues (name text PRIMARY KEY, state text NOT NULL DEFAULT 'active')",
            "UPDATE chancy_queues SET state = 'paused'",
            "public.chancy_queues.state",
        ),
    ],
    ids=["River", "a flag", "a list", "a state"],
)
def test_a_paused_queue(database: str, table: str, paused: str | None, column: str) -> None:
    family = column.split(".")[1].partition("_")[0]
    jobs = "jobs" if family in ("queues", "queue") else f"{family}_jobs"
    prepare(database, done=2_000, table=jobs)
    name = table.partition(" ")[0]
    with psycopg.connect(database, autocommit=True) as connection:
        connection.execute(f"CREATE TABLE {table}".encode())
        if paused is not None:
            connection.execute(f"INSERT INTO {name} VALUES ('default')".encode())
        before, probe = looked(database)
        assert probe.served is not None and probe.served.paused is None
        assert said(before).severity == "critical"
        connection.execute((paused or f"INSERT INTO {name} VALUES ('default')").encode())
    after, probe = looked(database)
    assert probe.served is not None and probe.served.paused == column, probe.lacks
    finding = said(after)
    assert finding.severity == "notice" and f"paused by {column}" in finding.why


def test_the_steps_cost_the_same_on_a_larger_table(database: str) -> None:
    read = []
    for done in (10_000, 200_000):
        with psycopg.connect(database, autocommit=True) as connection:
            connection.execute(f"DROP TABLE IF EXISTS {TABLE}".encode())
            prepare(database, done=done)
            times = (sql.Identifier("started_at"), sql.Identifier("finished_at"))
            query = serving.taken_before(
                table=sql.Identifier("public", 'Late "Jobs'),
                key=sql.Identifier("id"),
                ready="state = 'queued'",
                since=sql.Identifier("created_at"),
                taken=times,
                ran=times,
                kind=sql.Identifier("state"),
                most=serving.MOST_READY,
            )
            row = connection.execute(
                sql.SQL("EXPLAIN (ANALYZE, BUFFERS, TIMING OFF, FORMAT JSON) ") + query
            ).fetchone()
            assert row is not None
            plan = row[0][0]["Plan"]
            read.append(plan["Shared Hit Blocks"] + plan["Shared Read Blocks"])
            assert plan["Total Cost"] < 4_000
    small, large = read
    assert small <= large <= min(2 * small, BUFFERS), read
