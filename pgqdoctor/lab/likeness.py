"""A copy of a live queue's definition for the lab, with rows that are made up. Pure.

Columns, defaults, primary key, unique constraints and indexes are taken over; of the planner's statistics only
widths, shares of NULL, numbers of distinct values and the shares of the states. No value of any row is: the names
of the states, which stand in the claim anyway, are the only texts. What cannot be taken over is said.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Final

from pgqdoctor.errors import USAGE, PgqdoctorError
from pgqdoctor.lab.scenario import OLDEST_SERVER, Client, Scenario
from pgqdoctor.lab.subject import NONE, OWN, PARTIAL, Subject, as_job
from pgqdoctor.planning import literal_for
from pgqdoctor.queue import Queue
from pgqdoctor.remedy import literal
from pgqdoctor.rows import ColumnRow, IndexRow
from pgqdoctor.sqlparameters import fill_parameters, parameters_of
from pgqdoctor.sqlrewrite import quote_ident

MOST_OTHERS: Final = 20
"""Rows of other states per ready job: a table with a million finished rows is not rebuilt for each cell."""
WIDE: Final = 500
"""Bytes from which a made-up text must not repeat itself: TOAST would compress it away."""

BACKLOG: Final = 1_000
WORKERS: Final = 4
LEAST_RATE: Final = 50.0
MOST_RATE: Final = 400.0
"""Jobs per second of a copy under load: enough to show a fault in seconds, and no more than two cores carry."""
SETTLE_S: Final = 6.0

_NUMBERS: Final = {
    "smallint": 32_000,
    "integer": 2_000_000,
    "bigint": 2_000_000,
    "numeric": 1_000_000,
    "real": 1_000_000,
    "double precision": 1_000_000,
    "money": 1_000_000,
}
"""Numeric types and a range that each of them holds."""
_TEXTS: Final = ("text", "character varying", "character", "name")
_BUILT_IN_METHODS: Final = ("btree", "hash", "gin", "gist", "brin", "spgist")
_BY_CATEGORY: Final = {
    "S": "text",
    "N": "numeric",
    "B": "boolean",
    "D": "timestamp with time zone",
    "A": "text[]",
}
"""What stands in for a type that the lab's server does not have, by pg_type.typcategory."""
_OTHER_SCHEMA: Final = re.compile(
    r'(?<![\w"\'.])(?:"(?:[^"]|"")+"|[a-z_][\w$]*)\.(?:"(?:[^"]|"")+"|[a-z_][\w$]*)(?=\s*\(|\s*\)|\s|,|$|::)'
)
"""A qualified name: pg_get_expr qualifies what is not in pg_catalog."""
_NUMBERED: Final = re.compile(r"\bnextval\(")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Column:
    """A column of the copy: how it is declared and how a value is made up (None leaves it to the default)."""

    name: str
    declared: str
    made_up: str | None


class _Copy:
    """One table being copied; collects notes."""

    def __init__(self, queue: Queue) -> None:
        self.queue = queue
        self.notes: list[str] = []
        self.types: dict[str, str] = {}
        self.enums: list[str] = []
        self.unique = {
            number: len(index.key_columns)
            for index in queue.indexes
            if index.unique and index.valid
            for number in index.key_columns[-1:]
        }
        """Columns that must not repeat: the last one of each unique key is enough."""

    def local(self, expression: str) -> str:
        """An expression with the names of copied types instead of the live ones."""
        for live, here in self.types.items():
            expression = expression.replace(live, here)
        return expression

    def type_of(self, column: ColumnRow) -> str:
        name = column.type_name
        if column.enum_labels:
            here = f"lab_enum_{len(self.enums) + 1}" if name not in self.types else self.types[name]
            if name not in self.types:
                labels = ", ".join(literal(label) for label in column.enum_labels)
                self.enums.append(f"CREATE TYPE {here} AS ENUM ({labels})")
                self.types[name] = here
            return here
        if name == "character":
            return "text"  # Without its length, which is not known here, it would hold one letter.
        if "." in name.removesuffix("[]"):
            instead = _BY_CATEGORY.get(column.type_category, "text")
            self.types[name] = instead
            self.notes.append(f"Column {column.name} has type {name}, which the copy replaces by {instead}.")
            return instead
        return name


