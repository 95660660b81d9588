"""What the screens are given: pure functions over recorded moments and small made-up ones."""

from __future__ import annotations

from dataclasses import replace

import pytest

from pgqdoctor.rows import LockRow, SessionRow
from pgqdoctor.tui.views import short
from pgqdoctor.tui.views.claim import claim_views
from pgqdoctor.tui.views.findings import finding_views, remedied_cause
from pgqdoctor.tui.views.horizon import forbidden, horizon_view, lock_lines, undone
from pgqdoctor.tui.views.knobs import PARTS, knobs_views
from pgqdoctor.tui.views.overview import finding_lines, head, moments, ordered, queue_lines, remarks, series
from pgqdoctor.tui.views.waits import columns, in_order, stacked, waits_view
from tests.tui.staged import NAMES, frame_staged, history_of, snapshot_staged


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "?"), (float("nan"), "?"), (0, "0"), (7, "7"), (0.04, "0.04"), (12.34, "12.3"), (999, "999"),
        (9_999, "9999"), (12_345, "12.3k"), (999_600, "1M"), (1_234_567, "1.23M"), (2.5e9, "2.5G"),
    ],
)  # fmt: skip
def test_numbers_are_short(value: float | None, text: str) -> None:
    assert short.number(value) == text


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "?"), (0, "0s"), (0.0123, "12ms"), (12.34, "12.3s"), (59.99, "1m00s"), (250, "4m10s"),
        (12_000, "3h20m"), (190_000, "2d04h"), (86_400 * 365, "365d"), (-3, "-3s"),
    ],
)  # fmt: skip
def test_durations_are_short(value: float | None, text: str) -> None:
    assert short.seconds(value) == text


@pytest.mark.parametrize(
    ("value", "text"), [(None, "?"), (0, "0B"), (512, "512B"), (890_000, "869kB"), (1.6e9, "1.5GB")]
)
def test_sizes_are_short(value: float | None, text: str) -> None:
    assert short.size(value) == text


@pytest.mark.parametrize(
    ("value", "text"), [(None, "-"), (0, "0%"), (0.004, "0.4%"), (0.234, "23%"), (1, "100%")]
)
def test_percentages_are_short(value: float | None, text: str) -> None:
    assert short.percent(value) == text


def test_sparkline_has_a_gap_where_nothing_is_known() -> None:
    assert short.spark((0.0, None, 4.0, 8.0), 6) == "  ▁ ▄█"
    assert short.spark((0.0, 0.0), 2) == "▁▁"
    assert short.spark((1.0, 2.0, 4.0), 2) == "▄█", "only the latest are shown"


def test_head_tells_verdict_and_cause_in_one_line() -> None:
    shown = head(frame_staged("idle-snapshot"))
    assert shown.word == "CRITICAL"
    assert "holds the xmin horizon" in shown.cause
    assert "\n" not in shown.cause
    assert "healthy" in head(frame_staged("healthy-two-queues")).verdict


def test_findings_stand_below_their_causes() -> None:
    lines = finding_lines(frame_staged("idle-snapshot"))
    assert [(one.depth, one.key.partition(":")[0]) for one in lines] == [
        (0, "vacuum-horizon-held"),
        (1, "dead-tuples"),
        (2, "claim-scans-dead-rows"),
    ]
    views = finding_views(frame_staged("idle-snapshot").report)
    assert views[1].causes == (views[0].title,)
    assert views[1].title in views[0].effects
    assert any("pg_terminate_backend" in line for line in views[0].remedies[0].sql)
    assert views[0].remedies[0].copied.endswith(";\n")


def test_queue_line_has_the_numbers_of_the_report() -> None:
    frame = frame_staged("idle-snapshot")
    (line,) = queue_lines(frame)
    (queue,) = frame.report.queues
    assert line.severity == "critical"
    assert line.numbers[0] == queue.ready.rows
    assert line.numbers[5] == (queue.claim.plan.buffers if queue.claim.plan is not None else None)
    assert line.numbers[7] == queue.table.dead_rows


