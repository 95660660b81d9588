"""Verdicts of claim-unguarded without a database."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from pgqdoctor.checks.claim_unguarded import CHECK
from pgqdoctor.finding import Finding
from pgqdoctor.observation import Observation, Sample

from . import build

SUBSELECT = (
    "UPDATE jobs SET state = $1, attempts = attempts + $2 WHERE id = (SELECT id FROM jobs WHERE state = $3 AND run_at <= now() "
    "ORDER BY run_at, id LIMIT $4) RETURNING id"
)
POLL = "SELECT id, payload FROM jobs WHERE state = $1 AND run_at <= now() ORDER BY run_at, id LIMIT $2"
TAKE = "UPDATE jobs SET state = $1 WHERE id = $2"
HEARTBEAT = "UPDATE jobs SET heartbeat_at = now() WHERE id = $1"


def look(*statements: tuple[str, int, int], seen: Observation | None = None) -> list[Finding]:
    used = {f"{number}/10/1": one for number, one in enumerate(statements, 1)}
    return build.evaluated(CHECK, seen or build.observation(statements=used))


def pair(polls: int, rows: int, updates: int, *more: tuple[str, int, int]) -> list[Finding]:
    return look((POLL, polls, rows), (TAKE, updates, updates), *more)


def test_sub_select_without_lock() -> None:
    (finding,) = look((SUBSELECT, 100, 100))
    assert finding.severity == "critical"
    assert "the sub-select takes no lock" in finding.title
    assert finding.remedies[0].kind == "application"
    assert finding.remedies[0].sql == (
        "UPDATE jobs SET state = 'running', attempts = attempts + $2 WHERE id = (SELECT id FROM jobs WHERE state = 'queued' AND run_at <= now() "
        "ORDER BY run_at, id LIMIT 1 FOR NO KEY UPDATE SKIP LOCKED) RETURNING id;",
    )


def test_a_statement_of_long_ago_is_no_finding() -> None:
    assert look((SUBSELECT, 0, 0)) == []


def test_lock_on_rows_that_an_unlocked_sub_select_chose() -> None:
    text = (
        "WITH taken AS (SELECT id FROM jobs WHERE id IN (SELECT id FROM jobs WHERE state = 'queued' ORDER BY id LIMIT 5) FOR UPDATE SKIP LOCKED) "
        "UPDATE jobs SET state = 'running' FROM taken WHERE jobs.id = taken.id RETURNING jobs.id"
    )
    (finding,) = look((text, 100, 100))
    assert "compares only the key" in finding.title


@pytest.mark.parametrize(
    "text",
    [
        pytest.param(build.CLAIM, id="skip locked"),
        pytest.param(SUBSELECT.replace("RETURNING", "AND state = $3 RETURNING"), id="guarded"),
        pytest.param(SUBSELECT.replace("LIMIT $4", "LIMIT $4 FOR UPDATE"), id="blocking"),
    ],
)
def test_sound_statements(text: str) -> None:
    assert look((text, 100, 100)) == []


def test_select_then_update_by_key() -> None:
    (finding,) = pair(100, 100, 100)
    assert finding.severity == "critical"
    assert "read without a lock and then taken by key, 10/s" in finding.title
    (sql,) = finding.remedies[0].sql
    assert sql == (
        "UPDATE jobs SET state = 'running' WHERE jobs.id = (SELECT jobs.id FROM jobs WHERE state = 'queued' AND run_at <= now() "
        "ORDER BY run_at, id LIMIT 1 FOR NO KEY UPDATE SKIP LOCKED) RETURNING jobs.id, jobs.payload;"
    )


def test_finishing_with_the_same_text_doubles_the_updates() -> None:
    assert len(pair(100, 100, 200)) == 1


def test_batches_are_taken_through_a_materialized_cte() -> None:
    (finding,) = pair(10, 100, 100)
    assert "WITH picked AS MATERIALIZED (SELECT jobs.id" in finding.remedies[0].sql[0]
    assert "IN (SELECT * FROM picked)" in finding.remedies[0].sql[0]


@pytest.mark.parametrize(
    ("rows", "updates", "found"),
    [(100, 84, 0), (100, 85, 1), (100, 115, 1), (100, 116, 0), (100, 169, 0), (100, 170, 1)],
)
def test_counts_must_match(rows: int, updates: int, found: int) -> None:
    assert len(pair(100, rows, updates)) == found


@pytest.mark.parametrize(("calls", "found"), [(4, 0), (5, 1)])
def test_too_few_calls_show_nothing(calls: int, found: int) -> None:
    assert len(pair(calls, calls, calls)) == found


def test_heartbeat_by_key_is_no_claim() -> None:
    assert look((build.CLAIM, 100, 100), (HEARTBEAT, 100, 100)) == []
    assert look((POLL, 100, 100), (HEARTBEAT, 100, 100)) == []


def test_dashboard_beside_a_sound_claim() -> None:
    assert pair(100, 100, 100, (build.CLAIM, 100, 100)) == []


def test_finishing_by_key_is_no_claim() -> None:
    assert look((POLL, 100, 100), ("UPDATE jobs SET state = 'done' WHERE id = $1", 100, 100)) == []


@pytest.mark.parametrize(
    "more",
    [
        pytest.param("SELECT id FROM jobs WHERE id = $1 FOR UPDATE", id="row lock by key between the two"),
        pytest.param("SELECT pg_try_advisory_xact_lock($1)", id="advisory lock"),
        pytest.param("LOCK TABLE jobs IN EXCLUSIVE MODE", id="table lock"),
        pytest.param("BEGIN ISOLATION LEVEL SERIALIZABLE", id="serializable"),
        pytest.param("UPDATE jobs SET state = $1 WHERE id = $2 AND state = $3", id="guarded update"),
    ],
)
def test_guards_outside_of_the_two_statements(more: str) -> None:
    assert pair(100, 100, 100, (more, 100, 100)) == []


def test_version_column_guards() -> None:
    versioned = "UPDATE jobs SET state = $1, attempts = attempts + $2 WHERE id = $3 AND attempts = $4"
    assert look((POLL, 100, 100), (versioned, 100, 100)) == []


LIVE = SUBSELECT.replace("$1", "'running'").replace("$2", "1").replace("$3", "'queued'").replace("$4", "1")


def caught(*at: tuple[float, int], rows: int = 100, age: float = 0.01, **changes: Any) -> Finding:
    """The finding where samples caught backends at the claim, each at a time; ``rows`` of 100 claims won a job."""
    base = build.observation(statements={"1/10/1": (SUBSELECT, 100, rows)}, texts=(LIVE,))
    samples = tuple(
        Sample(at=when, sessions=(build.sampled(pid, 0, query_id=1, query_age_s=age, **changes),))
        for when, pid in at
    )
    (finding,) = look(seen=replace(base, samples=samples or base.samples))
    return finding


@pytest.mark.parametrize(
    "at",
    [
        pytest.param((), id="none"),
        pytest.param(((1.0, 71),), id="one"),
        pytest.param(((1.0, 71), (2.0, 72)), id="two"),
        pytest.param(tuple((float(place), 71) for place in range(9)), id="nine times the same"),
        pytest.param(
            (*((float(place), 71) for place in range(10)), (9.5, 72)), id="ten times one, and another"
        ),
    ],
)
def test_severity_does_not_depend_on_who_was_caught(at: tuple[tuple[float, int], ...]) -> None:
    finding = caught(*at)
    assert finding.severity == "critical"
    assert finding.pids == tuple(sorted({pid for _, pid in at}))


def test_a_worker_that_was_caught_often_and_alone_meets_no_other() -> None:
    often = tuple((float(place), 71) for place in range(10))
    assert caught(*often).severity == "warning"
    assert caught(*often, wait_type="Lock", wait_event="transactionid").severity == "critical"


def test_one_long_execution_is_not_many() -> None:
    base = build.observation(statements={"1/10/1": (SUBSELECT, 100, 100)}, texts=(LIVE,))
    samples = tuple(
        Sample(at=place / 10, sessions=(build.sampled(71, 0, query_id=1, query_age_s=place / 10),))
        for place in range(30)
    )
    (finding,) = look(seen=replace(base, samples=samples))
    assert finding.severity == "critical"


@pytest.mark.parametrize(("rows", "severity"), [(9, "warning"), (10, "critical")])
def test_the_rate_is_of_claims_that_won_a_job(rows: int, severity: str) -> None:
    assert caught(rows=rows).severity == severity


def test_quoted_names_stay_quoted() -> None:
    columns = tuple(
        replace(row, name={"state": "Status now", "id": "Id"}.get(row.name, row.name))
        for row in build.job_columns()
    )
    of = build.catalog(
        tables=(build.table(name='Job "Q"'),),
        columns=columns,
        indexes=(
            build.index(2001, "pk", [1], primary=True, unique=True),
            build.index(2002, "r", [5], predicate="(\"Status now\" = 'queued'::text)"),
        ),
    )
    poll = 'SELECT "Id" FROM "Job ""Q""" WHERE "Status now" = $1 ORDER BY "Id" LIMIT $2'
    take = 'UPDATE "Job ""Q""" SET "Status now" = $1 WHERE "Id" = $2'
    seen = build.observation(statements={"1/10/1": (poll, 100, 100), "2/10/1": (take, 100, 100)}, of=of)
    (finding,) = look(seen=seen)
    assert finding.queue == 'public."Job ""Q"""'
    assert 'UPDATE "Job ""Q""" SET "Status now" = \'running\'' in finding.remedies[0].sql[0]
    assert "\"Status now\" = 'queued'" in finding.remedies[0].sql[0]


@pytest.mark.parametrize(
    ("lock", "calls", "found"),
    [
        ("LOCK TABLE jobs IN EXCLUSIVE MODE", 100, 0),
        ("LOCK TABLE jobs IN EXCLUSIVE MODE", 3, 1),
        ("LOCK TABLE carts IN EXCLUSIVE MODE", 100, 1),
        ("SELECT pg_advisory_xact_lock($1)", 100, 0),
        ("SELECT pg_advisory_xact_lock($1)", 30, 1),
    ],
)
def test_a_lock_around_the_claim_guards_it(lock: str, calls: int, found: int) -> None:
    assert len(look((SUBSELECT, 100, 100), (lock, calls, calls))) == found
