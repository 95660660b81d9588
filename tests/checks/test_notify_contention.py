"""Verdicts of notify-contention without a database."""

from __future__ import annotations

from dataclasses import replace

import pytest

from pgqdoctor.checks.notify_contention import CHECK
from pgqdoctor.finding import Finding
from pgqdoctor.observation import Catalog, Sample
from pgqdoctor.rows import FunctionRow, LockRow, TriggerRow

from . import build

BODY = "BEGIN PERFORM pg_notify('jobs', NEW.id::text); RETURN NEW; END"


def lock(pid: int, *, granted: bool, database: int = 0, classid: int = 1262, objid: int = 0) -> LockRow:
    found = build.lock(
        pid,
        "AccessExclusiveLock",
        locktype="object",
        relation=None,
        database=database,
        classid=classid,
        objid=objid,
    )
    return found if granted else replace(found, granted=False, wait_age_s=0.01, blocked_by=(1,))


LINE = (lock(1, granted=True), lock(2, granted=False), lock(3, granted=False))


def notifying(name: str = "jobs_notify", body: str = BODY, *, enabled: bool = True) -> Catalog:
    return build.catalog(
        functions=(
            FunctionRow(
                oid=7000,
                schema="public",
                name="tell",
                language="plpgsql",
                body=body,
                arguments="",
                returns="trigger",
            ),
        ),
        triggers=(
            TriggerRow(
                table=build.JOBS,
                name=name,
                function_schema="public",
                function_name="tell",
                function_oid=7000,
                enabled=enabled,
            ),
        ),
    )


def look(
    of: Catalog,
    *,
    waiting: int = 50,
    active: int = 100,
    locks: tuple[LockRow, ...] = LINE,
    statement: str | None = None,
) -> list[Finding]:
    sessions = tuple(
        build.sampled(
            n, wait_type="Lock" if n < waiting else None, wait_event="object" if n < waiting else None
        )
        for n in range(active)
    )
    statements = {"1/10/1": (build.CLAIM, 100, 100), "2/10/1": (build.ENQUEUE, 9_000, 9_000)}
    if statement is not None:
        statements["3/10/1"] = (statement, 9_000, 9_000)
    seen = build.observation(
        statements=statements,
        last=build.reading(build.WINDOW_S, locks=locks, tables=(build.counters(inserted=9_000),)),
        samples=(Sample(at=1.0, sessions=sessions),),
        of=of,
    )
    return build.evaluated(CHECK, seen)


def test_nobody_waits() -> None:
    assert look(notifying(), waiting=0) == []


def test_trigger_is_named_and_can_be_disabled() -> None:
    (finding,) = look(notifying())
    assert finding.severity == "critical"
    assert finding.title == (
        "50% of the samples of active sessions wait for the commit lock of NOTIFY, which trigger jobs_notify of public.jobs takes"
    )
    assert finding.remedies[0].sql == (
        "SET lock_timeout = '2s';",
        "ALTER TABLE public.jobs DISABLE TRIGGER jobs_notify;",
    )
    assert finding.remedies[0].undo[-1] == "ALTER TABLE public.jobs ENABLE TRIGGER jobs_notify;"


@pytest.mark.parametrize(
    ("waiting", "active", "severity"),
    [(4, 20, None), (9, 100, None), (10, 100, "warning"), (49, 100, "warning"), (50, 100, "critical")],
)
def test_limits(waiting: int, active: int, severity: str | None) -> None:
    found = look(notifying(), waiting=waiting, active=active)
    assert [one.severity for one in found] == ([] if severity is None else [severity])


def test_statement_that_notifies() -> None:
    (finding,) = look(build.catalog(), statement="SELECT pg_notify($1, $2)")
    assert finding.title.endswith("which a statement takes")


def test_nothing_of_the_queue_notifies() -> None:
    assert look(build.catalog()) == []
    assert look(notifying(enabled=False)) == []
    assert look(notifying(body="BEGIN RETURN NEW; END")) == []


def test_waits_for_another_object() -> None:
    other = (lock(1, granted=True, objid=16384), lock(2, granted=False, objid=16384))
    assert look(notifying(), locks=other) == []


def test_hostile_trigger_name_is_quoted() -> None:
    (finding,) = look(notifying(name='x"; DROP TABLE jobs; --'))
    assert finding.remedies[0].sql[1] == 'ALTER TABLE public.jobs DISABLE TRIGGER "x""; DROP TABLE jobs; --";'
