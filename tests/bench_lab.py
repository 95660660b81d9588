"""Is the lab's harness the bottleneck? Its SKIP LOCKED claims per second against bare pgbench, in pairs.

Three rates of the same claim on the queue with the partial index, where claims are cheapest and what is added weighs
most: as ``lab race`` measures it; pgbench alone with the same statement; pgbench alone with the claim without the audit
row. The first two are the contract (what the harness adds: log, watcher, arithmetic), the third tells what the audit row
costs, which every strategy of a race pays alike. The runs of a round take turns in who goes first, so that what else the
machine does meets all of them; medians of the rounds' ratios count. ``make bench`` prints it.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from tabulate import tabulate

from pgqdoctor.lab.ground import Ground, embedded_ground
from pgqdoctor.lab.pgbench import Bench, Work
from pgqdoctor.lab.race import RaceOptions, prepare, race
from pgqdoctor.lab.results import RaceResult
from pgqdoctor.lab.saved import Notebook
from pgqdoctor.lab.statistics import median
from pgqdoctor.lab.strategies import VARIABLES, strategies
from pgqdoctor.lab.subject import generic_subject

JOBS = 40_000
"""Jobs of a run: ten thousand are gone within 0.4 s, which is no time to tell five percent."""
WORKERS = (1, 2, 10)
ROUNDS = 5
TOLERATED = 0.05
"""Of the bare rate: the contract of the lab."""

SUBJECT = generic_subject()
STRATEGY = next(one for one in strategies(SUBJECT) if one.name == "skip-locked-indexed")


def harness(ground: Ground, workers: int, state: Path) -> float:
    """Claims per second as ``lab race`` measures them."""
    chosen = RaceOptions(subject=SUBJECT, strategies=(STRATEGY,), workers=(workers,), jobs=JOBS)
    notebook = Notebook(state, RaceResult, {}, resume=False)
    (result,) = race(ground, chosen, notebook, lambda done, total, what: None)
    assert result.distinct_jobs == JOBS
    return result.claims_per_s


def bare(ground: Ground, workers: int, script: str) -> float:
    """Claims per second of pgbench alone, by its own count."""
    prepare(ground, SUBJECT, STRATEGY.form, JOBS)
    work = Work(script=script, clients=workers, transactions=JOBS // workers, variables=VARIABLES)
    with Bench(ground.binaries) as bench:
        return bench.run(ground.conninfo, work, longest_s=0, log=False).tps


@dataclass(frozen=True, slots=True, kw_only=True)
class Round:
    """Claims per second of the three, measured one after the other."""

    harness: float
    same: float
    unaudited: float


def measured(ground: Ground, state: Path, workers: int) -> tuple[Round, ...]:
    """The rounds with so many workers."""
    rounds = []
    for place in range(ROUNDS):
        runs: dict[str, Callable[[], float]] = {
            "harness": lambda: harness(ground, workers, state),
            "same": lambda: bare(ground, workers, STRATEGY.script),
            "unaudited": lambda: bare(ground, workers, f"{SUBJECT.claim};\n"),
        }
        names = list(runs) if place % 2 == 0 else list(reversed(runs))
        rates = {name: runs[name]() for name in names}
        rounds.append(Round(**rates))
    return tuple(rounds)


def main() -> int:
    """Print the table; 1 where the harness is beyond what is tolerated."""
    with embedded_ground(workers=max(WORKERS)) as ground, tempfile.TemporaryDirectory() as directory:
        found = {workers: measured(ground, Path(directory) / "state.json", workers) for workers in WORKERS}
    rows = [
        (
            workers,
            median([one.harness for one in rounds]),
            median([one.same for one in rounds]),
            median([one.harness / one.same for one in rounds]),
            median([one.unaudited for one in rounds]),
            median([one.same / one.unaudited for one in rounds]),
        )
        for workers, rounds in found.items()
    ]
    headers = (
        "workers",
        "lab, claims/s",
        "pgbench, same",
        "ratio",
        "pgbench, no audit row",
        "same to no audit",
    )
    print(tabulate(rows, headers=headers, floatfmt=("", ".0f", ".0f", ".3f", ".0f", ".3f")))
    overall = median([one.harness / one.same for rounds in found.values() for one in rounds])
    within = overall >= 1 - TOLERATED
    print(
        f"the lab's rate is {overall:.3f} of bare pgbench's with the same statement: "
        f"{'within' if within else 'beyond'} {TOLERATED:.0%}"
    )
    return 0 if within else 1


if __name__ == "__main__":
    sys.exit(main())
