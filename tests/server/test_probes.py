"""Every probe variant on every server at hand: it runs, its columns are those of its row type, and no SQL
file is orphaned."""

from __future__ import annotations

import dataclasses
import typing
from collections.abc import Mapping

import psycopg
import pytest
from psycopg import sql

from pgqdoctor import probes, rows
from pgqdoctor.collecting.catalogs import shape_parameters
from pgqdoctor.connect import connect, in_schema, survey
from pgqdoctor.observation import Extension
from pgqdoctor.usercode import UserCode

OIDS = [1259, 1249]
USES = ("schemas", "relations", "types", "harmless", "others", "attributes")
PROBES: dict[str, tuple[type, Mapping[str, object] | None]] = {
    "extensions": (Extension, None),
    "settings": (rows.SettingRow, None),
    "tables": (rows.TableRow, None),
    "columns": (rows.ColumnRow, {"oids": OIDS, "locked": []}),
    "indexes": (rows.IndexRow, {"oids": OIDS, "locked": []}),
    "foreign_keys": (rows.ForeignKeyRow, {"oids": OIDS}),
    "triggers": (rows.TriggerRow, {"oids": OIDS}),
    "functions": (rows.FunctionRow, {"limit": 100, "locked": OIDS, "trees": True}),
    "table_counters": (rows.TableCounterRow, {"oids": OIDS}),
    "index_counters": (rows.IndexCounterRow, {"oids": [2662]}),
    "slru": (rows.SlruRow, None),
    "sessions": (rows.SessionRow, None),
    "locks": (rows.LockRow, {"oids": OIDS}),
    "prepared": (rows.PreparedRow, None),
    "slots": (rows.SlotRow, None),
    "standbys": (rows.StandbyRow, None),
    "vacuums": (rows.VacuumRow, None),
    "sequences": (rows.SequenceRow, {"oids": OIDS}),
    "multixacts": (rows.MultixactRow, {"ids": []}),
    "user_code": (UserCode, {name: [] for name in USES}),
}
LOOSE: dict[str, tuple[set[str], Mapping[str, object] | None]] = {
    "capabilities": (
        {
            "version",
            "version_num",
            "database",
            "role",
            "superuser",
            "granted_roles",
            "in_recovery",
            "started_at",
            "backend_pid",
            "statements_track",
        },
        None,
    ),
    "candidates": ({"oid"}, shape_parameters()),
    "exclusive_locks": ({"oid"}, None),
    "relations": ({"schema", "name", "kind", "persistence", "tables"}, {"name": "pg_locks"}),
    "sent_texts": ({"query"}, {"ids": [1], "limit": 10}),
    "database": ({one.name for one in dataclasses.fields(rows.DatabaseRow)} | {"at"}, None),
    "samples": (
        {
            "pid",
            "state",
            "wait_type",
            "wait_event",
            "xid_age",
            "xmin_age",
            "xact_age_s",
            "query_age_s",
            "state_age_s",
            "query",
            "query_id",
            "vacuuming",
            "application",
            "at",
        },
        None,
    ),
}
"""Probes whose rows the collector takes apart itself, with the columns it uses."""
EXTENSION_PROBES: dict[str, type] = {
    "statement_texts": rows.StatementTextRow,
    "statement_counters": rows.StatementCounterRow,
    "statements_info": rows.StatementsInfoRow,
}


def columns_of(dsn: str, query: str | sql.Composed, parameters: Mapping[str, object] | None) -> set[str]:
    with psycopg.connect(dsn) as connection, connection.cursor() as cursor:
        connection.read_only = True
        cursor.execute("SET LOCAL search_path = pg_catalog")
        cursor.execute(query.encode() if isinstance(query, str) else query, parameters)
        assert cursor.description is not None
        return {column.name for column in cursor.description}


FILLED_LATER: dict[type, set[str]] = {rows.ColumnRow: {"seen_values"}}
"""Fields that no probe fills: bounded looks do, after discovery."""


def wanted(row: type) -> set[str]:
    return {one.name for one in dataclasses.fields(row)} - FILLED_LATER.get(row, set())


@pytest.mark.parametrize("name", sorted(PROBES))
def test_every_variant_returns_the_columns_of_its_row_type(database: str, name: str) -> None:
    row, parameters = PROBES[name]
    session = connect(database)
    try:
        version = survey(session).server.version_num
        served = [floor for floor in probes.variants(name) if floor <= version]
        assert served, f"no variant of {name} serves {version}"
        for floor in served:
            assert columns_of(database, probes.variants(name)[floor], parameters) == wanted(row), (
                name,
                floor,
            )
        session.rows(row, probes.load(name, version), parameters)
    finally:
        session.close()


@pytest.mark.parametrize("name", sorted(LOOSE))
def test_probes_without_a_row_type_return_what_the_collector_uses(database: str, name: str) -> None:
    columns, parameters = LOOSE[name]
    session = connect(database)
    try:
        version = survey(session).server.version_num
    finally:
        session.close()
    assert columns_of(database, probes.load(name, version), parameters) == columns


@pytest.mark.parametrize("name", sorted(EXTENSION_PROBES))
def test_statement_probes_follow_the_extension(database: str, name: str) -> None:
    row = EXTENSION_PROBES[name]
    session = connect(database)
    try:
        extension = survey(session).server.extension("pg_stat_statements")
        assert extension is not None
        text = probes.load_for_extension(name, extension.version)
        parameters: dict[str, object] = {"limit": 5} if name == "statement_texts" else {"ids": [1]}
        query = in_schema(text, extension.schema)
        assert columns_of(database, query, parameters) == wanted(row)
        session.rows(row, query, parameters)
    finally:
        session.close()


@pytest.mark.parametrize("version", ["1.4", "1.8", "1.9"])
def test_old_extension_versions_on_a_new_server(database: str, version: str) -> None:
    with psycopg.connect(database, autocommit=True) as connection:
        connection.execute("CREATE SCHEMA IF NOT EXISTS old_statements")
        connection.execute("DROP EXTENSION pg_stat_statements")
        try:
            connection.execute(
                f"CREATE EXTENSION pg_stat_statements SCHEMA old_statements VERSION '{version}'".encode()
            )
            session = connect(database)
            try:
                server = survey(session).server
                assert server.statements == "ready"
                for name, row in EXTENSION_PROBES.items():
                    parameters: dict[str, object] = (
                        {"limit": 5} if name == "statement_texts" else {"ids": [1]}
                    )
                    session.rows(
                        row,
                        in_schema(probes.load_for_extension(name, version), "old_statements"),
                        parameters,
                    )
            finally:
                session.close()
        finally:
            connection.execute("DROP EXTENSION IF EXISTS pg_stat_statements")
            connection.execute("CREATE EXTENSION pg_stat_statements SCHEMA public")


def test_no_sql_file_is_orphaned() -> None:
    assert probes.names() == {*PROBES, *LOOSE, *EXTENSION_PROBES}


def test_every_row_type_has_a_probe() -> None:
    known = {row for row, _ in PROBES.values()} | set(EXTENSION_PROBES.values()) | {rows.DatabaseRow}
    defined = {one for one in vars(rows).values() if isinstance(one, type) and dataclasses.is_dataclass(one)}
    assert typing.cast("set[type]", defined) <= known
