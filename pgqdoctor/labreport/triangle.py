"""The report of ``lab triangle``. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Final

from pgqdoctor.lab.results import LabResult, TriangleResult
from pgqdoctor.labreport.document import Chart, Document, Table, drawn, facts, listings
from pgqdoctor.labreport.svg import PALETTE, Bar, Series, bar_chart, line_chart
from pgqdoctor.render.quantities import number, size

MEGABYTE: Final = 1024 * 1024


def triangle_document(result: LabResult) -> Document:
    """The report of a triangle."""
    cells = result.triangle()
    return Document(
        title="Fillfactor, partial index and HOT updates",
        says=tuple(_says(cells)),
        charts=_charts(cells),
        tables=(_table(cells), _indexes(cells)),
        listings=listings(result),
        method=(
            "HOT at once: one statement claims all jobs of a freshly loaded table, so that no dead row can be "
            "pruned meanwhile, as under any older snapshot. HOT one by one: the same jobs claimed by single "
            "transactions, where each page is pruned between them.",
            "Steady: workers enqueue, claim and finish (delete) jobs at a constant backlog with autovacuum on. "
            "WAL per job is the distance of the WAL positions, so it holds what vacuum wrote too; full-page "
            "images are in it only where the server writes them (setting full_page_writes). Index entries per "
            "job are counted from inserts and updates that were not HOT, times the indexes that hold the row.",
            "Claim buffers are those of EXPLAIN (ANALYZE, BUFFERS), rolled back, after half of the jobs were "
            "claimed by one statement.",
            *result.notes,
        ),
        facts=facts(result),
    )


def _says(cells: tuple[TriangleResult, ...]) -> Iterator[str]:
    for cell in cells:
        yield (
            f"{cell.design.capitalize()}: {number(cell.hot_updates)} of {number(cell.updates)} updates at once "
            f"were HOT, a claim touches {number(cell.claim_buffers)} buffers, a job writes "
            f"{cell.index_entries_per_job:.1f} index entries and {number(round(cell.wal_bytes_per_job))} bytes of WAL."
        )
    blocked = [cell for cell in cells if cell.updates and not cell.hot_updates and cell.fillfactor < 100]
    if blocked:
        names = " and ".join(f"'{cell.design}'" for cell in blocked)
        yield f"Room on the page does not help {names}: an index there holds a column, or a predicate, that the claim changes."


def _charts(cells: tuple[TriangleResult, ...]) -> tuple[Chart, ...]:
    if not cells:
        return ()
    bars: tuple[
        tuple[str, str, str, Callable[[TriangleResult], float], Callable[[float], str], bool], ...
    ] = (
        (
            "hot",
            "HOT updates at once",
            "percent of updates",
            lambda one: 100 * one.hot_ratio,
            lambda v: f"{v:.0f}%",
            False,
        ),
        (
            "steady-hot",
            "HOT updates in the steady run",
            "percent of updates",
            lambda one: 100 * one.steady_hot_ratio,
            lambda v: f"{v:.0f}%",
            False,
        ),
        (
            "buffers",
            "Buffers per claim, half-consumed queue",
            "pages (logarithmic)",
            lambda one: one.claim_buffers,
            number,
            True,
        ),
        (
            "throughput",
            "Jobs through the steady run",
            "jobs per second",
            lambda one: one.jobs_per_s,
            lambda v: f"{v:,.0f}",
            False,
        ),
        ("wal", "WAL per job", "bytes", lambda one: one.wal_bytes_per_job, lambda v: f"{v:,.0f}", False),
        (
            "entries",
            "Index entries per job",
            "entries",
            lambda one: one.index_entries_per_job,
            lambda v: f"{v:.2f}",
            False,
        ),
    )
    charts = [
        drawn(name, title, partial(_bars, cells, title, label, value, shown, log))
        for name, title, label, value, shown, log in bars
    ]
    growths: tuple[tuple[str, str, bool], ...] = (
        ("table-growth", "Table size in the steady run", False),
        ("index-growth", "Size of all indexes in the steady run", True),
    )
    charts += [
        drawn(name, title, partial(_growth, cells, title, indexes)) for name, title, indexes in growths
    ]
    return tuple(charts)


def _bars(
    cells: tuple[TriangleResult, ...],
    title: str,
    label: str,
    value: Callable[[TriangleResult], float],
    shown: Callable[[float], str],
    log: bool,
    standalone: bool,
) -> str:
    bars = [
        Bar(label=cell.design, value=value(cell), shown=shown(value(cell)), color=place % len(PALETTE))
        for place, cell in enumerate(cells)
    ]
    return bar_chart(title, bars, x_label=label, log=log, standalone=standalone)


def _growth(cells: tuple[TriangleResult, ...], title: str, indexes: bool, standalone: bool) -> str:
    series = [
        Series(
            name=cell.design,
            points=tuple(
                (one.at_s, (one.index_bytes if indexes else one.table_bytes) / MEGABYTE)
                for one in cell.growth
            ),
            color=place % len(PALETTE),
            dashed=place >= len(PALETTE),
        )
        for place, cell in enumerate(cells)
    ]
    return line_chart(title, series, x_label="seconds", y_label="megabytes", standalone=standalone)


def _table(cells: tuple[TriangleResult, ...]) -> Table:
    return Table(
        title="All numbers",
        headers=(
            *(
                "design",
                "HOT at once",
                "new page",
                "HOT one by one",
                "steady HOT",
                "buffers",
                "jobs/s",
                "p50 ms",
                "p99 ms",
            ),
            *("WAL/job", "entries/job", "table at end", "indexes at end", "vacuums"),
        ),
        rows=tuple(
            (
                cell.design,
                f"{number(cell.hot_updates)} of {number(cell.updates)}",
                "not counted" if cell.newpage_updates is None else number(cell.newpage_updates),
                f"{number(cell.single_hot_updates)} of {number(cell.single_updates)}",
                f"{100 * cell.steady_hot_ratio:.0f}%",
                number(round(cell.claim_buffers)),
                f"{cell.jobs_per_s:,.0f}",
                f"{cell.p50_ms:.2f}",
                f"{cell.p99_ms:.2f}",
                number(round(cell.wal_bytes_per_job)),
                f"{cell.index_entries_per_job:.2f}",
                *(
                    (
                        size(cell.growth[-1].table_bytes),
                        size(cell.growth[-1].index_bytes),
                        str(cell.growth[-1].vacuums),
                    )
                    if cell.growth
                    else ("", "", "")
                ),
            )
            for cell in cells
        ),
        right=tuple(range(1, 14)),
    )


def _indexes(cells: tuple[TriangleResult, ...]) -> Table:
    return Table(
        title="Indexes of each design",
        headers=("design", "fillfactor", "indexes"),
        rows=tuple((cell.design, str(cell.fillfactor), "; ".join(cell.indexes) or "none") for cell in cells),
        right=(1,),
    )
