"""Redaction: nothing that names a person, customer or host survives, and the same checks can still speak."""

from __future__ import annotations

import dataclasses
import typing
from collections.abc import Iterator
from typing import TypeVar

import pytest

from pgqdoctor import observation, rows
from pgqdoctor.observation import (
    AttemptsProbe,
    Catalog,
    ColumnRoles,
    Extension,
    Lack,
    Observation,
    PlanProbe,
    QueueIdentity,
    QueueProbe,
    Reading,
    Sample,
    SampledSession,
    ServedProbe,
    Server,
    StateCount,
    StuckProbe,
)
from pgqdoctor.redact import _Redactor, redact

T = TypeVar("T")

KEPT = {
    Extension: {"name", "version", "schema"},
    Server: {"version", "granted_roles", "statements", "started_at"},
    Observation: {"schema", "generated_at", "tool_version", "looked_for"},
    Lack: {"what", "queue"},
    PlanProbe: {"mode"},
    StateCount: {"value"},
    StuckProbe: {"measure", "column"},
    AttemptsProbe: {"column"},
    ServedProbe: {"column", "kind_column", "paused"},
    QueueIdentity: {
        *(
            "schema",
            "table",
            "name",
            "framework",
            "recognised_by",
            "claim_keys",
            "claim_source",
            "other_keys",
        ),
        *("ready_values", "running_values", "finished_values"),
    },
    ColumnRoles: {field.name for field in dataclasses.fields(ColumnRoles)},
    SampledSession: {"state", "wait_type", "wait_event"},
    rows.SessionRow: {"backend_type", "state", "wait_type", "wait_event"},
    rows.SlotRow: {"slot_type"},
    rows.StandbyRow: {"state"},
    rows.LockRow: {"locktype", "mode"},
    rows.VacuumRow: {"phase"},
    rows.StatementCounterRow: {"key"},
    rows.StatementTextRow: {"key"},
    rows.SlruRow: {"name"},
    rows.TableRow: {"schema", "name", "kind", "persistence", "options"},
    rows.ColumnRow: {"name", "type_name", "type_category", "enum_labels"},
    rows.IndexRow: {"schema", "name", "method", "constraint"},
    rows.ForeignKeyRow: {
        "name",
        "child_name",
        "parent_name",
        "child_columns",
        "parent_columns",
        "on_delete",
        "definition",
        "child_types",
    },
    rows.SequenceRow: {"column", "schema", "name", "column_type"},
    rows.TriggerRow: {"name", "function_schema", "function_name"},
    rows.FunctionRow: {"schema", "name", "language", "arguments", "returns"},
    rows.SettingRow: {"name", "setting", "unit", "source"},
    rows.MultixactRow: {"modes"},
}
"""Texts that redaction leaves: names of objects, PostgreSQL's own words, states of jobs."""


def blank(kind: type[T], **known: object) -> T:
    """An instance of a data class that says nothing but ``known``."""
    nothing: dict[object, object] = {str: "", int: 0, float: 0.0, bool: False}
    hints = typing.get_type_hints(kind)
    values = {
        name: nothing.get(hint, () if typing.get_origin(hint) is tuple else None)
        for name, hint in hints.items()
    }
    return kind(**{**values, **known})


SQL = "SELECT 1 FROM jobs WHERE status = 'queued' AND tenant = 'acme'"
PLAN = """[{"Plan": {"Filter": "((tenant = 'acme'::text) AND (\\"Status\\" = 'queued'))"}}]"""
BODY = "SELECT 1 FROM jobs WHERE tenant = 'globex' AND lease < now() - interval '5 minutes'"


@pytest.fixture
def seen() -> Observation:
    """A server where what is replaced holds something to replace."""
    session = blank(
        rows.SessionRow,
        database="acme_prod",
        role="alice",
        application="acme-worker",
        query="SELECT 1 FROM jobs WHERE status = 'queued' AND owner = 'alice@acme.example' -- for bob",
    )
    reading = blank(
        Reading,
        database=blank(rows.DatabaseRow),
        sessions=(session,),
        prepared=(blank(rows.PreparedRow, gid="acme-42", owner="alice", database="acme_prod"),),
        standbys=(blank(rows.StandbyRow, application="acme-standby", client="203.0.113.9"),),
    )
    queue = blank(
        QueueIdentity,
        oid=1,
        name="public.jobs",
        roles=ColumnRoles(state="status"),
        ready_values=("queued",),
        ready_predicate="status = 'queued' AND tenant = 'acme'",
        claim_sql=SQL,
    )
    plan = blank(
        PlanProbe,
        sql=SQL,
        parameters={"$1": "'acme'", "$2": "'queued'"},
        document=PLAN,
        error='invalid input syntax for type uuid: "acme-order-77"',
    )
    stuck = blank(StuckProbe, examples=("acme-order-77",))
    columns = (
        blank(rows.ColumnRow, table=1, name="status", common_values=("queued", "odd-state")),
        blank(rows.ColumnRow, table=1, name="tenant", common_values=("acme", "globex")),
    )
    return blank(
        Observation,
        server=blank(Server, database="acme_prod", role="alice"),
        catalog=blank(Catalog, columns=columns, functions=(blank(rows.FunctionRow, body=BODY),)),
        statement_texts=(blank(rows.StatementTextRow, role="alice", text="NOTIFY jobs, 'acme'"),),
        texts=("SET application_name = 'acme-worker'",),
        first=reading,
        last=reading,
        samples=(blank(Sample, sessions=(blank(SampledSession, application="acme-worker"),)),),
        queues=(queue,),
        probes=(blank(QueueProbe, oid=1, stuck=(stuck,), plans=(plan,)),),
        lacks=(
            Lack(what="rows", reason="alice may not read it", grant="GRANT SELECT ON public.jobs TO alice"),
        ),
    )


