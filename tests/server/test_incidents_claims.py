"""Outages of real queues, reduced to what a server shows: what the report must say, and what it must not.

Each state is set up in a database of its own, the load goes on while the doctor looks, and the doctor connects as a role
that has pg_monitor and may read the tables, nothing more.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace

import psycopg
import pytest

from pgqdoctor.collect import ObserveOptions, observe
from pgqdoctor.engine import diagnose
from pgqdoctor.finding import SEVERITIES
from pgqdoctor.lab.load import Load
from pgqdoctor.lab.scenario import Client, Protocol, Scenario, Session
from pgqdoctor.report import Report, ReportedFinding

WINDOW_S = 3.0
VIEWER = "incident_viewer"
HARMFUL = SEVERITIES[: SEVERITIES.index("warning") + 1]


@dataclass(frozen=True, slots=True, kw_only=True)
class Incident:
    """A state, its load, and the verdict on it.

    ``expected`` maps check ids that must report at warning or above to words their titles must hold; ``allowed`` may
    report so; ``forbidden`` must not report at all; everything else may be a notice at most. ``silent_words`` must not
    stand in any remedy.
    """

    name: str
    setup: str
    clients: tuple[Client, ...] = ()
    sessions: tuple[Session, ...] = ()
    expected: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    told: frozenset[str] = frozenset()
    """Checks that must report, at any severity."""
    allowed: frozenset[str] = frozenset()
    forbidden: frozenset[str] = frozenset()
    never_said: tuple[str, ...] = ()
    queue: str | None = "public.job"
    named: tuple[str, ...] = ()
    settle_s: float = 1.0
    since: int = 14
    until: int | None = None
    window_s: float = WINDOW_S
    sequences: bool = False
    """Whether the doctor's role may read sequences, which pg_monitor does not include."""


def client(
    script: str,
    *,
    connections: int = 2,
    rate: float | None = 20.0,
    protocol: Protocol = "prepared",
    name: str = "worker",
) -> Client:
    return Client(
        name=name,
        application_name=name,
        script=script,
        cured_script=None,
        connections=connections,
        rate=rate,
        cured_rate=None,
        protocol=protocol,
        database=None,
    )


def held(*steps: str, name: str, hold: str = "idle in transaction", after_s: float = 0.0) -> Session:
    assert hold in ("idle in transaction", "active")
    return Session(
        application_name=name,
        sql=steps,
        hold="active" if hold == "active" else "idle in transaction",
        database=None,
        after_s=after_s,
        stays=True,
    )


I11 = Incident(
    name="console-text-rewritten-in-a-loop",
    setup="""
CREATE TABLE task (id int PRIMARY KEY, status text NOT NULL DEFAULT 'queued', locked_by int, console text);
ALTER TABLE task ALTER console SET STORAGE EXTERNAL;
ALTER TABLE task SET (autovacuum_enabled = off, toast.autovacuum_enabled = off);
INSERT INTO task SELECT g, CASE WHEN g % 4 = 0 THEN 'queued' ELSE 'running' END, NULL, '' FROM generate_series(1, 20) g;
""",
    clients=(
        client(
            "\\set i random(1, 20)\n"
            "UPDATE task SET console = repeat(md5(random()::text), 600) WHERE id = :i;",
            rate=None,
            name="log",
        ),
        client(
            "BEGIN;\nSELECT id FROM task WHERE status = 'queued' ORDER BY id LIMIT 1 FOR UPDATE SKIP LOCKED;\nEND;",
            name="worker",
        ),
    ),
    expected={"toast-bloat": ("public.task", "console")},
    allowed=frozenset({"autovacuum-settings"}),
    queue="public.task",
    settle_s=4.0,
)

I12 = Incident(
    name="claim-sort-spills-to-disk",
    setup="""
CREATE TABLE job (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, name text, state text, priority int DEFAULT 0,
    created_on timestamptz DEFAULT now(), data jsonb DEFAULT '{"a": "xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx"}');
INSERT INTO job (name, state, created_on)
    SELECT 'notify', CASE WHEN g % 9 < 5 THEN 'created' ELSE 'completed' END, now() - make_interval(secs => g)
    FROM generate_series(1, 160000) g;
CREATE INDEX ON job (name);
VACUUM ANALYZE job;
""",
    clients=(
        client(
            "BEGIN;\nSELECT id, data FROM job WHERE name = 'notify' AND state < 'running' AND state = 'created' "
            "ORDER BY priority DESC, created_on, id LIMIT 1 FOR UPDATE SKIP LOCKED;\nEND;",
            rate=4,
        ),
    ),
    expected={"claim-sorts-backlog": ("public.job", "to disk")},
    allowed=frozenset({"finished-jobs-kept", "claim-scans-consumed-rows"}),
    never_said=("work_mem",),
)

