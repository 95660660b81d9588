"""Which tables are queues: schemas and statements run for real, then read back from the server."""

from __future__ import annotations

from dataclasses import dataclass

import psycopg
import pytest

from pgqdoctor.collect import ObserveOptions, observe
from pgqdoctor.observation import Observation, QueueIdentity


@dataclass(frozen=True, kw_only=True)
class Shape:
    """DDL, the statements an application runs, and what discovery should say of it."""

    setup: str
    statements: tuple[str, ...]
    name: str
    ready: str | None
    state: str | None = None
    run_at: str | None = None
    claim: str | None = None


SHAPES = {
    "text state, one statement": Shape(
        setup="""CREATE TABLE jobs (id bigserial PRIMARY KEY, status text NOT NULL DEFAULT 'queued', run_at timestamptz NOT NULL DEFAULT now());
                 CREATE INDEX ON jobs (run_at) WHERE status = 'queued';""",
        statements=(
            "UPDATE jobs SET status = 'running' WHERE id = (SELECT id FROM jobs WHERE status = 'queued' AND run_at <= now() "
            "ORDER BY run_at LIMIT 1 FOR UPDATE SKIP LOCKED) RETURNING id",
        ),
        name="public.jobs",
        state="status",
        run_at="run_at",
        ready="status = 'queued' AND run_at <= now()",
    ),
    "enum compared by its order": Shape(
        setup="""CREATE TYPE st AS ENUM ('created', 'retry', 'active', 'completed');
                 CREATE TABLE job (id bigserial PRIMARY KEY, state st NOT NULL DEFAULT 'created', start_after timestamptz NOT NULL DEFAULT now());""",
        statements=(
            "WITH next AS (SELECT id FROM job WHERE state < 'active' AND start_after <= now() ORDER BY id LIMIT 5 FOR UPDATE SKIP LOCKED) "
            "UPDATE job SET state = 'active' FROM next WHERE job.id = next.id RETURNING job.id",
        ),
        name="public.job",
        state="state",
        run_at="start_after",
        ready="state IN ('created', 'retry') AND start_after <= now()",
    ),
    "timestamp that is NULL until taken, quoted mixed-case names": Shape(
        setup="""CREATE SCHEMA "Mail Room";
                 CREATE TABLE "Mail Room"."Out Box" ("Id" bigserial PRIMARY KEY, "pickedAt" timestamptz, "sendAfter" timestamptz NOT NULL DEFAULT now());""",
        statements=(
            'UPDATE "Mail Room"."Out Box" SET "pickedAt" = now() WHERE "Id" = (SELECT "Id" FROM "Mail Room"."Out Box" WHERE "pickedAt" IS NULL '
            'AND "sendAfter" <= now() ORDER BY "sendAfter" LIMIT 1 FOR UPDATE SKIP LOCKED) RETURNING *',
        ),
        name='"Mail Room"."Out Box"',
        state="pickedAt",
        run_at="sendAfter",
        ready='"pickedAt" IS NULL AND "sendAfter" <= now()',
    ),
    "boolean, negated": Shape(
        setup="CREATE TABLE message (id bigserial PRIMARY KEY, visible bool NOT NULL DEFAULT true, payload text);",
        statements=(
            "UPDATE message SET visible = false WHERE id = (SELECT id FROM message WHERE visible IS NOT false ORDER BY id LIMIT 1 "
            "FOR UPDATE SKIP LOCKED) RETURNING id",
        ),
        name="public.message",
        state="visible",
        ready="visible = true",
    ),
    "deleted when taken": Shape(
        setup="CREATE TABLE outbox (id bigserial PRIMARY KEY, body text);",
        statements=(
            "DELETE FROM outbox WHERE id = (SELECT id FROM outbox ORDER BY id LIMIT 1 FOR UPDATE SKIP LOCKED) RETURNING body",
        ),
        name="public.outbox",
        ready=None,
        claim="delete-skip-locked",
    ),
    "small integer state": Shape(
        setup="""CREATE TABLE tasks (id bigserial PRIMARY KEY, state smallint NOT NULL DEFAULT 0, attempts int NOT NULL DEFAULT 0);
                 CREATE INDEX ON tasks (id) WHERE state = 0;""",
        statements=(
            "UPDATE tasks SET state = 1, attempts = attempts + 1 WHERE id = (SELECT id FROM tasks WHERE state = 0 ORDER BY id LIMIT 1 "
            "FOR UPDATE SKIP LOCKED) RETURNING id",
        ),
        name="public.tasks",
        state="state",
        ready="state = '0'",
    ),
    "guarded update by key": Shape(
        setup="CREATE TABLE work (id bigserial PRIMARY KEY, status text NOT NULL DEFAULT 'pending', attempts int NOT NULL DEFAULT 0);",
        statements=(
            "SELECT id FROM work WHERE status = 'pending' ORDER BY id LIMIT 1",
            "UPDATE work SET status = 'running' WHERE id = 1 AND status = 'pending'",
        ),
        name="public.work",
        state="status",
        ready="status = 'pending'",
        claim="guarded",
    ),
    "partitioned": Shape(
        setup="""CREATE TABLE jobs (id bigserial, status text NOT NULL DEFAULT 'ready', tenant int NOT NULL, PRIMARY KEY (tenant, id))
                 PARTITION BY LIST (tenant);
                 CREATE TABLE jobs_1 PARTITION OF jobs FOR VALUES IN (1); CREATE TABLE jobs_2 PARTITION OF jobs FOR VALUES IN (2);
                 CREATE INDEX ON jobs (id) WHERE status = 'ready';""",
        statements=(
            "SELECT id FROM jobs WHERE status = 'ready' AND tenant = 1 ORDER BY id LIMIT 1 FOR UPDATE SKIP LOCKED",
            "SELECT id FROM jobs_2 WHERE status = 'ready' ORDER BY id LIMIT 1 FOR UPDATE SKIP LOCKED",
            "UPDATE jobs SET status = 'running' WHERE tenant = 1 AND id = 1",
        ),
        name="public.jobs",
        state="status",
        ready="status = 'ready'",
    ),
    "claimed inside a function": Shape(
        setup="""CREATE TABLE jobs (id bigserial PRIMARY KEY, status text NOT NULL DEFAULT 'todo', run_at timestamptz NOT NULL DEFAULT now());
                 CREATE FUNCTION fetch_job(kind text) RETURNS SETOF jobs LANGUAGE plpgsql AS $$
                 BEGIN RETURN QUERY UPDATE jobs SET status = 'doing' WHERE id = (SELECT j.id FROM jobs j WHERE j.status = 'todo'
                   ORDER BY j.run_at LIMIT 1 FOR UPDATE SKIP LOCKED) RETURNING *; END $$;""",
        statements=("SELECT * FROM fetch_job('mail')",),
        name="public.jobs",
        state="status",
        run_at="run_at",
        ready="status = 'todo' AND run_at <= now()",
        claim="function",
    ),
}

