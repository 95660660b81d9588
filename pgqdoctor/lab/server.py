"""A scratch PostgreSQL server: started in seconds, used, and gone without a trace."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Self
from urllib.parse import quote

import psycopg
from psycopg import sql
from psycopg.conninfo import make_conninfo

from pgqdoctor.errors import PgqdoctorError
from pgqdoctor.lab.account import Account, reachable_binaries, server_account
from pgqdoctor.lab.binaries import Binaries, find_binaries
from pgqdoctor.lab.watchdog import Watchdog

START_TIMEOUT_S = 60.0
STOP_TIMEOUT_S = 10.0
PORT_ATTEMPTS = 5
LOG_LINES_SHOWN = 12
# sun_path holds 104 bytes on macOS, 108 on Linux; ".s.PGSQL.65535.lock" takes 19 of them.
_LONGEST_SOCKET_DIR = 80


class ScratchServer:
    """A throwaway server as a context manager.

    It listens on 127.0.0.1 and on a Unix socket in its own directory, trusts every local connection, and
    has one superuser, postgres. Leaving the context stops it at once (immediate mode) and removes its
    directory; a watchdog does the same should this process be killed.

    ``autovacuum_naptime_s`` is in seconds. ``settings`` override everything set here. ``standby_of`` makes it a
    streaming hot standby of another scratch server that is running.
    """

    def __init__(
        self,
        *,
        binaries: Binaries | None = None,
        synchronous_commit: bool = False,
        autovacuum_naptime_s: int = 60,
        max_connections: int = 200,
        settings: Mapping[str, str | int | float | bool] | None = None,
        standby_of: ScratchServer | None = None,
    ) -> None:
        self._found = binaries
        self._primary = standby_of
        self._settings: dict[str, str | int | float | bool] = {
            "fsync": False,
            "full_page_writes": False,
            "synchronous_commit": synchronous_commit,
            "autovacuum_naptime": f"{autovacuum_naptime_s}s",
            "max_connections": max_connections,
            "shared_buffers": "128MB",
            "max_prepared_transactions": 10,
            "wal_level": "logical",
            "max_wal_size": "512MB",
            "track_io_timing": True,
            "log_line_prefix": "%m [%p] %a ",
            **(settings or {}),
        }
        self._base: Path | None = None
        self._watchdog: Watchdog | None = None
        self._postmaster: subprocess.Popen[bytes] | None = None
        self._account: Account | None = None
        self._binaries: Binaries | None = None
        self._port = 0

    @property
    def binaries(self) -> Binaries:
        """The programs the server runs from: a copy, where its account cannot run the originals."""
        if self._binaries is None:
            raise PgqdoctorError("the scratch server has not been started")
        return self._binaries

    @property
    def port(self) -> int:
        return self._port

    @property
    def socket_dir(self) -> Path:
        return self._directory() / "s"

    @property
    def log_path(self) -> Path:
        return self._directory() / "log"

    def dsn(self, dbname: str = "postgres") -> str:
        """A connection URI over TCP, for any tool."""
        return f"postgresql://postgres@127.0.0.1:{self._port}/{quote(dbname, safe='')}"

    def socket_dsn(self, dbname: str = "postgres") -> str:
        """A connection string over the Unix socket: cheaper per statement, for load clients."""
        return make_conninfo(host=str(self.socket_dir), port=self._port, user="postgres", dbname=dbname)

    def create_database(self, name: str) -> str:
        """Creates a database, with pg_stat_statements where the server has it; returns its URI."""
        with psycopg.connect(self.socket_dsn(), autocommit=True) as connection:
            connection.execute(sql.SQL("CREATE DATABASE {}").format(sql.Identifier(name)))
        if self.binaries.library("pg_stat_statements") is not None:
            with psycopg.connect(self.socket_dsn(name), autocommit=True) as connection:
                connection.execute("CREATE EXTENSION IF NOT EXISTS pg_stat_statements")
        return self.dsn(name)

    def log_tail(self, lines: int = LOG_LINES_SHOWN) -> str:
        """The last lines of the server's log; empty where there is none."""
        try:
            return "\n".join(self.log_path.read_text(errors="replace").splitlines()[-lines:])
        except OSError:
            return ""

    def start(self) -> None:
        """Makes the data directory and starts the server.

        Raises PgqdoctorError with the last lines of the log where that fails; nothing is left behind then.
        """
        try:
            self._prepare()
            self._start_postmaster()
        except BaseException:
            self.stop()
            raise

    def restart(self) -> None:
        """Stops the server cleanly (fast mode) and starts it again on the same port."""
        self._stop_postmaster(signal.SIGINT)
        self._launch()

    def stop(self) -> None:
        """Stops the server at once and removes everything it had; harmless when called twice."""
        self._stop_postmaster(signal.SIGQUIT)
        if self._base is not None:
            shutil.rmtree(self._base, ignore_errors=True)
            self._base = None
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

    def _directory(self) -> Path:
        if self._base is None:
            raise PgqdoctorError("the scratch server is not running")
        return self._base

    def _prepare(self) -> None:
        found = self._found or find_binaries()
        self._account = account = server_account()
        self._base = base = _short_directory(account)
        self._watchdog = Watchdog(base, signal="QUIT", pid_files=("data/postmaster.pid",))
        self._binaries = binaries = reachable_binaries(found, account, base / "pg")
        for name in ("s", "data"):
            directory = base / name
            directory.mkdir(mode=0o755 if name == "s" else 0o700)
            account.give(directory)
        command = [
            str(binaries.initdb),
            *("-D", str(base / "data"), "-U", "postgres", "-A", "trust", "-E", "UTF8", "--locale=C", "-N"),
        ]
        if self._primary is not None:
            command = [
                str(binaries.program("pg_basebackup")),
                *("-D", str(base / "data"), "-d", self._primary.dsn(), "-R", "-c", "fast", "-N"),
            ]
        done = subprocess.run(
            command,
            capture_output=True,
            text=True,
            cwd=base,
            start_new_session=True,
            check=False,
            **account.spawn(),
        )
        if done.returncode != 0:
            said = "\n".join(f"{done.stdout}\n{done.stderr}".strip().splitlines()[-LOG_LINES_SHOWN:])
            raise PgqdoctorError(
                f"{Path(command[0]).name} failed with exit status {done.returncode}:\n{said}"
            )

    def _start_postmaster(self) -> None:
        for attempt in range(1, PORT_ATTEMPTS + 1):
            self._port = _free_port()
            self._write_settings()
            try:
                self._launch()
            except PgqdoctorError:
                # Between choosing a port and binding it another process may take it.
                if attempt == PORT_ATTEMPTS or "Address already in use" not in self.log_tail(50):
                    raise
                self.log_path.unlink(missing_ok=True)
            else:
                return

    def _write_settings(self) -> None:
        preload = self.binaries.library("pg_stat_statements") is not None
        settings: dict[str, str | int | float | bool] = {
            "listen_addresses": "127.0.0.1",
            "unix_socket_directories": str(self.socket_dir),
            "port": self._port,
            **({"shared_preload_libraries": "pg_stat_statements"} if preload else {}),
            **self._settings,
            **({"primary_conninfo": self._primary.dsn()} if self._primary is not None else {}),
        }
        lines = [f"{name} = '{_setting(value)}'" for name, value in settings.items()]
        # The last entry of a setting wins, so what initdb wrote may stay above.
        path = self._directory() / "data" / "postgresql.auto.conf"
        path.write_text("\n".join(lines) + "\n")

    def _launch(self) -> None:
        assert self._account is not None
        base = self._directory()
        with self.log_path.open("ab") as log:
            self._postmaster = subprocess.Popen(
                [self.binaries.postgres, "-D", base / "data"],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                cwd=base,
                start_new_session=True,
                **self._account.spawn(),
            )
        deadline = time.monotonic() + START_TIMEOUT_S
        while not self._ready():
            if self._postmaster.poll() is not None:
                raise PgqdoctorError(
                    f"the scratch server ended while starting (exit status {self._postmaster.returncode}); "
                    f"its log says:\n{self.log_tail()}"
                )
            if time.monotonic() > deadline:
                raise PgqdoctorError(
                    f"the scratch server was not ready after {START_TIMEOUT_S:.0f} s; "
                    f"its log says:\n{self.log_tail()}"
                )
            time.sleep(0.02)

    def _ready(self) -> bool:
        # The postmaster writes its state into the eighth line of its pid file; pg_ctl looks there too.
        try:
            lines = (self._directory() / "data" / "postmaster.pid").read_text().splitlines()
        except OSError:
            return False
        return len(lines) >= 8 and lines[7].strip() == "ready"

    def _stop_postmaster(self, how: signal.Signals) -> None:
        postmaster, self._postmaster = self._postmaster, None
        if postmaster is None:
            return
        with contextlib.suppress(ProcessLookupError):
            postmaster.send_signal(how)
        try:
            postmaster.wait(STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            postmaster.kill()
            postmaster.wait()
        except BaseException:
            # A second Ctrl-C during the stop must not leave the server behind.
            postmaster.kill()
            postmaster.wait()
            raise


def _short_directory(account: Account) -> Path:
    """A new directory whose path is short enough for a socket and open to the server's account."""
    for parent in (tempfile.gettempdir(), "/tmp", "/var/tmp"):
        if (
            len(os.fsencode(parent)) + len("/pgqd-xxxxxxxx/s") > _LONGEST_SOCKET_DIR
            or not Path(parent).is_dir()
        ):
            continue
        base = Path(tempfile.mkdtemp(prefix="pgqd-", dir=parent))
        base.chmod(0o755 if account.switch else 0o700)
        if not account.switch or _can_enter(account, base):
            return base
        base.rmdir()
    raise PgqdoctorError(
        "found no temporary directory short enough for a socket that the server's account can enter",
        hint="set TMPDIR to such a directory",
    )


def _can_enter(account: Account, directory: Path) -> bool:
    test = subprocess.run(
        ["/bin/sh", "-c", 'cd "$0"', directory],
        cwd="/",
        stderr=subprocess.DEVNULL,
        check=False,
        **account.spawn(),
    )
    return test.returncode == 0


def _free_port() -> int:
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def _setting(value: str | int | float | bool) -> str:
    if isinstance(value, bool):
        return "on" if value else "off"
    return str(value).replace("\\", "\\\\").replace("'", "''")
