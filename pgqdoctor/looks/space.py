"""Looks at a queue's space: sizes of its files, and how full pgstattuple finds small relations."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import psycopg

from pgqdoctor.connect import in_schema
from pgqdoctor.looks.look import LOOK_TIMEOUT_MS, QueueLook
from pgqdoctor.observation import MeasuredSpace

MOST_MEASURED: Final = 4_000
"""Pages of a relation up to which pgstattuple reads it: the cost of a look, see MOST_COST. Larger ones are estimated."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sizes:
    """Bytes of a queue with its partitions, None where they were not read."""

    table: int | None = None
    indexes: int | None = None
    toast: int | None = None
    by_index: tuple[tuple[int, int], ...] = ()
    """The oid and the bytes of each index."""


def sizes(look: QueueLook, oids: tuple[int, ...]) -> Sizes:
    """Read the sizes: one stat() per file, and a lock on the relation for that moment."""
    try:
        found = look.session.records(
            "SELECT sum(pg_relation_size(o))::bigint AS heap, sum(pg_indexes_size(o))::bigint AS indexes, "
            "sum(coalesce(pg_total_relation_size(nullif(c.reltoastrelid, 0)), 0))::bigint AS toast "
            "FROM unnest(%(oids)s::oid[]) AS o JOIN pg_class c ON c.oid = o",
            {"oids": list(oids)},
            statement_timeout_ms=LOOK_TIMEOUT_MS,
        )[0]
        indexes = look.session.records(
            "SELECT i.indexrelid::bigint AS oid, pg_relation_size(i.indexrelid)::bigint AS bytes "
            "FROM pg_index i WHERE i.indrelid = ANY (%(oids)s::oid[])",
            {"oids": list(oids)},
            statement_timeout_ms=LOOK_TIMEOUT_MS,
        )
    except psycopg.Error as error:
        look.failed("sizes", error)
        return Sizes()
    return Sizes(
        table=found["heap"],
        indexes=found["indexes"],
        toast=found["toast"],
        by_index=tuple((one["oid"], one["bytes"]) for one in indexes),
    )


def measured_space(look: QueueLook, oids: tuple[int, ...]) -> tuple[MeasuredSpace, ...]:
    """Measure small relations with pgstattuple, where it is installed and the role may use it."""
    server = look.link.server
    extension = server.extension("pgstattuple")
    if extension is None or not server.member_of("pg_stat_scan_tables", "pg_monitor") or look.budget.spent:
        return ()
    tables = [one.oid for one in look.catalog.tables if one.oid in oids and one.kind == "r"]
    indexes = [
        one.oid for one in look.catalog.indexes if one.table in tables and one.method == "btree" and one.valid
    ]
    found: list[MeasuredSpace] = []
    density = (
        "CASE WHEN s.leaf_pages > 0 THEN s.avg_leaf_density / 100 * s.leaf_pages "
        "/ (s.leaf_pages + s.empty_pages + s.deleted_pages) ELSE 0 END"
    )
    for function, used, relations in (
        ("pgstattuple_approx", "1 - s.approx_free_percent / 100", tables),
        ("pgstatindex", density, indexes),
    ):
        # OFFSET 0 keeps the size's test before the function that reads the whole relation.
        query = in_schema(
            f"SELECT o.oid::bigint AS oid, o.pages, ({used})::float8 AS used FROM (SELECT o AS oid, (pg_relation_size(o) / 8192)::int AS pages "
            f"FROM unnest(%(oids)s::oid[]) AS o WHERE pg_relation_size(o) BETWEEN 1 AND %(most)s OFFSET 0) o, {{schema}}.{function}(o.oid::regclass) s",
            extension.schema,
        )
        try:
            found += look.session.rows(
                MeasuredSpace,
                query,
                {"oids": relations, "most": MOST_MEASURED * 8192},
                statement_timeout_ms=look.budget.milliseconds(LOOK_TIMEOUT_MS),
            )
        except psycopg.Error as error:
            look.failed("space", error)
    return tuple(found)
