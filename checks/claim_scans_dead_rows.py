"""The claim walks over index entries of rows that are gone.

A job that was claimed or finished leaves an entry at the head of the ready index, exactly where the next
claim begins. Until vacuum removes them, each claim steps over all of them to find its job: the plan looks
perfect, one row from the right index, and yet it reads thousands of buffers. What keeps the dead rows is the
cause: a held xmin horizon, or vacuum that comes too seldom.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated

from pgqdoctor import claiming, horizon, remedy, vacuuming
from pgqdoctor.check import PLAN, Check
from pgqdoctor.finding import Evidence, Finding, Remedy, Severity
from pgqdoctor.observation import Observation
from pgqdoctor.planfacts import DeadWalk, dead_walk
from pgqdoctor.queue import Queue, ReadPlan
from pgqdoctor.sqlrewrite import quote_ident
from pgqdoctor.words import count


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """When dead index entries are what a claim costs."""

    buffers: Annotated[
        int,
        "buffers of the claim that led to no visible row: 5,000 dead entries were measured to cost 115 of them in heap order and 5,014 "
        "scattered, so this is some 2,000 of the one or 40 of the other; up to three may be look-ups of system catalogs",
    ] = 40
    entries: Annotated[
        int, "dead entries, where the plan counts them: fewer fit on a handful of index pages"
    ] = 1_000
    share: Annotated[
        float,
        "ratio of the scan's buffers that they make up: below half, something else is what the claim costs",
    ] = 0.5
    critical_buffers: Annotated[
        float, "buffers that led to no visible row: hundreds of times what a claim needs"
    ] = 1_000.0
    passing_ms: Annotated[
        float,
        "milliseconds that dead entries add to one claim, from which even a state that autovacuum is about to end is a warning: "
        "a worker that claims one job at a time does at most 200 a second then",
    ] = 5.0
    passing_core: Annotated[
        float,
        "ratio of one core that dead entries cost all claims together, from which the same holds: work for one core is missing",
    ] = 1.0
    felt_ms: Annotated[
        float,
        "milliseconds that dead entries add to one claim, below which no claim feels them: as much as 1,000 live rows that a claim "
        "refuses, from which they are worth telling",
    ] = 0.1
    felt_core: Annotated[
        float,
        "ratio of one core that they cost all claims together, below which the server does not feel them: what 10,000 buffers a second fill",
    ] = 0.01
    rounds: Annotated[
        float,
        "rounds of autovacuum_naptime for which a table may stand beyond its trigger: it may wait one for its turn, and be cleaned in the next",
    ] = 2.0
    claims: Annotated[int, "claims in the window, from which their average says more than one EXPLAIN"] = 10
    held_s: Annotated[
        float,
        "seconds a transaction must be open to make a vacuum useless: younger ones end before it matters",
    ] = 3.0


def evaluate(seen: Observation, queue: Queue, limits: Limits) -> Iterator[Finding]:
    """Report what the claim's index scan read beyond the rows it could see."""
    plan = queue.plan
    if plan is None:
        return
    stopped = claiming.timed_out(queue)
    if stopped is not None and claiming.state_by_index(queue, stopped.facts):
        yield _unfinished(seen, queue, stopped, limits)
        return
    walk = dead_walk(plan.facts)
    if walk is None or not _hurts(walk, limits):
        return
    severity = _severity(seen, queue, plan, walk, limits)
    passing = severity == "notice" and _passing(seen, queue, limits)
    entries = ("" if walk.counted else "at least ") + f"{count(walk.dead_entries)} dead index entries"
    evidence = [
        *claiming.plan_evidence(plan),
        Evidence(
            what="needed for the rows it saw",
            value=walk.expected_buffers,
            unit=claiming.per_claim(plan),
            source="computed from the plan",
        ),
        Evidence(
            what="dead entries" if walk.counted else "dead entries, at least",
            value=walk.dead_entries,
            unit="rows",
            source="EXPLAIN (ANALYZE, BUFFERS)",
        ),
        Evidence(what="dead rows", value=queue.churn.dead_last, unit="rows", source="pg_stat_user_tables"),
        Evidence(
            what="autovacuum's trigger",
            value=queue.vacuum_trigger,
            unit="rows",
            source="pg_class, pg_settings",
        ),
        *_mean_evidence(queue, limits),
        *_time_evidence(queue, plan, walk),
        *claiming.rate_evidence(queue),
    ]
    yield Finding(
        check=CHECK.id,
        severity=severity,
        queue=queue.name,
        title=f"Each claim of {queue.name} walks over {entries} before it finds its job: {count(walk.buffers)} buffers instead of {walk.expected_buffers}",
        why=(
            "The claim begins at the head of its index, where the entries of jobs taken before it lie. They lead to rows that are gone, but only "
            "vacuum may remove them, and until it does every claim reads them again."
            + (
                " Autovacuum is on, nothing holds it up and its turn is due: this is the state between two rounds of it."
                if passing
                else " They cost next to nothing now, and more with every entry that is added while vacuum removes none."
                if severity == "notice"
                else ""
            )
        ),
        evidence=tuple(evidence),
        remedies=() if passing else tuple(_remedies(seen, queue, walk.expected_buffers, limits)),
        relations=(queue.oid,),
    )


def _hurts(walk: DeadWalk, limits: Limits) -> bool:
    if walk.counted and walk.dead_entries >= limits.entries:
        return True
    return (
        walk.unexplained_buffers >= limits.buffers and walk.unexplained_buffers >= limits.share * walk.buffers
    )


