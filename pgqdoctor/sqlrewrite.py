"""Statements made out of statements: what a claim looks for, with parameters filled in, safe to execute.

All of it works on the parse tree and is written back by pglast's printer; nothing is replaced in text.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from pgqdoctor.sqlfacts import Claim
from pgqdoctor.sqlharmless import HARMLESS_FUNCTIONS, HARMLESS_OPERATORS
from pgqdoctor.sqlparameters import fill_parameters, parameters_of, printed, renumber_parameters
from pgqdoctor.sqltext import Piece, Unparsable, parse, split, without_prepare

if TYPE_CHECKING:
    from pgqdoctor.sqlconditions import Reader
    from pgqdoctor.sqlscope import Level, Tree

__all__ = [
    "HARMLESS_FUNCTIONS",
    "Uses",
    "fill_parameters",
    "finding_select",
    "first_statement",
    "functions_called",
    "is_harmless",
    "joining_select",
    "locking_select",
    "parameters_of",
    "quote_ident",
    "renumber_parameters",
    "uses_of",
]

_SAFE = re.compile(r"[a-z_][a-z0-9_]*\Z")


def quote_ident(name: str) -> str:
    """Quote a name as PostgreSQL's quote_ident does: only where it is not lower case or is a keyword."""
    if _SAFE.match(name) and name not in _keywords():
        return name
    return '"' + name.replace('"', '""') + '"'


@lru_cache(maxsize=1)
def _keywords() -> frozenset[str]:
    from pglast import keywords

    # quote_identifier() leaves only unreserved keywords bare.
    return frozenset(
        keywords.COL_NAME_KEYWORDS | keywords.RESERVED_KEYWORDS | keywords.TYPE_FUNC_NAME_KEYWORDS
    )


def first_statement(text: str) -> str | None:
    """Return the first statement without comments before it, PREPARE prefix and semicolon; None if there is
    none."""
    try:
        for piece in split(text):
            return without_prepare(piece).text
    except Unparsable:
        pass
    return None


def finding_select(text: str, claim: Claim) -> str | None:
    """Return the SELECT that finds the rows of a claim, without its locking clauses; None where it cannot be
    taken out.

    CTEs it reads come with it. For a guarded UPDATE by key it is ``SELECT 1 FROM table WHERE`` its own WHERE.
    Parameters stay. Whether it may be executed is another question: see is_harmless.
    """
    return _select(text, claim, keep_locks=False)


def locking_select(text: str, claim: Claim) -> str | None:
    """Return the same SELECT as finding_select with its locking clauses; None where the claim has no lock."""
    return _select(text, claim, keep_locks=True) if claim.lock is not None else None


def joining_select(text: str) -> str | None:
    """Return ``SELECT 1`` over the tables and WHERE of an UPDATE or DELETE, without locking clauses; None for anything else.

    The planner joins it as it joins the statement itself, and EXPLAIN of it needs no privilege to write.
    """
    from pglast import ast

    from pgqdoctor.sqlscope import nodes

    try:
        pieces = [parse(without_prepare(piece)).stmt for piece in split(text)]
    except (Unparsable, RecursionError):
        return None
    node: Any = pieces[0] if len(pieces) == 1 else None
    if not isinstance(node, (ast.UpdateStmt, ast.DeleteStmt)):
        return None
    select: Any = parse(next(split("SELECT 1"))).stmt
    sources = node.fromClause if isinstance(node, ast.UpdateStmt) else node.usingClause
    select.fromClause = (node.relation, *(sources or ()))
    select.whereClause = node.whereClause
    select.withClause = node.withClause
    for part in nodes(select):
        if isinstance(part, (ast.InsertStmt, ast.UpdateStmt, ast.DeleteStmt, ast.MergeStmt)):
            return None
        if isinstance(part, ast.SelectStmt):
            part.lockingClause = None
    return printed(select)


def _select(text: str, claim: Claim, *, keep_locks: bool) -> str | None:
    from pgqdoctor.sqlclaims import claims_of

    try:
        for piece in map(without_prepare, split(text)):
            try:
                tree, reader = _tree(piece)
            except Unparsable:
                continue
            for found in claims_of(tree, reader):
                if found.claim == claim:
                    return _isolated(found.level, keep_locks=keep_locks)
    except (Unparsable, RecursionError):
        pass
    return None


