"""Workers line up for one row, or race for it and lose.

FOR UPDATE without SKIP LOCKED makes every worker pick the same first job and wait for whoever holds its lock.
With a guarded UPDATE (... AND state = 'ready') nobody runs a job twice, but all workers try the same head of
the queue and most of them change nothing. In both designs more workers add waiting rather than throughput. At
a few claims per second a guarded UPDATE is sound.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Set
from dataclasses import dataclass
from typing import Annotated

from pgqdoctor import claiming, remedy, sqlcorrect
from pgqdoctor.check import ACTIVITY, CLAIMS, STATEMENTS, Check
from pgqdoctor.claimguards import WAITS, guard_of
from pgqdoctor.finding import Evidence, Finding, Remedy, Severity
from pgqdoctor.lint import claims as lint_claims
from pgqdoctor.observation import Observation
from pgqdoctor.queue import Queue, SeenClaim
from pgqdoctor.sampled import sampled
from pgqdoctor.sqlfacts import Statement
from pgqdoctor.words import count, percent, rate, shortened

ROW_WAITS = ("transactionid", "tuple")
"""Lock waits for a row: for the transaction that holds it, or for one's turn among those who wait."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """When waiting and losing cost something."""

    waiting_workers: Annotated[
        float,
        "workers that wait for a row at an average moment: below half a worker the line is as good as none",
    ] = 0.5
    waiting_share: Annotated[
        float, "ratio of the moments at which a busy claim was waiting: rare collisions are no line"
    ] = 0.2
    critical_workers: Annotated[
        float,
        "workers that wait at an average moment, from which the queue is as slow as a single worker whatever is added",
    ] = 4.0
    critical_share: Annotated[
        float, "ratio of busy moments spent waiting that goes with it (38 of 43 were measured in a convoy)"
    ] = 0.75
    lost_share: Annotated[
        float, "ratio of guarded updates that change nothing: a lost race now and then belongs to the design"
    ] = 0.3
    lost_rate: Annotated[
        float,
        "lost races per second: each is two statements and a round trip for nothing, and below this the server does not notice",
    ] = 20.0


def evaluate(seen: Observation, queue: Queue, limits: Limits) -> Iterator[Finding]:
    """Report the line at blocking claims, else the races lost at guarded ones."""
    blocking = [
        one
        for one in queue.claims
        if one.seen.seen and one.claim.shape == "blocking" and not one.claim.by_key
    ]
    line = _line(queue, blocking, limits)
    if line is None and not queue.claims:
        # What runs inside a function shows as its call.
        inside = [one for one in queue.inner_claims if one.claim.shape == "blocking" and not one.claim.by_key]
        line = _line(queue, inside, limits, {one.statement for one in queue.function_claims})
    if line is not None:
        yield line
        return
    races = _races(queue, limits) or _refused(seen, queue, limits) or _around(seen, queue, limits)
    if races is not None:
        yield races


def _waits(queue: Queue, statements: Set[Statement]) -> tuple[int, int, tuple[int, ...]]:
    """Return samples of busy sessions at the statements, those of them waiting for a row, and who waited."""
    at = [
        one.session for one in queue.sessions if one.statement in statements and one.session.state == "active"
    ]
    waiting = [one for one in at if one.wait_type == "Lock" and one.wait_event in ROW_WAITS]
    return len(at), len(waiting), tuple(sorted({one.pid for one in waiting}))


def _line(
    queue: Queue, claims: list[SeenClaim], limits: Limits, calls: Set[Statement] = frozenset()
) -> Finding | None:
    """Tell of the workers that wait at blocking claims, or at ``calls`` of the function that the claims are in."""
    busy, waiting, pids = _waits(queue, calls or {one.seen.statement for one in claims})
    if not claims or not waiting or not queue.sample_count:
        return None
    # Finishing a job also waits behind the line for its row.
    behind = sum(
        1
        for one in queue.sessions
        if one.session.state == "active"
        and one.session.wait_type == "Lock"
        and one.session.wait_event in ROW_WAITS
    )
    workers, share = behind / queue.sample_count, waiting / busy
    if workers < limits.waiting_workers or share < limits.waiting_share:
        return None
    one = claims[0]
    severity: Severity = "warning"
    if workers >= limits.critical_workers and share >= limits.critical_share:
        severity = "critical"
    return Finding(
        check=CHECK.id,
        severity=severity,
        queue=queue.name,
        title=(
            f"{count(workers)} workers of {queue.name} wait in line for one row at any moment: "
            f"the claim is {claiming.of_text(one.claim)} without SKIP LOCKED"
        ),
        why=(
            "Every worker picks the same first job and waits for the transaction that holds it. When that commits, the job is taken, and all of them go "
            "on to the next row together."
        ),
        evidence=(
            claiming.text_evidence(one.seen),
            Evidence(
                what="workers waiting for a row",
                value=round(workers, 1),
                unit="sessions",
                source="samples of pg_stat_activity",
            ),
            Evidence(
                what="of the claim's busy moments",
                value=round(share, 2),
                unit="ratio",
                source="samples of pg_stat_activity",
            ),
            *claiming.rate_evidence(queue),
        ),
        remedies=tuple(_remedies(queue, one)),
        pids=pids,
        relations=(queue.oid,),
    )


