"""Which tables are queues: schemas and statements run for real, then read back from the server."""

from __future__ import annotations

import threading
from dataclasses import dataclass

import psycopg
import pytest

from pgqdoctor.collect import ObserveOptions, observe
from pgqdoctor.engine import diagnose
from pgqdoctor.errors import USAGE, PgqdoctorError
from pgqdoctor.observation import Observation, QueueIdentity
from tests.server.framework_shapes import FRAMEWORKS, Framework


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
        ready="true",
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
    "claimed inside a function whose body is kept as a tree": Shape(
        setup="""CREATE TABLE jobs (id bigserial PRIMARY KEY, status text NOT NULL DEFAULT 'todo', run_at timestamptz NOT NULL DEFAULT now());
                 CREATE FUNCTION fetch_jobs(n int) RETURNS SETOF jobs LANGUAGE sql BEGIN ATOMIC
                 UPDATE jobs SET status = 'doing' WHERE id IN (SELECT j.id FROM jobs j WHERE j.status = 'todo' AND j.run_at <= now()
                   ORDER BY j.run_at LIMIT n FOR UPDATE SKIP LOCKED) RETURNING *; END;""",
        statements=("SELECT * FROM fetch_jobs(2)",),
        name="public.jobs",
        state="status",
        run_at="run_at",
        ready="status = 'todo' AND run_at <= now()",
        claim="function",
    ),
    "a state whose name and words are unknown": Shape(
        setup="""CREATE TABLE auftrag (nr bigserial PRIMARY KEY, zustand text NOT NULL DEFAULT 'offen', seit timestamptz NOT NULL DEFAULT now());
                 CREATE INDEX ON auftrag (seit) WHERE zustand = 'offen';""",
        statements=(
            "UPDATE auftrag SET zustand = 'laufend' WHERE nr = (SELECT nr FROM auftrag WHERE zustand = 'offen' ORDER BY seit LIMIT 1 "
            "FOR UPDATE SKIP LOCKED) RETURNING nr",
            "UPDATE auftrag SET zustand = 'fertig' WHERE nr = 1",
        ),
        name="public.auftrag",
        state="zustand",
        ready="zustand = 'offen'",
    ),
    "letters for states, locked by a function and written after it": Shape(
        setup="""CREATE TABLE work (id bigserial PRIMARY KEY, lane text NOT NULL, st char(1) NOT NULL DEFAULT 'N', made timestamptz DEFAULT now());
                 CREATE FUNCTION take(l text) RETURNS SETOF work LANGUAGE plpgsql AS $$ DECLARE r work; BEGIN
                 SELECT * INTO r FROM work w WHERE w.lane = l AND w.st = 'N' ORDER BY w.id LIMIT 1 FOR UPDATE SKIP LOCKED;
                 IF FOUND THEN UPDATE work SET st = 'R' WHERE id = r.id; RETURN NEXT r; END IF; END $$;""",
        statements=("SELECT * FROM take('mail')",),
        name="public.work",
        state="st",
        ready="st = 'N'",
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
    "a key-value store": (
        "CREATE TABLE kv (key text PRIMARY KEY, value jsonb, updated_at timestamptz DEFAULT now()); "
        "INSERT INTO kv VALUES ('a','1');",
        (
            "SELECT value FROM kv WHERE key = 'a' LIMIT 1 FOR UPDATE SKIP LOCKED",
            "UPDATE kv SET value='2', updated_at=now() WHERE key='a'",
        ),
    ),
    "results that are pruned": (
        "CREATE TABLE task_results (id bigserial PRIMARY KEY, task_id text, status text NOT NULL "
        "DEFAULT 'SUCCESS', worker text, result text, date_created timestamptz DEFAULT now(), "
        "date_done timestamptz DEFAULT now()); "
        "CREATE INDEX ON task_results(status); "
        "CREATE INDEX ON task_results(date_done); "
        "INSERT INTO task_results(task_id) SELECT g::text FROM generate_series(1,50) g;",
        (
            "INSERT INTO task_results(task_id) VALUES ('x')",
            "DELETE FROM task_results WHERE id IN (SELECT id FROM task_results WHERE date_done < "
            "now() - interval '1 day' ORDER BY id LIMIT 100 FOR UPDATE SKIP LOCKED)",
            "SELECT * FROM task_results WHERE task_id='x'",
            "UPDATE task_results SET status='FAILURE' WHERE task_id = 'x'",
            "SELECT id FROM task_results WHERE date_done < now() - interval '2 days' ORDER BY "
            "date_done LIMIT 100 FOR UPDATE SKIP LOCKED",
        ),
    ),
    "schedules": (
        "CREATE TABLE schedules (name text PRIMARY KEY, cron text, next_run_at timestamptz NOT NULL "
        "DEFAULT now(), last_run_at timestamptz); "
        "INSERT INTO schedules(name) VALUES ('a'),('b');",
        (
            "SELECT name, cron FROM schedules WHERE next_run_at <= now() ORDER BY next_run_at LIMIT "
            "10 FOR UPDATE SKIP LOCKED",
            "UPDATE schedules SET next_run_at = now() + interval '0.01 s', last_run_at = now() WHERE "
            "name = 'a'",
        ),
    ),
    "the store of a scheduler in one process": (
        "CREATE TABLE apscheduler_jobs (id varchar(191) PRIMARY KEY, next_run_time double precision, "
        "job_state bytea NOT NULL DEFAULT ''); "
        "CREATE INDEX ON apscheduler_jobs(next_run_time); "
        "INSERT INTO apscheduler_jobs(id,next_run_time) VALUES ('a', 1.0);",
        (
            "SELECT id, job_state FROM apscheduler_jobs WHERE next_run_time <= 1780000000.5 ORDER BY "
            "next_run_time",
            "SELECT next_run_time FROM apscheduler_jobs WHERE next_run_time IS NOT NULL ORDER BY "
            "next_run_time LIMIT 1",
            "UPDATE apscheduler_jobs SET next_run_time = 1780000001.5, job_state='' WHERE id='a'",
        ),
    ),
    "orders paid once": (
        "CREATE TABLE orders (id bigserial PRIMARY KEY, status text NOT NULL DEFAULT 'new', total "
        "numeric, created_at timestamptz DEFAULT now(), paid_at timestamptz); "
        "CREATE INDEX ON orders (created_at) WHERE status = 'new'; "
        "INSERT INTO orders(total) SELECT 1 FROM generate_series(1,50);",
        (
            "INSERT INTO orders(total) VALUES (1)",
            "SELECT * FROM orders WHERE status = 'new' ORDER BY created_at LIMIT 20",
            "UPDATE orders SET status='paid', paid_at=now() WHERE id=1 AND status='new'",
            "SELECT * FROM orders WHERE id = 1 FOR UPDATE",
        ),
    ),
    "carts": (
        "CREATE TABLE carts (id bigserial PRIMARY KEY, user_id int, status text NOT NULL DEFAULT "
        "'open', expires_at timestamptz DEFAULT now(), updated_at timestamptz DEFAULT now()); "
        "CREATE INDEX ON carts(user_id) WHERE status='open'; "
        "INSERT INTO carts(user_id) SELECT g FROM generate_series(1,50) g;",
        (
            "SELECT * FROM carts WHERE user_id=3 AND status='open' LIMIT 1 FOR UPDATE",
            "UPDATE carts SET updated_at=now() WHERE id=3",
            "UPDATE carts SET status='ordered' WHERE id=3 AND status='open'",
            "DELETE FROM carts WHERE id IN (SELECT id FROM carts WHERE expires_at < now() - interval "
            "'30 days' LIMIT 100)",
        ),
    ),
    "user sessions": (
        "CREATE TABLE user_sessions (id text PRIMARY KEY, user_id int, data jsonb, last_seen_at "
        "timestamptz DEFAULT now(), expires_at timestamptz DEFAULT now()); "
        "CREATE INDEX ON user_sessions(expires_at); "
        "INSERT INTO user_sessions(id) SELECT g::text FROM generate_series(1,50) g;",
        (
            "UPDATE user_sessions SET last_seen_at=now(), expires_at=now()+interval '1 h' WHERE id='1'",
            "SELECT * FROM user_sessions WHERE id='1' AND expires_at > now() LIMIT 1",
            "DELETE FROM user_sessions WHERE id IN (SELECT id FROM user_sessions WHERE expires_at < "
            "now() - interval '1 day' LIMIT 100 FOR UPDATE SKIP LOCKED)",
        ),
    ),
    "locks of migrations": (
        "CREATE TABLE databasechangeloglock (id int PRIMARY KEY, locked bool NOT NULL DEFAULT false, "
        "lockgranted timestamp, lockedby text); "
        "INSERT INTO databasechangeloglock VALUES (1); "
        "CREATE TABLE knex_migrations_lock (index serial PRIMARY KEY, is_locked int DEFAULT 0); "
        "INSERT INTO knex_migrations_lock DEFAULT VALUES; "
        "CREATE TABLE shedlock (name text PRIMARY KEY, lock_until timestamp NOT NULL DEFAULT now(), "
        "locked_at timestamp NOT NULL DEFAULT now(), locked_by text); "
        "INSERT INTO shedlock(name) VALUES ('a');",
        (
            "UPDATE databasechangeloglock SET locked=true, lockedby='me', lockgranted=now() WHERE "
            "id=1 AND locked=false",
            "UPDATE databasechangeloglock SET locked=false WHERE id=1",
            "UPDATE knex_migrations_lock SET is_locked=1 WHERE is_locked=0",
            "UPDATE shedlock SET lock_until=now(), locked_at=now(), locked_by='me' WHERE name='a' AND "
            "lock_until <= now()",
            "SELECT locked FROM databasechangeloglock WHERE id=1",
        ),
    ),
    "an audit log": (
        "CREATE TABLE audit_log (id bigserial PRIMARY KEY, action text, status text DEFAULT 'ok', "
        "created_at timestamptz DEFAULT now()); "
        "CREATE INDEX ON audit_log(created_at) WHERE status <> 'ok';",
        (
            "INSERT INTO audit_log(action) VALUES ('x')",
            "SELECT * FROM audit_log ORDER BY created_at DESC LIMIT 50",
            "SELECT * FROM audit_log WHERE status='failed' ORDER BY id LIMIT 50",
        ),
    ),
    "a registry of workers": (
        "CREATE TABLE workers (id text PRIMARY KEY, hostname text, state text DEFAULT 'running', "
        "last_heartbeat timestamptz DEFAULT now()); "
        "INSERT INTO workers(id) VALUES ('a'),('b');",
        (
            "UPDATE workers SET last_heartbeat=now() WHERE id='a'",
            "SELECT id FROM workers WHERE last_heartbeat < now() - interval '1 min' LIMIT 10 FOR "
            "UPDATE SKIP LOCKED",
            "SELECT id FROM workers WHERE state='running' AND last_heartbeat < now() - interval '30 "
            "s' FOR UPDATE SKIP LOCKED",
            "DELETE FROM workers WHERE id IN (SELECT id FROM workers WHERE last_heartbeat < now() - "
            "interval '1 h' LIMIT 10 FOR UPDATE SKIP LOCKED)",
        ),
    ),
    "an archive of jobs": (
        "CREATE TABLE jobs_archive (id bigserial PRIMARY KEY, status text NOT NULL DEFAULT 'done', "
        "run_at timestamptz DEFAULT now(), attempts int DEFAULT 1, locked_at timestamptz); "
        "CREATE INDEX ON jobs_archive(run_at) WHERE status='pending';",
        (
            "INSERT INTO jobs_archive(status) VALUES ('done')",
            "SELECT * FROM jobs_archive WHERE status='failed' ORDER BY run_at DESC LIMIT 10",
        ),
    ),
    "a counter per queue": (
        "CREATE TABLE queue_counters (name text PRIMARY KEY, value int DEFAULT 0, locked_at "
        "timestamptz); "
        "INSERT INTO queue_counters VALUES ('a',0);",
        (
            "SELECT value FROM queue_counters WHERE name='a' FOR UPDATE",
            "UPDATE queue_counters SET value=value+1 WHERE name='a'",
        ),
    ),
    "semaphores": (
        "CREATE TABLE semaphores (id bigserial PRIMARY KEY, key text UNIQUE, value int DEFAULT 3, "
        "expires_at timestamptz DEFAULT now()); "
        "INSERT INTO semaphores(key) VALUES ('a');",
        (
            "UPDATE semaphores SET value=value-1, expires_at=now() WHERE key='a' AND value > 0",
            "DELETE FROM semaphores WHERE id IN (SELECT id FROM semaphores WHERE expires_at < now() - "
            "interval '1 d' LIMIT 500 FOR UPDATE SKIP LOCKED)",
        ),
    ),
    "rows with a version": (
        "CREATE TABLE products (id bigserial PRIMARY KEY, name text, active bool DEFAULT true, "
        "version int DEFAULT 0, processed_at timestamptz); "
        "INSERT INTO products(name) VALUES ('a');",
        (
            "UPDATE products SET name='b', version=1 WHERE id=1 AND version=0",
            "SELECT * FROM products WHERE active LIMIT 20",
            "SELECT * FROM products WHERE active = true ORDER BY id LIMIT 20",
            "UPDATE products SET active=false WHERE id=1",
        ),
    ),
    "tickets": (
        "CREATE TABLE tickets (id bigserial PRIMARY KEY, status text DEFAULT 'open', priority int "
        "DEFAULT 1, assigned_to int, created_at timestamptz DEFAULT now(), closed_at timestamptz); "
        "CREATE INDEX ON tickets(priority, created_at) WHERE status='open'; "
        "INSERT INTO tickets(priority) SELECT 1 FROM generate_series(1,50);",
        (
            "INSERT INTO tickets(priority) VALUES (2)",
            "SELECT * FROM tickets WHERE status='open' ORDER BY priority, created_at LIMIT 20",
            "UPDATE tickets SET status='closed', closed_at=now() WHERE id=1",
            "UPDATE tickets SET assigned_to=3 WHERE id=2",
        ),
    ),
    "coupons": (
        "CREATE TABLE coupons (id bigserial PRIMARY KEY, code text UNIQUE, used bool DEFAULT false, "
        "used_by int, used_at timestamptz); "
        "INSERT INTO coupons(code) SELECT g::text FROM generate_series(1,50) g;",
        ("UPDATE coupons SET used=true, used_at=now() WHERE code='5' AND used=false RETURNING id",),
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
        assert diagnose(seen).queues[0].claim.shape == shape.claim


@pytest.mark.parametrize(("setup", "statements"), INNOCENT.values(), ids=INNOCENT.keys())
def test_other_tables_are_not(database: str, setup: str, statements: tuple[str, ...]) -> None:
    seen = observed(database, setup, statements)
    assert certain(seen) == []
    assert seen.looked_for


@pytest.mark.parametrize("framework", FRAMEWORKS.values(), ids=FRAMEWORKS.keys())
def test_frameworks_are_known(database: str, framework: Framework) -> None:
    seen = observed(database, framework.setup, framework.statements)
    assert [one.name for one in seen.queues] == [framework.table]
    (queue,) = certain(seen)
    assert queue.framework == framework.framework
    assert queue.roles.state == framework.state
    assert queue.roles.run_at == framework.run_at
    assert queue.ready_predicate == framework.ready
    report = diagnose(seen)
    assert report.queues[0].claim.shape == framework.claim
    assert report.queues[0].ready.rows is not None
    assert not report.crashed


@pytest.mark.parametrize(("setup", "statements"), INNOCENT.values(), ids=INNOCENT.keys())
def test_tables_in_use_that_are_none_are_not_even_possible(
    database: str, setup: str, statements: tuple[str, ...]
) -> None:
    over = threading.Event()
    with psycopg.connect(database, autocommit=True) as worker:
        if setup:
            worker.execute(setup.encode())

        def work() -> None:
            while not over.wait(0.02):
                for statement in statements:
                    worker.execute(statement.encode())

        thread = threading.Thread(target=work)
        thread.start()
        try:
            seen = observe(database, ObserveOptions(window_seconds=1.3))
        finally:
            over.set()
            thread.join()
    assert [one.name for one in seen.queues] == []


def test_queue_option_overrides_discovery(database: str) -> None:
    with psycopg.connect(database, autocommit=True) as connection:
        connection.execute(INNOCENT["postings"][0].encode())
    for name in ("public.jobs", "jobs"):
        seen = observe(database, ObserveOptions(window_seconds=0.3, queues=(name,)))
        (queue,) = certain(seen)
        assert queue.name == "public.jobs"
        assert "named by --queue" in queue.recognised_by


def test_queue_option_says_what_is_no_table(database: str) -> None:
    with psycopg.connect(database, autocommit=True) as connection:
        connection.execute(
            b"""
CREATE TABLE "My jobs" (id bigserial PRIMARY KEY, state text);
CREATE VIEW ready AS SELECT id FROM "My jobs" WHERE state = 'ready';
CREATE MATERIALIZED VIEW counted AS SELECT state, count(*) FROM "My jobs" GROUP BY state;
CREATE TABLE emails (id bigserial PRIMARY KEY, state text);
CREATE VIEW again AS SELECT * FROM ready;
CREATE TABLE parts (id bigint, state text) PARTITION BY RANGE (id);
CREATE TABLE parts_1 PARTITION OF parts FOR VALUES FROM (0) TO (1000);
CREATE FOREIGN DATA WRAPPER nowhere; CREATE SERVER there FOREIGN DATA WRAPPER nowhere;
CREATE FOREIGN TABLE far (id bigint) SERVER there;
"""
        )
    for name, kind, tables in (
        ("ready", "a view", 'public."My jobs"'),
        ("again", "a view", 'public."My jobs"'),
        ("public.counted", "a materialised view", 'public."My jobs"'),
        ('public."My jobs_id_seq"', "a sequence", 'public."My jobs"'),
        ("public.My jobs_pkey", "an index", 'public."My jobs"'),
        ("far", "a foreign table", "another server"),
    ):
        with pytest.raises(PgqdoctorError) as caught:
            observe(database, ObserveOptions(window_seconds=0.1, queues=(name,)))
        assert caught.value.exit_code == USAGE
        assert f"is {kind}, not a table" in caught.value.message
        assert tables in caught.value.hint
    (queue,) = certain(observe(database, ObserveOptions(window_seconds=0.1, queues=("parts_1",))))
    assert queue.name == "public.parts"
    claim = "SELECT id FROM emails WHERE state = 'ready' LIMIT 1 FOR UPDATE SKIP LOCKED"
    with pytest.raises(PgqdoctorError, match="takes jobs from emails, which is another table"):
        observe(
            database,
            ObserveOptions(
                window_seconds=0.1, queues=('public."My jobs"',), claim_queries={'public."My jobs"': claim}
            ),
        )


def test_a_finisher_in_the_form_of_a_claim_is_none(database: str) -> None:
    """pg_stat_statements has lost the states; the sessions' last statements still show them."""
    finish = (
        "UPDATE jobs SET state = 'done' WHERE id = (SELECT id FROM jobs WHERE state = 'running' ORDER BY id LIMIT 1 "
        "FOR UPDATE SKIP LOCKED) RETURNING id, state"
    )
    claim = "UPDATE jobs SET state = 'running' WHERE id = (SELECT id FROM jobs WHERE state = 'ready' ORDER BY id LIMIT 1 FOR UPDATE SKIP LOCKED) RETURNING id"
    with (
        psycopg.connect(database, autocommit=True) as worker,
        psycopg.connect(database, autocommit=True) as finisher,
    ):
        worker.execute(
            b"CREATE TABLE jobs (id bigserial PRIMARY KEY, state text NOT NULL DEFAULT 'ready', run_at timestamptz);"
            b"INSERT INTO jobs SELECT FROM generate_series(1, 300); ANALYZE jobs"
        )
        for _ in range(10):
            worker.execute(claim.encode())
            finisher.execute(finish.encode())
            finisher.execute(finish.encode())
        (queue,) = certain(observe(database, ObserveOptions(window_seconds=0.3)))
    assert queue.ready_values == ("ready",)
    assert len(queue.claim_keys) == len(queue.other_keys) == 1


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
CREATE TABLE mails (id bigserial PRIMARY KEY, status text NOT NULL DEFAULT 'pending', attempts int DEFAULT 0, expires_at timestamptz);
INSERT INTO mails DEFAULT VALUES;
CREATE INDEX ON mails (status);
ANALYZE mails;
"""
"""The same shape, and a column that counts attempts."""
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


@pytest.mark.parametrize(("rows", "queues"), [(30, 0), (2_000, 1)])
def test_recurring_work_is_pulled_like_a_queue_where_it_is_much(
    database: str, rows: int, queues: int
) -> None:
    setup = (
        "CREATE TABLE alerts (id int PRIMARY KEY, next_run timestamptz, runs int DEFAULT 0);"
        f"INSERT INTO alerts SELECT g, now() FROM generate_series(1, {rows}) g; ANALYZE alerts"
    )
    pull = (
        "WITH c AS MATERIALIZED (SELECT id FROM alerts WHERE next_run <= now() ORDER BY next_run LIMIT 10 FOR UPDATE SKIP LOCKED) "
        "UPDATE alerts SET next_run = now() + interval '1 hour', runs = runs + 1 FROM c WHERE alerts.id = c.id"
    )
    assert len(certain(observed(database, setup, (pull,)))) == queues
