"""One queue over the window, with everything a check asks derived once: churn, statements, claims, waits,
plan.

Pure: built from an Observation, which already holds the identity of each queue.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Final, TypeVar

from pgqdoctor.features import Feature
from pgqdoctor.names import same_table
from pgqdoctor.observation import (
    Catalog,
    Observation,
    PlanProbe,
    QueueIdentity,
    QueueProbe,
)
from pgqdoctor.plan import Plan, parse_plan
from pgqdoctor.planfacts import ClaimPlanFacts, claim_facts
from pgqdoctor.rows import (
    ColumnRow,
    ForeignKeyRow,
    IndexCounterRow,
    IndexRow,
    SessionRow,
    TableCounterRow,
    TableRow,
    TriggerRow,
)
from pgqdoctor.sqlfacts import Claim, RowLock, TableName, Write
from pgqdoctor.sqlread import read_function
from pgqdoctor.statements import SeenStatement, StatementBook, WaitingSession
from pgqdoctor.vacuuming import trigger_of

_Row = TypeVar("_Row", TableCounterRow, IndexCounterRow)

GENERIC: Final = "generic"
"""PlanProbe.mode of a plan made for any value of the parameters."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Churn:
    """What happened to the queue's rows during the window (all partitions together)."""

    seconds: float
    inserted: int
    updated: int
    hot_updated: int
    newpage_updated: int | None
    deleted: int
    seq_scans: int
    seq_rows_read: int
    index_scans: int
    dead_first: int
    dead_last: int
    live: int

    def per_second(self, count: int) -> float:
        """Return a count of the window as a rate."""
        return count / self.seconds if self.seconds > 0 else 0.0

    @property
    def dead_made(self) -> int:
        """Row versions that updates and deletes left behind."""
        return self.updated + self.deleted

    @property
    def hot_ratio(self) -> float | None:
        """Share of updates that were heap-only, None without updates."""
        return self.hot_updated / self.updated if self.updated else None


@dataclass(frozen=True, slots=True, kw_only=True)
class SeenClaim:
    """One claim statement of the queue."""

    seen: SeenStatement
    claim: Claim


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadPlan:
    """A plan that EXPLAIN gave, read."""

    probe: PlanProbe
    plan: Plan
    facts: ClaimPlanFacts


