"""Two workers can win the same job.

A claim reads a ready job and marks it as taken. Between the two another worker may read the same job. Unless
the row is locked while it is read, or the UPDATE tests the state once more under its own row lock, both
workers run the job, and no error shows anywhere. The sub-select of UPDATE ... WHERE id = (SELECT ... LIMIT 1)
is no protection: a worker that waited for the winner re-checks the id, not the answer of the sub-select.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated

from pgqdoctor import claiming, remedy, sqlcorrect
from pgqdoctor.check import CLAIMS, STATEMENTS, Check
from pgqdoctor.claimguards import guarded
from pgqdoctor.claiming import Poll
from pgqdoctor.finding import Evidence, Finding, Severity
from pgqdoctor.lint import claims as lint_claims
from pgqdoctor.observation import Observation
from pgqdoctor.predicates import flat
from pgqdoctor.queue import Queue, SeenClaim
from pgqdoctor.sqlfacts import Write
from pgqdoctor.statements import SeenStatement, WaitingSession
from pgqdoctor.words import count, rate, shortened

SERIALIZING = ("serializable", "repeatable read")
"""Isolation levels under which the second of two such updates fails with 40001 instead of winning."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """When two statements are one claim, and how bad an unguarded one is."""

    least_calls: Annotated[
        int, "executions in the window: fewer do not show which statement follows which"
    ] = 5
    updates_per_row: Annotated[
        float,
        "ratio by which the key updates may miss one (or, where finishing a job has the same text, two) per row that the SELECT returned: "
        "a few jobs are between the two statements when the window begins and ends",
    ] = 0.15
    critical_rate: Annotated[
        float,
        "claims per second from which several workers meet at the same job within minutes rather than days",
    ] = 1.0
    lone_samples: Annotated[
        int,
        "executions of the claim that samples caught, all of them of one backend, from which it is the only worker: two that "
        "share the work are taken for one in less than one window in 500",
    ] = 10


def evaluate(seen: Observation, queue: Queue, limits: Limits) -> Iterator[Finding]:
    """Report the busiest unguarded statement, or the SELECT and UPDATE that make an unguarded claim together."""
    weak = [
        one
        for one in queue.claims
        if one.seen.seen and _unguarded(one) and not (one.seen.calls and guarded(seen, queue, one.seen.calls))
    ]
    if weak:
        yield _one_statement(queue, weak[0], limits)
        return
    if queue.claims or queue.identity.functions or _guarded_otherwise(seen, queue):
        return
    pair = _pair(queue, limits)
    if pair is not None:
        yield _two_statements(queue, *pair, limits)


def _unguarded(one: SeenClaim) -> bool:
    claim = one.claim
    return claim.shape == "unguarded" or (claim.lock is not None and claim.writes and not claim.rechecks)


def _one_statement(queue: Queue, one: SeenClaim, limits: Limits) -> Finding:
    text = sqlcorrect.skip_locked(one.seen.statement.text, one.claim)
    limit = "1" if one.seen.rows <= one.seen.calls else None
    sql = claiming.printed(queue, text, limit=limit) if text is not None else claiming.composed_claim(queue)
    again = (
        "the rows were chosen by a sub-select without a lock, and the lock on them compares only the key"
        if one.claim.lock is not None
        else "the sub-select takes no lock, and the UPDATE compares only the key"
    )
    return Finding(
        check=CHECK.id,
        severity=_severity(queue, (one.seen,), min(one.seen.calls, one.seen.rows), limits),
        queue=queue.name,
        title=f"Two workers can win the same job of {queue.name}: {again}",
        why=(
            "The sub-select is answered once, from the statement's snapshot. A second worker that picked the same row waits for the first one's "
            "row lock and then re-checks the UPDATE's own conditions: the key still matches, so it takes the job too."
        ),
        evidence=(
            claiming.text_evidence(one.seen),
            *_frequency(queue, one.seen, "claims"),
        ),
        remedies=(
            remedy.corrected_statement(
                sql=(sql,),
                title="Lock the row while it is looked for, and skip the rows that other workers hold",
                expect=f"one worker wins each job, and the others take the next.{claiming.with_parameters(sql)}",
            ),
        )
        if sql is not None
        else (),
        pids=_pids(queue, (one.seen,)),
        relations=(queue.oid,),
    )


def _two_statements(queue: Queue, poll: Poll, writer: SeenStatement, limits: Limits) -> Finding:
    many = (
        poll.read.limit_kind == "constant" and (poll.read.limit or 1) > 1
    ) or poll.seen.rows > poll.seen.calls
    text = sqlcorrect.one_statement(
        poll.seen.statement.text,
        writer.statement.text,
        sqlcorrect.TableWords(name=queue.name, key=queue.identity.roles.key),
        many=many,
    )
    limit = None if many else "1"
    sql = claiming.printed(queue, text, limit=limit) if text is not None else claiming.composed_claim(queue)
    per_second = queue.churn.per_second(poll.seen.rows)
    return Finding(
        check=CHECK.id,
        severity=_severity(queue, (poll.seen, writer), poll.seen.rows, limits),
        queue=queue.name,
        title=f"Two workers can win the same job of {queue.name}: it is read without a lock and then taken by key, {rate(per_second)}",
        why=(
            "Between the SELECT and the UPDATE another worker may read the same row. The UPDATE finds it by key and does not ask again whether the "
            "job is still free, so both workers run it."
        ),
        evidence=(
            Evidence(
                what="looks for a job", value=shortened(poll.seen.text, 300), unit="", source=poll.seen.source
            ),
            Evidence(what="takes it", value=shortened(writer.text, 300), unit="", source=writer.source),
            Evidence(
                what="jobs found",
                value=poll.seen.rows,
                unit="rows",
                source="pg_stat_statements, in the window",
            ),
            Evidence(
                what="updates by key",
                value=writer.calls,
                unit="calls",
                source="pg_stat_statements, in the window",
            ),
        ),
        remedies=(
            remedy.corrected_statement(
                sql=(sql,),
                title="Find and take the job in one statement that skips the rows other workers hold",
                expect=f"one worker wins each job, and the others take the next.{claiming.with_parameters(sql)}",
            ),
        )
        if sql is not None
        else (),
        pids=_pids(queue, (poll.seen, writer)),
        relations=(queue.oid,),
    )


def _pair(queue: Queue, limits: Limits) -> tuple[Poll, SeenStatement] | None:
    """Find the SELECT whose rows are as many as the updates by key that mark a job as taken.

    A normalised text does not show what the state is set to, so finishing a job may share the claim's text:
    then there are two updates for each row found. A dashboard's list is read without an update for each of
    its rows.
    """
    for poll in claiming.polls(queue):
        if poll.seen.calls < limits.least_calls or poll.seen.rows < limits.least_calls:
            continue
        for writer in _takers(queue):
            expected = (poll.seen.rows, 2 * poll.seen.rows)
            if any(abs(writer.calls - each) <= limits.updates_per_row * each for each in expected):
                return poll, writer
    return None


def _takers(queue: Queue) -> list[SeenStatement]:
    acting = claiming.state_columns(queue)
    found = []
    for seen, write in queue.writes("update"):
        changed = {one.column for one in write.sets}
        if (
            seen.calls > 0
            and write.by_key_only
            and acting & changed
            and not _tests_what_it_sets(write)
            and not _ends(queue, write)
        ):
            found.append(seen)
    return sorted(found, key=lambda one: -one.calls)


def _tests_what_it_sets(write: Write) -> bool:
    """Tell whether a write is guarded by a version or the like: it compares a column that it changes."""
    changed = {one.column for one in write.sets}
    return any(one.column in changed for one in flat(write.conditions))


def _ends(queue: Queue, write: Write) -> bool:
    """Tell whether an update finishes a job, or puts it back, by what its text shows."""
    identity = queue.identity
    settled = {*identity.finished_values, *identity.ready_values}
    return any(
        (
            one.column == identity.roles.state
            and one.value_kind in ("constant", "boolean")
            and one.value in settled
        )
        or (one.column == identity.roles.finished_at and one.value_kind != "null")
        for one in write.sets
    )


def _guarded_otherwise(seen: Observation, queue: Queue) -> bool:
    """Tell whether something seen may guard the claim outside of its two statements.

    A row lock by key, a table lock or an advisory lock between the two makes the pair safe, and so does an
    isolation level that lets the second update fail. A function may hold any of them.
    """
    if any(lock.strength in ("update", "no key update") for _, lock in queue.row_locks()):
        return True
    if (queue.catalog.setting("default_transaction_isolation") or "") in SERIALIZING:
        return True
    texts = " ".join(row.text.lower() for row in seen.statement_texts if row.text is not None)
    marks = (
        "lock table",
        "advisory_lock",
        "advisory_xact_lock",
        *(f"isolation level {level}" for level in SERIALIZING),
    )
    return any(mark in texts for mark in marks)


def _severity(queue: Queue, at: tuple[SeenStatement, ...], won: int, limits: Limits) -> Severity:
    """Judge by the claims of the window that won a job; a single worker cannot meet another.

    How many workers there are is not told by who happened to be caught: a claim takes less than a millisecond, and of four
    workers most windows catch one or none. Only many executions, all of one backend that never waits for a row, show that it is
    alone.
    """
    caught = _at(queue, at)
    executions = {(one.session.pid, round(one.at - (one.session.query_age_s or 0.0), 2)) for one in caught}
    alone = (
        len(executions) >= limits.lone_samples
        and len({one.session.pid for one in caught}) == 1
        and all(one.session.wait_type != "Lock" for one in caught)
    )
    return "critical" if queue.churn.per_second(won) >= limits.critical_rate and not alone else "warning"


def _at(queue: Queue, at: tuple[SeenStatement, ...]) -> tuple[WaitingSession, ...]:
    """The samples that caught a session at the statements."""
    wanted = {one.statement for one in at}
    return tuple(one for one in queue.sessions if one.statement in wanted)


def _pids(queue: Queue, at: tuple[SeenStatement, ...]) -> tuple[int, ...]:
    """Backends that were caught at the statements."""
    return tuple(sorted({one.session.pid for one in _at(queue, at)}))


def _frequency(queue: Queue, one: SeenStatement, what: str) -> tuple[Evidence, ...]:
    if one.calls <= 0:
        return ()
    per_second = queue.churn.per_second(one.calls)
    return (
        Evidence(what=what, value=round(per_second, 2), unit="per second", source="pg_stat_statements"),
        Evidence(what="won", value=count(one.rows), unit="rows", source="pg_stat_statements, in the window"),
    )


CHECK = Check(
    title="A claim can be won twice",
    needs=(STATEMENTS, CLAIMS),
    limits=Limits(),
    evaluate=evaluate,
    lint=lint_claims.unguarded,
    references=(
        "https://www.postgresql.org/docs/current/transaction-iso.html#XACT-READ-COMMITTED",
        "https://www.postgresql.org/docs/current/sql-select.html#SQL-FOR-UPDATE-SHARE",
    ),
    look_alikes=(
        "an UPDATE that tests the state again (AND state = 'ready'): the loser changes nothing",
        "a SELECT with SKIP LOCKED before the UPDATE by key, in one transaction",
        "a heartbeat, or the end of a job, written by key: the worker already owns it",
        "a dashboard's SELECT ... LIMIT beside a claim that is sound",
        "an UPDATE guarded by a version column",
    ),
)
