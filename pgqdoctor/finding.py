"""What a check says: findings with evidence and remedies, as plain values."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Severity = Literal["critical", "warning", "notice"]
RemedyKind = Literal["sql", "setting", "application", "upgrade"]
Blocks = Literal["nothing", "writes", "reads and writes"]

SEVERITIES: tuple[Severity, ...] = ("critical", "warning", "notice")
"""From the worst to the mildest."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """One number or name that a reader can check by hand. ``unit`` is "" for a name; renderers format."""

    what: str
    value: int | float | str
    unit: str
    source: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Remedy:
    """One way out, suggested and never applied.

    ``sql`` holds complete statements, safe to paste (for kind "application" the corrected statement);
    ``undo`` those that bring back today's state. ``lock`` is the strongest table lock taken, "" for none.
    """

    title: str
    kind: RemedyKind
    sql: tuple[str, ...]
    undo: tuple[str, ...]
    lock: str
    blocks: Blocks
    restart: bool
    risk: str
    expect: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """What one check found on one queue (or on the server, where ``queue`` is None).

    ``subject`` tells findings of one check on one queue apart (an index, a constraint, a session) and must be
    stable from run to run; "" where there can be only one. ``pids`` are the backends it accuses: causes are
    linked by them.
    """

    check: str
    severity: Severity
    queue: str | None
    title: str
    why: str
    evidence: tuple[Evidence, ...]
    remedies: tuple[Remedy, ...]
    subject: str = ""
    pids: tuple[int, ...] = ()
    relations: tuple[int, ...] = ()
    """Oids of the tables it speaks about, for linking causes."""
    caused_by: tuple[str, ...] = ()
    """Keys of findings that cause this one; filled in by causes.py."""

    @property
    def key(self) -> str:
        """The name of this finding from run to run: check:queue[:subject]."""
        parts = [self.check]
        if self.queue is not None:
            parts.append(self.queue)
        if self.subject:
            parts.append(self.subject)
        return ":".join(parts)


def worst(severities: list[Severity]) -> Severity | None:
    """Return the worst of the severities, None for an empty list."""
    return min(severities, key=SEVERITIES.index) if severities else None
