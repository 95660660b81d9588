"""What the samples of a window say when they are taken together, worked out once for all checks and queues.

Ten samples a second of hundreds of sessions are tens of thousands of rows: each check of each queue that walked over them took
longer than everything else it did.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from pgqdoctor.observation import Observation, SampledSession
from pgqdoctor.once import once

IDLE_IN_TRANSACTION: Final = "idle in transaction"
"""How the state begins, also in a transaction that has failed."""
Wait = tuple[str, str]
"""Type and name of a wait event."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sampled:
    """All samples of a window. Ages are in seconds; texts are positions in Observation.texts."""

    active: int
    """Samples of sessions that ran a statement."""
    active_at: Mapping[Wait, tuple[SampledSession, ...]]
    """Those of them that waited, by what they waited for, in the order of the samples."""
    pids: frozenset[int]
    idle_pids: frozenset[int]
    """The backends that were seen idle in a transaction."""
    pids_of_text: Mapping[int, frozenset[int]]
    texts_of_query: Mapping[int, tuple[int, ...]]
    """The texts that sessions showed with a query id, in order of their first sight."""
    oldest_s: float
    """The greatest age of a transaction, those of vacuums apart; 0 where there was none."""
    oldest_writer_s: float | None
    """The greatest age of a transaction that had written, None where none had."""

    def waiting(self, kind: str, *events: str) -> Iterator[SampledSession]:
        """Yield the samples of active sessions that waited for one of the events."""
        for event in events:
            yield from self.active_at.get((kind, event), ())


@once
def sampled(seen: Observation) -> Sampled:
    """Take the samples of an observation together."""
    active = 0
    active_at: dict[Wait, list[SampledSession]] = defaultdict(list)
    pids_of_text: dict[int, set[int]] = defaultdict(set)
    texts_of_query: dict[int, dict[int, None]] = defaultdict(dict)
    pids: set[int] = set()
    idle_pids: set[int] = set()
    oldest_s, oldest_writer_s = 0.0, None
    for sample in seen.samples:
        for one in sample.sessions:
            pids.add(one.pid)
            if one.state == "active":
                active += 1
                if one.wait_type is not None and one.wait_event is not None:
                    active_at[one.wait_type, one.wait_event].append(one)
            elif one.state is not None and one.state.startswith(IDLE_IN_TRANSACTION):
                idle_pids.add(one.pid)
            if one.text >= 0:
                pids_of_text[one.text].add(one.pid)
                if one.query_id is not None:
                    texts_of_query[one.query_id][one.text] = None
            age = one.xact_age_s
            if age is not None and not one.vacuuming and age > oldest_s:
                oldest_s = age
            if one.xid_age is not None and (oldest_writer_s is None or (age or 0.0) > oldest_writer_s):
                oldest_writer_s = age or 0.0
    return Sampled(
        active=active,
        active_at={wait: tuple(found) for wait, found in active_at.items()},
        pids=frozenset(pids),
        idle_pids=frozenset(idle_pids),
        pids_of_text={text: frozenset(found) for text, found in pids_of_text.items()},
        texts_of_query={query: tuple(found) for query, found in texts_of_query.items()},
        oldest_s=oldest_s,
        oldest_writer_s=oldest_writer_s,
    )
