"""What the parts of the dashboard tell each other."""

from __future__ import annotations

from textual.message import Message

from pgqdoctor.feed import Posted
from pgqdoctor.tui.views.picture import Picture


class FeedPosted(Message):
    """Something came from the feed's threads: a snapshot, or how the connection stands."""

    def __init__(self, posted: Posted[Picture]) -> None:
        super().__init__()
        self.posted = posted


class PaneWanted(Message):
    """A screen is asked for by name, by a tab that was clicked."""

    def __init__(self, pane: str) -> None:
        super().__init__()
        self.pane = pane


class FindingChosen(Message):
    """A finding is to be opened."""

    def __init__(self, key: str) -> None:
        super().__init__()
        self.key = key


class QueueChosen(Message):
    """A queue is to be opened."""

    def __init__(self, name: str) -> None:
        super().__init__()
        self.name = name
