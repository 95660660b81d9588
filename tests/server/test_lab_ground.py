"""Where the lab works, live: only in a database named as scratch, only in its own schema, and gone afterwards."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import textwrap
import time
from pathlib import Path

import psycopg
import pytest

from pgqdoctor.errors import USAGE, PgqdoctorError
from pgqdoctor.lab.ground import MARK, SCHEMA, in_schema, scratch_ground

ROOT = Path(__file__).parents[2]
OBJECTS = f"""
SELECT 'schema ' || nspname FROM pg_namespace WHERE nspname = '{SCHEMA}'
UNION ALL
SELECT 'relation ' || n.nspname || '.' || c.relname FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
 WHERE n.nspname NOT IN ('pg_catalog', 'information_schema', 'pg_toast') AND n.nspname <> '{SCHEMA}'
   AND NOT EXISTS (SELECT FROM pg_depend d WHERE d.objid = c.oid AND d.deptype = 'e')
UNION ALL
SELECT 'type ' || t.typname FROM pg_type t JOIN pg_namespace n ON n.oid = t.typnamespace
 WHERE n.nspname = 'public' AND t.typrelid = 0 AND t.typelem = 0
   AND NOT EXISTS (SELECT FROM pg_depend d WHERE d.objid = t.oid AND d.deptype = 'e')
UNION ALL
SELECT 'extension ' || extname FROM pg_extension WHERE extname NOT IN ('plpgsql', 'pg_stat_statements')
"""


def objects(dsn: str) -> list[str]:
    with psycopg.connect(dsn, autocommit=True) as connection:
        return [str(row[0]) for row in connection.execute(OBJECTS.encode()).fetchall()]


def test_a_ground_is_a_schema_that_comes_and_goes(database: str) -> None:
    with scratch_ground(database, confirmed=True) as ground:
        with ground.connect() as connection:
            connection.execute("CREATE TABLE jobs (id integer)")
            row = connection.execute("SELECT 'jobs'::regclass::oid, current_schema()").fetchone()
        assert row is not None
        assert row[1] == SCHEMA
        assert objects(database) == [f"schema {SCHEMA}"]
        assert ground.facts.version_num >= 140000
        assert "shared_buffers" in ground.facts.settings
        assert not ground.embedded
    assert objects(database) == []


def test_it_is_gone_after_an_error_too(database: str) -> None:
    with pytest.raises(RuntimeError, match="stop"), scratch_ground(database, confirmed=True) as ground:
        holder = ground.connect()
        holder.execute("BEGIN")
        holder.execute("CREATE TABLE jobs (id integer)")
        raise RuntimeError("stop")
    assert objects(database) == []


def test_a_server_nobody_named_as_scratch_is_refused(database: str) -> None:
    with pytest.raises(PgqdoctorError, match="needs to hear that it is a scratch server") as caught:
        scratch_ground(database, confirmed=False).__enter__()
    assert caught.value.exit_code == USAGE
    assert "--yes-this-is-scratch" in caught.value.hint


@pytest.mark.parametrize(
    "made",
    [
        "CREATE TABLE customers (id integer)",
        'CREATE SCHEMA "Shop"; CREATE TABLE "Shop"."Orders" (id integer)',
        "CREATE TABLE parts (id integer) PARTITION BY RANGE (id)",
        "CREATE MATERIALIZED VIEW totals AS SELECT 1 AS one",
    ],
)
def test_a_database_with_tables_is_refused(database: str, made: str) -> None:
    with psycopg.connect(database, autocommit=True) as connection:
        connection.execute(made.encode())
    with pytest.raises(PgqdoctorError, match="is no scratch database"):
        scratch_ground(database, confirmed=True).__enter__()
    assert f"schema {SCHEMA}" not in objects(database)


def test_somebody_elses_schema_of_that_name_is_left_alone(database: str) -> None:
    with psycopg.connect(database, autocommit=True) as connection:
        connection.execute(f"CREATE SCHEMA {SCHEMA}".encode())
    with pytest.raises(PgqdoctorError, match="was not made by the lab"):
        scratch_ground(database, confirmed=True).__enter__()
    assert objects(database) == [f"schema {SCHEMA}"]


def test_two_labs_do_not_share_a_database(database: str) -> None:
    with (
        scratch_ground(database, confirmed=True),
        pytest.raises(PgqdoctorError, match="another lab runs in database"),
    ):
        scratch_ground(database, confirmed=True).__enter__()


def test_a_server_that_does_not_answer_is_told() -> None:
    with pytest.raises(PgqdoctorError, match="the scratch server cannot be reached"):
        scratch_ground("postgresql://nobody@127.0.0.1:1/none", confirmed=True).__enter__()


def test_the_search_path_joins_other_options() -> None:
    assert "-c search_path=lab" in in_schema("host=h dbname=d", "lab")
    joined = in_schema("host=h options='-c work_mem=1MB'", "lab")
    assert "work_mem=1MB -c search_path=lab" in joined


def pids_below(directory: Path) -> list[int]:
    return [int(one.stem) for one in directory.glob("pgqd-bench-*/*.pid")]


def alive(pid: int) -> bool:
    stat = Path(f"/proc/{pid}/stat")
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return not (stat.exists() and stat.read_text().rpartition(")")[2].split()[0] == "Z")


@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGKILL])
@pytest.mark.parametrize("given", ["embedded", "dsn"])
def test_a_killed_lab_leaves_no_process_no_directory_and_only_its_schema(
    database: str, tmp_path: Path, given: str, how: signal.Signals
) -> None:
    place = Path(tempfile.mkdtemp(prefix="pgqt-", dir="/tmp"))
    place.chmod(0o755)
    where = ("--dsn", database, "--yes-this-is-scratch") if given == "dsn" else ()
    arguments = ("race", "--strategy", "skip-locked", "--jobs", "40000", "--workers", "4", *where)
    script = textwrap.dedent(
        """
        import sys
        from pgqdoctor.cli import run
        sys.exit(run(sys.argv[1:]))
        """
    )
    parent = subprocess.Popen(
        [sys.executable, "-c", script, "lab", *arguments, "--state", str(tmp_path / "state.json")],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        env={**os.environ, "PYTHONPATH": str(ROOT), "TMPDIR": str(place)},
    )
    try:
        until = time.monotonic() + 60
        while not (pids := pids_below(place)):
            assert parent.poll() is None
            assert time.monotonic() < until
            time.sleep(0.05)
        servers = [int(one.read_text().split()[0]) for one in place.glob("pgqd-*/data/postmaster.pid")]
        assert len(servers) == (1 if given == "embedded" else 0)
        parent.send_signal(how)
        parent.wait(15)
        until = time.monotonic() + 20
        while any(map(alive, [*pids, *servers])) or list(place.iterdir()):
            assert time.monotonic() < until, (list(place.iterdir()), pids, servers)
            time.sleep(0.05)
        assert objects(database) in ([], [f"schema {SCHEMA}"])
        with scratch_ground(database, confirmed=True):
            pass
        assert objects(database) == [], "the next run clears what a killed one left"
    finally:
        parent.kill()
        parent.wait()
        if place.exists() and not list(place.iterdir()):
            place.rmdir()


def test_the_schema_says_what_it_is(database: str) -> None:
    with scratch_ground(database, confirmed=True), psycopg.connect(database) as connection:
        row = connection.execute(
            "SELECT obj_description(oid, 'pg_namespace') FROM pg_namespace WHERE nspname = %s", [SCHEMA]
        ).fetchone()
    assert row == (MARK,)