def _tree(piece: Piece) -> tuple[Tree, Reader]:
    from pgqdoctor.sqlconditions import Reader
    from pgqdoctor.sqlscope import levels_of

    return levels_of(parse(piece).stmt), Reader()


def _isolated(level: Level, *, keep_locks: bool) -> str | None:
    from pglast import ast

    from pgqdoctor.sqlscope import nodes

    outer = _self_contained(level)
    if outer is None:
        return None
    node: Any = outer.node
    select: Any = node
    if outer.kind == "select":
        select.intoClause = None
    else:
        sources = node.fromClause if outer.kind == "update" else node.usingClause
        select = parse(next(split("SELECT 1"))).stmt
        select.fromClause = (node.relation, *(sources or ()))
        select.whereClause = node.whereClause
        select.withClause = node.withClause
    ctes = _needed_ctes(select, outer)
    if ctes is None:
        return None
    if ctes:
        own = select.withClause
        select.withClause = ast.WithClause(
            ctes=(*ctes, *(own.ctes if own is not None else ())),
            recursive=any(cte.cterecursive for cte in ctes)
            or bool(own is not None and own.recursive)
            or _recursive(outer),
        )
    for part in nodes(select):
        if isinstance(part, (ast.InsertStmt, ast.UpdateStmt, ast.DeleteStmt, ast.MergeStmt)):
            return None
        if isinstance(part, ast.SelectStmt) and not keep_locks:
            part.lockingClause = None
    return printed(select)


def _self_contained(level: Level) -> Level | None:
    """Return the level, or the nearest SELECT around it that refers to no outer row and bears its LIMIT."""
    at = level
    while True:
        parent = at.parent
        bounded = at.limit is None and at.how == "from" and parent is not None and parent.limit is not None
        if not bounded and not _refers_outside(at):
            return at
        if parent is None or parent.kind != "select":
            return None if _refers_outside(at) else at
        at = parent


def _refers_outside(level: Level) -> bool:
    from pgqdoctor.sqlonce import correlated

    return correlated(level)


def _needed_ctes(select: Any, level: Level) -> list[Any] | None:
    """Return the definitions of the CTEs of enclosing levels that a SELECT reads, in order; None if one
    cannot be had."""
    available: dict[str, Any] = {}
    order: list[str] = []
    for outer in reversed(list(level.ancestors())):
        clause = getattr(outer.node, "withClause", None)
        for cte in clause.ctes if clause is not None else ():
            available[cte.ctename] = cte
            order.append(cte.ctename)
    wanted: set[str] = set()
    todo = [select]
    while todo:
        for name in _relations(todo.pop()):
            if name in available and name not in wanted:
                wanted.add(name)
                todo.append(available[name].ctequery)
    if level.cte is not None and level.cte.name in wanted:
        return None  # the level is the recursive term of its own CTE
    return [available[name] for name in dict.fromkeys(order) if name in wanted]


def _recursive(level: Level) -> bool:
    return any(
        clause.recursive
        for outer in level.ancestors()
        if (clause := getattr(outer.node, "withClause", None)) is not None
    )


def _relations(node: Any) -> Iterator[str]:
    from pglast import ast

    from pgqdoctor.sqlscope import nodes

    for part in nodes(node):
        if isinstance(part, ast.RangeVar) and part.schemaname is None and part.relname:
            yield part.relname


# What a statement calls


def functions_called(text: str) -> tuple[str, ...]:
    """Return every function a text calls, schema-qualified as it is written, and operators named with a
    schema.

    Raises ValueError where a statement does not parse: what it calls is not known then.
    """
    return tuple(dict.fromkeys(name for node in _parsed(text) for name in _called(node)))


def _parsed(text: str) -> list[Any]:
    try:
        return [parse(without_prepare(piece)).stmt for piece in split(text)]
    except Unparsable as error:
        raise ValueError(error.message) from None


def _called(root: Any) -> Iterator[str]:
    from pglast import ast

    from pgqdoctor.sqlscope import dotted, nodes

    for node in nodes(root):
        if isinstance(node, ast.FuncCall):
            yield dotted(node.funcname)
        elif isinstance(node, ast.A_Expr) and len(node.name or ()) > 1:
            yield dotted(node.name)
        elif isinstance(node, ast.SubLink) and len(node.operName or ()) > 1:
            yield dotted(node.operName)
        elif isinstance(node, ast.SortBy) and node.useOp and len(node.useOp) > 1:
            yield dotted(node.useOp)
        elif isinstance(node, ast.RangeTableSample):
            yield dotted(node.method)


