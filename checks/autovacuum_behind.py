"""Vacuum is due on the queue, or runs, but does not finish.

The settings may be right and the dead rows pile up all the same: every autovacuum worker is busy with another table, a
lock on the queue turns autovacuum away (it never waits for one, and it is cancelled when somebody waits for it), the cost
limits make one pass slower than the queue makes dead rows, or the pass ends by truncating the table, for which it
takes the strongest lock of all.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated

from pgqdoctor import remedy, vacuuming
from pgqdoctor.check import COUNTERS, Check
from pgqdoctor.features import Feature
from pgqdoctor.finding import Evidence, Finding, Remedy
from pgqdoctor.observation import Observation
from pgqdoctor.queue import Queue
from pgqdoctor.rows import LockRow, VacuumRow
from pgqdoctor.vacuuming import LeafUpkeep
from pgqdoctor.words import count, duration, percent, plural, rate

DELAY = "autovacuum_vacuum_cost_delay"
LIMIT = "autovacuum_vacuum_cost_limit"
MOST_COST_LIMIT = 10_000
"""The largest value that vacuum_cost_limit accepts."""
TURNS_AWAY = frozenset(
    {
        "ShareUpdateExclusiveLock",
        "ShareLock",
        "ShareRowExclusiveLock",
        "ExclusiveLock",
        "AccessExclusiveLock",
    }
)
"""Lock modes that conflict with the SHARE UPDATE EXCLUSIVE that vacuum needs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """When a vacuum that is due counts as missing."""

    dead_rows: Annotated[int, "dead rows below which nothing is said: they fit on some ten pages"] = 2_000
    beyond: Annotated[
        float, "times the table's own trigger point: up to twice is what one round of autovacuum leaves"
    ] = 2.0
    rounds: Annotated[
        float, "rounds of autovacuum_naptime without a vacuum: a table may wait one for its turn"
    ] = 2.0
    delayed_share: Annotated[
        float, "share of its samples in which a running vacuum sleeps for the cost limits: more than half"
    ] = 0.5
    pass_s: Annotated[
        float, "seconds that the rest of a running pass would take at its present pace: longer than one round"
    ] = 120.0


def evaluate(seen: Observation, queue: Queue, limits: Limits) -> Iterator[Finding]:
    """Name what keeps a vacuum that is due from starting or from ending."""
    yield from _truncation(seen, queue)
    leaves = vacuuming.leaves_of(seen, queue)
    if not leaves or not vacuuming.server_allows(queue.catalog) or vacuuming.held_horizon(seen) is not None:
        # Without autovacuum, or with a held horizon, another finding says why the rows stay.
        return
    worst = leaves[0]
    if not worst.enabled or worst.dead < limits.dead_rows or worst.beyond < limits.beyond:
        return
    running = next((row for row in seen.last.vacuums if row.relation == worst.table.oid), None)
    if running is not None:
        yield from _slow(seen, queue, worst, running, limits)
        return
    naptime = vacuuming.parameter(worst.table, queue.catalog, "autovacuum_naptime")
    since = worst.counters.last_autovacuum_s
    if since is not None and since < limits.rounds * naptime:
        return
    yield from _turned_away(seen, queue, worst)
    yield from _workers_busy(seen, queue, worst)


def _due(leaf: LeafUpkeep) -> tuple[Evidence, ...]:
    source = "pg_stat_user_tables"
    found = [
        Evidence(what="dead rows", value=leaf.dead, unit="rows", source=source),
        Evidence(
            what="autovacuum's trigger", value=leaf.trigger, unit="rows", source="pg_class, pg_settings"
        ),
        Evidence(
            what="lasting dead rows made", value=round(leaf.making, 1), unit="per second", source=source
        ),
    ]
    if leaf.counters.last_autovacuum_s is not None:
        found.append(
            Evidence(
                what="since the last autovacuum",
                value=round(leaf.counters.last_autovacuum_s, 1),
                unit="seconds",
                source=source,
            )
        )
    return tuple(found)


