"""The careful session: read only, no session state, no transaction open between statements.

Every statement runs in a transaction of its own that begins READ ONLY and sets its timeouts with SET LOCAL,
so the same code is safe through a transaction pooler, where a plain SET would leak to somebody else's client.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final, Literal, TypeVar

import msgspec
import psycopg
from psycopg import sql
from psycopg.conninfo import conninfo_to_dict, make_conninfo
from psycopg.rows import dict_row
from psycopg.types.string import TextLoader

from pgqdoctor import features, probes
from pgqdoctor.errors import UNREACHABLE, PgqdoctorError
from pgqdoctor.observation import Extension, Lack, Server

APPLICATION_NAME: Final = "pgqdoctor"
STATEMENT_TIMEOUT_MS: Final = 3_000
"""A probe that has not answered in three seconds is given up: the report is due in seconds."""
LOCK_TIMEOUT_MS: Final = 100
"""The contract's limit for how long the doctor may stand in a lock queue, in front of others."""
IDLE_TIMEOUT_MS: Final = 10_000
"""Should the doctor itself be stopped inside a transaction, the server ends it after ten seconds."""
CONNECT_TIMEOUT_S: Final = 10
PATIENCE_S: Final = 5.0
"""How long a server that starts, stops or recovers is asked again: a restart without much to recover takes a second or
two, and on call nobody waits longer for an answer."""
STARTING: Final = "the database system is"
"""How a server's refusals begin while it starts, stops or recovers, where it speaks English: libpq's ping reads the code of
those in other languages (57P03, cannot_connect_now)."""
PAUSE_S: Final = 0.25
"""Between two attempts to connect."""

Row = TypeVar("Row")


class _LenientTextLoader(TextLoader):
    """Texts of other databases may be in another encoding: show what can be shown."""

    def load(self, data: Any) -> str:
        return bytes(data).decode("utf-8", "replace")


@dataclass(frozen=True, slots=True, kw_only=True)
class Link:
    """What only the connection knows, beside the capability table."""

    server: Server
    search_path: tuple[str, ...]
    lacks: tuple[Lack, ...]


class Session:
    """One connection, used one short read-only transaction at a time."""

    def __init__(self, connection: psycopg.Connection[dict[str, Any]], conninfo: str) -> None:
        self._connection = connection
        self.conninfo = conninfo

    @property
    def closed(self) -> bool:
        """True once the connection is lost."""
        return self._connection.closed or self._connection.broken

    def close(self) -> None:
        """Close the connection."""
        self._connection.close()

    def fileno(self) -> int:
        """Return the socket's file descriptor, so that another thread can shut it under a call that waits.

        Raises psycopg.OperationalError where the connection is closed.
        """
        return self._connection.fileno()

    @property
    def backend_pid(self) -> int:
        """The backend's pid as the startup message told it: a pooler's differs from pg_backend_pid()."""
        return self._connection.info.backend_pid

    @contextmanager
    def transaction(
        self,
        *,
        statement_timeout_ms: int = STATEMENT_TIMEOUT_MS,
        search_path: tuple[str, ...] | None = (),
        read_only: bool = True,
        local: Mapping[str, str] | None = None,
        end: Literal["ROLLBACK", "COMMIT"] = "ROLLBACK",
    ) -> Iterator[psycopg.Cursor[dict[str, Any]]]:
        """Open a transaction with its timeouts and roll it back at the end, whatever happened.

        Rolled back transactions are what pg_stat_database counts of those that failed, and polls run ten times a second: the
        doctor's own queries, which write nothing, ``end`` with COMMIT so as not to be taken for failures.

        ``search_path`` follows pg_catalog, None leaves the session's own; ``local`` are further SET LOCAL
        settings.
        """
        opening = sql.SQL(
            "BEGIN ISOLATION LEVEL READ COMMITTED {mode};"
            "SET LOCAL statement_timeout = {statement};"
            "SET LOCAL lock_timeout = {lock};"
            "SET LOCAL idle_in_transaction_session_timeout = {idle};"
            "SET LOCAL standard_conforming_strings = on;"
            "SET LOCAL extra_float_digits = 1;"
            # Compiling, and starting workers, would cost more than any statement of the doctor.
            "SET LOCAL jit = off;"
            "SET LOCAL max_parallel_workers_per_gather = 0"
        ).format(
            mode=sql.SQL("READ ONLY" if read_only else "READ WRITE"),
            statement=sql.Literal(statement_timeout_ms),
            lock=sql.Literal(min(LOCK_TIMEOUT_MS, statement_timeout_ms)),
            idle=sql.Literal(IDLE_TIMEOUT_MS),
        )
        if search_path is not None:
            path = sql.SQL(", ").join([sql.Identifier("pg_catalog"), *map(sql.Identifier, search_path)])
            opening += sql.SQL("; SET LOCAL search_path = {}").format(path)
        for name, value in (local or {}).items():
            opening += sql.SQL("; SET LOCAL {} = {}").format(sql.Identifier(name), sql.Literal(value))
        cursor = self._connection.cursor(row_factory=dict_row)
        try:
            cursor.execute(opening)
            yield cursor
        except BaseException:
            end = "ROLLBACK"
            raise
        finally:
            if not self.closed:
                self._connection.execute(end)

    def rows(
        self,
        row: type[Row],
        query: str | sql.Composed,
        parameters: Mapping[str, object] | None = None,
        *,
        statement_timeout_ms: int = STATEMENT_TIMEOUT_MS,
    ) -> tuple[Row, ...]:
        """Run one probe and return its rows as ``row``.

        Raises psycopg.Error where the server refuses or the connection is lost.
        """
        with self.transaction(statement_timeout_ms=statement_timeout_ms, end="COMMIT") as cursor:
            cursor.execute(query.encode() if isinstance(query, str) else query, parameters)
            return tuple(msgspec.convert(found, row, strict=False) for found in cursor.fetchall())

    def records(
        self,
        query: str | sql.Composed,
        parameters: Mapping[str, object] | None = None,
        *,
        statement_timeout_ms: int = STATEMENT_TIMEOUT_MS,
        search_path: tuple[str, ...] | None = (),
    ) -> list[dict[str, Any]]:
        """Run one statement and return its rows as dictionaries."""
        with self.transaction(
            statement_timeout_ms=statement_timeout_ms, search_path=search_path, end="COMMIT"
        ) as cursor:
            cursor.execute(query.encode() if isinstance(query, str) else query, parameters)
            return cursor.fetchall()


