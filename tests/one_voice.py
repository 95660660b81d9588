"""What every output says of one observation must agree: report, triage, fix and knobs. A list of what does not."""

from __future__ import annotations

from collections.abc import Iterator

from pgqdoctor import avoid
from pgqdoctor.decisions import decision
from pgqdoctor.finding import Remedy
from pgqdoctor.observation import Observation
from pgqdoctor.render.script import fix_script
from pgqdoctor.render.text import render_report
from pgqdoctor.report import Report
from pgqdoctor.sqlremedy import built_index
from pgqdoctor.sqltext import split
from pgqdoctor.steps import Treatment, treatment
from pgqdoctor.triage import Triage, build_triage, with_what_comes_after

OPAQUE = ("~", " * ", "corner")
"""Signs that only a reader of the source understands."""


def disagreements(seen: Observation) -> list[str]:
    """Return in words each place where two outputs of the observation contradict each other."""
    report, later_on = with_what_comes_after(seen)
    oncall = build_triage(seen, report, later_on)
    return [
        *_forbidden(oncall),
        *_far(oncall),
        *_unfixed(report),
        *_unprinted(oncall, treatment(report, later_on=later_on)),
        *_unasked(report),
        *_indexes(report),
        *_left(report),
        *_acting(report),
        *_opaque(report),
    ]


def _forbidden(oncall: Triage) -> Iterator[str]:
    for one in oncall.avoid:
        for step in oncall.steps:
            if avoid.forbids(one.what, step.sql, step.title) and (not one.until or step.number == 1):
                yield f"triage says not to {one.what}, and step {step.number} is {step.title}"


def _far(oncall: Triage) -> Iterator[str]:
    if oncall.root is None and oncall.forecasts:
        yield f"triage foretells {oncall.forecasts[0].what} where nothing is wrong"


def _unfixed(report: Report) -> Iterator[str]:
    printed = {step.remedy.sql for step in treatment(report).steps}
    for queue in report.queues:
        for remedy in queue.triangle.recommendation.remedies if queue.triangle is not None else ():
            if remedy.sql not in printed:
                yield f"the knobs of {queue.name} recommend {remedy.title}, and fix does not print it"


def _unprinted(oncall: Triage, steps: Treatment) -> Iterator[str]:
    printed = {step.remedy.sql for step in steps.steps}
    yield from (
        f"triage's step {one.number} is {one.title}, and fix does not print it"
        for one in oncall.steps
        if one.sql and one.sql not in printed
    )


def _unasked(report: Report) -> Iterator[str]:
    asked = {(one.queue, one.check) for one in report.findings}
    for queue in report.queues:
        for knob in queue.triangle.knobs if queue.triangle is not None else ():
            if (
                knob.name == "autovacuum"
                and knob.verdict == "change"
                and (queue.name, "autovacuum-settings") not in asked
            ):
                yield f"the knobs of {queue.name} would change autovacuum to {knob.computed}, and no finding does"


def _indexes(report: Report) -> Iterator[str]:
    known: dict[str, str] = {}
    for remedy in _remedies(report):
        for sql in remedy.sql:
            made = built_index(sql)
            if made is not None and known.setdefault(made.name, sql) != sql:
                yield f"index {made.name} is defined twice: {known[made.name]} and {sql}"


def _left(report: Report) -> Iterator[str]:
    for queue in report.queues:
        if queue.triangle is None or queue.triangle.recommendation.action != "leave":
            continue
        for one in report.findings:
            for sql in (sql for remedy in one.remedies for sql in remedy.sql if one.queue == queue.name):
                made = built_index(sql)
                if made is not None and f"{made.schema}.{made.table}" == queue.name:
                    yield f"the knobs of {queue.name} leave all as it is, and {one.check} asks for {sql}"


def _remedies(report: Report) -> Iterator[Remedy]:
    for finding in report.findings:
        yield from finding.remedies
    for queue in report.queues:
        if queue.triangle is not None:
            yield from queue.triangle.recommendation.remedies


def _acting(report: Report) -> Iterator[str]:
    script = fix_script(report, treatment(report)).replace("\\gexec", ";")
    for piece in split(script):
        if said := decision((piece.text,)):
            yield f"fix runs {piece.text} by itself, although {said}"


def _opaque(report: Report) -> Iterator[str]:
    text = render_report(report, color=False, width=100)
    knobs = text.partition("\nKnobs of ")[2].partition("\nNot looked at")[0]
    # Statements of remedies may hold any sign.
    said = "\n".join(line for line in knobs.splitlines() if not line.startswith("     "))
    yield from (f"the knobs' text holds {sign!r}" for sign in OPAQUE if sign in said)
