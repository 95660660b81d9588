"""The plan reader on plans recorded by tests/record_plans.py from PostgreSQL 14 to 18, and samples of 19.

Numbers are read off the recorded files. Versions that recorded the same plan must give the same facts.
"""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pgqdoctor.plan import Node, Plan, find, parse_plan, paths, walk
from pgqdoctor.planfacts import (
    LEAF_ENTRIES,
    ClaimPlanFacts,
    DeadWalk,
    SortFacts,
    SubPlanFacts,
    claim_facts,
    dead_walk,
    scan_of,
    tree_lines,
)
from pgqdoctor.sqlfacts import TableName

PLANS = Path(__file__).resolve().parents[2] / "fixtures" / "plans"
RECORDED = (14, 15, 16, 17, 18)
SAMPLED = (*RECORDED, 19)
JOBS = TableName(schema="public", name="jobs")
Q = TableName(schema="public", name="q")


def load(version: int, case: str) -> Plan:
    return parse_plan((PLANS / f"{version}_{case}.json").read_text())


def facts(version: int, case: str, table: TableName = JOBS) -> ClaimPlanFacts:
    found = claim_facts(load(version, case), table)
    assert found is not None
    return found


def walked(version: int, case: str) -> DeadWalk:
    found = dead_walk(facts(version, case))
    assert found is not None
    return found


def only(plan: Plan, node_type: str) -> Node:
    (node,) = find(plan.root, lambda each: each.node_type == node_type)
    return node


def every_file() -> list[Path]:
    return sorted(PLANS.glob("*.json"))


def test_every_version_is_recorded_with_the_same_cases() -> None:
    cases: dict[str, set[str]] = {}
    for path in every_file():
        version, case = path.stem.split("_", 1)
        cases.setdefault(version, set()).add(case)
    assert set(cases) == {str(version) for version in SAMPLED}
    assert all(cases[str(version)] == cases["14"] for version in RECORDED)
    assert cases["19"] == {
        "claim_partial",
        "claim_noindex",
        "claim_many_partial",
        "claim_partial_50locked",
        "skipscan",
    }


# The tree


@pytest.mark.parametrize("path", every_file(), ids=lambda path: path.stem)
def test_tree_keeps_every_node_in_order(path: Path) -> None:
    def types(source: dict[str, Any]) -> list[str]:
        return [source["Node Type"], *(each for child in source.get("Plans", []) for each in types(child))]

    text = path.read_text()
    document = json.loads(text)
    source = document[0] if isinstance(document, list) else document
    plan = parse_plan(text)
    assert [node.node_type for node in walk(plan.root)] == types(source["Plan"])
    assert [each[-1] for each in paths(plan.root)] == list(walk(plan.root))
    assert plan == parse_plan(document) == parse_plan(source) == parse_plan([source])


@pytest.mark.parametrize("version", SAMPLED)
def test_initplan_bears_one_name_on_every_version(version: int) -> None:
    plan = load(version, "claim_partial")
    assert plan.root.operation == "Update"
    assert [child.subplan_name for child in plan.root.children] == ["InitPlan 1", None]
    assert load(version, "claim_many_partial").root.children[0].subplan_name == "CTE c"


def test_initplan_references_are_those_of_the_conditions() -> None:
    for version, spelling in ((14, "$2"), (16, "$2"), (17, "(InitPlan 1)"), (19, "(InitPlan expr_1)")):
        finder, lookup = load(version, "claim_partial").root.children
        assert spelling in finder.subplan_reference
        assert lookup.index_cond is not None
        assert spelling in lookup.index_cond


@pytest.mark.parametrize("version", RECORDED)
def test_scan_node(version: int) -> None:
    scan = scan_of(load(version, "initplan"), JOBS)
    assert scan is not None
    assert (scan.schema, scan.relation, scan.alias, scan.index) == (
        "public",
        "jobs",
        "jobs_1",
        "jobs_ready_idx",
    )
    assert (scan.scan_direction, scan.parent_relationship, scan.children) == ("Forward", "Outer", ())
    assert (scan.plan_rows, scan.actual_rows, scan.loops, scan.total_rows) == (5000, 1.0, 1, 1.0)
    assert (scan.filter, scan.rows_removed_by_filter) == ("(jobs_1.state = 'ready'::text)", 0)
    assert scan.buffers is not None
    assert (scan.buffers.shared_hit, scan.buffers.shared_read, scan.buffers.shared) == (1, 2, 3)
    assert scan.buffers.shared_read_ms is not None
    assert scan.wal_records is None


