"""MultiXactIds, or the space of their members, run out because rows are not vacuumed in time.

MultiXactIds are 32 bits wide like transaction ids, and up to version 18 so is the number of all members: a thousand MultiXacts per second of
eight members use the member space up within a week. Autovacuum is forced early where it grows; where it cannot finish, the
server at last refuses every statement that needs a MultiXact, which for a queue means claims and inserts.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated

from pgqdoctor import multixacts, remedy
from pgqdoctor.check import Check
from pgqdoctor.features import Feature
from pgqdoctor.finding import SEVERITIES, Evidence, Finding, Remedy, Severity
from pgqdoctor.observation import Observation
from pgqdoctor.queue import Queue
from pgqdoctor.words import count, duration
from pgqdoctor.wraparound import Countdown

MEMBER_SPACE = 2**32
"""Members that may exist at once before version 19 (multixact.c)."""
MEMBERS_SAFE = MEMBER_SPACE // 2
"""MULTIXACT_MEMBER_SAFE_THRESHOLD: beyond it autovacuum is forced earlier and earlier."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """How much time must be left, once the forced vacuum is overdue or half of the member space is used."""

    critical_s: Annotated[float, "seconds left at the present rate: less than a day is an emergency"] = (
        86_400.0
    )
    warning_s: Annotated[
        float, "seconds left at the present rate: two weeks, in which large tables can be vacuumed"
    ] = 1_209_600.0


def evaluate(seen: Observation, queue: Queue | None, limits: Limits) -> Iterator[Finding]:
    """Report whichever runs out first, ids or members."""
    made = multixacts.activity(seen)
    ids = Countdown(
        age=seen.last.database.multixact_age,
        per_second=made.per_second,
        forced_at=int(seen.catalog.setting("autovacuum_multixact_freeze_max_age") or 400_000_000),
    )
    found: list[tuple[Severity, float | None, str]] = []
    severity = ids.severity(limits.critical_s, limits.warning_s)
    if severity is not None:
        found.append((severity, ids.left_s, "ids"))
    each = made.members_zeroed or (
        sum(made.members[kind] * times for kind, times in made.kinds.items()) / made.looked
        if made.looked
        else None
    )
    used = round(ids.age * each) if each is not None else 0
    if each is not None and used >= MEMBERS_SAFE and not seen.server.has(Feature.WIDE_MULTIXACT_MEMBERS):
        left = max(MEMBER_SPACE - used, 0) / (made.per_second * each) if made.per_second > 0 else None
        severity = "notice"
        if left is not None and left < limits.warning_s:
            severity = "critical" if left < limits.critical_s else "warning"
        found.append((severity, left, "members"))
    if not found:
        return
    severity, left, what = min(
        found, key=lambda one: (SEVERITIES.index(one[0]), one[1] if one[1] is not None else float("inf"))
    )
    evidence = [
        Evidence(
            what="age of the oldest MultiXactId",
            value=ids.age,
            unit="MultiXacts",
            source="mxid_age(datminmxid)",
        ),
        Evidence(
            what="vacuum is forced from",
            value=ids.forced_at,
            unit="MultiXacts",
            source="autovacuum_multixact_freeze_max_age",
        ),
        Evidence(
            what="MultiXacts made",
            value=round(made.per_second, 1),
            unit="per second",
            source="mxid_age() at both ends",
        ),
    ]
    if each is not None:
        evidence.append(
            Evidence(
                what="members each now",
                value=round(each, 1),
                unit="members",
                source="pg_stat_slru or members looked at",
            )
        )
    if what == "members":
        evidence.append(
            Evidence(
                what="members in use, if they always had so many",
                value=used,
                unit="members",
                source="age times members each",
            )
        )
    if left is not None:
        evidence.append(
            Evidence(what="time left at this rate", value=round(left), unit="seconds", source="computed")
        )
    subject = "MultiXactId" if what == "ids" else "MultiXact member"
    yield Finding(
        check=CHECK.id,
        severity=severity,
        queue=None,
        title=(
            (
                f"The oldest MultiXactId of database {seen.server.database} is {count(ids.age)} ids old, beyond the {count(ids.forced_at)} at "
                "which vacuum is forced"
                if what == "ids"
                else f"MultiXacts of database {seen.server.database} may have {count(used)} of {count(MEMBER_SPACE)} members in use"
            )
            + (
                f"; {duration(left)} are left at {count(made.per_second)} MultiXacts per second"
                if left is not None
                else ""
            )
        ),
        why=(
            f"When the last {subject} is used, every statement that needs a MultiXact fails. Vacuum gives them back, but not those that an open "
            "transaction might still look up, so it must be able to finish and nothing old may stay open."
        ),
        evidence=tuple(evidence),
        remedies=tuple(_remedies(seen)),
    )


def _remedies(seen: Observation) -> Iterator[Remedy]:
    oldest = max(
        (row for row in seen.catalog.tables if row.min_multixact_age is not None and row.kind == "r"),
        key=lambda row: row.min_multixact_age or 0,
        default=None,
    )
    if oldest is not None and (oldest.min_multixact_age or 0) >= 0.95 * seen.last.database.multixact_age:
        name = remedy.qualified(oldest.schema, oldest.name)
        yield remedy.statement(
            sql=(
                "SET vacuum_multixact_freeze_min_age = 0;",
                "SET vacuum_multixact_freeze_table_age = 0;",
                f"VACUUM (VERBOSE, INDEX_CLEANUP off, TRUNCATE off) {name};",
            ),
            title=f"Free the MultiXacts of {name}, the table that is oldest",
            expect="mxid_age(datminmxid) falls to the age of the next oldest table",
            risk="reads the whole table and writes the pages that hold MultiXacts; the settings last for this session",
            lock="SHARE UPDATE EXCLUSIVE",
        )
        return
    yield remedy.statement(
        sql=(
            "SELECT format('VACUUM (VERBOSE, INDEX_CLEANUP off, TRUNCATE off) %I.%I;', n.nspname, c.relname), mxid_age(c.relminmxid) "
            "FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace "
            "WHERE c.relkind IN ('r', 'm', 't') ORDER BY mxid_age(c.relminmxid) DESC LIMIT 5;",
        ),
        title="List the tables that are oldest with the VACUUM of each, and run those from the top",
        expect="mxid_age(datminmxid) falls with each one that finishes",
        risk="each VACUUM reads its whole table",
    )


CHECK = Check(
    title="MultiXactIds or their members run out",
    needs=(),
    limits=Limits(),
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
