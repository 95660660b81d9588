"""The SQL condition for jobs that may be claimed now, made of what the claim itself asks. Pure.

What narrows a claim to one queue, one kind or one worker is left out: a job that another worker may take is ready too.
Rows that a claim takes a second time (a lease that ran out) are left out as well: they are claimed jobs.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from pgqdoctor.observation import ColumnRoles
from pgqdoctor.rows import ColumnRow
from pgqdoctor.sqlfacts import Claim, Condition, TableName
from pgqdoctor.sqlrewrite import quote_ident

NEVER: Final = "'9999-01-01'"
"""Dates from here on stand for "no date" where a claim asks for one special date beside those that are past."""
UTC_NOW: Final = "(now() AT TIME ZONE 'UTC')"
_EPOCH: Final = (
    "extract(epoch FROM now()) * CASE WHEN {0} > 1e14 THEN 1e6 WHEN {0} > 1e11 THEN 1e3 ELSE 1 END"
)
"""Numbers of seconds since 1970 stay below 1e11 until the year 5138, those of milliseconds are above it since 1973."""
_UTC: Final = re.compile(r"'utc'", re.IGNORECASE)
_SERVER_CLOCK: Final = re.compile(r"\bnow\(|current_timestamp|localtimestamp|clock_timestamp", re.IGNORECASE)
_BEFORE: Final = ("<", "<=")
_BOOLEAN: Final = {"is true": "true", "is false": "false"}


def own_conditions(claim: Claim) -> Claim:
    """Return the claim with the conditions on its own table only: a join's other tables have states too."""
    return replace(claim, conditions=tuple(_own(claim.conditions, claim.table)))


def _own(conditions: Iterable[Condition], table: TableName) -> Iterable[Condition]:
    for one in conditions:
        if one.branches:
            branches = tuple(tuple(_own(branch, table)) for branch in one.branches)
            # A branch that only asks another table may let any row through.
            if all(branches):
                yield replace(one, branches=branches)
        elif one.table is None or one.table == table:
            yield one


def in_utc(column: ColumnRow, columns: Iterable[ColumnRow]) -> bool:
    """Tell whether a timestamp without time zone holds UTC.

    Its default tells, else that of another such column; without any the value comes from the application, and the
    frameworks that use such columns without a default (Active Record, Ecto) write UTC.
    """
    if not is_naive(column):
        return False
    for one in (column, *columns):
        if is_naive(one) and one.default_expression is not None:
            if _UTC.search(one.default_expression):
                return True
            if _SERVER_CLOCK.search(one.default_expression):
                return False
    return True


def is_naive(column: ColumnRow) -> bool:
    """Tell whether a column is a timestamp without time zone."""
    return column.type_name.startswith("timestamp") and "without" in column.type_name


@dataclass(frozen=True, slots=True)
class _Part:
    text: str
    timed: bool = False


class _Stale(Exception):
    """A branch that takes claimed jobs again, or asks for the worker's own."""


