"""The poller: one thread that owns the session and turns a server into a stream of scenes, beats and looks.

It takes a reading every interval and samples between readings; every so often it reads the catalog anew and takes the
bounded looks. A lost connection, a restarted server, a dropped table and a poll that takes too long are told as plain
messages and survived.
"""

from __future__ import annotations

import os
import queue
import socket
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Final, Literal

import psycopg

from pgqdoctor import __version__
from pgqdoctor.collect import ObserveOptions, Observer
from pgqdoctor.collecting.kept import kept_catalog
from pgqdoctor.collecting.readings import Watched
from pgqdoctor.collecting.texts import MAX_TEXTS, Texts
from pgqdoctor.connect import Session, connect, one_line
from pgqdoctor.discover import LOOKED_FOR
from pgqdoctor.discovery.seen import SeenText
from pgqdoctor.errors import USAGE, PgqdoctorError
from pgqdoctor.observation import Catalog, Lack, QueueIdentity, Reading, Sample
from pgqdoctor.rows import StatementTextRow
from pgqdoctor.window import Beat, Look, Scene

SAMPLE_S: Final = 0.1
"""Ten samples a second, as in a report."""
CATALOG_S: Final = 60.0
"""The catalog and up to 5,000 statement texts are read anew once a minute: new queues are no emergency."""
CATALOG_SOON_S: Final = 10.0
"""While there is no queue, or for a while after one was dropped, somebody may be making it just now."""
DROPPED_S: Final = 300.0
LOOK_S: Final = 5.0
"""The oldest ready job is what an engineer watches: it may be this old on the screen."""
LOOK_SHARE: Final = 0.05
"""The looks may take a twentieth of the time: a dear one is repeated more seldom."""
HANG_S: Final = 12.0
"""Every statement has a timeout of three seconds (the catalog ten): no answer for longer means nobody will answer."""
RETRY_S: Final = (0.5, 1.0, 2.0, 3.0)
"""Pauses between attempts to connect: soon at first, as a restart takes a second or two."""
KEPT_TEXTS: Final = MAX_TEXTS // 8
"""Statement texts kept of each kind when room is made: statements with literals are all different."""
FASTEST_S: Final = 0.5
SLOWEST_S: Final = 60.0

LinkKind = Literal["connecting", "connected", "reconnecting", "failed"]


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveOptions:
    """What to poll and how often (seconds)."""

    interval_s: float = 2.0
    window_s: float = 10.0
    queues: tuple[str, ...] = ()
    claim_queries: Mapping[str, str] = field(default_factory=dict)
    explain: str = "select"


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkState:
    """How the poller stands with the server; ``reason`` is one line, "" while all is well."""

    kind: LinkKind
    reason: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class PollCost:
    """What one poll cost: seconds on the server's side (waiting for answers), and the interval it had."""

    reading_s: float
    sampling_s: float
    interval_s: float

    @property
    def slow(self) -> bool:
        """True where the reading took longer than the interval."""
        return self.reading_s > self.interval_s


@dataclass(frozen=True, slots=True, kw_only=True)
class Dropped:
    """A queue's table that is no longer there."""

    name: str
    at: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Signal:
    """A request to cancel a backend's statement or to end the backend.

    ``started`` is when the backend started (the server's clock): a pid that was given to another backend meanwhile
    is left alone. So is a backend whose transaction is not the one that was asked about: ``transaction`` is when that began, None
    for none open, and ``wrote`` whether it had a transaction id.
    """

    action: Literal["cancel", "terminate"]
    pid: int
    started: float
    transaction: float | None = None
    wrote: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class SignalOutcome:
    """What came of a signal, in a sentence."""

    signal: Signal
    done: bool
    message: str


Message = Scene | Beat | Look | LinkState | PollCost | Dropped | SignalOutcome
Post = Callable[[Message], None]


@dataclass(slots=True)
class _Run:
    """What one connection knows: made anew after each reconnect and each reading of the catalog."""

    observer: Observer
    catalog: Catalog
    statement_texts: tuple[StatementTextRow, ...]
    seen: tuple[SeenText, ...]
    watched: Watched
    prepared_at: float
    first: Reading | None = None
    last: Reading | None = None
    scene: Scene | None = None
    identities: tuple[QueueIdentity, ...] = ()
    texts: tuple[SeenText, ...] = ()
    texts_told: int = 0
    lacks: tuple[Lack, ...] = ()
    look_due: float = 0.0
    moved: bool = True
    gaps: tuple[Lack, ...] = ()
    gaps_of: tuple[QueueIdentity, ...] | None = None