def subject_like(queue: Queue) -> Subject:
    """The copy of a live queue.

    Raises PgqdoctorError (usage) for a queue whose claim cannot be told, or that has no single-column key.
    """
    copy = _Copy(queue)
    identity = queue.identity
    columns = tuple(_columns(copy))
    key = _key(queue)
    ready, state_ready = _ready(copy), identity.ready_state_predicate
    order = _order(queue, key.name)
    table = quote_ident(identity.table)
    unique, plain = _indexes(copy, table)
    partial_where = copy.local(state_ready or ready)
    if queue.foreign_keys:
        copy.notes.append("Foreign keys are left out: what they refer to is not copied.")
    if queue.triggers:
        copy.notes.append("Triggers are left out.")
    if queue.leaves and queue.leaves != (queue.table,):
        copy.notes.append("The partitions became one table.")
    copy.notes.append("Check constraints are left out, and no row of the live table was read.")
    body = ",\n".join(f"    {column.declared}" for column in columns)
    return Subject(
        title=f"a copy of {queue.name}",
        table=table,
        create=(
            "DROP SEQUENCE IF EXISTS lab_numbers",
            *(statement for one in copy.enums for statement in _anew(one)),
            "CREATE SEQUENCE lab_numbers",
            f"CREATE TABLE {table} (\n{body}\n)",
            *unique,
        ),
        forms={
            OWN: plain,
            NONE: (),
            PARTIAL: (f"CREATE INDEX lab_ready_idx ON {table} ({order}) WHERE {partial_where}",),
        },
        fill=_fill(copy, table, columns, _state_values(queue, ready=True)),
        others=_others(copy, table, columns),
        key=quote_ident(key.name),
        ready=ready,
        order=order,
        taken=_taken(copy),
        no_key=_no_key(key),
        fillfactor=queue.fillfactor,
        notes=tuple(copy.notes),
    )


def scenario_like(queue: Queue) -> tuple[Scenario, tuple[str, ...]]:
    """A scenario of the copied queue under its own claim, and sentences on what it lacks.

    Jobs come at the live rate, within LEAST_RATE and MOST_RATE, and workers claim and finish a little faster. Raises
    PgqdoctorError as ``subject_like`` does.
    """
    subject = subject_like(queue)
    copy = _Copy(queue)
    for column in queue.columns:
        copy.type_of(column)
    claim = _own_claim(copy, subject)
    notes = subject.notes
    if claim is None:
        notes = (*notes, "Its own claim could not be replayed; a sound SKIP LOCKED claim stands in for it.")
        claim = f"{as_job(subject.claim, subject.key)} \\aset\n"
    rate = min(MOST_RATE, max(LEAST_RATE, queue.churn.per_second(queue.churn.inserted)))
    options = ", ".join(f"{name} = {value}" for name, value in queue.option.items() if "." not in name)
    statements = (
        *subject.create,
        *subject.forms[subject.own_form],
        *((f"ALTER TABLE {subject.table} SET ({options})",) if options else ()),
        *(text.replace("{jobs}", str(BACKLOG)) for text in (subject.others, subject.fill) if text),
        f"VACUUM ANALYZE {subject.table}",
    )
    return (
        Scenario(
            name="like",
            title=subject.title,
            kind="sick",
            mechanism="The definition of a live queue, with rows and load made up.",
            queue=None,
            also_queues=(),
            clients=(
                _client("enqueue", subject.enqueue, 1, rate),
                _client(
                    "worker", f"\\set job {subject.no_key}\n{claim}{subject.finish}", WORKERS, 1.05 * rate
                ),
            ),
            sessions=(),
            expected=(),
            allowed=(),
            forbidden=(),
            cures=None,
            settle_s=SETTLE_S,
            min_version=OLDEST_SERVER,
            max_version=None,
            setup=";\n".join(statements) + ";\n",
            cure=None,
        ),
        notes,
    )


def _client(name: str, script: str, connections: int, rate: float) -> Client:
    return Client(
        name=name,
        application_name=name,
        script=script,
        cured_script=None,
        connections=connections,
        rate=rate,
        cured_rate=None,
        protocol="simple",
        database=None,
    )


