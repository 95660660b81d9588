# ruff: noqa: E501
"""Main tables and claims of queue frameworks that no Python package brings, told in as few columns as discovery needs.

Each is rebuilt from the framework's public schema: the table's name, the columns that are compared, and the statement
in the shape that the framework sends.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Framework:
    """DDL and statements, and what discovery must say of them. ``claim`` is the report's shape of the claim."""

    setup: str
    statements: tuple[str, ...]
    table: str
    framework: str | None
    ready: str | None
    claim: str
    state: str | None = None
    run_at: str | None = None


_RIVER = Framework(
    setup="""
        CREATE TYPE river_job_state AS ENUM ('available', 'cancelled', 'completed', 'discarded', 'pending', 'retryable', 'running', 'scheduled');
        CREATE TABLE river_job (id bigserial PRIMARY KEY, state river_job_state NOT NULL DEFAULT 'available', attempt smallint NOT NULL DEFAULT 0,
            max_attempts smallint NOT NULL DEFAULT 25, attempted_at timestamptz, created_at timestamptz NOT NULL DEFAULT now(), finalized_at timestamptz,
            scheduled_at timestamptz NOT NULL DEFAULT now(), priority smallint NOT NULL DEFAULT 1, args jsonb NOT NULL DEFAULT '{}',
            attempted_by text[], errors jsonb[], kind text NOT NULL DEFAULT 'mail', queue text NOT NULL DEFAULT 'default');
        CREATE INDEX river_job_prioritized_fetching_index ON river_job (state, queue, priority, scheduled_at, id);
        CREATE INDEX river_job_state_and_finalized_at_index ON river_job (state, finalized_at) WHERE finalized_at IS NOT NULL;
        CREATE TABLE river_leader (name text PRIMARY KEY DEFAULT 'default', leader_id text NOT NULL, elected_at timestamptz NOT NULL, expires_at timestamptz NOT NULL);
        CREATE TABLE river_queue (name text PRIMARY KEY, created_at timestamptz DEFAULT now(), metadata jsonb, paused_at timestamptz, updated_at timestamptz);
        INSERT INTO river_leader VALUES ('default', 'me', now(), now() + interval '1 minute');
        INSERT INTO river_job (state, scheduled_at) SELECT 'available', now() FROM generate_series(1, 20);
        INSERT INTO river_job (state, scheduled_at) VALUES ('scheduled', now() + interval '1 hour');""",
    statements=(
        """WITH locked_jobs AS (SELECT * FROM river_job WHERE state = 'available' AND queue = 'default' AND scheduled_at <= coalesce(NULL, now())
             ORDER BY priority ASC, scheduled_at ASC, id ASC LIMIT 1 FOR UPDATE SKIP LOCKED)
           UPDATE river_job SET state = 'running', attempt = river_job.attempt + 1, attempted_at = now(), attempted_by = array_append(river_job.attempted_by, 'me')
           FROM locked_jobs WHERE river_job.id = locked_jobs.id RETURNING river_job.*""",
        """WITH jobs AS (SELECT id FROM river_job WHERE state IN ('retryable', 'scheduled') AND scheduled_at <= now() ORDER BY priority, scheduled_at, id
             LIMIT 100 FOR UPDATE) UPDATE river_job SET state = 'available' FROM jobs WHERE river_job.id = jobs.id RETURNING river_job.id""",
        "UPDATE river_job SET state = 'completed', finalized_at = now() WHERE id = 1 AND state = 'running'",
        "UPDATE river_leader SET expires_at = now() + interval '1 minute' WHERE name = 'default' AND leader_id = 'me' AND expires_at >= now()",
        "DELETE FROM river_job WHERE id IN (SELECT id FROM river_job WHERE state = 'completed' AND finalized_at < now() - interval '1 day' ORDER BY id LIMIT 1000)",
    ),
    table="public.river_job",
    framework="river",
    state="state",
    run_at="scheduled_at",
    ready="state = 'available' AND scheduled_at <= now()",
    claim="skip-locked",
)

