"""A sick queue to look at: a scenario's load on a scratch server, for as long as somebody looks."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pgqdoctor.lab.scenario import Scenario

DEFAULT_SCENARIO = "idle-snapshot"
DATABASE = "app"
AUTOVACUUM_NAPTIME_S = 5
"""Vacuum looks every minute by default; a demo of a minute must see it work, or fail to."""
_CHECK_EVERY_S = 0.5


@contextmanager
def run_demo(scenario: Scenario, *, say: Callable[[str], None]) -> Iterator[str]:
    """A server with ``scenario`` under load whose signs have settled; the value is its connection URI.

    ``say`` is told each step in a sentence. Leaving the context stops load and server and removes both.
    Raises PgqdoctorError where PostgreSQL's programs are not to be found, and where the load fails.
    """
    from pgqdoctor.lab.load import Load
    from pgqdoctor.lab.server import ScratchServer

    say("starting a scratch PostgreSQL server")
    with ScratchServer(autovacuum_naptime_s=AUTOVACUUM_NAPTIME_S) as server:
        version = server.binaries.version
        if not scenario.runs_on(server.binaries.major):
            say(f"this scenario is not meant for PostgreSQL {version}; its signs may be missing")
        dsn = server.create_database(DATABASE)
        with Load(scenario, dsn) as load:
            say(f"PostgreSQL {version} is under load; waiting {scenario.settle_s:.0f} s for the signs")
            settled = time.monotonic() + scenario.settle_s
            while (left := settled - time.monotonic()) > 0:
                time.sleep(min(left, _CHECK_EVERY_S))
                load.check()
            yield dsn
        say("stopping the server")
