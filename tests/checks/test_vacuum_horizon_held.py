"""Verdicts of vacuum-horizon-held without a database."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from pgqdoctor.checks.vacuum_horizon_held import CHECK
from pgqdoctor.finding import Finding
from pgqdoctor.observation import Sample
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


def test_hidden_state_may_be_idle() -> None:
    (finding,) = look(snapshot(state=None, xact_age_s=None, state_age_s=None, query=None))
    assert [one.sql for one in finding.remedies] == [
        ("SELECT pg_cancel_backend(41);",),
        ("SELECT pg_terminate_backend(41);",),
    ]


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


def test_rows_that_were_dead_before_the_holder_began_are_not_its_doing() -> None:
    importer = build.session(50, application="import", state="active", xid=700, xid_age=1, xact_age_s=12.0)
    counted = build.counters(dead=5_548, last_autovacuum_s=None)
    seen = build.observation(
        first=build.reading(0.0, sessions=(importer,), tables=(counted,)),
        last=build.reading(build.WINDOW_S, sessions=(importer,), tables=(counted,)),
    )
    assert build.evaluated(CHECK, seen) == []


def test_prepared_transaction() -> None:
    row = PreparedRow(
        gid="it's mine", xid=700, xid_age=9_000, prepared_age_s=600.0, owner="app", database="app"
    )
    (finding,) = look(prepared=(row,))
    assert finding.remedies[0].sql == ("ROLLBACK PREPARED 'it''s mine';",)
    assert look(prepared=(replace(row, database="other"),)) == []


def test_what_another_database_holds_is_seen_in_the_snapshots_taken_here() -> None:
    etl = build.session(
        60,
        application="etl",
        database="warehouse",
        state="idle in transaction",
        xid=700,
        xid_age=9_000,
        xact_age_s=60.0,
    )
    worker = build.session(61, xmin=700, xmin_age=9_000, xact_age_s=0.01)
    assert look(etl) == []
    (finding,) = look(etl, worker)
    assert finding.pids == (60,)
    assert "Session 60 (etl, idle in transaction, open 60 s, in database warehouse)" in finding.title
    assert "another database" in finding.why


def test_prepared_transaction_of_another_database() -> None:
    row = PreparedRow(
        gid="orphan", xid=700, xid_age=9_000, prepared_age_s=600.0, owner="app", database="warehouse"
    )
    worker = build.session(61, xmin=700, xmin_age=9_000, xact_age_s=0.01)
    (finding,) = look(worker, prepared=(row,))
    assert finding.title.startswith("Prepared transaction 'orphan' (10 min old, in database ")
    assert "connect to database warehouse" in finding.remedies[0].title


def test_report_here_leads_over_a_writer_elsewhere_that_is_as_old() -> None:
    etl = build.session(60, database="warehouse", xid=700, xid_age=9_000, xact_age_s=70.0)
    (finding,) = look(etl, snapshot())
    assert finding.pids == (41,)
    (finding,) = look(replace(etl, xact_age_s=600.0), snapshot())
    assert finding.pids == (60,)


def test_writer_elsewhere_that_samples_show_and_no_reading() -> None:
    etl = build.session(60, application="etl", database="warehouse", xid=700, xid_age=9_000, xact_age_s=60.0)
    for seen_in, found in ((10, [(60,)]), (5, [])):
        samples = tuple(
            Sample(
                at=0.5 * place,
                sessions=(build.sampled(61, xmin_age=9_000),) if place < seen_in else (),
            )
            for place in range(10)
        )
        counted = build.counters(dead=8_000, deleted=2_000, last_autovacuum_s=5.0)
        seen = build.observation(
            first=build.reading(0.0, sessions=(etl,)),
            last=build.reading(build.WINDOW_S, sessions=(etl,), tables=(counted,)),
            samples=samples,
        )
        assert [one.pids for one in build.evaluated(CHECK, seen)] == found


def test_walsender_that_copies_is_a_session_and_one_that_streams_is_not() -> None:
    walsender = snapshot(backend_type="walsender", application="pg_16394_sync_16388")
    row = StandbyRow(
        pid=41, application="pg_16394_sync_16388", client=None, state="startup", xmin=700, xmin_age=9_000
    )
    (finding,) = look(walsender, standbys=(row,))
    assert finding.pids == (41,)
    assert "hot_standby_feedback" not in finding.title
    assert look(replace(walsender, database="other"), standbys=(row,)) == []
    assert look(walsender, standbys=(replace(row, state="streaming"),)) == []


def test_waiter_is_not_told_as_the_next_holder() -> None:
    writer = build.session(
        50, application="worker", state="idle in transaction", xid=700, xid_age=9_000, xact_age_s=60.0
    )
    victim = build.session(
        51, application="canceller", xid=701, xid_age=8_999, xact_age_s=59.0, wait_type="Lock"
    )
    report = build.session(52, application="report", xmin=702, xmin_age=8_000, xact_age_s=50.0)
    (finding,) = look(writer, victim, report)
    after = next(one.value for one in finding.evidence if one.what == "after it holds")
    assert "report" in str(after)


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


@pytest.mark.parametrize("by_slot", [False, True])
@pytest.mark.parametrize(("begun", "found"), [(0, 1), (4_500, 1), (4_501, 0), (9_000, 0)])
def test_standby_that_has_not_reported_since(begun: int, found: int, by_slot: bool) -> None:
    """9,000 transactions are 20 s at 450 a second: feedback comes every 10 s, so that a standby at rest lags by as many."""
    row = StandbyRow(
        pid=60, application="replica", client="10.0.0.2", state="streaming", xmin=700, xmin_age=9_000
    )
    slot = SlotRow(
        name="standby1", slot_type="physical", database=None, active=True, active_pid=60, xmin=700, xmin_age=9_000, catalog_xmin_age=None
    )  # fmt: skip
    of = {"slots": (slot,)} if by_slot else {"standbys": (row,)}
    counted = build.counters(dead=8_000, deleted=2_000, last_autovacuum_s=5.0)
    seen = build.observation(
        first=build.reading(0.0, database=build.database(next_xid=100_000), **of),
        last=build.reading(
            build.WINDOW_S, tables=(counted,), database=build.database(next_xid=100_000 + begun), **of
        ),
    )
    assert len(build.evaluated(CHECK, seen)) == found


def turns(
    *, lasting: float, count: int, per_second: float = 500.0, apart: float | None = None
) -> tuple[Sample, ...]:
    """Samples of ``count`` loops of a query of ``lasting`` seconds, evenly apart, and of a claim that is milliseconds old."""
    step = lasting / count if apart is None else apart
    found = []
    for place in range(100):
        at = place / 10
        sessions = [build.sampled(900, 1, application="worker", xact_age_s=0.002, xmin_age=1)]
        for loop in range(count):
            age = (at + loop * step) % lasting
            sessions.append(
                build.sampled(
                    70 + loop,
                    0,
                    application=f"report{loop}",
                    xact_age_s=age,
                    xmin_age=round(age * per_second),
                )
            )
        found.append(Sample(at=at, sessions=tuple(sessions)))
    return tuple(found)


def look_at_turns(
    samples: tuple[Sample, ...], *, made: int = 10_000, dead: int = 8_000, **last: Any
) -> list[Finding]:
    ids = build.database(started_s=100_010.0, next_xid=105_000)
    seen = build.observation(
        last=build.reading(
            build.WINDOW_S,
            database=ids,
            tables=(build.counters(dead=dead, deleted=made, last_autovacuum_s=1.0),),
            **last,
        ),
        samples=samples,
        texts=("SELECT count(*) FROM orders", build.CLAIM),
    )
    return build.evaluated(CHECK, seen)


def test_overlapping_short_transactions_are_named_as_a_class() -> None:
    rows = tuple(build.session(70 + loop, role="reporting", application=f"report{loop}") for loop in range(3))
    (finding,) = look_at_turns(turns(lasting=6.0, count=3), sessions=rows)
    assert finding.subject == "overlapping"
    assert (
        "Overlapping transactions of report0, report1, report2 (3 at any moment, each open for"
        in finding.title
    )
    assert "session" not in finding.title.lower(), "no single one is the culprit"
    assert {"SELECT count(*) FROM orders"} <= {one.value for one in finding.evidence}
    limit, gaps = finding.remedies
    assert limit.sql == ("ALTER ROLE reporting CONNECTION LIMIT 1;",)
    assert limit.undo == ("ALTER ROLE reporting CONNECTION LIMIT -1;",)
    assert "SELECT count(*) FROM orders;" in gaps.sql


def test_a_role_that_also_runs_the_workers_is_not_limited() -> None:
    rows = tuple(build.session(70 + loop, role="app") for loop in range(3))
    (finding,) = look_at_turns(turns(lasting=6.0, count=3), sessions=rows)
    assert [one.kind for one in finding.remedies] == ["application"]


def test_gaps_between_them_let_the_horizon_move() -> None:
    assert look_at_turns(turns(lasting=6.0, count=1)) == []
    assert look_at_turns(turns(lasting=6.0, count=3, apart=0.0)) == [], "all three end at once"


def test_queue_that_makes_few_dead_rows_does_not_feel_them() -> None:
    assert look_at_turns(turns(lasting=6.0, count=3), made=500) == []


def test_short_claims_of_many_workers_are_no_class() -> None:
    samples = tuple(
        Sample(
            at=place / 10,
            sessions=tuple(build.sampled(900 + n, 1, xact_age_s=0.01, xmin_age=5 + n) for n in range(8)),
        )
        for place in range(100)
    )
    assert look_at_turns(samples) == []


def test_one_that_waits_for_the_holder_is_no_class_with_it() -> None:
    """Both run the same statement, and the second waits for the first's row lock."""
    writer = build.session(
        50, application="worker", state="idle in transaction", xid=700, xid_age=9_000, xact_age_s=60.0
    )
    waiter = build.session(
        51, application="worker", xid=701, xid_age=8_999, xact_age_s=59.0, wait_type="Lock"
    )
    samples = tuple(
        Sample(
            at=place / 10,
            sessions=(
                build.sampled(
                    50, 0, state="idle in transaction", xid_age=8_000, xact_age_s=50.0 + place / 10
                ),
                build.sampled(51, 0, wait_type="Lock", xid_age=7_999, xact_age_s=49.0 + place / 10),
            ),
        )
        for place in range(100)
    )
    first = build.reading(0.0, sessions=(writer, waiter))
    last = build.reading(
        build.WINDOW_S,
        sessions=(writer, waiter),
        tables=(build.counters(dead=8_000, deleted=2_000, last_autovacuum_s=5.0),),
    )
    seen = build.observation(first=first, last=last, samples=samples, texts=("UPDATE jobs SET a = 1",))
    (finding,) = build.evaluated(CHECK, seen)
    assert finding.subject == ""
    assert finding.pids == (50,)


