"""The statements inside SQL and PL/pgSQL functions.

PL/pgSQL bodies are cut into statements by their tokens. libpg_query's own PL/pgSQL parser was tried and left:
it needs the whole CREATE FUNCTION text, and rejects ordinary bodies because it knows no table types (with ``r
q%ROWTYPE`` declared, ``r.id := 1`` is "not a known variable"). What is cut out is parsed by PostgreSQL's
grammar as everything else is.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Literal

from pgqdoctor.sqlfacts import FunctionBody, Reading, Statement, Unread
from pgqdoctor.sqlread import read_in_function
from pgqdoctor.sqltext import Piece, Unparsable, parse, scan, split, word_set

if TYPE_CHECKING:
    from pglast.parser import Token

_OPEN = ("ASCII_40", "ASCII_91")
_CLOSE = ("ASCII_41", "ASCII_93")
_SKIPPED = word_set(
    """
    null raise assert get exit continue fetch move close
    """
)
_MODES = frozenset(["in", "inout", "variadic"])
_TRIGGER_VARIABLES = word_set(
    """
    new old found sqlstate sqlerrm tg_op tg_name tg_when tg_level tg_relid tg_table_name
    tg_table_schema tg_nargs tg_argv
    """
)


@dataclass(eq=False, slots=True)
class _Block:
    kind: Literal["block", "loop", "if", "case"]
    catches: bool = False
    in_handler: bool = False


@dataclass(slots=True)
class _Piece:
    """A statement cut out, with the blocks whose body (not whose handlers) it stands in.

    ``one_row`` is true for SELECT ... INTO: PL/pgSQL stops it after the first row (after the second under STRICT).
    """

    text: str
    offset: int
    blocks: tuple[_Block, ...]
    one_row: bool = False


@dataclass(slots=True)
class _Cut:
    pieces: list[_Piece] = field(default_factory=list)
    variables: set[str] = field(default_factory=set)
    blocks: list[_Block] = field(default_factory=list)
    dynamic: bool = False


def read_function(name: str, language: str, body: str, *, arguments: tuple[str, ...] = ()) -> FunctionBody:
    """Read the body of a function as pg_proc.prosrc holds it.

    ``arguments`` are declarations as pg_get_function_arguments writes them ("job_id bigint, wait interval"),
    one or several in each string: a name among them is a variable in the body, not a column. A language other
    than sql and plpgsql has no statements to see; its body counts as dynamic.
    """
    variables = _argument_names(arguments) | {name.rpartition(".")[2]}
    if language == "sql":
        return _function(name, [_sql_body(body)], frozenset(variables), dynamic=False, prefer_columns=True)
    if language != "plpgsql":
        return FunctionBody(
            name=name, statements=(), in_exception_block=(), exception_blocks=0, dynamic=True, unread=()
        )
    try:
        tokens = scan(body)
    except Unparsable as error:
        unread = Unread(text=body, offset=0, error=error.message, truncated=error.truncated)
        return FunctionBody(
            name=name,
            statements=(),
            in_exception_block=(),
            exception_blocks=0,
            dynamic=False,
            unread=(unread,),
        )
    cutter = _Cutter(body, tokens)
    cutter.run()
    names = frozenset(variables | cutter.cut.variables | _TRIGGER_VARIABLES)
    use_column = "use_column" in {cutter.word(at) for at in range(min(6, len(tokens)))}
    found = _function(name, cutter.cut.pieces, names, dynamic=cutter.cut.dynamic, prefer_columns=use_column)
    return replace(found, exception_blocks=sum(block.catches for block in cutter.cut.blocks))


def read_definition(text: str) -> FunctionBody | None:
    """Read the first CREATE FUNCTION, CREATE PROCEDURE or DO of a text; None where there is none or it does
    not parse.

    A DO block has the name "".
    """
    from pglast import ast, enums

    from pgqdoctor.sqlrewrite import quote_ident
    from pgqdoctor.sqlscope import dotted

    try:
        for piece in split(text):
            try:
                node = parse(piece).stmt
            except Unparsable:
                continue
            if isinstance(node, ast.DoStmt):
                language, body = _code(node.args)
                return read_function("", language or "plpgsql", body)
            if isinstance(node, ast.CreateFunctionStmt):
                language, body = _code(node.options)
                if node.sql_body is not None:
                    language, body = "sql", _atomic(piece)
                hidden = (
                    enums.FunctionParameterMode.FUNC_PARAM_OUT,
                    enums.FunctionParameterMode.FUNC_PARAM_TABLE,
                )
                names = tuple(
                    quote_ident(parameter.name)
                    for parameter in node.parameters or ()
                    if parameter.name and parameter.mode not in hidden
                )
                return read_function(dotted(node.funcname), language, body, arguments=names)
    except (Unparsable, RecursionError):
        pass
    return None


def _code(options: Any) -> tuple[str, str]:
    """Return language and text of the AS and LANGUAGE options."""
    from pglast import ast

    language = body = ""
    for option in options or ():
        value = option.arg
        if isinstance(value, tuple):
            value = value[0] if value else None
        if isinstance(value, ast.String):
            if option.defname == "language":
                language = str(value.sval).lower()
            elif option.defname == "as":
                body = str(value.sval)
    return language, body


def _atomic(piece: Piece) -> str:
    """Return ``BEGIN ATOMIC ... END``, or the expression after RETURN as a SELECT, of a function's text."""
    for at, token in enumerate(piece.tokens):
        rest = piece.text[token.start - piece.offset :]
        if token.name == "BEGIN_P":
            return rest
        if token.name == "RETURN":
            return "SELECT " + rest[len("RETURN ") :] if at else ""
    return ""


