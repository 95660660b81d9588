"""Updates could be heap-only, but their pages are full.

A heap-only tuple (HOT) update needs room for the new version on the page of the old one. Pages that were filled to the last
byte send it to another page instead, which costs a new entry in every index. A fillfactor below 100 leaves room on each page;
pages written before it was set keep as they are until their rows are updated away or the table is rewritten.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated

from pgqdoctor import indexfacts, remedy, vacuuming
from pgqdoctor.check import COUNTERS, STATEMENTS, Check
from pgqdoctor.finding import Evidence, Finding, Remedy, Severity
from pgqdoctor.observation import Observation
from pgqdoctor.pageroom import PageRoom, fillfactor_of, page_room
from pgqdoctor.queue import Queue
from pgqdoctor.rows import TableRow
from pgqdoctor.words import percent, rate, shortened


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """From which rate on full pages are worth a word."""

    updates: Annotated[int, "updates in the window without an index in their way: fewer show no pattern"] = (
        100
    )
    per_s: Annotated[float, "updates per second that found no room: fewer are not worth a change"] = 20.0
    share: Annotated[
        float,
        "share of the updates without an index in their way that found no room: below it pages are doing well",
    ] = 0.3
    entries_per_s: Annotated[
        float,
        "index entries written per second for want of room, from which it is a warning: over 6,000 a minute",
    ] = 100.0
    least_fillfactor: Annotated[int, "percent: below it the table would more than double"] = 50
    most_fillfactor: Annotated[
        int, "percent: above it a page of common rows keeps room for less than one version"
    ] = 90


def evaluate(seen: Observation, queue: Queue, limits: Limits) -> Iterator[Finding]:
    """Count the updates that no index blocks and that were not heap-only all the same."""
    churn = queue.churn
    updates = indexfacts.seen_updates(seen, queue)
    free = sum(one.rows for one in updates if one.hot_possible)
    if free < limits.updates or vacuuming.held_horizon(seen) is not None:
        # While the horizon is held, pages are full because they cannot be pruned: no fillfactor lasts.
        return
    roomless = max(0, min(free, churn.updated) - churn.hot_updated)
    if churn.newpage_updated is not None:
        roomless = min(roomless, churn.newpage_updated)
    per_s = churn.per_second(roomless)
    if per_s < limits.per_s or roomless < limits.share * free:
        return
    indexes = sum(1 for one in queue.indexes if not one.has_predicate)
    severity: Severity = "warning" if per_s * indexes >= limits.entries_per_s else "notice"
    room = page_room(seen, queue, least=limits.least_fillfactor, most=limits.most_fillfactor)
    tables = tuple(
        leaf for leaf in queue.leaves if room is not None and fillfactor_of(leaf) > room.fillfactor
    )
    yield Finding(
        check=CHECK.id,
        severity=severity,
        queue=queue.name,
        title=(
            f"{rate(per_s)} updates of {queue.name} find no room on their page ({percent(roomless / free)} of those that could be "
            f"heap-only): {rate(per_s * indexes)} index entries are written for them"
        ),
        why=_why(queue, room, tables),
        evidence=tuple(_evidence(queue, updates, free, roomless, room)),
        remedies=tuple(_remedies(queue, room, tables)) if room is not None else (),
        relations=tuple(sorted(queue.oids)),
    )


def _why(queue: Queue, room: PageRoom | None, tables: tuple[TableRow, ...]) -> str:
    said = (
        "No index mentions the columns these statements set, so the updates could be heap-only. The new version found no room "
        "on the page of the old one, went to another page, and needed a new entry in every index."
    )
    if room is None:
        return f"{said} Fewer than two rows fit on a page, or their width is not known: no fillfactor can be computed."
    if not tables:
        return (
            f"{said} The fillfactor is at {min(fillfactor_of(leaf) for leaf in queue.leaves)} already: pages written before it was set "
            "keep full until their rows are updated away or the table is rewritten."
        )
    return said


def _evidence(
    queue: Queue, updates: tuple[indexfacts.SeenUpdate, ...], free: int, roomless: int, room: PageRoom | None
) -> Iterator[Evidence]:
    churn, source = queue.churn, "pg_stat_user_tables"
    yield Evidence(
        what="updates no index blocks", value=free, unit="rows", source="pg_stat_statements, pg_index"
    )
    yield Evidence(what="of them without room", value=roomless, unit="rows", source=source)
    if churn.newpage_updated is not None:
        yield Evidence(what="n_tup_newpage_upd", value=churn.newpage_updated, unit="rows", source=source)
    yield Evidence(
        what="heap-only updates", value=round(churn.hot_ratio or 0.0, 3), unit="ratio", source=source
    )
    yield Evidence(
        what="fillfactor",
        value=max(fillfactor_of(leaf) for leaf in queue.leaves),
        unit="",
        source="pg_class.reloptions",
    )
    if room is not None:
        yield Evidence(
            what="row with header", value=room.row_bytes, unit="bytes", source="pg_stats, pg_class"
        )
        yield Evidence(
            what="rows on a full page",
            value=room.rows_per_page,
            unit="rows",
            source="8,168 bytes over the row",
        )
        if room.updates_per_life is not None:
            yield Evidence(
                what="updates per row's life", value=round(room.updates_per_life, 1), unit="", source=source
            )
    for one in [each for each in updates if each.hot_possible][:1]:
        yield Evidence(
            what="statement", value=shortened(one.statement.text, 200), unit="", source=one.statement.source
        )


def _remedies(queue: Queue, room: PageRoom, tables: tuple[TableRow, ...]) -> Iterator[Remedy]:
    groups: dict[tuple[str, ...], list[TableRow]] = {}
    for table in tables:
        groups.setdefault(table.options, []).append(table)
    for same in groups.values():
        names = [remedy.qualified(table.schema, table.name) for table in same]
        yield remedy.set_storage(
            names[0],
            {"fillfactor": str(room.fillfactor)},
            vacuuming.options_of(same[0]),
            partitions=names,
            title=f"Leave room on each page: fillfactor {room.fillfactor}",
            expect=(
                f"{'; '.join(room.arithmetic())}. Pages written from now on have the room; others get it as their rows are updated "
                "away, at once only by VACUUM FULL, which blocks reads and writes."
            ),
            risk=f"the table takes up to {percent(100 / room.fillfactor - 1)} more pages",
        )


CHECK = Check(
    title="Pages have no room for heap-only updates",
    needs=(COUNTERS, STATEMENTS),
    limits=Limits(),
    evaluate=evaluate,
    references=(
        "https://www.postgresql.org/docs/current/storage-hot.html",
        "https://www.postgresql.org/docs/current/sql-createtable.html#RELOPTION-FILLFACTOR",
    ),
    look_alikes=(
        "a freshly loaded table with a handful of updates",
        "updates that an index blocks: no fillfactor helps them",
        "pages that cannot be pruned because the horizon is held",
    ),
)
