"""Faults of claims that their text alone shows. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from pgqdoctor import sqlcorrect
from pgqdoctor.lint.flaws import Flaw, corrected, flaw_at, named
from pgqdoctor.lint.pairs import unlocked_pairs
from pgqdoctor.lint.program import Placed, Program, same
from pgqdoctor.sqlfacts import TableName, Write

BATCH = 10
"""LIMIT put into a claim that has none: an example to be changed."""


def unguarded(program: Program) -> Iterator[Flaw]:
    """A claim that two workers can win."""
    for one in program.claims:
        claim, placed = one.claim, one.placed
        if not (
            claim.shape == "unguarded" or (claim.lock is not None and claim.writes and not claim.rechecks)
        ):
            continue
        how = (
            "the lock on the rows that the sub-select chose compares only the key"
            if claim.lock is not None
            else "the sub-select's FOR KEY SHARE shuts nobody out, and the UPDATE compares only the key"
            if any(lock.strength == "key share" for lock in placed.statement.locks)
            else "the sub-select takes no lock, and the UPDATE compares only the key"
        )
        yield flaw_at(
            placed,
            severity="critical",
            title=f"Two workers can win the same job of {named(claim.table)}: {how}",
            why=(
                "The sub-select is answered once, from the statement's snapshot. A second worker that picked the same row waits for the "
                "first one's row lock and then re-checks the UPDATE's own conditions: the key still matches, so it takes the job too."
            ),
            remedies=corrected(
                placed,
                sqlcorrect.skip_locked(placed.statement.text, claim),
                title="Lock the row while it is looked for, and skip the rows that other workers hold",
                expect="one worker wins each job, and the others take the next",
            ),
        )
    for unit in program.units():
        yield from _pairs(program, unit)


def _pairs(program: Program, unit: tuple[Placed, ...]) -> Iterator[Flaw]:
    """Accuse a SELECT without a lock behind which an UPDATE by key takes the row."""
    for pair in unlocked_pairs(unit):
        poll, read, writer, write = pair.poll, pair.read, pair.writer, pair.write
        yield flaw_at(
            poll,
            severity="critical",
            title=f"Two workers can win the same job of {named(read.table)}: it is read without a lock here and taken by key "
            f"in line {writer.line}",
            why=(
                "Between the SELECT and the UPDATE another worker may read the same row. The UPDATE finds it by key and does not "
                "ask again whether the job is still free, so both workers run it."
            ),
            remedies=corrected(
                poll,
                sqlcorrect.one_statement(
                    poll.statement.text,
                    writer.statement.text,
                    sqlcorrect.TableWords(name=named(read.table), key=_key(program, read.table, write)),
                    many=not (read.limit_kind == "constant" and read.limit == 1),
                ),
                title="Find and take the job in one statement that skips the rows other workers hold",
                expect="one worker wins each job, and the others take the next",
            ),
        )


def _key(program: Program, table: TableName, write: Write) -> tuple[str, ...]:
    known = program.schema.table(table)
    if known is not None and known.primary:
        return known.primary
    return tuple(one.column for one in write.conditions if one.column is not None)


def not_skip_locked(program: Program) -> Iterator[Flaw]:
    """A claim whose workers wait for each other, or fail."""
    for one in program.claims:
        claim, placed = one.claim, one.placed
        if claim.shape not in ("blocking", "nowait") or (claim.writes and not claim.rechecks):
            continue
        waits = claim.shape == "blocking"
        yield flaw_at(
            placed,
            severity="warning" if waits else "notice",
            title=(
                f"Workers of {named(claim.table)} line up for the same row: the claim locks it without SKIP LOCKED"
                if waits
                else f"Workers of {named(claim.table)} fail where another one holds the first job: the claim says NOWAIT"
            ),
            why=(
                "All workers find the same first job. One locks it, and the others wait until its transaction ends, look again, and "
                "meet at the next job."
                if waits
                else "All workers find the same first job. One locks it, and the others get an error in the place of the next job."
            ),
            remedies=corrected(
                placed,
                sqlcorrect.skip_locked(placed.statement.text, claim),
                title="Skip the rows that other workers hold",
                expect="each worker takes the first job that is free",
            ),
        )


def limit_overrun(program: Program) -> Iterator[Flaw]:
    """A LIMIT that counts for one execution of its sub-select, of which there may be several."""
    for one in program.claims:
        claim, placed = one.claim, one.placed
        if not claim.repeatable_limit or claim.lock is None or not claim.writes:
            continue
        limit = f"LIMIT {claim.limit}" if claim.limit is not None else "its LIMIT"
        yield flaw_at(
            placed,
            severity="warning",
            title=f"One claim of {named(claim.table)} may take more jobs than {limit}: the sub-select can be executed more than once",
            why=(
                "The planner may put the sub-select on the inner side of a nested loop and execute it for each row outside. Every "
                "execution skips the rows that are locked already, those of this very statement included, and takes the next ones."
            ),
            remedies=corrected(
                placed,
                sqlcorrect.materialized(placed.statement.text, claim),
                title="Compute the sub-select once, in a materialised CTE",
                expect="one claim takes at most as many jobs as it says",
            ),
        )


def unbounded(program: Program) -> Iterator[Flaw]:
    """A claim without LIMIT."""
    for one in program.claims:
        claim, placed = one.claim, one.placed
        if claim.limit_kind != "none" or claim.by_key:
            continue
        yield flaw_at(
            placed,
            severity="warning",
            title=f"One claim takes every ready job of {named(claim.table)}: it has no LIMIT",
            why=(
                "The first worker locks the whole backlog, and the others find nothing. The longer the backlog, the longer its transaction, "
                "and if it fails all of it comes back."
            ),
            remedies=corrected(
                placed,
                sqlcorrect.bounded(placed.statement.text, claim, BATCH),
                title="Take a bounded number of jobs at a time",
                expect=f"each claim takes at most {BATCH} jobs (choose the number), and the workers share the backlog",
            ),
        )


def advisory_lock(program: Program) -> Iterator[Flaw]:
    """An advisory lock taken for every row that the scan looks at."""
    for one in program.claims:
        claim, placed = one.claim, one.placed
        if not claim.advisory:
            continue
        function = claim.advisory[0]
        kept = "until the session ends" if "xact" not in function else "until the transaction ends"
        yield flaw_at(
            placed,
            severity="warning",
            title=f"{function}() in the WHERE of {named(claim.table)}'s claim locks rows that the claim then does not take",
            why=(
                "The function is called for each row that the scan looks at, in the order the planner chooses, before ORDER BY and LIMIT "
                f"pick one. The locks on the others stay {kept}: other workers are kept from these jobs, and nobody works on them. The "
                "function is safe for the one row that an inner LIMIT 1 has chosen."
            ),
            remedies=corrected(
                placed,
                sqlcorrect.without_advisory(placed.statement.text, claim),
                title="Lock the job's row instead, and skip the rows that other workers hold",
                expect="exactly the job that is taken is locked, until its transaction ends",
            ),
        )


def lock_too_strong(program: Program) -> Iterator[Flaw]:
    """FOR UPDATE where children of the queue are checked against the row."""
    for one in program.claims:
        claim, placed = one.claim, one.placed
        if claim.lock is None or claim.lock.strength != "update" or claim.shape == "delete-skip-locked":
            continue
        children = [
            key
            for key in program.schema.foreign_keys
            if same(key.parent, claim.table) and not same(key.child, claim.table)
        ]
        if not children:
            continue
        names = ", ".join(dict.fromkeys(named(key.child) for key in children))
        yield flaw_at(
            placed,
            severity="notice",
            title=f"FOR UPDATE on {named(claim.table)} makes inserts into {names} wait while the job is held",
            why=(
                f"A row of {names} that references a job locks the job FOR KEY SHARE, which conflicts with FOR UPDATE and not with FOR NO "
                "KEY UPDATE. A claim does not change the key, so the weaker lock suffices: two workers exclude each other just as well."
            ),
            remedies=corrected(
                placed,
                sqlcorrect.weaker_lock(placed.statement.text, claim),
                title="Lock the job FOR NO KEY UPDATE",
                expect="rows that reference the job can be inserted while it is worked on",
            ),
        )