def _never(leaf: LeafUpkeep) -> str:
    since = leaf.counters.last_autovacuum_s
    return "never" if since is None else f"{duration(since)} ago"


def _target(leaf: LeafUpkeep) -> str:
    return remedy.qualified(leaf.table.schema, leaf.table.name)


def _by_hand(leaf: LeafUpkeep) -> Remedy:
    return remedy.statement(
        sql=(remedy.LOCK_TIMEOUT, f"VACUUM (TRUNCATE false) {_target(leaf)};"),
        title=f"Vacuum {_target(leaf)} once, by hand",
        expect=f"removes the {count(leaf.dead)} dead rows at once, without waiting for a worker",
        risk="reads the table and its indexes once",
        lock="SHARE UPDATE EXCLUSIVE",
    )


def _slow(
    seen: Observation, queue: Queue, leaf: LeafUpkeep, running: VacuumRow, limits: Limits
) -> Iterator[Finding]:
    """A vacuum is at work and sleeps most of the time."""
    looks = [
        session
        for sample in seen.samples
        for session in sample.sessions
        if session.pid == running.pid and session.vacuuming
    ]
    asleep = sum(1 for one in looks if (one.wait_event or "").lower() == "vacuumdelay")
    before = next((row for row in seen.first.vacuums if row.pid == running.pid), None)
    if before is None or not looks or asleep / len(looks) < limits.delayed_share:
        return
    done, whole = running.heap_blocks_scanned or 0, running.heap_blocks or 0
    pace = (done - (before.heap_blocks_scanned or 0)) / seen.seconds if seen.seconds > 0 else 0.0
    left_s = (whole - done) / pace if pace > 0 else None
    if left_s is not None and left_s < limits.pass_s:
        return
    limit, delay = _cost(queue, leaf, running)
    factor = max(2.0, (left_s or limits.pass_s * 2) / limits.pass_s)
    wanted = min(MOST_COST_LIMIT, round(limit * factor))
    options = {LIMIT: str(wanted)} if wanted > limit else {DELAY: "0"}
    eta = "does not get on" if left_s is None else f"needs {duration(left_s)} more for the heap alone"
    yield Finding(
        check=CHECK.id,
        severity="warning",
        queue=queue.name,
        subject="pace",
        title=(
            f"The vacuum of {_target(leaf)} (pid {running.pid}) sleeps {percent(asleep / len(looks))} of the time for its cost "
            f"limits and {eta}, while {rate(leaf.making)} rows die"
        ),
        why=(
            f"After every {limit:g} points of work vacuum sleeps {delay:g} ms. What dies while one pass creeps on has to wait "
            "for the next pass."
        ),
        evidence=(
            *_due(leaf),
            Evidence(what="phase", value=running.phase or "", unit="", source="pg_stat_progress_vacuum"),
            Evidence(what="heap pages done", value=done, unit="buffers", source="pg_stat_progress_vacuum"),
            Evidence(what="heap pages in all", value=whole, unit="buffers", source="pg_stat_progress_vacuum"),
            Evidence(
                what="asleep",
                value=round(asleep / len(looks), 2),
                unit="ratio",
                source="pg_stat_activity samples",
            ),
        ),
        remedies=(
            remedy.set_storage(
                _target(leaf),
                options,
                vacuuming.options_of(leaf.table),
                title=f"Let vacuum of {_target(leaf)} work faster",
                expect=(
                    f"{count(factor)} times the work per sleep; it applies from the next vacuum of the table on, "
                    f"the one of pid {running.pid} goes on as it began"
                ),
                risk="vacuum of this table reads and writes faster, and takes no part in balancing the cost among workers",
            ),
        ),
        pids=(running.pid,),
        relations=tuple(sorted(queue.oids)),
    )


