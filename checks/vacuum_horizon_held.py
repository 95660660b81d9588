"""A transaction left open keeps dead rows from being vacuumed.

Every claimed and finished job leaves dead row versions behind. Vacuum removes them only when no transaction
that counts for this database could still see them, so one forgotten session, prepared transaction or
replication slot makes each claim step over more dead rows than the one before. Vacuuming more often cannot
help while the horizon is held.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated

from pgqdoctor import horizon, remedy
from pgqdoctor.check import COUNTERS, Check
from pgqdoctor.finding import Evidence, Finding, Remedy, Severity
from pgqdoctor.horizon import Holder
from pgqdoctor.observation import Observation
from pgqdoctor.queue import Queue
from pgqdoctor.words import count, duration, shortened


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """When a held horizon hurts a queue."""

    held_s: Annotated[
        float,
        "seconds a transaction must have been open: claims and finishes last milliseconds, and a busy one is no culprit",
    ] = 3.0
    dead_rows: Annotated[
        int,
        "dead rows it keeps now, or will keep a minute from now at today's rate: from about here a claim that walks them reads "
        "hundreds of buffers instead of a handful (5,000 scattered dead entries cost 5,017 buffers where 3 had done)",
    ] = 2_000
    felt_rows: Annotated[int, "dead rows it must keep already: fewer stay within one or two index pages"] = (
        300
    )
    critical_buffers: Annotated[
        float, "buffers per claimed row: some hundred times what a claim over a fresh partial index reads"
    ] = 1_000.0
    critical_rows: Annotated[
        int, "dead rows kept: ten times the 5,000 that were measured to cost 5,017 buffers a claim"
    ] = 50_000


def evaluate(seen: Observation, queue: Queue, limits: Limits) -> Iterator[Finding]:
    """Accuse the oldest holder of this database, if what it keeps hurts this queue."""
    holders = [
        one
        for one in horizon.of(seen).holders
        if horizon.stayed(seen, one)
        or (one.seconds is not None and one.seconds >= max(limits.held_s, seen.seconds))
    ]
    if not holders:
        return
    holder = holders[0]
    if holder.seconds is not None and holder.seconds < limits.held_s:
        return
    kept, how = _kept(seen, queue, holder)
    making = queue.churn.per_second(queue.churn.dead_made)
    if kept < limits.felt_rows or kept + making * 60 < limits.dead_rows:
        return
    plan = queue.plan
    buffers = plan.facts.buffers_per_row if plan is not None else None
    severity: Severity = "warning"
    if kept >= limits.critical_rows or (buffers is not None and buffers >= limits.critical_buffers):
        severity = "critical"
    evidence = [
        Evidence(what="held by", value=_who(holder), unit="", source=_source(holder)),
        Evidence(
            what=f"age of its {holder.by}", value=holder.age, unit="transactions", source=_source(holder)
        ),
        Evidence(what="dead rows it keeps", value=kept, unit="rows", source=how),
        Evidence(
            what="dead rows made", value=round(making, 1), unit="per second", source="pg_stat_user_tables"
        ),
    ]
    if holder.seconds is not None:
        evidence.insert(
            1,
            Evidence(what="open for", value=round(holder.seconds, 1), unit="seconds", source=_source(holder)),
        )
    if holder.query:
        evidence.append(
            Evidence(
                what="last statement", value=shortened(holder.query, 200), unit="", source="pg_stat_activity"
            )
        )
    if buffers is not None:
        evidence.append(
            Evidence(
                what="claim reads",
                value=round(buffers, 1),
                unit="buffers",
                source="EXPLAIN (ANALYZE, BUFFERS)",
            )
        )
    if len(holders) > 1:
        evidence.append(
            Evidence(what="after it holds", value=_who(holders[1]), unit="", source=_source(holders[1]))
        )
    yield Finding(
        check=CHECK.id,
        severity=severity,
        queue=queue.name,
        title=f"{_who(holder)} holds the xmin horizon: {count(kept)} dead rows of {queue.name} cannot be vacuumed",
        why=(
            "Vacuum may only remove row versions that no transaction could still see. "
            f"{_reason(holder)} Until it ends, each update and delete of the queue adds a dead row, and claims walk over their index entries."
        ),
        evidence=tuple(evidence),
        remedies=tuple(_remedies(holder, queue)),
        pids=(holder.pid,) if holder.pid is not None else (),
        relations=(queue.oid,),
    )


def _kept(seen: Observation, queue: Queue, holder: Holder) -> tuple[int, str]:
    """Dead rows that this holder keeps: all of them where a vacuum passed since, else what was made since."""
    dead = queue.churn.dead_last
    vacuumed = queue.last_any_vacuum_s
    if holder.seconds is None or (vacuumed is not None and vacuumed < holder.seconds):
        return (
            dead,
            "n_dead_tup of pg_stat_user_tables, left by a vacuum"
            if vacuumed is not None
            else "n_dead_tup of pg_stat_user_tables",
        )
    made = queue.churn.per_second(queue.churn.dead_made) * holder.seconds
    if made <= 0:
        return dead, "n_dead_tup of pg_stat_user_tables"
    return min(dead, round(made)), "dead rows per second times its age, at most n_dead_tup"


def _who(holder: Holder) -> str:
    """The culprit in a few words."""
    age = f", open {duration(holder.seconds)}" if holder.seconds is not None else ""
    if holder.kind == "session":
        name = shortened(holder.application, 40) or f"role {holder.role}"
        return f"Session {holder.pid} ({name}, {holder.state or 'state hidden'}{age})"
    if holder.kind == "prepared transaction":
        return f"Prepared transaction {shortened(holder.name, 60)!r} ({duration(holder.seconds or 0.0)} old)"
    if holder.kind == "replication slot":
        return f"Replication slot {holder.name} ({holder.state})"
    return f"Standby {shortened(holder.name, 60)} (hot_standby_feedback)"


def _source(holder: Holder) -> str:
    return {
        "session": "pg_stat_activity",
        "prepared transaction": "pg_prepared_xacts",
        "replication slot": "pg_replication_slots",
        "standby": "pg_stat_replication",
    }[holder.kind]


def _reason(holder: Holder) -> str:
    if holder.kind == "session" and holder.by == "xid":
        return "This session has written something and not committed, so its transaction id bounds what vacuum may remove."
    if holder.kind == "session":
        return "This session keeps a snapshot, and everything deleted since it was taken must stay for it."
    if holder.kind == "prepared transaction":
        return "A prepared transaction keeps its transaction id and its row locks without any session until it is resolved."
    if holder.kind == "replication slot":
        return "The slot keeps the xmin that its consumer last sent, also while the consumer is away."
    return "A query on the standby keeps a snapshot, and hot_standby_feedback carries it to this server."


def _remedies(holder: Holder, queue: Queue) -> Iterator[Remedy]:
    after = (
        f"The horizon moves on; the next vacuum of {queue.name} removes the dead rows, which "
        f"VACUUM (VERBOSE) {queue.name} shows at once."
    )
    if holder.kind == "session" and holder.pid is not None:
        if holder.idle:
            yield remedy.end_session(
                pid=holder.pid,
                gently=False,
                title=f"End session {holder.pid}",
                expect=after,
                risk="its open transaction is rolled back and its client loses the connection",
            )
            yield remedy.change_setting(
                name="idle_in_transaction_session_timeout",
                value="60s",
                settings=queue.catalog.settings,
                title="Let the server end transactions that idle for more than a minute",
                expect="a forgotten transaction ends after 60 s instead of holding the horizon for hours",
                risk="applies to all sessions of the server: clients that idle longer on purpose lose their connection",
            )
        else:
            yield remedy.end_session(
                pid=holder.pid,
                gently=True,
                title=f"Cancel the statement of session {holder.pid}",
                expect=after,
                risk="the statement fails with an error in its client; its work of this transaction is lost",
            )
    elif holder.kind == "prepared transaction":
        yield remedy.statement(
            sql=(f"ROLLBACK PREPARED {remedy.literal(holder.name)};",),
            title="Resolve the prepared transaction, after asking its coordinator: COMMIT PREPARED if it decided to commit",
            expect=after,
            risk="what the transaction wrote is lost; only its owner or a superuser may, in its own database",
        )
    elif holder.kind == "replication slot":
        yield remedy.statement(
            sql=(f"SELECT pg_drop_replication_slot({remedy.literal(holder.name)});",),
            title="Let the slot's consumer come back, or drop the slot if it never will",
            expect=after,
            risk="a consumer that comes back later must be built anew; an active slot cannot be dropped",
        )
    else:
        yield Remedy(
            title="End the long query on the standby, or turn hot_standby_feedback off there",
            kind="setting",
            sql=("ALTER SYSTEM SET hot_standby_feedback = off;", "SELECT pg_reload_conf();"),
            undo=("ALTER SYSTEM SET hot_standby_feedback = on;", "SELECT pg_reload_conf();"),
            lock="",
            blocks="nothing",
            restart=False,
            risk="to be run on the standby; its long queries may then be cancelled by replication conflicts",
            expect=after,
        )


CHECK = Check(
    title="The xmin horizon is held back",
    needs=(COUNTERS,),
    limits=Limits(),
    evaluate=evaluate,
    references=(
        "https://www.postgresql.org/docs/current/routine-vacuuming.html#VACUUM-FOR-SPACE-RECOVERY",
        "https://www.postgresql.org/docs/current/runtime-config-client.html#GUC-IDLE-IN-TRANSACTION-SESSION-TIMEOUT",
    ),
    look_alikes=(
        "an idle transaction in READ COMMITTED that has neither a transaction id nor a snapshot",
        "a snapshot in another database",
        "a lazy VACUUM that shows a backend_xmin",
        "a claim that is milliseconds old",
        "a slot with a catalog_xmin alone",
        "a blocked session that only shows the xmin of the writer it waits for",
    ),
)
