"""Statements laid out for reading. pglast is imported on first use: most reports need none of it."""

from __future__ import annotations

from functools import lru_cache

from pgqdoctor.sqltext import Unparsable, parse, scan, split


def breaks_inside_token(sql: str) -> bool:
    """Tell whether a newline stands inside a string or a quoted name, where an indent would change it.

    True also for what PostgreSQL's scanner rejects.
    """
    if "\n" not in sql:
        return False
    try:
        tokens = scan(sql)
    except Unparsable:
        return True
    return any("\n" in sql[token.start : token.end + 1] for token in tokens)


@lru_cache(maxsize=256)
def wrapped_sql(sql: str, *, width: int) -> str:
    """Return one statement in lines of about ``width`` columns; what cannot be parsed comes back as it is."""
    from pglast.stream import IndentedStream

    try:
        pieces = list(split(sql))
        if len(pieces) != 1:
            return sql
        printed = IndentedStream(compact_lists_margin=width, comma_at_eoln=True)(parse(pieces[0]))
    except (Unparsable, NotImplementedError, RecursionError):
        return sql
    return str(printed)
