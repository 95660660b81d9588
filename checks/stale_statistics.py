"""The planner's picture of the queue is far from the queue.

A queue goes from empty to a million jobs within an hour, and the planner plans for what the last ANALYZE saw.
A ready state so rare that the sample never meets it is invisible even to fresh statistics, and a partitioned
parent is never analysed by autovacuum at all. The claim then gets a plan for another queue: a sequential scan
where an index would do, or a join from the wrong side.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated

from pgqdoctor import claiming, remedy
from pgqdoctor.check import COUNTERS, Check
from pgqdoctor.finding import Evidence, Finding, Remedy, Severity
from pgqdoctor.observation import Observation
from pgqdoctor.predicates import flat
from pgqdoctor.queue import Queue, ReadPlan
from pgqdoctor.rows import ColumnRow
from pgqdoctor.sqlrewrite import quote_ident
from pgqdoctor.statements import SeenStatement
from pgqdoctor.words import count, duration, shortened

SAMPLED_PER_TARGET = 300
"""Rows that ANALYZE samples for each unit of the statistics target (std_typanalyze in analyze.c)."""
TEXT_TYPES = frozenset({"text", "varchar", "character varying"})
"""Types between which a cast changes no value: the planner sees the column through it (RelabelType in nodeFuncs.c)."""
HIGHEST_TARGET = 10_000
DEFAULT_TARGET = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """When wrong row counts matter."""

    factor: Annotated[
        float, "times by which expected and counted ready jobs differ: below it a plan rarely changes"
    ] = 100.0
    rows: Annotated[int, "ready jobs on the larger side: among fewer any plan is quick"] = 100
    modified: Annotated[
        float, "ratio of rows changed since the last ANALYZE from which the statistics count as stale"
    ] = 0.2
    parent_rows: Annotated[
        float,
        "rows in the partitions of a parent that was never analysed: below it the default guesses do no harm",
    ] = 10_000.0
    joins_core: Annotated[
        float,
        "ratio of one core spent in statements that join a parent without statistics: below it even a far better plan saves little",
    ] = 0.05
    buffers: Annotated[float, "buffers per claimed row from which a plan made for another queue hurts"] = (
        200.0
    )


def evaluate(seen: Observation, queue: Queue, limits: Limits) -> Iterator[Finding]:
    """Report a parent without statistics, a state the sample does not meet, or counts of another time."""
    parent = _unanalysed_parent(queue, seen.seconds, limits)
    if parent is not None:
        yield parent
        return
    plan = queue.plan
    if (
        plan is None
        or queue.probe is None
        or queue.probe.ready_rows is None
        or plan.facts.estimated_rows is None
        or _guessed(queue)
    ):
        return
    expected, ready = plan.facts.estimated_rows, queue.probe.ready_rows
    larger, smaller = max(expected, ready), max(min(expected, ready), 1)
    # At the probe's limit there are more jobs than counted, so that only an expectation below it is proven
    # wrong.
    if (
        larger < limits.rows
        or larger < limits.factor * smaller
        or (not queue.probe.ready_exact and expected > ready)
    ):
        return
    blind = _blind_column(queue, limits)
    modified = sum(row.modified_since_analyze for row in queue.counters)
    stale = modified >= limits.modified * max(queue.rows, 1)
    if blind is None and not (stale and (_chose_badly(queue, plan) or _hurts(plan, limits))):
        # A queue fills and empties between two ANALYZEs; with the right plan that harms nobody.
        return
    yield _wrong(queue, plan, expected, blind, modified, limits)


def _unanalysed_parent(queue: Queue, seconds: float, limits: Limits) -> Finding | None:
    if queue.table.kind != "p" or queue.table.rows >= 0:
        return None
    rows = sum(max(leaf.rows, 0.0) for leaf in queue.leaves)
    if rows < limits.parent_rows:
        return None
    analysed = sum(1 for leaf in queue.leaves if leaf.rows >= 0)
    joining = _joining(queue)
    core = sum(one.total_ms for one in joining) / 1000 / seconds if seconds > 0 else 0.0
    harmful = any(one.claim.joins for one in queue.claims) or core >= limits.joins_core
    severity: Severity = "warning" if harmful or _hurts(queue.plan, limits) else "notice"
    return Finding(
        check=CHECK.id,
        severity=severity,
        queue=queue.name,
        title=f"{queue.name} was never analysed as a whole: the planner guesses over {count(rows)} rows in {len(queue.leaves)} partitions",
        why=(
            "Autovacuum analyses partitions and never their parent. A statement that names the parent uses the parent's statistics, and without "
            "them the planner takes default selectivities."
        ),
        evidence=(
            Evidence(
                what="reltuples of the parent",
                value=queue.table.rows,
                unit="",
                source="pg_class: -1 means never analysed",
            ),
            Evidence(what="partitions with statistics", value=analysed, unit="tables", source="pg_class"),
            Evidence(what="rows in partitions", value=round(rows), unit="rows", source="pg_class.reltuples"),
            *_joins(joining, core),
        ),
        remedies=(
            _analyze(
                queue,
                "the planner knows the parent's distributions; to be repeated on a schedule, as autovacuum will not do it",
            ),
        ),
        subject="parent",
        relations=(queue.oid,),
    )


def _joining(queue: Queue) -> tuple[SeenStatement, ...]:
    """Return the statements that read the queue together with another table, the costliest first."""
    found = [
        one for one in queue.statements if one.calls and len({read.table for read in one.statement.reads}) > 1
    ]
    return tuple(sorted(found, key=lambda one: -one.total_ms))


def _joins(joining: tuple[SeenStatement, ...], core: float) -> Iterator[Evidence]:
    if not joining:
        return
    yield Evidence(
        what="time in statements that join it",
        value=round(core, 3),
        unit="ratio",
        source="pg_stat_statements, of one core",
    )
    yield Evidence(what="statement", value=shortened(joining[0].text, 300), unit="", source=joining[0].source)


def _wrong(
    queue: Queue, plan: ReadPlan, expected: int, blind: ColumnRow | None, modified: int, limits: Limits
) -> Finding:
    assert queue.probe is not None and queue.probe.ready_rows is not None
    ready = queue.probe.ready_rows
    counted = f"{'' if queue.probe.ready_exact else 'more than '}{count(ready)}"
    severity: Severity = "warning" if _chose_badly(queue, plan) and _hurts(plan, limits) else "notice"
    ages = [
        age
        for row in queue.counters
        for age in (row.last_analyze_s, row.last_autoanalyze_s)
        if age is not None
    ]
    evidence = [
        Evidence(what="ready jobs expected", value=expected, unit="rows", source="EXPLAIN"),
        Evidence(what="ready jobs counted", value=ready, unit="rows", source="bounded look"),
        Evidence(
            what="rows changed since ANALYZE", value=modified, unit="rows", source="pg_stat_user_tables"
        ),
        *claiming.plan_evidence(plan),
    ]
    if ages:
        evidence.append(
            Evidence(
                what="last ANALYZE",
                value=round(min(ages), 1),
                unit="seconds",
                source="pg_stat_user_tables, ago",
            )
        )
    if blind is not None:
        state = quote_ident(blind.name)
        return Finding(
            check=CHECK.id,
            severity=severity,
            queue=queue.name,
            title=(
                f"The planner expects {count(expected)} ready jobs in {queue.name} and there are {counted}: "
                f"its sample does not meet the rare state in {state}"
            ),
            why=(
                "The statistics are fresh, but ANALYZE looks at a sample, and a state that few rows have is not among its common values. "
                "Analysing again takes as small a sample and finds as little."
            ),
            evidence=(
                *evidence,
                Evidence(
                    what="common values", value=", ".join(blind.common_values), unit="", source="pg_stats"
                ),
            ),
            remedies=(_raise_target(queue, blind),),
            subject="sample",
            relations=(queue.oid,),
        )
    return Finding(
        check=CHECK.id,
        severity=severity,
        queue=queue.name,
        title=f"The planner expects {count(expected)} ready jobs in {queue.name} and there are {counted}: {count(modified)} rows changed since ANALYZE"
        + (f" {duration(min(ages))} ago" if ages else ""),
        why="The claim is planned for the queue as it was when it was last analysed, which was emptier or fuller by orders of magnitude.",
        evidence=tuple(evidence),
        remedies=(_analyze(queue, "the planner expects what is there now"),),
        relations=(queue.oid,),
    )


def _guessed(queue: Queue) -> bool:
    """Tell whether the claim tests an expression: the planner guesses how many rows pass it (0.5% of them, or a third), whatever
    the statistics of its columns say."""
    claim = claiming.busiest(queue.claims)
    if claim is None:
        return False
    for one in flat(claim.claim.conditions):
        row = queue.column(one.column) if one.column is not None else None
        if one.operator == "expression":
            return True
        if one.cast is not None and (row is None or not {row.type_name, one.cast.lower()} <= TEXT_TYPES):
            return True
    return False


def _hurts(plan: ReadPlan | None, limits: Limits) -> bool:
    if plan is None:
        return False
    return plan.probe.timed_out or (plan.facts.buffers_per_row or 0.0) >= limits.buffers


def _chose_badly(queue: Queue, plan: ReadPlan) -> bool:
    """Tell whether the plan leaves an index aside that would serve the claim: else better counts would not
    change it."""
    claim = claiming.busiest(queue.claims)
    advice = (
        claiming.index_for(queue, claim.claim.conditions, claim.claim.order) if claim is not None else None
    )
    index = claiming.served_already(queue, advice) if advice is not None else None
    return index is not None and index.name not in plan.facts.indexes


def _blind_column(queue: Queue, limits: Limits) -> ColumnRow | None:
    """Return the state column if its statistics are fresh and know none of the ready states."""
    state = queue.identity.roles.state
    row = queue.column(state) if state is not None else None
    if row is None or not row.common_values or not queue.identity.ready_values:
        return None
    modified = sum(one.modified_since_analyze for one in queue.counters)
    if modified >= limits.modified * max(queue.rows, 1):
        return None
    known = {claiming.same_state(value) for value in row.common_values}
    return row if not known & set(queue.identity.ready_values) else None


def _raise_target(queue: Queue, row: ColumnRow) -> Remedy:
    """A sample in which the ready state stands about ten times, or the whole table."""
    ready = max(queue.probe.ready_rows or 1, 1) if queue.probe is not None else 1
    wanted = queue.rows * 10 / ready / SAMPLED_PER_TARGET
    target = min(HIGHEST_TARGET, max(2 * DEFAULT_TARGET, round(wanted / 100 + 0.5) * 100))
    current = (
        row.statistics_target if row.statistics_target is not None and row.statistics_target >= 0 else -1
    )
    column = quote_ident(row.name)
    return remedy.statement(
        sql=(
            remedy.LOCK_TIMEOUT,
            f"ALTER TABLE {queue.name} ALTER COLUMN {column} SET STATISTICS {target};",
            f"ANALYZE {queue.name};",
        ),
        undo=(
            remedy.LOCK_TIMEOUT,
            f"ALTER TABLE {queue.name} ALTER COLUMN {column} SET STATISTICS {current};",
            f"ANALYZE {queue.name};",
        ),
        title=f"Let ANALYZE sample more rows for {column}",
        expect=(
            f"{SAMPLED_PER_TARGET} rows are sampled per unit: {count(min(target * SAMPLED_PER_TARGET, queue.rows))} of {count(queue.rows)}, "
            "so that the ready state is met about ten times"
        ),
        risk="ANALYZE of the table takes longer by as much as the sample grows",
        lock="SHARE UPDATE EXCLUSIVE",
    )


def _analyze(queue: Queue, expect: str) -> Remedy:
    return remedy.statement(
        sql=(remedy.LOCK_TIMEOUT, f"ANALYZE {queue.name};"),
        title="Analyse the table",
        expect=expect,
        risk="reads a sample of the table",
        lock="SHARE UPDATE EXCLUSIVE",
    )


CHECK = Check(
    title="The planner's statistics are far from the queue",
    needs=(COUNTERS,),
    limits=Limits(),
    evaluate=evaluate,
    references=(
        "https://www.postgresql.org/docs/current/planner-stats.html",
        "https://www.postgresql.org/docs/current/routine-vacuuming.html#VACUUM-FOR-STATISTICS",
    ),
    look_alikes=(
        "a backlog that came and went since ANALYZE while the claim's plan is right all the same",
        "a partitioned parent that was analysed by hand",
        "a small table",
        "a claim that tests an expression or a column cast to another type, of whose rows the planner expects a fixed share",
    ),
)
