"""Statements that lock job rows FOR SHARE or FOR KEY SHARE make MultiXacts as soon as two of them meet.

Share locks may be held by many transactions at once. One holder stands in the row's xmax; for each further one PostgreSQL makes a new
MultiXact with all present holders as members, and whoever claims or finishes the job looks them up. Reading needs no row
lock: a plain SELECT sees a consistent row anyway.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated, Literal

from pgqdoctor import multixacts, remedy
from pgqdoctor.check import STATEMENTS, Check
from pgqdoctor.finding import Evidence, Finding, Remedy, Severity
from pgqdoctor.lint import multixacts as lint_multixacts
from pgqdoctor.multixacts import Activity
from pgqdoctor.observation import Observation
from pgqdoctor.queue import Queue
from pgqdoctor.sqlcombine import without_locks
from pgqdoctor.sqlfacts import RowLock
from pgqdoctor.statements import SeenStatement
from pgqdoctor.words import count, rate, shortened

KINDS: tuple[Literal["share", "key share"], ...] = ("share", "key share")
"""Strengths of row locks that several transactions can hold; the MultiXacts they make are called the same."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """When MultiXacts of share locks matter."""

    per_second: Annotated[
        float, "MultiXacts per second made by share locks; below it the caches hold hours of them"
    ] = 1.0
    warning_members: Annotated[
        float,
        "members per second; at this rate the 26,000 of the member cache of a default server (16 pages of 1,636 before 17) are "
        "those of the last two minutes, and a transaction open for longer makes lookups read from disk",
    ] = 200.0
    looked: Annotated[int, "MultiXacts seen with such members: one alone is a coincidence"] = 2
    explained: Annotated[
        float,
        "share locks per MultiXact that the queue's statements must show: a lock makes one at most, and the ids belong to the whole server",
    ] = 0.3


def evaluate(seen: Observation, queue: Queue, limits: Limits) -> Iterator[Finding]:
    """Accuse the queue's share-locking statements that can have made the MultiXacts seen."""
    made = multixacts.activity(seen)
    for kind in KINDS:
        per_second = made.rate(kind)
        if made.kinds.get(kind, 0) < limits.looked or per_second < limits.per_second:
            continue
        found = [
            (one, lock)
            for one, lock in queue.row_locks()
            if lock.strength == kind and one.seen and not multixacts.is_foreign_key_check(one.text)
        ]
        locks = queue.churn.per_second(sum(one.rows for one, _ in found))
        if not found or locks < limits.explained * per_second:
            continue
        if kind == "key share" and _foreign_key_inserts(seen, queue) > locks:
            continue
        if multixacts.makers(seen, queue, kind).elsewhere:
            continue
        members = made.members[kind]
        severity: Severity = "warning" if per_second * members >= limits.warning_members else "notice"
        yield _finding(queue, made, kind, found[0], severity, per_second, locks)
        return


def _finding(
    queue: Queue,
    made: Activity,
    kind: multixacts.Kind,
    busiest: tuple[SeenStatement, RowLock],
    severity: Severity,
    per_second: float,
    locks: float,
) -> Finding:
    clause = f"FOR {busiest[1].strength.upper()}"
    looked = "pg_get_multixact_members()"
    evidence = [
        Evidence(
            what="MultiXacts made on the whole server",
            value=round(made.per_second, 1),
            unit="per second",
            source="mxid_age() at both ends of the window",
        ),
        Evidence(
            what=f"MultiXacts looked at that have {clause} members",
            value=f"{made.kinds[kind]} of {made.looked}",
            unit="",
            source=looked,
        ),
        Evidence(what="members each", value=round(made.members[kind], 1), unit="members", source=looked),
        Evidence(
            what=f"rows locked {clause}",
            value=round(locks, 1),
            unit="per second",
            source="pg_stat_statements",
        ),
        Evidence(
            what="locked by",
            value=shortened(busiest[0].statement.text, 200),
            unit="",
            source=busiest[0].source,
        ),
    ]
    if made.members_zeroed is not None:
        evidence.insert(
            3,
            Evidence(
                what="members each, of all MultiXacts",
                value=round(made.members_zeroed, 1),
                unit="members",
                source="pages begun in pg_stat_slru",
            ),
        )
    if made.lookups:
        evidence.append(
            Evidence(
                what="lookups of MultiXact members",
                value=round(made.lookups / made.seconds, 1),
                unit="per second",
                source="pg_stat_slru (hits and reads)",
            )
        )
    return Finding(
        check=CHECK.id,
        severity=severity,
        queue=queue.name,
        title=(
            f"Statements that lock rows of {queue.name} {clause} meet on the same jobs: {count(per_second)} MultiXacts per second of "
            f"{count(made.members[kind])} members"
        ),
        why=(
            "A share lock may be held by many transactions at once. From the second holder on each one makes a new MultiXact with all "
            "present holders copied into it, and every claim or change of the job has to look the members up."
        ),
        evidence=tuple(evidence),
        remedies=tuple(_remedies(busiest, clause, per_second)),
        relations=(queue.oid,),
    )


def _remedies(busiest: tuple[SeenStatement, RowLock], clause: str, per_second: float) -> Iterator[Remedy]:
    plain = without_locks(busiest[0].statement.text)
    if plain is None:
        return
    yield remedy.corrected_statement(
        sql=(f"{plain};",),
        title="Read without a row lock where the row is only looked at",
        expect=f"no MultiXact from these reads: about {rate(per_second)} fewer on the server",
        risk="a change of the application: the row may change between this read and the end of the transaction",
    )
    yield remedy.corrected_statement(
        sql=(f"{plain} FOR NO KEY UPDATE;",),
        title="Or, where the job must not change meanwhile, lock it for one transaction alone",
        expect="a lock that only one transaction can hold needs no MultiXact",
        risk=f"a change of the application: transactions that held {clause} together now wait for each other",
    )


def _foreign_key_inserts(seen: Observation, queue: Queue) -> float:
    """Rows per second inserted into tables that reference the queue: their checks lock FOR KEY SHARE as well."""
    before = {row.oid: row.inserted for row in seen.first.tables}
    children = {
        leaf.oid
        for key in queue.foreign_keys
        if key.parent in queue.oids
        for leaf in (*queue.catalog.partitions_of(key.child),)
    }
    made = sum(
        max(row.inserted - before.get(row.oid, row.inserted), 0)
        for row in seen.last.tables
        if row.oid in children
    )
    return queue.churn.per_second(made)


CHECK = Check(
    title="MultiXacts made by share locks on job rows",
    needs=(STATEMENTS,),
    limits=Limits(),
    evaluate=evaluate,
    lint=lint_multixacts.from_share_lock,
    references=("https://www.postgresql.org/docs/current/explicit-locking.html#LOCKING-ROWS",),
    look_alikes=(
        "foreign key checks, which lock FOR KEY SHARE themselves",
        "share locks that seldom meet on one row",
        "share locks in another database or on another table",
    ),
)
