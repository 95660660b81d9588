"""The xmin horizon of the observed database: who keeps dead rows from being vacuumed.

A row version is kept while the oldest transaction id or snapshot that counts for its database is not newer
than the transaction that ended it. What counts is written in ComputeXidHorizons() (procarray.c): the xid and
the xmin of backends of the same database, walsenders with standby feedback, prepared transactions and the
xmin of replication slots. What a lazy VACUUM holds (its xmin, and the xid it takes to truncate a table), catalog_xmin and snapshots of
other databases do not. A transaction id of another database counts indirectly: each snapshot taken here while it runs shows it.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Final, Literal

from pgqdoctor.observation import Observation, Reading, Sample, SampledSession
from pgqdoctor.once import once
from pgqdoctor.rows import PreparedRow, SessionRow, StandbyRow
from pgqdoctor.sqlread import text_fingerprint

HolderKind = Literal["session", "prepared transaction", "replication slot", "standby"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Holder:
    """One thing that holds the horizon back.

    ``age`` is in transactions: how far behind the newest transaction id it keeps the horizon. ``seconds`` is
    how long it has been open, None where nothing tells. ``by`` is "xid" for a writer, "xmin" for a snapshot.
    """

    kind: HolderKind
    name: str
    """Application name, gid, slot name: what a person would look for. Hostile input."""
    pid: int | None
    age: int
    seconds: float | None
    by: Literal["xid", "xmin"]
    state: str | None
    query: str | None
    database: str | None
    role: str | None
    application: str
    identifier: int
    """The transaction id or xmin itself."""

    @property
    def idle(self) -> bool:
        """True for a session whose transaction waits for its client."""
        return self.state is not None and self.state.startswith("idle")


MOSTLY: Final = 0.6
"""Share of the samples that a class must lead to be named."""
LASTING_S: Final = 3.0
"""Seconds a transaction must have been open for its snapshot to count by itself: statements of workers last milliseconds."""
FEEDBACK_S: Final = 20.0
"""Seconds by which a standby's feedback may lag: two of its rounds, wal_receiver_status_interval, which is 10 seconds by default."""
CLOSE: Final = 0.2
"""A second transaction stands close behind the leader if its age is at least this share of the leader's."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Crowd:
    """A class of transactions of which always some are open, so that the horizon never catches up.

    Ages are in transactions: ``least_age`` is the nearest the horizon came to the newest transaction id in any sample, ``usual_age`` the
    median. ``at_once`` is how many were open at a moment, ``turns`` how many different ones led, ``longest_s`` the age of the
    oldest in seconds. ``text`` is the place of one of their statements in Observation.texts, -1 for none.
    """

    applications: tuple[str, ...]
    text: int
    pids: tuple[int, ...]
    at_once: float
    turns: int
    longest_s: float
    least_age: int
    usual_age: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Horizon:
    """The holders, the oldest first; a young snapshot that only shows another's xid is left out."""

    holders: tuple[Holder, ...]

    @property
    def oldest(self) -> Holder | None:
        """The holder that decides how much vacuum must keep, or None."""
        return self.holders[0] if self.holders else None


@once
def of_reading(reading: Reading, database: str) -> Horizon:
    """Return who holds the horizon of ``database`` at one reading.

    A session blocked by a writer, or any snapshot taken while it runs, shows the writer's xid as its xmin: where the xid's owner
    is known, a young snapshot is not accused. The owner may sit in another database: snapshots look at the running transaction ids
    of all databases. A snapshot that stays, such as a report's, would go on holding the horizon after the owner's end and is a
    holder beside it.
    """
    holders: list[Holder] = []
    owners = _owners(reading)
    blamed: set[int] = set()
    lasting: list[Holder] = []
    slot_pids = {row.active_pid for row in reading.slots if row.xmin is not None}
    standbys = {row.pid: row for row in reading.standbys}
    connected = {row.pid for row in reading.sessions if row.database is not None}
    for row in reading.sessions:
        if row.database is not None and row.database != database:
            continue
        if row.vacuuming or _only_replicates(row, standbys.get(row.pid)):
            continue
        if row.xid is not None and row.xid_age is not None:
            holders.append(_session(row, "xid"))
        if row.xmin is None or row.xmin_age is None or row.xmin == row.xid:
            continue
        owner = owners.get(row.xmin)
        if owner is None:
            holders.append(_session(row, "xmin"))
            continue
        if lasts(row):
            lasting.append(_session(row, "xmin"))
        if owner.database != database and row.xmin not in blamed:
            blamed.add(row.xmin)
            holders.append(owner)
    holders.extend(_prepared(row) for row in reading.prepared if row.database == database)
    for slot in reading.slots:
        if slot.xmin is not None and slot.xmin_age is not None:
            holders.append(
                Holder(
                    kind="replication slot",
                    name=slot.name,
                    pid=slot.active_pid,
                    age=slot.xmin_age,
                    seconds=None,
                    by="xmin",
                    state="active" if slot.active else "inactive",
                    query=None,
                    database=slot.database,
                    role=None,
                    application="",
                    identifier=slot.xmin,
                )
            )
    for standby in reading.standbys:
        if standby.pid in connected or standby.pid in slot_pids:
            continue
        if standby.xmin is not None and standby.xmin_age is not None:
            holders.append(
                Holder(
                    kind="standby",
                    name=standby.application or standby.client or "standby",
                    pid=standby.pid,
                    age=standby.xmin_age,
                    seconds=None,
                    by="xmin",
                    state=standby.state,
                    query=None,
                    database=None,
                    role=None,
                    application=standby.application,
                    identifier=standby.xmin,
                )
            )
    for one in lasting:
        owner = owners[one.identifier]
        beside = next((place for place, each in enumerate(holders) if each == owner), len(holders))
        # Of a writer elsewhere only the snapshots taken here hold this database's horizon.
        before = owner.database != database and (one.seconds or 0.0) >= MOSTLY * (owner.seconds or 0.0)
        holders.insert(beside if before else beside + 1, one)
    # At the same age the order stays: a snapshot beside the writer that it shows.
    holders.sort(key=lambda one: -one.age)
    return Horizon(holders=tuple(holders))


