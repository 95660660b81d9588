"""Charts as SVG text: lines over a number, and horizontal bars. Pure, and no library.

Inside an HTML page a chart takes the page's text colour; ``standalone`` adds a background and a colour of its own,
for a file that is shown anywhere.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from html import escape
from typing import Final

from pgqdoctor.render.clean import one_line

PALETTE: Final = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#8c6bb1", "#7f7f7f")
"""Okabe and Ito's colours, which colour-blind readers can tell apart; yellow, too faint on white, left out."""
FONT: Final = "system-ui, -apple-system, 'Segoe UI', Roboto, 'Helvetica Neue', Arial, sans-serif"
WIDTH: Final = 640
HEIGHT: Final = 360
_LETTER: Final = 6.3
"""Mean width of a letter at 12 pixels: room for labels is kept by it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Series:
    """One line: its points by x, its colour's place in PALETTE, dashed or not."""

    name: str
    points: tuple[tuple[float, float], ...]
    color: int
    dashed: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Bar:
    """One bar with what stands at its end."""

    label: str
    value: float
    shown: str
    color: int


def compact(value: float) -> str:
    """A number for an axis or a label: 950, 1.2k, 34k, 5.6M."""
    for limit, unit in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(value) >= limit:
            scaled = value / limit
            return f"{scaled:.0f}{unit}" if scaled >= 100 or scaled == int(scaled) else f"{scaled:.1f}{unit}"
    if value == int(value):
        return f"{value:.0f}"
    return f"{value:.1f}" if abs(value) >= 1 else f"{value:.2g}"


def line_chart(
    title: str,
    series: Sequence[Series],
    *,
    x_label: str,
    y_label: str,
    log_x: bool = False,
    log_y: bool = False,
    show: Callable[[float], str] = compact,
    standalone: bool = False,
) -> str:
    """Lines with a mark at each point and each line's name at its right end. ``show`` writes y values."""
    points = [point for one in series for point in one.points]
    names = max((len(one.name) for one in series), default=0)
    left, right, top, bottom = 62.0, 24.0 + names * _LETTER, 62.0, 46.0
    x = _Scale.over([p[0] for p in points], left, WIDTH - right, log=log_x, ticks_at_values=log_x, tight=True)
    y = _Scale.over([p[1] for p in points], HEIGHT - bottom, top, log=log_y, from_zero=not log_y)
    parts = [_text(16, 22, title, weight=600, size=14)]
    for tick in y.ticks:
        parts.append(_rule(left, y.at(tick), WIDTH - right, y.at(tick)))
        parts.append(_text(left - 8, y.at(tick) + 4, show(tick), anchor="end", faint=True))
    for tick in x.ticks:
        parts.append(_rule(x.at(tick), HEIGHT - bottom, x.at(tick), HEIGHT - bottom + 5, strong=True))
        parts.append(_text(x.at(tick), HEIGHT - bottom + 19, compact(tick), anchor="middle", faint=True))
    parts.append(_rule(left, HEIGHT - bottom, WIDTH - right, HEIGHT - bottom, strong=True))
    parts.append(_text((left + WIDTH - right) / 2, HEIGHT - 10, x_label, anchor="middle", faint=True))
    parts.append(_text(16, 42, y_label, faint=True))
    ends = _apart([y.at(one.points[-1][1]) if one.points else top for one in series], top, HEIGHT - bottom)
    for one, end in zip(series, ends, strict=True):
        color = PALETTE[one.color % len(PALETTE)]
        placed = [(x.at(px), y.at(py)) for px, py in one.points]
        if not placed:
            continue
        path = " ".join(f"{px:.1f},{py:.1f}" for px, py in placed)
        dash = ' stroke-dasharray="5 4"' if one.dashed else ""
        parts.append(
            f'<polyline points="{path}" fill="none" stroke="{color}" stroke-width="2"'
            f' stroke-linejoin="round"{dash}/>'
        )
        for (px, py), (vx, vy) in zip(placed, one.points, strict=True):
            told = escape(one_line(f"{one.name}, {compact(vx)}: {show(vy)}"))
            parts.append(
                f'<circle cx="{px:.1f}" cy="{py:.1f}" r="3.2" fill="{color}"><title>{told}</title></circle>'
            )
        last_x, last_y = placed[-1]
        if abs(end - last_y) > 2:
            parts.append(
                f'<line x1="{last_x + 4:.1f}" y1="{last_y:.1f}" x2="{WIDTH - right + 8:.1f}" y2="{end:.1f}"'
                f' stroke="{color}" stroke-width="1" opacity="0.5"/>'
            )
        parts.append(_text(WIDTH - right + 12, end + 4, one.name, color=color))
    return _svg(title, HEIGHT, parts, standalone=standalone)


