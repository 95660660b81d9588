"""Verdicts of autovacuum-settings without a database."""

from __future__ import annotations

from dataclasses import replace

import pytest

from pgqdoctor.checks.autovacuum_settings import CHECK
from pgqdoctor.finding import Finding
from pgqdoctor.rows import SettingRow
from pgqdoctor.vacuuming import threshold_for

from . import build

DEFAULTS = (
    build.setting("autovacuum", "on"),
    build.setting("track_counts", "on"),
    build.setting("autovacuum_naptime", "60"),
    build.setting("autovacuum_vacuum_cost_delay", "2"),
    build.setting("autovacuum_vacuum_cost_limit", "-1"),
    build.setting("vacuum_cost_limit", "200"),
)


def look(
    *,
    rows: float = 1_000.0,
    dead: int = 0,
    deleted: int = 1_000,
    options: tuple[str, ...] = (),
    settings: tuple[SettingRow, ...] = DEFAULTS,
    pages: int = 20,
    held: bool = False,
    claimed: tuple[int, int] = (100, 100),
) -> list[Finding]:
    """Look at a table in which ``deleted`` rows die in ten seconds; ``claimed`` are calls and rows of the claim."""
    sessions = (
        (build.session(41, state="idle in transaction", xmin=700, xmin_age=9_000, xact_age_s=60.0),)
        if held
        else ()
    )
    seen = build.observation(
        statements={"1/10/1": (build.CLAIM, *claimed)},
        of=build.catalog(tables=(build.table(rows=rows, options=options, pages=pages),), settings=settings),
        first=build.reading(0.0, sessions=sessions),
        last=build.reading(
            build.WINDOW_S, tables=(build.counters(dead=dead, deleted=deleted),), sessions=sessions
        ),
    )
    return build.evaluated(CHECK, seen)


def changed(name: str, value: str) -> tuple[SettingRow, ...]:
    return tuple(replace(one, setting=value) if one.name == name else one for one in DEFAULTS)


def test_nothing_dies() -> None:
    assert look(rows=1_000_000.0, deleted=0) == []


def test_small_queue_with_defaults() -> None:
    assert look(dead=200, deleted=10_000) == []


def test_finished_jobs_put_the_trigger_out_of_reach() -> None:
    (finding,) = look(rows=300_000.0, dead=40_000)
    assert finding.severity == "warning"
    # 50 + 0.2 * 300,000 rows = 60,050; at 100 dead rows a second that is ten minutes.
    assert "public.jobs after 60,050 dead rows, every 10 min at 100/s: 40,000 wait" in finding.title
    (remedy,) = finding.remedies
    # 100 a second over one naptime of 60 s.
    assert remedy.sql[1] == (
        "ALTER TABLE public.jobs SET (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 6000);"
    )
    assert remedy.undo[1] == (
        "ALTER TABLE public.jobs RESET (autovacuum_vacuum_scale_factor, autovacuum_vacuum_threshold);"
    )
    assert "100/s dead rows, 6,000 of them per vacuum: one about every 60 s" in remedy.expect


def test_undo_brings_back_todays_options() -> None:
    options = ("autovacuum_vacuum_scale_factor=0.1", "fillfactor=70")
    (finding,) = look(rows=300_000.0, dead=20_000, options=options)
    assert finding.remedies[0].undo[1:] == (
        "ALTER TABLE public.jobs SET (autovacuum_vacuum_scale_factor = 0.1);",
        "ALTER TABLE public.jobs RESET (autovacuum_vacuum_threshold);",
    )


@pytest.mark.parametrize(("rows", "found"), [(99_745.0, 0), (99_750.0, 1)])
def test_trigger_limit(rows: float, found: int) -> None:
    assert len(look(rows=rows, dead=19_000)) == found


@pytest.mark.parametrize(("dead", "severity"), [(4_999, "notice"), (5_000, "warning")])
def test_severity_follows_the_dead_rows(dead: int, severity: str) -> None:
    (finding,) = look(rows=300_000.0, dead=dead)
    assert finding.severity == severity


@pytest.mark.parametrize(
    ("claimed", "severity"),
    [((0, 0), "warning"), ((10, 0), "warning"), ((10, 80), "warning"), ((10, 81), "notice")],
)
def test_jobs_of_a_batch_share_what_its_claim_reads_in_vain(claimed: tuple[int, int], severity: str) -> None:
    (finding,) = look(rows=300_000.0, dead=40_000, claimed=claimed)
    assert finding.severity == severity


@pytest.mark.parametrize(("deleted", "found"), [(5_004, 1), (5_005, 0)])
def test_what_is_due_within_two_rounds_of_autovacuum_comes_as_often_as_it_can(
    deleted: int, found: int
) -> None:
    # 60,050 dead rows at 500.4 a second are two rounds of 60 s.
    assert len(look(rows=300_000.0, dead=40_000, deleted=deleted)) == found


@pytest.mark.parametrize(("deleted", "found"), [(9, 0), (10, 1)])
def test_churn_limit(deleted: int, found: int) -> None:
    assert len(look(rows=300_000.0, dead=40_000, deleted=deleted)) == found


def test_maximal_threshold_of_18_bounds_the_trigger() -> None:
    settings = (*DEFAULTS, build.setting("autovacuum_vacuum_max_threshold", "15000"))
    assert look(rows=300_000.0, dead=10_000, settings=settings) == []


def test_held_horizon_is_no_matter_of_settings() -> None:
    assert look(rows=300_000.0, dead=40_000, held=True) == []


