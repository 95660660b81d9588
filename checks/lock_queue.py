"""Sessions wait in line for a lock on the queue's table or on its rows, behind one that does not move.

A lock request that cannot be granted blocks everybody behind it whose request conflicts with it. A migration that waits for a forgotten
reader therefore stops every claim, although neither of the two does anything. Who has to be looked for is the root: the session
that blocks others and waits for nobody.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Set
from dataclasses import dataclass, replace
from typing import Annotated, Final

from pgqdoctor import remedy
from pgqdoctor.check import Check
from pgqdoctor.finding import Evidence, Finding, Remedy, Severity
from pgqdoctor.observation import Observation
from pgqdoctor.queue import Queue
from pgqdoctor.rows import LockRow, PreparedRow, SessionRow, TableRow
from pgqdoctor.sqlread import read_sql
from pgqdoctor.sqlrewrite import quote_ident
from pgqdoctor.words import duration, plural, shortened

DDL_MODES = frozenset({"ShareLock", "ShareRowExclusiveLock", "ExclusiveLock", "AccessExclusiveLock"})
"""Table locks that conflict with the ROW EXCLUSIVE that writes take: those of DDL, LOCK TABLE and plain CREATE INDEX."""
_LONG: Final = re.compile(
    r"\s*(create\s+(unique\s+)?index|reindex|cluster|vacuum\s*(full|\([^)]*\bfull\b))\b", re.IGNORECASE
)
"""Statements that keep their strong lock for as long as they read or copy the table: a lock_timeout bounds their wait alone."""
_BUILDS: Final = re.compile(
    r"^(create\s+(unique\s+)?index|reindex(\s*\([^)]*\))?\s+(table|index))\b(?!\s+concurrently\b)",
    re.IGNORECASE,
)
PREPARED = 0
"""pg_blocking_pids() shows a prepared transaction as 0."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """When a line of waiters is an incident."""

    wait_s: Annotated[
        float, "seconds that a session has waited: locks of a healthy queue pass in milliseconds"
    ] = 1.0
    root_s: Annotated[
        float,
        "seconds the root's transaction must have been open where only row locks are waited for: workers that pass a row on hold it shorter",
    ] = 3.0
    critical_waiters: Annotated[int, "sessions at the queue that wait: a handful is most of its workers"] = 3
    critical_s: Annotated[float, "seconds of waiting after which clients begin to time out"] = 10.0
    stopped_waiters: Annotated[
        int,
        "sessions that wait while no row of the queue changes: more than the one that would wait at any pause",
    ] = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """A root and those who wait for it, directly or through others, that concern the queue."""

    root: int
    waiters: tuple[LockRow, ...]
    middle: tuple[LockRow, ...]
    """Waiting requests for strong table locks that have waiters of their own, those on the queue's table first."""


def evaluate(seen: Observation, queue: Queue, limits: Limits) -> Iterator[Finding]:
    """Name the root of each line of waiters at this queue, at the end of the window."""
    told = 0
    for line in _lines(seen, queue):
        long = [row for row in line.waiters if (row.wait_age_s or 0.0) >= limits.wait_s]
        if not long:
            continue
        session = next((one for one in seen.last.sessions if one.pid == line.root), None)
        on_table = any(row.locktype == "relation" and row.relation in queue.oids for row in long)
        age = session.xact_age_s if session is not None else None
        if not on_table and line.root != PREPARED and (age is None or age < limits.root_s):
            continue
        told += 1
        # Each line has its own root: the worst bears the queue's key, the next ones a number.
        yield replace(
            _finding(seen, queue, line, long, session, limits), subject="" if told == 1 else str(told)
        )


