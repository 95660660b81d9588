"""Screen 2: one finding in full, as the report has it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pgqdoctor.finding import Remedy
from pgqdoctor.render import phrases
from pgqdoctor.render.clean import one_line, statement
from pgqdoctor.render.quantities import quantity
from pgqdoctor.report import Report, ReportedFinding


@dataclass(frozen=True, slots=True, kw_only=True)
class RemedyView:
    """One way out. ``sql`` and ``undo`` are lines that are safe to show and to paste."""

    title: str
    kind: str
    takes: str
    risk: str
    expect: str
    sql: tuple[str, ...]
    undo: tuple[str, ...]
    no_undo: bool

    @property
    def copied(self) -> str:
        """What the copy key hands over: the statements, each ended."""
        return "\n".join(self.sql) + "\n" if self.sql else ""


@dataclass(frozen=True, slots=True, kw_only=True)
class FindingView:
    """One finding."""

    key: str
    check: str
    severity: str
    queue: str
    title: str
    why: str
    causes: tuple[str, ...]
    effects: tuple[str, ...]
    evidence: tuple[tuple[str, str, str], ...]
    remedies: tuple[RemedyView, ...]


def finding_views(report: Report) -> tuple[FindingView, ...]:
    """Return the findings in the report's order."""
    titles = {one.key: one_line(one.title) for one in report.findings}
    return tuple(_view(one, report, titles) for one in report.findings)


def remedied_cause(finding: FindingView, findings: Sequence[FindingView]) -> FindingView | None:
    """Return the nearest cause of a finding that has statements to copy, None where there is none."""
    by_title = {one.title: one for one in findings}
    near, seen = list(finding.causes), {finding.title}
    for title in near:
        cause = by_title.get(title)
        if cause is None or title in seen:
            continue
        if any(remedy.sql for remedy in cause.remedies):
            return cause
        seen.add(title)
        near.extend(cause.causes)
    return None


def _view(one: ReportedFinding, report: Report, titles: dict[str, str]) -> FindingView:
    return FindingView(
        key=one.key,
        check=one.check,
        severity=one.severity,
        queue=one_line(one.queue or "the whole server"),
        title=titles[one.key],
        why=one_line(one.why),
        causes=tuple(titles[key] for key in one.caused_by if key in titles),
        effects=tuple(titles[other.key] for other in report.findings if one.key in other.caused_by),
        evidence=tuple(
            (one_line(part.what), one_line(quantity(part.value, part.unit)), one_line(part.source))
            for part in one.evidence
        ),
        remedies=tuple(_remedy(remedy) for remedy in one.remedies),
    )


def _remedy(remedy: Remedy) -> RemedyView:
    return RemedyView(
        title=one_line(remedy.title),
        kind=phrases.KINDS[remedy.kind],
        takes=phrases.remedy_takes(remedy),
        risk=one_line(remedy.risk),
        expect=one_line(remedy.expect),
        sql=_lines(remedy.sql),
        undo=_lines(remedy.undo),
        no_undo=phrases.has_no_undo(remedy),
    )


def _lines(statements: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(line for one in statements for line in statement(one).lines())
