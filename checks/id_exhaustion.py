"""The ids of the queue run out.

An integer column holds 2,147,483,647 ids. A queue uses them up by its traffic, not by its size: a table of ten rows can
have consumed them all, and from then on every enqueue fails with "nextval: reached maximum value of sequence". INSERT ... ON
CONFLICT DO NOTHING takes a value before it finds the conflict, so that enqueueing the same job again and again burns ids
without adding a row.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Annotated

from pgqdoctor import forecast, remedy
from pgqdoctor.check import COUNTERS, SEQUENCES, Check
from pgqdoctor.finding import Evidence, Finding, Remedy, Severity
from pgqdoctor.forecast import Forecast
from pgqdoctor.lint import definitions as lint_definitions
from pgqdoctor.names import same_table
from pgqdoctor.observation import Observation
from pgqdoctor.queue import Queue
from pgqdoctor.rows import ForeignKeyRow, SequenceRow, TableRow
from pgqdoctor.sqlconflict import looks_first
from pgqdoctor.sqlread import read_sql
from pgqdoctor.sqlrewrite import quote_ident
from pgqdoctor.statements import SeenStatement
from pgqdoctor.words import count, duration, percent, rate, shortened, size

DAY_S = 86_400.0
INTEGERS = {"integer": 2**31 - 1, "smallint": 2**15 - 1}
"""Types that can be made a bigint, with the largest number of each."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """How much time must be left."""

    critical_s: Annotated[
        float, "seconds left at today's rate: a week to change the type of a busy table"
    ] = 7 * DAY_S
    warning_s: Annotated[
        float, "seconds left at today's rate: a quarter, in which the change can be planned"
    ] = 90 * DAY_S
    consumed: Annotated[
        float,
        "share of the ids consumed from which it is a warning where the window shows no rate to count with",
    ] = 0.9
    burned: Annotated[
        float, "ids taken for each row inserted, from which the statement that burns them is named"
    ] = 2.0


def evaluate(seen: Observation, queue: Queue, limits: Limits) -> Iterator[Finding]:
    """Look at each sequence that numbers a column of the queue, or of a table that its jobs refer to."""
    before = {(row.sequence, row.table, row.column): row for row in seen.first.sequences}
    for row in seen.last.sequences:
        place = _place(seen, queue, row)
        if place is None or row.last_value is None or row.cycles or row.increment <= 0:
            continue
        old = before.get((row.sequence, row.table, row.column))
        taken = 0
        if old is not None and old.last_value is not None:
            taken = max(0, row.last_value - old.last_value) // row.increment
        per_s = taken / seen.seconds if seen.seconds > 0 else 0.0
        left = max(0, row.last_possible - row.last_value) // row.increment
        coming = _coming(queue, f"the ids of {place.name}.{quote_ident(row.column)}", left, per_s)
        severity = _severity(row, left, per_s, coming, limits)
        if severity is not None:
            yield _finding(queue, place, row, left, per_s, taken, coming, severity, limits)
        yield from _narrower(queue, row, taken, per_s, limits)


def _coming(queue: Queue, what: str, left: int, per_s: float) -> Forecast | None:
    """Count in ids to come: a sequence may begin anywhere and go in any steps."""
    return forecast.exhausted(what=what, used=0, limit=left, per_second=per_s, queue=queue.name)


def _narrower(queue: Queue, row: SequenceRow, taken: int, per_s: float, limits: Limits) -> Iterator[Finding]:
    """Look at columns of other tables that refer to the queue's id and hold smaller numbers than it."""
    if row.table not in queue.oids:
        return
    for key in queue.foreign_keys:
        if key.parent not in queue.oids or key.child in queue.oids:
            continue
        for child, parent, kind in zip(key.child_columns, key.parent_columns, key.child_types, strict=False):
            possible = INTEGERS.get(kind)
            if parent != row.column or possible is None or possible >= row.last_possible:
                continue
            # The column takes the place of the sequence's own end; the sequence itself stays as it is.
            narrow = replace(
                row, table=key.child, column=child, column_type=kind, last_possible=possible, identity=True
            )
            left = max(0, possible - (row.last_value or 0)) // row.increment
            coming = _coming(
                queue, f"the ids that {key.child_name}.{quote_ident(child)} can hold", left, per_s
            )
            severity = _severity(narrow, left, per_s, coming, limits)
            if severity is None:
                continue
            place = _Place(
                name=key.child_name,
                oids=frozenset({key.child}),
                rows=round(max(key.child_rows, 0.0)),
                inserted=queue.churn.inserted,
                key=key,
                burner=None,
            )
            yield replace(
                _finding(queue, place, narrow, left, per_s, taken, coming, severity, limits),
                why=(
                    f"{queue.name}.{quote_ident(row.column)} is of type {row.column_type}, and {key.child_name}.{quote_ident(child)}, which refers to "
                    f"it by {quote_ident(key.name)}, holds no number above {count(possible)}: from that job on no row of {key.child_name} can be added."
                ),
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Place:
    """The table whose ids run out: the queue, or one that a foreign key of the queue points at."""

    name: str
    oids: frozenset[int]
    rows: int
    inserted: int
    """Rows inserted in the window."""
    key: ForeignKeyRow | None
    """The queue's foreign key, None for the queue itself."""
    burner: str | None
    """The observed INSERT that adds the fewest rows per call."""


def _place(seen: Observation, queue: Queue, row: SequenceRow) -> _Place | None:
    if row.table in queue.oids:
        return _Place(
            name=queue.name,
            oids=queue.oids,
            rows=queue.rows,
            inserted=queue.churn.inserted,
            key=None,
            burner=_burner((one, one.text) for one, _ in queue.writes("insert")),
        )
    key = next(
        (one for one in queue.foreign_keys if one.child in queue.oids and one.parent == row.table), None
    )
    table = seen.catalog.table(row.table)
    if key is None or table is None or row.column not in key.parent_columns:
        return None
    first = next((one.inserted for one in seen.first.tables if one.oid == row.table), 0)
    last = next((one.inserted for one in seen.last.tables if one.oid == row.table), 0)
    return _Place(
        name=remedy.qualified(table.schema, table.name),
        oids=frozenset({table.oid}),
        rows=round(max(table.rows, 0.0)),
        inserted=max(0, last - first),
        key=key,
        burner=_burner(_inserts(seen, table)),
    )


def _inserts(seen: Observation, table: TableRow) -> Iterator[tuple[_Counted, str]]:
    """Executions of the INSERTs into a table that is no queue, whose statements are filed under none."""
    before = {one.key: one for one in seen.first.statements}
    after = {one.key: one for one in seen.last.statements}
    for text in seen.statement_texts:
        last = after.get(text.key)
        if last is None or text.text is None or table.name not in text.text:
            continue
        if any(
            write.kind == "insert" and same_table(write.table, table.schema, table.name)
            for statement in read_sql(text.text).statements
            for write in statement.writes
        ):
            first = before.get(text.key)
            yield (
                _Counted(
                    calls=last.calls - (first.calls if first else 0),
                    rows=last.rows - (first.rows if first else 0),
                ),
                text.text,
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Counted:
    calls: int
    rows: int


def _severity(
    row: SequenceRow, left: int, per_s: float, coming: Forecast | None, limits: Limits
) -> Severity | None:
    if left == 0:
        return "critical"
    if per_s > 0:
        if coming is None or coming.seconds is None:
            return None
        if coming.seconds < limits.critical_s:
            return "critical"
        return "warning" if coming.seconds < limits.warning_s else None
    consumed = (row.last_value or 0) / row.last_possible
    return "warning" if consumed >= limits.consumed else None


def _finding(
    queue: Queue,
    place: _Place,
    row: SequenceRow,
    left: int,
    per_s: float,
    taken: int,
    coming: Forecast | None,
    severity: Severity,
    limits: Limits,
) -> Finding:
    name = remedy.qualified(row.schema, row.name)
    consumed = (row.last_value or 0) / row.last_possible
    inserted = place.inserted
    burns = taken > 0 and taken >= limits.burned * max(inserted, 1)
    if left == 0:
        when = "every insert fails"
    elif coming is not None and coming.seconds is not None:
        when = f"the rest lasts about {duration(coming.seconds)} at {rate(per_s)}"
    else:
        when = f"{count(left)} are left"
    source = "pg_sequences"
    evidence = [
        Evidence(what="last value", value=row.last_value or 0, unit="", source=source),
        Evidence(
            what="largest possible",
            value=row.last_possible,
            unit="",
            source=f"{source}, type {row.column_type}",
        ),
        Evidence(what="ids left", value=left, unit="", source=source),
        Evidence(what="ids taken", value=round(per_s, 2), unit="per second", source=source),
        Evidence(
            what="rows inserted",
            value=round(queue.churn.per_second(inserted), 2),
            unit="per second",
            source="pg_stat_user_tables",
        ),
    ]
    evidence.extend(forecast.evidence("time left at this rate", coming if left else None))
    burner = place.burner if burns else None
    if burner is not None:
        evidence.append(
            Evidence(what="burned by", value=shortened(burner, 200), unit="", source="pg_stat_statements")
        )
    said = (
        f" {count(taken)} ids were taken for {count(inserted)} rows: a statement that ends in a conflict, or is rolled back, "
        "has consumed its id all the same."
        if burns
        else ""
    )
    return Finding(
        check=CHECK.id,
        severity=severity,
        queue=queue.name,
        subject=row.column if place.key is None else f"{place.name}.{row.column}",
        title=f"{percent(consumed)} of the ids of {place.name}.{quote_ident(row.column)} ({row.column_type}) are consumed: {when}",
        why=(
            f"Sequence {name} stops at {count(row.last_possible)}, whatever the number of rows (now {count(place.rows)}). When it is "
            f"used up, {_harm(queue, place)}.{said}"
        ),
        evidence=tuple(evidence),
        remedies=(*_remedies(queue, place, row), *_look_first(burner)),
        relations=tuple(sorted(queue.oids | place.oids)),
    )


def _harm(queue: Queue, place: _Place) -> str:
    if place.key is None:
        return "no job can be enqueued"
    return f"no row can be added that a job of {queue.name} refers to by {quote_ident(place.key.name)}"


def _burner(inserts: Iterable[tuple[SeenStatement | _Counted, str]]) -> str | None:
    """The INSERT that adds the fewest rows per call."""
    found = [(one.calls - one.rows, text) for one, text in inserts if one.calls > one.rows]
    return max(found)[1] if found else None


def _look_first(burner: str | None) -> Iterator[Remedy]:
    """The statement that burns ids, as it should read."""
    better = looks_first(burner) if burner is not None else None
    if better is not None:
        yield remedy.corrected_statement(
            sql=(better,),
            title="Look before inserting: a row that is there already then takes no id",
            expect="an id is taken only for a new row, and in the rare case that two sessions insert the same at once",
        )


def _remedies(queue: Queue, place: _Place, row: SequenceRow) -> Iterator[Remedy]:
    if row.column_type not in INTEGERS:
        return
    column, sequence = quote_ident(row.column), remedy.qualified(row.schema, row.name)
    children = [
        (key.child_name, quote_ident(child))
        for key in queue.foreign_keys
        if key.parent in place.oids
        for child, parent in zip(key.child_columns, key.parent_columns, strict=False)
        if parent == row.column
    ]
    tables = [*dict.fromkeys(children), (place.name, column)]
    sql = [f"ALTER TABLE {table} ALTER COLUMN {name} TYPE bigint;" for table, name in tables]
    undo = [
        f"ALTER TABLE {table} ALTER COLUMN {name} TYPE {row.column_type};" for table, name in reversed(tables)
    ]
    if not row.identity:
        sql.append(f"ALTER SEQUENCE {sequence} AS bigint;")
        undo.append(f"ALTER SEQUENCE {sequence} AS {row.column_type};")
    probe = queue.probe
    held = (
        (probe.table_bytes or 0) + (probe.index_bytes or 0) if probe is not None and place.key is None else 0
    )
    what = f" {size(held)} are" if held else " They are"
    also = f", and {', '.join(name for name, _ in dict.fromkeys(children))} with it" if children else ""
    yield Remedy(
        title=f"Make {column} a bigint{also}",
        kind="sql",
        sql=(remedy.LOCK_TIMEOUT, "BEGIN;", *sql, "COMMIT;"),
        undo=(remedy.LOCK_TIMEOUT, "BEGIN;", *undo, "COMMIT;"),
        lock="ACCESS EXCLUSIVE",
        blocks="reads and writes",
        restart=False,
        risk=(
            f"rewrites the table and its indexes while everything waits:{what} written anew. Clients that bind the id as a 32-bit "
            "number must be changed first. It fails while a view or a rule uses the column; such views must be dropped and created again. "
            "The way back fails once an id is larger"
        ),
        expect="9,223,372,036,854,775,807 ids instead: enqueueing goes on at once",
    )


CHECK = Check(
    title="Ids run out",
    needs=(COUNTERS, SEQUENCES),
    limits=Limits(),
    evaluate=evaluate,
    lint=lint_definitions.id_exhaustion,
    references=(
        "https://www.postgresql.org/docs/current/datatype-numeric.html#DATATYPE-SERIAL",
        "https://www.postgresql.org/docs/current/functions-sequence.html",
    ),
    look_alikes=(
        "a bigint id, however large",
        "an integer id with years left at today's rate",
        "a sequence that cycles on purpose",
    ),
)
