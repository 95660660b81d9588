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
from pgqdoctor.bounded import QUERY_ID, Budget, probe_queue, states_by_index, unseen
from pgqdoctor.connect import PATIENCE_S, Link, Session, connect, in_schema, one_line, quote, survey
from pgqdoctor.discover import (
    LOOKED_FOR,
    SeenText,
    claimed_pattern,
    column_pattern,
    discover,
    queue_named,
    seen_texts,
    stateless,
    tables_named,
)
from pgqdoctor.errors import USAGE, PgqdoctorError
from pgqdoctor.frameworks import table_patterns
from pgqdoctor.given import claim_table_fault, near, relation_fault
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
from pgqdoctor.statementgaps import statement_gaps
from pgqdoctor.statements import moving_tables

MAX_CANDIDATES: Final = 300
"""Tables whose columns are read: those named by claims first, then the busiest of queue-like shape."""
MAX_LOOKED_AT: Final = 1_000
"""Of tables that neither name nor partial index speaks for, the most written whose columns are looked at: some 30 ms of the
server's time, however many there are. One that is written less than a thousand others is found by its claim."""
TELLING_COLUMN: Final = "stat(e|us)|attempt|locked|lease|claimed|picked|run_?at|scheduled|heartbeat|visible"
"""Part of a column's name without which nothing but a claim makes a table a candidate."""
MAX_STATEMENTS: Final = 5_000
"""pg_stat_statements keeps 5,000 entries by default; no more are read."""
MAX_READ: Final = 1_500
"""Of these the most called are parsed, about a millisecond each; beyond, only those that lock rows: a claim that
runs less often than 1,500 other statements and takes no lock is no queue's."""
MAX_FUNCTIONS: Final = 500
MAX_TEXTS: Final = 400
"""Distinct texts kept from sessions: without query ids literals would make every execution a new one."""
MAX_SENT: Final = 50
"""Statements kept as sessions sent them, with their constants: a queue has a handful of claims, each for a few states."""
MULTIXACTS_PER_LOOK: Final = 16
"""MultiXacts looked at once a second: each costs one lookup, beside thousands that the fault itself makes."""
BEGINNINGS: Final = 3
"""Times that a run begins whose connection is lost before its first reading: nothing is lost by beginning anew, and a third
loss in a row is no accident."""

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
    session = connect(conninfo, patience_s=PATIENCE_S)
    lost: tuple[Lack, ...] = ()
    for left in reversed(range(BEGINNINGS)):
        try:
            return _observed(session, options, progress, lost)
        except psycopg.Error as error:
            if not session.closed or not left:
                raise PgqdoctorError(
                    f"the observation broke off before anything could be compared: {one_line(error)}",
                    hint="Try again; a server that is overloaded, or restarts, may answer the next time.",
                ) from None
            reason = (
                f"the connection was lost before the first reading, and the run begun anew: {one_line(error)}"
            )
            lost = (*lost, Lack(what="connection", reason=reason))
        finally:
            session.close()
        session = connect(conninfo, patience_s=PATIENCE_S, dropped=True)
    raise AssertionError("the last beginning returns or raises")


def _observed(
    session: Session, options: ObserveOptions, progress: Progress | None, lost: tuple[Lack, ...]
) -> Observation:
    observer = Observer(session, options)
    observer.lacks.extend(lost)
    try:
        return observer.run(progress)
    finally:
        observer.session.close()


