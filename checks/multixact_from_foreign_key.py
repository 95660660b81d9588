"""Concurrent inserts lock the same referenced row, and each newcomer makes a MultiXact of all who hold it.

A foreign key check locks the referenced row FOR KEY SHARE until its transaction ends. One locker stands in the row's xmax; from the
second on a new MultiXact is made for every newcomer, with all present lockers copied into it: the work grows with the square of
the inserts that are open at once. A queue meets this as the child of a hot parent (all jobs of one tenant), and as the
parent whose own rows are referenced by logs or results while they are claimed.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated

from pgqdoctor import multixacts, remedy
from pgqdoctor.check import COUNTERS, Check
from pgqdoctor.finding import Evidence, Finding, Remedy, Severity
from pgqdoctor.multixacts import Activity
from pgqdoctor.names import same_table
from pgqdoctor.observation import Observation, SampledSession
from pgqdoctor.queue import Queue
from pgqdoctor.rows import ForeignKeyRow
from pgqdoctor.sqlcombine import two_rows
from pgqdoctor.sqlfacts import TableName
from pgqdoctor.sqlread import read_sql
from pgqdoctor.sqlrewrite import quote_ident
from pgqdoctor.words import count, duration, plural, shortened


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """When MultiXacts of foreign key checks matter."""

    per_second: Annotated[
        float, "MultiXacts per second made by KEY SHARE locks; below it the caches hold hours of them"
    ] = 1.0
    warning_members: Annotated[
        float,
        "members per second; at this rate the 26,000 of the member cache of a default server (16 pages of 1,636 before 17) are "
        "those of the last two minutes, and a transaction open for longer makes lookups read from disk",
    ] = 200.0
    looked: Annotated[int, "MultiXacts seen with KEY SHARE members: one alone is a coincidence"] = 2
    explained: Annotated[
        float,
        "inserts per MultiXact that the foreign key must show: an insert makes one at most, and the ids belong to the whole server",
    ] = 0.3
    keeper_s: Annotated[
        float, "seconds a transaction must have been open to be named as the one that keeps them alive"
    ] = 3.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Suspect:
    """A foreign key of the queue, and the rows per second inserted on its child's side."""

    key: ForeignKeyRow
    inserts: float
    queue_is_child: bool


def evaluate(seen: Observation, queue: Queue, limits: Limits) -> Iterator[Finding]:
    """Accuse the foreign key whose inserts can have made the KEY SHARE MultiXacts seen."""
    made = multixacts.activity(seen)
    per_second = made.rate("key share")
    if made.kinds.get("key share", 0) < limits.looked or per_second < limits.per_second:
        return
    suspects = [one for one in _suspects(seen, queue) if one.inserts >= limits.explained * per_second]
    if not suspects:
        return
    children = [_name_of(queue, one.key.child) for one in suspects]
    if multixacts.makers(
        seen, queue, "key share", also=[one for one in children if one is not None]
    ).elsewhere:
        return
    if _by_statements(queue, suspects[0], per_second):
        return
    # The fewer rows the parent has, the more inserts meet on one of them.
    suspects.sort(
        key=lambda one: (one.key.parent_rows if one.key.parent_rows >= 0 else float("inf"), -one.inserts)
    )
    guilty = suspects[0]
    keeper = multixacts.keeper(seen, "key share", limits.keeper_s)
    members = made.members["key share"]
    severity: Severity = "warning" if per_second * members >= limits.warning_members else "notice"
    yield Finding(
        check=CHECK.id,
        severity=severity,
        queue=queue.name,
        subject=guilty.key.name,
        title=_title(guilty, per_second, members, keeper),
        why=_why(guilty, keeper),
        evidence=tuple(_evidence(seen, queue, made, guilty, suspects[1:], keeper, per_second)),
        remedies=tuple(_remedies(seen, queue, guilty, keeper, per_second)),
        pids=(keeper.pid,) if keeper is not None else (),
        relations=(queue.oid, guilty.key.child, guilty.key.parent),
    )


def _title(guilty: Suspect, per_second: float, members: float, keeper: SampledSession | None) -> str:
    key = guilty.key
    what = (
        f"Inserts into {key.child_name} lock the same rows of {key.parent_name} (foreign key {quote_ident(key.name)}): "
        f"{count(per_second)} MultiXacts per second of {count(members)} members"
    )
    if keeper is None:
        return what
    return f"{what}, kept alive by session {keeper.pid}, open {duration(keeper.xact_age_s or 0.0)}"


def _why(guilty: Suspect, keeper: SampledSession | None) -> str:
    text = (
        "The foreign key check locks the referenced row FOR KEY SHARE, so that it cannot be deleted before the insert commits. "
        "A second transaction at the same row needs a MultiXact, and every further one makes a new MultiXact with all present "
        "lockers copied into it."
    )
    if keeper is not None:
        text += (
            " One transaction has been holding such locks for long: until it ends, everybody who locks or changes one of these "
            "rows has to look the members up, also those that are long gone."
        )
    elif not guilty.queue_is_child:
        text += " Here the locked rows are the jobs themselves, so claims and finishes meet the MultiXacts."
    return text


