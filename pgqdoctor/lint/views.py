"""Statements over views that the same files define, read as over their tables. Pure.

A claim from a view locks, or fails to lock, the rows of the table behind it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Any, Final

from pgqdoctor.sqlfacts import Statement
from pgqdoctor.sqlread import read_sql
from pgqdoctor.sqltext import Unparsable, parse, split

DEEPEST: Final = 8
"""Views of views that are followed: deeper ones, or a view that names itself, are left as they stand."""


@dataclass(slots=True)
class Views:
    """The views of some files by name: the SELECT of each, and the table that an UPDATE of it changes, if it is one."""

    queries: dict[str, str] = field(default_factory=dict)
    names: re.Pattern[str] = re.compile(r"(?!)")

    def expanded(self, statement: Statement) -> Statement:
        """Return the statement with the facts it has where its views are written out; itself where it names none."""
        if not self.names.search(statement.text.lower()) or statement.kind == "ddl":
            return statement
        text = statement.text
        for _ in range(DEEPEST):
            wider = self._once(text)
            if wider is None:
                break
            text = wider
        if text is statement.text:
            return statement
        reading = read_sql(text)
        if reading.unread or len(reading.statements) != 1:
            return statement
        return replace(reading.statements[0], text=statement.text, offset=statement.offset)

    def _once(self, text: str) -> str | None:
        """Return the text with its views written out one level deep, None where there is none."""
        from pglast import ast
        from pglast.stream import RawStream

        try:
            (piece,) = split(text)
            root: Any = parse(piece).stmt
            if not self._replaced(root, _ctes(root), ast):
                return None
            return str(RawStream()(root))
        except (Unparsable, ValueError, RecursionError, NotImplementedError, AttributeError, TypeError):
            return None

    def _replaced(self, root: Any, hidden: frozenset[str], ast: Any) -> bool:
        from pgqdoctor.sqlscope import nodes

        found = False
        for node in list(nodes(root)):
            for name in node:
                value = getattr(node, name)
                if name == "relation" and isinstance(node, (ast.UpdateStmt, ast.DeleteStmt, ast.MergeStmt)):
                    table = self._table(value, hidden, ast)
                    if table is not None:
                        value.alias = value.alias or ast.Alias(aliasname=value.relname)
                        value.schemaname, value.relname = table.schemaname, table.relname
                        found = True
                elif isinstance(value, tuple) and any(isinstance(one, ast.RangeVar) for one in value):
                    changed = tuple(self._subselect(one, hidden, ast) for one in value)
                    if (
                        any(new is not old for new, old in zip(changed, value, strict=True))
                        and name == "fromClause"
                    ):
                        setattr(node, name, changed)
                        found = True
                elif name in ("larg", "rarg", "sourceRelation") and isinstance(value, ast.RangeVar):
                    new = self._subselect(value, hidden, ast)
                    if new is not value:
                        setattr(node, name, new)
                        found = True
        return found

    def _subselect(self, node: Any, hidden: frozenset[str], ast: Any) -> Any:
        if not isinstance(node, ast.RangeVar) or node.relname in hidden or node.relname not in self.queries:
            return node
        (piece,) = split(self.queries[node.relname])
        alias = node.alias or ast.Alias(aliasname=node.relname)
        return ast.RangeSubselect(lateral=False, subquery=parse(piece).stmt, alias=alias)

    def _table(self, node: Any, hidden: frozenset[str], ast: Any) -> Any:
        """Return the table behind a view that can be updated: its SELECT reads one table."""
        if not isinstance(node, ast.RangeVar) or node.relname in hidden or node.relname not in self.queries:
            return None
        (piece,) = split(self.queries[node.relname])
        query: Any = parse(piece).stmt
        sources: tuple[Any, ...] = query.fromClause or ()
        return sources[0] if len(sources) == 1 and isinstance(sources[0], ast.RangeVar) else None


def _ctes(root: Any) -> frozenset[str]:
    """Names that a WITH of the statement hides."""
    from pglast import ast

    from pgqdoctor.sqlscope import nodes

    return frozenset(
        str(node.ctename) for node in nodes(root) if isinstance(node, ast.CommonTableExpr) and node.ctename
    )


def read_views(definitions: Iterable[str]) -> Views:
    """Return the views that DDL statements create; of two under one name the later."""
    from pglast import ast
    from pglast.stream import RawStream

    views = Views()
    for text in definitions:
        if "view" not in text.lower():
            continue
        try:
            for piece in split(text):
                node: Any = parse(piece).stmt
                if (
                    isinstance(node, ast.ViewStmt)
                    and node.view is not None
                    and isinstance(node.query, ast.SelectStmt)
                    and not node.aliases
                ):
                    views.queries[str(node.view.relname)] = str(RawStream()(node.query))
        except (Unparsable, RecursionError, NotImplementedError, AttributeError, TypeError, ValueError):
            continue
    if views.queries:
        views.names = re.compile("|".join(re.escape(name.lower()) for name in views.queries))
    return views
