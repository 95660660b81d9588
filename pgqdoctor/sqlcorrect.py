"""Claims as they should read: the application's own statement with its fault taken out. Pure.

The parse tree is changed and written back by pglast's printer, so conditions, joins and order stay the
application's. Every function returns None where the change is not possible; whoever asks falls back to words.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from pgqdoctor.sqlfacts import Claim
from pgqdoctor.sqlrewrite import fill_parameters, parameters_of, quote_ident
from pgqdoctor.sqltext import Unparsable, parse, split, without_prepare

if TYPE_CHECKING:
    from pgqdoctor.sqlclaims import Found
    from pgqdoctor.sqlscope import Level


@dataclass(frozen=True, slots=True, kw_only=True)
class TableWords:
    """What of a queue's table a corrected statement needs: its quoted name and the names of its key columns."""

    name: str
    key: tuple[str, ...]


def skip_locked(text: str, claim: Claim) -> str | None:
    """Return the statement with its job-finding SELECT under FOR NO KEY UPDATE SKIP LOCKED.

    An existing lock keeps its strength. A SELECT that groups or aggregates cannot lock rows.
    """
    from pglast import ast, enums

    for root, found in _found(text, claim):
        node: Any = found.level.node
        if (
            found.level.kind != "select"
            or found.level.aggregates
            or node.groupClause
            or node.distinctClause
            or node.op
            or _windows(node)
            or (claim.lock is None and claim.limit_kind != "none" and node.limitCount is None)
        ):
            # Rows behind a window function or an aggregate cannot be locked; without a LIMIT of its own the search would lock them all.
            return None
        clauses = node.lockingClause or ()
        if clauses:
            for one in clauses:
                one.waitPolicy = enums.LockWaitPolicy.LockWaitSkip
                if one.strength == enums.LockClauseStrength.LCS_FORKEYSHARE:
                    one.strength = enums.LockClauseStrength.LCS_FORNOKEYUPDATE
        else:
            alias = _alias_of(found.level, claim)
            rels = (_range(alias),) if alias is not None and len(found.level.items) > 1 else None
            node.lockingClause = (
                ast.LockingClause(
                    lockedRels=rels,
                    strength=enums.LockClauseStrength.LCS_FORNOKEYUPDATE,
                    waitPolicy=enums.LockWaitPolicy.LockWaitSkip,
                ),
            )
        return _written(root)
    return None


def weaker_lock(text: str, claim: Claim) -> str | None:
    """Return the statement with FOR NO KEY UPDATE in the place of FOR UPDATE."""
    from pglast import enums

    for root, found in _found(text, claim):
        clauses = found.level.node.lockingClause or ()
        if not clauses:
            return None
        for one in clauses:
            if one.strength == enums.LockClauseStrength.LCS_FORUPDATE:
                one.strength = enums.LockClauseStrength.LCS_FORNOKEYUPDATE
        return _written(root)
    return None


def own_rows_only(text: str, claim: Claim) -> str | None:
    """Return the statement with its locking clause confined to the claim's table: FOR UPDATE OF j; None where a clause names tables."""
    from pglast import ast

    for root, found in _found(text, claim):
        clauses: Any = found.level.node.lockingClause or ()
        if len(clauses) != 1 or clauses[0].lockedRels:
            return None
        for item in found.level.node.fromClause or ():
            name = _name_in(item, claim.table.name)
            if name is not None:
                clauses[0].lockedRels = (ast.RangeVar(relname=name, inh=True, relpersistence="p"),)
                return _written(root)
    return None


def _name_in(node: Any, table: str) -> str | None:
    """Return the name by which a FROM item, or a join in it, calls the table."""
    from pglast import ast

    if isinstance(node, ast.RangeVar) and node.relname == table:
        return str(node.alias.aliasname if node.alias is not None else node.relname)
    if isinstance(node, ast.JoinExpr):
        return _name_in(node.larg, table) or _name_in(node.rarg, table)
    return None


def bounded(text: str, claim: Claim, limit: int) -> str | None:
    """Return the statement with a LIMIT on the SELECT that finds the jobs; None where there is no such
    SELECT."""
    from pglast import ast, enums

    for root, found in _found(text, claim):
        node: Any = found.level.node
        if found.level.kind != "select" or node.limitCount is not None:
            return None
        node.limitCount = ast.A_Const(isnull=False, val=ast.Integer(ival=limit))
        node.limitOption = enums.LimitOption.LIMIT_OPTION_COUNT
        return _written(root)
    return None