_SOLID_QUEUE = Framework(
    setup="""
        CREATE TABLE solid_queue_jobs (id bigserial PRIMARY KEY, queue_name text NOT NULL, class_name text NOT NULL, arguments text, priority int NOT NULL DEFAULT 0,
            active_job_id text, scheduled_at timestamp(6), finished_at timestamp(6), concurrency_key text, created_at timestamp(6) NOT NULL DEFAULT now());
        CREATE INDEX ON solid_queue_jobs (queue_name, finished_at); CREATE INDEX ON solid_queue_jobs (scheduled_at, finished_at);
        CREATE TABLE solid_queue_ready_executions (id bigserial PRIMARY KEY, job_id bigint NOT NULL UNIQUE REFERENCES solid_queue_jobs ON DELETE CASCADE,
            queue_name text NOT NULL, priority int NOT NULL DEFAULT 0, created_at timestamp(6) NOT NULL DEFAULT now());
        CREATE INDEX ON solid_queue_ready_executions (priority, job_id); CREATE INDEX ON solid_queue_ready_executions (queue_name, priority, job_id);
        CREATE TABLE solid_queue_claimed_executions (id bigserial PRIMARY KEY, job_id bigint NOT NULL UNIQUE REFERENCES solid_queue_jobs ON DELETE CASCADE,
            process_id bigint, created_at timestamp(6) NOT NULL DEFAULT now());
        CREATE TABLE solid_queue_scheduled_executions (id bigserial PRIMARY KEY, job_id bigint NOT NULL UNIQUE REFERENCES solid_queue_jobs ON DELETE CASCADE,
            queue_name text NOT NULL, priority int NOT NULL DEFAULT 0, scheduled_at timestamp(6) NOT NULL);
        CREATE TABLE solid_queue_blocked_executions (id bigserial PRIMARY KEY, job_id bigint NOT NULL UNIQUE REFERENCES solid_queue_jobs ON DELETE CASCADE,
            queue_name text NOT NULL, priority int NOT NULL DEFAULT 0, concurrency_key text NOT NULL, expires_at timestamp(6) NOT NULL);
        CREATE TABLE solid_queue_failed_executions (id bigserial PRIMARY KEY, job_id bigint NOT NULL UNIQUE, error text);
        CREATE TABLE solid_queue_semaphores (id bigserial PRIMARY KEY, key text NOT NULL UNIQUE, value int NOT NULL DEFAULT 1, expires_at timestamp(6) NOT NULL DEFAULT now());
        CREATE TABLE solid_queue_processes (id bigserial PRIMARY KEY, kind text, last_heartbeat_at timestamp(6) NOT NULL DEFAULT now(), supervisor_id bigint, pid int, name text);
        INSERT INTO solid_queue_jobs (queue_name, class_name) SELECT 'default', 'Mail' FROM generate_series(1, 20);
        INSERT INTO solid_queue_ready_executions (job_id, queue_name) SELECT id, queue_name FROM solid_queue_jobs;
        INSERT INTO solid_queue_semaphores (key) VALUES ('a');""",
    statements=(
        """SELECT "solid_queue_ready_executions"."id", "solid_queue_ready_executions"."job_id" FROM "solid_queue_ready_executions"
           ORDER BY "solid_queue_ready_executions"."priority" ASC, "solid_queue_ready_executions"."job_id" ASC LIMIT 3 FOR UPDATE SKIP LOCKED""",
        "INSERT INTO solid_queue_claimed_executions (job_id, process_id) VALUES ((SELECT max(job_id) FROM solid_queue_ready_executions), 1) ON CONFLICT DO NOTHING RETURNING id",
        "DELETE FROM solid_queue_ready_executions WHERE job_id = (SELECT max(job_id) FROM solid_queue_claimed_executions)",
        """SELECT job_id FROM solid_queue_scheduled_executions WHERE scheduled_at <= now() ORDER BY scheduled_at ASC, priority ASC, job_id ASC LIMIT 500
           FOR UPDATE SKIP LOCKED""",
        """SELECT job_id FROM solid_queue_blocked_executions WHERE concurrency_key = 'a' ORDER BY priority ASC, job_id ASC LIMIT 1 FOR UPDATE SKIP LOCKED""",
        "UPDATE solid_queue_semaphores SET value = value - 1, expires_at = now() WHERE key = 'a' AND value > 0",
        "SELECT id FROM solid_queue_processes WHERE last_heartbeat_at <= now() - interval '5 minutes' FOR UPDATE SKIP LOCKED",
        "UPDATE solid_queue_jobs SET finished_at = now() WHERE id = 1",
    ),
    table="public.solid_queue_ready_executions",
    framework="solid_queue",
    ready="true",
    claim="skip-locked",
)

_GOOD_JOB_TABLE = """
    CREATE TABLE good_jobs (id uuid PRIMARY KEY DEFAULT gen_random_uuid(), queue_name text, priority int, serialized_params jsonb, scheduled_at timestamp(6),
        performed_at timestamp(6), finished_at timestamp(6), error text, created_at timestamp(6) NOT NULL, updated_at timestamp(6) NOT NULL,
        active_job_id uuid, concurrency_key text, executions_count int, locked_by_id uuid, locked_at timestamp(6), lock_type smallint);
    CREATE INDEX ON good_jobs (priority, created_at) WHERE finished_at IS NULL;
    CREATE INDEX ON good_jobs (queue_name, scheduled_at) WHERE finished_at IS NULL;
    CREATE TABLE good_job_executions (id bigserial PRIMARY KEY, active_job_id uuid, finished_at timestamp(6), scheduled_at timestamp(6), error text, created_at timestamp(6) DEFAULT now());
    CREATE TABLE good_job_processes (id bigserial PRIMARY KEY, state jsonb, lock_type smallint, updated_at timestamp(6) DEFAULT now());
    INSERT INTO good_jobs (queue_name, priority, scheduled_at, created_at, updated_at)
        SELECT 'default', 0, now() AT TIME ZONE 'UTC', now() AT TIME ZONE 'UTC', now() AT TIME ZONE 'UTC' FROM generate_series(1, 20);"""

_GOOD_JOB = Framework(
    setup=_GOOD_JOB_TABLE,
    statements=(
        """SELECT "good_jobs".* FROM "good_jobs" WHERE "good_jobs"."id" IN (
             WITH "rows" AS MATERIALIZED (SELECT "good_jobs"."id", "good_jobs"."active_job_id" FROM "good_jobs"
               WHERE "good_jobs"."finished_at" IS NULL AND ("good_jobs"."scheduled_at" <= '2036-01-01 00:00:00' OR "good_jobs"."scheduled_at" IS NULL)
               ORDER BY priority ASC NULLS LAST, created_at ASC)
             SELECT "rows"."id" FROM "rows" WHERE pg_try_advisory_lock(('x' || substr(md5('good_jobs' || '-' || "rows"."active_job_id"::text), 1, 16))::bit(64)::bigint) LIMIT 1)
           ORDER BY priority ASC NULLS LAST, created_at ASC""",
        "UPDATE good_jobs SET performed_at = now(), locked_by_id = gen_random_uuid() WHERE id = gen_random_uuid()",
        "UPDATE good_jobs SET finished_at = now() WHERE id = gen_random_uuid()",
        "SELECT pg_advisory_unlock_all()",
    ),
    table="public.good_jobs",
    framework="good_job",
    state="finished_at",
    run_at="scheduled_at",
    ready="finished_at IS NULL AND (scheduled_at IS NULL OR scheduled_at <= (now() AT TIME ZONE 'UTC'))",
    claim="advisory",
)