def _function(
    name: str, pieces: list[_Piece], variables: frozenset[str], *, dynamic: bool, prefer_columns: bool
) -> FunctionBody:
    statements: list[Statement] = []
    guarded: list[bool] = []
    unread: list[Unread] = []
    for piece in pieces:
        reading: Reading = read_in_function(piece.text, variables, prefer_columns)
        for statement in reading.statements:
            claims = tuple(
                replace(claim, limit_kind="constant", limit=1)
                if piece.one_row and claim.limit_kind == "none"
                else claim
                for claim in statement.claims
            )
            statements.append(replace(statement, offset=statement.offset + piece.offset, claims=claims))
            guarded.append(any(block.catches for block in piece.blocks))
        unread.extend(replace(each, offset=each.offset + piece.offset) for each in reading.unread)
    return FunctionBody(
        name=name,
        statements=tuple(statements),
        in_exception_block=tuple(guarded),
        exception_blocks=0,
        dynamic=dynamic,
        unread=tuple(unread),
        variables=variables,
    )


def _sql_body(body: str) -> _Piece:
    """Take the statements out of ``BEGIN ATOMIC ... END``, keeping their positions."""
    try:
        tokens = scan(body)
    except Unparsable:
        return _Piece(body, 0, ())
    if len(tokens) > 2 and tokens[0].name == "BEGIN_P" and tokens[1].name == "ATOMIC":
        last = next((token for token in reversed(tokens) if token.name == "END_P"), None)
        start, end = tokens[1].end + 1, last.start if last is not None else len(body)
        return _Piece(body[start:end], start, ())
    return _Piece(body, 0, ())


def _argument_names(arguments: tuple[str, ...]) -> set[str]:
    names: set[str] = set()
    for text in arguments:
        try:
            tokens = scan(text)
        except Unparsable:
            continue
        depth = 0
        start = True
        for token in tokens:
            word = _fold(text, token)
            if token.name in _OPEN:
                depth += 1
            elif token.name in _CLOSE:
                depth -= 1
            elif token.name == "ASCII_44" and not depth:
                start = True
            elif start and word not in _MODES:
                # An OUT argument is not compared with: where it bears a column's name, the column is meant.
                if word != "out":
                    names.add(word)
                start = False
    return names


def _fold(text: str, token: Token) -> str:
    """Return a token as PostgreSQL folds an identifier."""
    word = text[token.start : token.end + 1]
    return word[1:-1].replace('""', '"') if word.startswith('"') else word.lower()