INNOCENT = {
    "postings": (
        "CREATE TABLE jobs (id bigserial PRIMARY KEY, status text NOT NULL DEFAULT 'open', title text, posted_at timestamptz DEFAULT now());"
        "CREATE INDEX ON jobs (status);",
        (
            "SELECT id, title FROM jobs WHERE status = 'open' ORDER BY posted_at DESC LIMIT 20",
            "UPDATE jobs SET title = 'Clerk' WHERE id = 1",
            "SELECT * FROM jobs WHERE id = 1 FOR UPDATE",
        ),
    ),
    "accounts": (
        "CREATE TABLE accounts (id bigserial PRIMARY KEY, balance numeric NOT NULL DEFAULT 0, version int NOT NULL DEFAULT 0);",
        (
            "SELECT * FROM accounts WHERE id = 1 FOR UPDATE",
            "UPDATE accounts SET balance = balance - 1, version = 1 WHERE id = 1 AND version = 0",
        ),
    ),
    "orders with a status": (
        "CREATE TABLE orders (id bigserial PRIMARY KEY, status text NOT NULL DEFAULT 'new', total numeric);"
        "CREATE INDEX ON orders (id) WHERE status = 'new';",
        (
            "SELECT status, count(*) FROM orders GROUP BY status",
            "UPDATE orders SET status = 'paid' WHERE id = 1",
        ),
    ),
    "empty": ("", ()),
}


def observed(dsn: str, setup: str, statements: tuple[str, ...]) -> Observation:
    with psycopg.connect(dsn, autocommit=True) as connection:
        if setup:
            connection.execute(setup.encode())
        for statement in statements * 5:
            connection.execute(statement.encode())
    return observe(dsn, ObserveOptions(window_seconds=0.3))


def certain(seen: Observation) -> list[QueueIdentity]:
    return [one for one in seen.queues if one.certain]


@pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES.keys())
def test_queues_are_found(database: str, shape: Shape) -> None:
    seen = observed(database, shape.setup, shape.statements)
    (queue,) = certain(seen)
    assert queue.name == shape.name
    assert queue.roles.state == shape.state
    assert queue.roles.run_at == shape.run_at
    assert queue.ready_predicate == shape.ready
    assert queue.recognised_by
    if shape.claim is not None:
        from pgqdoctor.engine import diagnose

        assert diagnose(seen).queues[0].claim.shape == shape.claim


@pytest.mark.parametrize(("setup", "statements"), INNOCENT.values(), ids=INNOCENT.keys())
def test_other_tables_are_not(database: str, setup: str, statements: tuple[str, ...]) -> None:
    seen = observed(database, setup, statements)
    assert certain(seen) == []
    assert seen.looked_for


def test_queue_option_overrides_discovery(database: str) -> None:
    with psycopg.connect(database, autocommit=True) as connection:
        connection.execute(INNOCENT["postings"][0].encode())
    for name in ("public.jobs", "jobs"):
        seen = observe(database, ObserveOptions(window_seconds=0.3, queues=(name,)))
        (queue,) = certain(seen)
        assert queue.name == "public.jobs"
        assert "named by --queue" in queue.recognised_by