def test_keys_that_only_some_versions_have() -> None:
    old, new = (scan_of(load(version, "initplan"), JOBS) for version in (17, 18))
    assert old is not None
    assert new is not None
    assert (old.index_searches, old.disabled) == (None, None)
    assert (new.index_searches, new.disabled) == (1, False)
    assert old.buffers is not None
    assert old.buffers.local_read_ms == 0.0
    older = scan_of(load(14, "initplan"), JOBS)
    assert older is not None
    assert older.buffers is not None
    assert (older.buffers.local_read_ms, older.buffers.temp_read_ms) == (None, None)


@pytest.mark.parametrize("version", SAMPLED)
def test_wal_of_the_sampled_claim(version: int) -> None:
    root = load(version, "claim_many_partial").root
    assert root.wal_records is not None
    assert root.wal_records >= 10
    assert root.wal_bytes is not None


@pytest.mark.parametrize("version", RECORDED)
def test_plan_without_analyze_measures_nothing(version: int) -> None:
    plan = load(version, "plan_only")
    assert (plan.analyzed, plan.execution_ms, plan.planning_ms, plan.planning_buffers) == (
        False,
        None,
        None,
        None,
    )
    for node in walk(plan.root):
        assert (node.actual_rows, node.loops, node.total_rows, node.buffers, node.never_run) == (
            None,
            None,
            None,
            None,
            False,
        )


@pytest.mark.parametrize("version", RECORDED)
def test_analyze_without_times_and_buffers(version: int) -> None:
    plan = load(version, "bare")
    assert plan.analyzed
    assert plan.execution_ms is not None
    assert (plan.root.total_ms, plan.root.buffers, plan.root.total_rows) == (None, None, 1.0)
    claim = facts(version, "bare")
    assert (claim.measured, claim.rows, claim.buffers, claim.buffers_per_row, claim.time_ms) == (
        True,
        1.0,
        None,
        None,
        None,
    )
    assert dead_walk(claim) is None


@pytest.mark.parametrize("version", RECORDED)
def test_triggers(version: int) -> None:
    (trigger,) = load(version, "trigger").triggers
    assert (trigger.name, trigger.relation, trigger.calls, trigger.constraint) == (
        "jobs_touch",
        "jobs",
        1,
        None,
    )
    assert trigger.time_ms is not None
    assert load(version, "initplan").triggers == ()


@pytest.mark.parametrize("version", RECORDED)
def test_node_that_was_never_run(version: int) -> None:
    plan = load(version, "one_time_filter")
    result = only(plan, "Result")
    assert result.one_time_filter == "(now() < '2000-01-01 00:00:00+00'::timestamp with time zone)"
    assert result.children[0].never_run
    claim = facts(version, "one_time_filter")
    assert (claim.rows, claim.partitions, claim.partitions_planned) == (0.0, 0, 1)
    assert (claim.estimate_factor, dead_walk(claim)) == (None, None)


@pytest.mark.parametrize("version", RECORDED)
def test_parallel_sort_adds_up_its_participants(version: int) -> None:
    plan = load(version, "parallel")
    gather = only(plan, "Gather Merge")
    assert (gather.workers_planned, gather.workers_launched) == (2, 2)
    sort = only(plan, "Sort")
    assert (sort.sort_space_kb, sort.sort_space_type) == (75, "Memory")
    claim = facts(version, "parallel")
    assert claim.scan_loops == 3
    assert claim.scan_rows == pytest.approx(5000, abs=1.5)
    # 5,000 finished rows: the average of three processes is rounded to a whole row.
    assert claim.rows_removed_by_filter == 5001


def test_settings_and_jit() -> None:
    assert dict(load(18, "claim_partial").settings) == {"jit": "off", "max_parallel_workers_per_gather": "0"}
    assert load(19, "claim_partial").settings == ()
    timed = parse_plan({"Plan": {"Node Type": "Result"}, "JIT": {"Functions": 3, "Timing": {"Total": 41.5}}})
    assert (timed.jit_ms, load(18, "initplan").jit_ms) == (41.5, None)


# Malformed documents


