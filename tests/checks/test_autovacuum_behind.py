"""Verdicts of autovacuum-behind without a database."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from pgqdoctor.checks.autovacuum_behind import CHECK
from pgqdoctor.finding import Finding
from pgqdoctor.observation import Sample
from pgqdoctor.rows import LockRow, VacuumRow

from . import build

SETTINGS = (
    build.setting("autovacuum", "on"),
    build.setting("autovacuum_naptime", "60"),
    build.setting("autovacuum_max_workers", "3"),
    build.setting("autovacuum_vacuum_cost_delay", "2"),
    build.setting("autovacuum_vacuum_cost_limit", "-1"),
    build.setting("vacuum_cost_limit", "200"),
)


def vacuum(pid: int, relation: int = 555, **changes: Any) -> VacuumRow:
    known = VacuumRow(
        pid=pid,
        database="app",
        relation=relation,
        phase="scanning heap",
        heap_blocks=100_000,
        heap_blocks_scanned=0,
        index_vacuum_count=0,
        autovacuum=True,
    )
    return replace(known, **changes)


def lock(pid: int, mode: str = "ShareLock", **changes: Any) -> LockRow:
    known = LockRow(
        pid=pid,
        locktype="relation",
        database=5,
        relation=build.JOBS,
        mode=mode,
        granted=True,
        wait_age_s=None,
        classid=None,
        objid=None,
        blocked_by=(),
    )
    return replace(known, **changes)


def look(
    *,
    dead: int = 30_000,
    since: float | None = 3_600.0,
    vacuums: tuple[tuple[VacuumRow, ...], tuple[VacuumRow, ...]] = ((), ()),
    locks: tuple[LockRow, ...] = (),
    samples: tuple[Sample, ...] = (),
    options: tuple[str, ...] = (),
    version: int = 180000,
    sessions: Any = (),
    tables: Any = (),
) -> list[Finding]:
    counted = build.counters(dead=dead, deleted=2_000, last_autovacuum_s=since)
    first, last = vacuums
    seen = build.observation(
        of=build.catalog(tables=(build.table(options=options), *tables), settings=SETTINGS),
        on=build.server(version),
        first=build.reading(0.0, vacuums=first, locks=locks, sessions=sessions),
        last=build.reading(build.WINDOW_S, vacuums=last, locks=locks, sessions=sessions, tables=(counted,)),
        samples=samples,
    )
    return build.evaluated(CHECK, seen)


def busy(workers: int) -> tuple[VacuumRow, ...]:
    return tuple(vacuum(100 + place) for place in range(workers))


def asleep(share: float, pid: int = 9) -> tuple[Sample, ...]:
    return tuple(
        Sample(
            at=place / 10,
            sessions=(
                build.sampled(
                    pid, vacuuming=True, wait_event="VacuumDelay" if place < share * 100 else "DataFileRead"
                ),
            ),
        )
        for place in range(100)
    )


def test_due_without_a_visible_reason() -> None:
    assert look() == []


def test_all_workers_are_elsewhere() -> None:
    events = build.table(555, "events")
    (finding,) = look(vacuums=(busy(3), busy(3)), tables=(events,))
    assert finding.severity == "warning"
    assert finding.key == "autovacuum-behind:public.jobs:workers"
    assert "All 3 autovacuum workers are busy elsewhere (public.events)" in finding.title
    assert finding.remedies[0].sql[1] == "VACUUM (TRUNCATE false) public.jobs;"
    assert finding.remedies[1].sql[0] == "ALTER SYSTEM SET autovacuum_max_workers = '5';"
    assert not finding.remedies[1].restart


def test_more_workers_need_a_restart_below_18() -> None:
    (finding,) = look(vacuums=(busy(3), busy(3)), version=170000)
    assert finding.remedies[1].restart


@pytest.mark.parametrize(
    "changes",
    [
        pytest.param({"vacuums": (busy(3), busy(2))}, id="a worker is free"),
        pytest.param({"vacuums": (busy(3), busy(3)), "dead": 499}, id="not due"),
        pytest.param({"vacuums": (busy(3), busy(3)), "dead": 1_999}, id="few rows"),
        pytest.param({"vacuums": (busy(3), busy(3)), "since": 119.0}, id="vacuumed in the last two rounds"),
        pytest.param(
            {"vacuums": (busy(3), busy(3)), "options": ("autovacuum_enabled=off",)},
            id="switched off: another finding",
        ),
        pytest.param(
            {
                "vacuums": (busy(3), busy(3)),
                "sessions": (
                    build.session(41, state="idle in transaction", xmin=7, xmin_age=9_000, xact_age_s=60.0),
                ),
            },
            id="horizon held: another finding",
        ),
    ],
)
def test_near_misses(changes: dict[str, Any]) -> None:
    assert look(**changes) == []


def test_lock_that_autovacuum_does_not_wait_for() -> None:
    holder = build.session(
        77, application="migrate", state="idle in transaction", query="LOCK TABLE jobs IN SHARE MODE"
    )
    (finding,) = look(locks=(lock(77),), sessions=(holder,))
    assert finding.key == "autovacuum-behind:public.jobs:lock"
    assert "session 77 (migrate), which holds a ShareLock" in finding.title
    assert finding.pids == (77,)
    assert finding.remedies[0].sql == ("SELECT pg_terminate_backend(77);",)


@pytest.mark.parametrize("mode", ["RowExclusiveLock", "AccessShareLock", "RowShareLock"])
def test_locks_that_vacuum_gets_along_with(mode: str) -> None:
    assert look(locks=(lock(77, mode),)) == []


def test_running_vacuum_that_sleeps_most_of_the_time() -> None:
    first, last = (vacuum(9, build.JOBS, heap_blocks_scanned=done) for done in (10_000, 11_000))
    (finding,) = look(vacuums=((first,), (last,)), samples=asleep(0.8))
    # 100 pages a second, 89,000 to go.
    assert "(pid 9) sleeps 80% of the time" in finding.title
    assert "needs 15 min more" in finding.title
    # 890 s shall become 120 s: 7.4 times the limit of 200.
    assert finding.remedies[0].sql[1] == "ALTER TABLE public.jobs SET (autovacuum_vacuum_cost_limit = 1483);"
    assert finding.remedies[0].undo[1] == "ALTER TABLE public.jobs RESET (autovacuum_vacuum_cost_limit);"


@pytest.mark.parametrize(("share", "done", "found"), [(0.49, 11_000, 0), (0.8, 16_800, 1), (0.8, 17_000, 0)])
def test_running_vacuum_in_time(share: float, done: int, found: int) -> None:
    first = vacuum(9, build.JOBS, heap_blocks_scanned=10_000)
    last = vacuum(9, build.JOBS, heap_blocks_scanned=done)
    assert len(look(vacuums=((first,), (last,)), samples=asleep(share))) == found


def test_truncation_that_others_wait_for() -> None:
    row = vacuum(9, build.JOBS, phase="truncating heap")
    waiter = lock(31, "RowExclusiveLock", granted=False, blocked_by=(9,))
    (finding,) = look(dead=0, vacuums=((), (row,)), locks=(waiter,))
    assert "1 session waiting" in finding.title
    assert finding.remedies[0].sql[1] == "ALTER TABLE public.jobs SET (vacuum_truncate = false);"
    assert look(dead=0, vacuums=((), (row,))) == []