def _suspects(seen: Observation, queue: Queue) -> list[Suspect]:
    found = []
    for key in queue.foreign_keys:
        queue_is_child = key.child in queue.oids
        if queue_is_child:
            inserts = queue.churn.per_second(queue.churn.inserted)
            counted = sum(one.rows for one, _ in queue.writes("insert"))
            inserts = max(inserts, queue.churn.per_second(counted))
        else:
            inserts = queue.churn.per_second(_inserted(seen, queue, key.child))
        found.append(Suspect(key=key, inserts=inserts, queue_is_child=queue_is_child))
    return found


def _inserted(seen: Observation, queue: Queue, table: int) -> int:
    """Rows inserted into a table and its partitions in the window."""
    leaves = {table, *(leaf.oid for leaf in queue.catalog.partitions_of(table))}
    before = {row.oid: row.inserted for row in seen.first.tables}
    return sum(
        max(row.inserted - before.get(row.oid, row.inserted), 0)
        for row in seen.last.tables
        if row.oid in leaves
    )


def _by_statements(queue: Queue, suspect: Suspect, per_second: float) -> bool:
    """Tell whether the application's own FOR KEY SHARE on the queue explains them: another check speaks about it."""
    if suspect.queue_is_child:
        return False
    calls = sum(
        one.calls
        for one, lock in queue.row_locks()
        if lock.strength == "key share" and not multixacts.is_foreign_key_check(one.text)
    )
    return (
        queue.churn.per_second(calls) > suspect.inserts and queue.churn.per_second(calls) >= per_second * 0.3
    )


def _name_of(queue: Queue, table: int) -> TableName | None:
    row = queue.catalog.table(table)
    return TableName(schema=row.schema, name=row.name) if row is not None else None


def _evidence(
    seen: Observation,
    queue: Queue,
    made: Activity,
    guilty: Suspect,
    others: list[Suspect],
    keeper: SampledSession | None,
    per_second: float,
) -> Iterator[Evidence]:
    looked, members = "pg_get_multixact_members()", made.members["key share"]
    yield Evidence(
        what="MultiXacts made on the whole server",
        value=round(made.per_second, 1),
        unit="per second",
        source="mxid_age() at both ends of the window",
    )
    yield Evidence(
        what="MultiXacts looked at that have KEY SHARE members only, or with an update beside them",
        value=f"{made.kinds['key share']} of {made.looked}",
        unit="",
        source=looked,
    )
    yield Evidence(what="members each", value=round(members, 1), unit="members", source=looked)
    if made.members_zeroed is not None:
        yield Evidence(
            what="members each, of all MultiXacts",
            value=round(made.members_zeroed, 1),
            unit="members",
            source="pages begun in pg_stat_slru",
        )
    yield Evidence(what="constraint", value=guilty.key.name, unit="", source="pg_constraint")
    yield Evidence(
        what=f"rows inserted into {guilty.key.child_name}",
        value=round(guilty.inserts, 1),
        unit="per second",
        source="pg_stat_user_tables",
    )
    if guilty.key.parent_rows >= 0:
        yield Evidence(
            what=f"rows of {guilty.key.parent_name}",
            value=round(guilty.key.parent_rows),
            unit="rows",
            source="pg_class.reltuples",
        )
    held = _held_open(queue, guilty)
    if held:
        yield Evidence(
            what="transactions found idle after such an insert, the lock still held",
            value=round(held / max(queue.sample_count, 1), 1),
            unit="sessions",
            source="pg_stat_activity, per sample",
        )
    if keeper is not None:
        yield Evidence(
            what="kept alive by",
            value=f"session {keeper.pid} ({shortened(keeper.application, 40)}, {keeper.state})",
            unit="",
            source="pg_locks and pg_stat_activity",
        )
    if made.lookups:
        yield Evidence(
            what="lookups of MultiXact members",
            value=round(made.lookups / made.seconds, 1),
            unit="per second",
            source="pg_stat_slru (hits and reads)",
        )
    if made.misses:
        yield Evidence(
            what="lookups that had to read a page",
            value=round(made.misses / made.seconds, 1),
            unit="per second",
            source="pg_stat_slru.blks_read",
        )
    if others:
        names = ", ".join(quote_ident(one.key.name) for one in others[:4])
        yield Evidence(
            what="other foreign keys with enough inserts",
            value=shortened(names, 200),
            unit="",
            source="pg_constraint",
        )


def _held_open(queue: Queue, guilty: Suspect) -> int:
    """Samples of sessions idle in transaction whose last statement was the insert."""
    if not guilty.queue_is_child:
        return 0
    return sum(
        1
        for one in queue.sessions
        if one.session.state == "idle in transaction"
        and one.statement is not None
        and any(write.kind == "insert" and queue.is_this(write.table) for write in one.statement.writes)
    )