@pytest.mark.parametrize(
    ("document", "sentence"),
    [
        ("", "The plan is not JSON"),
        ("Limit  (cost=0.28..0.41 rows=1 width=8)", "The plan is not JSON"),
        ("3", "The plan is a number where a JSON object is expected."),
        ([], "The document holds 0 plans where one is expected."),
        ([{"Plan": {}}, {"Plan": {}}], "The document holds 2 plans where one is expected."),
        ([None], "The plan is null where a JSON object is expected."),
        ({}, 'The document has no "Plan": it is not the output of EXPLAIN (FORMAT JSON).'),
        ({"Plan": []}, '"Plan" of the plan is a list where an object is expected.'),
        ({"Plan": {}}, 'A node of the plan has no "Node Type".'),
        ({"Plan": {"Node Type": 7}}, '"Node Type" of the plan is a number where text is expected.'),
        ({"Plan": {"Node Type": "Limit", "Plans": {}}}, '"Plans" of the plan is an object where a list'),
        ({"Plan": {"Node Type": "Limit", "Plans": [1]}}, '"Plans" of the plan is a number where an object'),
        (
            {"Plan": {"Node Type": "Limit", "Actual Rows": "1"}},
            '"Actual Rows" of the plan is text where a number is expected.',
        ),
        (
            {"Plan": {"Node Type": "Limit", "Actual Loops": True}},
            '"Actual Loops" of the plan is true or false where a number is expected.',
        ),
        (
            {"Plan": {"Node Type": "Limit", "Disabled": "no"}},
            '"Disabled" of the plan is text where true or false is expected.',
        ),
        ({"Plan": {"Node Type": "Sort", "Sort Key": "id"}}, '"Sort Key" of the plan is text where a list'),
        ({"Plan": {"Node Type": "Sort", "Sort Key": [1]}}, '"Sort Key" of the plan is a number where text'),
        (
            '{"Plan": {"Node Type": "Limit", "Total Cost": Infinity}}',
            '"Total Cost" of the plan is not a finite number.',
        ),
    ],
)
def test_malformed_document(document: Any, sentence: str) -> None:
    with pytest.raises(ValueError, match=re.escape(sentence)):
        parse_plan(document)


def test_nesting_beyond_reading() -> None:
    document = '{"Plan": ' + '{"Node Type": "Limit", "Plans": [' * 100_000
    with pytest.raises(ValueError, match="nested too deeply"):
        parse_plan(document)


KEYS = ["Plan", "Plans", "Node Type", "Relation Name", "Alias", "Actual Rows", "Actual Loops", "Sort Key"]
LEAVES = (
    st.none() | st.booleans() | st.integers() | st.floats() | st.sampled_from(["Limit", "jobs", "jobs_1"])
)
TREES = st.recursive(
    LEAVES,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(KEYS), inner, max_size=6),
    max_leaves=20,
)


@given(TREES)
def test_any_document_is_read_or_refused(document: Any) -> None:
    try:
        plan = parse_plan(document)
    except ValueError as error:
        assert str(error).endswith(".")
    else:
        assert len(tree_lines(plan)) >= 1
        assert claim_facts(plan, JOBS) is None


NODES = st.recursive(
    st.fixed_dictionaries(
        {"Node Type": st.sampled_from(["Seq Scan", "Index Scan", "Index Only Scan", "Limit", "LockRows"])},
        optional={
            "Relation Name": st.sampled_from(["jobs", "other"]),
            "Index Name": st.just("jobs_ready_idx"),
            "Parent Relationship": st.sampled_from(["Outer", "Inner", "SubPlan", "InitPlan", "Member"]),
            "Subplan Name": st.sampled_from(["InitPlan 1", "CTE c"]),
            "Actual Rows": st.integers(0, 10_000),
            "Actual Loops": st.integers(0, 50),
            "Plan Rows": st.integers(1, 10_000),
            "Shared Hit Blocks": st.integers(0, 10_000),
            "Heap Fetches": st.integers(0, 10_000),
            "Rows Removed by Filter": st.integers(0, 10_000),
        },
    ),
    lambda inner: st.builds(
        lambda node_type, plans: {"Node Type": node_type, "Plans": plans},
        st.sampled_from(["Limit", "LockRows", "Append", "Nested Loop", "ModifyTable", "Sort"]),
        st.lists(inner, min_size=1, max_size=3),
    ),
    max_leaves=6,
)


@given(NODES)
def test_facts_of_any_tree_hold_together(node: Any) -> None:
    plan = parse_plan({"Plan": node})
    scan, claim = scan_of(plan, JOBS), claim_facts(plan, JOBS)
    assert (scan is None) == (claim is None)
    if claim is None:
        return
    assert claim.partitions <= claim.partitions_planned
    assert claim.rows_skipped_locked is None or claim.rows_skipped_locked >= 0
    assert claim.estimate_factor is None or claim.estimate_factor >= 1
    walk_in_vain = dead_walk(claim)
    if walk_in_vain is not None:
        assert walk_in_vain.dead_entries >= walk_in_vain.unexplained_buffers >= 0
        assert walk_in_vain.unexplained_buffers <= walk_in_vain.buffers


# The claim


