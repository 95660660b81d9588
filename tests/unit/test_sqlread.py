"""What the statement reader says about claims of the shapes that real frameworks use, and about look-alikes."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pgqdoctor.sqlbody import read_definition
from pgqdoctor.sqlfacts import Claim, Condition, RowLock, Statement, TableName
from pgqdoctor.sqlread import may_concern_queue, read_function, read_predicate, read_sql, text_fingerprint
from pgqdoctor.sqltext import MAX_CHARACTERS, MAX_NESTING, nesting, scan


def only(text: str) -> Statement:
    reading = read_sql(text)
    assert reading.unread == ()
    assert len(reading.statements) == 1
    return reading.statements[0]


def claim_of(text: str) -> Claim:
    claims = only(text).claims
    assert len(claims) == 1
    return claims[0]


def name(table: TableName) -> str:
    return f"{table.schema}.{table.name}" if table.schema else table.name


def conditions_as_tuples(conditions: tuple[Condition, ...]) -> list[tuple[str | None, str, tuple[str, ...]]]:
    return [(test.column, test.operator, test.values) for test in conditions]


PGQUEUER_LIKE = """
WITH wanted AS (SELECT unnest($1::text[]) AS kind, unnest($2::int[]) AS room),
busy AS (SELECT kind, count(*) AS n FROM pgqueuer WHERE status = 'picked' GROUP BY kind), -- running now
found AS (
  SELECT j.id FROM wanted w /* one pass per kind */ LEFT JOIN busy b ON b.kind = w.kind
  CROSS JOIN LATERAL (
    SELECT q.id, q.priority FROM pgqueuer q
    WHERE q.kind = w.kind AND q.status = 'queued' AND q.execute_after < now()
    ORDER BY q.priority DESC, q.id FOR UPDATE SKIP LOCKED LIMIT $3) j
  ORDER BY j.priority DESC LIMIT $4),
