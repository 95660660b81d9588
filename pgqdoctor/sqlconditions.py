"""Conditions, assignments, sort keys and limits of one query level, as facts.

String constants stand in ``values`` without their quotes, as the column would hold them.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, Literal

from pglast import ast, enums

from pgqdoctor.sqlfacts import Assignment, Condition, OrderKey, TableName, ValueKind
from pgqdoctor.sqlscope import Level, column_name, conjuncts, deparse, dotted, expression_nodes, without_casts

Value = tuple[ValueKind, tuple[str, ...]]

_MIRRORED = {"<": ">", ">": "<", "<=": ">=", ">=": "<=", "=": "=", "<>": "<>"}
_NEGATED = {"=": "<>", "<>": "=", "in": "not in", "like": "not like", "is null": "is not null"}
_LIKES = {"~~": "like", "!~~": "not like", "~~*": "ilike", "!~~*": "not ilike"}
_BOOLEAN_TESTS = {
    enums.BoolTestType.IS_TRUE: "is true",
    enums.BoolTestType.IS_NOT_TRUE: "is not true",
    enums.BoolTestType.IS_FALSE: "is false",
    enums.BoolTestType.IS_NOT_FALSE: "is not false",
    enums.BoolTestType.IS_UNKNOWN: "is null",
    enums.BoolTestType.IS_NOT_UNKNOWN: "is not null",
}
_BETWEENS = {
    enums.A_Expr_Kind.AEXPR_BETWEEN: "between",
    enums.A_Expr_Kind.AEXPR_BETWEEN_SYM: "between",
    enums.A_Expr_Kind.AEXPR_NOT_BETWEEN: "not between",
    enums.A_Expr_Kind.AEXPR_NOT_BETWEEN_SYM: "not between",
}
_LIKE_KINDS = (enums.A_Expr_Kind.AEXPR_LIKE, enums.A_Expr_Kind.AEXPR_ILIKE)
NOW_FUNCTIONS = frozenset(
    {"now", "clock_timestamp", "statement_timestamp", "transaction_timestamp", "timeofday", "localtimestamp"}
)
_CLOCK_VALUES = frozenset(
    {
        enums.SQLValueFunctionOp.SVFOP_CURRENT_TIMESTAMP,
        enums.SQLValueFunctionOp.SVFOP_CURRENT_TIMESTAMP_N,
        enums.SQLValueFunctionOp.SVFOP_LOCALTIMESTAMP,
        enums.SQLValueFunctionOp.SVFOP_LOCALTIMESTAMP_N,
        enums.SQLValueFunctionOp.SVFOP_CURRENT_DATE,
        enums.SQLValueFunctionOp.SVFOP_CURRENT_TIME,
        enums.SQLValueFunctionOp.SVFOP_CURRENT_TIME_N,
        enums.SQLValueFunctionOp.SVFOP_LOCALTIME,
        enums.SQLValueFunctionOp.SVFOP_LOCALTIME_N,
    }
)


def is_clock(node: Any) -> bool:
    """Tell whether a node reads the clock."""
    if isinstance(node, ast.FuncCall):
        return dotted(node.funcname).removeprefix("pg_catalog.") in NOW_FUNCTIONS
    return isinstance(node, ast.SQLValueFunction) and node.op in _CLOCK_VALUES


class Reader:
    """Turns nodes of one statement into facts. ``variables`` names the variables of an enclosing function."""

    def __init__(self, variables: Collection[str] = (), *, prefer_columns: bool = False) -> None:
        self.variables = frozenset(variables)
        self.prefer_columns = prefer_columns
        self._conditions: dict[int, tuple[Condition, ...]] = {}
        self._assignments: dict[int, tuple[Assignment, ...]] = {}

    def is_variable(self, node: Any, level: Level | None = None) -> bool:
        """Tell whether a name is a variable of the function (PL/pgSQL calls a clash with a column an
        error)."""
        if not isinstance(node, ast.ColumnRef) or not node.fields or not self.variables:
            return False
        first = node.fields[0]
        if not isinstance(first, ast.String) or first.sval not in self.variables:
            return False
        return len(node.fields) == 1 or level is None or level.find(first.sval) is None

    def value(self, node: Any, level: Level | None = None) -> Value:
        """Classify the value a column is compared with or set to."""
        bare = without_casts(node)
        if isinstance(bare, ast.A_Const):
            return _constant(bare)
        if isinstance(bare, ast.ParamRef):
            return "parameter", (f"${bare.number}",)
        if isinstance(bare, ast.ColumnRef):
            if self.is_variable(bare, level):
                return "parameter", (deparse(bare),)
            return "column", (deparse(bare),)
        if isinstance(bare, ast.SetToDefault):
            return "expression", ("DEFAULT",)
        if isinstance(bare, (ast.A_ArrayExpr, ast.RowExpr)):
            elements = bare.elements if isinstance(bare, ast.A_ArrayExpr) else bare.args
            return self.list_of(elements or ())
        parts = list(expression_nodes(bare))
        columns = any(isinstance(part, ast.ColumnRef) and not self.is_variable(part, level) for part in parts)
        if not columns and any(is_clock(part) for part in parts):
            return "now", (deparse(node),)
        return "expression", (deparse(node),)

    def elements(self, node: Any, level: Level) -> Value:
        """Classify the right side of ANY and ALL; an array written as a string counts as the list it is."""
        bare = without_casts(node)
        if isinstance(bare, ast.A_Const) and isinstance(bare.val, ast.String):
            words = _array_words(str(bare.val.sval))
            if words is not None:
                return "list", words
        return self.value(node, level)

    def list_of(self, elements: Any) -> Value:
        values: list[str] = []
        for element in elements:
            kind, found = self.value(element)
            if kind in ("expression", "column", "now"):
                return "expression", (", ".join(deparse(part) for part in elements),)
            values.extend(found)
        return "list", tuple(values)

    def conditions(self, level: Level) -> tuple[Condition, ...]:
        """Return the conjuncts of a level's WHERE."""
        found = self._conditions.get(id(level))
        if found is None:
            found = self._conditions[id(level)] = tuple(self.condition(part, level) for part in level.where)
        return found

    def condition(self, node: Any, level: Level) -> Condition:
        """Normalise one conjunct so that the column stands on the left."""
        text = deparse(node)
        if isinstance(node, ast.BoolExpr):
            arguments = node.args or ()
            if node.boolop == enums.BoolExprType.OR_EXPR:
                branches = tuple(
                    tuple(self.condition(part, level) for part in conjuncts(argument))
                    for argument in arguments
                )
                return Condition(
                    table=None,
                    column=None,
                    operator="or",
                    values=(),
                    value_kind="expression",
                    text=text,
                    branches=branches,
                )
            if node.boolop == enums.BoolExprType.NOT_EXPR and arguments:
                negated = self.negated(arguments[0], level, text)
                if negated is not None:
                    return negated
        elif isinstance(node, ast.NullTest):
            operator = "is null" if node.nulltesttype == enums.NullTestType.IS_NULL else "is not null"
            return self.on(node.arg, operator, ("null", ()), level, text)
        elif isinstance(node, ast.BooleanTest) and node.booltesttype is not None:
            return self.on(node.arg, _BOOLEAN_TESTS[node.booltesttype], ("boolean", ()), level, text)
        elif isinstance(node, ast.A_Expr):
            return self.comparison(node, level, text)
        elif isinstance(node, ast.SubLink) and node.subLinkType == enums.SubLinkType.ANY_SUBLINK:
            operator = "in" if dotted(node.operName) in ("", "=") else "expression"
            return self.on(node.testexpr, operator, ("expression", ()), level, text)
        elif isinstance(without_casts(node), ast.ColumnRef):
            return self.on(node, "is true", ("boolean", ()), level, text)
        return _expression(text)

    def negated(self, node: Any, level: Level, text: str) -> Condition | None:
        inner = self.condition(node, level)
        if inner.operator == "is true" and not isinstance(node, ast.BooleanTest):
            operator = "is false"
        elif inner.operator in _NEGATED:
            operator = _NEGATED[inner.operator]
        else:
            return None
        return Condition(
            table=inner.table,
            column=inner.column,
            operator=operator,
            values=inner.values,
            value_kind=inner.value_kind,
            text=text,
            cast=inner.cast,
        )

    def comparison(self, node: ast.A_Expr, level: Level, text: str) -> Condition:
        kind = node.kind
        name = dotted(node.name).rpartition(".")[2]
        name = "<>" if name == "!=" else name
        left: Any = node.lexpr
        right: Any = node.rexpr
        if kind == enums.A_Expr_Kind.AEXPR_OP:
            if not self.is_column(left, level) and self.is_column(right, level) and name in _MIRRORED:
                left, right, name = right, left, _MIRRORED[name]
            if not self.is_column(left, level):
                return _expression(text)
            found = self.value(right, level)
            if found == ("boolean", ("true",)) and name == "=":
                return self.on(left, "is true", found, level, text)
            if found == ("boolean", ("false",)) and name == "=":
                return self.on(left, "is false", found, level, text)
            return self.on(left, name, found, level, text)
        if kind == enums.A_Expr_Kind.AEXPR_IN:
            operator = "not in" if name == "<>" else "in"
            return self.on(left, operator, self.list_of(right or ()), level, text)
        if kind == enums.A_Expr_Kind.AEXPR_OP_ANY and name == "=":
            return self.on(left, "in", self.elements(right, level), level, text)
        if kind == enums.A_Expr_Kind.AEXPR_OP_ALL and name == "<>":
            return self.on(left, "not in", self.elements(right, level), level, text)
        if kind in _BETWEENS:
            return self.on(left, _BETWEENS[kind], self.list_of(right or ()), level, text)
        if kind in _LIKE_KINDS:
            return self.on(left, _LIKES.get(name, "expression"), self.value(right, level), level, text)
        if kind == enums.A_Expr_Kind.AEXPR_DISTINCT:
            return self.on(left, "is distinct from", self.value(right, level), level, text)
        if kind == enums.A_Expr_Kind.AEXPR_NOT_DISTINCT:
            return self.on(left, "is not distinct from", self.value(right, level), level, text)
        return _expression(text)

    def is_column(self, node: Any, level: Level) -> bool:
        return self.named_column(without_casts(node), level) is not None

    def named_column(self, bare: Any, level: Level) -> str | None:
        """Return the column that stands where a condition expects one, or None for a variable."""
        name = column_name(bare)
        if name is None or not self.is_variable(bare, level):
            return name
        return name if self.prefer_columns and len(bare.fields) == 1 else None

    def on(self, node: Any, operator: str, value: Value, level: Level, text: str) -> Condition:
        bare = without_casts(node)
        column = self.named_column(bare, level)
        if column is None or operator == "expression":
            return _expression(text)
        table = level.table_of(bare)
        cast = None
        if isinstance(node, ast.TypeCast):
            cast = deparse(node.typeName)
        return Condition(
            table=table,
            column=column,
            operator=operator,
            values=value[1],
            value_kind=value[0],
            text=text,
            cast=cast,
        )

    def assignments(self, level: Level) -> tuple[Assignment, ...]:
        """Return what the SET of a level assigns."""
        known = self._assignments.get(id(level))
        if known is not None:
            return known
        found = []
        for target in level.sets:
            if target.name is None:
                continue
            value: Any = target.val
            if isinstance(value, ast.MultiAssignRef):
                value = _part_of(value)
            kind, values = self.value(value, level)
            found.append(Assignment(column=target.name, value_kind=kind, value=", ".join(values)))
        self._assignments[id(level)] = tuple(found)
        return self._assignments[id(level)]


