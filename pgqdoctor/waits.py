"""What active sessions wait for, in the groups that matter to a queue. Pure.

Wait events were renamed over the versions (MultiXactMemberBuffer and MultiXactMemberSLRU, SubtransSLRU and SubtransBuffer): groups
go by what all of their names share.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Literal

from pgqdoctor.observation import Observation, Sample, SampledSession

Group = Literal["multixact", "subtransaction", "lock", "buffer", "I/O", "CPU", "other"]
GROUPS: Final[tuple[Group, ...]] = ("multixact", "subtransaction", "lock", "buffer", "I/O", "CPU", "other")
"""From the one that most surely is a fault to the one that is work."""


MOST_DOING: Final = 50
"""Statements listed per wait event: sessions with literals and without query ids are all different."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Share:
    """How many sessions were active in one group on average (average active sessions)."""

    group: Group
    sessions: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Doing:
    """One statement of one application among the sessions at one wait event; ``text`` is "" where it is hidden."""

    text: str
    application: str
    sessions: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """One wait event over the samples; ``event`` is "on CPU" for sessions that wait for nothing."""

    group: Group
    event: str
    sessions: float
    doing: tuple[Doing, ...]


def group_of(session: SampledSession) -> Group | None:
    """Return the group of a session, None where it is not active."""
    if session.state != "active":
        return None
    kind, event = session.wait_type or "", (session.wait_event or "").lower()
    if not kind:
        return "CPU"
    if "multixact" in event:
        return "multixact"
    if "subtrans" in event:
        return "subtransaction"
    if kind == "Lock":
        return "lock"
    if kind in ("Buffer", "BufferPin") or event.startswith("buffer"):
        return "buffer"
    return "I/O" if kind == "IO" else "other"


def shares(samples: Sequence[Sample]) -> tuple[Share, ...]:
    """Return the average number of active sessions in every group, in the order of GROUPS."""
    counts: Counter[Group] = Counter()
    for sample in samples:
        counts.update(group for one in sample.sessions if (group := group_of(one)) is not None)
    return tuple(Share(group=group, sessions=counts[group] / max(len(samples), 1)) for group in GROUPS)


def events(seen: Observation, samples: Sequence[Sample] | None = None) -> tuple[Event, ...]:
    """Return the wait events with what was done at each, the busiest first within its group."""
    chosen = seen.samples if samples is None else samples
    texts = _joined(seen)
    counts: dict[tuple[Group, str], Counter[tuple[int | str, str]]] = defaultdict(Counter)
    alike: dict[tuple[object, ...], list[SampledSession]] = defaultdict(list)
    for sample in chosen:
        for one in sample.sessions:
            if one.state == "active":
                alike[one.wait_type, one.wait_event, one.query_id, one.text, one.application].append(one)
    for one, *more in alike.values():
        group = group_of(one)
        if group is None:
            continue
        event = f"{one.wait_type}:{one.wait_event}" if one.wait_type else "on CPU"
        # The query id joins executions that differ in their literals only.
        what = _what(one, texts, seen.texts)
        counts[group, event][what, one.application] += 1 + len(more)
    total = max(len(chosen), 1)
    found = [
        Event(
            group=group,
            event=event,
            sessions=doing.total() / total,
            doing=tuple(
                Doing(
                    text=texts[what] if isinstance(what, int) else what,
                    application=application,
                    sessions=count / total,
                )
                for (what, application), count in doing.most_common(MOST_DOING)
            ),
        )
        for (group, event), doing in counts.items()
    ]
    return tuple(sorted(found, key=lambda one: (GROUPS.index(one.group), -one.sessions, one.event)))


def _what(session: SampledSession, known: Mapping[int, str], texts: Sequence[str]) -> int | str:
    """Return the query id where its text is known, else the text that the session showed."""
    if session.query_id is not None and session.query_id in known:
        return session.query_id
    return texts[session.text] if session.text >= 0 else ""


def _joined(seen: Observation) -> Mapping[int, str]:
    """Return the text of each query id as pg_stat_statements has it."""
    return {
        row.query_id: row.text
        for row in seen.statement_texts
        if row.query_id is not None and row.text is not None
    }


def idle_in_transaction(samples: Iterable[Sample]) -> float:
    """Return how many sessions stood idle in a transaction on average."""
    chosen = list(samples)
    count = sum(
        1
        for sample in chosen
        for one in sample.sessions
        if (one.state or "").startswith("idle in transaction")
    )
    return count / max(len(chosen), 1)
