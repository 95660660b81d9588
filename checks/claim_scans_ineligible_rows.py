"""The claim walks over ready jobs that it may not take.

Jobs that are due later, that belong to another queue, or whose kind has reached its limit stand in the ready
state too. If the claim's index does not tell them apart, each claim reads and refuses all of them before it
meets one it may take. Deleting finished jobs does not help here: what is in the way is alive.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated

from pgqdoctor import claimcost, claiming, remedy
from pgqdoctor.check import PLAN, Check
from pgqdoctor.claiming import Refused, RefusedLimits
from pgqdoctor.finding import Evidence, Finding, Remedy
from pgqdoctor.observation import Observation
from pgqdoctor.predicates import flat, predicate_conditions
from pgqdoctor.queue import Queue, ReadPlan, SeenClaim
from pgqdoctor.sqlrewrite import quote_ident
from pgqdoctor.words import count, shortened


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits(RefusedLimits):
    """When the rows in the way are felt, and when a claim reads so much more than its plan that it must have been another."""

    times_planned: Annotated[
        float, "times the plan's buffers: finding and writing one job touches some ten more than finding it"
    ] = 10.0
    buffers: Annotated[
        float, "buffers per job taken, from which it is more than descents and the writing of a row"
    ] = 100.0
    buffers_per_s: Annotated[
        float, "buffers read per second by all claims: a million fill about one core, so this is 1% of it"
    ] = 10_000.0


def evaluate(seen: Observation, queue: Queue, limits: Limits) -> Iterator[Finding]:
    """Report the scan where the rows it refuses are in the ready state."""
    if claiming.timed_out(queue) is not None:
        return
    walked = claiming.refused(queue)
    if walked is None or walked.ineligible < limits.rows or walked.ineligible <= walked.consumed:
        yield from _of_other_values(queue, limits)
        return
    yield Finding(
        check=CHECK.id,
        severity=claiming.severity_of(queue, walked.ineligible, limits),
        queue=queue.name,
        title=f"Each claim of {queue.name} reads and refuses {count(walked.ineligible)} jobs that are ready but not for it: {_reason(queue, walked)}",
        why=(
            "The rows are in the ready state and fail another of the claim's conditions, which is tested row by row because the index does not "
            "lead past them."
        ),
        evidence=(
            *claiming.plan_evidence(walked.plan),
            Evidence(
                what="tested row by row", value=walked.plan.facts.filter or "", unit="", source="EXPLAIN"
            ),
            *claiming.rate_evidence(queue),
        ),
        remedies=tuple(_remedies(queue, walked)),
        relations=(queue.oid,),
    )


def _of_other_values(queue: Queue, limits: Limits) -> Iterator[Finding]:
    """Tell of a claim that reads many times what its plan does, where its plan was made for the most common queue or kind.

    A normalised text does not show for which queue, tenant or kind the workers ask. The most common one is at the head of the index
    at once; who asks for another walks over it.
    """
    plan, claim = queue.plan, claiming.busiest(queue.claims)
    if plan is None or not plan.facts.measured or claim is None or not claim.seen.calls:
        return
    buffers = claim.seen.blocks / claim.seen.turns
    planned = plan.facts.buffers_per_row or 0.0
    each = " a job" if claim.seen.rows > claim.seen.calls or claiming.takes_many(plan) else ""
    narrowing = _narrowing(queue, claim, plan)
    probe = queue.probe
    if (
        narrowing is None
        # Each buffer was read for one ready job at least: with fewer of them something else was, dead rows that are gone by now.
        or (probe is not None and probe.ready_exact and (probe.ready_rows or 0) < buffers)
        or planned * limits.times_planned > buffers
        or buffers < limits.buffers
        or queue.triggers
        or claiming.busiest(queue.claims) != claiming.claim_of_plan(queue, plan)
    ):
        return
    column, value = narrowing
    advice = claiming.index_asked_for(queue)
    served = advice is None or claiming.served_already(queue, advice) is not None
    yield Finding(
        check=CHECK.id,
        severity="warning"
        if buffers * claiming.claims_per_second(queue) >= limits.buffers_per_s
        else "notice",
        queue=queue.name,
        title=(
            f"Each claim of {queue.name} reads {count(buffers)} buffers{each}, and with {quote_ident(column)} = {shortened(value, 60)} it would "
            f"read {count(planned)}: it walks over ready jobs of another {quote_ident(column)}"
        ),
        why=(
            "The ready jobs stand in one order for all values of the column, and the index does not tell them apart. A claim for the most common value "
            "finds one at once; every other claim reads and refuses those in front of its own."
        ),
        evidence=(
            Evidence(
                what="buffers per job" if each else "buffers per claim",
                value=round(buffers, 1),
                unit="buffers",
                source="pg_stat_statements, in the window",
            ),
            *claiming.plan_evidence(plan),
            *claiming.rate_evidence(queue),
        ),
        remedies=()
        if advice is None or served
        else (
            claiming.create_index(
                queue,
                advice,
                title="Give the claim an index that begins with what it asks for",
                expect=f"{claimcost.served(queue, advice)} instead of {count(buffers)}",
            ),
        ),
        relations=(queue.oid,),
    )


def _narrowing(queue: Queue, claim: SeenClaim, plan: ReadPlan) -> tuple[str, str] | None:
    """Return the column by which the claim asks for some of the ready jobs, tested row by row, and the value it was planned for."""
    tested = claiming.filter_columns(queue, plan.facts)
    for one in claim.claim.conditions:
        value = plan.probe.parameters.get(one.values[0]) if one.values else None
        if (
            one.operator == "="
            and one.column in tested
            and one.column not in (queue.identity.roles.state, queue.identity.roles.run_at)
            and value is not None
            and (row := queue.column(one.column)) is not None
            and row.distinct != 1
        ):
            return one.column, value
    return None


def _reason(queue: Queue, walked: Refused) -> str:
    """Say what shuts the rows out, as far as the filter's columns tell."""
    columns = claiming.filter_columns(queue, walked.plan.facts)
    run_at = queue.identity.roles.run_at
    # The predicate of the index stands in the filter too, where rows are locked, and refuses none.
    index = queue.index(walked.plan.facts.index) if walked.plan.facts.index is not None else None
    held = {one.column for one in flat(predicate_conditions(index))} if index is not None else set()
    others = [quote_ident(name) for name in columns if name != run_at and name not in held]
    said = []
    if run_at in columns:
        said.append("due later")
    if others:
        said.append(f"refused by {', '.join(others)}")
    if walked.plan.facts.subplans:
        said.append("refused by a subquery")
    return " or ".join(said) or "refused by another condition"


