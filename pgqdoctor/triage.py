"""The shortest useful look: do jobs move, how late is the oldest, because of what, what to run first, what to leave alone.

Made of an observation and its report; nothing is judged here that no check has judged. The steps are the remedies of the root
cause, then those of what would remain without it. Pure.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Final, Literal

from pgqdoctor import avoid, finishing, whatif
from pgqdoctor.avoid import Avoid
from pgqdoctor.engine import diagnose
from pgqdoctor.finding import Blocks, Remedy, RemedyKind, Severity
from pgqdoctor.forecast import Forecast, forecasts
from pgqdoctor.observation import Observation
from pgqdoctor.pulse import QueuePulse, pulse_of
from pgqdoctor.queue import Queue, build_queues
from pgqdoctor.report import Report, ReportedFinding, ServerFacts, Tool, Verdict, Window
from pgqdoctor.rows import SessionRow
from pgqdoctor.story import Story, stories
from pgqdoctor.words import count, duration, plural, rate, shortened

SCHEMA: Final = "pgqdoctor.triage/1"
MOST_STEPS: Final = 6
"""More than that nobody does before looking again."""

When = Literal["first", "then", "also"]
"""The first command; what comes after it, once it has worked; what else the root's finding offers, such as how to keep it from coming back."""
State = Literal["moving", "stopped", "idle", "unknown"]
"""Of the jobs: claimed or finished during the window; ready, and none claimed; none ready; cannot be told."""

_ORDER: Final[Mapping[RemedyKind, int]] = {"sql": 0, "setting": 1, "application": 2, "upgrade": 3}
"""At three in the morning a statement can be run, a setting changed; an application is not deployed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueState:
    """One queue now. Rates are per second over the window, None where nothing tells them; ``says`` puts it in words."""

    name: str
    state: State
    claimed_per_s: float | None
    finished_per_s: float | None
    enqueued_per_s: float
    ready: int | None
    ready_exact: bool
    oldest_age_s: float | None
    waiting: int
    """Sessions at the queue's statements that waited for a lock when last seen."""
    says: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Root:
    """The root cause: the first finding of the worst story."""

    key: str
    check: str
    severity: Severity
    queue: str | None
    title: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One thing to do, in order.

    ``rolls_back`` says what the command undoes of others' work, "" where it ends nobody's. ``helped`` says what to see
    afterwards, with today's number; ``helped_sql`` shows it.
    """

    number: int
    when: When
    key: str
    check: str
    title: str
    kind: RemedyKind
    sql: tuple[str, ...]
    pids: tuple[int, ...]
    lock: str
    blocks: Blocks
    restart: bool
    needs: str
    """The right that the command takes and the observing role lacks, "" where it may run it."""
    rolls_back: str
    risk: str
    expect: str
    helped: str
    helped_sql: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Triage:
    """What ``pgqdoctor triage`` says, in the order it says it."""

    schema: str = SCHEMA
    tool: Tool
    generated_at: str
    server: ServerFacts
    window: Window
    verdict: Verdict
    queues: tuple[QueueState, ...]
    story: str
    root: Root | None
    others: tuple[str, ...]
    """Titles of further roots at warning or above, the worst first."""
    steps: tuple[Step, ...]
    remaining: tuple[str, ...]
    """Keys of what will still be wrong after the first step; empty too where that step ends nothing."""
    avoid: tuple[Avoid, ...]
    forecasts: tuple[Forecast, ...]
    not_seen: tuple[str, ...]
    """What could not be looked at, and why."""
    crashed: tuple[str, ...]
    """Checks that failed and say nothing, with their errors."""
    notes: tuple[str, ...]

    @property
    def left_waiting(self) -> QueueState | None:
        """The first queue in which a job has waited for longer than the window, and none was taken."""
        return next(
            (
                one
                for one in self.queues
                if one.state == "stopped"
                and one.ready
                and (one.oldest_age_s is None or one.oldest_age_s >= self.window.seconds)
            ),
            None,
        )


def triage(
    seen: Observation,
    *,
    only: Collection[str] = (),
    ignore: Collection[str] = (),
    limits: Mapping[str, Mapping[str, object]] | None = None,
) -> tuple[Report, Triage]:
    """Diagnose the observation and shorten the report to what decides now; both are returned.

    Raises PgqdoctorError as diagnose() does.
    """
    report, later = with_what_comes_after(seen, only=only, ignore=ignore, limits=limits)
    return report, build_triage(seen, report, later)


def with_what_comes_after(
    seen: Observation,
    *,
    only: Collection[str] = (),
    ignore: Collection[str] = (),
    limits: Mapping[str, Mapping[str, object]] | None = None,
) -> tuple[Report, Report | None]:
    """Return the report, and the one of what would remain without the root's culprit, None where nothing can be taken away.

    Raises PgqdoctorError as diagnose() does.
    """
    report = diagnose(seen, only=only, ignore=ignore, limits=limits)
    remaining = without_culprits(seen, report)
    later = diagnose(remaining, only=only, ignore=ignore, limits=limits) if remaining is not None else None
    return report, later


def without_culprits(seen: Observation, report: Report) -> Observation | None:
    """Return the observation without what the root's first command ends, None where it ends nothing."""
    first = _first(stories(report))
    culprits = whatif.ended_by(first[1].sql) if first is not None else whatif.Culprits()
    return whatif.without(seen, culprits) if culprits else None


