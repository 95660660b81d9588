"""Statements as they should read: a lock and a write made one statement, a SELECT without its locking clause.

Works on the parse tree, as sqlrewrite does; what cannot be combined safely gives None.
"""

from __future__ import annotations

import re
from typing import Any

from pgqdoctor.sqlrewrite import quote_ident, renumber_parameters
from pgqdoctor.sqltext import Unparsable, parse, split, without_prepare

_APART = 1000
"""Added to the parameter numbers of the write, so that they meet none of the lock's before they are counted anew."""


def one_statement(lock: str, write: str, *, table: str, keys: tuple[str, ...]) -> str | None:
    """Return one statement that locks rows as ``lock`` (a SELECT ... FOR UPDATE) does and writes them as ``write`` (an UPDATE or
    DELETE of ``table`` by key) does.

    With LIMIT 1 and a key of one column it is ``WHERE key = (SELECT ...)``, else a CTE that is computed once. Parameters are
    numbered anew. Returns None where either is of another form.
    """
    try:
        return _combined(_node(lock), _node(write), table, keys) if keys else None
    except (Unparsable, RecursionError, ValueError, StopIteration):
        return None


def without_locks(text: str) -> str | None:
    """Return a SELECT without its outermost locking clause, None where it has none or cannot be written back."""
    from pglast import ast

    try:
        node = _node(text)
        if not isinstance(node, ast.SelectStmt) or not node.lockingClause:
            return None
        node.lockingClause = None
        return _written(node)
    except (Unparsable, RecursionError, ValueError, StopIteration):
        return None


def two_rows(text: str) -> str | None:
    """Return an ``INSERT ... VALUES`` of one row as one of two rows, None where it is of another form."""
    from pglast import ast

    from pgqdoctor.sqlscope import nodes

    try:
        node, again = _node(text), _node(text)
        if not isinstance(node, ast.InsertStmt) or not isinstance(node.selectStmt, ast.SelectStmt):
            return None
        rows = node.selectStmt.valuesLists
        if rows is None or len(rows) != 1:
            return None
        for parameter in nodes(again.selectStmt):
            if isinstance(parameter, ast.ParamRef):
                parameter.number = (parameter.number or 0) + _APART
        node.selectStmt.valuesLists = (*rows, *again.selectStmt.valuesLists)
        return renumber_parameters(_written(node))[0]
    except (Unparsable, RecursionError, ValueError, StopIteration):
        return None


def in_order(write: str, *, table: str, keys: tuple[str, ...]) -> str | None:
    """Return an UPDATE or DELETE of many rows as one that first locks them in the order of their key.

    Two of them then never wait for each other in a circle. Returns None where the statement is of another form.
    """
    from pglast import ast

    try:
        node = _node(write)
        if not keys or not isinstance(node, (ast.UpdateStmt, ast.DeleteStmt)) or node.whereClause is None:
            return None
        relation: Any = node.relation
        if relation.relname != table or node.withClause is not None:
            return None
        if getattr(node, "fromClause", None) or getattr(node, "usingClause", None):
            return None
        name = _called(relation)
        condition = _text_of(node.whereClause)
        node.whereClause = None
        returning = _take_returning(node)
        change = _written(node)
        source = (
            quote_ident(relation.relname)
            if relation.schemaname is None
            else (f"{quote_ident(relation.schemaname)}.{quote_ident(relation.relname)}")
        )
        alias = "" if relation.alias is None else f" AS {name}"
        columns = ", ".join(f"{name}.{quote_ident(key)}" for key in keys)
        outputs = [quote_ident(f"locked_{key}") for key in keys]
        joined = "FROM" if isinstance(node, ast.UpdateStmt) else "USING"
        where = " AND ".join(
            f"{name}.{quote_ident(key)} = locked.{output}" for key, output in zip(keys, outputs, strict=True)
        )
        text = (
            f"WITH locked ({', '.join(outputs)}) AS MATERIALIZED (SELECT {columns} FROM {source}{alias} WHERE {condition} "
            f"ORDER BY {columns} FOR UPDATE) {change} {joined} locked WHERE {where}"
            + (f" RETURNING {name}.*" if returning else "")
        )
        return renumber_parameters(text)[0]
    except (Unparsable, RecursionError, ValueError, StopIteration):
        return None


_SQUASHED = re.compile(r"\bIN \((\$\d+) /\*, \.\.\. \*/\)", re.IGNORECASE)
"""A list of any length, as pg_stat_statements writes it from version 18 on."""


def _node(text: str) -> Any:
    text = _SQUASHED.sub(r"= ANY (\1)", text)
    return parse(without_prepare(next(iter(split(text))))).stmt