I17_LOAD = (
    "UPDATE job SET state = 'running', attempt = 1 WHERE id = (SELECT id FROM job WHERE state = 'ready' ORDER BY run_at "
    "LIMIT 1 FOR UPDATE SKIP LOCKED) RETURNING id \\gset\n"
    "UPDATE job SET attempt = 2 WHERE id = :id;\nUPDATE job SET state = 'ready', run_at = run_at WHERE id = :id;"
)
I17_TABLE = """
CREATE TABLE job (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, state text DEFAULT 'ready', attempt int DEFAULT 0,
    run_at timestamptz DEFAULT now()) WITH (fillfactor = 70);
INSERT INTO job (run_at) SELECT now() + make_interval(secs => g / 1000.0) FROM generate_series(1, 5000) g;
"""
I17 = Incident(
    name="status-in-a-partial-predicate",
    setup=I17_TABLE + "CREATE INDEX job_ready ON job (run_at) WHERE state = 'ready';\nVACUUM ANALYZE job;",
    clients=(client(I17_LOAD, rate=None),),
    told=frozenset({"hot-blocked-by-index"}),
    never_said=("fillfactor",),
)
I17_PLAIN = replace(
    I17,
    name="status-in-a-plain-index",
    setup=I17_TABLE + "CREATE INDEX job_state ON job (state, run_at);\nVACUUM ANALYZE job;",
)

I18_SCRIPT = (
    "WITH c AS MATERIALIZED (SELECT id FROM sched WHERE next_run <= now() ORDER BY next_run LIMIT 10 FOR UPDATE SKIP LOCKED) "
    "UPDATE sched SET next_run = now() + interval '3 s', runs = runs + 1 FROM c WHERE sched.id = c.id;"
)
I18_TABLE = """
CREATE TABLE sched (id int PRIMARY KEY, next_run timestamptz, runs int DEFAULT 0) WITH (fillfactor = 80);
INSERT INTO sched SELECT g, now() + make_interval(secs => (g % 3000) / 1000.0) FROM generate_series(1, 60000) g;
"""
I18 = Incident(
    name="schedules-without-an-index",
    setup=I18_TABLE + "VACUUM ANALYZE sched;",
    clients=(client(I18_SCRIPT, rate=20),),
    expected={"claim-sorts-backlog": ("public.sched",)},
    allowed=frozenset({"claim-scans-ineligible-rows", "backlog-growing"}),
    queue="public.sched",
)
I18_INDEXED = replace(
    I18,
    name="schedules-with-the-index",
    setup=I18_TABLE + "CREATE INDEX sched_next ON sched (next_run);\nVACUUM ANALYZE sched;",
    clients=(client(I18_SCRIPT, rate=None),),
    expected={},
    allowed=frozenset({"backlog-growing"}),
    never_said=("DROP INDEX",),
    settle_s=3.0,
)

I19 = Incident(
    name="far-future-jobs-filtered-one-by-one",
    setup="""
CREATE TABLE job (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, state text, queue text, prio int DEFAULT 0,
    scheduled_at timestamptz);
INSERT INTO job (state, queue, scheduled_at)
    SELECT 'scheduled', 'q' || g % 5, now() + make_interval(secs => g) FROM generate_series(1, 300000) g;
INSERT INTO job (state, queue, scheduled_at)
    SELECT 'scheduled', 'q1', now() - interval '1 min' FROM generate_series(1, 5) g;
CREATE INDEX job_main ON job (state, queue, prio, scheduled_at, id);
VACUUM ANALYZE job;
""",
    clients=(
        client(
            "BEGIN;\nSELECT id FROM job WHERE state IN ('scheduled', 'retryable') AND scheduled_at <= now() "
            "ORDER BY scheduled_at DESC, id DESC LIMIT 100 FOR UPDATE SKIP LOCKED;\nEND;",
            rate=6,
        ),
    ),
    expected={"claim-scans-ineligible-rows": ("public.job",)},
    allowed=frozenset({"claim-sorts-backlog"}),
    forbidden=frozenset({"jobs-stuck"}),
    until=17,
)
I19_SKIP_SCAN = replace(
    I19, name="far-future-jobs-under-skip-scan", expected={}, allowed=frozenset(), until=None, since=18
)