class Readiness:
    """Writes the condition of one queue. ``columns`` are the table's, ``ready`` the state's values for ready jobs."""

    def __init__(self, roles: ColumnRoles, columns: Mapping[str, ColumnRow], ready: Sequence[str]) -> None:
        self.roles = roles
        self.columns = columns
        self.values = ready

    def condition(self, conditions: Sequence[Condition], *, whole: bool) -> tuple[str | None, str | None]:
        """Return the condition, and the part of it that does not ask the time (None where nothing is left).

        ``whole`` tells that the claim takes whatever row it finds: without a state every row is then ready.
        """
        parts = [*self._state(conditions)]
        for one in conditions:
            if one.column is not None and one.column == self.roles.state:
                continue
            try:
                parts.extend(self._parts(one))
            except _Stale:
                continue
        untimed = [part.text for part in parts if not part.timed]
        timed = [part.text for part in parts if part.timed]
        run_at = self.roles.run_at
        if run_at is not None and not any(quote_ident(run_at) in text for text in timed):
            due = self._due(self.columns[run_at], conditions)
            if due is not None:
                name = quote_ident(run_at)
                timed.append(due if self.columns[run_at].not_null else f"({name} IS NULL OR {due})")
        if not untimed and not (whole and self.roles.state is None and not any(map(_unread, conditions))):
            return None, None
        state = " AND ".join(dict.fromkeys(untimed)) or None
        return " AND ".join(dict.fromkeys([*untimed, *timed])) or "true", state

    def _state(self, conditions: Sequence[Condition]) -> Iterable[_Part]:
        state = self.roles.state
        if state is None:
            return
        name, column = quote_ident(state), self.columns[state]
        own = [one for one in conditions if one.column == state]
        category = column.type_category
        if category == "B":
            value = boolean(own)
            if value is None and self.values:
                value = self.values[0] in ("t", "true")
            yield _Part(f"{name} = {'true' if value is None or value else 'false'}")
        elif any(one.operator == "is null" for one in own):
            yield _Part(f"{name} IS NULL")
        elif self.values and category in ("S", "E", "N", "U"):
            values = ", ".join(_literal(value) for value in self.values)
            yield _Part(f"{name} = {values}" if len(self.values) == 1 else f"{name} IN ({values})")
        elif category == "D" and own:
            yield _Part(f"{name} IS NULL")

    def _parts(self, one: Condition) -> list[_Part]:
        """Return what of a conjunct can be told; empty where it only narrows. Raises _Stale."""
        if one.branches:
            return self._either(one)
        column = self.columns.get(one.column) if one.column is not None else None
        if column is None:
            return []
        name = quote_ident(column.name)
        if one.operator in ("is null", "is not null"):
            return [] if column.name == self.roles.run_at else [_Part(f"{name} {one.operator.upper()}")]
        if one.operator in _BOOLEAN:
            return [_Part(f"{name} = {_BOOLEAN[one.operator]}")]
        if one.operator in ("is not true", "is not false"):
            return [_Part(f"{name} {one.operator.upper()}")]
        if column.type_category == "B":
            value = boolean((one,))
            return [] if value is None else [_Part(f"{name} = {'true' if value else 'false'}")]
        if one.value_kind == "column" and one.operator in ("<", "<=", ">", ">=", "=", "<>"):
            other = one.values[0].rpartition(".")[2].strip('"') if one.values else ""
            return (
                [_Part(f"{name} {one.operator} {quote_ident(other)}")]
                if other in self.columns and other != column.name
                else []
            )
        if one.operator in _BEFORE and (column.type_category == "D" or column.name == self.roles.run_at):
            if column.name in self._held:
                raise _Stale
            due = self._due(column, (one,))
            return [_Part(due, timed=True)] if due is not None else []
        if column.name == self.roles.owner and one.operator == "=":
            raise _Stale
        return []

    @property
    def _held(self) -> frozenset[str | None]:
        """Columns whose age tells that a claimed job was forgotten."""
        roles = self.roles
        return frozenset({roles.lease, roles.heartbeat, roles.claimed_at, roles.finished_at}) - {None}

    def _either(self, one: Condition) -> list[_Part]:
        alternatives: list[tuple[_Part, ...]] = []
        for branch in one.branches:
            parts: list[_Part] = []
            try:
                for part in branch:
                    parts.extend(self._alternative(part))
            except _Stale:
                continue
            if not parts:
                return []
            alternatives.append(tuple(parts))
        if not alternatives:
            raise _Stale
        if len(alternatives) == 1:
            return list(alternatives[0])
        alternatives.sort(key=lambda parts: not parts[0].text.endswith("IS NULL"))
        texts = list(dict.fromkeys(" AND ".join(part.text for part in parts) for parts in alternatives))
        if len(texts) == 1:
            return list(alternatives[0])
        timed = any(part.timed for parts in alternatives for part in parts)
        return [_Part(f"({' OR '.join(texts)})", timed=timed)]

    def _alternative(self, one: Condition) -> list[_Part]:
        """As _parts, for a conjunct of a branch: there a missing date, or one special date, means due at once."""
        column = self.columns.get(one.column) if one.column is not None else None
        if column is not None and column.name == self.roles.run_at:
            name = quote_ident(column.name)
            if one.operator == "is null":
                return [_Part(f"{name} IS NULL", timed=True)]
            if one.operator == "=" and column.type_category == "D" and one.value_kind != "column":
                return [_Part(f"{name} >= {NEVER}", timed=True)]
        if column is not None and column.name == self.roles.state:
            if column.type_category == "D" and one.operator != "is null":
                raise _Stale
            return list(self._state((one,)))
        return self._parts(one)

    def _due(self, column: ColumnRow, conditions: Sequence[Condition]) -> str | None:
        """Return the test that a column's time has come, None where the column holds no time."""
        name = quote_ident(column.name)
        if column.type_category == "D":
            if not column.type_name.startswith(("timestamp", "date")):
                return None
            asked = " ".join(value for one in conditions if one.column == column.name for value in one.values)
            utc = is_naive(column) and (
                bool(_UTC.search(asked))
                or (not _SERVER_CLOCK.search(asked) and in_utc(column, self.columns.values()))
            )
            return f"{name} <= {UTC_NOW if utc else 'now()'}"
        if column.type_category == "N" and any(
            one.column == column.name and one.operator in _BEFORE for one in conditions
        ):
            return f"{name} <= {_EPOCH.format(name)}"
        return None


def _unread(one: Condition) -> bool:
    """Tell whether a conjunct may shut rows out in a way that is not told here: a test of an expression, such as doc ->> 'state'.

    A lock function is true for any row that is free.
    """
    return one.operator == "expression" and one.column is None and "advisory" not in one.text.lower()


def boolean(conditions: Sequence[Condition]) -> bool | None:
    """Return what a boolean column must be, None where the conditions do not show it."""
    for one in conditions:
        if one.operator in ("is true", "is not false") or (
            one.operator == "=" and one.values and one.values[0].lower() in ("t", "true")
        ):
            return True
        if one.operator in ("is false", "is not true") or (
            one.operator == "=" and one.values and one.values[0].lower() in ("f", "false")
        ):
            return False
        if one.operator == "<>" and one.values and one.values[0].lower() in ("f", "false", "t", "true"):
            return one.values[0].lower() in ("f", "false")
    return None


def _literal(value: str) -> str:
    return "'" + value.replace("'", "''") + "'"
