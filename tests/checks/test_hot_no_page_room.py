"""Verdicts of hot-no-page-room without a database."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from pgqdoctor.checks.hot_no_page_room import CHECK
from pgqdoctor.finding import Finding

from . import build

HEARTBEAT = "UPDATE jobs SET heartbeat_at = clock_timestamp() WHERE id = $1 AND state = $2"


def look(
    *,
    rows: int = 2_500,
    hot: int = 200,
    newpage: int = 2_300,
    inserted: int = 1_000,
    version: int = 180000,
    options: tuple[str, ...] = (),
    claims: int = 0,
    width: int | None = 900,
    held: bool = False,
    table_rows: float = 40_000.0,
    pages: int = 5_000,
    **catalog: Any,
) -> list[Finding]:
    """Look at ``rows`` heartbeats in ten seconds over a table of ``pages`` full pages, beside ``claims`` claims."""
    sessions = (
        (build.session(41, state="idle in transaction", xmin=700, xmin_age=9_000, xact_age_s=60.0),)
        if held
        else ()
    )
    columns = tuple(
        replace(
            one,
            average_width=width
            if one.name == "payload" and width is not None
            else (8 if width is not None else None),
        )
        for one in build.job_columns()
    )
    counted = build.counters(
        updated=rows + claims, hot_updated=hot, newpage_updated=newpage, inserted=inserted
    )
    seen = build.observation(
        of=build.catalog(
            tables=(build.table(rows=table_rows, pages=pages, options=options),), columns=columns, **catalog
        ),
        on=build.server(version),
        statements={"1/10/1": (build.CLAIM, claims, claims), "2/10/1": (HEARTBEAT, rows, rows)},
        first=build.reading(0.0, sessions=sessions, tables=(build.counters(inserted=inserted),)),
        last=build.reading(build.WINDOW_S, tables=(counted,), sessions=sessions),
    )
    return build.evaluated(CHECK, seen)


def test_no_updates() -> None:
    assert look(rows=0, hot=0, newpage=0) == []


def test_heartbeats_on_full_pages() -> None:
    (finding,) = look()
    assert finding.severity == "warning"
    assert (
        "230/s updates of public.jobs find no room on their page (92% of those that could be heap-only)"
        in finding.title
    )
    # id, state, attempts, run_at and heartbeat_at of 8 bytes, a payload of 900: 940, aligned 944, with header and pointer 972:
    # 8 fit on a page, and room for two more versions leaves 75%.
    assert finding.remedies[0].sql[1] == "ALTER TABLE public.jobs SET (fillfactor = 75);"
    assert finding.remedies[0].undo[1] == "ALTER TABLE public.jobs RESET (fillfactor);"
    assert "8 rows of 972 bytes" in finding.remedies[0].expect


def test_without_statistics_the_pages_tell_the_width() -> None:
    (finding,) = look(width=None)
    # 5,000 pages of 8,168 bytes over 40,000 rows.
    assert "8 rows of 1,021 bytes" in finding.remedies[0].expect


def test_updates_that_are_heap_only() -> None:
    assert look(hot=2_400, newpage=100) == []


def test_bulk_load_with_five_updates() -> None:
    assert look(rows=5, hot=0, newpage=5) == []


@pytest.mark.parametrize(
    ("newpage", "severities"), [(749, []), (750, ["notice"]), (999, ["notice"]), (1_000, ["warning"])]
)
def test_limits(newpage: int, severities: list[str]) -> None:
    assert [one.severity for one in look(hot=2_500 - newpage, newpage=newpage)] == severities


def test_updates_that_stay_on_their_page_are_blocked_otherwise() -> None:
    assert look(hot=0, newpage=10) == []


def test_14_and_15_infer_it_without_the_counter() -> None:
    (finding,) = look(version=150000, newpage=0)
    assert "230/s updates" in finding.title
    assert not any(one.what == "n_tup_newpage_upd" for one in finding.evidence)


def test_updates_that_an_index_blocks() -> None:
    index = build.index(2003, "jobs_heartbeat_at_idx", [6])
    assert look(indexes=(*build.job_indexes(), index)) == []


def test_claims_that_leave_their_index_are_not_counted() -> None:
    assert look(rows=50, hot=50, claims=2_500, newpage=2_500) == []


def test_held_horizon_fills_pages_by_itself() -> None:
    assert look(held=True) == []


def test_fillfactor_is_already_low() -> None:
    (finding,) = look(options=("fillfactor=70",))
    assert finding.remedies == ()
    assert "at 70 already" in finding.why


def test_undo_brings_back_todays_fillfactor() -> None:
    (finding,) = look(options=("fillfactor=90",))
    assert finding.remedies[0].undo[1] == "ALTER TABLE public.jobs SET (fillfactor = 90);"


def test_rows_wider_than_half_a_page_get_no_fillfactor() -> None:
    (finding,) = look(width=5_000)
    assert finding.remedies == ()
    assert "no fillfactor can be computed" in finding.why


def test_busy_pages_get_more_room() -> None:
    # 20 pages take 250 updates a second: a page gets 12.5 before it can be pruned.
    (finding,) = look(width=20, table_rows=1_000.0, pages=20)
    assert finding.remedies[0].sql[1] == "ALTER TABLE public.jobs SET (fillfactor = 80);"
