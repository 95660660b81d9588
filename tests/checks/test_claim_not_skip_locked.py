"""Verdicts of claim-not-skip-locked without a database."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from pgqdoctor.checks.claim_not_skip_locked import CHECK
from pgqdoctor.finding import Finding
from pgqdoctor.observation import Catalog, Sample
from pgqdoctor.rows import FunctionRow

from . import build

BLOCKING = "UPDATE jobs SET state = $1 WHERE id = (SELECT id FROM jobs WHERE state = $2 ORDER BY run_at, id LIMIT $3 FOR UPDATE) RETURNING id"
POLL = "SELECT id FROM jobs WHERE state = $1 ORDER BY id LIMIT $2"
GUARDED = "UPDATE jobs SET state = $1 WHERE id = $2 AND state = $3"
GUARDED_SUBSELECT = "UPDATE jobs SET state = $1 WHERE id = (SELECT id FROM jobs WHERE state = $2 LIMIT $3) AND state = $2 RETURNING id"
NOWAIT = "SELECT id FROM jobs WHERE state = $1 ORDER BY run_at LIMIT $2 FOR UPDATE NOWAIT"
MOMENTS = 100


def line(
    waiting: int,
    busy: int,
    event: str = "transactionid",
    text: str = BLOCKING,
    calls: int = 100,
    **changes: Any,
) -> list[Finding]:
    """``waiting`` and ``busy`` are samples of sessions at the statement, waiting for a row and running."""
    base = build.observation(statements={"1/10/1": (text, calls, calls)}, texts=(text,))
    sessions = tuple(
        build.sampled(100 + number % 7, 0, wait_type="Lock", wait_event=event, **changes)
        for number in range(waiting)
    ) + tuple(build.sampled(200, 0) for _ in range(busy))
    moments = tuple(Sample(at=number / 10, sessions=sessions[number::MOMENTS]) for number in range(MOMENTS))
    caught = (build.session(100, query=text, query_id=1),)
    return build.evaluated(
        CHECK,
        replace(
            base,
            samples=moments,
            first=replace(base.first, sessions=caught),
            last=replace(base.last, sessions=caught),
        ),
    )


def races(
    polls: int,
    found: int,
    tries: int,
    won: int,
    update: str = GUARDED,
    ready: int = 100,
    *more: tuple[str, int, int],
) -> list[Finding]:
    statements = [(POLL, polls, found), (update, tries, won), *more]
    used = {f"{number}/10/1": one for number, one in enumerate(statements, 1)}
    return build.evaluated(CHECK, build.observation(statements=used, probes=(build.probe(ready_rows=ready),)))


def test_nobody_waits() -> None:
    assert line(0, 50) == []


@pytest.mark.parametrize(("waiting", "busy", "found"), [(49, 0, 0), (50, 0, 1), (50, 200, 1), (50, 201, 0)])
def test_limits_of_the_line(waiting: int, busy: int, found: int) -> None:
    assert len(line(waiting, busy)) == found


def test_line_is_told_with_its_length_and_the_corrected_statement() -> None:
    (finding,) = line(280, 20)
    assert finding.severity == "warning"
    assert (
        finding.title
        == "2.8 workers of public.jobs wait in line for one row at any moment: the claim is FOR UPDATE without SKIP LOCKED"
    )
    assert finding.pids == (100, 101, 102, 103, 104, 105, 106)
    assert finding.remedies[0].sql == (
        "UPDATE jobs SET state = 'running' WHERE id = (SELECT id FROM jobs WHERE state = 'queued' ORDER BY run_at, id LIMIT 1 "
        "FOR UPDATE SKIP LOCKED) RETURNING id;",
    )


@pytest.mark.parametrize(
    ("waiting", "busy", "severity"), [(399, 0, "warning"), (400, 0, "critical"), (400, 134, "warning")]
)
def test_severity(waiting: int, busy: int, severity: str) -> None:
    assert [one.severity for one in line(waiting, busy)] == [severity]


@pytest.mark.parametrize("event", ["relation", "extend", "object"])
def test_other_waits_are_no_line(event: str) -> None:
    assert line(300, 0, event=event) == []


def test_tuple_waits_count() -> None:
    assert len(line(300, 0, event="tuple")) == 1


def test_skip_locked_claims_are_left_alone() -> None:
    assert line(300, 0, text=build.CLAIM) == []


def test_idle_sessions_do_not_wait() -> None:
    assert line(300, 0, state="idle in transaction") == []


def test_lost_races() -> None:
    (finding,) = races(4_000, 4_000, 4_000, 1_000)
    assert finding.severity == "warning"
    assert "lose 75% of their claims to each other: 300/s guarded updates change nothing" in finding.title
    assert "LIMIT 1 FOR NO KEY UPDATE SKIP LOCKED" in finding.remedies[0].sql[0]
    assert (
        "UPDATE jobs SET state = 'running' WHERE jobs.id = (SELECT jobs.id FROM jobs"
        in finding.remedies[0].sql[0]
    )


@pytest.mark.parametrize(
    ("tries", "won", "found"),
    [(1_000, 801, 0), (400, 201, 0), (400, 200, 1), (1_000, 701, 0), (1_000, 700, 1)],
)
def test_limits_of_the_races(tries: int, won: int, found: int) -> None:
    assert len(races(tries, tries, tries, won)) == found


def test_low_rate_is_a_sound_design() -> None:
    assert races(140, 140, 140, 120) == []


def test_updates_after_an_empty_look_are_no_lost_races() -> None:
    assert races(4_000, 100, 4_000, 100) == []


def test_one_statement_on_an_empty_queue_loses_nothing() -> None:
    assert races(0, 0, 4_000, 100, GUARDED_SUBSELECT, 0) == []
    (finding,) = races(0, 0, 4_000, 100, GUARDED_SUBSELECT, 50)
    assert "FOR NO KEY UPDATE SKIP LOCKED) AND state = 'queued' RETURNING id" in finding.remedies[0].sql[0]


def test_guarded_update_beside_a_claim_that_skips() -> None:
    assert races(4_000, 4_000, 4_000, 1_000, GUARDED, 100, (build.CLAIM, 100, 100)) == []


TAKE = FunctionRow(
    oid=7000,
    schema="public",
    name="take",
    language="plpgsql",
    body=(
        "DECLARE j bigint; BEGIN SELECT id INTO j FROM jobs WHERE state = 'queued' ORDER BY run_at LIMIT 1 FOR UPDATE; "
        "UPDATE jobs SET state = 'running' WHERE id = j; RETURN j; END"
    ),
    arguments="",
    returns="bigint",
)


def sampled_at(
    texts: tuple[str, ...], statements: dict[str, tuple[str, int, int]], waiting: int, event: str, of: Catalog
) -> list[Finding]:
    sessions = tuple(
        build.sampled(100 + number % 4, 0, wait_type="Lock", wait_event=event) for number in range(waiting)
    )
    moments = tuple(Sample(at=number / 10, sessions=sessions[number::MOMENTS]) for number in range(MOMENTS))
    return build.evaluated(
        CHECK, build.observation(statements=statements, texts=texts, of=of, samples=moments)
    )


@pytest.mark.parametrize(("skip", "found"), [("", 1), (" SKIP LOCKED", 0)])
def test_line_at_a_claim_inside_a_function(skip: str, found: int) -> None:
    take = replace(TAKE, body=TAKE.body.replace("FOR UPDATE;", f"FOR UPDATE{skip};"))
    findings = sampled_at(
        ("SELECT take()",),
        {"1/10/1": ("SELECT take()", 100, 100)},
        300,
        "transactionid",
        build.catalog(functions=(take,)),
    )
    assert len(findings) == found
    for one in findings:
        assert one.title.startswith("3 workers of public.jobs wait in line for one row at any moment")
        assert one.remedies[0].sql == (
            "SELECT id FROM jobs WHERE state = 'queued' ORDER BY run_at LIMIT 1 FOR UPDATE SKIP LOCKED;",
        )


@pytest.mark.parametrize(
    ("lock", "event", "calls", "what"),
    [
        ("SELECT pg_advisory_lock(42)", "advisory", 90, "an advisory lock"),
        ("SELECT pg_advisory_xact_lock(42)", "advisory", 114, "an advisory lock"),
        ("SELECT pg_advisory_lock(42)", "advisory", 60, None),
        ("SELECT pg_try_advisory_lock(42)", "advisory", 100, None),
        ("LOCK TABLE jobs IN EXCLUSIVE MODE", "relation", 3, "a lock on the table"),
        ("LOCK TABLE carts IN EXCLUSIVE MODE", "relation", 100, None),
        ("LOCK TABLE jobs IN EXCLUSIVE MODE", "transactionid", 100, None),
    ],
)
def test_a_lock_that_workers_take_around_their_claims(
    lock: str, event: str, calls: int, what: str | None
) -> None:
    used = {"1/10/1": (GUARDED_SUBSELECT, 100, 100), "2/10/1": (lock, calls, calls)}
    findings = sampled_at((lock,), used, 300, event, build.catalog())
    assert len(findings) == (what is not None)
    for one in findings:
        assert f"wait in line for {what} at any moment" in one.title
        assert "SKIP LOCKED" in one.remedies[0].sql[0]


def nowait(rolled_back: int, *, calls: int = 300, text: str = NOWAIT) -> list[Finding]:
    seen = build.observation(
        statements={"1/10/1": (text, calls, calls)},
        last=build.reading(
            build.WINDOW_S, database=build.database(started_s=100_010.0, commits=calls, rollbacks=rolled_back)
        ),
    )
    return build.evaluated(CHECK, seen)


@pytest.mark.parametrize(("rolled_back", "found"), [(199, 0), (200, 1)])
def test_claims_that_fail_at_once_instead_of_skipping(rolled_back: int, found: int) -> None:
    findings = nowait(rolled_back)
    assert len(findings) == found
    for one in findings:
        assert (
            one.title
            == "40% of the claims of public.jobs fail: the claim is FOR UPDATE NOWAIT, and 20/s transactions are rolled back"
        )
        assert "FOR UPDATE SKIP LOCKED" in one.remedies[0].sql[0]


def test_rollbacks_beside_claims_that_skip_or_seldom_fail() -> None:
    assert nowait(2_000, text=build.CLAIM) == []
    assert nowait(200, calls=3_000) == []
