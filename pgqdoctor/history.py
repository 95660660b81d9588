"""The stream of a session, kept compressed and bounded: what is scrolled back through and what ``w`` writes.

One part is one gzip member that holds one line of JSON. Members may be joined to a file, and a file that is
cut off still opens up to the cut.
"""

from __future__ import annotations

import gzip
import threading
from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import msgspec

from pgqdoctor.pulse import Pulse
from pgqdoctor.window import Beat, Look, Moment, Scene, Stream

MOST_BYTES = 64 * 1024 * 1024
"""Compressed bytes kept: an hour at two seconds takes about 10 MB with ten sessions."""
MOST_BEATS = 3_600
"""Readings kept: two hours at the usual two seconds."""
LEVEL = 3
"""gzip's own scale: the poller must not spend on compression what it needs for sampling."""

Part = Scene | Beat | Look
_KINDS: dict[str, type[Scene] | type[Beat] | type[Look]] = {"scene": Scene, "beat": Beat, "look": Look}
_NAMES = {kind: name for name, kind in _KINDS.items()}


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """One line of a recording."""

    kind: str
    body: msgspec.Raw


def encode(part: Part) -> bytes:
    """Return a part as one gzip member."""
    record = Record(kind=_NAMES[type(part)], body=msgspec.Raw(msgspec.json.encode(part)))
    return gzip.compress(msgspec.json.encode(record) + b"\n", LEVEL, mtime=0)


def decode_line(line: bytes) -> Part | None:
    """Return the part of one line of JSON; None for a kind that a later version may have added.

    Raises msgspec.DecodeError for anything else.
    """
    record = msgspec.json.decode(line, type=Record)
    kind = _KINDS.get(record.kind)
    return None if kind is None else msgspec.json.decode(record.body, type=kind)


def decode(member: bytes) -> Part | None:
    """Return the part in one gzip member."""
    return decode_line(gzip.decompress(member))


@dataclass(slots=True)
class _Kept:
    """One beat with what must be known to open it: the latest scene and look, and the texts before it.

    These are the first ``texts_known`` of ``texts``, a list that beats share and that only grows: a copy for each beat would
    outweigh the beats.
    """

    at: float
    resumed: bool
    beat: bytes
    scene: bytes
    look: bytes | None
    texts: list[str]
    texts_known: int
    pulse: Pulse | None = None

    @property
    def texts_before(self) -> tuple[str, ...]:
        """The statement texts that earlier beats brought."""
        return tuple(self.texts[: self.texts_known])

    def weight_beside(self, neighbour: _Kept | None) -> int:
        """Compressed bytes that it holds and its neighbour does not."""
        shared = neighbour is not None and neighbour.scene is self.scene
        seen = self.look is None or (neighbour is not None and neighbour.look is self.look)
        return len(self.beat) + (0 if shared else len(self.scene)) + (0 if seen else len(self.look or b""))