def _part_of(node: ast.MultiAssignRef) -> Any:
    """Return the value that ``SET (a, b) = (x, y)`` gives to one column; a sub-select's stays whole."""
    if isinstance(node.source, ast.RowExpr) and node.source.args and node.colno:
        return node.source.args[node.colno - 1]
    return node.source


def order_of(keys: tuple[Any, ...]) -> tuple[OrderKey, ...]:
    """Return the sort keys of a level."""
    found = []
    for key in keys:
        nulls = {enums.SortByNulls.SORTBY_NULLS_FIRST: True, enums.SortByNulls.SORTBY_NULLS_LAST: False}
        found.append(
            OrderKey(
                column=column_name(key.node),
                text=deparse(key.node),
                descending=key.sortby_dir == enums.SortByDir.SORTBY_DESC,
                nulls_first=nulls.get(key.sortby_nulls),
            )
        )
    return tuple(found)


LimitKind = Literal["none", "constant", "parameter"]


def limit_of(node: Any) -> tuple[LimitKind, int | None]:
    """Tell what a LIMIT is; ``LIMIT ALL`` and ``LIMIT NULL`` are none, every expression is a parameter."""
    if node is None:
        return "none", None
    bare = without_casts(node)
    if isinstance(bare, ast.A_Const):
        if bare.isnull:
            return "none", None
        if isinstance(bare.val, ast.Integer):
            return "constant", bare.val.ival
    return "parameter", None