def lasts(row: SessionRow) -> bool:
    """Tell whether a session's snapshot is open for so long that it holds by itself, whosever transaction id it shows.

    One that waits for a lock goes on as soon as that transaction ends.
    """
    return (row.xact_age_s or 0.0) >= LASTING_S and row.wait_type != "Lock"


def _owners(reading: Reading) -> dict[int, Holder]:
    """Return the writers of all databases by their transaction ids."""
    found = {
        row.xid: _session(row, "xid")
        for row in reading.sessions
        if row.xid is not None and row.xid_age is not None and not row.vacuuming
    }
    return found | {row.xid: _prepared(row) for row in reading.prepared}


def _only_replicates(row: SessionRow, standby: StandbyRow | None) -> bool:
    """Tell whether a session is a walsender whose xmin is told elsewhere, or ignored as that of logical decoding.

    A walsender connected to a database that does not stream runs statements, such as the first copy of a subscribed table: its
    snapshot counts like any other.
    """
    if row.backend_type != "walsender" and standby is None:
        return False
    return row.database is None or (standby is not None and standby.state in ("catchup", "streaming"))


def of(observation: Observation) -> Horizon:
    """Return the holders at the end of the window, with writers of other databases that most samples show."""
    database = observation.server.database
    found = tuple(
        one for one in of_reading(observation.last, database).holders if not _may_be_free(observation, one)
    )
    more = tuple(one for one in _elsewhere(observation) if one not in found)
    if not more:
        return Horizon(holders=found)
    return Horizon(holders=tuple(sorted((*found, *more), key=lambda one: -one.age)))


def _may_be_free(observation: Observation, holder: Holder) -> bool:
    """Tell whether a standby may hold nothing and only not have said so yet: its xmin is as old as its last feedback.

    The age is in transactions, so it is set against those that began in the window.
    """
    fed_back = holder.kind == "standby" or (holder.kind == "replication slot" and holder.state == "active")
    begun = observation.last.database.next_xid - observation.first.database.next_xid
    return fed_back and begun > 0 and holder.age * observation.seconds < FEEDBACK_S * begun


def stayed(observation: Observation, holder: Holder) -> bool:
    """Tell whether the holder held the same transaction at the beginning of the window already."""
    return _key(holder) in _at_first(observation)


def _key(holder: Holder) -> tuple[HolderKind, int | None, int, str]:
    return (holder.kind, holder.pid, holder.identifier, holder.name)


@once
def _at_first(observation: Observation) -> frozenset[tuple[HolderKind, int | None, int, str]]:
    before = of_reading(observation.first, observation.server.database)
    # A writer elsewhere holds this horizon through snapshots that come and go.
    return frozenset(_key(one) for one in (*before.holders, *_owners(observation.first).values()))


@once
def _elsewhere(observation: Observation) -> tuple[Holder, ...]:
    """Writers of other databases, open all the time, that the oldest snapshot of this database shows in most samples.

    A sample tells no transaction ids. A writer's age only grows, so the snapshots that show it are as old as it was at some
    moment of the window.
    """
    before = {xid: one.age for xid, one in _owners(observation.first).items()}
    lags = _lags(observation)
    found = [
        one
        for xid, one in _owners(observation.last).items()
        if one.database != observation.server.database
        and xid in before
        and sum(1 for lag in lags if before[xid] <= lag <= one.age) > MOSTLY * len(lags)
    ]
    return tuple(sorted(found, key=lambda one: -one.age)[:1])


@once
def least_age(observation: Observation) -> int:
    """Return the smallest age in transactions that the horizon had in any sample: 0 means it was free once.

    Sessions of the database alone are sampled; slots and standbys come from the readings.
    """
    return min(_lags(observation), default=0)


