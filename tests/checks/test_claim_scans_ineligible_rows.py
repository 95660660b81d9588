"""Verdicts of claim-scans-ineligible-rows without a database."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from pgqdoctor.checks import claim_scans_consumed_rows as consumed
from pgqdoctor.checks.claim_scans_ineligible_rows import CHECK
from pgqdoctor.finding import Finding
from pgqdoctor.observation import PlanProbe, StateCount
from pgqdoctor.rows import TriggerRow

from . import build, plans

STATE_INDEX = build.index(2002, "jobs_state_idx", [2, 4])
LATE = "(run_at <= now())"


def walk(removed: int, condition: str = LATE, **more: Any) -> PlanProbe:
    return plans.limited(
        plans.scan(
            index="jobs_state_idx",
            buffers=max(removed // 100, 3),
            **{
                "Index Cond": "(state = 'queued'::text)",
                "Filter": condition,
                "Rows Removed by Filter": removed,
                **more,
            },
        )
    )


def look(
    plan: PlanProbe,
    calls: int = 100,
    claim: str = build.CLAIM,
    indexes: tuple[Any, ...] = (STATE_INDEX,),
    ready: int = 300_000,
) -> list[Finding]:
    states = (StateCount(value="queued", rows=ready, exact=True),)
    seen = build.observation(
        statements={"1/10/1": (claim, calls, calls)},
        of=build.catalog(tables=(build.table(rows=300_000.0),), indexes=(*build.job_indexes()[:1], *indexes)),
        probes=(build.probe(states=states, plans=(plan,)),),
    )
    return build.evaluated(CHECK, seen)


def test_jobs_that_are_due_later() -> None:
    (finding,) = look(walk(299_988))
    assert finding.severity == "warning"
    assert (
        finding.title
        == "Each claim of public.jobs reads and refuses 299,988 jobs that are ready but not for it: due later"
    )
    assert (
        finding.remedies[0].sql[1]
        == "CREATE INDEX CONCURRENTLY jobs_ready_idx ON public.jobs (run_at, id) WHERE state = 'queued';"
    )
    assert len(finding.remedies) == 1


def test_order_that_keeps_the_due_ones_from_leading_asks_for_a_state_of_their_own() -> None:
    claim = build.CLAIM.replace("ORDER BY run_at, id", "ORDER BY attempts, id")
    (finding,) = look(walk(299_988), claim=claim)
    (remedy,) = finding.remedies
    assert remedy.kind == "application"
    assert "in a state of their own, and make them ready when run_at has come" in remedy.title


def test_jobs_of_another_queue() -> None:
    claim = build.CLAIM.replace("state = $2 AND", "state = $2 AND payload = $4 AND")
    (finding,) = look(walk(50_000, "((payload = 'mail'::jsonb))"), claim=claim)
    assert finding.title.endswith("refused by payload")
    assert "(payload, run_at, id)" in finding.remedies[0].sql[1]


@pytest.mark.parametrize(
    ("removed", "calls", "severity"),
    [
        (999, 10_000, None),
        (1_000, 1_999, "notice"),
        (1_000, 2_000, "warning"),
        (50_000, 1, "warning"),
        (500_000, 1, "critical"),
    ],
)
def test_limits(removed: int, calls: int, severity: str | None) -> None:
    assert [one.severity for one in look(walk(removed), calls)] == ([] if severity is None else [severity])


def test_skip_scan_that_refuses_nothing() -> None:
    assert look(walk(0)) == []


def test_finished_rows_are_another_checks_business() -> None:
    scan = plans.scan(
        "Seq Scan", index=None, buffers=3_000, Filter="((state = 'queued'::text) AND (run_at <= now()))"
    )
    plan = plans.limited({**scan, "Rows Removed by Filter": 290_000})
    assert look(plan, ready=100) == []


def test_sequential_scan_over_a_table_of_ready_rows() -> None:
    scan = plans.scan(
        "Seq Scan", index=None, buffers=3_000, Filter="((state = 'queued'::text) AND (run_at <= now()))"
    )
    (finding,) = look(plans.limited({**scan, "Rows Removed by Filter": 290_000}))
    assert "290,000 jobs that are ready but not for it" in finding.title


def test_rows_beyond_an_old_row_count_are_not_taken_for_ready_ones() -> None:
    """The planner's row count is that of the last ANALYZE; a scan that met more rows than that met them in other states."""
    plan = plans.limited(
        plans.scan(buffers=9_000, **{"Filter": "(state = 'queued'::text)", "Rows Removed by Filter": 900_000})
    )
    assert look(plan, indexes=(), ready=0) == []


OF_A_QUEUE = build.CLAIM.replace("state = $2", "state = $2 AND payload = $3").replace("LIMIT $3", "LIMIT $4")


def other_values(
    blocks: int,
    planned: int = 3,
    *,
    filtered: str = "(payload = 'emails'::text)",
    rows: int = 100,
    triggers: tuple[TriggerRow, ...] = (),
    ready: int = 5_000,
    taken: int = 1,
) -> list[Finding]:
    """The plan was made for payload = 'emails'; 100 claims of the window read ``blocks`` each."""
    plan = plans.limited(
        plans.scan(rows=taken, buffers=planned, **{"Filter": filtered, "Rows Removed by Filter": 0})
    )
    plan = replace(plan, parameters={"$3": "'emails'"}, sql="SELECT ...")
    seen = build.observation(
        statements={"1/10/1": (OF_A_QUEUE, 100, rows)},
        first=build.reading(0.0, statements=(build.calls("1/10/1", 0),)),
        last=build.reading(
            build.WINDOW_S, statements=(build.calls("1/10/1", 100, rows, blocks_hit=100 * blocks),)
        ),
        of=build.catalog(
            columns=tuple(
                replace(one, type_name="text", type_category="S") if one.name == "payload" else one
                for one in build.job_columns()
            ),
            triggers=triggers,
        ),
        probes=(build.probe(plans=(plan,), ready_rows=ready),),
    )
    return build.evaluated(CHECK, seen)