def _cost(queue: Queue, leaf: LeafUpkeep, running: VacuumRow) -> tuple[float, float]:
    """Cost limit (points) and delay (milliseconds) of the vacuum that runs."""
    catalog = queue.catalog
    limit = float(catalog.setting("vacuum_cost_limit") or vacuuming.DEFAULTS["vacuum_cost_limit"])
    delay = float(catalog.setting("vacuum_cost_delay") or 0)
    if running.autovacuum is not False:
        own = float(vacuuming.options_of(leaf.table).get(LIMIT) or catalog.setting(LIMIT) or -1)
        limit = own if own > 0 else limit
        own = vacuuming.parameter(leaf.table, catalog, DELAY)
        delay = own if own >= 0 else delay
    return limit, delay


def _turned_away(seen: Observation, queue: Queue, leaf: LeafUpkeep) -> Iterator[Finding]:
    """Somebody holds a lock, in both readings, that autovacuum will not wait for."""
    held = [row for row in seen.last.locks if _conflicts(row, leaf.table.oid)]
    before = {(row.pid, row.mode) for row in seen.first.locks if _conflicts(row, leaf.table.oid)}
    lock = next((row for row in held if (row.pid, row.mode) in before), None)
    if lock is None or lock.pid is None:
        return
    session = next((row for row in seen.last.sessions if row.pid == lock.pid), None)
    name = f"session {lock.pid}" + (
        f" ({session.application or session.role})" if session is not None else ""
    )
    yield Finding(
        check=CHECK.id,
        severity="warning",
        queue=queue.name,
        subject="lock",
        title=(
            f"Autovacuum is turned away from {_target(leaf)} by {name}, which holds a {lock.mode}: "
            f"{count(leaf.dead)} dead rows wait, the last one came {_never(leaf)}"
        ),
        why=(
            "Vacuum needs a SHARE UPDATE EXCLUSIVE lock. Autovacuum does not wait for it: it skips the table and tries "
            "again a naptime later, and once at work it is cancelled when somebody waits for it."
        ),
        evidence=(
            *_due(leaf),
            Evidence(what="held by", value=name, unit="", source="pg_locks"),
            Evidence(what="lock", value=lock.mode, unit="", source="pg_locks"),
        ),
        remedies=tuple(_end(lock.pid, session.state if session is not None else None, leaf)),
        pids=(lock.pid,),
        relations=tuple(sorted(queue.oids)),
    )


def _conflicts(row: LockRow, oid: int) -> bool:
    return row.locktype == "relation" and row.relation == oid and row.granted and row.mode in TURNS_AWAY


def _end(pid: int, state: str | None, leaf: LeafUpkeep) -> Iterator[Remedy]:
    idle = state is not None and state.startswith("idle")
    yield remedy.end_session(
        pid=pid,
        gently=not idle,
        title=f"End session {pid}" if idle else f"Cancel the statement of session {pid}",
        expect=f"the lock is given up; autovacuum comes to {_target(leaf)} within a round of autovacuum_naptime",
        risk="its transaction is rolled back; a migration or an index build has to be run again, when the queue is quiet",
    )


