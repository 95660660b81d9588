"""A table of rows with a cursor that stays on its row while the rows are made anew.

Textual's DataTable draws cell by cell with rich's renderables: twenty queues of eleven numbers took a third of the time that a
key may take to the screen. This one gives Textual finished lines and keeps those of rows that did not change.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import ClassVar

from rich.cells import set_cell_size
from rich.segment import Segment
from rich.style import Style
from textual.binding import Binding, BindingType
from textual.events import Click
from textual.geometry import Region, Size
from textual.message import Message
from textual.scroll_view import ScrollView
from textual.strip import Strip

HEAD = 1
"""Lines of the heading, which does not scroll."""
Piece = tuple[str, str]
"""A text without line breaks, and rich's name of its style."""
Line = tuple[Piece, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    """One column: its heading, its width in letters, and whether it is set to the right."""

    title: str
    width: int
    right: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """What stands in one column of one row: lines that are as wide as the column."""

    lines: tuple[Line, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One row: a key that stays from moment to moment, and its cells."""

    key: str
    cells: tuple[Cell, ...]

    @property
    def height(self) -> int:
        """Lines of the highest cell."""
        return max((len(cell.lines) for cell in self.cells), default=1)


def left(text: str, column: Column, style: str = "") -> Cell:
    """Return a cell set to the left, cut with an ellipsis, with a column's gap behind it."""
    room = column.width - 1
    fitting = set_cell_size(text, room)
    if fitting.rstrip() != text.rstrip():
        fitting = set_cell_size(text, max(room - 1, 0)) + "…"
    return Cell(lines=(((f"{fitting} ", style),),))


def right(text: str, column: Column, style: str = "") -> Cell:
    """Return a cell set to the right, with a column's gap behind it."""
    room = column.width - 1
    return Cell(lines=(((f"{text[:room].rjust(room)} ", style),),))


def stacked(*cells: Cell) -> Cell:
    """Return one cell with the lines of several below each other."""
    return Cell(lines=tuple(line for cell in cells for line in cell.lines))


class Grid(ScrollView, can_focus=True):
    """The table; what is read from a server is never taken for markup."""

    class RowSelected(Message):
        """A row was opened, with enter or the mouse."""

        def __init__(self, grid: Grid, key: str) -> None:
            super().__init__()
            self.grid = grid
            self.key = key

        @property
        def control(self) -> Grid:
            """The table, for selectors."""
            return self.grid

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("down,j", "move(1)", "Down", show=False),
        Binding("up,k", "move(-1)", "Up", show=False),
        Binding("pagedown", "page(1)", "Page down", show=False),
        Binding("pageup", "page(-1)", "Page up", show=False),
        Binding("home", "end(0)", "First", show=False),
        Binding("end", "end(-1)", "Last", show=False),
        Binding("enter", "select", "Open", show=False),
    ]
    COMPONENT_CLASSES: ClassVar[set[str]] = {"grid--head", "grid--cursor"}
    DEFAULT_CSS = """
    Grid {
        height: 1fr;
        background: $background;
        overflow-x: hidden;
        scrollbar-gutter: stable;
    }
    Grid > .grid--head {
        background: $surface;
        text-style: bold;
    }
    Grid > .grid--cursor {
        background: $block-cursor-blurred-background;
        color: $block-cursor-blurred-foreground;
        text-style: $block-cursor-blurred-text-style;
    }
    Grid:focus > .grid--cursor {
        background: $block-cursor-background;
        color: $block-cursor-foreground;
        text-style: $block-cursor-text-style;
    }
    """

    def __init__(self, *, id: str, headed: bool = True) -> None:
        super().__init__(id=id)
        self._head = HEAD if headed else 0
        self.rows: tuple[Row, ...] = ()
        self._columns: tuple[Column, ...] = ()
        self._cursor = 0
        self._tops: tuple[int, ...] = (0,)
        self._used = (Style(), Style(), Style())
        self._drawn: dict[tuple[Row, bool], tuple[Strip, ...]] = {}

    @property
    def room(self) -> int:
        """Letters of a line beside the scroll bar; before the first layout those of a grid as wide as the screen."""
        laid_out = self.scrollable_content_region.width
        return laid_out or self.app.size.width - self.scrollbar_size_vertical

    @property
    def chosen(self) -> str | None:
        """The key of the row under the cursor, None in an empty table."""
        return self.rows[self._cursor].key if self.rows else None

    def show(self, columns: Sequence[Column], rows: Sequence[Row]) -> None:
        """Show the rows; the cursor stays with its key, and the scroll position where it is."""
        columns, rows = tuple(columns), tuple(rows)
        if columns == self._columns and rows == self.rows:
            return
        key = self.chosen
        self._columns, self.rows = columns, rows
        kept = next((number for number, row in enumerate(rows) if row.key == key), None)
        self._cursor = max(min(self._cursor, len(rows) - 1), 0) if kept is None else kept
        self._tops = tuple(accumulate((row.height for row in rows), initial=0))
        shown = set(rows)
        self._drawn = {drawn: strips for drawn, strips in self._drawn.items() if drawn[0] in shown}
        self.virtual_size = Size(sum(column.width for column in columns), self._head + self._tops[-1])
        self.refresh()

    # -- keys and mouse --------------------------------------------------------------------------------------

    def action_move(self, step: int) -> None:
        """Move the cursor by rows."""
        self._move_to(self._cursor + step)

    def action_page(self, step: int) -> None:
        """Move the cursor by a screen."""
        line = self._tops[self._cursor] + step * max(self._page, 1)
        self._move_to(bisect_right(self._tops, max(line, 0)) - 1)

    def action_end(self, place: int) -> None:
        """Move the cursor to the first row (0) or the last (-1)."""
        self._move_to(place % len(self.rows) if self.rows else 0)

    def action_select(self) -> None:
        """Open the row under the cursor."""
        if self.chosen is not None:
            self.post_message(self.RowSelected(self, self.chosen))

    def on_click(self, event: Click) -> None:
        """Open the row that was clicked."""
        line = event.y - self._head + self.scroll_offset.y
        if event.y >= self._head and line < self._tops[-1]:
            self._move_to(bisect_right(self._tops, line) - 1)
            self.action_select()

    @property
    def _page(self) -> int:
        return self.size.height - self._head

    def _move_to(self, place: int) -> None:
        if not self.rows:
            return
        self._cursor = max(min(place, len(self.rows) - 1), 0)
        top, bottom = self._tops[self._cursor], self._tops[self._cursor + 1]
        if top < self.scroll_offset.y:
            self.scroll_to(y=top, animate=False)
        elif bottom > self.scroll_offset.y + self._page:
            self.scroll_to(y=bottom - self._page, animate=False)
        self.refresh()

    # -- lines -----------------------------------------------------------------------------------------------

    def render_lines(self, crop: Region) -> list[Strip]:
        """Return the lines of a region; what was drawn in other colours is drawn anew."""
        used = (
            self.rich_style,
            self.get_component_rich_style("grid--head"),
            self.get_component_rich_style("grid--cursor"),
        )
        if used != self._used:
            self._used = used
            self._drawn = {}
        return super().render_lines(crop)

    def render_line(self, y: int) -> Strip:
        """Return one line of the widget."""
        plain, head, cursor = self._used
        width = self.size.width
        line = y - self._head + self.scroll_offset.y
        if y < self._head:
            return _strip([(_heading(self._columns), "")], plain + head, None).adjust_cell_length(
                width, plain + head
            )
        if line >= self._tops[-1]:
            return Strip.blank(width, plain)
        number = bisect_right(self._tops, line) - 1
        return self._strips(number)[line - self._tops[number]].adjust_cell_length(
            width, plain if number != self._cursor else plain + cursor
        )

    def _strips(self, number: int) -> tuple[Strip, ...]:
        row, under = self.rows[number], number == self._cursor
        strips = self._drawn.get((row, under))
        if strips is None:
            plain, _, cursor = self._used
            strips = tuple(
                _strip(line, plain, cursor if under else None) for line in _lines(row, self._columns)
            )
            self._drawn[row, under] = strips
        return strips


def _heading(columns: Sequence[Column]) -> str:
    return "".join(
        (column.title.rjust(column.width - 1) if column.right else column.title).ljust(column.width)
        for column in columns
    )


def _lines(row: Row, columns: Sequence[Column]) -> Iterable[list[Piece]]:
    for number in range(row.height):
        yield [
            piece
            for cell, column in zip(row.cells, columns, strict=True)
            for piece in (cell.lines[number] if number < len(cell.lines) else ((" " * column.width, ""),))
        ]


def _strip(pieces: Iterable[Piece], plain: Style, over: Style | None) -> Strip:
    """Return the pieces as a line; neighbours of one style are drawn as one."""
    segments: list[Segment] = []
    text, style = "", None
    for more, its_style in pieces:
        if its_style != style:
            if style is not None:
                segments.append(Segment(text, _styled(style, plain, over)))
            text, style = "", its_style
        text += more
    if style is not None:
        segments.append(Segment(text, _styled(style, plain, over)))
    return Strip(segments)


def _styled(style: str, plain: Style, over: Style | None) -> Style:
    found = plain + Style.parse(style) if style else plain
    return found + over if over is not None else found
