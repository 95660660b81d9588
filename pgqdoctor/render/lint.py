"""Faults in .sql files as text, one line each that editors and logs can follow, as JSON, and as Markdown for a pull request."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from pgqdoctor.finding import Remedy
from pgqdoctor.lint.engine import LintFinding, LintReport
from pgqdoctor.render import escape
from pgqdoctor.render.clean import one_line, statement
from pgqdoctor.render.jsonout import written
from pgqdoctor.render.quantities import counted
from pgqdoctor.render.text import NARROWEST, WIDEST, Paper

if TYPE_CHECKING:
    from pgqdoctor.render import Asked


def render_json(report: LintReport, *, files: Sequence[str], asked: Asked, color: bool, width: int) -> str:
    """Write the faults as indented JSON."""
    return written(report)


def render_text(report: LintReport, *, files: Sequence[str], asked: Asked, color: bool, width: int) -> str:
    """Write the faults as "file:line:column: severity: title [check]", each with its reason and the cure."""
    paper = Paper(width=min(max(width, NARROWEST), WIDEST), color=color)
    blocks = ["\n".join(_finding(one, paper)) for one in report.findings]
    if report.unparsed:
        blocks.append(
            "\n".join(
                f"{one_line(one.file)}:{one.line}: not read: {one_line(one.error)}" for one in report.unparsed
            )
        )
    blocks.append(summary(report, files))
    return "\n\n".join(blocks) + "\n"


def render_markdown(
    report: LintReport, *, files: Sequence[str], asked: Asked, color: bool, width: int
) -> str:
    """Write the faults with a heading for each, and below it its place, the reason and the cure."""
    lines = ["# pgqdoctor lint", "", f"{summary(report, files)}.", ""]
    for place, one in enumerate(report.findings, 1):
        where = escape.code(f"{one.file}:{one.line}:{one.column}")
        lines += [f"## {place}. {one.severity.upper()}: {escape.text(one.title)}", ""]
        lines += [f"{where} {escape.code(one.check)}", "", escape.text(one.why), ""]
        for remedy in one.remedies:
            lines += [f"**{escape.text(remedy.title)}**: {escape.text(remedy.expect)}", ""]
            lines += [*escape.sql_block([statement(text) for text in _changes(remedy)]), ""]
    if report.unparsed:
        lines += ["## Not read", ""]
        lines += [
            f"- {escape.code(f'{one.file}:{one.line}')}: {escape.text(one.error)}" for one in report.unparsed
        ]
        lines.append("")
    return "\n".join(lines[:-1]) + "\n"


def summary(report: LintReport, files: Sequence[str]) -> str:
    """Return how many files were read and what was found: "2 files: 1 finding, 1 statement not read"."""
    found = counted(len(report.findings), "finding") if report.findings else "no finding"
    unread = f", {counted(len(report.unparsed), 'statement')} not read" if report.unparsed else ""
    return f"{counted(len(files), 'file')}: {found}{unread}"


def _changes(remedy: Remedy) -> list[str]:
    """The statements without the timeout before them, which a file of migrations sets once."""
    return [text for text in remedy.sql if not text.startswith("SET lock_timeout")]


def _finding(one: LintFinding, paper: Paper) -> Iterator[str]:
    severity = paper.styled(one.severity, one.severity)
    # Never wrapped: editors and logs look for the place at the beginning of a line.
    yield f"{one_line(one.file)}:{one.line}:{one.column}: {severity}: {one_line(one.title)} [{one.check}]"
    yield from paper.prose(one.why, indent=4)
    for remedy in one.remedies:
        yield from paper.prose(f"{remedy.title}: {remedy.expect}", indent=4, style="strong")
        for text in _changes(remedy):
            for line in statement(text).lines():
                yield f"      {paper.styled('sql', line)}"
