"""The claims' plans read aloud: what each node did, and what that means for the queue. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final

from pgqdoctor import claimcost, claiming
from pgqdoctor.observation import Observation, PlanProbe
from pgqdoctor.plan import walk
from pgqdoctor.planfacts import ClaimPlanFacts, PlanLine, dead_walk, tree_lines
from pgqdoctor.predicates import flat
from pgqdoctor.queue import GENERIC, Queue, ReadPlan, SeenClaim, build_queues
from pgqdoctor.report import ServerFacts, Tool, notes_of, server_facts
from pgqdoctor.sqlfacts import ClaimShape
from pgqdoctor.sqlrewrite import quote_ident
from pgqdoctor.words import count, percent, plural, shortened

SCHEMA: Final = "pgqdoctor.explain/1"

SHAPES: Final[dict[ClaimShape, str]] = {
    "skip-locked": "locks the row it finds and skips those that other workers hold (SKIP LOCKED)",
    "guarded": "takes the row by an UPDATE that tests its state once more, so that one worker wins",
    "unguarded": "takes the row by its key without testing its state again: two workers can win it",
    "blocking": "locks the row it finds and waits where another worker holds it",
    "nowait": "locks the row it finds and fails where another worker holds it (NOWAIT)",
    "delete-skip-locked": "deletes the row it finds and skips those that other workers hold (SKIP LOCKED)",
    "advisory": "takes an advisory lock in the place of the row's own",
    "function": "is made inside a function",
    "unknown": "is of a shape that could not be told",
}

MODES: Final = {
    "plan": "planned and not executed: costs and estimates only",
    "select": "its SELECT executed, without the row lock",
    "lock": "its SELECT executed with the row lock, then rolled back",
    "full": "the whole statement executed, then rolled back",
    GENERIC: "planned for any value of its parameters, and not executed",
}

MISJUDGED: Final = 10.0
"""Factor between expected and actual rows from which the estimate is worth a word: the planner's choices rarely hinge on less."""
PLANNING_COST: Final = 2.5
"""Cost units by which the server's choice favours a generic plan, for each relation and once more: 1000 * cpu_operator_cost
(plancache.c, cached_plan_cost)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ExplainedPlan:
    """One plan of one claim. ``says`` is what it means, most important first; ``error`` why there is no plan, or no execution."""

    mode: str
    how: str
    statement: str
    shape: str
    meaning: str
    explained: str
    parameters: dict[str, str]
    error: str | None
    tree: tuple[PlanLine, ...]
    says: tuple[str, ...]
    facts: ClaimPlanFacts | None
    index: str | None = None
    """The statement that builds the index which would serve the claim, None where nothing is missing or none could be told."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ExplainedQueue:
    """The plans of one queue's claims; ``unseen`` says why there are none."""

    name: str
    rows: int
    plans: tuple[ExplainedPlan, ...]
    unseen: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Explanation:
    """What ``pgqdoctor explain`` prints."""

    schema: str = SCHEMA
    tool: Tool
    generated_at: str
    server: ServerFacts
    queues: tuple[ExplainedQueue, ...]
    notes: tuple[str, ...] = field(default=())


def explain(seen: Observation) -> Explanation:
    """Return the plans of an observation, read."""
    return Explanation(
        tool=Tool(name="pgqdoctor", version=seen.tool_version),
        generated_at=seen.generated_at,
        server=server_facts(seen),
        queues=tuple(_queue(one) for one in build_queues(seen)),
        notes=notes_of(seen),
    )


def _queue(queue: Queue) -> ExplainedQueue:
    probes = queue.probe.plans if queue.probe is not None else ()
    lacks = queue.probe.lacks if queue.probe is not None else ()
    by_probe = {id(one.probe): one for one in queue.plans}
    unseen = next((lack.reason for lack in lacks if lack.what == "plan"), None)
    return ExplainedQueue(
        name=queue.name,
        rows=queue.rows,
        plans=tuple(_plan(queue, one, by_probe.get(id(one))) for one in probes),
        unseen=None if probes else unseen or "no plan was asked for",
    )


