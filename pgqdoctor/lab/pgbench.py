"""One pgbench run: its script, its workers, its log, and its end.

Each worker is a connection of its own, as real workers have. The run ends when its time is up or when a
question asked meanwhile is answered with yes (the queue is empty). The per-transaction log lies in a
directory that the watchdog removes should this process be killed; its size is bounded by the time limit and
it is deleted once read.
"""

from __future__ import annotations

import contextlib
import math
import os
import re
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Self

from psycopg.conninfo import conninfo_to_dict, make_conninfo

from pgqdoctor.errors import PgqdoctorError
from pgqdoctor.lab.binaries import Binaries
from pgqdoctor.lab.ground import WORKER_NAME
from pgqdoctor.lab.machine import usable_cpus
from pgqdoctor.lab.statistics import Attempt
from pgqdoctor.lab.watchdog import Watchdog

GRACE_S = 10.0
"""How long clients may take to end their transactions in progress after the run's end."""
ASK_EVERY_S = 0.05
ASK_SHARE = 0.05
"""Intervals of the question whether the queue is empty: at first, and as a share of the time that has passed. Asked
fifty times a second it took a twentieth of a processor; what workers do after the last job does not count anyway."""
_PROCESSED = re.compile(r"^number of transactions actually processed: (\d+)", re.MULTILINE)
_TPS = re.compile(r"^tps = ([\d.]+)", re.MULTILINE)
_FAILED = re.compile(r"^number of failed transactions: (\d+)", re.MULTILINE)
_COMPLAINT = re.compile(r"error:|FATAL:|ERROR:|PANIC:")


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """A script in pgbench's language and how many connections repeat it.

    ``transactions`` ends each client after so many; ``rate`` caps all clients together, per second.
    ``variables`` are set before the first transaction.
    """

    script: str
    clients: int
    rate: float | None = None
    transactions: int | None = None
    variables: Mapping[str, str] = field(default_factory=dict)
    application_name: str = WORKER_NAME


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What pgbench said at its end. ``failed`` transactions ended in a serialization error or a deadlock."""

    transactions: int
    tps: float
    failed: int
    attempts: tuple[Attempt, ...]
    seconds: float
    """From pgbench's start to its end, connecting included."""


class Bench:
    """Runs pgbench below a directory of its own, as a context manager; nothing of it outlives this process."""

    def __init__(self, binaries: Binaries) -> None:
        self.binaries = binaries
        self._directory: Path | None = None
        self._watchdog: Watchdog | None = None
        self._count = 0
        self._running: list[subprocess.Popen[str]] = []

    def __enter__(self) -> Self:
        self._directory = Path(tempfile.mkdtemp(prefix="pgqd-bench-"))
        self._watchdog = Watchdog(self._directory, signal="KILL", pid_files=("*.pid",))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for process in tuple(self._running):
            _kill(process)
        if self._directory is not None:
            shutil.rmtree(self._directory, ignore_errors=True)
            self._directory = None
        if self._watchdog is not None:
            self._watchdog.dismiss()
            self._watchdog = None

    @property
    def directory(self) -> Path:
        """Where scripts, pid files and logs are."""
        if self._directory is None:
            raise PgqdoctorError("pgbench has no directory: the bench was not entered")
        return self._directory

    def start(self, conninfo: str, work: Work, *, longest_s: float, log: bool = True) -> Run:
        """Start a run that ends by itself after ``longest_s`` seconds at the latest."""
        self._count += 1
        name = f"run{self._count}"
        script = self.directory / f"{name}.sql"
        script.write_text(work.script)
        parameters = {
            key: str(value) for key, value in conninfo_to_dict(conninfo).items() if value is not None
        }
        password = parameters.pop("password", None)
        parameters["application_name"] = work.application_name
        length = (
            ("-t", str(work.transactions))
            if work.transactions is not None
            else ("-T", str(max(1, math.ceil(longest_s))))
        )
        command = [
            *(str(self.binaries.pgbench), "-n", "-M", "prepared", "-c", str(work.clients)),
            *("-j", str(min(work.clients, usable_cpus()))),
            *length,
            *("-f", str(script)),
            *(("-R", f"{work.rate:g}") if work.rate is not None else ()),
            *(part for key, value in work.variables.items() for part in ("-D", f"{key}={value}")),
            *(("-l", "--log-prefix", str(self.directory / name)) if log else ()),
            make_conninfo("", **parameters),
        ]
        environment = {**os.environ, "LC_ALL": "C", "PGAPPNAME": work.application_name}
        if password is not None:
            environment["PGPASSWORD"] = password
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            errors="replace",
            env=environment,
            cwd=self.directory,
            start_new_session=True,
        )
        (self.directory / f"{process.pid}.pid").write_text(f"{process.pid}\n")
        self._running.append(process)
        return Run(self, process, name, script)

    def run(
        self,
        conninfo: str,
        work: Work,
        *,
        longest_s: float,
        until: Callable[[], bool] | None = None,
        ask_share: float = ASK_SHARE,
        log: bool = True,
    ) -> Outcome:
        """Run to the end; ``until`` and ``ask_share`` are those of ``Run.wait``.

        Raises PgqdoctorError with pgbench's own words where a client failed.
        """
        run = self.start(conninfo, work, longest_s=longest_s, log=log)
        try:
            run.wait(until, ask_share=ask_share)
            return run.finish()
        except BaseException:
            run.kill()
            raise

    def forget(self, process: subprocess.Popen[str]) -> None:
        """Stop watching a process that has ended."""
        if process in self._running:
            self._running.remove(process)
        if self._directory is not None:
            (self._directory / f"{process.pid}.pid").unlink(missing_ok=True)


