"""Records the plans under fixtures/plans from a live server: ``python tests/record_plans.py DSN [CASE ...]``.

Each case builds its tables in a database of its own (pgqdoctor_plans, dropped at the end), explains one
claim, rolls it back and writes what the server answered, unchanged, as VERSION_case.json. The role must be
allowed to create databases. The tests of the plan reader state numbers read off these files: after recording
again, read them again.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, LiteralString

import psycopg
from psycopg import sql
from psycopg.conninfo import make_conninfo

DATABASE = "pgqdoctor_plans"
TARGET = Path(__file__).resolve().parents[1] / "fixtures" / "plans"
Connection = psycopg.Connection[tuple[Any, ...]]
Case = Callable[[Connection, Connection], Any]
CASES: dict[str, Case] = {}

MEASURED: LiteralString = "ANALYZE, BUFFERS, VERBOSE"
NEXT: LiteralString = "SELECT id FROM jobs WHERE state = 'ready' ORDER BY priority, id LIMIT 1"
NEXT_LOCKED: LiteralString = NEXT + " FOR UPDATE SKIP LOCKED"
READY_INDEX: LiteralString = "CREATE INDEX jobs_ready_idx ON jobs (priority, id) WHERE state = 'ready'"


def case(function: Case) -> Case:
    CASES[function.__name__] = function
    return function


def explain(
    conn: Connection,
    statement: LiteralString,
    options: LiteralString = MEASURED,
    settings: tuple[LiteralString, ...] = (),
) -> Any:
    """The server's own document; whatever the statement changed is rolled back."""
    conn.execute("BEGIN")
    try:
        conn.execute("SET LOCAL max_parallel_workers_per_gather = 0")
        conn.execute("SET LOCAL jit = off")
        for setting in settings:
            conn.execute("SET LOCAL " + setting)
        row = conn.execute("EXPLAIN (FORMAT JSON, " + options + ") " + statement).fetchone()
        assert row is not None
        return row[0]
    finally:
        conn.execute("ROLLBACK")


def run(conn: Connection, *statements: LiteralString) -> None:
    for statement in statements:
        conn.execute(statement)


def jobs(conn: Connection, rows: int, done: int) -> None:
    """A queue of ``rows`` jobs of which the oldest ``done`` are finished. Nothing vacuums it by itself."""
    run(
        conn,
        "DROP TABLE IF EXISTS jobs",
        "CREATE TABLE jobs (id bigint PRIMARY KEY, state text NOT NULL, queue text NOT NULL DEFAULT 'mail',"
        " priority int NOT NULL DEFAULT 0, payload text NOT NULL DEFAULT repeat('x', 100))"
        " WITH (autovacuum_enabled = false)",
    )
    conn.execute(
        "INSERT INTO jobs (id, state) SELECT n, CASE WHEN n <= %s THEN 'done' ELSE 'ready' END"
        " FROM generate_series(1, %s) n",
        (done, rows),
    )
    run(conn, "VACUUM (ANALYZE) jobs")


def sampled(conn: Connection) -> None:
    """The table q of the five cases that exist on every version: 20,000 rows, 200 of them ready."""
    run(
        conn,
        "DROP TABLE IF EXISTS q",
        "CREATE TABLE q (id bigint PRIMARY KEY, state text NOT NULL, queue text NOT NULL DEFAULT 'default',"
        " priority int NOT NULL, payload text NOT NULL DEFAULT repeat('x', 90))"
        " WITH (autovacuum_enabled = false)",
        "INSERT INTO q (id, state, priority) SELECT n, CASE WHEN n % 100 = 0 THEN 'ready' ELSE 'done' END,"
        " n / 100 % 5 FROM generate_series(1, 20000) n",
        "VACUUM (ANALYZE) q",
    )


Q_READY: LiteralString = "CREATE INDEX q_ready ON q (priority, id) WHERE state = 'ready'"
Q_CLAIM: LiteralString = (
    "UPDATE q SET state = 'running' WHERE id = (SELECT id FROM q WHERE state = 'ready' AND queue = 'default'"
    " ORDER BY priority, id LIMIT 1 FOR UPDATE SKIP LOCKED) RETURNING id"
)
Q_OPTIONS: LiteralString = "ANALYZE, BUFFERS, WAL, SETTINGS"


@case
def claim_partial(conn: Connection, other: Connection) -> Any:
    sampled(conn)
    run(conn, Q_READY)
    return explain(conn, Q_CLAIM, Q_OPTIONS)


