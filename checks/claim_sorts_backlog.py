"""The claim sorts the backlog to take one job.

Where no index gives the claim's order, every claim reads all ready jobs, sorts them and takes the first. A
row lock makes it worse: LIMIT cannot bound a sort that stands below it, so that all rows are sorted, and on
disk where they outgrow work_mem. The claim becomes slower exactly when the backlog is longest. More work_mem
hides it for a while; an index in the claim's order ends it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated, Final

from pgqdoctor import claimcost, claiming, remedy, sqlcorrect
from pgqdoctor.check import PLAN, Check
from pgqdoctor.finding import Evidence, Finding, Remedy
from pgqdoctor.lint import serving as lint_serving
from pgqdoctor.observation import Observation
from pgqdoctor.planfacts import SortFacts
from pgqdoctor.queue import Queue, ReadPlan
from pgqdoctor.words import count, shortened, size

BLOCK = 8192


_MOVES: Final = re.compile(
    r"\b(random|now|clock_timestamp|statement_timestamp|transaction_timestamp|age)\s*\(|\bcurrent_(timestamp|date)\b|\blocaltimestamp\b",
    re.IGNORECASE,
)
"""What gives an ORDER BY expression another value at each look, so that no index can hold it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """When sorting costs something. 100,000 narrow rows were measured to take 15 ms without and 68 ms under a
    row lock."""

    rows: Annotated[
        int, "rows sorted per claim: 1,000 take some 0.2 ms, twenty times a claim that an index serves"
    ] = 1_000
    rows_per_s: Annotated[
        float, "rows sorted per second by all claims: 1.5 million fill one core, so this is 2% of it"
    ] = 30_000.0
    slow_rows: Annotated[
        int, "rows sorted per claim that are felt as delay even if claims are rare: some 14 ms"
    ] = 20_000
    critical_rows: Annotated[int, "rows sorted per claim: some 70 ms, several times that with wide rows"] = (
        100_000
    )
    critical_rows_per_s: Annotated[float, "rows sorted per second that keep about one core busy"] = (
        1_500_000.0
    )


def evaluate(seen: Observation, queue: Queue, limits: Limits) -> Iterator[Finding]:
    """Report the sort between the claim's scan and its LIMIT."""
    plan = claiming.timed_out(queue) or queue.plan
    if plan is None or plan.facts.sort is None:
        return
    sort = plan.facts.sort
    rows = _rows(sort, plan)
    if rows is None or rows < limits.rows:
        return
    claim = claiming.busiest(queue.claims)
    per_call = (
        claim.seen.temp_blocks * BLOCK / claim.seen.calls if claim is not None and claim.seen.calls else 0.0
    )
    key = shortened(", ".join(sort.keys), 80)
    spills = f", writing {size(per_call)} to disk" if per_call >= BLOCK else ""
    expected = "" if sort.rows is not None else "about "
    yield Finding(
        check=CHECK.id,
        severity=claiming.severity_of(queue, rows, limits, slow=per_call >= BLOCK),
        queue=queue.name,
        title=f"Each claim of {queue.name} sorts {expected}{count(rows)} ready jobs to take the first{spills}: no index is in the order of {key}",
        why=(
            "The claim must look at every ready job before it knows which comes first. Under its row lock it sorts all of them, because LIMIT "
            "cannot end a sort early below the lock; the plan measured here ran without the lock and is the kinder one."
        ),
        evidence=(
            Evidence(
                what="rows sorted",
                value=round(rows),
                unit="rows",
                source="EXPLAIN (ANALYZE, BUFFERS)" if sort.rows is not None else "EXPLAIN",
            ),
            Evidence(what="order", value=key, unit="", source="EXPLAIN"),
            *(
                (
                    Evidence(
                        what="temporary files per claim",
                        value=round(per_call),
                        unit="bytes",
                        source="pg_stat_statements",
                    ),
                )
                if per_call >= BLOCK
                else ()
            ),
            *claiming.plan_evidence(plan),
            *claiming.rate_evidence(queue),
        ),
        remedies=tuple(_remedies(queue)),
        relations=(queue.oid,),
    )


def _rows(sort: SortFacts, plan: ReadPlan) -> float | None:
    if sort.rows is not None:
        return sort.rows
    return float(sort.expected_rows) if sort.expected_rows is not None and plan.probe.timed_out else None


def _remedies(queue: Queue) -> Iterator[Remedy]:
    claim, advice = claiming.busiest(queue.claims), claiming.index_asked_for(queue)
    if claim is None:
        return
    if advice is not None and advice.ordered and claim.claim.order:
        if claiming.served_already(queue, advice) is None:
            yield claiming.create_index(
                queue,
                advice,
                title="Give the claim an index in its own order",
                expect=f"the sort is gone from the plan, and {claimcost.served(queue, advice)} whatever the backlog",
            )
        return
    moving = next((key for key in claim.claim.order if key.column is None and _MOVES.search(key.text)), None)
    if moving is not None:
        yield _stored_rank(queue, moving.text)
        return
    text = sqlcorrect.one_group(claim.seen.statement.text, claim.claim)
    if text is not None:
        sql = claiming.printed(queue, text)
        yield remedy.corrected_statement(
            sql=(sql,),
            title="Ask for one group after the other, in their order of rank, rather than rank every job in each claim",
            expect=(
                "each question is served by an index that begins with the group, and the first that has a job ends the search."
                + claiming.with_parameters(sql)
            ),
            risk="a change of the application; as many questions as there are groups when the queue is empty",
        )


def _stored_rank(queue: Queue, text: str) -> Remedy:
    """Say what to order by in the place of an expression that no index can hold, because its value is another one at each look."""
    if "random" in text.lower():
        return remedy.change_application(
            title="Leave ORDER BY random() out: SKIP LOCKED keeps the workers from the same job, whatever the order",
            expect="the claim takes the first free job of an index instead of drawing a number for each ready one",
            risk="a change of the application; jobs are then taken nearly in order",
        )
    return remedy.change_application(
        title=f"Keep the rank in a column of its own that stands still, and order by it instead of {shortened(text, 100)}",
        expect=(
            "all ranks grow alike with now(), so their order does not need it: for a priority that gains a point a minute, the time of enqueueing less a "
            "minute for each point, written once, gives the same order, and an index on it gives the first job at once"
        ),
        risk=f"a change of the application: a column more in {queue.name}, to be filled for the jobs that wait",
    )


CHECK = Check(
    title="The claim sorts the backlog",
    needs=(PLAN,),
    limits=Limits(),
    evaluate=evaluate,
    lint=lint_serving.sorts_backlog,
    references=("https://www.postgresql.org/docs/current/indexes-ordering.html",),
    look_alikes=(
        "a sort of the few jobs that are ready",
        "an incremental sort within one presorted value",
        "a claim without ORDER BY",
    ),
)