def materialized(text: str, claim: Claim) -> str | None:
    """Return the statement with the SELECT that bears the LIMIT in a CTE AS MATERIALIZED, which is computed
    once."""
    from pglast import ast, enums

    for root, found in _found(text, claim):
        level: Level = found.level
        # The level that the statement may execute again: a plain sub-select in FROM passes its rows through.
        while level.how == "from" and level.parent is not None and len(level.parent.scope()) == 1:
            level = level.parent
        top = level
        while top.parent is not None:
            top = top.parent
        if level.how == "cte" and level.cte is not None:
            for part in _nodes(root):
                if isinstance(part, ast.CommonTableExpr) and part.ctename == level.cte.name:
                    part.ctematerialized = enums.CTEMaterialize.CTEMaterializeAlways
            return _written(root)
        name = "picked"
        taken = {item.alias for each in (level, *level.ancestors()) for item in each.scope()}
        while name in taken:
            name += "_jobs"
        if not _moved(root, level, name):
            return None
        cte = ast.CommonTableExpr(
            ctename=name, ctequery=level.node, ctematerialized=enums.CTEMaterialize.CTEMaterializeAlways
        )
        clause = top.node.withClause
        if clause is None:
            top.node.withClause = ast.WithClause(ctes=(cte,), recursive=False)
        else:
            clause.ctes = (*clause.ctes, cte)
        return _written(root)
    return None


def one_statement(select: str, update: str, table: TableWords, *, many: bool) -> str | None:
    """Return one UPDATE ... SKIP LOCKED made of an unlocked SELECT ... LIMIT and an UPDATE by key.

    Parameters of the UPDATE's SET come first and keep their numbers where they can; those of the SELECT are
    numbered after them. ``many`` tells whether the SELECT may yield several rows.
    """
    from pglast import ast, enums

    from pgqdoctor.sqlscope import column_name, levels_of

    try:
        found: Any = parse(without_prepare(next(split(select)))).stmt
        changed: Any = parse(without_prepare(next(split(update)))).stmt
    except (Unparsable, StopIteration, RecursionError):
        return None
    if not isinstance(found, ast.SelectStmt) or not isinstance(changed, ast.UpdateStmt) or not table.key:
        return None
    tree = levels_of(found)
    level = tree.levels[0]
    if (
        level.aggregates
        or found.groupClause
        or found.distinctClause
        or found.op
        or len(level.items) != 1
        or not level.items[0].table
    ):
        return None
    alias = level.items[0].alias
    names = [column_name(one.val) for one in found.targetList or ()]
    columns = [name for name in names if name is not None] if None not in names else []
    found.targetList = tuple(ast.ResTarget(val=_column(alias, key)) for key in table.key)
    found.lockingClause = (
        ast.LockingClause(
            strength=enums.LockClauseStrength.LCS_FORNOKEYUPDATE, waitPolicy=enums.LockWaitPolicy.LockWaitSkip
        ),
    )
    sets = [
        node for one in changed.targetList or () for node in _nodes(one) if isinstance(node, ast.ParamRef)
    ]
    finds = [node for node in _nodes(found) if isinstance(node, ast.ParamRef)]
    numbers: dict[tuple[str, int], int] = {}
    for side, group in (("set", sets), ("find", finds)):
        for number in sorted({node.number or 0 for node in group}):
            numbers[side, number] = len(numbers) + 1
        for node in group:
            node.number = numbers[side, node.number or 0]
    target: Any = changed.relation
    inner = target.alias.aliasname if target.alias is not None else target.relname
    keys = tuple(_column(inner, key) for key in table.key)
    tested = (
        keys[0]
        if len(keys) == 1
        else ast.RowExpr(args=keys, row_format=enums.CoercionForm.COERCE_IMPLICIT_CAST)
    )
    changed.fromClause = None
    changed.withClause = None
    if many:
        cte = ast.CommonTableExpr(
            ctename="picked", ctequery=found, ctematerialized=enums.CTEMaterialize.CTEMaterializeAlways
        )
        changed.withClause = ast.WithClause(ctes=(cte,), recursive=False)
        chosen = parse(next(split("SELECT * FROM picked"))).stmt
        changed.whereClause = ast.SubLink(
            subLinkType=enums.SubLinkType.ANY_SUBLINK, testexpr=tested, subselect=chosen
        )
    elif len(keys) == 1:
        changed.whereClause = ast.A_Expr(
            kind=enums.A_Expr_Kind.AEXPR_OP,
            name=(ast.String(sval="="),),
            lexpr=tested,
            rexpr=ast.SubLink(subLinkType=enums.SubLinkType.EXPR_SUBLINK, subselect=found),
        )
    else:
        return one_statement(select, update, table, many=True)
    if _returning(changed) is None:
        _return(changed, tuple(ast.ResTarget(val=_column(inner, name)) for name in columns or table.key))
    return _written(changed)


