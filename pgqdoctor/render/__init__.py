"""Writing a report down: one function per format, each a pure function of the report.

A renderer neither queries nor judges; what it says stands in the report. The modules are imported on first
use, so that one format does not pay for the others.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Protocol, cast

from pgqdoctor.errors import USAGE, PgqdoctorError

if TYPE_CHECKING:
    from pgqdoctor.lint.engine import LintReport
    from pgqdoctor.report import Report

READ_FORMATS = {
    "text": "pgqdoctor.render.text:render_report",
    "json": "pgqdoctor.render.jsonout:render_report",
    "markdown": "pgqdoctor.render.markdown:render_report",
    "html": "pgqdoctor.render.html:render_report",
}
"""Where each format is written that needs nothing but the report."""

CI_FORMATS = {
    "sarif": "pgqdoctor.render.sarif:render_report",
    "junit": "pgqdoctor.render.junit:render_report",
    "github": "pgqdoctor.render.github:render_report",
}
"""Where each format for build servers is written: they also say which checks found nothing, or what fails."""

FORMATS = {**READ_FORMATS, **CI_FORMATS}
"""All formats of the report."""

LINT_FORMATS = {
    "text": "pgqdoctor.render.lint:render_text",
    "json": "pgqdoctor.render.lint:render_json",
    "markdown": "pgqdoctor.render.lint:render_markdown",
    "sarif": "pgqdoctor.render.sarif:render_lint",
    "junit": "pgqdoctor.render.junit:render_lint",
    "github": "pgqdoctor.render.github:render_lint",
}
"""Where each format of what lint found is written."""

QUEUE_FORMATS = {
    "text": "pgqdoctor.render.text:render_queues",
    "json": "pgqdoctor.render.jsonout:render_queues",
}
"""Where each format of the list of queues is written."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """What the command line asked for, and a report does not hold.

    ``only`` and ``ignore`` are the checks it named, ``fail_on`` is the severity from which it fails, or "never".
    """

    only: tuple[str, ...] = ()
    ignore: tuple[str, ...] = ()
    fail_on: str = "critical"


class Renderer(Protocol):
    """Writes a report: ``color`` allows ANSI escapes, ``width`` is in columns; some formats have neither."""

    def __call__(self, report: Report, *, color: bool, width: int) -> str: ...


class BuildRenderer(Protocol):
    """Writes a report for a build server."""

    def __call__(self, report: Report, *, asked: Asked) -> str: ...


class LintRenderer(Protocol):
    """Writes what lint found in ``files``; some formats have neither colour nor width."""

    def __call__(
        self, report: LintReport, *, files: Sequence[str], asked: Asked, color: bool, width: int
    ) -> str: ...


def render(report: Report, format: str, *, color: bool, width: int, asked: Asked | None = None) -> str:
    """Write the report in a format of FORMATS, with a newline at its end.

    Without ``asked`` all checks are taken to have run, and critical findings to fail. Raises PgqdoctorError (usage) for
    another format.
    """
    write = _function(FORMATS, "the report", format)
    if format in CI_FORMATS:
        return cast(BuildRenderer, write)(report, asked=asked or Asked())
    return cast(Renderer, write)(report, color=color, width=width)


def render_lint(
    report: LintReport, format: str, *, files: Sequence[str], asked: Asked, color: bool, width: int
) -> str:
    """Write what lint found in ``files`` in a format of LINT_FORMATS, with a newline at its end.

    Raises PgqdoctorError (usage) for another format.
    """
    write = cast(LintRenderer, _function(LINT_FORMATS, "what lint found", format))
    return write(report, files=files, asked=asked, color=color, width=width)


def render_queues(report: Report, format: str, *, color: bool, width: int) -> str:
    """Write the queues of the report in a format of QUEUE_FORMATS, with a newline at its end.

    Raises PgqdoctorError (usage) for another format.
    """
    write = cast(Renderer, _function(QUEUE_FORMATS, "the list of queues", format))
    return write(report, color=color, width=width)


def _function(formats: dict[str, str], what: str, format: str) -> object:
    if format not in formats:
        raise PgqdoctorError(
            f"{what} cannot be written as {format!r}", hint=f"Choose {' or '.join(formats)}.", exit_code=USAGE
        )
    module, _, function = formats[format].partition(":")
    return cast(object, getattr(import_module(module), function))
