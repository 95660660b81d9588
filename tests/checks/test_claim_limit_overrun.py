"""Verdicts of claim-limit-overrun without a database."""

from __future__ import annotations

from dataclasses import replace

import pytest

from pgqdoctor.checks.claim_limit_overrun import CHECK
from pgqdoctor.finding import Finding
from pgqdoctor.observation import PlanProbe

from . import build, plans

IN = "UPDATE jobs SET state = $1 WHERE id IN (SELECT id FROM jobs WHERE state = $2 ORDER BY id LIMIT 3 FOR UPDATE SKIP LOCKED) RETURNING id"
EQUAL = IN.replace("IN (", "= (").replace("LIMIT 3", "LIMIT 1")
CTE = (
    "WITH picked AS (SELECT id FROM jobs WHERE state = $2 ORDER BY id LIMIT 3 FOR UPDATE SKIP LOCKED) "
    "UPDATE jobs SET state = $1 WHERE id IN (SELECT id FROM picked) RETURNING id"
)
ARRAY = "UPDATE jobs SET state = $1 WHERE id = ANY (ARRAY(SELECT id FROM jobs WHERE state = $2 LIMIT 3 FOR UPDATE SKIP LOCKED)) RETURNING id"


def look(text: str, calls: int, rows: int, *whole: PlanProbe) -> list[Finding]:
    seen = build.observation(
        statements={"1/10/1": (text, calls, rows)}, probes=(build.probe(whole_plans=whole),)
    )
    return build.evaluated(CHECK, seen)


def joined(*, inner: str = "Limit") -> PlanProbe:
    outer = plans.scan("Seq Scan", index=None)
    limit = plans.above("Limit", plans.above("LockRows", plans.scan()))
    side = limit if inner == "Limit" else plans.above(inner, limit)
    join = {**plans.above("Nested Loop", outer), "Join Type": "Semi"}
    join["Plans"] = [{**outer, "Parent Relationship": "Outer"}, {**side, "Parent Relationship": "Inner"}]
    return replace(
        plans.probe({**plans.above("ModifyTable", join), "Operation": "Update"}, analyzed=False), mode="plan"
    )


@pytest.mark.parametrize("text", [EQUAL, CTE, ARRAY, build.CLAIM])
def test_sub_selects_that_are_computed_once(text: str) -> None:
    assert look(text, 100, 300) == []


def test_shape_alone_is_a_notice_with_the_corrected_statement() -> None:
    (finding,) = look(IN, 100, 300)
    assert finding.severity == "notice"
    assert finding.remedies[0].sql == (
        "WITH picked AS MATERIALIZED (SELECT id FROM jobs WHERE state = 'queued' ORDER BY id LIMIT 3 FOR UPDATE SKIP LOCKED) "
        "UPDATE jobs SET state = 'running' WHERE id IN (SELECT * FROM picked) RETURNING id;",
    )


@pytest.mark.parametrize(
    ("rows", "severity"), [(300, "notice"), (399, "notice"), (400, "critical"), (4_100, "critical")]
)
def test_more_rows_than_the_limit(rows: int, severity: str) -> None:
    (finding,) = look(IN, 100, rows)
    assert finding.severity == severity


def test_overrun_is_told_in_numbers() -> None:
    (finding,) = look(IN, 10, 410)
    assert (
        finding.title
        == "A claim of public.jobs with LIMIT 3 takes 41 jobs at a time: its sub-select is executed again and again"
    )


def test_plan_with_the_limit_inside_of_a_nested_loop() -> None:
    (finding,) = look(IN, 100, 300, joined())
    assert finding.severity == "warning"
    assert "today's plan executes the sub-select once for each row" in finding.title
    assert look(IN, 100, 300, joined(inner="Materialize"))[0].severity == "notice"


def test_not_run_in_the_window() -> None:
    assert look(IN, 0, 0) == []


def test_pruning_in_batches_harms_nobody() -> None:
    prune = "DELETE FROM jobs WHERE id IN (SELECT id FROM jobs WHERE state = 'done' ORDER BY id LIMIT 500 FOR UPDATE SKIP LOCKED)"
    assert look(prune, 10, 5_000) == []
    assert look(prune + " RETURNING id", 10, 5_000) == []
    assert len(look(prune.replace("done", "queued") + " RETURNING id", 10, 5_000)) == 1
