"""Verdicts of backlog-growing without a database."""

from __future__ import annotations

import pytest

from pgqdoctor.checks.backlog_growing import CHECK
from pgqdoctor.finding import Finding

from . import build


def look(
    arrived: int, taken: int, ready: int = 3_000, oldest: float | None = 600.0, exact: bool = True
) -> list[Finding]:
    last = build.reading(build.WINDOW_S, tables=(build.counters(inserted=arrived),))
    return build.evaluated(
        CHECK,
        build.observation(
            statements={"1/10/1": (build.CLAIM, max(taken, 1), taken)},
            last=last,
            probes=(build.probe(ready_rows=ready, ready_exact=exact, oldest_ready_age_s=oldest),),
        ),
    )


def test_growth_is_told_with_numbers() -> None:
    (finding,) = look(600, 200)
    assert finding.severity == "warning"
    assert finding.title == "public.jobs grows by 40/s: 3,000 jobs are ready, the oldest for 10 min"
    assert "add 200% more workers" in finding.remedies[0].title
    assert "more than 10,000 jobs are ready" in look(600, 200, ready=10_000, exact=False)[0].title


@pytest.mark.parametrize(
    ("arrived", "taken", "ready", "oldest", "severity"),
    [
        (600, 200, 99, 600.0, None),
        (600, 200, 100, 600.0, "warning"),
        (600, 200, 3_000, 59.9, None),
        (600, 200, 3_000, 60.0, "warning"),
        (600, 200, 3_000, 899.0, "warning"),
        (600, 200, 3_000, 900.0, "critical"),
        (19, 10, 3_000, 600.0, None),
        (20, 10, 3_000, 600.0, "warning"),
        (1_000, 901, 3_000, 600.0, None),
        (1_000, 900, 3_000, 600.0, "warning"),
        (600, 900, 3_000, 600.0, None),
        (600, 200, 3_000, None, None),
    ],
)
def test_limits(arrived: int, taken: int, ready: int, oldest: float | None, severity: str | None) -> None:
    assert [one.severity for one in look(arrived, taken, ready, oldest)] == (
        [] if severity is None else [severity]
    )


def test_nothing_is_taken_at_all() -> None:
    (finding,) = look(600, 0)
    assert finding.remedies == ()
