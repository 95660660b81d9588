"""Verdicts of claim-scans-consumed-rows without a database."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from pgqdoctor.checks.claim_scans_consumed_rows import CHECK
from pgqdoctor.finding import Finding
from pgqdoctor.observation import PlanProbe, StateCount

from . import build, plans

PRIMARY = (build.index(2001, "jobs_pkey", [1], unique=True, primary=True, constraint="jobs_pkey"),)
FILTER = "((state = 'queued'::text) AND (run_at <= now()))"


def walk(removed: int, **more: Any) -> PlanProbe:
    return plans.limited(
        plans.scan(
            index="jobs_pkey",
            buffers=max(removed // 100, 3),
            Filter=FILTER,
            **{"Rows Removed by Filter": removed, **more},
        )
    )


def look(
    plan: PlanProbe | None,
    calls: int = 100,
    rows: float = 1_000_000,
    ready: int | None = 100,
    claim: str = build.CLAIM,
    indexes: tuple[Any, ...] = PRIMARY,
) -> list[Finding]:
    states = (
        ()
        if ready is None
        else (
            StateCount(value="queued", rows=ready, exact=True),
            StateCount(value="done", rows=int(rows) - ready, exact=True),
        )
    )
    seen = build.observation(
        statements={"1/10/1": (claim, calls, calls)},
        of=build.catalog(tables=(build.table(rows=rows),), indexes=indexes),
        probes=(build.probe(states=states, plans=() if plan is None else (plan,)),),
    )
    return build.evaluated(CHECK, seen)


def test_no_plan() -> None:
    assert look(None) == []


def test_claim_over_a_partial_index_repeats_its_predicate_as_a_filter() -> None:
    plan = plans.limited(plans.scan(Filter=FILTER, **{"Rows Removed by Filter": 0}))
    assert look(plan, indexes=build.job_indexes()) == []


def test_walk_over_finished_jobs() -> None:
    (finding,) = look(walk(30_000))
    assert finding.severity == "warning"
    assert (
        finding.title
        == "Each claim of public.jobs reads and throws away 30,000 rows that are not ready (done 1 million)"
    )
    assert {(one.what, one.value) for one in finding.evidence} >= {
        ("claim reads", 300.0),
        ("rows read and refused", 30_000),
        ("rows read in vain", 300_000),
    }
    assert finding.remedies[0].sql[1:] == (
        "CREATE INDEX CONCURRENTLY jobs_ready_idx ON public.jobs (run_at, id) WHERE state = 'queued';",
    )
    assert finding.remedies[0].undo[1:] == ("DROP INDEX CONCURRENTLY IF EXISTS public.jobs_ready_idx;",)


@pytest.mark.parametrize(
    ("removed", "calls", "severity"),
    [
        (999, 10_000, None),
        (1_000, 1, "notice"),
        (1_000, 1_999, "notice"),
        (1_000, 2_000, "warning"),
        (49_999, 1, "notice"),
        (50_000, 1, "warning"),
        (499_999, 1, "warning"),
        (500_000, 1, "critical"),
        (100_000, 1_000, "critical"),
    ],
)
def test_limits(removed: int, calls: int, severity: str | None) -> None:
    assert [one.severity for one in look(walk(removed), calls=calls)] == (
        [] if severity is None else [severity]
    )


def test_rows_in_the_ready_state_are_another_checks_business() -> None:
    assert look(walk(300_000), rows=300_100, ready=300_000) == []
    index = build.index(2002, "jobs_ready_idx", [5, 1], predicate="(state = 'queued'::text)")
    plan = plans.limited(plans.scan(Filter=FILTER, **{"Rows Removed by Filter": 30_000}))
    assert look(plan, indexes=(*PRIMARY, index)) == []


def test_equalities_lead_the_index_then_the_order() -> None:
    claim = (
        "UPDATE jobs SET state = $1 WHERE id = (SELECT id FROM jobs WHERE state = $2 AND payload = $3 AND run_at <= now() "
        "ORDER BY attempts DESC, id LIMIT $4 FOR UPDATE SKIP LOCKED) RETURNING id"
    )
    (finding,) = look(walk(30_000), claim=claim)
    assert (
        finding.remedies[0]
        .sql[1]
        .endswith("ON public.jobs (payload, attempts DESC, id, run_at) WHERE state = 'queued';")
    )


def test_an_index_that_would_serve_is_not_made_twice() -> None:
    there = build.index(2002, "jobs_todo", [5, 1], predicate="(state = 'queued'::text)")
    (finding,) = look(walk(30_000), indexes=(*PRIMARY, there))
    assert finding.remedies == ()


def test_name_of_an_existing_index_is_not_taken() -> None:
    other = build.index(2003, "jobs_ready_idx", [4])
    (finding,) = look(walk(30_000), indexes=(*PRIMARY, other))
    assert "CREATE INDEX CONCURRENTLY jobs_ready_idx_2 ON" in finding.remedies[0].sql[1]


def test_what_a_failed_attempt_left_is_dropped_first_and_nothing_else_ever_is() -> None:
    remnant = replace(build.index(2003, "jobs_ready_idx", [4]), valid=False)
    (finding,) = look(walk(30_000), indexes=(*PRIMARY, remnant))
    _, drop, create = finding.remedies[0].sql
    assert drop == "DROP INDEX CONCURRENTLY public.jobs_ready_idx;"
    assert create.startswith("CREATE INDEX CONCURRENTLY jobs_ready_idx ON")
    (clean,) = look(walk(30_000))
    assert not any("DROP" in one for one in clean.remedies[0].sql), (
        "pasted twice it must not drop the good index"
    )


def test_claim_that_did_not_come_to_an_end_is_judged_by_its_plan() -> None:
    plan = plans.limited(plans.scan(index="jobs_pkey", Filter=FILTER), analyzed=False, timed_out=True)
    (finding,) = look(plan)
    assert finding.severity == "critical"
    assert "did not find its job within 1 s" in finding.title
    assert "CREATE INDEX CONCURRENTLY" in finding.remedies[0].sql[1]
    served = plans.limited(plans.scan(**{"Index Cond": "(run_at <= now())"}), analyzed=False, timed_out=True)
    assert look(served, indexes=build.job_indexes()) == []


def test_merely_planned_claim_tells_nothing_about_rows() -> None:
    assert look(plans.limited(plans.scan(index="jobs_pkey", Filter=FILTER), analyzed=False)) == []
