"""Active sessions over time as stacked bars: a letter and a colour for each group."""

from __future__ import annotations

import math
from collections.abc import Sequence

from rich.segment import Segment
from rich.style import Style
from textual.strip import Strip
from textual.widget import Widget

from pgqdoctor.tui.theme import RICH_GROUP
from pgqdoctor.tui.views import short
from pgqdoctor.tui.views.waits import LETTERS, stacked
from pgqdoctor.waits import GROUPS

AXIS = 7
LABEL = AXIS - 2
"""Letters of the scale."""


class Bars(Widget):
    """One column per moment, the latest at the right; the scale is at the left, the time below."""

    DEFAULT_CSS = """
    Bars { height: 1fr; min-height: 4; }
    """

    def __init__(self, *, id: str) -> None:
        super().__init__(id=id)
        self._values: tuple[tuple[float, ...], ...] = ()
        self._ages: tuple[float, ...] = ()
        self._newest = True
        self._lines: list[Strip] = []

    @property
    def room(self) -> int:
        """Columns for moments."""
        return max(self.size.width - AXIS, 0)

    def show(self, values: Sequence[Sequence[float]], ages: Sequence[float], *, newest: bool) -> None:
        """Show the groups' values over time; ``ages`` are the moments' seconds before the latest one.

        ``newest`` is false where the latest one that is shown is not the latest there is.
        """
        self._values = tuple(tuple(column) for column in values)
        self._ages, self._newest = tuple(ages), newest
        self._lines = []
        self.refresh()

    def on_resize(self) -> None:
        """Draw anew."""
        self._lines = []

    def render_line(self, y: int) -> Strip:
        """Return one line of the picture."""
        if not self._lines:
            self._lines = self._drawn()
        return self._lines[y] if y < len(self._lines) else Strip.blank(self.size.width, self.rich_style)

    def _drawn(self) -> list[Strip]:
        height, room = max(self.size.height - 2, 1), self.room
        shown = self._values[-room:] if room else ()
        top = _nice(max((sum(column) for column in shown), default=0.0))
        plain = self.rich_style
        lines = []
        for row, cells in enumerate(stacked(shown, height, top)):
            value = top * (height - row) / height if row in (0, height // 2) else None
            segments = [
                Segment(("" if value is None else scale_label(value)).rjust(LABEL) + "│ ", plain),
                Segment(" " * (room - len(shown)), plain),
            ]
            segments.extend(
                Segment(" ", plain)
                if cell is None
                else Segment(LETTERS[cell], plain + Style.parse(RICH_GROUP[cell]))
                for cell in cells
            )
            lines.append(Strip(segments))
        oldest = self._ages[-len(shown)] if shown else 0.0
        axis = time_axis(oldest, len(shown), room, "now" if self._newest else "moment shown")
        lines.append(Strip([Segment(" " * AXIS + axis, plain)]))
        legend = [Segment(" " * AXIS, plain)]
        for group in GROUPS:
            legend.append(Segment(LETTERS[group], plain + Style.parse(RICH_GROUP[group])))
            legend.append(Segment(f" {group}  ", plain))
        lines.append(Strip(legend).adjust_cell_length(self.size.width, plain))
        return lines


def scale_label(value: float) -> str:
    """Return a value in at most LABEL letters: a thousandth of a session is the least that samples of a minute tell."""
    label = short.number(value)
    return label if len(label) <= LABEL else f"{value:.3f}"[:LABEL]


def time_axis(oldest_s: float, columns: int, room: int, end: str) -> str:
    """Return the line below ``columns`` moments, which stand at the right of the room: how old the first is, and the end."""
    if columns == 0:
        return ""
    start = f"-{short.seconds(round(oldest_s))}"
    between = columns - len(start) - len(end) - 2
    text = f"{start} {'─' * between} {end}" if between > 0 else f"{start} … {end}"
    return text.rjust(room)[-room:]


def _nice(value: float) -> float:
    """Return the next of 1, 2, 5 times a power of ten, so that the scale does not jump from moment to moment."""
    if value <= 0:
        return 1.0
    power = 10.0 ** math.floor(math.log10(value))
    return next(step * power for step in (1, 2, 5, 10) if step * power >= value * 0.999)
