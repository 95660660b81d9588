"""The claim may take more jobs than its LIMIT says.

In UPDATE ... WHERE id IN (SELECT ... LIMIT n FOR UPDATE SKIP LOCKED) the sub-select is an input of a join. If
the planner expects few rows it chooses a nested loop that executes the sub-select once for each row of the
table, and each time it skips the rows already taken and takes n more. One worker then holds a whole batch of
jobs it did not ask for. The server regards this as correct. A CTE AS MATERIALIZED, or = (SELECT ... LIMIT 1),
is computed once whatever the plan; ANALYZE only hides it until the next time.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated

from pgqdoctor import claiming, remedy, sqlcorrect
from pgqdoctor.check import CLAIMS, STATEMENTS, Check
from pgqdoctor.finding import Evidence, Finding, Severity
from pgqdoctor.lint import claims as lint_claims
from pgqdoctor.observation import Observation
from pgqdoctor.plan import Node, parse_plan, paths
from pgqdoctor.queue import Queue, SeenClaim
from pgqdoctor.words import count


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """When a claim has overrun its LIMIT."""

    calls: Annotated[int, "executions that the rows per call are averaged over"] = 1
    excess: Annotated[float, "rows per call over the LIMIT: any whole row too many proves it"] = 1.0


def evaluate(seen: Observation, queue: Queue, limits: Limits) -> Iterator[Finding]:
    """Report the busiest claim whose LIMIT may be executed again, and whether it is."""
    shaky = [
        one
        for one in queue.claims
        if one.claim.repeatable_limit and one.claim.writes and one.seen.seen and not _prunes(one)
    ]
    if not shaky:
        return
    one = shaky[0]
    limit = claiming.literal_limit(seen, one)
    per_call = _rows_per_call(one, limits)
    over = limit is not None and per_call is not None and per_call >= limit + limits.excess
    loops = _planned_in_a_loop(queue)
    severity: Severity = "critical" if over else "warning" if loops else "notice"
    if over and limit is not None and per_call is not None:
        title = f"A claim of {queue.name} with LIMIT {limit} takes {count(per_call)} jobs at a time: its sub-select is executed again and again"
    elif loops:
        taken = f", and {count(per_call)} jobs are taken at a time" if per_call is not None else ""
        title = f"The claim of {queue.name} may take more jobs than its LIMIT: today's plan executes the sub-select once for each row of the table{taken}"
    else:
        title = f"The claim of {queue.name} relies on the planner to respect its LIMIT: another plan would execute the sub-select many times"
    text = sqlcorrect.materialized(one.seen.statement.text, one.claim)
    sql = (
        claiming.printed(queue, text, limit=str(limit) if limit is not None else None)
        if text is not None
        else None
    )
    evidence = [claiming.text_evidence(one.seen)]
    if per_call is not None:
        evidence.append(
            Evidence(
                what="jobs per claim", value=round(per_call, 1), unit="rows", source="pg_stat_statements"
            )
        )
    if limit is not None:
        evidence.append(Evidence(what="LIMIT", value=limit, unit="rows", source=one.seen.source))
    yield Finding(
        check=CHECK.id,
        severity=severity,
        queue=queue.name,
        title=title,
        why=(
            "IN (SELECT ... LIMIT n) is joined, and an inner side of a nested loop is executed once per outer row. Each time SKIP LOCKED passes over "
            "what this very statement has taken, and the LIMIT begins to count anew."
        ),
        evidence=tuple(evidence),
        remedies=(
            remedy.corrected_statement(
                sql=(sql,),
                title="Compute the sub-select once: WITH ... AS MATERIALIZED",
                expect=f"no claim takes more than its LIMIT under any plan; the cost stays the same.{claiming.with_parameters(sql)}",
            ),
        )
        if sql is not None
        else (),
        relations=(queue.oid,),
    )


def _prunes(one: SeenClaim) -> bool:
    """Tell whether a statement deletes without reading what it deleted: a batch too large harms nobody there."""
    writes = one.seen.statement.writes
    return (
        bool(writes)
        and all(each.kind == "delete" for each in writes)
        and "returning" not in one.seen.text.lower()
    )


def _rows_per_call(one: SeenClaim, limits: Limits) -> float | None:
    if one.seen.calls >= limits.calls:
        return one.seen.rows / one.seen.calls
    return one.seen.all_rows / one.seen.all_calls if one.seen.all_calls >= limits.calls else None


def _planned_in_a_loop(queue: Queue) -> bool:
    """Tell whether the plan of the whole statement has a LIMIT on the inner side of a nested loop, without a
    Materialize above it."""
    for one in queue.probe.whole_plans if queue.probe is not None else ():
        if one.document is None:
            continue
        try:
            plan = parse_plan(one.document)
        except ValueError:
            continue
        if any(_repeated(path) for path in paths(plan.root)):
            return True
    return False


def _repeated(path: tuple[Node, ...]) -> bool:
    if path[-1].node_type != "Limit":
        return False
    for place in range(len(path) - 1, 0, -1):
        node, parent = path[place], path[place - 1]
        if node.subplan_name is not None or node.node_type in (
            "Materialize",
            "CTE Scan",
            "Hash",
            "Sort",
            "Aggregate",
            "HashAggregate",
            "Memoize",
        ):
            return False
        if parent.node_type == "Nested Loop" and node.parent_relationship == "Inner":
            return True
    return False


CHECK = Check(
    title="A claim can take more than its LIMIT",
    needs=(STATEMENTS, CLAIMS),
    limits=Limits(),
    evaluate=evaluate,
    lint=lint_claims.limit_overrun,
    references=(
        "https://www.postgresql.org/docs/current/queries-with.html#QUERIES-WITH-CTE-MATERIALIZATION",
    ),
    look_alikes=(
        "a CTE with FOR UPDATE, or AS MATERIALIZED: computed once",
        "= (SELECT ... LIMIT 1) and = ANY (ARRAY(SELECT ...)): computed once before the UPDATE begins",
        "a LATERAL sub-select, whose LIMIT is meant for each outer row",
    ),
)