def connect(
    conninfo: str, *, timeout_s: int = CONNECT_TIMEOUT_S, patience_s: float = 0.0, dropped: bool = False
) -> Session:
    """Open the session.

    A server that answers that it cannot be connected to now (it starts, stops or recovers) is asked again for
    ``patience_s`` seconds; after a connection was ``dropped``, so is one where nobody listens, and one that has no slot
    left while everybody connects again, the latter for PATIENCE_S at most. Every other refusal, a wrong password above all,
    is told at once.

    Which connection slots a role may use is the server's decision alone: the last superuser_reserved_connections are
    for superusers, from 16 on the reserved_connections before them also for members of pg_use_reserved_connections. There
    is nothing that a client could ask for, so on call connect as such a role.

    Raises PgqdoctorError, one sentence, where there is no server, no slot, no right or no PostgreSQL.
    """
    begun = time.monotonic()
    starting = False
    while True:
        try:
            return _connected(conninfo, timeout_s)
        except PgqdoctorError as error:
            spent = time.monotonic() - begun + PAUSE_S
            if error.exit_code != UNREACHABLE or spent >= patience_s:
                raise
            ping = psycopg.pq.PGconn.ping(make_conninfo(conninfo, connect_timeout=2).encode())
            before, starting = starting, ping == psycopg.pq.Ping.REJECT or STARTING in error.message
            # What was refused a moment ago may be open by now: between the attempt and the ping a server comes up.
            patient = starting or before or (dropped and ping == psycopg.pq.Ping.NO_RESPONSE)
            if not patient and not (dropped and spent < PATIENCE_S):
                raise
        time.sleep(PAUSE_S)