_GOOD_JOB_LOCKED = Framework(
    setup=_GOOD_JOB_TABLE,
    statements=(
        """UPDATE good_jobs SET locked_by_id = gen_random_uuid(), locked_at = now(), lock_type = 1 WHERE id IN (
             SELECT id FROM good_jobs WHERE finished_at IS NULL AND locked_by_id IS NULL AND (scheduled_at <= '2036-01-01 00:00:00' OR scheduled_at IS NULL)
             ORDER BY priority ASC NULLS LAST, created_at ASC LIMIT 1 FOR NO KEY UPDATE SKIP LOCKED) RETURNING *""",
        "UPDATE good_jobs SET finished_at = now() WHERE id = gen_random_uuid()",
    ),
    table="public.good_jobs",
    framework="good_job",
    state="finished_at",
    run_at="scheduled_at",
    ready="finished_at IS NULL AND locked_by_id IS NULL AND (scheduled_at IS NULL OR scheduled_at <= (now() AT TIME ZONE 'UTC'))",
    claim="skip-locked",
)

_QUE = Framework(
    setup="""
        CREATE TABLE que_jobs (priority smallint NOT NULL DEFAULT 100, run_at timestamptz NOT NULL DEFAULT now(), id bigserial PRIMARY KEY, job_class text NOT NULL,
            error_count int NOT NULL DEFAULT 0, last_error_message text, queue text NOT NULL DEFAULT 'default', finished_at timestamptz, expired_at timestamptz, args jsonb);
        CREATE INDEX que_poll_idx ON que_jobs (queue, priority, run_at, id) WHERE finished_at IS NULL AND expired_at IS NULL;
        CREATE TABLE que_lockers (pid int PRIMARY KEY, worker_count int, listening bool); CREATE TABLE que_values (key text PRIMARY KEY, value jsonb);
        INSERT INTO que_jobs (job_class) SELECT 'Mail' FROM generate_series(1, 20);""",
    statements=(
        """WITH RECURSIVE jobs AS (
             SELECT (j).*, pg_try_advisory_lock((j).id) AS locked FROM (SELECT j FROM que_jobs AS j WHERE queue = 'default' AND run_at <= now()
               AND finished_at IS NULL AND expired_at IS NULL ORDER BY priority, run_at, id LIMIT 1) AS t1
             UNION ALL (SELECT (j).*, pg_try_advisory_lock((j).id) AS locked FROM (SELECT (SELECT j FROM que_jobs AS j WHERE queue = 'default' AND run_at <= now()
               AND finished_at IS NULL AND expired_at IS NULL AND (priority, run_at, id) > (jobs.priority, jobs.run_at, jobs.id)
               ORDER BY priority, run_at, id LIMIT 1) AS j FROM jobs WHERE jobs.id IS NOT NULL LIMIT 1) AS t1))
           SELECT * FROM jobs WHERE locked LIMIT 5""",
        "SELECT pg_advisory_unlock_all()",
        "UPDATE que_jobs SET finished_at = now() WHERE id = 1",
    ),
    table="public.que_jobs",
    framework="que",
    state="finished_at",
    run_at="run_at",
    ready="finished_at IS NULL AND expired_at IS NULL AND run_at <= now()",
    claim="advisory",
)

_DELAYED_JOB = Framework(
    setup="""
        CREATE TABLE delayed_jobs (id bigserial PRIMARY KEY, priority int NOT NULL DEFAULT 0, attempts int NOT NULL DEFAULT 0, handler text NOT NULL, last_error text,
            run_at timestamp(6), locked_at timestamp(6), failed_at timestamp(6), locked_by text, queue text, created_at timestamp(6), updated_at timestamp(6));
        CREATE INDEX delayed_jobs_priority ON delayed_jobs (priority, run_at);
        INSERT INTO delayed_jobs (handler, run_at) SELECT '--- yaml', now() AT TIME ZONE 'UTC' FROM generate_series(1, 20);""",
    statements=(
        """UPDATE "delayed_jobs" SET locked_at = '2026-01-01 00:00:00', locked_by = 'host:a pid:1' WHERE id IN (SELECT "delayed_jobs"."id" FROM "delayed_jobs"
             WHERE ((run_at <= '2036-01-01 00:00:00' AND (locked_at IS NULL OR locked_at < '2025-12-31 20:00:00') OR locked_by = 'host:a pid:1') AND failed_at IS NULL)
             ORDER BY priority ASC, run_at ASC LIMIT 1 FOR UPDATE) RETURNING *""",
        "DELETE FROM delayed_jobs WHERE id = 1",
    ),
    table="public.delayed_jobs",
    framework="delayed_job",
    state="locked_at",
    run_at="run_at",
    ready="locked_at IS NULL AND failed_at IS NULL AND run_at <= (now() AT TIME ZONE 'UTC')",
    claim="blocking",
)

