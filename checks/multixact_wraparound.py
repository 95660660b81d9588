"""MultiXactIds, or the space of their members, run out because rows are not vacuumed in time.

MultiXactIds are 32 bits wide like transaction ids, and up to version 18 so is the number of all members: a thousand MultiXacts per second of
eight members use the member space up within a week. Autovacuum is forced early where it grows; where it cannot finish, the
server at last refuses every statement that needs a MultiXact, which for a queue means claims and inserts.
"""

from __future__ import annotations

from collections.abc import Iterator

from pgqdoctor import forecast, multixacts
from pgqdoctor.check import Check
from pgqdoctor.features import Feature
from pgqdoctor.finding import SEVERITIES, Evidence, Finding, Remedy, Severity
from pgqdoctor.forecast import Forecast
from pgqdoctor.observation import Observation
from pgqdoctor.queue import Queue
from pgqdoctor.words import count
from pgqdoctor.wraparound import Countdown, TimeLeft, ending, evidence_of, vacuum_oldest

MEMBER_SPACE = 2**32
"""Members that may exist at once before version 19 (multixact.c)."""
MEMBERS_SAFE = MEMBER_SPACE // 2
"""MULTIXACT_MEMBER_SAFE_THRESHOLD: beyond it autovacuum is forced earlier and earlier."""
MEMBER = "MultiXact member"


def evaluate(seen: Observation, queue: Queue | None, limits: TimeLeft) -> Iterator[Finding]:
    """Report whichever runs out first, ids or members."""
    made = multixacts.activity(seen)
    ids = Countdown(
        age=seen.last.database.multixact_age,
        per_second=made.per_second,
        forced_at=int(seen.catalog.setting("autovacuum_multixact_freeze_max_age") or 400_000_000),
        what="MultiXactId",
        unit="MultiXacts",
        source="mxid_age(datminmxid)",
        setting="autovacuum_multixact_freeze_max_age",
    )
    found: list[tuple[Severity, Forecast | None, str]] = []
    severity = ids.severity(limits)
    if severity is not None:
        found.append((severity, ids.coming, "MultiXactId"))
    each = made.members_zeroed or (
        sum(made.members[kind] * times for kind, times in made.kinds.items()) / made.looked
        if made.looked
        else None
    )
    used = round(ids.age * each) if each is not None else 0
    if each is not None and used >= MEMBERS_SAFE and not seen.server.has(Feature.WIDE_MULTIXACT_MEMBERS):
        coming = forecast.exhausted(
            what="the space of MultiXact members",
            used=used,
            limit=MEMBER_SPACE,
            per_second=made.per_second * each,
            unit="members",
        )
        found.append((limits.severity(coming), coming, MEMBER))
    if not found:
        return
    severity, coming, subject = min(
        found,
        key=lambda one: (
            SEVERITIES.index(one[0]),
            one[1].seconds if one[1] is not None and one[1].seconds is not None else float("inf"),
        ),
    )
    yield Finding(
        check=CHECK.id,
        severity=severity,
        queue=None,
        title=(
            ids.title(seen.server.database)
            if subject != MEMBER
            else f"MultiXacts of database {seen.server.database} may have {count(used)} of {count(MEMBER_SPACE)} members in use"
        )
        + ending(coming),
        why=(
            f"When the last {subject} is used, every statement that needs a MultiXact fails. Vacuum gives them back, but not those that an open "
            "transaction might still look up, so it must be able to finish and nothing old may stay open."
        ),
        evidence=(
            *ids.evidence(),
            Evidence(
                what="MultiXacts made",
                value=round(made.per_second, 1),
                unit="per second",
                source="mxid_age() at both ends",
            ),
            *_members(each, used if subject == MEMBER else None),
            *evidence_of(coming),
        ),
        remedies=tuple(_remedies(seen)),
    )


def _members(each: float | None, used: int | None) -> Iterator[Evidence]:
    if each is not None:
        yield Evidence(
            what="members each now",
            value=round(each, 1),
            unit="members",
            source="pg_stat_slru or members looked at",
        )
    if used is not None:
        yield Evidence(
            what="members in use, if they always had so many",
            value=used,
            unit="members",
            source="age times members each",
        )


def _remedies(seen: Observation) -> Iterator[Remedy]:
    yield from vacuum_oldest(
        seen.catalog.tables,
        lambda row: row.min_multixact_age,
        database_age=seen.last.database.multixact_age,
        function="mxid_age",
        column="relminmxid",
        settings=("SET vacuum_multixact_freeze_min_age = 0;", "SET vacuum_multixact_freeze_table_age = 0;"),
        title="Free the MultiXacts of {}, the table that is oldest",
        risk="reads the whole table and writes the pages that hold MultiXacts; the settings last for this session",
    )


CHECK = Check(
    title="MultiXactIds or their members run out",
    needs=(),
    limits=TimeLeft(),
    evaluate=evaluate,
    scope="server",
    references=(
        "https://www.postgresql.org/docs/current/routine-vacuuming.html#VACUUM-FOR-MULTIXACT-WRAPAROUND",
    ),
    look_alikes=(
        "an age below the point at which vacuum is forced, at any rate",
        "an old age on a server that makes no MultiXacts",
    ),
)
