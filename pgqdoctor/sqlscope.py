"""The query levels of one parsed statement: what each reads, under which alias, and how it is embedded.

A level is one SELECT, UPDATE, DELETE, INSERT or MERGE; CTEs, sub-selects and the branches of set operations
are levels of their own. Names are resolved as PostgreSQL resolves them: CTE names before tables, aliases
before both.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Literal

from pglast import ast, enums
from pglast.stream import RawStream
from pglast.visitors import populate_ancestors

from pgqdoctor.sqlfacts import TableName

LevelKind = Literal["select", "insert", "update", "delete", "merge"]
Embedding = Literal["top", "cte", "from", "lateral", "in", "expr", "array", "exists", "setop", "source"]


@dataclass(eq=False, slots=True)
class Cte:
    """A WITH query: its levels, and whether PostgreSQL evaluates it once (see ``runs_once``)."""

    name: str
    levels: list[Level]
    materialized: bool
    users: list[Level] = field(default_factory=list)
    outputs: frozenset[str] | None = None

    @property
    def runs_once(self) -> bool:
        """Whether the CTE is computed once however it is joined.

        PostgreSQL inlines a CTE only if it is a plain SELECT without FOR UPDATE, is referenced once and
        has no MATERIALIZED; NOT MATERIALIZED does not lift the first condition (EXPLAIN on 14 and 18:
        a CTE with FOR UPDATE stays a CTE Scan even where NOT MATERIALIZED is written).
        """
        return (
            self.materialized
            or len(self.users) > 1
            or any(level.kind != "select" or level.locking for level in self.levels)
        )


@dataclass(eq=False, slots=True)
class Item:
    """One entry of a FROM clause, or the target of a write."""

    alias: str
    table: TableName | None = None
    levels: list[Level] = field(default_factory=list)
    cte: Cte | None = None
    outputs: frozenset[str] | None = None


@dataclass(eq=False, slots=True)
class Level:
    """One query level. ``where`` holds its conjuncts, those of inner joins' ON included."""

    kind: LevelKind
    node: Any
    parent: Level | None
    how: Embedding
    cte: Cte | None = None
    target: Item | None = None
    items: list[Item] = field(default_factory=list)
    where: list[ast.Node] = field(default_factory=list)
    children: list[Level] = field(default_factory=list)
    sets: list[ast.ResTarget] = field(default_factory=list)
    locking: tuple[Any, ...] = ()
    sort: tuple[Any, ...] = ()
    limit: ast.Node | None = None
    tested: ast.Node | None = None
    """The left side of ``tested IN (this level)``."""
    returning: bool = False
    aggregates: bool = False

    def scope(self) -> list[Item]:
        return [self.target, *self.items] if self.target is not None else self.items

    def find(self, alias: str) -> Item | None:
        return next((item for item in self.scope() if item.alias == alias), None)

    def item_of(self, column: ast.ColumnRef) -> Item | None:
        """Return the entry a column belongs to, or None where the text does not tell."""
        fields = column.fields or ()
        names = [str(part.sval) for part in fields if isinstance(part, ast.String)]
        if len(fields) > 1 and len(names) >= len(fields) - 1:
            qualifier = names[len(fields) - 2]
            found = self.find(qualifier)
            if (
                found is not None
                and len(fields) > 2
                and found.table is not None
                and found.table.name != qualifier
            ):
                return None
            return found
        if len(names) != 1:
            return None
        scope = self.scope()
        if any(item.outputs is not None and names[0] in item.outputs for item in scope):
            # PostgreSQL rejects a name that two entries offer, so it is the sub-select's column.
            return next(item for item in scope if item.outputs is not None and names[0] in item.outputs)
        candidates = [item for item in scope if item.outputs is None]
        return candidates[0] if len(candidates) == 1 else None

    def table_of(self, column: ast.ColumnRef) -> TableName | None:
        item = self.item_of(column)
        return item.table if item is not None else None

    def ancestors(self) -> Iterator[Level]:
        at = self.parent
        while at is not None:
            yield at
            at = at.parent


@dataclass(eq=False, slots=True)
class Tree:
    """Every level of one statement, outermost first, and what is called in it."""

    levels: list[Level]
    functions: dict[str, None]
    parameters: int


