"""Jobs are ready and nobody takes them.

The workers are dead, their deployment was scaled to zero, or they ask for jobs of another name: the database is
well, and no job is done. It shows by what is missing. Jobs wait, and in the window no claim took one, no session
was at a claim, no job was finished.

A queue that a batch empties once a night looks just the same at noon. What tells the two apart is how long jobs
waited before: the table often keeps the jobs that are done, with the times when they became ready and when they
were taken. Where hardly any of them waited a third as long as the oldest does now, its workers are gone. Where it
keeps none, the claims that pg_stat_statements has counted may tell: workers that asked an empty queue every
second, and now do not ask at all, are gone too. Where neither tells, this is a notice and no more. So it is where
no job has come for more than a week: such a queue may be out of use.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Annotated

from pgqdoctor import claiming, finishing, remedy, taking, upkeep
from pgqdoctor.check import ACTIVITY, CLAIMED, COUNTERS, ROWS, Check
from pgqdoctor.finding import Evidence, Finding, Remedy, Severity
from pgqdoctor.lookalikes import names_work
from pgqdoctor.observation import Observation, ServedKind, ServedProbe
from pgqdoctor.queue import Queue
from pgqdoctor.sqlrewrite import quote_ident
from pgqdoctor.words import count, duration, percent, plural, shortened


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """From when waiting jobs mean that nobody serves them."""

    notice_s: Annotated[
        float,
        "seconds that the oldest ready job has waited: workers that poll seldom ask every 30 to 60 seconds",
    ] = 60.0
    gone_s: Annotated[
        float,
        "seconds without anybody who takes a job: workers that are deployed anew are back within two minutes",
    ] = 120.0
    critical_s: Annotated[
        float, "seconds without anybody who takes a job: the same wait that makes a growing backlog critical"
    ] = 900.0
    critical_jobs: Annotated[
        int, "jobs that wait: a few late ones may be of a kind that nobody serves, the queue itself may work"
    ] = 10
    longer: Annotated[
        float, "times as long as jobs waited before: a batch that comes in turns may miss one turn"
    ] = 3.0
    unusual: Annotated[
        float,
        "ratio of earlier jobs that waited a third as long: one in twenty lived through an earlier outage",
    ] = 0.05
    known_jobs: Annotated[int, "earlier jobs seen: with fewer, one in twenty means nothing"] = 20
    known_span: Annotated[
        float,
        "times the present wait over which the earlier jobs, or the counted claims, reach: what one turn of a batch took has nothing to say beyond it",
    ] = 2.0
    polls: Annotated[
        float,
        "claims of an empty queue that the window should have seen by their average rate: with 10 awaited, none comes by chance once in 20,000 windows",
    ] = 10.0
    busy_s: Annotated[
        float,
        "seconds since a heartbeat or a claim within which a worker counts as busy, where no more is known",
    ] = 3_600.0
    busy_factor: Annotated[
        float, "times as long as jobs usually run: one claimed longer ago is nobody's any more"
    ] = 10.0
    again: Annotated[
        int,
        "earlier days or weeks of which the jobs of the same hour waited as long: one may have seen an outage, two see workers that rest",
    ] = 2
    unused_s: Annotated[
        float,
        "seconds without a new job, from which the queue may be out of use: whatever fills it every week has missed its turn then",
    ] = 8 * 86_400.0


@dataclass(frozen=True, slots=True, kw_only=True)
class _Wait:
    """Jobs that nobody takes: how many, for how many seconds, of which kind, and why that is unusual ("" where it may be usual)."""

    jobs: int
    seconds: float
    kind: ServedKind | None
    unusual: str = ""


def evaluate(seen: Observation, queue: Queue, limits: Limits) -> Iterator[Finding]:
    """Speak where jobs wait and none was taken; as more than a notice only where that is known to be unusual."""
    probe = queue.probe
    if probe is None or not probe.ready_rows or probe.oldest_ready_age_s is None:
        return
    if probe.oldest_ready_age_s < limits.notice_s:
        return
    served = probe.served or ServedProbe()
    if _moves(queue):
        # Others are taken: this kind may be shut out by those that go before it, or its one worker may be busy.
        late = _gone(_waits(served, probe.ready_rows, probe.oldest_ready_age_s, "", limits), limits)
        if late and len(served.kinds) > len(late):
            yield _passed_over(queue, served, late)
        return
    asked = taking.taken(queue).calls
    silence = _silence(queue, served, probe.oldest_ready_age_s, limits)
    waits = tuple(_waits(served, probe.ready_rows, probe.oldest_ready_age_s, silence, limits))
    if not waits or _at_work(queue) or asked >= STARVED_CALLS:
        return
    reserves = tuple(_reserves(seen, queue, served, max(one.seconds for one in waits), asked, limits))
    gone = _gone(waits, limits)
    if gone and not reserves:
        yield _nobody(queue, served, gone, limits)
    else:
        yield _not_taken(queue, served, waits, reserves)


STARVED_CALLS = 5
"""Claims in the window that found nothing, from which claim-empty-polls says why."""


def _waits(served: ServedProbe, ready: int, oldest_s: float, silence: str, limits: Limits) -> Iterator[_Wait]:
    """Yield what waits longer than a poll explains and than is usual, by kind where the table tells how soon jobs are taken."""
    if not served.kinds:
        yield _Wait(jobs=ready, seconds=oldest_s, kind=None, unusual=silence)
    for kind in served.kinds:
        # What became ready before the last job was taken was passed over: it need not be one that workers want.
        wait = _Wait(jobs=kind.waiting, seconds=kind.waiting_s or 0.0, kind=kind)
        if wait.seconds >= limits.notice_s and not _is_usual(wait.seconds, kind, limits):
            yield replace(wait, unusual=_history(wait.seconds, kind, limits) or silence)


def _gone(waits: Iterable[_Wait], limits: Limits) -> tuple[_Wait, ...]:
    """Return those that are known to wait for longer than is usual, and than new workers need to start."""
    return tuple(one for one in waits if one.unusual and one.seconds >= limits.gone_s)


# --- signs of life -------------------------------------------------------------------------------------


def _moves(queue: Queue) -> bool:
    """Tell whether a job was taken or finished: by statements, else by rows that changed for no other known reason."""
    without_deletes = replace(queue, churn=replace(queue.churn, deleted=0))
    if claiming.taken(queue) or finishing.finished_per_s(without_deletes):
        return True
    return finishing.rows_move(queue)


def _at_work(queue: Queue) -> bool:
    """Tell whether a session was caught at a claim, or in the transaction of one, without waiting for a lock."""
    return any(
        one.statement is not None
        and (one.statement.claims or any(write.kind != "insert" for write in one.statement.writes))
        and one.session.wait_type != "Lock"
        and not finishing.clears(queue, one.statement)
        and not upkeep.ages(queue.identity, one.statement, queue.is_this)
        for one in queue.sessions
    )


def _reserves(
    seen: Observation, queue: Queue, served: ServedProbe, waited_s: float, asked: int, limits: Limits
) -> Iterator[str]:
    """Yield what else may keep the jobs waiting: each is a clause, and each is enough for no more than a notice."""
    if asked:
        yield f"{plural(asked, 'claim')} ran and found none of them"
    if served.paused is not None:
        yield f"a queue is paused by {served.paused}"
    if _may_wait_for_people(queue):
        yield "whoever takes one knows which, as people do who choose from a list, or leave it there for good"
    again = max((one.again for one in served.kinds), default=0)
    if again >= limits.again:
        yield f"those of the same hour waited as long on {again} earlier days or weeks, as where workers rest at night or at weekends"
    unused_s = _unused(queue, served, waited_s)
    if unused_s >= limits.unused_s:
        yield f"no job was added for {duration(unused_s)} either, so that the queue may be out of use"
    busy = _busy(queue, served, limits)
    if busy:
        yield busy
    if served.last_asked_s is not None:
        age = served.last_asked_s
        if age < waited_s:
            yield f"a connected worker asked {duration(age)} ago"
        elif not _sees_claimed(queue):
            yield f"a worker that asked {duration(age)} ago is connected and may be busy with the job it took"
    if not _sees_claimed(queue) and not _runs_are_short(queue, served, waited_s, limits):
        yield "which jobs are at work could not be looked at, so that all workers may be busy"
    if any(one.claim.shape == "advisory" for one in queue.claims):
        yield "its workers hold their jobs by advisory locks, so that jobs at work look ready"
    if any(lack.what == ACTIVITY for lack in seen.lacks):
        yield "the sessions of other roles, workers among them, cannot be seen"
    waiting = {one.session.pid for one in queue.sessions if one.session.wait_type == "Lock"}
    if waiting:
        yield f"{plural(len(waiting), 'session')} at its statements waited for a lock"


def _may_wait_for_people(queue: Queue) -> bool:
    """Tell whether rows are taken by their key alone, from a table that is not named for work: orders and tickets wait for people."""
    claims = queue.claims
    return (
        queue.identity.framework is None
        and bool(claims)
        and all(one.claim.by_key for one in claims)
        and not queue.function_claims
        and not names_work(queue.table.name)
    )


def _unused(queue: Queue, served: ServedProbe, waited_s: float) -> float:
    """Return for how many seconds no job was added, as far as the ready ones tell; where only the oldest is known, it stands for all."""
    if queue.churn.inserted:
        return 0.0
    newest = [one.newest_s for one in served.kinds if one.newest_s is not None]
    return min(newest, default=waited_s)


def _sees_claimed(queue: Queue) -> bool:
    """Tell whether the jobs at work are known: they were looked at, or the counted rows are all ready or finished ones."""
    probe, identity = queue.probe, queue.identity
    if probe is None:
        return False
    known = {*identity.ready_values, *identity.finished_values}
    if probe.states and all(one.exact and claiming.same_state(one.value) in known for one in probe.states):
        return True
    return not any(one.what == CLAIMED for one in probe.lacks)


def _busy(queue: Queue, served: ServedProbe, limits: Limits) -> str:
    """Say that jobs are at work, "" where none is that somebody can be supposed to work on."""
    probes = queue.probe.stuck if queue.probe is not None else ()
    usual = max((_most(kind.runs_s) for kind in served.kinds if kind.runs_s), default=None)
    longest = limits.busy_s if usual is None else max(limits.notice_s, limits.busy_factor * usual)
    for one in probes:
        if not one.rows or not one.ages_s:
            continue
        youngest = min(one.ages_s)
        if one.measure == "heartbeat" and youngest < limits.gone_s:
            return f"{plural(one.rows, 'job')} at work gave a sign of life {duration(max(youngest, 0.0))} ago"
        if one.measure == "lease" and youngest < 0:
            return f"{plural(one.rows, 'claimed job')} have a lease that still runs"
        if one.measure == "claimed" and youngest < longest and not _leased_or_beating(queue):
            return f"{plural(one.rows, 'job')} at work, the last claimed {duration(max(youngest, 0.0))} ago"
    running, exact = finishing.in_flight(queue)
    if running and exact and not probes:
        return f"{plural(running, 'job')} may be at work"
    return ""


def _runs_are_short(queue: Queue, served: ServedProbe, waited_s: float, limits: Limits) -> bool:
    """Tell whether jobs usually run for so short a time that no worker can be busy all the while."""
    if served.kinds and served.column == queue.identity.roles.finished_at:
        return True  # what is known of them is the time until they were finished
    runs = [_most(kind.runs_s) for kind in served.kinds if kind.runs_s]
    return bool(runs) and limits.busy_factor * max(runs) < waited_s


def _leased_or_beating(queue: Queue) -> bool:
    """Tell whether a heartbeat or a lease says more about the claimed jobs than the time of the claim."""
    return queue.probe is not None and any(one.measure != "claimed" and one.rows for one in queue.probe.stuck)


# --- what is usual -------------------------------------------------------------------------------------


def _most(durations: tuple[float, ...]) -> float:
    """Return the duration that 95 of 100 do not exceed; they are in order."""
    return durations[int(0.95 * (len(durations) - 1))]


def _is_usual(seconds: float, kind: ServedKind, limits: Limits) -> bool:
    """Tell whether jobs of this kind often wait as long as the oldest does now."""
    return kind.often_waited(seconds, of_jobs=limits.known_jobs, unusual=limits.unusual)


def _history(seconds: float, kind: ServedKind, limits: Limits) -> str:
    """Say how soon jobs were taken before, "" where they often waited long or too little is known."""
    if kind.jobs < limits.known_jobs or kind.span_s < limits.known_span * seconds:
        return ""
    if kind.waited_as_long(seconds / limits.longer) > limits.unusual:
        return ""
    return (
        f"{percent(1 - limits.unusual)} of {count(kind.jobs)} earlier jobs, enqueued over {duration(kind.span_s)}, "
        f"were taken within {_soon(_most(kind.waits_s))}"
    )


def _soon(seconds: float) -> str:
    return duration(seconds) if seconds > 1 else "a second"


def _silence(queue: Queue, served: ServedProbe, oldest_s: float, limits: Limits) -> str:
    """Say how often workers used to ask an empty queue, "" where the window is too short to miss them.

    Calls that returned no row were made by somebody who asks again and again; who empties a queue in a batch makes one at the end
    of it. The average over the time since the last reset is less than their rate while they lived.
    """
    if served.statements_age_s is None or served.statements_age_s < limits.known_span * oldest_s:
        return ""
    asking = {one.seen.key: one.seen for one in queue.claims if not one.claim.by_key}
    asking |= {one.key: one for one in queue.function_claims}
    empty = sum(max(one.all_calls - one.all_rows, 0) for one in asking.values())
    per_second = empty / served.statements_age_s
    if per_second * queue.churn.seconds < limits.polls:
        return ""
    if any(one.calls or one.samples for one in asking.values()):
        return ""
    return (
        f"claims that found nothing came {count(per_second)} times a second on average in the {duration(served.statements_age_s)} "
        "since pg_stat_statements was reset, and now none comes"
    )


# --- the finding ---------------------------------------------------------------------------------------


def _nobody(queue: Queue, served: ServedProbe, gone: tuple[_Wait, ...], limits: Limits) -> Finding:
    """The workers are gone."""
    jobs, seconds = sum(one.jobs for one in gone), max(one.seconds for one in gone)
    stopped = seconds >= limits.critical_s and jobs >= limits.critical_jobs
    known = gone[0].unusual
    return _finding(
        queue,
        served,
        gone,
        severity="critical" if stopped else "warning",
        title=f"Nobody takes jobs from {queue.name}{_of_kinds(served, gone)}: {_waiting(queue, gone)}, and in "
        f"{duration(queue.churn.seconds)} none was claimed or finished",
        why=f"{known[:1].upper()}{known[1:]}. No session was at a claim: the workers are not running, or they ask another queue or "
        "database, unless another finding here names what keeps them away.",
        remedies=(_look(queue, served),),
    )


def _not_taken(
    queue: Queue, served: ServedProbe, waits: tuple[_Wait, ...], reserves: tuple[str, ...]
) -> Finding:
    """It cannot be told whether that is usual, or something else may keep the jobs waiting."""
    return _finding(
        queue,
        served,
        waits,
        severity="notice",
        title=f"No job of {queue.name}{_of_kinds(served, waits)} was taken in {duration(queue.churn.seconds)}: "
        f"{_waiting(queue, waits)}",
        why=f"That need not be a fault: {'; '.join(reserves)}."
        if reserves
        else "Whether its workers are gone, or come in turns as a nightly batch does, this observation cannot tell: it shows too "
        "little of how long jobs usually wait.",
    )


def _passed_over(queue: Queue, served: ServedProbe, late: tuple[_Wait, ...]) -> Finding:
    """Jobs of other kinds are taken."""
    return _finding(
        queue,
        served,
        late,
        severity="notice",
        title=f"Jobs of {queue.name}{_of_kinds(served, late)} are passed over while others are taken: {_waiting(queue, late)}",
        why=f"Before, {late[0].unusual}. Either no worker asks for them any more, or others go before them, or the workers for "
        "them are busy.",
    )


def _finding(
    queue: Queue,
    served: ServedProbe,
    waits: tuple[_Wait, ...],
    *,
    severity: Severity,
    title: str,
    why: str,
    remedies: tuple[Remedy, ...] = (),
) -> Finding:
    return Finding(
        check=CHECK.id,
        severity=severity,
        queue=queue.name,
        title=title,
        why=why,
        evidence=tuple(_evidence(queue, served, waits)),
        remedies=remedies,
        pids=tuple(sorted({one.session.pid for one in queue.sessions})),
        relations=(queue.oid,),
    )


def _waiting(queue: Queue, waits: tuple[_Wait, ...]) -> str:
    jobs = sum(one.jobs for one in waits)
    least = "" if queue.probe is not None and queue.probe.ready_exact else "at least "
    return (
        f"{least}{plural(jobs, 'job')} {'waits' if jobs == 1 else 'wait'}, "
        f"the oldest for {duration(max(one.seconds for one in waits))}"
    )


def _of_kinds(served: ServedProbe, waits: tuple[_Wait, ...]) -> str:
    """Say which jobs, "" for all that are ready."""
    if len(served.kinds) <= len(waits):
        return ""
    column = quote_ident(served.kind_column)
    names = [
        remedy.literal(shortened(one.kind.name or "", 40)).strip() for one in waits if one.kind is not None
    ]
    return f" where {column} = {names[0]}" if len(names) == 1 else f" where {column} IN ({', '.join(names)})"


def _evidence(queue: Queue, served: ServedProbe, waits: tuple[_Wait, ...]) -> Iterator[Evidence]:
    yield Evidence(
        what="jobs nobody takes",
        value=sum(one.jobs for one in waits),
        unit="rows",
        source=f"bounded look: {queue.identity.ready_predicate}",
    )
    yield Evidence(
        what="oldest of them",
        value=round(max(one.seconds for one in waits), 1),
        unit="seconds",
        source="bounded look",
    )
    yield Evidence(
        what="claims in the window",
        value=taking.taken(queue).calls,
        unit="calls",
        source="pg_stat_statements",
    )
    yield Evidence(
        what="arrivals",
        value=round(queue.churn.per_second(queue.churn.inserted), 1),
        unit="per second",
        source="pg_stat_user_tables",
    )
    kind = waits[0].kind
    if kind is not None and kind.last_taken_age_s is not None:
        yield Evidence(
            what="last job seen taken",
            value=round(kind.last_taken_age_s, 1),
            unit="seconds",
            source=f"bounded look: now() - {served.column}",
        )
        yield Evidence(
            what="wait of earlier jobs, 95 of 100 below",
            value=round(_most(kind.waits_s), 1),
            unit="seconds",
            source=f"bounded look at {count(kind.jobs)} jobs by {served.column}",
        )
    yield Evidence(
        what="idle sessions that asked last",
        value=served.connected,
        unit="sessions",
        source="pg_stat_activity",
    )


def _look(queue: Queue, served: ServedProbe) -> Remedy:
    """Where to look first; the database can neither start a worker nor see why there is none."""
    since = queue.identity.roles.run_at or queue.identity.roles.created_at
    age = f", now() - min({quote_ident(since)}) AS oldest" if since is not None else ""
    name = quote_ident(served.kind_column) if served.kind_column else ""
    waiting = (
        f"SELECT {name + ', ' if name else ''}count(*) AS ready{age}\n"
        f"  FROM (SELECT * FROM {queue.name} WHERE {queue.identity.ready_predicate} LIMIT 10000) AS waiting"
        f"{f' GROUP BY {name} ORDER BY 2 DESC' if name else ''};"
    )
    return Remedy(
        title="Look whether the workers run, to which database and queue they connect, and what they logged last; then start them",
        kind="application",
        sql=(
            "SELECT usename, application_name, client_addr, state, state_change, left(query, 60) AS query\n"
            f"  FROM pg_stat_activity WHERE datname = {remedy.literal(queue.database).strip()} "
            "AND backend_type = 'client backend'\n ORDER BY state_change DESC LIMIT 20;",
            waiting,
        ),
        undo=(),
        lock="ACCESS SHARE",
        blocks="nothing",
        restart=False,
        risk="all that has waited is done at once: mails, payments and calls of other services come late and in a crowd; start with "
        "few workers",
        expect="claims appear at once, and the oldest ready job grows younger until none is late",
    )


CHECK = Check(
    title="Jobs wait and nobody takes them",
    needs=(ROWS, COUNTERS),
    limits=Limits(),
    evaluate=evaluate,
    look_alikes=(
        "a queue that a batch empties every few minutes or once a night",
        "workers that rest at night or at weekends",
        "orders, tickets and approvals that wait for people",
        "workers that poll every half a minute",
        "jobs scheduled for the future: they are not ready",
        "workers that are all busy with long jobs",
        "a queue that is paused by a column of its framework's tables",
        "a job that is left over, while those after it are taken",
        "jobs left behind in the tables of a framework that is out of use",
        "a standby: its counters do not move",
    ),
)
