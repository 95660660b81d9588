"""The claim walks over jobs that are finished.

Without an index on what is ready, a claim reads finished jobs and throws them away until it meets one it may
take. The finished ones usually come first in the order of the primary key, so each claim pays for the whole
history, and pays more every day. A partial index on the ready state holds the few jobs that may be taken and
nothing else.
"""

from __future__ import annotations

from collections.abc import Iterator

from pgqdoctor import claimcost, claiming
from pgqdoctor.check import PLAN, Check
from pgqdoctor.claiming import Refused, RefusedLimits
from pgqdoctor.finding import Evidence, Finding, Remedy
from pgqdoctor.lint import serving as lint_serving
from pgqdoctor.observation import Observation
from pgqdoctor.queue import Queue, ReadPlan
from pgqdoctor.words import count


def evaluate(seen: Observation, queue: Queue, limits: RefusedLimits) -> Iterator[Finding]:
    """Report the scan, from what the plan measured or, where the claim did not come to an end, from its cost."""
    stopped = claiming.timed_out(queue)
    if stopped is not None:
        if _refuses_by_state(queue, stopped):
            yield _unfinished(queue, stopped)
        return
    walked = claiming.refused(queue)
    if walked is None or walked.consumed < limits.rows or walked.consumed < walked.ineligible:
        return
    severity = claiming.severity_of(queue, walked.consumed, limits)
    states = claiming.common_states(queue)
    held = f" ({states})" if states else ""
    yield Finding(
        check=CHECK.id,
        severity=severity,
        queue=queue.name,
        title=f"Each claim of {queue.name} reads and throws away {count(walked.consumed)} rows that are not ready{held}",
        why=(
            "No index leads to the ready jobs alone, so the claim reads rows in another state and filters them out before it meets one it may take. "
            "Its cost grows with every job that is finished and kept."
        ),
        evidence=(
            *claiming.plan_evidence(walked.plan),
            *claiming.rate_evidence(queue),
            *_per_second(queue, walked),
        ),
        remedies=tuple(_remedies(queue, walked)),
        relations=(queue.oid,),
    )


def _per_second(queue: Queue, walked: Refused) -> tuple[Evidence, ...]:
    per_second = walked.rows * claiming.claims_per_second(queue)
    if per_second <= 0:
        return ()
    return (
        Evidence(
            what="rows read in vain",
            value=round(per_second),
            unit="per second",
            source="EXPLAIN times calls of pg_stat_statements",
        ),
    )


def _refuses_by_state(queue: Queue, plan: ReadPlan) -> bool:
    """Tell whether the scan has to look at the state of each row it meets."""
    state = queue.identity.roles.state
    return (
        state is not None and not claiming.state_by_index(queue, plan.facts) and plan.facts.filter is not None
    )


def _unfinished(queue: Queue, plan: ReadPlan) -> Finding:
    cost = plan.facts.cost or 0.0
    return Finding(
        check=CHECK.id,
        severity="critical",
        queue=queue.name,
        title=f"The claim of {queue.name} did not find its job within 1 s: no index leads to the ready jobs of {count(queue.rows)} rows",
        why=(
            "The plan reads rows of every state and filters them. It was stopped before it came to an end, so that its cost is the planner's "
            "estimate and not a measurement."
        ),
        evidence=(
            Evidence(what="expected cost", value=round(cost), unit="", source="EXPLAIN"),
            *claiming.plan_evidence(plan),
            *claiming.rate_evidence(queue),
        ),
        remedies=tuple(_index(queue)),
        relations=(queue.oid,),
    )


def _remedies(queue: Queue, walked: Refused) -> Iterator[Remedy]:
    yield from _index(queue, walked.plan.facts.buffers_per_row)


def _index(queue: Queue, buffers: float | None = None) -> Iterator[Remedy]:
    """The index that serves the claim, unless there is one already: then the planner's choice is the fault,
    and another check's."""
    advice = claiming.index_asked_for(queue)
    if (
        advice is None
        or claiming.served_already(queue, advice) is not None
        or claiming.as_walked(queue, advice)
    ):
        return
    before = f" instead of {count(buffers)}" if buffers is not None else ""
    yield claiming.create_index(
        queue,
        advice,
        title="Give the claim an index that holds the ready jobs only, in the claim's order",
        expect=f"{claimcost.served(queue, advice)}{before}, however many finished jobs are kept",
    )


CHECK = Check(
    title="The claim walks over finished jobs",
    needs=(PLAN,),
    limits=RefusedLimits(),
    evaluate=evaluate,
    lint=lint_serving.scans_consumed_rows,
    references=(
        "https://www.postgresql.org/docs/current/indexes-partial.html",
        "https://www.postgresql.org/docs/current/using-explain.html",
    ),
    look_alikes=(
        "a partial index whose predicate EXPLAIN repeats as a filter under FOR UPDATE, with no row removed",
        "a table of a few hundred rows that is scanned as a whole",
        "rows refused because they are due later or belong to another queue",
    ),
)
