"""Parameters of a statement: where they stand, and the statement with values in their places."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from pgqdoctor.sqlfacts import ParameterRole, ParameterUse
from pgqdoctor.sqltext import Piece, Unparsable, parse, split, without_prepare

if TYPE_CHECKING:
    from pgqdoctor.sqlscope import Level


def printed(node: Any) -> str | None:
    """Write a tree as SQL; None where reading it again does not give the same tree, which is a fault of the
    printer."""
    from pgqdoctor.sqlscope import deparse, levels_of

    levels_of(node)
    text = deparse(node)
    try:
        pieces = list(split(text))
        if len(pieces) != 1 or parse(pieces[0]).stmt != node:
            return None
    except Unparsable:
        return None
    return text


def parameters_of(text: str) -> tuple[ParameterUse, ...]:
    """Return where each parameter of a text stands, by number; empty where the text does not parse."""
    found: list[ParameterUse] = []
    try:
        for piece in map(without_prepare, split(text)):
            try:
                found.extend(_uses(piece))
            except Unparsable:
                continue
    except (Unparsable, RecursionError):
        return ()
    return tuple(sorted(dict.fromkeys(found), key=lambda use: use.number))


def _uses(piece: Piece) -> Iterator[ParameterUse]:
    from pglast import ast
    from pglast.enums import A_Expr_Kind

    from pgqdoctor.sqlscope import levels_of, nodes

    root = parse(piece).stmt
    tree = levels_of(root)
    marks = _Marks()
    for level in tree.levels:
        marks.limit(level.limit, "limit")
        marks.limit(getattr(level.node, "limitOffset", None), "offset")
        for target in level.sets:
            if level.target is not None and target.name:
                marks.value(target.val, "set", level.target.table, target.name, None)
        if level.kind == "insert":
            marks.inserted(level)
        for condition in level.where:
            marks.condition(condition, level)
    unnested = marks.unnested(root)
    casts = {id(node.arg): node.typeName for node in nodes(root) if isinstance(node, ast.TypeCast)}
    arrays = {
        id(node.rexpr.arg if isinstance(node.rexpr, ast.TypeCast) else node.rexpr)
        for node in nodes(root)
        if isinstance(node, ast.A_Expr) and node.kind in (A_Expr_Kind.AEXPR_OP_ANY, A_Expr_Kind.AEXPR_OP_ALL)
    }
    factors = {id(part) for node in nodes(root) for part in _factors(node)}
    for node in nodes(root):
        if isinstance(node, ast.ParamRef):
            use = marks.use(node, casts.get(id(node)))
            yield replace(use, array=id(node) in arrays | unnested, factor=id(node) in factors)


def _factors(node: Any) -> Iterator[Any]:
    """Yield the parameters that a function or * or || takes: they have another type than what comes of it."""
    from pglast import ast

    from pgqdoctor.sqlscope import dotted, without_casts

    parts: tuple[Any, ...] = ()
    if isinstance(node, ast.FuncCall):
        parts = node.args or ()
    elif isinstance(node, ast.A_Expr) and dotted(node.name) in ("*", "/", "||"):
        parts = (node.lexpr, node.rexpr)
    for part in parts:
        bare = without_casts(part.arg if isinstance(part, ast.NamedArgExpr) else part)
        if isinstance(bare, ast.ParamRef):
            yield bare


class _Marks:
    """Notes, for the parameters of one statement, what they stand for."""

    def __init__(self) -> None:
        self.roles: dict[int, tuple[ParameterRole, Any, str | None, str | None]] = {}

    def limit(self, node: Any, role: ParameterRole) -> None:
        if node is not None:
            self.value(node, role, None, None, None)

    def value(
        self, node: Any, role: ParameterRole, table: Any, column: str | None, operator: str | None
    ) -> None:
        """Mark the parameters of a value: the value itself bears the role, parts of an expression are
        "other"."""
        from pglast import ast

        from pgqdoctor.sqlscope import expression_nodes, without_casts

        bare = without_casts(node)
        items = bare if isinstance(bare, tuple) else (bare,)
        if isinstance(bare, ast.A_ArrayExpr):
            items = bare.elements or ()
        for item in items:
            direct = without_casts(item)
            for part in expression_nodes(item):
                if isinstance(part, ast.ParamRef):
                    self.roles.setdefault(
                        id(part), (role if part is direct else "other", table, column, operator)
                    )

    def inserted(self, level: Level) -> None:
        source = level.node.selectStmt
        columns = [target.name for target in level.node.cols or ()]
        rows = (
            (source.valuesLists or (tuple(t.val for t in source.targetList or ()),))
            if source is not None
            else ()
        )
        for row in rows:
            for column, value in zip(columns, row, strict=False):
                if level.target is not None:
                    self.value(value, "set", level.target.table, column, None)

    def condition(self, node: Any, level: Level) -> None:
        from pglast import ast

        from pgqdoctor.sqlconditions import Reader
        from pgqdoctor.sqlscope import expression_nodes

        reader = Reader()
        for part in expression_nodes(node):
            if not isinstance(part, ast.A_Expr):
                continue
            test = reader.condition(part, level)
            if test.column is None:
                continue
            for side in (part.lexpr, part.rexpr):
                self.value(side, "compare", test.table, test.column, test.operator)

    def unnested(self, root: Any) -> set[int]:
        """Mark arrays that are joined as rows: ``unnest($1) AS queue`` stands for queues. Return their nodes' ids."""
        from pglast import ast

        from pgqdoctor.sqlscope import dotted, nodes, without_casts

        found: set[int] = set()

        def mark(call: Any, name: str | None) -> None:
            if not isinstance(call, ast.FuncCall) or dotted(call.funcname).rpartition(".")[2] != "unnest":
                return
            array = without_casts(call.args[0]) if call.args else None
            if name and isinstance(array, ast.ParamRef):
                self.roles.setdefault(id(array), ("compare", None, name, "in"))
                found.add(id(array))

        for node in nodes(root):
            if isinstance(node, ast.ResTarget):
                mark(node.val, node.name)
            elif isinstance(node, ast.RangeFunction) and node.alias is not None and node.functions:
                columns = node.alias.colnames
                mark(node.functions[0][0], columns[0].sval if columns else node.alias.aliasname)
        return found

    def use(self, node: Any, type_name: Any) -> ParameterUse:
        from pgqdoctor.sqlscope import deparse

        role, table, column, operator = self.roles.get(id(node), ("other", None, None, None))
        cast = deparse(type_name) if type_name is not None else None
        if role == "other" and cast is not None and cast.split(" ")[0] == "interval":
            role = "interval"
        return ParameterUse(
            number=node.number or 0, role=role, table=table, column=column, operator=operator, cast=cast
        )


