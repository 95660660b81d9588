"""Screen 6."""

from __future__ import annotations

from textual.app import ComposeResult
from textual.content import Content
from textual.widgets import Static

from pgqdoctor.feed import Snapshot
from pgqdoctor.tui.screens.pane import Choice, Pane, Scroll
from pgqdoctor.tui.views.knobs import Corner, KnobsView
from pgqdoctor.tui.views.picture import Picture

Part = str | tuple[str, str]


class KnobsPane(Pane):
    """The knobs of the chosen queue."""

    DEFAULT_CSS = """
    KnobsPane #knobs-scroll { padding: 0 1; }
    """

    def __init__(self, *, id: str) -> None:
        super().__init__(id=id)
        self._shown: KnobsView | None = None

    def compose(self) -> ComposeResult:
        """Make the text."""
        with Scroll(id="knobs-scroll"):
            yield Static(id="knobs-text")

    def take_focus(self) -> None:
        """Give the keys to the text."""
        self.query_one("#knobs-scroll", Scroll).focus()

    def copied(self) -> str:
        """Every statement that is advised on this screen."""
        if self._shown is None:
            return ""
        lines = [line for corner in self._shown.corners for advice in corner.advice for line in advice.sql]
        return "\n".join(lines) + "\n" if lines else ""

    def show(self, snapshot: Snapshot[Picture], choice: Choice) -> None:
        """Show the knobs."""
        found = snapshot.shown.knobs
        self._shown = next((one for one in found if one.queue == choice.queue), next(iter(found), None))
        text = self.query_one("#knobs-text", Static)
        text.update(
            Content("No queue found.")
            if self._shown is None
            else knobs_text(self._shown, len(found), self.app.size.width - 4)
        )


def knobs_text(shown: KnobsView, queues: int, room: int) -> Content:
    """Return the corners with today's values and what the findings advise, for ``room`` columns."""
    parts: list[Part] = [(shown.queue, "bold underline")]
    if queues > 1:
        parts.append((f"  (left and right: another of {queues} queues)", "$text-muted"))
    parts.append("\n")
    for corner in shown.corners:
        parts.extend(_corner(corner, room))
    return Content.assemble(*parts)


def _corner(corner: Corner, room: int) -> list[Part]:
    parts: list[Part] = [(f"\n{corner.name}\n", "bold")]
    name = max((len(one[0]) for one in corner.facts), default=0)
    value = max((len(one[1]) for one in corner.facts), default=0)
    beside = all(name + value + len(one[2]) + 6 <= room for one in corner.facts)
    for knob, today, measured in corner.facts:
        parts.extend((f"  {knob.ljust(name)}  ", (today.ljust(value) if beside else today, "bold")))
        if measured:
            # Where there is no room beside the value, what was measured stands below it.
            parts.append((f"  {measured}" if beside else f"\n      {measured}", "$text-muted"))
        parts.append("\n")
    if not corner.facts:
        parts.append("  nothing known\n")
    for advice in corner.advice:
        parts.extend((("  > ", "bold"), (f"{advice.title}\n", "bold $text-warning")))
        parts.append((f"    because: {advice.finding}\n", ""))
        parts.extend((f"      {line}\n", "$text-accent") for line in advice.sql)
        if advice.why:
            parts.append((f"    expect: {advice.why}\n", "$text-muted"))
    if not corner.advice:
        parts.append(("  no finding asks to turn it\n", "$text-muted"))
    return parts
