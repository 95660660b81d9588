"""Verdicts of claim-unbounded without a database."""

from __future__ import annotations

import pytest

from pgqdoctor.checks.claim_unbounded import CHECK
from pgqdoctor.finding import Finding

from . import build

ALL = "UPDATE jobs SET state = $1 WHERE id IN (SELECT id FROM jobs WHERE state = $2 FOR UPDATE SKIP LOCKED) RETURNING id"
SELECT = "SELECT id FROM jobs WHERE state = $1 FOR UPDATE SKIP LOCKED"
GUARDED = "UPDATE jobs SET state = 'running' WHERE state = 'queued' RETURNING id"
BY_KEY = "UPDATE jobs SET state = $1 WHERE id = $2 AND state = $3"


def look(text: str, calls: int, rows: int, deleted: int = 0) -> list[Finding]:
    last = build.reading(build.WINDOW_S, tables=(build.counters(deleted=deleted),))
    return build.evaluated(CHECK, build.observation(statements={"1/10/1": (text, calls, rows)}, last=last))


@pytest.mark.parametrize(
    ("rows", "severity"),
    [(99, None), (100, "warning"), (999, "warning"), (1_000, "critical"), (20_000, "critical")],
)
def test_limits(rows: int, severity: str | None) -> None:
    assert [one.severity for one in look(ALL, 1, rows)] == ([] if severity is None else [severity])


def test_corrected_statement_takes_what_a_worker_finishes_in_a_second() -> None:
    (finding,) = look(ALL, 1, 20_000, deleted=250)
    assert (
        finding.title
        == "One claim of public.jobs takes 20,000 jobs at a time: it has no LIMIT, and the other workers find nothing"
    )
    assert finding.remedies[0].sql == (
        "UPDATE jobs SET state = 'running' WHERE id IN (SELECT id FROM jobs WHERE state = 'queued' LIMIT 25 FOR UPDATE SKIP LOCKED) RETURNING id;",
    )
    assert "LIMIT 1 FOR" in look(ALL, 1, 20_000)[0].remedies[0].sql[0]
    assert "LIMIT 100 FOR" in look(ALL, 1, 20_000, deleted=9_000)[0].remedies[0].sql[0]


def test_locking_select() -> None:
    (finding,) = look(SELECT, 2, 20_000)
    assert "LIMIT 1 FOR UPDATE SKIP LOCKED" in finding.remedies[0].sql[0]


def test_update_that_takes_everything() -> None:
    (finding,) = look(GUARDED, 2, 20_000, deleted=100)
    assert (
        finding.remedies[0]
        .sql[0]
        .startswith("WITH picked AS MATERIALIZED (SELECT id FROM public.jobs WHERE state = 'queued'")
    )
    assert "LIMIT 10 FOR NO KEY UPDATE SKIP LOCKED" in finding.remedies[0].sql[0]


@pytest.mark.parametrize("text", [build.CLAIM, BY_KEY])
def test_bounded_claims(text: str) -> None:
    assert look(text, 1, 20_000) == []