@case
def claim_noindex(conn: Connection, other: Connection) -> Any:
    sampled(conn)
    return explain(conn, Q_CLAIM, Q_OPTIONS)


@case
def claim_many_partial(conn: Connection, other: Connection) -> Any:
    sampled(conn)
    run(conn, Q_READY)
    return explain(
        conn,
        "WITH c AS (SELECT id FROM q WHERE state = 'ready' AND queue = 'default' ORDER BY priority, id"
        " LIMIT 10 FOR UPDATE SKIP LOCKED) UPDATE q SET state = 'running' FROM c WHERE q.id = c.id"
        " RETURNING q.id",
        Q_OPTIONS,
    )


@case
def claim_partial_50locked(conn: Connection, other: Connection) -> Any:
    sampled(conn)
    run(conn, Q_READY)
    other.execute("BEGIN")
    other.execute("SELECT id FROM q WHERE state = 'ready' ORDER BY priority, id LIMIT 50 FOR UPDATE")
    try:
        return explain(conn, Q_CLAIM, Q_OPTIONS)
    finally:
        other.execute("ROLLBACK")


@case
def skipscan(conn: Connection, other: Connection) -> Any:
    sampled(conn)
    run(conn, "CREATE INDEX q_sp ON q (state, priority)", "ANALYZE q")
    return explain(
        conn,
        "SELECT id FROM q WHERE priority = 3",
        "ANALYZE, BUFFERS",
        ("enable_seqscan = off", "enable_bitmapscan = off"),
    )


CLAIM: LiteralString = "UPDATE jobs SET state = 'running' WHERE id = (" + NEXT_LOCKED + ") RETURNING id"


@case
def initplan(conn: Connection, other: Connection) -> Any:
    jobs(conn, 10_000, 5_000)
    run(conn, READY_INDEX)
    return explain(conn, CLAIM)


@case
def plan_only(conn: Connection, other: Connection) -> Any:
    jobs(conn, 10_000, 5_000)
    run(conn, READY_INDEX)
    return explain(conn, CLAIM, "VERBOSE")


@case
def bare(conn: Connection, other: Connection) -> Any:
    """ANALYZE alone, without times and buffers."""
    jobs(conn, 10_000, 5_000)
    run(conn, READY_INDEX)
    return explain(conn, CLAIM, "ANALYZE, TIMING OFF, BUFFERS OFF")


@case
def half_consumed_sort(conn: Connection, other: Connection) -> Any:
    jobs(conn, 10_000, 5_000)
    return explain(conn, CLAIM)


@case
def half_consumed_pkey(conn: Connection, other: Connection) -> Any:
    """Ordered by the primary key, the claim walks over every finished job first."""
    jobs(conn, 10_000, 5_000)
    return explain(
        conn,
        "UPDATE jobs SET state = 'running' WHERE id = (SELECT id FROM jobs WHERE state = 'ready' ORDER BY id"
        " LIMIT 1 FOR UPDATE SKIP LOCKED) RETURNING id",
    )


@case
def sort_spill(conn: Connection, other: Connection) -> Any:
    jobs(conn, 10_000, 0)
    return explain(
        conn,
        "SELECT id, payload FROM jobs WHERE state = 'ready' ORDER BY priority, id LIMIT 1"
        " FOR UPDATE SKIP LOCKED",
        settings=("work_mem = '64kB'",),
    )


@case
def incremental_sort(conn: Connection, other: Connection) -> Any:
    jobs(conn, 10_000, 0)
    run(
        conn,
        "UPDATE jobs SET priority = id / 100",
        "VACUUM (ANALYZE) jobs",
        "CREATE INDEX jobs_priority_idx ON jobs (priority) WHERE state = 'ready'",
    )
    return explain(conn, NEXT, settings=("enable_seqscan = off",))


@case
def limit_loops(conn: Connection, other: Connection) -> Any:
    """Statistics of one row, forty more since: the LIMIT subquery becomes the inner side of a loop."""
    jobs(conn, 1, 0)
    run(conn, "INSERT INTO jobs (id, state) SELECT n, 'ready' FROM generate_series(2, 41) n")
    return explain(
        conn,
        "UPDATE jobs SET state = 'running' WHERE id IN (SELECT id FROM jobs WHERE state = 'ready' LIMIT 1"
        " FOR UPDATE SKIP LOCKED) RETURNING id",
        settings=("enable_hashagg = off", "enable_hashjoin = off", "enable_sort = off"),
    )


