"""Tables for a terminal, by tabulate."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence

from tabulate import tabulate

GAP = 2
"""Columns between two cells, as tabulate's "plain" sets them."""


def text_table(
    headers: Sequence[str],
    rows: Sequence[Sequence[str]],
    *,
    width: int,
    right: Sequence[int] = (),
    least: int = 12,
) -> list[str]:
    """Return the lines of a table that fits ``width`` where its words allow that.

    Cells must be clean; the columns in ``right`` are set flush right. Where the table is too wide the widest
    columns are wrapped between words, to no less than ``least`` characters: a name is never broken, since it
    is there to be copied.
    """
    widths = [max(len(row[place]) for row in (headers, *rows)) for place in range(len(headers))]
    room = width - GAP * (len(headers) - 1)
    while sum(widths) > room and max(widths) > least:
        widths[widths.index(max(widths))] -= 1
    cells = [
        # tabulate's own wrapping reads numbers into cells, and fails on "1,234".
        ["\n".join(_wrapped(cell, most)) for cell, most in zip(row, widths, strict=True)]
        for row in (headers, *rows)
    ]
    text = tabulate(
        cells,
        # As a header tabulate would set it two columns wider.
        headers=(),
        tablefmt="plain",
        disable_numparse=True,
        colalign=["right" if place in right else "left" for place in range(len(headers))],
    )
    return [line.rstrip() for line in text.splitlines()]


def _wrapped(cell: str, most: int) -> list[str]:
    return textwrap.wrap(cell, most, break_long_words=False, break_on_hyphens=False)
