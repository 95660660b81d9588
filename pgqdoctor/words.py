"""Numbers and names as every text says them: one way of writing for checks, reports and dashboards. JSON has the numbers exact."""

from __future__ import annotations

from typing import Final

_SIZES: Final = ("bytes", "kB", "MB", "GB", "TB", "PB")


def count(number: float) -> str:
    """Return 12345 as "12,345", 4988048 as "4.99 million"; below ten one decimal stays unless the number is whole."""
    for floor, word in ((1e9, "billion"), (1e6, "million")):
        if abs(number) >= floor * 0.9995:
            return (
                f"{number / floor:.3g} {word}"
                if abs(number) < floor * 999.5
                else f"{number / floor:,.0f} {word}"
            )
    if number == int(number) or abs(number) >= 9.95:
        return f"{round(number):,}"
    return f"{number:.1f}".removesuffix(".0") if abs(number) >= 0.0995 else f"{number:.1g}"


def duration(seconds: float) -> str:
    """Return seconds as a person says them: 350 ms, 1.4 s, 12 s, 4 min, 3 h 20 min, 9 days."""
    if seconds < 0:
        return "-" + duration(-seconds)
    if seconds == 0:
        return "0 s"
    if seconds < 0.0995:
        return f"{seconds * 1000:.2g} ms"
    if seconds < 0.9995:
        return f"{seconds * 1000:.0f} ms"
    if seconds < 9.95:
        return f"{seconds:.1f}".removesuffix(".0") + " s"
    if seconds < 120:
        return f"{seconds:.0f} s"
    if seconds < 7200:
        return f"{seconds / 60:.0f} min"
    if seconds < 172_800:
        hours, rest = divmod(round(seconds / 60), 60)
        return f"{hours} h {rest} min" if rest else f"{hours} h"
    return f"{seconds / 86_400:.0f} days"


def size(byte_count: float) -> str:
    """Return bytes in PostgreSQL's own units, of 1024 each: "512 bytes", "872 kB", "1.5 GB"."""
    if abs(byte_count) < 1000:
        return f"{byte_count:.0f} {'byte' if byte_count == 1 else 'bytes'}"
    unit = _SIZES[0]
    for unit in _SIZES:
        if abs(byte_count) < 1000 or unit == _SIZES[-1]:
            break
        byte_count /= 1024
    if abs(byte_count) >= 9.95:
        return f"{byte_count:,.0f} {unit}"
    return f"{byte_count:.1f}".removesuffix(".0") + f" {unit}"


def percent(ratio: float) -> str:
    """Return 0.234 as "23%"; a decimal stays below one percent, and where the rest to a hundred is smaller than that."""
    value = ratio * 100
    if value == 0 or 1 <= value <= 99 or value >= 100:
        return f"{value:,.0f}%"
    return f"{min(value, 99.9):.1f}%" if value >= 0.05 else "under 0.1%"


def rate(per_second: float) -> str:
    """Return a rate as "12/s" or, below one per second, "3/min", below one per minute "5/h"."""
    if per_second >= 1 or per_second == 0:
        return f"{count(per_second)}/s"
    return f"{count(per_second * 60)}/min" if per_second * 60 >= 0.995 else f"{count(per_second * 3600)}/h"


def shortened(text: str, most: int = 80) -> str:
    """Return text on one line, cut with an ellipsis."""
    line = " ".join(text.split())
    return line if len(line) <= most else line[: most - 1] + "…"


def buffers(number: float) -> str:
    """Return a number of buffers, the pages of 8 kB that a statement reads: "1 buffer", "1,234 buffers"."""
    return plural(number if number < 10 else round(number), "buffer")


def plural(number: float, noun: str) -> str:
    """Return "1 job", "12 jobs"."""
    return f"{count(number)} {noun}" + ("" if number == 1 else "s")
