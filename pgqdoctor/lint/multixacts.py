"""Statements that put two transaction ids, or two sessions, on one row of a queue. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from pgqdoctor.lint.flaws import Flaw, flaw_at, named
from pgqdoctor.lint.program import Placed, Program, same
from pgqdoctor.sqlfacts import RowLock, Statement, Write

_OWN = ("update", "no key update")


def from_subtransaction(program: Program) -> Iterator[Flaw]:
    """A job locked by the outer transaction and changed in an EXCEPTION block or behind a savepoint."""
    for unit in program.units():
        for place, placed in enumerate(unit):
            if not placed.guarded:
                continue
            for write in placed.statement.writes:
                if write.kind == "insert" or not program.is_queue(write.table):
                    continue
                lock = _locked_outside(unit[:place], write)
                if lock is None or _locked_inside(unit[:place], write):
                    continue
                yield _changed_inside(placed, write, lock)
                break


def _locked_outside(before: tuple[Placed, ...], write: Write) -> Placed | None:
    """Return the last statement that locked rows of the table in the same transaction, outside of any subtransaction."""
    for one in reversed(before):
        if one.statement.kind in ("commit", "rollback", "begin"):
            return None
        if not one.guarded and _locks(one.statement, write):
            return one
    return None


def _locked_inside(before: tuple[Placed, ...], write: Write) -> bool:
    """Tell whether the subtransaction takes the lock (or changes the row) itself before this write."""
    for one in reversed(before):
        if not one.guarded:
            return False
        if _locks(one.statement, write):
            return True
    return False


def _locks(statement: Statement, write: Write) -> bool:
    return any(same(lock.table, write.table) and lock.strength in _OWN for lock in statement.locks) or any(
        other.kind == "update" and same(other.table, write.table) for other in statement.writes
    )


def _changed_inside(placed: Placed, write: Write, lock: Placed) -> Flaw:
    what = "an EXCEPTION block" if placed.function is not None else "a savepoint"
    return flaw_at(
        placed,
        severity="warning",
        title=f"Every job of {named(write.table)} makes a MultiXact: it is locked in line {lock.line} and changed inside {what}",
        why=(
            f"{what[0].upper()}{what[1:]} is a subtransaction with a transaction id of its own. The row is locked by the outer one and "
            "changed by the inner one, so both ids must stand on it, and that takes a MultiXact for each job, which everybody who meets "
            "the row looks up in a small shared cache. Lock and change in one statement, or take the lock inside too."
        ),
    )


def from_share_lock(program: Program) -> Iterator[Flaw]:
    """Job rows read FOR SHARE or FOR KEY SHARE."""
    for placed in program.statements:
        lock = next((one for one in placed.statement.locks if _shares(program, one)), None)
        if lock is None:
            continue
        yield flaw_at(
            placed,
            severity="notice",
            title=f"FOR {lock.strength.upper()} on jobs of {named(lock.table)} makes a MultiXact wherever two sessions meet on a row",
            why=(
                "A row has room for one locker. A second one, or a worker that claims the job meanwhile, takes a MultiXact, which "
                "everybody who meets the row has to look up. Read without a lock where the row is only looked at, or lock it FOR NO KEY "
                "UPDATE where it must not change."
            ),
        )


def _shares(program: Program, lock: RowLock) -> bool:
    return lock.strength not in _OWN and program.is_queue(lock.table)