taken AS (UPDATE pgqueuer SET status = 'picked', manager = $5 WHERE id = ANY(SELECT id FROM found) RETURNING *)
INSERT INTO pgqueuer_log (job_id, status) SELECT id, status FROM taken RETURNING *
"""

# id: (text, shape, table, limit kind, repeatable_limit, writes)
CLAIMS: dict[str, tuple[str, str, str, str, bool, bool]] = {
    "river: joined sub-select": (
        "UPDATE river_job SET state = $1, attempted_at = now() FROM (SELECT id FROM river_job WHERE state = $2 AND "
        "queue = $3 AND scheduled_at <= now() ORDER BY priority, scheduled_at, id LIMIT $4 FOR UPDATE SKIP LOCKED) f "
        "WHERE river_job.id = f.id RETURNING river_job.*",
        "skip-locked", "river_job", "parameter", True, True,
    ),
    "oban: materialised CTE": (
        'WITH "subset" AS MATERIALIZED (SELECT o."id" FROM "public"."oban_jobs" AS o WHERE o."state" = $1 '
        'ORDER BY o."priority" LIMIT $2 FOR UPDATE SKIP LOCKED) UPDATE "public"."oban_jobs" AS t SET "state" = $3 '
        'FROM "subset" AS s WHERE t."id" = s."id" AND t."attempt" < t."max_attempts" RETURNING t.*',
        "skip-locked", "public.oban_jobs", "parameter", False, True,
    ),
    "pg-boss: enum order": (
        "WITH next AS (SELECT id FROM pgboss.job WHERE name = $1 AND state < 'active' AND startAfter < now() "
        "ORDER BY priority DESC, createdOn LIMIT $2 FOR UPDATE SKIP LOCKED) UPDATE pgboss.job j SET state = 'active', "
        "startedOn = now() FROM next WHERE j.id = next.id RETURNING j.id",
        "skip-locked", "pgboss.job", "parameter", False, True,
    ),
    "graphile-worker: a helper table locked inside": (
        "with j as (select jobs.queue_id, jobs.id from gw._jobs as jobs where jobs.is_available = $1 and "
        "task_id = any($2::int[]) and (jobs.queue_id is null or jobs.queue_id in (select id from gw._queues as q "
        "where q.is_available = $3 for update skip locked)) order by priority limit $4 for update skip locked), "
        "q as (update gw._queues as q set locked_by = $5 from j where q.id = j.queue_id) "
        "update gw._jobs as jobs set locked_by = $6, locked_at = now() from j where jobs.id = j.id returning *",
        "skip-locked", "gw._jobs", "parameter", False, True,
    ),
    "solid_queue: two statements": (
        'SELECT "ready"."id", "ready"."job_id" FROM "ready" WHERE "ready"."queue_name" = $1 '
        "ORDER BY priority, job_id LIMIT $2 FOR UPDATE SKIP LOCKED",
        "skip-locked", "ready", "parameter", False, False,
    ),
    "db-scheduler: row value, SKIP LOCKED before LIMIT": (
        "UPDATE scheduled_tasks t SET picked = $1, picked_by = $2, version = version + $3 WHERE (t.task_name, "
        "t.task_instance) IN (SELECT s.task_name, s.task_instance FROM scheduled_tasks s WHERE picked = $4 AND "
        "execution_time <= $5 ORDER BY execution_time FOR UPDATE SKIP LOCKED LIMIT $6) RETURNING t.*",
        "skip-locked", "scheduled_tasks", "parameter", True, True,
    ),
    "db-scheduler: compare and set on a composite key": (
        "UPDATE scheduled_tasks SET picked = $1, picked_by = $2, version = version + $3 WHERE picked = $4 "
        "AND task_name = $5 AND task_instance = $6 AND version = $7",
        "guarded", "scheduled_tasks", "none", False, True,
    ),
    "windmill: several update CTEs, squashed list": (
        "WITH peek AS (SELECT id FROM v2_job_queue WHERE running = $1 AND tag IN ($2 /*, ... */) AND scheduled_for <= now() "
        "ORDER BY priority DESC NULLS LAST FOR UPDATE SKIP LOCKED LIMIT $3), q AS NOT MATERIALIZED (UPDATE v2_job_queue "
        "SET running = $4, started_at = coalesce(started_at, now()) WHERE id = (SELECT id FROM peek) RETURNING *), "
        "r AS NOT MATERIALIZED (UPDATE v2_job_runtime SET ping = now() WHERE id = (SELECT id FROM peek)) SELECT * FROM q",
        "skip-locked", "v2_job_queue", "parameter", False, True,
    ),
    "queue_classic: FOR NO KEY UPDATE": (
        "WITH picked AS (SELECT id FROM queue_classic_jobs WHERE locked_at IS NULL AND q_name = $1 LIMIT $2 "
        "FOR NO KEY UPDATE SKIP LOCKED) UPDATE queue_classic_jobs SET locked_at = now(), locked_by = pg_backend_pid() "
        "FROM picked WHERE queue_classic_jobs.id = picked.id RETURNING *",
        "skip-locked", "queue_classic_jobs", "parameter", False, True,
    ),
    "prisma: three-part names": (
        'SELECT "public"."queue_jobs"."id" FROM "public"."queue_jobs" WHERE "public"."queue_jobs"."finishedAt" IS NULL '
        'ORDER BY "public"."queue_jobs"."runAt" LIMIT $1 FOR UPDATE SKIP LOCKED',
        "skip-locked", "public.queue_jobs", "parameter", False, False,
    ),
    "kombu: blocking, negated flag": (
        "SELECT m.id AS m_id FROM kombu_message m WHERE m.queue_id = $1 AND m.visible != $2 ORDER BY m.sent_at, m.id "
        "LIMIT $3 FOR UPDATE",
        "blocking", "kombu_message", "parameter", False, False,
    ),
    "delayed_job: blocking sub-select under IN": (
        "UPDATE delayed_jobs SET locked_at = $1, locked_by = $2 WHERE id IN (SELECT id FROM delayed_jobs WHERE ((run_at "
        "<= $3 AND (locked_at IS NULL OR locked_at < $4)) OR locked_by = $5) AND failed_at IS NULL ORDER BY priority "
        "LIMIT $6 FOR UPDATE) RETURNING *",
        "blocking", "delayed_jobs", "parameter", True, True,
    ),
    "hangfire: interval $n": (
        'UPDATE "hangfire"."jobqueue" SET "fetchedat" = now() WHERE "id" = (SELECT "id" FROM "hangfire"."jobqueue" WHERE '
        '"queue" = ANY ($1) AND ("fetchedat" IS NULL OR "fetchedat" < now() + INTERVAL $2) ORDER BY "fetchedat" '
        'FOR UPDATE SKIP LOCKED LIMIT $3) RETURNING "id"',
        "skip-locked", "hangfire.jobqueue", "parameter", False, True,
    ),
    "hangfire: compare and set": (
        'UPDATE "hangfire"."jobqueue" SET "fetchedat" = now(), "updatecount" = ($1 + $2) % $3 '
        'WHERE "id" = $4 AND "updatecount" = $5 RETURNING "id"',
        "guarded", "hangfire.jobqueue", "none", False, True,
    ),
    "dbos: schema-qualified columns, NOWAIT": (
        'SELECT "dbos".workflow_status.uuid FROM "dbos".workflow_status WHERE "dbos".workflow_status.status = $1 '
        "ORDER BY priority, created_at LIMIT $2 FOR UPDATE NOWAIT",
        "nowait", "dbos.workflow_status", "parameter", False, False,
    ),
    "dbos: no LIMIT": (
        "SELECT uuid FROM dbos.workflow_status WHERE queue_name = $1 AND status = $2 FOR UPDATE SKIP LOCKED",
        "skip-locked", "dbos.workflow_status", "none", False, False,
    ),
    "pgqueuer: LATERAL in a chain of CTEs": (PGQUEUER_LIKE, "skip-locked", "pgqueuer", "parameter", False, True),
    "roost: FOR UPDATE OF one of three": (
        "SELECT j.id FROM roost.jobs j JOIN roost.queues q ON q.name = j.queue WHERE j.state = $1 AND NOT q.paused AND "
        "NOT EXISTS (SELECT $2 FROM roost.jobs d WHERE d.id = ANY(j.depends_on) AND d.state <> $3) "
        "ORDER BY j.priority LIMIT $4 FOR UPDATE OF j SKIP LOCKED",
        "skip-locked", "roost.jobs", "parameter", False, False,
    ),
    "airflow: several tables, one locked": (
        "SELECT ti.task_id FROM dag JOIN dag_run ON dag_run.dag_id = dag.dag_id JOIN task_instance ti ON ti.run_id = "
        "dag_run.run_id WHERE dag_run.state = $1 AND ti.state = $2 LIMIT $3 FOR UPDATE OF ti SKIP LOCKED",
        "skip-locked", "task_instance", "parameter", False, False,
    ),
    "dramatiq: by key and state": (
        "UPDATE dramatiq.queue SET state = $1 WHERE message_id = $2 AND state IN ($3, $4) AND pg_try_advisory_lock($5)",
        "guarded", "dramatiq.queue", "none", False, True,
    ),
    "pq: PREPARE prefix, lock level over a lock level": (
        "PREPARE pq_1 (text, int) AS WITH chosen AS (SELECT id FROM queue WHERE q_name = $1 AND dequeued_at IS NULL "
        "ORDER BY id FOR UPDATE SKIP LOCKED LIMIT $2), gone AS (UPDATE queue SET dequeued_at = current_timestamp WHERE id = "
        "(SELECT id FROM chosen) RETURNING *) SELECT * FROM gone",
        "skip-locked", "queue", "parameter", False, True,
    ),
    "good_job: advisory lock over a CTE": (
        'SELECT good_jobs.* FROM good_jobs WHERE id IN (WITH "rows" AS MATERIALIZED (SELECT id, active_id FROM good_jobs '
        "WHERE finished_at IS NULL ORDER BY priority) SELECT rows.id FROM rows WHERE pg_try_advisory_lock(hashtext("
        "rows.active_id::text)) LIMIT $1)",
        "advisory", "good_jobs", "parameter", True, False,
    ),
    "que: advisory lock on the row chosen": (
        "WITH RECURSIVE jobs AS (SELECT (j).*, pg_try_advisory_lock((j).id) AS locked FROM (SELECT j FROM que_jobs AS j "
        "WHERE run_at <= now() ORDER BY priority LIMIT 1) t UNION ALL (SELECT (j).*, pg_try_advisory_lock((j).id) FROM ("
        "SELECT (SELECT j FROM que_jobs AS j WHERE (priority, id) > (jobs.priority, jobs.id) LIMIT 1) AS j FROM jobs "
        "LIMIT 1) t)) SELECT * FROM jobs WHERE locked LIMIT 1",
        "advisory", "que_jobs", "constant", False, False,
    ),
    "pgmq: delete": (
        "WITH c AS (SELECT msg_id FROM pgmq.q_a WHERE vt <= clock_timestamp() ORDER BY msg_id LIMIT $1 FOR UPDATE SKIP "
        "LOCKED) DELETE FROM pgmq.q_a WHERE msg_id IN (SELECT msg_id FROM c) RETURNING *",
        "delete-skip-locked", "pgmq.q_a", "parameter", False, True,
    ),
    "delete using": (
        "DELETE FROM outbox USING (SELECT id FROM outbox ORDER BY id LIMIT 10 FOR UPDATE SKIP LOCKED) x "
        "WHERE outbox.id = x.id RETURNING outbox.*",
        "delete-skip-locked", "outbox", "constant", True, True,
    ),
    "= ANY(ARRAY(...))": (
        "UPDATE q SET state = 'running' WHERE id = ANY(ARRAY(SELECT id FROM q WHERE state = 'ready' ORDER BY id LIMIT 5 "
        "FOR UPDATE SKIP LOCKED)) RETURNING id",
        "skip-locked", "q", "constant", False, True,
    ),
    "IN over a locking CTE": (
        "WITH c AS (SELECT id FROM q WHERE state = 'ready' LIMIT 5 FOR UPDATE SKIP LOCKED) "
        "UPDATE q SET state = 'running' WHERE id IN (SELECT id FROM c) RETURNING id",
        "skip-locked", "q", "constant", False, True,
    ),
    "correlated scalar sub-select": (
        "UPDATE q SET state = 'running' WHERE id = (SELECT k.id FROM q k WHERE k.state = 'ready' AND k.id = q.id LIMIT 1 "
        "FOR UPDATE SKIP LOCKED) RETURNING id",
        "skip-locked", "q", "constant", True, True,
    ),
    "lock above the LIMIT": (
        "SELECT * FROM (SELECT * FROM q WHERE state = 'ready' ORDER BY id LIMIT 10) x FOR UPDATE SKIP LOCKED",
        "skip-locked", "q", "constant", False, False,
    ),
    "cursor": (
        "DECLARE c CURSOR FOR SELECT * FROM q WHERE state = 'ready' LIMIT 10 FOR UPDATE SKIP LOCKED",
        "skip-locked", "q", "constant", False, False,
    ),
    "unguarded: scalar": (
        "UPDATE q SET state = 'running' WHERE id = (SELECT id FROM q WHERE state = 'ready' ORDER BY id LIMIT 1) RETURNING id",
        "unguarded", "q", "constant", False, True,
    ),
    "unguarded: IN": (
        "UPDATE q SET locked_by = $1 WHERE id IN (SELECT id FROM q WHERE locked_by IS NULL LIMIT $2)",
        "unguarded", "q", "parameter", True, True,
    ),
    "unguarded: CTE": (
        "WITH c AS (SELECT id FROM q WHERE state = $1 ORDER BY id LIMIT $2) "
        "UPDATE q SET state = $3 FROM c WHERE c.id = q.id RETURNING q.id",
        "unguarded", "q", "parameter", True, True,
    ),
    "unguarded: min()": (
        "UPDATE q SET state = 'running' WHERE id = (SELECT min(id) FROM q WHERE state = 'ready') RETURNING id",
        "unguarded", "q", "constant", False, True,
    ),
    "unguarded: the test is on another alias": (
        "UPDATE q SET state = 'running' FROM (SELECT id FROM q WHERE state = 'ready' LIMIT 1) s, q k "
        "WHERE q.id = s.id AND k.id = q.id AND k.state = 'ready' RETURNING q.id",
        "unguarded", "q", "constant", True, True,
    ),
    "unguarded: attempts are no guard": (
        "UPDATE q SET state = 'running', attempts = attempts + 1 WHERE id = (SELECT id FROM q WHERE state = 'ready' LIMIT 1) "
        "AND attempts < 5 RETURNING id",
        "unguarded", "q", "constant", False, True,
    ),
    "guarded: sub-select and re-check": (
        "UPDATE q SET state = 'running' WHERE id = (SELECT id FROM q WHERE state = 'ready' LIMIT 1) AND state = 'ready' "
        "RETURNING id",
        "guarded", "q", "constant", False, True,
    ),
    "guarded: by key": (
        "UPDATE q SET state = 'running' WHERE id = $1 AND state = 'ready'",
        "guarded", "q", "none", False, True,
    ),
    "guarded: lease": (
        "UPDATE q SET locked_until = $1 WHERE id = $2 AND (locked_until IS NULL OR locked_until < now())",
        "guarded", "q", "none", False, True,
    ),
    "guarded: delete with sub-select": (
        "DELETE FROM q WHERE id = (SELECT id FROM q ORDER BY id LIMIT 1) RETURNING *",
        "guarded", "q", "constant", False, True,
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", CLAIMS.values(), ids=CLAIMS.keys())
def test_claims(case: tuple[str, str, str, str, bool, bool]) -> None:
    text, shape, table, limit_kind, repeatable, writes = case
    claim = claim_of(text)
    found = (claim.shape, name(claim.table), claim.limit_kind, claim.repeatable_limit, claim.writes)
    assert found == (shape, table, limit_kind, repeatable, writes)


NOTHING_RETURNED = {
    "one at a time, normalised": (
        "UPDATE q SET state = $1 WHERE id = (SELECT id FROM q WHERE state = $2 ORDER BY id LIMIT $3 FOR UPDATE SKIP LOCKED)",
        "skip-locked",
    ),
    "taken and done at once": (
        "UPDATE q SET state = 'done' WHERE id = (SELECT id FROM q WHERE state = 'ready' LIMIT 1 FOR UPDATE SKIP LOCKED)",
        "skip-locked",
    ),
    "without SKIP LOCKED": (
        "UPDATE q SET state = $1 WHERE id = (SELECT id FROM q WHERE state = $2 ORDER BY id LIMIT $3 FOR UPDATE)",
        "blocking",
    ),
    "without a lock": (
        "UPDATE q SET state = $1 WHERE id = (SELECT id FROM q WHERE state = $2 ORDER BY id LIMIT $3)",
        "unguarded",
    ),
    "deleted through a CTE": (
        "WITH c AS (SELECT id FROM q WHERE state = $1 ORDER BY id LIMIT $2 FOR UPDATE SKIP LOCKED) "
        "DELETE FROM q USING c WHERE q.id = c.id",
        "delete-skip-locked",
    ),
    "deleted, no state": (
        "DELETE FROM q WHERE id = (SELECT id FROM q ORDER BY id LIMIT $1 FOR UPDATE SKIP LOCKED)",
        "delete-skip-locked",
    ),
    "from ready to done": (
        "UPDATE q SET state = 'done' WHERE id = (SELECT id FROM q WHERE state = 'queued' ORDER BY id LIMIT 1)",
        "unguarded",
    ),
    "deleted without a lock": (
        "DELETE FROM q WHERE id = (SELECT id FROM q WHERE state = $1 ORDER BY id LIMIT $2)",
        "guarded",
    ),
}


@pytest.mark.parametrize(("text", "shape"), NOTHING_RETURNED.values(), ids=NOTHING_RETURNED.keys())
def test_the_next_job_in_line_is_claimed_even_if_nothing_is_returned(text: str, shape: str) -> None:
    assert claim_of(text).shape == shape


PRUNING = {
    "overdue": (
        "UPDATE q SET state = 'expired' WHERE id IN "
        "(SELECT id FROM q WHERE state = 'pending' AND created_at < $1 ORDER BY created_at LIMIT 100)"
    ),
    "done already": "UPDATE q SET state = 'archived' WHERE id = (SELECT id FROM q WHERE state = 'done' ORDER BY id LIMIT 1)",
    "old jobs": "DELETE FROM q WHERE id IN (SELECT id FROM q WHERE finished_at < $1 ORDER BY finished_at LIMIT $2 FOR UPDATE SKIP LOCKED)",
    "created long ago": "DELETE FROM q WHERE id IN (SELECT id FROM q WHERE created_at < $1 LIMIT $2 FOR UPDATE SKIP LOCKED)",
    "lease is past": (
        "UPDATE q SET state = $1, attempts = attempts + 1 WHERE id IN "
        "(SELECT id FROM q WHERE state = $2 AND lease_until < now() ORDER BY id LIMIT $3 FOR UPDATE SKIP LOCKED)"
    ),
}


@pytest.mark.parametrize("text", PRUNING.values(), ids=PRUNING.keys())
def test_pruning_and_reaping_in_an_order_are_no_claims(text: str) -> None:
    assert only(text).claims == ()


INNOCENTS = {
    "transfer": "SELECT * FROM accounts WHERE id = $1 FOR UPDATE",
    "transfer with LIMIT": 'SELECT "accounts".* FROM "accounts" WHERE "accounts"."id" = $1 LIMIT $2 FOR UPDATE',
    "transfer by owner": "SELECT * FROM accounts WHERE user_id = $1 LIMIT $2 FOR UPDATE",
    "transfer with soft delete": "SELECT * FROM accounts WHERE id = $1 AND deleted_at IS NULL FOR UPDATE",
    "two rows": "SELECT * FROM accounts WHERE id IN ($1, $2) ORDER BY id FOR UPDATE",
    "mutex row": "SELECT * FROM locks WHERE name = $1 FOR UPDATE",
    "pruning of results": "SELECT * FROM results WHERE success ORDER BY stopped DESC FOR UPDATE",
    "heartbeat": "UPDATE q SET heartbeat_at = now() WHERE id = $1",
    "lease renewal": "UPDATE q SET locked_until = now() + interval '1 min' WHERE id = $1 AND locked_until > now()",
    "finish": "UPDATE q SET state = 'done', finished_at = now() WHERE id = $1 AND state = 'running'",
    "finish, normalised": "UPDATE q SET state = $1, finished_at = $2 WHERE id = $3",
    "reaper": "UPDATE q SET state = 'ready', locked_by = NULL WHERE state = 'running' AND locked_at < now() - interval '5 min'",
    "reaper with SKIP LOCKED": "UPDATE q SET state = 'ready', locked_by = NULL WHERE id IN (SELECT id FROM q WHERE "
    "state = 'running' AND locked_at < now() - interval '5 min' LIMIT 100 FOR UPDATE SKIP LOCKED) RETURNING id",
    "stager": "UPDATE q SET state = 'available' WHERE id IN (SELECT id FROM q WHERE state IN ('scheduled', 'retryable') AND "
    "scheduled_at <= now() LIMIT 5000 FOR UPDATE SKIP LOCKED)",
    "stager, normalised": "UPDATE q SET state = $1 WHERE id IN (SELECT id FROM q WHERE state IN ($2, $3) AND "
    "scheduled_at <= now() LIMIT $4 FOR UPDATE SKIP LOCKED)",
    "pruning": "DELETE FROM q WHERE id IN (SELECT id FROM q WHERE state = 'done' LIMIT 1000 FOR UPDATE SKIP LOCKED)",
    "archiving": "WITH gone AS (DELETE FROM q WHERE id IN (SELECT id FROM q WHERE state = 'done' LIMIT 100 FOR UPDATE "
    "SKIP LOCKED) RETURNING *) INSERT INTO archive SELECT * FROM gone",
    "delete by key": "DELETE FROM q WHERE id = $1 RETURNING *",
    "upsert": "INSERT INTO q (id) VALUES ($1) ON CONFLICT (id) DO UPDATE SET n = q.n + 1 RETURNING id",
    "dashboard": "SELECT state, count(*) FROM q GROUP BY state",
    "peek": "SELECT * FROM q WHERE state = 'ready' ORDER BY id LIMIT 10",
    "share lock": "SELECT * FROM q WHERE state = 'ready' LIMIT 1 FOR SHARE",
    "unlock": "SELECT pg_advisory_unlock_all()",
    "leader election": "SELECT pg_try_advisory_lock($1)",
    "backfill": "UPDATE users SET email_norm = lower(email) WHERE id IN (SELECT id FROM users WHERE email_norm IS NULL LIMIT 9)",
    "claim function": "SELECT id, status FROM app.fetch_job($1::text[], $2)",
}  # fmt: skip


@pytest.mark.parametrize("text", INNOCENTS.values(), ids=INNOCENTS.keys())
def test_innocents_are_no_claims(text: str) -> None:
    assert only(text).claims == ()


@pytest.mark.parametrize(
    "text",
    [
        "UPDATE jobs SET state = 'running' WHERE state = 'ready'",
        "UPDATE jobs SET state = 'running' WHERE state IN ('ready', 'retry') AND run_at <= now()".replace(
            "'retry'", "'queued'"
        ),
        "UPDATE jobs SET locked_by = 'w1', locked_at = now() WHERE locked_by IS NULL AND run_at <= now()",
        "UPDATE jobs SET state = 'processing' WHERE state = 'new' RETURNING *",
    ],
)
def test_an_update_that_puts_all_that_is_ready_to_work_is_an_unbounded_claim(text: str) -> None:
    claim = claim_of(text)
    assert (claim.shape, claim.limit_kind, claim.by_key, claim.writes) == ("guarded", "none", False, True)


@pytest.mark.parametrize(
    "text",
    [
        "UPDATE subscriptions SET status = 'active' WHERE status = 'pending' AND starts_at <= now()",
        "UPDATE jobs SET state = 'ready' WHERE state = 'scheduled' AND run_at <= now()",
        "UPDATE jobs SET state = 'ready' WHERE state = 'running' AND lease_until < now()",
        "UPDATE jobs SET state = 'done' WHERE state = 'running'",
        "UPDATE jobs SET state = $1 WHERE state = $2",
        "UPDATE jobs SET locked_by = NULL WHERE locked_by = 'w1'",
    ],
)
def test_updates_of_many_rows_that_put_nothing_to_work(text: str) -> None:
    assert only(text).claims == ()


@pytest.mark.parametrize(
    "text",
    [
        "DELETE FROM jobs WHERE id = (SELECT id FROM jobs WHERE state = 'running' LIMIT 1 FOR UPDATE SKIP LOCKED)",
        "DELETE FROM jobs WHERE id IN (SELECT id FROM jobs WHERE state IN ('done', 'failed') ORDER BY id LIMIT 100 FOR UPDATE SKIP LOCKED) RETURNING *",
        "UPDATE jobs SET state = 'done' WHERE id = (SELECT id FROM jobs WHERE state = 'running' LIMIT 1 FOR UPDATE SKIP LOCKED) RETURNING id",
    ],
)
def test_what_finishes_jobs_or_clears_them_away_is_no_claim(text: str) -> None:
    assert only(text).claims == ()


@pytest.mark.parametrize(
    ("text", "limit"),
    [
        (
            "MERGE INTO jobs j USING (SELECT id FROM jobs WHERE state = 'ready' ORDER BY id LIMIT 1) p ON j.id = p.id "
            "WHEN MATCHED THEN UPDATE SET state = 'running'",
            1,
        ),
        (
            "UPDATE jobs SET state = 'running' WHERE id = (SELECT id FROM jobs WHERE state = 'ready' ORDER BY id LIMIT 1 FOR KEY SHARE SKIP LOCKED) "
            "RETURNING *",
            1,
        ),
        (
            "WITH c AS (SELECT id FROM jobs WHERE state = 'ready'), p AS (SELECT id FROM c ORDER BY id LIMIT 3) "
            "UPDATE jobs SET state = 'running' WHERE id IN (SELECT id FROM p) RETURNING *",
            3,
        ),
        (
            "WITH r AS (SELECT id, row_number() OVER (PARTITION BY tenant ORDER BY id) AS n FROM jobs WHERE state = 'ready'), "
            "p AS (SELECT id FROM r WHERE n = 1 LIMIT 10) UPDATE jobs SET state = 'running' FROM p WHERE p.id = jobs.id RETURNING jobs.*",
            10,
        ),
        (
            "UPDATE jobs SET data = jsonb_set(data, '{status}', '\"running\"') WHERE id = (SELECT id FROM jobs WHERE data->>'status' = 'ready' "
            "ORDER BY id LIMIT 1) RETURNING *",
            1,
        ),
    ],
    ids=["merge", "key share", "limit outside", "behind a window function", "state in a document"],
)
def test_claims_that_two_sessions_won_on_15_and_18(text: str, limit: int) -> None:
    claim = claim_of(text)
    assert (claim.shape, claim.rechecks, claim.limit) == ("unguarded", False, limit)


@pytest.mark.parametrize(
    ("text", "shape"),
    [
        (
            "MERGE INTO jobs j USING (SELECT id FROM jobs WHERE state = 'ready' ORDER BY id LIMIT 1) p ON j.id = p.id "
            "WHEN MATCHED AND j.state = 'ready' THEN UPDATE SET state = 'running'",
            "guarded",
        ),
        (
            "MERGE INTO jobs j USING (SELECT id FROM jobs WHERE state = 'ready' ORDER BY id LIMIT 1 FOR UPDATE SKIP LOCKED) p ON j.id = p.id "
            "WHEN MATCHED THEN UPDATE SET state = 'running'",
            "skip-locked",
        ),
        (
            "UPDATE jobs SET data = '{}' WHERE id = (SELECT id FROM jobs WHERE data->>'status' = 'ready' ORDER BY id LIMIT 1) "
            "AND data->>'status' = 'ready' RETURNING *",
            "guarded",
        ),
    ],
)
def test_those_that_one_session_won(text: str, shape: str) -> None:
    claim = claim_of(text)
    assert (claim.shape, claim.rechecks, claim.writes) == (shape, True, True)


@pytest.mark.parametrize(
    "text",
    [
        "UPDATE jobs j SET state = 'running' FROM (VALUES (1), (2)) v (id) WHERE j.id = v.id AND j.state = 'ready' RETURNING j.id",
        "UPDATE jobs j SET state = 'running' FROM unnest($1::bigint[]) u (id) WHERE j.id = u.id AND j.state = 'ready' RETURNING j.id",
        "UPDATE jobs SET state = 'running' WHERE id IN (SELECT unnest($1::bigint[])) AND state = 'ready' RETURNING id",
        "UPDATE jobs j SET state = 'running' FROM workers w WHERE w.job_id = j.id AND j.state = 'ready' RETURNING j.id",
    ],
)
def test_keys_that_stand_elsewhere_bound_a_claim(text: str) -> None:
    claim = claim_of(text)
    assert (claim.shape, claim.by_key) == ("guarded", True)


def test_backfills_in_batches_are_no_claims() -> None:
    assert (
        only(
            "UPDATE users SET data = data || '{}' WHERE id IN (SELECT id FROM users WHERE data->>'v' IS NULL LIMIT 9) RETURNING id"
        ).claims
        == ()
    )


def test_rows_of_a_cursor_are_locked_as_they_are_fetched() -> None:
    claim = claim_of(
        "DECLARE c CURSOR FOR SELECT id FROM jobs WHERE state = 'ready' ORDER BY id FOR UPDATE SKIP LOCKED"
    )
    assert claim.limit_kind == "parameter"


def test_select_into_stops_after_the_first_row() -> None:
    body = "DECLARE v bigint; BEGIN SELECT id INTO v FROM jobs WHERE state = 'ready' ORDER BY id FOR UPDATE SKIP LOCKED; END"
    ((claim,),) = (one.claims for one in read_function("take", "plpgsql", body).statements)
    assert (claim.limit_kind, claim.limit) == ("constant", 1)
    loop = "DECLARE r record; BEGIN FOR r IN SELECT id FROM jobs WHERE state = 'ready' FOR UPDATE SKIP LOCKED LOOP EXIT; END LOOP; END"
    ((claim,),) = (one.claims for one in read_function("take", "plpgsql", loop).statements)
    assert claim.limit_kind == "none"


@pytest.mark.parametrize(
    ("text", "names"),
    [
        (
            "SELECT * FROM good_jobs WHERE id IN (WITH r AS MATERIALIZED (SELECT id FROM good_jobs WHERE finished_at IS NULL ORDER BY priority) "
            "SELECT id FROM r WHERE pg_try_advisory_lock(id) LIMIT 1) ORDER BY priority",
            (),
        ),
        (
            "SELECT id FROM (SELECT id FROM jobs WHERE state = 'ready' ORDER BY id LIMIT 9) q WHERE pg_try_advisory_lock(id) LIMIT 1",
            (),
        ),
        (
            "SELECT id FROM (SELECT id FROM jobs WHERE state = 'ready' ORDER BY id) q WHERE pg_try_advisory_lock(id) LIMIT 1",
            ("pg_try_advisory_lock",),
        ),
        (
            "WITH r AS MATERIALIZED (SELECT id FROM jobs WHERE state = 'ready' LIMIT 9) SELECT id FROM r WHERE pg_try_advisory_lock(id) ORDER BY id LIMIT 1",
            ("pg_try_advisory_lock",),
        ),
    ],
)
def test_an_advisory_lock_behind_a_fence_stops_at_the_first_it_gets(
    text: str, names: tuple[str, ...]
) -> None:
    assert claim_of(text).advisory == names


def test_the_smallest_key_is_the_next_job() -> None:
    (read,) = only("SELECT min(id) FROM jobs WHERE state = 'ready'").reads
    assert (read.limit_kind, read.limit, read.counts) == ("constant", 1, False)
    (read,) = only("SELECT min(run_at) FROM jobs WHERE state = 'ready'").reads
    assert (read.limit_kind, read.counts) == ("none", True)


def test_claim_facts_in_full() -> None:
    claim = claim_of(
        "UPDATE app.Jobs AS j SET State = 'running' FROM (SELECT id FROM app.jobs WHERE (state)::text = ANY (ARRAY["
        "'ready'::text, 'retry'::text]) AND NOT blocked AND runAt <= now() AND (lock IS NULL OR lock < $1) "
        "ORDER BY priority DESC NULLS LAST, lower(kind), id LIMIT 5 FOR NO KEY UPDATE SKIP LOCKED) f WHERE j.id = f.id"
    )
    table = TableName(schema="app", name="jobs")
    assert claim.table == table
    assert claim.lock == RowLock(table=table, strength="no key update", wait="skip locked")
    assert (claim.rechecks, claim.by_key, claim.limit, claim.joins) == (True, False, 5, ())
    assert conditions_as_tuples(claim.conditions) == [
        ("state", "in", ("ready", "retry")),
        ("blocked", "is false", ()),
        ("runat", "<=", ("now()",)),
        (None, "or", ()),
    ]
    state, _, due, either = claim.conditions
    assert (state.cast, state.value_kind, state.table) == ("text", "list", table)
    assert due.value_kind == "now"
    assert [conditions_as_tuples(branch) for branch in either.branches] == [
        [("lock", "is null", ())],
        [("lock", "<", ("$1",))],
    ]
    assert [(key.column, key.descending, key.nulls_first) for key in claim.order] == [
        ("priority", True, False),
        (None, False, None),
        ("id", False, None),
    ]


def test_rechecks_and_key() -> None:
    unguarded = CLAIMS["unguarded: scalar"][0]
    assert claim_of(unguarded).rechecks is False
    assert claim_of(CLAIMS["guarded: by key"][0]).by_key is True
    assert claim_of(CLAIMS["db-scheduler: compare and set on a composite key"][0]).by_key is True
    # The lock is taken on rows that an unlocked sub-select chose: only the key is tested again.
    late = "WITH c AS (SELECT id FROM q WHERE state = 'ready' LIMIT 9) SELECT q.* FROM q JOIN c ON c.id = q.id FOR UPDATE OF q SKIP LOCKED"
    assert claim_of(late).rechecks is False


def test_push_claim_under_lock_is_bounded_by_its_key() -> None:
    claim = claim_of("SELECT * FROM q WHERE id = $1 AND state = 'ready' FOR UPDATE SKIP LOCKED")
    assert (claim.shape, claim.limit_kind, claim.by_key) == ("skip-locked", "none", True)


def test_advisory_names_only_where_rows_are_scanned() -> None:
    scanned = claim_of(
        "SELECT id FROM q WHERE state = $1 AND pg_catalog.pg_try_advisory_xact_lock(id) LIMIT 1"
    )
    assert (scanned.shape, scanned.advisory) == ("advisory", ("pg_try_advisory_xact_lock",))
    assert claim_of(CLAIMS["que: advisory lock on the row chosen"][0]).advisory == ()
    assert claim_of(CLAIMS["dramatiq: by key and state"][0]).advisory == ()
    both = claim_of(
        "SELECT id FROM q WHERE pg_try_advisory_lock(id) AND state = $1 LIMIT 1 FOR UPDATE SKIP LOCKED"
    )
    assert (both.shape, both.advisory) == ("skip-locked", ("pg_try_advisory_lock",))


def test_lock_without_of_reaches_joined_tables() -> None:
    statement = only(
        "SELECT * FROM a JOIN q ON a.id = q.a_id WHERE q.state = 'ready' LIMIT 1 FOR UPDATE SKIP LOCKED"
    )
    assert [lock.table.name for lock in statement.locks] == ["a", "q"]
    assert [(claim.table.name, [table.name for table in claim.joins]) for claim in statement.claims] == [
        ("q", ["a"])
    ]


def test_lock_does_not_reach_into_a_cte() -> None:
    statement = only("WITH c AS (SELECT id FROM a) SELECT * FROM q, c WHERE q.id = c.id FOR UPDATE")
    assert [lock.table.name for lock in statement.locks] == ["q"]


def test_function_call_is_named_as_written() -> None:
    assert only(INNOCENTS["claim function"]).functions == ("app.fetch_job",)
    assert only("SELECT now(), count(*) FROM q").functions == ("now", "count")


def test_writes() -> None:
    (beat,) = only(INNOCENTS["heartbeat"]).writes
    assert (beat.kind, beat.table.name, beat.by_key_only, beat.sets[0].column, beat.sets[0].value_kind) == (
        "update", "q", True, "heartbeat_at", "now",
    )  # fmt: skip
    (sweep,) = only(INNOCENTS["reaper"]).writes
    assert sweep.by_key_only is False
    (upsert,) = only(INNOCENTS["upsert"]).writes
    assert (upsert.kind, [each.column for each in upsert.sets]) == ("insert", ["n"])
    (pair,) = only("UPDATE q SET (state, locked_by) = ('running', $1) WHERE id = $2").writes
    assert [(each.column, each.value_kind, each.value) for each in pair.sets] == [
        ("state", "constant", "running"),
        ("locked_by", "parameter", "$1"),
    ]
    merge = only("MERGE INTO q USING v ON q.id = v.id WHEN MATCHED THEN UPDATE SET a = v.a WHEN NOT MATCHED THEN "
                 "INSERT (id) VALUES (v.id)")  # fmt: skip
    assert (merge.kind, [write.kind for write in merge.writes]) == ("merge", ["update", "insert"])


def test_reads() -> None:
    (board,) = only(INNOCENTS["dashboard"]).reads
    assert board.counts is True
    (peek,) = only(INNOCENTS["peek"]).reads
    assert (peek.counts, peek.limit, [key.column for key in peek.order]) == (False, 10, ["id"])
    locked = only("SELECT * FROM q, a WHERE q.id = a.id FOR UPDATE OF q")
    assert [read.table.name for read in locked.reads] == ["a"]


CONDITIONS = {
    "$1 < a": ("a", ">", ("$1",), "parameter"),
    "a": ("a", "is true", (), "boolean"),
    "NOT a": ("a", "is false", (), "boolean"),
    "a = false": ("a", "is false", ("false",), "boolean"),
    "a IS NOT TRUE": ("a", "is not true", (), "boolean"),
    "NOT (a = 1)": ("a", "<>", ("1",), "constant"),
    "NOT (a IS NULL)": ("a", "is not null", (), "null"),
    "a != 'x'": ("a", "<>", ("x",), "constant"),
    "a NOT IN (1, $2)": ("a", "not in", ("1", "$2"), "list"),
    "a <> ALL (ARRAY[1])": ("a", "not in", ("1",), "list"),
    "a = ANY ($1)": ("a", "in", ("$1",), "parameter"),
    """a = ANY ('{x,"y, z"}'::s[])""": ("a", "in", ("x", "y, z"), "list"),
    "a BETWEEN 1 AND $2": ("a", "between", ("1", "$2"), "list"),
    "a LIKE 'x%'": ("a", "like", ("x%",), "constant"),
    "a = b": ("a", "=", ("b",), "column"),
    "a < now() - interval $1": ("a", "<", ("now() - CAST($1 AS interval)",), "now"),
    "a < CURRENT_TIMESTAMP": ("a", "<", ("CURRENT_TIMESTAMP",), "now"),
    "a = timestamp $1": ("a", "=", ("$1",), "parameter"),
    "lower(a) = 'x'": (None, "expression", (), "expression"),
    "(a, b) < (1, 2)": (None, "expression", (), "expression"),
}


@pytest.mark.parametrize("expression", CONDITIONS)
def test_conditions(expression: str) -> None:
    conditions = read_predicate(expression, TableName(schema=None, name="q"))
    assert conditions is not None
    (test,) = conditions
    assert (test.column, test.operator, test.values, test.value_kind) == CONDITIONS[expression]
    assert (test.table is None) == (test.column is None)


def test_predicate_that_does_not_parse() -> None:
    assert read_predicate("a = ") is None
    assert read_predicate("true; DROP TABLE q") is None


STATEMENTS = {
    "SAVEPOINT $1": "savepoint",
    "savepoint s1": "savepoint",
    "RELEASE $1": "release",
    "ROLLBACK TO $1": "rollback to",
    "rollback": "rollback",
    "COMMIT": "commit",
    "NOTIFY jobs, 'payload'": "notify",
    "LISTEN jobs": "listen",
    "LOCK TABLE q IN SHARE MODE": "lock",
    "CREATE INDEX CONCURRENTLY i ON q (a)": "ddl",
    "CALL work($1)": "call",
    "VACUUM q": "utility",
    "set local work_mem=$1": "utility",
    "select time(3) $1, interval $2 day, date $3, float8 $4": "select",
}


@pytest.mark.parametrize("text", STATEMENTS)
def test_statement_kinds(text: str) -> None:
    assert only(text).kind == STATEMENTS[text]


@pytest.mark.parametrize(
    ("text", "level"),
    [
        ("BEGIN", None),
        ("begin isolation level serializable", "serializable"),
        ("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ", "repeatable read"),
        ("SET default_transaction_isolation = 'serializable'", "serializable"),
    ],
)
def test_isolation(text: str, level: str | None) -> None:
    assert only(text).isolation == level


def test_statements_around_a_fault_are_read() -> None:
    text = "SELECT 1; SELEC 2 FROM; /* three; */ UPDATE q SET a = ';' WHERE id = $1;"
    reading = read_sql(text)
    assert [statement.kind for statement in reading.statements] == ["select", "update"]
    assert [text[each.offset :].startswith(each.text) for each in reading.statements] == [True, True]
    assert [(each.text, each.truncated) for each in reading.unread] == [("SELEC 2 FROM", False)]


def test_comment_and_prepare_prefix_are_taken_away() -> None:
    text = "/* app:web */ PREPARE p (int, numeric(10, 2)) AS SELECT $1"
    statement = only(text)
    assert (statement.text, statement.offset) == ("SELECT $1", text.index("SELECT"))


@pytest.mark.parametrize("text", [case[0] for case in CLAIMS.values()], ids=CLAIMS.keys())
def test_every_cut_is_a_statement_or_truncated(text: str) -> None:
    for end in range(1, len(text), 7):
        reading = read_sql(text[:end])
        assert all(each.truncated for each in reading.unread)


def test_a_text_that_fills_the_buffer_is_not_trusted() -> None:
    text = "SELECT * FROM q WHERE state = 'ready' LIMIT 1 FOR UPDATE"
    assert only(text).claims[0].shape == "blocking"
    reading = read_sql(text, cut_at=len(text) + 1)
    assert reading.statements == ()
    assert reading.unread[0].truncated is True
    assert read_sql(text, cut_at=1024).unread == ()


def test_fault_in_the_scanner_keeps_what_precedes_it() -> None:
    reading = read_sql("SELECT 1; SELECT 'abc")
    assert [statement.text for statement in reading.statements] == ["SELECT 1"]
    assert [(each.text, each.truncated) for each in reading.unread] == [(" SELECT 'abc", True)]


HOSTILE = {
    "brackets": "SELECT " + "(" * 50_000 + "1" + ")" * 50_000,
    "operators": "SELECT 1" + "+1" * 50_000,
    "case": "SELECT " + "case when true then " * 3_000 + "1" + " end" * 3_000,
    "sub-selects": "SELECT * FROM " + "(SELECT * FROM " * 3_000 + "q" + ") x" * 3_000,
    "unions": "SELECT 1" + " UNION SELECT 1" * 5_000,
    "nots": "SELECT " + "NOT " * 20_000 + "true",
    "just below the nesting limit": "SELECT "
    + "(SELECT " * (MAX_NESTING // 2)
    + "1"
    + ")" * (MAX_NESTING // 2),
    "nul": "SELECT 1 \0 FROM q",
    "surrogate": "SELECT '\ud800'",
    "escapes": "SELECT E'\\u0000', U&'\\zz'",
    "long": "SELECT '" + "x" * MAX_CHARACTERS + "'",
    "semicolons": ";" * 10_000 + "'",
    "empty": "",
    "comment": "-- nothing",
}


@pytest.mark.parametrize("text", HOSTILE.values(), ids=HOSTILE.keys())
def test_hostile_text_is_read_or_reported(text: str) -> None:
    reading = read_sql(text)
    assert all(each.error for each in reading.unread)
    assert text_fingerprint(text)
    assert isinstance(may_concern_queue(text), bool)


@settings(deadline=None, max_examples=200)
@given(st.text(max_size=200))
def test_arbitrary_text_never_raises(text: str) -> None:
    read_sql(text)
    read_predicate(text)
    read_definition(text)
    text_fingerprint(text)
    read_function("f", "plpgsql", text)
    read_function("f", "sql", text)


WORDS = sorted({word for case in CLAIMS.values() for word in case[0].split()})


@settings(deadline=None, max_examples=300)
@given(
    st.lists(st.sampled_from(WORDS), max_size=30),
    st.sampled_from([case[0] for case in CLAIMS.values()]),
    st.integers(0, 90),
)
def test_scrambled_claims_never_raise(words: list[str], text: str, at: int) -> None:
    parts = text.split()
    mixed = " ".join([*parts[:at], *words, *parts[at + len(words) :]])
    reading = read_sql(mixed)
    if not reading.statements and not reading.unread:
        assert all(token.name.endswith("COMMENT") for token in scan(mixed)), "only comments say nothing"
    read_function("f", "plpgsql", mixed)


def test_prefilter() -> None:
    assert all(may_concern_queue(case[0]) for case in CLAIMS.values())
    assert not may_concern_queue("VACUUM (ANALYZE) q")
    assert not may_concern_queue("CREATE INDEX i ON selected (a)")


def test_fingerprint_joins_literals_and_parameters() -> None:
    live = (
        "SELECT * FROM q WHERE a IN (1, 2, 3) AND t < now() - interval '5 min' LIMIT 5 FOR UPDATE SKIP LOCKED"
    )
    seen = "SELECT * FROM q WHERE a IN ($1 /*, ... */) AND t < now() - interval $2 LIMIT $3 FOR UPDATE SKIP LOCKED"
    assert text_fingerprint(live) == text_fingerprint(seen)
    assert text_fingerprint(live) != text_fingerprint(live.replace("SKIP LOCKED", "NOWAIT"))
    assert text_fingerprint("SAVEPOINT a") == text_fingerprint("SAVEPOINT $1")
    assert text_fingerprint("PREPARE p AS SELECT 1") == text_fingerprint("SELECT $1")
    assert text_fingerprint("SELEC 1") == text_fingerprint("selec  'x'") != text_fingerprint("SELEC a")


BODY = """
#variable_conflict use_column
<<outer>>
DECLARE
  r q%ROWTYPE;
  newest bigint := (SELECT max(id) FROM q);
  todo CURSOR FOR SELECT * FROM q WHERE state = 'due' LIMIT 3 FOR UPDATE;
