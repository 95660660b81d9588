"""Which values of the state column mean ready, running and finished. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from pgqdoctor.discovery.columns import CLAIMED, DENIED, FINISHED_AT, TIME_CATEGORY, UNDER_WAY
from pgqdoctor.discovery.signs import Signs
from pgqdoctor.observation import Catalog, ColumnRoles, QueueIdentity
from pgqdoctor.predicates import allowed_values, flat, predicate_values
from pgqdoctor.rows import ColumnRow, IndexRow
from pgqdoctor.sqlfacts import Claim, Condition, Statement
from pgqdoctor.sqlread import read_sql
from pgqdoctor.sqltext import word_set
from pgqdoctor.sqlwords import FINISHED, IN_PROGRESS, READY

READY_WORDS: Final = READY | word_set(
    "retry retryable scheduled submitted unprocessed unsent runnable requested"
)
RUNNING_WORDS: Final = IN_PROGRESS | word_set("sending")
FINISHED_WORDS: Final = FINISHED | word_set("delivered exception")
"""State names met in real frameworks. They only decide where the claim's own text does not say."""
PUBLIC_WORDS: Final = word_set("open free new created")
"""Words for ready that offers, vacancies and tickets bear too."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StateNames:
    """Values of the state column, and what told those that mean ready ("" for nothing)."""

    ready: tuple[str, ...]
    running: tuple[str, ...]
    finished: tuple[str, ...]
    ready_from: str


def states_of(
    roles: ColumnRoles,
    columns: Mapping[str, ColumnRow],
    indexes: Sequence[IndexRow],
    claims: Sequence[Claim],
    signs: Signs,
    polls: Sequence[tuple[Condition, ...]],
    taking: Sequence[tuple[Statement, Claim]],
) -> StateNames:
    """Tell the states: what the claims ask for and set first, then defaults, and names alone last.

    ``taking`` are the claims that tell by what they set into which state jobs are taken, with their statements.
    """
    state = roles.state
    if state is None or state not in columns:
        return StateNames(ready=(), running=(), finished=(), ready_from="")
    column = columns[state]
    conditions = [
        *(one for claim in claims for one in flat(claim.conditions)),
        *(c for conditions in polls for c in conditions),
    ]
    claimed = [
        one.value
        for statement, claim in taking
        for write in statement.writes
        if write.kind == "update" and claim.writes
        for one in write.sets
        if one.column == state and one.value_kind == "constant"
    ]
    # Each claim may take its own states: what the first that shows any asks for is ready.
    ready: list[str] = []
    for asked in (*(claim.conditions for claim in claims), *polls):
        ready = [
            value
            for one in flat(asked)
            if one.column == state and one.value_kind in ("constant", "list", "boolean")
            for value in allowed_values(one)
            if not value.startswith("$")
        ]
        if ready:
            break
    ready = _without_reclaimed(ready, state, claimed, roles, conditions)
    known = [*column.enum_labels, *column.common_values, *column.seen_values]
    before = [one for one in conditions if one.column == state and one.operator in ("<", "<=") and one.values]
    if before and column.enum_labels:
        # Enum labels compare by their order: state < 'active' asks for every label that stands before it.
        bound = before[0].values[0]
        if bound not in column.enum_labels:
            bound = next((label for label in column.enum_labels if plain_word(label) in RUNNING_WORDS), "")
        if bound in column.enum_labels:
            place = column.enum_labels.index(bound) + (before[0].operator == "<=")
            ready.extend(column.enum_labels[:place])
    source = "claim" if ready else ""
    tested = {one.column for one in conditions}
    if not ready and column.type_category not in (TIME_CATEGORY,):
        for index in indexes:
            values = predicate_values(index, state)
            if values and (
                not tested or set(values) & READY_WORDS or not set(values) & (FINISHED_WORDS | RUNNING_WORDS)
            ):
                ready, source = list(values), "partial index"
                break
    if not ready and conditions:
        # A row is born ready: what the column's default says is what the claim's parameter asks for.
        born = default_value(column)
        if born is not None and plain_word(born) not in FINISHED_WORDS | RUNNING_WORDS:
            ready, source = [born], "column default"
    if not ready and column.type_category == "B":
        # A generated flag has no default: is_available says by its name what picked and sent deny.
        denied = any(one.search(state.lower()) for one in (CLAIMED, FINISHED_AT, DENIED))
        ready, source = ["false" if denied else "true"], "column name"
    if not ready and column.type_category in ("S", "E"):
        ready = [value for value in known if plain_word(value) in READY_WORDS]
        source = "state names" if ready else ""
    assigned = [
        one.value
        for _, statement in signs.statements
        for write in statement.writes
        for one in write.sets
        if one.column == state and one.value_kind == "constant"
    ]
    running = [value for value in claimed if value not in ready] or [
        value for value in (*assigned, *known) if plain_word(value) in RUNNING_WORDS and value not in ready
    ]
    if not running and column.type_category == "B" and ready and UNDER_WAY.search(state.lower()):
        running = ["false" if ready[0] in ("t", "true") else "true"]
    finished = [
        value
        for value in (*assigned, *known)
        if plain_word(value) in FINISHED_WORDS and value not in ready and value not in running
    ]
    return StateNames(
        ready=tuple(dict.fromkeys(ready)),
        running=tuple(dict.fromkeys(running)),
        finished=tuple(dict.fromkeys(finished)),
        ready_from=source,
    )


def _without_reclaimed(
    ready: list[str],
    state: str,
    claimed: Sequence[str],
    roles: ColumnRoles,
    conditions: Sequence[Condition],
) -> list[str]:
    """Leave out the state into which jobs are taken: a claim may ask for those too whose worker let the lease run out."""
    leased = any(
        one.column is not None
        and one.column != state
        and one.column in (roles.lease, roles.heartbeat, roles.claimed_at)
        for one in conditions
    )
    left = [
        value
        for value in ready
        if value not in claimed and not (leased and plain_word(value) in RUNNING_WORDS)
    ]
    return left or ready


def plain_word(value: str) -> str:
    """Return a state's name in the spelling of the word sets here."""
    return value.lower().replace("-", "_").replace(" ", "_")


def default_value(column: ColumnRow) -> str | None:
    """The constant that a column's default sets, None for none and for an expression."""
    if (
        column.default_expression is None
        or column.generated
        or column.type_category not in ("S", "E", "N", "B")
    ):
        return None
    statements = read_sql(f"SELECT FROM t WHERE c = {column.default_expression}").statements
    values = [
        value for one in statements for read in one.reads for test in read.conditions for value in test.values
    ]
    constant = len(values) == 1 and all(
        test.value_kind in ("constant", "boolean")
        for one in statements
        for read in one.reads
        for test in read.conditions
    )
    return values[0] if constant else None


def stateless(identity: QueueIdentity, catalog: Catalog) -> str | None:
    """Return the state column of a queue whose ready state nothing tells, though an index begins with that column.

    A normalised claim has lost the constant, and statistics may lack a state that few rows have.
    """
    name = identity.roles.state
    row = next((one for one in catalog.columns_of(identity.oid) if one.name == name), None)
    if row is None or row.type_category != "S" or identity.ready_values or identity.ready_predicate:
        return None
    led = any(
        index.valid
        and index.method == "btree"
        and not index.has_predicate
        and index.key_columns[:1] == (row.number,)
        for index in catalog.indexes_of(identity.oid)
    )
    return name if led else None