_QUEUE_CLASSIC = Framework(
    setup="""
        CREATE TABLE queue_classic_jobs (id bigserial PRIMARY KEY, q_name text NOT NULL, method text NOT NULL, args jsonb NOT NULL DEFAULT '[]', locked_at timestamptz,
            locked_by int, created_at timestamptz DEFAULT now(), scheduled_at timestamptz DEFAULT now());
        CREATE INDEX idx_qc_on_name_only_unlocked ON queue_classic_jobs (q_name, id) WHERE locked_at IS NULL;
        CREATE INDEX idx_qc_on_scheduled_at_only_unlocked ON queue_classic_jobs (scheduled_at, id) WHERE locked_at IS NULL;
        INSERT INTO queue_classic_jobs (q_name, method) SELECT 'default', 'Mail.send' FROM generate_series(1, 20);""",
    statements=(
        """WITH selected_job AS (SELECT id FROM queue_classic_jobs WHERE locked_at IS NULL AND q_name = 'default' AND scheduled_at <= now() LIMIT 1
             FOR NO KEY UPDATE SKIP LOCKED)
           UPDATE queue_classic_jobs SET locked_at = now(), locked_by = pg_backend_pid() FROM selected_job WHERE queue_classic_jobs.id = selected_job.id RETURNING *""",
        "DELETE FROM queue_classic_jobs WHERE id = 1",
    ),
    table="public.queue_classic_jobs",
    framework="queue_classic",
    state="locked_at",
    run_at="scheduled_at",
    ready="locked_at IS NULL AND scheduled_at <= now()",
    claim="skip-locked",
)

_HANGFIRE = Framework(
    setup="""
        CREATE SCHEMA hangfire;
        CREATE TABLE hangfire.job (id bigserial PRIMARY KEY, stateid bigint, statename text, invocationdata jsonb NOT NULL DEFAULT '{}', arguments jsonb NOT NULL DEFAULT '[]',
            createdat timestamptz NOT NULL DEFAULT now(), expireat timestamptz, updatecount int NOT NULL DEFAULT 0);
        CREATE INDEX ON hangfire.job (statename); CREATE INDEX ON hangfire.job (expireat);
        CREATE TABLE hangfire.jobqueue (id bigserial PRIMARY KEY, jobid bigint NOT NULL, queue text NOT NULL, fetchedat timestamptz, updatecount int NOT NULL DEFAULT 0);
        CREATE INDEX ON hangfire.jobqueue (queue, fetchedat); CREATE INDEX ON hangfire.jobqueue (jobid, queue);
        CREATE TABLE hangfire.lock (resource text UNIQUE, acquired timestamptz, updatecount int DEFAULT 0);
        CREATE TABLE hangfire.server (id text PRIMARY KEY, data jsonb, lastheartbeat timestamptz);
        INSERT INTO hangfire.job (statename) SELECT 'Enqueued' FROM generate_series(1, 20);
        INSERT INTO hangfire.jobqueue (jobid, queue) SELECT id, 'default' FROM hangfire.job;""",
    statements=(
        """UPDATE "hangfire"."jobqueue" SET "fetchedat" = NOW() WHERE "id" = (SELECT "id" FROM "hangfire"."jobqueue" WHERE "queue" = ANY (ARRAY['default'])
             AND ("fetchedat" IS NULL OR "fetchedat" < NOW() + make_interval(secs => -1800)) ORDER BY "queue", "fetchedat", "jobid"
             FOR UPDATE SKIP LOCKED LIMIT 1) RETURNING "id", "jobid", "queue", "fetchedat" """,
        """DELETE FROM "hangfire"."jobqueue" WHERE "id" = 1""",
        """UPDATE "hangfire"."job" SET "stateid" = 1, "statename" = 'Processing' WHERE "id" = 1""",
        """DELETE FROM "hangfire"."job" WHERE "id" IN (SELECT "id" FROM "hangfire"."job" WHERE "expireat" < NOW() LIMIT 1000)""",
        """UPDATE "hangfire"."server" SET "lastheartbeat" = NOW() WHERE "id" = 'a'""",
    ),
    table="hangfire.jobqueue",
    framework="hangfire",
    state="fetchedat",
    ready="fetchedat IS NULL",
    claim="skip-locked",
)

_JOBRUNR = Framework(
    setup="""
        CREATE TABLE jobrunr_jobs (id char(36) PRIMARY KEY, version int NOT NULL DEFAULT 1, jobasjson text NOT NULL DEFAULT '{}', jobsignature text NOT NULL DEFAULT '',
            state varchar(36) NOT NULL DEFAULT 'ENQUEUED', createdat timestamp NOT NULL, updatedat timestamp NOT NULL, scheduledat timestamp, recurringjobid text);
        CREATE INDEX ON jobrunr_jobs (state); CREATE INDEX ON jobrunr_jobs (updatedat);
        CREATE TABLE jobrunr_recurring_jobs (id char(128) PRIMARY KEY, version int, jobasjson text, createdat bigint);
        CREATE TABLE jobrunr_backgroundjobservers (id char(36) PRIMARY KEY, running bool, firstheartbeat timestamp, lastheartbeat timestamp);
        INSERT INTO jobrunr_jobs (id, createdat, updatedat) SELECT gen_random_uuid(), now() AT TIME ZONE 'UTC', now() AT TIME ZONE 'UTC' FROM generate_series(1, 20);""",
    statements=(
        "SELECT jobAsJson FROM jobrunr_jobs WHERE state = 'ENQUEUED' ORDER BY updatedAt ASC LIMIT 10 FOR UPDATE SKIP LOCKED",
        "UPDATE jobrunr_jobs SET version = 2, jobAsJson = '{}', state = 'PROCESSING', updatedAt = now(), scheduledAt = NULL WHERE id = 'x' AND version = 1",
        "UPDATE jobrunr_backgroundjobservers SET lastHeartbeat = now() WHERE id = 'x'",
    ),
    table="public.jobrunr_jobs",
    framework="jobrunr",
    state="state",
    run_at="scheduledat",
    ready="state = 'ENQUEUED' AND (scheduledat IS NULL OR scheduledat <= (now() AT TIME ZONE 'UTC'))",
    claim="skip-locked",
)