@dataclass(frozen=True, kw_only=True)
class Queue:
    """A queue over the window. Checks read it; nothing of it is saved."""

    identity: QueueIdentity
    database: str
    table: TableRow
    leaves: tuple[TableRow, ...]
    columns: tuple[ColumnRow, ...]
    indexes: tuple[IndexRow, ...]
    foreign_keys: tuple[ForeignKeyRow, ...]
    triggers: tuple[TriggerRow, ...]
    churn: Churn
    index_churn: tuple[IndexCounterRow, ...]
    """Scans and entries of the window, per index."""
    counters: tuple[TableCounterRow, ...]
    """The last reading of each leaf."""
    statements: tuple[SeenStatement, ...]
    sessions: tuple[WaitingSession, ...]
    sample_count: int
    probe: QueueProbe | None
    plans: tuple[ReadPlan, ...]
    catalog: Catalog

    @property
    def name(self) -> str:
        """The table, quoted as SQL needs it."""
        return self.identity.name

    @property
    def oid(self) -> int:
        """Oid of the table (of the partitioned parent)."""
        return self.identity.oid

    @cached_property
    def oids(self) -> frozenset[int]:
        """Oids of the table and of its leaf partitions."""
        return frozenset({self.oid, *(leaf.oid for leaf in self.leaves)})

    @cached_property
    def claims(self) -> tuple[SeenClaim, ...]:
        """The statements that claim from this queue, the busiest first."""
        found = [
            SeenClaim(seen=one, claim=claim)
            for one in self.statements
            for claim in one.statement.claims
            if self.is_this(claim.table) and one.key not in self.identity.other_keys
        ]
        found.sort(key=lambda one: (-one.seen.calls, -one.seen.samples, -one.seen.all_calls))
        return tuple(found)

    @cached_property
    def function_claims(self) -> tuple[SeenStatement, ...]:
        """The statements that call a function whose body claims from this queue."""
        names = {row.name for row in self.catalog.functions if row.oid in self.identity.functions}
        return tuple(
            one
            for one in self.statements
            if names & {name.rpartition(".")[2] for name in one.statement.functions}
        )

    @cached_property
    def inner_claims(self) -> tuple[SeenClaim, ...]:
        """The claims in the bodies of functions that were called, each under the busiest call's counters.

        ``seen.statement`` is the claim as the body has it, with variables in the place of parameters.
        """
        if not self.function_claims:
            return ()
        call = max(self.function_claims, key=lambda one: (one.calls, one.samples))
        return tuple(
            SeenClaim(seen=replace(call, statement=statement, text=statement.text), claim=claim)
            for row in self.catalog.functions
            if row.oid in self.identity.functions
            for statement in read_function(
                row.name, row.language, row.body, arguments=(row.arguments,) if row.arguments else ()
            ).statements
            for claim in statement.claims
            if self.is_this(claim.table)
        )

    def is_this(self, name: TableName) -> bool:
        """Tell whether a name in a statement of this queue means the queue's table or a partition of it."""
        return any(same_table(name, row.schema, row.name) for row in (self.table, *self.leaves))

    def writes(self, kind: str) -> tuple[tuple[SeenStatement, Write], ...]:
        """Return the INSERT, UPDATE or DELETE writes on this queue with their statements."""
        return tuple(
            (one, write)
            for one in self.statements
            for write in one.statement.writes
            if write.kind == kind and self.is_this(write.table)
        )

    def row_locks(self) -> tuple[tuple[SeenStatement, RowLock], ...]:
        """Return the locking clauses on this queue with their statements."""
        return tuple(
            (one, lock) for one in self.statements for lock in one.statement.locks if self.is_this(lock.table)
        )

    def column(self, name: str) -> ColumnRow | None:
        """Return the column of that name, or None."""
        return next((row for row in self.columns if row.name == name), None)

    def index(self, name: str) -> IndexRow | None:
        """Return the index of that name, or None."""
        return next((row for row in self.indexes if row.name == name), None)

    def index_columns(self, index: IndexRow) -> tuple[str, ...]:
        """Return the names of the plain key columns of an index."""
        by_number = {row.number: row.name for row in self.columns}
        return tuple(by_number[number] for number in index.key_columns if number in by_number)

    @property
    def option(self) -> dict[str, str]:
        """The table's storage options as a mapping; those of its TOAST table begin with "toast."."""
        return dict(one.partition("=")[::2] for one in self.table.options)

    @property
    def fillfactor(self) -> int:
        """The table's fillfactor in percent: the option, or PostgreSQL's default of 100."""
        return int(self.option.get("fillfactor", "100"))

    @property
    def autovacuum_enabled(self) -> bool:
        """False where autovacuum is off for the table or for the server."""
        if (self.catalog.setting("autovacuum") or "on") == "off":
            return False
        return self.option.get("autovacuum_enabled", "true").lower() not in ("false", "off", "no", "0")

    @property
    def rows(self) -> int:
        """Rows by the best cheap estimate: pg_class.reltuples, else the live counter."""
        known = [leaf.rows for leaf in self.leaves if leaf.rows >= 0]
        return int(sum(known)) if known else self.churn.live

    @property
    def vacuum_trigger(self) -> int:
        """Dead rows at which autovacuum visits the table (the largest leaf decides for a partitioned one).

        See pgqdoctor.vacuuming for the formula.
        """
        return max((trigger_of(leaf, self.catalog) for leaf in self.leaves), default=0)

    @property
    def last_autovacuum_s(self) -> float | None:
        """Seconds since autovacuum last finished on any leaf, None for never."""
        ages = [row.last_autovacuum_s for row in self.counters if row.last_autovacuum_s is not None]
        return min(ages, default=None)

    @property
    def last_any_vacuum_s(self) -> float | None:
        """Seconds since any VACUUM last finished on any leaf, None for never."""
        ages = [
            age
            for row in self.counters
            for age in (row.last_autovacuum_s, row.last_vacuum_s)
            if age is not None
        ]
        return min(ages, default=None)

    @property
    def plan(self) -> ReadPlan | None:
        """The plan of the claim, the measured one before the merely planned; never a generic one."""
        custom = [one for one in self.plans if one.probe.mode != GENERIC]
        measured = [one for one in custom if one.plan.analyzed]
        return measured[0] if measured else (custom[0] if custom else None)

    @property
    def generic_plan(self) -> ReadPlan | None:
        """The claim's plan for any value of its parameters, None where it has none or no such plan could be had."""
        return next((one for one in self.plans if one.probe.mode == GENERIC), None)

    def waits(self, *, wait_type: str | None = None) -> Counter[str]:
        """Count samples of sessions at this queue's statements by "type:event"."""
        return Counter(
            f"{one.session.wait_type}:{one.session.wait_event}"
            for one in self.sessions
            if one.session.wait_type is not None and (wait_type is None or one.session.wait_type == wait_type)
        )