def _connected(conninfo: str, timeout_s: int) -> Session:
    try:
        given = conninfo_to_dict(conninfo)
    except psycopg.ProgrammingError as error:
        raise PgqdoctorError(
            f"the connection string cannot be read: {_one_line(str(error))}",
            hint="Give a URI such as postgresql://user@host:5432/dbname, or key=value pairs.",
            exit_code=2,
        ) from None
    extra: dict[str, Any] = {"application_name": APPLICATION_NAME, "client_encoding": "UTF8"}
    if "connect_timeout" not in given:
        extra["connect_timeout"] = timeout_s
    try:
        connection = psycopg.Connection[dict[str, Any]].connect(
            conninfo, autocommit=True, prepare_threshold=None, row_factory=dict_row, **extra
        )
    except psycopg.OperationalError as error:
        raise _unreachable(error, given) from None
    except (psycopg.Error, UnicodeError) as error:
        raise PgqdoctorError(f"could not connect: {_one_line(str(error))}") from None
    if connection.info.parameter_status("server_encoding") == "SQL_ASCII":
        # Any bytes may stand there, and a server asked for UTF-8 refuses those that are none.
        connection.close()
        try:
            connection = psycopg.Connection[dict[str, Any]].connect(
                conninfo,
                autocommit=True,
                prepare_threshold=None,
                row_factory=dict_row,
                **{**extra, "client_encoding": "SQL_ASCII"},
            )
        except psycopg.OperationalError as error:
            raise _unreachable(error, given) from None
    for name in ("text", "varchar", "bpchar", "name"):
        connection.adapters.register_loader(name, _LenientTextLoader)
    return Session(connection, conninfo)


def survey(session: Session) -> Link:
    """Read the capability table.

    Raises PgqdoctorError where the server is older than any that is served, or does not answer as PostgreSQL
    does, psycopg.Error where the connection is lost.
    """
    try:
        # Under the role's own search_path, in which a user's operators may come first: nothing here is looked up along it.
        own_path = session.records("SELECT pg_catalog.current_schemas(false) AS schemas", search_path=None)[0]
        found = session.records(probes.load("capabilities", features.LOWEST_SERVED))[0]
        extensions = session.rows(Extension, probes.load("extensions", features.LOWEST_SERVED))
    except (psycopg.errors.QueryCanceled, psycopg.errors.LockNotAvailable) as error:
        raise PgqdoctorError(
            f"the system catalogs could not be read: {_one_line(str(error))}",
            hint="Somebody holds an exclusive lock on one of them, or the server is overloaded; try again.",
            exit_code=UNREACHABLE,
        ) from None
    except (psycopg.Error, IndexError) as error:
        if session.closed:
            raise
        raise PgqdoctorError(
            f"the server does not answer as PostgreSQL does: {_one_line(str(error))}",
            hint="pgqdoctor observes PostgreSQL 14 and newer.",
        ) from None
    if found["version_num"] < features.LOWEST_SERVED:
        raise PgqdoctorError(
            f"PostgreSQL {found['version']} is older than the oldest version that is observed, 14",
            hint="Upgrade the server: PostgreSQL 13 and older get no fixes any more.",
        )
    statements, lacks = _statements(session, extensions, found)
    server = Server(
        version=str(found["version"]).split(" ")[0],
        version_num=found["version_num"],
        database=found["database"],
        role=found["role"],
        superuser=bool(found["superuser"]),
        granted_roles=tuple(found["granted_roles"]),
        extensions=extensions,
        statements=statements,
        in_recovery=found["in_recovery"],
        pooler=found["backend_pid"] != session.backend_pid,
        started_at=found["started_at"],
        backend_pid=found["backend_pid"],
    )
    if not server.member_of("pg_monitor", "pg_read_all_stats"):
        lacks = (
            *lacks,
            Lack(
                what="activity",
                reason="the role may not see what other roles' sessions do",
                grant=f"GRANT pg_monitor TO {quote(server.role)}",
            ),
        )
    if server.in_recovery:
        lacks = (
            *lacks,
            Lack(
                what="counters",
                reason="this is a standby, which counts only its own reads: churn and vacuum must be observed on the primary",
            ),
        )
    return Link(server=server, search_path=tuple(own_path["schemas"]), lacks=lacks)


