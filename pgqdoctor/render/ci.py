"""What the formats for build servers share: what was asked for, which checks ran, what fails a build."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal

from pgqdoctor.finding import SEVERITIES, Remedy, Severity
from pgqdoctor.registry import all_checks
from pgqdoctor.render import phrases
from pgqdoctor.render.clean import one_line, statement

if TYPE_CHECKING:
    from pgqdoctor.check import Check
    from pgqdoctor.render import Asked
    from pgqdoctor.report import Report, ReportedFinding

LEVELS: Final[dict[Severity, Literal["error", "warning", "note"]]] = {
    "critical": "error",
    "warning": "warning",
    "notice": "note",
}
"""The severities in SARIF's words."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Crash:
    """A check that raised, and the queue on which it did; None where the report does not tell or it is the server's."""

    check: str
    error: str
    queue: str | None


def reaches(severity: Severity, fail_on: str) -> bool:
    """Tell whether a finding of that severity makes the command fail."""
    return fail_on != "never" and SEVERITIES.index(severity) <= SEVERITIES.index(_severity(fail_on))


def checks_run(asked: Asked) -> tuple[Check, ...]:
    """Return the checks that were asked for, by id; ``ignore`` may also hold keys of findings, which leave out no check."""
    return tuple(
        one for one in all_checks() if (not asked.only or one.id in asked.only) and one.id not in asked.ignore
    )


def crashes(report: Report) -> tuple[Crash, ...]:
    """Return the crashed checks with their queues, which the report names at the end of the error."""
    return tuple(
        Crash(
            check=one.check,
            error=one.error,
            queue=max(
                (queue.name for queue in report.queues if one.error.endswith(f" on {queue.name}")),
                key=len,
                default=None,
            ),
        )
        for one in report.crashed
    )


def told(finding: ReportedFinding, titles: dict[str, str]) -> Iterator[str]:
    """The lines of a finding below its title: why, causes and remedies. ``titles`` are those of all findings by key."""
    yield one_line(finding.why)
    for key in finding.caused_by:
        yield f"because of: {one_line(titles.get(key, key))}"
    yield from remedies_told(finding.remedies)


def remedies_told(remedies: Sequence[Remedy]) -> Iterator[str]:
    """The lines of remedies: what each takes and risks, and its statements as they are to be pasted."""
    for place, one in enumerate(remedies, 1):
        yield f"Remedy {place} ({phrases.KINDS[one.kind]}): {one_line(one.title)}"
        # Not indented: that would change a string that goes over several lines.
        for sql in one.sql:
            yield from statement(sql).lines()
        for label, text in (
            ("lock", phrases.remedy_takes(one)),
            ("risk", one.risk),
            ("expect", one.expect),
        ):
            if text:
                yield f"  {label}: {one_line(text)}"


def _severity(fail_on: str) -> Severity:
    return next(one for one in SEVERITIES if one == fail_on)
