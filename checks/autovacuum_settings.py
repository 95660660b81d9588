"""Autovacuum's settings do not fit a queue.

By default autovacuum waits until a fifth of a table is dead. Finished jobs that stay in the table count as rows, so a queue
of ten live jobs beside a million finished ones gets its vacuum after 200,000 dead rows. Switched off on the table,
perhaps during an incident, it never comes. And paced by old cost limits it comes, but does not end before the next one is due.

The threshold suggested is computed: dead rows per second that only vacuum can remove, times the seconds that shall lie
between two vacuums. Autovacuum looks at a database once per autovacuum_naptime, so no shorter period can be had.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Annotated

from pgqdoctor import claiming, remedy, vacuuming
from pgqdoctor.check import COUNTERS, Check
from pgqdoctor.finding import Evidence, Finding, Remedy, Severity
from pgqdoctor.observation import Observation
from pgqdoctor.planfacts import dead_walk
from pgqdoctor.queue import Queue
from pgqdoctor.rows import TableRow
from pgqdoctor.vacuuming import LeafUpkeep
from pgqdoctor.words import count, duration, rate

DELAY = "autovacuum_vacuum_cost_delay"
LIMIT = "autovacuum_vacuum_cost_limit"
MOST_COST_LIMIT = 10_000
"""The largest value that vacuum_cost_limit accepts."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """When a setting does not fit the churn."""

    dead_per_s: Annotated[
        float, "dead rows per second that only vacuum can remove: from one on, thousands an hour"
    ] = 1.0
    trigger_rows: Annotated[
        int,
        "dead rows that the settings allow before a vacuum: four times the 5,000 scattered ones that were measured to make a "
        "claim read 5,017 buffers instead of 3",
    ] = vacuuming.FAR_TRIGGER
    dead_rows: Annotated[
        int,
        "dead rows there must be now, per job of a claim, for a warning: as many as were measured to cost 5,017 buffers a claim",
    ] = 5_000
    felt_buffers: Annotated[
        int, "buffers spent on dead index entries per claimed job: ten times a clean index's three"
    ] = 30
    off_rows: Annotated[
        int, "dead rows from which a table without autovacuum is a warning: some ten pages of them"
    ] = 2_000
    least_threshold: Annotated[
        int,
        "dead rows: the smallest threshold suggested, as each vacuum reads every index whatever it removes",
    ] = vacuuming.LEAST_THRESHOLD
    most_threshold: Annotated[
        int, "dead rows: the largest threshold suggested, half of what is found too many"
    ] = vacuuming.MOST_THRESHOLD
    pass_s: Annotated[
        float,
        "seconds one pass may take under the cost limits before they are mentioned: ten rounds of a minute",
    ] = 600.0


def evaluate(seen: Observation, queue: Queue, limits: Limits) -> Iterator[Finding]:
    """Look at the switch, then at the trigger, then at the pace."""
    leaves = vacuuming.leaves_of(seen, queue)
    making = sum(one.making for one in leaves)
    dead = sum(one.dead for one in leaves)
    if not leaves:
        return
    off = tuple(one for one in leaves if not one.enabled)
    held = vacuuming.held_horizon(seen) is not None
    if not vacuuming.server_allows(queue.catalog):
        if making >= limits.dead_per_s or dead >= limits.off_rows:
            yield _for_later(_server_off(queue, dead, making, limits), held)
        return
    if off and (making >= limits.dead_per_s or dead >= limits.off_rows):
        yield _for_later(_table_off(queue, off, making, limits), held)
    on = tuple(one for one in leaves if one.enabled and one.making >= limits.dead_per_s)
    if not on or held:
        return
    far = tuple(one for one in on if one.trigger >= limits.trigger_rows and _can_come_oftener(queue, one))
    if far:
        yield _trigger(queue, far, limits)
    yield from _pace(queue, max(on, key=lambda one: one.table.pages), limits)


def _for_later(finding: Finding, held: bool) -> Finding:
    """While the horizon is held, no setting removes a row: the holder is the finding, and this one comes after it."""
    if not held:
        return finding
    why = f"{finding.why} Now the xmin horizon is held: until it moves, no vacuum removes these rows, and this can wait."
    return replace(finding, severity="notice", why=why)


def _can_come_oftener(queue: Queue, leaf: LeafUpkeep) -> bool:
    """Tell whether a lower trigger brings more vacuums: one that is passed within two rounds of autovacuum does not, or hardly."""
    naptime = vacuuming.parameter(leaf.table, queue.catalog, "autovacuum_naptime")
    return leaf.trigger > 2 * naptime * leaf.making


def _buffers(queue: Queue) -> int:
    """Return the buffers that a claim spends on dead entries, per job."""
    walk = dead_walk(queue.plan.facts) if queue.plan is not None else None
    return round(walk.unexplained_buffers / _jobs_per_claim(queue)) if walk is not None else 0


def _jobs_per_claim(queue: Queue) -> float:
    """Return how many jobs a claim takes on average: as many share what it reads in vain; 1.0 where each takes one or none."""
    seen = claiming.statements_of(queue.claims)
    calls = sum(one.calls for one in seen)
    return sum(one.turns for one in seen) / calls if calls else 1.0


def _target(table: TableRow) -> str:
    return remedy.qualified(table.schema, table.name)


def _churn(queue: Queue, dead: int, making: float) -> tuple[Evidence, ...]:
    source = "pg_stat_user_tables"
    return (
        Evidence(what="lasting dead rows made", value=round(making, 1), unit="per second", source=source),
        Evidence(what="dead rows", value=dead, unit="rows", source=source),
        Evidence(what="rows", value=queue.rows, unit="rows", source="pg_class.reltuples"),
    )


def _threshold_remedies(
    queue: Queue, leaves: tuple[LeafUpkeep, ...], limits: Limits, *, also: dict[str, str] | None = None
) -> Iterator[Remedy]:
    """Set a fixed threshold, one remedy per set of present options so that each undo is exact."""
    naptime = vacuuming.parameter(leaves[0].table, queue.catalog, "autovacuum_naptime")
    making = max(one.making for one in leaves)
    threshold, period = vacuuming.threshold_for(
        making, naptime, least=limits.least_threshold, most=limits.most_threshold
    )
    wanted = {
        **(also or {}),
        "autovacuum_vacuum_scale_factor": "0",
        "autovacuum_vacuum_threshold": str(threshold),
    }
    for same in _alike(leaves):
        names = [_target(table) for table in same]
        what = names[0] if len(names) == 1 else f"{len(names)} partitions"
        yield remedy.set_storage(
            names[0],
            wanted,
            vacuuming.options_of(same[0]),
            partitions=names,
            title=f"Vacuum {what} every {count(threshold)} dead rows, however many rows there are",
            expect=(
                f"{rate(making)} dead rows, {count(threshold)} of them per vacuum: one about every {duration(period)}. "
                f"Autovacuum looks once per autovacuum_naptime ({duration(naptime)}), so no shorter period can be had."
            ),
            risk="each vacuum reads all indexes of the table, which a far lower threshold would make it do too often",
        )


def _alike(leaves: tuple[LeafUpkeep, ...]) -> list[list[TableRow]]:
    """Tables with the same storage options, which one undo brings back."""
    groups: dict[tuple[str, ...], list[TableRow]] = {}
    for one in leaves:
        groups.setdefault(one.table.options, []).append(one.table)
    return list(groups.values())


def _trigger(queue: Queue, far: tuple[LeafUpkeep, ...], limits: Limits) -> Finding:
    largest = max(far, key=lambda one: one.trigger)
    dead = sum(one.dead for one in far)
    buffers = _buffers(queue)
    felt = dead / _jobs_per_claim(queue) >= limits.dead_rows or buffers >= limits.felt_buffers
    severity: Severity = "warning" if felt else "notice"
    scale = vacuuming.parameter(largest.table, queue.catalog, "autovacuum_vacuum_scale_factor")
    base = vacuuming.parameter(largest.table, queue.catalog, "autovacuum_vacuum_threshold")
    evidence = [
        *_churn(queue, dead, largest.making),
        Evidence(
            what="autovacuum's trigger", value=largest.trigger, unit="rows", source="pg_class, pg_settings"
        ),
        Evidence(
            what="autovacuum_vacuum_scale_factor", value=scale, unit="ratio", source="pg_class, pg_settings"
        ),
    ]
    if buffers:
        evidence.append(
            Evidence(
                what="claim's buffers for dead entries",
                value=buffers,
                unit="buffers",
                source="EXPLAIN (ANALYZE, BUFFERS)",
            )
        )
    return Finding(
        check=CHECK.id,
        severity=severity,
        queue=queue.name,
        title=(
            f"Autovacuum comes to {_target(largest.table)} after {count(largest.trigger)} dead rows, every "
            f"{duration(largest.trigger / largest.making)} at {rate(largest.making)}: {count(dead)} wait for it now"
        ),
        why=(
            f"The trigger is {count(base)} + {scale:g} * {count(max(largest.table.rows, 0))} rows. Rows that only lie there, such as "
            "finished jobs, put it off, while the few live jobs of the queue drown in the dead ones. A fixed threshold "
            "follows the churn instead of the size."
        ),
        evidence=tuple(evidence),
        remedies=tuple(_threshold_remedies(queue, far, limits)),
        relations=tuple(sorted(queue.oids)),
    )


def _table_off(queue: Queue, off: tuple[LeafUpkeep, ...], making: float, limits: Limits) -> Finding:
    dead = sum(one.dead for one in off)
    buffers = _buffers(queue)
    worse = dead >= limits.off_rows or buffers >= limits.felt_buffers
    name = _target(off[0].table) if len(off) == 1 else f"{len(off)} partitions of {queue.name}"
    far = tuple(one for one in off if one.trigger >= limits.trigger_rows and one.making >= limits.dead_per_s)
    remedies = (
        list(_threshold_remedies(queue, far, limits, also={"autovacuum_enabled": "true"})) if far else []
    )
    for same in _alike(tuple(one for one in off if one not in far)):
        names = [_target(table) for table in same]
        remedies.append(
            remedy.set_storage(
                names[0],
                {"autovacuum_enabled": "true"},
                vacuuming.options_of(same[0]),
                partitions=names,
                title=f"Let autovacuum come to {names[0] if len(names) == 1 else f'{len(names)} partitions'} again",
                expect=(
                    "within a round of autovacuum_naptime it removes what no transaction can see "
                    f"of the {count(dead)} dead rows"
                ),
                risk="the first vacuum has everything to do that was left since it was switched off",
            )
        )
    return Finding(
        check=CHECK.id,
        severity="warning" if worse else "notice",
        queue=queue.name,
        subject="off",
        title=f"Autovacuum is switched off on {name}: {count(dead)} dead rows, {rate(making)} more",
        why=(
            "autovacuum_enabled is false for the table, so nobody removes its dead rows until a wraparound vacuum is "
            "forced. Each of them keeps its index entries, and the table grows by every job it has done."
        ),
        evidence=_churn(queue, dead, making),
        remedies=tuple(remedies),
        relations=tuple(sorted(queue.oids)),
    )


def _server_off(queue: Queue, dead: int, making: float, limits: Limits) -> Finding:
    switch = "autovacuum" if queue.catalog.setting("autovacuum") == "off" else "track_counts"
    return Finding(
        check=CHECK.id,
        severity="warning" if dead >= limits.off_rows else "notice",
        queue=queue.name,
        subject="server",
        title=f"{switch} is off for the whole server: {count(dead)} dead rows in {queue.name}, {rate(making)} more",
        why="Without it no table is vacuumed before a wraparound vacuum is forced; a queue feels that first.",
        evidence=(
            *_churn(queue, dead, making),
            Evidence(what=switch, value="off", unit="", source="pg_settings"),
        ),
        remedies=(
            remedy.change_setting(
                name=switch,
                value="on",
                settings=queue.catalog.settings,
                title=f"Turn {switch} on",
                expect="the launcher starts and visits each database once per autovacuum_naptime",
                risk="applies to all databases; all that was left undone is done now",
            ),
        ),
        relations=tuple(sorted(queue.oids)),
    )


def pass_seconds(queue: Queue, table: TableRow) -> float:
    """Return how long the cost limits make one whole pass take, at worst, in seconds.

    Every page of the table and of its indexes read from disk and dirtied, as accounted in vacuum.c: after each
    cost_limit points it sleeps cost_delay milliseconds. A negative limit or delay stands for vacuum's own.
    """
    catalog = queue.catalog
    limit = vacuuming.parameter(table, catalog, LIMIT) if _known(table, queue, LIMIT) else -1.0
    if limit <= 0:
        limit = vacuuming.parameter(table, catalog, "vacuum_cost_limit")
    delay = vacuuming.parameter(table, catalog, DELAY)
    if delay < 0:
        delay = float(catalog.setting("vacuum_cost_delay") or 0)
    pages = table.pages + sum(row.pages for row in catalog.indexes_of(table.oid))
    return pages * _page_cost(queue, table) / limit * delay / 1000


def _known(table: TableRow, queue: Queue, name: str) -> bool:
    return name in vacuuming.options_of(table) or queue.catalog.setting(name) is not None


def _page_cost(queue: Queue, table: TableRow) -> float:
    names = ("vacuum_cost_page_miss", "vacuum_cost_page_dirty")
    return sum(vacuuming.parameter(table, queue.catalog, name) for name in names)


def _pace(queue: Queue, leaf: LeafUpkeep, limits: Limits) -> Iterator[Finding]:
    """A pass that its own brake makes longer than the time until the next one is due."""
    took = pass_seconds(queue, leaf.table)
    period = leaf.trigger / leaf.making
    if took < limits.pass_s or took < 2 * period:
        return
    catalog = queue.catalog
    delay = vacuuming.parameter(leaf.table, catalog, DELAY)
    delay = delay if delay > 0 else float(catalog.setting("vacuum_cost_delay") or 0)
    pages = leaf.table.pages + sum(row.pages for row in catalog.indexes_of(leaf.table.oid))
    # Half the period is left for the vacuum itself.
    needed = pages * _page_cost(queue, leaf.table) * delay / 1000 / max(period / 2, limits.pass_s / 2)
    wanted = min(MOST_COST_LIMIT, max(1, round(needed)))
    target = _target(leaf.table)
    behind = leaf.beyond >= 2.0
    options = {LIMIT: str(wanted)}
    if needed > MOST_COST_LIMIT:
        options = {DELAY: "0"}
    yield Finding(
        check=CHECK.id,
        severity="warning" if behind else "notice",
        queue=queue.name,
        subject="pace",
        title=(
            f"The cost limits let one vacuum of {target} take up to {duration(took)}, while a new one is due "
            f"every {duration(period)}"
        ),
        why=(
            "Vacuum sleeps after each batch of work. Where a pass takes longer than the dead rows need to reach the "
            "trigger again, the table is never clean, however often autovacuum comes."
        ),
        evidence=(
            *_churn(queue, leaf.dead, leaf.making),
            Evidence(
                what="pages of table and indexes", value=pages, unit="buffers", source="pg_class.relpages"
            ),
            Evidence(
                what="longest pass", value=round(took, 1), unit="seconds", source="vacuum_cost_* settings"
            ),
            Evidence(
                what="time to the next trigger",
                value=round(period, 1),
                unit="seconds",
                source="trigger over rate",
            ),
        ),
        remedies=(
            remedy.set_storage(
                target,
                options,
                vacuuming.options_of(leaf.table),
                title=f"Let vacuum of {target} work faster than the queue makes work",
                expect=(
                    f"{count(pages)} pages at {_page_cost(queue, leaf.table):g} points each within half of {duration(period)} "
                    f"need {', '.join(f'{name} = {value}' for name, value in options.items())}"
                ),
                risk="vacuum of this table reads and writes faster, and takes no part in balancing the cost among workers",
            ),
        ),
        relations=tuple(sorted(queue.oids)),
    )


CHECK = Check(
    title="Autovacuum's settings do not fit the churn",
    needs=(COUNTERS,),
    limits=Limits(),
    evaluate=evaluate,
    references=(
        "https://www.postgresql.org/docs/current/runtime-config-autovacuum.html",
        "https://www.postgresql.org/docs/current/sql-createtable.html#SQL-CREATETABLE-STORAGE-PARAMETERS",
    ),
    look_alikes=(
        "a small queue with PostgreSQL's defaults",
        "a large table in which nothing dies",
        "an import that is worked off in large batches: what a claim reads in vain is shared by its jobs",
        "a trigger that is passed within two rounds of autovacuum: no setting makes it come much oftener",
        "a queue whose dead rows stay because the horizon is held",
        "autovacuum switched off on a table without churn",
    ),
)
