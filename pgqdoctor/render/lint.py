"""Faults in .sql files as text, one line each that editors and logs can follow, and as JSON."""

from __future__ import annotations

from collections.abc import Iterator

from pgqdoctor.lint.engine import LintFinding, LintReport
from pgqdoctor.render.clean import one_line, statement
from pgqdoctor.render.jsonout import written
from pgqdoctor.render.quantities import counted
from pgqdoctor.render.text import NARROWEST, WIDEST, Paper


def render_json(report: LintReport) -> str:
    """Write the faults as indented JSON."""
    return written(report)


def render_text(report: LintReport, *, files: int, color: bool, width: int) -> str:
    """Write the faults as "file:line:column: severity: title [check]", each with its reason and the cure."""
    paper = Paper(width=min(max(width, NARROWEST), WIDEST), color=color)
    blocks = ["\n".join(_finding(one, paper)) for one in report.findings]
    if report.unparsed:
        blocks.append(
            "\n".join(
                f"{one_line(one.file)}:{one.line}: not read: {one_line(one.error)}" for one in report.unparsed
            )
        )
    found = counted(len(report.findings), "finding") if report.findings else "no finding"
    unread = f", {counted(len(report.unparsed), 'statement')} not read" if report.unparsed else ""
    blocks.append(f"{counted(files, 'file')}: {found}{unread}")
    return "\n\n".join(blocks) + "\n"


def _finding(one: LintFinding, paper: Paper) -> Iterator[str]:
    severity = paper.styled(one.severity, one.severity)
    # Never wrapped: editors and logs look for the place at the beginning of a line.
    yield f"{one_line(one.file)}:{one.line}:{one.column}: {severity}: {one_line(one.title)} [{one.check}]"
    yield from paper.prose(one.why, indent=4)
    for remedy in one.remedies:
        yield from paper.prose(f"{remedy.title}: {remedy.expect}", indent=4, style="strong")
        for text in remedy.sql:
            if text.startswith("SET lock_timeout"):
                continue
            for line in statement(text).lines():
                yield f"      {paper.styled('sql', line)}"
