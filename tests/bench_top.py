"""What the dashboard costs with 500 sessions and 20 queues: interface work, answers to keys, and time of the server."""

from __future__ import annotations

import asyncio
import gc
import math
import statistics
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import replace
from functools import cache
from typing import Any

import psycopg
from textual.events import Key

from pgqdoctor.cli_top import GC_THRESHOLDS
from pgqdoctor.collect import ObserveOptions, Observer
from pgqdoctor.connect import connect
from pgqdoctor.feed import Snapshot
from pgqdoctor.frames import Frame, frame_of
from pgqdoctor.lab.server import ScratchServer
from pgqdoctor.live import LinkState
from pgqdoctor.observation import Observation
from pgqdoctor.pulse import Pulse
from pgqdoctor.tui.app import PANES, DoctorApp
from pgqdoctor.tui.messages import FeedPosted
from pgqdoctor.tui.turns import screen_first
from pgqdoctor.tui.views.picture import Picture, picture
from tests.tui.crowd import crowd
from tests.tui.staged import StagedFeed, app_staged

SESSIONS = 500
QUEUES = 20
ROUNDS = 10
QUIET_S = 0.2
INTERVAL_S, MOMENTS = 2.0, 1800
"""An hour of moments at the interval that ``top`` has by default: its plots are the fullest then."""
Measured = Iterator[tuple[str, float]]


def measured() -> Measured:
    """Yield (what, milliseconds)."""
    gc.set_threshold(*GC_THRESHOLDS)
    seen = crowd(sessions=SESSIONS, queues=QUEUES)
    frame = frame_of(seen)
    yield (
        f"top, {SESSIONS} sessions, {QUEUES} queues: judge a window (own thread)",
        _median(lambda: frame_of(seen)),
    )
    yield "top: make what the screens show (own thread)", _median(lambda: picture(frame))
    with screen_first() as loop:
        yield from loop.run_until_complete(_interface(seen, frame))
    yield from _server()


def _median(work: Any) -> float:
    def once() -> float:
        began = time.perf_counter()
        work()
        return time.perf_counter() - began

    return 1000 * statistics.median(once() for _ in range(3))


def snapshot_of(frame: Frame, turn: int) -> Snapshot[Picture]:
    """The frame as a feed posts it after an hour, ``turn`` moments later than the first of them; its numbers differ."""
    at = frame.pulse.at + turn * INTERVAL_S
    pulses = tuple(_pulse(frame, at - (MOMENTS - 1 - number) * INTERVAL_S) for number in range(MOMENTS))
    seen = frame.observation
    later = replace(seen, last=replace(seen.last, at=at))
    return Snapshot(
        shown=picture(replace(frame, observation=later, pulse=pulses[-1])),
        number=MOMENTS + turn,
        first=turn,
        last=MOMENTS + turn,
        newest=True,
        pulses=pulses,
    )


@cache
def _wave(at: float) -> float:
    return 100.0 + 50.0 * math.sin(at / 600.0) + at * 37.0 % 23.0


def _pulse(frame: Frame, at: float) -> Pulse:
    """Numbers that go up and down, and never stand still."""
    wave = _wave(at)
    queues = tuple(
        replace(
            one,
            ready=int(wave),
            dead=int(1000 * wave),
            claimed_per_s=wave,
            finished_per_s=wave - 3.0,
            enqueued_per_s=wave + 3.0,
            buffers=int(wave),
            oldest_s=wave / 10.0,
            hot_ratio=wave / 200.0,
        )
        for one in frame.pulse.queues
    )
    return replace(frame.pulse, at=at, queues=queues)


