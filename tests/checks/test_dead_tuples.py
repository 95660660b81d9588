"""Verdicts of dead-tuples without a database."""

from __future__ import annotations

from typing import Any

import pytest

from pgqdoctor.checks.dead_tuples import CHECK
from pgqdoctor.finding import Finding
from pgqdoctor.observation import PlanProbe
from pgqdoctor.rows import VacuumRow

from . import build

NAPTIME = build.setting("autovacuum_naptime", "60")


def plan(buffers: int, took_ms: float = 1.0) -> PlanProbe:
    """The claim's plan: one job found by the partial index, at a cost of ``buffers`` and ``took_ms``."""
    return PlanProbe(
        mode="select",
        sql="SELECT ...",
        document=(
            '[{"Plan": {"Node Type": "Limit", "Actual Rows": 1, "Actual Loops": 1, "Plan Rows": 1, '
            f'"Shared Hit Blocks": {buffers}, "Shared Read Blocks": 0, "Plans": [{{"Node Type": "Index Scan", '
            '"Index Name": "jobs_ready_idx", "Relation Name": "jobs", "Schema": "public", "Alias": "jobs", '
            '"Actual Rows": 1, "Actual Loops": 1, "Plan Rows": 10, "Index Searches": 1, '
            f'"Shared Hit Blocks": {buffers}, "Shared Read Blocks": 0}}]}}, "Execution Time": {took_ms}}}]'
        ),
    )


def look(
    *,
    dead: int,
    deleted: int = 2_000,
    rows: float = 1_000.0,
    options: tuple[str, ...] = (),
    last_autovacuum_s: float | None = 3_600.0,
    analyzed_s: float | None = None,
    statements: dict[str, tuple[str, int, int]] | None = None,
    buffers: int | None = None,
    took_ms: float = 1.0,
    held: bool = False,
    **last: Any,
) -> list[Finding]:
    counted = build.counters(
        dead=dead,
        deleted=deleted,
        last_autovacuum_s=last_autovacuum_s,
        last_autoanalyze_s=last_autovacuum_s if analyzed_s is None else analyzed_s,
    )
    sessions = (
        (build.session(41, state="idle in transaction", xmin=700, xmin_age=9_000, xact_age_s=60.0),)
        if held
        else ()
    )
    seen = build.observation(
        statements=statements,
        of=build.catalog(tables=(build.table(rows=rows, options=options),), settings=(NAPTIME,)),
        first=build.reading(0.0, sessions=sessions),
        last=build.reading(build.WINDOW_S, tables=(counted,), sessions=sessions, **last),
        probes=(build.probe(plans=() if buffers is None else (plan(buffers, took_ms),)),),
    )
    return build.evaluated(CHECK, seen)


def test_no_dead_rows() -> None:
    assert look(dead=0, deleted=0) == []


def test_tiny_table_where_every_row_is_dead() -> None:
    assert look(dead=17, deleted=17, rows=0.0, last_autovacuum_s=None) == []


def test_trigger_passed_and_two_rounds_waited() -> None:
    # 50 + 0.2 * 1,000 rows = 250; at 200/s, 24,250 dead rows are 120 s beyond it.
    (finding,) = look(dead=24_250)
    assert finding.severity == "warning"
    assert "24,250 dead rows in public.jobs, 97 times autovacuum's trigger of 250" in finding.title
    assert finding.remedies[0].sql == ("SET lock_timeout = '2s';", "VACUUM (TRUNCATE false) public.jobs;")


@pytest.mark.parametrize(("dead", "found"), [(24_249, 0), (24_250, 1)])
def test_rounds_limit(dead: int, found: int) -> None:
    assert len(look(dead=dead)) == found


def test_vacuum_that_comes_every_minute_is_in_time() -> None:
    assert look(dead=24_250, last_autovacuum_s=30.0) == []


def test_an_analyze_that_comes_every_minute_shows_that_autovacuum_does() -> None:
    # It looks at both triggers in one visit: a minute ago the one for vacuum had not been passed.
    assert look(dead=24_250, last_autovacuum_s=3_600.0, analyzed_s=119.9) == []
    assert len(look(dead=24_250, last_autovacuum_s=3_600.0, analyzed_s=120.0)) == 1


@pytest.mark.parametrize(
    ("sql", "calls", "rows", "found"),
    [
        ("DELETE FROM jobs WHERE state = $1", 1, 50_000, 0),
        ("UPDATE jobs SET state = $1 WHERE state = $2", 5, 25_000, 0),
        ("UPDATE jobs SET state = $1 WHERE state = $2", 6, 29_999, 1),
        ("DELETE FROM jobs WHERE id = $1", 50_000, 50_000, 1),
        ("DELETE FROM elsewhere WHERE state = $1", 1, 50_000, 1),
    ],
)
def test_rows_of_one_large_statement_may_just_have_come(sql: str, calls: int, rows: int, found: int) -> None:
    # At the two rows a second that die now, it would be hours since the trigger was passed.
    statements = {"1/10/1": (build.CLAIM, 20, 20), "7/10/1": (sql, calls, rows)}
    told = look(
        dead=25_000,
        deleted=20,
        last_autovacuum_s=None,
        analyzed_s=7_200.0,
        statements=statements,
        buffers=245,
    )
    assert [one.severity == "warning" for one in told] == [bool(found)]


