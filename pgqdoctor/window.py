"""A sliding window over a stream: what was read, beat by beat, and the Observation that any run of beats makes.

A live poller and a recording yield the same stream, so both go through the same function and show the same
findings. Pure.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Final

from pgqdoctor.observation import (
    Catalog,
    Lack,
    Observation,
    QueueIdentity,
    QueueProbe,
    Reading,
    Sample,
    Server,
)
from pgqdoctor.rows import StatementTextRow

LOOKS: Final = ("plan", "rows", "sizes", "attempts", "claimed")
"""What only the bounded looks at a queue tell, as checks name their needs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Scene:
    """What changes seldom: the server, the catalog, the statement texts and the queues told from them."""

    tool_version: str
    server: Server
    catalog: Catalog
    statement_texts: tuple[StatementTextRow, ...]
    queues: tuple[QueueIdentity, ...]
    looked_for: tuple[str, ...]
    lacks: tuple[Lack, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Beat:
    """One reading and the samples taken since the reading before it.

    ``texts`` are the statement texts of sessions met for the first time, the first of them at position
    ``texts_start`` of the list that samples refer to; 0 begins a new list, which later beats continue.
    ``resumed`` is true for the first beat after the connection was lost or the watched tables changed: no
    window reaches across it.
    """

    reading: Reading
    samples: tuple[Sample, ...]
    texts_start: int
    texts: tuple[str, ...]
    lacks: tuple[Lack, ...] = ()
    resumed: bool = False

    @property
    def at(self) -> float:
        """The server's clock at the reading, seconds since the epoch."""
        return self.reading.at


@dataclass(frozen=True, slots=True, kw_only=True)
class Look:
    """The bounded looks at the queues, taken less often than the readings. ``at`` is the server's clock."""

    at: float
    probes: tuple[QueueProbe, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Moment:
    """One point of the stream: the beat with the scene, the look and the text list that hold there."""

    scene: Scene
    beat: Beat
    look: Look | None
    texts: tuple[str, ...]


class Stream:
    """Puts scenes, beats and looks in the order they come together into moments."""

    def __init__(self) -> None:
        self._scene: Scene | None = None
        self._look: Look | None = None
        self._texts: tuple[str, ...] = ()

    def take(self, part: Scene | Beat | Look) -> Moment | None:
        """Take the next part; a beat in a known scene makes a moment."""
        if isinstance(part, Scene):
            self._scene = part
            return None
        if isinstance(part, Look):
            self._look = part
            return None
        if part.texts_start == 0 or part.texts:
            self._texts = (*self._texts[: part.texts_start], *part.texts)
        if self._scene is None:
            return None
        return Moment(scene=self._scene, beat=part, look=self._look, texts=self._texts)


def window_of(moments: Sequence[Moment], seconds: float) -> Sequence[Moment]:
    """Return the tail of the moments that makes a window of at least ``seconds`` where there are as many.

    It never reaches across a beat that resumed after a gap.
    """
    if not moments:
        return ()
    end = moments[-1].beat.at
    start = len(moments) - 1
    while start > 0 and not moments[start].beat.resumed and end - moments[start].beat.at < seconds - 0.05:
        start -= 1
    return moments[start:]


def observation_of(window: Sequence[Moment]) -> Observation | None:
    """Return the Observation from the first reading of the window to its last; None for fewer than two readings."""
    if len(window) < 2:
        return None
    first, last = window[0], window[-1]
    scene = last.scene
    samples = tuple(_samples(window, last.texts))
    probes = last.look.probes if last.look is not None else ()
    lacks = [
        *scene.lacks,
        *(lack for one in window for lack in one.beat.lacks),
        *_not_looked_at(scene.queues, probes),
    ]
    return Observation(
        generated_at=datetime.fromtimestamp(last.beat.at, UTC)
        .isoformat(timespec="seconds")
        .replace("+00:00", "Z"),
        tool_version=scene.tool_version,
        server=scene.server,
        catalog=scene.catalog,
        statement_texts=scene.statement_texts,
        texts=last.texts,
        first=first.beat.reading,
        last=last.beat.reading,
        samples=samples,
        queues=scene.queues,
        probes=probes,
        lacks=tuple(dict.fromkeys(lacks)),
        looked_for=scene.looked_for,
    )


def _not_looked_at(queues: Sequence[QueueIdentity], probes: Sequence[QueueProbe]) -> Iterator[Lack]:
    """Say that the bounded looks have yet to come, at the beginning and at a queue that was just found: what they would show is no
    more healthy than sick."""
    looked = {one.oid for one in probes}
    for one in queues:
        if one.oid not in looked:
            yield from (
                Lack(what=what, reason="the first look at it has not ended yet", queue=one.name)
                for what in LOOKS
            )


def _samples(window: Sequence[Moment], texts: tuple[str, ...]) -> Iterator[Sample]:
    """Yield the samples between the readings, each referring to ``texts``."""
    place = {text: position for position, text in enumerate(texts)}
    for moment in window[1:]:
        if moment.texts == texts[: len(moment.texts)]:
            yield from moment.beat.samples
            continue
        moved = [place.get(text, -1) for text in moment.texts]
        for sample in moment.beat.samples:
            yield replace(
                sample,
                sessions=tuple(
                    replace(one, text=moved[one.text]) if one.text >= 0 else one for one in sample.sessions
                ),
            )
