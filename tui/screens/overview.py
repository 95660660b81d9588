"""Screen 1."""

from __future__ import annotations

from typing import ClassVar

from rich.text import Text
from textual import on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.content import Content
from textual.widgets import OptionList, Static
from textual.widgets.option_list import Option

from pgqdoctor.feed import Snapshot
from pgqdoctor.pulse import Pulse
from pgqdoctor.tui.messages import FindingChosen, QueueChosen
from pgqdoctor.tui.screens.pane import Choice, Pane, Scroll
from pgqdoctor.tui.theme import RICH_SEVERITY, SEVERITY
from pgqdoctor.tui.views import short
from pgqdoctor.tui.views.overview import HEADS, MARKS, SPARKED, QueueLine, ordered, series
from pgqdoctor.tui.views.picture import Picture
from pgqdoctor.tui.widgets.grid import Column, Grid, Row, left, right

MARK = 3
NARROW = (6, 7, 7, 9, 7, 8, 5, 7, 7)
"""Columns of the numbers on a screen of 80: 63, with the mark 66, so that a name has 13."""
SPARKS_FROM = 100
MOST_SPARK = 24
MOST_NAME = 40


class Findings(OptionList):
    """The findings as a tree; enter opens one."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("j", "cursor_down", "Down", show=False),
        Binding("k", "cursor_up", "Up", show=False),
    ]


class OverviewPane(Pane):
    """The queues, and beside or below them the findings in causal order."""

    DEFAULT_CSS = """
    OverviewPane { layout: vertical; }
    OverviewPane #queues { height: 1fr; min-height: 4; }
    OverviewPane #story-box { height: 1fr; min-height: 3; border-top: solid $primary; border-title-align: left; }
    OverviewPane #story { height: auto; max-height: 100%; border: none; padding: 0; background: $background; }
    OverviewPane #remarks { height: auto; color: $text-muted; padding: 0 1; }
    """

    def compose(self) -> ComposeResult:
        """Make the table and the list."""
        yield Grid(id="queues")
        with Scroll(id="story-box", can_focus=False):
            yield Findings(id="story")
            yield Static(id="remarks")

    def take_focus(self) -> None:
        """Give the keys to the queues."""
        self.query_one("#queues", Grid).focus()

    def show(self, snapshot: Snapshot[Picture], choice: Choice) -> None:
        """Show the numbers and the story."""
        picture = snapshot.shown
        grid = self.query_one("#queues", Grid)
        room = grid.size.width or self.app.size.width
        columns = _columns(room)
        lines = ordered(picture.queues, choice.sort, choice.wanted)
        until = [one for one in snapshot.pulses if one.at <= picture.frame.at][-MOST_SPARK:]
        grid.show(columns, [_row(one, columns, until) for one in lines])
        self._show_story(picture, choice)

    def _show_story(self, picture: Picture, choice: Choice) -> None:
        found = self.query_one("#story", Findings)
        lines = [one for one in picture.story if choice.wanted.lower() in f"{one.title} {one.queue}".lower()]
        place = found.highlighted
        options = [
            Option(
                Content.assemble(
                    "  " * one.depth + ("└ " if one.depth else ""),
                    (f"{MARKS[one.severity]}{one.severity}", SEVERITY[one.severity]),
                    f" {one.title}",
                ),
                id=one.key,
            )
            for one in lines
        ]
        found.clear_options()
        found.add_options(options)
        found.display = bool(options)
        if options:
            found.highlighted = min(place or 0, len(options) - 1)
        said = list(picture.remarks)
        if not options:
            said.insert(0, "No finding." if not picture.story else "No finding matches the filter.")
        self.query_one("#remarks", Static).update(Content("\n".join(said)))

    @on(Grid.RowSelected, "#queues")
    def _queue_opened(self, event: Grid.RowSelected) -> None:
        if event.row_key.value is not None:
            self.post_message(QueueChosen(event.row_key.value))

    @on(OptionList.OptionSelected, "#story")
    def _finding_opened(self, event: OptionList.OptionSelected) -> None:
        if event.option_id is not None:
            self.post_message(FindingChosen(event.option_id))


def _columns(room: int) -> tuple[Column, ...]:
    """Divide the room: numbers first, then names, then what is left to the sparklines."""
    widths = list(NARROW)
    left_over = room - 2 - MARK - sum(widths)
    name = min(max(left_over, 12), MOST_NAME)
    left_over -= name
    if left_over > 0:
        for place in SPARKED:
            more = min(left_over // 2, MOST_SPARK - widths[place - 1])
            widths[place - 1] += max(more, 0)
    return (
        Column(title="", width=MARK),
        Column(title=HEADS[0], width=name),
        *(Column(title=head, width=width, right=True) for head, width in zip(HEADS[1:], widths, strict=True)),
    )


def _row(line: QueueLine, columns: tuple[Column, ...], until: list[Pulse]) -> Row:
    _, name, *rest = columns
    style = "dim" if line.gone else ""
    cells = [
        Text(MARKS[line.severity], style=RICH_SEVERITY[line.severity]),
        left(_fitting(line.name, name.width - 1), name, style),
    ]
    for place, (text, column) in enumerate(zip(line.cells, rest, strict=True), 1):
        cell = right(text, column, style)
        if place in SPARKED:
            values = series(until, line.counted_as, SPARKED[place])
            cell.append("\n" + short.spark(values, column.width - 1) + " ", style="dim")
        cells.append(cell)
    if line.gone:
        cells[1].append(f"\n{line.gone}", style="reverse")
    return Row(key=line.name, cells=tuple(cells), height=2)


def _fitting(name: str, room: int) -> str:
    """Return the name without the schema that most tables have, where there is no room for it."""
    return name if len(name) <= room else name.removeprefix("public.")