def _races(queue: Queue, limits: Limits) -> Finding | None:
    """Count guarded updates that changed nothing although they knew their job.

    A one-statement claim that finds nothing may just have asked an empty queue: its misses count only while
    jobs are ready.
    """
    guarded = [
        one
        for one in queue.claims
        if one.claim.shape == "guarded"
        and one.claim.writes
        and one.seen.calls > 0
        and (one.claim.by_key or _ready(queue))
    ]
    if not guarded or any(
        one.claim.shape in ("skip-locked", "delete-skip-locked") and one.seen.calls for one in queue.claims
    ):
        return None
    one = claiming.busiest(guarded)
    if one is None:
        return None
    tries = one.seen.calls
    if one.claim.by_key:
        # Where the SELECT before it found nothing, some clients send the update all the same: that is an
        # empty poll.
        found = sum(poll.seen.rows for poll in claiming.polls(queue))
        tries = min(tries, found) if found else tries
    lost = max(tries - one.seen.rows, 0)
    per_second = queue.churn.per_second(lost)
    if per_second < limits.lost_rate or lost < limits.lost_share * tries:
        return None
    busy, waiting, pids = _waits(queue, {one.seen.statement})
    evidence = [
        claiming.text_evidence(one.seen),
        Evidence(what="tries", value=tries, unit="calls", source="pg_stat_statements, in the window"),
        Evidence(what="won", value=one.seen.rows, unit="rows", source="pg_stat_statements, in the window"),
        Evidence(
            what="lost races", value=round(per_second, 1), unit="per second", source="pg_stat_statements"
        ),
    ]
    if busy:
        evidence.append(
            Evidence(
                what="busy moments spent waiting for a row",
                value=round(waiting / busy, 2),
                unit="ratio",
                source="samples of pg_stat_activity",
            )
        )
    return Finding(
        check=CHECK.id,
        severity="warning",
        queue=queue.name,
        title=f"Workers of {queue.name} lose {percent(lost / tries)} of their claims to each other: {rate(per_second)} guarded updates change nothing",
        why=(
            "All workers read the same head of the queue and try to take the same job. The guard lets one of them win, which is sound; the others have "
            "read, waited and updated for nothing, and the loss grows with the number of workers."
        ),
        evidence=tuple(evidence),
        remedies=tuple(_remedies(queue, one)),
        pids=pids,
        relations=(queue.oid,),
    )


def _refused(seen: Observation, queue: Queue, limits: Limits) -> Finding | None:
    """Tell of NOWAIT claims that fail because another worker holds the head of the queue.

    A statement that failed is in no counter; what it leaves is a transaction rolled back.
    """
    claims = [one for one in queue.claims if one.claim.shape == "nowait" and one.seen.calls > 0]
    if not claims or len({one.seen.key for one in queue.claims if one.seen.calls}) > len(
        {one.seen.key for one in claims}
    ):
        return None
    one = claims[0]
    won = sum(each.calls for each in claiming.statements_of(claims))
    lost = max(seen.last.database.rollbacks - seen.first.database.rollbacks, 0)
    per_second = queue.churn.per_second(lost)
    if per_second < limits.lost_rate or lost < limits.lost_share * (lost + won):
        return None
    return Finding(
        check=CHECK.id,
        severity="warning",
        queue=queue.name,
        title=(
            f"{percent(lost / (lost + won))} of the claims of {queue.name} fail: the claim is "
            f"{claiming.of_text(one.claim)} NOWAIT, and {rate(per_second)} transactions are rolled back"
        ),
        why=(
            "Every worker picks the same first job, and NOWAIT fails with SQLSTATE 55P03 where another holds it. SKIP LOCKED would take the next "
            "job instead."
        ),
        evidence=(
            claiming.text_evidence(one.seen),
            Evidence(
                what="rolled back",
                value=lost,
                unit="transactions",
                source="pg_stat_database, in the window, whole database",
            ),
            Evidence(
                what="claims that succeeded",
                value=won,
                unit="calls",
                source="pg_stat_statements, in the window",
            ),
        ),
        remedies=tuple(_remedies(queue, one)),
        relations=(queue.oid,),
    )


