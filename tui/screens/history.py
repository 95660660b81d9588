"""Screen 7."""

from __future__ import annotations

from datetime import UTC, datetime

from textual.app import ComposeResult
from textual.containers import Container
from textual.content import Content
from textual.widgets import Static

from pgqdoctor.feed import Snapshot
from pgqdoctor.tui.screens.pane import Choice, Pane, chosen_queue, matching, no_queue
from pgqdoctor.tui.views.overview import moments, series
from pgqdoctor.tui.views.picture import Picture
from pgqdoctor.tui.widgets.plot import Line, Plot, Turn

PLOTS = (
    (
        "rates",
        "per second",
        False,
        (("enqueued", "enqueued_per_s"), ("claimed", "claimed_per_s"), ("finished", "finished_per_s")),
    ),
    ("backlog", "jobs", True, (("ready", "ready"), ("in flight", "in_flight"))),
    ("oldest", "oldest ready, seconds", False, (("oldest", "oldest_s"),)),
    ("buffers", "buffers per claim", True, (("buffers", "buffers"),)),
    ("dead", "dead rows", True, (("dead", "dead"),)),
    ("hot", "HOT ratio", False, (("HOT", "hot_ratio"),)),
)
"""Each plot: its name, its title, whether it counts something, and its lines."""
UNITS = (("hours", 3600.0), ("minutes", 60.0))
UNIT_FROM = 10
"""A session of ten minutes is told in minutes, one of ten hours in hours: below that the scale would need fractions."""
DRAWING_S = 0.02
"""A key has 100 ms to the screen, and everything but the plots takes 30 of them, or 60 while a window is judged."""
SMALL, SMALLEST = 4, 2
"""Plots on a screen of 80 columns, and on one of few lines; the larger ones show all."""


class HistoryPane(Pane):
    """The numbers of the chosen queue over the session."""

    DEFAULT_CSS = """
    HistoryPane { layout: vertical; }
    HistoryPane #history-said { height: auto; padding: 0 1; }
    HistoryPane #plots { layout: grid; grid-size: 2; height: 1fr; }
    """

    can_focus = True

    def compose(self) -> ComposeResult:
        """Make the plots."""
        yield Static(id="history-said")
        with Container(id="plots"):
            for name, title, whole, _ in PLOTS:
                yield Plot(title, id=f"plot-{name}", whole=whole)

    def take_focus(self) -> None:
        """Give the keys to the screen."""
        self.focus()

    def show(self, snapshot: Snapshot[Picture], choice: Choice) -> None:
        """Plot the numbers; a mark stands at the moment that the other screens show."""
        names = {line.name: line.counted_as for line in snapshot.shown.queues}
        matches = matching(names, choice)
        name = chosen_queue(matches, choice)
        said = self.query_one("#history-said", Static)
        pulses = snapshot.pulses
        shown = name is not None and len(pulses) > 1
        self.query_one("#plots", Container).display = shown
        if name is None or not shown:
            said.update(Content(no_queue(choice) if name is None else "Nothing to plot yet."))
            return
        at = datetime.fromtimestamp(snapshot.shown.frame.at, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
        other = f" (left and right: another of {len(matches)} queues)" if len(matches) > 1 else ""
        unit, size_s = time_unit(pulses[-1].at - pulses[0].at)
        said.update(
            Content.assemble(
                (name, "bold"),
                f"{other}  shown: {at}, moment {snapshot.number - snapshot.first + 1} of "
                f"{snapshot.last - snapshot.first + 1}  x: {unit} before the last moment",
                ("  [ ] one back, one on  { } ten  > now", "$text-muted"),
            )
        )
        start = pulses[-1].at
        times = tuple((one.at - start) / size_s for one in pulses)
        known = moments(pulses, names[name])
        turn = Turn(DRAWING_S)
        size = self.app.size
        most = SMALLEST if size.height < 20 else SMALL if size.width < 100 or size.height < 30 else len(PLOTS)
        for number, (plot, _, _, fields) in enumerate(PLOTS):
            widget = self.query_one(f"#plot-{plot}", Plot)
            widget.display = number < most
            if widget.display:
                widget.show(
                    times,
                    [Line(name=label, values=series(known, field)) for label, field in fields],
                    (snapshot.shown.frame.at - start) / size_s,
                    turn,
                )


def time_unit(span_s: float) -> tuple[str, float]:
    """Return the unit that a span of so many seconds is told in, and its seconds."""
    return next((one for one in UNITS if span_s >= UNIT_FROM * one[1]), ("seconds", 1.0))