def build_queue(seen: Observation, identity: QueueIdentity, book: StatementBook | None = None) -> Queue:
    """Derive everything the checks ask about one queue; several queues of one observation share a book."""
    catalog = seen.catalog
    table = catalog.table(identity.oid)
    if table is None:
        raise ValueError(f"the catalog holds no table of oid {identity.oid}")
    leaves = catalog.partitions_of(identity.oid) or (table,)
    oids = frozenset({identity.oid, *(leaf.oid for leaf in leaves)})
    book = StatementBook(seen) if book is None else book
    probe = seen.probe_of(identity.oid)
    return Queue(
        identity=identity,
        database=seen.server.database,
        table=table,
        leaves=leaves,
        columns=catalog.columns_of(identity.oid),
        indexes=catalog.indexes_of(identity.oid),
        foreign_keys=tuple(row for row in catalog.foreign_keys if row.child in oids or row.parent in oids),
        triggers=tuple(row for row in catalog.triggers if row.table in oids),
        churn=_churn(seen, oids),
        index_churn=_index_churn(seen, {row.oid for row in catalog.indexes if row.table in oids}),
        counters=tuple(row for row in seen.last.tables if row.oid in oids),
        statements=book.of(identity),
        sessions=book.sessions(identity),
        sample_count=len(seen.samples),
        probe=probe,
        plans=_plans(probe, table, leaves),
        catalog=catalog,
    )


def build_queues(seen: Observation) -> tuple[Queue, ...]:
    """Derive every queue of an observation that is certain enough for checks to speak about."""
    book = StatementBook(seen)
    return tuple(build_queue(seen, identity, book) for identity in seen.queues if identity.certain)


def _difference(first: int | None, last: int | None) -> int:
    """Growth of a counter; after a reset the last value itself is what happened since."""
    if last is None:
        return 0
    if first is None or last < first:
        return last if first is not None else 0
    return last - first


def _churn(seen: Observation, oids: frozenset[int]) -> Churn:
    first = {row.oid: row for row in seen.first.tables if row.oid in oids}
    last = [row for row in seen.last.tables if row.oid in oids]

    def grown(field: str) -> int:
        total = 0
        for row in last:
            before = first.get(row.oid)
            total += _difference(getattr(before, field) if before else None, getattr(row, field))
        return total

    return Churn(
        seconds=seen.seconds,
        inserted=grown("inserted"),
        updated=grown("updated"),
        hot_updated=grown("hot_updated"),
        newpage_updated=grown("newpage_updated") if seen.server.has(Feature.NEWPAGE_UPDATES) else None,
        deleted=grown("deleted"),
        seq_scans=grown("seq_scan"),
        seq_rows_read=grown("seq_tup_read"),
        index_scans=grown("idx_scan"),
        dead_first=sum(row.dead for row in first.values()),
        dead_last=sum(row.dead for row in last),
        live=sum(row.live for row in last),
    )


def _index_churn(seen: Observation, oids: set[int]) -> tuple[IndexCounterRow, ...]:
    first = {row.oid: row for row in seen.first.indexes}
    return tuple(
        IndexCounterRow(
            oid=row.oid,
            scans=_difference(first[row.oid].scans if row.oid in first else None, row.scans),
            entries_read=_difference(
                first[row.oid].entries_read if row.oid in first else None, row.entries_read
            ),
            rows_fetched=_difference(
                first[row.oid].rows_fetched if row.oid in first else None, row.rows_fetched
            ),
        )
        for row in seen.last.indexes
        if row.oid in oids
    )


def _plans(probe: QueueProbe | None, table: TableRow, leaves: Sequence[TableRow]) -> tuple[ReadPlan, ...]:
    if probe is None:
        return ()
    found = []
    for one in probe.plans:
        if one.document is None:
            continue
        try:
            plan = parse_plan(one.document)
        except ValueError:
            continue
        facts = claim_facts(
            plan, TableName(schema=table.schema, name=table.name), partitions=[leaf.name for leaf in leaves]
        )
        if facts is not None:
            found.append(ReadPlan(probe=one, plan=plan, facts=facts))
    return tuple(found)


def sessions_of(rows: Iterable[SessionRow], database: str) -> tuple[SessionRow, ...]:
    """Return the sessions of one database."""
    return tuple(row for row in rows if row.database == database)
