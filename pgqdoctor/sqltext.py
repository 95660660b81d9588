"""Preparing SQL text for the parser: splitting, prefixes, repairs, and guards against hostile input.

Everything here works on the tokens of PostgreSQL's own scanner (pglast), never on patterns over SQL text, so
that quotes, comments and dollar quoting cannot mislead it. pglast is imported on first use: commands that
read no SQL do not pay for it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from pglast import ast
    from pglast.parser import Token


def word_set(words: str) -> frozenset[str]:
    """Return the words of a text that blanks separate."""
    return frozenset(words.split())


MAX_NESTING = 200
"""Levels of nesting given to the parser. libpg_query does not check its stack: on a thread with a stack of
512 kB (the default of secondary threads on macOS) nested CTEs and scalar sub-selects end the process between
250 and 500 levels, measured with pglast 8.8. The framework claims in the tests stay below 10."""

MAX_CHARACTERS = 100_000
"""Longest text read. Reading costs about 5 microseconds per character (bulk INSERTs and long IN lists,
measured with pglast 8.8), so this bounds one text to about half a second; the longest claim known is shorter
than 10,000."""

OWN: Final = "/* pgqdoctor */"
OWN_WITHIN: Final = 60
"""Letters from the beginning among which the mark stands."""
_FIRST_WORD = re.compile(r"\s*\w+")
_WORDS = re.compile(
    r"\b(?:select|update|delete|insert|merge|savepoint|release|rollback|notify|lock|call|perform|begin"
    r"|start|set|with|values|execute)\b",
    re.IGNORECASE,
)
_SPACE_OR_COMMENT = frozenset({"SQL_COMMENT", "C_COMMENT"})
_FLAT = word_set(
    """
    ASCII_44 AND OR SELECT FROM WHERE SET ORDER GROUP_P HAVING LIMIT RETURNING VALUES WINDOW WHEN THEN
    ELSE
    """
)
"""Tokens after which an expression starts anew: lists and chains of AND or OR are flat in the parse tree."""
_CHAINS = frozenset(["JOIN", "UNION", "INTERSECT", "EXCEPT"])


class Unparsable(Exception):
    """The text cannot be parsed. ``truncated`` where it ends in the middle of a statement."""

    def __init__(self, message: str, *, truncated: bool = False) -> None:
        super().__init__(message)
        self.message = message
        self.truncated = truncated


@dataclass(frozen=True, slots=True, kw_only=True)
class Piece:
    """One statement of a text: its tokens (comments left out) with positions in ``text``."""

    text: str
    offset: int
    tokens: tuple[Token, ...]


def marked(text: str) -> str:
    """Return a SELECT or WITH of the doctor's own with a mark by which it is known in pg_stat_statements.

    The mark stands behind the first word: PostgreSQL 18 drops a comment before it from the text that it keeps.
    """
    first = _FIRST_WORD.match(text)
    end = first.end() if first is not None else 0
    return f"{text[:end]} {OWN}{text[end:]}"


def is_own(text: str) -> bool:
    """Tell whether a statement is one of the doctor's looks at a queue's rows."""
    return OWN in text[:OWN_WITHIN]


def may_concern_queue(text: str) -> bool:
    """Tell cheaply whether a text may be a statement that queue work consists of; the doctor's own looks are none.

    It errs towards True: a False text holds none of the words such a statement needs.
    """
    return not is_own(text) and _WORDS.search(text, 0, MAX_CHARACTERS) is not None


def scan(text: str) -> tuple[Token, ...]:
    """Return the tokens without comments.

    Raises Unparsable for text that PostgreSQL's scanner rejects, that holds a NUL, or that is too long.
    """
    from pglast import parser

    if "\0" in text:
        # The parser would stop at the NUL and take what precedes it for the whole.
        raise Unparsable("the text holds a NUL character")
    if len(text) > MAX_CHARACTERS:
        raise Unparsable(f"the text is longer than {MAX_CHARACTERS} characters")
    try:
        tokens = parser.scan(text)
    except UnicodeError:
        raise Unparsable("the text is not valid Unicode") from None
    except parser.ParseError as error:
        message = _sentence(error)
        raise Unparsable(message, truncated=message.startswith("unterminated")) from None
    return tuple(token for token in tokens if token.name not in _SPACE_OR_COMMENT)


def split(text: str) -> Iterator[Piece]:
    """Split a text at the semicolons between statements, those inside BEGIN ATOMIC bodies excepted.

    Raises Unparsable as scan does.
    """
    current: list[Token] = []
    depth = 0
    atomic = 0
    previous = ""
    for token in scan(text):
        name = token.name
        if name in ("ASCII_40", "ASCII_91"):
            depth += 1
        elif name in ("ASCII_41", "ASCII_93"):
            depth = max(0, depth - 1)
        elif name == "ATOMIC" and previous == "BEGIN_P":
            atomic = 1
        elif atomic and name == "CASE":
            atomic += 1
        elif atomic and name == "END_P":
            atomic -= 1
        if name == "ASCII_59" and not depth and not atomic:
            if current:
                yield _piece(text, current)
            current = []
        else:
            current.append(token)
        previous = name
    if current:
        yield _piece(text, current)


def _piece(text: str, tokens: Sequence[Token]) -> Piece:
    start, end = tokens[0].start, tokens[-1].end + 1
    return Piece(text=text[start:end], offset=start, tokens=tuple(tokens))


def without_prepare(piece: Piece) -> Piece:
    """Take away ``PREPARE name [(types)] AS``: pg_stat_statements shows prepared statements with it."""
    tokens = piece.tokens
    if not tokens or tokens[0].name != "PREPARE":
        return piece
    at = 2
    if at < len(tokens) and tokens[at].name == "ASCII_40":
        depth = 0
        while at < len(tokens):
            depth += {"ASCII_40": 1, "ASCII_41": -1}.get(tokens[at].name, 0)
            at += 1
            if depth == 0:
                break
    if at + 1 >= len(tokens) or tokens[at].name != "AS":
        return piece
    start = tokens[at + 1].start
    return Piece(
        text=piece.text[start - piece.offset :],
        offset=start,
        tokens=tokens[at + 1 :],
    )


def nesting(tokens: Sequence[Token]) -> int:
    """Return an upper bound of the parse tree's depth, from the tokens alone.

    Brackets and CASE nest; so does every token of an expression that is not a list separator, because
    operators without brackets build left-deep trees. Joins and set operations of one level build such trees
    as well.
    """
    deepest = 0
    # Per open bracket: [chain of joins and set operations, tokens of the present list item]
    stack: list[list[int]] = [[0, 0]]
    base = 0
    for token in tokens:
        name = token.name
        top = stack[-1]
        if name in ("ASCII_40", "ASCII_91", "CASE"):
            base += top[0] + top[1] + 1
            stack.append([0, 0])
        elif name in ("ASCII_41", "ASCII_93", "END_P"):
            if len(stack) > 1:
                stack.pop()
                base -= stack[-1][0] + stack[-1][1] + 1
                stack[-1][1] += 1
        elif name in _CHAINS:
            top[0] += 1
            top[1] = 0
        elif name in _FLAT:
            top[1] = 0
        elif (token.kind == "NO_KEYWORD" and name not in _OPERANDS) or name in _OPERATOR_WORDS:
            top[1] += 1
        deepest = max(deepest, base + stack[-1][0] + stack[-1][1])
    return deepest


_OPERANDS = frozenset(
    {"IDENT", "SCONST", "ICONST", "FCONST", "BCONST", "XCONST", "PARAM", "ASCII_46", "USCONST"}
)
_OPERATOR_WORDS = word_set(
    "NOT IS ISNULL NOTNULL COLLATE AT ANY IN_P LIKE ILIKE SIMILAR BETWEEN OVERLAPS EXPLAIN"
)


def parse(piece: Piece) -> ast.RawStmt:
    """Parse one statement, repairing what pg_stat_statements writes and the grammar rejects.

    Raises Unparsable.
    """
    from pglast import parser

    depth = nesting(piece.tokens)
    if depth > MAX_NESTING:
        raise Unparsable(f"the statement is nested deeper than {MAX_NESTING} levels")
    text = repaired(piece)
    try:
        statements = parser.parse_sql(text)
    except UnicodeError:
        raise Unparsable("the text is not valid Unicode") from None
    except RecursionError:
        raise Unparsable("the statement is nested too deeply") from None
    except parser.ParseError as error:
        raise Unparsable(_sentence(error), truncated=_at_end(error, piece)) from None
    except (ValueError, TypeError, SystemError, MemoryError) as error:
        raise Unparsable(f"the parser failed: {error}") from None
    if len(statements) != 1:
        raise Unparsable("the text holds no single statement")
    return statements[0]


def repaired(piece: Piece) -> str:
    """Replace what the grammar rejects with tokens of the same length and meaning.

    pg_stat_statements 17 and later writes ``SAVEPOINT $1`` and ``SET name = $1``; every version writes
    ``time(3) $1``, whose precision is dropped here because only the type matters.
    """
    tokens = piece.tokens
    cuts: list[tuple[int, int, str]] = []
    first = tokens[0].name if tokens else ""
    for index, token in enumerate(tokens):
        if token.name != "PARAM":
            continue
        width = token.end + 1 - token.start
        if first in ("SAVEPOINT", "RELEASE", "ROLLBACK", "DEALLOCATE", "LISTEN", "UNLISTEN"):
            cuts.append((token.start, token.end + 1, "p" * width))
        elif first == "NOTIFY":
            cuts.append((token.start, token.end + 1, "p" * width if index == 1 else "''"))
        elif index >= 4 and tokens[index - 1].name == "ASCII_41" and tokens[index - 4].name == "TIME":
            cuts.append((tokens[index - 3].start, tokens[index - 1].end + 1, " "))
    if not cuts:
        return piece.text
    parts: list[str] = []
    at = piece.offset
    for start, end, replacement in cuts:
        parts.append(piece.text[at - piece.offset : start - piece.offset])
        parts.append(replacement)
        at = end
    parts.append(piece.text[at - piece.offset :])
    return "".join(parts)


def _sentence(error: Exception) -> str:
    return str(error.args[0]) if error.args else str(error)


def _at_end(error: Exception, piece: Piece) -> bool:
    """Tell whether the parser stopped where the text stops, as it does for a text that was cut."""
    if "at end of input" in _sentence(error):
        return True
    location = error.args[1] if len(error.args) > 1 else None
    if not isinstance(location, int) or not piece.tokens:
        return False
    # A cut inside a keyword leaves a word the parser rejects: it is the very last token, or follows one that
    # the grammar reads together with it (NULLS LAST).
    last = piece.tokens[-1]
    if len(piece.tokens) > 1 and piece.tokens[-2].name in ("NULLS_P", "NOT", "WITH", "WITHOUT", "FORMAT"):
        last = piece.tokens[-2]
    return location >= last.start - piece.offset
