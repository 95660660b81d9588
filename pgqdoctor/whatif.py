"""What would remain without a culprit: the same observation, without the session or transaction that is to end.

The rest is left as it was measured. Dead rows and plans do not change by themselves when a horizon moves: whatever the checks say
of the result is what still has to be done afterwards. Pure.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Final

from pgqdoctor import horizon
from pgqdoctor.observation import Observation, Reading, Sample

_PID: Final = re.compile(r"pg_(?:terminate|cancel)_backend\((\d+)\)")
_GID: Final = re.compile(r"(?:ROLLBACK|COMMIT) PREPARED\s+E?'((?:[^'\\]|''|\\\\)*)'")
_SLOT: Final = re.compile(r"pg_drop_replication_slot\(\s*E?'((?:[^'\\]|''|\\\\)*)'\)")


@dataclass(frozen=True, slots=True, kw_only=True)
class Culprits:
    """What a remedy ends: sessions by pid, prepared transactions by gid, replication slots by name."""

    pids: tuple[int, ...] = ()
    prepared: tuple[str, ...] = ()
    slots: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.pids or self.prepared or self.slots)


def ended_by(statements: Iterable[str]) -> Culprits:
    """Return what the statements of a remedy end."""
    sql = "\n".join(statements)
    return Culprits(
        pids=tuple(int(one) for one in _PID.findall(sql)),
        prepared=tuple(_unquoted(one) for one in _GID.findall(sql)),
        slots=tuple(_unquoted(one) for one in _SLOT.findall(sql)),
    )


def without(seen: Observation, culprits: Culprits) -> Observation:
    """Return the observation without the culprits: their locks go too, and the waits of those who wait for nobody else.

    A young snapshot that is as old as a culprit's transaction has waited for it or was taken beside it, and goes with it.
    """
    return replace(
        seen,
        first=_reading(seen.first, culprits),
        last=_reading(seen.last, culprits),
        samples=tuple(_sample(one, culprits) for one in seen.samples),
    )


def _unquoted(text: str) -> str:
    return text.replace("''", "'").replace("\\\\", "\\")


def _reading(reading: Reading, culprits: Culprits) -> Reading:
    pids = frozenset(culprits.pids)
    xids = {row.xid for row in reading.prepared if row.gid in culprits.prepared}
    xids |= {row.xid for row in reading.sessions if row.pid in pids and row.xid is not None}
    # Zero stands for a prepared transaction among the blockers.
    gone = pids | {0} if culprits.prepared and len(culprits.prepared) == len(reading.prepared) else pids
    # No pid stands for a prepared transaction's own locks.
    without_pid = 0 in gone
    freed = {row.pid for row in reading.locks if row.blocked_by and set(row.blocked_by) <= gone}
    return replace(
        reading,
        sessions=tuple(
            row
            for row in reading.sessions
            if row.pid not in pids and (row.xmin not in xids or horizon.lasts(row))
        ),
        prepared=tuple(row for row in reading.prepared if row.gid not in culprits.prepared),
        slots=tuple(row for row in reading.slots if row.name not in culprits.slots),
        standbys=tuple(row for row in reading.standbys if row.pid not in pids),
        locks=tuple(
            row
            for row in reading.locks
            if row.pid not in pids
            and not (row.pid is None and without_pid)
            and (row.granted or row.pid not in freed)
        ),
    )


def _sample(sample: Sample, culprits: Culprits) -> Sample:
    return replace(sample, sessions=tuple(one for one in sample.sessions if one.pid not in culprits.pids))
