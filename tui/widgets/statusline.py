"""The last line: how the connection stands, how old the data is, what is filtered and sorted."""

from __future__ import annotations

from dataclasses import dataclass

from textual.content import Content
from textual.widgets import Static


@dataclass(frozen=True, slots=True, kw_only=True)
class Status:
    """What the line says."""

    link: str
    alarm: bool
    place: str
    extras: tuple[str, ...]


class StatusLine(Static):
    """One line; an alarm is set in reverse and begins with a mark."""

    _parts: list[str | tuple[str, str]] | None = None
    DEFAULT_CSS = """
    StatusLine {
        height: auto;
        max-height: 2;
        padding: 0 1;
        background: $panel;
    }
    """

    def show(self, status: Status) -> None:
        """Show the status."""
        parts: list[str | tuple[str, str]] = [
            (f" ! {status.link} ", "reverse bold") if status.alarm else status.link
        ]
        parts.extend(f" · {one}" for one in (status.place, *status.extras) if one)
        parts.append((" · ? help · q quit", "$text-muted"))
        if parts != self._parts:
            self._parts = parts
            self.update(Content.assemble(*parts))
