"""Which table a name in a statement means: statements know no search_path, catalogs know no statements."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator

from pgqdoctor.observation import Catalog, QueueIdentity
from pgqdoctor.rows import TableRow
from pgqdoctor.sqlfacts import Condition, Statement, TableName


def same_table(name: TableName, schema: str, table: str) -> bool:
    """Tell whether a name as written may mean the table: a schema that is not written is not compared."""
    return name.name == table and (name.schema is None or name.schema == schema)


def columns_used(statement: Statement) -> dict[TableName, set[str]]:
    """Return the columns that a statement uses of each table it names.

    A column that may belong to a sub-select or to another table of a join is left out.
    """
    used: dict[TableName, set[str]] = defaultdict(set)
    for claim in statement.claims:
        used[claim.table] |= set(_columns(claim.conditions, claim.table))
        if not claim.joins:
            used[claim.table] |= {key.column for key in claim.order if key.column}
    for write in statement.writes:
        used[write.table] |= {one.column for one in write.sets}
        used[write.table] |= set(_columns(write.conditions, write.table))
    for read in statement.reads:
        used[read.table] |= set(_columns(read.conditions, read.table))
    for lock in statement.locks:
        used.setdefault(lock.table, set())
    return used


def _columns(conditions: Iterable[Condition], table: TableName) -> Iterator[str]:
    for one in conditions:
        if one.column is not None and one.table == table:
            yield one.column
        for branch in one.branches:
            yield from _columns(branch, table)


class Names:
    """Resolves names against one catalog. ``moving`` are oids of tables whose counters moved: they win over
    namesakes."""

    def __init__(self, catalog: Catalog, moving: frozenset[int] = frozenset()) -> None:
        self._by_name: dict[str, list[TableRow]] = defaultdict(list)
        self._columns: dict[int, set[str]] = defaultdict(set)
        self._moving = moving
        self._catalog = catalog
        for row in catalog.tables:
            self._by_name[row.name].append(row)
        for column in catalog.columns:
            self._columns[column.table].add(column.name)

    def namesakes(self, name: TableName) -> tuple[TableRow, ...]:
        """Return every table the name may mean."""
        return tuple(
            row for row in self._by_name.get(name.name, ()) if same_table(name, row.schema, row.name)
        )

    def resolve(self, name: TableName, columns: Iterable[str] = ()) -> tuple[TableRow, ...]:
        """Return the tables a name most likely means: one, unless namesakes cannot be told apart.

        A table lacking a column the statement uses is out; then those with movement win, then visible ones.
        """
        wanted = set(columns)
        found = [
            row
            for row in self.namesakes(name)
            if not self._columns.get(row.oid) or wanted <= self._columns[row.oid]
        ]
        for better in (
            [row for row in found if row.oid in self._moving],
            [row for row in found if row.visible],
        ):
            if len(found) > 1 and better:
                found = better
        return tuple(found)

    def root(self, row: TableRow) -> TableRow:
        """Return the topmost partitioned table above a partition; the row itself where it is none."""
        while row.parent is not None:
            above = self._catalog.table(row.parent)
            if above is None:
                break
            row = above
        return row

    def concerns(self, statement: Statement, identity: QueueIdentity) -> bool:
        """Tell whether a statement reads, writes or locks the queue's table or a partition of it."""
        return any(
            self.root(row).oid == identity.oid
            for name, columns in columns_used(statement).items()
            for row in self.resolve(name, columns)
        )
