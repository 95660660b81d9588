"""Running the checks over .sql files. Pure: the files are given as text."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Final

from pgqdoctor.check import Check
from pgqdoctor.finding import Remedy, Severity, worst
from pgqdoctor.lint.flaws import Flaw
from pgqdoctor.lint.program import Unparsed, read_program
from pgqdoctor.lint.sources import Source, read_source
from pgqdoctor.registry import all_checks

SCHEMA: Final = "pgqdoctor.lint/1"


@dataclass(frozen=True, slots=True, kw_only=True)
class LintFinding:
    """One fault in a file; line and column count from 1."""

    check: str
    severity: Severity
    file: str
    line: int
    column: int
    title: str
    why: str
    remedies: tuple[Remedy, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class LintReport:
    """What the files hold: the contract's JSON, field by field. ``unparsed`` is text that could not be read."""

    schema: str = SCHEMA
    findings: tuple[LintFinding, ...]
    unparsed: tuple[Unparsed, ...]

    @property
    def verdict(self) -> Severity | None:
        """The worst severity, None without findings."""
        return worst([one.severity for one in self.findings])


def lint(
    files: Collection[tuple[str, str]],
    *,
    only: Collection[str] = (),
    ignore: Collection[str] = (),
    checks: Collection[Check] | None = None,
) -> LintReport:
    """Run the checks that need no server over files, given as (name, text). Findings come in the order of the files."""
    sources = tuple(read_source(name, text) for name, text in files)
    program = read_program(sources)
    found: list[tuple[tuple[int, int, str], LintFinding]] = []
    for check in all_checks() if checks is None else checks:
        if check.lint is None or (only and check.id not in only) or check.id in ignore:
            continue
        for flaw in check.lint(program):
            line, column = flaw.source.place(flaw.offset)
            if _suppressed(check.id, flaw, line):
                continue
            finding = LintFinding(
                check=check.id,
                severity=flaw.severity,
                file=flaw.source.name,
                line=line,
                column=column,
                title=flaw.title,
                why=flaw.why,
                remedies=flaw.remedies,
            )
            found.append(((_position(sources, flaw.source), flaw.offset, check.id), finding))
    found.sort(key=lambda one: one[0])
    return LintReport(findings=tuple(dict.fromkeys(one for _, one in found)), unparsed=program.unparsed)


def _suppressed(check: str, flaw: Flaw, line: int) -> bool:
    if flaw.source.suppressed(check, line, flaw.last_line):
        return True
    return flaw.definition is not None and flaw.source.suppressed(check, flaw.definition, flaw.definition)


def _position(sources: tuple[Source, ...], source: Source) -> int:
    return next(place for place, one in enumerate(sources) if one is source)
