"""Dead rows outrun vacuum on the queue.

A queue is the table that dies fastest: each job leaves one to three dead row versions behind, and every one of them keeps
its entries in the indexes until vacuum has passed. Autovacuum comes when the dead rows pass the table's own trigger
point. Where they stand far beyond it for longer than autovacuum's rounds take, vacuum does not keep up, and claims walk
over what it has not yet removed.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated

from pgqdoctor import claiming, forecast, remedy, vacuuming
from pgqdoctor.check import COUNTERS, Check
from pgqdoctor.finding import Evidence, Finding, Remedy, Severity
from pgqdoctor.keeping import rows_kept
from pgqdoctor.observation import Observation
from pgqdoctor.planfacts import DeadWalk, dead_walk
from pgqdoctor.queue import Queue
from pgqdoctor.sqlrewrite import quote_ident
from pgqdoctor.vacuuming import HeldHorizon, LeafUpkeep
from pgqdoctor.words import count, duration, percent


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """When dead rows are more than the ordinary state before the next vacuum."""

    dead_rows: Annotated[
        int,
        "dead rows below which nothing is said: they fit on some ten pages and cost a claim a handful of buffers",
    ] = 2_000
    beyond: Annotated[
        float, "times the table's own trigger point: up to twice is what one round of autovacuum leaves"
    ] = 2.0
    rounds: Annotated[
        float, "rounds of autovacuum_naptime since the trigger was passed: a table may wait one for its turn"
    ] = 2.0
    felt_buffers: Annotated[
        int,
        "buffers a claim spends on dead index entries: ten times the three that a claim on a clean index reads",
    ] = 30
    critical_buffers: Annotated[
        int, "buffers a claim spends on dead index entries: some three hundred times what a clean index costs"
    ] = 1_000
    passing_ms: Annotated[
        float,
        "milliseconds that dead entries add to one claim, from which even a state that the next vacuum ends is no notice: a worker "
        "that claims one job at a time does at most 200 a second then",
    ] = 5.0
    passing_core: Annotated[
        float,
        "ratio of one core that dead entries cost all claims together, from which the same holds: work for one core is missing",
    ] = 1.0


def evaluate(seen: Observation, queue: Queue, limits: Limits) -> Iterator[Finding]:
    """Compare each table's dead rows with its own trigger, and say what the claim pays for them."""
    leaves = vacuuming.leaves_of(seen, queue)
    dead = sum(one.dead for one in leaves)
    if not leaves or dead < limits.dead_rows:
        return
    worst = leaves[0]
    making = sum(one.making for one in leaves)
    overdue = vacuuming.overdue_s(queue, worst)
    naptime = vacuuming.parameter(worst.table, queue.catalog, "autovacuum_naptime")
    late = worst.beyond >= limits.beyond and overdue is not None and overdue >= limits.rounds * naptime
    plan = queue.plan
    walk = dead_walk(plan.facts) if plan is not None else None
    felt = walk is not None and walk.unexplained_buffers >= limits.felt_buffers
    if not late and not (felt and worst.beyond >= 1.0):
        return
    held = _held(seen, queue)
    # Where the horizon is held, the finding of its holder says when it will hurt.
    coming = forecast.claim_cost(seen, queue) if held is None else None
    evidence = (
        *_evidence(queue, worst, dead, making, overdue if late else None, walk),
        *forecast.evidence(f"until a claim takes {forecast.SLOW_CLAIM_MS:.0f} ms", coming),
    )
    yield Finding(
        check=CHECK.id,
        severity=_severity(
            queue,
            walk,
            felt=felt,
            late=late,
            lasting=late or held is not None or not worst.enabled,
            limits=limits,
        ),
        queue=queue.name,
        title=_title(queue, worst, dead, walk if felt else None),
        why=_why(worst, held) + forecast.sentence(coming),
        evidence=evidence,
        remedies=tuple(_remedies(seen, queue, worst, held)),
        relations=tuple(sorted(queue.oids)),
    )


def _severity(
    queue: Queue, walk: DeadWalk | None, *, felt: bool, late: bool, lasting: bool, limits: Limits
) -> Severity:
    """Between two visits of autovacuum dead rows are normal life: then only what claims pay in time counts."""
    if walk is None:
        return "warning" if late else "notice"
    if not lasting and not _pays(queue, walk, limits):
        return "notice"
    if walk.unexplained_buffers >= limits.critical_buffers:
        return "critical"
    return "warning" if felt and lasting else "notice"


def _pays(queue: Queue, walk: DeadWalk, limits: Limits) -> bool:
    """Tell whether the buffers read in vain take a claim, or all claims together, a time that matters."""
    plan = queue.plan
    if plan is None:
        return False
    return (
        claiming.dead_ms(plan, walk) >= limits.passing_ms
        or claiming.dead_core(queue, plan, walk) >= limits.passing_core
    )


