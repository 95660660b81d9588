"""Screen 3: who is active and what for, over time and by wait event."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pgqdoctor import waits
from pgqdoctor.frames import Frame
from pgqdoctor.pulse import Pulse
from pgqdoctor.render.clean import one_line
from pgqdoctor.waits import GROUPS, Group

LETTERS: dict[Group, str] = {
    "multixact": "M",
    "subtransaction": "S",
    "lock": "L",
    "buffer": "B",
    "I/O": "I",
    "CPU": "C",
    "other": "o",
}
"""What fills the bars, so that no colour is needed to tell the groups apart."""
ORDERS = ("sessions", "group")
"""How the wait events may be sorted; the first is the usual one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DoingLine:
    """One statement of one application at a wait event."""

    text: str
    application: str
    sessions: float


@dataclass(frozen=True, slots=True, kw_only=True)
class EventLine:
    """One wait event over the window; ``share`` is its part of all active sessions."""

    group: Group
    event: str
    sessions: float
    share: float
    doing: tuple[DoingLine, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class WaitsView:
    """The window's wait events, and averages of the window."""

    events: tuple[EventLine, ...]
    active: float
    idle_in_transaction: float
    samples: int


def waits_view(frame: Frame) -> WaitsView:
    """Return the wait events of the window with what was done at each."""
    found = waits.events(frame.observation)
    active = sum(one.sessions for one in found)
    return WaitsView(
        events=tuple(
            EventLine(
                group=one.group,
                event=one_line(one.event),
                sessions=one.sessions,
                share=one.sessions / active if active else 0.0,
                doing=tuple(
                    DoingLine(
                        text=one_line(doing.text) or "(text not visible)",
                        application=one_line(doing.application) or "(no name)",
                        sessions=doing.sessions,
                    )
                    for doing in one.doing
                ),
            )
            for one in found
        ),
        active=active,
        idle_in_transaction=waits.idle_in_transaction(frame.observation.samples),
        samples=len(frame.observation.samples),
    )


def in_order(events: Sequence[EventLine], order: str) -> tuple[EventLine, ...]:
    """Return the wait events by one of ORDERS: the greatest first, or group by group as the view has them."""
    return tuple(events if order == "group" else sorted(events, key=lambda one: -one.sessions))


def columns(pulses: Sequence[Pulse], most: int) -> tuple[tuple[float, ...], ...]:
    """Return the groups' average active sessions over time, the latest ``most`` moments."""
    shown = pulses[-most:] if most > 0 else ()
    return tuple(
        tuple(next((one.sessions for one in pulse.waits if one.group == group), 0.0) for group in GROUPS)
        for pulse in shown
    )


def stacked(
    values: Sequence[Sequence[float]], height: int, top: float
) -> tuple[tuple[Group | None, ...], ...]:
    """Return rows from the top down, each with the group that fills a column there, None for nothing.

    A group that occurs at all gets at least one cell where there is room: rare multixact waits must be seen.
    """
    filled = [_column(column, height, top) for column in values]
    return tuple(tuple(column[height - 1 - row] for column in filled) for row in range(height))


def _column(column: Sequence[float], height: int, top: float) -> list[Group | None]:
    total = sum(column)
    cells = min(height, max(round(total / top * height), 1 if total > 0 else 0)) if top > 0 else 0
    present = [place for place, value in enumerate(column) if value > 0]
    parts = {place: column[place] / total * cells for place in present} if total > 0 else {}
    counts = {place: int(part) for place, part in parts.items()}
    if len(present) <= cells:
        counts = {place: max(count, 1) for place, count in counts.items()}
    while sum(counts.values()) > cells:
        counts[max(counts, key=lambda place: counts[place] - parts[place])] -= 1
    while sum(counts.values()) < cells:
        counts[max(counts, key=lambda place: parts[place] - counts[place])] += 1
    # Work stands at the bottom, what should not be there on top of it.
    stack: list[Group | None] = []
    for place in sorted(counts, reverse=True):
        stack.extend([GROUPS[place]] * counts[place])
    return [*stack, *[None] * (height - len(stack))]
