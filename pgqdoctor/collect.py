"""Probes to Observation: the only reader of the database.

Order matters. Locks are read first, so that nothing that opens a relation is asked of a table behind an
exclusive lock. Then the catalogs and the statements, from which discovery tells the queues; two readings of
the counters with samples between them; and, after the window, the bounded one-time looks.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any, Final, TypeVar

import msgspec
import psycopg

from pgqdoctor import __version__, probes, rows
from pgqdoctor.bounded import Budget, probe_queue, states_by_index, unseen
from pgqdoctor.connect import Link, Session, connect, in_schema, one_line, quote, survey
from pgqdoctor.discover import (
    LOOKED_FOR,
    SeenText,
    discover,
    seen_texts,
    stateless,
    table_named,
    tables_named,
)
from pgqdoctor.errors import USAGE, PgqdoctorError
from pgqdoctor.frameworks import table_patterns
from pgqdoctor.names import columns_used
from pgqdoctor.observation import (
    Catalog,
    Lack,
    Observation,
    QueueIdentity,
    QueueProbe,
    Reading,
    Sample,
    SampledSession,
)
from pgqdoctor.sqlread import may_concern_queue, read_sql
from pgqdoctor.statements import moving_tables

MAX_CANDIDATES: Final = 300
"""Tables whose columns are read: those named by claims first, then the busiest of queue-like shape."""
MAX_STATEMENTS: Final = 5_000
"""pg_stat_statements keeps 5,000 entries by default; no more are read."""
MAX_READ: Final = 1_500
"""Of these the most called are parsed, about a millisecond each; beyond, only those that lock rows: a claim that
runs less often than 1,500 other statements and takes no lock is no queue's."""
MAX_FUNCTIONS: Final = 500
MAX_TEXTS: Final = 400
"""Distinct texts kept from sessions: without query ids literals would make every execution a new one."""
MULTIXACTS_PER_LOOK: Final = 16
"""MultiXacts looked at once a second: each costs one lookup, beside thousands that the fault itself makes."""
RECONNECT_S: Final = 5.0
"""How long a lost connection is tried again before the report is made of what was seen."""