@case
def delete_using(conn: Connection, other: Connection) -> Any:
    jobs(conn, 10_000, 5_000)
    run(conn, READY_INDEX)
    return explain(
        conn, "DELETE FROM jobs USING (" + NEXT_LOCKED + ") c WHERE jobs.id = c.id RETURNING jobs.id"
    )


@case
def cte(conn: Connection, other: Connection) -> Any:
    jobs(conn, 10_000, 5_000)
    run(conn, READY_INDEX)
    return explain(
        conn,
        "WITH c AS MATERIALIZED (" + NEXT_LOCKED + ") UPDATE jobs SET state = 'running' FROM c"
        " WHERE jobs.id = c.id RETURNING jobs.id",
    )


def partitioned(conn: Connection) -> None:
    run(
        conn,
        "DROP TABLE IF EXISTS jobs",
        "CREATE TABLE jobs (id bigint, state text NOT NULL, queue text NOT NULL, priority int NOT NULL,"
        " PRIMARY KEY (queue, id)) PARTITION BY LIST (queue)",
        "CREATE TABLE jobs_mail PARTITION OF jobs FOR VALUES IN ('mail') WITH (autovacuum_enabled = false)",
        "CREATE TABLE jobs_image PARTITION OF jobs FOR VALUES IN ('image') WITH (autovacuum_enabled = false)",
        "CREATE TABLE jobs_video PARTITION OF jobs FOR VALUES IN ('video') WITH (autovacuum_enabled = false)",
        "INSERT INTO jobs SELECT n, CASE WHEN n <= 1500 THEN 'done' ELSE 'ready' END,"
        " (ARRAY['mail', 'image', 'video'])[1 + n % 3], 0 FROM generate_series(1, 3000) n",
        "VACUUM (ANALYZE) jobs",
    )


@case
def partitions_merged(conn: Connection, other: Connection) -> Any:
    partitioned(conn)
    run(conn, READY_INDEX)
    return explain(conn, NEXT_LOCKED)


@case
def partitions_appended(conn: Connection, other: Connection) -> Any:
    """No index on the state: every partition is read whole, then sorted."""
    partitioned(conn)
    return explain(conn, NEXT_LOCKED)


@case
def partitions_unordered(conn: Connection, other: Connection) -> Any:
    """Without an order, the LIMIT is satisfied by the first partition and the others never run."""
    partitioned(conn)
    return explain(conn, "SELECT id FROM jobs j WHERE state = 'ready' LIMIT 1 FOR UPDATE SKIP LOCKED")


@case
def partition_pruned(conn: Connection, other: Connection) -> Any:
    partitioned(conn)
    return explain(
        conn,
        "SELECT id FROM jobs j WHERE state = 'ready' AND queue = 'image' ORDER BY id LIMIT 1"
        " FOR UPDATE SKIP LOCKED",
    )


@contextmanager
def held_horizon(other: Connection) -> Iterator[None]:
    """A REPEATABLE READ session keeps its snapshot, so no row version that dies now can be removed."""
    other.execute("BEGIN ISOLATION LEVEL REPEATABLE READ")
    other.execute("SELECT 1 FROM pg_class LIMIT 1")
    try:
        yield
    finally:
        other.execute("ROLLBACK")


def consumed_under_held_horizon(conn: Connection) -> None:
    """5,000 jobs go through the partial index and leave 5,000 dead entries in front of the next job."""
    run(
        conn,
        "UPDATE jobs SET state = 'done' WHERE id <= 5000",
        "VACUUM (ANALYZE) jobs",
    )


def dead(conn: Connection, other: Connection, statement: LiteralString, *settings: LiteralString) -> Any:
    jobs(conn, 10_000, 0)
    run(conn, READY_INDEX)
    with held_horizon(other):
        consumed_under_held_horizon(conn)
        return explain(conn, statement, settings=settings)


def vacuumed(conn: Connection, other: Connection, statement: LiteralString, *settings: LiteralString) -> Any:
    jobs(conn, 10_000, 0)
    run(conn, READY_INDEX)
    with held_horizon(other):
        consumed_under_held_horizon(conn)
    run(conn, "VACUUM (ANALYZE) jobs")
    return explain(conn, statement, settings=settings)


@case
def select_killed(conn: Connection, other: Connection) -> Any:
    """Nothing holds the horizon any more, nobody has vacuumed, a first scan has marked the dead entries."""
    jobs(conn, 10_000, 0)
    run(conn, READY_INDEX)
    with held_horizon(other):
        consumed_under_held_horizon(conn)
    explain(conn, WIDE)
    return explain(conn, WIDE)


