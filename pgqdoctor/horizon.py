"""The xmin horizon of the observed database: who keeps dead rows from being vacuumed.

A row version is kept while the oldest transaction id or snapshot that counts for its database is not newer
than the transaction that ended it. What counts is written in ComputeXidHorizons() (procarray.c): the xid and
the xmin of backends of the same database, walsenders with standby feedback, prepared transactions and the
xmin of replication slots. A lazy VACUUM's own xmin, catalog_xmin and snapshots of other databases do not.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from pgqdoctor.observation import Observation, Reading
from pgqdoctor.rows import SessionRow

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


@dataclass(frozen=True, slots=True, kw_only=True)
class Horizon:
    """The holders, the oldest first; derived ones (a snapshot that only shows another's xid) are left out."""

    holders: tuple[Holder, ...]

    @property
    def oldest(self) -> Holder | None:
        """The holder that decides how much vacuum must keep, or None."""
        return self.holders[0] if self.holders else None


def of_reading(reading: Reading, database: str) -> Horizon:
    """Return who holds the horizon of ``database`` at one reading.

    A session blocked by a writer, or any snapshot taken while it runs, shows the writer's xid as its xmin:
    where the xid's owner is known the snapshot is not accused. The owner may sit in another database:
    snapshots look at the running transaction ids of all databases.
    """
    holders: list[Holder] = []
    owners = {row.xid: row for row in reading.sessions if row.xid is not None}
    prepared = {row.xid: row for row in reading.prepared}
    blamed: set[int] = set()
    slot_pids = {row.active_pid for row in reading.slots if row.xmin is not None}
    standby_pids = {row.pid for row in reading.standbys}
    for row in reading.sessions:
        if row.backend_type == "walsender" or row.pid in standby_pids:
            continue
        if row.database is not None and row.database != database:
            continue
        if row.xid is not None and row.xid_age is not None:
            holders.append(_session(row, "xid"))
        if row.xmin is None or row.xmin_age is None or row.vacuuming:
            continue
        if row.xmin == row.xid:
            continue
        owner = owners.get(row.xmin)
        if owner is not None or row.xmin in prepared:
            # The snapshot is as old as somebody's running transaction: that one decides, as long as it runs.
            if owner is not None and owner.database != database and owner.xid not in blamed:
                blamed.add(row.xmin)
                holders.append(_session(owner, "xid"))
            continue
        holders.append(_session(row, "xmin"))
    for one in reading.prepared:
        if one.database == database:
            holders.append(
                Holder(
                    kind="prepared transaction",
                    name=one.gid,
                    pid=None,
                    age=one.xid_age,
                    seconds=one.prepared_age_s,
                    by="xid",
                    state="prepared",
                    query=None,
                    database=one.database,
                    role=one.owner,
                    application="",
                    identifier=one.xid,
                )
            )
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
        if standby.xmin is not None and standby.xmin_age is not None and standby.pid not in slot_pids:
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
    # At the same age the older transaction leads: it was there first.
    holders.sort(key=lambda one: (-one.age, -(one.seconds or 0.0)))
    return Horizon(holders=tuple(holders))


def of(observation: Observation) -> Horizon:
    """Return the holders at the end of the window."""
    return of_reading(observation.last, observation.server.database)


def stayed(observation: Observation, holder: Holder) -> bool:
    """Tell whether the holder held the same transaction at the beginning of the window already."""
    before = of_reading(observation.first, observation.server.database)
    return any(
        one.kind == holder.kind
        and one.pid == holder.pid
        and one.identifier == holder.identifier
        and one.name == holder.name
        for one in before.holders
    )


def least_age(observation: Observation) -> int:
    """Return the smallest age in transactions that the horizon had in any sample: 0 means it was free once.

    Sessions of the database alone are sampled; slots and standbys come from the readings.
    """
    ages = []
    for sample in observation.samples:
        ages.append(
            max(
                (max(one.xid_age or 0, 0 if one.vacuuming else one.xmin_age or 0) for one in sample.sessions),
                default=0,
            )
        )
    return min(ages, default=0)


def _session(row: SessionRow, by: Literal["xid", "xmin"]) -> Holder:
    age = row.xid_age if by == "xid" else row.xmin_age
    identifier = row.xid if by == "xid" else row.xmin
    return Holder(
        kind="session",
        name=row.application or row.role or str(row.pid),
        pid=row.pid,
        age=age or 0,
        seconds=row.xact_age_s,
        by=by,
        state=row.state,
        query=row.query,
        database=row.database,
        role=row.role,
        application=row.application,
        identifier=identifier or 0,
    )
