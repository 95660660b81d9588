"""What the queue's indexes stand for: the columns that block heap-only updates, who needs an index, who may drop it.

A heap-only tuple (HOT) update needs that no column changes which any index mentions: as a key, as an INCLUDE column, in its
predicate or in an expression (HeapDetermineColumnsInfo(), RelationGetIndexAttrBitmap()). BRIN indexes are exempt from
16 on. Measured on 14 to 19: a column set to an equal value does not block.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from typing import Final, cast

from pgqdoctor import claiming
from pgqdoctor.features import Feature
from pgqdoctor.observation import Observation, Server
from pgqdoctor.queue import Queue
from pgqdoctor.rows import IndexRow
from pgqdoctor.sqlfacts import Claim, Condition, Read, Write
from pgqdoctor.sqlrewrite import quote_ident
from pgqdoctor.sqltext import Unparsable, parse, split
from pgqdoctor.statements import SeenStatement
from pgqdoctor.words import duration

DAY_S: Final = 86_400.0


@lru_cache(maxsize=1024)
def columns_in(expressions: str) -> frozenset[str] | None:
    """Return the columns that one or several expressions mention, comma-separated as pg_get_expr() gives them.

    A whole-row reference is "*". None where the text does not parse.
    """
    from pglast import ast
    from pglast.visitors import Visitor

    found: set[str] = set()

    class Columns(Visitor):
        def visit_ColumnRef(self, ancestors: object, node: ast.ColumnRef) -> None:
            last = node.fields[-1] if node.fields else None
            found.add(last.sval if isinstance(last, ast.String) and last.sval else "*")

    try:
        for piece in split(f"SELECT {expressions}"):
            Columns()(cast(ast.Node, parse(piece).stmt))
    except (Unparsable, RecursionError):
        return None
    return frozenset(found)


def mentioned_columns(queue: Queue, index: IndexRow) -> frozenset[str] | None:
    """Return every column an index depends on; None where its expressions could not be read."""
    by_number = {row.number: row.name for row in queue.columns}
    names = {by_number[one] for one in (*index.key_columns, *index.included_columns) if one in by_number}
    for has, text in ((index.has_predicate, index.predicate), (index.has_expressions, index.expressions)):
        if not has:
            continue
        columns = columns_in(text) if text is not None else None
        if columns is None:
            return None
        names |= set(by_number.values()) if "*" in columns else columns
    return frozenset(names)


def blocks_hot(server: Server, index: IndexRow) -> bool:
    """Tell whether changes of this index's columns keep an update from being heap-only. An invalid one blocks too."""
    return not (index.method == "brin" and server.has(Feature.BRIN_KEEPS_HOT))


@dataclass(frozen=True, slots=True, kw_only=True)
class Blocker:
    """One index that an update must enter anew, and the columns it changes."""

    index: IndexRow
    columns: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class SeenUpdate:
    """One observed UPDATE of the queue: what it sets, how many rows it changed in the window, what blocks it."""

    statement: SeenStatement
    write: Write
    rows: int
    columns: tuple[str, ...]
    blockers: tuple[Blocker, ...]
    claims: bool
    """True where the statement takes jobs, so that it must change what the claim looks for."""

    @property
    def hot_possible(self) -> bool:
        """True where no index stands in the way."""
        return not self.blockers


def seen_updates(seen: Observation, queue: Queue) -> tuple[SeenUpdate, ...]:
    """Return the UPDATEs that changed rows in the window, the busiest first."""
    known = [
        (index, columns)
        for index in queue.indexes
        if blocks_hot(seen.server, index) and (columns := mentioned_columns(queue, index)) is not None
    ]
    found = []
    for statement, write in queue.writes("update"):
        if statement.rows <= 0:
            continue
        changed = tuple(dict.fromkeys(one.column for one in write.sets if not _same(one.column, one.value)))
        blockers = tuple(
            Blocker(index=index, columns=tuple(one for one in changed if one in columns))
            for index, columns in known
            if columns & set(changed)
        )
        found.append(
            SeenUpdate(
                statement=statement,
                write=write,
                rows=statement.rows,
                columns=changed,
                blockers=blockers,
                claims=any(queue.is_this(claim.table) for claim in statement.statement.claims),
            )
        )
    return tuple(sorted(found, key=lambda one: -one.rows))


def _same(column: str, value: str) -> bool:
    """``SET column = column`` keeps the value, and with it the heap-only update."""
    return value.rpartition(".")[2].strip('"') == column


