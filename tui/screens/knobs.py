"""Screen 6."""

from __future__ import annotations

from textual.app import ComposeResult
from textual.content import Content
from textual.widgets import Static

from pgqdoctor.feed import Snapshot
from pgqdoctor.tui.screens.pane import Choice, Pane, Scroll, chosen_queue, matching, no_queue
from pgqdoctor.tui.views.knobs import FIGURES, LEGEND, Advice, KnobsView, TriangleView
from pgqdoctor.tui.views.knobs import Part as KnobsPart
from pgqdoctor.tui.views.picture import Picture

Part = str | tuple[str, str]


class KnobsPane(Pane):
    """The knobs of the chosen queue."""

    DEFAULT_CSS = """
    KnobsPane #knobs-scroll { padding: 0 1; }
    """

    def __init__(self, *, id: str) -> None:
        super().__init__(id=id)
        self._knobs: KnobsView | None = None

    def compose(self) -> ComposeResult:
        """Make the text."""
        with Scroll(id="knobs-scroll"):
            yield Static(id="knobs-text")

    def take_focus(self) -> None:
        """Give the keys to the text."""
        self.query_one("#knobs-scroll", Scroll).focus()

    def copied(self) -> str:
        """Every statement that is advised on this screen."""
        if self._knobs is None:
            return ""
        advised = [advice for part in self._knobs.parts for advice in part.advice]
        if self._knobs.triangle is not None:
            advised.insert(0, self._knobs.triangle.todo)
        lines = list(dict.fromkeys(line for advice in advised for line in advice.sql))
        return "\n".join(lines) + "\n" if lines else ""

    def show(self, snapshot: Snapshot[Picture], choice: Choice) -> None:
        """Show the knobs."""
        found = snapshot.shown.knobs
        matches = matching((one.queue for one in found), choice)
        queue = chosen_queue(matches, choice)
        self._knobs = next((one for one in found if one.queue == queue), None)
        text = self.query_one("#knobs-text", Static)
        text.update(
            Content(no_queue(choice))
            if self._knobs is None
            else knobs_text(self._knobs, len(matches), self.app.size.width - 4)
        )


def knobs_text(shown: KnobsView, queues: int, room: int) -> Content:
    """Return the corners with today's values and what the findings advise, for ``room`` columns."""
    parts: list[Part] = [(shown.queue, "bold underline")]
    if queues > 1:
        parts.append((f"  (left and right: another of {queues} queues)", "$text-muted"))
    parts.append("\n")
    if shown.triangle is not None:
        parts.extend(_triangle(shown.triangle, room))
    for part in shown.parts:
        parts.extend(_part(part, room))
    return Content.assemble(*parts)


def _triangle(triangle: TriangleView, room: int) -> list[Part]:
    parts: list[Part] = [("\n> ", "bold"), (f"{triangle.todo.title}\n", "bold $text-warning")]
    parts.append(f"  {triangle.todo.why}\n")
    parts.extend((f"      {line}\n", "$text-accent") for line in triangle.todo.sql)
    had = [one for one in triangle.designs if one.figures]
    widths = [
        max(len(head), *(len(one.figures[place]) for one in had)) + 3 for place, head in enumerate(FIGURES)
    ]
    longest = max(len(one.name) for one in had) + 2
    beside = longest + sum(widths) + 2 <= room
    name = longest if beside else len("design") + 2
    heads = "".join(figure.rjust(width) for figure, width in zip(FIGURES, widths, strict=True))
    parts.append((f"\n  {'design'.ljust(name)}{heads}\n", "bold"))
    for one in had:
        figures = "".join(figure.rjust(width) for figure, width in zip(one.figures, widths, strict=True))
        mark = "> " if one.now else "  "
        # Where there is no room beside the figures, the design's name stands above them.
        line = f"{one.name.ljust(name)}{figures}" if beside else f"{one.name}\n  {' ' * name}{figures}"
        parts.append((f"{mark}{line}\n", "bold" if one.now else ""))
    parts.append((f"  {LEGEND}\n", "$text-muted"))
    parts.extend(
        (f"  Cannot be had: {one.name}, as {one.why_not}\n", "$text-muted")
        for one in triangle.designs
        if not one.figures
    )
    for knob in triangle.knobs:
        parts.append((f"\n  {knob.name}, today {knob.today}: ", "bold"))
        parts.append((f"{knob.verdict}\n", "bold $text-warning" if knob.turn else "bold"))
        parts.append(f"    {knob.reason}\n")
        parts.extend((f"      {line}\n", "$text-muted") for line in knob.arithmetic)
    parts.extend((f"  {note}\n", "$text-muted") for note in triangle.notes)
    return parts


def _part(part: KnobsPart, room: int) -> list[Part]:
    parts: list[Part] = [(f"\n{part.name}\n", "bold underline")]
    name = max((len(one[0]) for one in part.facts), default=0)
    value = max((len(one[1]) for one in part.facts), default=0)
    beside = all(name + value + len(one[2]) + 6 <= room for one in part.facts)
    for knob, today, measured in part.facts:
        parts.extend((f"  {knob.ljust(name)}  ", (today.ljust(value) if beside else today, "bold")))
        if measured:
            # Where there is no room beside the value, what was measured stands below it.
            parts.append((f"  {measured}" if beside else f"\n      {measured}", "$text-muted"))
        parts.append("\n")
    if not part.facts:
        parts.append("  nothing known\n")
    for advice in part.advice:
        parts.extend(_advice(advice))
    if not part.advice:
        parts.append(("  no finding asks to turn it\n", "$text-muted"))
    return parts


def _advice(advice: Advice) -> list[Part]:
    parts: list[Part] = [("  > ", "bold"), (f"{advice.title}\n", "bold $text-warning")]
    parts.append(f"    because: {advice.finding}\n")
    parts.extend((f"      {line}\n", "$text-accent") for line in advice.sql)
    if advice.why:
        parts.append((f"    expect: {advice.why}\n", "$text-muted"))
    return parts
