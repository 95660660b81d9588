"""Remedies of the checks about a claim's design live: sick, finding, the printed remedy applied, finding gone.

The queues are made here rather than in a scenario: each is the smallest that shows one fault.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace

import psycopg
import pytest

from pgqdoctor.lab.load import Load
from pgqdoctor.lab.scenario import Scenario, load_scenario
from pgqdoctor.lab.server import ScratchServer
from pgqdoctor.report import ReportedFinding

from .test_remedies_claim import execute, gone, look, sick, with_values

TABLE = (
    "CREATE TABLE jobs (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, state text NOT NULL DEFAULT 'ready', "
    "queue text NOT NULL DEFAULT 'mail', priority int NOT NULL DEFAULT 0, attempts int NOT NULL DEFAULT 0, "
    "run_at timestamptz NOT NULL DEFAULT now());\n"
)
READY_INDEX = "CREATE INDEX jobs_ready ON jobs (run_at, id) WHERE state = 'ready';\n"
FINISH = "DELETE FROM jobs WHERE id = :id;\n"


def claim(
    find: str, returning: str = "RETURNING id \\aset\n", sets: str = "state = 'running'", by: str = "id ="
) -> str:
    return f"\\set id 0\nUPDATE jobs SET {sets} WHERE {by} ({find}) {returning}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Design:
    """A queue with one fault: its workers' script, and the script made of the printed remedy ("" where SQL cures it)."""

    check: str
    setup: str
    worker: str
    cured: Callable[[str], str] | None = None
    connections: int = 2
    rate: float | None = 20
    other: str | None = None
    other_rate: float = 20
    other_connections: int = 1
    values: tuple[tuple[str, str], ...] = ()


def corrected(rest: str, ending: str = " \\aset\n") -> Callable[[str], str]:
    return lambda sql: f"\\set id 0\n{sql}{ending}{rest}"


DESIGNS = {
    "sort over the backlog": Design(
        check="claim-sorts-backlog",
        setup=TABLE
        + "INSERT INTO jobs (priority) SELECT g % 9 FROM generate_series(1, 60000) g;\nVACUUM ANALYZE jobs;",
        worker=claim(
            "SELECT id FROM jobs WHERE state = 'ready' ORDER BY priority DESC, run_at, id LIMIT 1 FOR UPDATE SKIP LOCKED"
        )
        + FINISH,
        rate=8,
    ),
    "jobs that are due later in the way": Design(
        check="claim-scans-ineligible-rows",
        setup=TABLE
        + "INSERT INTO jobs (run_at) SELECT now() + interval '1 day' FROM generate_series(1, 60000) g;\n"
        + "INSERT INTO jobs SELECT FROM generate_series(1, 1000);\nVACUUM ANALYZE jobs;",
        worker=claim(
            "SELECT id FROM jobs WHERE state = 'ready' AND run_at <= now() ORDER BY run_at, id LIMIT 1 FOR UPDATE SKIP LOCKED"
        )
        + FINISH,
        rate=10,
    ),
    "LIMIT executed again and again": Design(
        check="claim-limit-overrun",
        setup=TABLE
        + "ALTER TABLE jobs SET (autovacuum_enabled = off);\nINSERT INTO jobs DEFAULT VALUES;\nANALYZE jobs;\n"
        # So few that they and the versions of claims rolled back stay on one page: the planner goes on to expect one row.
        + "INSERT INTO jobs SELECT FROM generate_series(1, 5);",
        worker="BEGIN;\n"
        + claim(
            "SELECT id FROM jobs WHERE state = 'ready' LIMIT 3 FOR UPDATE SKIP LOCKED",
            "RETURNING id;\n",
            by="id IN",
        )
        + "ROLLBACK;\n",
        cured=lambda sql: f"BEGIN;\n{sql};\nROLLBACK;\n",
        values=(("$1", "'running'"), ("$3", "3"), ("$2", "3")),
        connections=1,
        rate=10,
    ),
    "claim without LIMIT": Design(
        check="claim-unbounded",
        setup=TABLE
        + READY_INDEX
        + "INSERT INTO jobs SELECT FROM generate_series(1, 3000);\nVACUUM ANALYZE jobs;",
        worker="BEGIN;\n"
        + claim(
            "SELECT id FROM jobs WHERE state = 'ready' FOR UPDATE SKIP LOCKED", "RETURNING id;\n", by="id IN"
        )
        + "ROLLBACK;\n",
        cured=lambda sql: f"BEGIN;\n{sql};\nROLLBACK;\n",
        connections=1,
        rate=5,
    ),
    "advisory lock for each row": Design(
        check="claim-advisory-lock",
        setup=TABLE
        + "INSERT INTO jobs (priority) SELECT g % 5 FROM generate_series(1, 2000) g;\nVACUUM ANALYZE jobs;",
        worker="\\set id 0\nSELECT id FROM jobs WHERE state = 'ready' AND pg_try_advisory_lock(id) ORDER BY priority LIMIT 1 \\aset\n"
        "SELECT pg_advisory_unlock(:id);\n",
        cured=lambda sql: f"BEGIN;\n\\set id 0\n{sql} \\aset\nDELETE FROM jobs WHERE id = :id;\nCOMMIT;\n",
        values=(("$1", "1"), ("$2", "1")),
        rate=10,
    ),
    "REPEATABLE READ": Design(
        check="claim-isolation",
        setup=TABLE
        + READY_INDEX
        + "INSERT INTO jobs SELECT FROM generate_series(1, 60000);\nVACUUM ANALYZE jobs;",
        worker="BEGIN ISOLATION LEVEL REPEATABLE READ;\n"
        + claim(
            "SELECT id FROM jobs WHERE state = 'ready' AND run_at <= now() ORDER BY run_at, id LIMIT 1 FOR UPDATE SKIP LOCKED",
            "RETURNING id;\n",
            sets="state = 'done'",
        )
        + "COMMIT;\n",
        cured=lambda sql: sql,
        values=(("$1", "'done'"), ("$2", "'ready'"), ("$3", "1")),
        connections=8,
        rate=None,
    ),
    "FOR UPDATE beside foreign key checks": Design(
        check="claim-lock-too-strong",
        setup=TABLE
        + READY_INDEX
        + "CREATE TABLE job_log (job_id bigint NOT NULL REFERENCES jobs, line text);\nINSERT INTO jobs SELECT FROM generate_series(1, 50);\n"
        + "VACUUM ANALYZE jobs;",
        worker="BEGIN;\nSELECT id FROM jobs WHERE state = 'ready' AND run_at <= now() ORDER BY run_at, id LIMIT 1 FOR UPDATE SKIP LOCKED;\n"
        "\\sleep 60 ms\nCOMMIT;\n",
        cured=lambda sql: f"BEGIN;\n{sql};\n\\sleep 60 ms\nCOMMIT;\n",
        values=(("$1", "'ready'"), ("$2", "1")),
        rate=24,
        other="\\set job random(1, 2)\nINSERT INTO job_log (job_id, line) VALUES (:job, 'started');\n",
        other_rate=60,
        other_connections=4,
    ),
    "failing jobs without a pause": Design(
        check="retry-storm",
        setup=TABLE
        + READY_INDEX
        + "INSERT INTO jobs (attempts) SELECT 40 FROM generate_series(1, 20);\nVACUUM ANALYZE jobs;",
        worker=claim(
            "SELECT id FROM jobs WHERE state = 'ready' AND run_at <= now() ORDER BY run_at, id LIMIT 1 FOR UPDATE SKIP LOCKED",
            sets="state = 'running', attempts = attempts + 1",
        )
        + "UPDATE jobs SET state = 'ready', run_at = now() + interval '100 ms' WHERE id = :id AND attempts > 1;\n"
        "DELETE FROM jobs WHERE id = :id AND state = 'running';\n",
        rate=60,
        other="INSERT INTO jobs DEFAULT VALUES;\n",
        other_rate=10,
    ),
}


