"""Transactions that idled, as the samples of a window show them: how long each stayed open, how long it idled, at what it was seen."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from pgqdoctor.observation import Observation, SampledSession
from pgqdoctor.once import once
from pgqdoctor.sampled import IDLE_IN_TRANSACTION, sampled

SAME_START_S: Final = 0.05
"""Two samples of one backend belong to one transaction where its start, now minus age, agrees to this many seconds: the
age is taken some rows later than the sample's time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SeenTransaction:
    """One transaction of one backend. Times are in seconds; ``texts`` are positions in Observation.texts, in order."""

    pid: int
    application: str
    seconds: float
    """Its age when last seen."""
    idle_s: float
    """The longest time that it was seen to wait for its client, statement finished and transaction open."""
    idle: bool
    """True where it was idle in transaction when last seen."""
    last_seen: float
    writes: bool
    """True where it had a transaction id: it has locked a row or written one."""
    texts: tuple[int, ...]
    idle_samples: int

    @property
    def last_text(self) -> int:
        """The last statement seen, -1 for none."""
        return self.texts[-1] if self.texts else -1


@once
def idle_transactions(seen: Observation) -> tuple[SeenTransaction, ...]:
    """Return the transactions that the samples caught idle once at least, in the order in which they were seen to end."""
    open_ones: dict[int, list[tuple[float, SampledSession]]] = {}
    found: list[SeenTransaction] = []
    idled = sampled(seen).idle_pids
    for sample in seen.samples:
        for session in sample.sessions:
            if session.pid not in idled or session.xact_age_s is None:
                continue
            known = open_ones.get(session.pid)
            if known and abs(_start(*known[-1]) - (sample.at - session.xact_age_s)) > SAME_START_S:
                found.extend(_joined(known))
                known = None
            if known:
                known.append((sample.at, session))
            else:
                open_ones[session.pid] = [(sample.at, session)]
    for known in open_ones.values():
        found.extend(_joined(known))
    return tuple(found)


def _start(at: float, session: SampledSession) -> float:
    return at - (session.xact_age_s or 0.0)


def _joined(looks: list[tuple[float, SampledSession]]) -> Iterator[SeenTransaction]:
    at, last = looks[-1]
    idle = [one for _, one in looks if one.state is not None and one.state.startswith(IDLE_IN_TRANSACTION)]
    if not idle:
        return
    yield SeenTransaction(
        pid=last.pid,
        application=last.application,
        seconds=last.xact_age_s or 0.0,
        idle_s=max((one.state_age_s or 0.0 for one in idle), default=0.0),
        idle=bool(idle) and idle[-1] is last,
        last_seen=at,
        writes=any(one.xid_age is not None for _, one in looks),
        texts=tuple(dict.fromkeys(one.text for _, one in looks if one.text >= 0)),
        idle_samples=len(idle),
    )
