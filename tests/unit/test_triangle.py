"""The triangle over observations made by hand: each corner, each recommendation, and what must never be recommended."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from pgqdoctor.observation import Observation, PlanProbe
from pgqdoctor.pageroom import PageRoom
from pgqdoctor.rows import IndexRow, StatementCounterRow
from pgqdoctor.triangle import Corner, Knob, Triangle, triangle_of
from tests.checks import build

PKEY = build.index(2001, "jobs_pkey", [1], unique=True, primary=True, constraint="jobs_pkey", rows=20_000.0)
READY = build.index(2002, "jobs_ready_idx", [5, 1], predicate="(state = 'queued'::text)", rows=4_000.0)
BEATS = build.index(2003, "jobs_heartbeat_at_idx", [6], rows=20_000.0)
HEARTBEAT = "UPDATE jobs SET heartbeat_at = clock_timestamp() WHERE id = $1 AND state = $2"
DONE = "UPDATE jobs SET state = $2 WHERE id = $1"
PAGES = 400


def plan(*, index: str | None, buffers: int, removed: int = 0) -> PlanProbe:
    """A measured plan of the claim: through an index, or all pages sorted."""
    scan: dict[str, Any] = {
        "Node Type": "Seq Scan" if index is None else "Index Scan",
        "Relation Name": "jobs",
        "Schema": "public",
        "Alias": "jobs",
        "Startup Cost": 0.0,
        "Total Cost": 10.0,
        "Plan Rows": 1,
        "Plan Width": 8,
        "Actual Startup Time": 0.01,
        "Actual Total Time": 0.02,
        "Actual Rows": 1,
        "Actual Loops": 1,
        "Rows Removed by Filter": removed,
        "Filter": "((state = 'queued'::text) AND (run_at <= now()))",
        "Shared Hit Blocks": buffers,
        "Shared Read Blocks": 0,
    }
    if index is not None:
        scan["Index Name"] = index
        scan["Scan Direction"] = "Forward"
    below = (
        scan if index is not None else {**scan, "Node Type": "Sort", "Sort Key": ["run_at"], "Plans": [scan]}
    )
    limit = {**scan, "Node Type": "Limit", "Plans": [below]}
    for key in ("Relation Name", "Filter", "Index Name", "Rows Removed by Filter"):
        limit.pop(key, None)
        if below is not scan:
            below.pop(key, None)
    return PlanProbe(
        mode="select", sql="SELECT", document=json.dumps([{"Plan": limit, "Execution Time": 0.1}])
    )


def look(
    *,
    indexes: tuple[IndexRow, ...] = (PKEY, READY),
    of_plan: PlanProbe | None = None,
    claims: int = 500,
    done: int = 500,
    beats: int = 0,
    inserted: int = 500,
    hot: int = 0,
    newpage: int = 0,
    options: tuple[str, ...] = (),
    pages: int = PAGES,
    rows: float = 20_000.0,
    width: int = 100,
    version: int = 180000,
    wal: int | None = 400,
    held: bool = False,
    on: dict[str, Any] | None = None,
    texts: bool = True,
    claim: str = build.CLAIM,
) -> Observation:
    """Ten seconds of a queue of 20,000 jobs, a fifth of them ready: claims, finishes and heartbeats."""
    used = {"1/10/1": (claim, claims, claims)}
    if texts:
        used |= {"2/10/1": (DONE, done, done), "3/10/1": (HEARTBEAT, beats, beats)}
    columns = tuple(
        replace(one, average_width=width) if one.name == "payload" else one for one in build.job_columns()
    )
    sessions = (
        (build.session(41, state="idle in transaction", xmin=700, xmin_age=9_000, xact_age_s=60.0),)
        if held
        else ()
    )

    def counted(key: str, calls: int) -> StatementCounterRow:
        return build.calls(key, calls, wal_bytes=None if wal is None else calls * wal, wal_page_images=0)

    return build.observation(
        of=build.catalog(
            tables=(build.table(rows=rows, pages=pages, options=options),), columns=columns, indexes=indexes
        ),
        on=build.server(version, **(on or {})),
        statements=used,
        probes=(build.probe(table_bytes=pages * 8192, plans=(of_plan,) if of_plan is not None else ()),),
        first=build.reading(
            0.0,
            sessions=sessions,
            tables=(build.counters(inserted=20_000),),
            statements=tuple(counted(key, 0) for key in used),
        ),
        last=build.reading(
            build.WINDOW_S,
            sessions=sessions,
            tables=(
                build.counters(
                    inserted=20_000 + inserted,
                    updated=claims + done + beats,
                    hot_updated=hot,
                    newpage_updated=newpage,
                ),
            ),
            statements=tuple(counted(key, calls) for key, (_, calls, _) in used.items()),
        ),
    )


def told(**facts: Any) -> Triangle:
    seen = look(**facts)
    found = triangle_of(seen, build.the_queue(seen))
    assert found is not None
    return found


def now(triangle: Triangle) -> Corner:
    (found,) = [one for one in triangle.corners if one.now]
    return found


def corner(triangle: Triangle, name: str) -> Corner:
    (found,) = [one for one in triangle.corners if one.name == name]
    return found


def knob(triangle: Triangle, name: str) -> Knob:
    (found,) = [one for one in triangle.knobs if one.name == name]
    return found


THROUGH = plan(index="jobs_ready_idx", buffers=3)
SCAN = plan(index=None, buffers=PAGES, removed=16_000)


def test_claim_index_without_heap_only_updates() -> None:
    found = told(of_plan=THROUGH)
    assert found.corner == "claim index, no HOT"
    assert (found.hot_reached, found.hot_reachable) == (0.0, 0.0)
    assert (found.updates_per_s, found.updates_per_job) == (100.0, 2.0)
    assert (found.updates_blocked_by_claim_index, found.updates_blocked_by_others) == (1.0, 0.0)
    # Two updates and the insert enter the primary key; the ready index is entered by the insert alone.
    assert found.entries_per_job == 4.0
    assert (found.wal_bytes_per_job, found.wal_measured) == (800.0, True)
    other = corner(found, "HOT, claims scan")
    assert other.change == "without index jobs_ready_idx and fillfactor 90"
    assert other.claim_buffers == PAGES
    assert other.hot_ratio == 1.0
    assert other.entries_per_job == 1.0
    assert (other.wal_bytes_per_job or 0) < 800.0
    assert corner(found, "both").why_not == "most updates set state, which the claim's index must mention"


def test_claim_index_is_never_given_away_for_heap_only_updates() -> None:
    found = told(of_plan=THROUGH)
    assert found.recommendation.action == "leave"
    assert found.recommendation.remedies == ()
    assert "the claim is served by jobs_ready_idx and reads 3 buffers" in found.recommendation.reason
    assert "without it a claim would read about 400 buffers" in found.recommendation.reason
    assert (
        "no fillfactor can help: 100% of the updates set state, which jobs_ready_idx mentions"
        in found.recommendation.reason
    )


def test_index_that_serves_stays_even_where_it_costs_more_than_it_saves() -> None:
    # A table of two pages: the scan is as cheap, today.
    found = told(of_plan=THROUGH, pages=2, rows=100.0)
    assert found.recommendation.action == "leave"
    assert knob(found, "claim index").verdict == "keep"
    assert knob(found, "claim index").arithmetic[-1] == "it saves nothing, however often claims run"


@pytest.mark.parametrize("fillfactor", [100, 70])
def test_no_fillfactor_where_the_state_is_in_a_predicate(fillfactor: int) -> None:
    found = told(of_plan=THROUGH, options=(f"fillfactor={fillfactor}",), newpage=900)
    fill = knob(found, "fillfactor")
    assert (fill.today, fill.computed, fill.verdict) == (str(fillfactor), None, "cannot help")
    assert found.recommendation.action == "leave"
    assert not any("fillfactor" in one.change for one in found.corners if one.name == "claim index, no HOT")


def test_no_fillfactor_where_the_state_is_a_key() -> None:
    index = build.index(2002, "jobs_state_idx", [2, 5, 1], rows=20_000.0)
    found = told(indexes=(PKEY, index), of_plan=plan(index="jobs_state_idx", buffers=4))
    assert knob(found, "fillfactor").verdict == "cannot help"
    assert "state, which jobs_state_idx mentions" in knob(found, "fillfactor").reason
    # An index without a predicate is entered by every update and insert.
    assert found.entries_per_job == 6.0


def test_claims_scan_with_heap_only_updates() -> None:
    found = told(indexes=(PKEY,), of_plan=SCAN, hot=1_000, options=("fillfactor=85",))
    assert found.corner == "HOT, claims scan"
    assert found.hot_reachable == 1.0
    served = corner(found, "claim index, no HOT")
    # 4,000 entries of 24 bytes: 262 on a leaf page, so a root and a leaf, and the job's page.
    assert (served.claim_buffers, served.claim_measured) == (3.0, False)
    assert served.hot_ratio == 0.0
    assert (now(found).entries_per_job, served.entries_per_job) == (1.0, 4.0)
    assert (served.cost_per_s or 0) < (now(found).cost_per_s or 0)
    assert found.recommendation.action == "create-index"
    (remedy,) = found.recommendation.remedies
    assert remedy.sql[-1] == (
        "CREATE INDEX CONCURRENTLY jobs_ready_idx ON public.jobs (run_at, id) WHERE state = 'queued';"
    )
    lines = knob(found, "claim index").arithmetic
    assert lines[0] == "it saves 397 buffers a claim, 19,850 buffers per second at 50/s claims"
    assert lines[1].startswith("it costs 150 index entries and ")


def test_partial_index_that_claims_do_not_pay_for() -> None:
    # A claim a second reads twenty pages; the state that the predicate would name is set 2,000 times a second.
    found = told(
        indexes=(PKEY,),
        of_plan=plan(index=None, buffers=20, removed=900),
        pages=20,
        rows=1_000.0,
        claims=10,
        done=20_000,
        hot=20_010,
    )
    assert found.recommendation.action == "leave"
    assert "an index for the claim would cost more than it saves" in found.recommendation.reason
    index = knob(found, "claim index")
    assert (index.verdict, index.reason) == ("does not pay", "claims are too rare")
    assert index.arithmetic[0] == "it saves 18 buffers a claim, 18 buffers per second at 1/s claims"
    assert "it is worth it from" in index.arithmetic[-1]


def test_index_that_would_save_a_few_buffers() -> None:
    found = told(
        indexes=(PKEY,), of_plan=plan(index=None, buffers=8, removed=100), pages=8, rows=400.0, hot=1_000
    )
    assert found.recommendation.action == "leave"
    assert "an index would save a claim 6 buffers only" in found.recommendation.reason


def test_index_that_is_there_and_passed_by() -> None:
    found = told(of_plan=SCAN)
    assert found.corner == "neither"
    assert found.recommendation.action == "use-index"
    assert found.recommendation.title == "Let the claim use public.jobs_ready_idx, which is there"
    assert found.recommendation.remedies == ()


def test_planner_reads_a_small_table_beside_its_index() -> None:
    found = told(of_plan=plan(index=None, buffers=4, removed=20), pages=4, rows=60.0)
    assert found.corner == "claim index, no HOT"
    assert found.recommendation.action == "leave"


def test_both_by_heartbeats_beside_the_claim_index() -> None:
    found = told(
        of_plan=THROUGH, claims=50, done=50, beats=900, inserted=50, hot=880, options=("fillfactor=85",)
    )
    assert found.corner == "both"
    assert found.hot_reachable == 0.9
    assert found.recommendation.action == "leave"
    assert "98% of the updates that no index blocks are heap-only already" in found.recommendation.reason
    assert knob(found, "fillfactor").verdict == "keep"


def test_fillfactor_for_heartbeats_on_full_pages() -> None:
    found = told(
        of_plan=THROUGH,
        claims=50,
        done=50,
        beats=900,
        inserted=50,
        hot=100,
        newpage=850,
        width=900,
        pages=2_500,
    )
    assert found.corner == "claim index, no HOT"
    assert found.recommendation.action == "set-fillfactor"
    (remedy,) = found.recommendation.remedies
    assert remedy.sql[-1] == "ALTER TABLE public.jobs SET (fillfactor = 85);"
    fill = knob(found, "fillfactor")
    assert (fill.today, fill.computed, fill.verdict) == ("100", "85", "change")
    assert fill.arithmetic == (
        "a page of 8,192 bytes holds 8 rows of 972 bytes",
        "each page is updated 0.04 times in the 1 s before old versions can be pruned; a row is updated 0.05 times in its life: room for 1 version is needed",
        "7 of 8 rows are 87% of the page; in steps of 5, fillfactor 85",
    )
    better = next(one for one in found.corners if one.change == "with fillfactor 85")
    assert (better.name, better.hot_ratio) == ("both", 0.9)
    assert (better.entries_per_job or 0) < (now(found).entries_per_job or 0)


def test_no_fillfactor_while_the_horizon_is_held() -> None:
    found = told(of_plan=THROUGH, claims=50, done=50, beats=900, hot=100, newpage=850, width=900, held=True)
    assert found.recommendation.action == "leave"
    assert "no fillfactor lasts while the horizon is held" in found.recommendation.reason
    assert knob(found, "autovacuum").verdict == "cannot help"


def test_index_that_claims_do_not_need_blocks_heartbeats() -> None:
    found = told(indexes=(PKEY, READY, BEATS), of_plan=THROUGH, claims=50, done=50, beats=900, inserted=50)
    assert found.updates_blocked_by_others == 0.9
    assert found.recommendation.action == "remove-blocker"
    assert "jobs_heartbeat_at_idx" in found.recommendation.title
    assert "keeps 90/s updates from being heap-only" in found.recommendation.reason
    better = next(one for one in found.corners if one.change == "without index jobs_heartbeat_at_idx")
    assert better.entries_per_job is not None
    assert knob(found, "fillfactor").verdict == "cannot help"


def test_brin_blocks_before_16_only() -> None:
    brin = replace(BEATS, method="brin")
    old = told(indexes=(PKEY, READY, brin), of_plan=THROUGH, claims=50, done=50, beats=900, version=150000)
    new = told(indexes=(PKEY, READY, brin), of_plan=THROUGH, claims=50, done=50, beats=900, hot=900)
    assert old.updates_blocked_by_others == 0.9
    assert new.updates_blocked_by_others == 0.0


def test_equal_values_count_as_reachable() -> None:
    # The texts set an indexed column, the counters say that nearly all updates were heap-only.
    found = told(of_plan=THROUGH, hot=980)
    assert found.hot_reachable == pytest.approx(0.98)
    assert found.corner == "both"


def test_entries_of_dead_rows_are_no_fault_of_the_index() -> None:
    found = told(of_plan=plan(index="jobs_ready_idx", buffers=5_000))
    assert "4,995 of them for entries of dead rows" in found.recommendation.reason
    assert knob(found, "claim index").arithmetic[0].startswith("it saves 397 buffers a claim")
    assert found.recommendation.action == "leave"


def test_wal_is_estimated_where_it_is_not_counted() -> None:
    found = told(of_plan=THROUGH, wal=None)
    assert not found.wal_measured
    assert any("WAL is estimated" in one for one in found.notes)
    assert found.wal_bytes_per_job is not None


def test_updates_hidden_in_functions() -> None:
    found = told(of_plan=THROUGH, texts=False, claims=10, done=990)
    assert found.hot_reachable is None
    assert any("functions hide theirs" in one for one in found.notes)
    assert knob(found, "fillfactor").verdict == "not known"
    assert found.recommendation.action == "leave"


def test_without_updates() -> None:
    found = told(of_plan=THROUGH, claims=0, done=0, hot=0)
    assert found.hot_reached is None
    assert found.recommendation.action == "leave"
    assert "no claim was seen in the window" in found.recommendation.reason


def test_autovacuum_is_computed_from_the_churn() -> None:
    found = told(of_plan=THROUGH, claims=2_000, done=2_000, rows=400_000.0, pages=8_000)
    auto = knob(found, "autovacuum")
    assert auto.verdict == "change"
    assert auto.computed == "threshold 10000, scale factor 0"
    assert auto.arithmetic[0] == "a vacuum is due after 80,050 dead rows: 50 and 20% of 400,000 rows"
    assert "400 dead rows per second" in auto.arithmetic[1]


def test_a_standby_and_a_table_without_claims_have_none() -> None:
    seen = look(of_plan=THROUGH, on={"in_recovery": True})
    assert triangle_of(seen, build.the_queue(seen)) is None
    seen = look(of_plan=THROUGH)
    restarted = replace(seen, last=replace(seen.last, database=build.database(started_s=1.0)))
    assert triangle_of(restarted, build.the_queue(restarted)) is None


@pytest.mark.parametrize(("fillfactor", "share"), [(100, 0.0), (95, 0.25), (80, 1.0), (50, 1.0)])
def test_room_at_a_fillfactor(fillfactor: int, share: float) -> None:
    room = PageRoom(
        row_bytes=80,
        rows_per_page=100,
        updates_per_life=2.0,
        updates_per_page=19.0,
        lag_s=1.0,
        spare=20,
        fillfactor=80,
    )
    assert room.heap_only_share(fillfactor) == share
