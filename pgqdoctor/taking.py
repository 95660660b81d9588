"""How many jobs were taken in the window: the statements' rows, set right by the table's own counters. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from pgqdoctor import upkeep
from pgqdoctor.queue import Queue, SeenClaim
from pgqdoctor.sqlfacts import Statement
from pgqdoctor.sqlread import read_function
from pgqdoctor.sqlwords import pins_row
from pgqdoctor.statements import SeenStatement


@dataclass(frozen=True, slots=True, kw_only=True)
class Taken:
    """Executions of the statements that take jobs, and the jobs they took, both in the window.

    ``known`` is false where no statement that takes jobs was counted: the numbers are then 0.
    """

    calls: int
    jobs: int
    known: bool


def taken(queue: Queue) -> Taken:
    """Return how many jobs were taken.

    Claims that look for a job count; only where there are none, those that know its key do: beside a claim that looks for
    one, a guarded update by key is how a job is finished or put back. Of a claim in two statements the SELECT counts.

    pg_stat_statements counts the rows that a statement returned. Where an UPDATE stands in WITH under a SELECT these need not be
    the rows it changed: then the updated rows that no other statement explains are its own, and it has no more than the table saw
    change. A function may return a row of NULLs for "nothing": its rows are an upper bound in the same way.
    """
    claims = {one.seen.key: one for one in queue.claims if one.seen.calls and _takes(queue, one)}
    looking = {key: one.seen for key, one in claims.items() if not one.claim.by_key}
    ran = looking or {key: one.seen for key, one in claims.items()}
    functions = [one for one in queue.function_claims if one.calls and one.key not in claims]
    changed = queue.churn.updated + queue.churn.deleted
    jobs = 0
    unsure = [one for one in ran.values() if one.statement.kind == "select" and _writes(queue, one.statement)]
    for one in ran.values():
        if one not in unsure:
            jobs += one.rows
    jobs += _of_unsure(queue, unsure, changed)
    if functions and not looking:
        jobs += min(sum(one.rows for one in functions), _by_functions(queue))
    calls = sum(one.calls for one in (*ran.values(), *functions))
    return Taken(calls=calls, jobs=jobs, known=bool(ran or functions))


def _takes(queue: Queue, one: SeenClaim) -> bool:
    """Tell whether a claim-shaped statement takes jobs: it locks them, deletes them or marks them."""
    if one.claim.lock or one.claim.shape == "advisory":
        return True
    deletes = any(write.kind == "delete" for write in one.seen.statement.writes)
    return one.claim.writes and (
        deletes or upkeep.may_leave_ready(queue.identity, one.seen.statement, queue.is_this)
    )


def _of_unsure(queue: Queue, unsure: list[SeenStatement], changed: int) -> int:
    returned = sum(one.rows for one in unsure)
    if not unsure or not changed:
        return returned
    others = {one.key: one.rows for one, _ in queue.writes("update") if one not in unsure and one.calls}
    missing = queue.churn.updated - returned - sum(others.values())
    return min(returned + max(missing, 0), changed)


def _by_functions(queue: Queue) -> int:
    """Rows that functions may have taken: the changed ones that no statement explains.

    Where another function of the schema finishes jobs by an update too, each job was updated twice.
    """
    explained = sum(one.rows for one, _ in queue.writes("update"))
    left = max(queue.churn.updated - explained, 0)
    if not queue.churn.updated:
        return queue.churn.deleted
    finishing = any(
        write.kind == "update"
        and queue.is_this(write.table)
        and any(pins_row(test) for test in write.conditions)
        and any(one.column == queue.identity.roles.state for one in write.sets)
        for row in queue.catalog.functions
        if row.oid not in queue.identity.functions
        for statement in read_function(
            row.name, row.language, row.body, arguments=(row.arguments,) if row.arguments else ()
        ).statements
        for write in statement.writes
    )
    return left // 2 if finishing else left


def _writes(queue: Queue, statement: Statement) -> bool:
    return any(write.kind == "update" and queue.is_this(write.table) for write in statement.writes)
