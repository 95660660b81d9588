"""The report as Markdown: for pull requests, tickets and incident notes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from pgqdoctor.finding import Remedy
from pgqdoctor.render import phrases
from pgqdoctor.render.clean import statement
from pgqdoctor.render.escape import code, sql_block, table, text
from pgqdoctor.render.quantities import quantity
from pgqdoctor.report import Report, ReportedFinding


def render_report(report: Report, *, color: bool, width: int) -> str:
    """Write the report as Markdown; paragraphs are not wrapped, since Markdown flows."""
    lines = [
        *_head(report),
        *_findings(report),
        *_crashed(report),
        *_queues(report),
        *_knobs(report),
        *_not_seen(report),
        *_notes(report),
        f"_{text(phrases.observed(report))}_",
    ]
    return "\n".join(lines) + "\n"


def _head(report: Report) -> Iterator[str]:
    yield f"# pgqdoctor: {phrases.verdict_word(report).lower()}"
    yield ""
    found = phrases.verdict_found(report)
    yield text(f"{found[0].upper()}{found[1:]} {phrases.looked_at(report)}.")
    yield ""
    if gap := phrases.gaps(report):
        yield f"**{text(gap)}**"
        yield ""


def _findings(report: Report) -> Iterator[str]:
    findings, more = phrases.first(report.findings, phrases.MOST_FINDINGS)
    numbers = {one.key: place for place, one in enumerate(report.findings, 1)}
    titles = {one.key: one.title for one in report.findings}
    for one in findings:
        causes = [
            f"Because of {numbers[key]}: {titles[key]}" if key in titles else f"Because of: {key}"
            for key in one.caused_by
        ]
        yield from _finding(one, numbers[one.key], causes)
    if more:
        yield from (text(more), "")


def _finding(finding: ReportedFinding, place: int, causes: Sequence[str]) -> Iterator[str]:
    yield f"## {place}. {finding.severity.upper()}: {text(finding.title)}"
    yield ""
    yield code(finding.check) + (f" on {code(finding.queue)}" if finding.queue is not None else "")
    yield ""
    for cause in causes:
        yield from (f"> {text(cause)}", "")
    yield text(finding.why)
    yield ""
    if finding.evidence:
        evidence, more = phrases.first(finding.evidence, phrases.MOST_EVIDENCE)
        yield from table(
            phrases.EVIDENCE_HEADERS,
            [(text(one.what), text(quantity(one.value, one.unit)), text(one.source)) for one in evidence],
        )
        yield ""
        if more:
            yield from (text(more), "")
    for number, remedy in enumerate(finding.remedies, 1):
        yield from _remedy(remedy, number)


def _remedy(remedy: Remedy, place: int) -> Iterator[str]:
    yield f"**Remedy {place} ({phrases.KINDS[remedy.kind]}): {text(remedy.title)}**"
    yield ""
    if remedy.sql:
        yield from sql_block([statement(one) for one in remedy.sql])
        yield ""
    facts = [
        f"- {label}: {text(said)}"
        for label, said in (
            ("Lock", phrases.remedy_takes(remedy)),
            ("Risk", remedy.risk),
            ("Expect", remedy.expect),
            ("Undo", "none" if phrases.has_no_undo(remedy) else ""),
        )
        if said
    ]
    if facts:
        yield from (*facts, "")
    if remedy.undo:
        yield from ("To undo it:", "", *sql_block([statement(one) for one in remedy.undo]), "")


def _crashed(report: Report) -> Iterator[str]:
    if not report.crashed:
        return
    crashed, more = phrases.first(report.crashed, phrases.MOST_REASONS)
    yield "## Crashed"
    yield ""
    yield "These checks failed and say nothing; please report them."
    yield ""
    yield from (f"- {code(one.check)}: {text(one.error)}" for one in crashed)
    yield from _rest(more)


def _queues(report: Report) -> Iterator[str]:
    if not report.queues:
        return
    queues, more = phrases.first(report.queues, phrases.MOST_QUEUES)
    rows = [phrases.queue_row(one) for one in queues]
    yield "## Queues"
    yield ""
    yield from table(
        phrases.QUEUE_HEADERS,
        [(code(name), *(text(cell) for cell in cells)) for name, *cells in rows],
        right=range(1, len(phrases.QUEUE_HEADERS)),
    )
    yield ""
    if more:
        yield from (text(more), "")


def _knobs(report: Report) -> Iterator[str]:
    """Where each queue stands between claim index, fillfactor and heap-only updates, and the one thing to do."""
    known = [(one.name, one.triangle) for one in report.queues if one.triangle is not None]
    shown, _ = phrases.first(known, phrases.MOST_QUEUES)
    if not shown:
        return
    printed = {remedy.sql for finding in report.findings for remedy in finding.remedies}
    numbers = {one.key: place for place, one in enumerate(report.findings, 1)}
    yield "## Knobs"
    yield ""
    for name, triangle in shown:
        yield f"### {code(name)}"
        yield ""
        rows = [phrases.design_row(one) for one in triangle.corners if one.why_not is None]
        yield from table(
            phrases.DESIGN_HEADERS,
            [tuple(text(cell) for cell in row) for row in rows],
            right=range(1, len(phrases.DESIGN_HEADERS)),
        )
        yield ""
        yield text(phrases.DESIGN_LEGEND)
        yield ""
        asked = phrases.asked_for(triangle.recommendation, numbers)
        said = f"{text(triangle.recommendation.reason)}. {text(asked)}".rstrip()
        yield f"**{text(triangle.recommendation.title)}**: {said}"
        yield ""
        for knob in triangle.knobs:
            if phrases.turned(knob):
                yield f"- {text(phrases.knob_line(knob, triangle.recommendation))}"
                yield from (f"  - {text(line)}" for line in knob.arithmetic)
        if any(phrases.turned(knob) for knob in triangle.knobs):
            yield ""
        for number, remedy in enumerate(triangle.recommendation.remedies, 1):
            # A finding's remedy is the same SQL, and stands above.
            if remedy.sql not in printed:
                yield from _remedy(remedy, number)


def _not_seen(report: Report) -> Iterator[str]:
    groups, more = phrases.first(phrases.not_seen(report), phrases.MOST_REASONS)
    if not groups:
        return
    yield "## Not looked at"
    yield ""
    for one in groups:
        on = f" (on {phrases.named(one.queues, code)})" if one.queues else ""
        grant = f"; to see it: {code(one.grant)}" if one.grant else ""
        yield f"- {phrases.named(one.checks, code)}{on}: {text(one.reason)}{grant}"
    yield from _rest(more)


def _notes(report: Report) -> Iterator[str]:
    notes, more = phrases.first(phrases.notes(report), phrases.MOST_REASONS)
    if not notes:
        return
    yield "## Notes"
    yield ""
    yield from (f"- {text(one)}" for one in notes)
    yield from _rest(more)


def _rest(more: str) -> Iterator[str]:
    """The line below a list that says how many items it lacks, and the empty line after the list."""
    if more:
        yield f"- {text(more)}"
    yield ""
