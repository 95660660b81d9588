"""Who holds the xmin horizon, compared with what VACUUM (VERBOSE) keeps and which transaction id it names."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack

import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict

from pgqdoctor import horizon
from pgqdoctor.collect import ObserveOptions, observe
from pgqdoctor.horizon import Holder

from .holding import beside, churn, prepared, replicating, run, session, vacuum

QUEUE = (
    "CREATE TABLE jobs (id int PRIMARY KEY, status text NOT NULL DEFAULT 'ready', attempts int NOT NULL DEFAULT 0) "
    "WITH (autovacuum_enabled = off)",
    "INSERT INTO jobs SELECT i FROM generate_series(1, 500) i",
)
BIG = (
    "CREATE TABLE big (id int, pad text) WITH (autovacuum_enabled = off)",
    "INSERT INTO big SELECT i, repeat('x', 300) FROM generate_series(1, 20000) i",
)
SLOWLY = ("SET vacuum_cost_delay = 20", "SET vacuum_cost_limit = 1")
SLOW_KEY = (
    "CREATE FUNCTION slow(int) RETURNS int IMMUTABLE LANGUAGE plpgsql AS "
    "'BEGIN PERFORM pg_sleep(0.02); RETURN $1; END'"
)
WRITE = "UPDATE jobs SET attempts = 7 WHERE id = 400"
REPORT = ("BEGIN ISOLATION LEVEL REPEATABLE READ", "SELECT count(*) FROM jobs")


ROUNDS = 40
"""Transactions in which rows die before anybody is asked."""


def holders_of(dsn: str) -> tuple[Holder, ...]:
    return horizon.of(observe(dsn, ObserveOptions(window_seconds=0.3, explain="off"))).holders


def agree(dsn: str) -> Holder | None:
    """Let rows die, ask both, and return the holder they agree on.

    What is younger than the dead rows is left out: autovacuum may pass at any moment.
    """
    churn(dsn, ROUNDS)
    holders = tuple(one for one in holders_of(dsn) if one.age >= ROUNDS)
    said = vacuum(dsn)
    assert (said.kept > 0) == bool(holders), (said, holders)
    if not holders:
        return None
    assert holders[0].identifier == said.cutoff, (said, holders)
    return holders[0]


@pytest.fixture
def queue(database: str) -> str:
    run(database, *QUEUE)
    return database


def name_of(dsn: str) -> str:
    return str(conninfo_to_dict(dsn)["dbname"])


HOLDING = {
    "a snapshot of an idle transaction": REPORT,
    "a read-only serializable transaction": ("BEGIN ISOLATION LEVEL SERIALIZABLE READ ONLY", "SELECT 1"),
    "an idle writer in READ COMMITTED": ("BEGIN", WRITE),
    "a writer inside a savepoint": ("BEGIN", "SAVEPOINT a", WRITE),
    "an open cursor": ("BEGIN", "DECLARE c CURSOR FOR SELECT * FROM jobs", "FETCH 1 FROM c"),
    "a running statement": ("SELECT pg_sleep(60)",),
    "a long COPY": ("COPY (SELECT *, pg_sleep(1) FROM jobs) TO STDOUT",),
    "ANALYZE of another table": (*BIG, *SLOWLY, "ANALYZE big"),
    "CREATE INDEX CONCURRENTLY that builds": (
        *BIG,
        SLOW_KEY,
        "CREATE INDEX CONCURRENTLY ON big (slow(id))",
    ),
    "VACUUM FULL": (*BIG, *SLOWLY, "CREATE INDEX ON big (id)", "BEGIN", "LOCK TABLE big", "SELECT 1"),
}
FREE = {
    "nothing": (),
    "an idle reader in READ COMMITTED": ("BEGIN", "SELECT count(*) FROM jobs"),
    "a cursor WITH HOLD": ("DECLARE c CURSOR WITH HOLD FOR SELECT * FROM jobs", "FETCH 1 FROM c"),
    "an idle listener": ("LISTEN jobs",),
    "a listener in a transaction": ("BEGIN", "LISTEN jobs"),
    "a lazy VACUUM": (*BIG, *SLOWLY, "VACUUM big"),
}


@pytest.mark.parametrize("statements", HOLDING.values(), ids=HOLDING)
def test_a_session_that_holds(queue: str, statements: tuple[str, ...]) -> None:
    with session(queue, *statements) as pid:
        holder = agree(queue)
        assert holder is not None
        assert (holder.kind, holder.pid) == ("session", pid)
    assert agree(queue) is None


@pytest.mark.parametrize("statements", FREE.values(), ids=FREE)
def test_a_session_that_holds_nothing(queue: str, statements: tuple[str, ...]) -> None:
    with session(queue, *statements):
        assert agree(queue) is None


@pytest.mark.parametrize(
    ("command", "holds"),
    [
        ("VACUUM big", False),
        ("VACUUM (VERBOSE, ANALYZE) big", False),
        ("ANALYZE big", True),
        ("VACUUM FULL big", True),
    ],
)
def test_one_that_waits_for_its_tables_lock(queue: str, command: str, holds: bool) -> None:
    run(queue, *BIG)
    with (
        session(queue, "BEGIN", "LOCK TABLE big IN SHARE MODE"),
        session(queue, command) as pid,
    ):
        holder = agree(queue)
        assert (holder.pid if holder is not None else None) == (pid if holds else None)


def test_workers_of_a_parallel_vacuum(queue: str) -> None:
    run(queue, *BIG, "CREATE INDEX ON big (id)", "CREATE INDEX ON big (id, pad)", "CREATE INDEX ON big (pad)")
    run(queue, "DELETE FROM big WHERE id % 2 = 0")
    slowly = (
        "SET vacuum_cost_delay = 20",
        "SET vacuum_cost_limit = 150",
        "SET min_parallel_index_scan_size = 0",
    )
    with session(queue, *slowly, "VACUUM (PARALLEL 2) big"):
        until = time.monotonic() + 20.0
        with psycopg.connect(queue, autocommit=True) as watch:
            while not watch.execute(
                "SELECT FROM pg_stat_activity WHERE backend_type = 'parallel worker' AND datname = current_database()"
            ).fetchall():
                assert time.monotonic() < until, "no worker began"
                time.sleep(0.05)
        assert agree(queue) is None


def test_a_blocked_session_is_not_accused(queue: str) -> None:
    with session(queue, "BEGIN", WRITE) as writer, session(queue, WRITE.replace("7", "8")):
        holder = agree(queue)
        assert holder is not None
        assert holder.pid == writer
        assert [one.by for one in holders_of(queue)] == ["xid", "xid"], "its snapshot only shows the writer"


def test_prepared_transaction(queue: str) -> None:
    gid = f"it's {name_of(queue)}"
    with prepared(queue, WRITE, gid=gid):
        holder = agree(queue)
        assert holder is not None
        assert (holder.kind, holder.name) == ("prepared transaction", gid)
    assert agree(queue) is None


def test_the_oldest_of_several_leads_and_the_next_follows(queue: str) -> None:
    with ExitStack() as stack:
        oldest = stack.enter_context(session(queue, *REPORT, application="first"))
        churn(queue, 5)
        with session(queue, "BEGIN", WRITE, application="second") as second:
            churn(queue, 5)
            third = stack.enter_context(session(queue, *REPORT, application="third"))
            assert [one.pid for one in holders_of(queue)] == [oldest, second]
            time.sleep(horizon.LASTING_S)
            # A report that stays holds by itself, though it shows the writer's transaction id.
            assert [one.pid for one in holders_of(queue)] == [oldest, second, third]
            run(queue, f"SELECT pg_terminate_backend({oldest})")
            holder = agree(queue)
            assert holder is not None
            assert holder.pid == second
        holder = agree(queue)
        assert holder is not None
        assert holder.pid == third


Elsewhere = Callable[[str], AbstractContextManager[object]]


@contextlib.contextmanager
def _prepared_there(dsn: str) -> Iterator[None]:
    with prepared(dsn, "INSERT INTO elsewhere VALUES (1)", gid=name_of(dsn)):
        yield


ELSEWHERE: dict[str, tuple[Elsewhere, str]] = {
    "a writer": (lambda dsn: session(dsn, "BEGIN", "INSERT INTO elsewhere VALUES (1)"), "session"),
    "a prepared transaction": (_prepared_there, "prepared transaction"),
}


@pytest.mark.parametrize(("writing", "kind"), ELSEWHERE.values(), ids=ELSEWHERE)
def test_in_another_database(queue: str, writing: Elsewhere, kind: str) -> None:
    """It holds nothing by itself; the snapshots taken here meanwhile show its transaction id."""
    with beside(queue) as other, writing(other):
        assert agree(queue) is None
        with session(queue, "SELECT pg_sleep(60)") as here:
            holder = agree(queue)
            assert holder is not None
            assert (holder.kind, holder.database) == (kind, name_of(other))
            time.sleep(horizon.LASTING_S)
            assert {one.pid for one in holders_of(queue)} >= {here}
        assert agree(queue) is None


def test_a_snapshot_in_another_database(queue: str) -> None:
    with beside(queue) as other, session(other, "BEGIN ISOLATION LEVEL REPEATABLE READ", "SELECT 1"):
        assert agree(queue) is None


def test_a_logical_slot_holds_the_catalogs_alone(queue: str) -> None:
    run(queue, f"SELECT pg_create_logical_replication_slot('{name_of(queue)}', 'pgoutput')")
    try:
        assert agree(queue) is None
    finally:
        run(queue, f"SELECT pg_drop_replication_slot('{name_of(queue)}')")


def test_the_first_copy_of_a_subscription(queue: str) -> None:
    """A walsender that copies tables is a session of its database, not a standby."""
    begin = "BEGIN READ ONLY ISOLATION LEVEL REPEATABLE READ"
    make = f"CREATE_REPLICATION_SLOT {name_of(queue)} TEMPORARY LOGICAL pgoutput USE_SNAPSHOT"
    with beside(queue) as other, replicating(queue, begin, make) as pid:
        holder = agree(queue)
        assert holder is not None
        assert (holder.kind, holder.pid) == ("session", pid)
        run(other, *QUEUE)
        assert agree(other) is None
    assert agree(queue) is None


def test_a_slot_keeps_what_its_standby_sent_last(queue: str) -> None:
    """A standby with feedback said which transaction id it needs and left: the slot stays behind it."""
    slot = name_of(queue)
    with psycopg.connect(queue, autocommit=True) as connection:
        row = connection.execute("SELECT pg_current_xact_id()::text::bigint % 4294967296").fetchone()
    assert row is not None
    wire = psycopg.pq.PGconn.connect(psycopg.conninfo.make_conninfo(queue, replication="true").encode())
    try:
        wire.exec_(f"CREATE_REPLICATION_SLOT {slot} PHYSICAL RESERVE_WAL".encode())
        position = (wire.exec_(b"IDENTIFY_SYSTEM").get_value(0, 2) or b"").decode()
        wire.send_query(f"START_REPLICATION SLOT {slot} PHYSICAL {position}".encode())
        wire.get_result()
        feedback = b"h" + bytes(8) + int(row[0]).to_bytes(4, "big") + bytes(12)
        wire.put_copy_data(feedback)
        wire.flush()
        time.sleep(1.0)
    finally:
        wire.finish()
    try:
        time.sleep(0.3)
        holder = agree(queue)
        assert holder is not None
        assert (holder.kind, holder.name, holder.state) == ("replication slot", slot, "inactive")
    finally:
        run(queue, f"SELECT pg_drop_replication_slot('{slot}')")
    assert agree(queue) is None
