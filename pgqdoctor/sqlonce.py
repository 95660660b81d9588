"""How often PostgreSQL executes a query level within one execution of its statement."""

from __future__ import annotations

from pglast import ast

from pgqdoctor.sqlscope import Level, nodes


def repeats(level: Level) -> bool:
    """Tell whether PostgreSQL may execute a level with a LIMIT more than once in one execution of the
    statement.

    ``= (SELECT ...)`` and ``= ANY(ARRAY(SELECT ...))`` become InitPlans, executed once, unless they refer to
    an outer row. ``IN (SELECT ...)`` and a joined sub-select become an input of a join, which a nested loop
    may execute again. A CTE that is not inlined is computed once (EXPLAIN on 14 and 18). A LATERAL sub-select
    runs once per outer row by intention: its LIMIT is meant per row.
    """
    at = level
    for _ in range(1000):
        if at.how == "cte":
            cte = at.cte
            if cte is None or cte.runs_once or not cte.users:
                return False
            user = cte.users[0]
            if len(user.scope()) > 1:
                return True
            at = user
        elif at.how in ("in", "exists"):
            return True
        elif at.how in ("array", "expr"):
            return correlated(at)
        elif at.how == "from" and at.parent is not None:
            if len(at.parent.scope()) > 1:
                return True
            at = at.parent
        else:
            return False
    return False


def correlated(level: Level) -> bool:
    """Tell whether a level refers by a qualified name to a row of a level around it."""
    outer = {item.alias for each in level.ancestors() for item in each.scope()}
    inner: set[str] = set()
    qualifiers: set[str] = set()
    for node in nodes(level.node):
        if isinstance(node, ast.ColumnRef) and node.fields and len(node.fields) > 1:
            part = node.fields[-2]
            if isinstance(part, ast.String):
                qualifiers.add(str(part.sval))
        elif isinstance(node, ast.RangeVar):
            inner.add(str((node.alias.aliasname if node.alias is not None else None) or node.relname))
        elif isinstance(node, ast.RangeSubselect) and node.alias is not None:
            inner.add(str(node.alias.aliasname))
    return bool((qualifiers - inner) & outer)
