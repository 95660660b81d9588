"""The claim cannot use the partial index that was made for it.

A partial index serves a statement only if the planner can prove its predicate from the text. A state that is
passed as a bind parameter proves nothing once the plan is made for any value, and a cast of the state column
hides the comparison. The claim then reads the whole table or a larger index, although the right index is
there.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated

from pgqdoctor import claiming, remedy, sqlcorrect
from pgqdoctor.check import PLAN, STATEMENTS, Check
from pgqdoctor.finding import Evidence, Finding, Remedy, Severity
from pgqdoctor.lint import serving as lint_serving
from pgqdoctor.observation import Observation
from pgqdoctor.predicates import flat, predicate_conditions
from pgqdoctor.queue import Queue, ReadPlan, SeenClaim
from pgqdoctor.rows import IndexRow
from pgqdoctor.sqlrewrite import quote_ident
from pgqdoctor.words import count


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """When the index is passed by, and what that costs."""

    calls: Annotated[int, "claims in the window: fewer do not show what plan they get"] = 20
    scans: Annotated[
        float,
        "ratio of scans of the partial index to claims: the doctor's own EXPLAIN makes one or two of them",
    ] = 0.1
    buffers: Annotated[
        float,
        "buffers per claimed job on average: below it the other plan is as good, as on a table of a few pages",
    ] = 50.0
    times: Annotated[float, "times what the claim reads with the state written into its text"] = 5.0
    critical_buffers: Annotated[float, "buffers per claim: hundreds of times what the index would need"] = (
        1_000.0
    )


def evaluate(seen: Observation, queue: Queue, limits: Limits) -> Iterator[Finding]:
    """Compare what claims read with what the same claim reads where the state is a constant."""
    claim = claiming.busiest(queue.claims)
    plan = queue.plan
    if claim is None or plan is None or claim.seen.calls < limits.calls:
        return
    per_call = claim.seen.blocks / claim.seen.calls
    # A claim of many jobs also writes as many rows, which EXPLAIN does not show.
    per_job = claim.seen.blocks / claim.seen.turns
    if per_job < limits.buffers:
        return
    cast = _cast(queue, claim)
    for index in _made_for_it(queue):
        scans = next((one.scans for one in queue.index_churn if one.oid == index.oid), None)
        if scans is None or scans > limits.scans * claim.seen.calls:
            continue
        if cast is not None and index.name not in plan.facts.indexes:
            yield _finding(queue, claim, index, plan, per_call, f"the claim casts {cast}", limits)
            return
        served = index.name in plan.facts.indexes and plan.facts.buffers is not None
        if served and per_job >= limits.times * max(plan.facts.buffers or 0, 1):
            yield _finding(
                queue,
                claim,
                index,
                plan,
                per_call,
                "its plan is made for any value of a bound parameter",
                limits,
            )
            return


def _made_for_it(queue: Queue) -> tuple[IndexRow, ...]:
    """Return the valid partial indexes whose predicate is about the state alone, as the ready predicate is."""
    state = queue.identity.roles.state
    return tuple(
        index
        for index in queue.indexes
        if index.valid
        and index.has_predicate
        and any(one.column == state for one in flat(predicate_conditions(index)))
    )


def _cast(queue: Queue, claim: SeenClaim) -> str | None:
    """Return the cast of the state column in the claim's condition as SQL writes it, None without one."""
    state = queue.identity.roles.state
    row = queue.column(state) if state is not None else None
    found = next(
        (one.cast for one in flat(claim.claim.conditions) if one.column == state and one.cast is not None),
        None,
    )
    if state is None or row is None or found is None or found == row.type_name:
        return None
    return f"{quote_ident(state)} to {found}"


def _finding(
    queue: Queue,
    claim: SeenClaim,
    index: IndexRow,
    plan: ReadPlan,
    per_call: float,
    cause: str,
    limits: Limits,
) -> Finding:
    generic = queue.generic_plan
    severity: Severity = "critical" if per_call >= limits.critical_buffers else "warning"
    scans = next((one.scans for one in queue.index_churn if one.oid == index.oid), 0)
    with_constant = (
        f" instead of {count(plan.facts.buffers)}"
        if index.name in plan.facts.indexes and plan.facts.buffers is not None
        else ""
    )
    name = f"{quote_ident(index.schema)}.{quote_ident(index.name)}"
    evidence = [
        claiming.text_evidence(claim.seen),
        Evidence(
            what="claim reads on average",
            value=round(per_call, 1),
            unit="buffers",
            source="pg_stat_statements",
        ),
        Evidence(
            what="claims", value=claim.seen.calls, unit="calls", source="pg_stat_statements, in the window"
        ),
        Evidence(
            what=f"scans of {name}", value=scans, unit="calls", source="pg_stat_user_indexes, in the window"
        ),
        Evidence(what="its predicate", value=index.predicate or "", unit="", source="pg_index"),
    ]
    if generic is not None:
        evidence.append(
            Evidence(
                what="plan for any value",
                value=generic.facts.index or generic.facts.scan_type,
                unit="",
                source="EXPLAIN of the generic plan",
            )
        )
    return Finding(
        check=CHECK.id,
        severity=severity,
        queue=queue.name,
        title=f"The claim of {queue.name} passes by the index {name} and reads {count(per_call)} buffers{with_constant}: {cause}",
        why=(
            "A partial index may be used only where the planner can prove from the statement's text that every row it asks for satisfies the "
            "predicate. A parameter whose value is not part of the plan, or a cast of the column, leaves that open."
        ),
        evidence=tuple(evidence),
        remedies=tuple(_remedies(queue, claim)),
        subject=index.name,
        relations=(queue.oid, index.oid),
    )


def _remedies(queue: Queue, claim: SeenClaim) -> Iterator[Remedy]:
    state = queue.identity.roles.state
    text: str | None = claim.seen.statement.text
    if state is not None and _cast(queue, claim) is not None:
        text = sqlcorrect.without_cast(text, state) if text is not None else None
    if text is None or not queue.identity.ready_values:
        return
    limit = "1" if claim.seen.rows <= claim.seen.calls else None
    sql = claiming.printed(queue, text, limit=limit)
    yield remedy.corrected_statement(
        sql=(sql,),
        title="Write the ready state into the claim's text as a constant, without a cast",
        expect=f"every plan of the claim may use the index, and it reads about {claiming.SERVED_BUFFERS} buffers.{claiming.with_parameters(sql)}",
    )


CHECK = Check(
    title="The claim cannot use its partial index",
    needs=(PLAN, STATEMENTS),
    limits=Limits(),
    evaluate=evaluate,
    lint=lint_serving.misses_partial_index,
    references=(
        "https://www.postgresql.org/docs/current/indexes-partial.html",
        "https://www.postgresql.org/docs/current/sql-prepare.html#SQL-PREPARE-NOTES",
    ),
    look_alikes=(
        "a normalised text that shows $1 where the application wrote a constant",
        "a table of a few pages, which is read as a whole at no loss",
        "a partial index that serves another statement",
    ),
)
