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


def migration(*workers: int, **last: Any) -> list[Finding]:
    return look(
        (READER, MIGRATION, *(worker(pid) for pid in workers)),
        (HELD, ALTER, *(claim_behind(pid, 20) for pid in workers)),
        **last,
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
    # The reader came within the window: jobs were finished before.
    moved = (build.counters(deleted=40),)
    assert [one.severity for one in migration(*workers, tables=moved)] == [severity]


@pytest.mark.parametrize(("workers", "severity"), [((31,), "warning"), ((31, 32), "critical")])
def test_a_few_workers_are_all_of_them_where_nothing_moves(workers: tuple[int, ...], severity: str) -> None:
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


LOGS = 1100
"""Oid of a table that refers to the queue."""


def test_ddl_on_a_table_that_the_workers_reach_through_a_foreign_key() -> None:
    key = build.foreign_key("log_job_fkey", LOGS, build.JOBS, "job_id", child_name="public.job_log")
    seen = build.observation(
        of=build.catalog(foreign_keys=(key,)),
        last=build.reading(
            build.WINDOW_S,
            sessions=(
                READER,
                replace(MIGRATION, query="ALTER TABLE job_log ADD COLUMN note text"),
                replace(worker(31), query="DELETE FROM jobs WHERE id = 7"),
                replace(worker(32), query="DELETE FROM jobs WHERE id = 8"),
            ),
            locks=(
                replace(ALTER, relation=LOGS),
                *(claim_behind(pid, 20, relation=LOGS) for pid in (31, 32)),
            ),
        ),
    )
    (finding,) = build.evaluated(CHECK, seen)
    assert "to lock public.job_log, and 2 sessions at public.jobs wait behind it" in finding.title
    assert finding.pids == (10, 20)
    assert finding.remedies[0].sql == ("SELECT pg_cancel_backend(20);",)


def test_workers_that_stand_at_a_row_of_another_table() -> None:
    billing = build.session(40, application="billing", state="idle in transaction", xact_age_s=9.0)
    waiting = replace(worker(31), query="UPDATE accounts SET balance = balance - 1 WHERE id = 1")
    locks = (build.lock(31, "RowExclusiveLock"), row_wait(31, 40))
    (finding,) = look((billing, waiting), locks)
    assert finding.pids == (40,)
    assert look((billing, waiting), locks[1:]) == [], "it has nothing of the queue's"


def test_ddl_in_the_middle_that_is_not_what_the_workers_wait_for() -> None:
    # Session 15 has created a trigger and not committed; the migration waits for it and for the reader.
    trigger = build.session(
        15, application="liquibase", state="idle in transaction", xact_age_s=9.0, query="CREATE TRIGGER"
    )
    locks = (
        HELD,
        build.lock(15, "ShareRowExclusiveLock"),
        replace(ALTER, blocked_by=(10, 15)),
        *(claim_behind(pid, 15, 20) for pid in (31, 32, 33)),
    )
    (finding,) = look((READER, trigger, MIGRATION, *(worker(pid) for pid in (31, 32, 33))), locks)
    assert finding.pids == (15,)
    assert [one.sql for one in finding.remedies] == [("SELECT pg_terminate_backend(15);",)]


@pytest.mark.parametrize(
    ("query", "again"),
    [
        ("CREATE INDEX i ON jobs (payload)", ("CREATE INDEX CONCURRENTLY i ON jobs (payload);",)),
        (
            "create unique index if not exists i ON jobs (payload)",
            ("create unique index CONCURRENTLY if not exists i ON jobs (payload);",),
        ),
        ("REINDEX TABLE jobs", ("REINDEX TABLE CONCURRENTLY jobs;",)),
        ("VACUUM FULL jobs", None),
        ("VACUUM (ANALYZE, FULL) jobs", None),
        ("CLUSTER jobs", None),
    ],
)
def test_what_keeps_the_lock_while_it_works_is_not_run_again_as_it_was(
    query: str, again: tuple[str, ...] | None
) -> None:
    (finding,) = look(
        (READER, replace(MIGRATION, query=query), worker(31)), (HELD, ALTER, claim_behind(31, 20))
    )
    assert [one.sql for one in finding.remedies[1:-1]] == ([] if again is None else [again])


def test_an_index_build_at_the_root_is_cancelled_and_run_again_concurrently() -> None:
    build_index = build.session(
        40, application="ecto", xact_age_s=9.0, query="CREATE INDEX i ON jobs (payload)"
    )
    (finding,) = look((build_index, worker(31)), (build.lock(40, "ShareLock"), claim_behind(31, 40)))
    assert [one.sql for one in finding.remedies] == [
        ("SELECT pg_cancel_backend(40);",),
        ("CREATE INDEX CONCURRENTLY i ON jobs (payload);",),
    ]


def test_each_root_has_its_own_finding_and_key() -> None:
    consoles = tuple(
        build.session(pid, application="console", state="idle in transaction", xact_age_s=9.0)
        for pid in (40, 41)
    )
    waits = (row_wait(31, 40), row_wait(32, 40), row_wait(33, 41))
    first, second = look((*consoles, *(worker(pid) for pid in (31, 32, 33))), waits)
    assert (first.pids, second.pids) == ((40,), (41,))
    assert (first.key, second.key) == ("lock-queue:public.jobs", "lock-queue:public.jobs:2")


NAMESAKE = 1200


def namesake(*, known: bool) -> list[Finding]:
    """Workers of another schema's jobs wait for that table; their statements name no schema."""
    migration = build.session(
        20, application="mig", state="idle in transaction", xact_age_s=9.0, query="ALTER TABLE t2.jobs ..."
    )
    seen = build.observation(
        of=build.catalog(tables=(build.table(), build.table(NAMESAKE, schema="t2"))),
        last=build.reading(
            build.WINDOW_S,
            sessions=(migration, worker(31), worker(32)),
            locks=tuple(claim_behind(pid, 20, relation=NAMESAKE) for pid in (31, 32)),
        ),
    )
    other = replace(seen.queues[0], oid=NAMESAKE, schema="t2", name="t2.jobs")
    mine = tuple(one for one in seen.queues if one.oid == build.JOBS)
    return build.evaluated(CHECK, replace(seen, queues=(*mine, other) if known else mine))


def test_of_namesakes_the_one_that_is_waited_for_is_named() -> None:
    (finding,) = namesake(known=False)
    assert finding.title.startswith("2 sessions at t2.jobs wait for session 20 (mig, idle in transaction")
    assert namesake(known=True) == [], "it is that queue's own finding"