def test_namesakes_in_other_schemas_are_told_apart_by_what_moves(database: str) -> None:
    table = "(id bigserial PRIMARY KEY, status text NOT NULL DEFAULT 'queued', run_at timestamptz NOT NULL DEFAULT now())"
    claim = (
        "UPDATE jobs SET status = 'running' WHERE id = (SELECT id FROM jobs WHERE status = 'queued' ORDER BY run_at LIMIT 1 "
        "FOR UPDATE SKIP LOCKED) RETURNING id"
    )
    with psycopg.connect(database, autocommit=True) as connection:
        for schema in ("a", "b"):
            connection.execute(f"CREATE SCHEMA {schema}; CREATE TABLE {schema}.jobs {table}".encode())
        connection.execute("SET search_path = b")
        connection.execute("INSERT INTO jobs (status) SELECT 'queued' FROM generate_series(1, 500)")
        import threading

        over = threading.Event()

        def work() -> None:
            with psycopg.connect(database, autocommit=True) as worker:
                worker.execute("SET search_path = b")
                while not over.is_set():
                    worker.execute(claim.encode())
                    over.wait(0.02)

        thread = threading.Thread(target=work)
        thread.start()
        try:
            seen = observe(database, ObserveOptions(window_seconds=2.5))
        finally:
            over.set()
            thread.join()
    assert [one.name for one in certain(seen)] == ["b.jobs"]


def test_without_pg_stat_statements_the_sessions_tell(database: str) -> None:
    with psycopg.connect(database, autocommit=True) as connection:
        connection.execute("DROP EXTENSION pg_stat_statements")
        connection.execute(SHAPES["text state, one statement"].setup.encode())
        connection.execute("INSERT INTO jobs (status) SELECT 'queued' FROM generate_series(1, 50)")
        with psycopg.connect(database) as worker:
            worker.execute(SHAPES["text state, one statement"].statements[0].encode())
            seen = observe(database, ObserveOptions(window_seconds=0.5))
    (queue,) = certain(seen)
    assert queue.name == "public.jobs"
    assert "claim statement in pg_stat_activity" in queue.recognised_by
    assert [one.what for one in seen.lacks] == ["statements"]


VACANCIES = """
CREATE TABLE vacancies (id bigserial PRIMARY KEY, title text, status text NOT NULL DEFAULT 'open', expires_at timestamptz);
INSERT INTO vacancies (title) SELECT 'engineer' FROM generate_series(1, 2000) g;
CREATE INDEX ON vacancies (status);
ANALYZE vacancies;
"""
WORK = """
CREATE TABLE mails (id bigserial PRIMARY KEY, status text NOT NULL DEFAULT 'pending', expires_at timestamptz);
INSERT INTO mails DEFAULT VALUES;
CREATE INDEX ON mails (status);
ANALYZE mails;
"""
"""The same shape, but what is pending is work."""
NO_DEFAULT = """
CREATE TABLE build (id bigserial PRIMARY KEY, status text, env int);
INSERT INTO build (status) SELECT 'done' FROM generate_series(1, 2000) g;
ANALYZE build;
INSERT INTO build (status) VALUES ('queued');
CREATE INDEX ON build (status, id);
"""


@pytest.mark.parametrize(
    ("setup", "statements", "queues"),
    [
        pytest.param(
            VACANCIES,
            (
                "SELECT id FROM vacancies WHERE status = 'open' ORDER BY id LIMIT 20",
                "UPDATE vacancies SET status = 'closed' WHERE id = 7",
            ),
            (),
            id="vacancies, oldest first",
        ),
        pytest.param(
            WORK,
            (
                "SELECT id FROM mails WHERE status = 'pending' ORDER BY expires_at DESC LIMIT 20",
                "UPDATE mails SET status = 'sent' WHERE id = 1",
            ),
            (),
            id="a page of the latest",
        ),
        pytest.param(
            WORK,
            (
                "SELECT id FROM mails WHERE status = 'pending' ORDER BY id LIMIT 1",
                "UPDATE mails SET status = 'sent' WHERE id = 1",
            ),
            ("public.mails",),
            id="polled work",
        ),
    ],
)
def test_what_is_polled_and_written_by_key(
    database: str, setup: str, statements: tuple[str, ...], queues: tuple[str, ...]
) -> None:
    seen = observed(database, setup, statements)
    assert tuple(one.name for one in seen.queues if one.certain) == queues


def test_state_that_only_the_index_knows(database: str) -> None:
    """Normalised text, no default, no partial index, and statistics older than the first queued row."""
    claim = "SELECT id FROM build WHERE status = 'queued' ORDER BY id LIMIT 1 FOR UPDATE SKIP LOCKED"
    (queue,) = observed(database, NO_DEFAULT, (claim,)).queues
    assert queue.ready_predicate == "status = 'queued'"
