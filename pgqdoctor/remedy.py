"""Building remedies: quoting, locks, undo. Pure text; nothing here is ever executed by pgqdoctor.

Each builder knows the lock its statement takes, what that blocks and how to go back, so that no check has to.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from pgqdoctor.finding import Remedy
from pgqdoctor.rows import SettingRow
from pgqdoctor.sqlrewrite import quote_ident

LOCK_TIMEOUT: Final = "SET lock_timeout = '2s';"
"""Stands before every DDL: a statement that waits for its lock makes everything behind it wait too."""
CONCURRENT_LOCK_TIMEOUT: Final = "SET lock_timeout = '10min';"
"""Stands before CONCURRENTLY, which blocks no reader and no writer while it waits for older transactions to end: cancelled
after 2 s by the first of them it would leave an invalid index behind (seen on a live server). Unbounded, one
forgotten transaction would make it wait for ever, and no vacuum of the table could start meanwhile."""


def literal(value: str) -> str:
    """Return a string as an SQL literal, safe under either setting of standard_conforming_strings."""
    quoted = "'" + value.replace("'", "''") + "'"
    return " E" + quoted.replace("\\", "\\\\") if "\\" in value else quoted


def qualified(schema: str, name: str) -> str:
    """Return schema.name, quoted as SQL needs it."""
    return f"{quote_ident(schema)}.{quote_ident(name)}"


def set_storage(
    table: str,
    options: Mapping[str, str],
    current: Mapping[str, str],
    *,
    title: str,
    expect: str,
    risk: str = "none known; the setting applies from the next vacuum or the next insert on",
    partitions: Sequence[str] = (),
) -> Remedy:
    """Change storage options. ``current`` are today's options: the undo sets them again or resets them.

    ALTER TABLE SET (autovacuum..., fillfactor) takes SHARE UPDATE EXCLUSIVE, which blocks neither reads nor
    writes. A partitioned table has no storage of its own: its partitions are altered.
    """
    targets = tuple(partitions) or (table,)
    wanted = ", ".join(f"{name} = {value}" for name, value in options.items())
    back = {name: current[name] for name in options if name in current}
    gone = [name for name in options if name not in current]
    undo: list[str] = [LOCK_TIMEOUT]
    for target in targets:
        if back:
            undo.append(
                f"ALTER TABLE {target} SET ({', '.join(f'{name} = {value}' for name, value in back.items())});"
            )
        if gone:
            undo.append(f"ALTER TABLE {target} RESET ({', '.join(gone)});")
    return Remedy(
        title=title,
        kind="sql",
        sql=(LOCK_TIMEOUT, *(f"ALTER TABLE {target} SET ({wanted});" for target in targets)),
        undo=tuple(undo),
        lock="SHARE UPDATE EXCLUSIVE",
        blocks="nothing",
        restart=False,
        risk=risk,
        expect=expect,
    )


def create_index(
    *,
    schema: str,
    table: str,
    name: str,
    columns: Sequence[str],
    predicate: str | None,
    title: str,
    expect: str,
    risk: str,
    include: Sequence[str] = (),
    partitioned: bool = False,
    remnant: bool = False,
) -> Remedy:
    """Create an index without blocking writers. ``columns`` are complete key expressions, already quoted.

    CONCURRENTLY cannot run in a transaction block and leaves an invalid index behind if it fails: where such a ``remnant`` of this name
    was seen it is dropped first. A DROP ... IF EXISTS would be shorter, and pasted once more would leave the queue without the
    good index until it is built again. On a partitioned table CONCURRENTLY does not exist; the plain form blocks writes.
    """
    where = f" WHERE {predicate}" if predicate else ""
    covered = f" INCLUDE ({', '.join(include)})" if include else ""
    on = qualified(schema, table)
    index = quote_ident(name)
    if partitioned:
        return Remedy(
            title=title,
            kind="sql",
            sql=(
                LOCK_TIMEOUT,
                f"CREATE INDEX IF NOT EXISTS {index} ON {on} ({', '.join(columns)}){covered}{where};",
            ),
            undo=(LOCK_TIMEOUT, f"DROP INDEX IF EXISTS {qualified(schema, name)};"),
            lock="SHARE",
            blocks="writes",
            restart=False,
            risk=risk + "; a partitioned table has no CONCURRENTLY, so writes wait while it is built",
            expect=expect,
        )
    return Remedy(
        title=title,
        kind="sql",
        sql=(
            CONCURRENT_LOCK_TIMEOUT,
            *((f"DROP INDEX CONCURRENTLY {qualified(schema, name)};",) if remnant else ()),
            f"CREATE INDEX CONCURRENTLY {index} ON {on} ({', '.join(columns)}){covered}{where};",
        ),
        undo=(CONCURRENT_LOCK_TIMEOUT, f"DROP INDEX CONCURRENTLY IF EXISTS {qualified(schema, name)};"),
        lock="SHARE UPDATE EXCLUSIVE",
        blocks="nothing",
        restart=False,
        risk=f"{risk}; cut short, it leaves an invalid index, which must be dropped before the next try",
        expect=expect,
    )


def drop_index(*, schema: str, name: str, definition: str, title: str, expect: str, risk: str) -> Remedy:
    """Drop an index without blocking; the undo is its own definition, built concurrently."""
    again = definition.replace("CREATE INDEX ", "CREATE INDEX CONCURRENTLY ", 1).replace(
        "CREATE UNIQUE INDEX ", "CREATE UNIQUE INDEX CONCURRENTLY ", 1
    )
    return Remedy(
        title=title,
        kind="sql",
        sql=(CONCURRENT_LOCK_TIMEOUT, f"DROP INDEX CONCURRENTLY IF EXISTS {qualified(schema, name)};"),
        undo=(CONCURRENT_LOCK_TIMEOUT, again + ";"),
        lock="SHARE UPDATE EXCLUSIVE",
        blocks="nothing",
        restart=False,
        risk=risk,
        expect=expect,
    )


def end_session(*, pid: int, gently: bool, title: str, expect: str, risk: str) -> Remedy:
    """Cancel a statement (``gently``) or terminate a session. There is no way back: the transaction is rolled
    back.

    An idle session has no statement to cancel: only terminating it ends its transaction.
    """
    function = "pg_cancel_backend" if gently else "pg_terminate_backend"
    return Remedy(
        title=title,
        kind="sql",
        sql=(f"SELECT {function}({pid});",),
        undo=(),
        lock="",
        blocks="nothing",
        restart=False,
        risk=risk,
        expect=expect,
    )


def corrected_statement(
    *, sql: Sequence[str], title: str, expect: str, risk: str = "a change of the application"
) -> Remedy:
    """The application's own statement, as it should read."""
    return Remedy(
        title=title,
        kind="application",
        sql=tuple(sql),
        undo=(),
        lock="",
        blocks="nothing",
        restart=False,
        risk=risk,
        expect=expect,
    )