def bar_chart(
    title: str, bars: Sequence[Bar], *, x_label: str, log: bool = False, standalone: bool = False
) -> str:
    """Horizontal bars in the order given. ``log`` starts the axis at the power of ten below the least value."""
    left = 24.0 + max((len(one.label) for one in bars), default=0) * _LETTER
    right = 24.0 + max((len(one.shown) for one in bars), default=0) * _LETTER
    top, row = 38.0, 26.0
    height = top + row * len(bars) + 44
    scale = _Scale.over([one.value for one in bars], left, WIDTH - right, log=log, from_zero=not log)
    parts = [_text(16, 22, title, weight=600, size=14)]
    for tick in scale.ticks:
        parts.append(_rule(scale.at(tick), top, scale.at(tick), height - 40))
        parts.append(_text(scale.at(tick), height - 25, compact(tick), anchor="middle", faint=True))
    parts.append(_text((left + WIDTH - right) / 2, height - 8, x_label, anchor="middle", faint=True))
    for place, one in enumerate(bars):
        y = top + place * row
        length = max(1.5, scale.at(one.value) - left)
        color = PALETTE[one.color % len(PALETTE)]
        parts.append(_text(left - 8, y + 17, one.label, anchor="end"))
        parts.append(
            f'<rect x="{left:.1f}" y="{y + 4:.1f}" width="{length:.1f}" height="{row - 9:.1f}" rx="2" fill="{color}"/>'
        )
        parts.append(_text(left + length + 6, y + 17, one.shown))
    return _svg(title, height, parts, standalone=standalone)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Scale:
    """A number's place in pixels, and the ticks of its axis."""

    low: float
    high: float
    start: float
    end: float
    log: bool
    ticks: tuple[float, ...]

    @classmethod
    def over(
        cls,
        values: Sequence[float],
        start: float,
        end: float,
        *,
        log: bool,
        from_zero: bool = False,
        ticks_at_values: bool = False,
        tight: bool = False,
    ) -> _Scale:
        if log:
            positive = [value for value in values if value > 0] or [1.0]
            if ticks_at_values:
                low, high, ticks = min(positive), max(positive), tuple(sorted(set(positive)))
            else:
                first, last = math.floor(math.log10(min(positive))), math.ceil(math.log10(max(positive)))
                last = max(last, first + 1)
                low, high = 10.0**first, 10.0**last
                ticks = tuple(10.0**power for power in range(first, last + 1))
        else:
            low = 0.0 if from_zero else min(values, default=0.0)
            high = max(values, default=1.0)
            high = high if high > low else low + 1.0
            step = _step(high - low)
            first, last = math.floor(low / step), math.ceil(high / step - 1e-9)
            ticks = tuple(step * place for place in range(first, last + 1))
            if tight:
                ticks = tuple(tick for tick in ticks if low <= tick <= high)
            else:
                low, high = ticks[0], ticks[-1]
        return cls(low=low, high=high, start=start, end=end, log=log, ticks=ticks)

    def at(self, value: float) -> float:
        if self.log:
            value = max(value, self.low)
            span = math.log(self.high / self.low)
            share = math.log(value / self.low) / span if span else 0.5
        else:
            share = (value - self.low) / (self.high - self.low)
        return self.start + share * (self.end - self.start)


def _step(span: float) -> float:
    """The distance of about five ticks: 1, 2 or 5 times a power of ten."""
    power = 10.0 ** math.floor(math.log10(span / 5))
    return next(power * factor for factor in (1, 2, 5, 10) if span / (power * factor) <= 6)


def _apart(wanted: Sequence[float], top: float, bottom: float, gap: float = 15.0) -> list[float]:
    """Move labels as little as needed so that no two are closer than ``gap``."""
    order = sorted(range(len(wanted)), key=lambda place: wanted[place])
    placed = list(wanted)
    floor = top - gap
    for place in order:
        placed[place] = floor = max(wanted[place], floor + gap)
    ceiling = bottom + gap / 2
    for place in reversed(order):
        placed[place] = ceiling = min(placed[place], ceiling)
        ceiling -= gap
    return placed


def _text(
    x: float,
    y: float,
    text: str,
    *,
    anchor: str = "start",
    color: str = "currentColor",
    faint: bool = False,
    size: int = 12,
    weight: int = 400,
) -> str:
    opacity = ' opacity="0.7"' if faint else ""
    return (
        f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" font-size="{size}" font-weight="{weight}"'
        f' fill="{color}"{opacity}>{escape(one_line(text))}</text>'
    )


def _rule(x1: float, y1: float, x2: float, y2: float, *, strong: bool = False) -> str:
    opacity = "0.6" if strong else "0.15"
    return f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" stroke="currentColor" opacity="{opacity}"/>'


def _svg(title: str, height: float, parts: Sequence[str], *, standalone: bool) -> str:
    body = "\n".join(parts)
    ground = f'<rect width="{WIDTH}" height="{height:.0f}" fill="#ffffff"/>\n' if standalone else ""
    ink = ' color="#1f2328"' if standalone else ""
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height:.0f}" role="img"'
        f' aria-label="{escape(one_line(title))}" font-family="{escape(FONT)}"{ink}>\n{ground}{body}\n</svg>'
    )