def _own_claim(copy: _Copy, subject: Subject) -> str | None:
    """The live claim as pgbench lines that set ``job``; None where it cannot be replayed on the copy."""
    queue = copy.queue
    if not queue.claims:
        return None
    live = queue.claims[0].seen.text
    columns = {column.name: column for column in queue.columns}
    try:
        identity = queue.identity
        if identity.roles.state is not None and not identity.running_values:
            identity = replace(identity, running_values=(_running(copy, identity.roles.state),))
        found = {use.number: literal_for(use, identity, columns) for use in parameters_of(live)}
        if queue.plan is not None:
            found |= {int(name[1:]): value for name, value in queue.plan.probe.parameters.items()}
        given = {number: value for number, value in found.items() if value is not None}
        text = fill_parameters(live, given).strip().rstrip(";")
    except ValueError:
        return None
    text = copy.local(text.replace(queue.name, subject.table))
    returning = re.search(rf"\bRETURNING\s+(?:\w+\.)?{re.escape(subject.key)}\b", text, re.IGNORECASE)
    if returning is None or re.search(r"\$\d|(?<!:):(?!:)", text) or _OTHER_SCHEMA.search(text):
        return None
    return f"{text[: returning.end()]} AS job{text[returning.end() :]} \\aset\n"


def _anew(enum: str) -> Iterator[str]:
    name = enum.split(" ")[2]
    yield f"DROP TYPE IF EXISTS {name} CASCADE"
    yield enum


def _key(queue: Queue) -> ColumnRow:
    names = queue.identity.roles.key
    found = queue.column(names[0]) if len(names) == 1 else None
    if found is None:
        raise _impossible(queue, "it has no primary key of one column")
    return found


def _ready(copy: _Copy) -> str:
    identity = copy.queue.identity
    predicate = identity.ready_predicate or identity.ready_state_predicate
    if predicate is None:
        raise _impossible(
            copy.queue, "which jobs are ready cannot be told from its claims, indexes or columns"
        )
    return copy.local(predicate)


def _order(queue: Queue, key: str) -> str:
    roles = queue.identity.roles
    names = [name for name in (roles.priority, roles.run_at, key) if name is not None]
    return ", ".join(quote_ident(name) for name in dict.fromkeys(names))


def _taken(copy: _Copy) -> str:
    """What a claim sets: the state, and the columns that say when and how often."""
    queue, roles = copy.queue, copy.queue.identity.roles
    sets: list[str] = []
    if roles.state is not None:
        sets.append(f"{quote_ident(roles.state)} = {literal(_running(copy, roles.state))}")
    for name in (roles.claimed_at, roles.lease):
        column = queue.column(name) if name is not None else None
        if column is not None and column.type_category == "D" and not column.generated:
            sets.append(f"{quote_ident(column.name)} = now()")
    attempts = queue.column(roles.attempts) if roles.attempts is not None else None
    if attempts is not None and attempts.type_category == "N":
        name = quote_ident(attempts.name)
        sets.append(f"{name} = coalesce({name}, 0) + 1")
    if not sets:
        raise _impossible(queue, "what a claim changes cannot be told")
    return ", ".join(dict.fromkeys(sets))


def _running(copy: _Copy, state: str) -> str:
    """The state of a claimed job; where no claim and no row told it, one that stands for it."""
    identity, column = copy.queue.identity, copy.queue.column(state)
    if identity.running_values:
        return identity.running_values[0]
    used = {*identity.ready_values, *identity.finished_values}
    if column is not None and column.type_category == "B":
        choices: tuple[str, ...] = ("true", "false")
    elif column is not None and column.enum_labels:
        choices = column.enum_labels
    elif column is not None and column.type_category == "N":
        choices = tuple(str(number) for number in range(len(used) + 1))
    else:
        choices = ("running",)
    found = next((value for value in choices if value not in used), None)
    if found is None:
        raise _impossible(copy.queue, f"no value of {state} is known that a claimed job has")
    copy.notes.append(f"Which {state} a claimed job has is not known; {found} stands for it.")
    return found


def _no_key(key: ColumnRow) -> str:
    if key.type_category == "N":
        return "0"
    return "00000000-0000-0000-0000-000000000000" if key.type_name == "uuid" else "none"


# --- columns ------------------------------------------------------------------------------------------


