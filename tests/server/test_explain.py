"""Plans of a claim live: every mode of ``--explain``, the generic plan, and that nothing of it is left behind."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

import psycopg
import pytest

from pgqdoctor.collect import ObserveOptions, observe
from pgqdoctor.connect import connect
from pgqdoctor.explaining import ExplainedPlan, explain
from pgqdoctor.looks.generic import explain_prepared
from pgqdoctor.planning import Generic
from pgqdoctor.queue import GENERIC
from pgqdoctor.render.explain import render_text

TABLE = """
CREATE TABLE jobs (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    state text NOT NULL DEFAULT 'queued',
    run_at timestamptz NOT NULL DEFAULT now(),
    body text NOT NULL DEFAULT repeat('x', 7000)
) WITH (autovacuum_enabled = false);
ALTER TABLE jobs ALTER COLUMN body SET STORAGE PLAIN;
INSERT INTO jobs (state, run_at)
SELECT CASE WHEN g <= 5000 THEN 'done' ELSE 'queued' END, now() - interval '1 day' + g * interval '1 second'
  FROM generate_series(1, 10000) g;
VACUUM ANALYZE jobs;
"""
"""Ten thousand jobs, half consumed, each on a page of its own."""
INDEX = "CREATE INDEX jobs_ready_idx ON jobs (run_at, id) WHERE state = 'queued'"
CLAIM = (
    "UPDATE jobs SET state = 'running' WHERE id = (SELECT id FROM jobs WHERE state = 'queued' AND run_at <= now() "
    "ORDER BY run_at, id LIMIT 1 FOR UPDATE SKIP LOCKED) RETURNING id"
)
BOUND = CLAIM.replace("state = 'queued'", "state = %s")


@contextmanager
def worker(dsn: str, statement: str, *values: str) -> Iterator[None]:
    """Claim a job every few milliseconds, each in a transaction that is rolled back so that the table stays as it is."""
    stop = threading.Event()

    def work() -> None:
        with psycopg.connect(dsn, prepare_threshold=0) as connection:
            while not stop.is_set():
                connection.execute(statement.encode(), values or None)
                time.sleep(0.02)  # a session's last statement shows what is bound
                connection.rollback()

    thread = threading.Thread(target=work)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()


def plans(
    dsn: str, mode: str, *, claim: str = CLAIM, values: tuple[str, ...] = ()
) -> tuple[ExplainedPlan, ...]:
    with worker(dsn, claim, *values):
        seen = observe(dsn, ObserveOptions(window_seconds=1.0, explain=mode))
    (queue,) = explain(seen).queues
    return queue.plans


@pytest.fixture
def jobs(database: str) -> str:
    with psycopg.connect(database, autocommit=True) as connection:
        for statement in TABLE.split(";\n"):
            connection.execute(statement.encode())
    return database


def test_half_consumed_without_an_index(jobs: str) -> None:
    (plan,) = [one for one in plans(jobs, "select") if one.mode == "select"]
    assert plan.facts is not None and plan.facts.buffers is not None
    assert plan.facts.buffers > 9_000
    assert (
        plan.index
        == "CREATE INDEX CONCURRENTLY jobs_ready_idx ON public.jobs (run_at, id) WHERE state = 'queued';"
    )
    assert any("5,000 rows were read and refused" in one for one in plan.says)
    assert any("sorted" in one for one in plan.says)
    with psycopg.connect(jobs, autocommit=True) as connection:
        connection.execute(plan.index.replace("CONCURRENTLY ", "").encode())
        connection.execute("VACUUM jobs")
    (cured,) = [one for one in plans(jobs, "select") if one.mode == "select"]
    assert cured.facts is not None and cured.facts.buffers is not None
    assert cured.facts.buffers < 12
    assert cured.index is None


def test_the_filter_under_a_lock_is_no_fault(jobs: str) -> None:
    with psycopg.connect(jobs, autocommit=True) as connection:
        connection.execute(INDEX)
    (plan,) = [one for one in plans(jobs, "lock") if one.mode == "lock"]
    assert plan.facts is not None and plan.facts.filter is not None
    assert plan.index is None
    assert any("removed nothing: under a row lock PostgreSQL repeats" in one for one in plan.says)
    assert not any("refused" in one for one in plan.says)


@pytest.mark.parametrize("mode", ["plan", "select", "lock", "full"])
def test_every_mode_and_nothing_is_changed(jobs: str, mode: str) -> None:
    with psycopg.connect(jobs, autocommit=True) as connection:
        connection.execute(INDEX)
        before = connection.execute("SELECT sum(hashtext(j.id || state)::bigint) FROM jobs j").fetchone()
        found = [one for one in plans(jobs, mode) if one.mode != GENERIC]
        after = connection.execute("SELECT sum(hashtext(j.id || state)::bigint) FROM jobs j").fetchone()
        left = connection.execute(
            "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'pgqdoctor'"
        ).fetchone()
    assert [one.mode for one in found] == [mode]
    assert found[0].error is None
    assert found[0].facts is not None
    assert found[0].facts.measured is (mode != "plan")
    assert ("FOR UPDATE" in found[0].explained) is (mode in ("lock", "full"))
    assert found[0].explained.startswith("UPDATE") is (mode == "full")
    assert (before, left) == (after, (0,))


def test_off(jobs: str) -> None:
    with worker(jobs, CLAIM):
        seen = observe(jobs, ObserveOptions(window_seconds=1.0, explain="off"))
    (queue,) = explain(seen).queues
    assert queue.plans == ()
    assert queue.unseen is not None and "--explain off" in queue.unseen


def test_a_claim_that_calls_an_unknown_function_is_not_executed(jobs: str) -> None:
    with psycopg.connect(jobs, autocommit=True) as connection:
        connection.execute(
            "CREATE FUNCTION wanted(text) RETURNS boolean LANGUAGE plpgsql AS $$ BEGIN RETURN $1 = 'queued'; END $$"
        )
    claim = CLAIM.replace("state = 'queued' AND", "state = 'queued' AND wanted(state) AND")
    (plan,) = [one for one in plans(jobs, "full", claim=claim) if one.mode != GENERIC]
    assert plan.mode == "plan"
    assert plan.error is not None and "not known to be harmless" in plan.error


def test_the_generic_plan_of_a_bound_state_misses_the_partial_index(jobs: str) -> None:
    with psycopg.connect(jobs, autocommit=True) as connection:
        connection.execute(INDEX)
    found = plans(jobs, "select", claim=BOUND, values=("queued",))
    (custom,) = [one for one in found if one.mode == "select"]
    (generic,) = [one for one in found if one.mode == GENERIC]
    assert custom.facts is not None and custom.facts.index == "jobs_ready_idx"
    assert generic.facts is not None and generic.facts.index is None and not generic.facts.measured
    assert "state = $1" in generic.explained and "LIMIT 1" in generic.explained, (
        "the session's own text is used"
    )
    assert any("With any value of the parameters" in one for one in generic.says)
    assert not any("pg_stat_statements" in one for one in generic.says)


def test_a_claim_of_constants_has_no_generic_plan(jobs: str) -> None:
    assert [one.mode for one in plans(jobs, "select")] == ["select"]


@pytest.mark.parametrize(
    ("generic", "fails"),
    [
        (Generic(select="SELECT id FROM jobs WHERE state = $1 LIMIT 1", parameters=1), False),
        (Generic(select="SELECT id FROM jobs WHERE state = $1 LIMIT 1", parameters=2), True),
        (Generic(select="SELECT id FROM missing WHERE state = $1", parameters=1), True),
    ],
)
def test_a_prepared_statement_is_never_left_behind(jobs: str, generic: Generic, fails: bool) -> None:
    session = connect(jobs)
    try:
        with session.transaction(search_path=None, local={"plan_cache_mode": "force_generic_plan"}) as cursor:
            if fails:
                with pytest.raises(psycopg.Error):
                    explain_prepared(cursor, generic)
            else:
                assert "$1" in explain_prepared(cursor, generic)
        assert session.records("SELECT name FROM pg_prepared_statements") == []
    finally:
        session.close()


def test_the_text_names_what_was_put_in(jobs: str) -> None:
    with worker(jobs, CLAIM):
        seen = observe(jobs, ObserveOptions(window_seconds=1.0))
    text = render_text(explain(seen), color=False, width=100)
    for words in (
        "public.jobs, about 10,000 rows",
        "SKIP LOCKED",
        "= 'queued'",
        "Finding one job reads",
        "CREATE INDEX CONCURRENTLY",
    ):
        assert words in text, text
