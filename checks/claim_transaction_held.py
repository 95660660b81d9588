"""The transaction that claimed a job stays open while the job runs.

All that time the session sits idle in transaction: it holds the row's lock, so nobody can cancel or requeue the job; it holds a
transaction id, so vacuum removes no row that died since it began; and it occupies a connection. Claims are meant to take milliseconds:
take the job, commit, work outside of any transaction, and finish with a second short one.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated

from pgqdoctor import remedy
from pgqdoctor.check import ACTIVITY, Check
from pgqdoctor.finding import Evidence, Finding, Remedy, Severity
from pgqdoctor.observation import Observation
from pgqdoctor.queue import Queue
from pgqdoctor.sqlfacts import Statement
from pgqdoctor.sqlread import read_sql
from pgqdoctor.transactions import SeenTransaction, idle_transactions
from pgqdoctor.words import count, duration, plural, shortened


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """When a transaction that holds a claim is held too long."""

    idle_s: Annotated[
        float,
        "seconds a claim's transaction waited for its client: a claim and its commit are a millisecond apart",
    ] = 1.0
    warning_s: Annotated[
        float,
        "seconds of such a transaction from which dead rows of a queue's pace (hundreds per second) add up to a page or more",
    ] = 2.0
    end_s: Annotated[
        float,
        "seconds from which ending the session may be the lesser evil; jobs themselves may well take long",
    ] = 60.0
    blocked_s: Annotated[float, "seconds that another session has waited for it"] = 1.0


def evaluate(seen: Observation, queue: Queue, limits: Limits) -> Iterator[Finding]:
    """Accuse transactions that touched job rows and then idled for seconds."""
    held = [
        one
        for one in idle_transactions(seen)
        if one.writes and one.idle_s >= limits.idle_s and _claims(seen, queue, one)
    ]
    if not held:
        return
    ended = max(one.last_seen for one in held)
    still = [one for one in held if one.idle and ended - one.last_seen <= 1.0] or held
    still.sort(key=lambda one: (-one.seconds, one.pid))
    worst = still[0]
    longest = max(one.seconds for one in held)
    behind = _behind(seen, {one.pid for one in still}, limits.blocked_s)
    severity: Severity = "notice"
    if longest >= limits.warning_s:
        severity = "warning"
    if behind:
        severity = "critical"
    at_once = sum(one.idle_samples for one in held) / max(queue.sample_count, 1)
    yield Finding(
        check=CHECK.id,
        severity=severity,
        queue=queue.name,
        title=_title(queue, still, worst, longest, behind),
        why=(
            "A claim that is not committed keeps its row lock, its transaction id and its connection while the job runs. "
            "The transaction id bounds what vacuum may remove from every table of the database, and whoever wants to change the "
            "job, to cancel it for instance, has to wait."
        ),
        evidence=tuple(_evidence(seen, still, worst, longest, at_once, behind)),
        remedies=tuple(_remedies(seen, queue, worst, behind, limits)),
        pids=tuple(one.pid for one in still),
        relations=(queue.oid,),
    )


def _title(
    queue: Queue, still: list[SeenTransaction], worst: SeenTransaction, longest: float, behind: list[int]
) -> str:
    name = f"session {worst.pid} ({shortened(worst.application, 40) or 'no application name'})"
    if len(still) > 1:
        text = (
            f"{count(len(still))} sessions hold their claims on {queue.name} open, idle in transaction, for up to {duration(longest)}; "
            f"now longest: {name}"
        )
    else:
        text = (
            f"S{name[1:]} holds its claim on {queue.name} open, idle in transaction, for {duration(longest)}"
        )
    if behind:
        text += f"; {plural(len(behind), 'session')} {'waits' if len(behind) == 1 else 'wait'} for {'it' if len(still) == 1 else 'them'}"
    return text


def _claims(seen: Observation, queue: Queue, one: SeenTransaction) -> bool:
    """Tell whether the transaction locked or changed job rows: by its statements, else by its table locks."""
    for place in one.texts:
        for statement in read_sql(seen.texts[place]).statements:
            if _takes(queue, statement):
                return True
    if any(
        _only_inserts(queue, statement)
        for place in one.texts
        for statement in read_sql(seen.texts[place]).statements
    ):
        return False
    modes = {
        row.mode
        for row in (*seen.first.locks, *seen.last.locks)
        if row.pid == one.pid and row.granted and row.locktype == "relation" and row.relation in queue.oids
    }
    # SELECT FOR UPDATE takes ROW SHARE on the table; so does the foreign key check of a child's insert.
    referenced = any(key.parent in queue.oids for key in queue.foreign_keys)
    return "RowShareLock" in modes and (not referenced or "RowExclusiveLock" in modes)


def _takes(queue: Queue, statement: Statement) -> bool:
    if any(write.kind != "insert" and queue.is_this(write.table) for write in statement.writes):
        return True
    if any(
        lock.strength in ("update", "no key update") and queue.is_this(lock.table) for lock in statement.locks
    ):
        return True
    names = {row.name for row in queue.catalog.functions if row.oid in queue.identity.functions}
    return any(called.rpartition(".")[2] in names for called in statement.functions)


def _only_inserts(queue: Queue, statement: Statement) -> bool:
    return any(write.kind == "insert" and queue.is_this(write.table) for write in statement.writes)


def _behind(seen: Observation, pids: set[int], least_s: float) -> list[int]:
    """Sessions that wait for one of these, directly."""
    return sorted(
        {
            row.pid
            for row in seen.last.locks
            if not row.granted
            and row.pid is not None
            and row.pid not in pids
            and (row.wait_age_s or 0.0) >= least_s
            and pids & set(row.blocked_by)
        }
    )


def _evidence(
    seen: Observation,
    still: list[SeenTransaction],
    worst: SeenTransaction,
    longest: float,
    at_once: float,
    behind: list[int],
) -> Iterator[Evidence]:
    yield Evidence(
        what="longest transaction", value=round(longest, 1), unit="seconds", source="pg_stat_activity"
    )
    yield Evidence(
        what=f"session {worst.pid} has waited for its client",
        value=round(worst.idle_s, 1),
        unit="seconds",
        source="pg_stat_activity.state_change",
    )
    yield Evidence(
        what="sessions that hold a claim so", value=len(still), unit="sessions", source="pg_stat_activity"
    )
    yield Evidence(
        what="such sessions at any moment",
        value=round(at_once, 1),
        unit="sessions",
        source="pg_stat_activity, samples",
    )
    if worst.last_text >= 0:
        yield Evidence(
            what="last statement",
            value=shortened(seen.texts[worst.last_text], 200),
            unit="",
            source="pg_stat_activity",
        )
    if behind:
        yield Evidence(
            what="sessions that wait for it",
            value=len(behind),
            unit="sessions",
            source="pg_locks, pg_blocking_pids()",
        )


def _remedies(
    seen: Observation, queue: Queue, worst: SeenTransaction, behind: list[int], limits: Limits
) -> Iterator[Remedy]:
    claim = _statement_of(seen, queue, worst)
    finish = next(
        (
            one.statement.text
            for kind in ("delete", "update")
            for one, write in queue.writes(kind)
            if one.seen and write.by_key_only and not one.statement.locks and one.statement.text != claim
        ),
        None,
    )
    sequence = [f"{_bare(claim)}; -- without BEGIN around it: committed at once"] if claim else []
    sequence.append("-- the job runs here, outside of any transaction")
    if finish:
        sequence.append(f"{_bare(finish)}; -- finish in a second short transaction")
    else:
        sequence.append("-- then finish the job in a second short transaction")
    leased = queue.identity.roles.lease or queue.identity.roles.heartbeat
    yield remedy.corrected_statement(
        sql=tuple(sequence),
        title="Commit the claim before the work begins",
        expect="sessions at the queue are idle in transaction for milliseconds; row locks and the xmin horizon are free while jobs run",
        risk=(
            "a change of the application: a rollback no longer gives a crashed worker's job back, "
            + (
                f"that is what {shortened(leased, 40)} and its sweeper are for"
                if leased
                else "so jobs need a lease or heartbeat column and a sweeper"
            )
        ),
    )
    if worst.idle and (behind or worst.seconds >= limits.end_s):
        yield remedy.end_session(
            pid=worst.pid,
            gently=False,
            title=f"End session {worst.pid} ({shortened(worst.application, 40)}), if its job is not worth the wait",
            expect="its claim is rolled back and the job can be taken again; what waits for it goes on",
            risk="the work done for this job so far is lost or done twice; the worker loses its connection",
        )


def _statement_of(seen: Observation, queue: Queue, worst: SeenTransaction) -> str | None:
    for place in worst.texts:
        for statement in read_sql(seen.texts[place]).statements:
            if statement.claims and _takes(queue, statement):
                return statement.text
    return queue.claims[0].seen.statement.text if queue.claims else None


def _bare(text: str) -> str:
    return text.strip().rstrip(";").strip()


CHECK = Check(
    title="The claim's transaction stays open while the job runs",
    needs=(ACTIVITY,),
    limits=Limits(),
    evaluate=evaluate,
    references=(
        "https://www.postgresql.org/docs/current/runtime-config-client.html#GUC-IDLE-IN-TRANSACTION-SESSION-TIMEOUT",
        "https://www.postgresql.org/docs/current/explicit-locking.html#LOCKING-ROWS",
    ),
    look_alikes=(
        "claims that are idle in transaction for milliseconds",
        "a session that only read the queue and left its transaction open",
        "a producer whose transaction stays open after an insert",
        "children's inserts, whose foreign key check holds ROW SHARE on the queue",
    ),
)