@once
def crowd(observation: Observation) -> Crowd | None:
    """Return the class of transactions that together hold the horizon while they take turns, or None.

    A class is told by its statement without literals, else by its application name without digits. None where a single transaction
    led all the time and nobody of its kind stood close behind it: then that one is the culprit.
    """
    return _crowd(observation, _by_statement) or _crowd(observation, _by_application)


def _crowd(observation: Observation, kind_of: Callable[[Observation, SampledSession], str]) -> Crowd | None:
    leaders: Counter[str] = Counter()
    turns: dict[str, set[tuple[int, int]]] = defaultdict(set)
    close: Counter[str] = Counter()
    blocked: Counter[str] = Counter()
    at_once: Counter[str] = Counter()
    longest: dict[str, float] = defaultdict(float)
    lags = _lags(observation)
    last: dict[str, tuple[SampledSession, ...]] = {}
    for sample, holding in zip(observation.samples, _held(observation), strict=True):
        if not holding:
            continue
        leader = holding[0]
        kind = kind_of(observation, leader)
        if not kind:
            continue
        leaders[kind] += 1
        blocked[kind] += leader.wait_type == "Lock"
        # Whole seconds tell two transactions of one backend apart and forgive the jitter of a sample.
        turns[kind].add((leader.pid, round(sample.at - (leader.xact_age_s or 0.0))))
        # Who waits for a lock goes on once the other ends, and takes no turn.
        mates = tuple(
            one
            for one in holding
            if kind_of(observation, one) == kind and (one is leader or one.wait_type != "Lock")
        )
        at_once[kind] += len(mates)
        longest[kind] = max(longest[kind], *(one.xact_age_s or 0.0 for one in mates))
        close[kind] += any(_age(one) >= CLOSE * _age(leader) for one in mates[1:])
        last[kind] = mates
    for kind, led in leaders.most_common(1):
        taking_turns = len({pid for pid, _ in turns[kind]}) > 1
        if led < MOSTLY * len(lags) or not (taking_turns or close[kind] >= MOSTLY * led):
            return None
        if 2 * blocked[kind] >= led:
            # They are open for long because they wait for somebody: that one is the culprit.
            return None
        return Crowd(
            applications=tuple(sorted({one.application for one in last[kind]})),
            text=max((one.text for one in last[kind]), default=-1),
            pids=tuple(one.pid for one in last[kind]),
            at_once=at_once[kind] / led,
            turns=len(turns[kind]),
            longest_s=longest[kind],
            least_age=min(lags),
            usual_age=sorted(lags)[len(lags) // 2],
        )
    return None


def _by_statement(observation: Observation, session: SampledSession) -> str:
    return _fingerprint(observation.texts[session.text]) if session.text >= 0 else ""


def _by_application(observation: Observation, session: SampledSession) -> str:
    return "".join(letter for letter in session.application if not letter.isdigit())


@once
def _held(observation: Observation) -> tuple[list[SampledSession], ...]:
    return tuple(_holding(sample) for sample in observation.samples)


@once
def _lags(observation: Observation) -> tuple[int, ...]:
    """The age in transactions that the horizon had in each sample."""
    return tuple(_age(holding[0]) if holding else 0 for holding in _held(observation))


def _holding(sample: Sample) -> list[SampledSession]:
    """Sessions of a sample that hold the horizon, the oldest first; a snapshot as old as somebody's xid is derived."""
    writers = {one.xid_age for one in sample.sessions if one.xid_age is not None and not one.vacuuming}
    holding = [
        one
        for one in sample.sessions
        if not one.vacuuming
        and (one.xid_age is not None or (one.xmin_age is not None and one.xmin_age not in writers))
    ]
    return sorted(holding, key=lambda one: (-_age(one), -(one.xact_age_s or 0.0), one.pid))


def _age(session: SampledSession) -> int:
    if session.xid_age is not None:
        return session.xid_age
    return session.xmin_age or 0


@lru_cache(maxsize=2048)
def _fingerprint(text: str) -> str:
    return text_fingerprint(text)


def _session(row: SessionRow, by: Literal["xid", "xmin"]) -> Holder:
    age = row.xid_age if by == "xid" else row.xmin_age
    identifier = row.xid if by == "xid" else row.xmin
    return Holder(
        kind="session",
        name=row.application or row.role or row.backend_type or str(row.pid),
        pid=row.pid,
        age=age or 0,
        # A stalled listener holds a snapshot in the state "idle", outside of any transaction.
        seconds=row.xact_age_s if row.xact_age_s is not None else row.state_age_s,
        by=by,
        state=row.state,
        query=row.query,
        database=row.database,
        role=row.role,
        application=row.application or (row.backend_type or "" if row.role is None else ""),
        identifier=identifier or 0,
    )


def _prepared(row: PreparedRow) -> Holder:
    return Holder(
        kind="prepared transaction",
        name=row.gid,
        pid=None,
        age=row.xid_age,
        seconds=row.prepared_age_s,
        by="xid",
        state="prepared",
        query=None,
        database=row.database,
        role=row.owner,
        application="",
        identifier=row.xid,
    )