Row = TypeVar("Row")
Progress = Callable[[float, float], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class ObserveOptions:
    """What to observe, and how long (seconds)."""

    window_seconds: float = 10.0
    interval_seconds: float = 0.1
    queues: tuple[str, ...] = ()
    claim_queries: Mapping[str, str] = field(default_factory=dict)
    explain: str = "select"
    probe_seconds: float = 1.2
    """Time for the bounded looks after the window, all queues together."""


@dataclass(slots=True)
class Texts:
    """Texts seen in sessions, each kept once."""

    places: dict[str, int] = field(default_factory=dict)

    def place(self, text: str | None) -> int:
        if not text:
            return -1
        if text not in self.places:
            if len(self.places) >= MAX_TEXTS:
                return -1
            self.places[text] = len(self.places)
        return self.places[text]


@dataclass(frozen=True, slots=True, kw_only=True)
class Watched:
    """What every reading of this run asks for: oids and statement ids, fixed before the first reading."""

    tables: tuple[int, ...]
    indexes: tuple[int, ...]
    statements: tuple[int, ...]
    numbered: tuple[int, ...] = ()
    """Tables whose sequences are read: the queues, their partitions, and the tables that their jobs refer to."""


def observe(conninfo: str, options: ObserveOptions, progress: Progress | None = None) -> Observation:
    """Observe a server for a window.

    Raises PgqdoctorError where the server cannot be reached or stops answering before the window has begun, and where a queue
    named in the options does not exist. Ctrl-C ends the window early; what was seen until then is returned.
    """
    session = connect(conninfo)
    try:
        return Observer(session, options).run(progress)
    except psycopg.Error as error:
        raise PgqdoctorError(
            f"the observation broke off before anything could be compared: {one_line(error)}",
            hint="Try again; a server that is overloaded, or restarts, may answer the next time.",
        ) from None
    finally:
        session.close()


class Observer:
    """One run over one session: prepare, read, sample, read, look."""

    def __init__(self, session: Session, options: ObserveOptions) -> None:
        self.session = session
        self.options = options
        self.lacks: list[Lack] = []
        self.texts = Texts()
        self.link: Link = survey(session)
        self.lacks.extend(self.link.lacks)
        self.version = self.link.server.version_num
        self._last_multixact: int | None = None
        self._last_multixact_look = 0.0
        self._broken_multixacts = False

    # -- the run -------------------------------------------------------------------------------------

    def run(self, progress: Progress | None = None) -> Observation:
        """Observe one window and return the Observation."""
        catalog, statement_texts, all_texts, watched = self.prepare()
        first = self.reading(watched)
        samples, interrupted = self.sample_window(progress)
        last = self._last_reading(watched, first)
        return self.conclude(
            catalog, statement_texts, all_texts, first, last, samples, interrupted=interrupted
        )

    def prepare(
        self,
    ) -> tuple[Catalog, tuple[rows.StatementTextRow, ...], tuple[SeenText, ...], Watched]:
        """Read catalogs and statement texts and decide what the readings ask for."""
        settings = self._rows(rows.SettingRow, "settings")
        path = set(self.link.search_path)
        seen_names: set[str] = set()
        tables = []
        for row in self._rows(rows.TableRow, "tables", timeout_ms=10_000, required=True):
            tables.append(replace(row, visible=row.schema in path and row.name not in seen_names))
        functions = self._rows(rows.FunctionRow, "functions", {"limit": MAX_FUNCTIONS})
        statement_texts = self._statement_texts()
        self.sample()  # texts of statements running now, for discovery where pg_stat_statements is missing
        bare = Catalog(
            tables=tuple(tables),
            columns=(),
            indexes=(),
            foreign_keys=(),
            triggers=(),
            functions=functions,
            settings=settings,
        )
        all_texts = seen_texts(
            statement_texts, {}, tuple(self.texts.places), bare.activity_text_bytes, functions
        )
        named = tables_named(all_texts, functions, bare)
        forced = {self._forced(name, bare) for name in self.options.queues}
        shaped = [
            int(one["oid"])
            for one in self._records("candidates", {"limit": MAX_CANDIDATES, "signatures": table_patterns()})
        ]
        chosen = tuple(dict.fromkeys([*forced, *sorted(named), *shaped]))[: MAX_CANDIDATES + len(forced)]
        catalog = self._detail(bare, chosen)
        identities = discover(
            catalog, all_texts, forced=self.options.queues, claim_queries=self.options.claim_queries
        )
        catalog = self._with_states(catalog, identities)
        return catalog, statement_texts, all_texts, self.watch(catalog, identities, statement_texts)

    def _with_states(self, catalog: Catalog, identities: tuple[QueueIdentity, ...]) -> Catalog:
        """Look up in their indexes the states of queues whose ready state neither texts nor statistics tell."""
        asked = {one.oid: (one, name) for one in identities if (name := stateless(one, catalog)) is not None}
        locked = self._locked() if asked else frozenset()
        found: dict[tuple[int, str], tuple[str, ...]] = {}
        for oid, (identity, name) in asked.items():
            row = catalog.table(oid)
            family = {oid, *(leaf.oid for leaf in catalog.partitions_of(oid))}
            readable = row is not None and (row.may_select or self.link.server.superuser)
            if row is not None and readable and not row.row_security and not family & locked:
                found[oid, name] = states_by_index(self.session, self.link, identity, name)
        return replace(
            catalog,
            columns=tuple(
                replace(row, seen_values=found[row.table, row.name])
                if (row.table, row.name) in found
                else row
                for row in catalog.columns
            ),
        )

    def watch(
        self,
        catalog: Catalog,
        identities: tuple[QueueIdentity, ...],
        statement_texts: tuple[rows.StatementTextRow, ...],
    ) -> Watched:
        """Return what the readings ask for: the queues, their neighbours by foreign key, TOAST tables and
        statements."""
        tables: list[int] = []
        for oid in dict.fromkeys(column.table for column in catalog.columns):
            tables.extend(leaf.oid for leaf in catalog.partitions_of(oid))
        queues = {leaf.oid for one in identities for leaf in (*catalog.partitions_of(one.oid),)} | {
            one.oid for one in identities
        }
        referred: set[int] = set()
        for key in catalog.foreign_keys:
            if key.child in queues or key.parent in queues:
                tables.extend((key.child, key.parent))
            if key.child in queues:
                referred.add(key.parent)
        tables.extend(row.toast for row in catalog.tables if row.oid in queues and row.toast is not None)
        # A partitioned table has no counters of its own, but statements name it.
        names = {row.name for row in catalog.tables if row.oid in {*tables, *queues}}
        statements = [
            row.query_id
            for row in statement_texts
            if row.query_id is not None and row.text is not None and _worth_counting(row.text, names)
        ]
        return Watched(
            tables=tuple(dict.fromkeys(tables)),
            indexes=tuple(row.oid for row in catalog.indexes),
            statements=tuple(dict.fromkeys(statements)),
            numbered=tuple(sorted(queues | referred)),
        )

    def reading(self, watched: Watched) -> Reading:
        """Take one reading of the counters and of who is doing what."""
        database = self._records("database")[0]
        at = float(database.pop("at"))
        return Reading(
            at=at,
            database=msgspec.convert(database, rows.DatabaseRow, strict=False),
            tables=self._rows(rows.TableCounterRow, "table_counters", {"oids": list(watched.tables)}),
            indexes=self._rows(rows.IndexCounterRow, "index_counters", {"oids": list(watched.indexes)}),
            statements=self._statement_counters(watched.statements),
            slru=self._rows(rows.SlruRow, "slru"),
            sessions=self._rows(rows.SessionRow, "sessions"),
            locks=self._rows(rows.LockRow, "locks", {"oids": list(watched.tables)}),
            prepared=self._rows(rows.PreparedRow, "prepared"),
            slots=self._rows(rows.SlotRow, "slots"),
            standbys=self._rows(rows.StandbyRow, "standbys"),
            vacuums=self._rows(rows.VacuumRow, "vacuums"),
            sequences=self._rows(rows.SequenceRow, "sequences", {"oids": list(watched.numbered)}),
        )

    def sample_window(self, progress: Progress | None) -> tuple[tuple[Sample, ...], bool]:
        """Sample until the window is over; tell whether it was cut short."""
        options = self.options
        samples: list[Sample] = []
        begun = time.monotonic()
        try:
            while (elapsed := time.monotonic() - begun) < options.window_seconds:
                if progress is not None:
                    progress(elapsed, options.window_seconds)
                due = begun + (int(elapsed / options.interval_seconds) + 1) * options.interval_seconds
                try:
                    samples.append(self.sample())
                except psycopg.Error as error:
                    if not self._recover(error):
                        return tuple(samples), True
                time.sleep(max(0.0, min(due, begun + options.window_seconds) - time.monotonic()))
        except KeyboardInterrupt:
            return tuple(samples), True
        if progress is not None:
            progress(options.window_seconds, options.window_seconds)
        return tuple(samples), False

    def conclude(
        self,
        catalog: Catalog,
        statement_texts: tuple[rows.StatementTextRow, ...],
        all_texts: tuple[SeenText, ...],
        first: Reading,
        last: Reading,
        samples: tuple[Sample, ...],
        *,
        interrupted: bool = False,
    ) -> Observation:
        """Tell the queues with what the window showed, look at each once, and make the Observation."""
        identities, texts = self.identify(catalog, all_texts, first, last)
        found = self.look(catalog, identities, texts) if not self.session.closed else ()
        return Observation(
            generated_at=datetime.now(UTC).isoformat(timespec="seconds").replace("+00:00", "Z"),
            tool_version=__version__,
            server=self.link.server,
            catalog=kept_catalog(catalog, identities, first),
            statement_texts=tuple(row for row in statement_texts if row.query_id is not None),
            texts=tuple(self.texts.places),
            first=first,
            last=last,
            samples=samples,
            queues=identities,
            probes=found,
            lacks=tuple(dict.fromkeys((*self.lacks, *self._unread_sequences(catalog, identities, last)))),
            looked_for=LOOKED_FOR,
            interrupted=interrupted,
        )

    def _unread_sequences(
        self, catalog: Catalog, identities: tuple[QueueIdentity, ...], last: Reading
    ) -> tuple[Lack, ...]:
        """Say of which queues the role may not read how far their ids have come."""
        role = quote(self.link.server.role)
        found = []
        for one in identities:
            oids = {one.oid, *(leaf.oid for leaf in catalog.partitions_of(one.oid))}
            for row in last.sequences:
                if row.table in oids and not row.may_read:
                    name = f"{quote(row.schema)}.{quote(row.name)}"
                    found.append(
                        Lack(
                            what="sequences",
                            reason=f"the role may not read sequence {name}",
                            grant=f"GRANT SELECT ON SEQUENCE {name} TO {role}",
                            queue=one.name,
                        )
                    )
        return tuple(found)

    def identify(
        self, catalog: Catalog, all_texts: tuple[SeenText, ...], first: Reading, last: Reading
    ) -> tuple[tuple[QueueIdentity, ...], tuple[SeenText, ...]]:
        """Tell the queues with what moved between two readings; return them and the texts that told them."""
        moving = moving_tables(first, last)
        calls = _calls(first, last)
        texts = (
            *(
                replace(one, weight=max(calls.get(one.key, 0), 1))
                for one in all_texts
                if one.source == "pg_stat_statements"
            ),
            *seen_texts((), {}, tuple(self.texts.places), catalog.activity_text_bytes, catalog.functions),
        )
        identities = discover(
            catalog,
            texts,
            moving=moving,
            counters=last.tables,
            forced=self.options.queues,
            claim_queries=self.options.claim_queries,
        )
        return identities, texts

    # -- parts ----------------------------------------------------------------------------------------

    def look(
        self, catalog: Catalog, identities: tuple[QueueIdentity, ...], texts: tuple[SeenText, ...]
    ) -> tuple[QueueProbe, ...]:
        """Take the bounded looks at each queue."""
        budget = Budget(self.options.probe_seconds)
        return tuple(
            self._look_at(catalog, identity, texts, budget) for identity in identities if identity.certain
        )

    def _look_at(
        self, catalog: Catalog, identity: QueueIdentity, texts: tuple[SeenText, ...], budget: Budget
    ) -> QueueProbe:
        """Look at one queue, once more over a new connection where the old one is lost meanwhile."""

        def look() -> QueueProbe:
            return probe_queue(
                self.session,
                self.link,
                catalog,
                identity,
                texts,
                explain=self.options.explain,
                locked=self._locked(),
                budget=budget,
            )

        try:
            found = look()
        except psycopg.Error as error:
            if not self._recover(error):
                return unseen(identity, "the connection was lost")
        else:
            if not self.session.closed:
                return found
            if not self._recover(psycopg.OperationalError("the server closed it during the looks")):
                return found
        try:
            return look()
        except psycopg.Error as error:
            return unseen(identity, one_line(error))

    def _last_reading(self, watched: Watched, first: Reading) -> Reading:
        try:
            return self.reading(watched)
        except psycopg.Error as error:
            if self._recover(error):
                try:
                    return self.reading(watched)
                except psycopg.Error as again:
                    error = again
            self.lacks.append(
                Lack(
                    what="counters",
                    reason=f"the connection was lost before the second reading: {one_line(error)}",
                )
            )
            return first

    def _forced(self, name: str, catalog: Catalog) -> int:
        row = table_named(name, catalog)
        if row is None:
            near = sorted(
                f"{one.schema}.{one.name}" for one in catalog.tables if name.rpartition(".")[2] in one.name
            )[:5]
            raise PgqdoctorError(
                f"there is no table {name} in database {self.link.server.database}",
                hint=f"Did you mean {', '.join(near)}?" if near else "Give it as SCHEMA.TABLE.",
                exit_code=USAGE,
            )
        return row.oid

    def _locked(self) -> frozenset[int]:
        return frozenset(int(one["oid"]) for one in self._records("exclusive_locks"))

    def _detail(self, bare: Catalog, chosen: tuple[int, ...]) -> Catalog:
        """Read columns, indexes, keys and triggers of the chosen tables and of their partitions."""
        leaves = {leaf.oid for oid in chosen for leaf in bare.partitions_of(oid)}
        oids = list(dict.fromkeys([*chosen, *sorted(leaves)]))
        locked = self._locked()
        for oid in locked & set(oids):
            row = bare.table(oid)
            self.lacks.append(
                Lack(
                    what="definition",
                    reason=f"{row.schema}.{row.name} is behind an exclusive lock: what would open it was not asked"
                    if row is not None
                    else "a table is behind an exclusive lock",
                )
            )
        return replace(
            bare,
            columns=self._expressions(rows.ColumnRow, "columns", list(chosen), locked),
            indexes=self._expressions(rows.IndexRow, "indexes", oids, locked),
            foreign_keys=self._rows(rows.ForeignKeyRow, "foreign_keys", {"oids": oids}),
            triggers=self._rows(rows.TriggerRow, "triggers", {"oids": oids}),
        )

    def _expressions(
        self, row: type[Row], name: str, oids: list[int], locked: frozenset[int]
    ) -> tuple[Row, ...]:
        """Run a probe that deparses expressions, which opens their tables: those behind a lock are left out."""
        parameters = {"oids": oids, "locked": list(locked & set(oids))}
        try:
            return self._rows(row, name, parameters, required=True)
        except psycopg.errors.LockNotAvailable:
            # Somebody took an exclusive lock between the two statements: do without the expressions.
            return self._rows(row, name, {"oids": oids, "locked": oids})

    def _statement_texts(self) -> tuple[rows.StatementTextRow, ...]:
        server = self.link.server
        extension = server.extension("pg_stat_statements")
        if server.statements != "ready" or extension is None:
            return ()
        try:
            sql = probes.load_for_extension("statement_texts", extension.version)
            found = self.session.rows(
                rows.StatementTextRow, in_schema(sql, extension.schema), {"limit": MAX_STATEMENTS}
            )
            return tuple(row for rank, row in enumerate(found) if _worth_reading(row.text, rank))
        except (psycopg.Error, ValueError) as error:
            if self.session.closed:
                raise
            self.lacks.append(
                Lack(what="statements", reason=f"pg_stat_statements was not read: {one_line(error)}")
            )
            return ()

    def _statement_counters(self, ids: tuple[int, ...]) -> tuple[rows.StatementCounterRow, ...]:
        extension = self.link.server.extension("pg_stat_statements")
        if not ids or extension is None:
            return ()
        sql = probes.load_for_extension("statement_counters", extension.version)
        try:
            return self.session.rows(
                rows.StatementCounterRow, in_schema(sql, extension.schema), {"ids": list(ids)}
            )
        except psycopg.Error as error:
            if self.session.closed:
                raise
            self.lacks.append(
                Lack(what="statements", reason=f"statement counters were not read: {one_line(error)}")
            )
            return ()

    def sample(self) -> Sample:
        """Look once at who is busy; about once a second at new MultiXacts too."""
        found = self.session.records(probes.load("samples", self.version))
        at = float(found[0]["at"]) if found else time.time()
        sessions = tuple(
            SampledSession(
                pid=one["pid"],
                state=one["state"],
                wait_type=one["wait_type"],
                wait_event=one["wait_event"],
                xid_age=one["xid_age"],
                xmin_age=one["xmin_age"],
                xact_age_s=one["xact_age_s"],
                query_age_s=one["query_age_s"],
                state_age_s=one["state_age_s"],
                text=self.texts.place(one["query"]),
                query_id=one["query_id"],
                vacuuming=one["vacuuming"],
                application=one["application"],
            )
            for one in found
        )
        multixacts, following = self._multixacts()
        return Sample(at=at, sessions=sessions, multixacts=multixacts, next_multixact=following)

    def _multixacts(self) -> tuple[tuple[rows.MultixactRow, ...], int | None]:
        """Look, about once a second, at some of the MultiXacts made since the last look."""
        now = time.monotonic()
        if now - self._last_multixact_look < 1.0 or self._broken_multixacts:
            return (), None
        self._last_multixact_look = now
        found = self.session.records(
            "SELECT datminmxid::text::bigint + mxid_age(datminmxid) AS following "
            "FROM pg_database WHERE datname = current_database()"
        )
        following = int(found[0]["following"])
        before, self._last_multixact = self._last_multixact, following
        # The newest ids may not be written yet: reading one of them would wait for its maker.
        last = following - 2
        if before is None or last <= before:
            return (), following
        # Half of them spread over the second, half the newest: those have makers that still run and tell their database.
        half = MULTIXACTS_PER_LOOK // 2
        step = max(1, (last - before) // half)
        ids = sorted({*range(before, last + 1, step)[:half], *range(max(before, last - half + 1), last + 1)})
        try:
            made = self.session.rows(
                rows.MultixactRow,
                probes.load("multixacts", self.version),
                {"ids": ids},
                statement_timeout_ms=500,
            )
        except psycopg.errors.QueryCanceled:
            self._broken_multixacts = True
            return (), following
        except psycopg.Error:
            if self.session.closed:
                raise
            return (), following
        return made, following

    def _recover(self, error: psycopg.Error) -> bool:
        """Reconnect after a lost connection; a refused statement needs nothing but a note."""
        if not self.session.closed:
            self.lacks.append(Lack(what="samples", reason=f"a sample was not taken: {one_line(error)}"))
            return True
        self.lacks.append(Lack(what="connection", reason=f"the connection was lost: {one_line(error)}"))
        until = time.monotonic() + RECONNECT_S
        while time.monotonic() < until:
            try:
                self.session = connect(self.session.conninfo, timeout_s=2)
            except PgqdoctorError:
                time.sleep(0.25)
                continue
            return True
        return False

    def _rows(
        self,
        row: type[Row],
        name: str,
        parameters: Mapping[str, object] | None = None,
        *,
        timeout_ms: int = 3_000,
        required: bool = False,
    ) -> tuple[Row, ...]:
        """Run a probe; one that the server refuses becomes a lack, and the rest of the report stands."""
        try:
            return self.session.rows(
                row, probes.load(name, self.version), parameters, statement_timeout_ms=timeout_ms
            )
        except psycopg.Error as error:
            if self.session.closed or required:
                raise
            self.lacks.append(Lack(what=name, reason=f"{name} were not read: {one_line(error)}"))
            return ()

    def _records(self, name: str, parameters: Mapping[str, object] | None = None) -> list[dict[str, Any]]:
        return self.session.records(probes.load(name, self.version), parameters)


def _worth_reading(text: str | None, rank: int) -> bool:
    """Tell whether a statement is worth its parsing; ``rank`` is its place by calls."""
    if text is None:
        return True
    if not may_concern_queue(text):
        return False
    lower = text.lower()
    return rank < MAX_READ or "locked" in lower or "for update" in lower or "savepoint" in lower


def _worth_counting(text: str, names: set[str]) -> bool:
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


def _calls(first: Reading, last: Reading) -> dict[str, int]:
    before = {row.key: row.calls for row in first.statements}
    return {row.key: row.calls - before.get(row.key, 0) for row in last.statements}


def kept_catalog(catalog: Catalog, identities: tuple[QueueIdentity, ...], first: Reading) -> Catalog:
    """Keep what the observation needs: the queues, their partitions and their neighbours."""
    oids = {one.oid for one in identities}
    oids |= {leaf.oid for oid in tuple(oids) for leaf in catalog.partitions_of(oid)}
    keys = tuple(key for key in catalog.foreign_keys if key.child in oids or key.parent in oids)
    near = oids | {key.child for key in keys} | {key.parent for key in keys}
    functions = {oid for one in identities for oid in one.functions} | {
        row.function_oid for row in catalog.triggers if row.table in oids
    }
    counted = {row.oid for row in first.tables}
    by_oid = {row.oid: row for row in catalog.tables}
    above: set[int] = set()
    for oid in near:
        parent = by_oid[oid].parent if oid in by_oid else None
        while parent is not None and parent not in above:
            above.add(parent)
            parent = by_oid[parent].parent if parent in by_oid else None
    middle = {row.oid for row in catalog.tables if row.kind == "p" and row.parent in (near | above)}
    # Namesakes stay: without them a recording could not tell which table a name meant.
    names = {row.name for row in catalog.tables if row.oid in oids}
    # What vacuum is busy with is named, though it be no queue.
    vacuumed = {row.relation for row in first.vacuums if row.relation is not None}
    kept = near | above | middle | vacuumed
    return replace(
        catalog,
        tables=tuple(row for row in catalog.tables if row.oid in kept or row.name in names),
        columns=tuple(
            row
            for row in catalog.columns
            if row.table in kept or (row.table in counted and by_oid[row.table].name in names)
        ),
        indexes=tuple(row for row in catalog.indexes if row.table in kept),
        foreign_keys=keys,
        triggers=tuple(row for row in catalog.triggers if row.table in oids),
        functions=tuple(row for row in catalog.functions if row.oid in functions or _writes_any(row, names)),
    )


def _writes_any(function: rows.FunctionRow, names: set[str]) -> bool:
    return any(name in function.body for name in names)
