"""Claims made in two statements: a SELECT that finds a job, and the UPDATE by key that takes it. Pure.

Files of queries hold several ways to claim beside each other, and lists for people as well. Which SELECT an UPDATE belongs to is told
by the order: a SELECT that locks comes before one that does not, and each takes the first UPDATE behind it that is still free.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from pgqdoctor.lint.program import Placed, same
from pgqdoctor.predicates import flat
from pgqdoctor.sqlfacts import Read, TableName, Write
from pgqdoctor.sqlwords import purpose, tests_state

_SAFE_LEVELS = ("serializable", "repeatable read")


@dataclass(frozen=True, slots=True, kw_only=True)
class Pair:
    """A SELECT without a lock and the UPDATE by key that takes its row."""

    poll: Placed
    read: Read
    writer: Placed
    write: Write


def unlocked_pairs(unit: Sequence[Placed]) -> Iterator[Pair]:
    """Yield the pairs of one sequence of statements that nothing between two workers guards."""
    if not any(_lasts(one) for one in unit):
        yield from _pairs(unit, tuple(_transactions(unit)))


def _transactions(unit: Sequence[Placed]) -> Iterator[int]:
    """Number the transactions of a sequence, statement by statement: a row lock does not outlive its own."""
    number = 0
    for one in unit:
        kind = one.statement.kind
        number += kind == "begin"
        yield number
        number += kind in ("commit", "rollback")


def _lasts(one: Placed) -> bool:
    """Tell whether a statement guards whatever the session does afterwards: a session's advisory lock, or its isolation level."""
    statement = one.statement
    session = statement.kind == "utility" and statement.isolation in _SAFE_LEVELS
    words = statement.text.lower()
    return (session and ("default_transaction" in words or "characteristics" in words)) or any(
        "advisory" in name and "xact" not in name and "unlock" not in name for name in statement.functions
    )


def _pairs(statements: Sequence[Placed], transactions: Sequence[int]) -> Iterator[Pair]:
    used: set[int] = set()
    for place, finder in enumerate(statements):
        for table in _locked_to_take(finder):
            taker = _taker(statements, place, table, used)
            if taker is not None:
                used.add(taker)
    for place, poll in enumerate(statements):
        if poll.statement.writes or poll.statement.locks:
            continue
        for read in poll.statement.reads:
            if not _looks_for_job(read):
                continue
            taker = _taker(statements, place, read.table, used, read)
            if taker is None or any(
                transactions[number] == transactions[taker]
                and (number > place or transactions[number] == transactions[place])
                and _guards(one, read.table, between=number > place)
                for number, one in enumerate(statements[:taker])
            ):
                continue
            writer = statements[taker]
            if not _certain(statements, place, taker, read):
                continue
            used.add(taker)
            write = next(one for one in writer.statement.writes if _takes(one, read))
            yield Pair(poll=poll, read=read, writer=writer, write=write)
            break


def _locked_to_take(one: Placed) -> Iterator[TableName]:
    """Yield the tables whose rows a SELECT locks and leaves to a later statement to change."""
    statement = one.statement
    if statement.writes:
        return
    yield from dict.fromkeys(claim.table for claim in statement.claims if claim.lock is not None)


def _taker(
    statements: Sequence[Placed], place: int, table: TableName, used: set[int], read: Read | None = None
) -> int | None:
    """Return where the first free UPDATE by key behind a SELECT stands, None without any.

    Of a SELECT that locks any such UPDATE will do: what it says of the state need not be known.
    """
    for later in range(place + 1, len(statements)):
        if later in used or any(not claim.by_key for claim in statements[later].statement.claims):
            continue
        for write in statements[later].statement.writes:
            if not same(write.table, table) or write.kind != "update" or not write.by_key_only:
                continue
            if purpose(write.sets, ()) == "claim" if read is None else _takes(write, read):
                return later
    return None


def _guards(one: Placed, table: TableName, *, between: bool) -> bool:
    """Tell whether a statement of the same transaction keeps other workers away until it ends.

    A lock on rows by key does: on the queue's row in another table, or on the job itself, which has to be known and so is locked
    ``between`` the SELECT and the UPDATE. One that belongs to a claim does not, for it holds the job that this claim has found.
    """
    statement = one.statement
    if statement.kind == "lock" or statement.isolation in _SAFE_LEVELS:
        return True
    if any("advisory" in name and "unlock" not in name for name in statement.functions):
        return True
    claimed = [claim.table for claim in statement.claims]
    return any(
        (between or not same(lock.table, table))
        and not any(same(lock.table, other) for other in claimed)
        and not any(same(write.table, lock.table) for write in statement.writes)
        for lock in statement.locks
    )


def _certain(statements: Sequence[Placed], place: int, taker: int, read: Read) -> bool:
    """Tell whether the SELECT looks for the job that the UPDATE takes, where the statements claim otherwise as well.

    Then it may be a list for people, and the UPDATE what an operator or a heartbeat does.
    """
    steps = [one for one in statements[place + 1 : taker] if one.statement.kind not in ("begin", "commit")]
    others = any(
        same(claim.table, read.table)
        for number, one in enumerate(statements)
        if number != taker
        for claim in one.statement.claims
        if not claim.by_key
    )
    one_row = read.limit_kind == "constant" and read.limit == 1
    return not others or one_row or not steps


def _looks_for_job(read: Read) -> bool:
    return (
        read.limit_kind != "none" and not read.counts and any(tests_state(test) for test in read.conditions)
    )


def _takes(write: Write, read: Read) -> bool:
    """Tell whether an update by key marks the row as taken: it changes what the SELECT asked for, and not to an end."""
    if not same(write.table, read.table) or write.kind != "update" or not write.by_key_only:
        return False
    if purpose(write.sets, read.conditions) != "claim":
        return False
    asked = {test.column for test in flat(read.conditions) if tests_state(test)}
    return any(one.column in asked for one in write.sets)
