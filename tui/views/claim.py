"""Screen 5: how a queue is claimed: the statement, its shape, its cost, and its plan with the facts beside the nodes."""

from __future__ import annotations

from dataclasses import dataclass

from pgqdoctor.frames import Frame
from pgqdoctor.planfacts import PlanLine, tree_lines
from pgqdoctor.queue import Queue, ReadPlan, SeenClaim
from pgqdoctor.render.clean import one_line, statement
from pgqdoctor.render.sqlshow import wrapped_sql
from pgqdoctor.tui.views import short

MOST_CLAIMS = 5
SQL_COLUMNS = 76
"""Width at which statements are laid out, so that they fit the narrowest screen."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanView:
    """One plan: how it was had, what was put in for parameters, and its nodes from the top down."""

    how: str
    lines: tuple[PlanLine, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ClaimView:
    """One claim statement. ``facts`` are (what, value) in the order shown."""

    shape: str
    source: str
    facts: tuple[tuple[str, str], ...]
    sql: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueClaims:
    """All claims of one queue and the plans that EXPLAIN gave; ``lacks`` say why there is none."""

    queue: str
    framework: str
    ready_predicate: str
    claims: tuple[ClaimView, ...]
    plans: tuple[PlanView, ...]
    lacks: tuple[str, ...]


def claim_views(frame: Frame) -> tuple[QueueClaims, ...]:
    """Return the claims of every queue, in the report's order."""
    return tuple(_queue(one) for one in frame.queues)


def _queue(queue: Queue) -> QueueClaims:
    claims = [one for one in queue.claims if one.seen.seen] or list(queue.claims)
    views = [_claim(one) for one in claims[:MOST_CLAIMS]]
    identity = queue.identity
    if not views and identity.claim_sql is not None:
        views = [
            ClaimView(
                shape="function" if identity.functions else "unknown",
                source=identity.claim_source or "",
                facts=(),
                sql=sql_lines(identity.claim_sql),
            )
        ]
    lacks = [
        f"{one.what}: {one.reason}" + (f" ({one.grant})" if one.grant else "")
        for one in (queue.probe.lacks if queue.probe is not None else ())
    ]
    if queue.probe is not None:
        lacks.extend(one.error for one in queue.probe.plans if one.error and one.error not in lacks)
    return QueueClaims(
        queue=one_line(identity.name),
        framework=one_line(identity.framework or "none known"),
        ready_predicate=one_line(identity.ready_predicate or "could not be told"),
        claims=tuple(views),
        plans=tuple(_plan(one) for one in queue.plans),
        lacks=tuple(one_line(one) for one in dict.fromkeys(lacks)),
    )


def _claim(one: SeenClaim) -> ClaimView:
    seen, claim = one.seen, one.claim
    calls = seen.calls
    facts = [("seen in", seen.source)]
    if calls:
        facts.extend(
            (
                ("calls in the window", f"{calls:,}"),
                ("jobs per call", short.number(seen.rows / calls)),
                ("buffers per call", short.number(seen.blocks / calls)),
                ("time per call", short.seconds(seen.total_ms / calls / 1000)),
            )
        )
    elif seen.samples:
        facts.append(("caught in", f"{seen.samples:,} samples"))
    if claim.lock is not None:
        facts.append(("row lock", f"for {claim.lock.strength}, {claim.lock.wait}"))
    facts.append(("limit", _limit(one)))
    if claim.order:
        facts.append(("order", one_line(", ".join(key.text for key in claim.order))))
    return ClaimView(shape=claim.shape, source=seen.source, facts=tuple(facts), sql=sql_lines(seen.text))


def _limit(one: SeenClaim) -> str:
    claim = one.claim
    if claim.by_key:
        return "one known row"
    if claim.limit_kind == "none":
        return "none"
    return f"{claim.limit}" if claim.limit is not None else "a parameter"


def _plan(one: ReadPlan) -> PlanView:
    parts = ", ".join(f"{name} = {value}" for name, value in one.probe.parameters.items())
    how = f"EXPLAIN mode {one.probe.mode}" + (f" with {parts}" if parts else "")
    if one.probe.error:
        how += f"; {one.probe.error}"
    lines = tuple(
        PlanLine(
            depth=line.depth,
            label=one_line(line.label),
            facts=one_line(line.facts),
            conditions=tuple(one_line(text) for text in line.conditions),
        )
        for line in tree_lines(one.plan)
    )
    return PlanView(how=one_line(how), lines=lines)


def sql_lines(sql: str) -> tuple[str, ...]:
    """Return a statement laid out in lines that are safe to show."""
    shown = statement(sql)
    if not shown.complete:
        return tuple(shown.lines())
    return tuple(wrapped_sql(shown.text, width=SQL_COLUMNS).split("\n"))
