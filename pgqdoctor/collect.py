"""Probes to Observation: the only reader of the database, with its sources in pgqdoctor.collecting.

Order matters. Locks are read first, so that nothing that opens a relation is asked of a table behind an
exclusive lock. Then the catalogs and the statements, from which discovery tells the queues; two readings of
the counters with samples between them; and, after the window, the bounded one-time looks.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Final

import psycopg

from pgqdoctor import __version__
from pgqdoctor.bounded import probe_queue, unseen
from pgqdoctor.collecting.catalogs import bare_catalog, candidates, detailed, table_given, with_states
from pgqdoctor.collecting.kept import kept_catalog
from pgqdoctor.collecting.prober import Prober
from pgqdoctor.collecting.readings import Watched, take_reading, to_watch, unread_sequences
from pgqdoctor.collecting.sampling import Sampler
from pgqdoctor.collecting.statements import read_info, read_texts
from pgqdoctor.collecting.texts import SentTexts, Texts
from pgqdoctor.connect import PATIENCE_S, Link, Session, connect, one_line
from pgqdoctor.discover import LOOKED_FOR, discover
from pgqdoctor.discovery.seen import SeenText, seen_texts, tables_named
from pgqdoctor.errors import PgqdoctorError
from pgqdoctor.looks.look import Budget
from pgqdoctor.observation import Catalog, Lack, Observation, QueueIdentity, QueueProbe, Reading, Sample
from pgqdoctor.rows import StatementsInfoRow, StatementTextRow
from pgqdoctor.statementgaps import statement_gaps
from pgqdoctor.statements import moving_tables

BEGINNINGS: Final = 3
"""Times that a run begins whose connection is lost before its first reading: nothing is lost by beginning anew, and a third
loss in a row is no accident."""

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
        self.options = options
        self.texts = Texts()
        self._prober = Prober(session)
        self._sampler = Sampler(self._prober)
        self._sent = SentTexts(self._prober)
        self._info_before: StatementsInfoRow | None = None

    @property
    def session(self) -> Session:
        """The session in use: a new one after the connection was lost."""
        return self._prober.session

    @property
    def link(self) -> Link:
        """What the connection showed of the server."""
        return self._prober.link

    @property
    def lacks(self) -> list[Lack]:
        """What could not be read so far, to be added to."""
        return self._prober.lacks

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
    ) -> tuple[Catalog, tuple[StatementTextRow, ...], tuple[SeenText, ...], Watched]:
        """Read catalogs and statement texts and decide what the readings ask for."""
        bare = bare_catalog(self._prober)
        texts = read_texts(self._prober)
        self._info_before = read_info(self._prober)
        self.sample()  # texts of statements running now, for discovery where pg_stat_statements is missing
        all_texts = seen_texts(texts, {}, tuple(self.texts.places), bare.activity_text_bytes, bare.functions)
        named = tables_named(all_texts, bare.functions, bare)
        queries = self.options.claim_queries
        given = {table_given(self._prober, name, bare, queries.get(name)) for name in self.options.queues}
        catalog = detailed(self._prober, bare, candidates(self._prober, given, named))
        identities = discover(
            catalog,
            all_texts,
            forced=self.options.queues,
            claim_queries=self.options.claim_queries,
            sent=self._sent.read(all_texts),
        )
        catalog = with_states(self._prober, catalog, identities)
        return catalog, texts, all_texts, to_watch(catalog, identities, texts)

    def reading(self, watched: Watched) -> Reading:
        """Take one reading of the counters and of who is doing what."""
        return take_reading(self._prober, watched)

    def sample(self) -> Sample:
        """Look once at who is busy; about once a second at new MultiXacts too."""
        return self._sampler.sample(self.texts)

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
                    if not self._prober.recover(error, begun + options.window_seconds - time.monotonic()):
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
        statement_texts: tuple[StatementTextRow, ...],
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
                        *unread_sequences(catalog, identities, last, self.link.server.role),
                        *self.statement_gaps(catalog, identities),
                    )
                )
            ),
            looked_for=LOOKED_FOR,
            interrupted=interrupted,
        )

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
            sent=self._sent.read(all_texts),
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
                locked=self._prober.locked(),
                budget=budget,
            )

        try:
            found = look()
        except psycopg.Error as error:
            if not self._prober.recover(error):
                return unseen(identity, "the connection was lost")
        else:
            if not self.session.closed:
                return found
            if not self._prober.recover(psycopg.OperationalError("the server closed it during the looks")):
                return found
        try:
            return look()
        except psycopg.Error as error:
            return unseen(identity, one_line(error))

    def _last_reading(self, watched: Watched, first: Reading) -> Reading:
        try:
            return self.reading(watched)
        except psycopg.Error as error:
            if self._prober.recover(error):
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

    def statement_gaps(self, catalog: Catalog, identities: tuple[QueueIdentity, ...]) -> tuple[Lack, ...]:
        """Say what pg_stat_statements may be missing, as it stands now."""
        return statement_gaps(read_info(self._prober), self._info_before, catalog, identities)


def _grown(first: Reading, last: Reading, counter: str) -> dict[str, int]:
    """Return by how much a counter of each statement grew between two readings."""
    before = {row.key: getattr(row, counter) for row in first.statements}
    return {row.key: getattr(row, counter) - before.get(row.key, 0) for row in last.statements}
