"""Screen 3."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from textual import on
from textual.app import ComposeResult
from textual.content import Content
from textual.widgets import Static

from pgqdoctor.feed import Snapshot
from pgqdoctor.tui.screens.pane import Choice, Pane
from pgqdoctor.tui.theme import RICH_GROUP
from pgqdoctor.tui.views import short
from pgqdoctor.tui.views.picture import Picture
from pgqdoctor.tui.views.waits import LETTERS, ORDERS, DoingLine, EventLine, columns, in_order
from pgqdoctor.tui.widgets.bars import Bars
from pgqdoctor.tui.widgets.grid import Cell, Column, Grid, Row, left, right


class WaitsPane(Pane):
    """The bars, and below them the wait events of the window; enter opens one."""

    DEFAULT_CSS = """
    WaitsPane { layout: vertical; }
    WaitsPane #bars { height: 2fr; }
    WaitsPane #waits-said { height: auto; padding: 0 1; }
    WaitsPane #events { height: 3fr; }
    """

    def __init__(self, *, id: str) -> None:
        super().__init__(id=id)
        self._opened: str | None = None
        self._snapshot: Snapshot[Picture] | None = None
        self._choice = Choice()

    def compose(self) -> ComposeResult:
        """Make the parts."""
        yield Bars(id="bars")
        yield Static(id="waits-said")
        yield Grid(id="events")

    def take_focus(self) -> None:
        """Give the keys to the events."""
        self.query_one("#events", Grid).focus()

    def order(self, choice: Choice) -> str:
        """What the wait events are sorted by."""
        return choice.events if choice.events != ORDERS[0] and self._opened is None else ""

    def next_order(self, choice: Choice) -> Choice | None:
        """Sort the wait events in the next way; what was done at one of them has one order."""
        if self._opened is not None:
            return None
        return replace(choice, events=ORDERS[(ORDERS.index(choice.events) + 1) % len(ORDERS)])

    def back(self) -> bool:
        """Leave the event that is open."""
        if self._opened is None:
            return False
        self._opened = None
        self._show_again()
        return True

    def show(self, snapshot: Snapshot[Picture], choice: Choice) -> None:
        """Show bars and events."""
        self._snapshot, self._choice = snapshot, choice
        bars = self.query_one("#bars", Bars)
        until = snapshot.shown.frame.at
        past = [one for one in snapshot.pulses if one.at <= until]
        shown = columns(past, bars.room or self.app.size.width)
        ages = tuple(until - one.at for one in past[len(past) - len(shown) :])
        bars.show(shown, ages, newest=snapshot.newest)
        self._show_again()

    def _show_again(self) -> None:
        if self._snapshot is None:
            return
        view = self._snapshot.shown.waits
        opened = next((one for one in view.events if one.event == self._opened), None)
        said, grid = self.query_one("#waits-said", Static), self.query_one("#events", Grid)
        room = grid.room
        wanted = self._choice.wanted.lower()
        if opened is not None:
            said.update(
                Content(
                    f"{opened.group}, {opened.event}: who was there, in average active sessions (escape: back)"
                )
            )
            lines = [one for one in opened.doing if wanted in f"{one.text} {one.application}".lower()]
            grid.show(*_doing(lines, room))
            return
        said.update(
            Content(
                f"{short.number(view.active)} active sessions on average over {view.samples:,} samples, "
                f"{short.number(view.idle_in_transaction)} idle in transaction (enter: statements and applications)"
            )
        )
        events = [
            one
            for one in view.events
            if wanted in f"{one.group} {one.event} {' '.join(each.application for each in one.doing)}".lower()
        ]
        grid.show(*_events(in_order(events, self._choice.events), room))

    @on(Grid.RowSelected, "#events")
    def _open(self, event: Grid.RowSelected) -> None:
        if self._opened is None:
            self._opened = event.key
            self._show_again()


def _events(lines: Sequence[EventLine], room: int) -> tuple[list[Column], list[Row]]:
    event = 30 if room < 110 else 40
    columns = [
        Column(title="", width=3),
        Column(title="group", width=15),
        Column(title="wait event", width=event),
        Column(title="sessions", width=9, right=True),
        Column(title="share", width=7, right=True),
        Column(title="most by", width=max(room - 64 - (event - 30), 12)),
    ]
    rows = []
    for one in lines:
        most = one.doing[0] if one.doing else None
        letter = LETTERS[one.group]
        mark = Cell(lines=(((letter, RICH_GROUP[one.group]), (" " * (columns[0].width - len(letter)), "")),))
        rows.append(
            Row(
                key=one.event,
                cells=(
                    mark,
                    left(one.group, columns[1]),
                    left(one.event, columns[2]),
                    right(short.number(one.sessions), columns[3]),
                    right(short.percent(one.share), columns[4]),
                    left(f"{most.application}: {most.text}" if most is not None else "", columns[5]),
                ),
            )
        )
    return columns, rows


def _doing(lines: list[DoingLine], room: int) -> tuple[list[Column], list[Row]]:
    columns = [
        Column(title="sessions", width=9, right=True),
        Column(title="application", width=20),
        Column(title="statement", width=max(room - 29, 20)),
    ]
    return columns, [
        Row(
            key=f"{number}",
            cells=(
                right(short.number(one.sessions), columns[0]),
                left(one.application, columns[1]),
                left(one.text, columns[2]),
            ),
        )
        for number, one in enumerate(lines)
    ]