def change_application(*, title: str, expect: str, risk: str) -> Remedy:
    """Work on the application for which no statement can be printed."""
    return corrected_statement(sql=(), title=title, expect=expect, risk=risk)


def change_setting(
    *,
    name: str,
    value: str,
    settings: Sequence[SettingRow],
    title: str,
    expect: str,
    risk: str,
    restart: bool = False,
) -> Remedy:
    """Change a server setting with ALTER SYSTEM and tell whether that needs a restart.

    ``settings`` are today's (Catalog.settings): the undo sets the value again, or resets one that is the
    built-in default.
    """
    reload = () if restart else ("SELECT pg_reload_conf();",)
    today = next((row for row in settings if row.name == name), None)
    back = (
        f"ALTER SYSTEM RESET {name};"
        if today is None or today.source == "default"
        else f"ALTER SYSTEM SET {name} = {literal(today.setting)};"
    )
    return Remedy(
        title=title,
        kind="setting",
        sql=(f"ALTER SYSTEM SET {name} = {literal(value)};", *reload),
        undo=(back, *reload),
        lock="",
        blocks="nothing",
        restart=restart,
        risk=risk,
        expect=expect,
    )


def change_role_setting(
    *, role: str, database: str, name: str, value: str, title: str, expect: str, risk: str
) -> Remedy:
    """Change a setting for one role in one database: sessions that connect afterwards have it.

    What the role had before is not observed, so the undo resets it; \\drds of psql shows it beforehand.
    """
    whom = f"ALTER ROLE {quote_ident(role)} IN DATABASE {quote_ident(database)}"
    return Remedy(
        title=title,
        kind="setting",
        sql=(f"{whom} SET {name} = {literal(value)};",),
        undo=(f"{whom} RESET {name};",),
        lock="",
        blocks="nothing",
        restart=False,
        risk=risk,
        expect=expect,
    )


def statement(
    *,
    sql: Sequence[str],
    title: str,
    expect: str,
    risk: str,
    lock: str = "",
    undo: Sequence[str] = (),
) -> Remedy:
    """Any other SQL remedy that blocks nothing, such as a VACUUM or a reaper's UPDATE."""
    return Remedy(
        title=title,
        kind="sql",
        sql=tuple(sql),
        undo=tuple(undo),
        lock=lock,
        blocks="nothing",
        restart=False,
        risk=risk,
        expect=expect,
    )