def variables_as_parameters(text: str, variables: Collection[str], types: Mapping[str, str]) -> str | None:
    """Return a statement of a function with its variables as parameters, None where it cannot be written back.

    ``types`` are those of the arguments, by name: without them ``$1 IS NULL`` would have none. A name that a table of the
    statement has as an alias, and one that stands alone on the left of a comparison in the manner of a column, is judged as
    the reader of conditions judges it.
    """
    from pglast import ast

    from pgqdoctor.sqlconditions import Reader
    from pgqdoctor.sqlscope import levels_of, nodes

    try:
        root = parse(without_prepare(next(iter(split(text))))).stmt
        tree = levels_of(root)
        reader = Reader(variables)
        aliases = {item.alias for level in tree.levels for item in level.scope()}
        first = max((node.number or 0 for node in nodes(root) if isinstance(node, ast.ParamRef)), default=0)
        numbers: dict[str, int] = {}
        replacing: dict[int, Any] = {}
        for node in nodes(root):
            if not isinstance(node, ast.ColumnRef) or not reader.is_variable(node):
                continue
            names = [str(part.sval) for part in node.fields or () if isinstance(part, ast.String)]
            if len(names) != len(node.fields or ()) or (len(names) > 1 and names[0] in aliases):
                continue
            name = ".".join(names)
            number = numbers.setdefault(name, first + len(numbers) + 1)
            declared = types.get(names[-1] if len(names) > 1 else name)
            cast = f"${number}::{declared}" if declared else f"${number}"
            replacing[id(node)] = _expressions(cast)[0]
        if not replacing:
            return text
        return printed(_with(root, replacing))
    except (Unparsable, StopIteration, RecursionError, ValueError):
        return None


def _with(node: Any, replacing: Mapping[int, Any]) -> Any:
    """Return a tree with some nodes replaced, by their ids; nodes are changed in place."""
    from pglast import ast

    if isinstance(node, tuple):
        return tuple(_with(item, replacing) for item in node)
    if id(node) in replacing:
        return replacing[id(node)]
    if isinstance(node, ast.Node):
        for name in node:
            old = getattr(node, name)
            if isinstance(old, (tuple, ast.Node)):
                new = _with(old, replacing)
                if new is not old and new != old:
                    setattr(node, name, new)
    return node


