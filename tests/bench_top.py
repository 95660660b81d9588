"""What the dashboard costs with 500 sessions and 20 queues: interface work, answers to keys, and time of the server."""

from __future__ import annotations

import asyncio
import gc
import statistics
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import psycopg

from pgqdoctor.cli_top import GC_THRESHOLDS
from pgqdoctor.collect import ObserveOptions, Observer
from pgqdoctor.connect import connect
from pgqdoctor.feed import Snapshot
from pgqdoctor.frames import Frame, frame_of
from pgqdoctor.lab.server import ScratchServer
from pgqdoctor.live import LinkState
from pgqdoctor.observation import Observation
from pgqdoctor.tui.app import PANES
from pgqdoctor.tui.views.picture import Picture, picture
from tests.tui.crowd import crowd
from tests.tui.staged import StagedFeed, app_staged, snapshot_staged

SESSIONS = 500
QUEUES = 20
ROUNDS = 10
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
    yield from asyncio.run(_interface(seen, frame))
    yield from _server()


def _median(work: Any) -> float:
    def once() -> float:
        began = time.perf_counter()
        work()
        return time.perf_counter() - began

    return 1000 * statistics.median(once() for _ in range(3))


def snapshot_of(frame: Frame) -> Snapshot[Picture]:
    """The frame as a feed posts it."""
    staged = snapshot_staged("idle-snapshot")
    return Snapshot(
        shown=picture(frame),
        number=staged.number,
        first=0,
        last=staged.last,
        newest=True,
        pulses=staged.pulses,
    )


async def _interface(seen: Observation, frame: Frame) -> list[tuple[str, float]]:
    snapshot = snapshot_of(frame)
    app = app_staged(StagedFeed(LinkState(kind="connected"), snapshot))
    found = []
    async with app.run_test(size=(200, 60)) as pilot:
        await pilot.pause()
        for number, pane in enumerate(PANES, 1):
            await pilot.press(str(number))
            times = []
            for _ in range(ROUNDS):
                began = time.perf_counter()
                app._take_snapshot(snapshot)
                await pilot.pause()
                times.append(time.perf_counter() - began)
            found.append((f"top: refresh of screen {pane}", 1000 * statistics.median(times)))
        stopped = threading.Event()

        def busy() -> None:
            while not stopped.is_set():
                picture(frame_of(seen))

        thread = threading.Thread(target=busy)
        for what, background in (("", False), (" while windows are judged without a break", True)):
            if background:
                thread.start()
            times = []
            for turn in range(ROUNDS * len(PANES)):
                began = time.perf_counter()
                await pilot.press(str(turn % len(PANES) + 1))
                times.append(time.perf_counter() - began)
            found.append((f"top: key to screen, median{what}", 1000 * statistics.median(times)))
            found.append((f"top: key to screen, slowest of {len(times)}{what}", 1000 * max(times)))
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
