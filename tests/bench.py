"""How long the doctor itself takes: to start, from each recording to a report, and to keep the dashboard fresh. ``make bench`` prints it.

Nobody waits for a number here to pass: it is read before and after a change, on a quiet machine.
"""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

from tabulate import tabulate

from pgqdoctor.engine import diagnose
from pgqdoctor.recording import last_observation
from pgqdoctor.render import render
from tests import bench_top, bench_triage

RECORDINGS = Path(__file__).parent.parent / "fixtures" / "observations"
ROUNDS = 5


def best_ms(work: Callable[[], object]) -> float:
    """Milliseconds of the fastest of some rounds: the others measure what else the machine did."""

    def once() -> float:
        began = time.perf_counter()
        work()
        return time.perf_counter() - began

    return 1000 * min(once() for _ in range(ROUNDS))


def command(*arguments: str) -> Callable[[], object]:
    return lambda: subprocess.run(
        [sys.executable, "-m", "pgqdoctor", *arguments], stdout=subprocess.DEVNULL, check=True
    )


def measured() -> Iterator[tuple[str, float]]:
    for arguments in (["--version"], ["report", "--help"], ["checks"]):
        yield f"pgqdoctor {' '.join(arguments)}", best_ms(command(*arguments))
    for recording in sorted(path for path in RECORDINGS.rglob("*") if path.is_file()):
        seen = last_observation(recording)
        report = diagnose(seen)
        name = recording.relative_to(RECORDINGS)
        yield f"{name}: read", best_ms(partial(last_observation, recording))
        yield f"{name}: diagnose", best_ms(partial(diagnose, seen))
        yield f"{name}: render", best_ms(partial(render, report, "text", color=True, width=100))
    yield from bench_triage.measured()
    yield from bench_top.measured()


if __name__ == "__main__":
    print(tabulate(measured(), headers=("what", "ms"), floatfmt=".1f"))
