"""The MultiXact caches are smaller than what claims look up in them.

Until version 16 they hold 16 pages of members and 8 of offsets, fixed when the server was compiled. From 17 on two settings give their
size, with defaults that are twice as large. Where lookups read pages although the MultiXacts cannot be avoided, larger caches
make them cheap again; they cost memory only.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated

from pgqdoctor import multixacts, remedy
from pgqdoctor.check import Check
from pgqdoctor.features import MEMBERS_PER_PAGE, Feature, offsets_per_page
from pgqdoctor.finding import Evidence, Finding, Remedy
from pgqdoctor.multixacts import Activity
from pgqdoctor.observation import Observation
from pgqdoctor.queue import Queue
from pgqdoctor.words import count, size

PAGE = 8_192
BANK = 16
"""The settings are multiples of 16 pages."""
MOST_PAGES = 2_048
"""16 MB: more would be needed only where a transaction stays open for hours, and then that is the fault."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """When the caches are too small."""

    reads: Annotated[
        float, "pages of the MultiXact caches read per second: each one is a system call under a lock"
    ] = 100.0
    headroom: Annotated[
        float, "factor on the pages that the MultiXacts since the oldest open transaction fill"
    ] = 1.5


def evaluate(seen: Observation, queue: Queue | None, limits: Limits) -> Iterator[Finding]:
    """Report caches that miss, with the size that would hold what is looked up now."""
    made = multixacts.activity(seen)
    reads = (made.misses + made.offset_misses) / made.seconds if made.seconds > 0 else 0.0
    if reads < limits.reads:
        return
    open_s = max((row.xact_age_s for row in seen.last.sessions if row.xact_age_s is not None), default=0.0)
    evidence = [
        Evidence(
            what="pages of members read",
            value=round(made.misses / made.seconds, 1),
            unit="per second",
            source="pg_stat_slru",
        ),
        Evidence(
            what="pages of offsets read",
            value=round(made.offset_misses / made.seconds, 1),
            unit="per second",
            source="pg_stat_slru",
        ),
        Evidence(
            what="oldest transaction open", value=round(open_s, 1), unit="seconds", source="pg_stat_activity"
        ),
    ]
    remedies: list[Remedy] = []
    if seen.server.has(Feature.SLRU_BUFFER_SETTINGS):
        needed = _needed(seen, made, open_s, limits.headroom)
        for name, pages in needed.items():
            now = int(seen.catalog.setting(name) or 0)
            if not now:
                continue
            evidence.append(Evidence(what=name, value=now * PAGE, unit="bytes", source="pg_settings"))
            if pages > now:
                remedies.append(
                    remedy.change_setting(
                        name=name,
                        value=str(pages),
                        settings=seen.catalog.settings,
                        title=f"Enlarge {name} from {size(now * PAGE)} to {size(pages * PAGE)}",
                        expect=(
                            f"the MultiXacts made while the oldest transaction has been open ({count(made.per_second * open_s)}) fit, with "
                            "half as much again to spare, and blks_read of pg_stat_slru stands still"
                        ),
                        risk="memory only; applies after a restart of the server",
                        restart=True,
                    )
                )
        if not remedies:
            return
        title = f"The MultiXact caches are too small for what is looked up: {count(reads)} pages are read per second"
    else:
        title = (
            f"The MultiXact caches of version {seen.server.version.partition('.')[0]} cannot be enlarged, and {count(reads)} pages are read "
            "into them per second"
        )
        remedies.append(
            Remedy(
                title="Upgrade to version 17 or later, where multixact_member_buffers and multixact_offset_buffers give their size",
                kind="upgrade",
                sql=(),
                undo=(),
                lock="",
                blocks="nothing",
                restart=True,
                risk="a major upgrade; making fewer MultiXacts helps sooner",
                expect="caches twice as large by default, as large as needed by setting, and locked in parts instead of as a whole",
            )
        )
    yield Finding(
        check=CHECK.id,
        severity="warning",
        queue=None,
        title=title,
        why=(
            "MultiXacts made since the oldest open transaction began may be looked up by whoever meets their rows. Where their pages do not "
            "fit into the caches, each lookup evicts what the next one needs. Making fewer of them is the better cure; "
            "the caches only bear more."
        ),
        evidence=tuple(evidence),
        remedies=tuple(remedies),
    )


def _needed(seen: Observation, made: Activity, open_s: float, headroom: float) -> dict[str, int]:
    """Pages that hold the MultiXacts made while the oldest transaction has been open, in whole banks."""
    ids = made.per_second * open_s * headroom
    each = made.members_zeroed or (
        sum(made.members[kind] * times for kind, times in made.kinds.items()) / made.looked
        if made.looked
        else 2.0
    )
    return {
        "multixact_member_buffers": _banks(ids * each / MEMBERS_PER_PAGE),
        "multixact_offset_buffers": _banks(ids / offsets_per_page(seen.server.version_num)),
    }


def _banks(pages: float) -> int:
    return min(max(-(-int(pages + 1) // BANK) * BANK, BANK), MOST_PAGES)


CHECK = Check(
    title="The MultiXact caches are too small",
    needs=(),
    limits=Limits(),
    evaluate=evaluate,
    scope="server",
    references=(
        "https://www.postgresql.org/docs/current/runtime-config-resource.html#GUC-MULTIXACT-MEMBER-BUFFERS",
    ),
    look_alikes=("many lookups that hit the cache", "no MultiXact activity"),
)
