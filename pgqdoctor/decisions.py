"""Which statements of a remedy only a person may let run, which ask for a look first, and why.

A person decides what is lost for good (rows deleted, the outcome of a prepared transaction, a slot's place) and what reaches beyond
the queue's own tables. Ending a session or putting jobs back is the cure itself: it runs, and says what to make sure of first.
Indexes built or dropped, storage options, VACUUM and ANALYZE concern the queue alone and can be undone or repeated. Pure.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

from pgqdoctor.sqlremedy import parsed


def decision(statements: Iterable[str]) -> str:
    """Return what a person has to decide before the statements run, "" for what a reviewed script may do by itself."""
    return _first(statements, _decides)


def caution(statements: Iterable[str]) -> str:
    """Return what to make sure of before the statements run, "" for nothing."""
    return _first(statements, _cautions)


def _first(statements: Iterable[str], told: Callable[[Any], str]) -> str:
    return next((words for words in map(told, parsed(statements)) if words), "")


def _decides(node: Any) -> str:
    from pglast import ast, enums

    match node:
        case ast.AlterSystemStmt():
            return "it changes a setting of the whole server, for every database and every client"
        case ast.AlterRoleSetStmt() | ast.AlterRoleStmt() | ast.AlterDatabaseSetStmt():
            return "it changes a setting for every client that connects so, and not for the queue alone"
        case ast.TransactionStmt() if node.kind in (
            enums.TransactionStmtKind.TRANS_STMT_ROLLBACK_PREPARED,
            enums.TransactionStmtKind.TRANS_STMT_COMMIT_PREPARED,
        ):
            return "its coordinator alone knows whether the transaction was to commit"
        case ast.AlterTableStmt() if any(one.subtype in _triggers() for one in node.cmds or ()):
            return "what the application's trigger does is left undone from then on"
        case ast.DoStmt():
            return "it runs a block of code that may change the application's own rows"
    return _named(node, _DECIDED)


def _cautions(node: Any) -> str:
    return _named(node, _CAUTIONED)


def _named(node: Any, known: Mapping[str, str]) -> str:
    """Return the words for a function that a statement calls, or for a DELETE or UPDATE that it is or holds in its WITH."""
    from pglast.visitors import Visitor

    done: set[str] = set()

    class _Deeds(Visitor):
        def visit_FuncCall(self, _: Any, call: Any) -> None:
            done.add(str(call.funcname[-1].sval))

        def visit_DeleteStmt(self, _: Any, __: Any) -> None:
            done.add("DELETE")

        def visit_UpdateStmt(self, _: Any, __: Any) -> None:
            done.add("UPDATE")

    _Deeds()(node)
    return next((words for name, words in known.items() if name in done), "")


def _triggers() -> frozenset[int]:
    from pglast import enums

    kind = enums.AlterTableType
    return frozenset({kind.AT_DisableTrig, kind.AT_DisableTrigAll, kind.AT_DisableTrigUser})


_DECIDED: Final[Mapping[str, str]] = {
    "pg_drop_replication_slot": "a consumer that comes back afterwards has to be built anew",
    "DELETE": "the application's own rows are gone then",
}
_CAUTIONED: Final[Mapping[str, str]] = {
    "pg_terminate_backend": "ask whose session it is: what its transaction has written is rolled back",
    "pg_cancel_backend": "ask whose statement it is: what it has done is rolled back",
    "UPDATE": "read which of the application's own rows it changes",
}