def _insert_text(seen: Observation, queue: Queue, guilty: Suspect) -> str | None:
    """The busiest insert into the child."""
    name = _name_of(queue, guilty.key.child)
    if name is None:
        return None
    calls = {row.key: row.calls for row in seen.last.statements}
    before = {row.key: row.calls for row in seen.first.statements}
    best: tuple[int, str] | None = None
    for row in seen.statement_texts:
        if row.text is None or name.name not in row.text:
            continue
        for statement in read_sql(row.text).statements:
            if any(
                w.kind == "insert" and same_table(w.table, name.schema or "", name.name)
                for w in statement.writes
            ):
                busy = calls.get(row.key, 0) - before.get(row.key, 0)
                if busy > 0 and (best is None or busy > best[0]):
                    best = (busy, statement.text)
    return best[1] if best is not None else None


def _remedies(
    seen: Observation, queue: Queue, guilty: Suspect, keeper: SampledSession | None, per_second: float
) -> Iterator[Remedy]:
    key = guilty.key
    if keeper is not None:
        idle = (keeper.state or "").startswith("idle")
        yield remedy.end_session(
            pid=keeper.pid,
            gently=not idle,
            title=f"First {'end' if idle else 'cancel the statement of'} session {keeper.pid} ({shortened(keeper.application, 40)})",
            expect="lookups of MultiXact members stop at once: a MultiXact without a running member is not looked up",
            risk="its transaction is rolled back: what it has inserted since it began is lost",
        )
    insert = _insert_text(seen, queue, guilty)
    if _held_open(queue, guilty):
        yield remedy.corrected_statement(
            sql=(f"{insert}; -- a transaction of its own, or the last statement before COMMIT",)
            if insert
            else (),
            title=f"Commit right after the insert into {key.child_name}: the lock on {key.parent_name} lasts until the end of the transaction",
            expect="a lock that lasts as long as one statement seldom meets another: fewer MultiXacts, with fewer members each",
            risk="a change of the application: what follows the insert is no longer rolled back together with it",
        )
    batch = two_rows(insert) if insert else None
    if batch is not None:
        yield remedy.corrected_statement(
            sql=(f"{batch};",),
            title=f"Insert rows that reference the same row of {key.parent_name} together",
            expect="a transaction locks a referenced row once, however many rows it inserts: one MultiXact per batch at most",
            risk="a change of the application: rows wait until the batch is sent",
        )
    yield _without_constraint(queue, key, per_second)


def _without_constraint(queue: Queue, key: ForeignKeyRow, per_second: float) -> Remedy:
    name = quote_ident(key.name)
    undo: tuple[str, ...] = ()
    if key.definition is not None:
        definition = key.definition.removesuffix(" NOT VALID")
        child = queue.catalog.table(key.child)
        if child is not None and child.kind == "p":
            undo = (remedy.LOCK_TIMEOUT, f"ALTER TABLE {key.child_name} ADD CONSTRAINT {name} {definition};")
        else:
            undo = (
                remedy.LOCK_TIMEOUT,
                f"ALTER TABLE {key.child_name} ADD CONSTRAINT {name} {definition} NOT VALID;",
                f"ALTER TABLE {key.child_name} VALIDATE CONSTRAINT {name};",
            )
    lost = {
        "c": " and deleting a referenced row no longer deletes the rows that reference it",
        "n": " and deleting a referenced row no longer sets the reference to NULL",
        "d": " and deleting a referenced row no longer sets the reference to its default",
    }.get(key.on_delete, "")
    return Remedy(
        title=f"Or give the foreign key {shortened(key.name, 63)} up: a trade-off, decide it knowingly",
        kind="sql",
        sql=(remedy.LOCK_TIMEOUT, f"ALTER TABLE {key.child_name} DROP CONSTRAINT {name};"),
        undo=undo,
        lock="ACCESS EXCLUSIVE",
        blocks="reads and writes",
        restart=False,
        risk=(
            f"rows of {key.child_name} may then reference rows of {key.parent_name} that do not exist{lost}; the lock is taken on both "
            "tables for a moment; rows that violate it must be mended before it can be validated again"
        ),
        expect=f"inserts no longer lock rows of {key.parent_name}: about {plural(per_second, 'MultiXact')} per second fewer",
    )


CHECK = Check(
    title="MultiXacts made by foreign key checks",
    needs=(COUNTERS,),
    limits=Limits(),
    evaluate=evaluate,
    references=(
        "https://www.postgresql.org/docs/current/explicit-locking.html#LOCKING-ROWS",
        "https://www.postgresql.org/docs/current/routine-vacuuming.html#VACUUM-FOR-MULTIXACT-WRAPAROUND",
    ),
    look_alikes=(
        "the same foreign key spread over many referenced rows: inserts seldom meet, and one locker needs no MultiXact",
        "many inserts in one transaction",
        "foreign key checks of tables that have nothing to do with the queue, or of another database",
        "MultiXacts made by savepoints or by FOR SHARE",
    ),
)
