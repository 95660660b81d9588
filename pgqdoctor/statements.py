"""Which statement concerns which queue, with its counters over the window and the sessions caught at it. Pure.

pg_stat_statements shows parameters where sessions show literals: the query id joins the two, and without one the
fingerprint of the parsed text does.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

from pgqdoctor.names import Names, columns_used
from pgqdoctor.observation import Observation, QueueIdentity, Reading, SampledSession
from pgqdoctor.rows import StatementCounterRow
from pgqdoctor.sampled import sampled
from pgqdoctor.sqlfacts import Statement
from pgqdoctor.sqlread import may_concern_queue, read_sql, text_fingerprint


@dataclass(frozen=True, slots=True, kw_only=True)
class SeenStatement:
    """One statement that concerns the queue, with its counters over the window.

    ``calls``, ``rows`` and ``total_ms`` are those of the window (0 for one seen in sessions only); the
    ``all_`` ones since the entry was made. ``samples`` counts how often a session was caught with it.
    """

    key: str
    text: str
    source: str
    statement: Statement
    calls: int
    rows: int
    total_ms: float
    blocks: int
    all_calls: int
    all_rows: int
    all_total_ms: float
    temp_blocks: int
    samples: int
    query_id: int | None
    wal_bytes: int | None = None
    """WAL written in the window, None where pg_stat_statements does not count it."""
    wal_page_images: int | None = None

    @property
    def seen(self) -> bool:
        """True where it ran during the window."""
        return self.calls > 0 or self.samples > 0

    @property
    def turns(self) -> int:
        """Executions, each row of one that returned or changed several counting for itself: what a claim of many jobs is shared by."""
        return max(self.calls, self.rows)


class WaitingSession(NamedTuple):
    """One sampled session that was at a statement of the queue; a tuple, as there may be tens of thousands in a window."""

    at: float
    session: SampledSession
    statement: Statement | None


def moving_tables(first: Reading, last: Reading) -> frozenset[int]:
    """Return the oids of tables whose rows changed between two readings."""
    before = {row.oid: row.inserted + row.updated + row.deleted for row in first.tables}
    return frozenset(
        row.oid for row in last.tables if row.inserted + row.updated + row.deleted != before.get(row.oid, 0)
    )


class StatementBook:
    """Every statement of an observation, parsed once and filed by the tables it names and the functions it calls."""

    def __init__(self, seen: Observation) -> None:
        self._seen = seen
        self._names = Names(seen.catalog, moving_tables(seen.first, seen.last))
        self._by_table: dict[int, list[SeenStatement]] = defaultdict(list)
        self._by_function: dict[str, list[SeenStatement]] = defaultdict(list)
        self._statement_of_id: dict[int, Statement] = {}
        self._statement_of_text: dict[int, Statement] = {}
        self._functions = {row.oid: row.name for row in seen.catalog.functions}
        sampled_ids: Counter[int | None] = Counter(
            session.query_id
            for sample in seen.samples
            for session in sample.sessions
            if session.query_id is not None
        )
        names = {row.name for row in seen.catalog.tables} | set(self._functions.values())
        written = {name.replace('"', '""') for name in names} | names
        self._mentions = re.compile("|".join(map(re.escape, sorted(written))) or r"(?!)", re.IGNORECASE)
        known = self._read_entries(sampled_ids)
        self._read_sampled(known)

    def of(self, identity: QueueIdentity) -> tuple[SeenStatement, ...]:
        """Return the statements that concern a queue, the busiest first.

        One text run by several roles is one statement.
        """
        names = {self._functions[oid] for oid in identity.functions if oid in self._functions}
        found: dict[str, SeenStatement] = {}
        for one in (
            *self._by_table[identity.oid],
            *(one for name in names for one in self._by_function[name]),
        ):
            other = found.get(one.text)
            if other is None:
                found[one.text] = one
            elif other.key != one.key:
                found[one.text] = _added(other, one)
        return tuple(
            sorted(found.values(), key=lambda one: (-one.calls, -one.samples, -one.all_calls, one.text))
        )

    def sessions(self, identity: QueueIdentity) -> tuple[WaitingSession, ...]:
        """Return the sampled sessions whose statement concerns a queue."""
        mine = self.of(identity)
        ids = {one.query_id for one in mine if one.query_id is not None}
        statements = {id(one.statement) for one in mine}
        found = [
            one
            for (query_id, statement), places in self._waiting.items()
            if query_id in ids or statement in statements
            for one in places
        ]
        return tuple(session for _, session in sorted(found, key=lambda one: one[0]))

    @cached_property
    def _waiting(self) -> dict[tuple[int | None, int], list[tuple[int, WaitingSession]]]:
        """The sampled sessions by query id and statement, each with its place: hundreds of them ask for one pass only."""
        found: dict[tuple[int | None, int], list[tuple[int, WaitingSession]]] = defaultdict(list)
        place = 0
        for sample in self._seen.samples:
            for session in sample.sessions:
                statement = self._statement_at(session)
                if statement is not None:
                    place += 1
                    found[session.query_id, id(statement)].append(
                        (place, WaitingSession(at=sample.at, session=session, statement=statement))
                    )
        return found

    def _statement_at(self, session: SampledSession) -> Statement | None:
        if session.query_id is not None and session.query_id in self._statement_of_id:
            return self._statement_of_id[session.query_id]
        return self._statement_of_text.get(session.text)

    def _file(self, one: SeenStatement) -> None:
        roots = {
            self._names.root(row).oid
            for name, columns in columns_used(one.statement).items()
            for row in self._names.resolve(name, columns)
        }
        for oid in roots:
            self._by_table[oid].append(one)
        for name in {name.rpartition(".")[2] for name in one.statement.functions}:
            self._by_function[name].append(one)

    def _worth_parsing(self, text: str) -> bool:
        """Tell whether a text names a table or function of the catalog: parsing costs a thousand times more."""
        return self._mentions.search(text) is not None and may_concern_queue(text)

    def _read_entries(self, sampled_ids: Counter[int | None]) -> set[int]:
        """File the entries of pg_stat_statements; return their query ids."""
        seen = self._seen
        first = {row.key: row for row in seen.first.statements}
        last = {row.key: row for row in seen.last.statements}
        known: set[int] = set()
        shown = self._shown_claims()
        for row in seen.statement_texts:
            if row.text is None or not self._worth_parsing(row.text):
                continue
            if row.query_id is not None:
                known.add(row.query_id)
            for statement in read_sql(row.text).statements:
                if row.query_id is not None and not statement.claims:
                    # That UPDATE ... SET state = $1 WHERE state = $2 takes jobs only its constants can say.
                    statement = shown.get(row.query_id, statement)
                if row.query_id is not None:
                    self._statement_of_id.setdefault(row.query_id, statement)
                self._file(
                    _counted(
                        row.key,
                        row.text,
                        statement,
                        first.get(row.key),
                        last.get(row.key),
                        sampled_ids[row.query_id] if row.query_id is not None else 0,
                        row.query_id,
                    )
                )
        return known

    def _shown_claims(self) -> dict[int, Statement]:
        """Return the claims that sessions showed with their constants, by query id."""
        seen = self._seen
        texts = {
            (query_id, seen.texts[place])
            for query_id, places in sampled(seen).texts_of_query.items()
            for place in places
        } | {
            (row.query_id, row.query)
            for reading in (seen.first, seen.last)
            for row in reading.sessions
            if row.query_id is not None and row.query
        }
        found: dict[int, Statement] = {}
        for query_id, text in sorted(texts):
            if not self._worth_parsing(text):
                continue
            statements = read_sql(text, cut_at=seen.catalog.activity_text_bytes).statements
            if len(statements) == 1 and statements[0].claims:
                found.setdefault(query_id, statements[0])
        return found

    def _read_sampled(self, known: set[int]) -> None:
        """File the statements that only sessions showed, executions with other literals together."""
        seen = self._seen
        counts: Counter[int] = Counter(
            session.text
            for sample in seen.samples
            for session in sample.sessions
            if session.text >= 0 and session.query_id not in known
        )
        groups: dict[str, list[int]] = defaultdict(list)
        for position in counts:
            if self._worth_parsing(seen.texts[position]):
                groups[text_fingerprint(seen.texts[position])].append(position)
        for positions in groups.values():
            text = seen.texts[positions[0]]
            for statement in read_sql(text, cut_at=seen.catalog.activity_text_bytes).statements:
                for position in positions:
                    self._statement_of_text.setdefault(position, statement)
                self._file(
                    _counted(
                        f"text:{positions[0]}",
                        text,
                        statement,
                        None,
                        None,
                        sum(counts[position] for position in positions),
                        None,
                    )
                )


def _counted(
    key: str,
    text: str,
    statement: Statement,
    before: StatementCounterRow | None,
    after: StatementCounterRow | None,
    samples: int,
    query_id: int | None,
) -> SeenStatement:
    # An entry that appeared during the window counts from zero.
    zero = StatementCounterRow(
        key=key,
        calls=0,
        rows=0,
        total_ms=0.0,
        blocks_hit=0,
        blocks_read=0,
        blocks_dirtied=0,
        temp_blocks_written=0,
    )
    old, new = before or zero, after or zero
    if new.calls < old.calls:
        old = zero
    return SeenStatement(
        key=key,
        text=text,
        source="pg_stat_activity" if key.startswith("text:") else "pg_stat_statements",
        statement=statement,
        calls=new.calls - old.calls,
        rows=new.rows - old.rows,
        total_ms=new.total_ms - old.total_ms,
        blocks=new.blocks_hit + new.blocks_read - old.blocks_hit - old.blocks_read,
        all_calls=new.calls,
        all_rows=new.rows,
        all_total_ms=new.total_ms,
        temp_blocks=new.temp_blocks_written - old.temp_blocks_written,
        samples=samples,
        query_id=query_id,
        wal_bytes=None if new.wal_bytes is None else new.wal_bytes - (old.wal_bytes or 0),
        wal_page_images=None
        if new.wal_page_images is None
        else new.wal_page_images - (old.wal_page_images or 0),
    )


def _added(one: SeenStatement, other: SeenStatement) -> SeenStatement:
    return SeenStatement(
        key=one.key,
        text=one.text,
        source=one.source,
        statement=one.statement,
        calls=one.calls + other.calls,
        rows=one.rows + other.rows,
        total_ms=one.total_ms + other.total_ms,
        blocks=one.blocks + other.blocks,
        all_calls=one.all_calls + other.all_calls,
        all_rows=one.all_rows + other.all_rows,
        all_total_ms=one.all_total_ms + other.all_total_ms,
        temp_blocks=one.temp_blocks + other.temp_blocks,
        samples=max(one.samples, other.samples),
        query_id=one.query_id,
        wal_bytes=_sum_known((one, one.wal_bytes), (other, other.wal_bytes)),
        wal_page_images=_sum_known((one, one.wal_page_images), (other, other.wal_page_images)),
    )


def _sum_known(*counted: tuple[SeenStatement, int | None]) -> int | None:
    """Add a counter up; an entry that did not run in the window need not have it."""
    known = [value for _, value in counted if value is not None]
    return sum(known) if known and all(value is not None or not one.calls for one, value in counted) else None
