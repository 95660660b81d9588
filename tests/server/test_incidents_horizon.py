"""States that people who run queues were hurt or misled by: what holds dead rows back, and what only looks as if it did.

Each stands in a database of its own under a small load, and says which checks must speak, which may, and what the first finding's
title must name.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass

import pytest
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from pgqdoctor import triage
from pgqdoctor.collect import ObserveOptions, observe
from pgqdoctor.engine import diagnose
from pgqdoctor.observation import Observation
from pgqdoctor.report import Report

from .holding import beside, prepared, repeating, run, session

WINDOW_S = 4.0
SETTLE_S = 2.0

QUEUE = (
    "CREATE TABLE jobs (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, run_at timestamptz NOT NULL DEFAULT now(), "
    "status text NOT NULL DEFAULT 'ready', body text NOT NULL DEFAULT repeat('x', 60))",
    "CREATE INDEX jobs_ready_idx ON jobs (run_at) WHERE status = 'ready'",
    "INSERT INTO jobs (run_at) SELECT now() FROM generate_series(1, 300)",
    "ANALYZE jobs",
)
ENQUEUE = "INSERT INTO jobs DEFAULT VALUES"
CLAIM = (
    "WITH next AS MATERIALIZED (SELECT id FROM jobs WHERE status = 'ready' ORDER BY run_at LIMIT 1 FOR UPDATE SKIP LOCKED) "
    "DELETE FROM jobs USING next WHERE jobs.id = next.id RETURNING jobs.id"
)
REPORT = ("BEGIN ISOLATION LEVEL REPEATABLE READ", "SELECT count(*) FROM jobs")
WRITE = "UPDATE jobs SET body = 'mine' WHERE id = 7"

DEAD = ("dead-tuples", "claim-scans-dead-rows", "heap-bloat", "index-bloat", "stale-statistics")
"""What follows from dead rows that stay, and from a queue as young as these."""
TUNING = ("autovacuum-settings", "autovacuum-behind", "hot-no-page-room")
"""Advice to vacuum more or otherwise, which cannot help while the horizon is held."""

Stage = Callable[[str], AbstractContextManager[object]]


@dataclass(frozen=True, slots=True, kw_only=True)
class State:
    """One state: how to get there, and what is said of it at warning or above."""

    stage: Stage
    expected: tuple[str, ...] = ()
    allowed: tuple[str, ...] = ()
    forbidden: tuple[str, ...] = ()
    names: tuple[str, ...] = ()
    """Words that the title of the first expected check holds."""
    unsaid: tuple[str, ...] = ()
    """Words that no title, remedy or step may hold."""
    rate: float = 500.0
    """Jobs per second, of two workers together."""
    settle_s: float = SETTLE_S


@contextlib.contextmanager
def working(dsn: str, per_second: float) -> Iterator[None]:
    """Two workers that enqueue and claim."""
    with contextlib.ExitStack() as stack:
        for name in ("worker-1", "worker-2"):
            loop = repeating(dsn, ENQUEUE, CLAIM, every_s=2 / per_second, application=name)
            stack.enter_context(loop)
        yield


def look(dsn: str) -> tuple[Observation, Report]:
    seen = observe(dsn, ObserveOptions(window_seconds=WINDOW_S))
    return seen, diagnose(seen)


def told(report: Report) -> str:
    """What a failed assertion shows."""
    lines = [f"{one.severity} {one.key}: {one.title} <- {one.caused_by}" for one in report.findings]
    lines += [f"crashed {one.check}: {one.error}" for one in report.crashed]
    lines += [f"queue {one.name} {one.rates}" for one in report.queues]
    return "\n".join(lines)


def judge(state: State, seen: Observation, report: Report) -> None:
    assert not report.crashed, told(report)
    assert [one.name for one in report.queues], told(report)
    harmful = {one.check for one in report.findings if one.severity != "notice"}
    assert set(state.expected) <= harmful <= {*state.expected, *state.allowed}, told(report)
    assert not {one.check for one in report.findings} & set(state.forbidden), told(report)
    if state.expected:
        first = next(one for one in report.findings if one.check == state.expected[0])
        assert all(name in first.title for name in state.names), told(report)
    steps = triage.build_triage(seen, report, None).steps
    texts = [one.title for one in report.findings]
    texts += [
        line for one in report.findings for remedy in one.remedies for line in (remedy.title, *remedy.sql)
    ]
    texts += [line for step in steps for line in (step.title, *step.sql)]
    assert not [text for text in texts for word in state.unsaid if word in text], told(report)


def holds(*statements: str, application: str = "holder") -> Stage:
    return lambda dsn: session(dsn, *statements, application=application)


def together(*stages: Stage) -> Stage:
    @contextlib.contextmanager
    def stage(dsn: str) -> Iterator[None]:
        with ExitStack() as stack:
            for one in stages:
                stack.enter_context(one(dsn))
            yield

    return stage


def there(stage: Stage) -> Stage:
    """The stage in another database of the same server."""

    @contextlib.contextmanager
    def elsewhere(dsn: str) -> Iterator[None]:
        with beside(dsn) as other, stage(other):
            yield

    return elsewhere


@contextlib.contextmanager
def overlapping(dsn: str) -> Iterator[None]:
    """Three reports of three seconds each, of which always some run."""
    with ExitStack() as stack:
        for place in range(3):
            stack.enter_context(
                repeating(
                    dsn,
                    "SELECT sum(i), pg_sleep(3) FROM generate_series(1, 9) i",
                    application=f"report-{place}",
                )
            )
            time.sleep(1.0)
        yield


@contextlib.contextmanager
def dashboards(dsn: str) -> Iterator[None]:
    """Statements of a quarter of a second: at any moment somebody has a snapshot, and nobody has it for long."""
    with ExitStack() as stack:
        for place in range(3):
            loop = repeating(
                dsn,
                "SELECT sum(i), pg_sleep(0.25) FROM generate_series(1, 9) i",
                application=f"dashboard-{place}",
            )
            stack.enter_context(loop)
        yield


@contextlib.contextmanager
def logical_slot(dsn: str) -> Iterator[None]:
    name = conninfo_to_dict(dsn)["dbname"]
    run(dsn, f"SELECT pg_create_logical_replication_slot('{name}', 'pgoutput')")
    try:
        yield
    finally:
        run(dsn, f"SELECT pg_drop_replication_slot('{name}')")


def gid_of(dsn: str) -> str:
    return f"orphan of {conninfo_to_dict(dsn)['dbname']}"


def orphan(statement: str) -> Stage:
    return lambda dsn: prepared(dsn, statement, gid=gid_of(dsn))


HOSTILE = "\x1b[31mred\"'; DROP TABLE jobs; --" + "x" * 60

SICK = {
    "a report with a snapshot": State(
        stage=holds(*REPORT, "SELECT pg_sleep(60)", application="analytics"),
        expected=("vacuum-horizon-held",),
        allowed=DEAD,
        forbidden=TUNING,
        names=("analytics", "active", "public.jobs"),
        unsaid=("VACUUM FULL", "VACUUM (TRUNCATE", "fillfactor", "autovacuum_vacuum"),
    ),
    "reports that take turns": State(
        stage=overlapping,
        expected=("vacuum-horizon-held",),
        allowed=DEAD,
        forbidden=TUNING,
        names=("Overlapping", "report-"),
        unsaid=("pg_terminate_backend", "pg_cancel_backend"),
        settle_s=3.0,
    ),
    "a worker that calls out with the transaction open, and one that waits for it": State(
        stage=together(
            holds("BEGIN", WRITE, application="worker_http"),
            holds(WRITE.replace("mine", "cancelled"), application="canceller"),
        ),
        expected=("vacuum-horizon-held",),
        allowed=(*DEAD, "claim-transaction-held", "lock-queue", "claim-not-skip-locked"),
        forbidden=TUNING,
        names=("worker_http", "idle in transaction"),
    ),
    "a prepared transaction": State(
        stage=orphan(WRITE),
        expected=("vacuum-horizon-held",),
        allowed=DEAD,
        forbidden=TUNING,
        names=("Prepared transaction", "orphan of"),
        unsaid=("pg_terminate_backend", "pg_cancel_backend"),
    ),
    "an open cursor in READ COMMITTED": State(
        stage=holds(
            "BEGIN", "DECLARE c CURSOR FOR SELECT * FROM jobs", "FETCH 1 FROM c", application="export"
        ),
        expected=("vacuum-horizon-held",),
        allowed=DEAD,
        forbidden=TUNING,
        names=("export", "idle in transaction"),
    ),
    "ANALYZE of a large table": State(
        stage=holds(
            "CREATE TABLE big (id int, pad text) WITH (autovacuum_enabled = off)",
            "INSERT INTO big SELECT i, repeat('x', 300) FROM generate_series(1, 20000) i",
            "SET vacuum_cost_delay = 20",
            "SET vacuum_cost_limit = 1",
            "ANALYZE big",
            application="slow_analyze",
        ),
        expected=("vacuum-horizon-held",),
        allowed=DEAD,
        forbidden=TUNING,
        names=("slow_analyze",),
    ),
    "a writer in another database": State(
        stage=together(
            there(holds("BEGIN", "INSERT INTO elsewhere VALUES (1)", application="etl")), dashboards
        ),
        expected=("vacuum-horizon-held",),
        allowed=DEAD,
        forbidden=TUNING,
        names=("etl", "in database", "_beside"),
    ),
    "a prepared transaction of another database": State(
        stage=together(there(orphan("INSERT INTO elsewhere VALUES (1)")), dashboards),
        expected=("vacuum-horizon-held",),
        allowed=DEAD,
        forbidden=TUNING,
        names=("Prepared transaction", "in database", "_beside"),
    ),
    "a hostile application name": State(
        stage=holds(*REPORT, application=HOSTILE),
        expected=("vacuum-horizon-held",),
        allowed=DEAD,
        forbidden=TUNING,
        names=("idle in transaction",),
        unsaid=("\x1b", "\n"),
    ),
}

HEALTHY = {
    "idle transactions in READ COMMITTED": State(
        stage=together(
            *(holds("BEGIN", "SELECT count(*) FROM jobs", application=f"pool-{place}") for place in range(8))
        ),
    ),
    "a cursor WITH HOLD": State(
        stage=holds("DECLARE c CURSOR WITH HOLD FOR SELECT * FROM jobs", "FETCH 1 FROM c"),
    ),
    "idle listeners": State(stage=together(*(holds("LISTEN jobs") for _ in range(4)))),
    "a snapshot in another database": State(
        stage=there(holds("BEGIN ISOLATION LEVEL REPEATABLE READ", "SELECT 1")),
    ),
    "a lazy VACUUM of a large table": State(
        stage=holds(
            "CREATE TABLE big (id int, pad text) WITH (autovacuum_enabled = off)",
            "INSERT INTO big SELECT i, repeat('x', 300) FROM generate_series(1, 20000) i",
            "SET vacuum_cost_delay = 20",
            "SET vacuum_cost_limit = 1",
            "VACUUM big",
        ),
    ),
    "a lazy VACUUM that waits for a lock": State(
        stage=together(
            holds(
                "CREATE TABLE big (id int)",
                "BEGIN",
                "LOCK TABLE big IN SHARE MODE",
            ),
            holds("VACUUM big"),
        ),
    ),
    "statements of which always some run": State(stage=dashboards),
    "a writer in another database, and gaps between the statements here": State(
        stage=there(holds("BEGIN", "INSERT INTO elsewhere VALUES (1)")), rate=50.0
    ),
    "an old snapshot and hardly any churn": State(stage=holds(*REPORT), rate=4.0),
    "short reports": State(
        stage=lambda dsn: repeating(
            dsn, "SELECT sum(i), pg_sleep(1.5) FROM generate_series(1, 9) i", application="report"
        ),
        rate=50.0,
    ),
    "batches of half a second": State(
        stage=lambda dsn: repeating(
            dsn,
            "BEGIN",
            CLAIM.replace("LIMIT 1", "LIMIT 20"),
            "SELECT pg_sleep(0.5)",
            "COMMIT",
            application="batch-worker",
        ),
        rate=100.0,
    ),
    "a logical slot": State(stage=logical_slot),
}


def reach(dsn: str, state: State) -> tuple[Observation, Report]:
    run(dsn, *QUEUE)
    with working(dsn, state.rate), state.stage(dsn):
        time.sleep(state.settle_s)
        return look(dsn)


@pytest.mark.parametrize("state", SICK.values(), ids=SICK)
def test_the_culprit_is_named(database: str, state: State) -> None:
    judge(state, *reach(database, state))


@pytest.mark.parametrize("state", HEALTHY.values(), ids=HEALTHY)
def test_nobody_is_accused(database: str, state: State) -> None:
    judge(state, *reach(database, state))


def test_each_queue_has_its_finding_and_a_quiet_one_none(database: str) -> None:
    other = '"My Schema"."Email Outbox"'
    run(database, *QUEUE, 'CREATE SCHEMA "My Schema"')
    run(database, f"CREATE TABLE {other} (LIKE jobs INCLUDING ALL)", f"ANALYZE {other}")
    run(
        database,
        "CREATE TABLE quiet_tasks (LIKE jobs INCLUDING ALL)",
        "INSERT INTO quiet_tasks DEFAULT VALUES",
    )
    enqueue, claim = (
        one.replace("jobs.id", '"Email Outbox".id').replace("jobs", other) for one in (ENQUEUE, CLAIM)
    )
    quiet = (ENQUEUE.replace("jobs", "quiet_tasks"), CLAIM.replace("jobs", "quiet_tasks"))
    with (
        working(database, 400.0),
        repeating(database, enqueue, claim, every_s=0.004),
        repeating(database, enqueue, claim, every_s=0.004),
        repeating(database, *quiet, every_s=0.5),
        session(database, *REPORT, application="analytics"),
    ):
        time.sleep(SETTLE_S)
        _, report = look(database)
    held = [one for one in report.findings if one.check == "vacuum-horizon-held"]
    assert {one.queue for one in held} == {"public.jobs", other}, told(report)
    assert all("analytics" in one.title for one in held)
    assert not [one for one in report.findings if one.queue == "public.quiet_tasks"], told(report)


def test_pg_monitor_is_enough_to_name_the_culprit(database: str) -> None:
    role = f"watcher_{conninfo_to_dict(database)['dbname']}"
    run(database, *QUEUE, f"CREATE ROLE {role} LOGIN", f"GRANT pg_monitor TO {role}")
    try:
        with working(database, 500.0), session(database, *REPORT, application="analytics"):
            time.sleep(SETTLE_S)
            _, report = look(make_conninfo(database, user=role))
    finally:
        run(database, f"DROP ROLE {role}")
    held = next(one for one in report.findings if one.check == "vacuum-horizon-held")
    assert "analytics, idle in transaction" in held.title
    # What the role may not read is said, with the grant that would show it.
    assert {"GRANT SELECT ON public.jobs TO " + role} <= {one.grant for one in report.skipped}


def test_statistics_reset_in_the_window(database: str) -> None:
    run(database, *QUEUE)
    with working(database, 200.0):
        time.sleep(SETTLE_S)
        reset = threading.Timer(WINDOW_S / 2, run, (database, "SELECT pg_stat_reset()"))
        reset.start()
        seen, report = look(database)
        reset.join()
    judge(State(stage=holds()), seen, report)
