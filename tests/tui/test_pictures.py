"""Every screen at three sizes, from recordings, with a fixed clock and theme.

``pytest tests/tui --snapshot-update`` writes them anew.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from textual.pilot import Pilot

from pgqdoctor.live import Dropped, LinkState
from tests.tui.staged import StagedFeed, app_staged, snapshot_staged

SIZES = ((80, 24), (120, 40), (200, 60))
SCREENS = {
    "overview": ("1", "idle-snapshot"),
    "finding": ("2", "idle-snapshot"),
    "waits": ("3", "savepoint-storm"),
    "horizon": ("4", "lock-queue"),
    "claim": ("5", "idle-snapshot"),
    "knobs": ("6", "idle-snapshot"),
    "history": ("7", "idle-snapshot"),
}
CONNECTED = LinkState(kind="connected")


@pytest.mark.parametrize("size", SIZES, ids=lambda size: f"{size[0]}x{size[1]}")
@pytest.mark.parametrize("screen", SCREENS)
def test_screen(snap_compare: Any, screen: str, size: tuple[int, int]) -> None:
    key, name = SCREENS[screen]
    feed = StagedFeed(CONNECTED, snapshot_staged(name), name=name)

    async def before(pilot: Pilot[None]) -> None:
        await pilot.pause()
        await pilot.press(key)
        await pilot.pause()

    assert snap_compare(app_staged(feed), terminal_size=size, run_before=before)


def test_healthy_queues(snap_compare: Any) -> None:
    name = "healthy-two-queues"
    feed = StagedFeed(CONNECTED, snapshot_staged(name), name=name)
    assert snap_compare(app_staged(feed), terminal_size=(120, 40), run_before=settled)


def test_lost_connection_and_dropped_table(snap_compare: Any) -> None:
    """The last data stays, and says how old it is."""
    name = "healthy-two-queues"
    snapshot = snapshot_staged(name)
    gone = Dropped(name=snapshot.shown.queues[0].name, at=snapshot.shown.frame.at)
    lost = LinkState(kind="reconnecting", reason="the connection was lost: server closed the connection")
    feed = StagedFeed(CONNECTED, snapshot, gone, snapshot, lost, name=name)
    assert snap_compare(app_staged(feed), terminal_size=(80, 24), run_before=settled)


def test_help(snap_compare: Any) -> None:
    feed = StagedFeed(CONNECTED, snapshot_staged("idle-snapshot"))
    assert snap_compare(app_staged(feed), press=["?"], terminal_size=(80, 24))


def test_confirmation(snap_compare: Any) -> None:
    feed = StagedFeed(CONNECTED, snapshot_staged("idle-snapshot"))

    async def before(pilot: Pilot[None]) -> None:
        await pilot.pause()
        await pilot.press("4", "t")
        await pilot.pause()

    assert snap_compare(app_staged(feed), terminal_size=(80, 24), run_before=before)


def test_no_color(snap_compare: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    feed = StagedFeed(CONNECTED, snapshot_staged("savepoint-storm"), name="savepoint-storm")

    async def before(pilot: Pilot[None]) -> None:
        await pilot.pause()
        await pilot.press("3")
        await pilot.pause()

    assert snap_compare(app_staged(feed), terminal_size=(80, 24), run_before=before)


async def settled(pilot: Pilot[None]) -> None:
    await pilot.pause()


@pytest.mark.parametrize("screen", SCREENS)
def test_the_pictures_in_the_documentation_are_these(screen: str) -> None:
    """Written by ``python -m tests.tui.test_pictures`` after the snapshots."""
    assert shown_in_docs(screen).read_text() == taken(screen).read_text()


def shown_in_docs(screen: str) -> Path:
    return Path(__file__).parents[2] / "docs" / "pictures" / f"top-{screen}.svg"


def taken(screen: str) -> Path:
    return Path(__file__).parent / "__snapshots__" / "test_pictures" / f"test_screen[{screen}-120x40].svg"


if __name__ == "__main__":
    for name in SCREENS:
        shown_in_docs(name).write_text(taken(name).read_text())
