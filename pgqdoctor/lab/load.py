"""A scenario's load on a database: pgbench clients, sessions held open, and the cure while both go on."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import signal
import subprocess
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self, cast

import pglast
import psycopg
from psycopg import sql
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from pgqdoctor.errors import PgqdoctorError
from pgqdoctor.lab.binaries import LOAD_PROGRAMS, Binaries, find_binaries
from pgqdoctor.lab.scenario import Client, Scenario, Session
from pgqdoctor.lab.watchdog import Watchdog

LONGEST_RUN_S = 3600
START_TIMEOUT_S = 20.0
CLIENT_STOP_TIMEOUT_S = 1.0
# pgbench skips what it would start later than this: a stall is not followed by a burst that makes up for it.
SKIP_LATER_THAN_MS = 1000
_PROGRESS = re.compile(r"^progress: ([\d.]+) s, ([\d.]+) tps")
_PROCESSED = re.compile(r"^number of transactions actually processed: (\d+)")
_ERROR = re.compile(r"error:|FATAL:|ERROR:")
_VACUUM = re.compile(r"\s*vacuum\b", re.IGNORECASE)
_ERROR_LINES_KEPT = 10


class Load:
    """Runs ``scenario`` in the database that ``dsn`` names, as a context manager.

    Entering runs setup.sql, starts the clients and brings every session that starts at once into the state
    it holds. Leaving stops all of it; what setup.sql made stays, databases beside the scenario's own go.
    The role needs to be a superuser or the database's owner.
    """

    def __init__(
        self,
        scenario: Scenario,
        dsn: str,
        *,
        binaries: Binaries | None = None,
        longest_run_s: int = LONGEST_RUN_S,
    ) -> None:
        self.scenario = scenario
        self.dsn = dsn
        self._parameters = {
            name: str(value) for name, value in conninfo_to_dict(dsn).items() if value is not None
        }
        self._pgbench = (binaries if binaries is not None and binaries.has("pgbench") else None) or (
            find_binaries(LOAD_PROGRAMS) if scenario.clients else None
        )
        self._longest_run_s = longest_run_s
        self._directory: Path | None = None
        self._watchdog: Watchdog | None = None
        self._clients: dict[str, _RunningClient] = {}
        self._before: dict[str, int] = {}
        self._sessions: list[_HeldSession] = []
        self._problems: list[str] = []

    @property
    def dbname(self) -> str:
        return self._parameters.get("dbname", "postgres")

    @property
    def directory(self) -> Path:
        """Where the clients' scripts and pid files are while the load runs."""
        if self._directory is None:
            raise PgqdoctorError("the load is not running")
        return self._directory

    def start(self) -> None:
        """Prepares the database and starts everything.

        Raises PgqdoctorError where a statement of setup.sql, a client or a session fails.
        """
        try:
            self._prepare()
            for client in self.scenario.clients:
                self._start_client(client, cured=False)
            self._await_clients()
            for session in self.scenario.sessions:
                held = _HeldSession(
                    session, self._connection_string(session.database), self._database(session.database)
                )
                self._sessions.append(held)
                held.start()
            self.check()
        except BaseException:
            self.stop()
            raise

    def cure(self) -> None:
        """Applies the cure while the load goes on.

        Ends the sessions that do not stay, runs cure.sql statement by statement, and swaps the clients that
        have a cured script or rate.
        """
        for held in self._sessions:
            if not held.session.stays:
                held.end()
        if self.scenario.cure is not None:
            self._run_script("cure.sql", self.scenario.cure)
        for client in self.scenario.clients:
            if client.cured:
                self._end_client(client.name)
                self._start_client(client, cured=True)
        self._await_clients()
        self.check()

    def transactions(self) -> Mapping[str, int]:
        """How many transactions each client has reached so far (a second behind while it runs)."""
        return {
            client.name: self._before.get(client.name, 0)
            + (self._clients[client.name].transactions if client.name in self._clients else 0)
            for client in self.scenario.clients
        }

    def problems(self) -> tuple[str, ...]:
        """What went wrong so far: clients that ended or reported errors, sessions that failed."""
        now = [problem for running in self._clients.values() for problem in running.problems()]
        now += [held.problem for held in self._sessions if held.problem]
        return (*self._problems, *now)

    def check(self) -> None:
        """Raises PgqdoctorError where ``problems()`` has any."""
        problems = self.problems()
        if problems:
            raise PgqdoctorError(f"the load of scenario {self.scenario.name} failed: {'; '.join(problems)}")

    def stop(self) -> None:
        """Stops clients and sessions; harmless when called twice."""
        for running in self._clients.values():
            running.ask_to_end()
        for held in self._sessions:
            held.end()
            if held.problem:
                self._problems.append(held.problem)
        self._sessions.clear()
        for name in tuple(self._clients):
            self._end_client(name)
        if self._directory is not None:
            self._drop_databases()
            shutil.rmtree(self._directory, ignore_errors=True)
            self._directory = None
        if self._watchdog is not None:
            self._watchdog.dismiss()
            self._watchdog = None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()
        if error is None:
            self.check()

    def _prepare(self) -> None:
        self._directory = Path(tempfile.mkdtemp(prefix="pgqd-load-"))
        self._watchdog = Watchdog(self._directory, signal="TERM", pid_files=("*.pid",))
        with self._connect() as connection:
            for suffix in self.scenario.databases:
                name = sql.Identifier(self._database(suffix))
                connection.execute(sql.SQL("CREATE DATABASE {}").format(name))
            available = connection.execute(
                "SELECT 1 FROM pg_available_extensions WHERE name = 'pg_stat_statements'"
                " AND current_setting('shared_preload_libraries') LIKE '%pg_stat_statements%'"
            ).fetchone()
            if available is not None:
                connection.execute("CREATE EXTENSION IF NOT EXISTS pg_stat_statements")
        self._run_script("setup.sql", self.scenario.setup)

    def _run_script(self, name: str, text: str) -> None:
        # A session sends its row counts late. Counts of inserts that arrive after a VACUUM's own report make
        # the table look twice as large and never vacuumed, so VACUUM waits for the end of the session before.
        batches: list[list[str]] = [[]]
        for statement in split_statements(text):
            if _VACUUM.match(statement):
                batches.append([])
            batches[-1].append(statement)
        for batch in batches:
            with self._connect() as connection:
                for statement in batch:
                    self._run_statement(connection, name, statement)
                pid = connection.info.backend_pid
            self._await_end_of(pid)

    def _run_statement(
        self, connection: psycopg.Connection[tuple[object, ...]], script: str, statement: str
    ) -> None:
        try:
            connection.execute(cast("psycopg.abc.Query", statement.encode()))
        except psycopg.Error as error:
            said = error.diag.message_primary or str(error).strip()
            shown = " ".join(statement.split())[:120]
            raise PgqdoctorError(
                f"{script} of scenario {self.scenario.name} failed: {said} (in: {shown})"
            ) from error

    def _await_end_of(self, pid: int) -> None:
        deadline = time.monotonic() + START_TIMEOUT_S
        with self._connect() as connection:
            while time.monotonic() < deadline:
                if not connection.execute("SELECT 1 FROM pg_stat_activity WHERE pid = %s", (pid,)).fetchone():
                    return
                time.sleep(0.005)

    def _connect(self) -> psycopg.Connection[tuple[object, ...]]:
        return psycopg.connect(
            self._connection_string(None),
            autocommit=True,
            application_name="pgqdoctor lab",
            connect_timeout=10,
        )

    def _database(self, suffix: str | None) -> str:
        return self.dbname if suffix is None else f"{self.dbname}_{suffix}"

    def _connection_string(self, suffix: str | None) -> str:
        return make_conninfo("", **{**self._parameters, "dbname": self._database(suffix)})

    def _start_client(self, client: Client, *, cured: bool) -> None:
        assert self._directory is not None
        assert self._pgbench is not None
        script = client.cured_script if cured and client.cured_script is not None else client.script
        rate = client.cured_rate if cured and client.cured_rate is not None else client.rate
        path = self._directory / f"{client.name}{'-cured' if cured else ''}.sql"
        path.write_text(script)
        parameters = {**self._parameters, "dbname": self._database(client.database)}
        password = parameters.pop("password", None)
        parameters["application_name"] = client.application_name
        command = [
            *(str(self._pgbench.pgbench), "-n", "-P", "1", "-T", str(self._longest_run_s)),
            *("-M", client.protocol, "-c", str(client.connections), "-j", "1", "-f", str(path)),
            *(("-R", f"{rate:g}", "-L", str(SKIP_LATER_THAN_MS)) if rate is not None else ()),
            make_conninfo("", **parameters),
        ]
        environment = {**os.environ, "PGAPPNAME": client.application_name, "LC_ALL": "C"}
        if password is not None:
            environment["PGPASSWORD"] = password
        self._clients[client.name] = _RunningClient(client, command, environment, self._directory)

    def _end_client(self, name: str) -> None:
        running = self._clients.pop(name)
        running.end()
        self._problems += running.problems()
        self._before[name] = self._before.get(name, 0) + running.transactions

    def _await_clients(self) -> None:
        wanted: dict[tuple[str, str], int] = {}
        for running in self._clients.values():
            key = (self._database(running.client.database), running.client.application_name)
            wanted[key] = wanted.get(key, 0) + running.client.connections
        deadline = time.monotonic() + START_TIMEOUT_S
        with self._connect() as connection:
            while wanted:
                self.check()
                rows = connection.execute(
                    "SELECT datname, application_name, count(*) FROM pg_stat_activity"
                    " WHERE datname IS NOT NULL GROUP BY 1, 2"
                ).fetchall()
                seen = {(str(row[0]), str(row[1])): cast(int, row[2]) for row in rows}
                missing = [app for (db, app), count in wanted.items() if seen.get((db, app), 0) < count]
                if not missing:
                    return
                if time.monotonic() > deadline:
                    raise PgqdoctorError(
                        f"scenario {self.scenario.name}: clients {', '.join(missing)} had not connected"
                        f" after {START_TIMEOUT_S:.0f} s"
                    )
                time.sleep(0.05)

    def _drop_databases(self) -> None:
        if not self.scenario.databases:
            return
        with contextlib.suppress(psycopg.OperationalError), self._connect() as connection:
            for suffix in self.scenario.databases:
                name = sql.Identifier(self._database(suffix))
                connection.execute(sql.SQL("DROP DATABASE IF EXISTS {} WITH (FORCE)").format(name))


