"""The report for a terminal: for a person on call, who reads from the top and stops when it suffices."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from typing import Final

from pgqdoctor.finding import Remedy
from pgqdoctor.render import phrases
from pgqdoctor.render.clean import CleanSql, one_line, statement
from pgqdoctor.render.quantities import counted, number, quantity
from pgqdoctor.render.sqlshow import breaks_inside_token, wrapped_sql
from pgqdoctor.render.tables import text_table
from pgqdoctor.report import QueueFacts, Report, ReportedFinding
from pgqdoctor.story import story_of, tree_of
from pgqdoctor.triangle import Triangle

WIDEST: Final = 110
"""Columns: longer lines of prose are hard to read, however wide the terminal."""
NARROWEST: Final = 40
STEP: Final = 3
"""Columns by which an effect stands further in than its cause."""
DEEPEST: Final = 2
"""Steps: a longer chain of causes keeps this indent, so that 80 columns still hold its tables."""
LABEL: Final = 8
"""Columns of a remedy's labels (lock, risk, expect, undo)."""
QUEUE_LABEL: Final = 12
"""Columns of the labels in the list of queues."""

_STYLES: Final = {
    "critical": "1;31",
    "warning": "1;33",
    "notice": "1;36",
    "healthy": "1;32",
    "strong": "1",
    "faint": "2",
    "sql": "32",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Paper:
    """What is written on: columns, and whether ANSI escapes may be used."""

    width: int
    color: bool

    def styled(self, style: str, text: str) -> str:
        """Return the text in a style of _STYLES; without colour as it is."""
        return f"\x1b[{_STYLES[style]}m{text}\x1b[0m" if self.color and text else text

    def prose(self, text: str, *, indent: int = 0, hanging: int = 0, style: str = "") -> Iterator[str]:
        """Wrap text that may hold anything; words are never broken."""
        lines = textwrap.wrap(
            one_line(text),
            width=self.width,
            initial_indent=" " * indent,
            subsequent_indent=" " * (indent + hanging),
            break_long_words=False,
            break_on_hyphens=False,
        )
        for line in lines:
            margin = line[: len(line) - len(line.lstrip())]
            yield margin + self.styled(style, line.lstrip()) if style else line

    def labelled(self, label: str, text: str, *, indent: int, column: int) -> Iterator[str]:
        """Wrap text in a column of its own beside a label."""
        margin = " " * indent
        lines = textwrap.wrap(
            one_line(text), width=self.width - indent - column, break_long_words=False, break_on_hyphens=False
        )
        beside = self.styled("faint", label) + " " * (column - len(label))
        for line in lines:
            yield margin + beside + line
            beside = " " * column


def render_report(report: Report, *, color: bool, width: int) -> str:
    """Write the report as text of at most ``width`` columns; only SQL and long names go beyond."""
    paper = Paper(width=min(max(width, NARROWEST), WIDEST), color=color)
    parts = [
        _head(report, paper),
        _story(report, paper),
        *_findings(report, paper),
        _crashed(report, paper),
        _queues(report, paper),
        *_knobs(report, paper),
        _not_seen(report, paper),
        _notes(report, paper),
        paper.prose(phrases.observed(report), style="faint"),
    ]
    return _joined(parts)


def render_queues(report: Report, *, color: bool, width: int) -> str:
    """Write the queues: how each was recognised, when a job is ready, how it is claimed."""
    paper = Paper(width=min(max(width, NARROWEST), WIDEST), color=color)
    found = counted(len(report.queues), "queue") if report.queues else "No queue found"
    parts: list[Iterable[str]] = [paper.prose(f"{found} {phrases.looked_at(report)}", style="strong")]
    parts.extend(_queue(one, paper) for one in report.queues)
    parts.append(_notes(report, paper))
    return _joined(parts)


def render_knobs(name: str, triangle: Triangle, *, color: bool, width: int) -> str:
    """Write the triangle of one queue with all of its arithmetic."""
    paper = Paper(width=min(max(width, NARROWEST), WIDEST), color=color)
    return _joined([_triangle(name, triangle, frozenset(), {}, paper, whole=True)])


def _joined(parts: Iterable[Iterable[str]]) -> str:
    blocks = ["\n".join(part) for part in parts]
    return "\n\n".join(block for block in blocks if block) + "\n"


# --- the verdict ------------------------------------------------------------------------------------


def _head(report: Report, paper: Paper) -> Iterator[str]:
    word = phrases.verdict_word(report)
    lines = list(paper.prose(f"{word}: {phrases.verdict_found(report)} {phrases.looked_at(report)}"))
    # "Healthy" in green only where all was looked at.
    style = report.verdict if report.verdict != "healthy" or word == "HEALTHY" else "strong"
    if lines[0].startswith(word):
        lines[0] = paper.styled(style, word) + lines[0][len(word) :]
    yield from lines
    if gap := phrases.gaps(report):
        yield from paper.prose(gap, style="strong")


# --- the story --------------------------------------------------------------------------------------


def _story(report: Report, paper: Paper) -> Iterator[str]:
    """The worst chain as one sentence, and which finding causes which as a small tree."""
    sentence = story_of(report)
    # A root alone is told by its own title below.
    told = sentence and sentence.rstrip(".") not in {one.title for one in report.findings}
    if told:
        yield from paper.prose(sentence, style="strong")
    tree = tree_of(report)[: phrases.MOST_FINDINGS]
    if not any(one.depth for one in tree):
        return
    if told:
        yield ""
    for place, one in enumerate(tree, 1):
        branch = "└─ " if one.depth else ""
        on = f" on {one.finding.queue}" if one.finding.queue is not None else ""
        line = f"{branch}{place}. {one.finding.severity}: {one.finding.check}{on}"
        yield from _cut(line, 2 + STEP * max(min(one.depth, 6) - 1, 0), paper)


def _findings(report: Report, paper: Paper) -> Iterator[Iterator[str]]:
    findings, more = phrases.first(report.findings, phrases.MOST_FINDINGS)
    depth = phrases.depths(report.findings)
    numbers = {one.key: place for place, one in enumerate(report.findings, 1)}
    titles = {one.key: one.title for one in report.findings}
    for one in findings:
        causes = [
            f"because of {numbers[key]}: {titles[key]}" if key in titles else f"because of: {key}"
            for key in one.caused_by
        ]
        yield _finding(one, numbers[one.key], causes, STEP * min(depth[one.key], DEEPEST), paper)
    if more:
        yield iter([more])


def _finding(
    finding: ReportedFinding, place: int, causes: Sequence[str], indent: int, paper: Paper
) -> Iterator[str]:
    mark = f"{place}. {finding.severity.upper()}"
    title = list(paper.prose(f"{mark}: {finding.title}", indent=indent, hanging=STEP))
    title[0] = title[0].replace(mark, paper.styled(finding.severity, mark), 1)
    yield from title
    inside = indent + STEP
    for cause in causes:
        yield from _cut(cause, inside, paper)
    where = f" on {finding.queue}" if finding.queue is not None else ""
    yield from paper.prose(f"[{finding.check}{where}]", indent=inside, style="faint")
    yield ""
    yield from paper.prose(finding.why, indent=inside)
    if finding.evidence:
        yield ""
        evidence, more = phrases.first(finding.evidence, phrases.MOST_EVIDENCE)
        rows = [
            (one_line(one.what), one_line(quantity(one.value, one.unit)), one_line(one.source))
            for one in evidence
        ]
        yield from _table(phrases.EVIDENCE_HEADERS, rows, indent=inside, paper=paper)
        if more:
            yield " " * inside + more
    for number_, remedy in enumerate(finding.remedies, 1):
        yield ""
        yield from _remedy(remedy, number_, inside, paper)


def _cut(text: str, indent: int, paper: Paper) -> Iterator[str]:
    """One line: the number in it leads to the whole."""
    line, room = one_line(text), paper.width - indent
    yield " " * indent + (line if len(line) <= room else line[: room - 1] + "…")


def _remedy(remedy: Remedy, place: int, indent: int, paper: Paper) -> Iterator[str]:
    title = f"Remedy {place} ({phrases.KINDS[remedy.kind]}): {remedy.title}"
    yield from paper.prose(title, indent=indent, hanging=STEP, style="strong")
    inside = indent + STEP
    yield from _sql(remedy.sql, inside, paper)
    for label, text in (
        ("lock", phrases.remedy_takes(remedy)),
        ("risk", remedy.risk),
        ("expect", remedy.expect),
        ("undo", "none" if phrases.has_no_undo(remedy) else ""),
    ):
        if text:
            yield from paper.labelled(label, text, indent=inside, column=LABEL)
    if remedy.undo:
        yield " " * inside + paper.styled("faint", "undo")
        yield from _sql(remedy.undo, inside, paper)


def _sql(statements: Sequence[str], indent: int, paper: Paper) -> Iterator[str]:
    """Statements as they are: never wrapped, and not indented where that would change a string in them."""
    for one in statements:
        yield from _statement(statement(one), indent, paper)


def _statement(sql: CleanSql, indent: int, paper: Paper) -> Iterator[str]:
    margin = "" if breaks_inside_token(sql.text) else " " * indent
    for line in sql.lines():
        yield (margin + paper.styled("sql", line)) if line.strip() else line


# --- the rest ---------------------------------------------------------------------------------------


def _table(
    headers: Sequence[str],
    rows: Sequence[Sequence[str]],
    *,
    indent: int,
    paper: Paper,
    right: Sequence[int] = (),
) -> Iterator[str]:
    lines = text_table(headers, rows, width=paper.width - indent, right=right)
    margin = " " * indent
    yield margin + paper.styled("faint", lines[0])
    for line in lines[1:]:
        yield margin + line


def _crashed(report: Report, paper: Paper) -> Iterator[str]:
    if not report.crashed:
        return
    crashed, more = phrases.first(report.crashed, phrases.MOST_REASONS)
    yield paper.styled("critical", "CRASHED: these checks failed and say nothing; please report them")
    for one in crashed:
        yield from paper.prose(f"{one.check}: {one.error}", indent=2, hanging=2)
    if more:
        yield f"  {more}"


def _queues(report: Report, paper: Paper) -> Iterator[str]:
    if not report.queues:
        return
    queues, more = phrases.first(report.queues, phrases.MOST_QUEUES)
    rows = [tuple(one_line(cell) for cell in phrases.queue_row(one)) for one in queues]
    yield from _table(phrases.QUEUE_HEADERS, rows, indent=0, paper=paper, right=range(1, len(rows[0])))
    if more:
        yield more


def _knobs(report: Report, paper: Paper) -> Iterator[Iterator[str]]:
    """Where each queue stands between claim index, fillfactor and heap-only updates, and the one thing to do."""
    printed = {remedy.sql for one in report.findings for remedy in one.remedies}
    numbers = {one.key: place for place, one in enumerate(report.findings, 1)}
    queues, _ = phrases.first([one for one in report.queues if one.triangle is not None], phrases.MOST_QUEUES)
    for queue in queues:
        if queue.triangle is not None:
            yield _triangle(queue.name, queue.triangle, printed, numbers, paper)


def _triangle(
    name: str,
    triangle: Triangle,
    printed: Set[tuple[str, ...]],
    numbers: Mapping[str, int],
    paper: Paper,
    *,
    whole: bool = False,
) -> Iterator[str]:
    """The designs, the recommendation and the knobs to turn; as a ``whole`` also what stays as it is, and why."""
    yield from paper.prose(f"Knobs of {name}: claim index, fillfactor, autovacuum", style="strong")
    rows = [
        tuple(one_line(cell) for cell in phrases.design_row(one))
        for one in triangle.corners
        if one.why_not is None
    ]
    yield from _table(phrases.DESIGN_HEADERS, rows, indent=2, paper=paper, right=range(1, len(rows[0])))
    yield from paper.prose(phrases.DESIGN_LEGEND, indent=2, style="faint")
    if whole:
        yield from _corner_arithmetic(triangle, paper)
    advice = triangle.recommendation
    asked = phrases.asked_for(advice, numbers)
    yield from paper.prose(f"{advice.title}: {advice.reason}. {asked}", indent=2, hanging=2)
    for knob in triangle.knobs:
        if whole or phrases.turned(knob):
            yield from paper.prose(phrases.knob_line(knob, advice), indent=2, hanging=2)
            for line in knob.arithmetic:
                yield from paper.prose(line, indent=4, hanging=2, style="faint")
    for place, remedy in enumerate(advice.remedies, 1):
        # A finding's remedy is the same SQL, and stands above.
        if remedy.sql not in printed:
            yield from _remedy(remedy, place, 2, paper)
    for note in triangle.notes if whole else ():
        yield from paper.prose(f"Note: {note}", indent=2, hanging=2)


def _corner_arithmetic(triangle: Triangle, paper: Paper) -> Iterator[str]:
    for corner in triangle.corners:
        why = f": cannot be had, as {corner.why_not}" if corner.why_not is not None else ""
        yield from paper.prose(f"{phrases.design_name(corner)}{why}", indent=2, hanging=2)
        for line in corner.arithmetic:
            yield from paper.prose(line, indent=4, hanging=2, style="faint")


def _not_seen(report: Report, paper: Paper) -> Iterator[str]:
    groups, more = phrases.first(phrases.not_seen(report), phrases.MOST_REASONS)
    if not groups:
        return
    yield paper.styled("strong", "Not looked at")
    for one in groups:
        on = f" (on {phrases.named(one.queues)})" if one.queues else ""
        yield from paper.prose(f"{phrases.named(one.checks)}{on}: {one.reason}", indent=2, hanging=2)
        if one.grant:
            # Often a statement to be pasted, so never wrapped.
            yield f"    to see it: {one_line(one.grant)}"
    if more:
        yield f"  {more}"


def _notes(report: Report, paper: Paper) -> Iterator[str]:
    notes, more = phrases.first(phrases.notes(report), phrases.MOST_REASONS)
    for one in notes:
        yield from paper.prose(f"Note: {one}", hanging=2)
    if more:
        yield more


# --- the list of queues -----------------------------------------------------------------------------


def _queue(queue: QueueFacts, paper: Paper) -> Iterator[str]:
    yield from paper.prose(queue.name, style="strong")
    ready, plan = queue.ready, queue.claim.plan
    facts = [("framework", queue.framework or "none known")]
    facts.extend(("recognised" if not place else "", sign) for place, sign in enumerate(queue.recognised_by))
    facts.append(("ready", f"where {ready.predicate}" if ready.predicate else "condition could not be told"))
    source = f", from {queue.claim.source}" if queue.claim.source else ""
    facts.append(("claim", f"{queue.claim.shape}{source}"))
    if plan is not None:
        index = f"index {plan.index}" if plan.index else "no index"
        buffers = f"{number(plan.buffers)} buffers, " if plan.buffers is not None else ""
        facts.append(("plan", f"{buffers}{index} (--explain {plan.mode})"))
    for label, text in facts:
        yield from paper.labelled(label, text, indent=2, column=QUEUE_LABEL)
    if queue.claim.sql is not None:
        yield ""
        shown = statement(queue.claim.sql)
        pretty = wrapped_sql(shown.text, width=paper.width - 4)
        yield from _statement(CleanSql(text=pretty, complete=shown.complete), 4, paper)