@pytest.mark.parametrize(
    ("blocks", "planned", "severity"),
    [(99, 3, None), (100, 3, "notice"), (999, 3, "notice"), (1_000, 3, "warning"), (1_000, 101, None)],
)
def test_claims_of_another_queue_than_the_plan_was_made_for(
    blocks: int, planned: int, severity: str | None
) -> None:
    assert [one.severity for one in other_values(blocks, planned)] == ([] if severity is None else [severity])


def test_the_column_is_named_and_leads_the_index() -> None:
    (finding,) = other_values(1_000)
    assert finding.title == (
        "Each claim of public.jobs reads 1,000 buffers, and with payload = 'emails' it would read 3: it walks over ready jobs of another payload"
    )
    assert (
        finding.remedies[0].sql[1]
        == "CREATE INDEX CONCURRENTLY jobs_ready_idx_2 ON public.jobs (payload, run_at, id) WHERE state = 'queued';"
    )


def test_buffers_that_something_else_explains() -> None:
    assert other_values(1_000, filtered="(run_at <= now())") == []
    assert other_values(1_000, rows=1_100) == [], "a batch reads for each of its jobs"
    fires = TriggerRow(
        table=build.JOBS, name="t", function_schema="public", function_name="f", function_oid=1, enabled=True
    )
    assert other_values(1_000, triggers=(fires,)) == []
    assert other_values(1_000, ready=999) == [], "so few jobs are not in so many pages"


def of_tenants_at_their_limit(state: str, filtered: str) -> tuple[str, dict[str, Any]]:
    """The claim that counts a tenant's running jobs for each candidate, and its plan over the partial index of ready jobs."""
    claim = (
        f"UPDATE jobs SET {state} = $1 WHERE id = (SELECT a.id FROM jobs a WHERE a.{state} = $2 AND (SELECT count(*) FROM jobs b "
        f"WHERE b.payload = a.payload AND b.{state} = $3) < $4 ORDER BY a.run_at LIMIT $5 FOR UPDATE OF a SKIP LOCKED) RETURNING id"
    )
    counting = {
        **plans.scan("Index Only Scan", index="jobs_running_idx", buffers=20_000),
        "Alias": "b",
        "Parent Relationship": "SubPlan",
        "Subplan Name": "SubPlan 1",
        "Actual Loops": 20_000,
    }
    scan = {
        **plans.scan(
            index="jobs_head_idx",
            buffers=40_208,
            Filter=filtered,
            **{"Rows Removed by Filter": 20_000},
        ),
        "Alias": "a",
        "Plans": [counting],
    }
    return claim, scan


@pytest.mark.parametrize("state", ["state", "st"])
def test_ready_jobs_of_a_tenant_at_its_limit_at_the_head_of_the_right_index(state: str) -> None:
    claim, scan = of_tenants_at_their_limit(state, f"((a.{state} = 'queued'::text) AND ((SubPlan 1) < 5))")
    columns = tuple(replace(one, name=state) if one.name == "state" else one for one in build.job_columns())
    head = build.index(2002, "jobs_head_idx", [5], predicate=f"({state} = 'queued'::text)")
    running = build.index(2003, "jobs_running_idx", [3], predicate=f"({state} = 'running'::text)")
    seen = build.observation(
        statements={"1/10/1": (claim, 120, 120)},
        of=build.catalog(columns=columns, indexes=(*build.job_indexes()[:1], head, running)),
        probes=(build.probe(plans=(plans.limited(scan),)),),
    )
    assert build.evaluated(consumed.CHECK, seen) == []
    (finding,) = build.evaluated(CHECK, seen)
    assert finding.title == (
        "Each claim of public.jobs reads and refuses 20,000 jobs that are ready but not for it: refused by a subquery"
    )
    assert [one.kind for one in finding.remedies] == ["application"]
    assert "in a state of their own" in finding.remedies[0].title


def test_an_index_as_walked_already_is_no_remedy() -> None:
    plan = plans.limited(
        plans.scan(
            index="jobs_head_idx", Filter="(attempts < 5)", buffers=500, **{"Rows Removed by Filter": 20_000}
        )
    )
    asked = build.CLAIM.replace("state = $2 AND run_at <= now()", "state = $2 AND lower(payload::text) = $4")
    head = build.index(
        2002, "jobs_head_idx", [5, 1], predicate="((state = 'queued'::text) AND (attempts < 9))"
    )
    assert look(plan, claim=asked, indexes=(head,))[0].remedies == ()


def test_buffers_of_a_batch_are_compared_job_by_job() -> None:
    """100 jobs taken by 100 claims read 1,000 buffers each; a plan that read 150 for its 50 jobs read 3 for each."""
    (finding,) = other_values(1_000, 150, taken=50)
    assert "reads 1,000 buffers a job, and with payload = 'emails' it would read 3:" in finding.title
    said = {one.what: one.unit for one in finding.evidence}
    assert said["claim reads"] == "buffers per job"
    assert "buffers per job" in said
    assert "buffers per claim" not in said
