"""What is wrong in one sentence: how it shows, because of what, by which way. A pure function of the report.

"The oldest ready job of public.jobs is 4 min late, because session 4711 holds the xmin horizon, so a claim reads 9,000 buffers
for dead index entries."
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final

from pgqdoctor.report import QueueFacts, Report, ReportedFinding
from pgqdoctor.words import count, duration, plural

LATE_S: Final = 10.0
"""Seconds: workers that poll ask every one to ten seconds, so a younger job is merely waiting for the next poll."""


FELT_BUFFERS: Final = 30
"""Buffers of a claim worth a word: ten times the three that a claim on a clean index reads."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Chapter:
    """One finding in the tree: ``depth`` is 0 for a root, one more than its deepest cause for an effect."""

    finding: ReportedFinding
    depth: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Story:
    """One root with what it causes, in the order it is told."""

    root: ReportedFinding
    effects: tuple[Chapter, ...]
    sentence: str


def stories(report: Report) -> tuple[Story, ...]:
    """Return one story per root with a finding of at least a warning, the worst first; the report's order is kept.

    An effect of two roots is told once, in the story of the worse.
    """
    told: list[Story] = []
    known: set[str] = set()
    for root in (one for one in report.findings if not one.caused_by):
        effects = tuple(one for one in _below(root, report) if one.finding.key not in known)
        if any(one.severity != "notice" for one in (root, *(each.finding for each in effects))):
            known |= {one.finding.key for one in effects}
            told.append(Story(root=root, effects=effects, sentence=_sentence(root, effects, report)))
    return tuple(told)


def story_of(report: Report) -> str:
    """Return the worst story as one sentence, "" where nothing is at warning or above."""
    return next((one.sentence for one in stories(report)), "")


def tree_of(report: Report) -> tuple[Chapter, ...]:
    """Return all findings with their depths: a cause stands before its effects, so one pass suffices."""
    depth: dict[str, int] = {}
    for one in report.findings:
        depth[one.key] = max((depth[key] + 1 for key in one.caused_by if key in depth), default=0)
    return tuple(Chapter(finding=one, depth=depth[one.key]) for one in report.findings)


def _below(root: ReportedFinding, report: Report) -> Iterator[Chapter]:
    depth = {root.key: 0}
    for one in report.findings:
        above = [depth[key] for key in one.caused_by if key in depth]
        if one.key not in depth and above:
            depth[one.key] = max(above) + 1
            yield Chapter(finding=one, depth=depth[one.key])


def _sentence(root: ReportedFinding, effects: tuple[Chapter, ...], report: Report) -> str:
    told = (root, *(one.finding for one in effects))
    queue = _queue_of(told, report)
    symptom = _symptom(queue, effects) if queue is not None and any(_delays(one) for one in told) else ""
    effect = _effect(root, effects, begun=bool(symptom))
    if _says_no_more(effect, _head(root.title)):
        effect = ""
    cause = _head(root.title) if effect else root.title.rstrip(".")
    if symptom:
        assert queue is not None
        # The title may end with what the sentence begins with.
        cause = cause.replace(f", the oldest for {duration(queue.ready.oldest_age_s or 0.0)}", "")
        return f"{symptom}, because {_inside(cause)}{', so ' + effect if effect else ''}."
    return f"{cause}{', so ' + effect if effect else ''}."


def _delays(finding: ReportedFinding) -> bool:
    """Tell whether the finding says that jobs come late: waiting workers do, a dear claim alone does not."""
    return finding.check in _DELAYING and finding.severity != "notice"


def _queue_of(told: tuple[ReportedFinding, ...], report: Report) -> QueueFacts | None:
    """The queue the story is about; of a story that concerns the whole server the one that waits longest."""
    named = next((one.queue for one in told if one.queue is not None), None)
    if named is not None:
        return next((one for one in report.queues if one.name == named), None)
    return max(report.queues, key=lambda one: one.ready.oldest_age_s or 0.0, default=None)


