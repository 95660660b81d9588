"""Tables as a person names them, and as the doctor does. Pure."""

from __future__ import annotations

from pgqdoctor.names import Names
from pgqdoctor.observation import Catalog
from pgqdoctor.rows import TableRow
from pgqdoctor.sqlrewrite import quote_ident


def qualified(row: TableRow) -> str:
    """Return schema.table, quoted as SQL needs it."""
    return f"{quote_ident(row.schema)}.{quote_ident(row.name)}"


def table_named(name: str, catalog: Catalog) -> TableRow | None:
    """Return the table that a name given by a person means: schema.table, table, quoted or not."""
    for row in catalog.tables:
        plain = f"{row.schema}.{row.name}"
        if name in (qualified(row), plain):
            return row
    matches = [row for row in catalog.tables if name in (row.name, quote_ident(row.name))]
    visible = [row for row in matches if row.visible]
    return next(iter(visible or matches), None)


def queue_named(name: str, catalog: Catalog) -> TableRow | None:
    """Return the queue that a name given by a person means: of a partition the table it belongs to."""
    row = table_named(name, catalog)
    return Names(catalog).root(row) if row is not None else None
