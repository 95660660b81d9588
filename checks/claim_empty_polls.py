"""Most claims find nothing.

A worker that asks again at once when the queue is empty makes the server parse, plan, lock and answer for
nothing. One poll is cheap; thousands a second are a core, and they are multiplied by workers and queues. If
jobs are ready and the claims still find nothing, it is another illness: the jobs are locked, or the claim's
other conditions shut them out. Workers that ask for jobs of one kind are not starved by those of another, which
may be dead letters that nobody is meant to take.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated

from pgqdoctor import claiming
from pgqdoctor.check import CLAIMS, STATEMENTS, Check
from pgqdoctor.finding import Evidence, Finding, Remedy, Severity
from pgqdoctor.observation import Observation
from pgqdoctor.predicates import allowed_values, flat
from pgqdoctor.queue import Queue
from pgqdoctor.sampled import sampled
from pgqdoctor.sqlrewrite import quote_ident
from pgqdoctor.sqlwords import KINDS
from pgqdoctor.statements import SeenStatement
from pgqdoctor.words import count, percent, plural, rate


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """When asking in vain costs something."""

    empty_rate: Annotated[
        float,
        "claims per second that find nothing: a hundred workers that ask once a second, as healthy ones do, make 100",
    ] = 200.0
    per_won: Annotated[
        float, "claims that find nothing for each job taken: below it the polls keep pace with the work"
    ] = 3.0
    core: Annotated[
        float, "ratio of one core spent in claims that find nothing, which hurts whatever their rate"
    ] = 0.1
    critical_core: Annotated[float, "ratio of one core: the polls fill it"] = 1.0
    critical_rate: Annotated[
        float,
        "claims per second that find nothing: 18,500 a second from 8 workers were measured to fill two cores, clients included",
    ] = 10_000.0
    starved_calls: Annotated[
        int, "claims in the window that found nothing while jobs were ready: fewer may be chance"
    ] = 5
    known_jobs: Annotated[
        int, "earlier jobs seen of a kind that waits, from which workers are known to ask for that kind"
    ] = 20


def evaluate(seen: Observation, queue: Queue, limits: Limits) -> Iterator[Finding]:
    """Report starving claims first, then claims that ask too often."""
    statements = _asking(queue)
    calls, rows = sum(one.calls for one in statements), sum(one.rows for one in statements)
    if not calls:
        return
    if _starved(queue, calls, rows, limits):
        yield (
            _other_kinds(queue, statements, calls)
            if _may_be_of_other_kinds(seen, queue, limits)
            else _starving(queue, statements, calls)
        )
        return
    # A batch claim returns several rows: at least so many calls found nothing.
    empty = max(calls - rows, 0)
    per_second = queue.churn.per_second(empty)
    core = (
        sum(one.total_ms for one in statements) / 1000 / queue.churn.seconds * empty / calls
        if queue.churn.seconds > 0
        else 0.0
    )
    if empty < limits.per_won * rows or (per_second < limits.empty_rate and core < limits.core):
        return
    severity: Severity = (
        "critical" if core >= limits.critical_core or per_second >= limits.critical_rate else "warning"
    )
    spent = f", {percent(core)} of a core" if core >= 0.01 else ""
    yield Finding(
        check=CHECK.id,
        severity=severity,
        queue=queue.name,
        title=f"{_most(empty / calls)} of the claims of {queue.name} find nothing: {rate(per_second)}{spent}",
        why=(
            "Workers ask again without a pause although the queue is empty. Each answer is quick, so no slow query shows; it is their number that "
            "costs, on the server and on the network."
        ),
        evidence=(
            Evidence(
                what="claims that find nothing, at least",
                value=round(per_second, 1),
                unit="per second",
                source="pg_stat_statements",
            ),
            Evidence(
                what="jobs taken",
                value=round(queue.churn.per_second(rows), 1),
                unit="per second",
                source="pg_stat_statements",
            ),
            Evidence(
                what="time in those claims",
                value=round(core, 3),
                unit="ratio",
                source="pg_stat_statements, of one core",
            ),
            claiming.text_evidence(statements[0]),
            *_ready_evidence(queue),
        ),
        remedies=(_back_off(queue, per_second),),
        relations=(queue.oid,),
    )


def _most(ratio: float) -> str:
    """Return a share as a percentage that does not round up to all of them."""
    return f"{int(ratio * 1000) / 10}%" if 0.99 <= ratio < 1 else percent(ratio)


def _asking(queue: Queue) -> tuple[SeenStatement, ...]:
    """Return the statements that ask for a job: claims that look for one, and unlocked looks before an update
    by key."""
    found = {one.seen.key: one.seen for one in queue.claims if not one.claim.by_key and one.seen.calls > 0}
    if not found:
        found = {one.seen.key: one.seen for one in claiming.polls(queue) if one.seen.calls > 0}
    return tuple(found.values())


def _starved(queue: Queue, calls: int, rows: int, limits: Limits) -> bool:
    probe = queue.probe
    if probe is None or not probe.ready_rows or rows or calls < limits.starved_calls:
        return False
    age = probe.oldest_ready_age_s
    return age is None or age >= queue.churn.seconds


def _may_be_of_other_kinds(seen: Observation, queue: Queue, limits: Limits) -> bool:
    """Tell whether every claim asks for one kind of jobs, and nothing shows that those which wait are of that kind.

    Where jobs of a waiting kind were taken before, workers ask for it, or used to. Where a transaction that wrote has been open for
    the whole window, it may hold the locks of all.
    """
    asked = _kinds_asked(queue)
    if asked is None or _held_open(seen):
        return False
    column, names = asked
    served = queue.probe.served if queue.probe is not None else None
    kinds = served.kinds if served is not None and served.kind_column == column else ()
    if names is not None and any(one.name in names for one in kinds):
        return False
    return not any(one.jobs >= limits.known_jobs for one in kinds)


def _kinds_asked(queue: Queue) -> tuple[str, frozenset[str] | None] | None:
    """Return the column by which every claim that ran chooses its jobs and the kinds it names, None for kinds that no text shows."""
    ran = [
        tuple(flat(one.claim.conditions)) for one in queue.claims if not one.claim.by_key and one.seen.calls
    ]
    ran = ran or [tuple(flat(one.read.conditions)) for one in claiming.polls(queue) if one.seen.calls]
    for column in KINDS:
        tests = [[test for test in one if test.column == column and allowed_values(test)] for one in ran]
        if ran and all(tests):
            values = [value for found in tests for test in found for value in allowed_values(test)]
            shown = not any(value.startswith("$") for value in values)
            return column, frozenset(values) if shown else None
    return None


def _held_open(seen: Observation) -> bool:
    """Tell whether a transaction that wrote was open all the while."""
    oldest_s = sampled(seen).oldest_writer_s
    return oldest_s is not None and oldest_s >= seen.seconds


def _other_kinds(queue: Queue, statements: tuple[SeenStatement, ...], calls: int) -> Finding:
    asked = _kinds_asked(queue)
    column = quote_ident(asked[0]) if asked is not None else ""
    probe = queue.probe
    ready = (
        f"{'' if probe.ready_exact else 'more than '}{plural(probe.ready_rows, 'job')}"
        if probe is not None and probe.ready_rows
        else "jobs"
    )
    return Finding(
        check=CHECK.id,
        severity="notice",
        queue=queue.name,
        title=f"Claims of {queue.name} find nothing, and need not: {ready} that are ready may be of another {column}",
        why=(
            f"The claims choose jobs by {column}, and nothing shows that jobs like those which are ready were ever taken. Dead letters, and jobs "
            "kept for somebody to look at, wait like that on purpose."
        ),
        evidence=(
            claiming.in_vain_evidence(calls),
            *_ready_evidence(queue),
            claiming.text_evidence(statements[0]),
        ),
        remedies=(),
        subject="other-kinds",
        relations=(queue.oid,),
    )


def _starving(queue: Queue, statements: tuple[SeenStatement, ...], calls: int) -> Finding:
    probe, plan = queue.probe, queue.plan
    ready = probe.ready_rows if probe is not None and probe.ready_rows is not None else 0
    more = "" if probe is None or probe.ready_exact else "more than "
    locked = plan is not None and plan.facts.measured and (plan.facts.rows or 0) >= 1
    shut_out = plan is not None and plan.facts.measured and not locked
    if locked:
        cause = "other transactions hold the locks of all of them"
        why = (
            "Without its locking clause the claim finds a job, with it none: SKIP LOCKED passes over every ready row, because another transaction "
            "has locked it, as a claim without LIMIT does."
        )
    elif shut_out:
        cause = "the claim's other conditions shut them out"
        why = (
            "The claim finds no row even without its locking clause. Jobs that were left running may use up a limit on how many run at once, or the "
            "queue or kind it asks for is paused or has no jobs."
        )
    else:
        cause = "they are locked, or the claim's other conditions shut them out"
        why = "The claims are executed and return no row. The plan could not be measured, so it is open which of the two it is."
    return Finding(
        check=CHECK.id,
        severity="critical",
        queue=queue.name,
        title=f"Claims of {queue.name} find nothing although {more}{count(ready)} jobs are ready: {cause}",
        why=why,
        evidence=(
            claiming.in_vain_evidence(calls),
            *_ready_evidence(queue),
            claiming.text_evidence(statements[0]),
            *(claiming.plan_evidence(plan) if plan is not None else ()),
        ),
        remedies=(),
        subject="starved",
        relations=(queue.oid,),
    )


def _ready_evidence(queue: Queue) -> tuple[Evidence, ...]:
    probe = queue.probe
    if probe is None or probe.ready_rows is None:
        return ()
    found = [*claiming.ready_evidence(queue)]
    if probe.oldest_ready_age_s is not None:
        found.append(
            Evidence(
                what="oldest of them",
                value=round(probe.oldest_ready_age_s, 1),
                unit="seconds",
                source="bounded look",
            )
        )
    return tuple(found)


def _back_off(queue: Queue, per_second: float) -> Remedy:
    channel = quote_ident(f"{queue.table.name}_ready"[:63])
    return Remedy(
        title="Wait before asking an empty queue again, or be woken: LISTEN, and poll only now and then",
        kind="application",
        sql=(f"LISTEN {channel};", f"NOTIFY {channel};"),
        undo=(f"UNLISTEN {channel};",),
        lock="",
        blocks="nothing",
        restart=False,
        risk=(
            "NOTIFY takes one lock of the whole server at commit: send it once per batch of jobs, not for each of many thousand a second; LISTEN "
            "needs a session of its own and does not work through a pooler in transaction mode"
        ),
        expect=(
            f"a few polls per minute from each worker in the place of {rate(per_second)}: double the pause after every empty answer up to some "
            "seconds, add a random part, and begin anew after a job. The listener polls once when it is woken; NOTIFY is sent in the transaction that enqueues."
        ),
    )


CHECK = Check(
    title="Claims find nothing",
    needs=(STATEMENTS, CLAIMS),
    limits=Limits(),
    evaluate=evaluate,
    references=("https://www.postgresql.org/docs/current/sql-notify.html",),
    look_alikes=(
        "workers that ask an empty queue about once a second",
        "a busy queue whose workers sometimes come too late",
        "guarded updates that lose a race: they knew their job",
        "workers of one kind of jobs, while those of another kind lie as dead letters in the same table",
    ),
)