def is_harmless(text: str, *, harmless: Collection[str] = HARMLESS_FUNCTIONS) -> bool:
    """Tell whether everything a text calls is known to change nothing outside its transaction.

    ``harmless`` names functions of pg_catalog without their schema, others with it. The answer is about
    functions and operators only: an UPDATE without any is harmless in this sense, and still writes.
    Statements other than SELECT, INSERT, UPDATE, DELETE and MERGE, and SELECT INTO, are not; text that does
    not parse is not.
    """
    from pglast import ast, enums

    from pgqdoctor.sqlscope import dotted, nodes

    try:
        statements = _parsed(text)
    except (ValueError, RecursionError):
        return False
    for root in statements:
        if not isinstance(
            root, (ast.SelectStmt, ast.InsertStmt, ast.UpdateStmt, ast.DeleteStmt, ast.MergeStmt)
        ):
            return False
        for node in nodes(root):
            if isinstance(node, ast.SelectStmt) and node.intoClause is not None:
                return False
            if isinstance(node, ast.FuncCall):
                name = _one_name(node.funcname)
                if name.removeprefix("pg_catalog.") not in harmless and name not in harmless:
                    return False
            elif isinstance(node, ast.A_Expr):
                if node.kind in (
                    enums.A_Expr_Kind.AEXPR_OP,
                    enums.A_Expr_Kind.AEXPR_OP_ANY,
                    enums.A_Expr_Kind.AEXPR_OP_ALL,
                ) and not _harmless_operator(dotted(node.name)):
                    return False
            elif isinstance(node, ast.SubLink) and node.operName:
                if not _harmless_operator(dotted(node.operName)):
                    return False
            elif isinstance(node, ast.SortBy) and node.useOp:
                if not _harmless_operator(dotted(node.useOp)):
                    return False
            elif isinstance(node, ast.RangeTableSample) and dotted(node.method) not in (
                "system",
                "bernoulli",
            ):
                return False
    return bool(statements)


@dataclass(frozen=True, slots=True, kw_only=True)
class Uses:
    """Every name in a statement that the server looks up, without its schema; ``schemas`` are those written.

    ``attributes`` are names after a dot: ``j.due`` is a call of due(jobs) where the table has no such column.
    """

    relations: frozenset[str]
    functions: frozenset[str]
    types: frozenset[str]
    attributes: frozenset[str]
    schemas: frozenset[str]


def uses_of(text: str) -> Uses:
    """Return the names that a text uses.

    Raises ValueError where a statement does not parse.
    """
    from pglast import ast

    from pgqdoctor.sqlscope import nodes

    relations: set[str] = set()
    functions: set[str] = set()
    types: set[str] = set()
    attributes: set[str] = set()
    schemas: set[str] = set()

    def strings(parts: Any) -> list[str]:
        return [str(part.sval) for part in parts or () if isinstance(part, ast.String)]

    def named(parts: Any, into: set[str]) -> None:
        words = strings(parts)
        into.update(words[-1:])
        schemas.update(words[:-1])

    for root in _parsed(text):
        for node in nodes(root):
            if isinstance(node, ast.RangeVar):
                relations.add(node.relname or "")
                schemas.update([node.schemaname] if node.schemaname else [])
            elif isinstance(node, ast.FuncCall):
                named(node.funcname, functions)
            elif isinstance(node, ast.TypeName):
                named(node.names, types)
            elif isinstance(node, ast.ColumnRef):
                attributes.update(strings(node.fields)[1:])
            elif isinstance(node, ast.A_Indirection):
                attributes.update(strings(node.indirection))
    return Uses(
        relations=frozenset(relations),
        functions=frozenset(functions),
        types=frozenset(types),
        attributes=frozenset(attributes),
        schemas=frozenset(schemas),
    )


def _one_name(names: Any) -> str:
    """Join the parts of a name; one with a dot in a part is no name of PostgreSQL's own."""
    from pgqdoctor.sqlscope import dotted

    return "" if any("." in str(getattr(part, "sval", "")) for part in names or ()) else dotted(names)


def _harmless_operator(name: str) -> bool:
    return name.removeprefix("pg_catalog.") in HARMLESS_OPERATORS
