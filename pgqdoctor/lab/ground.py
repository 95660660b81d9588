"""Where experiments run: an embedded server of their own, or a schema of a database named as scratch.

On a server that the user names, everything lives in one schema; nothing else of the database or the server
is changed, no extension is created and no setting altered. A database with tables of anybody else is refused.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final, cast

import psycopg
from psycopg import sql
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from pgqdoctor.conninfo import redact_conninfo
from pgqdoctor.errors import UNREACHABLE, USAGE, PgqdoctorError
from pgqdoctor.lab.binaries import LOAD_PROGRAMS, Binaries, find_binaries
from pgqdoctor.lab.machine import server_facts
from pgqdoctor.lab.results import ServerFacts
from pgqdoctor.lab.server import ScratchServer

SCHEMA: Final = "pgqdoctor_lab"
MARK: Final = "scratch of pgqdoctor lab: dropped at the start and at the end of each run"
"""The schema's comment: a schema of this name that lacks it is somebody else's."""
APPLICATION_NAME: Final = "pgqdoctor lab"
KEEPER_NAME: Final = "pgqdoctor lab keeper"
WORKER_NAME: Final = "pgqdoctor lab worker"
DATABASE: Final = "lab"
SPARE_CONNECTIONS: Final = 10
"""Beside the workers: the lab's own, autovacuum's are counted apart."""
OLDEST_SERVER: Final = 140000
LOCK_KEY: Final = 0x7067716C6162
"""Advisory lock ("pgqlab"): two labs in one database would drop each other's tables."""

COUNT_TIMEOUT_S: Final = 5.0
COLLECTOR_S: Final = 0.6
_OTHERS: Final = (
    "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()"
    f" AND application_name IN ('{APPLICATION_NAME}', '{WORKER_NAME}')"
)