class Poller(threading.Thread):
    """Polls until stopped. ``post`` is called in this thread and must not block."""

    def __init__(self, conninfo: str, options: LiveOptions, post: Post, *, read_only: bool = False) -> None:
        super().__init__(name="pgqdoctor-poller", daemon=True)
        self.conninfo = conninfo
        self.options = options
        self.read_only = read_only
        self._post = post
        self._interval = options.interval_s
        self._stopped = threading.Event()
        self._signals: queue.SimpleQueue[Signal] = queue.SimpleQueue()
        self._session: Session | None = None
        self._asked_at: float | None = None
        self._watchdog = threading.Thread(target=self._watch, name="pgqdoctor-watchdog", daemon=True)
        self._ever_connected = False
        self._dropped_at: float | None = None

    # -- from other threads --------------------------------------------------------------------------

    @property
    def interval_s(self) -> float:
        """Seconds between readings."""
        return self._interval

    def set_interval(self, seconds: float) -> None:
        """Change the interval, within FASTEST_S and SLOWEST_S; it holds from the next reading on."""
        self._interval = min(max(seconds, FASTEST_S), SLOWEST_S)

    def request(self, signal: Signal) -> None:
        """Ask for a signal; the outcome is posted. Refused where the poller was made read-only."""
        self._signals.put(signal)

    def stop(self, *, wait_s: float = 2.0) -> None:
        """End the thread; an answer that is still awaited is given up."""
        self._stopped.set()
        if self.is_alive():
            self.join(min(wait_s, 0.5))
            if self.is_alive():
                self._abandon()
                self.join(wait_s)

    # -- the thread ------------------------------------------------------------------------------------

    def run(self) -> None:
        """Connect, poll, and connect again, until stopped."""
        self._watchdog.start()
        failures = 0
        reason = ""
        while not self._stopped.is_set():
            self._post(
                LinkState(kind="reconnecting" if self._ever_connected else "connecting", reason=reason)
            )
            try:
                self._poll_one_connection()
            except PgqdoctorError as error:
                if error.exit_code == USAGE and not self._ever_connected:
                    self._post(LinkState(kind="failed", reason=error.message))
                    return
                reason = error.message
            except psycopg.Error as error:
                reason = f"the connection was lost: {one_line(error)}"
                failures = 0
            except Exception as error:  # The screen must say so, and the next connection may do better.
                reason = f"internal error while polling: {type(error).__name__}: {error}"
            finally:
                self._close()
            if not self._stopped.is_set():
                kind: LinkKind = "reconnecting" if self._ever_connected else "connecting"
                self._post(LinkState(kind=kind, reason=reason))
                self._stopped.wait(RETRY_S[min(failures, len(RETRY_S) - 1)])
                failures += 1

    def _poll_one_connection(self) -> None:
        session = connect(self.conninfo, timeout_s=5)
        self._session = session
        options = self.options
        how = ObserveOptions(
            window_seconds=options.window_s,
            queues=options.queues,
            claim_queries=options.claim_queries,
            explain=options.explain,
        )
        with self._asking():
            run = self._prepared(Observer(session, how))
        self._ever_connected = True
        self._post(LinkState(kind="connected"))
        self._beat(run, (), 0.0, 0.0)
        while not self._stopped.is_set():
            samples, sampling = self._sample_until(time.monotonic() + self._interval, run)
            if self._stopped.is_set():
                return
            begun = time.monotonic()
            if begun - run.prepared_at > self._catalog_every(run) or self._gone(run):
                run = self._prepared_again(run)
                samples = ()
            self._beat(run, samples, sampling, begun)
            if time.monotonic() >= run.look_due:
                self._look(run)

    def _catalog_every(self, run: _Run) -> float:
        lately = self._dropped_at is not None and time.monotonic() - self._dropped_at < DROPPED_S
        return CATALOG_SOON_S if lately or not run.identities else CATALOG_S

    def _prepared(self, observer: Observer) -> _Run:
        observer.lacks[:] = observer.link.lacks
        catalog, statement_texts, seen, watched = observer.prepare()
        return _Run(
            observer=observer,
            catalog=catalog,
            statement_texts=tuple(row for row in statement_texts if row.query_id is not None),
            seen=seen,
            watched=watched,
            prepared_at=time.monotonic(),
            lacks=tuple(dict.fromkeys(observer.lacks)),
        )

    def _prepared_again(self, run: _Run) -> _Run:
        """Read the catalog anew; where it watches the same tables the window goes on."""
        with self._asking():
            fresh = self._prepared(run.observer)
        fresh.texts_told = run.texts_told
        if fresh.watched == run.watched:
            fresh.first, fresh.last, fresh.moved = run.first, run.last, False
        fresh.identities, fresh.scene = run.identities, run.scene
        fresh.gaps, fresh.gaps_of = run.gaps, run.gaps_of
        return fresh

    def _sample_until(self, due: float, run: _Run) -> tuple[tuple[Sample, ...], float]:
        """Sample, serve signals and wait until the next reading is due; return the seconds spent waiting for answers."""
        samples: list[Sample] = []
        spent = 0.0
        while not self._stopped.is_set() and (now := time.monotonic()) < due:
            self._serve_signals()
            begun = time.monotonic()
            try:
                with self._asking():
                    samples.append(run.observer.sample())
            except psycopg.Error as error:
                if run.observer.session.closed:
                    raise
                run.observer.lacks.append(
                    Lack(what="samples", reason=f"a sample was not taken: {one_line(error)}")
                )
            spent += time.monotonic() - begun
            self._stopped.wait(max(0.0, min(now + SAMPLE_S, due) - time.monotonic()))
        return tuple(samples), spent

    def _beat(self, run: _Run, samples: tuple[Sample, ...], sampling_s: float, begun: float) -> None:
        observer = run.observer
        begun = begun or time.monotonic()
        with self._asking():
            reading = observer.reading(run.watched)
        taken = time.monotonic() - begun
        resumed, run.moved = run.moved, False
        if resumed or run.first is None:
            run.first = reading
        run.last = reading
        if run.scene is None or resumed:
            self._identify(run)
        places = tuple(observer.texts.places)
        beat = Beat(
            reading=reading,
            samples=samples,
            texts_start=run.texts_told,
            texts=places[run.texts_told :],
            lacks=self._new_lacks(run),
            resumed=resumed,
        )
        run.texts_told = len(places)
        self._post(beat)
        self._post(PollCost(reading_s=taken, sampling_s=sampling_s, interval_s=self._interval))

    def _new_lacks(self, run: _Run) -> tuple[Lack, ...]:
        """Lacks of this beat alone: those of the connection and the catalog stand in the scene."""
        new = tuple(lack for lack in dict.fromkeys(run.observer.lacks) if lack not in run.lacks)
        run.observer.lacks[:] = run.lacks
        return new

    def _identify(self, run: _Run) -> None:
        """Tell the queues anew; post a scene where something changed."""
        if run.first is None or run.last is None:
            return
        run.identities, run.texts = run.observer.identify(run.catalog, run.seen, run.first, run.last)
        if run.gaps_of != run.identities:
            # Once for what was told: their ages would make every scene a new one.
            with self._asking():
                run.gaps = run.observer.statement_gaps(run.catalog, run.identities)
            run.gaps_of = run.identities
        scene = Scene(
            tool_version=__version__,
            server=run.observer.link.server,
            catalog=kept_catalog(run.catalog, run.identities, run.first),
            statement_texts=run.statement_texts,
            queues=run.identities,
            looked_for=LOOKED_FOR,
            lacks=tuple(dict.fromkeys((*run.lacks, *run.gaps))),
        )
        if scene != run.scene:
            run.scene = scene
            self._post(scene)

    def _look(self, run: _Run) -> None:
        """Tell the queues by what moved since the last look, and look at each."""
        begun = time.monotonic()
        if len(run.observer.texts.places) > MAX_TEXTS // 2:
            # Room for new texts; positions change, so the queues' claims are told anew.
            run.observer.texts = _thinned(run.observer.texts, run.identities)
            run.texts_told = 0
        self._identify(run)
        with self._asking():
            probes = run.observer.look(run.catalog, run.identities, run.texts)
        run.first = run.last
        if run.last is not None:
            self._post(Look(at=run.last.at, probes=probes))
        spent = time.monotonic() - begun
        run.look_due = begun + max(LOOK_S, spent / LOOK_SHARE)
        if self._stopped.is_set() or not run.observer.session.closed:
            return
        raise psycopg.OperationalError("the server closed the connection during the bounded looks")

    def _gone(self, run: _Run) -> bool:
        """Post the queues whose tables were dropped since the catalog was read."""
        oids = [one.oid for one in run.identities]
        if not oids:
            return False
        with self._asking():
            found = run.observer.session.records(
                "SELECT o::bigint AS oid, extract(epoch FROM clock_timestamp())::float8 AS at "
                "FROM unnest(%(oids)s::oid[]) AS o "
                "WHERE NOT EXISTS (SELECT FROM pg_class c WHERE c.oid = o)",
                {"oids": oids},
            )
        names = {one.oid: one.name for one in run.identities}
        for one in found:
            self._dropped_at = time.monotonic()
            self._post(Dropped(name=names[int(one["oid"])], at=float(one["at"])))
        return bool(found)

    # -- signals ---------------------------------------------------------------------------------------

    def _serve_signals(self) -> None:
        while True:
            try:
                signal = self._signals.get_nowait()
            except queue.Empty:
                return
            self._post(self._sent(signal))

    def _sent(self, signal: Signal) -> SignalOutcome:
        if self.read_only:
            return SignalOutcome(
                signal=signal, done=False, message="Nothing was sent: this session is read-only."
            )
        session = self._session
        if session is None:
            return SignalOutcome(
                signal=signal, done=False, message="Nothing was sent: there is no connection."
            )
        function = "pg_cancel_backend" if signal.action == "cancel" else "pg_terminate_backend"
        try:
            with self._asking():
                found = session.records(
                    f"SELECT s.same, CASE WHEN s.same THEN {function}(s.pid) END AS sent FROM (SELECT a.pid, "
                    "coalesce(abs(extract(epoch FROM a.xact_start)::float8 - %(transaction)s::float8) < 0.5, "
                    "a.xact_start IS NULL AND %(transaction)s::float8 IS NULL) "
                    "AND (a.backend_xid IS NOT NULL) = %(wrote)s AS same FROM pg_stat_activity a WHERE a.pid = %(pid)s "
                    "AND abs(extract(epoch FROM a.backend_start)::float8 - %(started)s) < 2) s",
                    {
                        "pid": signal.pid,
                        "started": signal.started,
                        "transaction": signal.transaction,
                        "wrote": signal.wrote,
                    },
                )
        except psycopg.Error as error:
            if session.closed:
                raise
            return SignalOutcome(signal=signal, done=False, message=f"The server refused: {one_line(error)}")
        if not found:
            return SignalOutcome(signal=signal, done=False, message=f"Backend {signal.pid} is gone already.")
        if not found[0]["same"]:
            return SignalOutcome(
                signal=signal,
                done=False,
                message=(
                    f"Nothing was sent: backend {signal.pid} is not in the transaction any more that was shown, or has written since. "
                    "Look again."
                ),
            )
        if not found[0]["sent"]:
            return SignalOutcome(
                signal=signal, done=False, message=f"Backend {signal.pid} could not be signalled."
            )
        what = (
            "The statement of backend {} was cancelled."
            if signal.action == "cancel"
            else "Backend {} was ended."
        )
        return SignalOutcome(signal=signal, done=True, message=what.format(signal.pid))

    # -- giving up on a server that does not answer -------------------------------------------------------

    def _watch(self) -> None:
        while not self._stopped.wait(1.0):
            asked = self._asked_at
            if asked is not None and time.monotonic() - asked > HANG_S:
                self._post(
                    LinkState(kind="reconnecting", reason=f"the server has not answered for {HANG_S:.0f} s")
                )
                self._asked_at = None
                self._abandon()

    @contextmanager
    def _asking(self) -> Iterator[None]:
        """Mark the time in which the server owes an answer."""
        self._asked_at = time.monotonic()
        try:
            yield
        finally:
            self._asked_at = None

    def _abandon(self) -> None:
        """Shut the socket under a call that waits for an answer: it fails at once, in its own thread."""
        session = self._session
        if session is None or session.closed:
            return
        try:
            descriptor = os.dup(session.fileno())
        except (OSError, psycopg.Error):
            return
        with socket.socket(fileno=descriptor) as line:
            try:
                line.shutdown(socket.SHUT_RDWR)
            except OSError:
                return

    def _close(self) -> None:
        session, self._session = self._session, None
        self._asked_at = None
        if session is not None:
            session.close()


def _thinned(texts: Texts, identities: tuple[QueueIdentity, ...]) -> Texts:
    """Keep the texts by which the queues were told, and the latest."""
    known = list(texts.places)
    claims = [
        int(key.removeprefix("text:"))
        for one in identities
        for key in one.claim_keys
        if key.startswith("text:")
    ]
    fresh = Texts()
    for place in (*claims[:KEPT_TEXTS], *range(max(0, len(known) - KEPT_TEXTS), len(known))):
        if place < len(known):
            fresh.place(known[place])
    return fresh