I22 = Incident(
    name="order-by-case",
    setup="""
CREATE TABLE job (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, job_id bigint, queue text, fetched_at timestamptz);
INSERT INTO job (job_id, queue) SELECT g, (array['critical', 'default', 'low'])[1 + g % 3] FROM generate_series(1, 150000) g;
CREATE INDEX jq_claim ON job (queue, fetched_at, job_id);
VACUUM ANALYZE job;
""",
    clients=(
        client(
            "BEGIN;\nSELECT id FROM job WHERE queue = ANY('{critical,default,low}') AND fetched_at IS NULL ORDER BY CASE queue "
            "WHEN 'critical' THEN 0 WHEN 'default' THEN 1 ELSE 2 END, fetched_at, job_id FOR UPDATE SKIP LOCKED LIMIT 1;\nEND;",
            rate=4,
        ),
    ),
    expected={"claim-sorts-backlog": ("public.job",)},
    never_said=("work_mem", "ANALYZE public.job"),
)

I24 = Incident(
    name="index-lacks-the-sort-column",
    setup="""
CREATE TABLE job (off_ bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, type text, consumed boolean DEFAULT true,
    value text DEFAULT repeat('v', 120));
INSERT INTO job (type) SELECT 'execution' FROM generate_series(1, 200000) g;
INSERT INTO job (type, consumed) SELECT 'flow', false FROM generate_series(1, 40000) g;
INSERT INTO job (type, consumed) SELECT 'execution', false FROM generate_series(1, 5) g;
CREATE INDEX q_flag ON job (type, consumed);
VACUUM ANALYZE job;
""",
    clients=(
        client(
            "BEGIN;\nSELECT value FROM job WHERE type = 'execution' AND consumed = false ORDER BY off_ LIMIT 500 "
            "FOR UPDATE SKIP LOCKED;\nEND;",
            rate=4,
        ),
    ),
    expected={"claim-scans-consumed-rows": ("public.job",)},
    allowed=frozenset({"finished-jobs-kept"}),
    never_said=("VACUUM", "ANALYZE public.job"),
)

I27 = Incident(
    name="active-jobs-pile-up",
    setup="""
CREATE TABLE job (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, name text, state text, started_on timestamptz,
    expire_in interval DEFAULT '15 min', created_on timestamptz DEFAULT now());
INSERT INTO job (name, state, started_on)
    SELECT 'q' || g % 3, 'active', now() - interval '5 days' FROM generate_series(1, 200000) g;
INSERT INTO job (name, state) SELECT 'q1', 'created' FROM generate_series(1, 500) g;
CREATE INDEX ON job (name);
VACUUM ANALYZE job;
""",
    clients=(
        client(
            "UPDATE job SET state = 'active', started_on = now() WHERE id = (SELECT id FROM job WHERE name = 'q1' AND "
            "state = 'created' ORDER BY created_on, id LIMIT 1 FOR UPDATE SKIP LOCKED) RETURNING id;",
            rate=4,
        ),
    ),
    expected={"jobs-stuck": ("public.job",)},
    allowed=frozenset({"claim-sorts-backlog", "claim-scans-consumed-rows"}),
    forbidden=frozenset({"finished-jobs-kept"}),
)

I30_TABLE = """
CREATE TABLE tenant (id int PRIMARY KEY);
CREATE TABLE job (id bigint GENERATED ALWAYS AS IDENTITY, tenant_id int DEFAULT 1, state text NOT NULL DEFAULT 'ready',
    lease_until timestamptz NOT NULL DEFAULT '-infinity', PRIMARY KEY (id));
ALTER TABLE job SET (autovacuum_enabled = off);
INSERT INTO job VALUES (DEFAULT, DEFAULT, 'ready');
ANALYZE job;
INSERT INTO job SELECT FROM generate_series(1, 40) g;
"""
I30 = Incident(
    name="limit-in-a-subquery-run-again-and-again",
    setup=I30_TABLE,
    clients=(
        client(
            "BEGIN;\nUPDATE job SET lease_until = now() + interval '1 min' WHERE id IN (SELECT id FROM job WHERE state = 'ready' "
            "AND lease_until < now() LIMIT 3 FOR UPDATE SKIP LOCKED) RETURNING id;\nROLLBACK;",
            connections=1,
            rate=5,
        ),
    ),
    expected={"claim-limit-overrun": ("public.job",)},
    allowed=frozenset({"autovacuum-settings", "claim-empty-polls"}),
    never_said=("ANALYZE public.job",),
)

