"""The report as JSON: the model itself, field by field."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import Final

import msgspec

from pgqdoctor.report import QueueFacts, Report, ServerFacts, Tool, Window

QUEUES_SCHEMA: Final = "pgqdoctor.queues/1"

_NOT_ASCII: Final = re.compile(r"[^\n -~]")


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueList:
    """What ``pgqdoctor queues --format json`` prints: the queues as the report has them."""

    schema: str = QUEUES_SCHEMA
    tool: Tool
    generated_at: str
    server: ServerFacts
    window: Window
    queues: tuple[QueueFacts, ...]
    notes: tuple[str, ...]


def render_report(report: Report, *, color: bool, width: int) -> str:
    """Write the report as indented JSON."""
    return written(report)


def render_queues(report: Report, *, color: bool, width: int) -> str:
    """Write the report's queues as indented JSON."""
    return written(
        QueueList(
            tool=report.tool,
            generated_at=report.generated_at,
            server=report.server,
            window=report.window,
            queues=report.queues,
            notes=report.notes,
        )
    )


def written(value: object) -> str:
    try:
        encoded = msgspec.json.encode(value)
    except UnicodeEncodeError:
        # Half of a surrogate pair, as an argument that is not UTF-8 brings in: strict readers refuse its escape too.
        encoded = json.dumps(msgspec.to_builtins(value), ensure_ascii=False).encode(errors="replace")
    text = msgspec.json.format(encoded, indent=2).decode()
    return _NOT_ASCII.sub(_seen, text) + "\n"


def _seen(found: re.Match[str]) -> str:
    """Escape what JSON allows as it is and a terminal obeys: C1 and bidirectional controls and the like.

    Such a character can only stand inside a string, where its escape means the same.
    """
    return found[0] if found[0].isprintable() else json.dumps(found[0])[1:-1]