@pytest.mark.parametrize(
    ("version", "buffers", "scan_buffers"),
    [(14, 4, 2), (15, 4, 2), (16, 4, 2), (17, 4, 2), (18, 4, 2), (19, 4, 3)],
)
def test_partial_index_claim(version: int, buffers: int, scan_buffers: int) -> None:
    """The figures are those of the InitPlan; the whole UPDATE of version 18 touches 18 buffers."""
    claim = facts(version, "claim_partial", Q)
    assert (claim.buffers, claim.scan_buffers, claim.rows, claim.buffers_per_row) == (
        buffers,
        scan_buffers,
        1.0,
        float(buffers),
    )
    assert (claim.scan_type, claim.index, claim.indexes) == ("Index Scan", "q_ready", ("q_ready",))
    assert (claim.order_from_index, claim.sort, claim.limit_loops) == (True, None, 1)
    assert (claim.estimated_rows, claim.actual_rows, claim.estimate_factor) == (200, 1.0, None)
    assert (claim.partitions, claim.subplans, claim.temp_blocks) == (1, (), 0)


@pytest.mark.parametrize("version", SAMPLED)
def test_filter_under_a_row_lock_is_no_fault_while_it_removes_nothing(version: int) -> None:
    """FOR UPDATE checks a row again once it is locked, so the index predicate is shown as Filter."""
    claim = facts(version, "claim_partial", Q)
    assert claim.filter == "((state = 'ready'::text) AND (queue = 'default'::text))"
    assert claim.rows_removed_by_filter == 0


@pytest.mark.parametrize("version", SAMPLED)
def test_claim_without_an_index(version: int) -> None:
    claim = facts(version, "claim_noindex", Q)
    assert claim.rows_removed_by_filter == 19_800
    assert (claim.scan_type, claim.index, claim.indexes, claim.index_searches) == (
        "Seq Scan",
        None,
        (),
        None,
    )
    assert (claim.buffers, claim.scan_buffers) == ((393, 386) if version == 19 else (366, 364))
    assert claim.sort is not None
    assert (claim.sort.keys, claim.sort.rows, claim.sort.spilled) == (
        ("q_1.priority", "q_1.id"),
        200.0,
        False,
    )
    # The sort reads the scan to its end, so the estimate can be judged.
    assert claim.estimate_factor == 1.0
    assert not claim.order_from_index
    assert dead_walk(claim) is None


@pytest.mark.parametrize("version", SAMPLED)
def test_rows_locked_by_others_are_skipped_and_not_dead(version: int) -> None:
    claim = facts(version, "claim_partial_50locked", Q)
    assert (claim.rows, claim.scan_rows, claim.rows_skipped_locked) == (1.0, 51.0, 50.0)
    assert claim.buffers == (103 if version == 19 else 154)
    in_vain = dead_walk(claim)
    assert in_vain is not None
    assert (in_vain.buffers, in_vain.unexplained_buffers, in_vain.dead_entries) == (52, 0, 0)


@pytest.mark.parametrize("version", SAMPLED)
def test_batch_in_a_cte(version: int) -> None:
    plan = load(version, "claim_many_partial")
    claim = facts(version, "claim_many_partial", Q)
    assert (claim.rows, claim.scan_rows, claim.rows_skipped_locked) == (10.0, 10.0, 0.0)
    assert (claim.buffers, claim.buffers_per_row) == ((22, 2.2) if version == 19 else (31, 3.1))
    scan = scan_of(plan, Q)
    assert scan is not None
    assert scan.index == "q_ready"


@pytest.mark.parametrize("version", RECORDED)
@pytest.mark.parametrize("case", ["initplan", "cte", "delete_using"])
def test_every_form_of_the_claim_costs_the_same_to_find(version: int, case: str) -> None:
    claim = facts(version, case)
    assert (claim.buffers, claim.scan_buffers, claim.rows, claim.index) == (5, 3, 1.0, "jobs_ready_idx")
    assert (claim.rows_skipped_locked, claim.rows_removed_by_filter, claim.limit_loops) == (0.0, 0, 1)


@pytest.mark.parametrize("version", RECORDED)
def test_half_consumed_queue_in_primary_key_order(version: int) -> None:
    claim = facts(version, "half_consumed_pkey")
    assert (claim.index, claim.order_from_index) == ("jobs_pkey", True)
    assert (claim.rows_removed_by_filter, claim.buffers, claim.scan_buffers) == (5000, 114, 112)
    in_vain = dead_walk(claim)
    assert in_vain is not None
    assert (in_vain.unexplained_buffers, in_vain.dead_entries) == (0, 0)


SORTED_KB = {14: 583, 15: 505, 16: 427, 17: 388, 18: 388}
SPILLED = {14: (1320, 853), 15: (1320, 864), 16: (1360, 868), 17: (1320, 532), 18: (1320, 532)}
"""kB of the sort and blocks of temporary files, which each release lays out a little differently."""