def _severity(seen: Observation, queue: Queue, plan: ReadPlan, walk: DeadWalk, limits: Limits) -> Severity:
    """A state that the next round of autovacuum ends is a notice, unless the claims cannot wait for it; so is one that costs next to
    nothing."""
    added, core = claiming.dead_ms(plan, walk), claiming.dead_core(queue, plan, walk)
    hurts = added >= limits.passing_ms or core >= limits.passing_core
    if not hurts and _passing(seen, queue, limits):
        return "notice"
    # EXPLAIN sees one moment, and the entries in a claim's way come and go: what the claims of the window read counts as well.
    mean = claiming.mean_buffers(queue, limits.claims)
    for_nothing = max(walk.unexplained_buffers, (mean or 0.0) - walk.expected_buffers)
    if for_nothing >= limits.critical_buffers:
        return "critical"
    # By what the claims of the window read, where that is more than the one EXPLAIN did; without a measured time the buffers decide.
    more = for_nothing / max(walk.unexplained_buffers, 1)
    small = 0 < added * more < limits.felt_ms and core * more < limits.felt_core
    return "notice" if small else "warning"


def _passing(seen: Observation, queue: Queue, limits: Limits) -> bool:
    """Tell whether autovacuum is on, nothing holds the horizon, and no table of the queue has waited for longer than its turn."""
    if not queue.autovacuum_enabled or not vacuuming.server_allows(queue.catalog):
        return False
    leaves = vacuuming.leaves_of(seen, queue)
    if not leaves or vacuuming.held_horizon(seen) is not None:
        return False
    for leaf in leaves:
        naptime = vacuuming.parameter(leaf.table, queue.catalog, "autovacuum_naptime")
        overdue = vacuuming.overdue_s(queue, leaf)
        if not leaf.enabled or (overdue is not None and overdue >= limits.rounds * naptime):
            return False
    return True


def _mean_evidence(queue: Queue, limits: Limits) -> Iterator[Evidence]:
    mean = claiming.mean_buffers(queue, limits.claims)
    if mean is not None:
        many = any(one.rows > one.calls for one in claiming.statements_of(queue.claims))
        yield Evidence(
            what="claims of the window read on average",
            value=round(mean),
            unit="buffers per job" if many else "buffers",
            source="pg_stat_statements",
        )


def _time_evidence(queue: Queue, plan: ReadPlan, walk: DeadWalk) -> Iterator[Evidence]:
    added = claiming.dead_ms(plan, walk)
    if added <= 0:
        return
    yield Evidence(
        what="time they add to a claim",
        value=round(added, 3),
        unit="milliseconds",
        source="EXPLAIN (ANALYZE, BUFFERS)",
    )
    core = claiming.dead_core(queue, plan, walk)
    if core > 0:
        yield Evidence(
            what="time they cost all claims",
            value=round(core, 4),
            unit="ratio",
            source="EXPLAIN times calls of pg_stat_statements, at most its own time of them; of one core",
        )


def _unfinished(seen: Observation, queue: Queue, plan: ReadPlan, limits: Limits) -> Finding:
    return Finding(
        check=CHECK.id,
        severity="critical",
        queue=queue.name,
        title=f"The claim of {queue.name} did not find its job within 1 s, although its index {quote_ident(plan.facts.index or '')} leads to the ready jobs",
        why=(
            "The plan is the right one and its expected cost is small, so the time went into what the planner does not count: entries of rows "
            "that are gone, which every claim steps over until vacuum removes them."
        ),
        evidence=(
            Evidence(what="expected cost", value=round(plan.facts.cost or 0.0), unit="", source="EXPLAIN"),
            Evidence(
                what="dead rows", value=queue.churn.dead_last, unit="rows", source="pg_stat_user_tables"
            ),
            *claiming.plan_evidence(plan),
            *claiming.rate_evidence(queue),
        ),
        remedies=tuple(_remedies(seen, queue, claiming.SERVED_BUFFERS, limits)),
        relations=(queue.oid,),
    )


def _remedies(seen: Observation, queue: Queue, expected: int, limits: Limits) -> Iterator[Remedy]:
    """A vacuum helps unless something still holds the horizon: then ending that is the remedy, and another
    finding's."""
    for holder in horizon.of(seen).holders:
        if holder.seconds is None or holder.seconds >= limits.held_s:
            return
    yield remedy.statement(
        sql=(remedy.LOCK_TIMEOUT, f"VACUUM (VERBOSE, INDEX_CLEANUP ON, TRUNCATE OFF) {queue.name};"),
        title="Vacuum the table now: nothing holds the xmin horizon",
        expect=f"the dead entries are gone and a claim reads about {expected} buffers; autovacuum has to come often enough for it to stay so",
        risk="reads the table and its indexes once; cannot run in a transaction block",
        lock="SHARE UPDATE EXCLUSIVE",
    )


CHECK = Check(
    title="The claim walks over dead index entries",
    needs=(PLAN,),
    limits=Limits(),
    evaluate=evaluate,
    references=(
        "https://www.postgresql.org/docs/current/routine-vacuuming.html#VACUUM-FOR-SPACE-RECOVERY",
        "https://www.postgresql.org/docs/current/btree.html#BTREE-DELETION",
    ),
    look_alikes=(
        "rows that the claim skips because other workers hold them",
        "rows that a filter removes: they are alive",
        "a few buffers more than expected, spent in system catalogs",
        "a batch claim, which reads a page for each job it takes",
        "a table whose dead rows autovacuum is about to remove, while a claim still takes a fraction of a millisecond",
        "a few hundred dead entries beside a nightly dump, which add hundredths of a millisecond to a claim (a notice)",
    ),
)
