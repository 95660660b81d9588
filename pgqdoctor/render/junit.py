"""Findings as JUnit XML, which build servers show as tests: a suite per queue, a test case per check that was to look.

A finding from ``--fail-on`` upwards is a failure, a milder one stands in the output of a case that passed. A check that could
not look is skipped, one that raised is an error: neither has passed.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final
from xml.etree import ElementTree

from pgqdoctor.render import ci, phrases
from pgqdoctor.render.clean import one_line
from pgqdoctor.render.quantities import quantity

if TYPE_CHECKING:
    from pgqdoctor.lint.engine import LintFinding, LintReport
    from pgqdoctor.render import Asked
    from pgqdoctor.report import Report, ReportedFinding

SERVER: Final = "server"
"""Suite of the checks that look at the whole server."""
LOOKED_FOR: Final = "queues"
"""Case of the search for queues itself."""
READ: Final = "read"
"""Case of a file's being read at all."""

_ILLEGAL: Final = re.compile("[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
"""What XML 1.0 cannot hold, not even escaped."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One test case: at most one of ``failure``, ``error`` and ``skipped``, each a headline with the lines below it."""

    name: str
    failure: tuple[str, ...] = ()
    error: tuple[str, ...] = ()
    skipped: tuple[str, ...] = ()
    output: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Suite:
    """One test suite; ``output`` is said of it as a whole."""

    name: str
    cases: tuple[Case, ...]
    output: tuple[str, ...] = ()


def render_report(report: Report, *, asked: Asked) -> str:
    """Write a suite for the server and one per queue, with a case for each check that was to look there."""
    about = {
        "verdict": phrases.verdict_word(report),
        "looked": phrases.looked_at(report),
        "seen": phrases.observed(report),
    }
    return _written(
        _suites(report, asked), seconds=report.window.seconds, at=report.generated_at, about=about
    )


def render_lint(report: LintReport, *, files: Sequence[str], asked: Asked, color: bool, width: int) -> str:
    """Write a suite per file, with a case for each check that reads files."""
    checks = [one.id for one in ci.checks_run(asked) if one.lint is not None]
    suites = [_file(file, checks, report, asked) for file in dict.fromkeys(files)]
    return _written(suites, seconds=0.0, at="", about={})


# --- the report -------------------------------------------------------------------------------------


def _suites(report: Report, asked: Asked) -> Iterator[Suite]:
    checks = ci.checks_run(asked)
    crashed = ci.crashes(report)
    names = [one.name for one in report.queues]
    # What speaks of no queue that is known, or of none at all, stands with the server.
    strays = [
        *(one.check for one in report.findings if one.queue not in names),
        *(one.check for one in report.skipped if one.queue not in names),
        *(one.check for one in crashed if one.queue not in names),
    ]
    everywhere = [*(one.id for one in checks if one.scope == "server"), *strays]
    looked = Case(name=LOOKED_FOR, output=tuple(one_line(name) for name in names))
    if not names:
        reasons = phrases.notes(report) or (phrases.verdict_found(report),)
        looked = Case(name=LOOKED_FOR, skipped=tuple(one_line(one) for one in reasons))
    cases = (_case(id_, None, report, crashed, asked) for id_ in dict.fromkeys(everywhere))
    yield Suite(
        name=SERVER,
        cases=(looked, *cases),
        output=tuple(one_line(note) for note in phrases.notes(report)),
    )
    # A check that is amiss without a queue's name may have been amiss on each of them: it has passed on none.
    unclear = {
        *(one.check for one in report.skipped if one.queue is None),
        *(one.check for one in crashed if one.queue is None),
    }
    for name in names:
        here = [
            *(one.id for one in checks if one.scope == "queue" and one.id not in unclear),
            *(one.check for one in report.findings if one.queue == name),
            *(one.check for one in report.skipped if one.queue == name),
            *(one.check for one in crashed if one.queue == name),
        ]
        yield Suite(
            name=one_line(name),
            cases=tuple(_case(id_, name, report, crashed, asked) for id_ in dict.fromkeys(here)),
        )


def _case(id_: str, queue: str | None, report: Report, crashed: Sequence[ci.Crash], asked: Asked) -> Case:
    names = {one.name for one in report.queues}

    def here(other: str | None) -> bool:
        return other == queue if queue is not None else other not in names

    titles = {one.key: one.title for one in report.findings}
    found = [one for one in report.findings if one.check == id_ and here(one.queue)]
    failing = [one for one in found if ci.reaches(one.severity, asked.fail_on)]
    milder = tuple(line for one in found if one not in failing for line in _told(one, titles))
    broken = [one for one in crashed if one.check == id_ and here(one.queue)]
    unseen = [one for one in report.skipped if one.check == id_ and here(one.queue)]
    errors = tuple(one_line(one.error) for one in broken)
    reasons = tuple(
        one_line(one.reason + (f"; to see it: {one.grant}" if one.grant else "")) for one in unseen
    )
    if failing:
        lines = tuple(line for one in failing for line in _told(one, titles))
        return Case(name=id_, failure=lines, output=(*milder, *errors, *reasons))
    if errors:
        return Case(name=id_, error=errors, output=(*milder, *reasons))
    return Case(name=id_, skipped=reasons, output=milder)


def _told(finding: ReportedFinding, titles: dict[str, str]) -> Iterator[str]:
    yield one_line(f"{finding.severity}: {finding.title}")
    for one in finding.evidence:
        yield one_line(f"{one.what}: {quantity(one.value, one.unit)} ({one.source})")
    yield from ci.told(finding, titles)


# --- lint -------------------------------------------------------------------------------------------


def _file(file: str, checks: Sequence[str], report: LintReport, asked: Asked) -> Suite:
    unread = [one for one in report.unparsed if one.file == file]
    read = Case(name=READ, skipped=tuple(one_line(f"line {one.line}: {one.error}") for one in unread))
    cases = [read]
    for id_ in checks:
        found = [one for one in report.findings if one.file == file and one.check == id_]
        failing = [one for one in found if ci.reaches(one.severity, asked.fail_on)]
        cases.append(
            Case(
                name=id_,
                failure=tuple(line for one in failing for line in _fault(one)),
                output=tuple(line for one in found if one not in failing for line in _fault(one)),
            )
        )
    return Suite(name=one_line(file), cases=tuple(cases))


def _fault(one: LintFinding) -> Iterator[str]:
    yield one_line(f"{one.file}:{one.line}:{one.column}: {one.severity}: {one.title}")
    yield one_line(one.why)
    yield from ci.remedies_told(one.remedies)


# --- XML --------------------------------------------------------------------------------------------


def _written(suites: Iterable[Suite], *, seconds: float, at: str, about: dict[str, str]) -> str:
    root = ElementTree.Element("testsuites", {"name": "pgqdoctor"})
    totals = dict.fromkeys(("tests", "failures", "errors", "skipped"), 0)
    # The schemas know no time zone; the time is UTC.
    started = at.removesuffix("Z") if re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", at) else ""
    for suite in suites:
        counts = {
            "tests": len(suite.cases),
            "failures": sum(1 for one in suite.cases if one.failure),
            "errors": sum(1 for one in suite.cases if one.error),
            "skipped": sum(1 for one in suite.cases if one.skipped),
        }
        for key, count in counts.items():
            totals[key] += count
        attributes = {"name": _legal(suite.name), **{key: str(count) for key, count in counts.items()}}
        attributes["time"] = f"{seconds:.3f}"
        if started:
            attributes["timestamp"] = started
        element = ElementTree.SubElement(root, "testsuite", attributes)
        if about:
            properties = ElementTree.SubElement(element, "properties")
            for key, value in about.items():
                said = {"name": key, "value": _legal(one_line(value))}
                ElementTree.SubElement(properties, "property", said)
        for case in suite.cases:
            _add(element, suite.name, case)
        _output(element, suite.output)
    root.attrib.update({key: str(count) for key, count in totals.items()})
    ElementTree.indent(root)
    text = ElementTree.tostring(root, encoding="unicode")
    return f'<?xml version="1.0" encoding="UTF-8"?>\n{text}\n'


def _add(suite: ElementTree.Element, name: str, case: Case) -> None:
    attributes = {"classname": _legal(f"pgqdoctor.{name}"), "name": _legal(one_line(case.name)), "time": "0"}
    element = ElementTree.SubElement(suite, "testcase", attributes)
    for tag, lines in (("failure", case.failure), ("error", case.error), ("skipped", case.skipped)):
        if lines:
            said = {"message": _legal(lines[0])}
            if tag != "skipped":
                said["type"] = _legal(one_line(case.name))
            ElementTree.SubElement(element, tag, said).text = _legal("\n".join(lines))
    _output(element, case.output)


def _output(element: ElementTree.Element, lines: Sequence[str]) -> None:
    if lines:
        ElementTree.SubElement(element, "system-out").text = _legal("\n".join(lines))


def _legal(text: str) -> str:
    return _ILLEGAL.sub("", text)