def _constant(node: ast.A_Const) -> Value:
    if node.isnull:
        return "null", ("NULL",)
    value: Any = node.val
    if isinstance(value, ast.Boolean):
        return "boolean", ("true" if value.boolval else "false",)
    if isinstance(value, ast.Integer):
        return "constant", (str(value.ival),)
    if isinstance(value, ast.Float):
        return "constant", (str(value.fval),)
    if isinstance(value, ast.BitString):
        return "constant", (str(value.bsval),)
    return "constant", (str(value.sval),)


def _array_words(text: str) -> tuple[str, ...] | None:
    """Read a one-dimensional array literal such as ``{a,"b c"}``; None for anything else."""
    inner = text.strip()
    if not (inner.startswith("{") and inner.endswith("}")):
        return None
    words: list[str] = []
    word = ""
    quoted = escaped = False
    for letter in inner[1:-1]:
        if escaped:
            word, escaped = word + letter, False
        elif letter == "\\":
            escaped = True
        elif letter == '"':
            quoted = not quoted
        elif letter in "{}" and not quoted:
            return None
        elif letter == "," and not quoted:
            words.append(word)
            word = ""
        else:
            word += letter
    return (*words, word) if word or words else ()


def _expression(text: str) -> Condition:
    return Condition(
        table=None, column=None, operator="expression", values=(), value_kind="expression", text=text
    )


def same_table(left: TableName | None, right: TableName | None) -> bool:
    """Tell whether two names may mean one table: a missing schema matches any."""
    if left is None or right is None or left.name != right.name:
        return False
    return left.schema is None or right.schema is None or left.schema == right.schema