_DB_SCHEDULER_TABLE = """
    CREATE TABLE scheduled_tasks (task_name text NOT NULL, task_instance text NOT NULL, task_data bytea, execution_time timestamptz NOT NULL DEFAULT now(),
        picked boolean NOT NULL DEFAULT false, picked_by text, last_success timestamptz, last_failure timestamptz, consecutive_failures int, last_heartbeat timestamptz,
        version bigint NOT NULL DEFAULT 1, priority smallint, PRIMARY KEY (task_name, task_instance));
    CREATE INDEX ON scheduled_tasks (execution_time); CREATE INDEX ON scheduled_tasks (last_heartbeat);
    INSERT INTO scheduled_tasks (task_name, task_instance) SELECT 'mail', g::text FROM generate_series(1, 20) AS g;"""

_DB_SCHEDULER = Framework(
    setup=_DB_SCHEDULER_TABLE,
    statements=(
        """UPDATE scheduled_tasks st1 SET picked = true, picked_by = 'me', last_heartbeat = now(), version = version + 1 WHERE (st1.task_name, st1.task_instance) IN (
             SELECT st2.task_name, st2.task_instance FROM scheduled_tasks st2 WHERE picked = false AND execution_time <= now() ORDER BY execution_time ASC
             FOR UPDATE SKIP LOCKED LIMIT 1) RETURNING st1.*""",
        "DELETE FROM scheduled_tasks WHERE task_name = 'mail' AND task_instance = '1' AND version = 2",
        "UPDATE scheduled_tasks SET last_heartbeat = now() WHERE task_name = 'mail' AND task_instance = '2' AND version = 2",
    ),
    table="public.scheduled_tasks",
    framework="db-scheduler",
    state="picked",
    run_at="execution_time",
    ready="picked = false AND execution_time <= now()",
    claim="skip-locked",
)

_DB_SCHEDULER_FETCH = Framework(
    setup=_DB_SCHEDULER_TABLE,
    statements=(
        "SELECT * FROM scheduled_tasks WHERE picked = false AND execution_time <= now() ORDER BY execution_time ASC LIMIT 30",
        "UPDATE scheduled_tasks SET picked = true, picked_by = 'me', last_heartbeat = now(), version = 2 WHERE picked = false AND task_name = 'mail' AND task_instance = '1' AND version = 1",
        "DELETE FROM scheduled_tasks WHERE task_name = 'mail' AND task_instance = '1' AND version = 2",
    ),
    table="public.scheduled_tasks",
    framework="db-scheduler",
    state="picked",
    run_at="execution_time",
    ready="picked = false AND execution_time <= now()",
    claim="guarded",
)

_WINDMILL = Framework(
    setup="""
        CREATE TABLE v2_job_queue (id uuid PRIMARY KEY DEFAULT gen_random_uuid(), workspace_id text NOT NULL DEFAULT 'w', created_at timestamptz NOT NULL DEFAULT now(),
            started_at timestamptz, scheduled_for timestamptz NOT NULL DEFAULT now(), running boolean NOT NULL DEFAULT false, canceled_by text, suspend int NOT NULL DEFAULT 0,
            suspend_until timestamptz, tag text NOT NULL DEFAULT 'deno', priority smallint, worker text);
        CREATE INDEX queue_sort_v2 ON v2_job_queue (priority DESC NULLS LAST, scheduled_for, tag) WHERE running = false;
        CREATE TABLE v2_job (id uuid PRIMARY KEY, tag text, kind text, created_at timestamptz DEFAULT now());
        CREATE TABLE v2_job_runtime (id uuid PRIMARY KEY, ping timestamptz); CREATE TABLE v2_job_completed (id uuid PRIMARY KEY, status text, started_at timestamptz, completed_at timestamptz);
        INSERT INTO v2_job_queue (tag) SELECT 'deno' FROM generate_series(1, 20);""",
    statements=(
        """WITH peek AS (SELECT id FROM v2_job_queue WHERE running = false AND tag IN ('deno', 'python3') AND scheduled_for <= now()
             ORDER BY priority DESC NULLS LAST, scheduled_for FOR UPDATE SKIP LOCKED LIMIT 1),
           q AS NOT MATERIALIZED (UPDATE v2_job_queue SET running = true, started_at = coalesce(started_at, now()), suspend_until = NULL, worker = 'w1'
             WHERE id = (SELECT id FROM peek) RETURNING started_at, scheduled_for, id),
           r AS NOT MATERIALIZED (UPDATE v2_job_runtime SET ping = now() WHERE id = (SELECT id FROM peek))
           SELECT q.id, q.started_at FROM q LEFT JOIN v2_job j USING (id)""",
        "UPDATE v2_job_runtime SET ping = now() WHERE id = gen_random_uuid()",
        "DELETE FROM v2_job_queue WHERE id = gen_random_uuid()",
    ),
    table="public.v2_job_queue",
    framework="windmill",
    state="running",
    run_at="scheduled_for",
    ready="running = false AND scheduled_for <= now()",
    claim="skip-locked",
)

