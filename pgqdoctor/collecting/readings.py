"""One reading of the counters and of who is doing what, and what it asks for."""

from __future__ import annotations

from dataclasses import dataclass

import msgspec

from pgqdoctor import rows
from pgqdoctor.collecting.prober import Prober
from pgqdoctor.collecting.statements import read_counters, worth_counting
from pgqdoctor.connect import quote
from pgqdoctor.observation import Catalog, Lack, QueueIdentity, Reading


@dataclass(frozen=True, slots=True, kw_only=True)
class Watched:
    """What every reading of this run asks for: oids and statement ids, fixed before the first reading."""

    tables: tuple[int, ...]
    indexes: tuple[int, ...]
    statements: tuple[int, ...]
    numbered: tuple[int, ...] = ()
    """Tables whose sequences are read: the queues, their partitions, and the tables that their jobs refer to."""


def to_watch(
    catalog: Catalog,
    identities: tuple[QueueIdentity, ...],
    statement_texts: tuple[rows.StatementTextRow, ...],
) -> Watched:
    """Return what the readings ask for: the queues, their neighbours by foreign key, TOAST tables and
    statements."""
    tables: list[int] = []
    for oid in dict.fromkeys(column.table for column in catalog.columns):
        tables.extend(leaf.oid for leaf in catalog.partitions_of(oid))
    queues = {leaf.oid for one in identities for leaf in (*catalog.partitions_of(one.oid),)} | {
        one.oid for one in identities
    }
    referred: set[int] = set()
    for key in catalog.foreign_keys:
        if key.child in queues or key.parent in queues:
            tables.extend((key.child, key.parent))
        if key.child in queues:
            referred.add(key.parent)
    tables.extend(row.toast for row in catalog.tables if row.oid in queues and row.toast is not None)
    # A partitioned table has no counters of its own, but statements name it.
    names = {row.name for row in catalog.tables if row.oid in {*tables, *queues}}
    statements = [
        row.query_id
        for row in statement_texts
        if row.query_id is not None and row.text is not None and worth_counting(row.text, names)
    ]
    return Watched(
        tables=tuple(dict.fromkeys(tables)),
        indexes=tuple(row.oid for row in catalog.indexes),
        statements=tuple(dict.fromkeys(statements)),
        numbered=tuple(sorted(queues | referred)),
    )


def take_reading(prober: Prober, watched: Watched) -> Reading:
    """Take one reading of the counters and of who is doing what."""
    database = prober.records("database")[0]
    at = float(database.pop("at"))
    prober.set_clock(at)
    return Reading(
        at=at,
        database=msgspec.convert(database, rows.DatabaseRow, strict=False),
        tables=prober.rows(rows.TableCounterRow, "table_counters", {"oids": list(watched.tables)}),
        indexes=prober.rows(rows.IndexCounterRow, "index_counters", {"oids": list(watched.indexes)}),
        statements=read_counters(prober, watched.statements),
        slru=prober.rows(rows.SlruRow, "slru"),
        sessions=prober.rows(rows.SessionRow, "sessions"),
        locks=prober.rows(rows.LockRow, "locks", {"oids": list(watched.tables)}),
        prepared=prober.rows(rows.PreparedRow, "prepared"),
        slots=prober.rows(rows.SlotRow, "slots"),
        standbys=prober.rows(rows.StandbyRow, "standbys"),
        vacuums=prober.rows(rows.VacuumRow, "vacuums"),
        sequences=prober.rows(rows.SequenceRow, "sequences", {"oids": list(watched.numbered)}),
    )


def unread_sequences(
    catalog: Catalog, identities: tuple[QueueIdentity, ...], last: Reading, role: str
) -> tuple[Lack, ...]:
    """Say of which queues ``role`` may not read how far their ids have come."""
    found = []
    for one in identities:
        oids = {one.oid, *(leaf.oid for leaf in catalog.partitions_of(one.oid))}
        for row in last.sequences:
            if row.table in oids and not row.may_read:
                name = f"{quote(row.schema)}.{quote(row.name)}"
                found.append(
                    Lack(
                        what="sequences",
                        reason=f"the role may not read sequence {name}",
                        grant=f"GRANT SELECT ON SEQUENCE {name} TO {quote(role)}",
                        queue=one.name,
                    )
                )
    return tuple(found)
