"""The report of ``lab storm``. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from pgqdoctor.lab.results import LabResult, StormResult
from pgqdoctor.lab.storms import STORMS
from pgqdoctor.labreport.document import Chart, Document, Table, drawn, facts, listings
from pgqdoctor.labreport.svg import Series, line_chart
from pgqdoctor.render.quantities import number

WAITS_SHOWN = 3


def storm_document(result: LabResult) -> Document:
    """The report of storms."""
    cells = result.storm()
    several = len({cell.server for cell in cells}) > 1
    return Document(
        title="Faults of transactions and locks, and their cures",
        says=tuple(_says(cells, several)),
        charts=_charts(cells, several),
        tables=(_table(cells),),
        listings=listings(result),
        method=(
            "Each cell is one pgbench run on tables made anew; its script keeps the backlog constant, and its "
            "cure does the same work. Waits are what the workers' sessions were at when pg_stat_activity was "
            "looked at, up to twenty times a second; idle sessions are left out. Multixacts are counted "
            "per server, buffers on the lab's tables.",
            *(f"{one.name}: {one.title}. {one.mechanism}" for one in STORMS if one.name in _names(cells)),
            *(f"{one.name} needs {one.needs}." for one in STORMS if one.name in _names(cells) and one.needs),
            *result.notes,
        ),
        facts=facts(result),
    )


def _names(cells: tuple[StormResult, ...]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(cell.storm for cell in cells))


def _pairs(cells: tuple[StormResult, ...]) -> Iterator[tuple[StormResult, StormResult]]:
    cured = {(cell.storm, cell.workers, cell.server): cell for cell in cells if cell.state == "cured"}
    for cell in cells:
        key = (cell.storm, cell.workers, cell.server)
        if cell.state == "sick" and key in cured:
            yield cell, cured[key]


def _says(cells: tuple[StormResult, ...], several: bool) -> Iterator[str]:
    last: dict[tuple[str, str], tuple[StormResult, StormResult]] = {}
    for sick, cured in _pairs(cells):
        last[sick.storm, sick.server] = sick, cured
    for (name, server), (sick, cured) in last.items():
        where = f" on {server}" if several else ""
        change = cured.transactions_per_s / sick.transactions_per_s if sick.transactions_per_s else 0.0
        extra = []
        if sick.multixacts_per_s > 2 * cured.multixacts_per_s + 1:
            extra.append(
                f"{number(round(sick.multixacts_per_s))} multixacts a second against {number(round(cured.multixacts_per_s))}"
            )
        if sick.buffers_per_transaction > 1.5 * cured.buffers_per_transaction:
            extra.append(
                f"{number(round(sick.buffers_per_transaction))} buffers per transaction against "
                f"{number(round(cured.buffers_per_transaction))}"
            )
        tail = f"; {', '.join(extra)}" if extra else ""
        yield (
            f"{name.capitalize()}{where}: {number(round(sick.transactions_per_s))} transactions a second with "
            f"{sick.workers} workers, cured {number(round(cured.transactions_per_s))} ({change:.1f} times){tail}."
        )


def _charts(cells: tuple[StormResult, ...], several: bool) -> tuple[Chart, ...]:
    return tuple(
        drawn(name, title, partial(_throughput, cells, name, title, several))
        for name in _names(cells)
        for title in (f"{name}: transactions per second",)
    )


def _throughput(
    cells: tuple[StormResult, ...], name: str, title: str, several: bool, standalone: bool
) -> str:
    servers = tuple(dict.fromkeys(cell.server for cell in cells))
    series = []
    for place, server in enumerate(servers):
        for state, color in (("sick", 1), ("cured", 2)):
            points = tuple(
                (float(cell.workers), cell.transactions_per_s)
                for cell in cells
                if (cell.storm, cell.state, cell.server) == (name, state, server)
            )
            if points:
                label = f"{state}, {server}" if several else state
                series.append(
                    Series(
                        name=label,
                        points=points,
                        color=place if several else color,
                        dashed=several and state == "cured",
                    )
                )
    return line_chart(
        title, series, x_label="workers", y_label="per second", log_x=True, standalone=standalone
    )


def _table(cells: tuple[StormResult, ...]) -> Table:
    return Table(
        title="All numbers",
        headers=(
            *(
                "fault",
                "state",
                "server",
                "workers",
                "per second",
                "p50 ms",
                "p99 ms",
                "multixacts/s",
                "buffers",
            ),
            "most seen at",
        ),
        rows=tuple(
            (
                cell.storm,
                cell.state,
                cell.server,
                str(cell.workers),
                number(round(cell.transactions_per_s)),
                f"{cell.p50_ms:.2f}",
                f"{cell.p99_ms:.2f}",
                number(round(cell.multixacts_per_s)),
                number(round(cell.buffers_per_transaction)),
                _most(cell),
            )
            for cell in cells
        ),
        right=tuple(range(3, 9)),
    )


def _most(cell: StormResult) -> str:
    ordered = sorted(cell.waits.items(), key=lambda one: -one[1])[:WAITS_SHOWN]
    shares = ((name, round(100 * count / max(1, cell.samples))) for name, count in ordered)
    return ", ".join(f"{name} {share}%" for name, share in shares if share)