def _title(queue: Queue, leaf: LeafUpkeep, dead: int, walk: DeadWalk | None) -> str:
    name = queue.name if len(queue.leaves) == 1 else f"{queue.name} (worst: {quote_ident(leaf.table.name)})"
    said = f"{count(dead)} dead rows in {name}, {count(leaf.beyond)} times autovacuum's trigger of {count(leaf.trigger)}"
    return (
        said if walk is None else f"{said}: a claim reads {count(walk.unexplained_buffers)} buffers for them"
    )


def _held(seen: Observation, queue: Queue) -> HeldHorizon | None:
    """Return what holds the horizon, unless nine in ten dead rows are older than that: those may be removed."""
    held = vacuuming.held_horizon(seen)
    if held is None or held.holder is None:
        return held
    return held if rows_kept(queue, held.holder)[0] * 10 >= queue.churn.dead_last else None


def _why(leaf: LeafUpkeep, held: HeldHorizon | None) -> str:
    if held is not None:
        return (
            "Vacuum may not remove those that died since: the xmin horizon of this database is held "
            f"{count(held.age)} transactions back. More vacuuming cannot help until it moves."
        )
    said = (
        "Autovacuum visits a table once its dead rows pass threshold + scale factor * rows. Beyond that point each claim "
        "and each index scan steps over entries that lead to nothing, until vacuum has cleaned the indexes."
    )
    return said if leaf.enabled else f"{said} On {quote_ident(leaf.table.name)} autovacuum is switched off."


def _evidence(
    queue: Queue, leaf: LeafUpkeep, dead: int, making: float, overdue: float | None, walk: DeadWalk | None
) -> Iterator[Evidence]:
    source = "pg_stat_user_tables"
    rows = max(queue.rows, 0)
    yield Evidence(what="dead rows", value=dead, unit="rows", source=source)
    yield Evidence(
        what="autovacuum's trigger", value=leaf.trigger, unit="rows", source="pg_class, pg_settings"
    )
    yield Evidence(what="rows", value=rows, unit="rows", source="pg_class.reltuples")
    yield Evidence(what="lasting dead rows made", value=round(making, 1), unit="per second", source=source)
    if overdue is not None and overdue != float("inf"):
        yield Evidence(what="beyond the trigger for", value=round(overdue, 1), unit="seconds", source=source)
    if leaf.counters.last_autovacuum_s is not None:
        yield Evidence(
            what="since the last autovacuum",
            value=round(leaf.counters.last_autovacuum_s, 1),
            unit="seconds",
            source=source,
        )
    if queue.churn.hot_ratio is not None:
        yield Evidence(
            what="heap-only updates", value=round(queue.churn.hot_ratio, 3), unit="ratio", source=source
        )
    if walk is not None:
        explain = "EXPLAIN (ANALYZE, BUFFERS)"
        yield Evidence(
            what="claim's buffers for dead entries",
            value=walk.unexplained_buffers,
            unit="buffers",
            source=explain,
        )


def _remedies(
    seen: Observation, queue: Queue, leaf: LeafUpkeep, held: HeldHorizon | None
) -> Iterator[Remedy]:
    """One VACUUM now, where it can remove something and none is at work already."""
    if held is not None or any(row.relation in queue.oids for row in seen.last.vacuums):
        return
    target = remedy.qualified(leaf.table.schema, leaf.table.name)
    share = leaf.dead / max(sum(one.dead for one in vacuuming.leaves_of(seen, queue)), 1)
    most = "them" if len(queue.leaves) == 1 else f"{percent(share)} of them"
    period = (
        ""
        if leaf.counters.last_autovacuum_s is None
        else (f" The last one ended {duration(leaf.counters.last_autovacuum_s)} ago.")
    )
    yield remedy.statement(
        sql=(remedy.LOCK_TIMEOUT, f"VACUUM (TRUNCATE false) {target};"),
        title=f"Vacuum {target} once, by hand",
        expect=f"removes {most} and their index entries; claims read a few buffers again.{period}",
        risk="reads the table and its indexes once; it does not make autovacuum come in time the next time",
        lock="SHARE UPDATE EXCLUSIVE",
    )


CHECK = Check(
    title="Dead rows outrun vacuum",
    needs=(COUNTERS,),
    limits=Limits(),
    evaluate=evaluate,
    references=(
        "https://www.postgresql.org/docs/current/routine-vacuuming.html#AUTOVACUUM",
        "https://www.postgresql.org/docs/current/sql-vacuum.html",
    ),
    look_alikes=(
        "a tiny table just before its next autovacuum, where every row is dead and the trigger is not reached",
        "a busy table whose vacuum comes every minute",
        "dead rows beyond the trigger whose visit is due within two rounds of autovacuum, while claims still take a fraction of a "
        "millisecond",
        "old versions of heap-only updates, which pages get rid of by themselves",
    ),
)