I33 = Incident(
    name="sample-misses-the-rare-state",
    setup="""
CREATE TABLE build (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, status text, env int) WITH (autovacuum_enabled = off);
INSERT INTO build (status, env) SELECT 'done', g % 50000 FROM generate_series(1, 200000) g;
CREATE INDEX build_status ON build (status);
INSERT INTO build (status, env) SELECT 'queued', g FROM generate_series(1, 150) g;
VACUUM build;
CREATE FUNCTION analyse_blind() RETURNS void LANGUAGE plpgsql AS $$ BEGIN
    FOR tried IN 1..40 LOOP
        ANALYZE build;
        EXIT WHEN (SELECT n_distinct FROM pg_stats WHERE tablename = 'build' AND attname = 'status') = 1;
    END LOOP;
END $$;
SET default_statistics_target = 2;
SELECT analyse_blind();
DROP FUNCTION analyse_blind();
""",
    clients=(
        client(
            "BEGIN;\nSELECT id FROM build WHERE status = 'queued' ORDER BY id LIMIT 1 FOR UPDATE SKIP LOCKED;\nEND;",
            rate=10,
        ),
    ),
    told=frozenset({"stale-statistics"}),
    queue="public.build",
)

I34 = Incident(
    name="partitioned-parent-never-analysed",
    setup="""
CREATE TABLE task (id bigint, day date, state text, grp int) PARTITION BY RANGE (day);
CREATE TABLE task_d1 PARTITION OF task FOR VALUES FROM ('2026-01-01') TO ('2026-01-02');
CREATE TABLE task_d2 PARTITION OF task FOR VALUES FROM ('2026-01-02') TO ('2026-01-03');
CREATE TABLE task_d3 PARTITION OF task FOR VALUES FROM ('2026-01-03') TO ('2026-01-04');
INSERT INTO task SELECT g, '2026-01-01'::date + (g % 3), CASE WHEN g % 1000 = 0 THEN 'ready' ELSE 'done' END, g
    FROM generate_series(1, 150000) g;
CREATE INDEX ON task (grp);
CREATE INDEX ON task (state, id);
ANALYZE task_d1;
ANALYZE task_d2;
ANALYZE task_d3;
CREATE TABLE sig (task_grp int, k int);
INSERT INTO sig SELECT g, g FROM generate_series(1, 2000) g;
ANALYZE sig;
""",
    clients=(
        client(
            "BEGIN;\nSELECT s.k FROM sig s JOIN task t ON t.grp = s.task_grp WHERE t.state = 'done' AND s.k < 2000;\n"
            "SELECT id FROM task WHERE state = 'ready' ORDER BY id LIMIT 1 FOR UPDATE SKIP LOCKED;\nEND;",
            rate=3,
        ),
    ),
    expected={"stale-statistics": ("public.task", "never analysed")},
    queue="public.task",
)

I37_TABLE = """
CREATE TABLE job (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, run_at timestamptz DEFAULT now(), locked_by int);
INSERT INTO job SELECT FROM generate_series(1, 40000) g;
CREATE INDEX ON job (run_at) WHERE locked_by IS NULL;
ANALYZE job;
"""
I37_SCRIPT = (
    "BEGIN;\nUPDATE job SET locked_by = :client_id WHERE id = (SELECT id FROM job WHERE locked_by IS NULL ORDER BY run_at "
    "LIMIT 1 FOR UPDATE) RETURNING id;\n\\sleep 5 ms\nCOMMIT;"
)
I37 = Incident(
    name="workers-line-up-at-the-head",
    setup=I37_TABLE,
    clients=(client(I37_SCRIPT, connections=8, rate=None),),
    expected={"claim-not-skip-locked": ("public.job",)},
    allowed=frozenset({"claim-scans-dead-rows"}),
    forbidden=frozenset({"deadlocks", "multixact-slru-waits", "multixact-from-share-lock"}),
)

I39_TABLE = """
CREATE TABLE job (id bigint PRIMARY KEY, state text DEFAULT 'ready');
CREATE TABLE ready_exec (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, job_id bigint REFERENCES job, q text);
CREATE INDEX ON ready_exec (job_id);
INSERT INTO job SELECT g FROM generate_series(1, 50) g;
"""
I39 = Incident(
    name="claim-lock-blocks-the-children",
    setup=I39_TABLE,
    clients=(
        client(
            "BEGIN;\nSELECT id FROM job WHERE state = 'ready' ORDER BY id LIMIT 1 FOR UPDATE SKIP LOCKED;\n\\sleep 30 ms\nEND;",
            connections=4,
            rate=None,
        ),
        client(
            "\\set i random(1, 8)\nINSERT INTO ready_exec (job_id) VALUES (:i);",
            connections=3,
            rate=None,
            name="child",
        ),
    ),
    expected={"claim-lock-too-strong": ("public.job",)},
    allowed=frozenset({"claim-transaction-held", "lock-queue", "deadlocks"}),
    forbidden=frozenset({"claim-not-skip-locked"}),
)