@case
def initplan_in_scan(conn: Connection, other: Connection) -> Any:
    """The scan's condition asks an InitPlan, whose buffers EXPLAIN charges to the scan."""
    jobs(conn, 2_000, 1_000)
    run(conn, READY_INDEX)
    return explain(
        conn,
        "SELECT id FROM jobs WHERE state = 'ready' AND priority >= (SELECT count(*) - 1000 FROM jobs r"
        " WHERE r.state = 'done') ORDER BY priority, id LIMIT 1 FOR UPDATE SKIP LOCKED",
    )


WIDE: LiteralString = "SELECT * FROM jobs WHERE state = 'ready' ORDER BY priority, id LIMIT 1"
NO_INDEX_ONLY: LiteralString = "enable_indexonlyscan = off"


@case
def select_dead(conn: Connection, other: Connection) -> Any:
    return dead(conn, other, WIDE)


@case
def select_vacuumed(conn: Connection, other: Connection) -> Any:
    return vacuumed(conn, other, WIDE)


@case
def index_only_dead(conn: Connection, other: Connection) -> Any:
    return dead(conn, other, NEXT)


@case
def index_only_vacuumed(conn: Connection, other: Connection) -> Any:
    return vacuumed(conn, other, NEXT)


@case
def empty_dead(conn: Connection, other: Connection) -> Any:
    """Every job is done: a poll of the empty queue walks over all of them."""
    jobs(conn, 10_000, 0)
    run(conn, READY_INDEX)
    with held_horizon(other):
        run(conn, "UPDATE jobs SET state = 'done'", "VACUUM (ANALYZE) jobs")
        return explain(conn, WIDE, settings=("enable_seqscan = off", "enable_bitmapscan = off"))


@case
def lock_dead(conn: Connection, other: Connection) -> Any:
    return dead(conn, other, NEXT_LOCKED)


@case
def lock_vacuumed(conn: Connection, other: Connection) -> Any:
    return vacuumed(conn, other, NEXT_LOCKED)


@case
def scattered_dead(conn: Connection, other: Connection) -> Any:
    """Index order and heap order are unrelated, so each dead entry costs a heap page of its own."""
    jobs(conn, 10_000, 0)
    run(conn, "UPDATE jobs SET priority = id * 7919 % 10007", "VACUUM (FULL, ANALYZE) jobs", READY_INDEX)
    with held_horizon(other):
        run(conn, "UPDATE jobs SET state = 'done' WHERE priority < 5000", "VACUUM (ANALYZE) jobs")
        return explain(conn, WIDE)


@case
def scattered_vacuumed(conn: Connection, other: Connection) -> Any:
    jobs(conn, 10_000, 0)
    run(conn, "UPDATE jobs SET priority = id * 7919 % 10007", "VACUUM (FULL, ANALYZE) jobs", READY_INDEX)
    with held_horizon(other):
        run(conn, "UPDATE jobs SET state = 'done' WHERE priority < 5000")
    run(conn, "VACUUM (ANALYZE) jobs")
    return explain(conn, WIDE)


BITMAP: tuple[LiteralString, ...] = (
    "enable_indexscan = off",
    "enable_indexonlyscan = off",
    "enable_seqscan = off",
)


@case
def bitmap_dead(conn: Connection, other: Connection) -> Any:
    return dead(conn, other, WIDE, *BITMAP)


@case
def bitmap_vacuumed(conn: Connection, other: Connection) -> Any:
    return vacuumed(conn, other, WIDE, *BITMAP)


@case
def bitmap_lossy(conn: Connection, other: Connection) -> Any:
    """A bitmap that outgrows work_mem keeps pages instead of rows: the recheck then removes rows."""
    jobs(conn, 25_000, 0)
    run(
        conn,
        "UPDATE jobs SET priority = id % 2, payload = repeat('x', 400)",
        "VACUUM (FULL, ANALYZE) jobs",
        "CREATE INDEX jobs_priority_idx ON jobs (priority)",
    )
    return explain(conn, "SELECT id FROM jobs WHERE priority = 1", settings=("work_mem = '64kB'", *BITMAP))


GENERIC: LiteralString = "SELECT id FROM jobs WHERE state = $1 ORDER BY priority, id LIMIT 1"


