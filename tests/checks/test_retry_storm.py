"""Verdicts of retry-storm without a database."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from pgqdoctor.checks.retry_storm import CHECK
from pgqdoctor.finding import Finding
from pgqdoctor.observation import AttemptsProbe

from . import build

TRIED = AttemptsProbe(
    column="attempts",
    rows=120,
    attempts=1_000,
    most=73,
    often=10,
    often_rows=20,
    often_attempts=900,
    limit=10_000,
    examples=("9", "4"),
)
PUT_BACK = "UPDATE jobs SET state = $1 WHERE id = $2 AND state = $3"


def look(
    taken: int, arrived: int, probe: AttemptsProbe | None = TRIED, *more: tuple[str, int, int], **changes: Any
) -> list[Finding]:
    used = {f"{number}/10/1": one for number, one in enumerate(((build.CLAIM, taken, taken), *more), 1)}
    last = build.reading(build.WINDOW_S, tables=(build.counters(inserted=arrived),))
    seen = build.observation(statements=used, last=last, probes=(build.probe(attempts=probe),))
    return build.evaluated(CHECK, replace(seen, **changes))


@pytest.mark.parametrize(
    ("taken", "arrived", "severity"),
    [
        (100, 51, None),
        (100, 50, "warning"),
        (10, 1, None),
        (11, 1, "critical"),
        (1_000, 101, "warning"),
        (1_000, 100, "critical"),
    ],
)
def test_limits(taken: int, arrived: int, severity: str | None) -> None:
    assert [one.severity for one in look(taken, arrived)] == ([] if severity is None else [severity])


def test_title_and_the_pause() -> None:
    (finding,) = look(2_000, 100)
    assert (
        finding.title
        == "95% of the claims of public.jobs are attempts made again, 190/s: 20 jobs were tried up to 73 times"
    )
    (sql,) = finding.remedies[0].sql
    assert "WHERE state = 'queued' AND attempts >= 10 AND run_at < now() + interval '1 minute'" in sql
    assert "SET run_at = now() + interval '1 second' * least(power(2, least(j.attempts, 20)), 21600)" in sql
    assert sql.endswith("FROM often WHERE j.id = often.id\nRETURNING j.id;")


def test_backlog_that_is_worked_off_for_the_first_time() -> None:
    assert look(2_000, 100, replace(TRIED, often_rows=0, often_attempts=0)) == []


@pytest.mark.parametrize(("often", "found"), [(499, 0), (500, 1)])
def test_others_made_most_attempts(often: int, found: int) -> None:
    assert len(look(2_000, 100, replace(TRIED, often_attempts=often))) == found


def test_putting_a_job_back_is_no_claim() -> None:
    assert look(100, 90, TRIED, (PUT_BACK, 5_000, 5_000)) == []


def test_nothing_is_known_about_attempts() -> None:
    assert look(2_000, 100, None) == []
