"""Verdicts of multixact-from-subtransaction without a database. Mode sets are those that servers showed (14 to 19)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from pgqdoctor.checks.multixact_from_subtransaction import CHECK
from pgqdoctor.finding import Finding
from pgqdoctor.rows import FunctionRow

from . import build

LOCK = "SELECT id FROM jobs WHERE state = $1 AND run_at <= now() ORDER BY run_at, id LIMIT $2 FOR UPDATE SKIP LOCKED"
CHANGE = "UPDATE jobs SET state = $1, attempts = attempts + $2 WHERE id = $3"
SAVEPOINT_STORM = ("forupd", "nokeyupd")
STORM = {
    "1/10/1": (LOCK, 2_000, 2_000),
    "2/10/1": (CHANGE, 2_000, 2_000),
    "3/10/1": ("SAVEPOINT $1", 2_000, 0),
    "4/10/1": ("RELEASE SAVEPOINT $1", 2_000, 0),
}
FETCH = """
DECLARE found_id bigint;
BEGIN
    SELECT id INTO found_id FROM jobs WHERE state = 'queued' ORDER BY run_at LIMIT 1 FOR UPDATE SKIP LOCKED;
    BEGIN
        UPDATE jobs SET state = 'running' WHERE id = found_id;
    EXCEPTION WHEN unique_violation THEN
        RETURN 0;
    END;
    RETURN found_id;
