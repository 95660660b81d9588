"""Verdicts of deadlocks without a database."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from pgqdoctor.checks.deadlocks import CHECK
from pgqdoctor.finding import Finding

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
