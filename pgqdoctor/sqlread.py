"""What SQL statements say: pg_stat_statements and pg_stat_activity texts, function bodies, .sql files.

Text is parsed with PostgreSQL's own grammar and never guessed: what the grammar rejects is reported as
unread.
"""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache
from hashlib import sha256
from typing import TYPE_CHECKING, Any

from pgqdoctor.sqlfacts import (
    Claim,
    Condition,
    FunctionBody,
    Read,
    Reading,
    RowLock,
    Statement,
    StatementKind,
    TableName,
    Unread,
    Write,
)
from pgqdoctor.sqltext import (
    MAX_NESTING,
    Piece,
    Unparsable,
    may_concern_queue,
    nesting,
    parse,
    repaired,
    scan,
    split,
    without_prepare,
)

if TYPE_CHECKING:
    from pgqdoctor.sqlconditions import Reader
    from pgqdoctor.sqlscope import Level

__all__ = ["may_concern_queue", "read_function", "read_predicate", "read_sql", "text_fingerprint"]


def read_sql(text: str, *, cut_at: int | None = None) -> Reading:
    """Read one string of one or more statements.

    ``cut_at`` is track_activity_query_size in bytes where the text comes from pg_stat_activity. A text that
    fills it is taken for cut, and its last statement is reported as unread even where it parses: what is
    missing could be SKIP LOCKED, or a condition.
    """
    cut = False
    if cut_at is not None:
        # The server keeps cut_at - 1 bytes and clips at a character's boundary: at most 3 bytes fewer.
        cut = len(text.encode("utf-8", "surrogatepass")) >= cut_at - 4
    return _read(text, cut, frozenset(), False)


def read_in_function(text: str, variables: frozenset[str], prefer_columns: bool) -> Reading:
    """Read a statement of a function whose variables are known.

    ``prefer_columns`` as in SQL functions and under ``#variable_conflict use_column``: on the left side of a
    comparison a name is a column even where a variable has the same name.
    """
    return _read(text, False, variables, prefer_columns)


def read_function(name: str, language: str, body: str, *, arguments: tuple[str, ...] = ()) -> FunctionBody:
    """Read a function's body (pg_proc.prosrc); see sqlbody.read_function."""
    return _read_function(name, language, body, arguments)


@lru_cache(maxsize=512)
def _read_function(name: str, language: str, body: str, arguments: tuple[str, ...]) -> FunctionBody:
    from pgqdoctor import sqlbody

    return sqlbody.read_function(name, language, body, arguments=arguments)


@lru_cache(maxsize=4096)
def _read(text: str, cut: bool, variables: frozenset[str], prefer_columns: bool) -> Reading:
    statements: list[Statement] = []
    unread: list[Unread] = []
    try:
        pieces = list(split(text))
    except Unparsable as error:
        head, tail = _readable_head(text)
        pieces = head
        unread.append(
            Unread(text=text[tail:], offset=tail, error=error.message, truncated=error.truncated or cut)
        )
        cut = False
    for index, piece in enumerate(pieces):
        is_last = index == len(pieces) - 1
        if cut and is_last:
            unread.append(
                Unread(
                    text=piece.text,
                    offset=piece.offset,
                    error="the text was cut by the server",
                    truncated=True,
                )
            )
            continue
        piece = without_prepare(piece)
        try:
            statements.append(_statement(piece, variables, prefer_columns))
        except Unparsable as error:
            unread.append(
                Unread(
                    text=piece.text,
                    offset=piece.offset,
                    error=error.message,
                    truncated=error.truncated and is_last and not _ends_with_semicolon(text, piece),
                )
            )
        except RecursionError:
            unread.append(
                Unread(
                    text=piece.text,
                    offset=piece.offset,
                    error="the statement is nested too deeply",
                    truncated=False,
                )
            )
    return Reading(statements=tuple(statements), unread=tuple(unread))


def _ends_with_semicolon(text: str, piece: Piece) -> bool:
    return text[piece.offset + len(piece.text) :].lstrip().startswith(";")


def _readable_head(text: str) -> tuple[list[Piece], int]:
    """Return the statements before the place where the scanner gives up, and where the rest begins.

    The scanner reports only the first fault, so the head is found by scanning up to each semicolon from the
    last one backwards; a text with thousands of semicolons before its fault is not worth more than a few
    tries.
    """
    at = len(text)
    for _ in range(8):
        at = text.rfind(";", 0, at)
        if at < 0:
            break
        try:
            scan(text[:at])
        except Unparsable:
            continue
        return list(split(text[:at])), at + 1
    return [], 0