@pytest.mark.parametrize(
    ("making", "naptime", "threshold", "period"),
    [
        (100.0, 60.0, 6_000, 60.0),
        (1.0, 60.0, 1_000, 1_000.0),
        (123.4, 60.0, 7_400, pytest.approx(60.0)),
        (5_000.0, 60.0, 10_000, 60.0),
        (100.0, 15.0, 1_500, 15.0),
    ],
)
def test_threshold(making: float, naptime: float, threshold: int, period: float) -> None:
    assert threshold_for(making, naptime) == (threshold, period)


def test_switched_off() -> None:
    (finding,) = look(options=("autovacuum_enabled=off", "fillfactor=70"), dead=40_000)
    assert finding.severity == "warning"
    assert finding.key == "autovacuum-settings:public.jobs:off"
    assert "switched off on public.jobs: 40,000 dead rows, 100/s more" in finding.title
    (remedy,) = finding.remedies
    assert remedy.sql[1] == "ALTER TABLE public.jobs SET (autovacuum_enabled = true);"
    assert remedy.undo[1] == "ALTER TABLE public.jobs SET (autovacuum_enabled = off);"


@pytest.mark.parametrize(("dead", "severity"), [(1_999, "notice"), (2_000, "warning")])
def test_switched_off_lately(dead: int, severity: str) -> None:
    (finding,) = look(options=("autovacuum_enabled=false",), dead=dead)
    assert finding.severity == severity


def test_switched_off_while_the_horizon_is_held_can_wait() -> None:
    (finding,) = look(options=("autovacuum_enabled=off",), dead=40_000, held=True)
    assert finding.severity == "notice"
    assert "until it moves" in finding.why
    (finding,) = look(settings=changed("autovacuum", "off"), dead=40_000, held=True)
    assert finding.severity == "notice"


def test_switched_off_without_churn() -> None:
    assert look(options=("autovacuum_enabled=off",), deleted=0, dead=17) == []


def test_switched_off_on_a_large_table_gets_a_threshold_too() -> None:
    (finding,) = look(options=("autovacuum_enabled=off",), dead=40_000, rows=300_000.0)
    assert finding.remedies[0].sql[1] == (
        "ALTER TABLE public.jobs SET (autovacuum_enabled = true, autovacuum_vacuum_scale_factor = 0, "
        "autovacuum_vacuum_threshold = 6000);"
    )


@pytest.mark.parametrize("name", ["autovacuum", "track_counts"])
def test_server_switch(name: str) -> None:
    (finding,) = look(settings=changed(name, "off"), dead=3_000)
    assert finding.severity == "warning"
    assert finding.remedies[0].sql[0] == f"ALTER SYSTEM SET {name} = 'on';"


def test_cost_limits_that_let_no_pass_end_in_time() -> None:
    # 110,010 pages at 22 points, 200 points per 20 ms: 242 s; with 100 ms 1,210 s, and the trigger is reached in 20 s.
    options = (
        "autovacuum_vacuum_threshold=2000",
        "autovacuum_vacuum_scale_factor=0",
        "autovacuum_vacuum_cost_delay=100",
    )
    (finding,) = look(pages=110_000, rows=90_000.0, dead=5_000, options=options)
    assert finding.key == "autovacuum-settings:public.jobs:pace"
    assert finding.severity == "warning"
    assert "take up to 20 min, while a new one is due every 20 s" in finding.title
    assert finding.remedies[0].sql[1] == "ALTER TABLE public.jobs SET (autovacuum_vacuum_cost_limit = 807);"
    assert finding.remedies[0].undo[1] == "ALTER TABLE public.jobs RESET (autovacuum_vacuum_cost_limit);"
    assert look(pages=50_000, rows=90_000.0, dead=5_000, options=options) == []


def test_default_cost_limits_suffice() -> None:
    options = ("autovacuum_vacuum_threshold=2000", "autovacuum_vacuum_scale_factor=0")
    assert look(pages=110_000, rows=90_000.0, dead=5_000, options=options) == []


def test_partitions_are_altered_by_what_they_have_today() -> None:
    leaves = tuple(
        build.table(1000 + place, f"jobs_p{place}", parent=build.JOBS, rows=200_000.0, options=options)
        for place, options in ((1, ()), (2, ("autovacuum_vacuum_threshold=100",)), (3, ()))
    )
    seen = build.observation(
        of=build.catalog(tables=(build.table(kind="p", rows=-1.0), *leaves), settings=DEFAULTS),
        first=build.reading(0.0, tables=tuple(build.counters(leaf.oid) for leaf in leaves)),
        last=build.reading(
            build.WINDOW_S,
            tables=tuple(build.counters(leaf.oid, dead=9_000, deleted=1_000) for leaf in leaves),
        ),
    )
    (finding,) = build.evaluated(CHECK, seen)
    wanted = "autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 6000"
    altered = {one.sql[1:]: one.undo[1:] for one in finding.remedies}
    names = "autovacuum_vacuum_scale_factor, autovacuum_vacuum_threshold"
    assert altered == {
        (f"ALTER TABLE public.jobs_p1 SET ({wanted});", f"ALTER TABLE public.jobs_p3 SET ({wanted});"): (
            f"ALTER TABLE public.jobs_p1 RESET ({names});",
            f"ALTER TABLE public.jobs_p3 RESET ({names});",
        ),
        (f"ALTER TABLE public.jobs_p2 SET ({wanted});",): (
            "ALTER TABLE public.jobs_p2 SET (autovacuum_vacuum_threshold = 100);",
            "ALTER TABLE public.jobs_p2 RESET (autovacuum_vacuum_scale_factor);",
        ),
    }
