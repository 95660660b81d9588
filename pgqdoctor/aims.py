"""What claim-shaped statements are for: to take ready jobs, or to finish them, put them back or clear them away. Pure.

A worker that finishes by ``DELETE ... WHERE id = (SELECT id ... WHERE state = 'running' LIMIT 1 FOR UPDATE SKIP LOCKED)``, a reaper, a
mover of failed jobs and an archiver lock and skip as claims do. Where pg_stat_statements has taken the constants away nothing in the
form tells them apart, so other things are asked, the surest first:

- the same statement as a session sent it, with its constants: from which state it takes rows, and into which it puts them;
- what it sets: the time of a claim, an owner, the end of a job;
- what its search asks: whether a job is due, and in an order; and whether anybody reads which row was found;
- how often it runs and what it finds: workers poll, and what sweeps runs once for many polls, or finds nothing.

Whatever has fewer of these than the table's best claim is no claim, as far as the differences below tell.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final, Literal

from pgqdoctor.lookalikes import is_kept_record
from pgqdoctor.observation import ColumnRoles
from pgqdoctor.predicates import allowed_values, flat
from pgqdoctor.sqlfacts import Claim, Statement, TableName, Write
from pgqdoctor.sqlread import read_sql
from pgqdoctor.sqlwords import FINISHED, IN_PROGRESS, purpose

_LIMIT: Final = re.compile(r"\b(LIMIT)\s+\d+", re.IGNORECASE)
Verdict = Literal["takes", "other", "unknown"]

MARGIN: Final = 2
"""Signs by which a statement without its constants must fall short of the table's best to be no claim: one alone may be a matter of
style, as an ORDER BY is."""
SELDOM: Final = 0.25
"""Executions for one of the table's best claim, up to which a statement of sound form with no more signs is taken for a sweep: a
second way to claim that ran so seldom would change no number by more than that."""
NOTHING: Final = 20
"""Executions without a single row from which a statement is taken to find nothing where the table's best claim finds jobs."""
KNOWN: Final = 10
"""What constants count against signs: more than all of these together."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """A claim-shaped statement. ``sent`` are the same statement's readings with the constants that sessions sent, each with the
    claim that it makes, or None where its words say that it makes none."""

    calls: int
    statement: Statement
    claim: Claim
    rows: int | None = None
    """Rows of the window, None where they were not counted."""
    sent: tuple[tuple[Statement, Claim | None], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Aim:
    """A candidate judged. ``statement`` and ``claim`` show the constants, where any text does; ``signs`` count for taking jobs."""

    candidate: Candidate
    verdict: Verdict
    signs: int
    statement: Statement
    claim: Claim


@dataclass(frozen=True, slots=True, kw_only=True)
class States:
    """The values that jobs are known to have while they wait and while they are worked on."""

    ready: frozenset[str]
    running: frozenset[str]


def judged(candidates: Sequence[Candidate], roles: ColumnRoles, states: States) -> tuple[Aim, ...]:
    """Return what each candidate is for, in the given order."""
    first = [_aim(one, roles, states) for one in candidates]
    taken = frozenset(
        value
        for one in first
        if one.verdict == "takes"
        for value in _set_values(one.statement, one.claim, roles)
        if value not in states.ready
    )
    known = States(ready=states.ready, running=states.running | taken)
    again = [_aim(one, roles, known) for one in candidates]
    best = max(
        (one for one in again if one.verdict != "other" and not one.claim.by_key),
        key=lambda one: (one.signs, one.candidate.rows != 0, one.candidate.calls),
        default=None,
    )
    return tuple(
        replace(one, verdict="other")
        if best is not None and one is not best and _falls_short(one, best)
        else one
        for one in again
    )


def _falls_short(one: Aim, best: Aim) -> bool:
    """Tell whether a statement whose constants are lost is no claim, seen beside the table's best one."""
    if one.verdict != "unknown" or one.claim.by_key:
        return False
    if one.signs <= 0 and best.signs - one.signs >= MARGIN:
        return True
    deletes = any(_deletes(one.statement, one.claim)), any(_deletes(best.statement, best.claim))
    if deletes == (True, False) and one.signs < best.signs:
        # A queue's jobs are marked when they are taken, or deleted; what deletes the others' marked ones clears them away.
        return True
    idle = one.candidate.rows == 0 and one.candidate.calls >= NOTHING and bool(best.candidate.rows)
    seldom = one.candidate.calls <= SELDOM * best.candidate.calls
    sound = one.claim.shape in ("skip-locked", "delete-skip-locked") and one.claim.limit_kind != "none"
    return sound and one.signs <= best.signs and (seldom or idle)