@case
def generic_plan(conn: Connection, other: Connection) -> Any:
    """A parameter cannot imply the partial predicate. GENERIC_PLAN exists from 16 on, PREPARE before."""
    jobs(conn, 10_000, 5_000)
    run(conn, READY_INDEX)
    if conn.info.server_version >= 160_000:
        return explain(conn, GENERIC, "GENERIC_PLAN, VERBOSE")
    run(conn, "PREPARE claim (text) AS " + GENERIC)
    try:
        return explain(conn, "EXECUTE claim (NULL)", "VERBOSE", ("plan_cache_mode = force_generic_plan",))
    finally:
        run(conn, "DEALLOCATE claim")


@case
def subplan(conn: Connection, other: Connection) -> Any:
    """A limit on running jobs per queue, counted anew for each candidate row."""
    jobs(conn, 2_000, 1_000)
    run(conn, READY_INDEX)
    return explain(
        conn,
        "SELECT id FROM jobs j WHERE state = 'ready' AND (SELECT count(*) FROM jobs r WHERE r.queue = j.queue"
        " AND r.state = 'running') < 5 ORDER BY priority, id LIMIT 1 FOR UPDATE SKIP LOCKED",
    )


@case
def anti_join(conn: Connection, other: Connection) -> Any:
    """The queue stands twice in the claim: once to be claimed, once to see what runs already."""
    jobs(conn, 2_000, 1_000)
    return explain(
        conn,
        "SELECT id FROM jobs j WHERE state = 'ready' AND NOT EXISTS (SELECT FROM jobs r"
        " WHERE r.queue = j.queue AND r.state = 'running') ORDER BY priority, id"
        " LIMIT 1 FOR UPDATE OF j SKIP LOCKED",
    )


@case
def join_filter(conn: Connection, other: Connection) -> Any:
    jobs(conn, 200, 100)
    run(
        conn,
        "DROP TABLE IF EXISTS paused",
        "CREATE TABLE paused (queue text)",
        "INSERT INTO paused VALUES ('image'), ('video')",
        "ANALYZE paused",
    )
    return explain(
        conn,
        "SELECT id FROM jobs j JOIN paused p ON p.queue <> j.queue AND p.queue < 'k' WHERE state = 'ready'"
        " AND p.queue || j.queue <> 'imagemail' ORDER BY priority, id LIMIT 1",
    )


@case
def one_time_filter(conn: Connection, other: Connection) -> Any:
    jobs(conn, 200, 100)
    return explain(conn, "SELECT id FROM jobs WHERE now() < '2000-01-01' AND state = 'ready' LIMIT 1")


@case
def trigger(conn: Connection, other: Connection) -> Any:
    jobs(conn, 200, 100)
    run(
        conn,
        "CREATE OR REPLACE FUNCTION touch() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NEW; END'",
        "CREATE TRIGGER jobs_touch BEFORE UPDATE ON jobs FOR EACH ROW EXECUTE FUNCTION touch()",
    )
    return explain(conn, CLAIM)


@case
def parallel(conn: Connection, other: Connection) -> Any:
    jobs(conn, 10_000, 5_000)
    return explain(
        conn,
        WIDE,
        settings=(
            "max_parallel_workers_per_gather = 2",
            "min_parallel_table_scan_size = 0",
            "parallel_setup_cost = 0",
            "parallel_tuple_cost = 0",
        ),
    )


def main(arguments: list[str]) -> int:
    if not arguments:
        print(__doc__, file=sys.stderr)
        return 2
    dsn, wanted = arguments[0], arguments[1:] or list(CASES)
    unknown = [name for name in wanted if name not in CASES]
    if unknown:
        print(f"no such case: {', '.join(unknown)}", file=sys.stderr)
        return 2
    TARGET.mkdir(exist_ok=True)
    with psycopg.connect(dsn, autocommit=True) as admin:
        version = admin.info.server_version // 10_000
        drop = sql.SQL("DROP DATABASE IF EXISTS {} WITH (FORCE)").format(sql.Identifier(DATABASE))
        admin.execute(drop)
        admin.execute(sql.SQL("CREATE DATABASE {}").format(sql.Identifier(DATABASE)))
        try:
            inside = make_conninfo(dsn, dbname=DATABASE)
            with (
                psycopg.connect(inside, autocommit=True, prepare_threshold=None) as conn,
                psycopg.connect(inside, autocommit=True, prepare_threshold=None) as other,
            ):
                for name in wanted:
                    document = CASES[name](conn, other)
                    text = json.dumps(document, indent=1)
                    (TARGET / f"{version}_{name}.json").write_text(text + "\n")
        finally:
            admin.execute(drop)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