def test_queues_are_sorted_and_filtered() -> None:
    lines = queue_lines(frame_staged("healthy-two-queues"))
    assert [one.name for one in ordered(lines, "name")] == ["public.emails", "public.webhooks"]
    assert [one.name for one in ordered(lines, "name", "WEB")] == ["public.webhooks"]
    unknown = replace(lines[0], name="a", numbers=(None,) * 9)
    assert ordered((unknown, *lines), "dead")[-1] is unknown, "what is not known stands last"


def test_what_could_not_be_looked_at_is_said() -> None:
    frame = frame_staged("healthy-two-queues")
    assert frame.report.skipped
    assert any(line.startswith("not looked at: ") for line in remarks(frame))


def test_series_has_gaps_where_a_queue_was_not_there() -> None:
    pulses = snapshot_staged("healthy-two-queues").pulses
    known = series(moments(pulses, "public.emails"), "dead")
    assert len(known) == len(pulses)
    assert all(one is not None for one in known)
    assert set(series(moments(pulses, "public.other"), "dead")) == {None}


def test_waits_tell_groups_events_statements_and_applications() -> None:
    view = waits_view(frame_staged("lock-queue"))
    lock = next(one for one in view.events if one.group == "lock")
    assert lock.event == "Lock:relation"
    assert {one.application for one in lock.doing} >= {"migration", "worker"}
    assert sum(one.share for one in view.events) == pytest.approx(1.0)
    assert sum(one.sessions for one in view.events) == pytest.approx(view.active)
    assert view.idle_in_transaction > 0.9


def test_wait_events_stand_by_size_unless_by_group() -> None:
    events = waits_view(frame_staged("savepoint-storm")).events
    small = replace(events[0], event="small", sessions=0.001)
    chosen = (small, *events)
    sizes = [one.sessions for one in in_order(chosen, "sessions")]
    assert sizes == sorted(sizes, reverse=True)
    assert sizes[-1] == 0.001
    assert in_order(chosen, "group") == chosen


def test_the_cause_that_has_the_remedy_is_found_through_those_that_have_none() -> None:
    root, middle, end = finding_views(frame_staged("idle-snapshot").report)
    assert root.remedies and not end.remedies
    bare = replace(middle, remedies=())
    assert remedied_cause(end, (root, bare, end)) == root
    assert remedied_cause(root, (root, bare, end)) is None
    circle = replace(bare, causes=(end.title,))
    assert remedied_cause(end, (circle, end)) is None


def test_columns_are_the_latest_moments() -> None:
    pulses = snapshot_staged("lock-queue").pulses
    assert len(columns(pulses, 5)) == 5
    assert columns(pulses, 0) == ()
    assert columns(pulses, 1)[0][2] > 5, "six backends wait for the lock"


def test_bars_show_a_rare_group_and_keep_the_total() -> None:
    (row_top, row_middle, row_bottom) = stacked([(0.01, 0, 0, 0, 0, 2.99, 0)], 3, 3.0)
    assert [row_top, row_middle, row_bottom] == [("multixact",), ("CPU",), ("CPU",)]
    assert stacked([(0.0,) * 7], 2, 1.0) == ((None,), (None,))
    assert stacked([(0, 0, 0.1, 0, 0, 0, 0)], 4, 100.0)[3] == ("lock",), "a little is not nothing"
    assert stacked([(5.0,) * 7], 3, 1.0)[0][0] is not None, "more groups than cells"


def test_horizon_names_the_oldest_first_with_what_it_keeps() -> None:
    view = horizon_view(frame_staged("idle-snapshot"))
    holder = view.holders[0]
    assert holder.name == "analytics (postgres)"
    assert int(holder.keeps.replace(",", "")) > 10_000
    target = view.target(holder.pid or 0)
    assert target is not None
    assert "written nothing" in " ".join(target.terminate)
    assert target.cancel == (
        "It runs no statement now, so cancelling does nothing: only terminating ends its transaction.",
    )


def test_blocked_tree_has_the_root_on_top() -> None:
    view = horizon_view(frame_staged("lock-queue"))
    assert [one.depth for one in view.locks] == [0, 1, 2, 2, 2, 2, 2]
    assert view.locks[0].who == "reporting (postgres)"
    assert view.locks[1].waits.startswith("waits for relation AccessExclusive on public.jobs")
    assert view.waiting == 6


