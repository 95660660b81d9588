"""Values with units as people read them: 1,234 rows, 872 kB, 4 min 10 s, 1.2 million buffers."""

from __future__ import annotations

import math
from typing import Final

_SECONDS: Final = {
    "seconds": 1.0,
    "s": 1.0,
    "milliseconds": 0.001,
    "ms": 0.001,
    "microseconds": 0.000_001,
    "µs": 0.000_001,
}
_SIZES: Final = ("bytes", "kB", "MB", "GB", "TB", "PB")
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


def number(value: float) -> str:
    """Return 1234567 as "1.23 million", 1234 as "1,234", 12.345 as "12.3", 0.01234 as "0.0123"."""
    for floor, word in ((1e9, "billion"), (1e6, "million")):
        scaled = float(f"{value / floor:.3g}")
        if abs(value) >= 1e6 and abs(scaled) >= 1:
            return f"{scaled:,g} {word}"
    if value == int(value) or abs(value) >= 100:
        return f"{value:,.0f}"
    return f"{value:.3g}"


def size(byte_count: float) -> str:
    """Return bytes in PostgreSQL's own units, of 1024 each: "512 bytes", "872 kB", "1.5 GB"."""
    if abs(byte_count) < 1000:
        return f"{byte_count:.0f} {'byte' if byte_count == 1 else 'bytes'}"
    for unit in _SIZES:
        if abs(byte_count) < 1000 or unit == _SIZES[-1]:
            break
        byte_count /= 1024
    return f"{byte_count:.1f} {unit}" if abs(byte_count) < 9.95 else f"{byte_count:,.0f} {unit}"


def percent(ratio: float) -> str:
    """Return 0.123 as "12.3 %"; 1 as "100 %"."""
    value = ratio * 100
    return f"{value:,.0f} %" if value == round(value) or abs(value) >= 1000 else f"{value:.3g} %"


def duration(seconds: float) -> str:
    """Return seconds in the units that matter: "350 ms", "12.3 s", "4 min 10 s", "3 h 20 min", "2 d 5 h"."""
    if seconds < 0:
        return "-" + duration(-seconds)
    if seconds == 0:
        return "0 s"
    if seconds < 0.9995:
        return f"{seconds * 1000:.3g} ms"
    if seconds < 59.95:
        return f"{seconds:.1f} s"
    if round(seconds) < 3600:
        return _two_units(round(seconds), 60, "min", "s")
    if round(seconds / 60) < 1440:
        return _two_units(round(seconds / 60), 60, "h", "min")
    return _two_units(round(seconds / 3600), 24, "d", "h")


def _two_units(count: int, most: int, larger: str, smaller: str) -> str:
    whole, rest = divmod(count, most)
    return f"{whole:,} {larger} {rest} {smaller}" if rest else f"{whole:,} {larger}"


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
