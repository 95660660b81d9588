"""The last line: how the connection stands, how old the data is, what is filtered and sorted."""

from __future__ import annotations

from bisect import bisect_left
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


LINES = 2


class StatusLine(Static):
    """One or two lines; an alarm is set in reverse and begins with a mark."""

    _status: Status | None = None
    DEFAULT_CSS = """
    StatusLine {
        height: auto;
        max-height: 2;  /* LINES */
        padding: 0 1;
        background: $panel;
    }
    """

    def show(self, status: Status) -> None:
        """Show the status."""
        if status != self._status:
            self._status = status
            self._lay_out()

    def on_resize(self) -> None:
        """Cut the link's words anew."""
        self._lay_out()

    def _lay_out(self) -> None:
        if self._status is not None:
            self.update(fitting(self._status, max(self.app.size.width - 2, 1)))


def fitting(status: Status, width: int) -> Content:
    """Return the line in as many columns; where it has no room, "…" stands for the middle of the link's words.

    Their last part is the reason of a lost connection, behind the server's name and port.
    """
    whole = _assembled(status, status.link)
    if len(whole.wrap(width)) <= LINES:
        return whole
    head, colon, rest = status.link.partition(": ")
    if not colon or len(head) > width // 2:
        head, colon, rest = "", "", status.link
    kept = bisect_left(
        range(len(rest)),
        True,
        key=lambda number: (
            len(_assembled(status, f"{head}{colon}…{rest[-number - 1 :]}").wrap(width)) > LINES
        ),
    )
    return _assembled(status, f"{head}{colon}…{rest[len(rest) - kept :]}")


def _assembled(status: Status, link: str) -> Content:
    return Content.assemble(
        (f" ! {link} ", "reverse bold") if status.alarm else link,
        *(f" · {one}" for one in (status.place, *status.extras) if one),
        (" · ? help · q quit", "$text-muted"),
    )