def strings(value: object) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, tuple):
        for one in value:
            yield from strings(one)
    elif isinstance(value, dict):
        for one in value.values():
            yield from strings(one)
    elif dataclasses.is_dataclass(value):
        for field in dataclasses.fields(value):
            yield from strings(getattr(value, field.name))


def test_nothing_that_names_anybody_survives(seen: Observation) -> None:
    text = "\n".join(strings(redact(seen)))
    for secret in ("acme", "globex", "alice", "bob", "203.0.113.9", "order-77"):
        assert secret in "\n".join(strings(seen))
        assert secret not in text


def test_the_same_name_has_the_same_stand_in_everywhere(seen: Observation) -> None:
    after = redact(seen)
    (session,), (sampled,) = after.first.sessions, after.samples[0].sessions
    assert session.application == sampled.application
    assert session.role == after.server.role == after.first.prepared[0].owner
    assert after.lacks[0].grant == f"GRANT SELECT ON public.jobs TO {after.server.role}"
    tenant = after.catalog.columns[1].common_values[0]
    assert after.queues[0].claim_sql == SQL.replace("acme", tenant)
    assert after.probes[0].plans[0].parameters == {"$1": f"'{tenant}'", "$2": "'queued'"}


def test_what_the_checks_read_is_kept(seen: Observation) -> None:
    after = redact(seen)
    assert after.catalog.columns[0].common_values == ("queued", "odd-state")
    assert "interval '5 minutes'" in after.catalog.functions[0].body
    assert "\\\"Status\\\" = 'queued'" in (after.probes[0].plans[0].document or "")
    assert after.queues[0].name == "public.jobs"


def test_redacting_twice_changes_nothing_more(seen: Observation) -> None:
    assert redact(redact(seen)) == redact(seen)


@pytest.mark.parametrize(
    ("sql", "shown"),
    [
        ("SELECT 'a''b', 'x'", "SELECT 'text1', 'text2'"),
        ("SELECT E'a\\'b', 'x'", "SELECT E'text1', 'text2'"),
        ("SELECT 'a\\', 'x'", "SELECT 'text1', 'text2'"),
        ("SELECT \"it's\", 'x'", "SELECT \"it's\", 'text1'"),
        ("SELECT 1 -- it's x\nFROM t", "SELECT 1  \nFROM t"),
        ("SELECT /* it's x */ 'y'", "SELECT   'text1'"),
        ("SELECT $$it's x$$, 'y'", "SELECT $$text1$$, 'text2'"),
        ("DO $b$ BEGIN PERFORM f('x'); END $b$", "DO $b$ BEGIN PERFORM f('text1'); END $b$"),
        ("SELECT $1, $2 + 5", "SELECT $1, $2 + 5"),
        ("SELECT 'cut off", "SELECT 'text1"),
        ("SELECT '', '{}', 'now', '1 hour 30 min', '00:05:00'",) * 2,
        ("SELECT '5', '+49 170', '2024-01-01'", "SELECT 'text1', 'text2', 'text3'"),
        ("SELECT 1 FROM jobs WHERE status = 'queued'",) * 2,
    ],
)
def test_literals_go_and_the_statement_stays(seen: Observation, sql: str, shown: str) -> None:
    assert _Redactor(seen).text(sql) == shown


def dataclasses_within(kind: object) -> Iterator[type]:
    if isinstance(kind, type) and dataclasses.is_dataclass(kind):
        yield kind
        for hint in typing.get_type_hints(kind).values():
            yield from dataclasses_within(hint)
    for argument in typing.get_args(kind):
        yield from dataclasses_within(argument)


def test_every_text_is_either_replaced_or_kept_on_purpose(seen: Observation) -> None:
    """A new field of text must be decided upon here, so that none leaks by being forgotten."""
    rules = _Redactor(seen).rules
    for kind in {*dataclasses_within(Observation)}:
        hints = typing.get_type_hints(kind, vars(observation))
        texts = {name for name, hint in hints.items() if "str" in str(hint).replace("structure", "")}
        direct = {name for name in texts if not any(dataclasses_within(hints[name]))}
        decided = {*rules.get(kind, {}), *KEPT.get(kind, ())}
        assert direct - decided == set(), f"{kind.__name__}: replaced or kept?"
        assert decided - direct == set(), f"{kind.__name__} has no such text"


def test_standbys_are_named_by_one_setting_alone(seen: Observation) -> None:
    row = rows.SettingRow(name="synchronous_standby_names", setting="berlin2", unit=None, source="file")
    other = rows.SettingRow(name="wal_level", setting="logical", unit=None, source="file")
    given = dataclasses.replace(
        seen,
        catalog=dataclasses.replace(
            seen.catalog, settings=(row, other, dataclasses.replace(row, setting=""))
        ),
    )
    found = redact(given).catalog.settings
    assert [one.setting for one in found] == ["standbys1", "logical", ""]