def _columns(copy: _Copy) -> Iterator[_Column]:
    queue = copy.queue
    key = queue.identity.roles.key
    # Types first: an expression may name the type of a column that comes later.
    types = {column.name: copy.type_of(column) for column in queue.columns}
    for column in queue.columns:
        name, type_name = quote_ident(column.name), types[column.name]
        default = copy.local(column.default_expression) if column.default_expression else None
        if column.generated and default is not None:
            if _OTHER_SCHEMA.search(default):
                copy.notes.append(
                    f"Column {column.name} is generated by a function that is not copied; it is left out."
                )
                continue
            yield _Column(
                name=column.name,
                declared=f"{name} {type_name} GENERATED ALWAYS AS ({default}) STORED",
                made_up=None,
            )
            continue
        numbered = (default is not None and _NUMBERED.search(default)) or (
            (column.name,) == key and type_name in ("smallint", "integer", "bigint")
        )
        if numbered:
            yield _Column(
                name=column.name,
                declared=f"{name} {type_name} GENERATED BY DEFAULT AS IDENTITY",
                made_up=None,
            )
            continue
        if default is not None and _OTHER_SCHEMA.search(default):
            copy.notes.append(f"The default of column {column.name} is left out: it uses what is not copied.")
            default = None
        declared = f"{name} {type_name}"
        if default is not None:
            declared += f" DEFAULT {default}"
        if column.not_null:
            declared += " NOT NULL"
        yield _Column(name=column.name, declared=declared, made_up=_made_up(copy, column, type_name, default))


def _made_up(copy: _Copy, column: ColumnRow, type_name: str, default: str | None) -> str | None:
    """An expression over ``g`` for one value; None where the default serves, or a NULL."""
    roles = copy.queue.identity.roles
    if column.name in (roles.claimed_at, roles.finished_at, roles.lease, roles.heartbeat, roles.owner):
        if not column.not_null:
            return "NULL"
        return None if default is not None else _value(copy, column, type_name)
    if column.name in (roles.run_at, roles.created_at) and column.type_category == "D":
        return "now() - (random() * interval '1 hour')"
    text = type_name in _TEXTS or type_name in ("jsonb", "json", "bytea")
    if default is not None and not text and column.number not in copy.unique:
        return None
    value = _value(copy, column, type_name)
    if value is None:
        return None
    share = column.null_fraction or 0.0
    if share > 0 and not column.not_null:
        return f"CASE WHEN random() < {share:.4f} THEN NULL ELSE {value} END"
    return value


def _value(copy: _Copy, column: ColumnRow, type_name: str) -> str | None:
    unique = column.number in copy.unique
    width = max(1, (column.average_width or 8) - 1)  # the header of a short value is one byte
    if type_name in _TEXTS:
        return _text(width, unique, column.distinct)
    if type_name in ("jsonb", "json"):
        return f"jsonb_build_object('x', {_text(max(1, width - 14), unique, column.distinct)})::{type_name}"
    if type_name == "bytea":
        return f"convert_to({_text(width, unique, column.distinct)}, 'UTF8')"
    if type_name == "uuid":
        return "gen_random_uuid()"
    if type_name == "boolean":
        return "false"
    if type_name in _NUMBERS:
        if unique:
            return f"nextval('lab_numbers')::{type_name}"
        many = _distinct(column.distinct, _NUMBERS[type_name])
        return f"floor(random() * {many})::integer::{type_name}"
    if column.type_category == "D":
        moved = "g * interval '1 microsecond'" if unique else "random() * interval '1 hour'"
        return (
            f"(clock_timestamp() - {moved})::{type_name}"
            if "time" in type_name or type_name == "date"
            else None
        )
    if column.enum_labels:
        return f"{literal(column.enum_labels[0])}::{type_name}"
    if type_name.endswith("[]"):
        return f"'{{}}'::{type_name}"
    if column.not_null and column.default_expression is None:
        raise _impossible(
            copy.queue, f"column {column.name} is NOT NULL, and the lab cannot make up a {type_name}"
        )
    return None


def _text(width: int, unique: bool, distinct: float | None) -> str:
    if unique:
        return f"rpad(md5(random()::text || clock_timestamp()::text || g), {max(32, width)}, 'x')"
    if width > WIDE:
        return (
            f"(SELECT string_agg(md5(random()::text || g), '') FROM generate_series(1, {(width + 31) // 32}))"
        )
    many = _distinct(distinct, 1_000_000)
    return f"rpad(floor(random() * {many})::integer::text, {width}, 'x')"


def _distinct(distinct: float | None, most: int) -> int:
    """A number of distinct values from pg_stats.n_distinct, which is negative where it grows with the table."""
    return most if distinct is None or distinct <= 0 else max(1, min(most, int(distinct)))


# --- rows -------------------------------------------------------------------------------------------------


