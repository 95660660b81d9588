"""Straight lines: what they foretell, where they stop, and how they were drawn."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from pgqdoctor.forecast import (
    FARTHEST_S,
    SLOW_CLAIM_MS,
    backlog,
    claim_cost,
    dead_made_per_s,
    dead_rows_in,
    exhausted,
    forecasts,
    time_until,
)
from pgqdoctor.observation import Observation, PlanProbe, Sample
from pgqdoctor.queue import Queue
from tests.checks import build


def plan(*, buffers: int, ms: float) -> PlanProbe:
    node = {
        "Node Type": "Limit",
        "Plan Rows": 1,
        "Startup Cost": 0.0,
        "Total Cost": 1.0,
        "Plan Width": 8,
        "Actual Rows": 1,
        "Actual Loops": 1,
        "Shared Hit Blocks": buffers,
        "Shared Read Blocks": 0,
    }
    scan = {
        **node,
        "Node Type": "Index Scan",
        "Parent Relationship": "Outer",
        "Relation Name": "jobs",
        "Alias": "jobs",
        "Index Name": "jobs_ready_idx",
        "Scan Direction": "Forward",
        "Rows Removed by Filter": 0,
    }
    document = [{"Plan": {**node, "Plans": [scan]}, "Planning Time": 0.1, "Execution Time": ms}]
    return PlanProbe(mode="select", sql="SELECT 1", document=json.dumps(document))


def observed(
    *,
    dead: int = 5_000,
    deleted: int = 1_000,
    inserted: int = 0,
    held: bool = True,
    buffers: int = 5_003,
    ms: float = 5.0,
    claims: int = 0,
    mean_ms: float = 5.0,
    mean_buffers: int = 5_003,
    samples: tuple[Sample, ...] = (),
    **probe: Any,
) -> tuple[Observation, Queue]:
    """A queue whose claim one EXPLAIN timed at ``ms``, and ``claims`` of the window at ``mean_ms`` on average."""
    session = build.session(41, state="idle in transaction", xmin=700, xmin_age=9_000, xact_age_s=60.0)
    sessions = (session,) if held else ()
    counted = (
        build.calls("1/10/1", claims, total_ms=claims * mean_ms, blocks_hit=claims * mean_buffers),
        build.calls("2/10/1", claims),
    )
    seen = build.observation(
        statements={"1/10/1": (build.CLAIM, claims, claims), "2/10/1": (build.FINISH, claims, claims)},
        samples=samples,
        first=build.reading(
            0.0,
            sessions=sessions,
            statements=(build.calls("1/10/1", 0), build.calls("2/10/1", 0)),
        ),
        last=build.reading(
            build.WINDOW_S,
            sessions=sessions,
            statements=counted,
            tables=(build.counters(dead=dead, deleted=deleted, inserted=inserted),),
        ),
        probes=(build.probe(plans=(plan(buffers=buffers, ms=ms),), **probe),),
    )
    return seen, build.the_queue(seen)


class TestLine:
    def test_reached_already(self) -> None:
        assert time_until(10, 10, 0) == 0.0

    def test_linear(self) -> None:
        assert time_until(10, 100, 3) == 30.0

    @pytest.mark.parametrize("per_second", [0.0, -1.0])
    def test_never(self, per_second: float) -> None:
        assert time_until(10, 100, per_second) is None

    def test_no_line_reaches_beyond_ten_years(self) -> None:
        assert time_until(0, FARTHEST_S, 1) == FARTHEST_S
        assert time_until(0, FARTHEST_S + 1, 1) is None

    def test_a_space_of_numbers(self) -> None:
        found = exhausted(what="The member space", used=3e9, limit=4e9, per_second=1_286, unit="members")
        assert found is not None
        assert found.what == "The member space is used up in about 9 days"
        assert found.how == "1 billion of 4 billion members left, 1,286/s used"
        assert exhausted(what="It", used=0, limit=1e18, per_second=1) is None


class TestDeadRows:
    def test_the_rate_is_of_what_only_vacuum_removes(self) -> None:
        seen, queue = observed(deleted=1_000)
        assert dead_made_per_s(seen, queue) == 100.0
        assert dead_rows_in(seen, queue, 20) == 7_000


class TestClaimCost:
    def test_the_horizon_is_held_and_each_dead_row_costs_what_it_costs_today(self) -> None:
        seen, queue = observed(dead=5_000, deleted=1_000, buffers=5_003, ms=5.0)
        found = claim_cost(seen, queue)
        assert found is not None
        # 5 ms for 5,000 of them: a microsecond each, and 95 ms more at 100 rows per second.
        assert found.seconds == pytest.approx(950, rel=0.01)
        assert found.what == "a claim of public.jobs will take more than 100 ms in about 16 min"
        assert found.how == "5 ms and 5,003 buffers now with 5,000 dead rows, 100/s more"

    @pytest.mark.parametrize("ms", [5.0, 8.0, 9.2])
    def test_the_mean_of_many_claims_is_steadier_than_one_explain(self, ms: float) -> None:
        seen, queue = observed(ms=ms, claims=1_000, mean_ms=5.0)
        found = claim_cost(seen, queue)
        assert found is not None
        assert found.seconds == pytest.approx(950, rel=0.01)
        assert found.what == "a claim of public.jobs will take more than 100 ms in about 16 min"
        assert found.how == (
            "5 ms and 5,003 buffers on average of 1,000 claims with 5,000 dead rows, 100/s more"
        )

    def test_too_few_claims_have_no_mean(self) -> None:
        for claims, seconds in ((9, 950), (10, 1_950)):
            found = claim_cost(*observed(claims=claims, mean_ms=2.5))
            assert found is not None
            assert found.seconds == pytest.approx(seconds, rel=0.01)

    def test_two_estimates_that_do_not_agree_are_both_told(self) -> None:
        found = claim_cost(*observed(ms=34.0, claims=1_000, mean_ms=5.0))
        assert found is not None
        # The one EXPLAIN would have it in 97 s.
        assert found.seconds == pytest.approx(950, rel=0.01)
        assert found.what == "a claim of public.jobs will take more than 100 ms in 97 s to 16 min"
        assert found.how.endswith("100/s more; by one EXPLAIN 34 ms and 5,003 buffers now")
        found = claim_cost(*observed(ms=12.0, claims=1_000, mean_ms=5.0))
        assert found is not None
        assert found.what.endswith("in 6 to 16 min")

    def test_one_slow_explain_is_no_claim_that_is_slow_already(self) -> None:
        found = claim_cost(*observed(ms=150.0, claims=1_000, mean_ms=5.0))
        assert found is not None
        assert found.what == "a claim of public.jobs will take more than 100 ms within about 16 min"

    def test_claims_that_are_slow_already_are_so_on_average(self) -> None:
        found = claim_cost(*observed(ms=40.0, claims=1_000, mean_ms=150.0))
        assert found is not None
        assert (found.seconds, found.what) == (0.0, "a claim of public.jobs takes 150 ms already")

    def test_what_a_claim_writes_is_no_dead_row(self) -> None:
        found = claim_cost(*observed(claims=1_000, mean_ms=5.0, mean_buffers=10_000))
        assert found is not None
        assert found.seconds == pytest.approx(1_900, rel=0.01)

    @pytest.mark.parametrize(("waiting", "seconds"), [(10, 950), (11, 950 / 2)])
    def test_time_spent_waiting_for_locks_is_not_the_claims_cost(self, waiting: int, seconds: float) -> None:
        samples = tuple(
            Sample(
                at=place / 10,
                sessions=(build.sampled(9, query_id=1, wait_type="Lock" if place < waiting else None),),
            )
            for place in range(100)
        )
        found = claim_cost(*observed(ms=10.0, claims=1_000, mean_ms=5.0, samples=samples))
        assert found is not None
        assert found.seconds == pytest.approx(seconds, rel=0.06)

    def test_a_clean_claim_costs_nothing_more(self) -> None:
        seen, queue = observed(buffers=3)
        assert claim_cost(seen, queue) is None

    def test_nothing_dies(self) -> None:
        seen, queue = observed(deleted=0)
        assert claim_cost(seen, queue) is None

    def test_vacuum_comes_before_that(self) -> None:
        assert claim_cost(*self.with_threshold(4_000)) is None

    def test_vacuum_that_should_have_come_is_not_counted_on(self) -> None:
        assert claim_cost(*self.with_threshold(2_000)) is not None

    def test_a_trigger_out_of_reach_does_not_come_before_that(self) -> None:
        assert claim_cost(*self.with_threshold(1_000_000)) is not None

    def with_threshold(self, rows: int) -> tuple[Observation, Queue]:
        """Nothing holds the horizon; 5,000 rows are dead, and the trigger lies 200 beyond ``rows``."""
        seen, queue = observed(held=False)
        table = replace(queue.table, options=(f"autovacuum_vacuum_threshold={rows}",))
        seen = replace(seen, catalog=replace(seen.catalog, tables=(table,)))
        return seen, build.the_queue(seen)

    def test_dear_already(self) -> None:
        seen, queue = observed(ms=SLOW_CLAIM_MS)
        found = claim_cost(seen, queue)
        assert found is not None
        assert (found.seconds, found.what) == (0.0, "a claim of public.jobs takes 100 ms already")

    def test_without_a_plan_nothing_is_said(self) -> None:
        seen, _ = observed()
        bare = replace(seen, probes=(build.probe(),))
        assert claim_cost(bare, build.the_queue(bare)) is None


class TestBacklog:
    def test_worked_off(self) -> None:
        _, queue = observed(inserted=1_000, ready_rows=6_000)
        found = backlog(queue, finished_per_s=125.0)
        assert found is not None
        assert found.seconds == pytest.approx(240)
        assert found.what == "the backlog of public.jobs is cleared in about 4 min"
        assert found.how == "6,000 ready jobs, 100 arrive and 125 finish per second"

    def test_a_lower_bound_is_called_one(self) -> None:
        _, queue = observed(inserted=1_000, ready_rows=10_000, ready_exact=False)
        found = backlog(queue, finished_per_s=200.0)
        assert found is not None
        assert "cleared at the earliest in" in found.what
        assert "10,000 ready jobs at least" in found.how

    def test_growing(self) -> None:
        _, queue = observed(inserted=2_000, ready_rows=6_000)
        found = backlog(queue, finished_per_s=100.0)
        assert found is not None
        assert found.seconds is None
        assert found.what == "the backlog of public.jobs grows by 100/s, 360,000 jobs an hour"

    @pytest.mark.parametrize("finished", [100.0, 110.0, 91.0])
    def test_a_difference_within_the_counters_delay_says_nothing(self, finished: float) -> None:
        _, queue = observed(inserted=1_000, ready_rows=6_000)
        assert backlog(queue, finished_per_s=finished) is None

    def test_a_handful_of_ready_jobs_is_no_backlog(self) -> None:
        _, queue = observed(inserted=1_000, ready_rows=1_249)
        assert backlog(queue, finished_per_s=125.0) is None

    def test_unknown_rates(self) -> None:
        _, queue = observed(ready_rows=None)
        assert backlog(queue, finished_per_s=125.0) is None
        _, queue = observed(ready_rows=6_000)
        assert backlog(queue, finished_per_s=None) is None


def test_all_of_one_queue() -> None:
    seen, queue = observed(inserted=1_000, ready_rows=6_000)
    assert [one.queue for one in forecasts(seen, queue, finished_per_s=200.0)] == ["public.jobs"] * 2