def _finding(
    seen: Observation,
    queue: Queue,
    line: Line,
    long: list[LockRow],
    session: SessionRow | None,
    limits: Limits,
) -> Finding:
    waited = max(row.wait_age_s or 0.0 for row in long)
    middle = line.middle[0] if line.middle else None
    behind = len({row.pid for row in line.waiters} - ({middle.pid} if middle is not None else set()))
    severity: Severity = "warning"
    stopped = behind >= limits.stopped_waiters and not queue.churn.dead_made
    if stopped or behind >= limits.critical_waiters or (behind and waited >= limits.critical_s):
        severity = "critical"
    sessions = {one.pid: one for one in seen.last.sessions}
    held = _held(seen, queue, line.root)
    evidence = [
        Evidence(what="root blocker", value=_who(session, line.root), unit="", source="pg_blocking_pids()"),
        Evidence(what="sessions behind it", value=behind, unit="sessions", source="pg_locks"),
        Evidence(what="longest wait", value=round(waited, 1), unit="seconds", source="pg_locks.waitstart"),
    ]
    if held:
        evidence.insert(
            1, Evidence(what=f"its locks on {queue.name}", value=", ".join(held), unit="", source="pg_locks")
        )
    if session is not None and session.query:
        evidence.append(
            Evidence(
                what="its last statement",
                value=shortened(session.query, 200),
                unit="",
                source="pg_stat_activity",
            )
        )
    if middle is not None:
        stuck = sessions.get(middle.pid or -1)
        evidence.append(
            Evidence(what="waiting in the middle", value=_who(stuck, middle.pid), unit="", source="pg_locks")
        )
        evidence.append(Evidence(what="it asks for", value=middle.mode, unit="", source="pg_locks"))
        if stuck is not None and stuck.query:
            evidence.append(
                Evidence(what="with", value=shortened(stuck.query, 200), unit="", source="pg_stat_activity")
            )
    return Finding(
        check=CHECK.id,
        severity=severity,
        queue=queue.name,
        title=_title(seen, queue, line, session, middle, sessions, behind, waited),
        why=_why(middle is not None, line.root),
        evidence=tuple(evidence),
        remedies=tuple(_remedies(seen, queue, line, session, middle, sessions)),
        pids=tuple(pid for pid in (line.root, middle.pid if middle is not None else None) if pid),
        relations=(queue.oid,),
    )


def _title(
    seen: Observation,
    queue: Queue,
    line: Line,
    session: SessionRow | None,
    middle: LockRow | None,
    sessions: dict[int, SessionRow],
    behind: int,
    waited: float,
) -> str:
    root = _who(session, line.root)
    place = _place(seen, queue, line)
    if middle is None:
        verb = "waits" if behind == 1 else "wait"
        return f"{plural(behind, 'session')} at {place} {verb} for {root}, up to {duration(waited)}"
    what = _who(sessions.get(middle.pid or -1), middle.pid)
    line_up = (
        f", and {plural(behind, 'session')} at {place} {'waits' if behind == 1 else 'wait'} behind it"
        if behind
        else ""
    )
    table = _locked(seen, queue, middle)
    return f"{what[0].upper()}{what[1:]} waits for {root} to lock {table}{line_up}, up to {duration(waited)}"


def _place(seen: Observation, queue: Queue, line: Line) -> str:
    """Name the table at which the line stands: of namesakes in several schemas that of the lock, which a statement's text does not tell."""
    others = _namesakes(seen, queue)
    places = {row.relation for row in line.waiters if row.locktype == "relation"}
    found = [one for one in others if one.oid in places]
    if not found or places & queue.oids:
        return queue.name
    return f"{quote_ident(found[0].schema)}.{quote_ident(found[0].name)}"


def _namesakes(seen: Observation, queue: Queue) -> tuple[TableRow, ...]:
    return tuple(
        row for row in seen.catalog.tables if row.name == queue.table.name and row.oid not in queue.oids
    )


def _locked(seen: Observation, queue: Queue, middle: LockRow) -> str:
    """Name the table that is waited for: the queue's, or one beside it that its statements reach through a foreign key or a trigger."""
    if middle.relation in queue.oids:
        return queue.name
    table = seen.catalog.table(middle.relation) if middle.relation is not None else None
    if table is not None:
        return f"{quote_ident(table.schema)}.{quote_ident(table.name)}"
    names = {row.child: row.child_name for row in queue.foreign_keys}
    names |= {row.parent: row.parent_name for row in queue.foreign_keys}
    return names.get(middle.relation or 0, "another table")


def _why(in_the_middle: bool, root: int) -> str:
    if in_the_middle:
        return (
            "A waiting request for a strong table lock stands in line, and every later request that conflicts with it has to wait "
            "behind it, even though the lock held now would not block them. The root is whoever holds the table now."
        )
    if root == PREPARED:
        return "A prepared transaction keeps its locks without any session, over restarts too, until it is resolved."
    return "The root holds a lock until its transaction ends; it waits for nobody itself, so nothing but its end will free the others."


