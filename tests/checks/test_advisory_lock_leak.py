"""Verdicts of advisory-lock-leak without a database."""

from __future__ import annotations

import pytest

from pgqdoctor.checks.advisory_lock_leak import CHECK
from pgqdoctor.finding import Finding
from pgqdoctor.rows import LockRow, SessionRow

from . import build


def held(pid: int, key: int) -> LockRow:
    return build.lock(pid, "ExclusiveLock", locktype="advisory", relation=None, classid=0, objid=key)


def waits(pid: int, key: int, blocker: int, seconds: float) -> LockRow:
    return build.lock(
        pid,
        "ExclusiveLock",
        locktype="advisory",
        relation=None,
        classid=0,
        objid=key,
        blocked_by=(blocker,),
        wait_age_s=seconds,
    )


def look(before: tuple[LockRow, ...], after: tuple[LockRow, ...], *sessions: SessionRow) -> list[Finding]:
    seen = build.observation(
        first=build.reading(0.0, locks=before),
        last=build.reading(build.WINDOW_S, locks=after, sessions=sessions),
    )
    return build.evaluated(CHECK, seen)


def test_no_locks() -> None:
    assert look((), ()) == []


def test_leader_on_an_idle_connection_is_left_alone() -> None:
    assert look((held(80, 1),), (held(80, 1),)) == []


@pytest.mark.parametrize(("seconds", "found"), [(0.99, 0), (1.0, 1)])
def test_idle_holder_for_whom_somebody_waits(seconds: float, found: int) -> None:
    findings = look((held(80, 1),), (held(80, 1), waits(81, 1, 80, seconds)))
    assert len(findings) == found
    for one in findings:
        assert one.severity == "warning"
        assert one.title.startswith("Idle session 80 holds 1 advisory lock without running anything")
        assert one.remedies[0].sql == ("SELECT pg_terminate_backend(80);",)
        assert "pg_try_advisory_xact_lock" in one.remedies[1].sql[0]


def test_holder_at_work_is_no_leak() -> None:
    busy = build.session(80, state="active", xact_age_s=5.0)
    assert look((held(80, 1),), (held(80, 1), waits(81, 1, 80, 5.0)), busy) == []


def test_lock_taken_during_the_window_is_no_leak_yet() -> None:
    assert look((), (held(80, 1), waits(81, 1, 80, 5.0))) == []


@pytest.mark.parametrize(("before", "after", "found"), [(19, 25, 0), (20, 21, 1), (20, 20, 0)])
def test_locks_that_pile_up(before: int, after: int, found: int) -> None:
    first = tuple(held(80, key) for key in range(before))
    last = tuple(held(80, key) for key in range(after))
    assert [one.severity for one in look(first, last)] == ["notice"] * found


TRY = "SELECT pg_try_advisory_lock($1)"


def passed_over(
    locks: int, *, text: str = TRY, changed: int = 0, age: float | None = 60.0, scans: int = 50
) -> list[Finding]:
    """An idle session that keeps ``locks``; the workers look at the queue, and ``changed`` rows of it are updated."""
    kept = tuple(held(80, key) for key in range(locks))
    seen = build.observation(
        statements={"1/10/1": (build.CLAIM, 100, 0), "2/10/1": (text, 100, 100)},
        first=build.reading(0.0, locks=kept),
        last=build.reading(
            build.WINDOW_S, locks=kept, tables=(build.counters(updated=changed, idx_scan=scans),)
        ),
        probes=(build.probe(oldest_ready_age_s=age),),
    )
    return build.evaluated(CHECK, seen)


@pytest.mark.parametrize(("locks", "found"), [(19, 0), (20, 1)])
def test_jobs_that_are_passed_over_because_of_a_leak(locks: int, found: int) -> None:
    findings = passed_over(locks)
    assert len(findings) == found
    for one in findings:
        assert one.severity == "critical"
        assert one.title.endswith("and no job of public.jobs was taken while jobs wait")


def test_locks_of_a_pool_whose_jobs_are_worked_on() -> None:
    assert passed_over(40, changed=1) == []
    assert passed_over(40, age=0.5) == []
    assert passed_over(40, scans=0) == [], "nobody asks"
    assert passed_over(40, text="SELECT 1") == [], "nobody tries a lock"
