"""Numbers and names in few columns: "12.3k", "4m10s", "2 d". A dashboard's cell has six to eight of them."""

from __future__ import annotations

import math

from pgqdoctor.render.clean import one_line

UNKNOWN = "?"
"""What could not be seen."""
NONE = "-"
"""What did not occur."""
_BLOCKS = " ▁▂▃▄▅▆▇█"


def number(value: float | None) -> str:
    """Return 12345 as "12.3k"; three figures at most before the letter."""
    if value is None or not math.isfinite(value):
        return UNKNOWN
    for floor, letter in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(value) >= floor * (0.9995 if floor > 1e3 else 10):
            return f"{value / floor:.3g}{letter}"
    if value == int(value) or abs(value) >= 100:
        return f"{value:.0f}"
    return f"{value:.1f}" if abs(value) >= 10 else f"{value:.2g}"


def seconds(value: float | None) -> str:
    """Return seconds as "350ms", "12.3s", "4m10s", "3h20m", "2d5h"."""
    if value is None or not math.isfinite(value):
        return UNKNOWN
    if value < 0:
        return "-" + seconds(-value)
    if value < 0.9995:
        return f"{value * 1000:.0f}ms" if value else "0s"
    if value < 59.95:
        return f"{value:.1f}s" if value != int(value) else f"{value:.0f}s"
    whole = round(value)
    for most, size, lower, letter, small in (
        (3600, 60, 1, "m", "s"),
        (86_400, 3600, 60, "h", "m"),
        (math.inf, 86_400, 3600, "d", "h"),
    ):
        if whole < most:
            large, rest = divmod(whole, size)
            return f"{large}{letter}{rest // lower:02d}{small}" if large < 100 else f"{large}{letter}"
    raise AssertionError("unreachable")


def percent(ratio: float | None, *, none: str = NONE) -> str:
    """Return 0.234 as "23%"."""
    if ratio is None:
        return none
    value = ratio * 100
    return f"{value:.0f}%" if value >= 9.95 or value == round(value) else f"{value:.1f}%"


def size(byte_count: float | None) -> str:
    """Return bytes as "512B", "872kB", "1.5GB", in units of 1024."""
    if byte_count is None:
        return UNKNOWN
    value = float(byte_count)
    for unit in ("B", "kB", "MB", "GB", "TB"):
        if abs(value) < 1000 or unit == "TB":
            return f"{value:.0f}{unit}" if unit == "B" or abs(value) >= 9.95 else f"{value:.1f}{unit}"
        value /= 1024
    raise AssertionError("unreachable")


def cut(text: str, columns: int) -> str:
    """Return text on one clean line of at most ``columns`` letters."""
    line = one_line(text)
    return line if len(line) <= columns else line[: max(columns - 1, 0)] + "…"


def spark(values: tuple[float | None, ...], columns: int) -> str:
    """Return the latest values as blocks of eight heights from zero to their maximum; a gap where nothing is known."""
    shown = values[-columns:]
    top = max((one for one in shown if one is not None), default=0.0)
    blocks = []
    for one in shown:
        if one is None:
            blocks.append(" ")
        elif top <= 0:
            blocks.append(_BLOCKS[1])
        else:
            blocks.append(_BLOCKS[max(1, math.ceil(one / top * 8))])
    return "".join(blocks).rjust(columns)