def _who(session: SessionRow | None, pid: int | None) -> str:
    if pid == PREPARED:
        return "a prepared transaction"
    if session is None:
        return f"session {pid}"
    name = shortened(session.application, 40) or session.backend_type or f"role {session.role}"
    age = f", open {duration(session.xact_age_s)}" if session.xact_age_s is not None else ""
    return f"session {session.pid} ({name}, {session.state or session.backend_type or 'state hidden'}{age})"


def _lines(seen: Observation, queue: Queue) -> list[Line]:
    """Follow every waiter that concerns the queue to those who wait for nobody, and group them by root."""
    waiting: dict[int, LockRow] = {
        row.pid: row for row in seen.last.locks if not row.granted and row.pid is not None
    }
    at_queue = {one.pid for one in seen.last.sessions if _at_queue(queue, one)}
    # A worker that has claimed its job, or a client that has enqueued one, may stand at the row of any other table.
    at_queue |= {
        row.pid
        for row in seen.last.locks
        if row.pid is not None
        and row.granted
        and row.locktype == "relation"
        and row.relation in queue.oids
        and row.mode == "RowExclusiveLock"
    }
    known = {one.oid for one in seen.queues}
    elsewhere = {row.oid for row in _namesakes(seen, queue) if row.oid in known}
    concerned = {
        pid: row
        for pid, row in waiting.items()
        if (row.locktype == "relation" and row.relation in queue.oids)
        or (pid in at_queue and not (row.locktype == "relation" and row.relation in elsewhere))
    }
    by_root: dict[int, dict[int, LockRow]] = {}
    for pid, row in concerned.items():
        for root in _roots(pid, waiting):
            by_root.setdefault(root, {})[pid] = row
    lines = []
    direct: dict[int, set[int]] = {}
    for root, rows in by_root.items():
        blockers = {one for row in rows.values() for one in row.blocked_by}
        middle = [
            row
            for pid, row in rows.items()
            if row.locktype == "relation" and row.mode in DDL_MODES and (pid in blockers or len(rows) == 1)
        ]
        # Workers reach other tables through foreign keys and triggers, and stand there behind DDL that never names the queue.
        middle += [
            row
            for pid, row in waiting.items()
            if pid not in rows
            and row.locktype == "relation"
            and row.mode in DDL_MODES
            and root in _roots(pid, waiting)
            and any(pid in _ahead(each, waiting) for each in rows)
        ]
        middle.sort(key=lambda row: (row.relation not in queue.oids, -(row.wait_age_s or 0.0)))
        between = {row.pid for row in middle}
        direct[root] = {pid for pid in rows if pid not in between and root in _ahead(pid, waiting, between)}
        if set(rows) <= direct[root] | between and direct[root]:
            # They wait for the root's own locks: that the statement in the middle goes away frees nobody.
            middle = []
        waiters = sorted(rows.values(), key=lambda row: -(row.wait_age_s or 0.0))
        lines.append(Line(root=root, waiters=tuple(waiters), middle=tuple(middle)))
    lines.sort(key=lambda one: (-len(direct[one.root]), -len(one.waiters), one.root))
    # A waiter of several roots is told once, with the root that most wait for.
    told: set[int | None] = set()
    kept = []
    for line in lines:
        if {row.pid for row in line.waiters} - told:
            kept.append(line)
            told |= {row.pid for row in line.waiters}
    return kept


def _roots(pid: int, waiting: dict[int, LockRow]) -> set[int]:
    """Blockers at the end of every chain that begins at a waiter; none where they only wait for each other."""
    return {one for one in _ahead(pid, waiting) if one == PREPARED or one not in waiting}


def _ahead(pid: int, waiting: dict[int, LockRow], leave_out: Set[int | None] = frozenset()) -> set[int]:
    """Everybody on the chains that begin at a waiter, itself left out; chains end at those to leave out."""
    todo, done = [pid], set()
    while todo:
        at = todo.pop()
        if at not in done:
            done.add(at)
            follow = at in waiting and at != PREPARED and (at == pid or at not in leave_out)
            todo.extend(waiting[at].blocked_by if follow else ())
    return done - {pid}


