"""What a person names: a queue by --queue, its claim by --claim-query; and why it cannot be that. Pure."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from pgqdoctor.names import Names
from pgqdoctor.observation import Catalog
from pgqdoctor.rows import TableRow
from pgqdoctor.sqlfacts import Statement, TableName
from pgqdoctor.sqlread import read_sql
from pgqdoctor.sqlrewrite import quote_ident
from pgqdoctor.words import shortened

_KINDS: Final = {
    "v": "a view",
    "m": "a materialised view",
    "f": "a foreign table",
    "S": "a sequence",
    "i": "an index",
    "I": "a partitioned index",
    "c": "a composite type",
    "t": "a TOAST table",
}
"""pg_class.relkind in words."""
_LISTED: Final = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """Why something given cannot be used, and what to give instead."""

    message: str
    hint: str


def relation_fault(found: Mapping[str, Any]) -> Fault | None:
    """Say what a relation is that is no table which can be a queue; ``found`` is a row of the probe "relations"."""
    name = f"{quote_ident(str(found['schema']))}.{quote_ident(str(found['name']))}"
    kind = str(found["kind"])
    tables = [str(one) for one in found["tables"]]
    if kind in ("r", "p"):
        if found["persistence"] == "t":
            return Fault(
                message=f"{name} is a temporary table, which only the session that made it can see",
                hint="A queue is a table that all workers see; give that as SCHEMA.TABLE.",
            )
        return Fault(
            message=f"{name} is a table of the system, not a queue", hint="Give a table of your own."
        )
    if kind not in _KINDS:
        return None
    said = f"{name} is {_KINDS[kind]}, not a table"
    if kind == "f":
        return Fault(
            message=said,
            hint="Its rows are on another server: connect to that server, and give the table there.",
        )
    if not tables:
        return Fault(message=said, hint="Give the table that holds the jobs, as SCHEMA.TABLE.")
    return Fault(message=said, hint=f"{_GIVE.get(kind, 'Give its table')}: {_listed(tables)}.")


_GIVE: Final = {
    "v": "Give the table that it reads",
    "m": "Give the table that it reads",
    "S": "Give the table that it counts for",
}


def _listed(names: Sequence[str]) -> str:
    more = len(names) - _LISTED
    return ", ".join(names[:_LISTED]) + (f" and {more} more" if more > 0 else "")


def claim_fault(text: str) -> Fault | None:
    """Say why a text is not one statement that claims, None where it is."""
    reading = read_sql(text)
    give = "Give the one statement that finds a job and locks or changes it."
    if reading.unread:
        error = reading.unread[0].error
        return Fault(message=f"is no SQL that could be read: {error}", hint=give)
    statements = reading.statements
    if not statements:
        return Fault(message="holds no statement", hint=give)
    if len(statements) > 1:
        return Fault(message=f"holds {len(statements)} statements", hint=give)
    (statement,) = statements
    if statement.claims:
        return None
    return _no_claim(statement)


def _no_claim(statement: Statement) -> Fault:
    if statement.kind in ("select", "call") and statement.functions and not statement.reads:
        function = shortened(statement.functions[0], 60)
        return Fault(
            message=f"calls the function {function}() and names no table",
            hint="Leave --claim-query out: the function's body is read. Or give the statement in it that claims.",
        )
    if statement.kind == "select":
        return Fault(
            message="is a SELECT that takes no job: it locks no row (FOR UPDATE SKIP LOCKED) and changes none",
            hint="Give the statement that takes the job it finds.",
        )
    if statement.kind in ("update", "delete", "merge"):
        return Fault(
            message=f"is {'an UPDATE' if statement.kind == 'update' else f'a {statement.kind.upper()}'} that takes no job: "
            "it changes rows without looking for a ready one",
            hint="Give the statement that workers find their next job with.",
        )
    word = {"insert": "an INSERT", "ddl": "a definition"}.get(
        statement.kind, f"a statement of kind {statement.kind}"
    )
    return Fault(
        message=f"is {word}, which takes no job",
        hint="Give the statement that workers find their next job with.",
    )


def claim_table_fault(text: str, queue: TableRow, catalog: Catalog) -> Fault | None:
    """Say of which table a claim takes jobs where that is not the queue, None where it is the queue or a partition of it."""
    names = Names(catalog)
    claimed = list(
        dict.fromkeys(claim.table for statement in read_sql(text).statements for claim in statement.claims)
    )
    root = names.root(queue).oid
    if not claimed or any(names.root(row).oid == root for name in claimed for row in names.namesakes(name)):
        return None
    spelled = " and ".join(_spelled(name) for name in claimed)
    unknown = not any(names.namesakes(name) for name in claimed)
    return Fault(
        message=f"takes jobs from {spelled}, "
        + ("which is no table here" if unknown else "which is another table"),
        hint=f"Give {_spelled(claimed[0])} as --queue, or the claim of this queue.",
    )


def _spelled(name: TableName) -> str:
    return ".".join(quote_ident(part) for part in (name.schema, name.name) if part is not None)


def near(name: str, tables: Collection[TableRow], most: int = 5) -> list[str]:
    """Return names of tables that hold the given one, as --queue takes them."""
    word = name.rpartition(".")[2].strip('"')
    return sorted(f"{quote_ident(one.schema)}.{quote_ident(one.name)}" for one in tables if word in one.name)[
        :most
    ]
