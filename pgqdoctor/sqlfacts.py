"""What one SQL statement says, as plain data: the vocabulary of sqlread and of every check.

Column and table names are folded as PostgreSQL folds them (unquoted names to lower case).
A fact that the text does not show is None or empty, never a guess.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

ClaimShape = Literal[
    "skip-locked",
    "guarded",
    "unguarded",
    "blocking",
    "nowait",
    "delete-skip-locked",
    "advisory",
    "function",
    "unknown",
]
ValueKind = Literal["constant", "parameter", "now", "column", "null", "boolean", "list", "expression"]
Strength = Literal["update", "no key update", "share", "key share"]
LockWait = Literal["block", "skip locked", "nowait"]


@dataclass(frozen=True, slots=True, kw_only=True)
class TableName:
    """A table as a statement names it; ``schema`` is None where the statement does not say it."""

    schema: str | None
    name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Condition:
    """One conjunct of a WHERE clause, normalised so that the column stands on the left.

    ``operator`` is "=", "<", "is null", "is not null", "in", "not in", "<>", "like", "between", "is true",
    "is false", or "expression" where no single column is compared. ``values`` holds the constants ('queued',
    42) that the text shows (several for IN and = ANY); parameters stand as "$1". ``text`` is the
    deparsed conjunct. Conditions under OR are one conjunct with operator "or" whose ``branches`` hold
    the alternatives. ``cast`` is the type the column is cast to before the comparison, if any.
    """

    table: TableName | None
    column: str | None
    operator: str
    values: tuple[str, ...]
    value_kind: ValueKind
    text: str
    cast: str | None = None
    branches: tuple[tuple[Condition, ...], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class OrderKey:
    """One ORDER BY key: ``column`` is None where it is an expression."""

    column: str | None
    text: str
    descending: bool
    nulls_first: bool | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Assignment:
    """One ``SET column = value`` of an UPDATE (or of ON CONFLICT DO UPDATE)."""

    column: str
    value_kind: ValueKind
    value: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RowLock:
    """A locking clause resolved to the table whose rows it locks."""

    table: TableName
    strength: Strength
    wait: LockWait


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """The part of a statement that takes jobs from ``table``.

    ``shape`` follows the contract. ``writes`` tells whether the statement itself also changes the
    row (one-statement claim) or only locks it. ``rechecks`` tells whether the write compares the state
    again under the row lock. ``limit`` is the LIMIT's constant, ``limit_kind`` says what it is.
    ``repeatable_limit`` is true where the LIMIT subquery may be executed more than once
    (a sub-select under IN or a join, not materialised, not an InitPlan). ``advisory`` names the advisory-lock
    functions in the scanned WHERE. ``conditions`` and ``order`` are those of the select that finds the job.
    """

    table: TableName
    shape: ClaimShape
    lock: RowLock | None
    writes: bool
    rechecks: bool
    conditions: tuple[Condition, ...]
    order: tuple[OrderKey, ...]
    limit_kind: Literal["none", "constant", "parameter"]
    limit: int | None
    repeatable_limit: bool
    advisory: tuple[str, ...]
    joins: tuple[TableName, ...]
    by_key: bool = False
    """True where the caller already knows the row (``id = $1`` beside the state test): bounded without a
    LIMIT."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Write:
    """One INSERT, UPDATE or DELETE in a statement, its CTEs included."""

    kind: Literal["insert", "update", "delete"]
    table: TableName
    sets: tuple[Assignment, ...]
    conditions: tuple[Condition, ...]
    by_key_only: bool
    """True where the only conditions are equality or IN on columns without a state test (by id)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Read:
    """One table read by a SELECT level without a locking clause (also inside CTEs and sub-selects)."""

    table: TableName
    conditions: tuple[Condition, ...]
    order: tuple[OrderKey, ...]
    limit_kind: Literal["none", "constant", "parameter"]
    limit: int | None
    counts: bool
    """True where the level aggregates (count, group by): a dashboard's question, not a claim's."""


StatementKind = Literal[
    "select",
    "insert",
    "update",
    "delete",
    "merge",
    "savepoint",
    "release",
    "rollback to",
    "begin",
    "commit",
    "rollback",
    "notify",
    "listen",
    "lock",
    "ddl",
    "call",
    "utility",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class Statement:
    """The facts of one statement.

    ``text`` is the statement as it was given (without leading comment and PREPARE prefix), ``offset`` its
    position in characters in the given string. ``isolation`` is the level that a BEGIN or SET TRANSACTION
    names, or None.
    """

    kind: StatementKind
    text: str
    offset: int
    claims: tuple[Claim, ...]
    locks: tuple[RowLock, ...]
    writes: tuple[Write, ...]
    reads: tuple[Read, ...]
    functions: tuple[str, ...]
    parameters: int
    isolation: str | None = None
    returns: bool = False
    """True where its rows reach whoever sent it: a SELECT, or RETURNING at the top."""

    def __hash__(self) -> int:
        """Hash the text alone: statements are looked up by the thousand, and equal ones have one text."""
        return hash(self.text)


@dataclass(frozen=True, slots=True, kw_only=True)
class Unread:
    """Text that could not be parsed: it is reported, never guessed. ``error`` is the parser's own
    sentence."""

    text: str
    offset: int
    error: str
    truncated: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """The statements found in one string, and what of it could not be read."""

    statements: tuple[Statement, ...]
    unread: tuple[Unread, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class FunctionBody:
    """What a PL/pgSQL or SQL function does: the statements of its body, in order.

    ``exception_blocks`` counts BEGIN ... EXCEPTION blocks: each runs its body in a subtransaction.
    ``in_exception_block`` holds, per statement, whether it stands inside one. ``dynamic`` is true where
    EXECUTE builds SQL that cannot be read.
    """

    name: str
    statements: tuple[Statement, ...]
    in_exception_block: tuple[bool, ...]
    exception_blocks: int
    dynamic: bool
    unread: tuple[Unread, ...]
    variables: frozenset[str] = frozenset()
    """Names that are no columns: arguments, declared variables, loop targets."""


ParameterRole = Literal["compare", "limit", "offset", "interval", "set", "other"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ParameterUse:
    """One place where ``$number`` stands.

    ``role`` is "compare" where it is compared with ``column`` by ``operator`` (the words of Condition), "set"
    where it is assigned to ``column``, "interval" where the text makes it an interval; for "interval" and
    "other" the column and operator tell the comparison it is part of, if any. ``cast`` is the type the text
    gives it. ``array`` is true where it stands for a whole array, as in = ANY ($1), ``factor`` where it is an argument
    of a function or an operand of * or ||, so that it has another type than the column.
    """

    number: int
    role: ParameterRole
    table: TableName | None
    column: str | None
    operator: str | None
    cast: str | None
    array: bool = False
    factor: bool = False
