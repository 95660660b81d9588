"""More healthy queues that look sick: nothing is reported at warning or above, and no other table is taken for a queue.

Each was met as a false alarm. They run as the incidents do: with their load, seen by a role that has pg_monitor.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

import psycopg
import pytest

from tests.server.framework_shapes import FRAMEWORKS
from tests.server.test_incidents_claims import Incident, client, faults, look, told

TABLE = """
CREATE TABLE job (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, queue text NOT NULL DEFAULT 'mails',
    state text NOT NULL DEFAULT 'ready', run_at timestamptz NOT NULL DEFAULT now(), started_at timestamptz,
    finished_at timestamptz);
CREATE INDEX job_ready_idx ON job (run_at, id) WHERE state = 'ready';
"""
CLAIM = (
    "UPDATE job SET state = 'running', started_at = now() WHERE id = (SELECT id FROM job WHERE state = 'ready' AND run_at <= now() "
    "ORDER BY run_at, id LIMIT 1 FOR UPDATE SKIP LOCKED) RETURNING id"
)
BY_QUEUE = CLAIM.replace("WHERE state = 'ready'", "WHERE state = 'ready' AND queue = {}")
ONCE = f"BEGIN; {CLAIM}; ROLLBACK; VACUUM ANALYZE job;\n"
"""A claim that is seen, and leaves everything as it was."""
FINISH = "\\if :id > 0\nUPDATE job SET state = 'done', finished_at = now() WHERE id = :id;\n\\endif\n"
WORK = f"\\set id 0\n{CLAIM} \\aset\n{FINISH}\\sleep 100 ms\n"
KEPT = """
INSERT INTO job (state, run_at, started_at, finished_at) SELECT 'done', t, t + interval '200 ms', t + interval '1 s'
    FROM (SELECT now() - g * interval '20 s' AS t FROM generate_series(2000, 1, -1) g) made;
"""
DEAD_LETTERS = """
INSERT INTO job (queue, run_at) SELECT 'dead letters', now() - g * interval '1 hour' FROM generate_series(200, 1, -1) g;
VACUUM ANALYZE job;
"""

WEEKEND = Incident(
    name="workers-rest-at-weekends",
    # Five weeks of a job a minute; at weekends one in half an hour, taken on Monday. Now it is Saturday, 20 hours after the last was.
    setup=TABLE
    + """
INSERT INTO job (state, run_at, started_at, finished_at) SELECT 'done', t, taken, taken + interval '1 s' FROM (
    SELECT t, t + interval '300 ms' AS taken FROM (SELECT now() - interval '20 hours' - w * interval '7 days' - g * interval '1 min' AS t
        FROM generate_series(0, 4) w, generate_series(1, 7000) g) worked
    UNION ALL SELECT t, now() - interval '20 hours' - w * interval '7 days' + interval '48 hours' FROM (
        SELECT w, now() - interval '20 hours' - w * interval '7 days' + g * interval '30 min' AS t
          FROM generate_series(1, 4) w, generate_series(1, 90) g) rested
    ORDER BY 1) jobs;
INSERT INTO job (run_at) SELECT now() - g * interval '30 min' FROM generate_series(39, 1, -1) g;
"""
    + ONCE,
)
LATE_IN_THE_WEEK = Incident(
    name="the-same-queue-on-a-tuesday",
    # The same history without any weekend: 20 hours are no pause of it.
    setup=WEEKEND.setup.replace("interval '7 days'", "interval '4862 min'").replace(
        "interval '48 hours'", "interval '300 ms'"
    ),
    expected={"queue-unserved": ("Nobody takes jobs from public.job",)},
)
OUT_OF_USE = Incident(
    name="jobs-left-in-a-framework-out-of-use",
    setup=FRAMEWORKS["River"].setup.partition("INSERT INTO river_job")[0]
    + """
INSERT INTO river_job (state, created_at, scheduled_at, attempted_at, finalized_at, attempt)
    SELECT 'completed', t, t, t + interval '200 ms', t + interval '1 s', 1
      FROM (SELECT now() - interval '60 days' - g * interval '1 hour' AS t FROM generate_series(9000, 1, -1) g) made;