def test_an_older_session_outweighs_the_class() -> None:
    old = snapshot(xmin_age=90_000, xact_age_s=600.0)
    seen = build.observation(
        first=build.reading(0.0, sessions=(old,)),
        last=build.reading(
            build.WINDOW_S,
            sessions=(old,),
            database=build.database(started_s=100_010.0, next_xid=105_000),
            tables=(build.counters(dead=8_000, deleted=10_000),),
        ),
        samples=turns(lasting=6.0, count=3),
        texts=("SELECT count(*) FROM orders", build.CLAIM),
    )
    (finding,) = build.evaluated(CHECK, seen)
    assert finding.pids == (41,)


def test_vacuum_that_truncates_has_a_transaction_id_and_holds_nothing() -> None:
    row = build.session(
        80,
        role=None,
        application="",
        backend_type="autovacuum worker",
        vacuuming=True,
        xid=700,
        xid_age=990,
        xmin=690,
        xmin_age=1_017,
        xact_age_s=5.0,
    )
    assert look(row) == []


def test_analyze_of_autovacuum_is_named_as_such() -> None:
    row = build.session(
        80,
        role=None,
        application="",
        backend_type="autovacuum worker",
        xmin=690,
        xmin_age=9_000,
        xact_age_s=50.0,
        query="autovacuum: ANALYZE public.big",
    )
    (finding,) = look(row)
    assert finding.title.startswith("Session 80 (autovacuum worker, active, open 50 s)")
    assert finding.remedies[0].sql == ("SELECT pg_cancel_backend(80);",)