class Observer:
    """One run over one session: prepare, read, sample, read, look."""

    def __init__(self, session: Session, options: ObserveOptions) -> None:
        self.session = session
        self.options = options
        self.lacks: list[Lack] = []
        self.texts = Texts()
        self.sent: dict[str, None] = {}
        self.link: Link = survey(session)
        self.lacks.extend(self.link.lacks)
        self.version = self.link.server.version_num
        self._last_multixact: int | None = None
        self._last_multixact_look = 0.0
        self._broken_multixacts = False
        self._info_before: rows.StatementsInfoRow | None = None
        self._clock = time.time() - time.monotonic()
        """The server's clock, seconds since the epoch, at this machine's monotonic zero."""

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
        self._info_before = self._statements_info()
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
        shaped = [int(one["oid"]) for one in self._records("candidates", shape_parameters())]
        chosen = tuple(dict.fromkeys([*forced, *sorted(named), *shaped]))[: MAX_CANDIDATES + len(forced)]
        catalog = self._detail(bare, chosen)
        identities = discover(
            catalog,
            all_texts,
            forced=self.options.queues,
            claim_queries=self.options.claim_queries,
            sent=self._sent(all_texts),
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
        self._clock = at - time.monotonic()
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
                    if not self._recover(error, begun + options.window_seconds - time.monotonic()):
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
            lacks=tuple(
                dict.fromkeys(
                    (
                        *self.lacks,
                        *self._unread_sequences(catalog, identities, last),
                        *self.statement_gaps(catalog, identities),
                    )
                )
            ),
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
        calls, found = _grown(first, last, "calls"), _grown(first, last, "rows")
        texts = (
            *(
                replace(one, weight=max(calls.get(one.key, 0), 1), rows=found.get(one.key))
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
            sent=self._sent(all_texts),
        )
        return identities, texts

    def _sent(self, texts: tuple[SeenText, ...]) -> tuple[str, ...]:
        """The claim-shaped statements as sessions sent them last: idle ones still show the constants that normalised texts lost."""
        ids = {
            int(one.key.split("/")[0])
            for one in texts
            if one.source == "pg_stat_statements"
            and QUERY_ID.match(one.key)
            and any(statement.claims for statement in one.read().statements)
        }
        if ids and not self.session.closed:
            try:
                found = self._records("sent_texts", {"ids": sorted(ids), "limit": MAX_SENT})
            except psycopg.Error as error:
                self._recover(error)
            else:
                self.sent.update((str(one["query"]), None) for one in found)
        self.sent = dict.fromkeys(tuple(self.sent)[-MAX_SENT:])
        return tuple(self.sent)

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
        row = queue_named(name, catalog)
        if row is None:
            found = self._records("relations", {"name": name})
            fault = relation_fault(found[0]) if found else None
            close = near(name, catalog.tables)
            raise PgqdoctorError(
                fault.message
                if fault is not None
                else f"there is no table {name} in database {self.link.server.database}",
                hint=fault.hint
                if fault is not None
                else f"Did you mean {', '.join(close)}?"
                if close
                else "Give it as SCHEMA.TABLE.",
                exit_code=USAGE,
            )
        text = self.options.claim_queries.get(name)
        wrong = claim_table_fault(text, row, catalog) if text is not None else None
        if wrong is not None:
            raise PgqdoctorError(
                f"the claim query given for {name} {wrong.message}", hint=wrong.hint, exit_code=USAGE
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
            self.lacks.append(self._unread_texts(error))
            return ()

    def _unread_texts(self, error: psycopg.Error | ValueError) -> Lack:
        """Say why the statement texts were not read and what would let them be."""
        reason = f"pg_stat_statements was not read: {one_line(error)}"
        if not isinstance(
            error, psycopg.errors.CharacterNotInRepertoire | psycopg.errors.UntranslatableCharacter
        ):
            return Lack(what="statements", reason=reason)
        # One text makes the whole view fail, in every database whose encoding it does not fit.
        others = self._other_encodings()
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

    def _other_encodings(self) -> list[tuple[str, int]]:
        """The databases with statements in another encoding than this one's: name and oid."""
        extension = self.link.server.extension("pg_stat_statements")
        if extension is None:
            return []
        query = (
            "SELECT d.datname::text AS name, d.oid::bigint AS oid FROM pg_database d "
            "WHERE d.encoding <> (SELECT encoding FROM pg_database WHERE datname = current_database()) "
            "AND d.oid IN (SELECT s.dbid FROM {schema}.pg_stat_statements(false) s) ORDER BY d.encoding <> 0, d.datname"
        )
        try:
            found = self.session.records(in_schema(query, extension.schema))
        except psycopg.Error:
            if self.session.closed:
                raise
            return []
        return [(one["name"], int(one["oid"])) for one in found]

    def _statements_info(self) -> rows.StatementsInfoRow | None:
        """How pg_stat_statements counts, None where that cannot be read."""
        server = self.link.server
        extension = server.extension("pg_stat_statements")
        if server.statements != "ready" or extension is None or self.session.closed:
            return None
        try:
            sql = probes.load_for_extension("statements_info", extension.version)
            return next(
                iter(self.session.rows(rows.StatementsInfoRow, in_schema(sql, extension.schema))), None
            )
        except (psycopg.Error, ValueError):
            # Its counters are a lack already where it went away, and this only adds to them.
            return None

    def statement_gaps(self, catalog: Catalog, identities: tuple[QueueIdentity, ...]) -> tuple[Lack, ...]:
        """Say what pg_stat_statements may be missing, as it stands now."""
        return statement_gaps(self._statements_info(), self._info_before, catalog, identities)

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
        if found:
            self._clock = float(found[0]["at"]) - time.monotonic()
        # Where nobody is busy no row tells the time; the client's own clock may be hours off the server's.
        at = float(found[0]["at"]) if found else time.monotonic() + self._clock
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

    def _recover(self, error: psycopg.Error, left_s: float = 0.0) -> bool:
        """Reconnect after a lost connection; a refused statement needs nothing but a note.

        What is left of the window, ``left_s``, may be waited for in any case.
        """
        if not self.session.closed:
            self.lacks.append(Lack(what="samples", reason=f"a sample was not taken: {one_line(error)}"))
            return True
        self.lacks.append(Lack(what="connection", reason=f"the connection was lost: {one_line(error)}"))
        try:
            self.session = connect(
                self.session.conninfo, timeout_s=2, patience_s=max(PATIENCE_S, left_s), dropped=True
            )
        except PgqdoctorError:
            return False
        return True

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


def shape_parameters() -> dict[str, object]:
    """Return what the probe of candidates asks for."""
    return {
        "limit": MAX_CANDIDATES,
        "looked_at": MAX_LOOKED_AT,
        "signatures": "|".join(table_patterns()),
        "telling": TELLING_COLUMN,
        "columns": column_pattern(),
        "claimed": claimed_pattern(),
    }


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


def _grown(first: Reading, last: Reading, counter: str) -> dict[str, int]:
    """Return by how much a counter of each statement grew between two readings."""
    before = {row.key: getattr(row, counter) for row in first.statements}
    return {row.key: getattr(row, counter) - before.get(row.key, 0) for row in last.statements}


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