_HATCHET = Framework(
    setup="""
        CREATE TABLE v1_queue_item (id bigserial PRIMARY KEY, tenant_id uuid NOT NULL DEFAULT gen_random_uuid(), queue text NOT NULL DEFAULT 'default', task_id bigint NOT NULL DEFAULT 1,
            task_inserted_at timestamptz NOT NULL DEFAULT now(), action_id text, step_id uuid, priority int NOT NULL DEFAULT 1, schedule_timeout_at timestamptz, retry_count int NOT NULL DEFAULT 0);
        CREATE INDEX ON v1_queue_item (tenant_id, queue, priority DESC, id ASC);
        CREATE TABLE v1_task_runtime (task_id bigint PRIMARY KEY, worker_id uuid, timeout_at timestamptz NOT NULL DEFAULT now());
        CREATE TABLE v1_retry_queue_item (task_id bigint PRIMARY KEY, retry_after timestamptz NOT NULL DEFAULT now());
        INSERT INTO v1_queue_item (queue) SELECT 'default' FROM generate_series(1, 20);""",
    statements=(
        "SELECT * FROM v1_queue_item qi WHERE qi.tenant_id = gen_random_uuid() AND qi.queue = 'default' ORDER BY qi.priority DESC, qi.id ASC LIMIT 100",
        "WITH locked_qis AS (SELECT id FROM v1_queue_item WHERE id = ANY (ARRAY[1, 2]) ORDER BY id FOR UPDATE) DELETE FROM v1_queue_item WHERE id IN (SELECT id FROM locked_qis)",
        "SELECT task_id FROM v1_task_runtime WHERE timeout_at <= now() ORDER BY task_id LIMIT 100 FOR UPDATE SKIP LOCKED",
        "SELECT task_id FROM v1_retry_queue_item WHERE retry_after <= now() ORDER BY retry_after LIMIT 100 FOR UPDATE SKIP LOCKED",
    ),
    table="public.v1_queue_item",
    framework="hatchet",
    ready="true",
    claim="unknown",
)

_AIRFLOW = Framework(
    setup="""
        CREATE TABLE dag (dag_id text PRIMARY KEY, is_paused bool DEFAULT false, is_stale bool DEFAULT false, next_dagrun_create_after timestamptz, max_active_runs int);
        CREATE TABLE dag_run (id bigserial PRIMARY KEY, dag_id text NOT NULL, run_id text, state varchar(50), logical_date timestamptz, last_scheduling_decision timestamptz,
            queued_at timestamptz, start_date timestamptz, end_date timestamptz, run_after timestamptz NOT NULL DEFAULT now());
        CREATE INDEX idx_dag_run_queued_dags ON dag_run (state, dag_id) WHERE state = 'queued'; CREATE INDEX ON dag_run (state, dag_id) WHERE state = 'running';
        CREATE TABLE task_instance (id uuid PRIMARY KEY DEFAULT gen_random_uuid(), task_id text NOT NULL, dag_id text NOT NULL, run_id text, state varchar(20), try_number int DEFAULT 0,
            max_tries int, pool text NOT NULL DEFAULT 'default_pool', priority_weight int DEFAULT 1, queue text, queued_dttm timestamptz, queued_by_job_id int, scheduled_dttm timestamptz,
            start_date timestamptz, end_date timestamptz, external_executor_id text, map_index int DEFAULT -1);
        CREATE INDEX ti_state ON task_instance (state);
        CREATE TABLE job (id serial PRIMARY KEY, dag_id text, state varchar(20), job_type varchar(30), start_date timestamptz, end_date timestamptz, latest_heartbeat timestamptz, hostname text, unixname text);
        CREATE INDEX job_type_heart ON job (job_type, latest_heartbeat);
        CREATE TABLE callback_request (id serial PRIMARY KEY, created_at timestamptz NOT NULL DEFAULT now(), priority_weight int NOT NULL DEFAULT 1, callback_data jsonb, callback_type text);
        CREATE TABLE trigger (id serial PRIMARY KEY, classpath text, created_date timestamptz, triggerer_id int);
        CREATE TABLE deadline (id serial PRIMARY KEY, deadline_time timestamptz, missed bool DEFAULT false);
        CREATE TABLE slot_pool (id serial PRIMARY KEY, pool text, slots int);
        INSERT INTO dag (dag_id, next_dagrun_create_after) VALUES ('d', now());
        INSERT INTO dag_run (dag_id, run_id, state) SELECT 'd', g::text, 'running' FROM generate_series(1, 5) AS g;
        INSERT INTO task_instance (task_id, dag_id, run_id, state) SELECT 't', 'd', g::text, 'scheduled' FROM generate_series(1, 5) AS g;
        INSERT INTO job (state, job_type, latest_heartbeat) VALUES ('running', 'SchedulerJob', now());""",
    statements=(
        """SELECT ti.id, ti.task_id FROM task_instance ti JOIN dag_run dr ON dr.dag_id = ti.dag_id AND dr.run_id = ti.run_id JOIN dag d ON d.dag_id = ti.dag_id
           WHERE dr.state = 'running' AND NOT d.is_paused AND ti.state = 'scheduled' ORDER BY -ti.priority_weight, dr.logical_date LIMIT 16 FOR UPDATE OF ti SKIP LOCKED""",
        "UPDATE task_instance SET state = 'queued', queued_dttm = now(), queued_by_job_id = 1 WHERE id IN (gen_random_uuid(), gen_random_uuid())",
        """SELECT dag_run.* FROM dag_run JOIN dag ON dag.dag_id = dag_run.dag_id WHERE dag_run.state = 'running' AND NOT dag.is_paused
           ORDER BY dag_run.last_scheduling_decision NULLS FIRST, dag_run.run_after LIMIT 20 FOR UPDATE OF dag_run SKIP LOCKED""",
        "UPDATE dag_run SET last_scheduling_decision = now() WHERE id = 1",
        """SELECT * FROM dag WHERE NOT is_paused AND NOT is_stale AND next_dagrun_create_after <= now() ORDER BY next_dagrun_create_after LIMIT 10 FOR UPDATE SKIP LOCKED""",
        "UPDATE dag SET next_dagrun_create_after = now() + interval '1 day' WHERE dag_id = 'd'",
        "SELECT * FROM callback_request ORDER BY priority_weight DESC LIMIT 100 FOR UPDATE SKIP LOCKED",
        "DELETE FROM callback_request WHERE id = 1",
        "SELECT * FROM trigger WHERE triggerer_id IS NULL ORDER BY created_date LIMIT 100 FOR UPDATE SKIP LOCKED",
        "SELECT * FROM deadline WHERE deadline_time < now() AND NOT missed LIMIT 100 FOR UPDATE SKIP LOCKED",
        "UPDATE deadline SET missed = true WHERE id = 1",
        "UPDATE job SET latest_heartbeat = now() WHERE id = 1",
        "SELECT * FROM job WHERE state = 'running' AND latest_heartbeat < now() - interval '30 seconds' LIMIT 10 FOR UPDATE SKIP LOCKED",
        "SELECT * FROM slot_pool FOR UPDATE NOWAIT",
        "SELECT * FROM task_instance WHERE state IN ('queued', 'running') AND queued_by_job_id IS NULL FOR UPDATE SKIP LOCKED",
    ),
    table="public.task_instance",
    framework="airflow",
    state="state",
    run_at=None,
    ready="state = 'scheduled'",
    claim="skip-locked",
)