def _statement(piece: Piece, variables: frozenset[str], prefer_columns: bool) -> Statement:
    from pgqdoctor.sqlclaims import claims_of
    from pgqdoctor.sqlconditions import Reader
    from pgqdoctor.sqllocks import locks_of
    from pgqdoctor.sqlscope import levels_of

    node = parse(piece).stmt
    kind, isolation = _kind(node)
    tree = levels_of(node)
    reader = Reader(variables, prefer_columns=prefer_columns)
    locks: dict[RowLock, None] = {}
    writes: list[Write] = []
    reads: list[Read] = []
    for level in tree.levels:
        for each in locks_of(level):
            locks.setdefault(each.lock)
        if level.kind == "select":
            reads.extend(_reads(level, reader))
        else:
            writes.extend(_writes(level, reader))
    return Statement(
        kind=kind,
        text=piece.text,
        offset=piece.offset,
        claims=tuple(_in_parts(found.claim, node) for found in claims_of(tree, reader)),
        locks=tuple(locks),
        writes=tuple(writes),
        reads=tuple(reads),
        functions=tuple(tree.functions),
        parameters=tree.parameters,
        isolation=isolation,
        returns=any(
            level.kind == "select" or level.returning
            for level in tree.levels
            if level.how in ("top", "setop") and level.parent is None
        ),
    )


def _in_parts(claim: Claim, node: Any) -> Claim:
    """Rows of a cursor are locked as they are fetched, and the FETCH says how many."""
    from pglast import ast

    if isinstance(node, ast.DeclareCursorStmt) and claim.limit_kind == "none":
        return replace(claim, limit_kind="parameter")
    return claim


def _reads(level: Level, reader: Reader) -> list[Read]:
    from pgqdoctor.sqlclaims import enclosing
    from pgqdoctor.sqlconditions import limit_of, order_of
    from pgqdoctor.sqllocks import locks_of

    locked = {id(each.item) for each in locks_of(level)}
    tables = [item.table for item in level.items if item.table is not None and id(item) not in locked]
    if not tables:
        return []
    conditions = reader.conditions(level)
    around = (level, *enclosing(level))
    limit_kind, limit = limit_of(next((each.limit for each in around if each.limit is not None), None))
    order = order_of(next((each.sort for each in around if each.sort), ()))
    first = _first_key(level)
    if first:
        limit_kind, limit = "constant", 1
    return [
        Read(
            table=table,
            conditions=conditions,
            order=order,
            limit_kind=limit_kind,
            limit=limit,
            counts=level.aggregates and not first,
        )
        for table in tables
    ]


def _first_key(level: Level) -> bool:
    """Tell whether a level is ``SELECT min(id)``: the next job, in other words than ORDER BY id LIMIT 1."""
    from pgqdoctor.sqlclaims import picks_extreme
    from pgqdoctor.sqlscope import column_name
    from pgqdoctor.sqlwords import is_key

    if not picks_extreme(level):
        return False
    targets: tuple[Any, ...] = level.node.targetList or ()
    arguments: tuple[Any, ...] = targets[0].val.args or ()
    name = column_name(arguments[0]) if len(arguments) == 1 else None
    return name is not None and is_key(name)


def _writes(level: Level, reader: Reader) -> list[Write]:
    from pglast import enums

    from pgqdoctor.sqlwords import tests_state

    assert level.target is not None and level.target.table is not None
    table = level.target.table
    conditions = reader.conditions(level)
    sets = reader.assignments(level)
    changed = {each.column for each in sets}
    by_key = bool(conditions) and all(
        test.column is not None
        and test.operator in ("=", "in")
        and test.column not in changed
        and not tests_state(test)
        for test in conditions
    )
    if level.kind != "merge":
        kind = level.kind
        assert kind != "select"
        return [Write(kind=kind, table=table, sets=sets, conditions=conditions, by_key_only=by_key)]
    names = {
        enums.CmdType.CMD_UPDATE: "update",
        enums.CmdType.CMD_DELETE: "delete",
        enums.CmdType.CMD_INSERT: "insert",
    }
    found: list[Write] = []
    for clause in level.node.mergeWhenClauses or ():
        name: Any = names.get(clause.commandType)
        if name is not None:
            found.append(
                Write(
                    kind=name,
                    table=table,
                    sets=sets if name == "update" else (),
                    conditions=conditions,
                    by_key_only=by_key,
                )
            )
    return found