INSERT INTO river_job (state, created_at, scheduled_at)
    SELECT state::river_job_state, t, t FROM (SELECT now() - interval '60 days' + g * interval '1 min' AS t FROM generate_series(1, 30) g) made,
        unnest(ARRAY['available', 'pending']) AS state;
VACUUM ANALYZE river_job;
""",
    queue="public.river_job",
    told=frozenset({"queue-unserved"}),
)
SHUT_OUT = Incident(
    name="dead-letters-in-the-table-and-idle-workers",
    setup=TABLE + KEPT + DEAD_LETTERS,
    clients=(client(BY_QUEUE.format("'mails'") + ";\n\\sleep 300 ms\n", rate=None),),
    told=frozenset({"claim-empty-polls"}),
)
DELETED_AT_ONCE = Incident(
    name="fifty-thousand-rows-deleted-a-moment-ago",
    setup=TABLE + "INSERT INTO job (queue) SELECT 'bulk' FROM generate_series(1, 50000); DELETE FROM job;",
    clients=(
        client("INSERT INTO job DEFAULT VALUES;", connections=1, rate=5, name="api"),
        client(
            WORK.replace("UPDATE job SET state = 'done', finished_at = now()", "DELETE FROM job"), rate=None
        ),
    ),
)
STRICT = Incident(
    name="one-worker-in-repeatable-read",
    setup=TABLE + KEPT + "VACUUM ANALYZE job;",
    clients=(
        client("INSERT INTO job DEFAULT VALUES;", connections=1, rate=5, name="api"),
        client(
            f"\\set id 0\nBEGIN ISOLATION LEVEL REPEATABLE READ;\n{CLAIM} \\aset\nEND;\n{FINISH}\\sleep 100 ms\n",
            connections=1,
            rate=None,
        ),
    ),
    forbidden=frozenset({"claim-isolation"}),
)
REQUEUED = Incident(
    name="a-table-of-dead-letters",
    setup=TABLE
    + KEPT
    + """
CREATE TABLE dead_letters (id bigint PRIMARY KEY, state text NOT NULL DEFAULT 'pending', attempts int NOT NULL DEFAULT 25,
    run_at timestamptz NOT NULL DEFAULT now(), locked_until timestamptz);
CREATE INDEX ON dead_letters (run_at) WHERE state = 'pending';
INSERT INTO dead_letters SELECT g, 'pending', 25, now() - g * interval '1 hour' FROM generate_series(1, 300) g;
VACUUM ANALYZE;
""",
    clients=(
        client("INSERT INTO job DEFAULT VALUES;", connections=1, rate=10, name="api"),
        client(WORK, rate=None),
        client(
            "\\set id random(1000, 100000000)\nINSERT INTO dead_letters (id) VALUES (:id);\n"
            "DELETE FROM dead_letters WHERE id = :id - 1;\nUPDATE dead_letters SET attempts = 26 WHERE id = :id;",
            connections=1,
            rate=5,
            name="mover",
        ),
    ),
)
SETTLED = Incident(
    name="settled-by-key-by-whoever-added-it",
    setup="""
CREATE TABLE job (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, state text NOT NULL DEFAULT 'pending',
    attempts int NOT NULL DEFAULT 0, locked_at timestamptz, created_at timestamptz NOT NULL DEFAULT now());
CREATE INDEX ON job (created_at) WHERE state = 'pending';
INSERT INTO job (state, created_at) SELECT CASE WHEN g % 50 = 0 THEN 'pending' ELSE 'sent' END, now() - g * interval '1 min'
    FROM generate_series(1, 15000) g;
VACUUM ANALYZE job;
""",
    clients=(
        client(
            "INSERT INTO job DEFAULT VALUES RETURNING id \\gset\n"
            "UPDATE job SET state = 'sent', attempts = attempts + 1 WHERE id = :id;",
            connections=1,
            name="api",
        ),
    ),
)
TURNS = Incident(
    name="between-two-turns-of-a-batch",
    # A batch comes every two minutes and takes all there are; the next is due in half a minute.
    setup=TABLE
    + """