_GUE = Framework(
    setup="""
        CREATE TABLE gue_jobs (job_id text PRIMARY KEY DEFAULT gen_random_uuid()::text, priority smallint NOT NULL DEFAULT 100, run_at timestamptz NOT NULL DEFAULT now(), job_type text NOT NULL DEFAULT 'mail',
            args bytea, error_count int NOT NULL DEFAULT 0, last_error text, queue text NOT NULL DEFAULT '', created_at timestamptz NOT NULL DEFAULT now(), updated_at timestamptz NOT NULL DEFAULT now());
        CREATE INDEX idx_gue_jobs_selector ON gue_jobs (queue, run_at, priority);
        INSERT INTO gue_jobs (priority) SELECT 100 FROM generate_series(1, 20);""",
    statements=(
        """SELECT job_id, queue, priority, run_at, job_type, args, error_count, last_error, created_at FROM gue_jobs WHERE queue = '' AND run_at <= now()
           ORDER BY priority ASC LIMIT 1 FOR UPDATE SKIP LOCKED""",
        "DELETE FROM gue_jobs WHERE job_id = 'x'",
    ),
    table="public.gue_jobs",
    framework="gue",
    run_at="run_at",
    ready="run_at <= now()",
    claim="skip-locked",
)

_PRISMA_QUEUE = Framework(
    setup="""
        CREATE TABLE queue_jobs (id bigserial PRIMARY KEY, queue text NOT NULL DEFAULT 'q', key text, cron text, payload jsonb, result jsonb, error jsonb, progress int DEFAULT 0,
            priority int DEFAULT 0, attempts int DEFAULT 0, "maxAttempts" int, "runAt" timestamptz NOT NULL DEFAULT now(), "notBefore" timestamptz, "finishedAt" timestamptz, "processedAt" timestamptz, "failedAt" timestamptz,
            "createdAt" timestamptz NOT NULL DEFAULT now(), "updatedAt" timestamptz NOT NULL DEFAULT now());
        CREATE INDEX ON queue_jobs (queue, priority, "runAt", "finishedAt");
        INSERT INTO queue_jobs (queue) SELECT 'q' FROM generate_series(1, 20);""",
    statements=(
        """UPDATE "public"."queue_jobs" SET "processedAt" = now(), "attempts" = "public"."queue_jobs"."attempts" + 1 WHERE "public"."queue_jobs"."id" = (
             SELECT "public"."queue_jobs"."id" FROM "public"."queue_jobs" WHERE "public"."queue_jobs"."queue" = 'q' AND "public"."queue_jobs"."finishedAt" IS NULL
             AND "public"."queue_jobs"."runAt" < now() AND "public"."queue_jobs"."processedAt" IS NULL
             AND ("public"."queue_jobs"."notBefore" IS NULL OR "public"."queue_jobs"."notBefore" < now())
             ORDER BY "public"."queue_jobs"."priority" ASC, "public"."queue_jobs"."runAt" ASC FOR UPDATE SKIP LOCKED LIMIT 1) RETURNING "id" """,
    ),
    table="public.queue_jobs",
    framework="prisma-queue",
    state="finishedAt",
    run_at="runAt",
    ready='"finishedAt" IS NULL AND "processedAt" IS NULL AND "runAt" <= now() AND ("notBefore" IS NULL OR "notBefore" <= now())',
    claim="skip-locked",
)

