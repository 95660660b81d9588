"""Verdicts of lock-queue without a database."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from pgqdoctor.checks.lock_queue import CHECK
from pgqdoctor.finding import Finding
from pgqdoctor.rows import LockRow, PreparedRow, SessionRow

from . import build

READER = build.session(
    10,
    application="reporting",
    state="idle in transaction",
    xact_age_s=8.0,
    query="SELECT count(*) FROM jobs",
)
MIGRATION = build.session(
    20, application="migration", xact_age_s=7.5, query="ALTER TABLE jobs ADD COLUMN note text"
)
HELD = build.lock(10)
ALTER = build.lock(20, "AccessExclusiveLock", blocked_by=(10,), wait_age_s=7.5)


def worker(pid: int) -> SessionRow:
    return build.session(
        pid, application="worker", query=build.CLAIM, wait_type="Lock", wait_event="relation"
    )


def claim_behind(pid: int, *blockers: int, seconds: float = 7.0, **changes: Any) -> LockRow:
    return build.lock(pid, "RowExclusiveLock", blocked_by=blockers, wait_age_s=seconds, **changes)


def look(sessions: tuple[SessionRow, ...], locks: tuple[LockRow, ...], **last: Any) -> list[Finding]:
    seen = build.observation(last=build.reading(build.WINDOW_S, sessions=sessions, locks=locks, **last))
    return build.evaluated(CHECK, seen)


def migration(*workers: int) -> list[Finding]:
    return look(
        (READER, MIGRATION, *(worker(pid) for pid in workers)),
        (HELD, ALTER, *(claim_behind(pid, 20) for pid in workers)),
    )


def test_nobody_waits() -> None:
    assert look((READER,), (HELD,)) == []


def test_ddl_in_the_middle_is_told_apart_from_the_root() -> None:
    (finding,) = migration(31, 32, 33)
    assert finding.severity == "critical"
    assert finding.title == (
        "Session 20 (migration, active, open 7.5 s) waits for session 10 (reporting, idle in transaction, open 8 s) to lock "
        "public.jobs, and 3 sessions at public.jobs wait behind it, up to 7.5 s"
    )
    assert finding.pids == (10, 20)
    facts = {one.what: one.value for one in finding.evidence}
    assert facts["its locks on public.jobs"] == "AccessShareLock"
    assert facts["it asks for"] == "AccessExclusiveLock"


def test_remedies_cancel_the_ddl_first_and_end_the_root_after() -> None:
    cancel, again, end = migration(31)[0].remedies
    assert cancel.sql == ("SELECT pg_cancel_backend(20);",)
    assert again.sql == ("SET lock_timeout = '2s';", "ALTER TABLE jobs ADD COLUMN note text;")
    assert end.sql == ("SELECT pg_terminate_backend(10);",)


@pytest.mark.parametrize(
    ("workers", "severity"), [((), "warning"), ((31, 32), "warning"), ((31, 32, 33), "critical")]
)
def test_severity_follows_the_number_behind(workers: tuple[int, ...], severity: str) -> None:
    assert [one.severity for one in migration(*workers)] == [severity]


@pytest.mark.parametrize(("seconds", "found"), [(0.99, 0), (1.0, 1)])
def test_limit_of_the_wait(seconds: float, found: int) -> None:
    assert len(look((READER, MIGRATION), (HELD, replace(ALTER, wait_age_s=seconds)))) == found


def row_wait(pid: int, *blockers: int, seconds: float = 4.0) -> LockRow:
    return build.lock(
        pid, "ShareLock", locktype="transactionid", relation=None, blocked_by=blockers, wait_age_s=seconds
    )


def test_row_lock_held_by_a_session_for_seconds() -> None:
    holder = build.session(
        40, application="billing", state="idle in transaction", xact_age_s=5.0, xid=7, xid_age=50
    )
    (finding,) = look((holder, worker(31)), (row_wait(31, 40),))
    assert (
        finding.title
        == "1 session at public.jobs waits for session 40 (billing, idle in transaction, open 5 s), up to 4 s"
    )
    assert finding.remedies[0].sql == ("SELECT pg_terminate_backend(40);",)


def test_convoy_of_workers_that_pass_the_lock_on() -> None:
    head = build.session(40, application="worker", xact_age_s=0.02, query=build.CLAIM, xid=7, xid_age=1)
    waiters = tuple(row_wait(pid, 40, seconds=1.5) for pid in (31, 32, 33))
    assert look((head, *(worker(pid) for pid in (31, 32, 33))), waiters) == []


def test_a_waiting_worker_is_never_the_root() -> None:
    holder = build.session(40, application="billing", state="idle in transaction", xact_age_s=60.0)
    chain = (row_wait(31, 40), row_wait(32, 31), row_wait(33, 31, 32))
    (finding,) = look((holder, *(worker(pid) for pid in (31, 32, 33))), chain)
    assert finding.pids == (40,)


def test_deadlock_has_no_root() -> None:
    assert look((worker(31), worker(32)), (row_wait(31, 32), row_wait(32, 31))) == []


def test_prepared_transaction_is_the_root() -> None:
    gid = PreparedRow(gid="b'1", xid=7, xid_age=50, prepared_age_s=60.0, owner="app", database="app")
    (finding,) = look((worker(31),), (row_wait(31, 0),), prepared=(gid,))
    assert "waits for a prepared transaction" in finding.title
    assert finding.pids == ()
    assert finding.remedies[0].sql == ("ROLLBACK PREPARED 'b''1';",)
    (two,) = look((worker(31),), (row_wait(31, 0),), prepared=(gid, replace(gid, gid="c")))
    assert two.remedies == (), "which of the two blocks is not known"


def test_other_tables() -> None:
    elsewhere = replace(ALTER, relation=9_999)
    session = replace(MIGRATION, query="ALTER TABLE carts ADD COLUMN note text")
    assert look((READER, session), (replace(HELD, relation=9_999), elsewhere)) == []


def test_autovacuum_as_the_root_is_not_ended() -> None:
    vacuum = build.session(
        10,
        application="",
        backend_type="autovacuum worker",
        xact_age_s=30.0,
        query="autovacuum: VACUUM public.jobs (to prevent wraparound)",
    )
    (finding,) = look(
        (vacuum, MIGRATION, worker(31)),
        (replace(HELD, mode="ShareUpdateExclusiveLock"), ALTER, claim_behind(31, 20)),
    )
    assert "autovacuum worker" in finding.title
    assert [one.sql[0] for one in finding.remedies] == [
        "SELECT pg_cancel_backend(20);",
        "SET lock_timeout = '2s';",
    ]