def _aim(one: Candidate, roles: ColumnRoles, states: States) -> Aim:
    readings = [(one.statement, one.claim)]
    told: list[tuple[Verdict, Statement, Claim]] = []
    for statement, claim in one.sent:
        if claim is None:
            told.append(("other", one.statement, one.claim))
        else:
            told.append((_verdict(statement, claim, roles, states), statement, claim))
    told.extend((_verdict(*each, roles, states), *each) for each in readings)
    # One entry of pg_stat_statements may stand for a claim and for what finishes: then it is a claim too.
    for wanted in ("takes", "other"):
        for verdict, statement, claim in told:
            if verdict == wanted:
                signs = KNOWN if verdict == "takes" else -KNOWN
                return Aim(candidate=one, verdict=verdict, signs=signs, statement=statement, claim=claim)
    statement, claim = told[0][1:]
    signs = _signs(one.statement, one.claim, roles)
    return Aim(candidate=one, verdict="unknown", signs=signs, statement=statement, claim=claim)


def _verdict(statement: Statement, claim: Claim, roles: ColumnRoles, states: States) -> Verdict:
    """Tell by the constants of one text where its rows come from, and where they go."""
    asked = {
        value
        for test in flat(claim.conditions)
        if test.column == roles.state and test.value_kind in ("constant", "list", "boolean")
        for value in allowed_values(test)
        if not value.startswith("$")
    }
    if roles.state is None or not asked:
        return "unknown"
    into = set(_set_values(statement, claim, roles))
    if into and into <= states.ready and not into & asked:
        # From failed, scheduled or running to ready: workers take it after that.
        return "other"
    if asked & states.ready:
        return "takes"
    settled = {value for value in asked if value in states.running or _word(value) in IN_PROGRESS | FINISHED}
    if settled != asked:
        return "unknown"
    if claim.shape == "delete-skip-locked" or any(_deletes(statement, claim)):
        return "other"
    again = {value for value in into if value in states.running or _word(value) in IN_PROGRESS}
    if again - asked:
        # From failed to running: a job is tried once more.
        return "takes"
    if into:
        return "other"
    # A SELECT with a lock leaves the rest to a later statement: what asks for jobs under way reaps them.
    under_way = {value for value in asked if value in states.running or _word(value) in IN_PROGRESS}
    return "other" if under_way == asked and not claim.writes else "unknown"


def _signs(statement: Statement, claim: Claim, roles: ColumnRoles) -> int:
    """Count what speaks for a statement without constants to take jobs; below zero what speaks against it."""
    signs = 0
    writes = [write for write in statement.writes if write.table == claim.table]
    sets = tuple(one for write in writes if write.kind == "update" for one in write.sets)
    changed = {one.column for one in sets}
    meaning = purpose(sets, claim.conditions) if sets else None
    if meaning == "claim":
        signs += 3
    elif meaning is not None:
        signs -= 3
    if roles.attempts is not None and roles.attempts in changed:
        signs += 1
    if roles.run_at is not None and {roles.run_at, roles.state} <= changed:
        # A job that gets its next time is put off, or back.
        signs -= 2
    tests = tuple(flat(claim.conditions))
    due = [one for one in tests if one.column and one.column == roles.run_at and one.operator in ("<", "<=")]
    if due and not any(" - " in value for one in due for value in one.values):
        signs += 2
    ended = {roles.finished_at, roles.heartbeat, roles.lease, roles.claimed_at} - {None, roles.state}
    if claim.order:
        signs += -2 if claim.order[0].column in ended else 1
    if statement.returns or (claim.lock is not None and not claim.writes):
        signs += 2
    elif any(_deletes(statement, claim)):
        signs -= 2
    if any(write.kind == "insert" and is_kept_record(write.table.name) for write in statement.writes):
        # Rows that are moved into an archive are over.
        signs -= 6
    return signs


def _deletes(statement: Statement, claim: Claim) -> Iterable[Write]:
    return (write for write in statement.writes if write.kind == "delete" and write.table == claim.table)


def _set_values(statement: Statement, claim: Claim, roles: ColumnRoles) -> Iterable[str]:
    """The constants that a statement puts into the state column of its claim's table."""
    return (
        one.value
        for write in statement.writes
        if write.kind == "update" and write.table == claim.table
        for one in write.sets
        if one.column == roles.state and one.value_kind in ("constant", "boolean")
    )


def _word(value: str) -> str:
    return value.lower().replace("-", "_").replace(" ", "_")


def sent_readings(
    readings: Mapping[str, Sequence[Statement]], fingerprint: str, table: Claim
) -> tuple[tuple[Statement, Claim | None], ...]:
    """Return the readings of one fingerprint, each with its claim on the candidate's table."""
    return tuple(
        (statement, _claim_on(statement, table.table)) for statement in readings.get(fingerprint, ())
    )


def _claim_on(statement: Statement, table: TableName) -> Claim | None:
    """Return the claim of a statement as it was sent.

    LIMIT 10 with nothing returned is how rows are pruned, LIMIT $1 may be how one is taken: the number alone must not speak against
    a claim, so it is read as a parameter before the words are believed.
    """
    told = (*statement.claims, *(one for each in _unlimited(statement.text) for one in each.claims))
    return next((one for one in told if one.table == table), None)


def _unlimited(text: str) -> tuple[Statement, ...]:
    return read_sql(_LIMIT.sub(r"\1 $999", text)).statements
