"""Statements that change jobs and are no worker's: what clears away the finished ones, what ages those that wait. Pure."""

from __future__ import annotations

from collections.abc import Callable

from pgqdoctor.observation import QueueIdentity
from pgqdoctor.predicates import allowed_values, flat
from pgqdoctor.sqlfacts import Claim, Condition, Read, Statement, TableName, Write
from pgqdoctor.sqlread import read_predicate
from pgqdoctor.sqlwords import FINISHED, pins_row

IsQueue = Callable[[TableName], bool]
"""Tells whether a name in the statement means the queue's table."""


def clears(identity: QueueIdentity, statement: Statement, is_queue: IsQueue) -> bool:
    """Tell whether a statement deletes jobs that are over: it asks for their end, for finished states only, or for old ones.

    A worker that finishes its job knows the key, or asks for jobs at work.
    """
    deletes = [one for one in statement.writes if one.kind == "delete" and is_queue(one.table)]
    if not deletes:
        return False
    found: tuple[Read | Claim, ...] = (*statement.reads, *statement.claims)
    searches = [one for one in found if is_queue(one.table)]
    conditions = [one.conditions for one in deletes] + [one.conditions for one in searches]
    asked = [test for each in conditions for test in flat(each)]
    if any(pins_row(test) for test in asked):
        return False
    ended = identity.roles.finished_at
    if ended is not None and any(key.column == ended for one in searches for key in one.order):
        return True
    old = {ended, identity.roles.created_at} - {None}
    return any(
        _asks_finished(identity, test)
        or (test.column == ended is not None and test.operator == "is not null")
        or (test.column in old and test.operator in ("<", "<="))
        for test in asked
    )


def _asks_finished(identity: QueueIdentity, test: Condition) -> bool:
    values = {one.lower() for one in allowed_values(test)}
    return (
        test.column == identity.roles.state
        and bool(values)
        and values <= {*identity.finished_values, *FINISHED}
    )


def may_leave_ready(identity: QueueIdentity, statement: Statement, is_queue: IsQueue) -> bool:
    """Tell whether an UPDATE may take jobs out of the ready state: it sets a column by which jobs are ready or taken.

    One that raises the priority of jobs that wait does not. Where the condition for a ready job is not known, each may.
    """
    ready = read_predicate(identity.ready_predicate) if identity.ready_predicate else None
    if ready is None:
        return True
    roles = identity.roles
    deciding = {roles.state, roles.claimed_at, roles.lease, roles.owner, roles.run_at}
    deciding |= {one.column for one in flat(ready)}
    return any(
        each.column in deciding
        for write in statement.writes
        if write.kind == "update" and is_queue(write.table)
        for each in write.sets
    )


def ages(identity: QueueIdentity, statement: Statement, is_queue: IsQueue) -> bool:
    """Tell whether a statement updates what its condition finds and leaves it as ready as it was.

    Whoever names the job by its key may be its worker, who reports how far it is.
    """
    updates = [one for one in statement.writes if one.kind == "update" and is_queue(one.table)]
    return (
        bool(updates)
        and not any(map(_names_job, updates))
        and not may_leave_ready(identity, statement, is_queue)
    )


def _names_job(write: Write) -> bool:
    return any(map(pins_row, write.conditions)) or (
        write.by_key_only
        and any(test.value_kind in ("constant", "parameter", "list") for test in write.conditions)
    )
