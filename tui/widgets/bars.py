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

AXIS = 6


class Bars(Widget):
    """One column per moment, the latest at the right; the scale is at the left."""

    DEFAULT_CSS = """
    Bars { height: 1fr; min-height: 4; }
    """

    def __init__(self, *, id: str) -> None:
        super().__init__(id=id)
        self._values: tuple[tuple[float, ...], ...] = ()
        self._lines: list[Strip] = []

    @property
    def room(self) -> int:
        """Columns for moments."""
        return max(self.size.width - AXIS, 0)

    def show(self, values: Sequence[Sequence[float]]) -> None:
        """Show the groups' values over time."""
        self._values = tuple(tuple(column) for column in values)
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
        height, room = max(self.size.height - 1, 1), self.room
        shown = self._values[-room:] if room else ()
        top = _nice(max((sum(column) for column in shown), default=0.0))
        plain = self.rich_style
        lines = []
        for row, cells in enumerate(stacked(shown, height, top)):
            label = short.number(top * (height - row) / height) if row in (0, height // 2) else ""
            segments = [
                Segment(label.rjust(AXIS - 2) + "│ ", plain),
                Segment(" " * (room - len(shown)), plain),
            ]
            segments.extend(
                Segment(" ", plain)
                if cell is None
                else Segment(LETTERS[cell], plain + Style.parse(RICH_GROUP[cell]))
                for cell in cells
            )
            lines.append(Strip(segments))
        legend = [Segment(" " * AXIS, plain)]
        for group in GROUPS:
            legend.append(Segment(LETTERS[group], plain + Style.parse(RICH_GROUP[group])))
            legend.append(Segment(f" {group}  ", plain))
        lines.append(Strip(legend).adjust_cell_length(self.size.width, plain))
        return lines


def _nice(value: float) -> float:
    """Return the next of 1, 2, 5 times a power of ten, so that the scale does not jump from moment to moment."""
    if value <= 0:
        return 1.0
    power = 10.0 ** math.floor(math.log10(value))
    return next(step * power for step in (1, 2, 5, 10) if step * power >= value * 0.999)