class _RunningClient:
    """One pgbench process, its counts and its complaints."""

    def __init__(
        self, client: Client, command: list[str], environment: Mapping[str, str], directory: Path
    ) -> None:
        self.client = client
        self._progress = 0.0
        self._processed: int | None = None
        self._errors: list[str] = []
        self._ending = False
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            env=environment,
            cwd=directory,
            start_new_session=True,
        )
        self._pid_file = directory / f"{self._process.pid}.pid"
        self._pid_file.write_text(f"{self._process.pid}\n")
        self._reader = threading.Thread(target=self._read, name=f"pgbench {client.name}", daemon=True)
        self._reader.start()

    @property
    def transactions(self) -> int:
        return self._processed if self._processed is not None else round(self._progress)

    def problems(self) -> tuple[str, ...]:
        ended = self._process.poll()
        if ended is not None and not self._ending:
            # The reader may be a moment behind the process's end; its last lines say why it ended.
            self._reader.join(1.0)
        errors = tuple(self._errors)
        if errors or (ended is not None and not self._ending):
            said = " / ".join(errors) or "no error message"
            return (f"client {self.client.name}: {said}",)
        return ()

    def ask_to_end(self) -> None:
        """Lets pgbench finish its transactions in progress, as if its time (-T) were over."""
        if not self._ending:
            self._ending = self._process.poll() is None
            with contextlib.suppress(ProcessLookupError):
                self._process.send_signal(signal.SIGALRM)

    def end(self) -> None:
        self.ask_to_end()
        try:
            self._process.wait(CLIENT_STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            pass
        finally:
            if self._process.poll() is None:
                self._process.kill()
                self._process.wait()
            self._pid_file.unlink(missing_ok=True)
            self._reader.join(1.0)

    def _read(self) -> None:
        assert self._process.stdout is not None
        last = 0.0
        with self._process.stdout as lines:
            for line in lines:
                if progress := _PROGRESS.match(line):
                    now, rate = float(progress.group(1)), float(progress.group(2))
                    self._progress += rate * (now - last)
                    last = now
                elif processed := _PROCESSED.match(line):
                    self._processed = int(processed.group(1))
                elif _ERROR.search(line) and not self._ending and len(self._errors) < _ERROR_LINES_KEPT:
                    self._errors.append(line.strip())


class _HeldSession:
    """One session of the scenario, in a thread of its own because its last step may not return."""

    def __init__(self, session: Session, conninfo: str, dbname: str) -> None:
        self.session = session
        self.problem = ""
        self._conninfo = conninfo
        self._dbname = dbname
        self._connection: psycopg.Connection[tuple[object, ...]] | None = None
        self._pid = 0
        self._prepared_before = self._prepared() if session.hold == "prepared" else frozenset()
        self._ending = threading.Event()
        self._holding = threading.Event()
        self._thread = threading.Thread(
            target=self._run, name=f"session {session.application_name}", daemon=True
        )

    def start(self) -> None:
        """Starts the session and, where it begins at once, waits until it holds."""
        self._thread.start()
        if self.session.after_s == 0 and not self._holding.wait(START_TIMEOUT_S):
            self.problem = f"session {self.session.application_name} did not get to {self.session.hold}"

    def end(self) -> None:
        """Ends the session: its backend is terminated, its prepared transaction rolled back."""
        if self._ending.is_set():
            return
        self._ending.set()
        with (
            contextlib.suppress(psycopg.OperationalError),
            psycopg.connect(self._conninfo, autocommit=True) as admin,
        ):
            if self._pid:
                admin.execute("SELECT pg_terminate_backend(%s)", (self._pid,))
            if self.session.hold == "prepared":
                for gid in self._prepared() - self._prepared_before:
                    admin.execute(sql.SQL("ROLLBACK PREPARED {}").format(sql.Literal(gid)))
        self._thread.join(CLIENT_STOP_TIMEOUT_S)
        if self._connection is not None:
            self._connection.close()

    def _run(self) -> None:
        try:
            if self._ending.wait(self.session.after_s):
                return
            self._connection = connection = psycopg.connect(
                self._conninfo,
                autocommit=True,
                application_name=self.session.application_name,
                prepare_threshold=None,
            )
            self._pid = connection.info.backend_pid
            *first, last = [step.replace("{database}", self._dbname) for step in self.session.sql]
            for step in first:
                connection.execute(cast("psycopg.abc.Query", step.encode()))
            if self.session.hold == "active":
                self._holding.set()
            connection.execute(cast("psycopg.abc.Query", last.encode()))
            if self.session.hold == "prepared":
                self._pid = 0
                connection.close()
        except psycopg.Error as error:
            if not self._ending.is_set():
                self.problem = f"session {self.session.application_name}: {str(error).strip()}"
        finally:
            self._holding.set()

    def _prepared(self) -> frozenset[str]:
        with psycopg.connect(self._conninfo, autocommit=True) as admin:
            rows = admin.execute(
                "SELECT gid FROM pg_prepared_xacts WHERE database = current_database()"
            ).fetchall()
        return frozenset(str(row[0]) for row in rows)


@dataclass(frozen=True, slots=True, kw_only=True)
class ScenarioDatabase:
    """A database made for one run of a scenario, and the load on it."""

    dsn: str
    load: Load


@contextlib.contextmanager
def scenario_database(
    scenario: Scenario, server_dsn: str, *, binaries: Binaries | None = None, dbname: str | None = None
) -> Iterator[ScenarioDatabase]:
    """Creates a database on the server of ``server_dsn``, runs ``scenario`` in it and drops it afterwards.

    The name is unique to this process unless ``dbname`` gives one.
    """
    name = dbname or f"pgqd_{scenario.name.replace('-', '_')}_{os.getpid()}_{time.monotonic_ns() % 1_000_000}"
    parameters = conninfo_to_dict(server_dsn)
    dsn = make_conninfo("", **{**parameters, "dbname": name})
    identifier = sql.Identifier(name)
    with psycopg.connect(server_dsn, autocommit=True) as admin:
        admin.execute(sql.SQL("CREATE DATABASE {}").format(identifier))
    try:
        with Load(scenario, dsn, binaries=binaries) as load:
            yield ScenarioDatabase(dsn=dsn, load=load)
    finally:
        with psycopg.connect(server_dsn, autocommit=True) as admin:
            admin.execute(sql.SQL("DROP DATABASE IF EXISTS {} WITH (FORCE)").format(identifier))


def split_statements(text: str) -> tuple[str, ...]:
    """The statements of an SQL script, one by one: VACUUM and CREATE INDEX CONCURRENTLY must run alone."""
    return tuple(str(statement) for statement in pglast.split(text))