def scenario(design: Design) -> Scenario:
    base = load_scenario("healthy-skip-locked")
    model = next(one for one in base.clients if one.name == "worker")
    worker = replace(
        model,
        script=design.worker,
        connections=design.connections,
        rate=design.rate,
        cured_rate=None,
        cured_script=None,
        protocol="simple",
    )
    clients = [worker]
    if design.other is not None:
        clients.append(
            replace(
                worker,
                name="enqueue",
                application_name="api",
                script=design.other,
                connections=design.other_connections,
                rate=design.other_rate,
                protocol="simple",
            )
        )
    return replace(
        base, name=design.check, kind="sick", setup=design.setup, clients=tuple(clients), settle_s=4.0
    )


def apply(load: Load, design: Design, finding: ReportedFinding) -> None:
    remedy = finding.remedies[0]
    if remedy.kind == "sql":
        execute(load.dsn, remedy.sql)
        return
    values = dict(design.values)
    text = "\n".join(
        statement
        if statement.rstrip(";") in ("COMMIT", "BEGIN ISOLATION LEVEL READ COMMITTED")
        else with_values(statement, values) + ";"
        for statement in remedy.sql
    )
    assert design.cured is not None
    script = design.cured(text.rstrip(";") if len(remedy.sql) == 1 else text + "\n")
    clients = tuple(
        replace(one, cured_script=script) if one.name == "worker" else one for one in load.scenario.clients
    )
    load.scenario = replace(load.scenario, clients=clients)
    load.cure()


@pytest.mark.parametrize("name", DESIGNS)
def test_remedy(name: str) -> None:
    design = DESIGNS[name]
    with (
        ScratchServer(autovacuum_naptime_s=5) as server,
        Load(scenario(design), server.create_database("app")) as load,
    ):
        finding = sick(load, design.check)
        apply(load, design, finding)
        gone(load, design.check)