def _written(node: Any) -> str:
    from pgqdoctor.sqlscope import deparse, levels_of

    levels_of(node)
    text = deparse(node)
    pieces = list(split(text))
    if len(pieces) != 1 or parse(pieces[0]).stmt != node:
        raise ValueError("the statement cannot be written back")
    return text


def _combined(lock: Any, write: Any, table: str, keys: tuple[str, ...]) -> str | None:
    from pglast import ast, enums

    from pgqdoctor.sqlscope import nodes

    if (
        not isinstance(lock, ast.SelectStmt)
        or not lock.lockingClause
        or lock.op != enums.SetOperation.SETOP_NONE
    ):
        return None
    if lock.distinctClause or lock.groupClause or lock.intoClause is not None:
        return None
    if not isinstance(write, (ast.UpdateStmt, ast.DeleteStmt)) or write.withClause is not None:
        return None
    relation: Any = write.relation
    if relation.relname != table or getattr(write, "fromClause", None) or getattr(write, "usingClause", None):
        return None
    sources = [
        one for one in nodes(lock.fromClause or ()) if isinstance(one, ast.RangeVar) and one.relname == table
    ]
    if len(sources) != 1 or _sorts_by_output(lock):
        return None
    rest = _without_keys(write.whereClause, keys)
    if rest is None:
        return None
    locked_as, written_as = _called(sources[0]), _called(relation)
    lock.targetList = _node(
        "SELECT " + ", ".join(f"{locked_as}.{quote_ident(key)}" for key in keys)
    ).targetList
    for node in nodes((write.whereClause, getattr(write, "targetList", None))):
        if isinstance(node, ast.ParamRef):
            node.number = (node.number or 0) + _APART
    others = [_text_of(one) for one in rest]
    write.whereClause = None
    _take_returning(write)
    select, change = _written(lock), _written(write)
    if _one_row(lock) and len(keys) == 1:
        where = [f"{quote_ident(keys[0])} = ({select})", *others]
        text = f"{change} WHERE {' AND '.join(where)} RETURNING *"
    else:
        names = [quote_ident(f"claimed_{key}") for key in keys]
        where = [
            f"{written_as}.{quote_ident(key)} = claimed.{name}" for key, name in zip(keys, names, strict=True)
        ]
        joined = "FROM" if isinstance(write, ast.UpdateStmt) else "USING"
        text = (
            f"WITH claimed ({', '.join(names)}) AS MATERIALIZED ({select}) {change} {joined} claimed "
            f"WHERE {' AND '.join([*where, *others])} RETURNING {written_as}.*"
        )
    return renumber_parameters(text)[0]


def _take_returning(node: Any) -> bool:
    """Remove a RETURNING clause, under whichever name this parser knows it; tell whether there was one."""
    found = False
    for name in ("returningList", "returningClause"):
        if hasattr(node, name):
            found = found or bool(getattr(node, name))
            setattr(node, name, None)
    return found


def _called(relation: Any) -> str:
    """The name by which a statement refers to a table's columns."""
    return quote_ident(relation.alias.aliasname if relation.alias is not None else relation.relname)


def _text_of(expression: Any) -> str:
    select = _node("SELECT 1")
    select.targetList[0].val = expression
    return _written(select).removeprefix("SELECT ")


def _one_row(select: Any) -> bool:
    from pglast import ast

    limit = select.limitCount
    return isinstance(limit, ast.A_Const) and isinstance(limit.val, ast.Integer) and limit.val.ival == 1


def _sorts_by_output(select: Any) -> bool:
    """Tell whether ORDER BY means an output column: those are replaced."""
    from pglast import ast

    from pgqdoctor.sqlscope import column_name

    outputs = {target.name for target in select.targetList or () if target.name is not None}
    return any(
        isinstance(key.node, ast.A_Const) or column_name(key.node) in outputs
        for key in select.sortClause or ()
    )


def _without_keys(where: Any, keys: tuple[str, ...]) -> list[Any] | None:
    """Return the conjuncts besides ``key = ...``; None where a key is not compared at all."""
    from pglast import ast, enums

    from pgqdoctor.sqlscope import column_name

    both = isinstance(where, ast.BoolExpr) and where.boolop == enums.BoolExprType.AND_EXPR
    conjuncts: tuple[Any, ...] = where.args if both else (where,)
    rest, found = [], set()
    for one in conjuncts:
        column = None
        if isinstance(one, ast.A_Expr) and one.kind in (
            enums.A_Expr_Kind.AEXPR_OP,
            enums.A_Expr_Kind.AEXPR_OP_ANY,
            enums.A_Expr_Kind.AEXPR_IN,
        ):
            column = column_name(one.lexpr) or column_name(one.rexpr)
        if column in keys:
            found.add(column)
        else:
            rest.append(one)
    return rest if found == set(keys) else None
