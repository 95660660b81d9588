"""Verdicts of jobs-stuck without a database."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from pgqdoctor.checks.jobs_stuck import CHECK
from pgqdoctor.engine import diagnose
from pgqdoctor.finding import Finding
from pgqdoctor.observation import Lack, StuckProbe

from . import build

HOUR = 3_600.0
BEAT = "UPDATE jobs SET heartbeat_at = now() WHERE id = $1 AND state = $2"
LEASING = (
    "UPDATE jobs SET state = $1, attempts = attempts + $4, lease_expires_at = now() + $5::interval WHERE id = (SELECT id FROM jobs "
    "WHERE state = $2 AND run_at <= now() ORDER BY run_at, id LIMIT $3 FOR UPDATE SKIP LOCKED) RETURNING id"
)
RETAKING = LEASING.replace("state = $2 AND", "(state = $2 OR lease_expires_at < now()) AND")
COLUMNS = (
    *build.job_columns(),
    build.column(7, "started_at", "timestamp with time zone", "D", not_null=False),
    build.column(8, "lease_expires_at", "timestamp with time zone", "D", not_null=False),
    build.column(9, "worker_id", "bigint", "N", not_null=False),
)


def sign(measure: str, column: str, *ages: float, **changes: Any) -> StuckProbe:
    known = StuckProbe(
        measure=measure,
        column=column,
        rows=len(ages),
        ages_s=tuple(sorted(ages, reverse=True)),
        limit=10_000,
        examples=("17", "18"),
    )
    return replace(known, **changes)


def heartbeat(*ages: float, **changes: Any) -> StuckProbe:
    return sign("heartbeat", "heartbeat_at", *ages, **changes)


def lease(*ages: float, **changes: Any) -> StuckProbe:
    return sign("lease", "lease_expires_at", *ages, **changes)


def claimed(*ages: float, **changes: Any) -> StuckProbe:
    return sign("claimed", "started_at", *ages, **changes)


def look(
    *signs: StuckProbe,
    statements: tuple[tuple[str, int, int], ...] = ((build.CLAIM, 100, 100), (BEAT, 100, 100)),
    **probe: Any,
) -> list[Finding]:
    used = {f"{number}/10/1": one for number, one in enumerate(statements, 1)}
    seen = build.observation(
        statements=used, of=build.catalog(columns=COLUMNS), probes=(build.probe(stuck=signs, **probe),)
    )
    return build.evaluated(CHECK, seen)


def test_nothing_claimed() -> None:
    assert look() == []
    assert look(heartbeat()) == []


def test_silent_beside_fresh_heartbeats() -> None:
    (finding,) = look(heartbeat(9 * 24 * HOUR, 9 * 24 * HOUR, 4.0, 5.0, 6.0))
    assert finding.severity == "warning"
    assert (
        finding.title == "2 jobs of public.jobs are stuck: the oldest gave its last sign of life 9 days ago"
    )
    assert ("examples", "17 18") in {(one.what, one.value) for one in finding.evidence}
    (sql,) = finding.remedies[0].sql
    assert sql == (
        "WITH overdue AS MATERIALIZED (\n  SELECT id FROM public.jobs\n   WHERE state = 'running' AND heartbeat_at < now() - interval '120 seconds'\n"
        "   ORDER BY heartbeat_at LIMIT 1000 FOR UPDATE SKIP LOCKED\n)\nUPDATE public.jobs AS j SET state = 'queued', worker_id = NULL, "
        "started_at = NULL, lease_expires_at = NULL, heartbeat_at = NULL\n  FROM overdue WHERE j.id = overdue.id\nRETURNING j.id;"
    )


def test_long_jobs_with_fresh_heartbeats() -> None:
    assert look(heartbeat(0.4, 0.3, 0.2), claimed(14 * HOUR, 14 * HOUR, 14 * HOUR)) == []


@pytest.mark.parametrize(
    ("silent", "severity"), [(120.0, None), (121.0, "notice"), (1_019.0, "notice"), (1_020.0, "warning")]
)
def test_limits_of_silence(silent: float, severity: str | None) -> None:
    assert [one.severity for one in look(heartbeat(silent, 4.0, 4.0))] == (
        [] if severity is None else [severity]
    )


def test_slow_heartbeats_are_judged_by_what_is_usual() -> None:
    assert look(heartbeat(550.0, 60.0, 60.0)) == []
    assert len(look(heartbeat(601.0, 60.0, 60.0))) == 1


def test_no_fresh_heartbeat_at_all() -> None:
    assert look(heartbeat(600.0, 500.0)) == []
    assert len(look(heartbeat(601.0, 500.0))) == 1


def test_heartbeat_that_only_the_claim_writes_is_no_sign_of_life() -> None:
    claim = build.CLAIM.replace("SET state", "SET heartbeat_at = now(), state")
    assert look(heartbeat(2 * HOUR), claimed(2 * HOUR), statements=((claim, 1, 1),)) == []
    # Renewed, as the difference to the time of the claim shows without any statement.
    assert len(look(heartbeat(2 * HOUR, 5.0), claimed(2 * HOUR, 3 * HOUR), statements=((claim, 1, 1),))) == 1


@pytest.mark.parametrize(("age", "found"), [(600.0, 0), (601.0, 1)])
def test_lease_without_a_running_one(age: float, found: int) -> None:
    assert len(look(lease(age), statements=((LEASING, 100, 100),))) == found


@pytest.mark.parametrize(("age", "found"), [(580.0, 0), (581.0, 1)])
def test_lease_against_the_longest_that_runs(age: float, found: int) -> None:
    assert len(look(lease(age, -290.0, -10.0), statements=((LEASING, 100, 100),))) == found


def test_attempts_are_counted_once() -> None:
    (finding,) = look(lease(9 * HOUR), statements=((LEASING, 100, 100),))
    assert "attempts" not in finding.remedies[0].sql[0]
    assert "attempts stays, because the claim counts it" in finding.remedies[0].expect
    uncounted = LEASING.replace("attempts = attempts + $4, ", "").replace("$5", "$4")
    (finding,) = look(lease(9 * HOUR), statements=((uncounted, 100, 100),))
    assert "attempts = attempts + 1" in finding.remedies[0].sql[0]


def test_claim_that_takes_expired_leases_itself() -> None:
    assert look(lease(9 * HOUR), statements=((RETAKING, 100, 100),)) == []


def test_deadline_that_no_statement_writes_is_no_lease() -> None:
    assert look(lease(9 * HOUR), statements=((build.CLAIM, 100, 100),)) == []


def test_only_the_claim_is_known() -> None:
    claim = ((build.CLAIM, 100, 100),)
    # 10 jobs a second and 20 in flight: 2 s each, so an hour is the limit.
    assert look(claimed(*[2.0] * 20), statements=claim) == []
    (finding,) = look(claimed(3_601.0 + 900.0, *[2.0] * 20), statements=claim)
    assert finding.severity == "warning"
    assert "the oldest was claimed 75 min ago" in finding.title
    # 1 job a second and 600 in flight: ten minutes each, so four hours are not long.
    assert look(claimed(4 * HOUR, *[300.0] * 600), statements=((build.CLAIM, 10, 10),)) == []


def test_long_jobs_of_an_idle_queue_prove_nothing() -> None:
    assert look(claimed(14 * HOUR, 14 * HOUR), statements=((build.CLAIM, 0, 0),)) == []


@pytest.mark.parametrize(("rows", "found"), [(1_000, 0), (1_001, 1)])
def test_more_claimed_than_connections_could_run(rows: int, found: int) -> None:
    many = claimed(*[5 * 24 * HOUR] * 200, rows=rows)
    assert len(look(many, statements=((build.CLAIM, 0, 0),))) == found


def test_count_is_a_lower_bound_at_the_probes_limit() -> None:
    (finding,) = look(claimed(*[5 * 24 * HOUR] * 200, rows=10_000), statements=((build.CLAIM, 0, 0),))
    assert finding.title.startswith("At least 10,000 jobs of public.jobs are stuck")


def test_wedged_queue() -> None:
    (finding,) = look(
        heartbeat(9 * HOUR, 9 * HOUR, 1.0), statements=((build.CLAIM, 60, 0), (BEAT, 10, 10)), ready_rows=500
    )
    assert finding.severity == "critical"
    assert finding.title.endswith("and no worker takes any of the 500 ready ones")


def test_running_is_a_timestamp() -> None:
    columns = (
        build.column(1, "Id", "bigint", "N"),
        build.column(2, "lockedAt", "timestamp with time zone", "D", not_null=False),
        build.column(3, "lockedBy", not_null=False),
        build.column(4, "runAt", "timestamp with time zone", "D"),
    )
    claim = (
        'UPDATE jobs SET "lockedAt" = now(), "lockedBy" = $1 WHERE "Id" = (SELECT "Id" FROM jobs WHERE "lockedAt" IS NULL AND "runAt" <= now() '
        'ORDER BY "runAt" LIMIT 1 FOR UPDATE SKIP LOCKED) RETURNING "Id"'
    )
    of = build.catalog(columns=columns, indexes=(build.index(2001, "pk", [1], unique=True, primary=True),))
    seen = build.observation(
        statements={"1/10/1": (claim, 100, 100)},
        of=of,
        probes=(build.probe(stuck=(sign("claimed", "lockedAt", 9 * HOUR, 1.0),)),),
    )
    (finding,) = build.evaluated(CHECK, seen)
    assert 'WHERE "lockedAt" IS NOT NULL AND "lockedAt" < now() - interval' in finding.remedies[0].sql[0]
    assert 'SET "lockedAt" = NULL' in finding.remedies[0].sql[0]
    assert 'WHERE j."Id" = overdue."Id"' in finding.remedies[0].sql[0]


def test_a_claim_that_deletes_the_job_leaves_none_behind() -> None:
    lacking = build.probe(lacks=(Lack(what="claimed", reason="no state is known", queue="public.jobs"),))
    deleting = "DELETE FROM jobs WHERE id = (SELECT id FROM jobs WHERE state = $1 ORDER BY id LIMIT 1 FOR UPDATE SKIP LOCKED) RETURNING id"

    def skipped(claim: str) -> list[str]:
        seen = build.observation(statements={"1/10/1": (claim, 100, 100)}, probes=(lacking,))
        return [one.check for one in diagnose(seen, only=("jobs-stuck",)).skipped]

    assert skipped(build.CLAIM) == ["jobs-stuck"]
    assert skipped(deleting) == []


WORKERS = 77
CLAIM_ONLY = (build.CLAIM, 100, 100)


def with_workers(
    *, texts: tuple[str, ...] = (), key: bool = False, column: str = "worker_id", updated: int = 0
) -> list[Finding]:
    """Look at 12 jobs claimed 3 h ago among quick ones, beside a table of workers."""
    keys = (
        (build.foreign_key("of_worker", build.JOBS, WORKERS, column, parent_name="public.workers"),)
        if key
        else ()
    )
    columns = tuple(replace(one, name=column) if one.name == "worker_id" else one for one in COLUMNS)
    used = {f"{number}/10/1": (text, 100, 100) for number, text in enumerate((build.CLAIM, *texts), 1)}
    counted = (build.counters(), build.counters(WORKERS, updated=updated))
    seen = build.observation(
        statements=used,
        of=build.catalog(
            columns=columns, foreign_keys=keys, tables=(build.table(), build.table(WORKERS, "workers"))
        ),
        first=build.reading(0.0, tables=counted),
        last=build.reading(build.WINDOW_S, tables=counted),
        probes=(build.probe(stuck=(claimed(*[3 * HOUR] * 12, *[2.0] * 20),)),),
    )
    return build.evaluated(CHECK, seen)


BEATS = "UPDATE workers SET heartbeat_at = now() WHERE id = $1"


def test_sign_of_life_in_the_table_of_workers() -> None:
    (finding,) = with_workers(texts=(BEATS,), key=True)
    assert finding.severity == "notice"
    assert finding.title == (
        "12 jobs of public.jobs were claimed long ago, the oldest 3 h ago: look at public.workers.heartbeat_at first, "
        "which tells whose worker lives"
    )
    (remedy,) = finding.remedies
    assert remedy.sql[0].startswith("SELECT j.id, j.worker_id, j.started_at, w.heartbeat_at\n")
    assert "LEFT JOIN public.workers AS w ON w.id = j.worker_id" in remedy.sql[0]
    assert "UPDATE" not in remedy.sql[0]


@pytest.mark.parametrize(
    ("texts", "key", "column", "updated"),
    [
        ((BEATS,), False, "worker_id", 0),
        ((BEATS,), False, "locked_by", 0),
        (("UPDATE job_runners SET last_seen = $1 WHERE id = $2",), False, "runner_id", 0),
        (("UPDATE app.processes SET last_heartbeat_at = $1 WHERE id = $2",), False, "process_id", 0),
        (
            (
                "INSERT INTO workers (id, heartbeat_at) VALUES ($1, now()) ON CONFLICT (id) DO UPDATE SET heartbeat_at = now()",
            ),
            True,
            "worker_id",
            0,
        ),
        (("UPDATE workers SET updated_at = now() WHERE id = $1",), True, "worker_id", 0),
        ((), True, "worker_id", 3),
    ],
)
def test_nothing_is_put_back_while_another_table_tells(
    texts: tuple[str, ...], key: bool, column: str, updated: int
) -> None:
    (finding,) = with_workers(texts=texts, key=key, column=column, updated=updated)
    assert finding.severity == "notice"
    assert not any("UPDATE" in sql for one in finding.remedies for sql in one.sql)


@pytest.mark.parametrize(
    ("texts", "key", "column"),
    [
        ((), True, "worker_id"),
        (("UPDATE workers SET jobs_done = jobs_done + $1 WHERE id = $2",), False, "worker_id"),
        (("UPDATE devices SET last_seen = now() WHERE id = $1",), False, "device_id"),
        (("UPDATE users SET last_seen_at = now() WHERE id = $1",), False, "locked_by"),
        (("UPDATE users SET last_seen_at = now() WHERE id = $1",), False, "user_id"),
        (("UPDATE workers SET updated_at = now() WHERE id = $1",), True, "account_id"),
        ((BEATS.replace("workers", "jobs"),), False, "batch_id"),
    ],
)
def test_tables_that_tell_nothing_of_workers(texts: tuple[str, ...], key: bool, column: str) -> None:
    (finding,) = with_workers(texts=texts, key=key, column=column)
    assert finding.severity == "warning"
    assert "UPDATE public.jobs" in finding.remedies[0].sql[0]


def test_heartbeats_of_jobs_in_a_table_that_refers_to_them() -> None:
    beats = "UPDATE job_beats SET heartbeat_at = now() WHERE job_id = $1"
    key = build.foreign_key("of_job", WORKERS, build.JOBS, "job_id", child_name="public.job_beats")
    seen = build.observation(
        statements={"1/10/1": CLAIM_ONLY, "2/10/1": (beats, 100, 100)},
        of=build.catalog(
            columns=COLUMNS, foreign_keys=(key,), tables=(build.table(), build.table(WORKERS, "job_beats"))
        ),
        probes=(build.probe(stuck=(claimed(*[3 * HOUR] * 12, *[2.0] * 20),)),),
    )
    (finding,) = build.evaluated(CHECK, seen)
    assert finding.severity == "notice"
    assert "LEFT JOIN public.job_beats AS w ON w.job_id = j.id" in finding.remedies[0].sql[0]