END
"""


def look(
    *modes: tuple[str, ...],
    per_second: float = 200.0,
    statements: Mapping[str, tuple[str, int, int]] = STORM,
    pids: tuple[int, ...] = (),
    sessions: tuple[Any, ...] = (),
    **changes: Any,
) -> list[Finding]:
    seen = build.observation(
        statements=statements,
        last=build.multixacts_made(per_second, tables=(build.counters(updated=2_000),)),
        samples=build.multixact_samples(*modes, pids=pids, sessions=sessions),
        **changes,
    )
    return build.evaluated(CHECK, seen)


def function(body: str, name: str = "fetch_job") -> FunctionRow:
    return FunctionRow(
        oid=5000, schema="app", name=name, language="plpgsql", body=body, arguments="", returns="bigint"
    )


def test_quiet_server() -> None:
    assert look(per_second=0.0) == []


@pytest.mark.parametrize(
    "modes",
    [
        pytest.param(("forupd", "nokeyupd"), id="FOR UPDATE, then UPDATE in a savepoint"),
        pytest.param(("fornokeyupd", "nokeyupd"), id="FOR NO KEY UPDATE, then UPDATE in a savepoint"),
        pytest.param(("forupd", "upd"), id="FOR UPDATE, then DELETE in a savepoint"),
    ],
)
def test_modes_that_conflict_prove_it(modes: tuple[str, ...]) -> None:
    (finding,) = look(modes)
    assert finding.severity == "warning"
    assert "changed inside a savepoint: 200 MultiXacts per second" in finding.title
    facts = {one.what: (one.value, one.unit) for one in finding.evidence}
    assert facts["savepoints"] == (200.0, "per second")
    assert facts["members each"] == (2.0, "members")


def test_remedies_print_the_statements_really_seen() -> None:
    one, sequence = look(SAVEPOINT_STORM)[0].remedies
    assert one.kind == sequence.kind == "application"
    assert one.sql == (
        "WITH claimed(claimed_id) AS MATERIALIZED (SELECT jobs.id FROM jobs WHERE state = $3 AND run_at <= now() "
        "ORDER BY run_at, id LIMIT $4 FOR UPDATE SKIP LOCKED) UPDATE jobs SET state = $1, attempts = attempts + $2 "
        "FROM claimed WHERE jobs.id = claimed.claimed_id RETURNING jobs.*;",
    )
    assert sequence.sql == (
        "BEGIN;",
        "SAVEPOINT job;",
        f"{LOCK};",
        f"{CHANGE};",
        "RELEASE SAVEPOINT job;",
        "COMMIT;",
    )


def test_literals_and_the_savepoint_name_come_from_sessions() -> None:
    lock = LOCK.replace("$1", "'queued'").replace("$2", "1")
    samples = tuple(
        replace(one, sessions=(build.sampled(7, 0, query_id=1), build.sampled(8, 1)))
        for one in build.multixact_samples(SAVEPOINT_STORM)
    )
    seen = build.observation(
        statements=STORM, last=build.multixacts_made(200.0), samples=samples, texts=(lock, 'SAVEPOINT "Try"')
    )
    one, sequence = build.evaluated(CHECK, seen)[0].remedies
    assert one.sql[0].startswith(
        "UPDATE jobs SET state = $1, attempts = attempts + $2 WHERE id = (SELECT jobs.id FROM jobs WHERE state = 'queued'"
    )
    assert 'SAVEPOINT "Try";' in sequence.sql


@pytest.mark.parametrize(
    ("per_second", "severity"), [(0.9, None), (1.0, "notice"), (19.9, "notice"), (20.0, "warning")]
)
def test_limits(per_second: float, severity: str | None) -> None:
    assert [one.severity for one in look(SAVEPOINT_STORM, per_second=per_second)] == (
        [] if severity is None else [severity]
    )


@pytest.mark.parametrize(
    "modes",
    [
        pytest.param(("keysh", "keysh", "keysh"), id="foreign key checks"),
        pytest.param(("keysh", "nokeyupd"), id="foreign key check and an update of the parent"),
        pytest.param(("fornokeyupd", "keysh"), id="claim of a row that children reference"),
        pytest.param(("sh", "sh"), id="share locks"),
    ],
)
def test_modes_that_different_transactions_can_hold(modes: tuple[str, ...]) -> None:
    assert look(modes) == []


def test_savepoints_around_inserts_only() -> None:
    statements = {
        "1/10/1": (build.CLAIM, 2_000, 2_000),
        "2/10/1": (build.ENQUEUE, 2_000, 2_000),
        "3/10/1": ("SAVEPOINT s1", 2_000, 0),
    }
    assert look(SAVEPOINT_STORM, statements=statements) == [], "another table of the server makes them"


def test_lock_and_change_without_any_savepoint() -> None:
    statements = {key: STORM[key] for key in ("1/10/1", "2/10/1")}
    assert look(SAVEPOINT_STORM, statements=statements) == []


def test_queue_too_slow_to_be_the_maker() -> None:
    statements = {**STORM, "2/10/1": (CHANGE, 300, 300)}
    assert look(SAVEPOINT_STORM, statements=statements) == []
    assert len(look(SAVEPOINT_STORM, statements={**STORM, "2/10/1": (CHANGE, 400, 400)})) == 1


def test_makers_in_another_database() -> None:
    assert look(SAVEPOINT_STORM, pids=(900,), sessions=(build.sampled(7),)) == []
    assert len(look(SAVEPOINT_STORM, pids=(7,), sessions=(build.sampled(7),))) == 1


def test_makers_on_another_table() -> None:
    other = "UPDATE carts SET total = 1 WHERE id = 2"
    assert look(SAVEPOINT_STORM, pids=(7,), sessions=(build.sampled(7, 0),), texts=(other,)) == []


def test_function_with_an_exception_block() -> None:
    statements = {
        "1/10/1": ("SELECT app.fetch_job($1)", 2_000, 2_000),
        "2/10/1": (build.FINISH, 2_000, 2_000),
    }
    (finding,) = look(SAVEPOINT_STORM, statements=statements, of=build.catalog(functions=(function(FETCH),)))
    assert (
        "app.fetch_job() locks a job of public.jobs and changes it inside an EXCEPTION block" in finding.title
    )
    assert finding.remedies[0].sql == (
        "UPDATE jobs SET state = 'running' WHERE id = (SELECT jobs.id FROM jobs WHERE state = 'queued' ORDER BY run_at "
        "LIMIT 1 FOR UPDATE SKIP LOCKED) RETURNING *;",
    )


@pytest.mark.parametrize(
    "body",
    [
        pytest.param(
            "BEGIN INSERT INTO jobs (payload) VALUES ('{}'); EXCEPTION WHEN unique_violation THEN RETURN 0; END",
            id="insert",
        ),
        pytest.param(
            "DECLARE f bigint; BEGIN SELECT id INTO f FROM jobs WHERE state = 'queued' LIMIT 1 FOR UPDATE SKIP LOCKED; "
            "UPDATE jobs SET state = 'running' WHERE id = f; EXCEPTION WHEN unique_violation THEN RETURN 0; END",
            id="lock and change inside the same block",
        ),
    ],
)
def test_harmless_functions(body: str) -> None:
    statements = {"1/10/1": (build.CLAIM, 2_000, 2_000), "2/10/1": ("SELECT app.fetch_job($1)", 2_000, 2_000)}
    assert look(SAVEPOINT_STORM, statements=statements, of=build.catalog(functions=(function(body),))) == []


def test_function_that_nobody_calls() -> None:
    statements = {"1/10/1": (build.CLAIM, 2_000, 2_000)}
    assert look(SAVEPOINT_STORM, statements=statements, of=build.catalog(functions=(function(FETCH),))) == []


def test_hostile_function_name_is_quoted() -> None:
    statements = {
        "1/10/1": ('SELECT app."x; DROP"($1)', 2_000, 2_000),
        "2/10/1": (build.FINISH, 2_000, 2_000),
    }
    named = function(FETCH, "x; DROP")
    (finding,) = look(SAVEPOINT_STORM, statements=statements, of=build.catalog(functions=(named,)))
    assert 'app."x; DROP"()' in finding.title