def waiter(pid: int, *blocked_by: int) -> LockRow:
    return LockRow(
        pid=pid, locktype="tuple", database=1, relation=7, mode="ExclusiveLock", granted=False,
        wait_age_s=float(pid), classid=None, objid=None, blocked_by=blocked_by,
    )  # fmt: skip


def test_a_hundred_waiters_that_name_each_other_stand_once_each() -> None:
    """PostgreSQL names those ahead in the queue as blockers too: followed blindly, the tree would grow without end."""
    reading = replace(
        frame_staged("lock-queue").observation.last,
        locks=tuple(waiter(pid, 1, *range(2, pid)) for pid in range(2, 102)),
    )
    lines = list(lock_lines(reading, {7: "public.jobs"}))
    assert [one.pid for one in lines][:3] == [1, 101, 100]
    assert len(lines) == 101


def test_a_deadlock_is_shown_and_ends() -> None:
    reading = replace(
        frame_staged("lock-queue").observation.last, locks=(waiter(5, 6), waiter(6, 5), waiter(9, 0))
    )
    lines = list(lock_lines(reading, {}))
    assert [(one.pid, one.depth) for one in lines] == [(None, 0), (9, 1), (5, 0), (6, 1)]
    assert lines[0].who == "a prepared transaction"


def session(**changes: object) -> SessionRow:
    row = frame_staged("idle-snapshot").observation.last.sessions[0]
    return replace(row, **{"state": "active", "xact_age_s": 30.0, "xid": 77, "xid_age": 9, **changes})  # type: ignore[arg-type]


def test_what_a_signal_undoes() -> None:
    cancel = " ".join(undone(session(), "cancel"))
    assert "statement fails" in cancel
    assert "savepoint" in cancel
    terminate = " ".join(undone(session(), "terminate"))
    assert "transaction id 77" in terminate
    assert "all its changes are lost" in terminate
    nothing = " ".join(undone(session(xact_age_s=None, xid=None), "terminate"))
    assert "nothing is rolled back" in nothing


def test_rights_to_signal() -> None:
    server = frame_staged("idle-snapshot").observation.server
    weak = replace(server, superuser=False, granted_roles=("pg_monitor",), role="doctor")
    assert "pg_signal_backend" in forbidden(weak, session(role="app"))
    assert forbidden(weak, session(role="doctor")) == ""
    assert forbidden(replace(weak, granted_roles=("pg_signal_backend",)), session(role="app")) == ""
    assert forbidden(server, session(role="app")) == ""


def test_claim_has_shape_cost_and_plan() -> None:
    (queue,) = claim_views(frame_staged("idle-snapshot"))
    assert queue.claims[0].shape == "delete-skip-locked"
    assert dict(queue.claims[0].facts)["row lock"] == "for update, skip locked"
    assert [line.label for line in queue.plans[0].lines] == [
        "Limit",
        "Index Scan using jobs_queued_idx on jobs",
    ]
    assert all("buffers" in line.facts for line in queue.plans[0].lines)


def test_knobs_have_todays_values_and_what_findings_advise() -> None:
    (knobs,) = knobs_views(frame_staged("idle-snapshot"))
    parts = {one.name: one for one in knobs.parts}
    assert tuple(parts) == PARTS
    assert parts["fillfactor"].facts[0][1] == "100 %"
    assert [fact[0] for fact in parts["index"].facts] == ["jobs_pkey", "jobs_queued_idx"]
    assert any("serves the claim" in fact[2] for fact in parts["index"].facts)
    assert any("1,000 and 0% of 26 rows" in fact[2] for fact in parts["autovacuum"].facts)
    assert parts["HOT"].advice == ()
    assert knobs.triangle is not None
    assert [one.name for one in knobs.triangle.designs if one.now] == ["as it is: an index serves the claim"]
    assert {one.name: one.verdict for one in knobs.triangle.knobs}["fillfactor"] == "no value can help"


@pytest.mark.parametrize("name", NAMES)
def test_every_recorded_moment_has_a_number_for_history(name: str) -> None:
    history = history_of(name)
    first, end = history.span()
    assert len(history.pulses()) == end - first - 1, "every reading but the first ends a window"
