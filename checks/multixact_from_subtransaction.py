"""The job is locked by a transaction and changed in a subtransaction of it, which makes a MultiXact for every claim.

A savepoint, and a PL/pgSQL block with an EXCEPTION clause, run under a transaction id of their own. Where the row was locked outside and is
updated or deleted inside, two ids have to stand on one row, and PostgreSQL makes a MultiXact of two members for them. Everybody
who meets the row, dead or alive, then looks its members up in small shared caches, and MultiXactIds are used up at the
queue's pace. The same work in one statement, or with the lock taken inside too, makes none.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated

from pgqdoctor import multixacts, remedy
from pgqdoctor.check import STATEMENTS, Check
from pgqdoctor.finding import Evidence, Finding, Remedy, Severity
from pgqdoctor.lint import multixacts as lint_multixacts
from pgqdoctor.multixacts import Activity
from pgqdoctor.observation import Observation
from pgqdoctor.queue import Queue
from pgqdoctor.rows import FunctionRow
from pgqdoctor.sampled import sampled
from pgqdoctor.sqlcombine import one_statement
from pgqdoctor.sqlfacts import FunctionBody, Statement
from pgqdoctor.sqlread import read_function
from pgqdoctor.sqlrewrite import quote_ident
from pgqdoctor.statements import SeenStatement
from pgqdoctor.words import count, rate, shortened


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """When such MultiXacts matter."""

    per_second: Annotated[
        float, "MultiXacts per second made this way; below it the caches hold hours of them"
    ] = 1.0
    warning_per_second: Annotated[
        float,
        "MultiXacts per second; at this rate the 16,384 ids in the offset cache of a default server (8 pages of 2,048 before "
        "17) are those of the last quarter of an hour, and a transaction open for longer makes lookups read from disk",
    ] = 20.0
    looked: Annotated[
        int, "MultiXacts seen with lock modes that conflict: one alone may be somebody's maintenance"
    ] = 2
    explained: Annotated[
        float,
        "share of these MultiXacts that the queue's own writes must be able to make: the ids belong to the whole server",
    ] = 0.2


@dataclass(frozen=True, slots=True, kw_only=True)
class Path:
    """One way in which the queue's statements lock outside and write inside. ``writes`` is rows per second."""

    function: FunctionRow | None
    lock: str | None
    write: str | None
    writes: float | None
    savepoints: float


def evaluate(seen: Observation, queue: Queue, limits: Limits) -> Iterator[Finding]:
    """Accuse the queue's savepoints or EXCEPTION blocks where the members' lock modes prove the mechanism."""
    made = multixacts.activity(seen)
    proven = made.kinds.get("subtransaction", 0)
    per_second = made.rate("subtransaction")
    if proven < limits.looked or per_second < limits.per_second:
        return
    if multixacts.makers(seen, queue, "subtransaction").elsewhere:
        return
    path = _function_path(seen, queue) or _statement_path(seen, queue)
    if path is None:
        return
    if path.writes is not None:
        if path.writes < limits.explained * per_second:
            return
        per_second = min(per_second, path.writes)
    severity: Severity = "warning" if per_second >= limits.warning_per_second else "notice"
    yield Finding(
        check=CHECK.id,
        severity=severity,
        queue=queue.name,
        title=_title(queue, path, per_second),
        why=(
            "A subtransaction has a transaction id of its own. The row is locked by the outer transaction and changed by the inner "
            "one, so both ids must stand in its xmax, and that takes a MultiXact with two members for each job. "
            "Every claim that later meets such a row, dead ones included, looks the members up in the shared MultiXact caches."
        ),
        evidence=tuple(_evidence(seen, queue, made, path, per_second)),
        remedies=tuple(_remedies(seen, queue, path, per_second)),
        relations=(queue.oid,),
    )


def _title(queue: Queue, path: Path, per_second: float) -> str:
    if path.function is not None:
        name = remedy.qualified(path.function.schema, path.function.name)
        return (
            f"{name}() locks a job of {queue.name} and changes it inside an EXCEPTION block: {count(per_second)} MultiXacts "
            "per second come from it"
        )
    return (
        f"Jobs of {queue.name} are locked first and changed inside a savepoint: {count(per_second)} MultiXacts per second come "
        "from it"
    )


