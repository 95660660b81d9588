"""Verdicts of claim-scans-dead-rows without a database."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from pgqdoctor.checks.claim_scans_dead_rows import CHECK
from pgqdoctor.finding import Finding
from pgqdoctor.observation import PlanProbe
from pgqdoctor.rows import SessionRow

from . import build, plans

LATE_S = 120.0
"""Two rounds of autovacuum at its default naptime."""


def look(plan: PlanProbe, *sessions: SessionRow, vacuumed_s: float = LATE_S, **changes: Any) -> list[Finding]:
    counted = build.counters(dead=5_000, last_autovacuum_s=vacuumed_s, last_autoanalyze_s=vacuumed_s)
    last = build.reading(build.WINDOW_S, tables=(counted,), sessions=sessions)
    return build.evaluated(
        CHECK, build.observation(last=last, probes=(build.probe(plans=(plan,)),), **changes)
    )


def walk(buffers: int, rows: float = 1, **more: Any) -> PlanProbe:
    return plans.limited(
        plans.scan(rows=rows, buffers=buffers, **{"Index Cond": "(run_at <= now())", **more})
    )


def took(plan: PlanProbe, milliseconds: float) -> PlanProbe:
    assert plan.document is not None
    return replace(
        plan, document=plan.document.replace('"Execution Time": 0.1', f'"Execution Time": {milliseconds}')
    )


def test_clean_index() -> None:
    assert look(walk(3)) == []


@pytest.mark.parametrize(
    ("buffers", "severity"), [(44, None), (45, "warning"), (1_004, "warning"), (1_005, "critical")]
)
def test_limits(buffers: int, severity: str | None) -> None:
    assert [one.severity for one in look(took(walk(buffers), 1.0))] == (
        [] if severity is None else [severity]
    )


@pytest.mark.parametrize(
    ("took_ms", "calls", "severity"),
    [(0.11, 100, "notice"), (0.12, 100, "warning"), (0.11, 1_120, "notice"), (0.11, 1_130, "warning")],
)
@pytest.mark.parametrize("held", [True, False])
def test_what_costs_next_to_nothing_is_a_notice(
    took_ms: float, calls: int, severity: str, held: bool
) -> None:
    """40 of 45 buffers are in vain: 0.098 ms of 0.11, and of the 0.1 ms that pg_stat_statements counted 1% of a core at 112.5 claims a second."""
    holders = [build.session(41, state="active", xmin=700, xmin_age=9_000, xact_age_s=60.0)] if held else []
    (finding,) = look(took(walk(45), took_ms), *holders, statements={"1/1": (build.CLAIM, calls, calls)})
    assert finding.severity == severity
    assert ("next to nothing now" in finding.why) == (severity == "notice")
    assert "between two rounds" not in finding.why


def test_buffers_of_a_batch_say_whose_they_are() -> None:
    plan = walk(1_067, rows=500)
    (finding,) = look(plan)
    said = {one.what: one.unit for one in finding.evidence}
    assert said["claim reads"] == "buffers per job"
    assert said["needed for the rows it saw"] == "buffers per claim"
    (finding,) = look(walk(1_067))
    assert {one.unit for one in finding.evidence if "buffers" in one.unit} == {"buffers"}


@pytest.mark.parametrize(("vacuumed_s", "severity"), [(LATE_S - 0.1, "notice"), (LATE_S, "critical")])
def test_a_round_of_autovacuum_that_is_due_is_a_notice(vacuumed_s: float, severity: str) -> None:
    (finding,) = look(walk(1_005), vacuumed_s=vacuumed_s)
    assert finding.severity == severity
    assert bool(finding.remedies) == (severity == "critical")
    assert ("between two rounds" in finding.why) == (severity == "notice")


@pytest.mark.parametrize(("took_ms", "severity"), [(5.0, "notice"), (5.1, "critical")])
def test_claims_that_cannot_wait_for_autovacuum(took_ms: float, severity: str) -> None:
    """1,000 of 1,005 buffers are in vain: 5.1 ms of execution are 5.07 ms for them."""
    plan = walk(1_005)
    assert plan.document is not None
    slow = replace(
        plan, document=plan.document.replace('"Execution Time": 0.1', f'"Execution Time": {took_ms}')
    )
    (finding,) = look(slow, vacuumed_s=30.0)
    assert finding.severity == severity


@pytest.mark.parametrize(("calls", "severity"), [(100_000, "notice"), (101_000, "critical")])
def test_the_server_s_own_time_bounds_what_claims_spend(calls: int, severity: str) -> None:
    """EXPLAIN took 0.5 ms, 5 cores at 10,000 claims a second; pg_stat_statements counted 0.1 ms each, 0.995 of a core for 1,000 of
    1,005 buffers."""
    plan = walk(1_005)
    assert plan.document is not None
    timed = replace(plan, document=plan.document.replace('"Execution Time": 0.1', '"Execution Time": 0.5'))
    (finding,) = look(timed, vacuumed_s=30.0, statements={"1/1": (build.CLAIM, calls, calls)})
    assert finding.severity == severity


@pytest.mark.parametrize(
    ("calls", "blocks", "severity"), [(10, 1_005, "critical"), (10, 1_003, "warning"), (9, 5_000, "notice")]
)
def test_what_the_claims_of_the_window_read_counts_beside_one_explain(
    calls: int, blocks: int, severity: str
) -> None:
    counted = build.counters(dead=5_000, last_autovacuum_s=LATE_S, last_autoanalyze_s=LATE_S)
    seen = build.observation(
        statements={"1/1": (build.CLAIM, calls, calls)},
        first=build.reading(0.0, statements=(build.calls("1/1", 0),)),
        last=build.reading(
            build.WINDOW_S,
            tables=(counted,),
            statements=(build.calls("1/1", calls, blocks_hit=calls * blocks),),
        ),
        probes=(build.probe(plans=(walk(60),)),),
    )
    (finding,) = build.evaluated(CHECK, seen)
    assert finding.severity == severity
    said = {one.what: one.value for one in finding.evidence}
    assert said.get("claims of the window read on average") == (blocks if calls >= 10 else None)


def test_autovacuum_switched_off_does_not_come() -> None:
    catalog = build.catalog(tables=(build.table(options=("autovacuum_enabled=false",)),))
    (finding,) = look(took(walk(45), 1.0), vacuumed_s=30.0, catalog=catalog)
    assert finding.severity == "warning"


def test_a_held_horizon_does_not_pass() -> None:
    holder = build.session(41, state="idle in transaction", xmin=700, xmin_age=9_000, xact_age_s=60.0)
    (finding,) = look(took(walk(45), 1.0), holder, vacuumed_s=30.0)
    assert finding.severity == "warning"


def test_scattered_dead_rows_and_the_vacuum_that_helps() -> None:
    (finding,) = look(walk(5_017))
    assert finding.title == (
        "Each claim of public.jobs walks over at least 5,012 dead index entries before it finds its job: 5,017 buffers instead of 5"
    )
    assert finding.remedies[0].sql[1] == "VACUUM (VERBOSE, INDEX_CLEANUP ON, TRUNCATE OFF) public.jobs;"
    assert finding.remedies[0].blocks == "nothing"


def test_no_vacuum_while_the_horizon_is_held() -> None:
    holder = build.session(41, state="idle in transaction", xmin=700, xmin_age=9_000, xact_age_s=60.0)
    (finding,) = look(walk(5_017), holder)
    assert finding.remedies == ()
    busy = build.session(42, xmin=700, xmin_age=3, xact_age_s=0.01)
    assert look(walk(5_017), busy)[0].remedies


def test_counted_entries_are_told_exactly() -> None:
    plan = plans.limited(
        plans.scan(
            "Index Only Scan", buffers=30, **{"Index Cond": "(run_at <= now())", "Heap Fetches": 5_001}
        )
    )
    (finding,) = look(plan)
    assert "walks over 5,000 dead index entries" in finding.title


def test_rows_locked_by_others_are_not_dead() -> None:
    child = plans.scan(rows=3_000, buffers=3_020, **{"Index Cond": "(run_at <= now())"})
    assert (
        look(plans.probe(plans.above("Limit", plans.above("LockRows", child, rows=1, buffers=6_000)))) == []
    )


def test_rows_that_a_filter_removes_are_not_dead() -> None:
    assert look(walk(3_010, Filter="(attempts < 3)", **{"Rows Removed by Filter": 3_000})) == []


def test_batch_claims_read_a_page_for_each_job() -> None:
    assert look(walk(104, rows=100)) == []


def test_sequential_scan_says_nothing_about_index_entries() -> None:
    assert look(plans.limited(plans.scan("Seq Scan", index=None, buffers=5_000))) == []


def test_claim_with_the_right_index_that_did_not_come_to_an_end() -> None:
    plan = plans.limited(plans.scan(**{"Index Cond": "(run_at <= now())"}), analyzed=False, timed_out=True)
    (finding,) = look(plan)
    assert finding.severity == "critical"
    assert "although its index jobs_ready_idx leads to the ready jobs" in finding.title
