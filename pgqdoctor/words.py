"""Numbers and names as titles say them: one way of writing for every check."""

from __future__ import annotations


def count(number: float) -> str:
    """Return 12345 as "12,345"; numbers below ten keep one decimal unless they are whole."""
    if number == int(number) or abs(number) >= 10:
        return f"{round(number):,}"
    return f"{number:.1f}" if abs(number) >= 0.1 else f"{number:.2f}"


def duration(seconds: float) -> str:
    """Return seconds as a person says them: 0.4 s, 12 s, 4 min, 3 h 20 min, 9 days."""
    if seconds < 0:
        return "-" + duration(-seconds)
    if seconds < 10:
        return f"{seconds:.1f} s"
    if seconds < 120:
        return f"{seconds:.0f} s"
    if seconds < 7200:
        return f"{seconds / 60:.0f} min"
    if seconds < 172_800:
        hours, rest = divmod(round(seconds / 60), 60)
        return f"{hours} h {rest} min" if rest else f"{hours} h"
    return f"{seconds / 86_400:.0f} days"


def size(byte_count: float) -> str:
    """Return bytes in the units pg_size_pretty() uses."""
    for unit in ("bytes", "kB", "MB", "GB"):
        if abs(byte_count) < 10_240 or unit == "GB":
            return f"{byte_count:,.0f} {unit}"
        byte_count /= 1024
    raise AssertionError("unreachable")


def percent(ratio: float) -> str:
    """Return 0.234 as "23%"; below one percent with a decimal."""
    value = ratio * 100
    return f"{value:.0f}%" if value >= 1 or value == 0 else f"{value:.1f}%"


def rate(per_second: float) -> str:
    """Return a rate as "12/s" or, below one per second, "3/min"."""
    if per_second >= 1 or per_second == 0:
        return f"{count(per_second)}/s"
    return f"{count(per_second * 60)}/min"


def shortened(text: str, most: int = 80) -> str:
    """Return text on one line, cut with an ellipsis."""
    line = " ".join(text.split())
    return line if len(line) <= most else line[: most - 1] + "…"


def plural(number: float, noun: str) -> str:
    """Return "1 job", "12 jobs"."""
    return f"{count(number)} {noun}" + ("" if number == 1 else "s")