_OBAN = Framework(
    setup="""
        CREATE TYPE oban_job_state AS ENUM ('available', 'scheduled', 'suspended', 'executing', 'retryable', 'completed', 'discarded', 'cancelled');
        CREATE TABLE oban_jobs (id bigserial PRIMARY KEY, state oban_job_state NOT NULL DEFAULT 'available', queue text NOT NULL DEFAULT 'default', worker text NOT NULL DEFAULT 'w', args jsonb NOT NULL DEFAULT '{}',
            errors jsonb[], attempt int NOT NULL DEFAULT 0, max_attempts int NOT NULL DEFAULT 20, priority int NOT NULL DEFAULT 0, inserted_at timestamp NOT NULL DEFAULT timezone('UTC', now()),
            scheduled_at timestamp NOT NULL DEFAULT timezone('UTC', now()), attempted_at timestamp, completed_at timestamp, attempted_by text[]);
        CREATE INDEX oban_jobs_state_queue_priority_scheduled_at_id_index ON oban_jobs (state, queue, priority, scheduled_at, id);
        CREATE TABLE oban_peers (name text PRIMARY KEY, node text NOT NULL, started_at timestamp NOT NULL, expires_at timestamp NOT NULL);
        INSERT INTO oban_jobs (queue) SELECT 'default' FROM generate_series(1, 20);""",
    statements=(
        """WITH subset AS MATERIALIZED (SELECT id FROM oban_jobs WHERE state = 'available' AND queue = 'default' AND attempt < max_attempts
             ORDER BY priority, scheduled_at, id LIMIT 2 FOR UPDATE SKIP LOCKED)
           UPDATE oban_jobs AS j SET state = 'executing', attempted_at = timezone('UTC', now()), attempted_by = ARRAY['me'], attempt = attempt + 1 FROM subset AS s WHERE j.id = s.id RETURNING j.*""",
        "UPDATE oban_jobs SET state = 'available' WHERE id IN (SELECT id FROM oban_jobs WHERE state IN ('scheduled', 'retryable') AND scheduled_at <= timezone('UTC', now()) LIMIT 5000 FOR UPDATE SKIP LOCKED)",
        "DELETE FROM oban_jobs WHERE id IN (SELECT id FROM oban_jobs WHERE state IN ('completed', 'discarded') AND completed_at < timezone('UTC', now()) - interval '1 minute' LIMIT 10000)",
        "UPDATE oban_peers SET expires_at = now() WHERE name = 'Oban' AND expires_at > now()",
    ),
    table="public.oban_jobs",
    framework="oban",
    state="state",
    run_at="scheduled_at",
    ready="state = 'available' AND attempt < max_attempts AND scheduled_at <= (now() AT TIME ZONE 'UTC')",
    claim="skip-locked",
)

_PG_BOSS_12 = Framework(
    setup="""
        CREATE SCHEMA pgboss; CREATE TYPE pgboss.job_state AS ENUM ('created', 'retry', 'active', 'completed', 'cancelled', 'failed');
        CREATE TABLE pgboss.job (id uuid NOT NULL DEFAULT gen_random_uuid(), name text NOT NULL, priority int NOT NULL DEFAULT 0, data jsonb, state pgboss.job_state NOT NULL DEFAULT 'created',
            retry_limit int NOT NULL DEFAULT 2, retry_count int NOT NULL DEFAULT 0, start_after timestamptz NOT NULL DEFAULT now(), singleton_key text, started_on timestamptz,
            created_on timestamptz NOT NULL DEFAULT now(), completed_on timestamptz, policy text, blocked boolean NOT NULL DEFAULT false) PARTITION BY LIST (name);
        CREATE TABLE pgboss.job_common PARTITION OF pgboss.job DEFAULT; ALTER TABLE pgboss.job_common ADD PRIMARY KEY (name, id);
        CREATE INDEX job_i5 ON pgboss.job_common (name, start_after) WHERE state < 'active';
        CREATE TABLE pgboss.queue (name text PRIMARY KEY, policy text, table_name text, deferred_count int DEFAULT 0, monitor_on timestamptz, maintain_on timestamptz);
        CREATE TABLE pgboss.schedule (name text, key text, cron text, created_on timestamptz DEFAULT now());
        CREATE TABLE pgboss.archive (LIKE pgboss.job); INSERT INTO pgboss.queue (name) VALUES ('mail');
        INSERT INTO pgboss.job (name) SELECT 'mail' FROM generate_series(1, 20);""",
    statements=(
        """WITH next AS (SELECT id FROM pgboss.job_common WHERE name = 'mail' AND state < 'active' AND NOT blocked AND start_after < now()
             ORDER BY priority desc, created_on, id LIMIT 5 FOR UPDATE SKIP LOCKED)
           UPDATE pgboss.job_common j SET state = 'active', started_on = now(), retry_count = CASE WHEN started_on IS NOT NULL THEN retry_count + 1 ELSE retry_count END
           FROM next WHERE name = 'mail' AND j.id = next.id RETURNING j.id, name, data, EXTRACT(epoch FROM now()) AS "at" """,
        "UPDATE pgboss.queue SET monitor_on = now() WHERE name = 'mail' AND coalesce(extract(epoch FROM (now() - monitor_on)), 0) > 60 RETURNING name",
        "INSERT INTO pgboss.archive SELECT * FROM pgboss.job WHERE name = 'other'",
    ),
    table="pgboss.job",
    framework="pg-boss",
    state="state",
    run_at="start_after",
    ready="state IN ('created', 'retry') AND blocked = false AND start_after <= now()",
    claim="skip-locked",
)

FRAMEWORKS = {
    "River": _RIVER,
    "Solid Queue": _SOLID_QUEUE,
    "GoodJob, advisory locks": _GOOD_JOB,
    "GoodJob, SKIP LOCKED": _GOOD_JOB_LOCKED,
    "Que": _QUE,
    "delayed_job": _DELAYED_JOB,
    "queue_classic": _QUEUE_CLASSIC,
    "Hangfire": _HANGFIRE,
    "JobRunr": _JOBRUNR,
    "db-scheduler, lock and fetch": _DB_SCHEDULER,
    "db-scheduler, fetch": _DB_SCHEDULER_FETCH,
    "Windmill": _WINDMILL,
    "Hatchet": _HATCHET,
    "Airflow": _AIRFLOW,
    "gue": _GUE,
    "prisma-queue": _PRISMA_QUEUE,
    "Oban": _OBAN,
    "pg-boss 12": _PG_BOSS_12,
}
