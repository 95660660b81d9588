"""The report of ``lab race``. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from itertools import groupby
from typing import Final

from pgqdoctor.lab.results import LabResult, RaceResult
from pgqdoctor.labreport.document import Chart, Document, Table, drawn, facts, listings
from pgqdoctor.labreport.svg import Bar, Series, bar_chart, line_chart
from pgqdoctor.render.quantities import number

COLORS: Final = {
    "naive": 1,
    "guarded": 4,
    "for-update": 3,
    "skip-locked": 5,
    "skip-locked-indexed": 0,
    "batch": 2,
    "delete": 6,
    "custom": 7,
}
UNINDEXED: Final = ("naive", "guarded", "for-update", "skip-locked")
"""Those that differ in how they lock and share the way to the row: the fair comparison of locking."""


def race_document(result: LabResult) -> Document:
    """The report of a race."""
    cells = result.race()
    return Document(
        title="Ways to claim a job, raced",
        says=tuple(_says(cells)),
        charts=_charts(cells),
        tables=(_table(cells),),
        listings=listings(result),
        method=(
            "Each worker is one pgbench connection that claims as fast as it can until the queue is empty. "
            "A claim is a row that the claiming transaction itself wrote into an audit table; a duplicate is "
            "a second row for the same job, whatever the worker believed.",
            "Rates run from the first attempt's start to the last claim's end. Latencies are those of "
            "pgbench's log: of one attempt, and of having a job, lost attempts included.",
            "Buffers per claim are counted by EXPLAIN (ANALYZE, BUFFERS), rolled back, on a queue of which "
            "one statement has just consumed half: nothing is pruned or vacuumed, as under any older "
            "snapshot. Run buffers are the pages of table and indexes touched over the whole race, per claim; "
            "there pages are pruned between claims.",
            "Autovacuum is off for the table during a race: it would come into some cells and not others.",
            *result.notes,
        ),
        facts=facts(result),
    )


def _says(cells: tuple[RaceResult, ...]) -> Iterator[str]:
    most = {cell.strategy: cell for cell in sorted(cells, key=lambda one: one.workers)}
    peers = [cell for name, cell in most.items() if name in UNINDEXED]
    naive = most.get("naive")
    if naive is not None and naive.duplicate_claims:
        fastest = max(peers, key=lambda one: one.claims_per_s)
        others = [cell for cell in peers if cell.strategy != "naive"]
        looks = (
            "looks fastest among the claims without an index of their own"
            if fastest is naive and others
            else "looks busy"
        )
        yield (
            f"The naive claim {looks}, {_rate(naive.claims_per_s)} claims a second with {_workers(naive)}, and "
            f"{_share(naive.duplicate_claims, naive.claims)} of its claims took a job that was already taken: "
            f"{_rate(naive.distinct_jobs_per_s)} distinct jobs a second."
        )
    first_twice = next(
        (
            c
            for c in sorted(cells, key=lambda one: one.workers)
            if c.strategy == "naive" and c.duplicate_claims
        ),
        None,
    )
    if first_twice is not None and first_twice is not naive:
        yield (
            f"It begins with {_workers(first_twice)}: {number(first_twice.duplicate_claims)} duplicates among "
            f"{number(first_twice.claims)} claims of {number(first_twice.distinct_jobs)} jobs."
        )
    guarded = most.get("guarded")
    if guarded is not None and guarded.wasted_attempts:
        yield (
            f"The guarded claim made {_none_or(guarded.duplicate_claims)} duplicates and lost "
            f"{guarded.wasted_per_win:.1f} races per job won with {_workers(guarded)}."
        )
    for name, words in (("guarded", "The guarded claim"), ("skip-locked", "SKIP LOCKED")):
        rows = sorted((cell for cell in cells if cell.strategy == name), key=lambda one: one.workers)
        if len(rows) > 1:
            best, last = max(rows, key=lambda one: one.distinct_jobs_per_s), rows[-1]
            then = "" if best is last else f" and {_rate(last.distinct_jobs_per_s)} with {_workers(last)}"
            yield (
                f"{words} got {_rate(best.distinct_jobs_per_s)} jobs a second at its best, with "
                f"{_workers(best)}{then}."
            )
    plain, indexed = most.get("skip-locked"), most.get("skip-locked-indexed")
    if plain is not None and indexed is not None:
        yield (
            f"On a half-consumed queue of {number(plain.buffers_jobs)} jobs one claim touches "
            f"{number(plain.buffers_per_claim)} buffers, with the partial index "
            f"{number(indexed.buffers_per_claim)}."
        )
    for cell in cells:
        if cell.duplicate_claims and cell.strategy not in ("naive",):
            yield f"{cell.strategy} claimed {number(cell.duplicate_claims)} jobs twice with {_workers(cell)}."
    cut = [cell for cell in cells if not cell.drained]
    if cut:
        names = ", ".join(f"{cell.strategy} with {cell.workers}" for cell in cut)
        yield f"The time was up before the queue was empty for {names}; their rates stand for the part seen."


def _charts(cells: tuple[RaceResult, ...]) -> tuple[Chart, ...]:
    if not cells:
        return ()
    plots: tuple[tuple[str, str, str, Callable[[RaceResult], float], bool], ...] = (
        (
            "claims",
            "Claims, as the workers count them",
            "claims per second",
            lambda one: one.claims_per_s,
            True,
        ),
        ("jobs", "Distinct jobs claimed", "jobs per second", lambda one: one.distinct_jobs_per_s, True),
        (
            "wasted",
            "Lost attempts",
            "attempts without a job, per job won",
            lambda one: one.wasted_per_win,
            False,
        ),
        (
            "latency",
            "Time to get a job, 99th percentile",
            "milliseconds, lost attempts included",
            lambda one: one.job_p99_ms,
            True,
        ),
    )
    charts = [
        drawn(name, title, partial(_lines, cells, title, label, value, log))
        for name, title, label, value, log in plots
    ]
    charts.append(drawn("buffers", "Buffers per claim, half-consumed queue", partial(_buffers, cells)))
    duplicated = [cell for cell in cells if cell.duplicate_claims]
    if duplicated:
        charts.append(drawn("duplicates", "Claims that took a job twice", partial(_duplicates, duplicated)))
    return tuple(charts)


def _lines(
    cells: tuple[RaceResult, ...],
    title: str,
    label: str,
    value: Callable[[RaceResult], float],
    log: bool,
    standalone: bool,
) -> str:
    series = [
        Series(name=name, points=tuple((cell.workers, value(cell)) for cell in group), color=COLORS[name])
        for name, group in groupby(cells, key=lambda one: one.strategy)
    ]
    return line_chart(
        title, series, x_label="workers", y_label=label, log_x=True, log_y=log, standalone=standalone
    )


def _buffers(cells: tuple[RaceResult, ...], standalone: bool) -> str:
    one_each = {cell.strategy: cell for cell in cells}
    bars = [
        Bar(
            label=name, value=cell.buffers_per_claim, shown=number(cell.buffers_per_claim), color=COLORS[name]
        )
        for name, cell in one_each.items()
    ]
    title = "Buffers per claim, half-consumed queue"
    return bar_chart(
        title, bars, x_label="pages touched by one claim (logarithmic)", log=True, standalone=standalone
    )


def _duplicates(cells: list[RaceResult], standalone: bool) -> str:
    bars = [
        Bar(
            label=f"{cell.strategy}, {cell.workers}",
            value=100 * cell.duplicate_claims / cell.claims,
            shown=f"{100 * cell.duplicate_claims / cell.claims:.0f}%",
            color=COLORS[cell.strategy],
        )
        for cell in cells
    ]
    title = "Claims that took a job twice"
    return bar_chart(title, bars, x_label="percent of all claims", standalone=standalone)


def _table(cells: tuple[RaceResult, ...]) -> Table:
    return Table(
        title="All numbers",
        headers=(
            *("strategy", "workers", "claims/s", "jobs/s", "duplicates", "wasted", "per win"),
            *("p50 ms", "p95 ms", "p99 ms", "job p50 ms", "job p99 ms", "buffers", "run buffers"),
        ),
        rows=tuple(
            (
                cell.strategy + ("" if cell.drained else " (cut)"),
                str(cell.workers),
                _rate(cell.claims_per_s),
                _rate(cell.distinct_jobs_per_s),
                number(cell.duplicate_claims),
                number(cell.wasted_attempts),
                f"{cell.wasted_per_win:.1f}",
                *(
                    f"{ms:.2f}"
                    for ms in (cell.p50_ms, cell.p95_ms, cell.p99_ms, cell.job_p50_ms, cell.job_p99_ms)
                ),
                number(round(cell.buffers_per_claim)),
                number(round(cell.run_buffers_per_claim)),
            )
            for cell in cells
        ),
        right=tuple(range(1, 14)),
    )


def _workers(cell: RaceResult) -> str:
    return f"{cell.workers} worker{'' if cell.workers == 1 else 's'}"


def _rate(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def _share(part: int, whole: int) -> str:
    return f"{100 * part / whole:.0f}%" if whole else "none"


def _none_or(count: int) -> str:
    return "no" if count == 0 else number(count)
