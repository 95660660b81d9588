"""What pg_stat_statements may be missing: a statement that is not in it has not necessarily not run. Pure.

A queue whose claim was not seen is healthy to every check of claims. So where there is a reason for the gap, those checks
are skipped for that queue and say the reason, and what is known to be incomplete is noted for the whole report.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from pgqdoctor.check import CLAIMS
from pgqdoctor.discovery.polls import TWO_STATEMENTS
from pgqdoctor.observation import Catalog, Lack, QueueIdentity
from pgqdoctor.rows import StatementsInfoRow
from pgqdoctor.words import count, duration

YOUNG_S: Final = 600.0
"""Seconds since a reset within which much may not have run yet: idle workers poll every few seconds, sweeps every few
minutes."""
EVICTIONS_PER_HOUR: Final = 1.0
"""Rounds of eviction, each of which drops the twentieth of the entries that was used least: at one an hour what runs a few
times a day is never there for long. A few in a year are no sign of anything."""
SEEN_CLAIM: Final = frozenset({"pg_stat_statements", "pg_stat_activity", "option"})
"""Sources of a claim's text that are somebody's statement, and not worked out."""


def statement_gaps(
    info: StatementsInfoRow | None,
    earlier: StatementsInfoRow | None,
    catalog: Catalog,
    identities: Sequence[QueueIdentity],
) -> tuple[Lack, ...]:
    """Return what pg_stat_statements may be missing, for the report and for each queue whose claim was not seen.

    ``info`` is its state now and ``earlier`` when the observation began; None where it cannot be read, which is a lack of its
    own.
    """
    if info is None:
        return ()
    gaps = [reason for reason in (_evicted(info, earlier), _young(info)) if reason is not None]
    found: list[Lack] = []
    if (evicted := _evicted(info, earlier)) is not None:
        grant = f"ALTER SYSTEM SET pg_stat_statements.max = {info.most * 2} (restart)"
        found.append(Lack(what="evicted statements", reason=evicted, grant=grant))
    if earlier is not None and _reset_between(earlier, info):
        reason = (
            "pg_stat_statements was reset during the window: calls, rows and buffers are those since then"
        )
        found.append(Lack(what="reset statements", reason=reason))
    unseen = [
        one
        for one in identities
        if one.claim_source not in SEEN_CLAIM
        and not one.functions
        and TWO_STATEMENTS not in one.recognised_by
    ]
    if gaps and not any(one.certain for one in identities):
        reason = f"{gaps[-1]}; a queue whose claim is not among them may be missing here"
        found.append(
            Lack(
                what="unseen claims", reason=reason, grant="name the table with --queue, or look again later"
            )
        )
    for one in unseen:
        own = [*gaps, *_in_functions(info, catalog, one)]
        if own:
            reason = (
                f"no claim of {one.name} was seen, which does not mean that there is none: {'; '.join(own)}"
            )
            found.append(Lack(what=CLAIMS, reason=reason, queue=one.name))
    found.extend(_nested(info, catalog, one) for one in identities if one.functions and info.track == "top")
    return tuple(found)


def _evicted(info: StatementsInfoRow, earlier: StatementsInfoRow | None) -> str | None:
    if not info.evictions:
        return None
    lately = info.evictions - (earlier.evictions or 0) if earlier is not None else 0
    age = info.reset_s or 0.0
    # A counter smaller than before was reset with the rest.
    if lately <= 0 and (age <= 0 or info.evictions / max(age, 3600.0) * 3600.0 < EVICTIONS_PER_HOUR):
        return None
    during = f", {count(lately)} of them during this observation" if lately > 0 else ""
    times = "once" if info.evictions == 1 else f"{count(info.evictions)} times"
    return (
        f"pg_stat_statements has room for {count(info.most)} statements and dropped the least used of them {times} "
        f"in {duration(age)}{during}: a statement that runs seldom may be missing, and one that came back is counted anew"
    )


def _young(info: StatementsInfoRow) -> str | None:
    if info.reset_s is None or info.reset_s >= YOUNG_S:
        return None
    return f"pg_stat_statements was reset {duration(info.reset_s)} ago and knows only what has ended since"


def _reset_between(earlier: StatementsInfoRow, info: StatementsInfoRow) -> bool:
    # The age grows with the clock unless the counters were reset; a second is left for the two statements themselves.
    return earlier.reset_s is not None and info.reset_s is not None and info.reset_s < earlier.reset_s - 1.0


def _in_functions(info: StatementsInfoRow, catalog: Catalog, identity: QueueIdentity) -> list[str]:
    inside = sorted({row.name for row in catalog.functions if identity.table in row.body})
    if info.track != "top" or not inside:
        return []
    return [
        f"pg_stat_statements.track is top, which counts no statement inside a function, and {', '.join(inside[:3])} names the table"
    ]


def _nested(info: StatementsInfoRow, catalog: Catalog, identity: QueueIdentity) -> Lack:
    names = sorted({row.name for row in catalog.functions if row.oid in identity.functions})
    return Lack(
        what="nested statements",
        reason=f"the claim of {identity.name} runs inside {', '.join(names[:3]) or 'a function'}, and pg_stat_statements.track is "
        "top: the call is counted, with the function's whole cost, and the claim itself is read from the function's body",
        grant="ALTER SYSTEM SET pg_stat_statements.track = 'all', then SELECT pg_reload_conf()",
    )