@pytest.mark.parametrize(("dead", "found"), [(3_999, 0), (4_000, 1)])
def test_multiple_of_the_trigger(dead: int, found: int) -> None:
    options = ("autovacuum_vacuum_scale_factor=0", "autovacuum_vacuum_threshold=2000")
    assert len(look(dead=dead, deleted=10, options=options)) == found


@pytest.mark.parametrize(("dead", "found"), [(1_999, 0), (2_000, 1)])
def test_few_dead_rows_are_never_told(dead: int, found: int) -> None:
    assert len(look(dead=dead, deleted=0)) == found


def test_claim_that_does_not_pay_makes_it_a_notice() -> None:
    (finding,) = look(dead=24_250, buffers=5)
    assert finding.severity == "notice"


@pytest.mark.parametrize(
    ("buffers", "severity"), [(34, "notice"), (35, "warning"), (1_004, "warning"), (1_005, "critical")]
)
def test_claim_that_pays(buffers: int, severity: str) -> None:
    # One descent and one row are expected to cost 5 buffers at most.
    (finding,) = look(dead=24_250, buffers=buffers)
    assert finding.severity == severity


def test_claim_that_pays_just_after_the_trigger_is_a_notice() -> None:
    (finding,) = look(dead=2_300, buffers=600)
    assert finding.severity == "notice"
    assert "a claim reads 595 buffers for them" in finding.title


@pytest.mark.parametrize(
    ("took_ms", "severity"), [(4.9, "notice"), (5.1, "critical")], ids=["fast all the same", "slow"]
)
def test_many_buffers_between_two_visits_count_by_their_time(took_ms: float, severity: str) -> None:
    (finding,) = look(dead=2_300, buffers=3_800, took_ms=took_ms)
    assert finding.severity == severity


def test_what_lasts_counts_by_its_buffers() -> None:
    (held,) = look(dead=2_300, buffers=3_800, held=True)
    (off,) = look(dead=2_300, buffers=3_800, options=("autovacuum_enabled=off",))
    assert held.severity == off.severity == "critical"


def test_before_the_trigger_nothing_is_said() -> None:
    assert look(dead=40_000, rows=300_000.0, buffers=600) == []


def test_held_horizon_leaves_the_vacuum_out() -> None:
    (finding,) = look(dead=24_250, held=True)
    assert finding.remedies == ()
    assert "9,000 transactions back" in finding.why


def test_vacuum_at_work_is_not_asked_for_again() -> None:
    row = VacuumRow(
        pid=9,
        database="app",
        relation=build.JOBS,
        phase="scanning heap",
        heap_blocks=10,
        heap_blocks_scanned=1,
        index_vacuum_count=0,
        autovacuum=True,
    )
    (finding,) = look(dead=24_250, vacuums=(row,))
    assert finding.remedies == ()


def test_heap_only_updates_leave_nothing_for_vacuum() -> None:
    counted = build.counters(dead=24_250, updated=5_000, hot_updated=5_000, last_autovacuum_s=45.0)
    seen = build.observation(
        of=build.catalog(settings=(NAPTIME,)), last=build.reading(build.WINDOW_S, tables=(counted,))
    )
    assert build.evaluated(CHECK, seen) == []


def test_worst_partition_is_named() -> None:
    leaves = tuple(
        build.table(1000 + place, f"jobs_p{place}", parent=build.JOBS, options=options)
        for place, options in ((1, ()), (2, ("autovacuum_enabled=off",)))
    )
    seen = build.observation(
        of=build.catalog(tables=(build.table(kind="p", rows=-1.0), *leaves), settings=(NAPTIME,)),
        first=build.reading(0.0, tables=(build.counters(1001), build.counters(1002))),
        last=build.reading(
            build.WINDOW_S,
            tables=(
                build.counters(1001, dead=200, deleted=1_000),
                build.counters(
                    1002, dead=24_250, deleted=1_000, last_autovacuum_s=None, last_autoanalyze_s=None
                ),
            ),
        ),
    )
    (finding,) = build.evaluated(CHECK, seen)
    assert "jobs_p2" in finding.title
    assert "autovacuum is switched off" in finding.why
    assert finding.remedies[0].sql[1] == "VACUUM (TRUNCATE false) public.jobs_p2;"