def fill_parameters(text: str, values: Mapping[int, str]) -> str:
    """Return the first statement with parameters replaced by SQL expressions.

    ``values`` holds literals or expressions that the caller has quoted; for a parameter that stands in a list
    (``IN ($1 /*, ... */)``) it may hold several, separated by commas. Parameters without a value stay.
    Raises ValueError where the text, or a value, does not parse.
    """
    try:
        pieces = [without_prepare(piece) for piece in split(text)]
        if not pieces:
            raise ValueError("the text holds no statement")
        root = parse(pieces[0])
        parsed = {number: _expressions(value) for number, value in values.items()}
        statement = _replaced(root.stmt, parsed)
        filled = printed(statement)
        if filled is None:
            raise ValueError("the statement cannot be written back")
    except Unparsable as error:
        raise ValueError(error.message) from None
    except RecursionError:
        raise ValueError("the statement is nested too deeply") from None
    return filled


def renumber_parameters(text: str) -> tuple[str, tuple[int, ...]]:
    """Return the first statement with its parameters numbered from 1 without gaps, and their old numbers in
    order.

    A SELECT taken out of a claim keeps the claim's numbers, and PREPARE rejects gaps ("could not determine
    data type of parameter $1"). Raises ValueError where the text does not parse.
    """
    from pglast import ast

    from pgqdoctor.sqlscope import nodes

    numbers: dict[int, int] = {}
    try:
        root = parse(without_prepare(next(iter(split(text))))).stmt
        for node in nodes(root):
            if isinstance(node, ast.ParamRef):
                node.number = numbers.setdefault(node.number or 0, len(numbers) + 1)
        filled = printed(root)
    except StopIteration:
        raise ValueError("the text holds no statement") from None
    except Unparsable as error:
        raise ValueError(error.message) from None
    except RecursionError:
        raise ValueError("the statement is nested too deeply") from None
    if filled is None:
        raise ValueError("the statement cannot be written back")
    return filled, tuple(numbers)


def _expressions(value: str) -> tuple[Any, ...]:
    """Parse one or more expressions, refusing everything that would reach beyond them."""
    from pglast import ast

    pieces = list(split(f"SELECT {value}\n"))
    if len(pieces) != 1:
        raise ValueError(f"not one expression: {value}")
    node: Any = parse(pieces[0]).stmt
    plain = (
        isinstance(node, ast.SelectStmt)
        and node.targetList
        and not any(
            getattr(node, name)
            for name in node
            if name not in ("targetList", "limitOption", "op", "all", "groupDistinct")
        )
        and not node.op
        and all(target.name is None for target in node.targetList)
    )
    if not plain:
        raise ValueError(f"not an expression: {value}")
    return tuple(target.val for target in node.targetList)


def _replaced(node: Any, values: Mapping[int, tuple[Any, ...]]) -> Any:
    """Return a tree with its parameters replaced; nodes are changed in place."""
    from pglast import ast

    from pgqdoctor.sqlscope import dotted

    if isinstance(node, tuple):
        items: list[Any] = []
        for item in node:
            if isinstance(item, ast.ParamRef) and (item.number or 0) in values:
                items.extend(values[item.number or 0])
            else:
                items.append(_replaced(item, values))
        return tuple(items)
    if isinstance(node, ast.ParamRef):
        found = values.get(node.number or 0)
        if found is None:
            return node
        if len(found) != 1:
            raise ValueError(f"${node.number} takes one value")
        return found[0]
    if isinstance(node, ast.Node):
        for name in node:
            old = getattr(node, name)
            if isinstance(old, (tuple, ast.Node)):
                new = _replaced(old, values)
                if new is not old:
                    setattr(node, name, new)
        if isinstance(node, ast.A_Expr) and node.lexpr is None and dotted(node.name) == "-":
            # The grammar folds a minus before a number, so it has to be folded here to be read back the same.
            value = node.rexpr.val if isinstance(node.rexpr, ast.A_Const) else None
            if isinstance(value, ast.Integer):
                return ast.A_Const(isnull=False, val=ast.Integer(ival=-(value.ival or 0)))
    return node


def argument_types(arguments: str) -> dict[str, str]:
    """Return the types of a function's named arguments, as pg_get_function_arguments writes them."""
    from pgqdoctor.sqltext import scan

    found: dict[str, str] = {}
    try:
        tokens = scan(arguments)
    except Unparsable:
        return found
    depth = 0
    item: list[Any] = []

    def close() -> None:
        names = [arguments[token.start : token.end + 1] for token in item]
        if names and names[0].lower() in ("in", "inout", "variadic"):
            del names[0], item[0]
        until = next((at for at, word in enumerate(names) if word.upper() == "DEFAULT"), len(names))
        if until > 1 and names[0].lower() != "out":
            found[names[0].strip('"')] = arguments[item[1].start : item[until - 1].end + 1]

    for token in tokens:
        depth += {"ASCII_40": 1, "ASCII_91": 1, "ASCII_41": -1, "ASCII_93": -1}.get(token.name, 0)
        if token.name == "ASCII_44" and not depth:
            close()
            item = []
        else:
            item.append(token)
    if item:
        close()
    return found