class Painted:
    """When the application wrote to its terminal: what a person sees, without the test driver's own waiting."""

    def __init__(self, app: DoctorApp) -> None:
        self._times: list[float] = []
        self._display = app._display
        app._display = self  # type: ignore[method-assign]

    def __call__(self, screen: Any, renderable: Any) -> None:
        self._display(screen, renderable)
        self._times.append(time.perf_counter())

    async def after(self, began: float) -> tuple[float, float]:
        """Wait until nothing was painted for QUIET_S; return the seconds from ``began`` to the first paint and to the last."""
        while (
            not (since := [at for at in self._times if at >= began])
            or time.perf_counter() - since[-1] < QUIET_S
        ):
            await asyncio.sleep(0.005)
        self._times = []
        return since[0] - began, since[-1] - began


async def _interface(seen: Observation, frame: Frame) -> list[tuple[str, float]]:
    moments = [snapshot_of(frame, turn) for turn in range(ROUNDS)]
    app = app_staged(StagedFeed(LinkState(kind="connected"), moments[0]))
    found = []
    async with app.run_test(size=(200, 60)) as pilot:
        await pilot.pause()
        painted = Painted(app)
        for number, pane in enumerate(PANES, 1):
            await pilot.press(str(number))
            spent = []
            for later in moments:
                worked = time.thread_time()
                app.post_message(FeedPosted(later))
                await asyncio.sleep(QUIET_S)
                spent.append(time.thread_time() - worked)
            found.append((f"top: interface work per refresh, {pane}", 1000 * statistics.median(spent)))
        stopped = threading.Event()

        def busy() -> None:
            while not stopped.is_set():
                picture(frame_of(seen))

        thread = threading.Thread(target=busy)
        keys = [str(number) for number in range(1, len(PANES) + 1)]
        for what, fresh, background in (
            (" (the same data)", False, False),
            (" (new data since the screen was left)", True, False),
            (" (new data, and windows are judged without a break)", True, True),
        ):
            if background:
                thread.start()
            first, last = [], []
            for turn in range(ROUNDS * len(PANES)):
                if fresh:
                    app.post_message(FeedPosted(moments[turn % ROUNDS]))
                    await asyncio.sleep(QUIET_S)
                began = time.perf_counter()
                app.post_message(Key(keys[turn % len(keys)], None))
                shown, done = await painted.after(began)
                first.append(shown)
                last.append(done)
            for which, times in (("screen", first), ("last change of the screen", last)):
                found.append((f"top: key to {which}, median{what}", 1000 * statistics.median(times)))
                found.append((f"top: key to {which}, slowest of {len(times)}{what}", 1000 * max(times)))
        stopped.set()
        thread.join()
    return found


def _server() -> Measured:
    with ScratchServer(max_connections=SESSIONS + 50) as server, ExitStack() as stack:
        dsn = server.create_database("app")
        with psycopg.connect(dsn, autocommit=True) as connection:
            connection.execute("CREATE EXTENSION IF NOT EXISTS pg_stat_statements")
            for number in range(QUEUES):
                connection.execute(
                    f"CREATE TABLE jobs_{number} (id bigint PRIMARY KEY, state text DEFAULT 'queued', "
                    "run_at timestamptz DEFAULT now())".encode()
                )
                for _ in range(2):
                    connection.execute(
                        f"UPDATE jobs_{number} SET state = 'running' WHERE id = (SELECT id FROM jobs_{number} "
                        "WHERE state = 'queued' ORDER BY run_at LIMIT 1 FOR UPDATE SKIP LOCKED)".encode()
                    )
        for _ in range(SESSIONS):
            held = stack.enter_context(psycopg.connect(dsn))
            held.execute("SELECT pg_current_xact_id()")
        session = connect(dsn)
        observer = Observer(session, ObserveOptions())
        catalog, _, all_texts, watched = observer.prepare()
        first = observer.reading(watched)
        yield (
            f"server, {SESSIONS} sessions in transactions: one reading",
            _median(lambda: observer.reading(watched)),
        )
        yield "server: one sample (ten a second)", _median(observer.sample)
        identities, texts = observer.identify(catalog, all_texts, first, first)
        yield (
            f"server: the bounded looks at {len(identities)} queues (at most a twentieth of the time)",
            _median(lambda: observer.look(catalog, identities, texts)),
        )
        session.close()