@pytest.mark.parametrize("version", RECORDED)
def test_half_consumed_queue_without_an_index(version: int) -> None:
    claim = facts(version, "half_consumed_sort")
    assert (claim.rows_removed_by_filter, claim.buffers, claim.scan_rows) == (5000, 195, 5000.0)
    assert claim.sort == SortFacts(
        keys=("jobs_1.priority", "jobs_1.id"),
        presorted=(),
        incremental=False,
        method="quicksort",
        space_kb=SORTED_KB[version],
        spilled=False,
        rows=5000.0,
        expected_rows=5000,
    )


@pytest.mark.parametrize("version", RECORDED)
def test_sort_that_spills(version: int) -> None:
    claim = facts(version, "sort_spill")
    assert claim.sort is not None
    assert (claim.sort.method, claim.sort.spilled, claim.sort.rows) == ("external merge", True, 10_000.0)
    assert (claim.sort.space_kb, claim.temp_blocks) == SPILLED[version]


@pytest.mark.parametrize("version", RECORDED)
def test_incremental_sort(version: int) -> None:
    claim = facts(version, "incremental_sort")
    assert claim.sort == SortFacts(
        keys=("jobs.priority", "jobs.id"),
        presorted=("jobs.priority",),
        incremental=True,
        method="top-N heapsort",
        space_kb=25,
        spilled=False,
        rows=100.0,
        expected_rows=10_000,
    )
    # It stopped after the first group: 100 rows of 10,000 are no wrong estimate.
    assert (claim.actual_rows, claim.estimate_factor, claim.order_from_index) == (100.0, None, False)


def test_sort_groups_on_disk() -> None:
    group = {
        "Group Count": 2,
        "Sort Methods Used": ["quicksort", "external merge"],
        "Sort Space Memory": {"Average Sort Space Used": 20, "Peak Sort Space Used": 30},
        "Sort Space Disk": {"Average Sort Space Used": 800, "Peak Sort Space Used": 900},
    }
    plan = parse_plan({"Plan": {"Node Type": "Incremental Sort", "Full-sort Groups": group}})
    assert (plan.root.sort_method, plan.root.sort_space_kb, plan.root.sort_space_type) == (
        "quicksort and external merge",
        900,
        "Disk",
    )


@pytest.mark.parametrize("version", RECORDED)
def test_limit_subquery_that_runs_again_for_each_row(version: int) -> None:
    claim = facts(version, "limit_loops")
    assert (claim.limit_loops, claim.rows) == (41, 41.0)
    assert (claim.scan_rows, claim.scan_loops) == (861.0, 41)
    # Each run steps over the rows the runs before it have taken: 0 + 1 + ... + 40.
    assert claim.rows_skipped_locked == 820.0
    assert (claim.estimated_rows, claim.actual_rows, claim.estimate_factor) == (1, 21.0, 21.0)
    assert claim.buffers == (932 if version >= 17 else 902)


@pytest.mark.parametrize("version", RECORDED)
def test_generic_plan_misses_the_partial_index(version: int) -> None:
    claim = facts(version, "generic_plan")
    assert (claim.measured, claim.scan_type, claim.index, claim.filter) == (
        False,
        "Seq Scan",
        None,
        "(jobs.state = $1)",
    )
    assert (claim.buffers, claim.rows, claim.rows_removed_by_filter, claim.limit_loops) == (
        None,
        None,
        None,
        None,
    )
    assert claim.sort is not None
    assert (claim.sort.expected_rows, claim.sort.rows, claim.sort.spilled) == (5000, None, None)
    assert dead_walk(claim) is None


@pytest.mark.parametrize("version", RECORDED)
def test_plan_only_claim(version: int) -> None:
    claim = facts(version, "plan_only")
    assert (claim.index, claim.order_from_index, claim.estimated_rows, claim.cost) == (
        "jobs_ready_idx",
        True,
        5000,
        0.41,
    )
    assert (claim.rows_skipped_locked, claim.scan_buffers, claim.estimate_factor) == (None, None, None)


@pytest.mark.parametrize(
    ("version", "searches", "buffers"),
    [(14, None, 169), (15, None, 169), (16, None, 169), (17, None, 169), (18, 3, 162), (19, 3, 399)],
)
def test_skip_scan(version: int, searches: int | None, buffers: int) -> None:
    claim = facts(version, "skipscan", Q)
    assert (claim.index_searches, claim.buffers, claim.rows) == (searches, buffers, 4000.0)
    assert (claim.index_cond, claim.limit_loops) == ("(priority = 3)", None)
    assert claim.estimate_factor == 1.0


