"""Screen 6: the triangle of claim index, fillfactor and HOT, and autovacuum: today's values, computed ones, reasons.

Computed values and verdicts are those of the report: its triangle and the remedies of its findings.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from pgqdoctor.frames import Frame
from pgqdoctor.indexfacts import blocks_hot, scans_in_window, seen_updates, serves_claim
from pgqdoctor.queue import Queue
from pgqdoctor.render import phrases
from pgqdoctor.render.clean import one_line, statement
from pgqdoctor.triangle import Triangle
from pgqdoctor.tui.views import short
from pgqdoctor.vacuuming import leaves_of, parameter

PARTS = ("index", "fillfactor", "HOT", "autovacuum")
_TURNED_BY = {
    "index": ("index-bloat", "unused-index", "duplicate-index", "claim-scans", "claim-sorts", "claim-misses"),
    "fillfactor": ("hot-no-page-room", "heap-bloat"),
    "HOT": ("hot-blocked-by-index",),
    "autovacuum": ("autovacuum", "dead-tuples", "vacuum-horizon-held"),
}
"""Beginnings of the ids of the checks whose remedies turn the knobs of a part."""
MOST_UPDATES = 6
MOST_LEAVES = 4
"""Partitions listed: those furthest beyond their trigger."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Advice:
    """What a finding says about a part: its title, the remedy with its computed value, and why."""

    finding: str
    title: str
    sql: tuple[str, ...]
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """One part: ``facts`` are (knob, today's value, what was measured)."""

    name: str
    facts: tuple[tuple[str, str, str], ...]
    advice: tuple[Advice, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Design:
    """One corner of the triangle in words; ``figures`` stand under FIGURES, none where it cannot be had for the reason ``why_not``."""

    name: str
    now: bool
    figures: tuple[str, ...]
    why_not: str


FIGURES = phrases.DESIGN_HEADERS[1:]
LEGEND = phrases.DESIGN_LEGEND


@dataclass(frozen=True, slots=True, kw_only=True)
class KnobLine:
    """One knob of the triangle."""

    name: str
    today: str
    verdict: str
    turn: bool
    reason: str
    arithmetic: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class TriangleView:
    """Where the queue stands, what the other corners cost, and the one thing to do."""

    designs: tuple[Design, ...]
    knobs: tuple[KnobLine, ...]
    todo: Advice
    notes: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class KnobsView:
    """The knobs of one queue; ``triangle`` is None where nothing tells where it stands."""

    queue: str
    triangle: TriangleView | None
    parts: tuple[Part, ...]


def knobs_views(frame: Frame) -> tuple[KnobsView, ...]:
    """Return the knobs of every queue, in the report's order."""
    return tuple(_queue(frame, one) for one in frame.queues)


def _queue(frame: Frame, queue: Queue) -> KnobsView:
    facts = {
        "index": tuple(_indexes(frame, queue)),
        "fillfactor": tuple(_fillfactor(queue)),
        "HOT": tuple(_hot(frame, queue)),
        "autovacuum": tuple(_autovacuum(frame, queue)),
    }
    numbers = {one.key: place for place, one in enumerate(frame.report.findings, 1)}
    reported = next((one.triangle for one in frame.report.queues if one.name == queue.name), None)
    return KnobsView(
        queue=one_line(queue.name),
        triangle=_triangle(reported, numbers) if reported is not None else None,
        parts=tuple(
            Part(name=name, facts=facts[name], advice=tuple(_advice(frame, queue, name))) for name in PARTS
        ),
    )


def _triangle(found: Triangle, numbers: Mapping[str, int]) -> TriangleView:
    todo = found.recommendation
    return TriangleView(
        designs=tuple(
            Design(
                name=one_line(phrases.design_name(one)),
                now=one.now,
                figures=phrases.design_row(one)[1:] if one.why_not is None else (),
                why_not=one_line(one.why_not or ""),
            )
            for one in found.corners
        ),
        knobs=tuple(
            KnobLine(
                name=one.name,
                today=one_line(one.today),
                verdict=one_line(phrases.knob_verdict(one)),
                turn=one.verdict == "change",
                reason=one_line(one.reason),
                arithmetic=tuple(one_line(line) for line in one.arithmetic),
            )
            for one in found.knobs
        ),
        todo=Advice(
            finding="",
            title=one_line(todo.title),
            sql=tuple(
                line for remedy in todo.remedies for sql in remedy.sql for line in statement(sql).lines()
            ),
            why=one_line(f"{todo.reason}. {phrases.asked_for(todo, numbers)}".rstrip()),
        ),
        notes=tuple(one_line(note) for note in found.notes),
    )


def _advice(frame: Frame, queue: Queue, part: str) -> Iterator[Advice]:
    for one in frame.report.findings:
        if one.queue != queue.name or not one.check.startswith(_TURNED_BY[part]):
            continue
        for remedy in one.remedies:
            yield Advice(
                finding=one_line(one.title),
                title=one_line(remedy.title),
                sql=tuple(line for sql in remedy.sql for line in statement(sql).lines()),
                why=one_line(remedy.expect),
            )


def _indexes(frame: Frame, queue: Queue) -> Iterator[tuple[str, str, str]]:
    sizes = dict(queue.probe.index_sizes) if queue.probe is not None else {}
    rows = max(queue.rows, 1)
    for index in queue.indexes:
        kind = "primary key" if index.primary else "unique" if index.unique else index.method
        if index.has_predicate:
            part = f"{index.rows / rows:.0%} of the rows" if index.rows >= 0 else "partial"
            kind += f", partial ({part})"
        serves = "serves the claim" if serves_claim(queue, index) else "not the claim's"
        used = f"{scans_in_window(queue, index):,} scans in the window, {serves}"
        if blocks_hot(frame.observation.server, index) and not index.primary:
            used += ", updates of its columns are not HOT"
        yield one_line(index.name), f"{kind}, {short.size(sizes.get(index.oid))}", used


def _fillfactor(queue: Queue) -> Iterator[tuple[str, str, str]]:
    churn = queue.churn
    yield (
        "fillfactor",
        f"{queue.fillfactor} %",
        f"{100 - queue.fillfactor} % of each page is kept free for new row versions",
    )
    if churn.newpage_updated is not None:
        share = churn.newpage_updated / churn.updated if churn.updated else None
        yield (
            "updates to another page",
            short.percent(share),
            f"{churn.newpage_updated:,} of {churn.updated:,} updates found no room on their page",
        )
    width = sum(column.average_width or 0 for column in queue.columns)
    yield "row width", f"{width} B" if width else short.UNKNOWN, "sum of the columns' average widths"


def _hot(frame: Frame, queue: Queue) -> Iterator[tuple[str, str, str]]:
    churn = queue.churn
    yield (
        "HOT ratio",
        short.percent(churn.hot_ratio),
        f"{churn.hot_updated:,} of {churn.updated:,} updates were heap-only",
    )
    for update in seen_updates(frame.observation, queue)[:MOST_UPDATES]:
        name = ("claim" if update.claims else "update") + f" sets {', '.join(update.columns)}"
        blockers = "; ".join(f"{one.index.name} ({', '.join(one.columns)})" for one in update.blockers)
        yield (
            short.cut(name, 60),
            "HOT possible" if update.hot_possible else "not HOT",
            one_line(f"{update.rows:,} rows" + (f", kept from it by {blockers}" if blockers else "")),
        )


def _autovacuum(frame: Frame, queue: Queue) -> Iterator[tuple[str, str, str]]:
    catalog = frame.observation.catalog
    last = queue.last_any_vacuum_s
    yield (
        "autovacuum",
        "on" if queue.autovacuum_enabled else "OFF",
        f"last vacuum {short.seconds(last)} ago" if last is not None else "never vacuumed",
    )
    for leaf in leaves_of(frame.observation, queue)[:MOST_LEAVES]:
        table = leaf.table
        scale = parameter(table, catalog, "autovacuum_vacuum_scale_factor")
        threshold = parameter(table, catalog, "autovacuum_vacuum_threshold")
        every = f", due every {short.seconds(leaf.trigger / leaf.making)}" if leaf.making > 0 else ""
        yield (
            one_line(f"trigger of {table.name}"),
            f"{leaf.trigger:,} dead rows",
            f"{threshold:,.0f} and {scale:.0%} of {max(table.rows, 0):,.0f} rows; {leaf.dead:,} are dead now{every}",
        )
    for name in ("autovacuum_vacuum_cost_delay", "autovacuum_naptime"):
        unit = "ms" if name.endswith("delay") else "s"
        yield name, f"{parameter(queue.table, catalog, name):g} {unit}", ""
