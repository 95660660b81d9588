"""Which part of the catalog an observation keeps. Pure."""

from __future__ import annotations

from dataclasses import replace

from pgqdoctor.observation import Catalog, QueueIdentity, Reading
from pgqdoctor.rows import FunctionRow


def kept_catalog(catalog: Catalog, identities: tuple[QueueIdentity, ...], first: Reading) -> Catalog:
    """Keep what the observation needs: the queues, their partitions and their neighbours."""
    oids = {one.oid for one in identities}
    oids |= {leaf.oid for oid in tuple(oids) for leaf in catalog.partitions_of(oid)}
    keys = tuple(key for key in catalog.foreign_keys if key.child in oids or key.parent in oids)
    near = oids | {key.child for key in keys} | {key.parent for key in keys}
    functions = {oid for one in identities for oid in one.functions} | {
        row.function_oid for row in catalog.triggers if row.table in oids
    }
    counted = {row.oid for row in first.tables}
    by_oid = {row.oid: row for row in catalog.tables}
    above: set[int] = set()
    for oid in near:
        parent = by_oid[oid].parent if oid in by_oid else None
        while parent is not None and parent not in above:
            above.add(parent)
            parent = by_oid[parent].parent if parent in by_oid else None
    middle = {row.oid for row in catalog.tables if row.kind == "p" and row.parent in (near | above)}
    # Namesakes stay: without them a recording could not tell which table a name meant.
    names = {row.name for row in catalog.tables if row.oid in oids}
    # What vacuum is busy with is named, though it be no queue.
    vacuumed = {row.relation for row in first.vacuums if row.relation is not None}
    kept = near | above | middle | vacuumed
    return replace(
        catalog,
        tables=tuple(row for row in catalog.tables if row.oid in kept or row.name in names),
        columns=tuple(
            row
            for row in catalog.columns
            if row.table in kept or (row.table in counted and by_oid[row.table].name in names)
        ),
        indexes=tuple(row for row in catalog.indexes if row.table in kept),
        foreign_keys=keys,
        triggers=tuple(row for row in catalog.triggers if row.table in oids),
        functions=tuple(row for row in catalog.functions if row.oid in functions or _writes_any(row, names)),
    )


def _writes_any(function: FunctionRow, names: set[str]) -> bool:
    return any(name in function.body for name in names)
