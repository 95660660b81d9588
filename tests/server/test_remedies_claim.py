"""Remedies of the claim checks live: sick, finding, the printed remedy applied while the load goes on,
finding gone.

A corrected statement is put into the workers' script as it is printed; only the application's own values take
the place of its parameters.
"""

from __future__ import annotations

import re
import time
from collections.abc import Mapping
from dataclasses import replace
from typing import cast

import psycopg
import pytest

from pgqdoctor.collect import ObserveOptions, observe
from pgqdoctor.engine import diagnose
from pgqdoctor.finding import SEVERITIES
from pgqdoctor.lab.load import Load
from pgqdoctor.lab.scenario import Scenario, load_scenario
from pgqdoctor.lab.server import ScratchServer
from pgqdoctor.report import Report, ReportedFinding

WINDOW_S = 3.0
LONGEST_CURE_S = 30.0


def look(dsn: str) -> Report:
    report = diagnose(observe(dsn, ObserveOptions(window_seconds=WINDOW_S)))
    assert not report.crashed, report.crashed
    return report


def found(report: Report, check: str) -> ReportedFinding | None:
    harmful = SEVERITIES.index("warning")
    return next(
        (one for one in report.findings if one.check == check and SEVERITIES.index(one.severity) <= harmful),
        None,
    )


def sick(load: Load, check: str) -> ReportedFinding:
    time.sleep(load.scenario.settle_s)
    load.check()
    report = look(load.dsn)
    finding = found(report, check)
    assert finding is not None, [one.title for one in report.findings]
    return finding


def gone(load: Load, check: str) -> Report:
    until = time.monotonic() + LONGEST_CURE_S
    while True:
        time.sleep(1.0)
        report = look(load.dsn)
        finding = found(report, check)
        if finding is None:
            assert not [one for one in report.skipped if one.check == check], report.skipped
            load.check()
            return report
        assert time.monotonic() < until, finding.title


def execute(dsn: str, statements: tuple[str, ...]) -> list[list[tuple[object, ...]]]:
    """Run statements as a person pastes them: one by one, outside of a transaction block."""
    results = []
    with psycopg.connect(dsn, autocommit=True) as connection:
        for statement in statements:
            cursor = connection.execute(cast("psycopg.abc.Query", statement.encode()))
            results.append(cursor.fetchall() if cursor.description is not None else [])
    return results


def with_values(sql: str, values: Mapping[str, str]) -> str:
    return re.sub(r"\$\d+", lambda match: values[match.group()], sql).rstrip(";")


def rewritten(scenario: Scenario, sql: str, rest: str, rate: float | None = None) -> Scenario:
    """The scenario whose workers run the corrected claim, and then the rest of their script."""
    script = f"\\set id 0\n{sql} \\aset\n{rest}"
    clients = tuple(
        replace(one, cured_script=script, cured_rate=rate or one.cured_rate) if one.name == "worker" else one
        for one in scenario.clients
    )
    return replace(scenario, clients=clients)


def winners(dsn: str, sql: str) -> tuple[object, object]:
    """What two transactions that are open at the same time get from the corrected claim."""
    with psycopg.connect(dsn) as one, psycopg.connect(dsn) as other:
        other.execute("SET lock_timeout = '1s'")
        first = one.execute(cast("psycopg.abc.Query", sql.encode())).fetchone()
        second = other.execute(cast("psycopg.abc.Query", sql.encode())).fetchone()
        one.rollback()
        other.rollback()
    return first, second


@pytest.mark.parametrize(
    ("name", "check", "values", "rest", "rate"),
    [
        pytest.param(
            "unguarded-claim",
            "claim-unguarded",
            {"$1": ":client_id", "$2": "'running'", "$3": "1"},
            "\\sleep 2 ms\nDELETE FROM jobs WHERE id = :id;\n",
            None,
            id="two statements",
        ),
        pytest.param(
            "unguarded-subselect",
            "claim-unguarded",
            {"$1": ":client_id", "$2": "'running'", "$3": "1"},
            "DELETE FROM jobs WHERE id = :id;\n",
            None,
            id="sub-select without lock",
        ),
        pytest.param(
            "for-update-convoy",
            "claim-not-skip-locked",
            {"$1": ":client_id"},
            "DELETE FROM delayed_jobs WHERE id = :id;\n",
            60.0,
            id="convoy",
        ),
        pytest.param(
            "guarded-contention",
            "claim-not-skip-locked",
            {"$1": ":client_id", "$2": "'running'"},
            "\\sleep 3 ms\nDELETE FROM tasks WHERE id = :id AND status = 'running';\n",
            60.0,
            id="lost races",
        ),
    ],
)
def test_corrected_claim(
    name: str, check: str, values: Mapping[str, str], rest: str, rate: float | None
) -> None:
    with (
        ScratchServer(autovacuum_naptime_s=5) as server,
        Load(load_scenario(name), server.create_database("app")) as load,
    ):
        finding = sick(load, check)
        (sql,) = finding.remedies[0].sql
        corrected = with_values(sql.replace("AS won", "AS id"), values)
        first, second = winners(load.dsn, corrected.replace(":client_id", "1"))
        assert first is not None and second is not None and first != second
        load.scenario = rewritten(load.scenario, corrected, rest, rate)
        load.cure()
        after = gone(load, check)
        assert next(one for one in after.queues if one.name == finding.queue).claim.shape == "skip-locked"


