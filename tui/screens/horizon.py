"""Screen 4."""

from __future__ import annotations

from textual.app import ComposeResult
from textual.content import Content
from textual.widgets import Static

from pgqdoctor.feed import Snapshot
from pgqdoctor.tui.screens.pane import Choice, Pane
from pgqdoctor.tui.views.horizon import HolderLine, LockLine, Target
from pgqdoctor.tui.views.picture import Picture
from pgqdoctor.tui.widgets.grid import Cell, Column, Grid, Row, left, right, stacked

MOST_ROWS = 40
"""Rows of a table: a hundred took longer to make than a key may take to show; what is searched for is found by the filter."""


class HorizonPane(Pane):
    """Who holds the xmin horizon, and who blocks whom."""

    DEFAULT_CSS = """
    HorizonPane { layout: vertical; }
    HorizonPane Static { height: auto; padding: 0 1; text-style: bold; }
    HorizonPane #holders { height: 1fr; }
    HorizonPane #locks { height: 1fr; }
    """

    def __init__(self, *, id: str) -> None:
        super().__init__(id=id)
        self._snapshot: Snapshot[Picture] | None = None

    def compose(self) -> ComposeResult:
        """Make both tables."""
        yield Static(id="holders-said")
        yield Grid(id="holders")
        yield Static(id="locks-said")
        yield Grid(id="locks")

    def take_focus(self) -> None:
        """Give the keys to the holders, where there are none to the locks."""
        holders, locks = self.query_one("#holders", Grid), self.query_one("#locks", Grid)
        (locks if holders.chosen is None and locks.chosen is not None else holders).focus()

    @property
    def target(self) -> Target | None:
        """The backend under the cursor of the table that has the keys."""
        if self._snapshot is None:
            return None
        grid = next((one for one in self.query(Grid) if one.has_focus), self.query_one("#holders", Grid))
        pid = (grid.chosen or "").partition(" ")[0]
        return self._snapshot.shown.horizon.target(int(pid)) if pid.isdigit() else None

    def show(self, snapshot: Snapshot[Picture], choice: Choice) -> None:
        """Show holders and blocked trees."""
        self._snapshot = snapshot
        view = snapshot.shown.horizon
        wanted = choice.wanted.lower()
        room = self.query_one("#holders", Grid).room
        holders = [one for one in view.holders if wanted in f"{one.name} {one.query} {one.pid}".lower()]
        locks = [
            one for one in view.locks if wanted in f"{one.who} {one.query} {one.pid} {one.waits}".lower()
        ]
        self.query_one("#holders-said", Static).update(
            Content(
                f"Who holds the xmin horizon, the oldest first{_part(len(holders))} (c cancel, t terminate)"
                if view.holders
                else "Nobody holds the xmin horizon."
            )
        )
        self.query_one("#locks-said", Static).update(
            Content(
                f"Who blocks whom: {view.waiting} waiting{_part(len(locks))}"
                if view.locks
                else "Nobody waits for a lock."
            )
        )
        self.query_one("#holders", Grid).show(*_holders(holders[:MOST_ROWS], room))
        self.query_one("#locks", Grid).show(*_locks(locks[:MOST_ROWS], room))
        self.query_one("#locks", Grid).display = bool(view.locks)


def _part(lines: int) -> str:
    """Say that not all lines are in the table, "" where they are."""
    return f", {MOST_ROWS} of {lines} (/ filters)" if lines > MOST_ROWS else ""


def _holders(lines: list[HolderLine], room: int) -> tuple[list[Column], list[Row]]:
    fixed = 9 + 14 + 8 + 11
    columns = [
        Column(title="pid", width=9, right=True),
        Column(title="transactions", width=14, right=True),
        Column(title="open", width=8, right=True),
        Column(title="dead rows", width=11, right=True),
        Column(title="who, state and statement", width=max(room - fixed, 24)),
    ]
    rows = []
    for number, one in enumerate(lines):
        state = f"{one.kind}, {one.state}" if one.kind != "session" else one.state
        rows.append(
            Row(
                key=f"{one.pid} {number}" if one.pid is not None else f"- {number}",
                cells=(
                    right(str(one.pid) if one.pid is not None else "-", columns[0]),
                    right(one.age, columns[1]),
                    right(one.open_for, columns[2]),
                    right(one.keeps, columns[3]),
                    _two_lines(f"{one.name}, {state}", one.query, columns[4]),
                ),
            )
        )
    return columns, rows


def _locks(lines: list[LockLine], room: int) -> tuple[list[Column], list[Row]]:
    who = min(max(room * 2 // 5, 26), 60)
    columns = [
        Column(title="who blocks whom", width=who),
        Column(title="waits for, state and statement", width=max(room - who, 24)),
    ]
    return columns, [
        Row(
            key=f"{one.pid} {number}",
            cells=(
                left(
                    "  " * one.depth + ("└ " if one.depth else "") + f"{one.pid or ''} {one.who}", columns[0]
                ),
                _two_lines(f"{one.waits}, {one.state}" if one.state else one.waits, one.query, columns[1]),
            ),
        )
        for number, one in enumerate(lines)
    ]


def _two_lines(first: str, second: str, column: Column) -> Cell:
    """Return a cell with its statement below it."""
    return stacked(left(first, column), *((left(second, column, "dim"),) if second else ()))