def _plan(queue: Queue, probe: PlanProbe, read: ReadPlan | None) -> ExplainedPlan:
    claim = _claim(queue, probe)
    shape: ClaimShape = claim.claim.shape if claim is not None else "unknown"
    index, expect = (
        _missing_index(queue, claim, read) if read is not None and probe.mode != GENERIC else None
    ) or (None, "")
    if read is None:
        says: tuple[str, ...] = ()
    elif probe.mode == GENERIC:
        says = tuple(_generic(queue, read))
    else:
        says = tuple(_meaning(read.facts, expect))
    return ExplainedPlan(
        mode=probe.mode,
        how=MODES.get(probe.mode, probe.mode),
        statement=probe.statement or (claim.seen.statement.text if claim is not None else probe.sql),
        shape=shape,
        meaning=SHAPES[shape],
        explained=probe.sql,
        parameters=dict(probe.parameters),
        error=probe.error,
        tree=tree_lines(read.plan) if read is not None else (),
        says=says,
        facts=read.facts if read is not None else None,
        index=index,
    )


def _claim(queue: Queue, probe: PlanProbe) -> SeenClaim | None:
    found = next((one for one in queue.claims if one.seen.statement.text == probe.statement), None)
    return found or next(iter(queue.claims), None)


def _missing_index(queue: Queue, claim: SeenClaim | None, read: ReadPlan | None) -> tuple[str, str] | None:
    """Return the CREATE INDEX for a claim that reads in vain or sorts, and what to expect of it; None where an index serves it."""
    if claim is None or read is None:
        return None
    facts = read.facts
    in_vain = bool(facts.rows_removed_by_filter) or facts.sort is not None or not facts.indexes
    if not in_vain or (facts.buffers is not None and facts.buffers <= claiming.SERVED_BUFFERS):
        return None
    if not _asks_ready(queue, claim):
        return None
    advice = claiming.index_for(queue, claim.claim.conditions, claim.claim.order)
    if advice is None or claiming.served_already(queue, advice) is not None:
        return None
    if claim.claim.order and not advice.ordered:
        # The order is an expression: every ready job would be sorted all the same.
        return None
    built = claiming.create_index(queue, advice, title="", expect=claimcost.served(queue, advice))
    return next(((one, built.expect) for one in built.sql if one.startswith("CREATE INDEX")), None)


def _asks_ready(queue: Queue, claim: SeenClaim) -> bool:
    """Tell whether an index of the ready jobs is one for this claim: it is the queue's own, or its text says which state it asks for."""
    state = queue.identity.roles.state
    if state is None or claim.seen.statement.text == queue.identity.claim_sql:
        return True
    tests = [one for one in flat(claim.claim.conditions) if one.column == state]
    return not any(value.startswith("$") for one in tests for value in one.values)


# What it means


def _meaning(facts: ClaimPlanFacts, expect: str) -> Iterator[str]:
    yield from _cost(facts)
    yield from _in_vain(facts)
    yield from _order(facts)
    yield from _repeated(facts)
    yield from _dead(facts)
    yield from _estimate(facts)
    if expect:
        yield f"No index serves this claim. With the one below {expect}, however many finished jobs are kept."


def _cost(facts: ClaimPlanFacts) -> Iterator[str]:
    if facts.buffers is None:
        if facts.cost is not None:
            yield f"Not executed: the planner expects a cost of {count(facts.cost)} for finding the job."
        return
    found = round(facts.rows or 0)
    if not found:
        yield f"No job was found, and looking for one read {plural(facts.buffers, 'buffer')} of 8 kB."
    elif found == 1:
        yield f"Finding one job reads {plural(facts.buffers, 'buffer')} of 8 kB."
    else:
        each = facts.buffers_per_row or 0.0
        yield f"Finding {found:,} jobs reads {plural(facts.buffers, 'buffer')} of 8 kB, {count(each)} for each."


def _in_vain(facts: ClaimPlanFacts) -> Iterator[str]:
    removed = facts.rows_removed_by_filter or 0
    if removed:
        yield f"{plural(removed, 'row')} {'was' if removed == 1 else 'were'} read and refused, by {shortened(facts.filter or 'a condition', 200)}."
    elif facts.filter is not None and facts.measured and facts.indexes:
        yield (
            "The condition shown at the scan removed nothing: under a row lock PostgreSQL repeats an index's predicate there, because a row "
            "is checked again once it is locked."
            if facts.rows_skipped_locked is not None
            else "The condition shown at the scan removed nothing."
        )
    if facts.rows_removed_by_index_recheck:
        yield f"{plural(facts.rows_removed_by_index_recheck, 'row')} had to be read again because a bitmap did not fit into work_mem."
    if facts.rows_skipped_locked:
        skipped = round(facts.rows_skipped_locked)
        yield f"{plural(skipped, 'row')} {'was' if skipped == 1 else 'were'} found and skipped: other workers hold them, or changed them meanwhile."


