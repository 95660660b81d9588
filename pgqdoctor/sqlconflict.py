"""INSERT ... ON CONFLICT DO NOTHING rewritten so that it looks before it takes an id from the sequence."""

from __future__ import annotations

from typing import Any, cast

from pgqdoctor.sqltext import Unparsable, parse, split, without_prepare


def looks_first(text: str) -> str | None:
    """Return the INSERT as a SELECT of the same values WHERE NOT EXISTS a row with the conflicting key.

    ON CONFLICT stays, for two sessions that look at the same moment. None where the statement is no single-row INSERT with an
    ON CONFLICT DO NOTHING that names its columns, or where a conflicting column gets no value.
    """
    from pglast import ast, enums
    from pglast.stream import RawStream

    try:
        pieces = [without_prepare(piece) for piece in split(text)]
        if len(pieces) != 1:
            return None
        insert = parse(pieces[0]).stmt
    except (Unparsable, RecursionError):
        return None
    if not isinstance(insert, ast.InsertStmt) or insert.withClause is not None or insert.relation is None:
        return None
    clause = insert.onConflictClause
    values = insert.selectStmt.valuesLists if isinstance(insert.selectStmt, ast.SelectStmt) else None
    if clause is None or clause.action != enums.OnConflictAction.ONCONFLICT_NOTHING or clause.infer is None:
        return None
    if values is None or len(values) != 1 or clause.infer.whereClause is not None or not insert.cols:
        return None
    columns = [cast(ast.ResTarget, column).name for column in insert.cols]
    row = values[0]
    if len(row) != len(columns) or any(isinstance(one, ast.SetToDefault) for one in row):
        return None
    given = dict(zip(columns, row, strict=True))
    keys = [cast(ast.IndexElem, element).name for element in clause.infer.indexElems or ()]
    if not keys or any(key is None or key not in given for key in keys):
        return None

    def show(node: Any) -> str:
        # A stream keeps what it has written: each node gets its own.
        return str(RawStream()(node))

    table = show(insert.relation)
    names = [show(ast.ColumnRef(fields=(ast.String(sval=name),))) for name in columns]
    shown = dict(zip(columns, names, strict=True))
    tests = " AND ".join(f"seen.{shown[key]} = {show(given[key])}" for key in keys)
    returned = insert.returningClause.exprs if insert.returningClause is not None else None
    back = f" RETURNING {', '.join(show(one) for one in returned)}" if returned else ""
    return (
        f"INSERT INTO {table} ({', '.join(names)}) SELECT {', '.join(show(one) for one in row)} "
        f"WHERE NOT EXISTS (SELECT 1 FROM {table} AS seen WHERE {tests}) "
        f"ON CONFLICT ({', '.join(shown[key] for key in keys)}) DO NOTHING{back};"
    )
