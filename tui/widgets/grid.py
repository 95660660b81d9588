"""A table that keeps its cursor on the same row while its rows are made anew."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from rich.text import Text
from textual.binding import Binding, BindingType
from textual.widgets import DataTable


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    """One column: its heading, its width in letters, and whether it is set to the right."""

    title: str
    width: int
    right: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One row: a key that stays from moment to moment, its cells and its height in lines."""

    key: str
    cells: tuple[Text, ...]
    height: int = 1


class Grid(DataTable[Text]):
    """A DataTable with a row cursor; cells are Text, so that no name is read as markup.

    To the DataTable a row is one cell: it draws cells one by one, and twenty queues of eleven numbers took half of
    the time between a key and the screen.
    """

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("j", "cursor_down", "Down", show=False),
        Binding("k", "cursor_up", "Up", show=False),
    ]
    DEFAULT_CSS = """
    Grid {
        height: 1fr;
        background: $background;
    }
    """

    def __init__(self, *, id: str) -> None:
        super().__init__(id=id, cursor_type="row", cell_padding=0, zebra_stripes=False)
        self._columns_shown: tuple[Column, ...] = ()
        self._rows_shown: tuple[Row, ...] = ()

    @property
    def chosen(self) -> str | None:
        """The key of the row under the cursor, None in an empty table."""
        if not self._rows_shown or self.cursor_row >= len(self._rows_shown):
            return None
        return self._rows_shown[self.cursor_row].key

    def show(self, columns: Sequence[Column], rows: Sequence[Row]) -> None:
        """Show the rows; the cursor stays with its key, and the scroll position where it is."""
        columns, rows = tuple(columns), tuple(rows)
        if columns == self._columns_shown and rows == self._rows_shown:
            return
        key, place = self.chosen, self.cursor_row
        scrolled = self.scroll_y
        if columns != self._columns_shown:
            self.clear(columns=True)
            heads = [
                Text(column.title.rjust(column.width - 1) if column.right else column.title)
                for column in columns
            ]
            self.add_column(joined(heads, columns, 1), width=sum(column.width for column in columns))
        else:
            self.clear()
        self._columns_shown, self._rows_shown = columns, rows
        for row in rows:
            self.add_row(joined(row.cells, columns, row.height), height=row.height, key=row.key)
        if rows:
            kept = next((number for number, row in enumerate(rows) if row.key == key), None)
            self.move_cursor(
                row=min(place, len(rows) - 1) if kept is None else kept, animate=False, scroll=False
            )
            self.scroll_to(y=scrolled, animate=False)


def joined(cells: Sequence[Text], columns: Sequence[Column], height: int) -> Text:
    """Return the cells beside each other, each cut and padded to its column's width, over ``height`` lines."""
    lines = Text(no_wrap=True, end="")
    split = [cell.split("\n", allow_blank=True) if "\n" in cell.plain else (cell,) for cell in cells]
    for number in range(height):
        if number:
            lines.append("\n")
        for parts, column in zip(split, columns, strict=True):
            if number >= len(parts):
                lines.append(" " * column.width)
                continue
            part = parts[number]
            if part.cell_len != column.width:
                part = part.copy()
                part.truncate(column.width, pad=True)
            lines.append_text(part)
    return lines


def right(text: str, column: Column, style: str = "") -> Text:
    """Return a cell set to the right, with a column's gap behind it."""
    return Text(text[: column.width - 1].rjust(column.width - 1) + " ", style=style, no_wrap=True)


def left(text: str, column: Column, style: str = "") -> Text:
    """Return a cell set to the left, cut with an ellipsis."""
    room = column.width - 1
    shown = text if len(text) <= room else text[: room - 1] + "…"
    return Text(shown.ljust(room) + " ", style=style, no_wrap=True)
