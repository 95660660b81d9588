"""What the window shows of MultiXacts: how many were made, of which kind, and by whom.

A row has one xmax. Two transaction ids that lock or change it together stand in a MultiXact instead, and a subtransaction has an
id of its own. The lock modes of the members tell what made it; "locks conflict" is the table of
"Row-Level Locks" in PostgreSQL's manual (explicit-locking). MultiXacts belong to the whole server: a queue is
accused only where its own statements show the mechanism, and never where the makers seen work elsewhere.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Final, Literal

from pgqdoctor.features import MEMBERS_PER_PAGE
from pgqdoctor.names import same_table
from pgqdoctor.observation import Observation, SampledSession
from pgqdoctor.queue import Queue
from pgqdoctor.rows import MultixactRow
from pgqdoctor.sampled import sampled
from pgqdoctor.sqlfacts import TableName
from pgqdoctor.sqlread import read_sql

Kind = Literal["subtransaction", "key share", "share", "other"]

WRAP: Final = 2**32
"""MultiXactIds are 32 bits wide."""
PAGES_TO_COUNT: Final = 4
"""Member pages begun in the window from which on they tell the members per MultiXact: one page more or less is then a quarter."""

_CONFLICTS: Final[Mapping[str, frozenset[str]]] = {
    "keysh": frozenset({"forupd", "upd"}),
    "sh": frozenset({"fornokeyupd", "nokeyupd", "forupd", "upd"}),
    "fornokeyupd": frozenset({"sh", "fornokeyupd", "nokeyupd", "forupd", "upd"}),
    "nokeyupd": frozenset({"sh", "fornokeyupd", "nokeyupd", "forupd", "upd"}),
    "forupd": frozenset({"keysh", "sh", "fornokeyupd", "nokeyupd", "forupd", "upd"}),
    "upd": frozenset({"keysh", "sh", "fornokeyupd", "nokeyupd", "forupd", "upd"}),
}
"""pg_get_multixact_members() calls FOR KEY SHARE keysh, FOR SHARE sh, FOR NO KEY UPDATE fornokeyupd, FOR UPDATE forupd; nokeyupd is
an UPDATE that leaves the keys alone, upd one that does not, or a DELETE."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Activity:
    """MultiXacts of the whole server during the window.

    ``looked`` of the ``made`` were looked at; ``kinds`` counts those by kind. ``members`` is their average number of members by
    kind. ``members_zeroed`` estimates the same for all of them from the member pages begun (pg_stat_slru.blks_zeroed), None
    where those are too few. ``lookups`` are hits and reads of the members' pages, ``misses`` the reads; a lookup goes through the
    offsets' pages too, whose reads are ``offset_misses``.
    """

    seconds: float
    made: int
    looked: int
    kinds: Mapping[str, int]
    members: Mapping[str, float]
    modes: Mapping[str, tuple[str, ...]]
    """The most frequent set of modes of each kind."""
    members_zeroed: float | None
    lookups: int
    misses: int
    offset_misses: int

    @property
    def per_second(self) -> float:
        """MultiXacts made per second."""
        return self.made / self.seconds if self.seconds > 0 else 0.0

    def rate(self, kind: Kind) -> float:
        """Estimate the MultiXacts of one kind per second from the share among those looked at."""
        return self.per_second * self.kinds.get(kind, 0) / self.looked if self.looked else 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Makers:
    """Who was seen at making MultiXacts of one kind.

    ``visible`` of them had a member that was still running when looked at; ``here`` of those had one whose backend was seen in
    the observed database; ``at_queue`` one whose statement concerned the queue, ``at_other`` one whose statement
    named other tables only.
    """

    visible: int
    here: int
    at_queue: int
    at_other: int

    @property
    def elsewhere(self) -> bool:
        """True where the makers that were seen work in another database or on other tables."""
        if self.visible >= 3 and self.here * 5 < self.visible:
            return True
        return self.at_other >= 3 and self.at_queue == 0


def conflict(one: str, other: str) -> bool:
    """Tell whether two transactions could not hold these modes on one row at the same time."""
    return other in _CONFLICTS.get(one, frozenset())


def kind_of(modes: tuple[str, ...]) -> Kind:
    """Tell from the members' lock modes what made a MultiXact.

    Modes that conflict can only belong to one transaction and its own subtransaction. Foreign key checks lock FOR KEY SHARE and
    never FOR SHARE.
    """
    if any(conflict(one, other) for place, one in enumerate(modes) for other in modes[place + 1 :]):
        return "subtransaction"
    if "sh" in modes:
        return "share"
    if "keysh" in modes:
        return "key share"
    return "other"


def activity(seen: Observation) -> Activity:
    """Count the MultiXacts of the window."""
    rows = [row for sample in seen.samples for row in sample.multixacts]
    kinds: Counter[str] = Counter()
    members: Counter[str] = Counter()
    modes: dict[str, Counter[tuple[str, ...]]] = {}
    for row in rows:
        kind = kind_of(row.modes)
        kinds[kind] += 1
        members[kind] += len(row.modes)
        modes.setdefault(kind, Counter())[row.modes] += 1
    made = (
        0
        if seen.restarted
        else (seen.last.database.next_multixact - seen.first.database.next_multixact) % WRAP
    )
    zeroed, lookups, misses = slru_growth(seen, "multixact_member")
    return Activity(
        seconds=seen.seconds,
        made=made,
        looked=len(rows),
        kinds=dict(kinds),
        members={kind: members[kind] / count for kind, count in kinds.items()},
        modes={kind: found.most_common(1)[0][0] for kind, found in modes.items()},
        members_zeroed=zeroed * MEMBERS_PER_PAGE / made if made and zeroed >= PAGES_TO_COUNT else None,
        lookups=lookups,
        misses=misses,
        offset_misses=slru_growth(seen, "multixact_offset")[2],
    )