def dotted(names: Any) -> str:
    """Join the parts of a qualified name as they are written (folded, not quoted)."""
    return ".".join(str(part.sval) for part in names or () if isinstance(part, ast.String))


def column_name(node: Any) -> str | None:
    """Return the column of a plain column reference; None for ``*`` and anything else."""
    if not isinstance(node, ast.ColumnRef) or not node.fields:
        return None
    last = node.fields[-1]
    return str(last.sval) if isinstance(last, ast.String) else None


def without_casts(node: Any) -> Any:
    while isinstance(node, (ast.TypeCast, ast.CollateClause)):
        node = node.arg
    return node


def deparse(node: Any) -> str:
    """Write a node as SQL. An expression the printer does not know is named by its type in brackets.

    The node belongs to a tree that ``levels_of`` has walked: the printer needs the ancestors it sets.
    """
    try:
        stream = RawStream()
        stream.print_node(node)
        return stream.getvalue()
    except (RecursionError, NotImplementedError, AttributeError, TypeError, ValueError, KeyError):
        return f"<{type(node).__name__}>"


def nodes(root: Any) -> Iterator[ast.Node]:
    """Yield every node below and including ``root`` in the order of the text."""
    stack = [root]
    while stack:
        node = stack.pop()
        if isinstance(node, ast.Node):
            yield node
            stack.extend(reversed([getattr(node, name) for name in _child_names(node)]))
        elif isinstance(node, tuple):
            stack.extend(reversed(node))


def expression_nodes(root: Any) -> Iterator[ast.Node]:
    """Yield the nodes of one expression without entering sub-selects (their SubLink itself is yielded)."""
    stack = [root]
    while stack:
        node = stack.pop()
        if isinstance(node, ast.SubLink):
            yield node
            stack.append(node.testexpr)
        elif isinstance(node, ast.Node) and not isinstance(node, ast.SelectStmt):
            yield node
            stack.extend(reversed([getattr(node, name) for name in _child_names(node)]))
        elif isinstance(node, tuple):
            stack.extend(reversed(node))


_CHILDREN: dict[type[ast.Node], tuple[str, ...]] = {}


def _child_names(node: ast.Node) -> tuple[str, ...]:
    kind = type(node)
    names = _CHILDREN.get(kind)
    if names is None:
        names = _CHILDREN[kind] = tuple(name for name in node if name not in ("location", "ancestors"))
    return names


def levels_of(statement: Any) -> Tree:
    """Resolve the levels of one parsed statement."""
    # Once for the whole statement: RawStream's own entry point would do it for every expression.
    populate_ancestors((statement,))
    walker = _Walker()
    walker.statement(statement)
    return Tree(levels=walker.levels, functions=walker.functions, parameters=walker.parameters)


_SUBLINKS: dict[Any, Embedding] = {
    enums.SubLinkType.ANY_SUBLINK: "in",
    enums.SubLinkType.ALL_SUBLINK: "in",
    enums.SubLinkType.EXISTS_SUBLINK: "exists",
    enums.SubLinkType.ARRAY_SUBLINK: "array",
}
_AGGREGATES = frozenset(
    {"count", "sum", "avg", "min", "max", "array_agg", "json_agg", "jsonb_agg", "string_agg"}
)
"""Aggregates met in queue work; together with GROUP BY they tell a dashboard's question from a claim's."""

_Scope = dict[str, Cte]