class _Cutter:
    """Walks the tokens of a PL/pgSQL body once, statement by statement."""

    def __init__(self, text: str, tokens: tuple[Token, ...]) -> None:
        self.text = text
        self.tokens = tokens
        self.at = 0
        self.stack: list[_Block] = []
        self.cut = _Cut()

    def word(self, at: int) -> str:
        """Return the lower-cased text of a token; a quoted identifier keeps its quotes, so it is no
        keyword."""
        if at >= len(self.tokens):
            return ""
        token = self.tokens[at]
        return self.text[token.start : token.end + 1].lower()

    def run(self) -> None:
        while self.at < len(self.tokens):
            before = self.at
            self.statement()
            self.at = max(self.at, before + 1)

    def statement(self) -> None:
        word = self.word(self.at)
        if word == "declare":
            self.declarations()
        elif word == "begin":
            self.push("block")
        elif word == "exception" and self.stack and self.stack[-1].kind == "block":
            self.stack[-1].catches = self.stack[-1].in_handler = True
        elif word == "end":
            if self.stack:
                self.stack.pop()
            self.at = self.until(";") + 1
        elif word in ("if", "elsif", "elseif", "when"):
            if word == "if":
                self.push("if")
            end = self.until("then", start=self.at + (word != "if"))
            handler = word == "when" and self.stack and self.stack[-1].in_handler
            if not handler:
                self.expression(self.at + (word != "if"), end)
            self.at = end + 1
        elif word == "case":
            self.push("case")
            self.at = self.until("when")
        elif word in ("loop", "else"):
            if word == "loop":
                self.push("loop")
            else:
                self.at += 1
        elif word == "while":
            end = self.until("loop")
            self.expression(self.at + 1, end)
            self.at = end
        elif word in ("for", "foreach"):
            self.loop_over()
        elif word == "<<":
            self.at = self.until(">>") + 1
        elif word == "#":
            self.at += 3
        elif word == ";":
            self.at += 1
        else:
            self.simple(word)

    def push(self, kind: Literal["block", "loop", "if", "case"]) -> None:
        block = _Block(kind)
        self.stack.append(block)
        self.cut.blocks.append(block)
        self.at += 1

    def until(self, *words: str, start: int | None = None) -> int:
        """Return the position of the next of some words outside brackets and CASE expressions."""
        depth = 0
        at = self.at if start is None else start
        cases = 0
        while at < len(self.tokens):
            token = self.tokens[at]
            word = self.word(at)
            if not depth and not cases and word in words:
                return at
            if word == ";" and not depth:
                return at
            if token.name in _OPEN:
                depth += 1
            elif token.name in _CLOSE:
                depth = max(0, depth - 1)
            elif word == "case" and at > self.at:
                cases += 1
            elif word == "end" and cases:
                cases -= 1
            at += 1
        return at

    def declarations(self) -> None:
        self.at += 1
        while self.at < len(self.tokens) and self.word(self.at) not in ("begin", "declare"):
            end = self.until(";")
            self.cut.variables.add(_fold(self.text, self.tokens[self.at]))
            position = self.at + 1
            if self.word(position) == "scroll" or self.word(position + 1) == "scroll":
                position += 1 + (self.word(position) == "no")
            if self.word(position) == "cursor":
                query = self.until("for", "is", start=position)
                self.add(query + 1, end)
            else:
                value = next(
                    (at for at in range(position, end) if self.word(at) in (":=", "=", "default")), end
                )
                self.expression(value + 1, end)
            self.at = end + 1

    def loop_over(self) -> None:
        """Read ``FOR target IN ... LOOP`` and ``FOREACH target IN ARRAY ... LOOP``."""
        inside = self.until("in")
        for at in range(self.at + 1, inside):
            if self.tokens[at].name == "IDENT" or self.tokens[at].kind == "UNRESERVED_KEYWORD":
                self.cut.variables.add(_fold(self.text, self.tokens[at]))
        end = self.until("loop", start=inside)
        first = self.word(inside + 1)
        if first == "execute":
            self.execute(inside + 2, end)
        elif first in ("select", "with", "update", "delete", "insert", "values", "merge"):
            self.add(inside + 1, end)
        elif any(self.word(at) == "select" for at in range(inside + 1, end)):
            self.expression(inside + 1, end)
        self.at = end

    def simple(self, word: str) -> None:
        end = self.until(";")
        start = self.at
        following = self.word(start + 1)
        if word == "execute":
            self.execute(start + 1, end)
        elif word == "perform":
            self.add(start, end)
        elif word == "return":
            if following == "query" and self.word(start + 2) == "execute":
                self.execute(start + 3, end)
            elif following == "query":
                self.add(start + 2, end)
            else:
                self.expression(start + 1 + (following == "next"), end)
        elif word == "open":
            source = self.until("for")
            if self.word(source + 1) == "execute":
                self.execute(source + 2, end)
            elif source < end:
                self.add(source + 1, end)
        elif word not in _SKIPPED:
            assignment = self.assignment(start, end)
            if assignment is not None:
                self.expression(assignment, end)
            else:
                self.add(start, end)
        self.at = end + 1

    def assignment(self, start: int, end: int) -> int | None:
        """Return where the value of ``name[.field][[n]] := value`` begins, or None for another statement."""
        at = start + 1
        depth = 0
        while at < end:
            token = self.tokens[at]
            if token.name == "ASCII_91":
                depth += 1
            elif token.name == "ASCII_93":
                depth -= 1
            elif not depth:
                if self.word(at) in (":=", "="):
                    return at + 1
                if token.name != "ASCII_46" and self.tokens[at - 1].name != "ASCII_46":
                    return None
            at += 1
        return None

    def execute(self, start: int, end: int) -> None:
        """Read EXECUTE: a lone string constant is SQL that can be read, anything else is built at run
        time."""
        at = start
        while at < end and self.word(at) not in ("using", "into"):
            at += 1
        token = self.tokens[start] if start < end else None
        text = self.text[token.start : token.end + 1] if token is not None else ""
        if at == start + 1 and token is not None and token.name == "SCONST" and text[0] in "'$":
            if text[0] == "'":
                inner, shift = text[1:-1].replace("''", "'"), 1
            else:
                shift = text.index("$", 1) + 1
                inner = text[shift:-shift]
            self.cut.pieces.append(_Piece(inner, token.start + shift, self.enclosing()))
        else:
            self.cut.dynamic = True

    def enclosing(self) -> tuple[_Block, ...]:
        return tuple(block for block in self.stack if block.kind == "block" and not block.in_handler)

    def expression(self, start: int, end: int) -> None:
        """Read an expression where it holds a sub-select or calls a function; others say nothing about
        rows."""
        if start >= end:
            return
        calls = any(
            self.tokens[at].name == "ASCII_40" and at > start and self.tokens[at - 1].name == "IDENT"
            for at in range(start, end)
        )
        if not calls and all(self.word(at) not in ("select", "from") for at in range(start, end)):
            return
        first, last = self.tokens[start].start, self.tokens[end - 1].end + 1
        self.cut.pieces.append(_Piece(f"SELECT {self.text[first:last]}", first - 7, self.enclosing()))

    def add(self, start: int, end: int) -> None:
        """Cut out one SQL statement, with INTO targets blanked so that positions stay."""
        if start >= end:
            return
        first, last = self.tokens[start].start, self.tokens[end - 1].end + 1
        text = self.text[first:last]
        if self.word(start) == "perform":
            text = "SELECT " + text[7:]
        depth = 0
        at = start
        one_row = False
        while at < end:
            token = self.tokens[at]
            if token.name in _OPEN:
                depth += 1
            elif token.name in _CLOSE:
                depth -= 1
            elif not depth and self.word(at) == "into" and self.word(at - 1) not in ("insert", "merge"):
                stop = self.targets_end(at, end)
                left, right = token.start - first, self.tokens[stop - 1].end + 1 - first
                text = text[:left] + " " * (right - left) + text[right:]
                one_row = self.word(start) == "select"
                at = stop
                continue
            at += 1
        self.cut.pieces.append(_Piece(text, first, self.enclosing(), one_row))

    def targets_end(self, into: int, end: int) -> int:
        """Return the position after ``INTO [STRICT] target [, ...]``."""
        at = into + 1
        if self.word(at) == "strict":
            at += 1
        while at < end:
            at += 1
            while at + 1 < end and self.word(at) == ".":
                at += 2
            while at < end and self.word(at) == "[":
                while at < end and self.word(at) != "]":
                    at += 1
                at += 1
            if self.word(at) != ",":
                break
            at += 1
        return min(at, end)