@pytest.mark.parametrize("version", RECORDED)
def test_partitions_are_added_up(version: int) -> None:
    merged = facts(version, "partitions_merged")
    assert (merged.partitions, merged.partitions_planned) == (3, 3)
    assert merged.indexes == (
        "jobs_image_priority_id_idx",
        "jobs_mail_priority_id_idx",
        "jobs_video_priority_id_idx",
    )
    assert (merged.scan_rows, merged.scan_buffers, merged.buffers, merged.rows) == (3.0, 9, 11, 1.0)
    assert (merged.order_from_index, merged.rows_skipped_locked) == (True, 0.0)
    assert merged.estimated_rows == 1500

    appended = facts(version, "partitions_appended")
    assert (appended.partitions, appended.scan_rows, appended.scan_buffers) == (3, 1500.0, 21)
    assert (appended.rows_removed_by_filter, appended.index, appended.estimate_factor) == (1500, None, 1.0)
    assert appended.sort is not None
    assert appended.sort.rows == 1500.0


@pytest.mark.parametrize("version", RECORDED)
def test_partitions_the_limit_never_reached(version: int) -> None:
    """The statement calls the table j, so the partitions are j_1, j_2 and j_3."""
    claim = facts(version, "partitions_unordered")
    assert (claim.partitions, claim.partitions_planned) == (1, 3)
    assert (claim.rows, claim.rows_removed_by_filter) == (1.0, 500)
    named = claim_facts(
        load(version, "partitions_unordered"), JOBS, partitions=("jobs_image", "jobs_mail", "jobs_video")
    )
    assert named == claim


@pytest.mark.parametrize("version", RECORDED)
def test_single_partition_under_an_alias_must_be_named(version: int) -> None:
    plan = load(version, "partition_pruned")
    assert claim_facts(plan, JOBS) is None
    claim = claim_facts(plan, JOBS, partitions={"jobs_image"})
    assert claim is not None
    assert (claim.index, claim.rows_removed_by_filter, claim.scan_buffers) == ("jobs_image_pkey", 500, 7)


@pytest.mark.parametrize("version", RECORDED)
def test_subquery_in_the_filter(version: int) -> None:
    claim = facts(version, "subplan")
    assert claim.subplans == (
        SubPlanFacts(name="SubPlan 1", loops=1, buffers=39, share=39 / 44, dear=True, cost=69.01),
    )
    # The scan's own work is 3 buffers; the counting costs 39.
    assert (claim.buffers, claim.scan_buffers, claim.index) == (44, 3, "jobs_ready_idx")
    assert claim.filter is not None
    scan = scan_of(load(version, "subplan"), JOBS)
    assert scan is not None
    assert scan.alias == "j"


@pytest.mark.parametrize("version", RECORDED)
def test_initplan_charged_to_the_scan_that_asks_for_it(version: int) -> None:
    claim = facts(version, "initplan_in_scan")
    scan = scan_of(load(version, "initplan_in_scan"), JOBS)
    assert scan is not None
    assert scan.buffers is not None
    assert (scan.buffers.shared, claim.scan_buffers, claim.buffers) == (45, 6, 47)
    (subplan,) = claim.subplans
    assert (subplan.name, subplan.buffers, subplan.dear) == ("InitPlan 1", 39, True)
    in_vain = dead_walk(claim)
    assert in_vain is not None
    assert in_vain.unexplained_buffers == 1


@pytest.mark.parametrize("version", RECORDED)
def test_second_look_at_the_queue_is_not_the_claim(version: int) -> None:
    scan = scan_of(load(version, "anti_join"), JOBS)
    assert scan is not None
    assert (scan.alias, scan.actual_rows) == ("j", 1000.0)
    claim = facts(version, "anti_join")
    assert (claim.rows_removed_by_filter, claim.scan_buffers, claim.buffers) == (1000, 39, 80)


def test_row_preserving_side_of_a_join() -> None:
    def joined(join_type: str) -> Node | None:
        ours: dict[str, object] = {"Node Type": "Seq Scan", "Relation Name": "jobs"}
        sides = [
            {**ours, "Alias": "outer", "Parent Relationship": "Outer"},
            {**ours, "Alias": "inner", "Parent Relationship": "Inner"},
        ]
        join = {"Node Type": "Hash Join", "Join Type": join_type, "Plans": sides}
        return scan_of(parse_plan({"Plan": {"Node Type": "LockRows", "Plans": [join]}}), JOBS)

    chosen = {kind: joined(kind) for kind in ("Inner", "Semi", "Anti", "Right Semi", "Right Anti")}
    assert {kind: node and node.alias for kind, node in chosen.items()} == {
        "Inner": "outer",
        "Semi": "outer",
        "Anti": "outer",
        "Right Semi": "inner",
        "Right Anti": "inner",
    }


