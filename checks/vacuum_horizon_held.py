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

from pgqdoctor import forecast, horizon, remedy
from pgqdoctor.check import COUNTERS, Check
from pgqdoctor.finding import Evidence, Finding, Remedy, Severity
from pgqdoctor.horizon import Crowd, Holder
from pgqdoctor.keeping import rows_kept
from pgqdoctor.observation import Observation
from pgqdoctor.queue import Queue
from pgqdoctor.sqlrewrite import quote_ident
from pgqdoctor.words import count, duration, shortened

TIMEOUT = "idle_in_transaction_session_timeout"


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
    behind_s: Annotated[
        float,
        "seconds that the horizon was behind in every single sample, and that the oldest of a class of overlapping transactions was open",
    ] = 1.0
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
    """Accuse the oldest holder of this database, or a class that takes turns, if what it keeps hurts this queue."""
    crowd = horizon.crowd(seen)
    if crowd is not None and not _outlasted(seen, crowd):
        together = list(_of_crowd(seen, queue, crowd, limits))
        if together:
            yield from together
            return
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
    kept, how = rows_kept(queue, holder)
    making = queue.churn.per_second(queue.churn.dead_made)
    if kept < limits.felt_rows or kept + making * 60 < limits.dead_rows:
        return
    plan = queue.plan
    buffers = plan.facts.buffers_per_row if plan is not None else None
    severity: Severity = "warning"
    if kept >= limits.critical_rows or (buffers is not None and buffers >= limits.critical_buffers):
        severity = "critical"
    evidence = [
        Evidence(what="held by", value=_who(holder, seen), unit="", source=_source(holder)),
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
    coming = forecast.claim_cost(seen, queue)
    evidence.extend(forecast.evidence(f"until a claim takes {forecast.SLOW_CLAIM_MS:.0f} ms", coming))
    # Who waits for a lock goes on when the holder ends.
    waiting = {row.pid for row in seen.last.sessions if row.wait_type == "Lock"}
    after = next((one for one in holders[1:] if one.pid not in waiting), None)
    if after is not None:
        evidence.append(
            Evidence(what="after it holds", value=_who(after, seen), unit="", source=_source(after))
        )
    yield Finding(
        check=CHECK.id,
        severity=severity,
        queue=queue.name,
        title=f"{_who(holder, seen)} holds the xmin horizon: {count(kept)} dead rows of {queue.name} cannot be vacuumed",
        why=(
            "Vacuum may only remove row versions that no transaction could still see. "
            f"{_reason(holder, seen)} Until it ends, each update and delete of the queue adds a dead row, and claims walk over their index entries."
            f"{forecast.sentence(coming)}"
        ),
        evidence=tuple(evidence),
        remedies=tuple(_remedies(holder, queue, seen)),
        pids=(holder.pid,) if holder.pid is not None else (),
        relations=(queue.oid,),
    )


def _outlasted(seen: Observation, crowd: Crowd) -> bool:
    """Tell whether something outside the class is as old as all of it: that one decides.

    The snapshots of the class may only show it: a prepared transaction or a writer of another database is in no sample.
    """
    return any(
        one.age >= crowd.usual_age and horizon.stayed(seen, one) and one.pid not in crowd.pids
        for one in horizon.of(seen).holders
    )


def _of_crowd(seen: Observation, queue: Queue, crowd: Crowd, limits: Limits) -> Iterator[Finding]:
    used = (
        (seen.last.database.next_xid - seen.first.database.next_xid) / seen.seconds
        if seen.seconds > 0
        else 0.0
    )
    if used <= 0:
        return
    least_s, usual_s = crowd.least_age / used, crowd.usual_age / used
    making = queue.churn.per_second(queue.churn.dead_made)
    kept = min(queue.churn.dead_last, round(making * usual_s))
    if least_s < limits.behind_s or crowd.longest_s < limits.behind_s or kept < limits.felt_rows:
        return
    plan = queue.plan
    buffers = plan.facts.buffers_per_row if plan is not None else None
    severity: Severity = "warning"
    if kept >= limits.critical_rows or (buffers is not None and buffers >= limits.critical_buffers):
        severity = "critical"
    names = ", ".join(shortened(name, 40) for name in crowd.applications[:3] if name) or "one kind"
    text = seen.texts[crowd.text] if crowd.text >= 0 else ""
    evidence = [
        Evidence(
            what="open at any moment",
            value=round(crowd.at_once, 1),
            unit="sessions",
            source="pg_stat_activity, samples",
        ),
        Evidence(
            what="oldest of them",
            value=round(crowd.longest_s, 1),
            unit="seconds",
            source="pg_stat_activity, samples",
        ),
        Evidence(
            what="different ones that led",
            value=crowd.turns,
            unit="transactions",
            source="pg_stat_activity, samples",
        ),
        Evidence(
            what="horizon behind, at the least",
            value=crowd.least_age,
            unit="transactions",
            source="backend_xmin, every sample",
        ),
        Evidence(
            what="horizon behind, as a rule",
            value=crowd.usual_age,
            unit="transactions",
            source="backend_xmin, every sample",
        ),
        Evidence(
            what="dead rows it keeps",
            value=kept,
            unit="rows",
            source="dead rows per second times how far it is behind",
        ),
    ]
    if text:
        evidence.append(
            Evidence(what="their statement", value=shortened(text, 200), unit="", source="pg_stat_activity")
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
    roles = {row.role for row in seen.last.sessions if row.pid in crowd.pids and row.role is not None}
    yield Finding(
        check=CHECK.id,
        severity=severity,
        queue=queue.name,
        subject="overlapping",
        title=(
            f"Overlapping transactions of {names} ({count(crowd.at_once)} at any moment, each open for {duration(crowd.longest_s)} at most) hold "
            f"the xmin horizon together, never less than {duration(least_s)} behind: {count(kept)} dead rows of {queue.name} cannot be vacuumed"
        ),
        why=(
            "None of these transactions is old, but before one ends the next has begun, so vacuum never finds a moment in which the "
            "dead rows are invisible to all. Limits on the length of a single query do not help; gaps between them do."
        ),
        evidence=tuple(evidence),
        remedies=tuple(_crowd_remedies(seen, queue, roles, text)),
        pids=crowd.pids,
        relations=(queue.oid,),
    )


def _crowd_remedies(seen: Observation, queue: Queue, roles: set[str], text: str) -> Iterator[Remedy]:
    # A limit on a role that also works on the queue would stop its workers, and none binds a superuser.
    others = {
        row.role
        for row in seen.statement_texts
        if row.text is not None and queue.table.name in row.text and row.text != text
    }
    if len(roles) == 1 and seen.server.statements == "ready" and not roles & {*others, "postgres"}:
        role = quote_ident(next(iter(roles)))
        yield remedy.statement(
            sql=(f"ALTER ROLE {role} CONNECTION LIMIT 1;",),
            undo=(f"ALTER ROLE {role} CONNECTION LIMIT -1;",),
            title=f"Let role {shortened(role, 60)} run one at a time",
            expect="the horizon moves on between two of them; the next vacuum then removes what died before",
            risk="further connections of the role are refused; sessions that are open stay; does not bind superusers",
        )
    yield remedy.corrected_statement(
        sql=(
            "BEGIN;",
            "SELECT pg_try_advisory_xact_lock(hashtext('reports')); -- false: another one runs, try again later",
            f"{text.strip().rstrip(';') or '-- the statement'};",
            "COMMIT;",
        ),
        title="Run them one after the other with gaps, or on a replica without hot_standby_feedback",
        expect="the horizon moves on between two of them; the next vacuum then removes what died before",
        risk="a change of the application: the reports take longer altogether",
    )


def _who(holder: Holder, seen: Observation) -> str:
    """The culprit in a few words."""
    age = f", open {duration(holder.seconds)}" if holder.seconds is not None else ""
    where = f", in database {shortened(holder.database or '', 40)}" if _elsewhere(holder, seen) else ""
    if holder.kind == "session":
        name = shortened(holder.application, 40) or f"role {holder.role}"
        return f"Session {holder.pid} ({name}, {holder.state or 'state hidden'}{age}{where})"
    if holder.kind == "prepared transaction":
        return f"Prepared transaction {shortened(holder.name, 60)!r} ({duration(holder.seconds or 0.0)} old{where})"
    if holder.kind == "replication slot":
        return f"Replication slot {holder.name} ({holder.state})"
    return f"Standby {shortened(holder.name, 60)} (hot_standby_feedback)"


def _elsewhere(holder: Holder, seen: Observation) -> bool:
    return holder.by == "xid" and holder.database not in (None, seen.server.database)


def _source(holder: Holder) -> str:
    return {
        "session": "pg_stat_activity",
        "prepared transaction": "pg_prepared_xacts",
        "replication slot": "pg_replication_slots",
        "standby": "pg_stat_replication",
    }[holder.kind]


def _reason(holder: Holder, seen: Observation) -> str:
    if _elsewhere(holder, seen):
        return (
            "It has written something in another database and not committed. Each snapshot taken here starts from the oldest running "
            "transaction id of all databases, so while it runs, what died since it began goes only in moments without any snapshot here."
        )
    if holder.kind == "session" and holder.by == "xid":
        return "This session has written something and not committed, so its transaction id bounds what vacuum may remove."
    if holder.kind == "session":
        return "This session keeps a snapshot, and everything deleted since it was taken must stay for it."
    if holder.kind == "prepared transaction":
        return (
            "A prepared transaction keeps its transaction id and its row locks without any session until it is resolved: claims with "
            "SKIP LOCKED pass over the jobs it has locked."
        )
    if holder.kind == "replication slot":
        return "The slot keeps the xmin that its consumer last sent, also while the consumer is away."
    return "A query on the standby keeps a snapshot, and hot_standby_feedback carries it to this server."


def _ended(pid: int, title: str, expect: str) -> Remedy:
    return remedy.end_session(
        pid=pid,
        gently=False,
        title=title,
        expect=expect,
        risk="its open transaction is rolled back and its client loses the connection",
    )


def _remedies(holder: Holder, queue: Queue, seen: Observation) -> Iterator[Remedy]:
    after = (
        f"The horizon moves on; the next vacuum of {queue.name} removes the dead rows, which "
        f"VACUUM (VERBOSE) {queue.name} shows at once."
    )
    if holder.kind == "session" and holder.pid is not None:
        if holder.idle:
            yield _ended(holder.pid, f"End session {holder.pid}", after)
            yield _timeout(holder, seen)
        else:
            yield remedy.end_session(
                pid=holder.pid,
                gently=True,
                title=f"Cancel the statement of session {holder.pid}",
                expect=after,
                risk="the statement fails with an error in its client; its work of this transaction is lost",
            )
        if holder.state is None and holder.seconds is None:
            # To cancel changes nothing for a session that idles in its transaction, and this role cannot tell.
            yield _ended(
                holder.pid,
                f"If that changes nothing, session {holder.pid} idles in its transaction: end it",
                after,
            )
    elif holder.kind == "prepared transaction":
        yield remedy.statement(
            sql=(f"ROLLBACK PREPARED {remedy.literal(holder.name)};",),
            title=(
                "Resolve the prepared transaction, after asking its coordinator: COMMIT PREPARED if it decided to commit"
                + (
                    f"; connect to database {shortened(holder.database or '', 40)} for it"
                    if _elsewhere(holder, seen)
                    else ""
                )
            ),
            expect=after,
            risk="what the transaction wrote is lost; only its owner or a superuser may, in its own database",
        )
    elif holder.kind == "replication slot" and holder.state != "active":
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


def _timeout(holder: Holder, seen: Observation) -> Remedy:
    """The setting that ends such a transaction the next time, for the holder's role alone; the whole server's where that is not known."""
    row = next((one for one in seen.last.sessions if one.pid == holder.pid), None)
    expect = "a forgotten transaction ends after 60 s instead of holding the horizon for hours"
    database = holder.database or seen.server.database
    if row is None or not row.role:
        return remedy.change_setting(
            name=TIMEOUT,
            value="60s",
            settings=seen.catalog.settings,
            title="Let the server end transactions that idle for more than a minute",
            expect=expect,
            risk="applies to all sessions of the server: clients that idle longer on purpose lose their connection",
        )
    return remedy.change_role_setting(
        role=row.role,
        database=database,
        name=TIMEOUT,
        value="60s",
        title=(
            f"Let transactions of role {shortened(row.role, 40)} in database {shortened(database, 40)} idle for a minute at most"
        ),
        expect=f"{expect}, in sessions that connect from now on",
        risk=(
            "all clients that connect with this role lose their connection when they idle longer on purpose; for every role, ALTER SYSTEM "
            f"SET {TIMEOUT} does the same"
        ),
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
        "a standby at rest, whose xmin is as old as its last feedback",
        "short transactions of many workers, between which the horizon moves on",
        "a blocked session that only shows the xmin of the writer it waits for",
    ),
)