def build_triage(seen: Observation, report: Report, later: Report | None) -> Triage:
    """Make the triage of a report; ``later`` is the report of what would remain without the root's culprit."""
    queues = {one.name: one for one in build_queues(seen)}
    told = stories(report)
    worst = told[0] if told else None
    states = tuple(_state(one, pulse_of(one), seen) for one in queues.values())
    about = _queue_of(worst, states)
    steps = tuple(_steps(seen, report, later, told))
    left_alone, steps = without_contradictions(avoid.advice(seen, report, tuple(queues.values())), steps)
    return Triage(
        tool=report.tool,
        generated_at=report.generated_at,
        server=report.server,
        window=report.window,
        verdict=report.verdict,
        queues=tuple(sorted(states, key=lambda one: (one.name != about, one.state == "idle"))),
        story=worst.sentence if worst is not None else "",
        root=None
        if worst is None
        else Root(
            key=worst.root.key,
            check=worst.root.check,
            severity=worst.root.severity,
            queue=worst.root.queue,
            title=worst.root.title,
        ),
        others=tuple(one.root.title for one in told[1:] if not _same_first(one, told[0])),
        steps=steps,
        remaining=tuple(one.key for one in remaining(report, later)) if later is not None else (),
        avoid=left_alone,
        forecasts=tuple(
            each
            for name, one in queues.items()
            if worst is not None and about in (None, name)
            for each in forecasts(seen, one, finished_per_s=pulse_of(one).finished_per_s)
        ),
        not_seen=tuple(dict.fromkeys(one.reason for one in report.skipped)),
        crashed=tuple(f"{one.check}: {one.error}" for one in report.crashed),
        notes=report.notes,
    )


def _queue_of(story: Story | None, states: tuple[QueueState, ...]) -> str | None:
    """The queue that is told first: the story's own, else the one that waits longest."""
    if story is not None:
        for one in (story.root, *(each.finding for each in story.effects)):
            if one.queue is not None:
                return one.queue
    latest = max(states, key=lambda one: (one.state == "stopped", one.oldest_age_s or 0.0), default=None)
    return latest.name if latest is not None else None


# --- do jobs move -----------------------------------------------------------------------------------


def _state(queue: Queue, pulse: QueuePulse, seen: Observation) -> QueueState:
    waiting = _waiting(queue, seen)
    state = _moves(queue, pulse)
    return QueueState(
        name=queue.name,
        state=state,
        claimed_per_s=pulse.claimed_per_s,
        finished_per_s=pulse.finished_per_s,
        enqueued_per_s=pulse.enqueued_per_s,
        ready=pulse.ready,
        ready_exact=pulse.ready_exact,
        oldest_age_s=pulse.oldest_s,
        waiting=waiting,
        says=_says(queue, pulse, state, waiting),
    )