def _state_values(queue: Queue, *, ready: bool) -> Mapping[str, float]:
    """The states and their shares by the planner's statistics: the ready ones, or all others."""
    identity = queue.identity
    state = queue.column(identity.roles.state) if identity.roles.state is not None else None
    if state is None:
        return {}
    shares = dict(zip(state.common_values, state.common_fractions, strict=False))
    if state.type_category == "B":
        shares = {"true" if value in ("t", "true") else "false": share for value, share in shares.items()}
    if ready:
        return {value: shares.get(value, 0.0) for value in identity.ready_values[:1]}
    return {value: share for value, share in shares.items() if value not in identity.ready_values}


def _fill(
    copy: _Copy,
    table: str,
    columns: tuple[_Column, ...],
    states: Mapping[str, float],
    *,
    rows: str = "{jobs}",
) -> str:
    """INSERT of ``rows`` rows whose states have these shares among each other."""
    state = copy.queue.identity.roles.state
    names: list[str] = []
    values: list[str] = []
    for column in columns:
        value = column.made_up
        if column.name == state:
            value = _drawn(states) if states else None
            row = copy.queue.column(column.name)
            if value is not None and row is not None:
                value = f"({value})::{copy.types.get(row.type_name, row.type_name)}"
        if value is not None:
            names.append(quote_ident(column.name))
            values.append(value)
    # The subquery draws the random number of a row once, for all branches of a CASE over it.
    source = f"(SELECT g, random() AS lab_draw FROM generate_series(1, {rows}) AS g) AS made"
    if not names:
        first = next((column for column in columns if column.made_up is None), columns[0])
        return f"INSERT INTO {table} ({quote_ident(first.name)}) SELECT nextval('lab_numbers') FROM {source}"
    return f"INSERT INTO {table} ({', '.join(names)}) SELECT {', '.join(values)} FROM {source}"


def _drawn(states: Mapping[str, float]) -> str:
    """An SQL expression that draws one of the states by its share."""
    whole = sum(states.values())
    if len(states) == 1 or whole <= 0:
        return literal(next(iter(states)))
    branches, reached = "", 0.0
    for value, share in tuple(states.items())[:-1]:
        reached += share / whole
        branches += f" WHEN lab_draw < {reached:.6f} THEN {literal(value)}"
    return f"CASE{branches} ELSE {literal(tuple(states)[-1])} END"


def _others(copy: _Copy, table: str, columns: tuple[_Column, ...]) -> str:
    """The rows of other states that stand beside the ready ones, in proportion, up to MOST_OTHERS of each."""
    others = _state_values(copy.queue, ready=False)
    share = sum(others.values())
    if not others or share <= 0:
        return ""
    ready = max(1e-6, 1.0 - share)
    factor = min(float(MOST_OTHERS), share / ready)
    if share / ready > MOST_OTHERS:
        copy.notes.append(
            f"The live table has {share / ready:,.0f} rows of other states per ready job; the copy has {MOST_OTHERS}."
        )
    return _fill(copy, table, columns, others, rows=f"({{jobs}} * {factor:.4f})::integer")


# --- indexes ----------------------------------------------------------------------------------------------


def _indexes(copy: _Copy, table: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The unique keys, which every design keeps, and the other indexes."""
    unique: list[str] = []
    plain: list[str] = []
    names = {row.number: quote_ident(row.name) for row in copy.queue.columns}
    for index in copy.queue.indexes:
        if not index.valid:
            continue
        if index.primary:
            unique.append(
                f"ALTER TABLE {table} ADD PRIMARY KEY ({', '.join(names[number] for number in index.key_columns)})"
            )
            continue
        statement = _index(copy, index, table)
        if statement is not None:
            (unique if index.unique else plain).append(statement)
    return tuple(unique), tuple(plain)


def _index(copy: _Copy, index: IndexRow, table: str) -> str | None:
    rest = (index.definition or "").partition(" USING ")[2]
    local = copy.local(rest)
    if not rest or index.method not in _BUILT_IN_METHODS or _OTHER_SCHEMA.search(local):
        copy.notes.append(f"Index {index.name} is left out: it uses what is not copied.")
        return None
    kind = "UNIQUE INDEX" if index.unique else "INDEX"
    return f"CREATE {kind} {quote_ident(index.name)} ON {table} USING {local}"


def _impossible(queue: Queue, why: str) -> PgqdoctorError:
    return PgqdoctorError(
        f"the lab cannot copy {queue.name}: {why}",
        hint="Without --like the experiment runs on the lab's generic queue.",
        exit_code=USAGE,
    )
