"""What every screen is: it is given a snapshot when it is looked at, and nothing else."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import ClassVar

from textual.binding import Binding, BindingType
from textual.containers import Container, VerticalScroll
from textual.geometry import Size

from pgqdoctor.feed import Snapshot
from pgqdoctor.tui.views.picture import Picture
from pgqdoctor.tui.views.waits import ORDERS
from pgqdoctor.tui.widgets.grid import Grid


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """What the user chose: a queue, a filter, an order of the queues (``sort``) and one of the wait events."""

    queue: str | None = None
    wanted: str = ""
    sort: str = "name"
    events: str = ORDERS[0]


def matching(names: Iterable[str], choice: Choice) -> tuple[str, ...]:
    """Return the queues that the filter lets through."""
    return tuple(name for name in names if choice.wanted.lower() in name.lower())


def chosen_queue(matches: tuple[str, ...], choice: Choice) -> str | None:
    """Return the queue that a screen of one queue shows: the chosen one, else the first; None where there is none."""
    return choice.queue if choice.queue in matches else next(iter(matches), None)


def no_queue(choice: Choice) -> str:
    """Say why a screen of one queue shows none."""
    return (
        f"No queue matches the filter {choice.wanted!r} (escape clears it)."
        if choice.wanted
        else "No queue found."
    )


class Scroll(VerticalScroll):
    """A scrolled text with the keys of a pager."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("j", "scroll_down", "Down", show=False),
        Binding("k", "scroll_up", "Up", show=False),
    ]


class Pane(Container):
    """One screen."""

    _shown: tuple[object, ...] = ()

    def look_at(self, snapshot: Snapshot[Picture], choice: Choice, size: Size) -> None:
        """Show a moment, unless this screen shows just that already."""
        asked = (snapshot, choice, size, *(grid.room for grid in self.query(Grid)))
        if len(self._shown) == len(asked) and snapshot is self._shown[0] and asked[1:] == self._shown[1:]:
            return
        self._shown = asked
        self.show(snapshot, choice)

    def show(self, snapshot: Snapshot[Picture], choice: Choice) -> None:
        """Show a moment; called only while the screen is looked at, or when it begins to be."""
        raise NotImplementedError

    def take_focus(self) -> None:
        """Give the keys to the part that is used most."""

    def copied(self) -> str:
        """What the copy key hands over, "" for nothing."""
        return ""

    def nothing_copied(self) -> str:
        """Say why there is nothing to copy."""
        return "This screen has nothing to copy."

    def order(self, choice: Choice) -> str:
        """What the screen is sorted by, "" where that is its usual order."""
        return ""

    def next_order(self, choice: Choice) -> Choice | None:
        """Return the choice with the screen's next order; None where it has one only."""
        return None

    def back(self) -> bool:
        """Go back one step inside the screen; False where there is none."""
        return False

    def sideways(self, step: int) -> bool:
        """Go to the next part (1) or the one before (-1); False where the screen has no parts of its own."""
        return False
