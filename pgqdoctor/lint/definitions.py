"""Faults of a queue's tables that their DDL shows. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from pgqdoctor import remedy
from pgqdoctor.lint.flaws import Flaw, named
from pgqdoctor.lint.program import Program, same
from pgqdoctor.lint.tables import ForeignKey, Index, Table
from pgqdoctor.lookalikes import names_work
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


def duplicate_index(program: Program) -> Iterator[Flaw]:
    """Two indexes of a queue that answer the same questions."""
    for table in program.schema.tables:
        queue = program.is_queue(table.name)
        # Many migrations hold no claim: there the name has to tell, and the indexes to be equal.
        if not (queue or names_work(table.name.name)):
            continue
        for index, other in _repeats(table):
            exact = _same_rows(index, other) and index.spelled == other.spelled
            if exact or queue:
                yield _repeated(table, index, other, exact=exact)


def _repeats(table: Table) -> Iterator[tuple[Index, Index]]:
    """Yield the indexes that can go, each with the one that does its work; of two equal ones the later can go."""
    gone: set[int] = set()
    for place in reversed(range(len(table.indexes))):
        index = table.indexes[place]
        for number, other in enumerate(table.indexes):
            if number == place or number in gone or index.constraint or not _same_rows(index, other):
                continue
            equal = index.spelled == other.spelled
            begins = (
                index.method == "btree"
                and not index.rest[0]
                and other.spelled[: len(index.spelled)] == index.spelled
            )
            # What is unique enforces something, unless the other enforces the same.
            if (equal and (other.unique or not index.unique)) or (begins and not equal and not index.unique):
                gone.add(place)
                yield index, other
                break


def _same_rows(index: Index, other: Index) -> bool:
    """Tell whether two indexes are of one kind and hold the same rows; what the first includes the other has to include."""
    return (
        index.method == other.method
        and index.rest[2] == other.rest[2]
        and (index.rest[:2] == other.rest[:2] or index.rest[:2] == ("", ""))
    )


def _repeated(table: Table, index: Index, other: Index, *, exact: bool) -> Flaw:
    line, _ = index.source.place(index.offset)
    where, _ = other.source.place(other.offset)
    place = f"line {where}" if other.source is index.source else f"{other.source.name}:{where}"
    name = f"Index {quote_ident(index.name)}" if index.name else "This index"
    stays = quote_ident(other.name) if other.name else ", ".join(other.spelled)
    what = "repeats" if exact else "only holds the first columns of"
    return Flaw(
        severity="warning" if exact else "notice",
        source=index.source,
        offset=index.offset,
        last_line=line,
        title=f"{name} of {named(table.name)} {what} {stays} ({place})",
        why=(
            "It answers no query that the other could not answer. Each insert and each update that is not heap-only writes both, and "
            "each vacuum reads both."
            + (
                ""
                if exact
                else " The other one's entries are wider, so a scan of a long range reads some more pages, which a claim of a few rows "
                "does not feel."
            )
        ),
        remedies=(
            remedy.corrected_statement(
                sql=(f"DROP INDEX CONCURRENTLY {_qualified(table, index.name)};",),
                title="Leave it out of the files, and drop it where it was already built",
                expect="one entry less for each row written",
            ),
        )
        if index.name
        else (),
    )


def _qualified(table: Table, index: str) -> str:
    """An index is in its table's schema; where the files do not tell which, the search path decides for both."""
    schema = table.name.schema
    return f"{quote_ident(schema)}.{quote_ident(index)}" if schema else quote_ident(index)