class Run:
    """One pgbench process."""

    def __init__(self, bench: Bench, process: subprocess.Popen[str], name: str, script: Path) -> None:
        self._bench = bench
        self._process = process
        self._name = name
        self._script = script
        self._began = time.monotonic()

    @property
    def ended(self) -> bool:
        return self._process.poll() is not None

    def wait(self, until: Callable[[], bool] | None = None, *, ask_share: float = ASK_SHARE) -> None:
        """Wait until pgbench ends, or until ``until`` says so.

        That is asked more and more seldom: the pause grows to ``ask_share`` of the time that has passed.
        """
        while not self.ended:
            if until is None:
                # Its own time limit ends it; a short wait keeps Ctrl-C answered.
                with contextlib.suppress(subprocess.TimeoutExpired):
                    self._process.wait(0.5)
                continue
            if until():
                return
            time.sleep(max(ASK_EVERY_S, ask_share * (time.monotonic() - self._began)))

    def finish(self) -> Outcome:
        """Let transactions in progress end, and read what pgbench said and logged.

        Raises PgqdoctorError where it failed.
        """
        if not self.ended:
            # The signal of its own timer (-T): clients finish the transaction they are in.
            with contextlib.suppress(ProcessLookupError):
                self._process.send_signal(signal.SIGALRM)
        try:
            said, complained = self._process.communicate(timeout=GRACE_S)
        except subprocess.TimeoutExpired:
            self.kill()
            raise PgqdoctorError(
                f"pgbench's clients did not end within {GRACE_S:.0f} s; something on the server blocks them"
            ) from None
        seconds = time.monotonic() - self._began
        self._bench.forget(self._process)
        processed = _PROCESSED.search(said)
        errors = [line.strip() for line in complained.splitlines() if _COMPLAINT.search(line)]
        if self._process.returncode != 0 or processed is None:
            first = errors[0] if errors else f"exit status {self._process.returncode}"
            raise PgqdoctorError(f"pgbench failed: {first}")
        tps, failed = _TPS.search(said), _FAILED.search(said)
        return Outcome(
            transactions=int(processed[1]),
            tps=float(tps[1]) if tps else 0.0,
            failed=int(failed[1]) if failed else 0,
            attempts=self._logged(),
            seconds=seconds,
        )

    def kill(self) -> None:
        """End it at once; its sessions roll back."""
        _kill(self._process)
        self._bench.forget(self._process)
        self._clean()

    def _logged(self) -> tuple[Attempt, ...]:
        attempts: list[Attempt] = []
        for file in self._bench.directory.glob(f"{self._name}.[0-9]*"):
            with file.open() as lines:
                attempts += [one for one in map(read_log_line, lines) if one is not None]
        self._clean()
        return tuple(attempts)

    def _clean(self) -> None:
        for file in self._bench.directory.glob(f"{self._name}.*"):
            file.unlink(missing_ok=True)


def read_log_line(line: str) -> Attempt | None:
    """One line of ``pgbench --log``; None for a transaction that was skipped or failed, and for a line cut short.

    The fields are client, number, microseconds, script, seconds and microseconds of the end
    (https://www.postgresql.org/docs/current/pgbench.html, "Per-Transaction Logging").
    """
    fields = line.split()
    if len(fields) < 6 or not line.endswith("\n") or not fields[2].isdigit():
        return None
    return Attempt(
        client=int(fields[0]),
        number=int(fields[1]),
        latency_us=int(fields[2]),
        ended_us=int(fields[4]) * 1_000_000 + int(fields[5]),
    )


def _kill(process: subprocess.Popen[str]) -> None:
    process.kill()
    process.wait()
    for pipe in (process.stdout, process.stderr):
        if pipe is not None:
            pipe.close()
