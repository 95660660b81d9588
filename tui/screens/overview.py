"""Screen 1."""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache

from rich.cells import set_cell_size
from rich.console import Console
from rich.text import Text
from textual import on
from textual.app import ComposeResult
from textual.content import Content
from textual.widgets import Static

from pgqdoctor.feed import Snapshot
from pgqdoctor.pulse import Pulse
from pgqdoctor.tui.messages import FindingChosen, QueueChosen
from pgqdoctor.tui.screens.pane import Choice, Pane, Scroll
from pgqdoctor.tui.theme import RICH_SEVERITY
from pgqdoctor.tui.views import short
from pgqdoctor.tui.views.overview import (
    HEADS,
    MARKS,
    SORTS,
    SPARKED,
    FindingLine,
    QueueLine,
    moments,
    ordered,
    series,
)
from pgqdoctor.tui.views.picture import Picture
from pgqdoctor.tui.widgets.grid import Cell, Column, Grid, Row, left, right, stacked

MARK = 3
NARROW = (6, 7, 7, 9, 7, 8, 5, 7, 7)
"""Columns of the numbers on a screen of 80: 63, with the mark 66, so that a name has 13."""
SPARKS_FROM = 100
MOST_SPARK = 24
MOST_NAME = 40
DEEPEST = 8
"""A finding far down a chain is indented by a quarter of the room at most."""


class Story(Grid):
    """The findings as a tree, each wrapped beside its mark; enter opens one."""

    DEFAULT_CSS = """
    Story { height: auto; max-height: 100%; }
    """
    _findings: tuple[FindingLine, ...] = ()

    def tell(self, lines: tuple[FindingLine, ...]) -> None:
        """Show the findings."""
        self._findings = lines
        self.display = bool(lines)
        self._lay_out()

    def on_resize(self) -> None:
        """Wrap the lines anew."""
        self._lay_out()

    def _lay_out(self) -> None:
        room = self.room
        self.show(
            (Column(title="", width=room),),
            [Row(key=one.key, cells=(told(one, room),)) for one in self._findings],
        )


class OverviewPane(Pane):
    """The queues, and beside or below them the findings in causal order."""

    DEFAULT_CSS = """
    OverviewPane { layout: vertical; }
    OverviewPane #queues { height: 1fr; min-height: 4; }
    OverviewPane #story-box { height: 1fr; min-height: 3; border-top: solid $primary; border-title-align: left; }
    OverviewPane #remarks { height: auto; color: $text-muted; padding: 0 1; }
    """

    def compose(self) -> ComposeResult:
        """Make the table and the list."""
        yield Grid(id="queues")
        with Scroll(id="story-box", can_focus=False):
            yield Story(id="story", headed=False)
            yield Static(id="remarks")

    def take_focus(self) -> None:
        """Give the keys to the queues."""
        self.query_one("#queues", Grid).focus()

    def order(self, choice: Choice) -> str:
        """The column that the queues are sorted by."""
        return choice.sort if choice.sort != SORTS[0] else ""

    def next_order(self, choice: Choice) -> Choice:
        """Sort the queues by the next column."""
        return replace(choice, sort=SORTS[(SORTS.index(choice.sort) + 1) % len(SORTS)])

    def show(self, snapshot: Snapshot[Picture], choice: Choice) -> None:
        """Show the numbers and the story."""
        picture = snapshot.shown
        grid = self.query_one("#queues", Grid)
        columns = _columns(grid.room)
        lines = ordered(picture.queues, choice.sort, choice.wanted)
        until = [one for one in snapshot.pulses if one.at <= picture.frame.at][-MOST_SPARK:]
        grid.show(columns, [_row(one, columns, until) for one in lines])
        self._show_story(picture, choice)

    def _show_story(self, picture: Picture, choice: Choice) -> None:
        lines = tuple(
            one for one in picture.story if choice.wanted.lower() in f"{one.title} {one.queue}".lower()
        )
        self.query_one("#story", Story).tell(lines)
        said = list(picture.remarks)
        if not lines:
            said.insert(0, "No finding." if not picture.story else "No finding matches the filter.")
        self.query_one("#remarks", Static).update(Content("\n".join(said)))

    @on(Grid.RowSelected, "#queues")
    def _queue_opened(self, event: Grid.RowSelected) -> None:
        self.post_message(QueueChosen(event.key))

    @on(Grid.RowSelected, "#story")
    def _finding_opened(self, event: Grid.RowSelected) -> None:
        self.post_message(FindingChosen(event.key))


@lru_cache(maxsize=512)
def told(one: FindingLine, room: int) -> Cell:
    """Return a finding in lines of ``room`` letters: its words stand beside its mark, not below."""
    lead = "  " * min(one.depth, room // DEEPEST) + ("└ " if one.depth else "")
    mark = f"{MARKS[one.severity]}{one.severity} "
    words = Text(one.title).wrap(Console(), max(room - len(lead) - len(mark), 1))
    return Cell(
        lines=tuple(
            (
                (lead if number == 0 else " " * len(lead), ""),
                (mark if number == 0 else " " * len(mark), RICH_SEVERITY[one.severity]),
                (set_cell_size(line.plain, room - len(lead) - len(mark)), ""),
            )
            for number, line in enumerate(words)
        )
    )


def _columns(room: int) -> tuple[Column, ...]:
    """Divide the room: numbers first, then names, then what is left to the sparklines."""
    widths = list(NARROW)
    left_over = room - MARK - sum(widths)
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
        Cell(lines=(((MARKS[line.severity].ljust(MARK), RICH_SEVERITY[line.severity]),),)),
        stacked(
            left(_fitting(line.name, name.width - 1), name, style),
            *((left(line.gone, name, "reverse"),) if line.gone else ()),
        ),
    ]
    known = moments(until, line.counted_as)
    for place, (text, column) in enumerate(zip(line.cells, rest, strict=True), 1):
        cell = right(text, column, style)
        if place in SPARKED:
            values = series(known, SPARKED[place])
            cell = stacked(cell, left(short.spark(values, column.width - 1), column, "dim"))
        cells.append(cell)
    return Row(key=line.name, cells=tuple(cells))


def _fitting(name: str, room: int) -> str:
    """Return the name without the schema that most tables have, where there is no room for it."""
    return name if len(name) <= room else name.removeprefix("public.")
