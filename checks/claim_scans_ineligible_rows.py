"""The claim walks over ready jobs that it may not take.

Jobs that are due later, that belong to another queue, or whose kind has reached its limit stand in the ready
state too. If the claim's index does not tell them apart, each claim reads and refuses all of them before it
meets one it may take. Deleting finished jobs does not help here: what is in the way is alive.
"""

from __future__ import annotations

from collections.abc import Iterator

from pgqdoctor import claimcost, claiming, remedy
from pgqdoctor.check import PLAN, Check
from pgqdoctor.claiming import Refused, RefusedLimits
from pgqdoctor.finding import Evidence, Finding, Remedy
from pgqdoctor.observation import Observation
from pgqdoctor.queue import Queue
from pgqdoctor.sqlrewrite import quote_ident
from pgqdoctor.words import count


def evaluate(seen: Observation, queue: Queue, limits: RefusedLimits) -> Iterator[Finding]:
    """Report the scan where the rows it refuses are in the ready state."""
    if claiming.timed_out(queue) is not None:
        return
    walked = claiming.refused(queue)
    if walked is None or walked.ineligible < limits.rows or walked.ineligible <= walked.consumed:
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


def _reason(queue: Queue, walked: Refused) -> str:
    """Say what shuts the rows out, as far as the filter's columns tell."""
    columns = claiming.filter_columns(queue, walked.plan.facts)
    run_at = queue.identity.roles.run_at
    others = [quote_ident(name) for name in columns if name != run_at]
    said = []
    if run_at in columns:
        said.append("due later")
    if others:
        said.append(f"refused by {', '.join(others)}")
    return " or ".join(said) or "refused by another condition"


def _remedies(queue: Queue, walked: Refused) -> Iterator[Remedy]:
    advice = claiming.index_asked_for(queue)
    if advice is None:
        return
    run_at = queue.identity.roles.run_at
    late = run_at is not None and run_at in claiming.filter_columns(queue, walked.plan.facts)
    leads = late and advice.names[0] == run_at
    if late and not leads:
        # In another order than by time, jobs of the future stand before due ones in any index.
        yield remedy.change_application(
            title=f"Keep jobs that are due later in a state of their own, and make them ready when {quote_ident(run_at or '')} has come",
            risk="a change of the application: a small task promotes due jobs every second",
            expect="the claim's index holds due jobs only, whatever its order",
        )
    elif claiming.served_already(queue, advice) is None:
        yield claiming.create_index(
            queue,
            advice,
            title="Give the claim an index that begins with what it asks for",
            expect=f"{claimcost.served(queue, advice)} instead of {count(walked.plan.facts.buffers_per_row or 0)}",
        )


CHECK = Check(
    title="The claim walks over jobs it may not take",
    needs=(PLAN,),
    limits=RefusedLimits(),
    evaluate=evaluate,
    references=("https://www.postgresql.org/docs/current/indexes-multicolumn.html",),
    look_alikes=(
        "a million jobs scheduled for later behind an index on the time they are due",
        "a skip scan, from version 18 on, that jumps over the other queues",
        "rows in another state: they are consumed, not ineligible",
    ),
)
