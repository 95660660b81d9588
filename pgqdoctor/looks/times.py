"""A job's times as points in time: since when it waits, since when it is claimed."""

from __future__ import annotations

from psycopg import sql

from pgqdoctor.looks.look import QueueLook
from pgqdoctor.readiness import UTC_NOW, in_utc, is_naive
from pgqdoctor.rows import ColumnRow


def ready_since(look: QueueLook) -> sql.Composable | None:
    """The time from which a ready job waits: when it became due, else when it was made."""
    times = [
        name
        for name in (look.identity.roles.run_at, look.identity.roles.created_at)
        if name is not None and name in look.columns and is_time(look.columns[name])
    ]
    if not times:
        return None
    # A sentinel such as year 9999 or -infinity is no age: only times of the past count.
    parts = [
        sql.SQL("CASE WHEN {c} <= now() AND isfinite({c}) THEN {c} END").format(c=instant(look, name))
        for name in times
    ]
    return sql.SQL("greatest({})").format(sql.SQL(", ").join(parts)) if len(parts) > 1 else parts[0]


def instant(look: QueueLook, name: str) -> sql.Composable:
    """A column as a point in time: one without time zone may hold UTC, whatever the session's zone is."""
    column = look.columns[name]
    utc = is_naive(column) and (
        UTC_NOW in (look.identity.ready_predicate or "") or in_utc(column, look.columns.values())
    )
    return sql.SQL("({} AT TIME ZONE 'UTC')" if utc else "{}").format(sql.Identifier(name))


def is_time(column: ColumnRow) -> bool:
    """Tell whether a column holds a date or a time with its date."""
    return column.type_category == "D" and column.type_name.startswith(("timestamp", "date"))
