"""Is the lab's harness the bottleneck? Its SKIP LOCKED claims per second against bare pgbench, in pairs.

The bare run repeats the same claim with no audit table and no log. Both run on the queue with the partial index,
where claims are cheapest and anything the harness adds weighs most. Pairs take turns in who goes first, so that what
else the machine does meets both; the median of the pairs' ratios counts. ``make bench`` prints it.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from tabulate import tabulate

from pgqdoctor.lab.ground import Ground, embedded_ground
from pgqdoctor.lab.pgbench import Bench, Work
from pgqdoctor.lab.race import RaceOptions, prepare, race
from pgqdoctor.lab.results import RaceResult
from pgqdoctor.lab.saved import Notebook
from pgqdoctor.lab.statistics import median
from pgqdoctor.lab.strategies import strategies
from pgqdoctor.lab.subject import generic_subject

JOBS = 10_000
WORKERS = (1, 2, 10)
PAIRS = 9
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


def bare(ground: Ground, workers: int) -> float:
    """Claims per second of pgbench alone, by its own count."""
    prepare(ground, SUBJECT, STRATEGY.form, JOBS)
    work = Work(script=f"{SUBJECT.claim};\n", clients=workers, transactions=JOBS // workers)
    with Bench(ground.binaries) as bench:
        return bench.run(ground.conninfo, work, longest_s=0, log=False).tps


def measured(ground: Ground, state: Path) -> Iterator[tuple[int, list[tuple[float, float]]]]:
    """For each number of workers the pairs of rates: the harness's and bare pgbench's."""
    for workers in WORKERS:
        pairs = []
        for place in range(PAIRS):
            if place % 2:
                alone = bare(ground, workers)
                inside = harness(ground, workers, state)
            else:
                inside = harness(ground, workers, state)
                alone = bare(ground, workers)
            pairs.append((inside, alone))
        yield workers, pairs


def main() -> int:
    with embedded_ground(workers=max(WORKERS)) as ground, tempfile.TemporaryDirectory() as directory:
        found = list(measured(ground, Path(directory) / "state.json"))
    rows = [
        (
            workers,
            median([one[0] for one in pairs]),
            median([one[1] for one in pairs]),
            median([inside / alone for inside, alone in pairs]),
            max(one[0] for one in pairs) / max(one[1] for one in pairs),
        )
        for workers, pairs in found
    ]
    headers = ("workers", "lab, claims/s", "bare pgbench, claims/s", "median ratio", "ratio of the best")
    print(tabulate(rows, headers=headers, floatfmt=("", ".0f", ".0f", ".3f", ".3f")))
    overall = median([inside / alone for _, pairs in found for inside, alone in pairs])
    within = overall >= 1 - TOLERATED
    print(f"the lab's rate is {overall:.3f} of bare pgbench's: {'within' if within else 'beyond'} 5%")
    return 0 if within else 1


if __name__ == "__main__":
    sys.exit(main())
