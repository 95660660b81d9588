"""The verdict and its root cause, on top of every screen."""

from __future__ import annotations

from textual.content import Content
from textual.widgets import Static

from pgqdoctor.tui.theme import SEVERITY
from pgqdoctor.tui.views.overview import Head


class TopLine(Static):
    """One or two lines: CRITICAL, and the sentence that says why."""

    _parts: list[str | tuple[str, str]] | None = None
    DEFAULT_CSS = """
    TopLine {
        height: auto;
        max-height: 3;
        padding: 0 1;
        background: $panel;
    }
    """

    def wait(self, source: str) -> None:
        """Say that nothing was read yet."""
        self.update(Content.assemble(("WAITING", "bold"), f" for the first two readings of {source}"))

    def show(self, head: Head, stale: str) -> None:
        """Show the verdict; ``stale`` says how old it is where it is not of now."""
        parts: list[str | tuple[str, str]] = []
        if stale:
            parts.append((f" {stale} ", "reverse"))
            parts.append(" ")
        parts.append((head.word, SEVERITY[head.verdict]))
        parts.append(f"  {head.cause}")
        if parts != self._parts:
            self._parts = parts
            self.update(Content.assemble(*parts))
