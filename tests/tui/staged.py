"""Recorded moments with the reports that were once made of them, so that no new check changes a picture."""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import cache
from pathlib import Path

import msgspec

from pgqdoctor.feed import Posted, Snapshot
from pgqdoctor.frames import Frame, Judging, frame_of
from pgqdoctor.history import History
from pgqdoctor.live import Signal
from pgqdoctor.pulse import pulse
from pgqdoctor.queue import build_queues
from pgqdoctor.recording import open_recording
from pgqdoctor.report import Report
from pgqdoctor.tui.app import DoctorApp
from pgqdoctor.tui.views.picture import Picture, picture
from pgqdoctor.window import observation_of

RECORDINGS = Path(__file__).parent.parent.parent / "fixtures" / "observations"
REPORTS = Path(__file__).parent / "reports"
WINDOW_S = 10.0
NAMES = ("idle-snapshot", "lock-queue", "savepoint-storm", "healthy-two-queues")


@cache
def history_of(name: str) -> History:
    """The recording, with the numbers of every moment worked out."""
    history = History()
    open_recording(RECORDINGS / f"{name}.pgqd", history)
    first, end = history.span()
    for number in range(first, end):
        window = history.moments(number, WINDOW_S)
        seen = observation_of(window)
        if seen is not None:
            history.note_pulse(number, pulse(seen, since=window[-2].beat.at))
    return history


@cache
def frame_staged(name: str) -> Frame:
    """The last moment of a recording with its saved report."""
    history = history_of(name)
    seen = observation_of(history.moments(history.span()[1] - 1, WINDOW_S))
    assert seen is not None
    report = msgspec.json.decode((REPORTS / f"{name}.json").read_bytes(), type=Report)
    queues = build_queues(seen)
    return Frame(observation=seen, report=report, pulse=pulse(seen, queues), queues=queues, judging=Judging())


def snapshot_staged(name: str) -> Snapshot[Picture]:
    """The last moment as a feed posts it."""
    history = history_of(name)
    first, end = history.span()
    return Snapshot(
        shown=picture(frame_staged(name)),
        number=end - 1,
        first=first,
        last=end - 1,
        newest=True,
        pulses=history.pulses(),
    )


class StagedFeed:
    """A feed that posts what a test gives it and keeps what the dashboard asks for."""

    def __init__(self, *posted: Posted[Picture], name: str = "idle-snapshot", live: bool = True) -> None:
        self.history = history_of(name)
        self.live = live
        self.source = "postgresql://doctor@db/app" if live else f"{name}.pgqd"
        self.posted = posted
        self.shown: list[int | None] = []
        self.intervals: list[float] = []
        self.signals: list[Signal] = []
        self.stopped = False
        self.post: Callable[[Posted[Picture]], None] = lambda posted: None

    def start(self, post: Callable[[Posted[Picture]], None]) -> None:
        self.post = post
        for one in self.posted:
            post(one)

    def stop(self) -> None:
        self.stopped = True

    def show(self, number: int | None) -> None:
        self.shown.append(number)

    def set_interval(self, seconds: float) -> None:
        self.intervals.append(seconds)

    def signal(self, signal: Signal) -> bool:
        self.signals.append(signal)
        return True


def app_staged(feed: StagedFeed, *, read_only: bool = False, directory: Path | None = None) -> DoctorApp:
    """The dashboard with a clock that stands still."""
    return DoctorApp(feed, read_only=read_only, directory=directory, clock=lambda: 0.0)


def write_reports() -> None:
    """Save the reports anew: ``python -m tests.tui.staged``; the pictures change with them."""
    for name in NAMES:
        history = history_of(name)
        seen = observation_of(history.moments(history.span()[1] - 1, WINDOW_S))
        assert seen is not None
        text = msgspec.json.format(msgspec.json.encode(frame_of(seen).report), indent=1)
        (REPORTS / f"{name}.json").write_bytes(text + b"\n")
        print(f"{name}: {len(text):,} bytes", file=sys.stderr)


if __name__ == "__main__":
    write_reports()