def _statements(
    session: Session, extensions: tuple[Extension, ...], found: Mapping[str, Any]
) -> tuple[str, tuple[Lack, ...]]:
    extension = next((one for one in extensions if one.name == "pg_stat_statements"), None)
    if found["statements_track"] is None:
        return "not preloaded", (
            Lack(
                what="statements",
                reason="pg_stat_statements is not in shared_preload_libraries",
                grant="ALTER SYSTEM SET shared_preload_libraries = 'pg_stat_statements' (adds to what is there; restart), "
                "then CREATE EXTENSION pg_stat_statements",
            ),
        )
    if extension is None:
        return "not installed", (
            Lack(
                what="statements",
                reason="the server counts the statements of this database too, but they are seen only where the extension "
                "pg_stat_statements is installed, which it is not here (in another database it may be): claims are told from running "
                "sessions and functions alone",
                grant="CREATE EXTENSION pg_stat_statements",
            ),
        )
    if not (found["superuser"] or {"pg_monitor", "pg_read_all_stats"} & set(found["granted_roles"])):
        return "texts hidden", (
            Lack(
                what="statements",
                reason="the role may not read the statement texts of other roles in pg_stat_statements",
                grant=f"GRANT pg_read_all_stats TO {quote(found['role'])}",
            ),
        )
    try:
        session.records(
            sql.SQL("SELECT 1 FROM {}(false) LIMIT 1").format(
                sql.Identifier(extension.schema, "pg_stat_statements")
            )
        )
    except psycopg.Error as error:
        if session.closed:
            raise
        function = f"{quote(extension.schema)}.pg_stat_statements(boolean)"
        role = quote(found["role"])
        return "not preloaded", (
            Lack(
                what="statements",
                reason=f"pg_stat_statements cannot be read: {_one_line(str(error))}",
                grant=f"GRANT USAGE ON SCHEMA {quote(extension.schema)} TO {role}; GRANT EXECUTE ON FUNCTION {function} TO {role}"
                if isinstance(error, psycopg.errors.InsufficientPrivilege)
                else None,
            ),
        )
    if found["statements_track"] == "none":
        return "ready", (
            Lack(
                what="statements",
                reason="pg_stat_statements.track is none: no statement is counted, and what stands there is from before",
                grant="ALTER SYSTEM SET pg_stat_statements.track = 'top', then SELECT pg_reload_conf()",
            ),
        )
    return "ready", ()


def in_schema(query: str, schema: str) -> sql.Composed:
    """Return a probe of an extension with its ``{schema}`` filled in.

    The search_path stays pg_catalog alone: where an extension lies, users' operators may lie too.
    """
    return sql.SQL(query).format(schema=sql.Identifier(schema))


def quote(name: str) -> str:
    """Return a name quoted as an SQL identifier where it needs it."""
    if (
        name
        and all(c.isascii() and (c.islower() or c == "_" or c.isdigit()) for c in name)
        and not name[0].isdigit()
    ):
        return name
    return '"' + name.replace('"', '""') + '"'


def one_line(error: BaseException) -> str:
    """Return an error of the server as one line without its position markers."""
    return _one_line(str(error))


def _one_line(text: str) -> str:
    lines = [
        line.strip()
        for line in text.splitlines()
        if line.strip() and not line.startswith(("LINE ", " ", "\t"))
    ]
    return " ".join(lines).replace("\x00", "") or "no reason given"


def _unreachable(error: psycopg.OperationalError, given: Mapping[str, Any]) -> PgqdoctorError:
    reason = _one_line(str(error)).replace("connection failed: ", "")
    host, port = given.get("host"), given.get("port")
    database, user = given.get("dbname"), given.get("user")
    where = " ".join(
        part
        for part in (
            f'to database "{database}"' if database else "",
            f'on "{host}"' if host else "",
            f"port {port}" if port else "",
            f'as role "{user}"' if user else "",
        )
        if part
    )
    lower = reason.lower()
    if STARTING in lower:
        hint = "It starts, stops or recovers: try again when it accepts connections."
    elif "password" in lower:
        hint = "Give the password through ~/.pgpass, PGPASSWORD or the URI."
    elif "does not exist" in lower:
        hint = "Check the name of the database and of the role."
    elif "no pg_hba.conf entry" in lower or "permission denied" in lower:
        hint = "Ask for the right to connect: GRANT CONNECT, and an entry in pg_hba.conf."
    elif "too many clients" in lower or "remaining connection slots" in lower:
        hint = (
            "No connection slot is left for this role: a superuser may still get one, and from PostgreSQL 16 on a member of "
            "pg_use_reserved_connections where reserved_connections is set."
        )
    elif (
        "could not translate host name" in lower or "name or service not known" in lower or "resolve" in lower
    ):
        hint = "Check the host name."
    elif (
        "received invalid response" in lower
        or "expected authentication request" in lower
        or "negotiation" in lower
    ):
        hint = "What listens there does not speak PostgreSQL's protocol: check host and port."
    else:
        hint = "Check that a PostgreSQL server listens there and that host, port and database are right."
    return PgqdoctorError(
        f"could not connect{' ' if where else ''}{where}: {reason}", hint=hint, exit_code=UNREACHABLE
    )