def one_group(text: str, claim: Claim) -> str | None:
    """Return the statement for one value of the column that its ORDER BY ranks by an expression, without that
    expression.

    ORDER BY CASE queue WHEN ... becomes AND queue = $n: the caller asks for the groups one after the other.
    None where the expressions are not about exactly one column.
    """
    from pglast import ast, enums

    from pgqdoctor.sqlscope import column_name, expression_nodes

    for root, found in _found(text, claim):
        node: Any = found.level.node
        if found.level.kind != "select":
            return None
        computed = [key for key in node.sortClause or () if column_name(key.node) is None]
        columns = [
            part for key in computed for part in expression_nodes(key.node) if isinstance(part, ast.ColumnRef)
        ]
        if not computed or len({column_name(one) for one in columns}) != 1:
            return None
        gone = {id(part) for key in computed for part in _nodes(key)}
        numbers = [
            part.number or 0
            for part in _nodes(root)
            if isinstance(part, ast.ParamRef) and id(part) not in gone
        ]
        test = ast.A_Expr(
            kind=enums.A_Expr_Kind.AEXPR_OP,
            name=(ast.String(sval="="),),
            lexpr=ast.ColumnRef(fields=columns[0].fields),
            rexpr=ast.ParamRef(number=max(numbers, default=0) + 1),
        )
        kept = tuple(key for key in node.sortClause if not any(key is one for one in computed))
        node.sortClause = kept or None
        old = node.whereClause
        parts = (
            old.args
            if isinstance(old, ast.BoolExpr) and old.boolop == enums.BoolExprType.AND_EXPR
            else (old,)
        )
        node.whereClause = (
            test
            if old is None
            else ast.BoolExpr(boolop=enums.BoolExprType.AND_EXPR, args=(*(parts or ()), test))
        )
        return _written(root)
    return None


def without_cast(text: str, column: str) -> str | None:
    """Return the statement with casts of ``column`` taken out of its comparisons; None where it has none."""
    from pglast import ast

    from pgqdoctor.sqlscope import column_name

    try:
        root: Any = parse(without_prepare(next(split(text)))).stmt
    except (Unparsable, StopIteration, RecursionError):
        return None
    changed = False
    for part in _nodes(root):
        if not isinstance(part, ast.A_Expr):
            continue
        for side in ("lexpr", "rexpr"):
            cast = getattr(part, side)
            if isinstance(cast, ast.TypeCast) and column_name(cast.arg) == column:
                setattr(part, side, cast.arg)
                changed = True
    return _written(root) if changed else None


def without_advisory(text: str, claim: Claim) -> str | None:
    """Return the claim with SKIP LOCKED in the place of the advisory-lock functions in its WHERE."""
    from pglast import ast, enums

    from pgqdoctor.sqlclaims import ADVISORY_LOCKS
    from pgqdoctor.sqlscope import conjuncts, dotted, expression_nodes

    for root, found in _found(text, claim):
        node: Any = found.level.node
        if (
            found.level.kind != "select"
            or found.level.aggregates
            or node.groupClause
            or node.op
            or node.whereClause is None
        ):
            return None
        parts = list(conjuncts(node.whereClause))
        kept = [
            part
            for part in parts
            if not any(
                isinstance(each, ast.FuncCall)
                and dotted(each.funcname).removeprefix("pg_catalog.") in ADVISORY_LOCKS
                for each in expression_nodes(part)
            )
        ]
        if len(kept) == len(parts) or len(found.level.items) != 1 or found.level.items[0].table is None:
            return None
        node.whereClause = (
            None
            if not kept
            else kept[0]
            if len(kept) == 1
            else ast.BoolExpr(boolop=enums.BoolExprType.AND_EXPR, args=tuple(kept))
        )
        node.lockingClause = (
            ast.LockingClause(
                strength=enums.LockClauseStrength.LCS_FORNOKEYUPDATE,
                waitPolicy=enums.LockWaitPolicy.LockWaitSkip,
            ),
        )
        return _written(root)
    return None


