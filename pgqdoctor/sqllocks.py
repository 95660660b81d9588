"""Locking clauses resolved to the tables whose rows they lock."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from pglast import enums

from pgqdoctor.sqlfacts import LockWait, RowLock, Strength
from pgqdoctor.sqlscope import Item, Level

_STRENGTHS: dict[Any, Strength] = {
    enums.LockClauseStrength.LCS_FORUPDATE: "update",
    enums.LockClauseStrength.LCS_FORNOKEYUPDATE: "no key update",
    enums.LockClauseStrength.LCS_FORSHARE: "share",
    enums.LockClauseStrength.LCS_FORKEYSHARE: "key share",
}
_WAITS: dict[Any, LockWait] = {
    enums.LockWaitPolicy.LockWaitBlock: "block",
    enums.LockWaitPolicy.LockWaitSkip: "skip locked",
    enums.LockWaitPolicy.LockWaitError: "nowait",
}


@dataclass(frozen=True, slots=True)
class Locked:
    """A locking clause on one FROM entry; ``reader`` is the level that reads the table."""

    lock: RowLock
    item: Item
    reader: Level


def locks_of(level: Level) -> Iterator[Locked]:
    """Resolve the locking clauses of one level.

    A clause without OF reaches every table of the FROM clause, through sub-selects but not through CTEs
    (SELECT, "The Locking Clause").
    """
    for clause in level.locking:
        names = {relation.relname for relation in clause.lockedRels or ()}
        strength, wait = _STRENGTHS.get(clause.strength), _WAITS.get(clause.waitPolicy)
        if strength is None or wait is None:
            continue
        for item in level.items:
            if not names or item.alias in names:
                yield from _locked(item, level, strength, wait)


def _locked(item: Item, level: Level, strength: Strength, wait: LockWait) -> Iterator[Locked]:
    if item.table is not None:
        yield Locked(RowLock(table=item.table, strength=strength, wait=wait), item, level)
    elif item.cte is None:
        for inner in item.levels:
            for part in inner.items:
                yield from _locked(part, inner, strength, wait)