I44_TABLE = """
CREATE TABLE tenant (id int PRIMARY KEY);
CREATE TABLE job (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, state text DEFAULT 'ready');
INSERT INTO job SELECT FROM generate_series(1, 60000) g;
CREATE INDEX ON job (id) WHERE state = 'ready';
ANALYZE job;
"""
I44_SCRIPT = (
    "BEGIN ISOLATION LEVEL REPEATABLE READ;\nSELECT count(*) FROM tenant;\n\\sleep 1 ms\n"
    "UPDATE job SET state = 'done' WHERE id = (SELECT id FROM job WHERE state = 'ready' ORDER BY id LIMIT 1 FOR UPDATE SKIP LOCKED);\nCOMMIT;"
)
I44 = Incident(
    name="claim-in-repeatable-read",
    setup=I44_TABLE,
    clients=(client(I44_SCRIPT, connections=8, rate=None),),
    expected={"claim-isolation": ("public.job",)},
    allowed=frozenset({"claim-scans-dead-rows", "autovacuum-settings"}),
)

I48 = Incident(
    name="claim-without-limit-locks-the-backlog",
    setup="""
CREATE TABLE job (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, status text DEFAULT 'enqueued');
INSERT INTO job SELECT FROM generate_series(1, 20000) g;
ANALYZE job;
""",
    clients=(
        client(
            "BEGIN;\nSELECT id FROM job WHERE status = 'enqueued' ORDER BY id LIMIT 10 FOR UPDATE SKIP LOCKED;\nEND;",
            rate=4,
        ),
    ),
    sessions=(
        held(
            "BEGIN",
            "UPDATE job SET status = 'pending' WHERE id IN (SELECT id FROM job WHERE status = 'enqueued' FOR UPDATE SKIP LOCKED)",
            name="greedy",
        ),
        held(
            "UPDATE job SET status = 'cancelled' WHERE id = 19999", name="cancel", hold="active", after_s=0.5
        ),
    ),
    expected={"claim-unbounded": ("public.job", "without LIMIT")},
    allowed=frozenset(
        {
            "claim-transaction-held",
            "lock-queue",
            "vacuum-horizon-held",
            "claim-scans-dead-rows",
            "claim-empty-polls",
        }
    ),
    forbidden=frozenset({"jobs-stuck"}),
)

I49_TABLE = """
CREATE TABLE job (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, state text DEFAULT 'ready', run_at timestamptz DEFAULT now());
CREATE INDEX ON job (run_at) WHERE state = 'ready';
INSERT INTO job (state) SELECT 'done' FROM generate_series(1, 5000) g;
ANALYZE job;
"""
I49 = Incident(
    name="tight-polls-of-an-empty-queue",
    setup=I49_TABLE,
    clients=(
        client(
            "UPDATE job SET state = 'running' WHERE id = (SELECT id FROM job WHERE state = 'ready' AND run_at <= now() "
            "ORDER BY run_at LIMIT 1 FOR UPDATE SKIP LOCKED) RETURNING id;",
            connections=8,
            rate=None,
        ),
    ),
    expected={"claim-empty-polls": ("public.job",)},
    forbidden=frozenset({"claim-scans-dead-rows", "claim-sorts-backlog", "claim-scans-consumed-rows"}),
)

I50 = Incident(
    name="counting-is-the-load",
    setup="""
CREATE TABLE job (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, state text, queue text, pad text DEFAULT repeat('x', 200));
INSERT INTO job (state, queue)
    SELECT CASE WHEN g % 900 = 0 THEN 'discarded' ELSE 'completed' END, 'q' || g % 3 FROM generate_series(1, 150000) g;
INSERT INTO job (state, queue) SELECT 'available', 'q1' FROM generate_series(1, 50) g;
CREATE INDEX ON job (state, queue, id);
VACUUM ANALYZE job;
""",
    clients=(
        client("SELECT queue, state, count(*) FROM job GROUP BY 1, 2;", rate=6, name="metrics"),
        client(
            "BEGIN;\nSELECT id FROM job WHERE state = 'available' AND queue = 'q1' ORDER BY id LIMIT 1 FOR UPDATE SKIP LOCKED;\n"
            "ROLLBACK;",
            rate=30,
        ),
    ),
    expected={"monitoring-load": ("public.job",)},
    allowed=frozenset({"finished-jobs-kept"}),
    forbidden=frozenset({"claim-scans-consumed-rows", "claim-sorts-backlog", "claim-misses-partial-index"}),
)