INSERT INTO job (state, run_at, started_at, finished_at) SELECT 'done', t, turn, turn + interval '1 s'
    FROM (SELECT now() - interval '90 s' - g * interval '50 ms' AS t, now() - interval '90 s' - (g / 2400) * interval '2 min' AS turn
        FROM generate_series(12000, 1, -1) g) made;
INSERT INTO job (run_at) SELECT now() - interval '90 s' + g * interval '50 ms' FROM generate_series(1, 1800) g;
"""
    + ONCE,
    clients=(client("INSERT INTO job DEFAULT VALUES;", connections=1, name="api"),),
)
CLEANED = Incident(
    name="workers-gone-while-old-jobs-are-cleared-away-and-priorities-grow",
    setup=TABLE.replace("queue text", "priority int NOT NULL DEFAULT 0, queue text")
    + KEPT.replace("now() - g", "now() - interval '20 min' - g")
    + "INSERT INTO job (run_at) SELECT now() - g * interval '5 s' FROM generate_series(240, 1, -1) g;"
    + ONCE,
    clients=(
        client("INSERT INTO job DEFAULT VALUES;", connections=1, rate=2, name="api"),
        client(
            "DELETE FROM job WHERE id IN (SELECT id FROM job WHERE state = 'done' ORDER BY finished_at LIMIT 20);\n"
            "\\sleep 500 ms\n",
            connections=1,
            rate=None,
            name="cleaner",
        ),
        client(
            "UPDATE job SET priority = priority + 1 WHERE state = 'ready' AND run_at < now() - interval '1 min';\n"
            "\\sleep 700 ms\n",
            connections=1,
            rate=None,
            name="scheduler",
        ),
    ),
    expected={"queue-unserved": ("Nobody takes jobs from public.job",)},
    allowed=frozenset({"backlog-growing", "hot-no-page-room"}),
    settle_s=3.0,
)
MORE = (
    WEEKEND,
    LATE_IN_THE_WEEK,
    OUT_OF_USE,
    SHUT_OUT,
    DELETED_AT_ONCE,
    STRICT,
    REQUEUED,
    SETTLED,
    TURNS,
    CLEANED,
)


@pytest.mark.parametrize("incident", MORE, ids=lambda one: one.name)
def test_healthy(database: str, incident: Incident) -> None:
    report = look(incident, database)
    found = list(faults(incident, report))
    found += [f"took {one.name} for a queue" for one in report.queues if one.name != incident.queue]
    assert not found, "\n".join((*found, told(report)))


@contextmanager
def bound_worker(dsn: str) -> Iterator[None]:
    """A worker whose claims name their queue by a parameter, as drivers with bound statements do."""
    stop = threading.Event()

    def ask() -> None:
        with psycopg.connect(dsn, autocommit=True, prepare_threshold=0) as connection:
            while not stop.wait(0.2):
                connection.execute(BY_QUEUE.format("%s").encode(), ["mails"])

    worker = threading.Thread(target=ask)
    worker.start()
    try:
        yield
    finally:
        stop.set()
        worker.join()


@pytest.mark.parametrize("kept", [KEPT, ""], ids=["finished jobs kept", "finished jobs deleted"])
def test_dead_letters_and_a_bound_claim(database: str, kept: str) -> None:
    incident = Incident(
        name="bound", setup=TABLE + kept + DEAD_LETTERS, told=frozenset({"claim-empty-polls"})
    )
    with psycopg.connect(database, autocommit=True) as connection:
        connection.execute(incident.setup.partition("VACUUM")[0].encode())
    with bound_worker(database):
        report = look(Incident(name="bound", setup="ANALYZE job;", told=incident.told), database)
    found = list(faults(incident, report))
    assert not found, "\n".join((*found, told(report)))