def test_idle_listener_that_is_stalled_with_a_snapshot() -> None:
    row = snapshot(state="idle", xact_age_s=None, state_age_s=300.0, query="LISTEN jobs")
    (finding,) = look(row)
    assert "Session 41 (analytics, idle, open 5 min)" in finding.title
    assert finding.remedies[0].sql == ("SELECT pg_terminate_backend(41);",)


def test_active_slot_is_not_to_be_dropped() -> None:
    slot = SlotRow(
        name="standby1",
        slot_type="physical",
        database=None,
        active=True,
        active_pid=60,
        xmin=700,
        xmin_age=9_000,
        catalog_xmin_age=None,
    )
    walsender = StandbyRow(
        pid=60, application="replica", client="10.0.0.2", state="streaming", xmin=None, xmin_age=None
    )
    (finding,) = look(slots=(slot,), standbys=(walsender,))
    assert not any("pg_drop_replication_slot" in text for remedy in finding.remedies for text in remedy.sql)
    assert "hot_standby_feedback" in finding.remedies[0].title


def test_transactions_that_wait_for_locks_are_victims() -> None:
    samples = tuple(
        Sample(
            at=one.at,
            sessions=tuple(
                replace(each, wait_type="Lock", wait_event="transactionid") if each.pid < 900 else each
                for each in one.sessions
            ),
        )
        for one in turns(lasting=6.0, count=3)
    )
    assert look_at_turns(samples) == []


def test_claims_whose_snapshots_show_a_prepared_transaction_are_no_class() -> None:
    gid = PreparedRow(
        gid="billing-7", xid=700, xid_age=9_000, prepared_age_s=600.0, owner="app", database="app"
    )
    samples = tuple(
        Sample(
            at=place / 10,
            sessions=tuple(
                build.sampled(900 + n, 1, xact_age_s=0.01, xmin_age=8_000 + place * 10) for n in range(3)
            ),
        )
        for place in range(100)
    )
    ids = build.database(started_s=100_010.0, next_xid=101_000)
    counted = build.counters(dead=8_000, deleted=10_000, last_autovacuum_s=1.0)
    seen = build.observation(
        first=build.reading(0.0, prepared=(gid,)),
        last=build.reading(build.WINDOW_S, prepared=(gid,), database=ids, tables=(counted,)),
        samples=samples,
        texts=("SELECT 1", build.CLAIM),
    )
    (finding,) = build.evaluated(CHECK, seen)
    assert "Prepared transaction 'billing-7'" in finding.title
