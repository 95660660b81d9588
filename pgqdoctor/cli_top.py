"""The command ``top``: the dashboard, over a server or over a recording."""

from __future__ import annotations

import gc
import sys
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import click

from pgqdoctor.cli import (
    CONNECTION,
    HEALTHY,
    OBSERVING,
    RECORDED,
    SETTINGS,
    VERDICT,
    duration,
    is_terminal,
    not_beside_recording,
    observation_for,
    options,
    settings,
)
from pgqdoctor.errors import USAGE, PgqdoctorError

if TYPE_CHECKING:
    from pgqdoctor.cli import Settings
    from pgqdoctor.feed import Feed
    from pgqdoctor.frames import Judging
    from pgqdoctor.live import LiveOptions
    from pgqdoctor.tui.views.picture import Picture

WINDOW_S = 10.0
INTERVAL_S = 2.0
GC_THRESHOLDS = (50_000, 20, 100)

LOOKING = (
    click.option(
        "--interval",
        callback=duration,
        default="2s",
        metavar="DURATION",
        help="How often to read the counters; default: 2s.",
    ),
    click.option("--read-only", is_flag=True, help="Offer no cancelling or terminating of backends."),
)


@click.command()
@options(CONNECTION, LOOKING, OBSERVING, RECORDED[:1], VERDICT[1:], SETTINGS)
@click.pass_context
def top(context: click.Context, /, interval: float, read_only: bool, **given: Any) -> int:
    """Watch the queues in a dashboard, live or from a recording."""
    not_beside_recording(context)
    chosen = settings({**given, "format_": None, "output": None}, window=WINDOW_S, formats=())
    terminal()
    _run(feed_for(chosen, interval, read_only=read_only), interval, read_only=read_only)
    return HEALTHY


def show(conninfo: str, *, window_s: float = WINDOW_S) -> None:
    """Open the dashboard on a server, with the default settings, and return when it is left."""
    from pgqdoctor.frames import Judging
    from pgqdoctor.live import LiveOptions

    how = LiveOptions(interval_s=INTERVAL_S, window_s=window_s)
    _run(_live(conninfo, how, Judging(window_s=window_s), read_only=False), INTERVAL_S, read_only=False)


def terminal() -> None:
    """Raise PgqdoctorError where there is no terminal."""
    if not (is_terminal(sys.stdout) and is_terminal(sys.stdin)):
        raise PgqdoctorError(
            "the dashboard needs a terminal",
            hint="For a pipe or a file there is: pgqdoctor report.",
            exit_code=USAGE,
        )


def _run(feed: Feed[Picture], interval_s: float, *, read_only: bool) -> None:
    from pgqdoctor.tui.app import DoctorApp
    from pgqdoctor.tui.turns import screen_first

    # Frames are immutable and hold no cycles: collecting among a hundred thousand sampled sessions at Python's own pace
    # would stop the screen for a tenth of a second now and then.
    gc.set_threshold(*GC_THRESHOLDS)
    with screen_first() as loop:
        DoctorApp(feed, interval_s=interval_s, read_only=read_only).run(loop=loop)


def feed_for(chosen: Settings, interval_s: float, *, read_only: bool) -> Feed[Picture]:
    """Return the feed of a server, which must answer once before the screen is taken over, or of a recording."""
    from pgqdoctor.feed import RecordedFeed
    from pgqdoctor.frames import Judging
    from pgqdoctor.live import LiveOptions
    from pgqdoctor.tui.views.picture import picture

    judging = Judging(window_s=chosen.window, only=chosen.only, ignore=chosen.ignore, limits=chosen.limits)
    if chosen.recording is not None:
        if chosen.queues:
            # Says so where the recording has no such queue.
            observation_for(chosen)
        return RecordedFeed(chosen.recording, replace(judging, queues=chosen.queues), picture)
    how = LiveOptions(
        interval_s=interval_s,
        window_s=chosen.window,
        queues=chosen.queues,
        claim_queries=chosen.claim_queries,
        explain=chosen.explain,
    )
    return _live(chosen.conninfo, how, judging, read_only=read_only)


def _live(conninfo: str, how: LiveOptions, judging: Judging, *, read_only: bool) -> Feed[Picture]:
    from pgqdoctor.connect import PATIENCE_S, connect
    from pgqdoctor.conninfo import redact_conninfo
    from pgqdoctor.feed import LiveFeed
    from pgqdoctor.tui.views.picture import picture

    connect(conninfo, patience_s=PATIENCE_S).close()
    source = redact_conninfo(conninfo) or "the server of the environment"
    return LiveFeed(conninfo, how, judging, picture, read_only=read_only, source=source)
