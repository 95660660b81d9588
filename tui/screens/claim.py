"""Screen 5."""

from __future__ import annotations

from textual.app import ComposeResult
from textual.content import Content
from textual.widgets import Static

from pgqdoctor.feed import Snapshot
from pgqdoctor.tui.screens.pane import Choice, Pane, Scroll, chosen_queue, matching, no_queue
from pgqdoctor.tui.views.claim import QueueClaims
from pgqdoctor.tui.views.picture import Picture

Part = str | tuple[str, str]


class ClaimPane(Pane):
    """The claim of the chosen queue."""

    DEFAULT_CSS = """
    ClaimPane #claim-scroll { padding: 0 1; }
    """

    def __init__(self, *, id: str) -> None:
        super().__init__(id=id)
        self._claims: QueueClaims | None = None

    def compose(self) -> ComposeResult:
        """Make the text."""
        with Scroll(id="claim-scroll"):
            yield Static(id="claim-text")

    def take_focus(self) -> None:
        """Give the keys to the text."""
        self.query_one("#claim-scroll", Scroll).focus()

    def copied(self) -> str:
        """The claim statement."""
        if self._claims is None or not self._claims.claims:
            return ""
        return "\n".join(self._claims.claims[0].sql) + "\n"

    def show(self, snapshot: Snapshot[Picture], choice: Choice) -> None:
        """Show the claim."""
        found = snapshot.shown.claims
        matches = matching((one.queue for one in found), choice)
        queue = chosen_queue(matches, choice)
        self._claims = next((one for one in found if one.queue == queue), None)
        text = self.query_one("#claim-text", Static)
        text.update(
            Content(no_queue(choice)) if self._claims is None else claim_text(self._claims, len(matches))
        )


def claim_text(shown: QueueClaims, queues: int) -> Content:
    """Return the claims and plans of a queue as text."""
    parts: list[Part] = [(shown.queue, "bold underline")]
    if queues > 1:
        parts.append((f"  (left and right: another of {queues} queues)", "$text-muted"))
    parts.append("\n")
    parts.extend((("framework  ", "$text-muted"), f"{shown.framework}\n"))
    parts.extend((("ready      ", "$text-muted"), f"{shown.ready_predicate}\n"))
    if not shown.claims:
        parts.append("\nNo claim statement was seen.\n")
    for number, claim in enumerate(shown.claims, 1):
        parts.append((f"\nClaim {number} of {len(shown.claims)}: {claim.shape}\n", "bold"))
        column = max((len(what) for what, _ in claim.facts), default=0)
        for what, value in claim.facts:
            parts.extend(((f"  {what.ljust(column)}  ", "$text-muted"), f"{value}\n"))
        parts.extend((f"    {line}\n", "$text-accent") for line in claim.sql)
    for plan in shown.plans:
        parts.extend((("\nPlan", "bold"), (f"  {plan.how}\n", "$text-muted")))
        for line in plan.lines:
            indent = "  " * line.depth
            parts.extend(
                (f"  {indent}{'└ ' if line.depth else ''}{line.label}  ", (f"{line.facts}\n", "bold"))
            )
            parts.extend((f"  {indent}    {text}\n", "$text-muted") for text in line.conditions)
    if shown.lacks:
        parts.append(("\nNot looked at\n", "bold"))
        parts.extend(f"  {one}\n" for one in shown.lacks)
    return Content.assemble(*parts)