def _moves(queue: Queue, pulse: QueuePulse) -> State:
    """Tell whether jobs move.

    Statement counters are exact at once; the tables' counters arrive up to a second later, and those of a backend that stays busy
    in one transaction only at its end. So either of them moving is enough, and none of them is taken for a standstill where jobs
    are known to be ready. What is cleared away or grows in priority is none that moves.
    """
    if pulse.claimed_per_s or pulse.finished_per_s or finishing.rows_move(queue, sweeps=True):
        return "moving"
    if pulse.ready == 0:
        return "idle"
    if pulse.ready or any(one.session.wait_type == "Lock" for one in queue.sessions):
        return "stopped"
    return "unknown"


def _waiting(queue: Queue, seen: Observation) -> int:
    if not queue.sessions:
        return 0
    end = max(one.at for one in seen.samples)
    last = [one for one in queue.sessions if one.at == end]
    return sum(1 for one in last if one.session.wait_type == "Lock")


def _says(queue: Queue, pulse: QueuePulse, state: State, waiting: int) -> str:
    parts = [
        {
            "moving": _rates(pulse, queue),
            "stopped": "NO job was claimed or finished",
            "idle": "no job was claimed, as none is ready",
            "unknown": "no job was seen to be claimed or finished",
        }[state]
    ]
    if waiting:
        parts.append(f"{plural(waiting, 'session')} {'waits' if waiting == 1 else 'wait'} for a lock")
    return f"{', '.join(parts)}; {_lateness(queue, pulse)}"


def _rates(pulse: QueuePulse, queue: Queue) -> str:
    known = [
        f"{word} ({rate(value)})"
        for word, value in (("claimed", pulse.claimed_per_s), ("finished", pulse.finished_per_s))
        if value is not None
    ]
    if known:
        return f"jobs are {' and '.join(known)}"
    return f"jobs move ({rate(queue.churn.per_second(queue.churn.updated + queue.churn.deleted))} changed)"


def _lateness(queue: Queue, pulse: QueuePulse) -> str:
    if pulse.ready is None:
        lacks = queue.probe.lacks if queue.probe is not None else ()
        reason = next((f": {one.reason}" for one in lacks if one.what in ("rows", "ready")), "")
        return f"how late the oldest ready job is could not be looked at{reason}"
    if pulse.ready == 0:
        return "no job waits"
    ready = f"{count(pulse.ready)}{'' if pulse.ready_exact else '+'} ready"
    if pulse.oldest_s is None:
        return f"{ready}, and no column tells since when"
    late = duration(pulse.oldest_s)
    return f"{ready}, the oldest {late} late"


# --- what to do -------------------------------------------------------------------------------------


def _commands(finding: ReportedFinding) -> list[Remedy]:
    """The finding's remedies, what can be run at once first; the order within a kind is the check's."""
    return sorted(finding.remedies, key=lambda one: (one.restart, _ORDER[one.kind]))


def _first(told: tuple[Story, ...]) -> tuple[ReportedFinding, Remedy] | None:
    """The first command: the root's, else the first of its story that can be run at once, else the root's first remedy.

    A story without any, as its remedies have to wait for what another one's cure sets free, leaves the word to that one.
    """
    if not told:
        return None
    story = (told[0].root, *(one.finding for one in told[0].effects))
    offered = [(finding, remedy) for finding in story for remedy in _commands(finding)[:1]]
    at_once = (one for one in offered if one[1].kind in ("sql", "setting") and not one[1].restart)
    return next(at_once, next(iter(offered), None)) or _first(told[1:])


_STANDS_IN: Final = re.compile(r"if that\b", re.IGNORECASE)
"""How checks begin the title of a remedy for the case that the one before it fails."""


def _same_first(one: Story, other: Story) -> bool:
    """Tell whether one command begins both stories: one session can harm several queues."""
    first, second = _first((one,)), _first((other,))
    return first is not None and second is not None and bool(first[1].sql) and first[1].sql == second[1].sql


