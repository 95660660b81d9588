"""Findings as workflow commands of GitHub Actions: annotations of the run, and of the lines of a pull request.

The runner takes every line of a step's output that begins with ``::`` for a command. Here each finding is one line, and
what stands in it is escaped as the runner undoes it: %, carriage return and newline, in properties also colon and comma.
https://docs.github.com/en/actions/reference/workflow-commands-for-github-actions
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Final

from pgqdoctor.finding import Severity
from pgqdoctor.render import ci, phrases
from pgqdoctor.render.clean import one_line, statement
from pgqdoctor.render.lint import summary

if TYPE_CHECKING:
    from pgqdoctor.lint.engine import LintReport
    from pgqdoctor.render import Asked
    from pgqdoctor.report import Report

COMMANDS: Final[dict[Severity, str]] = {"critical": "error", "warning": "warning", "notice": "notice"}
LONGEST_TITLE: Final = 255
"""Letters: more the API of annotations refuses."""


def render_report(report: Report, *, asked: Asked) -> str:
    """Write one command per finding in causal order, one per crashed check, and the summary."""
    return "\n".join(_report(report, asked)) + "\n"


def render_lint(report: LintReport, *, files: Sequence[str], asked: Asked, color: bool, width: int) -> str:
    """Write one command per fault, at its line, one per statement that was not read, and the summary."""
    return "\n".join(_lint(report, files, asked)) + "\n"


def command(name: str, message: Iterable[str], properties: dict[str, str]) -> str:
    """Return one command; ``message`` are clean lines, values of properties may hold anything."""
    inside = ",".join(f"{key}={_property(key, value)}" for key, value in properties.items())
    return f"::{name} {inside}::{_data(chr(10).join(message))}"


def _report(report: Report, asked: Asked) -> Iterator[str]:
    titles = {one.key: one.title for one in report.findings}
    for one in report.findings:
        where = one.queue if one.queue is not None else f"database {report.server.database}"
        message = (one_line(one.title), *ci.told(one, titles))
        yield command(COMMANDS[one.severity], message, {"title": f"{one.check} on {where}"})
    for crash in report.crashed:
        message = (one_line(crash.error), "The check failed and says nothing; please report it.")
        yield command("warning", message, {"title": f"{crash.check} crashed"})
    says = [one_line(f"{phrases.verdict_found(report)} {phrases.looked_at(report)}"), _fails(asked)]
    for group in phrases.not_seen(report):
        on = f" (on {phrases.named(group.queues)})" if group.queues else ""
        grant = f"; to see it: {group.grant}" if group.grant else ""
        says.append(one_line(f"Not looked at: {', '.join(group.checks)}{on}: {group.reason}{grant}"))
    says.extend(one_line(note) for note in phrases.notes(report))
    word = phrases.verdict_word(report).lower()
    yield command("notice", says, {"title": f"{report.tool.name}: {word}"})


def _lint(report: LintReport, files: Sequence[str], asked: Asked) -> Iterator[str]:
    for one in report.findings:
        place = {"file": one.file, "line": str(one.line), "col": str(one.column), "title": one.check}
        message = (one_line(one.title), one_line(one.why), *ci.remedies_told(one.remedies))
        yield command(COMMANDS[one.severity], message, place)
    for unread in report.unparsed:
        place = {"file": unread.file, "line": str(unread.line), "title": "not read"}
        yield command("warning", (one_line(unread.error),), place)
    yield command("notice", (summary(report, files), _fails(asked)), {"title": "pgqdoctor lint"})


def _fails(asked: Asked) -> str:
    return "Nothing fails." if asked.fail_on == "never" else f"Fails from {asked.fail_on} upwards."


def _data(text: str) -> str:
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(key: str, text: str) -> str:
    # The blanks of a file's name count.
    line = statement(text).text if key == "file" else one_line(text)
    if key == "title" and len(line) > LONGEST_TITLE:
        line = line[: LONGEST_TITLE - 1] + "…"
    return _data(line).replace(":", "%3A").replace(",", "%2C")
