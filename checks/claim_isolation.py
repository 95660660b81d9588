"""Claims fail because of their isolation level.

In REPEATABLE READ and SERIALIZABLE a claim may not move on from a row that another worker has just taken: it
fails with 40001 "could not serialize access" instead of skipping the row. The work up to there is thrown
away, and the worker usually sleeps before it tries again. READ COMMITTED with SKIP LOCKED is enough for a
claim: the row lock is what makes it safe.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated

from pgqdoctor import claiming, remedy, taking
from pgqdoctor.check import CLAIMS, COUNTERS, STATEMENTS, Check
from pgqdoctor.finding import Evidence, Finding, Severity
from pgqdoctor.observation import Observation
from pgqdoctor.queue import Queue
from pgqdoctor.sampled import sampled
from pgqdoctor.sqlread import read_sql, text_fingerprint
from pgqdoctor.words import percent, rate

STRICT = ("repeatable read", "serializable")
PREDICATE_LOCK = "SIReadLock"


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """When failures are more than a designed retry."""

    failed: Annotated[
        float,
        "ratio of transactions rolled back: 8 workers were measured at 17 to 26%, and at 0 in READ COMMITTED",
    ] = 0.05
    failed_rate: Annotated[float, "rollbacks per second: a few retries a second belong to the design"] = 5.0
    critical: Annotated[float, "ratio of transactions rolled back: most of the work is thrown away"] = 0.5
    begins: Annotated[
        float, "ratio of strict transactions to claims, from which the claims are taken to run in them"
    ] = 0.5


def evaluate(seen: Observation, queue: Queue, limits: Limits) -> Iterator[Finding]:
    """Report strict isolation where claims run in it and transactions fail."""
    claims = sum(one.seen.calls for one in queue.claims) + sum(one.calls for one in queue.function_claims)
    if not claims or seen.seconds <= 0:
        return
    level, how, begins = _level(seen)
    if level is None:
        level, how, begins = _of_claiming_sessions(seen, queue)
    if level is None:
        level, how, begins = _of_predicate_locks(seen, queue)
    if level is None or (begins is not None and begins < limits.begins * claims):
        return
    committed = seen.last.database.commits - seen.first.database.commits
    failed = seen.last.database.rollbacks - seen.first.database.rollbacks
    if begins is not None:
        # A claim that failed is not counted, its BEGIN is. Connection pools roll back whatever only read: no failures.
        failed = min(failed, max(begins - taking.taken(queue).calls, 0))
    share = failed / max(committed + failed, 1)
    if share < limits.failed or failed / seen.seconds < limits.failed_rate:
        return
    severity: Severity = "critical" if share >= limits.critical else "warning"
    claim = claiming.busiest(queue.claims) or next(iter(queue.inner_claims), None)
    text = claim.seen.statement.text.rstrip(";") + ";" if claim is not None else None
    yield Finding(
        check=CHECK.id,
        severity=severity,
        queue=queue.name,
        title=f"{percent(share)} of the transactions fail, {rate(failed / seen.seconds)}: claims of {queue.name} run in {level.upper()}",
        why=(
            "The claim's snapshot is older than the change by which another worker took the row. READ COMMITTED would look at the new version and pass "
            "over it; a stricter level has to fail with SQLSTATE 40001."
        ),
        evidence=(
            Evidence(what="isolation level", value=level, unit="", source=how),
            Evidence(
                what="rolled back",
                value=failed,
                unit="transactions",
                source="pg_stat_database, in the window, whole database",
            ),
            Evidence(
                what="committed",
                value=committed,
                unit="transactions",
                source="pg_stat_database, in the window, whole database",
            ),
            Evidence(what="claims", value=claims, unit="calls", source="pg_stat_statements, in the window"),
            *((claiming.text_evidence(claim.seen),) if claim is not None else ()),
        ),
        remedies=(
            remedy.corrected_statement(
                sql=("BEGIN ISOLATION LEVEL READ COMMITTED;", claiming.printed(queue, text), "COMMIT;")
                if text is not None
                else (),
                title="Claim in READ COMMITTED; what the job does afterwards may use another level in a transaction of its own",
                expect="claims skip the rows that others have taken instead of failing",
            ),
        ),
        relations=(queue.oid,),
    )


def _of_claiming_sessions(seen: Observation, queue: Queue) -> tuple[str | None, str, int | None]:
    """Return the strict level in which the sessions begin that were caught with a claim, if half of them do.

    A BEGIN that a driver has prepared is counted once, when it is run for the first time, so that its count does not tell.
    """
    claims = {text_fingerprint(one.seen.statement.text) for one in queue.claims}
    claims |= {text_fingerprint(one.statement.text) for one in queue.function_claims}
    takes = {place for place, text in enumerate(seen.texts) if text_fingerprint(text) in claims}
    read = {place: read_sql(text).statements for place, text in enumerate(seen.texts)}
    pids_of = sampled(seen).pids_of_text
    claimed = {pid for place in takes for pid in pids_of.get(place, ())}
    strict = {
        pid: statement.isolation
        for place, statements in read.items()
        for statement in statements
        if statement.isolation in STRICT
        for pid in pids_of.get(place, ())
    }
    both = claimed & set(strict)
    if not both or len(both) < len(claimed) / 2:
        return None, "", None
    return strict[min(both)], "pg_stat_activity, sessions that claim", None


def _of_predicate_locks(seen: Observation, queue: Queue) -> tuple[str | None, str, int | None]:
    """Return SERIALIZABLE where a session that was caught with a claim holds its predicate locks on the queue.

    A driver or a role can set the level where no statement shows it. Only SERIALIZABLE takes these locks.
    """
    calls = {one.seen.statement for one in queue.claims} | {one.statement for one in queue.function_claims}
    claimed = {one.session.pid for one in queue.sessions if one.statement in calls}
    holding = {
        row.pid
        for reading in (seen.first, seen.last)
        for row in reading.locks
        if row.mode == PREDICATE_LOCK and row.relation in queue.oids
    }
    return ("serializable", "pg_locks (SIReadLock)", None) if claimed & holding else (None, "", None)


def _level(seen: Observation) -> tuple[str | None, str, int | None]:
    """Return the strict level in use, where that shows, and how many transactions began with it (None for all
    of them)."""
    default = seen.catalog.setting("default_transaction_isolation")
    if default in STRICT:
        return default, "default_transaction_isolation", None
    first = {row.key: row.calls for row in seen.first.statements}
    last = {row.key: row.calls for row in seen.last.statements}
    begins: dict[str, int] = {}
    for row in seen.statement_texts:
        if row.text is None or "isolation" not in row.text.lower():
            continue
        calls = last.get(row.key, 0) - first.get(row.key, 0)
        for statement in read_sql(row.text).statements:
            if statement.isolation in STRICT and calls > 0:
                begins[statement.isolation] = begins.get(statement.isolation, 0) + calls
    if not begins:
        return None, "", None
    level = max(begins, key=lambda one: begins[one])
    return level, "pg_stat_statements", sum(begins.values())


CHECK = Check(
    title="Claims fail because of their isolation level",
    needs=(STATEMENTS, CLAIMS, COUNTERS),
    limits=Limits(),
    evaluate=evaluate,
    references=("https://www.postgresql.org/docs/current/transaction-iso.html#XACT-REPEATABLE-READ",),
    look_alikes=(
        "a report in REPEATABLE READ beside claims in READ COMMITTED",
        "a strict level with a retry that is seldom needed",
        "rollbacks of another cause while claims run in READ COMMITTED",
        "a connection pool that rolls back what only read, beside claims that never fail",
    ),
)
