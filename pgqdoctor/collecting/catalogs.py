"""The catalog: the candidates for a queue, their columns, indexes and keys, and the states that only an index tells."""

from __future__ import annotations

from dataclasses import replace
from typing import Final, TypeVar

import psycopg

from pgqdoctor import rows
from pgqdoctor.collecting.prober import Prober
from pgqdoctor.discovery.columns import claimed_pattern, column_pattern
from pgqdoctor.discovery.states import stateless
from pgqdoctor.discovery.tables import queue_named
from pgqdoctor.errors import USAGE, PgqdoctorError
from pgqdoctor.frameworks import table_patterns
from pgqdoctor.given import claim_table_fault, near, relation_fault
from pgqdoctor.looks.jobs import states_by_index
from pgqdoctor.observation import Catalog, Lack, QueueIdentity

MAX_CANDIDATES: Final = 300
"""Tables whose columns are read: those named by claims first, then the busiest of queue-like shape."""
MAX_LOOKED_AT: Final = 1_000
"""Of tables that neither name nor partial index speaks for, the most written whose columns are looked at: some 30 ms of the
server's time, however many there are. One that is written less than a thousand others is found by its claim."""
TELLING_COLUMN: Final = "stat(e|us)|attempt|locked|lease|claimed|picked|run_?at|scheduled|heartbeat|visible"
"""Part of a column's name without which nothing but a claim makes a table a candidate."""
MAX_FUNCTIONS: Final = 500

Row = TypeVar("Row")


def bare_catalog(prober: Prober) -> Catalog:
    """Read settings, tables and functions: what opens no table that an exclusive lock guards."""
    settings = prober.rows(rows.SettingRow, "settings")
    path = set(prober.link.search_path)
    seen_names: set[str] = set()
    tables = []
    for row in prober.rows(rows.TableRow, "tables", timeout_ms=10_000, required=True):
        tables.append(replace(row, visible=row.schema in path and row.name not in seen_names))
    return Catalog(
        tables=tuple(tables),
        columns=(),
        indexes=(),
        foreign_keys=(),
        triggers=(),
        functions=_functions(prober),
        settings=settings,
    )


def _functions(prober: Prober) -> tuple[rows.FunctionRow, ...]:
    """Read the functions that may touch a queue. Bodies kept as trees are written back, which opens their tables."""
    given = {"limit": MAX_FUNCTIONS, "locked": list(prober.locked())}
    try:
        return prober.rows(rows.FunctionRow, "functions", {**given, "trees": True}, required=True)
    except psycopg.Error:
        # Somebody took an exclusive lock between the two statements, or the server refuses: do without the trees.
        if prober.session.closed:
            raise
        return prober.rows(rows.FunctionRow, "functions", {**given, "trees": False})


def shape_parameters() -> dict[str, object]:
    """Return what the probe of candidates asks for."""
    return {
        "limit": MAX_CANDIDATES,
        "looked_at": MAX_LOOKED_AT,
        "signatures": "|".join(table_patterns()),
        "telling": TELLING_COLUMN,
        "columns": column_pattern(),
        "claimed": claimed_pattern(),
    }


def candidates(prober: Prober, given: set[int], named: frozenset[int]) -> tuple[int, ...]:
    """Return the oids of tables whose columns are worth reading: those given by a person, those that claims name, and the
    busiest of queue-like shape."""
    shaped = [int(one["oid"]) for one in prober.records("candidates", shape_parameters())]
    return tuple(dict.fromkeys([*given, *sorted(named), *shaped]))[: MAX_CANDIDATES + len(given)]


def table_given(prober: Prober, name: str, catalog: Catalog, claim_query: str | None) -> int:
    """Return the oid of the table that a person named as a queue.

    Raises PgqdoctorError (usage) where there is none, or where the claim query given for it is not for it.
    """
    row = queue_named(name, catalog)
    if row is None:
        found = prober.records("relations", {"name": name})
        fault = relation_fault(found[0]) if found else None
        close = near(name, catalog.tables)
        raise PgqdoctorError(
            fault.message
            if fault is not None
            else f"there is no table {name} in database {prober.link.server.database}",
            hint=fault.hint
            if fault is not None
            else f"Did you mean {', '.join(close)}?"
            if close
            else "Give it as SCHEMA.TABLE.",
            exit_code=USAGE,
        )
    wrong = claim_table_fault(claim_query, row, catalog) if claim_query is not None else None
    if wrong is not None:
        raise PgqdoctorError(
            f"the claim query given for {name} {wrong.message}", hint=wrong.hint, exit_code=USAGE
        )
    return row.oid


def detailed(prober: Prober, bare: Catalog, chosen: tuple[int, ...]) -> Catalog:
    """Read columns, indexes, keys and triggers of the chosen tables and of their partitions."""
    leaves = {leaf.oid for oid in chosen for leaf in bare.partitions_of(oid)}
    oids = list(dict.fromkeys([*chosen, *sorted(leaves)]))
    locked = prober.locked()
    for oid in locked & set(oids):
        row = bare.table(oid)
        prober.lacks.append(
            Lack(
                what="definition",
                reason=f"{row.schema}.{row.name} is behind an exclusive lock: what would open it was not asked"
                if row is not None
                else "a table is behind an exclusive lock",
            )
        )
    return replace(
        bare,
        columns=_expressions(prober, rows.ColumnRow, "columns", list(chosen), locked),
        indexes=_expressions(prober, rows.IndexRow, "indexes", oids, locked),
        foreign_keys=prober.rows(rows.ForeignKeyRow, "foreign_keys", {"oids": oids}),
        triggers=prober.rows(rows.TriggerRow, "triggers", {"oids": oids}),
    )


def _expressions(
    prober: Prober, row: type[Row], name: str, oids: list[int], locked: frozenset[int]
) -> tuple[Row, ...]:
    """Run a probe that deparses expressions, which opens their tables: those behind a lock are left out."""
    parameters = {"oids": oids, "locked": list(locked & set(oids))}
    try:
        return prober.rows(row, name, parameters, required=True)
    except psycopg.errors.LockNotAvailable:
        # Somebody took an exclusive lock between the two statements: do without the expressions.
        return prober.rows(row, name, {"oids": oids, "locked": oids})


def with_states(prober: Prober, catalog: Catalog, identities: tuple[QueueIdentity, ...]) -> Catalog:
    """Look up in their indexes the states of queues whose ready state neither texts nor statistics tell."""
    asked = {one.oid: (one, name) for one in identities if (name := stateless(one, catalog)) is not None}
    locked = prober.locked() if asked else frozenset()
    found: dict[tuple[int, str], tuple[str, ...]] = {}
    for oid, (identity, name) in asked.items():
        row = catalog.table(oid)
        family = {oid, *(leaf.oid for leaf in catalog.partitions_of(oid))}
        readable = row is not None and (row.may_select or prober.link.server.superuser)
        if row is not None and readable and not row.row_security and not family & locked:
            found[oid, name] = states_by_index(prober.session, prober.link, identity, name)
    return replace(
        catalog,
        columns=tuple(
            replace(row, seen_values=found[row.table, row.name]) if (row.table, row.name) in found else row
            for row in catalog.columns
        ),
    )