class _Walker:
    def __init__(self) -> None:
        self.levels: list[Level] = []
        self.functions: dict[str, None] = {}
        self.parameters = 0

    def statement(self, node: Any) -> None:
        if isinstance(node, (ast.SelectStmt, ast.UpdateStmt, ast.DeleteStmt, ast.InsertStmt, ast.MergeStmt)):
            self.query(node, None, "top", {})
        elif isinstance(node, (ast.DeclareCursorStmt, ast.CreateTableAsStmt, ast.CopyStmt, ast.ViewStmt)):
            inner = getattr(node, "query", None)
            if inner is not None:
                self.statement(inner)
        elif isinstance(node, ast.CallStmt):
            self.expressions(node.funccall, None, {})
        elif isinstance(node, ast.ExecuteStmt):
            self.expressions(node.params, None, {})

    def query(self, node: Any, parent: Level | None, how: Embedding, scope: _Scope) -> list[Level]:
        if isinstance(node, ast.SelectStmt):
            return self.select(node, parent, how, scope)
        if isinstance(node, ast.UpdateStmt):
            return [self.write(node, "update", parent, how, scope)]
        if isinstance(node, ast.DeleteStmt):
            return [self.write(node, "delete", parent, how, scope)]
        if isinstance(node, ast.InsertStmt):
            return [self.write(node, "insert", parent, how, scope)]
        if isinstance(node, ast.MergeStmt):
            return [self.write(node, "merge", parent, how, scope)]
        return []

    def open(self, kind: LevelKind, node: Any, parent: Level | None, how: Embedding) -> Level:
        level = Level(kind=kind, node=node, parent=parent, how=how)
        self.levels.append(level)
        if parent is not None:
            parent.children.append(level)
        return level

    def with_queries(self, clause: Any, parent: Level | None, scope: _Scope) -> _Scope:
        if clause is None:
            return scope
        inner = dict(scope)
        for node in clause.ctes or ():
            cte = Cte(
                name=node.ctename,
                levels=[],
                materialized=node.ctematerialized == enums.CTEMaterialize.CTEMaterializeAlways,
            )
            if clause.recursive:
                inner[cte.name] = cte
            first = len(self.levels)
            cte.levels = self.query(node.ctequery, parent, "cte", inner)
            for level in self.levels[first:]:
                if level.cte is None:
                    level.cte = cte
            names = node.aliascolnames
            cte.outputs = (
                frozenset(part.sval for part in names)
                if names
                else _outputs(cte.levels[0])
                if cte.levels
                else None
            )
            inner[cte.name] = cte
        return inner

    def select(
        self, node: ast.SelectStmt, parent: Level | None, how: Embedding, scope: _Scope
    ) -> list[Level]:
        if node.op != enums.SetOperation.SETOP_NONE:
            scope = self.with_queries(node.withClause, parent, scope)
            branches = [
                level
                for side in (node.larg, node.rarg)
                for level in self.query(side, parent, "setop" if how == "top" else how, scope)
            ]
            for level in branches:
                # The limit of a set operation bounds each of its branches as well.
                level.limit = level.limit or node.limitCount
                level.sort = level.sort or node.sortClause or ()
            self.expressions((node.limitCount, node.limitOffset, node.sortClause), parent, scope)
            return branches
        level = self.open("select", node, parent, how)
        scope = self.with_queries(node.withClause, level, scope)
        level.locking = node.lockingClause or ()
        level.sort = node.sortClause or ()
        level.limit = node.limitCount
        level.aggregates = bool(node.groupClause)
        for entry in node.fromClause or ():
            self.from_entry(entry, level, scope, inner=True)
        level.where.extend(conjuncts(node.whereClause))
        for target in node.targetList or ():
            if any(
                isinstance(part, ast.FuncCall)
                and part.over is None
                and dotted(part.funcname).removeprefix("pg_catalog.") in _AGGREGATES
                for part in expression_nodes(target)
            ):
                level.aggregates = True
        self.expressions(
            (
                node.distinctClause,
                node.targetList,
                node.whereClause,
                node.groupClause,
                node.havingClause,
                node.windowClause,
                node.valuesLists,
                node.sortClause,
                node.limitCount,
                node.limitOffset,
            ),
            level,
            scope,
        )
        return [level]

    def write(self, node: Any, kind: LevelKind, parent: Level | None, how: Embedding, scope: _Scope) -> Level:
        level = self.open(kind, node, parent, how)
        scope = self.with_queries(node.withClause, level, scope)
        relation = node.relation
        level.target = Item(alias=_alias(relation), table=_table(relation))
        level.returning = node.returningClause is not None
        if kind == "update":
            for entry in node.fromClause or ():
                self.from_entry(entry, level, scope, inner=True)
            level.sets = [target for target in node.targetList or () if isinstance(target, ast.ResTarget)]
            self.expressions(node.targetList, level, scope)
        elif kind == "delete":
            for entry in node.usingClause or ():
                self.from_entry(entry, level, scope, inner=True)
        elif kind == "insert":
            if node.selectStmt is not None:
                self.query(node.selectStmt, level, "source", scope)
            conflict = node.onConflictClause
            if conflict is not None:
                level.sets = [
                    target for target in conflict.targetList or () if isinstance(target, ast.ResTarget)
                ]
                self.expressions((conflict.targetList, conflict.whereClause), level, scope)
        else:
            self.from_entry(node.sourceRelation, level, scope, inner=True)
            level.where.extend(conjuncts(node.joinCondition))
            self.expressions(node.joinCondition, level, scope)
            for clause in node.mergeWhenClauses or ():
                if clause.commandType == enums.CmdType.CMD_UPDATE:
                    level.sets.extend(t for t in clause.targetList or () if isinstance(t, ast.ResTarget))
                self.expressions((clause.condition, clause.targetList, clause.values), level, scope)
        where = getattr(node, "whereClause", None)
        level.where.extend(conjuncts(where))
        self.expressions((where, node.returningClause), level, scope)
        return level

    def from_entry(self, node: Any, level: Level, scope: _Scope, *, inner: bool) -> None:
        if isinstance(node, ast.RangeVar):
            cte = scope.get(node.relname or "") if node.schemaname is None else None
            if cte is not None:
                cte.users.append(level)
                level.items.append(Item(alias=_alias(node), levels=cte.levels, cte=cte, outputs=cte.outputs))
            else:
                level.items.append(Item(alias=_alias(node), table=_table(node)))
        elif isinstance(node, ast.RangeSubselect):
            found = self.query(node.subquery, level, "lateral" if node.lateral else "from", scope)
            alias = node.alias
            names = alias.colnames if alias is not None else None
            outputs = (
                frozenset(part.sval for part in names) if names else _outputs(found[0]) if found else None
            )
            level.items.append(
                Item(
                    alias=(alias.aliasname or "") if alias is not None else "", levels=found, outputs=outputs
                )
            )
        elif isinstance(node, ast.JoinExpr):
            is_inner = inner and node.jointype == enums.JoinType.JOIN_INNER
            self.from_entry(node.larg, level, scope, inner=inner)
            self.from_entry(node.rarg, level, scope, inner=inner)
            if is_inner:
                level.where.extend(conjuncts(node.quals))
            self.expressions(node.quals, level, scope)
        elif isinstance(node, ast.RangeTableSample):
            self.from_entry(node.relation, level, scope, inner=inner)
            self.expressions(node.args, level, scope)
        elif isinstance(node, ast.Node):
            # A function, XMLTABLE or JSON_TABLE: it holds no table's rows.
            alias = getattr(node, "alias", None)
            name = alias.aliasname if alias is not None else None
            level.items.append(Item(alias=name or "", outputs=frozenset({name} if name else ())))
            self.expressions(node, level, scope)

    def expressions(self, root: Any, level: Level | None, scope: _Scope) -> None:
        for node in expression_nodes(root):
            if isinstance(node, ast.FuncCall):
                self.functions.setdefault(dotted(node.funcname))
            elif isinstance(node, ast.ParamRef):
                self.parameters = max(self.parameters, node.number or 0)
            elif isinstance(node, ast.SubLink):
                how = _SUBLINKS.get(node.subLinkType, "expr")
                for found in self.query(node.subselect, level, how, scope):
                    found.tested = node.testexpr