I52 = Incident(
    name="retention-delete-scans-the-children",
    setup="""
CREATE TABLE job (id bigint PRIMARY KEY, state text DEFAULT 'done', finished_at timestamptz);
CREATE TABLE job_log (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, job_id bigint REFERENCES job ON DELETE CASCADE,
    line text);
INSERT INTO job SELECT g, 'done', now() - interval '40 days' FROM generate_series(1, 3000) g;
INSERT INTO job SELECT g, 'ready', NULL FROM generate_series(3001, 6000) g;
INSERT INTO job_log (job_id, line) SELECT 3001 + g % 2999, repeat('l', 100) FROM generate_series(1, 60000) g;
CREATE INDEX ON job (finished_at);
CREATE INDEX ON job (id) WHERE state = 'ready';
VACUUM ANALYZE;
""",
    clients=(
        client(
            "DELETE FROM job WHERE id IN (SELECT id FROM job WHERE finished_at < now() - interval '30 days' ORDER BY finished_at "
            "LIMIT 10);",
            connections=1,
            rate=8,
            name="retention",
        ),
        client(
            "BEGIN;\nSELECT id FROM job WHERE state = 'ready' ORDER BY id LIMIT 1 FOR UPDATE SKIP LOCKED;\nEND;"
        ),
    ),
    expected={"foreign-key-unindexed": ("job_log", "job_id")},
)

I54 = Incident(
    name="identity-burnt-by-conflicts",
    setup="""
CREATE TABLE task_kind (id int GENERATED ALWAYS AS IDENTITY PRIMARY KEY, name text UNIQUE);
CREATE TABLE job (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, kind int REFERENCES task_kind, state text DEFAULT 'ready');
ALTER SEQUENCE task_kind_id_seq RESTART WITH 2147000000;
INSERT INTO task_kind (name) VALUES ('send_mail');
INSERT INTO job (kind) SELECT 2147000000 FROM generate_series(1, 38) g;
CREATE INDEX ON job (id) WHERE state = 'ready';
ANALYZE;
""",
    clients=(
        client(
            "INSERT INTO task_kind (name) VALUES ('send_mail') ON CONFLICT DO NOTHING;",
            rate=500,
            name="enqueue",
        ),
        client(
            "BEGIN;\nSELECT id FROM job WHERE state = 'ready' ORDER BY id LIMIT 1 FOR UPDATE SKIP LOCKED;\nEND;"
        ),
    ),
    expected={"id-exhaustion": ("public.task_kind.id",)},
    sequences=True,
)

I55 = Incident(
    name="killed-workers-leave-their-jobs",
    setup="""
CREATE TABLE worker (id int PRIMARY KEY, last_heartbeat timestamptz);
CREATE TABLE job (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, kind text DEFAULT 'enrich', status text DEFAULT 'todo',
    worker_id int, started_at timestamptz, heartbeat_at timestamptz, attempts int DEFAULT 0);
INSERT INTO worker VALUES (7, now());
INSERT INTO job (status, worker_id, started_at, heartbeat_at, attempts)
    SELECT 'doing', 99, now() - interval '9 days', now() - interval '9 days', 1 FROM generate_series(1, 4) g;
INSERT INTO job (status, worker_id, started_at, heartbeat_at, attempts)
    VALUES ('doing', 7, now() - interval '3 h', now() - interval '5 s', 1);
INSERT INTO job SELECT FROM generate_series(1, 500) g;
ANALYZE;
""",
    clients=(
        client(
            "UPDATE job SET status = 'doing', worker_id = 8, started_at = now(), heartbeat_at = now() WHERE id = (SELECT id FROM job j "
            "WHERE status = 'todo' AND (SELECT count(*) FROM job d WHERE d.status = 'doing' AND d.kind = j.kind) < 4 "
            "ORDER BY id LIMIT 1 FOR UPDATE SKIP LOCKED) RETURNING id;",
            rate=4,
        ),
        client(
            "UPDATE job SET heartbeat_at = now() WHERE id = 5 AND status = 'doing';",
            connections=1,
            rate=2,
            name="alive",
        ),
    ),
    expected={"jobs-stuck": ("public.job", "4 jobs", "500 ready")},
    allowed=frozenset({"claim-empty-polls"}),
    never_said=("LISTEN",),
)

H01 = Incident(
    name="fresh-bulk-load",
    setup="""
CREATE TABLE job (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, state text DEFAULT 'ready', run_at timestamptz DEFAULT now());
CREATE INDEX ON job (run_at) WHERE state = 'ready';
INSERT INTO job SELECT FROM generate_series(1, 100000) g;
UPDATE job SET state = 'ready' WHERE id <= 5;
VACUUM ANALYZE job;
""",
    clients=(
        client(
            "BEGIN;\nSELECT id FROM job WHERE state = 'ready' AND run_at <= now() ORDER BY run_at LIMIT 1 FOR UPDATE SKIP LOCKED;\nEND;",
            rate=5,
        ),
    ),
)

