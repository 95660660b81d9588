"""Verdicts of finished-jobs-kept without a database."""

from __future__ import annotations

from typing import Any

import pytest

from pgqdoctor.checks.finished_jobs_kept import CHECK
from pgqdoctor.finding import Finding
from pgqdoctor.observation import PlanProbe, StateCount

from . import build


def plan(removed: int) -> PlanProbe:
    """A claim that finds its job by a scan which refuses ``removed`` rows."""
    return PlanProbe(
        mode="select",
        sql="SELECT ...",
        document=(
            '[{"Plan": {"Node Type": "Limit", "Actual Rows": 1, "Actual Loops": 1, "Plan Rows": 1, "Plans": [{'
            '"Node Type": "Seq Scan", "Relation Name": "jobs", "Schema": "public", "Alias": "jobs", "Actual Rows": 1, '
            f'"Actual Loops": 1, "Plan Rows": 10, "Filter": "(state = \'queued\')", "Rows Removed by Filter": {removed}}}]}}}}]'
        ),
    )


def look(done: int, *, other: int = 1_000, removed: int | None = None, columns: Any = None) -> list[Finding]:
    states = (
        StateCount(value="done", rows=done, exact=False),
        StateCount(value="queued", rows=other, exact=False),
    )
    seen = build.observation(
        of=build.catalog(
            tables=(build.table(rows=float(done + other)),), columns=columns or build.job_columns()
        ),
        probes=(build.probe(states=states, plans=() if removed is None else (plan(removed),)),),
    )
    return build.evaluated(CHECK, seen)


def test_nothing_finished() -> None:
    assert look(0) == []


@pytest.mark.parametrize(("done", "found"), [(99_999, 0), (100_000, 1)])
def test_number_of_finished_jobs(done: int, found: int) -> None:
    assert len(look(done)) == found


@pytest.mark.parametrize(("other", "found"), [(100_001, 0), (100_000, 1)])
def test_share(other: int, found: int) -> None:
    assert len(look(400_000, other=other)) == found


def test_history_that_no_claim_feels_is_a_notice() -> None:
    (finding,) = look(300_000)
    assert finding.severity == "notice"
    assert "99.7% of public.jobs are finished jobs: 300,000 rows" in finding.title
    archive = finding.remedies[0]
    assert archive.sql[0] == "CREATE TABLE IF NOT EXISTS public.jobs_archive (LIKE public.jobs);"
    assert "q.id >= reached AND state IN ('done')" in archive.sql[1]
    assert archive.undo[0].startswith(
        "INSERT INTO public.jobs (id, state, payload, attempts, run_at, heartbeat_at)"
    )


@pytest.mark.parametrize(
    ("done", "removed", "severities"), [(9_999, 1_000, []), (10_000, 999, []), (10_000, 1_000, ["warning"])]
)
def test_claim_that_walks_over_them(done: int, removed: int, severities: list[str]) -> None:
    assert [one.severity for one in look(done, removed=removed)] == severities


def test_finished_at_tells_where_no_state_does() -> None:
    columns = (
        build.column(1, "id", "bigint", "N"),
        build.column(2, "finished_at", "timestamp with time zone", "D", not_null=False, null_fraction=0.1),
        build.column(3, "run_at", "timestamp with time zone", "D"),
    )
    text = (
        "UPDATE jobs SET finished_at = now() WHERE id = (SELECT id FROM jobs WHERE finished_at IS NULL AND run_at <= now() "
        "ORDER BY run_at LIMIT 1 FOR UPDATE SKIP LOCKED)"
    )
    seen = build.observation(
        of=build.catalog(tables=(build.table(rows=200_000.0),), columns=columns),
        statements={"1/10/1": (text, 100, 100)},
    )
    (finding,) = build.evaluated(CHECK, seen)
    assert "180,000 rows" in finding.title
    assert "finished_at IS NOT NULL" in finding.remedies[0].sql[1]
    assert "interval '30 days'" in finding.remedies[1].sql[0]


def test_hostile_state_is_quoted() -> None:
    states = (StateCount(value="it's done", rows=300_000, exact=False),)
    seen = build.observation(probes=(build.probe(states=states),))
    identity = build.the_queue(seen).identity
    assert "it's done" not in identity.finished_values
    assert build.evaluated(CHECK, seen) == []