Connection = psycopg.Connection[tuple[Any, ...]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Ground:
    """A place to measure: ``conninfo`` puts every session into the schema; pgbench takes it as it is."""

    dsn: str
    """The database as a user would name it, without the search path."""
    conninfo: str
    schema: str
    facts: ServerFacts
    binaries: Binaries
    """Where pgbench is."""
    max_workers: int
    embedded: bool

    @property
    def major(self) -> int:
        return self.facts.version_num // 10_000

    def connect(self) -> Connection:
        """An autocommit connection whose search path is the schema."""
        return psycopg.connect(
            self.conninfo, autocommit=True, application_name=APPLICATION_NAME, prepare_threshold=None
        )

    @contextmanager
    def counting(self) -> Iterator[Connection]:
        """A connection for reading counters: every other session of the experiment has ended and told its own.

        A session reports its counts when it ends, and it ends a moment after its client has left.
        """
        with self.connect() as connection:
            until = time.monotonic() + COUNT_TIMEOUT_S
            while one_value(connection, _OTHERS) and time.monotonic() < until:
                time.sleep(0.005)
            if self.major < 15:
                # Those versions send counts to a collector, which writes them down up to half a second later.
                time.sleep(COLLECTOR_S)
            yield connection

    def require_workers(self, most: int) -> None:
        """Raise PgqdoctorError (usage) where the server does not take so many connections."""
        if most > self.max_workers:
            raise PgqdoctorError(
                f"{most} workers need {most} connections, and the server has room for {self.max_workers}",
                hint="Choose fewer with --workers, or raise max_connections.",
                exit_code=USAGE,
            )


def run_sql(connection: Connection, text: str) -> None:
    """Execute statements that the lab itself wrote, all in one message."""
    connection.execute(cast("psycopg.abc.Query", text.encode()))


def one_value(connection: Connection, text: str) -> Any:
    """The first column of the first row; None where there is no row."""
    row = connection.execute(cast("psycopg.abc.Query", text.encode())).fetchone()
    return None if row is None else row[0]


@contextmanager
def embedded_ground(
    *, workers: int, autovacuum_naptime_s: int = 60, durable: bool = False, binaries: Binaries | None = None
) -> Iterator[Ground]:
    """An embedded server that is gone afterwards.

    ``durable`` makes commits wait for the disk as a production server does; without it they cost no I/O, and
    what is compared is the work of the server.
    """
    with ScratchServer(
        binaries=binaries,
        autovacuum_naptime_s=autovacuum_naptime_s,
        synchronous_commit=durable,
        max_connections=workers + SPARE_CONNECTIONS + 10,
        settings={"fsync": durable, "full_page_writes": durable, "max_wal_size": "2GB"},
    ) as server:
        dsn = server.create_database(DATABASE)
        pgbench = server.binaries if server.binaries.has("pgbench") else find_binaries(LOAD_PROGRAMS)
        with _opened(dsn, server.socket_dsn(DATABASE), pgbench, embedded=True) as ground:
            yield ground


@contextmanager
def scratch_ground(dsn: str, *, confirmed: bool) -> Iterator[Ground]:
    """The schema of a database that the user names as scratch; dropped afterwards.

    Raises PgqdoctorError where the user did not say that it is scratch (``confirmed``), where it has tables
    of anybody else, where another lab runs in it, or where the role may not create a schema.
    """
    if not confirmed:
        raise PgqdoctorError(
            f"the lab puts load on {redact_conninfo(dsn)} and needs to hear that it is a scratch server",
            hint="Add --yes-this-is-scratch if nobody else uses it.",
            exit_code=USAGE,
        )
    with _opened(dsn, dsn, find_binaries(LOAD_PROGRAMS), embedded=False) as ground:
        yield ground


@contextmanager
def _opened(dsn: str, load_dsn: str, pgbench: Binaries, *, embedded: bool) -> Iterator[Ground]:
    try:
        keeper = psycopg.connect(dsn, autocommit=True, application_name=KEEPER_NAME, prepare_threshold=None)
    except psycopg.Error as error:
        said = " ".join(str(error).split())
        raise PgqdoctorError(f"the scratch server cannot be reached: {said}", exit_code=UNREACHABLE) from None
    with keeper:
        _require_scratch(keeper)
        _make_schema(keeper)
        try:
            yield Ground(
                dsn=dsn,
                conninfo=in_schema(load_dsn, SCHEMA),
                schema=SCHEMA,
                facts=server_facts(keeper, embedded=embedded, pgbench=pgbench),
                binaries=pgbench,
                max_workers=_room(keeper),
                embedded=embedded,
            )
        finally:
            if not keeper.closed and not keeper.broken:
                _end_sessions(keeper)
                keeper.execute(sql.SQL("DROP SCHEMA IF EXISTS {} CASCADE").format(sql.Identifier(SCHEMA)))


def in_schema(dsn: str, schema: str) -> str:
    """``dsn`` with the search path set to ``schema`` alone; other options of it are kept."""
    parameters = conninfo_to_dict(dsn)
    options = f"{parameters.get('options') or ''} -c search_path={schema}".strip()
    return make_conninfo("", **{**parameters, "options": options})


def _require_scratch(connection: Connection) -> None:
    if connection.info.server_version < OLDEST_SERVER:
        raise PgqdoctorError("the lab needs PostgreSQL 14 or newer", exit_code=USAGE)
    if one_value(connection, "SELECT pg_is_in_recovery()"):
        raise PgqdoctorError("the scratch server is a standby, which takes no writes", exit_code=USAGE)
    others = connection.execute(
        "SELECT format('%%I.%%I', n.nspname, c.relname) FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace"
        " WHERE c.relkind IN ('r', 'p', 'm', 'f') AND c.relpersistence <> 't'"
        " AND n.nspname NOT IN ('pg_catalog', 'information_schema', 'pg_toast', %s)"
        " AND NOT EXISTS (SELECT FROM pg_depend d WHERE d.classid = 'pg_class'::regclass"
        " AND d.objid = c.oid AND d.deptype = 'e') ORDER BY 1 LIMIT 3",
        [SCHEMA],
    ).fetchall()
    if others:
        raise PgqdoctorError(
            f"database {connection.info.dbname} has tables of its own ({', '.join(str(row[0]) for row in others)})"
            " and is no scratch database",
            hint="Create an empty one for the lab: createdb lab.",
            exit_code=USAGE,
        )
    if not one_value(connection, f"SELECT pg_try_advisory_lock({LOCK_KEY})"):
        raise PgqdoctorError(
            f"another lab runs in database {connection.info.dbname}",
            hint="Wait for its end, or give this one a database of its own.",
            exit_code=USAGE,
        )


def _make_schema(connection: Connection) -> None:
    row = connection.execute(
        "SELECT obj_description(oid, 'pg_namespace') FROM pg_namespace WHERE nspname = %s", [SCHEMA]
    ).fetchone()
    name = sql.Identifier(SCHEMA)
    if row is not None and row[0] != MARK:
        raise PgqdoctorError(
            f"schema {SCHEMA} exists and was not made by the lab",
            hint="Rename or drop it, or give the lab another database.",
            exit_code=USAGE,
        )
    try:
        if row is not None:
            connection.execute(sql.SQL("DROP SCHEMA {} CASCADE").format(name))
        connection.execute(
            sql.SQL("BEGIN; CREATE SCHEMA {}; COMMENT ON SCHEMA {} IS {}; COMMIT").format(
                name, name, sql.Literal(MARK)
            )
        )
    except psycopg.errors.InsufficientPrivilege as error:
        raise PgqdoctorError(
            f"the lab may not create its schema {SCHEMA}: {error.diag.message_primary}",
            hint=f"GRANT CREATE ON DATABASE {connection.info.dbname} to the role, or name another role.",
        ) from None


def _end_sessions(connection: Connection) -> None:
    """Workers that a failed run left in the middle of something would hold the DROP up."""
    connection.execute(
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database()"
        " AND usename = current_user AND application_name LIKE 'pgqdoctor lab%%' AND pid <> pg_backend_pid()"
    )


def _room(connection: Connection) -> int:
    most = one_value(
        connection,
        "SELECT current_setting('max_connections')::int - current_setting('superuser_reserved_connections')::int"
        " - (SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'client backend')::int",
    )
    return max(0, int(most) - SPARE_CONNECTIONS + 1)
