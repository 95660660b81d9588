"""Verdicts of hot-row without a database."""

from __future__ import annotations

import pytest

from pgqdoctor.checks.hot_row import CHECK
from pgqdoctor.finding import Finding
from pgqdoctor.observation import Catalog, Sample
from pgqdoctor.rows import FunctionRow, TriggerRow

from . import build

COUNT = "UPDATE job_counters SET n = n + 1 WHERE name = 'done'"
INSERT = "INSERT INTO jobs (payload) VALUES ('{}')"


def counting(name: str = "jobs_count", rows: float | None = 1.0) -> Catalog:
    tables = [build.table()]
    if rows is not None:
        tables.append(build.table(1700, "job_counters", rows=rows))
    body = "BEGIN UPDATE job_counters SET n = n + 1 WHERE name = 'enqueued'; RETURN NEW; END"
    return build.catalog(
        tables=tuple(tables),
        functions=(
            FunctionRow(
                oid=7000,
                schema="public",
                name="c",
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
                function_name="c",
                function_oid=7000,
                enabled=True,
            ),
        ),
    )


def look(
    of: Catalog,
    text: str = INSERT,
    *,
    waiting: int = 30,
    active: int = 100,
    event: str = "tuple",
    at_queue: bool = True,
) -> list[Finding]:
    """``waiting`` of the sampled sessions wait at ``text``; their backends were at the queue a moment before."""
    earlier = tuple(build.sampled(n, 0) for n in range(waiting)) if at_queue else ()
    later = tuple(
        build.sampled(n, 1, wait_type="Lock", wait_event=event) if n < waiting else build.sampled(n)
        for n in range(active - len(earlier))
    )
    seen = build.observation(
        samples=(Sample(at=1.0, sessions=earlier), Sample(at=1.1, sessions=later)),
        texts=(INSERT + " ", text),
        of=of,
    )
    return build.evaluated(CHECK, seen)


def test_nobody_waits() -> None:
    assert look(counting(), waiting=0) == []


def test_trigger_that_counts_is_named() -> None:
    (finding,) = look(counting())
    assert finding.severity == "warning"
    assert finding.title == (
        "30% of the samples of active sessions wait for a row of job_counters that trigger jobs_count of public.jobs updates for each job"
    )
    assert finding.key == "hot-row:public.jobs:job_counters"
    assert finding.remedies[1].sql[1] == "ALTER TABLE public.jobs DISABLE TRIGGER jobs_count;"
    assert finding.remedies[1].undo[1] == "ALTER TABLE public.jobs ENABLE TRIGGER jobs_count;"


def test_statement_of_the_queues_sessions() -> None:
    (finding,) = look(build.catalog(), COUNT)
    assert "job_counters that its statements update for each job" in finding.title
    assert f"{COUNT};" in finding.remedies[1].sql


def test_statement_of_sessions_that_have_nothing_to_do_with_the_queue() -> None:
    assert look(build.catalog(), COUNT, at_queue=False) == []


@pytest.mark.parametrize(("waiting", "active", "found"), [(4, 20, 0), (9, 100, 0), (10, 100, 1)])
def test_limits(waiting: int, active: int, found: int) -> None:
    assert len(look(counting(), waiting=waiting, active=active)) == found


def test_most_of_the_samples_are_critical() -> None:
    assert [one.severity for one in look(counting(), waiting=60, active=100, at_queue=False)] == ["critical"]


def test_large_table() -> None:
    assert look(counting(rows=1_001.0)) == []
    assert len(look(counting(rows=1_000.0))) == 1


def test_waits_for_job_rows_are_the_claims_affair() -> None:
    assert look(counting(), build.CLAIM) == []


def test_waits_for_other_things() -> None:
    assert look(counting(), event="relation") == []


def test_hostile_trigger_name_is_quoted() -> None:
    (finding,) = look(counting('a"b'))
    assert finding.remedies[1].sql[1] == 'ALTER TABLE public.jobs DISABLE TRIGGER "a""b";'


SEMAPHORE = "SELECT slots FROM job_counters WHERE name = 'api' FOR UPDATE"


def test_a_row_that_is_only_locked() -> None:
    (finding,) = look(build.catalog(tables=(build.table(),)), SEMAPHORE)
    assert "wait for a row of job_counters that its statements lock for each job" in finding.title
    assert SEMAPHORE + ";" in finding.remedies[0].sql
    assert len(finding.remedies) == 1


@pytest.mark.parametrize(
    "text",
    [
        SEMAPHORE + " SKIP LOCKED",
        SEMAPHORE + " NOWAIT",
        SEMAPHORE.replace("FOR UPDATE", "FOR KEY SHARE"),
        "SELECT id FROM jobs WHERE state = 'queued' ORDER BY run_at LIMIT 1 FOR UPDATE",
    ],
)
def test_locks_that_are_no_semaphore(text: str) -> None:
    assert look(build.catalog(tables=(build.table(),)), text) == []


def test_a_counter_kept_by_an_upsert() -> None:
    upsert = "INSERT INTO job_counters (name, n) VALUES ('done', 1) ON CONFLICT (name) DO UPDATE SET n = job_counters.n + 1"
    (finding,) = look(build.catalog(tables=(build.table(),)), upsert)
    assert "that its statements update for each job" in finding.title
    assert look(build.catalog(tables=(build.table(),)), upsert.partition(" ON CONFLICT")[0]) == []


@pytest.mark.parametrize(("calls", "found"), [(86, 1), (84, 0), (115, 1), (116, 0)])
def test_a_statement_that_runs_once_for_each_claim_belongs_to_the_queue(calls: int, found: int) -> None:
    waiting = tuple(build.sampled(n, 0, wait_type="Lock", wait_event="tuple") for n in range(30))
    seen = build.observation(
        statements={"1/10/1": (build.CLAIM, 100, 100), "2/10/1": (SEMAPHORE, calls, calls)},
        samples=(Sample(at=1.0, sessions=waiting),),
        texts=(SEMAPHORE,),
        of=build.catalog(tables=(build.table(),)),
    )
    assert len(build.evaluated(CHECK, seen)) == found
