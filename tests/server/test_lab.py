"""The scratch server and the load, live: what they start works, and nothing of it stays."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import psycopg
import pytest

from pgqdoctor.errors import PgqdoctorError
from pgqdoctor.lab.account import reachable_binaries, server_account
from pgqdoctor.lab.binaries import LOAD_PROGRAMS, SERVER_PROGRAMS, find_binaries, wheel_bin_dir
from pgqdoctor.lab.load import Load, scenario_database
from pgqdoctor.lab.scenario import Client, Scenario, load_scenario
from pgqdoctor.lab.server import ScratchServer
from tests.server.holding import own_database

CHECKOUT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def server() -> Iterator[ScratchServer]:
    with ScratchServer() as running:
        yield running


def value(dsn: str, query: str) -> object:
    with psycopg.connect(dsn, autocommit=True) as connection:
        row = connection.execute(query.encode()).fetchone()
    return row[0] if row is not None else None


def gone(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    # A zombie waits for its parent, which may be a container's lazy init; it holds nothing any more.
    stat = Path(f"/proc/{pid}/stat")
    return stat.exists() and stat.read_text().rpartition(")")[2].split()[0] == "Z"


def wait_until(what: str, condition: Callable[[], bool], seconds: float = 15.0) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"{what} not within {seconds} s"
        time.sleep(0.05)


def postmaster_pid(directory: Path) -> int:
    return int((directory / "data" / "postmaster.pid").read_text().split()[0])


def test_server_listens_on_both_ways_with_its_settings(server: ScratchServer) -> None:
    assert value(server.dsn(), "SHOW fsync") == "off"
    assert value(server.socket_dsn(), "SHOW wal_level") == "logical"
    assert value(server.dsn(), "SHOW max_prepared_transactions") == "10"
    assert value(server.dsn(), "SHOW server_encoding") == "UTF8"
    with own_database(server, "both ways") as dsn:
        assert str(value(dsn, "SELECT current_database()")).startswith("both ways ")


def test_pg_stat_statements_is_there_where_the_installation_has_it(server: ScratchServer) -> None:
    assert server.binaries.library("pg_stat_statements") is not None, "the lab's wheel and packages ship it"
    with own_database(server) as dsn:
        assert value(dsn, "SELECT count(*) >= 0 FROM pg_stat_statements") is True


def test_settings_override_and_restart_keeps_the_port() -> None:
    with ScratchServer(synchronous_commit=True, settings={"work_mem": "5MB", "fsync": True}) as server:
        port, pid = server.port, postmaster_pid(server.socket_dir.parent)
        assert value(server.dsn(), "SHOW work_mem") == "5MB"
        assert value(server.dsn(), "SHOW fsync") == "on"
        assert value(server.dsn(), "SHOW synchronous_commit") == "on"
        server.restart()
        assert server.port == port
        assert postmaster_pid(server.socket_dir.parent) != pid
        assert value(server.dsn(), "SHOW work_mem") == "5MB"


def test_nothing_stays_after_an_exception() -> None:
    with pytest.raises(RuntimeError, match="stop here"), ScratchServer() as server:
        directory = server.socket_dir.parent
        pid = postmaster_pid(directory)
        raise RuntimeError("stop here")
    assert gone(pid)
    assert not directory.exists()


def test_failing_start_shows_the_log_and_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", None)
    before = set(Path("/tmp").glob("pgqd-*"))
    with pytest.raises(PgqdoctorError, match="no_such_setting"):
        ScratchServer(settings={"no_such_setting": 1}).start()
    assert not [p for p in set(Path("/tmp").glob("pgqd-*")) - before if (p / "data").exists()]


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_server_and_load_end_with_their_parent(how: signal.Signals) -> None:
    script = """
        import signal, time
        # A job in the background of a shell is started with SIGINT ignored; here it is what is tested.
        signal.signal(signal.SIGINT, signal.default_int_handler)
        from pgqdoctor.lab.load import Load
        from pgqdoctor.lab.scenario import load_scenario
        from pgqdoctor.lab.server import ScratchServer
        with ScratchServer() as server:
            with Load(load_scenario("healthy-heartbeat"), server.create_database("app")) as load:
                print(server.socket_dir.parent, load.directory, flush=True)
                time.sleep(60)
    """
    parent = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(script)],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        env={**os.environ, "PYTHONPATH": str(CHECKOUT)},
    )
    try:
        assert parent.stdout is not None
        server_dir, load_dir = (Path(word) for word in parent.stdout.readline().split())
        pids = [postmaster_pid(server_dir), *(int(f.stem) for f in load_dir.glob("*.pid"))]
        assert len(pids) == 1 + len(load_scenario("healthy-heartbeat").clients)
        parent.send_signal(how)
        parent.wait(15)
        wait_until("the server's and the clients' end", lambda: all(gone(pid) for pid in pids))
        wait_until("their directories' end", lambda: not server_dir.exists() and not load_dir.exists())
    finally:
        parent.kill()
        parent.wait()


@pytest.mark.skipif(
    os.geteuid() != 0, reason="only root has directories that the server's account cannot read"
)
def test_programs_the_account_cannot_reach_are_copied(tmp_path: Path) -> None:
    closed, copy = tmp_path / "closed", tmp_path / "copy"
    closed.mkdir(mode=0o700)
    original = find_binaries()
    package = original.bin_dir.parents[1]
    shutil.copytree(package, closed / package.name, symlinks=True)
    libraries = package.parent / f"{package.name}.libs"
    if libraries.is_dir():
        shutil.copytree(libraries, closed / libraries.name, symlinks=True)
    hidden = replace(original, bin_dir=closed / package.name / original.bin_dir.relative_to(package))
    account = server_account()
    assert not account.can_run(hidden.postgres)
    copy.mkdir()
    for parent in tmp_path.parents:
        # pytest keeps its directories to itself; the copy must be reachable like the server's own directory.
        if parent.is_relative_to("/tmp") and parent != Path("/tmp"):
            parent.chmod(0o711)
    tmp_path.chmod(0o711)
    assert reachable_binaries(hidden, account, copy).bin_dir.is_relative_to(copy)
    with ScratchServer(binaries=hidden) as server:
        assert server.binaries.bin_dir.is_relative_to(server.socket_dir.parent)
        assert value(server.dsn(), "SELECT 1") == 1


def test_load_runs_counts_and_cures(server: ScratchServer) -> None:
    scenario = load_scenario("idle-snapshot")
    holders = (
        "SELECT count(*) FROM pg_stat_activity"
        " WHERE application_name = 'analytics' AND backend_xmin IS NOT NULL"
    )
    with scenario_database(scenario, server.dsn()) as run:
        assert value(run.dsn, holders) == 1
        wait_until(
            "transactions of every client", lambda: all(n > 100 for n in run.load.transactions().values())
        )
        before = dict(run.load.transactions())
        run.load.cure()
        assert value(run.dsn, holders) == 0
        wait_until(
            "more transactions after the cure",
            lambda: all(n > before[name] + 100 for name, n in run.load.transactions().items()),
        )
        run.load.check()
        dsn = run.dsn
    with pytest.raises(psycopg.OperationalError, match="does not exist"):
        value(dsn, "SELECT 1")


def test_prepared_transaction_is_left_during_the_load_only(server: ScratchServer) -> None:
    with scenario_database(load_scenario("prepared-transaction"), server.dsn()) as run:
        assert (
            value(run.dsn, "SELECT count(*) FROM pg_prepared_xacts WHERE database = current_database()") == 1
        )
    assert value(server.dsn(), "SELECT count(*) FROM pg_prepared_xacts") == 0


def test_second_database_comes_and_goes(server: ScratchServer) -> None:
    with scenario_database(load_scenario("healthy-other-database"), server.dsn()) as run:
        query = (
            "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'warehouse' AND datname <> '{}'"
        )
        assert value(run.dsn, query.format(run.load.dbname)) == 1
    assert value(server.dsn(), "SELECT count(*) FROM pg_database WHERE datname LIKE 'pgqd_%'") == 0


def test_blocked_clients_are_stopped_too(server: ScratchServer) -> None:
    started = time.monotonic()
    waiting = (
        "SELECT count(*) FROM pg_stat_activity"
        " WHERE wait_event_type = 'Lock' AND datname = current_database()"
    )
    with scenario_database(load_scenario("lock-queue"), server.dsn()) as run:
        wait_until("waiting claims", lambda: value(run.dsn, waiting) == 6)
    assert time.monotonic() - started < 20


def failing(scenario: Scenario, script: str) -> Scenario:
    client: Client = replace(scenario.clients[0], script=script)
    return replace(scenario, clients=(client,))


def test_a_client_that_fails_at_once_stops_the_start(server: ScratchServer) -> None:
    scenario = failing(load_scenario("healthy-skip-locked"), "SELECT no_such_column FROM jobs;\n")
    with (
        pytest.raises(PgqdoctorError, match=r"client enqueue: .*no_such_column"),
        scenario_database(scenario, server.dsn()) as run,
    ):
        wait_until("the failure", lambda: bool(run.load.problems()))
        run.load.check()
    assert value(server.dsn(), "SELECT count(*) FROM pg_database WHERE datname LIKE 'pgqd_%'") == 0


def test_a_failing_setup_names_the_statement(server: ScratchServer) -> None:
    scenario = replace(load_scenario("healthy-skip-locked"), setup="SELECT 1; SELECT * FROM missing_table;")
    with (
        own_database(server) as dsn,
        pytest.raises(
            PgqdoctorError, match=r"setup\.sql .*missing_table.*\(in: SELECT \* FROM missing_table\)"
        ),
    ):
        Load(scenario, dsn).start()


def test_named_directory_is_used_or_refused(tmp_path: Path) -> None:
    wheel = wheel_bin_dir()
    assert wheel is not None
    assert find_binaries(environ={"PGQDOCTOR_PG_BIN": str(wheel)}).bin_dir == wheel
    with pytest.raises(PgqdoctorError, match="PGQDOCTOR_PG_BIN is"):
        find_binaries(environ={"PGQDOCTOR_PG_BIN": str(tmp_path)})
    assert find_binaries(environ={"PATH": ""}).bin_dir == wheel


def test_clients_are_found_beside_a_server_without_them(tmp_path: Path) -> None:
    wheel = wheel_bin_dir()
    assert wheel is not None
    for name in SERVER_PROGRAMS:
        (tmp_path / name).symlink_to(wheel / name)
    environ = {"PGQDOCTOR_PG_BIN": str(tmp_path)}
    assert find_binaries(environ=environ).bin_dir == tmp_path
    assert find_binaries(LOAD_PROGRAMS, environ=environ).bin_dir == wheel
