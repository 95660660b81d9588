"""What the formats for people say alike: the verdict, what was looked at and what not, what a remedy takes.

The texts are not yet escaped: each format does that its own way.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, TypeVar

from pgqdoctor.finding import SEVERITIES, Remedy
from pgqdoctor.render.quantities import counted, duration, number, percent, size
from pgqdoctor.report import QueueFacts, Report, ReportedFinding, left_waiting
from pgqdoctor.triangle import Corner, CornerName, Knob, KnobVerdict, Recommendation

MOST_FINDINGS: Final = 20
MOST_EVIDENCE: Final = 12
MOST_QUEUES: Final = 20
MOST_REASONS: Final = 12
MOST_NAMES: Final = 8
"""Lengths of lists that a person still reads; JSON has them whole."""

QUEUE_HEADERS: Final = ("queue", "ready", "oldest", "claims/s", "buffers/claim", "HOT", "dead rows")
DESIGN_HEADERS: Final = ("design", "claim reads", "HOT updates", "index entries", "WAL")
DESIGN_LEGEND: Final = (
    "Claim reads: pages of 8 kB (buffers) per claimed job. HOT updates: share of the updates that write no index entry (heap-only "
    'tuples). Index entries and WAL: written per job. "About" is computed, the rest was measured.'
)
DESIGNS: Final[Mapping[CornerName, str]] = {
    "claim index, no HOT": "an index serves the claim, most updates are not HOT",
    "HOT, claims scan": "no index serves the claim, most updates are HOT",
    "both": "an index serves the claim, most updates are HOT",
    "neither": "no index serves the claim, most updates are not HOT",
}
"""What the names of the designs in JSON mean."""
VERDICTS: Final[Mapping[KnobVerdict, str]] = {
    "keep": "keep it",
    "change": "change it",
    "cannot help": "no value can help",
    "does not pay": "would cost more than it saves",
    "not known": "cannot be told",
}
EVIDENCE_HEADERS: Final = ("what", "value", "read from")
KINDS: Final = {
    "sql": "SQL",
    "setting": "server setting",
    "application": "change of the application",
    "upgrade": "upgrade",
}

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class NotSeen:
    """Checks that could not look for one and the same reason."""

    reason: str
    grant: str | None
    checks: tuple[str, ...]
    queues: tuple[str, ...]


def verdict_word(report: Report) -> str:
    """Return the verdict in capitals; without findings it is healthy only where something was looked at."""
    if report.verdict != "healthy":
        return report.verdict.upper()
    if report.crashed:
        return "INCOMPLETE"
    if not report.queues:
        return "NO QUEUE FOUND"
    if left_waiting(report):
        return "NO FAULT FOUND"
    return "HEALTHY AS FAR AS SEEN" if report.skipped else "HEALTHY"


def verdict_found(report: Report) -> str:
    """Return what was found in a few words: "1 critical, 2 warnings"."""
    counts = [
        (severity, sum(1 for one in report.findings if one.severity == severity)) for severity in SEVERITIES
    ]
    found = ", ".join(
        f"{count:,} critical" if severity == "critical" else counted(count, severity)
        for severity, count in counts
        if count
    )
    if found:
        return found if report.queues else f"{found}, no queue found"
    if report.crashed:
        return "no finding" if report.queues else "no finding, no queue found"
    waiting = left_waiting(report)
    if waiting:
        more = f" and {len(waiting) - 1:,} more" if len(waiting) > 1 else ""
        return f"no finding, but jobs of {waiting[0].name}{more} wait and no claim was seen"
    return (
        f"nothing wrong with {counted(len(report.queues), 'queue')}"
        if report.queues
        else "nothing to diagnose"
    )


def looked_at(report: Report) -> str:
    """Return where and how long was looked: "in database app, PostgreSQL 17.10, over 10 s"."""
    server = report.server
    version = server.version.partition(" ")[0]
    standby = " (standby)" if server.in_recovery else ""
    return f"in database {server.database}, PostgreSQL {version}{standby}, over {seconds_watched(report)}"


def seconds_watched(report: Report) -> str:
    """Return the length of the window; a tenth of a second more than was asked for is not worth a word."""
    seconds = report.window.seconds
    return f"{seconds:.2g} s" if seconds < 59.5 else duration(round(seconds))


def observed(report: Report) -> str:
    """Return when, as whom and by what was looked."""
    pooler = ", through a connection pooler" if report.server.pooler else ""
    return (
        f"Seen {report.generated_at} as role {report.server.role}{pooler}, "
        f"{counted(report.window.samples, 'sample')}, {report.tool.name} {report.tool.version}."
    )


def gaps(report: Report) -> str:
    """Return that something could not be looked at, "" where all was."""
    unseen = []
    if report.crashed:
        unseen.append(f"{counted(len({one.check for one in report.crashed}), 'check')} crashed")
    if report.skipped:
        unseen.append(f"{counted(len({one.check for one in report.skipped}), 'check')} could not look")
    return f"Not the whole picture: {' and '.join(unseen)}; see below." if unseen else ""


def depths(findings: Sequence[ReportedFinding]) -> dict[str, int]:
    """Return how many causes stand above each finding, by key; a cause outside the list counts for nothing.

    A cause stands before its effects, so one pass suffices.
    """
    found: dict[str, int] = {}
    for one in findings:
        found[one.key] = max((found[cause] + 1 for cause in one.caused_by if cause in found), default=0)
    return found


def not_seen(report: Report) -> tuple[NotSeen, ...]:
    """Return the skipped checks, joined where reason, grant and queues are the same, in the report's order."""
    queues: dict[tuple[str, str | None, str], dict[str, None]] = {}
    for one in report.skipped:
        found = queues.setdefault((one.reason, one.grant, one.check), {})
        if one.queue is not None:
            found[one.queue] = None
    checks: dict[tuple[str, str | None, tuple[str, ...]], list[str]] = {}
    for (reason, grant, check), names in queues.items():
        checks.setdefault((reason, grant, tuple(names)), []).append(check)
    return tuple(
        NotSeen(reason=reason, grant=grant, checks=tuple(found), queues=names)
        for (reason, grant, names), found in checks.items()
    )


