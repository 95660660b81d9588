"""Faults of a queue's tables that their DDL shows. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from pgqdoctor import remedy
from pgqdoctor.lint.flaws import Flaw, named
from pgqdoctor.lint.program import Program, same
from pgqdoctor.lint.tables import ForeignKey, Table
from pgqdoctor.sqlrewrite import quote_ident
from pgqdoctor.words import count

_LAST = {"int2": (32_767, "smallint"), "int4": (2_147_483_647, "integer")}


def foreign_key_unindexed(program: Program) -> Iterator[Flaw]:
    """A child of a queue that has to be scanned for each job deleted."""
    for key in program.schema.foreign_keys:
        if not program.is_queue(key.parent):
            continue
        child = program.schema.table(key.child)
        if child is None or not child.whole or _indexed(child, key):
            continue
        deletes = _deletes(program, key)
        columns = ", ".join(quote_ident(one) for one in key.columns)
        line = key.source.place(key.offset)[0]
        yield Flaw(
            severity="warning" if deletes else "notice",
            source=key.source,
            offset=key.offset,
            last_line=line,
            title=f"Deleting a job of {named(key.parent)} reads all of {named(key.child)}: no index begins with {columns}",
            why=(
                "For each job that is deleted the foreign key looks for rows that reference it. Without an index it reads the whole "
                "table, once per job, while the job's row stays locked."
            ),
            remedies=(
                remedy.create_index(
                    schema=key.child.schema or "public",
                    table=key.child.name,
                    name=f"{key.child.name}_{'_'.join(key.columns)}_idx",
                    columns=[quote_ident(one) for one in key.columns],
                    predicate=None,
                    title=f"Index {columns} of {named(key.child)}",
                    expect="deleting a job looks its children up in the index",
                    risk="one more index to write on each insert",
                ),
            ),
        )


def _indexed(child: Table, key: ForeignKey) -> bool:
    wanted = set(key.columns)
    return any(
        {one.column for one in index.keys[: len(key.columns)]} == wanted and index.predicate is None
        for index in child.indexes
    )


def _deletes(program: Program, key: ForeignKey) -> bool:
    return any(
        write.kind == "delete" and same(write.table, key.parent)
        for placed in program.statements
        for write in placed.statement.writes
    )


def id_exhaustion(program: Program) -> Iterator[Flaw]:
    """A queue whose key counts up to the end of a small integer type."""
    for table in program.schema.tables:
        if not program.is_queue(table.name) or len(table.primary) != 1:
            continue
        column = table.columns.get(table.primary[0])
        if column is None or not column.counts or column.type not in _LAST:
            continue
        last, spelled = _LAST[column.type]
        name = f"{named(table.name)}.{quote_ident(column.name)}"
        yield Flaw(
            severity="warning" if column.type == "int2" else "notice",
            source=column.source,
            offset=column.offset,
            last_line=column.source.place(column.offset)[0],
            title=f"{name} is {spelled}: enqueueing stops for good after {count(last)} jobs, rolled back ones included",
            why=(
                f"At 100 jobs a second that is {_days(last)}. Changing the type later rewrites the table under ACCESS EXCLUSIVE; today, "
                "bigint costs four bytes a row, and often none where alignment pads them anyway."
            ),
            remedies=(
                remedy.corrected_statement(
                    sql=(f"{quote_ident(column.name)} bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY",),
                    title=f"Declare {quote_ident(column.name)} as bigint, and the columns that reference it",
                    expect="the numbers last for ever",
                ),
            ),
        )


def _days(jobs: int) -> str:
    days = jobs / 100 / 86_400
    return f"{days:.0f} days" if days >= 1 else f"{jobs / 100 / 60:.0f} minutes"
