"""The verdict and its root cause, on top of every screen."""

from __future__ import annotations

from textual.content import Content
from textual.widgets import Static

from pgqdoctor.tui.theme import SEVERITY
from pgqdoctor.tui.views.overview import Head

LINES = 3


class TopLine(Static):
    """One to three lines: CRITICAL, and the sentence that says why, which ends with "…" where it is longer."""

    _parts: tuple[str | tuple[str, str], ...] = ()
    DEFAULT_CSS = """
    TopLine {
        height: auto;
        max-height: 3;  /* LINES */
        padding: 0 1;
        background: $panel;
    }
    """

    def wait(self, source: str) -> None:
        """Say that nothing was read yet."""
        self._tell(("WAITING", "bold"), f" for the first two readings of {source}")

    def show(self, head: Head, stale: str) -> None:
        """Show the verdict; ``stale`` says how old it is where it is not of now."""
        parts: list[str | tuple[str, str]] = []
        if stale:
            parts.append((f" {stale} ", "reverse"))
            parts.append(" ")
        parts.append((head.word, SEVERITY[head.verdict]))
        parts.append(f"  {head.cause}")
        self._tell(*parts)

    def on_resize(self) -> None:
        """Cut the sentence anew."""
        self._lay_out()

    def _tell(self, *parts: str | tuple[str, str]) -> None:
        if parts != self._parts:
            self._parts = parts
            self._lay_out()

    def _lay_out(self) -> None:
        self.update(fitting(Content.assemble(*self._parts), self.app.size.width - 2, LINES))


def fitting(text: Content, width: int, most: int) -> Content:
    """Return the text, with "…" at the end of line ``most`` where it has more lines of that width."""
    lines = text.wrap(max(width, 1))
    if len(lines) <= most:
        return text
    last = Content(" ").join(line.rstrip() for line in lines[most - 1 :])
    return Content("\n").join([*lines[: most - 1], last.truncate(max(width, 1), ellipsis=True)])
