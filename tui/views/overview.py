"""Screen 1: the verdict and its cause in one line, the numbers of each queue, and the findings in causal order."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pgqdoctor.finding import SEVERITIES
from pgqdoctor.frames import Frame
from pgqdoctor.pulse import Pulse, QueuePulse
from pgqdoctor.render import phrases
from pgqdoctor.render.clean import one_line
from pgqdoctor.report import Report
from pgqdoctor.story import story_of
from pgqdoctor.tui.views import short

MARKS = {"critical": "!!", "warning": "! ", "notice": "· ", "": "  "}
"""Severity without colour."""
SORTS = ("name", "ready", "in flight", "oldest", "claims/s", "finishes/s", "buffers", "HOT", "dead", "vacuum")
HEADS = ("queue", "ready", "in flt", "oldest", "claims/s", "fins/s", "buf/clm", "HOT", "dead", "vacuum")
SPARKED = {4: "claimed_per_s", 5: "finished_per_s"}
"""Columns that have their history under the number."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Head:
    """What stands on top of every screen."""

    verdict: str
    word: str
    cause: str
    server: str
    counts: str


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueLine:
    """One queue; ``numbers`` are what the cells say, for sorting. ``gone`` says since when its table is missing.

    ``name`` is safe to show, ``counted_as`` is the name as it stands in a Pulse.
    """

    name: str
    counted_as: str
    severity: str
    cells: tuple[str, ...]
    numbers: tuple[float | None, ...]
    gone: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class FindingLine:
    """One finding in the story: ``depth`` is how many causes stand above it."""

    key: str
    severity: str
    depth: int
    title: str
    queue: str


def head(frame: Frame) -> Head:
    """Return verdict and root cause in one line."""
    report = frame.report
    first = report.findings[0] if report.findings else None
    return Head(
        verdict=report.verdict,
        word=phrases.verdict_word(report),
        cause=one_line(
            story_of(report) or (first.title if first is not None else phrases.verdict_found(report))
        ),
        server=one_line(
            f"{report.server.database} · PostgreSQL {report.server.version.partition(' ')[0]}"
            f"{' standby' if report.server.in_recovery else ''}{' · pooler' if report.server.pooler else ''}"
        ),
        counts=phrases.verdict_found(report),
    )


def queue_lines(frame: Frame) -> tuple[QueueLine, ...]:
    """Return the queues in the report's order."""
    return tuple(_line(one, _worst(frame.report, one.name)) for one in frame.pulse.queues)


def finding_lines(frame: Frame) -> tuple[FindingLine, ...]:
    """Return the findings in the report's order, which is causal."""
    depth = phrases.depths(frame.report.findings)
    return tuple(
        FindingLine(
            key=one.key,
            severity=one.severity,
            depth=depth[one.key],
            title=one_line(one.title),
            queue=one_line(one.queue or ""),
        )
        for one in frame.report.findings
    )


def remarks(frame: Frame) -> tuple[str, ...]:
    """Return what the reader must know beside the findings: crashes, what could not be looked at, notes."""
    report = frame.report
    found = [f"CRASHED {one.check}: {one.error}" for one in report.crashed]
    found.extend(
        f"not looked at: {phrases.named(one.checks)}: {one.reason}" + (f" ({one.grant})" if one.grant else "")
        for one in phrases.not_seen(report)
    )
    found.extend(phrases.notes(report))
    return tuple(one_line(line) for line in found)


def ordered(lines: Sequence[QueueLine], sort: str, wanted: str = "") -> tuple[QueueLine, ...]:
    """Return the lines whose name holds ``wanted``, by a column of SORTS: names upwards, numbers downwards."""
    chosen = [line for line in lines if wanted.lower() in line.name.lower()]
    if sort not in SORTS[1:]:
        return tuple(sorted(chosen, key=lambda line: line.name))
    place = SORTS.index(sort) - 1

    def by(line: QueueLine) -> tuple[bool, float, str]:
        value = line.numbers[place]
        return value is None, -(value or 0.0), line.name

    return tuple(sorted(chosen, key=by))


def moments(pulses: Sequence[Pulse], name: str) -> tuple[QueuePulse | None, ...]:
    """Return one queue over time; None where it was not there."""
    return tuple(pulse.of(name) for pulse in pulses)


def series(known: Sequence[QueuePulse | None], field: str) -> tuple[float | None, ...]:
    """Return one number of one queue over time; None where it was not known."""
    return tuple(None if one is None else getattr(one, field) for one in known)


def _worst(report: Report, queue: str) -> str:
    found = [one.severity for one in report.findings if one.queue == queue]
    return min(found, key=SEVERITIES.index, default="")


def _line(one: QueuePulse, severity: str) -> QueueLine:
    ready = short.number(one.ready) + ("" if one.ready_exact or one.ready is None else "+")
    running = "" if one.in_flight_exact or one.in_flight is None else "~"
    oldest = short.seconds(one.oldest_s) if one.oldest_s is not None or one.ready != 0 else short.NONE
    return QueueLine(
        name=one_line(one.name),
        counted_as=one.name,
        severity=severity,
        cells=(
            ready,
            running + short.number(one.in_flight),
            oldest,
            short.number(one.claimed_per_s),
            short.number(one.finished_per_s),
            short.number(one.buffers),
            short.percent(one.hot_ratio),
            short.number(one.dead),
            short.seconds(one.vacuum_s) if one.vacuum_s is not None else "never",
        ),
        numbers=(
            one.ready,
            one.in_flight,
            one.oldest_s,
            one.claimed_per_s,
            one.finished_per_s,
            one.buffers,
            one.hot_ratio,
            one.dead,
            one.vacuum_s,
        ),
    )
