"""The screen comes first: who may run Python while windows are judged in another thread.

CPython lets a thread that waits for the interpreter break in after a switch interval, 5 ms by default, whoever has it. The thread
that judges windows therefore took half of the time between a key and the screen. Here the interval is long while
the interface works, so that nobody breaks in, and short while it sleeps, so that it is back at once.
"""

from __future__ import annotations

import asyncio
import selectors
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

WORKING_S: Final = 0.05
"""A key is answered in less; what takes longer than this must let others run."""
SLEEPING_S: Final = 0.0005
"""A thousandth of the time that a key has, and still a hundred times what a switch costs."""


class _ScreenFirst(selectors.DefaultSelector):
    """The selector of the interface's event loop: to wait for something is to sleep."""

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        """Wait for files or for the time."""
        if timeout is not None and timeout <= 0:
            return super().select(timeout)
        sys.setswitchinterval(SLEEPING_S)
        try:
            return super().select(timeout)
        finally:
            sys.setswitchinterval(WORKING_S)


@contextmanager
def screen_first() -> Iterator[asyncio.AbstractEventLoop]:
    """Yield an event loop whose thread goes before all others; at the end it is closed and the switch interval restored."""
    before = sys.getswitchinterval()
    try:
        with asyncio.Runner(loop_factory=lambda: asyncio.SelectorEventLoop(_ScreenFirst())) as runner:
            yield runner.get_loop()
    finally:
        sys.setswitchinterval(before)