def makers(seen: Observation, queue: Queue, kind: Kind, also: Collection[TableName] = ()) -> Makers:
    """Tell where the members of one kind's MultiXacts were at work when they were looked at.

    ``also`` names tables beside the queue, such as its children by a foreign key, that count as the queue.
    """
    here = sampled(seen).pids
    at_queue = {(one.at, one.session.pid) for one in queue.sessions}
    counted = Counter[str]()
    for at, row, sessions in _looks(seen, kind):
        if not row.pids:
            continue
        counted["visible"] += 1
        counted["here"] += any(pid in here for pid in row.pids)
        named = {name for pid in row.pids if pid in sessions for name in _tables_of(seen, sessions[pid])}
        if any((at, pid) in at_queue for pid in row.pids) or any(
            same_table(name, one.schema or "", one.name) for name in named for one in also
        ):
            counted["queue"] += 1
        elif named:
            counted["other"] += 1
    return Makers(
        visible=counted["visible"], here=counted["here"], at_queue=counted["queue"], at_other=counted["other"]
    )


def keeper(seen: Observation, kind: Kind, at_least_s: float) -> SampledSession | None:
    """Return the session whose one open transaction is a member of most MultiXacts looked at, if it is that old.

    It keeps them alive: while it runs, whoever meets such a row has to look the members up.
    """
    total = 0
    of_pid: Counter[int] = Counter()
    last: dict[int, SampledSession] = {}
    for _, row, sessions in _looks(seen, kind):
        total += 1
        for pid in row.pids:
            session = sessions.get(pid)
            if session is not None and (session.xact_age_s or 0.0) >= at_least_s:
                of_pid[pid] += 1
                last[pid] = session
    for pid, count in of_pid.most_common(1):
        if count * 2 >= total:
            return last[pid]
    return None


def calls_of(seen: Observation, *kinds: str) -> int:
    """Count calls in the window of statements of some kinds ("savepoint", "release"), whatever their names."""
    first = {row.key: row.calls for row in seen.first.statements}
    last = {row.key: row.calls for row in seen.last.statements}
    total = 0
    for row in seen.statement_texts:
        if row.text is None or row.key not in last or len(row.text) > 200:
            continue
        if any(statement.kind in kinds for statement in read_sql(row.text).statements):
            total += max(last[row.key] - first.get(row.key, 0), 0)
    return total


def calls_of_function(seen: Observation, schema: str, name: str) -> int:
    """Count calls in the window of statements that call a function, as far as they name it."""
    first = {row.key: row.calls for row in seen.first.statements}
    last = {row.key: row.calls for row in seen.last.statements}
    total = 0
    for row in seen.statement_texts:
        if row.text is None or row.key not in last or name not in row.text:
            continue
        called = {one for statement in read_sql(row.text).statements for one in statement.functions}
        if name in called or f"{schema}.{name}" in called:
            total += max(last[row.key] - first.get(row.key, 0), 0)
    return total


def _looks(
    seen: Observation, kind: Kind
) -> Iterator[tuple[float, MultixactRow, Mapping[int, SampledSession]]]:
    for sample in seen.samples:
        if sample.multixacts:
            sessions = {one.pid: one for one in sample.sessions}
            for row in sample.multixacts:
                if kind_of(row.modes) == kind:
                    yield sample.at, row, sessions


def _tables_of(seen: Observation, session: SampledSession) -> frozenset[TableName]:
    """Return the tables that the session's statement locks or writes."""
    if session.text < 0:
        return frozenset()
    statements = read_sql(seen.texts[session.text]).statements
    return frozenset(
        [write.table for one in statements for write in one.writes]
        + [lock.table for one in statements for lock in one.locks]
    )


def slru_growth(seen: Observation, name: str) -> tuple[int, int, int]:
    """Return the pages begun, the lookups (hits and reads) and the reads of an SLRU in the window.

    A counter that was reset counts from zero.
    """
    first = next((row for row in seen.first.slru if row.name == name), None)
    last = next((row for row in seen.last.slru if row.name == name), None)
    if first is None or last is None:
        return 0, 0, 0

    def grown(before: int, after: int) -> int:
        return after - before if after >= before else after

    return (
        grown(first.blocks_zeroed, last.blocks_zeroed),
        grown(first.blocks_hit, last.blocks_hit) + grown(first.blocks_read, last.blocks_read),
        grown(first.blocks_read, last.blocks_read),
    )


def is_foreign_key_check(text: str) -> bool:
    """Tell whether a statement is PostgreSQL's own foreign key check, as pg_stat_statements.track = all shows it.

    ri_triggers.c writes it ``SELECT 1 FROM ONLY parent x WHERE key OPERATOR(pg_catalog.=) $1 FOR KEY SHARE OF x``.
    """
    return (
        " FROM ONLY " in text
        and "OPERATOR(pg_catalog." in text
        and text.rstrip().endswith("FOR KEY SHARE OF x")
    )