class History:
    """The latest beats of a stream, bounded in number and in bytes. Safe to use from several threads."""

    def __init__(self, *, most_beats: int = MOST_BEATS, most_bytes: int = MOST_BYTES) -> None:
        self._lock = threading.Lock()
        self._kept: deque[_Kept] = deque()
        self._most_beats, self._most_bytes = most_beats, most_bytes
        self._bytes = 0
        self._scene: bytes | None = None
        self._look: bytes | None = None
        self._texts: list[str] = []
        self._dropped = 0

    def add(self, part: Part, encoded: bytes | None = None) -> int | None:
        """Keep a part; return the number of the beat, None for a part that is none.

        Numbers count from 0 and stay when the oldest beats are dropped.
        """
        data = encode(part) if encoded is None else encoded
        with self._lock:
            if isinstance(part, Scene):
                self._scene = data
                return None
            if isinstance(part, Look):
                self._look = data
                return None
            if self._scene is None:
                return None
            if part.texts_start != len(self._texts):
                self._texts = self._texts[: part.texts_start]
            kept = _Kept(
                at=part.at,
                resumed=part.resumed,
                beat=data,
                scene=self._scene,
                look=self._look,
                texts=self._texts,
                texts_known=len(self._texts),
            )
            self._texts.extend(part.texts)
            self._bytes += kept.weight_beside(self._kept[-1] if self._kept else None)
            self._kept.append(kept)
            while len(self._kept) > self._most_beats or (
                self._bytes > self._most_bytes and len(self._kept) > 1
            ):
                self._bytes -= self._kept.popleft().weight_beside(self._kept[0] if self._kept else None)
                self._dropped += 1
            return self._dropped + len(self._kept) - 1

    def note_pulse(self, number: int, pulse: Pulse) -> None:
        """Keep the numbers of a beat beside it."""
        with self._lock:
            place = number - self._dropped
            if 0 <= place < len(self._kept):
                self._kept[place].pulse = pulse

    def span(self) -> tuple[int, int]:
        """Return the numbers of the first beat kept and of the one after the last."""
        with self._lock:
            return self._dropped, self._dropped + len(self._kept)

    def times(self) -> tuple[float, ...]:
        """Return the server's clock at each beat kept."""
        with self._lock:
            return tuple(one.at for one in self._kept)

    def pulses(self) -> tuple[Pulse, ...]:
        """Return the numbers over time, the oldest first."""
        with self._lock:
            return tuple(one.pulse for one in self._kept if one.pulse is not None)

    @property
    def size(self) -> int:
        """Compressed bytes kept."""
        return self._bytes

    def moments(self, number: int, seconds: float) -> tuple[Moment, ...]:
        """Open the beats of the window of ``seconds`` that ends at a beat, as ``window.window_of`` tells it."""
        with self._lock:
            place = number - self._dropped
            if not 0 <= place < len(self._kept):
                return ()
            start = place
            while (
                start > 0
                and not self._kept[start].resumed
                and self._kept[place].at - self._kept[start].at < seconds - 0.05
            ):
                start -= 1
            chosen = [self._kept[position] for position in range(start, place + 1)]
        return tuple(_opened(chosen))

    def members(self) -> Iterator[bytes]:
        """Yield what is kept as gzip members in an order that can be read back."""
        with self._lock:
            kept = list(self._kept)
        scene: bytes | None = None
        look: bytes | None = None
        for place, one in enumerate(kept):
            if one.scene is not scene:
                scene = one.scene
                yield scene
            if one.look is not None and one.look is not look:
                look = one.look
                yield look
            if place == 0 and one.texts_known:
                yield _first(one)
                continue
            yield one.beat


def _first(kept: _Kept) -> bytes:
    """The first beat of a stream must bring every text that it refers to."""
    beat = decode(kept.beat)
    if not isinstance(beat, Beat):
        raise TypeError(f"a beat was expected, not {type(beat).__name__}")
    return encode(_whole(beat, kept.texts_before))


def _whole(beat: Beat, before: tuple[str, ...]) -> Beat:
    return Beat(
        reading=beat.reading,
        samples=beat.samples,
        texts_start=0,
        texts=(*before, *beat.texts),
        lacks=beat.lacks,
        resumed=beat.resumed,
    )


def _opened(chosen: Iterable[_Kept]) -> Iterator[Moment]:
    scenes: dict[int, Scene] = {}
    looks: dict[int, Look] = {}
    for one in chosen:
        if id(one.scene) not in scenes:
            part = decode(one.scene)
            if isinstance(part, Scene):
                scenes[id(one.scene)] = part
        if one.look is not None and id(one.look) not in looks:
            part = decode(one.look)
            if isinstance(part, Look):
                looks[id(one.look)] = part
        beat = decode(one.beat)
        if isinstance(beat, Beat):
            stream = Stream()
            stream.take(scenes[id(one.scene)])
            if one.look is not None:
                stream.take(looks[id(one.look)])
            moment = stream.take(_whole(beat, one.texts_before))
            if moment is not None:
                yield moment
