"""What the statements of a remedy do: the indexes they build and drop, and whether concurrently. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from pgqdoctor.sqltext import Unparsable, parse, split


def parsed(statements: Iterable[str]) -> Iterator[Any]:
    """Yield the syntax trees of statements; what cannot be read is left out."""
    for text in statements:
        try:
            for piece in split(text):
                yield parse(piece).stmt
        except Unparsable:
            continue


def builds_concurrently(statement: str) -> bool:
    """Tell whether a statement waits for other transactions without blocking them: CREATE, DROP or REINDEX CONCURRENTLY."""
    from pglast import ast

    for node in parsed((statement,)):
        if isinstance(node, (ast.IndexStmt, ast.DropStmt)) and node.concurrent:
            return True
        if isinstance(node, ast.ReindexStmt):
            return any(one.defname == "concurrently" for one in node.params or ())
    return False


@dataclass(frozen=True, slots=True, kw_only=True)
class BuiltIndex:
    """The index that a CREATE INDEX CONCURRENTLY builds; ``schema`` is that of its table, None where it is not said."""

    schema: str | None
    table: str
    name: str
    repeatable: bool
    """True where it says IF NOT EXISTS already."""


def built_index(statement: str) -> BuiltIndex | None:
    """Return the index that a statement builds concurrently, None for any other statement."""
    from pglast import ast

    for node in parsed((statement,)):
        if isinstance(node, ast.IndexStmt) and node.concurrent and node.idxname:
            relation: Any = node.relation
            return BuiltIndex(
                schema=relation.schemaname,
                table=relation.relname,
                name=node.idxname,
                repeatable=bool(node.if_not_exists),
            )
    return None


def index_keys(statement: str) -> str:
    """Return the keys of the index that a CREATE INDEX builds and its predicate, as "(run_at, id) WHERE state = 'ready'"."""
    from pglast import ast
    from pglast.stream import RawStream

    for node in parsed((statement,)):
        if isinstance(node, ast.IndexStmt):
            keys = ", ".join(RawStream()(key) for key in node.indexParams or ())
            where = f" WHERE {RawStream()(node.whereClause)}" if node.whereClause is not None else ""
            return f"({keys}){where}"
    return ""


def dropped_index(statement: str) -> str | None:
    """Return the bare name of the index that a DROP INDEX CONCURRENTLY drops, None for any other statement."""
    from pglast import ast, enums

    for node in parsed((statement,)):
        if (
            isinstance(node, ast.DropStmt)
            and node.removeType == enums.ObjectType.OBJECT_INDEX
            and node.concurrent
        ):
            objects: Any = node.objects or ()
            return str(objects[0][-1].sval) if len(objects) == 1 else None
    return None
