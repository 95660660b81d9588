"""What the live tests of the xmin horizon share: sessions that hold something, churn, and what VACUUM says."""

from __future__ import annotations

import contextlib
import re
import threading
import time
import uuid
from collections.abc import Iterator
from dataclasses import dataclass

import psycopg
from psycopg.conninfo import make_conninfo

from pgqdoctor.lab.server import ScratchServer

_KEPT = re.compile(r"(\d+) are dead but not yet removable|(\d+) dead row versions cannot be removed yet")
_CUTOFF = re.compile(r"removable cutoff: (\d+)|oldest xmin: (\d+)")
LONGEST_S = 10.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Vacuumed:
    """What VACUUM (VERBOSE) says: dead rows it had to keep, and the transaction id that decided so."""

    kept: int
    cutoff: int


def run(dsn: str, *statements: str, **how: str) -> None:
    """Run statements one by one, each by itself."""
    with psycopg.connect(dsn, autocommit=True, prepare_threshold=None, **how) as connection:  # type: ignore[arg-type]
        for one in statements:
            connection.execute(one.encode())


def vacuum(dsn: str, table: str = "jobs") -> Vacuumed:
    """Vacuum the table and read what the server says of it (the words differ between 14 and 15)."""
    said: list[str] = []
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.add_notice_handler(
            lambda one: said.append(f"{one.message_primary}\n{one.message_detail or ''}")
        )
        connection.execute(f"VACUUM (VERBOSE) {table}".encode())
    text = "\n".join(said)
    kept, cutoff = _KEPT.search(text), _CUTOFF.search(text)
    assert kept is not None and cutoff is not None, text
    return Vacuumed(kept=int(kept[1] or kept[2]), cutoff=int(cutoff[1] or cutoff[2]))


def churn(dsn: str, rounds: int = 40) -> None:
    """Rows die in as many transactions, so that ages in transactions tell holders apart."""
    with psycopg.connect(dsn, autocommit=True) as connection:
        for _ in range(rounds):
            connection.execute("UPDATE jobs SET attempts = attempts + 1 WHERE id <= 50")


@contextlib.contextmanager
def own_database(server: ScratchServer, called: str = "app") -> Iterator[str]:
    """A database of a server that tests share, under a name that a second run of the same test does not meet; its DSN."""
    name = f"{called} {uuid.uuid4().hex[:8]}"
    dsn = server.create_database(name)
    try:
        yield dsn
    finally:
        run(server.dsn(), f'DROP DATABASE "{name}" WITH (FORCE)')


@contextlib.contextmanager
def session(dsn: str, *statements: str, application: str = "holder") -> Iterator[int]:
    """Keep a session that has run the statements, or runs the last of them; yield its pid."""
    connection = psycopg.connect(dsn, autocommit=True, application_name=application, prepare_threshold=None)
    pid = connection.info.backend_pid
    problems: list[psycopg.Error] = []
    finished = threading.Event()

    def work() -> None:
        try:
            for one in statements:
                connection.execute(one.encode())
        except psycopg.Error as error:
            problems.append(error)
        finally:
            finished.set()

    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    # Long enough to be in the last statement, where one does not return.
    finished.wait(0.8)
    assert not problems, problems
    try:
        yield pid
    finally:
        run(dsn, f"SELECT pg_terminate_backend({pid})")
        thread.join(LONGEST_S)
        connection.close()


@contextlib.contextmanager
def prepared(dsn: str, *statements: str, gid: str) -> Iterator[None]:
    """Leave a prepared transaction behind."""
    name = "'" + gid.replace("'", "''") + "'"
    run(dsn, "BEGIN", *statements, f"PREPARE TRANSACTION {name}")
    try:
        yield
    finally:
        run(dsn, f"ROLLBACK PREPARED {name}")


@contextlib.contextmanager
def beside(dsn: str) -> Iterator[str]:
    """Another database of the same server, with a table to write to."""
    name = f"{psycopg.conninfo.conninfo_to_dict(dsn)['dbname']}_beside"
    run(dsn, f"CREATE DATABASE {name}")
    other = make_conninfo(dsn, dbname=name)
    try:
        run(other, "CREATE TABLE elsewhere (i int)")
        yield other
    finally:
        run(dsn, f"DROP DATABASE {name} WITH (FORCE)")


@contextlib.contextmanager
def replicating(dsn: str, *commands: str) -> Iterator[int]:
    """Keep a walsender connected to the database that has run the commands; yield its pid."""
    wire = psycopg.pq.PGconn.connect(make_conninfo(dsn, replication="database").encode())
    try:
        for one in commands:
            answer = wire.exec_(one.encode())
            assert answer.status != psycopg.pq.ExecStatus.FATAL_ERROR, answer.error_message
        yield wire.backend_pid
    finally:
        wire.finish()
        time.sleep(0.2)


@contextlib.contextmanager
def repeating(dsn: str, *statements: str, every_s: float = 0.0, application: str = "loop") -> Iterator[None]:
    """Run the statements over and over in a session of their own; with a pause, in new transactions at its pace."""
    stop = threading.Event()
    problems: list[psycopg.Error] = []

    def loop() -> None:
        try:
            with psycopg.connect(
                dsn, autocommit=True, application_name=application, prepare_threshold=None
            ) as connection:
                while not stop.is_set():
                    for one in statements:
                        connection.execute(one.encode())
                    stop.wait(every_s)
        except psycopg.Error as error:
            problems.append(error)

    thread = threading.Thread(target=loop, daemon=True)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join(LONGEST_S)
    assert not problems, problems