H02 = Incident(
    name="all-dead-on-one-page",
    setup="""
CREATE TABLE job_old_p1 (id int PRIMARY KEY, state text);
INSERT INTO job_old_p1 SELECT g, 'x' FROM generate_series(1, 17) g;
DELETE FROM job_old_p1;
CREATE TABLE job (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, state text DEFAULT 'ready');
INSERT INTO job SELECT FROM generate_series(1, 40) g;
UPDATE job SET state = 'done' WHERE id <= 38;
""",
    clients=(
        client(
            "BEGIN;\nSELECT id FROM job WHERE state = 'ready' ORDER BY id LIMIT 1 FOR UPDATE SKIP LOCKED;\nEND;",
            rate=5,
        ),
    ),
)

H05 = Incident(
    name="job-postings",
    setup="""
CREATE TABLE company (id int PRIMARY KEY, name text);
INSERT INTO company SELECT g, 'co' || g FROM generate_series(1, 200) g;
CREATE TABLE jobs (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, company_id int REFERENCES company, title text,
    status text DEFAULT 'open', salary int, location text, posted_at timestamptz DEFAULT now(), expires_at timestamptz,
    description text);
INSERT INTO jobs (company_id, title, status, salary, location, posted_at, expires_at, description)
    SELECT 1 + g % 200, 'Engineer', 'open', 50000 + g, 'Berlin', now() - make_interval(mins => g), now() + interval '30 d',
        repeat('d', 300) FROM generate_series(1, 20000) g;
UPDATE jobs SET status = 'closed' WHERE id % 10 = 0;
CREATE INDEX ON jobs (status);
CREATE INDEX ON jobs (posted_at DESC);
""",
    clients=(
        client(
            "SELECT id, title FROM jobs WHERE status = 'open' AND location = 'Berlin' ORDER BY posted_at DESC LIMIT 20;",
            rate=5,
            name="site",
        ),
        client(
            "\\set i random(1, 20000)\nUPDATE jobs SET status = 'closed' WHERE id = :i;", rate=5, name="hr"
        ),
    ),
    queue=None,
)

H06 = Incident(
    name="long-jobs-with-fresh-heartbeats",
    setup="""
CREATE TABLE job (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, state text DEFAULT 'ready', started_at timestamptz,
    heartbeat_at timestamptz, attempt int DEFAULT 0) WITH (fillfactor = 80);
CREATE INDEX ON job (id) WHERE state = 'ready';
INSERT INTO job (state, started_at, heartbeat_at, attempt)
    SELECT 'running', now() - interval '14 h', now(), 1 FROM generate_series(1, 6) g;
""",
    clients=(
        client(
            "UPDATE job SET heartbeat_at = clock_timestamp() WHERE state = 'running';",
            connections=1,
            rate=2,
            name="alive",
        ),
        client(
            "UPDATE job SET state = 'running', started_at = now(), heartbeat_at = now() WHERE id = (SELECT id FROM job "
            "WHERE state = 'ready' ORDER BY id LIMIT 1 FOR UPDATE SKIP LOCKED) RETURNING id;",
            rate=2,
        ),
    ),
)

H13 = Incident(
    name="limit-one-in-an-initplan",
    setup="""
CREATE TABLE job (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, state text DEFAULT 'ready',
    lease timestamptz DEFAULT '-infinity');
INSERT INTO job DEFAULT VALUES;
ANALYZE job;
INSERT INTO job SELECT FROM generate_series(1, 40) g;
""",
    clients=(
        client(
            "BEGIN;\nUPDATE job SET lease = now() + interval '1 min' WHERE id = (SELECT id FROM job WHERE state = 'ready' "
            "AND lease < now() LIMIT 1 FOR UPDATE SKIP LOCKED);\nROLLBACK;",
            rate=4,
        ),
        client(
            "BEGIN;\nSELECT id FROM job WHERE state = 'ready' ORDER BY id LIMIT 1 FOR NO KEY UPDATE SKIP LOCKED;\nROLLBACK;",
            rate=4,
            name="other",
        ),
    ),
)

INCIDENTS = (
    I11, I12, I17, I17_PLAIN, I18, I18_INDEXED, I19, I19_SKIP_SCAN, I22, I24, I27, I30, I33, I34, I37, I39, I44, I48, I49, I50,
    I52, I54, I55, H01, H02, H05, H06, H13,
)  # fmt: skip