def test_index_for_the_ready_jobs_and_its_undo() -> None:
    with (
        ScratchServer(autovacuum_naptime_s=5) as server,
        Load(load_scenario("no-claim-index"), server.create_database("app")) as load,
    ):
        finding = sick(load, "claim-scans-consumed-rows")
        remedy = finding.remedies[0]
        execute(load.dsn, remedy.sql)
        after = gone(load, "claim-scans-consumed-rows")
        claim = after.queues[0].claim
        assert claim.plan is not None and claim.plan.buffers is not None and claim.plan.buffers <= 10
        assert claim.plan.index == "jobs_ready_idx"
        with pytest.raises(psycopg.errors.DuplicateTable):
            execute(load.dsn, remedy.sql)
        assert found(look(load.dsn), "claim-scans-consumed-rows") is None, "pasted twice it drops nothing"
        execute(load.dsn, remedy.undo)
        assert found(look(load.dsn), "claim-scans-consumed-rows") is not None


def test_reaper_puts_overdue_jobs_back() -> None:
    with (
        ScratchServer(autovacuum_naptime_s=5) as server,
        Load(load_scenario("stuck-jobs"), server.create_database("app")) as load,
    ):
        finding = sick(load, "jobs-stuck")
        (returned,) = execute(load.dsn, finding.remedies[0].sql)
        assert len(returned) == 40
        gone(load, "jobs-stuck")


QUEUE_OF_GONE_JOBS = (
    "CREATE TABLE jobs (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, state text NOT NULL DEFAULT 'ready', "
    "run_at timestamptz NOT NULL DEFAULT now()) WITH (autovacuum_enabled = off)",
    "CREATE INDEX jobs_ready_idx ON jobs (run_at, id) WHERE state = 'ready'",
    "INSERT INTO jobs (run_at) SELECT now() - g * interval '1 ms' FROM generate_series(1, 60000) g",
    "VACUUM ANALYZE jobs",
    "DELETE FROM jobs WHERE id > 2000",
)
CLAIM = (
    "UPDATE jobs SET state = 'running' WHERE id = (SELECT id FROM jobs WHERE state = 'ready' AND run_at <= now() "
    "ORDER BY run_at, id LIMIT 1 FOR UPDATE SKIP LOCKED) RETURNING id"
)


def test_vacuum_removes_the_dead_entries_at_the_head_of_the_index() -> None:
    with ScratchServer(autovacuum_naptime_s=60) as server:
        dsn = server.create_database("app")
        execute(
            dsn, ("CREATE EXTENSION IF NOT EXISTS pg_stat_statements", *QUEUE_OF_GONE_JOBS, *[CLAIM] * 20)
        )
        sick = look(dsn)
        assert found(sick, "claim-scans-dead-rows") is not None
        # One VACUUM stands in the whole chain: with the finding that causes the others.
        vacuum = next(
            remedy
            for one in sick.findings
            for remedy in one.remedies
            if any(sql.startswith("VACUUM") for sql in remedy.sql)
        )
        execute(dsn, vacuum.sql)
        report = look(dsn)
        assert found(report, "claim-scans-dead-rows") is None
        plan = report.queues[0].claim.plan
        assert plan is not None and plan.buffers is not None and plan.buffers <= 10


def test_no_vacuum_is_advised_while_a_snapshot_keeps_the_rows() -> None:
    with (
        ScratchServer(autovacuum_naptime_s=5) as server,
        Load(load_scenario("idle-snapshot"), server.create_database("app")) as load,
    ):
        finding = sick(load, "claim-scans-dead-rows")
        assert finding.remedies == ()
        assert any(cause.startswith("vacuum-horizon-held") for cause in finding.caused_by)
        load.cure()
        gone(load, "claim-scans-dead-rows")


def test_poll_storm_ends_when_workers_back_off() -> None:
    with (
        ScratchServer(autovacuum_naptime_s=5) as server,
        Load(load_scenario("poll-storm"), server.create_database("app")) as load,
    ):
        finding = sick(load, "claim-empty-polls")
        execute(load.dsn, (*finding.remedies[0].sql, *finding.remedies[0].undo))
        load.cure()
        gone(load, "claim-empty-polls")


HEALTHY = (
    "healthy-skip-locked",
    "healthy-guarded",
    "healthy-heartbeat",
    "healthy-slow-polls",
    "healthy-scheduled-future",
    "healthy-job-postings",
    "healthy-quoted-names",
    "healthy-batch-cte",
)


@pytest.mark.parametrize("name", HEALTHY)
def test_healthy_look_alike_is_silent(name: str) -> None:
    with (
        ScratchServer(autovacuum_naptime_s=5) as server,
        Load(load_scenario(name), server.create_database("app")) as load,
    ):
        time.sleep(load.scenario.settle_s)
        report = look(load.dsn)
        claiming = [
            one for one in report.findings if one.check.startswith("claim-") or one.check == "jobs-stuck"
        ]
        assert [one.title for one in claiming] == []
