"""The interface's thread goes first while it works, and lets all others run while it sleeps."""

from __future__ import annotations

import asyncio
import sys
import threading

import pytest

from pgqdoctor.tui.turns import SLEEPING_S, WORKING_S, screen_first


def test_nobody_breaks_in_while_it_works_and_anybody_while_it_sleeps() -> None:
    before = sys.getswitchinterval()
    seen: list[float] = []

    async def interface() -> None:
        asked = threading.Event()

        def other() -> None:
            asked.wait(5.0)
            seen.append(sys.getswitchinterval())

        thread = threading.Thread(target=other)
        thread.start()
        seen.append(sys.getswitchinterval())
        await asyncio.sleep(0)
        seen.append(sys.getswitchinterval())
        asyncio.get_running_loop().call_later(0.3, lambda: None)
        asked.set()
        await asyncio.sleep(0.3)
        thread.join()
        seen.append(sys.getswitchinterval())

    with screen_first() as loop:
        loop.run_until_complete(asyncio.sleep(0.01))
        loop.run_until_complete(interface())
    assert seen == pytest.approx([WORKING_S, WORKING_S, SLEEPING_S, WORKING_S])
    assert sys.getswitchinterval() == pytest.approx(before)


def test_a_failure_leaves_nothing_behind() -> None:
    before = sys.getswitchinterval()
    with pytest.raises(RuntimeError, match="gone"), screen_first() as loop:
        loop.run_until_complete(asyncio.sleep(0.01))
        raise RuntimeError("gone")
    assert sys.getswitchinterval() == pytest.approx(before)
    assert loop.is_closed()
