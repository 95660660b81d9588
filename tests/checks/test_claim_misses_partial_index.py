"""Verdicts of claim-misses-partial-index without a database."""

from __future__ import annotations

from dataclasses import replace

import pytest

from pgqdoctor.checks.claim_misses_partial_index import CHECK
from pgqdoctor.finding import Finding
from pgqdoctor.observation import PlanProbe

from . import build, plans

SERVED = plans.limited(plans.scan(buffers=4))
NOT_SERVED = plans.limited(plans.scan("Seq Scan", index=None, buffers=400))
CAST = build.CLAIM.replace("WHERE state = $2", "WHERE state::varchar = $2")


def look(
    per_call: int,
    scans: int = 0,
    calls: int = 100,
    claim: str = build.CLAIM,
    plan: PlanProbe = SERVED,
    *more: PlanProbe,
    rows: int | None = None,
) -> list[Finding]:
    seen = build.observation(
        statements={"1/10/1": (claim, calls, calls if rows is None else rows)},
        first=build.reading(
            0.0, statements=(build.calls("1/10/1", 0),), indexes=(build.index_counters(2002, 7),)
        ),
        last=build.reading(
            build.WINDOW_S,
            statements=(build.calls("1/10/1", calls, rows, blocks_hit=per_call * calls),),
            indexes=(build.index_counters(2002, 7 + scans),),
        ),
        probes=(build.probe(plans=(plan, *more)),),
    )
    return build.evaluated(CHECK, seen)


def test_claims_that_scan_the_index() -> None:
    assert look(200, scans=100) == []


def test_bound_parameter() -> None:
    (finding,) = look(204)
    assert finding.severity == "warning"
    assert finding.key == "claim-misses-partial-index:public.jobs:jobs_ready_idx"
    assert finding.title == (
        "The claim of public.jobs passes by the index public.jobs_ready_idx and reads 204 buffers instead of 4: "
        "its plan is made for any value of a bound parameter"
    )
    assert finding.remedies[0].sql == (
        "UPDATE jobs SET state = 'running', attempts = attempts + 1 WHERE id = (SELECT id FROM jobs WHERE state = 'queued' AND run_at <= now() "
        "ORDER BY run_at, id LIMIT 1 FOR UPDATE SKIP LOCKED) RETURNING id;",
    )


@pytest.mark.parametrize(("per_call", "found"), [(490, False), (500, True)])
def test_a_claim_of_ten_jobs_writes_ten_rows(per_call: int, found: bool) -> None:
    """EXPLAIN reads the way to the jobs only, and where none is ready not even that."""
    assert bool(look(per_call, rows=1_000, plan=plans.limited(plans.scan(buffers=2)))) == found


def test_plan_for_any_value_is_shown() -> None:
    generic = replace(
        plans.limited(plans.scan("Seq Scan", index=None), analyzed=False), mode="generic", bound=True
    )
    (finding,) = look(204, 0, 100, build.CLAIM, SERVED, generic)
    assert ("plan for any value", "Seq Scan") in {(one.what, one.value) for one in finding.evidence}


@pytest.mark.parametrize(
    ("per_call", "severity"), [(49, None), (50, "warning"), (999, "warning"), (1_000, "critical")]
)
def test_limits_of_buffers(per_call: int, severity: str | None) -> None:
    assert [one.severity for one in look(per_call)] == ([] if severity is None else [severity])


@pytest.mark.parametrize(("scans", "calls", "found"), [(10, 100, 1), (11, 100, 0), (0, 19, 0), (0, 20, 1)])
def test_limits_of_scans(scans: int, calls: int, found: int) -> None:
    assert len(look(204, scans, calls)) == found


def test_as_dear_with_the_constant_is_another_illness() -> None:
    assert look(204, plan=plans.limited(plans.scan(buffers=190))) == []


def test_cast_of_the_state() -> None:
    (finding,) = look(400, claim=CAST, plan=NOT_SERVED)
    assert finding.title.endswith("the claim casts state to varchar")
    assert "WHERE state = 'queued' AND run_at" in finding.remedies[0].sql[0]


def test_index_that_the_claim_does_not_get_for_another_reason() -> None:
    assert look(400, plan=NOT_SERVED) == []
