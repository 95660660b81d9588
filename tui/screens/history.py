"""Screen 7."""

from __future__ import annotations

from datetime import UTC, datetime

from textual.app import ComposeResult
from textual.containers import Container
from textual.content import Content
from textual.widgets import Static

from pgqdoctor.feed import Snapshot
from pgqdoctor.tui.screens.pane import Choice, Pane
from pgqdoctor.tui.views.overview import moments, series
from pgqdoctor.tui.views.picture import Picture
from pgqdoctor.tui.widgets.plot import Line, Plot, Turn

PLOTS = (
    (
        "rates",
        "per second",
        (("enqueued", "enqueued_per_s"), ("claimed", "claimed_per_s"), ("finished", "finished_per_s")),
    ),
    ("backlog", "jobs", (("ready", "ready"), ("in flight", "in_flight"))),
    ("oldest", "oldest ready, seconds", (("oldest", "oldest_s"),)),
    ("buffers", "buffers per claim", (("buffers", "buffers"),)),
    ("dead", "dead rows", (("dead", "dead"),)),
    ("hot", "HOT ratio", (("HOT", "hot_ratio"),)),
)
DRAWING_S = 0.02
"""A key has 100 ms to the screen, and everything but the plots takes 30 of them, or 60 while a window is judged."""
SMALL = 4
"""Plots on a screen of 80 columns; the wider ones show all."""


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
            for name, title, _ in PLOTS:
                yield Plot(title, id=f"plot-{name}")

    def take_focus(self) -> None:
        """Give the keys to the screen."""
        self.focus()

    def show(self, snapshot: Snapshot[Picture], choice: Choice) -> None:
        """Plot the numbers; a mark stands at the moment that the other screens show."""
        names = {line.name: line.counted_as for line in snapshot.shown.queues}
        name = choice.queue if choice.queue in names else next(iter(names), None)
        said = self.query_one("#history-said", Static)
        pulses = snapshot.pulses
        if name is None or len(pulses) < 2:
            said.update(Content("Nothing to plot yet."))
            return
        at = datetime.fromtimestamp(snapshot.shown.frame.at, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
        other = f" (left and right: another of {len(names)} queues)" if len(names) > 1 else ""
        said.update(
            Content.assemble(
                (name, "bold"),
                f"{other}  shown: {at}, moment {snapshot.number - snapshot.first + 1} of "
                f"{snapshot.last - snapshot.first + 1}",
                ("  [ ] one back, one on  { } ten  > now", "$text-muted"),
            )
        )
        start = pulses[-1].at
        times = tuple(one.at - start for one in pulses)
        known = moments(pulses, names[name])
        turn = Turn(DRAWING_S)
        narrow = self.app.size.width < 100 or self.app.size.height < 30
        for number, (plot, _, fields) in enumerate(PLOTS):
            widget = self.query_one(f"#plot-{plot}", Plot)
            widget.display = not (narrow and number >= SMALL)
            if widget.display:
                widget.show(
                    times,
                    [Line(name=label, values=series(known, field)) for label, field in fields],
                    snapshot.shown.frame.at - start,
                    turn,
                )