def remaining(report: Report, later: Report) -> tuple[ReportedFinding, ...]:
    """Return what will still be wrong, at warning or above, once the root's culprit is gone.

    That is what the checks say of the observation without it, but for what the root caused: a horizon that moves lets the next scan
    mark the dead entries and the next vacuum remove the rows, and a lock that is gone lets its waiters through.
    """
    told = stories(report)
    caused = {one.finding.key for one in told[0].effects} if told else set()
    harmful = (one for one in later.findings if one.severity != "notice")
    return tuple(
        one for one in harmful if one.key not in caused and one.key != (told[0].root.key if told else "")
    )


def _steps(
    seen: Observation, report: Report, later: Report | None, told: tuple[Story, ...]
) -> Iterator[Step]:
    """The first command; what remains after it, cause before effect; what else the root offers, and what speeds the effects' going."""
    first = _first(told)
    if first is None:
        return
    root = told[0].root
    wanted: list[tuple[When, ReportedFinding, Remedy]] = [("first", *first)]
    # What stands in for the first command where that fails has to stand beside it.
    wanted.extend(("also", root, one) for one in _commands(root) if _STANDS_IN.match(one.title))
    if later is not None:
        then = remaining(report, later)
    else:
        # Nothing can be taken out of the observation: the other stories are what comes next.
        then = tuple(
            one for story in told[1:] for one in (story.root, *(each.finding for each in story.effects))
        )
    wanted.extend(("then", one, remedy) for one in then for remedy in _commands(one)[:1])
    caused = {one.finding.key for one in told[0].effects}
    rest = later if later is not None else report
    # What the culprit's going lets vacuum do comes after it; without a culprit that is known to go, it speeds the going of effects.
    sooner: When = "then" if later is not None else "also"
    effects = [
        (sooner, one, remedy) for one in rest.findings if one.key in caused for remedy in _commands(one)[:1]
    ]
    wanted.extend(effects if later is not None else ())
    wanted.extend(("also", root, one) for one in _commands(root))
    if first[0].key != root.key:
        wanted.extend(("also", first[0], one) for one in _commands(first[0])[1:])
    wanted.extend(effects if later is None else ())
    known: set[tuple[str, ...]] = set()
    steps: list[tuple[When, ReportedFinding, Remedy]] = []
    for when, finding, remedy in wanted:
        same = (remedy.kind, *remedy.sql) if remedy.sql else (remedy.kind, remedy.title)
        if same not in known:
            known.add(same)
            steps.append((when, finding, remedy))
    for number, (when, finding, remedy) in enumerate(steps[:MOST_STEPS], 1):
        yield _step(seen, number, "first" if number == 1 else when, finding, remedy)


def without_contradictions(
    left_alone: tuple[Avoid, ...], steps: tuple[Step, ...]
) -> tuple[tuple[Avoid, ...], tuple[Step, ...]]:
    """Make advice and steps agree: what a later step does is to be left alone until the step before it is done.

    More workers are asked for by a check that sees one queue grow; where others say that these would only wait, they go first, and
    without any other step the advice to add none stands alone. A first step is what the measurements ask for, and nothing forbids it.
    """
    for one in left_alone:
        if one.what == avoid.ADD and any(avoid.forbids(one.what, step.sql, step.title) for step in steps):
            steps = tuple(step for step in steps if not avoid.forbids(one.what, step.sql, step.title))
            steps = tuple(
                replace(step, number=place, when="first" if place == 1 else step.when)
                for place, step in enumerate(steps, 1)
            )
    kept: list[Avoid] = []
    for one in left_alone:
        clash = next((step.number for step in steps if avoid.forbids(one.what, step.sql, step.title)), None)
        if clash == 1:
            continue
        before = steps if clash is None else steps[: clash - 1]
        ends = next((step.number for step in before if one.because and step.check == one.because), None)
        if ends is None and clash is not None:
            ends = 1
        kept.append(one if ends is None else replace(one, until=f"before step {ends} is done"))
    return tuple(kept), steps


