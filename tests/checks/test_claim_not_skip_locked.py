"""Verdicts of claim-not-skip-locked without a database."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from pgqdoctor.checks.claim_not_skip_locked import CHECK
from pgqdoctor.finding import Finding
from pgqdoctor.observation import Sample

from . import build

BLOCKING = "UPDATE jobs SET state = $1 WHERE id = (SELECT id FROM jobs WHERE state = $2 ORDER BY run_at, id LIMIT $3 FOR UPDATE) RETURNING id"
POLL = "SELECT id FROM jobs WHERE state = $1 ORDER BY id LIMIT $2"
GUARDED = "UPDATE jobs SET state = $1 WHERE id = $2 AND state = $3"
GUARDED_SUBSELECT = "UPDATE jobs SET state = $1 WHERE id = (SELECT id FROM jobs WHERE state = $2 LIMIT $3) AND state = $2 RETURNING id"
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
