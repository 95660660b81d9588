"""Values with units as people read them: 1,234 rows, 872 kB, 4 min, 1.2 million buffers. Numbers are written by pgqdoctor.words."""

from __future__ import annotations

import math
from typing import Final

from pgqdoctor.words import count as number
from pgqdoctor.words import duration, percent, size

__all__ = ["counted", "duration", "number", "percent", "quantity", "size"]

_SECONDS: Final = {
    "seconds": 1.0,
    "s": 1.0,
    "milliseconds": 0.001,
    "ms": 0.001,
    "microseconds": 0.000_001,
    "µs": 0.000_001,
}
_PER_SECOND: Final = "per second"


def quantity(value: int | float | str, unit: str) -> str:
    """Return a value with its unit; a whole number without one is a name (a pid, an oid), left as it is."""
    if isinstance(value, str):
        return f"{value} {unit}" if unit else value
    if isinstance(value, bool):
        return "yes" if value else "no"
    if not math.isfinite(value):
        return f"{value} {unit}".rstrip()
    if unit == "":
        return str(value) if isinstance(value, int) else number(value)
    if unit in _SECONDS:
        return duration(value * _SECONDS[unit])
    if unit == "bytes":
        return size(value)
    if unit == "ratio":
        return percent(value)
    if unit in ("percent", "%"):
        return percent(value / 100)
    if unit == "/s":
        return f"{number(value)} {_PER_SECOND}"
    if unit == f"bytes {_PER_SECOND}":
        return f"{size(value)} {_PER_SECOND}"
    return f"{number(value)} {_singular(unit) if value == 1 else unit}"


def counted(count: int, noun: str) -> str:
    """Return "1 finding", "2 findings", "3 queries"."""
    if count == 1:
        return f"1 {noun}"
    return f"{count:,} {noun[:-1] + 'ies' if noun.endswith('y') else noun + 's'}"


def _singular(unit: str) -> str:
    """Return "row per second" for "rows per second"; units that are no plural stay."""
    first, space, rest = unit.partition(" ")
    if first.endswith("ies"):
        first = first[:-3] + "y"
    elif first.endswith(("xes", "ches", "sses")):
        first = first[:-2]
    elif first.endswith("s") and not first.endswith("ss"):
        first = first[:-1]
    return first + space + rest
