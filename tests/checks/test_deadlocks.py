"""Verdicts of deadlocks without a database."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from pgqdoctor.checks.deadlocks import CHECK
from pgqdoctor.finding import Finding
from pgqdoctor.observation import Sample

from . import build

BEAT = "UPDATE jobs SET heartbeat_at = now() WHERE id = ANY ($1)"


def look(deadlocks: int, statements: Mapping[str, tuple[str, int, int]] | None = None) -> list[Finding]:
    seen = build.observation(
        statements=statements or {"1/10/1": (build.CLAIM, 100, 100), "2/10/1": (BEAT, 100, 500)},
        last=build.reading(build.WINDOW_S, database=build.database(started_s=100_010.0, deadlocks=deadlocks)),
    )
    return build.evaluated(CHECK, seen)


def test_no_deadlocks() -> None:
    assert look(0) == []


@pytest.mark.parametrize(("deadlocks", "severity"), [(1, "warning"), (4, "warning"), (5, "critical")])
def test_severity_follows_the_rate(deadlocks: int, severity: str) -> None:
    assert [one.severity for one in look(deadlocks)] == [severity]


def test_statement_is_named_and_written_in_order() -> None:
    (finding,) = look(2)
    assert (
        finding.title
        == "2 deadlocks in 10 s, while 1 statement at public.jobs locks many rows in no fixed order"
    )
    facts = {one.what: one.value for one in finding.evidence}
    assert facts["rows per call of it"] == 5.0
    assert finding.remedies[0].sql == (
        "WITH locked(locked_id) AS MATERIALIZED (SELECT jobs.id FROM jobs WHERE id = ANY($1) ORDER BY jobs.id FOR UPDATE) "
        "UPDATE jobs SET heartbeat_at = now() FROM locked WHERE jobs.id = locked.locked_id;",
    )


def test_squashed_list_of_18_stays_a_list() -> None:
    text = "UPDATE jobs SET heartbeat_at = now() WHERE id IN ($1 /*, ... */)"
    (finding,) = look(2, {"1/10/1": (build.CLAIM, 100, 100), "2/10/1": (text, 100, 500)})
    assert "WHERE id = ANY($1) ORDER BY jobs.id" in finding.remedies[0].sql[0]


@pytest.mark.parametrize(
    ("text", "calls", "rows"),
    [
        pytest.param("UPDATE jobs SET heartbeat_at = now() WHERE id = $1", 100, 100, id="one row each"),
        pytest.param(
            "WITH c AS MATERIALIZED (SELECT id FROM jobs WHERE state = $1 LIMIT $2 FOR UPDATE SKIP LOCKED) "
            "DELETE FROM jobs USING c WHERE jobs.id = c.id",
            100,
            2_000,
            id="a batch that passes over locked rows",
        ),
        pytest.param(BEAT, 0, 0, id="not run in the window"),
    ],
)
def test_deadlocks_of_somebody_else(text: str, calls: int, rows: int) -> None:
    assert look(3, {"1/10/1": (build.CLAIM, 100, 100), "2/10/1": (text, calls, rows)}) == []


ONE = "UPDATE jobs SET payload = $1 WHERE id = $2"


def one_by_one(waits: int, pids: int = 2, event: str = "transactionid") -> list[Finding]:
    """``waits`` samples, ten a second, of ``pids`` sessions that wait for a row at an update by key."""
    moments = tuple(
        Sample(
            at=place / 10,
            sessions=(build.sampled(70 + place % pids, 0, wait_type="Lock", wait_event=event),)
            if place < waits
            else (),
        )
        for place in range(100)
    )
    seen = build.observation(
        statements={"1/10/1": (build.CLAIM, 100, 100), "2/10/1": (ONE, 100, 100)},
        last=build.reading(build.WINDOW_S, database=build.database(started_s=100_010.0, deadlocks=3)),
        samples=moments,
        texts=(ONE,),
    )
    return build.evaluated(CHECK, seen)


@pytest.mark.parametrize(("waits", "found"), [(9, 0), (10, 1)])
def test_transactions_that_lock_row_after_row(waits: int, found: int) -> None:
    findings = one_by_one(waits)
    assert len(findings) == found
    for one in findings:
        assert (
            one.title
            == "3 deadlocks in 10 s, while transactions at public.jobs lock rows one by one and wait for each other"
        )
        assert (
            one.remedies[0]
            .sql[0]
            .startswith("SELECT id FROM public.jobs WHERE id = ANY ($1) ORDER BY id FOR NO KEY UPDATE;")
        )


def test_one_session_that_waits_is_not_a_circle() -> None:
    assert one_by_one(50, pids=1) == []
    assert one_by_one(50, event="relation") == []
