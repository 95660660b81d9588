"""One plot over time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from textual.app import RenderResult
from textual_plotext import PlotextPlot

MARKERS = ("braille", "dot", "+")
"""One marker per line, so that lines are told apart without colour."""
COLOURS = ("cyan", "orange", "green")


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """One number over time; None where it was not known."""

    name: str
    values: tuple[float | None, ...]


class Plot(PlotextPlot):
    """A few lines over the seconds before the latest moment."""

    def __init__(self, title: str, *, id: str) -> None:
        super().__init__(id=id)
        self._title = title
        self._drawn: tuple[object, ...] = ()
        self._kept: tuple[tuple[object, ...], RenderResult] | None = None

    def render(self) -> RenderResult:
        """Return the picture; one that was drawn for this size and these numbers is not drawn again."""
        asked = (self._drawn, self.size, self.app.theme)
        if self._kept is None or self._kept[0] != asked:
            self._kept = (asked, super().render())
        return self._kept[1]

    def show(self, times: Sequence[float], lines: Sequence[Line], mark: float) -> None:
        """Draw the lines; ``mark`` is where a vertical line stands, 0 for the latest moment."""
        drawn_now = (tuple(times), tuple(lines), mark)
        if drawn_now == self._drawn:
            return
        self._drawn = drawn_now
        plt = self.plt
        plt.clear_data()
        plt.clear_figure()
        plt.title(self._title)
        drawn = False
        for number, line in enumerate(lines):
            known = [(at, value) for at, value in zip(times, line.values, strict=True) if value is not None]
            if not known:
                continue
            drawn = True
            plt.plot(
                [at for at, _ in known],
                [value for _, value in known],
                label=line.name if len(lines) > 1 else None,
                marker=MARKERS[number],
                color=COLOURS[number],
            )
        if drawn:
            highest = max(
                (value for line in lines for value in line.values if value is not None), default=0.0
            )
            plt.ylim(0, highest * 1.05 if highest > 0 else 1)
            if mark < 0:
                plt.vline(mark, "red")
        else:
            plt.title(f"{self._title}: not known")
        self.refresh()
