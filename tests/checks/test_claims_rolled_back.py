"""Verdicts of claims-rolled-back without a database."""

from __future__ import annotations

from typing import Any

import pytest

from pgqdoctor.checks.claims_rolled_back import CHECK
from pgqdoctor.finding import Finding

from . import build

LOCK = "SELECT id FROM jobs WHERE state = $1 ORDER BY run_at, id LIMIT $2 FOR UPDATE SKIP LOCKED"


def look(
    *,
    calls: int = 100,
    rows: int = 100,
    changed: int = 0,
    failed: int = 100,
    oldest_s: float | None = 600.0,
    ready: int = 500,
    claim: str = LOCK,
) -> list[Finding]:
    counted: dict[str, Any] = {"updated": changed}
    seen = build.observation(
        statements={"1/10/1": (claim, calls, rows)},
        first=build.reading(0.0, statements=(build.calls("1/10/1", 0),)),
        last=build.reading(
            build.WINDOW_S,
            tables=(build.counters(**counted),),
            statements=(build.calls("1/10/1", calls, rows),),
            database=build.database(started_s=100_000.0 + build.WINDOW_S, rollbacks=failed),
        ),
        probes=(build.probe(ready_rows=ready, oldest_ready_age_s=oldest_s),),
    )
    return build.evaluated(CHECK, seen)


def test_poison_jobs_keep_all_workers_busy() -> None:
    (finding,) = look()
    assert finding.severity == "critical"
    assert "are taken and let go again" in finding.title
    assert "the oldest ready job is 10 min late" in finding.title
    (remedy,) = finding.remedies
    assert remedy.sql == ()


@pytest.mark.parametrize(
    ("changes", "found"),
    [
        ({"calls": 19, "rows": 19}, False),
        ({"calls": 20, "rows": 20}, True),
        ({"changed": 10}, True),
        ({"changed": 11}, False),
        ({"failed": 50}, True),
        ({"failed": 49}, False),
        ({"oldest_s": 60.0}, True),
        ({"oldest_s": 59.9}, False),
        ({"oldest_s": None}, False),
        ({"ready": 0}, False),
    ],
)
def test_limits(changes: dict[str, Any], found: bool) -> None:
    assert bool(look(**changes)) == found


def test_a_pool_that_rolls_back_after_claims_that_find_nothing() -> None:
    assert look(calls=5_000, rows=3, failed=5_000) == []


def test_claims_that_fail_by_themselves() -> None:
    assert look(claim=LOCK.replace("SKIP LOCKED", "NOWAIT")) == []


def test_a_claim_that_marks_the_row_is_told_by_others() -> None:
    assert look(claim=build.CLAIM, rows=100, failed=100) == []
