"""What observing costs the server: pages touched, which unlike milliseconds do not depend on the machine.

The doctor connects as a role of its own, and pg_stat_statements tells what that role's statements touched.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from dataclasses import dataclass

import psycopg
import pytest

from pgqdoctor.claiming import polls
from pgqdoctor.collect import ObserveOptions, Observer, observe
from pgqdoctor.connect import connect
from pgqdoctor.queue import build_queues
from pgqdoctor.sqltext import is_own

QUEUE = """
CREATE TABLE jobs (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, status text NOT NULL DEFAULT 'queued',
                   run_at timestamptz NOT NULL DEFAULT now(), attempts int NOT NULL DEFAULT 0);
CREATE INDEX jobs_queued_idx ON jobs (run_at, id) WHERE status = 'queued';
INSERT INTO jobs (status) SELECT 'queued' FROM generate_series(1, 300);
"""
CLAIM = (
    "UPDATE jobs SET status = 'running', attempts = attempts + 1 WHERE id = (SELECT id FROM jobs WHERE status = 'queued' "
    "AND run_at <= now() ORDER BY run_at, id LIMIT 1 FOR UPDATE SKIP LOCKED) RETURNING id"
)
SLACK = 400
"""Pages by which two runs differ as the catalogs grow deeper and are vacuumed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cost:
    """Pages touched by reading the catalogs once, and by one poll: a reading and a sample."""

    prepare: int
    poll: int
    queues: tuple[str, ...]
    described: int


@pytest.fixture
def doctor(database: str) -> Iterator[str]:
    """The DSN of a superuser that is nobody else."""
    name = f"doctor_{uuid.uuid4().hex[:8]}"
    run(database, f"CREATE ROLE {name} LOGIN SUPERUSER", QUEUE, "VACUUM ANALYZE jobs", *[CLAIM] * 20)
    yield psycopg.conninfo.make_conninfo(database, user=name)
    run(database, f"DROP ROLE {name}")


def run(dsn: str, *statements: str) -> None:
    with psycopg.connect(dsn, autocommit=True) as connection:
        for statement in statements:
            connection.execute(statement.encode())


def many(dsn: str, number: int, columns: str, prefix: str) -> None:
    """Create tables, some hundreds in a transaction, as each takes locks; then let the catalogs be what vacuum leaves."""
    for start in range(0, number, 500):
        run(
            dsn,
            f"DO $$BEGIN FOR i IN {start}..{min(start + 499, number - 1)} LOOP "
            f"EXECUTE format('CREATE TABLE {prefix}_%s ({columns})', i); END LOOP; END$$",
        )
    run(dsn, "VACUUM ANALYZE pg_class, pg_attribute, pg_index, pg_constraint, pg_depend, pg_type")


def cost(dsn: str) -> Cost:
    def pages() -> int:
        with psycopg.connect(dsn, autocommit=True, user=watcher) as connection:
            row = connection.execute(
                "SELECT sum(shared_blks_hit + shared_blks_read)::bigint FROM pg_stat_statements s JOIN pg_roles r ON r.oid = s.userid "
                "WHERE r.rolname = %s",
                [psycopg.conninfo.conninfo_to_dict(dsn)["user"]],
            ).fetchone()
        return int(row[0] or 0) if row is not None else 0

    watcher = "postgres"
    before = pages()
    session = connect(dsn)
    try:
        observer = Observer(session, ObserveOptions(window_seconds=0.1))
        catalog, _, texts, watched = observer.prepare()
        prepared = pages()
        first = observer.reading(watched)
        observer.sample()
        polled = pages()
        identities, _ = observer.identify(catalog, texts, first, first)
    finally:
        session.close()
    return Cost(
        prepare=prepared - before,
        poll=polled - prepared,
        queues=tuple(one.name for one in identities),
        described=len({column.table for column in catalog.columns}),
    )


@pytest.mark.parametrize(
    ("number", "columns", "per_table"),
    [
        (4_000, "id bigint PRIMARY KEY, status text, created_at timestamptz, total int, note text", 4.0),
        (10_000, "id bigint, name text, total int", 1.5),
    ],
    ids=["with a status", "plain"],
)
def test_tables_that_are_no_queues_cost_a_few_pages_each_and_a_poll_nothing(
    database: str, doctor: str, number: int, columns: str, per_table: float
) -> None:
    alone = cost(doctor)
    many(database, number, columns, "orders")
    among = cost(doctor)
    assert among.queues == alone.queues == ("public.jobs",)
    assert among.described == alone.described, "details are read of what may be a queue"
    assert among.poll <= 2 * alone.poll + 20, "no more than deeper indexes of the catalogs make of it"
    assert among.prepare <= alone.prepare + SLACK + number * per_table


def test_candidates_are_looked_at_in_detail_up_to_a_number(database: str, doctor: str) -> None:
    """Thousands of tables with all the columns of a queue: the busiest are looked at, and a poll stays what it is."""
    many(database, 1_500, "id bigint PRIMARY KEY, status text, run_at timestamptz, attempts int", "lists")
    among = cost(doctor)
    assert "public.jobs" in among.queues
    assert among.described <= 301
    assert among.poll <= 1_500
    assert among.prepare <= 50_000


def test_partitions_of_one_queue_cost_a_few_pages_each(database: str, doctor: str) -> None:
    partitions = 200
    run(
        database,
        "DROP TABLE jobs",
        "CREATE TABLE jobs (id bigint NOT NULL, status text NOT NULL DEFAULT 'queued', run_at timestamptz NOT NULL DEFAULT now(), "
        "attempts int NOT NULL DEFAULT 0, PRIMARY KEY (id, run_at)) PARTITION BY RANGE (run_at)",
        "CREATE INDEX jobs_queued_idx ON jobs (run_at, id) WHERE status = 'queued'",
        f"DO $$BEGIN FOR i IN 0..{partitions - 1} LOOP EXECUTE format('CREATE TABLE jobs_%s PARTITION OF jobs FOR VALUES FROM (%L) TO (%L)', "
        "i, '2020-01-01'::date + i, '2020-01-02'::date + i); END LOOP; END$$",
        "INSERT INTO jobs (id, run_at) SELECT g, '2020-01-01'::timestamptz + g * interval '1 hour' FROM generate_series(1, 2000) g",
        "VACUUM ANALYZE",
        *[CLAIM] * 20,
    )
    among = cost(doctor)
    assert among.queues == ("public.jobs",)
    assert among.poll <= partitions * 10
    assert among.prepare <= partitions * 200


def test_a_second_observation_does_not_take_the_first_one_s_looks_for_work_on_the_queue(doctor: str) -> None:
    """On every version they are known in pg_stat_statements, also where the role is the application's own."""
    options = ObserveOptions(window_seconds=0.5)
    first = observe(doctor, options)
    assert first.queues[0].name == "public.jobs"
    again = observe(doctor, options)
    with psycopg.connect(doctor, autocommit=True) as connection:
        rows = connection.execute(
            "SELECT query FROM pg_stat_statements s JOIN pg_database d ON d.oid = s.dbid WHERE d.datname = current_database() "
            "AND query ~ '^(SELECT|WITH)' AND query LIKE '%\"jobs\"%'"
        ).fetchall()
    assert rows, "the server counts the looks"
    assert [text for (text,) in rows if not is_own(text)] == []
    (queue,) = build_queues(again)
    assert polls(queue) == ()
    assert {one.text for one in queue.statements} == {
        one.text for (known,) in (build_queues(first),) for one in known.statements
    }
