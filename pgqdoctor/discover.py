"""Which tables are queues, and why: from statements first, from shape last. Pure.

The order of belief: a framework's signature, a claim statement, a function whose body claims, and the shape
of the table. A table that only looks like a queue, without any sign that something claims from it, is
reported as possible and left alone.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from pgqdoctor.discovery.claims import sent_statements
from pgqdoctor.discovery.framework import without_helpers
from pgqdoctor.discovery.judging import Moves, judge
from pgqdoctor.discovery.seen import SeenText
from pgqdoctor.discovery.shape import is_consumed, leaf_moves
from pgqdoctor.discovery.signs import Signs, called_functions, gathered
from pgqdoctor.discovery.tables import queue_named
from pgqdoctor.names import Names
from pgqdoctor.observation import Catalog, QueueIdentity
from pgqdoctor.rows import TableCounterRow

LOOKED_FOR: Final = (
    "claim statements in pg_stat_statements and pg_stat_activity",
    "functions that claim",
    "tables of known queue frameworks",
    "partial indexes and columns that act as state, lease, attempts or run-at",
)


def discover(
    catalog: Catalog,
    texts: Sequence[SeenText],
    *,
    moving: frozenset[int] = frozenset(),
    counters: Sequence[TableCounterRow] = (),
    forced: Sequence[str] = (),
    claim_queries: Mapping[str, str] | None = None,
    sent: Sequence[str] = (),
) -> tuple[QueueIdentity, ...]:
    """Return the queues of the catalog, the surest and busiest first.

    ``moving`` are oids of tables whose counters moved; ``forced`` are names given by --queue: only these are
    returned then, and they are queues whatever their shape. ``claim_queries`` maps such a name to the claim's
    text. ``sent`` are statements as sessions sent them last, with the constants that ``texts`` may have lost.
    """
    names = Names(catalog, moving)
    given = [
        SeenText(key=f"option:{name}", text=text, weight=10**9, source="option")
        for name, text in (claim_queries or {}).items()
    ]
    signs = gathered(catalog, names, (*given, *texts))
    readings = sent_statements(texts, sent, signs)
    called = called_functions(texts)
    wanted = tuple(_oid_of(name, catalog) for name in forced)
    described = {column.table for column in catalog.columns}
    found = []
    for row in catalog.tables:
        if row.parent is not None or row.oid not in described:
            continue
        if forced and row.oid not in wanted:
            continue
        moves = Moves(
            lately=row.oid in moving or leaf_moves(catalog, row, moving),
            consumed=is_consumed(row, catalog, counters),
        )
        identity = judge(
            row, catalog, signs.get(row.oid, Signs()), called, readings, moves, forced=bool(forced)
        )
        if identity is not None:
            found.append(identity)
    found = without_helpers(found, catalog)
    activity = {one.oid: one.inserted + one.updated + one.deleted for one in counters}
    found.sort(key=lambda one: (not one.certain, -one.score, -activity.get(one.oid, 0), one.name))
    return tuple(found)


def _oid_of(name: str, catalog: Catalog) -> int:
    row = queue_named(name, catalog)
    return row.oid if row is not None else 0
