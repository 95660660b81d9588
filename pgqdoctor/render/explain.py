"""The claims' plans for a terminal, and as JSON."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from pgqdoctor.explaining import ExplainedPlan, ExplainedQueue, Explanation
from pgqdoctor.planfacts import PlanLine
from pgqdoctor.render.clean import CleanSql, one_line, statement
from pgqdoctor.render.jsonout import written
from pgqdoctor.render.sqlshow import wrapped_sql
from pgqdoctor.render.text import NARROWEST, WIDEST, Paper

LABEL = 12
STEP = 2


def render_json(explanation: Explanation) -> str:
    """Write the plans as indented JSON."""
    return written(explanation)


def render_text(explanation: Explanation, *, color: bool, width: int) -> str:
    """Write each claim: its statement, how its plan was had, the plan as a tree with what was measured, and what it means."""
    paper = Paper(width=min(max(width, NARROWEST), WIDEST), color=color)
    parts: list[Iterable[str]] = []
    for queue in explanation.queues:
        parts.extend(_queue(queue, paper))
    # The text of a query that was not executed is of no use where a reader cannot see why.
    parts.extend(paper.prose(f"Note: {note}", hanging=2) for note in explanation.notes)
    blocks = ["\n".join(part) for part in parts]
    return "\n\n".join(block for block in blocks if block) + "\n"


def _queue(queue: ExplainedQueue, paper: Paper) -> Iterator[Iterable[str]]:
    yield paper.prose(f"{queue.name}, about {queue.rows:,} rows", style="strong")
    if queue.unseen is not None:
        yield paper.prose(f"No plan: {queue.unseen}.", indent=STEP)
    shown = ""
    for plan in queue.plans:
        yield from _plan(plan, plan.statement != shown, paper)
        shown = plan.statement


def _plan(plan: ExplainedPlan, with_statement: bool, paper: Paper) -> Iterator[Iterable[str]]:
    if with_statement:
        yield paper.prose(f"The claim {plan.meaning}:", indent=STEP)
        yield _sql(plan.statement, paper)
    yield _how(plan, paper)
    if plan.tree:
        yield [line for one in plan.tree for line in _node(one, paper)]
    if plan.says:
        yield _meaning(plan, paper)
    if plan.index is not None:
        yield _sql(plan.index, paper)


def _how(plan: ExplainedPlan, paper: Paper) -> Iterator[str]:
    values = ", ".join(f"{name} = {value}" for name, value in plan.parameters.items())
    # Two facts, but one line where it fits.
    filled = f", with {values}" if values else ""
    title = "Generic plan" if plan.mode == "generic" else "Plan"
    yield from paper.prose(
        f"{title} (--explain {plan.mode}): {plan.how}{filled}"
        if plan.mode != "generic"
        else f"{title}: {plan.how}",
        indent=STEP,
        hanging=STEP,
        style="strong",
    )
    if plan.error is not None:
        yield from paper.prose(plan.error, indent=STEP, style="warning")


def _node(line: PlanLine, paper: Paper) -> Iterator[str]:
    indent = 2 * STEP + STEP * line.depth
    facts = f": {line.facts}" if line.facts else ""
    label = one_line(line.label)
    lines = list(paper.prose(f"{label}{facts}", indent=indent, hanging=2 * STEP))
    if lines and lines[0].lstrip().startswith(label):
        margin = lines[0][: len(lines[0]) - len(lines[0].lstrip())]
        lines[0] = margin + paper.styled("strong", label) + lines[0].lstrip()[len(label) :]
    yield from lines
    for condition in line.conditions:
        for text in paper.prose(condition, indent=indent + 2 * STEP, hanging=STEP):
            yield paper.styled("faint", text)


def _meaning(plan: ExplainedPlan, paper: Paper) -> Iterator[str]:
    for one in plan.says:
        yield from paper.prose(f"- {one}", indent=STEP, hanging=STEP)


def _sql(text: str, paper: Paper) -> Iterator[str]:
    shown = statement(text)
    pretty = CleanSql(text=wrapped_sql(shown.text, width=paper.width - 2 * STEP), complete=shown.complete)
    for line in pretty.lines():
        yield " " * (2 * STEP) + paper.styled("sql", line) if line.strip() else line