def _workers_busy(seen: Observation, queue: Queue, leaf: LeafUpkeep) -> Iterator[Finding]:
    """All workers were at other tables in both readings."""
    most = int(vacuuming.parameter(leaf.table, queue.catalog, "autovacuum_max_workers"))
    readings = [
        [row for row in reading.vacuums if row.autovacuum and row.relation not in queue.oids]
        for reading in (seen.first, seen.last)
    ]
    if min(len(found) for found in readings) < most:
        return
    by_oid = {row.oid: row for row in queue.catalog.tables}
    where = []
    for row in readings[1]:
        known = (
            by_oid.get(row.relation)
            if row.relation is not None and row.database == seen.server.database
            else None
        )
        where.append(
            remedy.qualified(known.schema, known.name)
            if known is not None
            else f"database {row.database or '?'}"
        )
    whole = "The only autovacuum worker is" if most == 1 else f"All {most} autovacuum workers are"
    restart = not seen.server.has(Feature.WORKERS_WITHOUT_RESTART)
    yield Finding(
        check=CHECK.id,
        severity="warning",
        queue=queue.name,
        subject="workers",
        title=(
            f"{whole} busy elsewhere ({', '.join(dict.fromkeys(where))}), while "
            f"{count(leaf.dead)} dead rows of {_target(leaf)} wait; the last vacuum came {_never(leaf)}"
        ),
        why=(
            "A worker stays with its table until it is done. Large tables can keep all of them for hours, and a queue that "
            "would be vacuumed in a second waits for the next free one."
        ),
        evidence=(
            *_due(leaf),
            Evidence(
                what="workers at other tables",
                value=len(readings[1]),
                unit="",
                source="pg_stat_progress_vacuum",
            ),
            Evidence(what="autovacuum_max_workers", value=most, unit="", source="pg_settings"),
        ),
        remedies=(
            _by_hand(leaf),
            remedy.change_setting(
                name="autovacuum_max_workers",
                value=str(most + 2),
                settings=queue.catalog.settings,
                title=f"Allow {most + 2} autovacuum workers instead of {most}",
                expect="a small table finds a free worker while the large ones keep theirs",
                risk=(
                    "workers share one cost limit: each gets slower unless autovacuum_vacuum_cost_limit is raised as well"
                    + ("" if restart else "; more than autovacuum_worker_slots cannot run")
                ),
                restart=restart,
            ),
        ),
        relations=tuple(sorted(queue.oids)),
    )


def _truncation(seen: Observation, queue: Queue) -> Iterator[Finding]:
    """A vacuum that gives back empty pages holds ACCESS EXCLUSIVE while others wait for it."""
    found = [
        row for row in seen.last.vacuums if row.relation in queue.oids and row.phase == "truncating heap"
    ]
    for row in found:
        waiting = [
            lock.pid
            for lock in seen.last.locks
            if not lock.granted and row.pid in lock.blocked_by and lock.pid is not None
        ]
        table = next((leaf for leaf in queue.leaves if leaf.oid == row.relation), queue.table)
        if not waiting:
            continue
        target = remedy.qualified(table.schema, table.name)
        yield Finding(
            check=CHECK.id,
            severity="warning",
            queue=queue.name,
            subject="truncation",
            title=f"Vacuum of {target} (pid {row.pid}) truncates the table: {plural(len(set(waiting)), 'session')} waiting for it",
            why=(
                "When the last pages of a table are empty, vacuum takes an ACCESS EXCLUSIVE lock to give them back. A queue "
                "that runs empty and fills again pays for that each time, on the standbys too."
            ),
            evidence=(
                Evidence(what="phase", value="truncating heap", unit="", source="pg_stat_progress_vacuum"),
                Evidence(
                    what="sessions that wait for it", value=len(set(waiting)), unit="", source="pg_locks"
                ),
            ),
            remedies=(
                remedy.set_storage(
                    target,
                    {"vacuum_truncate": "false"},
                    vacuuming.options_of(table),
                    title=f"Let {target} keep its empty pages",
                    expect="vacuum ends without the exclusive lock; the pages are used again by the next jobs",
                    risk="the file keeps its largest size",
                ),
            ),
            pids=(row.pid,),
            relations=tuple(sorted(queue.oids)),
        )


CHECK = Check(
    title="Vacuum is due but does not finish",
    needs=(COUNTERS,),
    limits=Limits(),
    evaluate=evaluate,
    references=(
        "https://www.postgresql.org/docs/current/routine-vacuuming.html#AUTOVACUUM",
        "https://www.postgresql.org/docs/current/progress-reporting.html#VACUUM-PROGRESS-REPORTING",
    ),
    look_alikes=(
        "a vacuum that runs at its pace and will be done within a round",
        "workers busy elsewhere while the queue is not due",
        "a vacuum that ends without removing rows, because the horizon is held",
    ),
)