def test_rare_state_is_met_by_a_larger_sample_and_its_undo_goes_back() -> None:
    setup = (
        "CREATE EXTENSION IF NOT EXISTS pg_stat_statements",
        "CREATE TYPE job_state AS ENUM ('ready', 'running', 'done')",
        "CREATE TABLE jobs (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, state job_state NOT NULL) WITH (autovacuum_enabled = off)",
        "INSERT INTO jobs (state) SELECT CASE WHEN g % 6000 = 17 THEN 'ready'::job_state ELSE 'done' END FROM generate_series(1, 900000) g",
        "CREATE INDEX jobs_state ON jobs (state, id)",
        # The largest target of any column decides the sample: 300 rows, of which one in twenty runs would meet a ready one.
        "ALTER TABLE jobs ALTER COLUMN state SET STATISTICS 1, ALTER COLUMN id SET STATISTICS 1",
    )
    with ScratchServer(autovacuum_naptime_s=60) as server:
        dsn = server.create_database("app")
        execute(dsn, setup)
        # A session sends its counts late: those of the INSERT must not arrive after ANALYZE has set them to zero.
        time.sleep(1.0)
        common = "SELECT most_common_vals::text FROM pg_stats WHERE tablename = 'jobs' AND attname = 'state'"
        for _ in range(8):
            if execute(dsn, ("ANALYZE jobs", common))[1] == [("{done}",)]:
                break
        find = "SELECT id FROM jobs WHERE state = 'ready' ORDER BY id LIMIT 1 FOR UPDATE SKIP LOCKED"
        execute(dsn, (f"UPDATE jobs SET state = 'running' WHERE id = ({find}) RETURNING id",) * 5)
        finding = next(one for one in look(dsn).findings if one.check == "stale-statistics")
        assert finding.key.endswith(":sample")
        execute(dsn, finding.remedies[0].sql)
        assert not [one for one in look(dsn).findings if one.check == "stale-statistics"]
        execute(dsn, finding.remedies[0].undo)
        target = "SELECT attstattarget::int FROM pg_attribute WHERE attrelid = 'jobs'::regclass AND attname = 'state'"
        assert execute(dsn, (target,)) == [[(1,)]]


def test_bounded_count_takes_the_load_of_a_dashboard_away() -> None:
    design = Design(
        check="monitoring-load",
        setup=TABLE
        + READY_INDEX
        + "INSERT INTO jobs (state) SELECT 'done' FROM generate_series(1, 200000);\nINSERT INTO jobs SELECT FROM generate_series(1, 500);\n"
        + "VACUUM ANALYZE jobs;",
        worker=claim(
            "SELECT id FROM jobs WHERE state = 'ready' AND run_at <= now() ORDER BY run_at, id LIMIT 1 FOR UPDATE SKIP LOCKED"
        )
        + FINISH,
        rate=10,
        other="SELECT state, count(*) FROM jobs GROUP BY state;\n",
        other_rate=10,
    )
    with (
        ScratchServer(autovacuum_naptime_s=5) as server,
        Load(scenario(design), server.create_database("app")) as load,
    ):
        finding = sick(load, design.check)
        clients = tuple(
            replace(one, cured_script="\n".join(finding.remedies[0].sql)) if one.name == "enqueue" else one
            for one in load.scenario.clients
        )
        load.scenario = replace(load.scenario, clients=clients)
        load.cure()
        time.sleep(1.0)
        gone(load, design.check)


def test_constant_in_the_text_lets_every_plan_use_the_partial_index() -> None:
    """Bound by the driver, with plans for any value: pgbench's variables hold numbers only."""
    setup = (
        "CREATE EXTENSION IF NOT EXISTS pg_stat_statements",
        *(one for one in TABLE.split(";\n") if one),
        READY_INDEX.rstrip(";\n"),
        "INSERT INTO jobs (state) SELECT 'done' FROM generate_series(1, 30000)",
        "INSERT INTO jobs SELECT FROM generate_series(1, 2000)",
        "VACUUM ANALYZE jobs",
    )
    find = "SELECT id FROM jobs WHERE state = %s AND run_at <= now() ORDER BY run_at, id LIMIT 1 FOR UPDATE SKIP LOCKED"
    bound = f"UPDATE jobs SET state = 'done' WHERE id = ({find}) RETURNING id"
    with ScratchServer(autovacuum_naptime_s=60) as server:
        dsn = server.create_database("app")
        execute(dsn, setup)
        with worker(dsn, bound, ["ready"]):
            finding = next(one for one in look(dsn).findings if one.check == "claim-misses-partial-index")
        assert finding.severity == "warning"
        constant = with_values(finding.remedies[0].sql[0], {"$1": "'done'", "$2": "'done'", "$3": "1"})
        assert "state = 'ready'" in constant
        with worker(dsn, constant, []):
            assert not [one for one in look(dsn).findings if one.check == "claim-misses-partial-index"]


@contextmanager
def worker(dsn: str, statement: str, values: list[str]) -> Iterator[None]:
    """One worker that claims some thirty times a second through a driver's prepared statement."""
    ending = threading.Event()

    def run() -> None:
        with psycopg.connect(dsn, autocommit=True, prepare_threshold=0) as connection:
            connection.execute("SET plan_cache_mode = force_generic_plan")
            while not ending.wait(0.03):
                connection.execute(statement.encode(), values)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    time.sleep(1.0)
    try:
        yield
    finally:
        ending.set()
        thread.join(5.0)