def filled(text: str, known: Mapping[tuple[str, str], Sequence[str]], limit: str | None = None) -> str:
    """Put back constants that normalising took out of a statement, where they are known.

    ``known`` maps ("compare" or "set", column) to SQL literals. Parameters without a known value stay: they
    are the application's. A LIMIT's parameter becomes ``limit`` where given.
    """
    values: dict[int, str] = {}
    for use in parameters_of(text):
        if use.role == "limit" and limit is not None:
            values.setdefault(use.number, limit)
        elif (
            use.column is not None
            and use.role in ("compare", "set")
            and (use.role == "set" or use.operator in ("=", "in"))
        ):
            literals = known.get((use.role, use.column), ())
            if len(literals) == 1 or (
                literals and use.role == "compare" and use.operator == "in" and not use.array
            ):
                values.setdefault(use.number, ", ".join(literals))
    if not values:
        return text
    try:
        return fill_parameters(text, values)
    except ValueError:
        return text


def _found(text: str, claim: Claim) -> Iterator[tuple[Any, Found]]:
    """Yield the tree of the statement that holds the claim, with the claim's level in it."""
    from pgqdoctor.sqlclaims import claims_of
    from pgqdoctor.sqlconditions import Reader
    from pgqdoctor.sqlscope import levels_of

    try:
        for piece in map(without_prepare, split(text)):
            try:
                root = parse(piece).stmt
                tree, reader = levels_of(root), Reader()
            except Unparsable:
                continue
            for found in claims_of(tree, reader):
                # What bounds a claim may stand around its text: a cursor, or INTO in a function.
                if replace(found.claim, limit_kind=claim.limit_kind, limit=claim.limit) == claim:
                    yield root, found
                    return
    except (Unparsable, RecursionError):
        return


def _windows(node: Any) -> bool:
    from pgqdoctor.sqlscope import expression_nodes

    return any(
        getattr(part, "over", None) is not None
        for target in node.targetList or ()
        for part in expression_nodes(target)
    )


def _moved(root: Any, level: Level, name: str) -> bool:
    """Put a reference to the CTE ``name`` where ``level`` stood."""
    from pglast import ast

    parent = level.parent
    if parent is None:
        return False
    chosen = parse(next(split(f"SELECT * FROM {quote_ident(name)}"))).stmt
    for part in _nodes(root):
        if isinstance(part, ast.SubLink) and part.subselect is level.node:
            part.subselect = chosen
            return True
    for part in _nodes(root):
        for field in ("fromClause", "usingClause"):
            sources = getattr(part, field, None) if isinstance(part, ast.Node) else None
            if not isinstance(sources, tuple):
                continue
            for place, source in enumerate(sources):
                if (
                    isinstance(source, ast.RangeSubselect)
                    and source.subquery is level.node
                    and not source.lateral
                ):
                    item = ast.RangeVar(relname=name, inh=True, relpersistence="p", alias=source.alias)
                    setattr(part, field, (*sources[:place], item, *sources[place + 1 :]))
                    return True
    return False


def _returning(node: Any) -> Any:
    """Return the RETURNING of a write under either of the names that pglast's versions give it."""
    clause = getattr(node, "returningClause", None)
    return clause if clause is not None else getattr(node, "returningList", None)


def _return(node: Any, targets: tuple[Any, ...]) -> None:
    from pglast import ast

    if "returningClause" in set(node):
        node.returningClause = ast.ReturningClause(options=None, exprs=targets)
    else:
        node.returningList = targets


def _alias_of(level: Level, claim: Claim) -> str | None:
    from pgqdoctor.sqlconditions import same_table

    return next((item.alias for item in level.items if same_table(item.table, claim.table)), None)


def _range(name: str) -> Any:
    from pglast import ast

    return ast.RangeVar(relname=name, inh=True, relpersistence="p")


def _column(alias: str, name: str) -> Any:
    from pglast import ast

    return ast.ColumnRef(fields=(ast.String(sval=alias), ast.String(sval=name)))


def _nodes(root: Any) -> Iterator[Any]:
    from pgqdoctor.sqlscope import nodes

    return nodes(root)


def _written(root: Any) -> str | None:
    """Write a changed tree as SQL; None where reading and writing it again gives another text."""
    from pgqdoctor.sqlscope import deparse, levels_of

    levels_of(root)
    text = deparse(root)
    try:
        pieces = list(split(text))
        if len(pieces) != 1:
            return None
        again = parse(pieces[0]).stmt
        levels_of(again)
        return text if deparse(again) == text else None
    except (Unparsable, RecursionError):
        return None