def scenario_of(incident: Incident) -> Scenario:
    """The incident as the lab's load takes it."""
    return Scenario(
        name=incident.name,
        title=incident.name,
        kind="sick" if incident.expected else "healthy",
        mechanism="",
        queue=incident.queue,
        also_queues=(),
        clients=incident.clients,
        sessions=incident.sessions,
        expected=tuple(incident.expected),
        allowed=tuple(incident.allowed),
        forbidden=tuple(incident.forbidden),
        cures=None,
        settle_s=incident.settle_s,
        min_version=incident.since,
        max_version=incident.until,
        setup=incident.setup,
        cure=None,
    )


def major_of(dsn: str) -> int:
    with psycopg.connect(dsn) as connection:
        return connection.info.server_version // 10000


@contextmanager
def viewer_of(dsn: str, *, sequences: bool = False) -> Iterator[str]:
    """The DSN of a role that has pg_monitor and SELECT on the database's tables (and sequences), while the block runs."""
    name = f"viewer_{uuid.uuid4().hex[:8]}"
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute(f"CREATE ROLE {name} LOGIN".encode())
        connection.execute(f"GRANT pg_monitor TO {name}".encode())
        schemas = connection.execute(
            "SELECT quote_ident(nspname) FROM pg_namespace WHERE nspname !~ '^pg_|^information_schema$'"
        ).fetchall()
        for (schema,) in schemas:
            connection.execute(f"GRANT USAGE ON SCHEMA {schema} TO {name}".encode())
            kinds = ("TABLES", "SEQUENCES") if sequences else ("TABLES",)
            for kind in kinds:
                connection.execute(f"GRANT SELECT ON ALL {kind} IN SCHEMA {schema} TO {name}".encode())
    try:
        yield psycopg.conninfo.make_conninfo(dsn, user=name)
    finally:
        with psycopg.connect(dsn, autocommit=True) as connection:
            connection.execute(f"DROP OWNED BY {name}".encode())
            connection.execute(f"DROP ROLE {name}".encode())


def look(incident: Incident, dsn: str) -> Report:
    with Load(scenario_of(incident), dsn) as load, viewer_of(dsn, sequences=incident.sequences) as eyes:
        time.sleep(incident.settle_s)
        load.check()
        return diagnose(
            observe(eyes, ObserveOptions(window_seconds=incident.window_s, queues=incident.named))
        )


def told(report: Report) -> str:
    """What a failed assertion should show."""
    lines = [
        f"{one.severity} {one.key}: {one.title} (by {', '.join(one.caused_by)})" for one in report.findings
    ]
    lines += [f"skipped {one.check} ({one.queue}): {one.reason}" for one in report.skipped]
    lines += [f"crashed {one.check}: {one.error}" for one in report.crashed]
    lines += [
        f"queue {one.name} {one.claim.shape} {one.ready} {one.claim.plan}: {', '.join(one.recognised_by)}"
        for one in report.queues
    ]
    return "\n".join(lines)


def faults(incident: Incident, report: Report) -> Iterator[str]:
    """Yield where the report is not what the incident asks for."""
    names = {one.name for one in report.queues}
    if report.crashed:
        yield f"crashed: {[one.check for one in report.crashed]}"
    if incident.queue is None and names:
        yield f"took {names} for queues"
    if incident.queue is not None and incident.queue not in names:
        yield f"did not see {incident.queue}"
    harmful: dict[str, list[ReportedFinding]] = {}
    for one in report.findings:
        if one.severity in HARMFUL:
            harmful.setdefault(one.check, []).append(one)
        if one.check in incident.forbidden:
            yield f"forbidden: {one.title}"
        for remedy in one.remedies:
            said = " ".join((remedy.title, remedy.expect, *remedy.sql))
            for word in incident.never_said:
                if word in said:
                    yield f"{one.check} says {word}: {said}"
    for check in incident.told - {one.check for one in report.findings}:
        yield f"{check} says nothing"
    for check, words in incident.expected.items():
        titles = [one.title for one in harmful.get(check, ())]
        if not any(all(word in title for word in words) for title in titles):
            yield f"expected {check} with {words}, got {titles}"
    for check, found in harmful.items():
        if check not in incident.expected and check not in incident.allowed:
            yield f"unexpected {found[0].severity}: {found[0].title}"


@pytest.mark.parametrize("incident", INCIDENTS, ids=lambda one: one.name)
def test_incident(database: str, incident: Incident) -> None:
    major = major_of(database)
    if major < incident.since or (incident.until is not None and major > incident.until):
        pytest.skip(f"this state is another one on PostgreSQL {major}")
    report = look(incident, database)
    found = list(faults(incident, report))
    assert not found, "\n".join((*found, told(report)))
