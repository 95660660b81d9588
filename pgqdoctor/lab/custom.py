"""The user's own claim as one more strategy: its statement is kept as it is, and its ids go into the audit table.

A claim with a WITH clause keeps its parts: they are lifted beside the audit's own, since PostgreSQL allows a
statement that changes data only at the top of a WITH.
"""

from __future__ import annotations

from typing import Any

import pglast
from pglast import ast
from pglast.stream import RawStream
from pglast.visitors import Visitor

from pgqdoctor.errors import USAGE, PgqdoctorError
from pgqdoctor.lab.strategies import COUNTED, Strategy
from pgqdoctor.lab.subject import Subject

_CLAIMS = (ast.UpdateStmt, ast.DeleteStmt, ast.SelectStmt)


def custom_strategy(claim: str, subject: Subject) -> Strategy:
    """A strategy from one statement that returns the claimed job's key; it is raced with the indexes as they are.

    Raises PgqdoctorError (usage) for a statement that cannot be run so.
    """
    statement, key = _parsed(claim), subject.key
    common, rest = _parts(statement)
    target = (
        rest.targetList if isinstance(rest, ast.SelectStmt) else getattr(rest.returningClause, "exprs", ())
    )
    if not target:
        raise _wrong(f"it must return the claimed job's {key} (RETURNING {key})")
    column = _column(target, key)
    lifted = "".join(f"{RawStream()(part)},\n" for part in common)
    body = RawStream()(rest)
    script = (
        f"{COUNTED}WITH {lifted}claimed AS ({body})\n"
        f"INSERT INTO audit SELECT claimed.{column}::text, :client_id, :n FROM claimed;\n"
    )
    if ":" in script.replace("::", "").replace(":client_id", "").replace(":n ", ""):
        raise _wrong("it has a colon, which pgbench would take for a variable")
    return Strategy(
        name="custom",
        title="the claim given with --claim-query",
        script=script,
        statements=(claim.strip().rstrip(";"),),
        form=subject.own_form,
    )


def _parsed(claim: str) -> Any:
    try:
        statements = pglast.parse_sql(claim)
    except pglast.parser.ParseError as error:
        raise _wrong(f"it cannot be parsed: {error.args[0]}") from None
    if len(statements) != 1 or not isinstance(statements[0].stmt, _CLAIMS):
        raise _wrong("it must be one UPDATE, DELETE or SELECT")
    parameters = _Parameters()
    parameters(statements[0])
    if parameters.seen:
        raise _wrong(f"it has the parameter ${min(parameters.seen)}", "Write values in place of parameters.")
    return statements[0].stmt


class _Parameters(Visitor):
    """Collects the numbers of parameters."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: set[int] = set()

    def visit_ParamRef(self, ancestors: object, node: Any) -> None:
        self.seen.add(int(node.number or 0))


def _parts(statement: Any) -> tuple[tuple[Any, ...], Any]:
    clause = statement.withClause
    if clause is None:
        return (), statement
    if clause.recursive:
        raise _wrong("WITH RECURSIVE cannot be measured")
    statement.withClause = None
    return tuple(clause.ctes), statement


def _column(target: tuple[Any, ...], key: str) -> str:
    """The name of the output column that is the job's key: the one named so, else the only one."""
    names: list[str] = []
    for one in target:
        named = one.name
        if named is None and isinstance(one.val, ast.ColumnRef):
            last: Any = (one.val.fields or ())[-1]
            named = "*" if isinstance(last, ast.A_Star) else last.sval
        names.append(named or "")
    if key in names or "*" in names:
        return _quoted(key)
    if len(names) == 1 and names[0]:
        return _quoted(names[0])
    raise _wrong(
        f"it must return the claimed job's {key}, and returns {', '.join(filter(None, names)) or 'no name'}"
    )


def _quoted(name: str) -> str:
    escaped = name.replace('"', '""')
    return f'"{escaped}"'


def _wrong(what: str, hint: str = "") -> PgqdoctorError:
    return PgqdoctorError(f"the claim query cannot be raced: {what}", hint=hint, exit_code=USAGE)