def serves_claim(queue: Queue, index: IndexRow) -> bool:
    """Tell whether a claim or a poll needs the index: its plan uses it, or it leads with what they ask for and is used.

    The plan seen is one of several a claim may have, so an index that was scanned in the window and fits is not given
    away.
    """
    used = {name for one in queue.plans for name in one.facts.indexes}
    family = (index, *counterparts(queue, index))
    if any(one.name in used for one in family):
        return True
    if used and scans_in_window(queue, index) == 0:
        return False
    # A small table is read without any index, and another plan may come with more rows.
    return fits_claim(queue, index)


def counterparts(queue: Queue, index: IndexRow) -> tuple[IndexRow, ...]:
    """Return the indexes of the queue's partitions and of their parent that are made alike.

    An index of a partitioned table holds nothing: plans and counters name those of its partitions. Column numbers may
    differ between a parent and its partitions, so that their definitions are compared where they are known.
    """
    if queue.table.kind != "p":
        return ()
    return tuple(
        one
        for one in queue.catalog.indexes
        if one.oid != index.oid and one.table in queue.oids and _shape(one) == _shape(index)
    )


def _shape(index: IndexRow) -> tuple[object, ...]:
    """What pg_get_indexdef() says after the table's name, which is the same on a partition."""
    definition = index.definition or ""
    return (index.method, index.predicate, definition.partition(" USING ")[2] or index.key_columns)


def fits_claim(queue: Queue, index: IndexRow) -> bool:
    """Tell whether an index leads with what a claim or an unlocked poll asks for, or holds it by its predicate."""
    searches: tuple[Claim | Read, ...] = (
        *(one.claim for one in queue.claims),
        *(one.read for one in claiming.polls(queue)),
    )
    asked = {
        column
        for one in searches
        for column in (
            *_columns(one.conditions),
            *(key.column for key in one.order if key.column is not None),
        )
    }
    leading = queue.index_columns(index)[:1]
    predicate = columns_in(index.predicate) if index.predicate is not None else None
    return bool(set(leading) & asked) or bool(predicate and predicate <= asked)


def _columns(conditions: Iterable[Condition]) -> Iterable[str]:
    for one in conditions:
        if one.column is not None:
            yield one.column
        for branch in one.branches:
            yield from _columns(branch)


def scans_in_window(queue: Queue, index: IndexRow) -> int:
    """Return how often the index was scanned in the window, on all partitions together."""
    oids = {one.oid for one in (index, *counterparts(queue, index))}
    return sum(row.scans for row in queue.index_churn if row.oid in oids)


def scans_ever(seen: Observation, index: IndexRow) -> int | None:
    """Return how often the index was scanned since its counters began, None where they were not read."""
    return next((row.scans for row in seen.last.indexes if row.oid == index.oid), None)


def supports_foreign_key(queue: Queue, index: IndexRow) -> str | None:
    """Return the foreign key of this table whose columns the index begins with: deletes in the parent need it."""
    if index.has_predicate:
        return None
    names = queue.index_columns(index)
    for key in queue.foreign_keys:
        if key.child == index.table and set(names[: len(key.child_columns)]) == set(key.child_columns):
            return key.name
    return None


def counters_age_s(seen: Observation) -> float | None:
    """Return for how long the database's counters have been kept for certain, None where nothing tells."""
    return seen.last.database.stats_reset_s


def why_kept(seen: Observation, queue: Queue, index: IndexRow, *, least_age_s: float) -> str | None:
    """Return the reason why the index must stay as far as can be seen; None where it serves nothing.

    ``least_age_s`` is for how long its counters must have been kept before "never scanned" means anything.
    """
    if index.primary:
        return "it is the primary key"
    if index.constraint is not None:
        return f"it enforces the constraint {quote_ident(index.constraint)}"
    if index.unique:
        return "it keeps values unique"
    if index.replica_identity:
        return "it is the replica identity"
    foreign_key = supports_foreign_key(queue, index)
    if foreign_key is not None:
        return f"it serves the foreign key {quote_ident(foreign_key)}"
    if serves_claim(queue, index):
        return "the claim uses it"
    if queue.table.kind == "p":
        return "it has an index on each partition, whose use is not counted here"
    scans = scans_ever(seen, index)
    if scans is None:
        return "its use is not counted"
    if scans > 0:
        recent = scans_in_window(queue, index)
        return f"it has been scanned {scans:,} times" + (
            f", {recent:,} of them in this window" if recent else ""
        )
    age = counters_age_s(seen)
    if age is None:
        return "it has never been scanned, and how long its scans have been counted is not known"
    if age < least_age_s:
        return f"it has never been scanned, but scans have been counted for {duration(age)} only"
    if seen.server.in_recovery:
        return "a standby counts its own scans only"
    return None