def _remedies(queue: Queue, walked: Refused) -> Iterator[Remedy]:
    advice = claiming.index_asked_for(queue)
    if advice is None:
        return
    run_at = queue.identity.roles.run_at
    if walked.plan.facts.subplans:
        yield remedy.change_application(
            title="Keep jobs that the subquery shuts out in a state of their own, and make them ready when it would let them pass",
            risk="a change of the application: what ends the reason, such as a job of the same group that is finished, makes the next one ready",
            expect="the claim's index holds only jobs that may be taken, and a claim meets one at once",
        )
    late = run_at is not None and run_at in claiming.filter_columns(queue, walked.plan.facts)
    leads = late and advice.names[0] == run_at
    if late and not leads:
        # In another order than by time, jobs of the future stand before due ones in any index.
        yield remedy.change_application(
            title=f"Keep jobs that are due later in a state of their own, and make them ready when {quote_ident(run_at or '')} has come",
            risk="a change of the application: a small task promotes due jobs every second",
            expect="the claim's index holds due jobs only, whatever its order",
        )
    elif claiming.served_already(queue, advice) is None and not claiming.as_walked(queue, advice):
        yield claiming.create_index(
            queue,
            advice,
            title="Give the claim an index that begins with what it asks for",
            expect=f"{claimcost.served(queue, advice)} instead of {count(walked.plan.facts.buffers_per_row or 0)}",
        )


CHECK = Check(
    title="The claim walks over jobs it may not take",
    needs=(PLAN,),
    limits=Limits(),
    evaluate=evaluate,
    references=("https://www.postgresql.org/docs/current/indexes-multicolumn.html",),
    look_alikes=(
        "a million jobs scheduled for later behind an index on the time they are due",
        "a skip scan, from version 18 on, that jumps over the other queues",
        "rows in another state: they are consumed, not ineligible",
    ),
)
