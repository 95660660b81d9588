"""Verdicts of vacuum-horizon-held without a database."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from pgqdoctor.checks.vacuum_horizon_held import CHECK
from pgqdoctor.finding import Finding
from pgqdoctor.rows import PreparedRow, SessionRow, SlotRow, StandbyRow

from . import build


def look(
    *sessions: SessionRow,
    dead: int = 8_000,
    made: int = 2_000,
    before: tuple[SessionRow, ...] | None = None,
    **last: Any,
) -> list[Finding]:
    counted = build.counters(dead=dead, deleted=made, last_autovacuum_s=5.0)
    seen = build.observation(
        first=build.reading(0.0, sessions=sessions if before is None else before, **last),
        last=build.reading(build.WINDOW_S, sessions=sessions, tables=(counted,), **last),
    )
    return build.evaluated(CHECK, seen)


def snapshot(pid: int = 41, **changes: Any) -> SessionRow:
    known = build.session(
        pid,
        application="analytics",
        state="idle in transaction",
        xmin=700,
        xmin_age=9_000,
        xact_age_s=60.0,
        query="SELECT count(*) FROM jobs",
    )
    return replace(known, **changes)


def test_nothing_open() -> None:
    assert look() == []


def test_snapshot_is_named_with_pid_application_and_statement() -> None:
    (finding,) = look(snapshot())
    assert finding.severity == "warning"
    assert finding.pids == (41,)
    assert "Session 41 (analytics, idle in transaction" in finding.title
    assert {"SELECT count(*) FROM jobs"} <= {one.value for one in finding.evidence}
    assert finding.remedies[0].sql == ("SELECT pg_terminate_backend(41);",)


def test_active_session_is_cancelled_rather_than_terminated() -> None:
    (finding,) = look(snapshot(state="active"))
    assert finding.remedies[0].sql == ("SELECT pg_cancel_backend(41);",)


@pytest.mark.parametrize(
    ("dead", "made", "found"), [(299, 2_000, 0), (300, 2_000, 1), (1_999, 0, 0), (2_000, 0, 1)]
)
def test_limits(dead: int, made: int, found: int) -> None:
    assert len(look(snapshot(), dead=dead, made=made)) == found


def test_many_rows_are_critical() -> None:
    assert [one.severity for one in look(snapshot(), dead=50_000)] == ["critical"]


def test_writer_is_accused_and_its_victim_is_not() -> None:
    writer = build.session(
        50, application="worker_http", state="idle in transaction", xid=700, xid_age=9_000, xact_age_s=60.0
    )
    victim = build.session(
        51,
        application="canceller",
        xmin=700,
        xmin_age=9_000,
        xact_age_s=60.0,
        wait_type="Lock",
        wait_event="transactionid",
    )
    (finding,) = look(writer, victim)
    assert finding.pids == (50,)


@pytest.mark.parametrize(
    "row",
    [
        pytest.param(snapshot(xmin=None, xmin_age=None), id="read committed, holds nothing"),
        pytest.param(snapshot(database="other"), id="another database"),
        pytest.param(snapshot(vacuuming=True, state="active"), id="lazy vacuum"),
        pytest.param(snapshot(xact_age_s=0.004), id="milliseconds old"),
    ],
)
def test_innocent_sessions(row: SessionRow) -> None:
    assert look(row, before=()) == []


def test_prepared_transaction() -> None:
    row = PreparedRow(
        gid="it's mine", xid=700, xid_age=9_000, prepared_age_s=600.0, owner="app", database="app"
    )
    (finding,) = look(prepared=(row,))
    assert finding.remedies[0].sql == ("ROLLBACK PREPARED 'it''s mine';",)
    assert look(prepared=(replace(row, database="other"),)) == []


def test_slot_with_xmin_but_not_with_catalog_xmin_alone() -> None:
    slot = SlotRow(
        name="old_standby",
        slot_type="physical",
        database=None,
        active=False,
        active_pid=None,
        xmin=700,
        xmin_age=9_000,
        catalog_xmin_age=None,
    )
    (finding,) = look(slots=(slot,))
    assert "Replication slot old_standby (inactive)" in finding.title
    assert look(slots=(replace(slot, xmin=None, xmin_age=None, catalog_xmin_age=9_000),)) == []


def test_standby_feedback_without_slot() -> None:
    row = StandbyRow(
        pid=60, application="replica", client="10.0.0.2", state="streaming", xmin=700, xmin_age=9_000
    )
    (finding,) = look(standbys=(row,))
    assert "hot_standby_feedback" in finding.title