BEGIN
  SELECT * INTO STRICT r FROM q WHERE state = wanted AND id > newest LIMIT 1 FOR UPDATE SKIP LOCKED;
  BEGIN
    UPDATE q SET state = 'running' WHERE id = r.id RETURNING id, state INTO newest, r.state;
    PERFORM app.tell(newest);
    FOR r IN SELECT * FROM a WHERE n = CASE WHEN true THEN 1 ELSE 2 END LOOP
      IF EXISTS (SELECT 1 FROM b WHERE b.id = r.id) THEN DELETE FROM c; ELSIF newest > 3 THEN NULL; ELSE INSERT INTO d VALUES (1); END IF;
    END LOOP;
    CASE newest WHEN 1 THEN UPDATE e SET a = 1 WHERE id = newest; ELSE NULL; END CASE;
    EXECUTE 'UPDATE f SET a = $1' USING newest;
    RETURN QUERY SELECT 1 FROM g;
  EXCEPTION WHEN others THEN
    UPDATE log SET failed = true WHERE id = newest;
    RAISE NOTICE 'lost %', newest;
  END;
  RETURN;
END outer;
"""


def test_plpgsql_body() -> None:
    body = read_function("app.claim", "plpgsql", BODY, arguments=("wanted text, OUT state text",))
    assert (body.unread, body.dynamic, body.exception_blocks) == ((), False, 1)
    seen = [
        (name(table), inside)
        for statement, inside in zip(body.statements, body.in_exception_block, strict=True)
        for table in (*(write.table for write in statement.writes), *(lock.table for lock in statement.locks))
    ]
    assert seen == [
        ("q", False), ("q", False), ("q", True), ("c", True), ("d", True), ("e", True), ("f", True), ("log", False),
    ]  # fmt: skip
    claims = [claim for statement in body.statements for claim in statement.claims]
    assert [(claim.shape, claim.limit) for claim in claims] == [("blocking", 3), ("skip-locked", 1)]
    assert [(test.column, test.value_kind) for test in claims[1].conditions] == [
        ("state", "parameter"),
        ("id", "parameter"),
    ]
    assert any("app.tell" in statement.functions for statement in body.statements)


def test_dynamic_sql_is_said_not_guessed() -> None:
    body = read_function("f", "plpgsql", "BEGIN EXECUTE format('UPDATE %I SET a = 1', t); END")
    assert (body.dynamic, body.statements) == (True, ())
    assert read_function("f", "plpython3u", "plpy.execute('UPDATE q SET a = 1')").dynamic is True


def test_sql_body() -> None:
    text = "UPDATE q SET state = 'running' WHERE id = (SELECT id FROM q WHERE queue = $1 AND kind = f.kind LIMIT 1 FOR UPDATE SKIP LOCKED) RETURNING *"
    for body in (text, f"BEGIN ATOMIC {text}; END"):
        found = read_function("f", "sql", body, arguments=("queue text", "kind text"))
        (claim,) = found.statements[0].claims
        assert [(test.column, test.value_kind) for test in claim.conditions] == [
            ("queue", "parameter"),
            ("kind", "parameter"),
        ]


def test_definitions() -> None:
    created = read_definition(
        "CREATE FUNCTION app.f(wanted text, OUT id bigint) LANGUAGE plpgsql AS $$ BEGIN SELECT q.id INTO id FROM q WHERE "
        "state = wanted LIMIT 1 FOR UPDATE; END $$"
    )
    assert created is not None
    (claim,) = created.statements[0].claims
    assert (created.name, claim.conditions[0].value_kind) == ("app.f", "parameter")
    atomic = read_definition(
        "CREATE FUNCTION f() RETURNS void BEGIN ATOMIC UPDATE q SET a = 1; DELETE FROM q; END"
    )
    assert atomic is not None
    assert [statement.kind for statement in atomic.statements] == ["update", "delete"]
    block = read_definition("DO $$ BEGIN DELETE FROM q; END $$")
    assert block is not None
    assert block.statements[0].kind == "delete"
    assert read_definition("SELECT 1") is None


NESTED = [
    lambda depth: "SELECT " + "(SELECT " * depth + "1" + ")" * depth,
    lambda depth: "WITH a AS (" * depth + "SELECT 1" + ") SELECT 1" * depth,
    lambda depth: "SELECT " + "case when true then " * depth + "1" + " end" * depth,
    lambda depth: "SELECT 1" + " UNION SELECT 1" * depth,
]


@pytest.mark.parametrize("make", NESTED)
def test_the_deepest_text_accepted_fits_a_small_stack(make: Callable[[int], str]) -> None:
    accepted = max(depth for depth in range(1, MAX_NESTING + 1) if nesting(scan(make(depth))) <= MAX_NESTING)
    kept = threading.stack_size(512 * 1024)
    try:
        with ThreadPoolExecutor(1) as pool:
            for depth in (accepted, accepted + 1):
                pool.submit(read_sql, make(depth)).result()
                pool.submit(text_fingerprint, make(depth)).result()
    finally:
        threading.stack_size(kept)
    assert "nested" in read_sql(make(accepted + 1)).unread[0].error
