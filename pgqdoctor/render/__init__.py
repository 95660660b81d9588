"""Writing a report down: one function per format, each a pure function of the report.

A renderer neither queries nor judges; what it says stands in the report. The modules are imported on first
use, so that one format does not pay for the others.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Protocol, cast

from pgqdoctor.errors import USAGE, PgqdoctorError

if TYPE_CHECKING:
    from pgqdoctor.report import Report

FORMATS = {
    "text": "pgqdoctor.render.text:render_report",
    "json": "pgqdoctor.render.jsonout:render_report",
    "markdown": "pgqdoctor.render.markdown:render_report",
}
"""Where each format of the report is written."""

QUEUE_FORMATS = {
    "text": "pgqdoctor.render.text:render_queues",
    "json": "pgqdoctor.render.jsonout:render_queues",
}
"""Where each format of the list of queues is written."""


class Renderer(Protocol):
    """Writes a report: ``color`` allows ANSI escapes, ``width`` is in columns; some formats have neither."""

    def __call__(self, report: Report, *, color: bool, width: int) -> str: ...


def render(report: Report, format: str, *, color: bool, width: int) -> str:
    """Write the report in a format of FORMATS, with a newline at its end.

    Raises PgqdoctorError (usage) for another format.
    """
    return _renderer(FORMATS, "the report", format)(report, color=color, width=width)


def render_queues(report: Report, format: str, *, color: bool, width: int) -> str:
    """Write the queues of the report in a format of QUEUE_FORMATS, with a newline at its end.

    Raises PgqdoctorError (usage) for another format.
    """
    return _renderer(QUEUE_FORMATS, "the list of queues", format)(report, color=color, width=width)


def _renderer(formats: dict[str, str], what: str, format: str) -> Renderer:
    if format not in formats:
        raise PgqdoctorError(
            f"{what} cannot be written as {format!r}", hint=f"Choose {' or '.join(formats)}.", exit_code=USAGE
        )
    module, _, function = formats[format].partition(":")
    return cast(Renderer, getattr(import_module(module), function))