@pytest.mark.parametrize("version", RECORDED)
def test_rows_removed_by_a_join(version: int) -> None:
    claim = facts(version, "join_filter")
    assert (claim.rows_removed_by_join_filter, claim.rows, claim.scan_rows) == (100, 0.0, 100.0)


def test_other_tables_and_schemas() -> None:
    plan = load(18, "initplan")
    assert claim_facts(plan, TableName(schema="public", name="mail")) is None
    assert scan_of(plan, TableName(schema="other", name="jobs")) is None
    assert scan_of(plan, TableName(schema=None, name="jobs")) is not None
    # Without VERBOSE the plan names no schema: the table's name alone decides.
    assert scan_of(load(18, "bare"), TableName(schema="other", name="jobs")) is not None


# Entries of dead rows


@pytest.mark.parametrize("version", RECORDED)
@pytest.mark.parametrize("case", ["select", "lock"])
def test_dead_entries_in_heap_order(version: int, case: str) -> None:
    """5,000 dead entries on 97 heap pages and 20 leaf pages, under one root: 118 buffers for one row."""
    assert walked(version, f"{case}_dead") == DeadWalk(
        buffers=118, expected_buffers=5, unexplained_buffers=113, dead_entries=113, counted=False
    )
    claim = facts(version, f"{case}_dead")
    assert (claim.rows, claim.rows_removed_by_filter or 0, claim.rows_skipped_locked or 0) == (1.0, 0, 0)
    assert walked(version, f"{case}_vacuumed") == DeadWalk(
        buffers=3, expected_buffers=5, unexplained_buffers=0, dead_entries=0, counted=False
    )


@pytest.mark.parametrize("version", RECORDED)
def test_dead_entries_in_another_order_than_the_heap(version: int) -> None:
    dead, vacuumed = walked(version, "scattered_dead"), walked(version, "scattered_vacuumed")
    assert (dead.buffers, dead.unexplained_buffers, dead.dead_entries) == (5017, 5012, 5012)
    assert (vacuumed.buffers, vacuumed.unexplained_buffers) == (3, 0)


@pytest.mark.parametrize("version", RECORDED)
def test_index_only_scan_counts_dead_entries(version: int) -> None:
    assert facts(version, "index_only_dead").heap_fetches == 5001
    assert walked(version, "index_only_dead") == DeadWalk(
        buffers=119, expected_buffers=6, unexplained_buffers=113, dead_entries=5000, counted=True
    )
    assert walked(version, "index_only_vacuumed") == DeadWalk(
        buffers=3, expected_buffers=6, unexplained_buffers=0, dead_entries=0, counted=True
    )


@pytest.mark.parametrize("version", RECORDED)
def test_bitmap_counts_dead_entries(version: int) -> None:
    claim = facts(version, "bitmap_dead")
    assert (claim.bitmap_entries, claim.scan_rows, claim.index) == (10_000.0, 5000.0, "jobs_ready_idx")
    assert (claim.scan_type, claim.order_from_index) == ("Bitmap Heap Scan", False)
    dead, vacuumed = walked(version, "bitmap_dead"), walked(version, "bitmap_vacuumed")
    assert (dead.dead_entries, dead.counted, dead.buffers) == (5000, True, 233)
    assert (vacuumed.dead_entries, vacuumed.counted, vacuumed.buffers) == (0, True, 118)


@pytest.mark.parametrize("version", RECORDED)
def test_lossy_bitmap_counts_nothing(version: int) -> None:
    claim = facts(version, "bitmap_lossy")
    assert (claim.rows_removed_by_index_recheck, claim.bitmap_entries) == (4401, None)
    heap = only(load(version, "bitmap_lossy"), "Bitmap Heap Scan")
    assert (heap.exact_heap_blocks, heap.lossy_heap_blocks) == (954, 517)
    in_vain = dead_walk(claim)
    assert in_vain is not None
    assert (in_vain.dead_entries, in_vain.counted) == (0, False)


@pytest.mark.parametrize("version", RECORDED)
def test_marked_entries_cost_their_leaf_pages_only(version: int) -> None:
    killed = walked(version, "select_killed")
    assert (killed.buffers, killed.unexplained_buffers) == (22, 17)


@pytest.mark.parametrize("version", RECORDED)
def test_poll_of_an_empty_queue_over_dead_entries(version: int) -> None:
    claim = facts(version, "empty_dead")
    assert (claim.rows, claim.buffers, claim.buffers_per_row) == (0.0, 233, 233.0)
    assert walked(version, "empty_dead") == DeadWalk(
        buffers=233, expected_buffers=4, unexplained_buffers=229, dead_entries=229, counted=False
    )


