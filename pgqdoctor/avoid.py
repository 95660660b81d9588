"""What not to do now: the usual reflexes, where this observation speaks against them. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from pgqdoctor import whatif
from pgqdoctor.observation import Observation
from pgqdoctor.queue import Queue
from pgqdoctor.report import Report, ReportedFinding
from pgqdoctor.sampled import sampled
from pgqdoctor.story import FELT_BUFFERS
from pgqdoctor.waits import Group, group_of
from pgqdoctor.words import count, plural

VACUUM_FULL: Final = "run VACUUM FULL"
VACUUM: Final = "run VACUUM"
RESTART: Final = "restart the workers"
ADD: Final = "add workers"
TUNE: Final = "restart or tune PostgreSQL"
AGAIN: Final = "enqueue the late jobs again"

_SAME_LOCK: Final[Mapping[str, tuple[Group, ...]]] = {
    "multixact-slru-waits": ("multixact", "buffer"),
    "subtransaction-overflow": ("subtransaction",),
    "notify-contention": ("lock",),
    "hot-row": ("lock",),
}
"""Findings of backends that wait for one lock of the server, or one row, and the waits that show it: where backends do wait, each
further one waits there too. Look-ups that find their page at once, or read it from disk, hold nobody up so."""
_LEAST_SAMPLES: Final = 5
"""Samples of waiting sessions: fewer are chance, as in the checks of these waits."""
_LEAST_SHARE: Final = 0.1
"""Share of the samples of active sessions that wait: below it nine of ten workers would work on, and so would one more."""
_WALKED: Final = ("dead-tuples", "claim-scans-dead-rows")
_DEAD: Final = (*_WALKED, "heap-bloat", "index-bloat")


@dataclass(frozen=True, slots=True, kw_only=True)
class Avoid:
    """One thing to leave alone, and what of the observation says so.

    ``until`` says from when on it may be done all the same, "" where no step asks for it; ``because`` is the check whose finding
    speaks against it, "" where it is more than one.
    """

    what: str
    why: str
    until: str = ""
    because: str = ""


def advice(seen: Observation, report: Report, queues: tuple[Queue, ...]) -> tuple[Avoid, ...]:
    """Return what must not be done now, one reason each; nothing without a finding at warning or above."""
    harmful = tuple(one for one in report.findings if one.severity != "notice")
    found: dict[str, Avoid] = {}
    for one in _advice(seen, harmful, queues):
        if one.what not in found:
            found[one.what] = one
    return tuple(found.values())


def forbids(what: str, sql: Iterable[str], title: str) -> bool:
    """Tell whether a step does what is to be left alone."""
    if what == ADD:
        return _ADDS.search(title) is not None
    words = {VACUUM: _VACUUMS, VACUUM_FULL: _VACUUMS_FULL}.get(what)
    return words is not None and any(words.match(one) for one in sql)


_ADDS: Final = re.compile(r"\badd\b.*\bworkers\b", re.IGNORECASE)
_VACUUMS: Final = re.compile(r"\s*VACUUM\b", re.IGNORECASE)
_VACUUMS_FULL: Final = re.compile(r"\s*VACUUM\s*(?:FULL\b|\([^)]*\bFULL\b)", re.IGNORECASE)


def _advice(
    seen: Observation, findings: tuple[ReportedFinding, ...], queues: tuple[Queue, ...]
) -> Iterator[Avoid]:
    by_check: dict[str, ReportedFinding] = {}
    for one in findings:
        by_check.setdefault(one.check, one)
    held = by_check.get("vacuum-horizon-held")
    if held is not None:
        yield Avoid(
            what=VACUUM,
            why=f"it cannot remove {_kept(held)} while the horizon is held",
            because=held.check,
        )
    line = by_check.get("lock-queue")
    if line is not None:
        yield Avoid(what=RESTART, why="their new connections come to stand at the end of the same line")
        yield Avoid(what=ADD, why="they would wait behind the same lock")
        yield Avoid(what=VACUUM_FULL, why="it needs the strongest lock and would lengthen the line")
    alone = by_check.get("queue-unserved")
    if alone is not None and not alone.caused_by:
        yield Avoid(what=TUNE, why="nothing in it keeps a worker from a job: no claim reaches it")
        yield Avoid(what=AGAIN, why="they are all still there, and each would be done twice")
    yield from _not_theirs(seen, findings, queues)
    yield from _no_more(seen, by_check, queues)
    if any(one in by_check for one in _DEAD):
        moving = sum(one.churn.per_second(one.churn.updated + one.churn.deleted) for one in queues)
        yield Avoid(
            what=VACUUM_FULL,
            why="it shuts all workers out while it copies the table"
            + (f", and {count(moving)} rows change per second now" if moving else ""),
        )


def _kept(held: ReportedFinding) -> str:
    kept = _number(held, "dead rows it keeps")
    return f"the {count(kept)} dead rows" if kept is not None else "the dead rows"


def _not_theirs(
    seen: Observation, findings: tuple[ReportedFinding, ...], queues: tuple[Queue, ...]
) -> Iterator[Avoid]:
    """Restarting workers does not end a session that is none of them."""
    workers = {one.session.pid for queue in queues for one in queue.sessions}
    root = next((one for one in findings if not one.caused_by), None)
    remedy = next(iter(root.remedies), None) if root is not None else None
    culprits = whatif.ended_by(remedy.sql) if remedy is not None else whatif.Culprits()
    if not culprits or set(culprits.pids) & workers:
        return
    if culprits.pids:
        who = next((one.application for one in seen.last.sessions if one.pid == culprits.pids[0]), "")
        named = f"session {culprits.pids[0]}" + (f" ({who})" if who else "")
        yield Avoid(what=RESTART, why=f"{named} is none of them and would stay")
    else:
        yield Avoid(what=RESTART, why="what has to end belongs to no session")


def _no_more(
    seen: Observation, by_check: dict[str, ReportedFinding], queues: tuple[Queue, ...]
) -> Iterator[Avoid]:
    """More workers make worse what grows with their number."""
    convoy = by_check.get("claim-not-skip-locked")
    if convoy is not None:
        yield Avoid(what=ADD, why="they would try for the same row as those there are")
    for check, groups in _SAME_LOCK.items():
        if check in by_check and _wait_there(seen, groups):
            yield Avoid(what=ADD, why="those there are wait for each other already")
    if "connections-saturated" in by_check:
        yield Avoid(
            what=ADD, why=f"{plural(seen.last.database.backends, 'connection')} are open and few are left"
        )
    if "claim-empty-polls" in by_check:
        yield Avoid(what=ADD, why="those there are ask in vain most of the time")
    held = by_check.get("vacuum-horizon-held")
    walked = held is not None and (_number(held, "claim reads") or 0.0) >= FELT_BUFFERS
    if walked or any(one in by_check for one in _WALKED):
        yield Avoid(
            what=ADD, why="each claim walks the same dead entries, whoever runs it, and leaves one more"
        )
    if "claim-scans-consumed-rows" in by_check or "claim-sorts-backlog" in by_check:
        yield Avoid(what=ADD, why="each of them would read the same rows in vain")


def _wait_there(seen: Observation, groups: tuple[Group, ...]) -> bool:
    """Tell whether the samples show that sessions wait at such a lock."""
    told = sampled(seen)
    waiting = sum(len(at) for at in told.active_at.values() if group_of(at[0]) in groups)
    return waiting >= _LEAST_SAMPLES and waiting >= _LEAST_SHARE * told.active


def _number(finding: ReportedFinding, what: str) -> float | None:
    return next(
        (float(one.value) for one in finding.evidence if one.what == what and not isinstance(one.value, str)),
        None,
    )