def notes(report: Report) -> tuple[str, ...]:
    """Return the notes, without those that only repeat why a check could not look."""
    reasons = {one.reason for one in report.skipped}
    return tuple(note for note in report.notes if not any(reason in note for reason in reasons))


def remedy_takes(remedy: Remedy) -> str:
    """Return lock, blocking and restart in one phrase, "" where the remedy touches no server."""
    if remedy.kind == "application" and not remedy.lock and not remedy.restart:
        return ""
    lock = f"takes {remedy.lock}" if remedy.lock else "takes no table lock"
    blocks = f"blocks {remedy.blocks}"
    return f"{lock}, {blocks}, {'needs a restart' if remedy.restart else 'needs no restart'}"


def acts_on_server(remedy: Remedy) -> bool:
    """Tell whether the remedy is SQL that changes the server, and not work on the application."""
    return remedy.kind in ("sql", "setting") and bool(remedy.sql)


def has_no_undo(remedy: Remedy) -> bool:
    """Tell whether the remedy acts on the server and its report gives no way back."""
    return acts_on_server(remedy) and not remedy.undo


def ready_rows(queue: QueueFacts) -> str:
    """Return how many jobs are ready; "10,000+" where the probe stopped counting, "?" where it could not."""
    rows = queue.ready.rows
    if rows is None:
        return "?"
    return number(rows) if queue.ready.exact else f"{rows:,}+"


def queue_row(queue: QueueFacts) -> tuple[str, ...]:
    """Return the cells under QUEUE_HEADERS; "?" is what could not be seen, "-" what did not occur."""
    plan, rates, age = queue.claim.plan, queue.rates, queue.ready.oldest_age_s
    no_age = "-" if queue.ready.rows == 0 else "?"
    return (
        queue.name,
        ready_rows(queue),
        duration(age) if age is not None else no_age,
        number(rates.claimed_per_s) if rates.claimed_per_s is not None else "?",
        number(plan.buffers) if plan is not None and plan.buffers is not None else "?",
        percent(rates.hot_ratio) if rates.hot_ratio is not None else "-",
        number(queue.table.dead_rows),
    )


def turned(knob: Knob) -> bool:
    """Tell whether a knob is worth a line in a short text: it should be turned, or looks as if it should."""
    return knob.verdict in ("change", "does not pay")


def knob_line(knob: Knob, advice: Recommendation) -> str:
    """Return a knob's verdict, with its reason unless the recommendation has given it already."""
    verdict = knob_verdict(knob)
    reason = "" if knob.reason == advice.reason else f"; {knob.reason}"
    return f"{knob.name}, today {knob.today}: {verdict}{reason}"


def knob_verdict(knob: Knob) -> str:
    """Return what to do with a knob: the value to set where it should be turned."""
    if knob.verdict == "change" and knob.computed:
        return f"change it to {knob.computed}"
    return VERDICTS[knob.verdict]


def asked_for(advice: Recommendation, numbers: Mapping[str, int]) -> str:
    """Return who asks for what the knobs recommend, "" where that is nothing to run; ``numbers`` are the findings' by key."""
    if not advice.remedies:
        return ""
    known = [f"finding {numbers[key]}" for key in advice.asked_by if key in numbers]
    if known:
        return f"It is the remedy of {' and of '.join(known)}."
    if advice.asked_by:
        return f"It is the remedy of {' and of '.join(advice.asked_by)}."
    return (
        "No finding asks for it, as what it would save is below the limits of the checks; pgqdoctor fix prints it as an optional step, "
        "commented out."
    )


def design_name(corner: Corner) -> str:
    """Return a design in words: what makes it, or for one that cannot be had what it would be."""
    if corner.now:
        return f"{corner.change}: {DESIGNS[corner.name].partition(',')[0]}"
    return corner.change or DESIGNS[corner.name]


def design_row(corner: Corner) -> tuple[str, ...]:
    """Return the cells under DESIGN_HEADERS."""

    def shown(value: float | None, show: Callable[[float], str], known: bool) -> str:
        return "not known" if value is None else f"{'' if known else 'about '}{show(value)}"

    hot = (
        "no updates"
        if corner.hot_ratio is None and corner.now
        else shown(corner.hot_ratio, percent, corner.hot_measured)
    )
    return (
        design_name(corner),
        shown(corner.claim_buffers, number, corner.claim_measured),
        hot,
        shown(corner.entries_per_job, number, corner.now),
        shown(corner.wal_bytes_per_job, size, corner.now),
    )


def first(items: Sequence[T], most: int) -> tuple[Sequence[T], str]:
    """Return at most so many items, and the line that says how many are left out, "" for none."""
    left = len(items) - most
    return items[:most], f"... and {left:,} more (--format json shows all)" if left > 0 else ""


def named(names: Sequence[str], show: Callable[[str], str] = str) -> str:
    """Return names in a row, each as ``show`` writes it, the longer tail of a long list counted only."""
    shown = ", ".join(show(name) for name in names[:MOST_NAMES])
    return f"{shown} and {len(names) - MOST_NAMES:,} more" if len(names) > MOST_NAMES else shown
