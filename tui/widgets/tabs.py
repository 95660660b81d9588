"""The names of the screens with their numbers; a click opens one."""

from __future__ import annotations

from textual.app import ComposeResult
from textual.containers import Horizontal
from textual.content import Content
from textual.widgets import Static

from pgqdoctor.tui.messages import PaneWanted


class Tab(Static):
    """One name."""

    def __init__(self, number: int, pane: str, title: str) -> None:
        super().__init__(Content.assemble((str(number), "bold"), f" {title}"), id=f"tab-{pane}")
        self.pane = pane

    def on_click(self) -> None:
        """Ask for the screen."""
        self.post_message(PaneWanted(self.pane))


class PaneTabs(Horizontal):
    """All names in a row."""

    DEFAULT_CSS = """
    PaneTabs {
        height: 1;
        background: $surface;
    }
    PaneTabs Tab {
        width: auto;
        padding: 0 1;
        color: $text-muted;
    }
    PaneTabs Tab.current {
        background: $primary;
        color: $background;
        text-style: bold underline;
    }
    """

    def __init__(self, panes: dict[str, str]) -> None:
        super().__init__()
        self.panes = panes

    def compose(self) -> ComposeResult:
        """Make one tab per screen."""
        for number, (pane, title) in enumerate(self.panes.items(), 1):
            yield Tab(number, pane, title)

    def mark(self, pane: str) -> None:
        """Mark the screen that is shown."""
        for tab in self.query(Tab):
            tab.set_class(tab.pane == pane, "current")
