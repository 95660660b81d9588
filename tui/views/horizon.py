"""Screen 4: who holds the xmin horizon, who blocks whom, and what a signal to a backend would undo."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from typing import Literal

from pgqdoctor import horizon
from pgqdoctor.frames import Frame
from pgqdoctor.keeping import rows_kept
from pgqdoctor.observation import Reading, Server
from pgqdoctor.render.clean import one_line
from pgqdoctor.render.quantities import counted, duration
from pgqdoctor.rows import LockRow, SessionRow
from pgqdoctor.tui.views import short

MOST_DEEP = 12
"""Levels by which a blocked tree is indented at most."""
MOST_HOLDERS = 100
MOST_LOCKS = 300
"""Lines of each table: the oldest holders and the largest trees come first."""
Action = Literal["cancel", "terminate"]


@dataclass(frozen=True, slots=True, kw_only=True)
class HolderLine:
    """One holder; ``pid`` is None where no backend of this server can be signalled."""

    pid: int | None
    kind: str
    name: str
    state: str
    age: str
    open_for: str
    keeps: str
    query: str


@dataclass(frozen=True, slots=True, kw_only=True)
class LockLine:
    """One backend in a blocked tree: roots block, those below wait for the one above."""

    depth: int
    pid: int | None
    who: str
    state: str
    waits: str
    query: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """A backend that a signal could go to: what each would roll back, and why it may not be sent ("" where it may)."""

    pid: int
    started: float
    transaction: float | None
    wrote: bool
    runs: bool
    """True while it runs a statement: otherwise there is nothing to cancel."""
    who: str
    cancel: tuple[str, ...]
    terminate: tuple[str, ...]
    forbidden: str


@dataclass(frozen=True, slots=True, kw_only=True)
class HorizonView:
    """The whole screen."""

    holders: tuple[HolderLine, ...]
    locks: tuple[LockLine, ...]
    targets: tuple[Target, ...]
    waiting: int

    def target(self, pid: int) -> Target | None:
        """Return the backend of that pid, or None."""
        return next((one for one in self.targets if one.pid == pid), None)


def horizon_view(frame: Frame) -> HorizonView:
    """Return who holds the horizon, the oldest first, and the blocked trees."""
    seen = frame.observation
    holders = tuple(_holder(frame, one) for one in horizon.of(seen).holders[:MOST_HOLDERS])
    sessions = {row.pid: row for row in seen.last.sessions}
    names = {row.oid: f"{row.schema}.{row.name}" for row in seen.catalog.tables}
    locks = tuple(islice(lock_lines(seen.last, names), MOST_LOCKS))
    pids = dict.fromkeys(
        pid for pid in (*(one.pid for one in holders), *(one.pid for one in locks)) if pid is not None
    )
    return HorizonView(
        holders=holders,
        locks=locks,
        targets=tuple(_target(seen.server, seen.last, sessions[pid]) for pid in pids if pid in sessions),
        waiting=len({row.pid for row in seen.last.locks if not row.granted}),
    )


def _holder(frame: Frame, one: horizon.Holder) -> HolderLine:
    kept = [(rows_kept(queue, one)[0], queue.name) for queue in frame.queues]
    total = sum(rows for rows, _ in kept)
    who = one.name if one.kind != "session" else f"{one.application or '(no name)'} ({one.role or '?'})"
    if one.database is not None and one.database != frame.observation.server.database:
        who += f" in database {one.database}"
    return HolderLine(
        pid=one.pid if one.kind in ("session", "standby") else None,
        kind=one.kind,
        name=one_line(who),
        state=one_line(one.state or ""),
        age=f"{one.age:,}",
        open_for=short.seconds(one.seconds) if one.seconds is not None else short.UNKNOWN,
        keeps=f"{total:,}" if kept else short.UNKNOWN,
        query=one_line(one.query or ""),
    )


def lock_lines(reading: Reading, names: Mapping[int, str]) -> Iterator[LockLine]:
    """Yield the trees of who blocks whom: each root (it waits for nobody), and below it those that wait for it.

    Every backend stands once. One that waits for several stands below the one among them that waits for nobody, as
    that one must end first; PostgreSQL names also those ahead in the queue of a lock as blockers.
    """
    waits: dict[int, LockRow] = {}
    for row in reading.locks:
        if not row.granted and row.pid is not None and row.blocked_by:
            waits.setdefault(row.pid, row)
    below: dict[int, list[int]] = {}
    for pid, row in waits.items():
        blocker = next((one for one in row.blocked_by if one not in waits), row.blocked_by[0])
        below.setdefault(blocker, []).append(pid)
    sessions = {row.pid: row for row in reading.sessions}
    told: set[int] = set()
    roots = [pid for pid in below if pid not in waits]
    # Where everybody waits for somebody there is a deadlock that the server has not broken yet: begin anywhere.
    for root in (*sorted(roots, key=lambda pid: (-len(below[pid]), pid)), *sorted(waits)):
        todo = [(root, 0)] if root not in told else []
        while todo:
            pid, depth = todo.pop()
            if pid in told:
                continue
            told.add(pid)
            yield _lock_line(pid, waits.get(pid), depth, sessions.get(pid), names)
            waiting = sorted(below.get(pid, ()), key=lambda one: (waits[one].wait_age_s or 0.0, -one))
            todo.extend((one, min(depth + 1, MOST_DEEP)) for one in waiting)


def _lock_line(
    pid: int, wait: LockRow | None, depth: int, row: SessionRow | None, names: Mapping[int, str]
) -> LockLine:
    who = f"{row.application or '(no name)'} ({row.role or '?'})" if row is not None else ""
    if pid == 0:
        who = "a prepared transaction"
    return LockLine(
        depth=depth,
        pid=pid or None,
        who=one_line(who),
        state=one_line((row.state or "") if row is not None else ""),
        waits=_waits(wait, names) if wait is not None else "blocks",
        query=one_line((row.query or "") if row is not None else ""),
    )


def _waits(row: LockRow, names: Mapping[int, str]) -> str:
    where = names.get(row.relation or 0, f"relation {row.relation}" if row.relation else "")
    what = row.mode.removesuffix("Lock")
    text = f"waits for {row.locktype} {what}" + (f" on {where}" if where else "")
    return one_line(text + (f", {short.seconds(row.wait_age_s)}" if row.wait_age_s is not None else ""))


# -- signals -----------------------------------------------------------------------------------------


def _target(server: Server, reading: Reading, row: SessionRow) -> Target:
    return Target(
        pid=row.pid,
        started=reading.at - (row.backend_start_s or 0.0),
        transaction=reading.at - row.xact_age_s if row.xact_age_s is not None else None,
        wrote=row.xid is not None,
        runs=row.state is None or not row.state.startswith("idle"),
        who=one_line(f"backend {row.pid}, {row.application or '(no name)'}, role {row.role or '?'}"),
        cancel=tuple(one_line(line) for line in undone(row, "cancel")),
        terminate=tuple(one_line(line) for line in undone(row, "terminate")),
        forbidden=forbidden(server, row),
    )


def undone(row: SessionRow, action: Action) -> Iterator[str]:
    """Yield sentences that say what a signal ends and what is rolled back."""
    idle = row.state is not None and row.state.startswith("idle")
    if action == "cancel" and idle:
        yield "It runs no statement now, so cancelling does nothing: only terminating ends its transaction."
        return
    opened = f", open for {duration(row.xact_age_s)}" if row.xact_age_s is not None else ""
    comma = "," if opened else ""
    if action == "cancel":
        yield "Its running statement fails with an error in its client."
        if row.xact_age_s is not None:
            yield (
                f"What this statement did is rolled back. If it runs in a transaction block{opened}, the whole "
                "block can only be rolled back then, unless a savepoint or an exception handler catches the error."
            )
    else:
        yield "Its client loses the connection."
        if row.xact_age_s is None:
            yield "It has no transaction open: nothing is rolled back."
    if row.xid is not None:
        yield (
            f"The transaction{opened}{comma} has written (transaction id {row.xid}, "
            f"{counted(row.xid_age or 0, 'transaction')} ago): all its changes "
            f"{'are' if action == 'terminate' else 'may be'} lost, jobs it claimed go back to ready."
        )
    elif row.xact_age_s is not None and action == "terminate":
        yield (
            f"The transaction{opened}{comma} has no transaction id: it has written nothing, so no change is lost. "
            "Its locks and its snapshot are released."
        )
    if row.backend_type is not None and row.backend_type != "client backend":
        yield f"It is a {row.backend_type}: the server may start it again."


def forbidden(server: Server, row: SessionRow) -> str:
    """Return why the role may not signal the backend, "" where it may as far as can be told.

    A role may signal its own backends, and those of others with pg_signal_backend; only a superuser those of superusers, which
    the server itself refuses.
    """
    if server.in_recovery and row.backend_type == "startup":
        return "the startup process of a standby cannot be signalled"
    if server.superuser or row.role == server.role or server.member_of("pg_signal_backend"):
        return ""
    if row.backend_type == "autovacuum worker" and server.member_of("pg_signal_autovacuum_worker"):
        return ""
    return f"role {server.role} may not signal backends of role {row.role or '?'}: it needs pg_signal_backend"
