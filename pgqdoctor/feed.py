"""From a stream to frames: the threads between the poller (or a recording) and a screen.

A feed keeps the history, builds the frame that is to be shown in a thread of its own and posts it as one frozen
message. A frame that is not built when the next is due is left out, so that a slow machine shows fewer
frames and not older ones.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Generic, Protocol, TypeVar

from pgqdoctor.frames import Frame, Judging, frame_of
from pgqdoctor.history import History
from pgqdoctor.live import (
    Dropped,
    LinkState,
    LiveOptions,
    Message,
    PollCost,
    Poller,
    Signal,
    SignalOutcome,
)
from pgqdoctor.pulse import Pulse, pulse
from pgqdoctor.recording import open_recording
from pgqdoctor.window import Beat, Look, Moment, Scene, Stream, observation_of, window_of

Shown = TypeVar("Shown")
T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot(Generic[T]):
    """What is to be shown: a moment's frame as ``derive`` made it, and where it stands in the history.

    ``newest`` is true while the latest moment is shown.
    """

    shown: T
    number: int
    first: int
    last: int
    newest: bool
    pulses: tuple[Pulse, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """A frame that could not be made, in a sentence."""

    message: str


Posted = Snapshot[T] | LinkState | PollCost | Dropped | SignalOutcome | Failure


class Feed(Protocol[Shown]):
    """Where frames come from."""

    history: History
    live: bool
    source: str

    def start(self, post: Callable[[Posted[Shown]], None]) -> None:
        """Begin to post."""

    def stop(self) -> None:
        """End every thread."""

    def show(self, number: int | None) -> None:
        """Show a moment of the history from now on, None for the latest."""

    def set_interval(self, seconds: float) -> None:
        """Change the polling interval."""

    def signal(self, signal: Signal) -> bool:
        """Ask for a signal to a backend; False where this feed sends none."""


class _Builder(Generic[T]):
    """The thread that makes frames; ``show`` and ``grown`` wake it."""

    def __init__(self, history: History, judging: Judging, derive: Callable[[Frame], T]) -> None:
        self.history = history
        self.judging = judging
        self.derive = derive
        self.recent: deque[tuple[int, Moment]] = deque()
        self._wanted: int | None = None
        self._wake = threading.Event()
        self._stopped = threading.Event()
        self._lock = threading.Lock()
        self._post: Callable[[Posted[T]], None] = lambda posted: None
        self._thread = threading.Thread(target=self._run, name="pgqdoctor-frames", daemon=True)
        self._backlog: deque[int] = deque()
        self._made: tuple[int, T] | None = None

    def start(self, post: Callable[[Posted[T]], None]) -> None:
        self._post = post
        self._thread.start()

    def stop(self) -> None:
        self._stopped.set()
        self._wake.set()
        if self._thread.is_alive():
            self._thread.join(2.0)

    def grown(self, number: int, moment: Moment) -> None:
        with self._lock:
            self.recent.append((number, moment))
            # Samples of hundreds of sessions are large: what is older than the window is kept compressed only.
            while (
                len(self.recent) > 2 and moment.beat.at - self.recent[1][1].beat.at >= self.judging.window_s
            ):
                self.recent.popleft()
        self._wake.set()

    def loaded(self, numbers: range) -> None:
        """Work out the numbers over time of moments that were loaded, the latest first, when nothing else is to be done."""
        self._backlog.extend(numbers)
        self._wake.set()

    def show(self, number: int | None) -> None:
        self._wanted = number
        self._wake.set()

    def _run(self) -> None:
        done: tuple[int | None, int] | None = None
        while not self._stopped.is_set():
            if not self._backlog:
                self._wake.wait()
            self._wake.clear()
            if self._stopped.is_set():
                return
            wanted = self._wanted
            first, end = self.history.span()
            if end > first and done != (wanted, end):
                done = (wanted, end)
                self._build(wanted, first, end - 1)
            elif self._backlog:
                self._note(self._backlog.pop())
                if not self._backlog:
                    done = None
                    self._wake.set()

    def _build(self, wanted: int | None, first: int, last: int) -> None:
        number = last if wanted is None else min(max(wanted, first), last)
        try:
            if self._made is None or self._made[0] != number:
                frame = self._frame(number)
                if frame is None:
                    return
                self.history.note_pulse(number, frame.pulse)
                self._made = (number, self.derive(frame))
            elif number != last:
                # An older moment stays on the screen; the numbers over time go on.
                self._note(last)
        except Exception as error:  # One bad moment must not end the dashboard.
            self._post(Failure(message=f"this moment could not be shown: {type(error).__name__}: {error}"))
            return
        if wanted != self._wanted:
            return
        self._post(
            Snapshot(
                shown=self._made[1],
                number=number,
                first=first,
                last=last,
                newest=wanted is None,
                pulses=self.history.pulses(),
            )
        )

    def _frame(self, number: int) -> Frame | None:
        window = self._window(number)
        seen = observation_of(window)
        return None if seen is None else frame_of(seen, self.judging, since=window[-2].beat.at)

    def _window(self, number: int) -> tuple[Moment, ...]:
        with self._lock:
            recent = [moment for place, moment in self.recent if place <= number]
            known = any(place == number for place, _ in self.recent)
        window = tuple(window_of(recent, self.judging.window_s)) if known else ()
        whole = bool(window) and (
            window[0].beat.resumed or window[-1].beat.at - window[0].beat.at >= self.judging.window_s - 0.05
        )
        return window if whole else self.history.moments(number, self.judging.window_s)

    def _note(self, number: int) -> None:
        window = self._window(number)
        seen = observation_of(window)
        if seen is not None:
            self.history.note_pulse(number, pulse(seen, since=window[-2].beat.at))


class LiveFeed(Generic[T]):
    """A server, polled."""

    live = True

    def __init__(
        self,
        conninfo: str,
        options: LiveOptions,
        judging: Judging,
        derive: Callable[[Frame], T],
        *,
        read_only: bool = False,
        source: str = "",
    ) -> None:
        self.history = History()
        self.source = source
        self._builder = _Builder(self.history, judging, derive)
        self._stream = Stream()
        self._poller = Poller(conninfo, options, self._take, read_only=read_only)
        self._read_only = read_only
        self._post: Callable[[Posted[T]], None] = lambda posted: None

    def start(self, post: Callable[[Posted[T]], None]) -> None:
        """Begin to post."""
        self._post = post
        self._builder.start(post)
        self._poller.start()

    def stop(self) -> None:
        """End every thread."""
        self._poller.stop()
        self._builder.stop()

    def show(self, number: int | None) -> None:
        """Show a moment of the history from now on, None for the latest."""
        self._builder.show(number)

    def set_interval(self, seconds: float) -> None:
        """Change the polling interval."""
        self._poller.set_interval(seconds)

    def signal(self, signal: Signal) -> bool:
        """Ask for a signal to a backend."""
        if self._read_only:
            return False
        self._poller.request(signal)
        return True

    def _take(self, message: Message) -> None:
        if not isinstance(message, Scene | Beat | Look):
            self._post(message)
            return
        number = self.history.add(message)
        moment = self._stream.take(message)
        if number is not None and moment is not None:
            self._builder.grown(number, moment)


class RecordedFeed(Generic[T]):
    """A recording, played back; its numbers over time are worked out while it is looked at."""

    live = False

    def __init__(self, path: Path, judging: Judging, derive: Callable[[Frame], T]) -> None:
        self.history = History(most_beats=1_000_000, most_bytes=1 << 40)
        self.opened = open_recording(path, self.history)
        cut, redacted = self.opened.cut, self.opened.header.redacted
        self.source = f"{path.name}{', redacted' if redacted else ''}{', cut off at its end' if cut else ''}"
        self._builder = _Builder(self.history, judging, derive)

    def start(self, post: Callable[[Posted[T]], None]) -> None:
        """Begin to post."""
        first, end = self.history.span()
        self._builder.start(post)
        self._builder.show(None)
        self._builder.loaded(range(first, end))

    def stop(self) -> None:
        """End the thread."""
        self._builder.stop()

    def show(self, number: int | None) -> None:
        """Show a moment of the recording, None for its last."""
        self._builder.show(number)

    def set_interval(self, seconds: float) -> None:
        """A recording has the interval it was made with."""

    def signal(self, signal: Signal) -> bool:
        """A recording has no backends."""
        return False