def conjuncts(node: Any) -> list[ast.Node]:
    """Split a condition at its ANDs."""
    if node is None:
        return []
    if isinstance(node, ast.BoolExpr) and node.boolop == enums.BoolExprType.AND_EXPR:
        return [part for argument in node.args or () for part in conjuncts(argument)]
    return [node]


def _alias(node: Any) -> str:
    alias = node.alias
    return str((alias.aliasname if alias is not None else None) or node.relname or "")


def _table(node: Any) -> TableName:
    return TableName(schema=node.schemaname, name=node.relname or "")


def _outputs(level: Level) -> frozenset[str] | None:
    """Return the names of a level's output columns, or None where ``*`` hides them."""
    if level.kind == "select":
        targets = level.node.targetList
    else:
        clause = level.node.returningClause
        targets = clause.exprs if clause is not None else ()
    names: set[str] = set()
    for target in targets or ():
        if not isinstance(target, ast.ResTarget):
            continue
        if target.name:
            names.add(target.name)
            continue
        value = without_casts(target.val)
        if isinstance(value, ast.ColumnRef):
            name = column_name(value)
            if name is None:
                return None
            names.add(name)
        elif isinstance(value, ast.FuncCall):
            names.add(dotted(value.funcname).rpartition(".")[2])
    return frozenset(names)
