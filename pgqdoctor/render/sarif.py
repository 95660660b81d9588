"""Findings as SARIF 2.1.0, the format that code scanning and collections of findings read.

https://docs.oasis-open.org/sarif/sarif/v2.1.0/sarif-v2.1.0.html
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import PurePath
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote

import msgspec

from pgqdoctor import __version__
from pgqdoctor.render import ci, phrases
from pgqdoctor.render.clean import one_line
from pgqdoctor.render.jsonout import written

if TYPE_CHECKING:
    from pgqdoctor.check import Check
    from pgqdoctor.lint.engine import LintReport
    from pgqdoctor.render import Asked
    from pgqdoctor.report import Report, ReportedFinding

SCHEMA: Final = "https://json.schemastore.org/sarif-2.1.0.json"
FINGERPRINT: Final = "pgqdoctorFinding/v1"
ROOT: Final = "%SRCROOT%"
"""What readers take for the root of the checkout."""

_UTC: Final = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z")
_LINK: Final = re.compile(r"\](?=\()")


def render_report(report: Report, *, asked: Asked) -> str:
    """Write the report as one run: a result per finding, a notification per check that could not look or crashed."""
    return written(report_log(report, ci.checks_run(asked)))


def render_lint(report: LintReport, *, files: Sequence[str], asked: Asked, color: bool, width: int) -> str:
    """Write what lint found as one run: a result per fault, a notification per text that was not read."""
    return written(lint_log(report, tuple(one for one in ci.checks_run(asked) if one.lint is not None)))


def report_log(report: Report, checks: Sequence[Check]) -> dict[str, Any]:
    """Return the log of a report; ``checks`` are those that ran."""
    mentioned = (*(one.check for one in report.findings), *(one.check for one in report.skipped))
    rules = _rules(checks, (*mentioned, *(one.check for one in report.crashed)))
    place = {rule["id"]: number for number, rule in enumerate(rules)}
    found = {one.key: one for one in report.findings}
    invocation: dict[str, Any] = {
        "executionSuccessful": not report.crashed,
        "toolExecutionNotifications": list(_unseen(report, place)),
    }
    if _UTC.fullmatch(report.generated_at):
        invocation["endTimeUtc"] = report.generated_at
    run = _run(
        report.tool.version,
        rules,
        invocation,
        f"pgqdoctor/report/{quote(_whole(report.server.database), '')}/",
    )
    run["results"] = [_result(one, found, report, place[one.check]) for one in report.findings]
    run["properties"] = {
        "verdict": report.verdict,
        "server": msgspec.to_builtins(report.server),
        "window": msgspec.to_builtins(report.window),
        "queues": [one.name for one in report.queues],
        "notes": list(report.notes),
    }
    return _log(run)


def lint_log(report: LintReport, checks: Sequence[Check]) -> dict[str, Any]:
    """Return the log of what lint found; ``checks`` are those that ran."""
    rules = _rules(checks, tuple(one.check for one in report.findings))
    place = {rule["id"]: number for number, rule in enumerate(rules)}
    notifications = [
        {
            "level": "warning",
            "message": {"text": _message(f"not read: {one.error}")},
            "locations": [_in_file(one.file, one.line, None)],
        }
        for one in report.unparsed
    ]
    invocation = {"executionSuccessful": True, "toolExecutionNotifications": notifications}
    run = _run(__version__, rules, invocation, "pgqdoctor/lint/")
    before: Counter[tuple[str, str, str]] = Counter()
    results = []
    for one in report.findings:
        # Lines move from commit to commit, so they are no part of what a fault is known by.
        same = (one.check, one.file, one.title)
        before[same] += 1
        results.append(
            {
                "ruleId": one.check,
                "ruleIndex": place[one.check],
                "level": ci.LEVELS[one.severity],
                "message": {"text": _message(f"{one.title}. {one.why}")},
                "locations": [_in_file(one.file, one.line, one.column)],
                "partialFingerprints": {FINGERPRINT: ":".join((*same, str(before[same])))},
                "properties": {"remedies": msgspec.to_builtins(one.remedies)},
            }
        )
    run["results"] = results
    return _log(run)


def _log(run: dict[str, Any]) -> dict[str, Any]:
    return {"$schema": SCHEMA, "version": "2.1.0", "runs": [run]}


def _run(version: str, rules: list[dict[str, Any]], invocation: dict[str, Any], id_: str) -> dict[str, Any]:
    return {
        "tool": {"driver": {"name": "pgqdoctor", "version": version or __version__, "rules": rules}},
        "automationDetails": {"id": id_},
        "columnKind": "unicodeCodePoints",
        "invocations": [invocation],
    }


def _rules(checks: Sequence[Check], mentioned: Sequence[str]) -> list[dict[str, Any]]:
    """The checks that ran, and of those that the report names the ones that no longer exist, by their ids alone."""
    known = {one.id for one in checks}
    return [
        *(_rule(one) for one in checks),
        *({"id": id_} for id_ in dict.fromkeys(mentioned) if id_ not in known),
    ]


def _rule(check: Check) -> dict[str, Any]:
    paragraphs = [" ".join(one.split()) for one in check.documentation.split("\n\n")]
    alike = ["It does not speak about:", *(f"- {' '.join(one.split())}" for one in check.look_alikes)]
    see = [f"See <{address}>" for address in check.references]
    listed = "\n".join(alike) if check.look_alikes else ""
    rule: dict[str, Any] = {
        "id": check.id,
        "shortDescription": {"text": _escaped(check.title)},
        "fullDescription": {"text": _escaped(paragraphs[0])},
        "help": {
            "text": _escaped("\n\n".join((*paragraphs, *filter(None, [listed])))),
            "markdown": _escaped("\n\n".join((*paragraphs, *filter(None, [listed]), *see))),
        },
        # Severity follows the harm that was measured: each result has its own.
        "defaultConfiguration": {"level": "warning"},
        "properties": {"tags": ["postgresql", "queue" if check.scope == "queue" else "server"]},
    }
    if check.references:
        rule["helpUri"] = check.references[0]
    return rule


def _result(
    finding: ReportedFinding, found: dict[str, ReportedFinding], report: Report, place: int
) -> dict[str, Any]:
    result: dict[str, Any] = {
        "ruleId": finding.check,
        "ruleIndex": place,
        "level": ci.LEVELS[finding.severity],
        "message": {"text": _message(f"{finding.title}. {finding.why}")},
        "locations": [_in_database(finding.queue, report)],
        "partialFingerprints": {FINGERPRINT: finding.key},
        "properties": {
            "severity": finding.severity,
            "queue": finding.queue,
            "causedBy": list(finding.caused_by),
            "evidence": msgspec.to_builtins(finding.evidence),
            "remedies": msgspec.to_builtins(finding.remedies),
        },
    }
    causes = [
        {
            "id": number,
            **_in_database(found[key].queue if key in found else finding.queue, report),
            "message": {"text": _message(f"because of: {found[key].title if key in found else key}")},
        }
        for number, key in enumerate(finding.caused_by)
    ]
    if causes:
        result["relatedLocations"] = causes
    return result


def _unseen(report: Report, place: dict[str, int]) -> Iterator[dict[str, Any]]:
    """A check that could not look has found nothing, and is not to be taken for one that looked."""
    for crash in ci.crashes(report):
        yield {
            "level": "error",
            "message": {"text": _message(f"{crash.check} crashed: {crash.error}")},
            "associatedRule": {"id": crash.check, "index": place[crash.check]},
            "locations": [_in_database(crash.queue, report)],
        }
    for one in report.skipped:
        grant = f"; to see it: {one.grant}" if one.grant else ""
        yield {
            "level": "warning",
            "message": {"text": _message(f"{one.check} could not look: {one.reason}{grant}")},
            "associatedRule": {"id": one.check, "index": place[one.check]},
            "locations": [_in_database(one.queue, report)],
        }
    for note in phrases.notes(report):
        yield {"level": "note", "message": {"text": _message(note)}}


def _in_database(queue: str | None, report: Report) -> dict[str, Any]:
    name, kind = (queue, "table") if queue is not None else (report.server.database, "database")
    return {"logicalLocations": [{"fullyQualifiedName": one_line(name), "kind": kind}]}


def _in_file(file: str, line: int, column: int | None) -> dict[str, Any]:
    path = PurePath(file)
    encoded = quote(_whole(path.as_posix()))
    artifact: dict[str, str]
    if path.is_absolute():
        artifact = {"uri": f"file://{'' if encoded.startswith('/') else '/'}{encoded}"}
    elif ".." in path.parts:
        artifact = {"uri": encoded}
    else:
        artifact = {"uri": encoded, "uriBaseId": ROOT}
    region = {"startLine": line} if column is None else {"startLine": line, "startColumn": column}
    return {"physicalLocation": {"artifactLocation": artifact, "region": region}}


def _whole(text: str) -> str:
    """The text without halves of surrogate pairs, which no address can hold."""
    return text.encode(errors="replace").decode()


def _message(text: str) -> str:
    """A message on one line in which no name is a link, and no brace the place of an argument."""
    # A zero-width space: between "]" and "(" it leaves two letters where a reader would see a link.
    return _escaped(_LINK.sub("]\u200b", one_line(text)))


def _escaped(text: str) -> str:
    return text.replace("{", "{{").replace("}", "}}")