def _symptom(queue: QueueFacts, effects: tuple[Chapter, ...]) -> str:
    """How it shows: a late job or, where jobs have no time of their own, the backlog that grows."""
    age = queue.ready.oldest_age_s
    if age is not None:
        return f"The oldest ready job of {queue.name} is {duration(age)} late" if age >= LATE_S else ""
    shown = (one.finding for one in effects if one.finding.check in _SHOWN)
    return next((_head(one.title) for one in shown), "")


_COUNTED: Final = re.compile(r"\d[\d,.]*(?: [a-z]+){1,2}")
"""A number with what it counts, as in "9,000 dead index"."""


def _says_no_more(effect: str, cause: str) -> bool:
    """Tell whether all that the effect counts stands in the cause already."""
    counted = set(_COUNTED.findall(effect))
    return bool(counted) and counted <= set(_COUNTED.findall(cause))


def _effect(root: ReportedFinding, effects: tuple[Chapter, ...], *, begun: bool) -> str:
    """What the chain comes to: its deepest harmful link. A root alone says it in its title, "" then.

    ``begun`` says that the sentence begins with the late job, so that what else says so need not.
    """
    harmful = [
        one
        for one in effects
        if one.finding.severity != "notice" and not (begun and one.finding.check in _SHOWN)
    ]
    for one in sorted(harmful, key=lambda each: -each.depth):
        return _said(one.finding) or _inside(_head(one.finding.title))
    return _said(root) or ""


def _said(finding: ReportedFinding) -> str | None:
    words = _EFFECTS.get(finding.check)
    return words(finding) if words is not None else None


def _head(title: str) -> str:
    """The title up to its colon: the culprit, without the number that follows."""
    return title.partition(": ")[0].rstrip(".")


def _inside(clause: str) -> str:
    """The clause in the middle of a sentence: only a plain first word loses its capital, names keep theirs."""
    first, _, _ = clause.partition(" ")
    return clause[:1].lower() + clause[1:] if first[1:].islower() or first == "A" else clause


def number_of(finding: ReportedFinding, what: str) -> float | None:
    """Return a number of the finding's evidence by its name, None where it has none."""
    for one in finding.evidence:
        if one.what == what and not isinstance(one.value, str):
            return float(one.value)
    return None


def _dead_rows(finding: ReportedFinding) -> str | None:
    buffers = number_of(finding, "claim's buffers for dead entries")
    return None if buffers is None else f"each claim reads {count(buffers)} buffers for dead index entries"


def _dead_entries(finding: ReportedFinding) -> str | None:
    entries = number_of(finding, "dead entries") or number_of(finding, "dead entries, at least")
    return None if entries is None else f"each claim walks {count(entries)} dead index entries"


def _claim_reads(finding: ReportedFinding) -> str | None:
    kept, buffers = number_of(finding, "dead rows it keeps"), number_of(finding, "claim reads")
    if kept is None:
        return None
    if buffers is None or buffers < FELT_BUFFERS:
        return f"{count(kept)} dead rows cannot be vacuumed"
    return f"{count(kept)} dead rows cannot be vacuumed and a claim reads {count(buffers)} buffers"


def _nobody(finding: ReportedFinding) -> str | None:
    jobs = number_of(finding, "jobs nobody takes")
    return None if jobs is None else f"{plural(jobs, 'job')} {'waits' if jobs == 1 else 'wait'}"


_EFFECTS: Final[dict[str, Callable[[ReportedFinding], str | None]]] = {
    "claim-scans-dead-rows": _dead_entries,
    "dead-tuples": _dead_rows,
    "queue-unserved": _nobody,
    "vacuum-horizon-held": _claim_reads,
}
"""How a finding ends a chain where its title would be too long there; the others end it with their title."""

_SHOWN: Final = frozenset({"backlog-growing"})
"""Checks that say what the sentence begins with."""

_DELAYING: Final = frozenset(
    {
        "backlog-growing",
        "claim-not-skip-locked",
        "commit-waits-standby",
        "hot-row",
        "lock-queue",
        "multixact-slru-waits",
        "notify-contention",
        "queue-unserved",
        "subtransaction-overflow",
    }
)
"""Checks that find a backlog that grows, or workers that wait in a line."""