def _statement_path(seen: Observation, queue: Queue) -> Path | None:
    """A statement that only locks, another that writes by key, and savepoints in this database."""
    locks = [
        one
        for one, _ in queue.row_locks()
        if one.seen and not any(queue.is_this(write.table) for write in one.statement.writes)
    ]
    writes = [
        one
        for kind in ("update", "delete")
        for one, write in queue.writes(kind)
        if one.seen and write.by_key_only and not one.statement.locks
    ]
    if not locks or not writes:
        return None
    savepoints = queue.churn.per_second(multixacts.calls_of(seen, "savepoint"))
    if savepoints == 0 and not _savepoints_in_sessions(seen) and not _utility_hidden(seen):
        return None
    state = queue.identity.roles.state

    def rank(one: SeenStatement) -> tuple[bool, bool, int, int]:
        kinds = {write.kind for write in one.statement.writes}
        sets = {item.column for write in one.statement.writes for item in write.sets}
        return (state not in sets, "update" not in kinds, -one.calls, -one.samples)

    lock = min(locks, key=lambda one: (-one.calls, -one.samples))
    write = min(writes, key=rank)
    counted = any(one.calls for one in writes)
    return Path(
        function=None,
        lock=_as_sent(seen, lock),
        write=_as_sent(seen, write),
        writes=queue.churn.per_second(sum(one.rows for one in writes if one.calls)) if counted else None,
        savepoints=savepoints,
    )


def _function_path(seen: Observation, queue: Queue) -> Path | None:
    """A function that locks outside an EXCEPTION block and writes inside one, or the reverse."""
    for function in queue.catalog.functions:
        body = read_function(function.name, function.language, function.body)
        if not body.exception_blocks:
            continue
        pair = _pair(queue, body) or (_inner_write(queue, body) if _locks_alone(queue) else None)
        if pair is None:
            continue
        calls = multixacts.calls_of_function(seen, function.schema, function.name)
        triggered = any(row.function_oid == function.oid and row.enabled for row in queue.triggers)
        sampled = any(function.name in text for text in seen.texts)
        if not calls and not triggered and not sampled:
            continue
        return Path(
            function=function,
            lock=pair[0].text if pair[0] is not None else None,
            write=pair[1].text,
            # One call may change several rows: the table's own counters are the upper bound.
            writes=queue.churn.per_second(queue.churn.dead_made),
            savepoints=queue.churn.per_second(calls),
        )
    return None


def _pair(queue: Queue, body: FunctionBody) -> tuple[Statement, Statement] | None:
    """The first lock and the first write of the queue's rows that stand on different sides of an EXCEPTION block."""
    placed = tuple(zip(body.statements, body.in_exception_block, strict=True))
    for lock, lock_inside in placed:
        if not any(queue.is_this(one.table) for one in lock.locks) or _writes(queue, lock):
            continue
        for write, write_inside in placed:
            if write_inside != lock_inside and _writes(queue, write) and not write.locks:
                return lock, write
    return None


def _inner_write(queue: Queue, body: FunctionBody) -> tuple[None, Statement] | None:
    """A write inside a block, of a job that the caller has locked."""
    for write, inside in zip(body.statements, body.in_exception_block, strict=True):
        if inside and not write.locks and _writes(queue, write):
            return None, write
    return None


def _writes(queue: Queue, statement: Statement) -> bool:
    return any(one.kind != "insert" and queue.is_this(one.table) for one in statement.writes)


def _locks_alone(queue: Queue) -> bool:
    return any(one.seen and not _writes(queue, one.statement) for one, _ in queue.row_locks())


def _savepoints_in_sessions(seen: Observation) -> bool:
    return any(text.lstrip()[:10].lower().startswith(("savepoint", "release")) for text in seen.texts)


def _utility_hidden(seen: Observation) -> bool:
    return seen.catalog.setting("pg_stat_statements.track_utility") == "off"


def _as_sent(seen: Observation, one: SeenStatement) -> str:
    """The statement with its literals, where a session showed it so; else as pg_stat_statements keeps it."""
    sent = sampled(seen).texts_of_query.get(one.query_id, ()) if one.query_id is not None else ()
    return seen.texts[sent[0]] if sent else one.statement.text