def _step(seen: Observation, number: int, when: When, finding: ReportedFinding, remedy: Remedy) -> Step:
    culprits = whatif.ended_by(remedy.sql)
    gently = any("pg_cancel_backend" in one for one in remedy.sql)
    helped, helped_sql = _helped(finding, culprits.pids, gently=gently)
    lost = [_rolls_back(seen, pid, gently=gently) for pid in culprits.pids]
    lost.extend(
        f"all that prepared transaction {shortened(gid, 60)!r} has written" for gid in culprits.prepared
    )
    return Step(
        number=number,
        when=when,
        key=finding.key,
        check=finding.check,
        title=remedy.title,
        kind=remedy.kind,
        sql=remedy.sql,
        pids=culprits.pids,
        lock=remedy.lock,
        blocks=remedy.blocks,
        restart=remedy.restart,
        needs=next((need for pid in culprits.pids if (need := _needs(seen, pid))), ""),
        rolls_back="; ".join(lost),
        risk=remedy.risk,
        expect=remedy.expect,
        helped=helped,
        helped_sql=helped_sql,
    )


def _needs(seen: Observation, pid: int) -> str:
    """Say that the role may not signal a session: its own role's it may, others' with pg_signal_backend."""
    row = next((one for one in seen.last.sessions if one.pid == pid), None)
    if seen.server.member_of("pg_signal_backend") or (row is not None and row.role == seen.server.role):
        return ""
    return f"a superuser, or pg_signal_backend, which role {seen.server.role} does not have"


def _rolls_back(seen: Observation, pid: int, *, gently: bool) -> str:
    """What is lost with a transaction: nothing, where it has no transaction id, as then it has written nothing.

    A cancelled statement takes its transaction with it; its session stays.
    """
    row = next((one for one in seen.last.sessions if one.pid == pid), None)
    if row is None:
        return f"session {pid} was not seen any more at the end of the window"
    statement = f"its statement ({shortened(row.query, 60)}) and " if gently and row.query else ""
    if row.xid is None:
        return f"{statement}nothing it wrote: session {pid} has no transaction id"
    return f"{statement}what session {pid} has written since its transaction began{_ago(row)}{_written(seen, pid)}"


def _ago(row: SessionRow) -> str:
    return f" {duration(row.xact_age_s)} ago" if row.xact_age_s is not None else ""


def _written(seen: Observation, pid: int) -> str:
    """Tables on which it holds a writer's lock."""
    names = {row.oid: row.name for row in seen.catalog.tables}
    written = sorted(
        {
            names[row.relation]
            for row in seen.last.locks
            if row.pid == pid and row.granted and row.relation in names and row.mode == "RowExclusiveLock"
        }
    )
    return f", in {shortened(', '.join(written), 60)}" if written else ""


def _helped(finding: ReportedFinding, pids: tuple[int, ...], *, gently: bool) -> tuple[str, tuple[str, ...]]:
    """What to see afterwards: the session (or its statement) is gone, and the number that the finding was about falls."""
    sql = tuple(f"SELECT pid, state FROM pg_stat_activity WHERE pid = {pid};" for pid in pids)
    falls = next(
        (
            words.format(count(float(one.value)))
            for what, words in _FALLING
            for one in finding.evidence
            if one.what == what and not isinstance(one.value, str)
        ),
        f"no {finding.check} any more",
    )
    ended = "the session is gone" if not gently else "the session is idle"
    gone = f"{ended}, and " if pids else ""
    return f"{gone}pgqdoctor triage shows {falls}", sql


_FALLING: Final = (
    ("dead rows it keeps", "fewer than {} dead rows"),
    ("claim's buffers for dead entries", "fewer than {} buffers a claim"),
    ("claim reads", "fewer than {} buffers a claim"),
    ("dead rows", "fewer than {} dead rows"),
    ("workers waiting for a row", "fewer than {} workers waiting"),
    ("lost races", "fewer than {} lost races per second"),
)
"""Evidence that a cure makes smaller, the most telling first, and how to say that it has."""
