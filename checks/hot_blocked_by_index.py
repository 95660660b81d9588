"""An index keeps updates from being heap-only.

A heap-only tuple (HOT) update writes the new row version beside the old one and touches no index; the page gets rid of the
old version by itself. It is possible only where no column changes that any index mentions, be it as a key, in INCLUDE, in an
expression or in the predicate of a partial index. One index on a heartbeat, a lease or an attempts counter
therefore makes each renewal write a new entry into every index of the table, and leave a dead one behind for vacuum.

No fillfactor can help: room on the page is not what is missing. For the claim's own state change the price is
fair, because the partial index that it leaves is what makes the next claim cheap.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Annotated, Final

from pgqdoctor import claiming, indexfacts, remedy
from pgqdoctor.check import COUNTERS, STATEMENTS, Check
from pgqdoctor.finding import Evidence, Finding, Remedy, Severity
from pgqdoctor.indexfacts import SeenUpdate
from pgqdoctor.observation import Observation
from pgqdoctor.queue import Queue
from pgqdoctor.rows import IndexRow
from pgqdoctor.sqlfacts import Claim, Condition, Read, Write
from pgqdoctor.sqlrewrite import quote_ident
from pgqdoctor.words import percent, rate, shortened

_INCLUDE: Final = re.compile(r" INCLUDE \(([^()]*)\)")


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """From which rate on lost heap-only updates are worth a word."""

    updates_per_s: Annotated[
        float, "updates per second that one index keeps from being heap-only: fewer are not worth a change"
    ] = 20.0
    entries_per_s: Annotated[
        float,
        "index entries written per second for nothing, from which it is a warning: each leaves a dead one, so at this rate "
        "more than 6,000 a minute wait for vacuum",
    ] = 100.0
    trade_off_per_s: Annotated[
        float,
        "updates per second that the claim's own index blocks, from which the trade-off is told as a notice: one costs about "
        "half as much WAL again (402 bytes where a heap-only one wrote 270, with two indexes)",
    ] = 500.0
    hot_ratio: Annotated[
        float, "share of heap-only updates from which the columns are evidently set to equal values"
    ] = 0.9
    counters_age_s: Annotated[
        float,
        "seconds for which index scans must have been counted before an index is called unused: two weekly jobs",
    ] = 14 * indexfacts.DAY_S


def evaluate(seen: Observation, queue: Queue, limits: Limits) -> Iterator[Finding]:
    """Charge each index with the updates it alone, or together with other dispensable ones, keeps from being heap-only."""
    churn = queue.churn
    if not churn.updated or (churn.hot_ratio or 0.0) >= limits.hot_ratio:
        return
    updates = indexfacts.seen_updates(seen, queue)
    blocked = sum(one.rows for one in updates if one.blockers)
    if not blocked:
        return
    # Columns set to equal values stay heap-only: what was measured bounds what the texts suggest.
    lost = min(1.0, (churn.updated - churn.hot_updated) / blocked)
    needed = {index.oid for index in queue.indexes if indexfacts.serves_claim(queue, index)}
    traded: list[SeenUpdate] = []
    wasted: dict[int, list[SeenUpdate]] = {}
    for one in updates:
        if any(blocker.index.oid in needed for blocker in one.blockers):
            traded.append(one)
            continue
        for blocker in one.blockers:
            wasted.setdefault(blocker.index.oid, []).append(one)
    for index in queue.indexes:
        found = wasted.get(index.oid, [])
        per_s = churn.per_second(round(lost * sum(one.rows for one in found)))
        if per_s >= limits.updates_per_s:
            yield _wasteful(seen, queue, index, found, per_s, limits)
    per_s = churn.per_second(round(lost * sum(one.rows for one in traded)))
    if per_s >= limits.trade_off_per_s and not wasted:
        yield _trade_off(queue, traded, needed, per_s)


def _written(queue: Queue, index: IndexRow) -> int:
    """Indexes that get an entry for each such update: those without a predicate, and the one at fault."""
    return sum(1 for one in queue.indexes if not one.has_predicate or one.oid == index.oid)


def _place(queue: Queue, index: IndexRow, columns: tuple[str, ...]) -> str:
    """Where the index mentions the columns."""
    by_number = {row.number: row.name for row in queue.columns}
    keys = {by_number.get(one, "") for one in index.key_columns}
    included = {by_number.get(one, "") for one in index.included_columns}
    places = []
    if keys & set(columns):
        places.append("as its key")
    if included & set(columns):
        places.append("in INCLUDE")
    if index.expressions and (indexfacts.columns_in(index.expressions) or frozenset()) & set(columns):
        places.append("in an expression")
    if index.predicate and (indexfacts.columns_in(index.predicate) or frozenset()) & set(columns):
        places.append("in its predicate")
    return " and ".join(places)


def _wasteful(
    seen: Observation, queue: Queue, index: IndexRow, found: list[SeenUpdate], per_s: float, limits: Limits
) -> Finding:
    columns = tuple(
        dict.fromkeys(
            name
            for one in found
            for blocker in one.blockers
            if blocker.index.oid == index.oid
            for name in blocker.columns
        )
    )
    indexes = _written(queue, index)
    entries = per_s * indexes
    name = remedy.qualified(index.schema, index.name)
    severity: Severity = "warning" if entries >= limits.entries_per_s else "notice"
    kept = indexfacts.why_kept(seen, queue, index, least_age_s=limits.counters_age_s)
    return Finding(
        check=CHECK.id,
        severity=severity,
        queue=queue.name,
        subject=index.name,
        title=(
            f"Index {name} keeps {rate(per_s)} updates of {', '.join(map(quote_ident, columns))} from being heap-only: "
            f"{rate(entries)} index entries are written for them"
        ),
        why=(
            f"The index mentions {', '.join(map(quote_ident, columns))} {_place(queue, index, columns)}, and an update that changes an indexed "
            f"column cannot be heap-only: it writes an entry into each of the {indexes} indexes that the row belongs to. "
            "A lower fillfactor cannot help, because room on the page is not what is missing."
        ),
        evidence=(
            *_measured(queue, per_s),
            Evidence(
                what="index entries written",
                value=round(entries, 1),
                unit="per second",
                source="rate times indexes",
            ),
            Evidence(what="index", value=index.definition or name, unit="", source="pg_index"),
            Evidence(
                what="scans of it in this window",
                value=indexfacts.scans_in_window(queue, index),
                unit="",
                source="pg_stat_user_indexes",
            ),
            *_statements(found),
        ),
        remedies=tuple(_remedies(queue, index, columns, per_s, indexes, kept)),
        relations=tuple(sorted(queue.oids)),
    )


def _remedies(
    queue: Queue, index: IndexRow, columns: tuple[str, ...], per_s: float, indexes: int, kept: str | None
) -> Iterator[Remedy]:
    name = remedy.qualified(index.schema, index.name)
    expect = (
        f"{rate(per_s)} updates may become heap-only; {rate(per_s * indexes)} fewer index entries are written"
    )
    if kept is None and index.definition is not None:
        yield remedy.drop_index(
            schema=index.schema,
            name=index.name,
            definition=index.definition,
            title=f"Drop {name}: nothing has used it for as long as scans have been counted",
            expect=expect,
            risk="a rare report that would have used it reads the table instead; the undo builds it again",
        )
        return
    if kept is not None and kept.startswith("it has never been scanned"):
        yield remedy.statement(
            sql=(
                "SELECT s.idx_scan, d.stats_reset FROM pg_stat_all_indexes s, pg_stat_database d "
                f"WHERE s.indexrelid = {remedy.literal(name)}::regclass AND d.datname = current_database();",
            ),
            title=f"Find out whether anything reads {name}: {kept}",
            expect=f"Still no scan after a full cycle of reports means that it can go, and then {expect}.",
            risk="none: this only reads the counters",
        )
        return
    lean = _without_payload(queue, index, columns, expect)
    if lean is not None:
        yield lean
        return
    yield from _by_state(queue, index, columns, expect, kept)
    yield remedy.change_application(
        title=f"Change {', '.join(map(quote_ident, columns))} less often, or keep it in a table of its own: {name} stays, because {kept}",
        risk="a change of the application",
        expect=f"each update saved spares {indexes} index entries",
    )


def _without_payload(queue: Queue, index: IndexRow, columns: tuple[str, ...], expect: str) -> Remedy | None:
    """Build the index anew without the columns that only INCLUDE mentions; None where a key, a predicate or a constraint needs them."""
    found = _INCLUDE.search(index.definition or "")
    if _place(queue, index, columns) != "in INCLUDE" or index.constraint is not None or found is None:
        return None
    gone = {quote_ident(one) for one in columns}
    left = [part.strip() for part in found[1].split(",") if part.strip() not in gone]
    name = claiming.free_name(queue, f"{index.name}_lean")
    definition = (index.definition or "").replace(
        found[0], f" INCLUDE ({', '.join(left)})" if left else "", 1
    )
    definition = definition.replace(f"INDEX {quote_ident(index.name)} ON", f"INDEX {quote_ident(name)} ON", 1)
    old = remedy.drop_index(
        schema=index.schema, name=index.name, definition=index.definition or "", title="", expect="", risk=""
    )
    new = remedy.drop_index(
        schema=index.schema, name=name, definition=definition, title="", expect="", risk=""
    )
    return replace(
        old,
        title=f"Build {remedy.qualified(index.schema, index.name)} anew without {', '.join(map(quote_ident, columns))} in INCLUDE",
        sql=(*new.undo, *old.sql[1:]),
        undo=(*old.undo, *new.sql[1:]),
        risk="scans that read the column from the index alone read the row as well",
        expect=expect,
    )


def _by_state(
    queue: Queue, index: IndexRow, columns: tuple[str, ...], expect: str, kept: str | None
) -> Iterator[Remedy]:
    """Find running jobs by their state instead: few rows, and a predicate that no sign of life changes.

    Only where every statement seen that asks for the columns asks for the running state too.
    """
    roles, identity = queue.identity.roles, queue.identity
    if kept is None or not kept.startswith("it has been scanned") or index.definition is None:
        return
    if roles.state is None or roles.state in columns or not identity.running_values or not roles.key:
        return
    asking = [one for one in _conditions(queue) if {each.column for each in one} & set(columns)]
    if not asking or not all(_asks_running(one, roles.state, identity.running_values) for one in asking):
        return
    table = queue.table
    name = f"{table.name}_{'_'.join(identity.running_values)}_idx".encode()[:63].decode("utf-8", "ignore")
    if queue.index(name) is not None:
        return
    state = quote_ident(roles.state)
    values = ", ".join(remedy.literal(value).strip() for value in identity.running_values)
    old = remedy.qualified(index.schema, index.name)
    new = remedy.create_index(
        schema=table.schema,
        table=table.name,
        name=name,
        columns=[quote_ident(column) for column in roles.key],
        predicate=f"{state} = {values}" if len(identity.running_values) == 1 else f"{state} IN ({values})",
        title="",
        expect="",
        risk="",
    )
    gone = remedy.drop_index(
        schema=index.schema, name=index.name, definition=index.definition, title="", expect="", risk=""
    )
    yield replace(
        new,
        title=f"Find running jobs by a partial index on their state instead of {old}",
        sql=(*new.sql, *gone.sql[1:]),
        undo=(*gone.undo, *new.undo[1:]),
        risk=(
            f"statements that ask for {', '.join(map(quote_ident, columns))} read all running jobs: look at their plans after the first step, "
            "before the index is dropped; they must name the state as a constant"
        ),
        expect=f"{expect}: a sign of life changes no column that the new index mentions",
    )


def _conditions(queue: Queue) -> Iterator[tuple[Condition, ...]]:
    for one in queue.statements:
        said = one.statement
        parts: tuple[Claim | Write | Read, ...] = (*said.claims, *said.writes, *said.reads)
        yield from (part.conditions for part in parts if queue.is_this(part.table))


def _asks_running(conditions: tuple[Condition, ...], state: str, running: tuple[str, ...]) -> bool:
    """A parameter may stand for any state: pg_stat_statements shows constants as parameters too."""
    return any(
        one.column == state
        and one.operator in ("=", "in")
        and all(value in running or value.startswith("$") for value in one.values)
        for one in conditions
    )


def _trade_off(queue: Queue, traded: list[SeenUpdate], needed: set[int], per_s: float) -> Finding:
    index = next(blocker.index for one in traded for blocker in one.blockers if blocker.index.oid in needed)
    columns = tuple(
        dict.fromkeys(
            name
            for one in traded
            for blocker in one.blockers
            if blocker.index.oid in needed
            for name in blocker.columns
        )
    )
    name = remedy.qualified(index.schema, index.name)
    ratio = queue.churn.hot_ratio or 0.0
    return Finding(
        check=CHECK.id,
        severity="notice",
        queue=queue.name,
        title=(
            f"{percent(ratio)} of updates are heap-only, because {rate(per_s)} change {', '.join(map(quote_ident, columns))}, which the claim's index "
            f"{name} needs: a fair price"
        ),
        why=(
            f"The index mentions {', '.join(map(quote_ident, columns))} {_place(queue, index, columns)}, so these updates cannot be heap-only, and a lower "
            "fillfactor would not change it; neither would a partial index, whose predicate blocks as a key does. The index is "
            "what lets a claim find its job in a few buffers: keep it, and let autovacuum come often enough."
        ),
        evidence=(*_measured(queue, per_s), *_statements(traded)),
        remedies=(),
        relations=tuple(sorted(queue.oids)),
    )


def _measured(queue: Queue, per_s: float) -> Iterator[Evidence]:
    churn, source = queue.churn, "pg_stat_user_tables"
    yield Evidence(
        what="updates", value=round(churn.per_second(churn.updated), 1), unit="per second", source=source
    )
    yield Evidence(
        what="heap-only updates", value=round(churn.hot_ratio or 0.0, 3), unit="ratio", source=source
    )
    yield Evidence(
        what="updates the index blocks",
        value=round(per_s, 1),
        unit="per second",
        source="pg_stat_statements, pg_index",
    )


def _statements(found: list[SeenUpdate]) -> Iterator[Evidence]:
    for one in found[:2]:
        yield Evidence(
            what="statement", value=shortened(one.statement.text, 200), unit="", source=one.statement.source
        )
        yield Evidence(what="rows it changed", value=one.rows, unit="rows", source=one.statement.source)


CHECK = Check(
    title="An index blocks heap-only updates",
    needs=(COUNTERS, STATEMENTS),
    limits=Limits(),
    evaluate=evaluate,
    references=("https://www.postgresql.org/docs/current/storage-hot.html",),
    look_alikes=(
        "a column that is set to an equal value",
        "a BRIN index from version 16 on",
        "the claim's state change, which leaves the claim's partial index",
        "a freshly loaded table with a handful of updates",
    ),
)