def _evidence(
    seen: Observation, queue: Queue, made: Activity, path: Path, per_second: float
) -> Iterator[Evidence]:
    yield Evidence(
        what="MultiXacts made on the whole server",
        value=round(made.per_second, 1),
        unit="per second",
        source="mxid_age() at both ends of the window",
    )
    yield Evidence(
        what="lock modes that only a transaction and its own subtransaction can hold together",
        value=" + ".join(made.modes["subtransaction"]),
        unit="",
        source="pg_get_multixact_members()",
    )
    yield Evidence(
        what="MultiXacts looked at that have such modes",
        value=f"{made.kinds['subtransaction']} of {made.looked}",
        unit="",
        source="pg_get_multixact_members()",
    )
    yield Evidence(
        what="members each",
        value=round(made.members["subtransaction"], 1),
        unit="members",
        source="pg_get_multixact_members()",
    )
    if made.members_zeroed is not None:
        yield Evidence(
            what="members each, of all MultiXacts",
            value=round(made.members_zeroed, 1),
            unit="members",
            source="pages begun in pg_stat_slru",
        )
    if path.function is not None:
        yield Evidence(
            what="calls of the function",
            value=round(path.savepoints, 1),
            unit="per second",
            source="pg_stat_statements",
        )
    elif path.savepoints:
        yield Evidence(
            what="savepoints", value=round(path.savepoints, 1), unit="per second", source="pg_stat_statements"
        )
    if path.writes is not None:
        yield Evidence(
            what="rows of the queue that may have been changed this way",
            value=round(path.writes, 1),
            unit="per second",
            source="pg_stat_user_tables" if path.function is not None else "pg_stat_statements",
        )
    if made.lookups and per_second:
        yield Evidence(
            what="lookups of MultiXact members per job changed",
            value=round(made.lookups / made.seconds / per_second, 1),
            unit="lookups",
            source="pg_stat_slru (hits and reads)",
        )
    if path.lock:
        yield Evidence(what="locks with", value=shortened(path.lock, 200), unit="", source="statements seen")
    if path.write:
        yield Evidence(
            what="changes with", value=shortened(path.write, 200), unit="", source="statements seen"
        )


def _remedies(seen: Observation, queue: Queue, path: Path, per_second: float) -> Iterator[Remedy]:
    after = f"no MultiXact per job any more; the rate of the server falls by about {rate(per_second)}"
    if path.lock is not None and path.write is not None:
        table = queue.table.name
        merged = one_statement(path.lock, path.write, table=table, keys=queue.identity.roles.key)
        if merged is not None:
            yield remedy.corrected_statement(
                sql=(merged + ";",),
                title="Lock and change the job in one statement",
                expect=after,
                risk="a change of the application: parameters are numbered anew, and the row comes back as it is after the change",
            )
        yield remedy.corrected_statement(
            sql=_inside(seen, path),
            title="Or take the lock inside the same "
            + ("block" if path.function is not None else "savepoint")
            + " as the change, so that both have one transaction id",
            expect=after,
            risk="a change of the application: what is rolled back to the savepoint also gives up the lock on the job",
        )
    elif path.write is not None:
        yield remedy.corrected_statement(
            sql=(
                "SAVEPOINT job;",
                *(f"{text};" for text in _alone(queue)),
                "-- then the call, inside the same savepoint",
            ),
            title="Take the lock inside the function's block, or let the function find and change the job in one statement",
            expect=after,
        )


def _alone(queue: Queue) -> tuple[str, ...]:
    return tuple(
        one.statement.text for one, _ in queue.row_locks() if one.seen and not _writes(queue, one.statement)
    )[:1]


def _inside(seen: Observation, path: Path) -> tuple[str, ...]:
    lock, write = _bare(path.lock), _bare(path.write)
    if path.function is not None:
        return (f"BEGIN\n    {lock};\n    {write};\nEXCEPTION WHEN ... THEN ...\nEND;",)
    name = _savepoint_name(seen)
    return ("BEGIN;", f"SAVEPOINT {name};", f"{lock};", f"{write};", f"RELEASE SAVEPOINT {name};", "COMMIT;")


def _bare(text: str | None) -> str:
    return (text or "").strip().rstrip(";").strip()


def _savepoint_name(seen: Observation) -> str:
    """The application's own name for it where a session showed one."""
    for text in seen.texts:
        words = text.strip().rstrip(";").split()
        if len(words) == 2 and words[0].lower() == "savepoint":
            bare = words[1].strip('"')
            return quote_ident(bare if words[1].startswith('"') else bare.lower())
    return "job"


CHECK = Check(
    title="MultiXacts made by savepoints or EXCEPTION blocks",
    needs=(STATEMENTS,),
    limits=Limits(),
    evaluate=evaluate,
    lint=lint_multixacts.from_subtransaction,
    references=(
        "https://www.postgresql.org/docs/current/subxacts.html",
        "https://www.postgresql.org/docs/current/routine-vacuuming.html#VACUUM-FOR-MULTIXACT-WRAPAROUND",
        "https://www.postgresql.org/docs/current/explicit-locking.html#LOCKING-ROWS",
    ),
    look_alikes=(
        "savepoints around inserts only",
        "lock and change in one transaction without a savepoint, or in one statement",
        "a lock taken and a change made inside the same savepoint",
        "MultiXacts made by another database of the server, by foreign keys or by share locks",
    ),
)
