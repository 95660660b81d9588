"""What is read of pg_stat_statements: texts, counters and how it counts; and why it could not be read."""

from __future__ import annotations

from typing import Final

import psycopg

from pgqdoctor import probes, rows
from pgqdoctor.collecting.prober import Prober
from pgqdoctor.connect import in_schema, one_line, quote
from pgqdoctor.names import columns_used
from pgqdoctor.observation import Lack
from pgqdoctor.sqlread import may_concern_queue, read_sql

MAX_STATEMENTS: Final = 5_000
"""pg_stat_statements keeps 5,000 entries by default; no more are read."""
MAX_READ: Final = 1_500
"""Of these the most called are parsed, about a millisecond each; beyond, only those that lock rows: a claim that
runs less often than 1,500 other statements and takes no lock is no queue's."""


def read_texts(prober: Prober) -> tuple[rows.StatementTextRow, ...]:
    """Read the texts worth parsing; where they cannot be read, the reason becomes a lack."""
    server = prober.link.server
    extension = server.extension("pg_stat_statements")
    if server.statements != "ready" or extension is None:
        return ()
    try:
        sql = probes.load_for_extension("statement_texts", extension.version)
        found = prober.session.rows(
            rows.StatementTextRow, in_schema(sql, extension.schema), {"limit": MAX_STATEMENTS}
        )
        return tuple(row for rank, row in enumerate(found) if _worth_reading(row.text, rank))
    except (psycopg.Error, ValueError) as error:
        if prober.session.closed:
            raise
        prober.lacks.append(_unread_texts(prober, error))
        return ()


def _unread_texts(prober: Prober, error: psycopg.Error | ValueError) -> Lack:
    """Say why the statement texts were not read and what would let them be."""
    reason = f"pg_stat_statements was not read: {one_line(error)}"
    if not isinstance(
        error, psycopg.errors.CharacterNotInRepertoire | psycopg.errors.UntranslatableCharacter
    ):
        return Lack(what="statements", reason=reason)
    # One text makes the whole view fail, in every database whose encoding it does not fit.
    others = _other_encodings(prober)
    names = ", ".join(quote(name) for name, _ in others[:3])
    return Lack(
        what="statements",
        reason=f"pg_stat_statements cannot be read in this database, because the text of one statement is not valid in its encoding "
        f"({one_line(error)}); it was run in a database of another encoding{f': {names}' if names else ''}, and until it is gone "
        "claims are told from running sessions and functions alone",
        grant="; ".join(f"SELECT pg_stat_statements_reset(0, {oid}, 0)" for _, oid in others[:3])
        + f" (forgets the counters of {names})"
        if others
        else "SELECT pg_stat_statements_reset() (forgets the counters of every database)",
    )


def _other_encodings(prober: Prober) -> list[tuple[str, int]]:
    """The databases with statements in another encoding than this one's: name and oid."""
    extension = prober.link.server.extension("pg_stat_statements")
    if extension is None:
        return []
    query = (
        "SELECT d.datname::text AS name, d.oid::bigint AS oid FROM pg_database d "
        "WHERE d.encoding <> (SELECT encoding FROM pg_database WHERE datname = current_database()) "
        "AND d.oid IN (SELECT s.dbid FROM {schema}.pg_stat_statements(false) s) ORDER BY d.encoding <> 0, d.datname"
    )
    try:
        found = prober.session.records(in_schema(query, extension.schema))
    except psycopg.Error:
        if prober.session.closed:
            raise
        return []
    return [(one["name"], int(one["oid"])) for one in found]


def read_info(prober: Prober) -> rows.StatementsInfoRow | None:
    """How pg_stat_statements counts, None where that cannot be read."""
    server = prober.link.server
    extension = server.extension("pg_stat_statements")
    if server.statements != "ready" or extension is None or prober.session.closed:
        return None
    try:
        sql = probes.load_for_extension("statements_info", extension.version)
        return next(iter(prober.session.rows(rows.StatementsInfoRow, in_schema(sql, extension.schema))), None)
    except (psycopg.Error, ValueError):
        # Its counters are a lack already where it went away, and this only adds to them.
        return None


def read_counters(prober: Prober, ids: tuple[int, ...]) -> tuple[rows.StatementCounterRow, ...]:
    """Read the counters of the statements with these query ids."""
    extension = prober.link.server.extension("pg_stat_statements")
    if not ids or extension is None:
        return ()
    sql = probes.load_for_extension("statement_counters", extension.version)
    try:
        return prober.session.rows(
            rows.StatementCounterRow, in_schema(sql, extension.schema), {"ids": list(ids)}
        )
    except psycopg.Error as error:
        if prober.session.closed:
            raise
        prober.lacks.append(
            Lack(what="statements", reason=f"statement counters were not read: {one_line(error)}")
        )
        return ()


def _worth_reading(text: str | None, rank: int) -> bool:
    """Tell whether a statement is worth its parsing; ``rank`` is its place by calls."""
    if text is None:
        return True
    if not may_concern_queue(text):
        return False
    lower = text.lower()
    return rank < MAX_READ or "locked" in lower or "for update" in lower or "savepoint" in lower


def worth_counting(text: str, names: set[str]) -> bool:
    """Tell whether a statement's counters matter to a queue: it names one of the tables, or it is a
    transaction command."""
    if "isolation" in text.lower():
        # How many transactions begin at a strict level tells whether claims run in them.
        return any(one.isolation in ("repeatable read", "serializable") for one in read_sql(text).statements)
    if not may_concern_queue(text):
        return False
    for statement in read_sql(text).statements:
        if statement.kind in ("savepoint", "release", "rollback to", "notify", "listen", "call"):
            return True
        if {table.name for table in columns_used(statement)} & names:
            return True
        if statement.kind == "select" and statement.functions and not statement.reads:
            return True
    return False