def _order(facts: ClaimPlanFacts) -> Iterator[str]:
    sort = facts.sort
    if sort is not None:
        keys = ", ".join(sort.keys)
        rows = sort.rows if sort.rows is not None else sort.expected_rows
        many = plural(round(rows), "row") if rows is not None else "the backlog"
        verb = "are" if sort.rows is not None else "would be"
        where = " on disk" if sort.spilled else ""
        kept = f"; the index gives the order of {', '.join(sort.presorted)} only" if sort.presorted else ""
        yield f"{many} {verb} sorted{where} by {keys} to find the first{kept}: no index used here gives the claim's order."
    elif facts.indexes and facts.order_from_index:
        yield f"Index {quote_ident(facts.index or '')} leads to the job in the claim's order; nothing is sorted."
    elif not facts.indexes:
        yield f"No index is used: {facts.scan_type}."


def _repeated(facts: ClaimPlanFacts) -> Iterator[str]:
    if facts.limit_loops is not None and facts.limit_loops > 1:
        yield f"The LIMIT was executed {facts.limit_loops:,} times, and each time it counts anew: one claim can take more than it says."
    for one in facts.subplans:
        if one.dear and one.share is not None:
            yield f"{percent(one.share)} of the buffers are read by {one.name}, a subquery beside the search for the job."


def _dead(facts: ClaimPlanFacts) -> Iterator[str]:
    walk_ = dead_walk(facts)
    if walk_ is None or walk_.dead_entries <= claiming.SERVED_BUFFERS:
        return
    yield (
        f"At least {plural(walk_.dead_entries, 'index entry').replace('entrys', 'entries')} led to no visible row: {count(walk_.buffers)} buffers "
        f"in the place of about {count(walk_.expected_buffers)}. They are those of dead rows, until VACUUM can remove them."
    )


def _estimate(facts: ClaimPlanFacts) -> Iterator[str]:
    factor = facts.estimate_factor
    if factor is None or factor < MISJUDGED or facts.estimated_rows is None or facts.actual_rows is None:
        return
    yield (
        f"The planner expected {plural(facts.estimated_rows, 'row')} from the scan and got {count(facts.actual_rows)}: its statistics do not "
        "know the queue's present state."
    )


def _generic(queue: Queue, generic: ReadPlan) -> Iterator[str]:
    custom = next(
        (one for one in queue.plans if one.probe.mode != GENERIC and _same_claim(one.probe, generic.probe)),
        None,
    )
    if custom is None:
        return
    theirs, ours = generic.facts, custom.facts
    if (theirs.scan_type, theirs.indexes) == (ours.scan_type, ours.indexes):
        yield "The plan for any value of the parameters is the one with the values filled in."
    else:
        yield (
            f"With any value of the parameters the server would use {_way(theirs)}, where with the values filled in it uses {_way(ours)}."
        )
        yield from _chosen(generic, custom)
    if not generic.probe.bound:
        yield (
            "The text is pg_stat_statements': what stands as $1, $2 ... may be a constant in the application's own text, and then this plan "
            "is never made."
        )


def _same_claim(one: PlanProbe, other: PlanProbe) -> bool:
    from pgqdoctor.sqlread import text_fingerprint

    return text_fingerprint(one.statement) == text_fingerprint(other.statement)


def _way(facts: ClaimPlanFacts) -> str:
    return (
        f"{facts.scan_type} on index {quote_ident(facts.index)}"
        if facts.index
        else f"{facts.scan_type} without an index"
    )


def _chosen(generic: ReadPlan, custom: ReadPlan) -> Iterator[str]:
    """Say which of the two plans a prepared statement gets, by the server's own rule (plancache.c, choose_custom_plan)."""
    theirs, ours = generic.facts.cost, custom.facts.cost
    if theirs is None or ours is None:
        return
    relations = sum(1 for node in walk(custom.plan.root) if node.relation is not None)
    dearer = theirs >= ours + PLANNING_COST * (relations + 1)
    costs = f"its cost is {count(theirs)}, the other's {count(ours)}"
    if dearer:
        yield (
            f"Prepared statements are spared it, since {costs}: the server goes on planning for the values. With plan_cache_mode = "
            "force_generic_plan they would get it."
        )
    else:
        yield f"A prepared statement gets it from its sixth execution on, since it looks no dearer: {costs}."