def _around(seen: Observation, queue: Queue, limits: Limits) -> Finding | None:
    """Tell of workers that stand in line for a lock that each takes around its claim: on the table, or an advisory one."""
    takes = {
        place: how
        for place, text in enumerate(seen.texts)
        if (how := guard_of(seen, queue, text)) is not None
    }
    pids: set[int] = set()
    waiting: Counter[int] = Counter()
    busy = sampled(seen).active
    for one in sampled(seen).waiting("Lock", *dict.fromkeys(WAITS.values())):
        how = takes.get(one.text)
        if how is not None and one.wait_event == WAITS[how]:
            waiting[one.text] += 1
            pids.add(one.pid)
    if not waiting or not seen.samples:
        return None
    place, _ = waiting.most_common(1)[0]
    total = waiting.total()
    workers, share = total / len(seen.samples), total / busy
    if len(pids) < 2 or workers < limits.waiting_workers or share < limits.waiting_share:
        return None
    severe = workers >= limits.critical_workers and share >= limits.critical_share
    return Finding(
        check=CHECK.id,
        severity="critical" if severe else "warning",
        queue=queue.name,
        title=f"{count(workers)} workers of {queue.name} wait in line for {takes[place]} at any moment, which each of them takes around its claim",
        why=(
            "Only one worker at a time can be between taking the lock and giving it back, however many there are. A row lock with SKIP LOCKED "
            "keeps two workers from the same job without keeping them from each other."
        ),
        evidence=(
            Evidence(
                what="takes the lock",
                value=shortened(seen.texts[place], 200),
                unit="",
                source="pg_stat_activity",
            ),
            Evidence(
                what="workers waiting for it",
                value=round(workers, 1),
                unit="sessions",
                source="samples of pg_stat_activity",
            ),
            Evidence(
                what="of their busy moments",
                value=round(share, 2),
                unit="ratio",
                source="samples of pg_stat_activity",
            ),
        ),
        remedies=(_without_the_lock(queue),),
        pids=tuple(sorted(pids)),
        relations=(queue.oid,),
    )


def _without_the_lock(queue: Queue) -> Remedy:
    claim = claiming.busiest([one for one in queue.claims if not one.claim.by_key])
    text = sqlcorrect.skip_locked(claim.seen.statement.text, claim.claim) if claim is not None else None
    limit = "1" if claim is not None and claim.seen.rows <= claim.seen.calls else None
    sql = claiming.printed(queue, text, limit=limit) if text is not None else claiming.composed_claim(queue)
    title = "Claim in one statement that skips the rows other workers hold, without a lock around it"
    risk = "a change of the application: all workers have to claim in this way before the lock is given up"
    if sql is None:
        return remedy.change_application(
            title=f"{title}: SELECT ... FOR UPDATE SKIP LOCKED in the UPDATE's sub-select",
            expect="workers claim side by side, and none waits for another",
            risk=risk,
        )
    return remedy.corrected_statement(
        sql=(sql,),
        title=title,
        expect=f"workers claim side by side, and none waits for another.{claiming.with_parameters(sql)}",
        risk=risk,
    )


def _ready(queue: Queue) -> bool:
    return queue.probe is not None and bool(queue.probe.ready_rows)


def _remedies(queue: Queue, one: SeenClaim) -> Iterator[Remedy]:
    text: str | None = None
    limit = "1" if one.seen.rows <= one.seen.calls else None
    if one.claim.by_key:
        for poll in claiming.polls(queue):
            many = poll.seen.rows > poll.seen.calls
            limit = None if many else "1"
            text = sqlcorrect.one_statement(
                poll.seen.statement.text,
                one.seen.statement.text,
                sqlcorrect.TableWords(name=queue.name, key=queue.identity.roles.key),
                many=many,
            )
            if text is not None:
                break
    else:
        text = sqlcorrect.skip_locked(one.seen.statement.text, one.claim)
    sql = claiming.printed(queue, text, limit=limit) if text is not None else claiming.composed_claim(queue)
    if sql is not None:
        yield remedy.corrected_statement(
            sql=(sql,),
            title="Skip the rows that other workers hold",
            expect=f"each worker takes the first job that is free, and none waits for another.{claiming.with_parameters(sql)}",
            risk="a change of the application; jobs are then taken nearly, not strictly, in order",
        )


CHECK = Check(
    title="Workers wait for, or lose, the same row",
    needs=(STATEMENTS, CLAIMS, ACTIVITY),
    limits=Limits(),
    evaluate=evaluate,
    lint=lint_claims.not_skip_locked,
    references=("https://www.postgresql.org/docs/current/sql-select.html#SQL-FOR-UPDATE-SHARE",),
    look_alikes=(
        "a guarded UPDATE at a few claims per second",
        "a blocking claim of a single worker, which waits for nobody",
        "workers that wait for a lock at another statement than the claim",
        "a guarded UPDATE on an empty queue, which has nothing to lose",
    ),
)
