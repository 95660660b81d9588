"""The texts that discovery reads: what was seen of statements and functions, and the tables that they name. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from pgqdoctor.names import Names, columns_used
from pgqdoctor.observation import Catalog
from pgqdoctor.rows import FunctionRow, StatementTextRow
from pgqdoctor.sqlfacts import FunctionBody
from pgqdoctor.sqlfacts import Reading as SqlReading
from pgqdoctor.sqlread import may_concern_queue, read_function, read_sql

_QUERY_ID: Final = re.compile(r"(-?\d+)/")


@dataclass(frozen=True, slots=True, kw_only=True)
class SeenText:
    """One statement text for discovery: its key, the times it was seen and where."""

    key: str
    text: str
    weight: int
    source: str
    rows: int | None = None
    """Rows of the same time, None where they were not counted."""
    cut_at: int | None = None
    """Bytes after which the server cuts such texts: one as long as that may be incomplete though it parses."""

    def read(self) -> SqlReading:
        """Return the facts of the text."""
        return read_sql(self.text, cut_at=self.cut_at) if self.cut_at is not None else read_sql(self.text)


def query_id_of(key: str) -> int | None:
    """Return the query id in the key of a text from pg_stat_statements, None for the key of any other text."""
    found = _QUERY_ID.match(key)
    return int(found[1]) if found is not None else None


def seen_texts(
    texts: Sequence[StatementTextRow],
    calls: Mapping[str, int],
    session_texts: Sequence[str],
    cut_at: int | None = None,
    functions: Sequence[FunctionRow] = (),
) -> tuple[SeenText, ...]:
    """Join the texts of pg_stat_statements and of sessions into what discovery reads.

    What neither writes, nor asks for a LIMIT, nor calls one of ``functions`` says nothing about a queue and is left
    out before it costs parsing. ``cut_at`` is track_activity_query_size in bytes.
    """
    called = {row.name.lower() for row in functions}

    def tells(text: str) -> bool:
        lower = text.lower()
        return may_concern_queue(text) and (
            any(word in lower for word in ("update", "delete", "limit", "lock", "fetch"))
            or any(name in lower for name in called)
        )

    found = [
        SeenText(
            key=row.key, text=row.text, weight=max(calls.get(row.key, 1), 1), source="pg_stat_statements"
        )
        for row in texts
        if row.text is not None and tells(row.text)
    ]
    found.extend(
        SeenText(key=f"text:{position}", text=text, weight=1, source="pg_stat_activity", cut_at=cut_at)
        for position, text in enumerate(session_texts)
        if tells(text)
    )
    return tuple(found)


def body_of(function: FunctionRow) -> FunctionBody:
    """Return the facts of a function's body."""
    return read_function(
        function.name,
        function.language,
        function.body,
        arguments=(function.arguments,) if function.arguments else (),
    )


def tables_named(
    texts: Iterable[SeenText], functions: Iterable[FunctionRow], catalog: Catalog
) -> frozenset[int]:
    """Return the oids of tables that claim-like statements or functions name: their columns are worth
    reading."""
    names = Names(catalog)
    found: set[int] = set()
    for text in texts:
        for statement in text.read().statements:
            if statement.claims or statement.locks:
                for name in columns_used(statement):
                    found |= {names.root(row).oid for row in names.namesakes(name)}
    for function in functions:
        for statement in body_of(function).statements:
            for claim in statement.claims:
                found |= {names.root(row).oid for row in names.namesakes(claim.table)}
    return frozenset(found)