def _at_queue(queue: Queue, session: SessionRow) -> bool:
    if not session.query or session.state != "active" or session.database != queue.database:
        return False
    statements = read_sql(session.query).statements
    return any(
        any(queue.is_this(one.table) for one in statement.writes)
        or any(queue.is_this(one.table) for one in statement.locks)
        for statement in statements
    )


def _held(seen: Observation, queue: Queue, pid: int) -> list[str]:
    """Modes of the table locks that a session holds on the queue."""
    return sorted(
        {
            row.mode
            for row in seen.last.locks
            if row.pid == pid and row.granted and row.locktype == "relation" and row.relation in queue.oids
        }
    )


def _remedies(
    seen: Observation,
    queue: Queue,
    line: Line,
    session: SessionRow | None,
    middle: LockRow | None,
    sessions: dict[int, SessionRow],
) -> Iterator[Remedy]:
    if middle is not None and middle.pid is not None:
        stuck = sessions.get(middle.pid)
        yield remedy.end_session(
            pid=middle.pid,
            gently=True,
            title=f"Cancel the statement that waits in the middle (session {middle.pid})",
            expect=f"the sessions behind it go on at once; {queue.name} works while the root is dealt with",
            risk="the migration fails and has to be run again",
        )
        if stuck is not None and stuck.query:
            yield from _again(stuck.query)
    if line.root == PREPARED:
        yield from _resolve(seen.last.prepared, queue)
        return
    if session is None:
        return
    if session.backend_type == "autovacuum worker":
        return
    idle = (session.state or "").startswith("idle")
    yield remedy.end_session(
        pid=session.pid,
        gently=not idle,
        title=(
            f"{'End' if idle else 'Cancel the statement of'} the root, session {session.pid}"
            if middle is None
            else f"Or {'end' if idle else 'cancel the statement of'} the root, session {session.pid}, so that the one in the middle gets its lock"
        ),
        expect="its locks are released and the line moves on",
        risk="its open transaction is rolled back" + (" and its client loses the connection" if idle else ""),
    )
    if not idle and middle is None and _LONG.match(session.query or ""):
        yield from _again(session.query or "")


def _again(query: str) -> Iterator[Remedy]:
    """Say how the statement may be run again; nothing for one that keeps its strong lock while it copies the table."""
    text = query.strip().rstrip(";")
    concurrent = _BUILDS.sub(lambda found: f"{found[0]} CONCURRENTLY", text, count=1)
    if concurrent != text:
        yield remedy.corrected_statement(
            sql=(f"{concurrent};",),
            title="Run it again with CONCURRENTLY, by itself and outside of a transaction",
            expect="the queue is written to while the index is built",
            risk="takes longer, waits for transactions that are open when it begins, and leaves an invalid index to be dropped if it fails",
        )
    elif not _LONG.match(text):
        yield remedy.corrected_statement(
            sql=(remedy.LOCK_TIMEOUT, f"{text};"),
            title="Run it again with a lock_timeout, and repeat until it gets through",
            expect="it gives up after two seconds instead of stopping the queue",
            risk="it may have to be tried several times while long transactions read the table",
        )


def _resolve(prepared: tuple[PreparedRow, ...], queue: Queue) -> Iterator[Remedy]:
    """Only where there is one candidate is it sure which prepared transaction blocks."""
    candidates = [one for one in prepared if one.database == queue.database]
    if len(candidates) == 1:
        yield remedy.statement(
            sql=(f"ROLLBACK PREPARED {remedy.literal(candidates[0].gid)};",),
            title="Resolve the prepared transaction, after asking its coordinator: COMMIT PREPARED if it decided to commit",
            expect="its locks are released and the line moves on",
            risk="what the transaction wrote is lost; only its owner or a superuser may, in its own database",
        )


CHECK = Check(
    title="Sessions wait in line for a lock",
    needs=(),
    limits=Limits(),
    evaluate=evaluate,
    references=(
        "https://www.postgresql.org/docs/current/explicit-locking.html#LOCKING-TABLES",
        "https://www.postgresql.org/docs/current/functions-info.html#FUNCTIONS-INFO-SESSION",
        "https://www.postgresql.org/docs/current/runtime-config-client.html#GUC-LOCK-TIMEOUT",
    ),
    look_alikes=(
        "workers that pass a job's row lock on to each other within milliseconds",
        "a lock request that is granted at once",
        "lock queues on tables that are not the queue",
    ),
)