def _kind(node: Any) -> tuple[StatementKind, str | None]:
    from pglast import ast, enums

    if isinstance(node, ast.DeclareCursorStmt):
        return "select", None
    simple: dict[type, StatementKind] = {
        ast.SelectStmt: "select",
        ast.InsertStmt: "insert",
        ast.UpdateStmt: "update",
        ast.DeleteStmt: "delete",
        ast.MergeStmt: "merge",
        ast.NotifyStmt: "notify",
        ast.ListenStmt: "listen",
        ast.LockStmt: "lock",
        ast.CallStmt: "call",
    }
    kind = simple.get(type(node))
    if kind is not None:
        return kind, None
    if isinstance(node, ast.TransactionStmt):
        kinds = enums.TransactionStmtKind
        transactions: dict[Any, StatementKind] = {
            kinds.TRANS_STMT_BEGIN: "begin",
            kinds.TRANS_STMT_START: "begin",
            kinds.TRANS_STMT_COMMIT: "commit",
            kinds.TRANS_STMT_ROLLBACK: "rollback",
            kinds.TRANS_STMT_SAVEPOINT: "savepoint",
            kinds.TRANS_STMT_RELEASE: "release",
            kinds.TRANS_STMT_ROLLBACK_TO: "rollback to",
        }
        return transactions.get(node.kind, "utility"), _isolation(node.options)
    if isinstance(node, ast.VariableSetStmt):
        if node.name in ("default_transaction_isolation", "transaction_isolation"):
            return "utility", _first_constant(node.args)
        return "utility", _isolation(node.args)
    name = type(node).__name__
    if name.startswith(
        ("Create", "Alter", "Drop", "Rename", "Comment", "Index", "View", "Truncate", "Grant", "Reindex")
    ):
        return "ddl", None
    return "utility", None


def _isolation(options: Any) -> str | None:
    from pglast import ast

    for option in options or ():
        if isinstance(option, ast.DefElem) and option.defname == "transaction_isolation":
            return _first_constant((option.arg,))
    return None


def _first_constant(arguments: Any) -> str | None:
    from pglast import ast

    for argument in arguments or ():
        if isinstance(argument, ast.A_Const) and isinstance(argument.val, ast.String):
            return str(argument.val.sval).lower()
    return None


@lru_cache(maxsize=1024)
def read_predicate(expression: str, table: TableName | None = None) -> tuple[Condition, ...] | None:
    """Read a boolean expression, such as a partial index's predicate, as conjuncts; None where it does not
    parse.

    Column names are resolved to ``table``.
    """
    from pgqdoctor.sqlconditions import Reader
    from pgqdoctor.sqlscope import levels_of

    try:
        node = _parse_expression(expression)
        level = levels_of(node).levels[0]
        level.items[0].table = table
        return Reader().conditions(level)
    except (Unparsable, RecursionError):
        return None


def _parse_expression(expression: str) -> Any:
    pieces = list(split(f"SELECT FROM predicate WHERE {expression}\n"))
    if len(pieces) != 1:
        raise Unparsable("the text holds no single expression")
    return parse(pieces[0]).stmt


@lru_cache(maxsize=4096)
def text_fingerprint(text: str) -> str:
    """Return a key that is equal for a statement with literals and the same statement normalised.

    libpg_query's fingerprint where the text parses (it makes constants, parameters and the lengths of lists
    equal), else a hash of the tokens with constants and parameters made equal.
    """
    from pglast import parser

    try:
        keys = []
        for piece in map(without_prepare, split(text)):
            if nesting(piece.tokens) > MAX_NESTING:
                raise Unparsable("too deep")
            keys.append(parser.fingerprint(repaired(piece)))
        return "+".join(keys) or _token_key(text)
    except (Unparsable, parser.ParseError, UnicodeError):
        return _token_key(text)


def _token_key(text: str) -> str:
    try:
        words = [
            "?" if token.name in _VALUES else text[token.start : token.end + 1].lower()
            for token in scan(text)
        ]
    except Unparsable:
        words = text.lower().split()
    return "t" + sha256(" ".join(words).encode("utf-8", "replace")).hexdigest()[:16]


_VALUES = frozenset({"SCONST", "USCONST", "ICONST", "FCONST", "BCONST", "XCONST", "PARAM"})
