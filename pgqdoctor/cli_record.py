"""The command ``record``: a server, watched for a while, in a file."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from pgqdoctor.cli import (
    CONNECTION,
    HEALTHY,
    OBSERVING,
    RECORDED,
    SETTINGS,
    duration,
    options,
    say,
    settings,
)
from pgqdoctor.errors import USAGE, PgqdoctorError

if TYPE_CHECKING:
    from pgqdoctor.live import Message
    from pgqdoctor.recording import Writer

FOR_S = 60.0
INTERVAL_S = 2.0
LATE_S = 15.0
"""How much later than asked for a recording may end: reading the catalog has ten seconds, and a server that restarts
some. One that is gone for good must not keep the command for ever."""


LENGTH = (
    click.option(
        "--for",
        "length",
        callback=duration,
        default="1m",
        metavar="DURATION",
        help="How long to record; default: 1m. Ctrl-C ends it earlier.",
    ),
    click.option(
        "--interval",
        callback=duration,
        default="2s",
        metavar="DURATION",
        help="How often to read the counters; default: 2s.",
    ),
)


@click.command()
@click.argument("where", nargs=-1, required=True, metavar="[DSN] FILE")
@options(CONNECTION[1:], LENGTH, OBSERVING[:2], OBSERVING[3:], RECORDED[1:], SETTINGS)
@click.pass_context
def record(
    context: click.Context, /, where: tuple[str, ...], length: float, interval: float, **given: Any
) -> int:
    """Save what is seen, for report, triage, fix and top --from FILE.

    The file holds no password; with --redact also no names of people and hosts, and no literals. A recording
    that was cut off opens up to the cut.
    """
    if len(where) > 2:
        raise click.UsageError("give at most a DSN and a file", context)
    if len(where) == 1 and ("://" in where[0] or "=" in where[0]):
        raise click.UsageError("the FILE to write is missing after the DSN", context)
    path = Path(where[-1])
    if not path.parent.is_dir():
        raise click.UsageError(f"there is no directory {str(path.parent)!r}", context)
    dsn = where[0] if len(where) == 2 else None
    chosen = settings(
        {**given, "dsn": dsn, "window": None, "format_": None, "output": None}, window=length, formats=()
    )
    from pgqdoctor.connect import PATIENCE_S, connect
    from pgqdoctor.live import LiveOptions, Poller
    from pgqdoctor.recording import Writer

    connect(chosen.conninfo, patience_s=PATIENCE_S).close()
    writer = Writer(path, redacted=chosen.redacted)
    taker = _Taker(writer, length)
    how = LiveOptions(
        interval_s=min(interval, max(length / 2, 0.5)),
        window_s=min(length, 10.0),
        queues=chosen.queues,
        claim_queries=chosen.claim_queries,
        explain=chosen.explain,
    )
    poller = Poller(chosen.conninfo, how, taker.take, read_only=True)
    say(f"recording to {path} for {length:g} s; Ctrl-C ends it earlier")
    poller.start()
    try:
        if not taker.done.wait(length + LATE_S):
            say(f"the server did not answer to the end: {taker.said or 'no reason given'}")
    except KeyboardInterrupt:
        say("ended early")
    finally:
        poller.stop()
        writer.close()
    if taker.error is not None:
        raise taker.error
    if taker.beats < 2:
        why = f": {taker.said}" if taker.said else ""
        raise PgqdoctorError(f"fewer than two readings were taken, {path} cannot be opened{why}")
    say(f"{path}: {taker.beats} readings over {taker.seconds:.0f} s")
    return HEALTHY


class _Taker:
    """Writes what the poller posts; ``done`` is set after the length, or where writing fails."""

    def __init__(self, writer: Writer, length: float) -> None:
        self.done = threading.Event()
        self.error: PgqdoctorError | None = None
        self.beats = 0
        self.seconds = 0.0
        self._writer, self._length = writer, length
        self._began: float | None = None
        self._over = False
        self.said = ""
        """Why there is no connection at present, "" while there is one."""

    def take(self, message: Message) -> None:
        from pgqdoctor.live import Dropped, LinkState
        from pgqdoctor.window import Beat, Look, Scene

        if isinstance(message, LinkState):
            if message.reason and message.reason != self.said:
                say(f"{message.kind}: {message.reason}")
            self.said = message.reason
            if message.kind == "failed":
                self.error = PgqdoctorError(message.reason, exit_code=USAGE)
                self.done.set()
            return
        if isinstance(message, Dropped):
            say(f"the table {message.name} was dropped")
            return
        if self.done.is_set() or not isinstance(message, Scene | Beat | Look):
            return
        try:
            self._writer.add(message)
        except PgqdoctorError as error:
            self.error = error
            self.done.set()
            return
        if isinstance(message, Beat):
            self.beats += 1
            self._began = message.at if self._began is None else self._began
            self.seconds = message.at - self._began
            self._over = self.seconds >= self._length
            if self._over:
                self.done.set()