def test_expected_buffers_at_the_limit_and_beyond() -> None:
    clean = replace(facts(18, "select_vacuumed"), scan_rows=float(LEAF_ENTRIES), rows_removed_by_filter=0)
    most = 4 + LEAF_ENTRIES + 1
    at, beyond = (dead_walk(replace(clean, scan_buffers=most + extra)) for extra in (0, 1))
    assert at is not None
    assert beyond is not None
    assert (at.expected_buffers, at.unexplained_buffers, beyond.unexplained_buffers) == (most, 0, 1)


def test_several_loops_allow_for_rounded_averages() -> None:
    """0.4 rows per loop are shown as 0 before version 18."""
    looped = replace(facts(17, "select_vacuumed"), scan_rows=0.0, scan_loops=10, scan_buffers=55)
    found = dead_walk(looped)
    assert found is not None
    assert (found.expected_buffers, found.unexplained_buffers) == (55, 0)


def test_descents_for_a_list_of_values() -> None:
    base = replace(facts(17, "select_vacuumed"), scan_buffers=16, scan_rows=0.0)
    listed = dead_walk(replace(base, index_cond="(priority = ANY ('{1,2,3,4}'::integer[]))"))
    assert listed is not None
    assert (listed.expected_buffers, listed.unexplained_buffers) == (16, 0)
    parameter = replace(base, index_cond="(priority = ANY ($1))")
    assert dead_walk(parameter) is None
    counting = dead_walk(replace(parameter, index_only=True, heap_fetches=30))
    assert counting is not None
    assert (counting.dead_entries, counting.unexplained_buffers, counting.counted) == (30, 0, True)
    told = dead_walk(replace(parameter, index_searches=2))
    assert told is not None
    assert told.expected_buffers == 8


# Read aloud


@pytest.mark.parametrize("version", RECORDED)
def test_lines_of_a_claim(version: int) -> None:
    lines = tree_lines(load(version, "initplan"))
    assert [(line.depth, line.label, line.facts) for line in lines] == [
        (0, "Update on public.jobs", "19 buffers, 1 row"),
        (1, "InitPlan 1: Limit", "5 buffers, 1 row"),
        (2, "LockRows", "5 buffers, 1 row"),
        (3, "Index Scan using jobs_ready_idx on public.jobs as jobs_1", "3 buffers, 1 row, 0 removed"),
        (1, "Index Scan using jobs_pkey on public.jobs", "8 buffers, 1 row"),
    ]
    assert lines[3].conditions == ("checks each row for (jobs_1.state = 'ready'::text)",)


def test_lines_say_what_went_wrong() -> None:
    def said(case: str) -> list[str]:
        return [words for line in tree_lines(load(18, case)) for words in (line.facts, *line.conditions)]

    assert "50 rows skipped: locked by others, or changed meanwhile" in said("claim_partial_50locked")
    assert "10,000 rows sorted on disk, 1,320 kB (external merge)" in said("sort_spill")
    assert "already in order of jobs.priority" in said("incremental_sort")
    assert "71 buffers, 861 rows, 0 removed, run 41 times" in said("limit_loops")
    assert "364 buffers, 200 rows, 19,800 removed" in said("claim_noindex")
    assert "5,001 rows looked up in the table" in said("index_only_dead")
    assert "517 pages read whole because work_mem is too small" in said("bitmap_lossy")
    assert "4,401 rows removed when checked again" in said("bitmap_lossy")
    assert "100 pairs of rows removed by the join's condition" in said("join_filter")
    assert "searches the index 3 times" in said("skipscan")
    assert "2 parallel workers planned, 2 started" in said("parallel")
    assert "never run" in said("one_time_filter")


def test_lines_of_an_unmeasured_plan_and_of_triggers() -> None:
    assert [line.facts for line in tree_lines(load(18, "plan_only"))] == [
        "1 row expected, cost 8.71",
        "1 row expected, cost 0.41",
        "5,000 rows expected, cost 619.78",
        "5,000 rows expected, cost 569.78",
        "1 row expected, cost 8.30",
    ]
    last = tree_lines(load(18, "trigger"))[-1]
    assert (last.depth, last.label) == (0, "Trigger jobs_touch on jobs")
    assert re.fullmatch(r"1 call, \d\.\d\d ms", last.facts)


def test_names_are_quoted_as_sql_needs_them() -> None:
    node = {
        "Node Type": "Index Scan",
        "Scan Direction": "Backward",
        "Index Name": 'odd"name',
        "Schema": "public",
        "Relation Name": "Email Outbox",
        "Alias": "Email Outbox",
    }
    (line,) = tree_lines(parse_plan({"Plan": node}))
    assert line.label == 'Index Scan backward using "odd""name" on public."Email Outbox"'
