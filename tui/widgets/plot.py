"""One plot over time."""

from __future__ import annotations

import math
import re
import time
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import groupby

from rich.ansi import AnsiDecoder
from rich.console import Console
from rich.segment import Segment
from rich.style import Style
from textual.geometry import Region
from textual.strip import Strip
from textual_plotext import PlotextPlot

from pgqdoctor.tui.views import short

MARKERS = ("braille", "dot", "+")
"""One marker per line, so that lines are told apart without colour."""
COLOURS = ("cyan", "orange", "green")


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """One number over time; None where it was not known."""

    name: str
    values: tuple[float | None, ...]


COLUMNS_A_POINT = 2
"""Columns of the plot for each point that is drawn: plotext's time grows with the points, and six plots have to stand on
the screen within the 100 ms that a key may take."""
RUN = re.compile(r"((?:\x1b\[[\d;]*m)*)([^\x1b]*)")
RESET = "\x1b[0m"
Known = tuple[float, float]


def thinned(points: Sequence[Known], places: int) -> list[Known]:
    """Return one point for each of ``places`` equal spans of time, and the last point.

    A span is told by its value farthest from the one shown before it, so that no peak and no dip is lost. A session of an
    hour has more moments than the screen has columns, and plotext spends its time on every one of them.
    """
    if len(points) <= places:
        return list(points)
    start, end = points[0][0], points[-1][0]
    width = (end - start) / places or 1.0
    shown = [points[0]]
    for _, together in groupby(points[1:-1], key=lambda one: min(int((one[0] - start) / width), places - 1)):
        before = shown[-1][1]
        shown.append(max(together, key=lambda one: abs(one[1] - before)))
    return [*shown, points[-1]]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Asked:
    """What is to be drawn; ``mark`` is where a vertical line stands, 0 for the latest moment."""

    times: tuple[float, ...]
    lines: tuple[Line, ...]
    mark: float


STEPS = (1, 2, 5, 10)
"""A scale counts in these, times a power of ten."""
COLUMNS_A_TICK, LINES_A_TICK = 8, 2
"""Room on the screen for one number of a scale: "-1000" and a gap, and lines between two of them that tell them apart."""


def ticks(low: float, high: float, most: int, *, whole: bool = False) -> tuple[float, ...]:
    """Return round numbers from ``low`` to ``high``, ``most`` and the zero at most; integers where ``whole``."""
    wide = (high - low) / max(most, 1)
    if wide <= 0:
        return (low,)
    power = 10.0 ** math.floor(math.log10(wide))
    step = next(one * power for one in STEPS if one * power >= wide * 0.999)
    if whole:
        step = max(step, 1.0)
    return tuple(number * step for number in range(math.ceil(low / step), math.floor(high / step) + 1))


class Turn:
    """The time that plots may take before their screen is painted; it begins with the first."""

    def __init__(self, seconds: float = 0.0) -> None:
        self._seconds = seconds
        self._end: float | None = None

    @property
    def left(self) -> bool:
        """True while there is time."""
        now = time.monotonic()
        if self._end is None:
            self._end = now + self._seconds
        return now < self._end


@lru_cache(maxsize=256)
def _style(codes: str) -> Style:
    return AnsiDecoder().decode_line(f"{codes}x").get_style_at_offset(Console(), 0)


def strip_of(line: str) -> Strip:
    """Return a line of plotext as Textual shows it: each run of letters follows its ANSI codes."""
    return Strip(
        [Segment(text, _style(codes.removeprefix(RESET))) for codes, text in RUN.findall(line) if text]
    )


class Plot(PlotextPlot):
    """A few lines over the time before the latest moment; ``whole`` is for what is counted, which has no decimals.

    Every plot that is given the same times has the same span, also where its numbers were not known at its ends.

    plotext draws. Its lines go to the screen as they are: textual-plotext takes them through rich's and Textual's texts, which
    took longer than the drawing.
    """

    def __init__(self, title: str, *, id: str, whole: bool = False) -> None:
        super().__init__(id=id)
        self._title, self._whole = title, whole
        self._asked = _Asked(times=(), lines=(), mark=0.0)
        self._drawn_for: tuple[object, ...] = ()
        self._strips: list[Strip] = []
        self._waits = False
        self._turn = Turn()

    def show(self, times: Sequence[float], lines: Sequence[Line], mark: float, turn: Turn) -> None:
        """Draw the lines; ``mark`` is where a vertical line stands, 0 for the latest moment.

        All plots of a screen share a ``turn``.
        """
        self._turn = turn
        asked = _Asked(times=tuple(times), lines=tuple(lines), mark=mark)
        if asked != self._asked:
            self._asked = asked
            self.refresh()

    def render_lines(self, crop: Region) -> list[Strip]:
        """Return the lines of a region; what they do not show yet is drawn now, or after this screen where its time is up."""
        if self._wanted != self._drawn_for:
            if self._turn.left:
                self._draw()
            elif not self._waits:
                self._waits = True
                self.call_later(self._draw_later)
        return super().render_lines(crop)

    @property
    def _wanted(self) -> tuple[object, ...]:
        return self._asked, self.size, self.app.theme

    def render_line(self, y: int) -> Strip:
        """Return one line of the picture."""
        width = self.size.width
        if y >= len(self._strips):
            return Strip.blank(width, self.rich_style)
        return self._strips[y].adjust_cell_length(width, self.rich_style)

    def _draw(self) -> None:
        self._drawn_for = self._wanted
        self._plot_lines()
        self._strips = [strip_of(line) for line in self.plt.build().split("\n")]

    def _draw_later(self) -> None:
        self._waits = False
        self._draw()
        self.refresh()

    def _plot_lines(self) -> None:
        plt, lines = self.plt, self._asked.lines
        plt.clear_data()
        plt.clear_figure()
        plt.plotsize(*self.size)
        # Of the two only this one is sure to take: textual-plotext's own rendering calls both for the same reason.
        plt._set_size(*self.size)
        plt.theme(self._get_plotext_theme_name(self.app.theme))
        plt.title(self._title)
        highest = None
        for number, line in enumerate(lines):
            known = [
                (at, value)
                for at, value in zip(self._asked.times, line.values, strict=True)
                if value is not None
            ]
            if not known:
                continue
            highest = max(highest or 0.0, *(value for _, value in known))
            points = thinned(known, self.size.width // COLUMNS_A_POINT)
            plt.plot(
                [at for at, _ in points],
                [value for _, value in points],
                label=line.name if len(lines) > 1 else None,
                marker=MARKERS[number],
                color=COLOURS[number],
            )
        if highest is None:
            plt.title(f"{self._title}: not known")
            return
        top = highest * 1.05 if highest > 0 else 1.0
        plt.ylim(0, top)
        values = ticks(0.0, top, self.size.height // LINES_A_TICK, whole=self._whole)
        plt.yticks(list(values), [short.number(value) for value in values])
        plt.xlim(self._asked.times[0], self._asked.times[-1])
        times = ticks(self._asked.times[0], self._asked.times[-1], self.size.width // COLUMNS_A_TICK)
        plt.xticks(list(times), [short.number(at) for at in times])
        if self._asked.mark < 0:
            plt.vline(self._asked.mark, "red")
