"""Whether the indexes in the files serve the claims in the files. Pure.

Only tables whose whole definition is there are judged, and only claims whose conditions are a plain conjunction: what cannot be
decided is not accused.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import count, islice
from typing import Literal

from pgqdoctor import remedy, sqlcorrect
from pgqdoctor.finding import Remedy
from pgqdoctor.lint.flaws import Flaw, corrected, flaw_at, named
from pgqdoctor.lint.program import PlacedClaim, Program, same
from pgqdoctor.lint.sources import FIRST_VARIABLE
from pgqdoctor.lint.tables import Index, Table
from pgqdoctor.sqlfacts import Claim, Condition, OrderKey
from pgqdoctor.sqlrewrite import quote_ident
from pgqdoctor.sqlwords import tests_state

_EQUAL = ("=", "is true", "is false", "is null")
_Implied = Literal["yes", "no", "hidden", "unknown"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Serving:
    """How one index serves one claim."""

    index: Index
    implied: _Implied
    """Whether the claim implies the index's predicate: "hidden" where a bind parameter, or a cast, stands in the way."""
    hides: Condition | None
    narrows: bool
    """True where it leads to the jobs in the asked state, by its predicate or its first column."""
    orders: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Judged:
    """One claim with its table and how each index serves it. ``state`` is the condition that leaves finished jobs out."""

    placed: PlacedClaim
    table: Table
    state: Condition
    servings: tuple[Serving, ...]


def judged(program: Program) -> Iterator[Judged]:
    """Yield the claims that can be judged."""
    for one in program.claims:
        claim = one.claim
        table = program.schema.table(claim.table)
        if table is None or not table.whole or claim.by_key or claim.limit_kind == "none":
            continue
        own = [test for test in claim.conditions if test.table is None or same(test.table, claim.table)]
        if any(test.operator == "or" for test in own):
            continue
        state = next((test for test in own if _leaves_out(test, table)), None)
        if state is None:
            continue
        servings = tuple(_serving(index, own, claim, state) for index in table.indexes)
        if any(each.implied == "unknown" for each in servings):
            continue
        yield Judged(placed=one, table=table, state=state, servings=servings)


def _leaves_out(test: Condition, table: Table) -> bool:
    """Tell whether a condition asks for one state of a job: what stays false for finished jobs."""
    return (
        tests_state(test)
        and test.column in table.columns
        and (test.operator in _EQUAL or (test.operator == "in" and test.value_kind != "column"))
    )


def _serving(index: Index, conditions: Sequence[Condition], claim: Claim, state: Condition) -> Serving:
    implied, hides = _implies(conditions, index)
    equal = {test.column for test in conditions if test.operator in _EQUAL and test.cast is None}
    first = index.keys[0].column if index.keys else None
    by_predicate = bool(index.conditions) and any(
        part.column == state.column for part in index.conditions or ()
    )
    leads = first is not None and first == state.column and state.cast is None
    return Serving(
        index=index,
        implied=implied,
        hides=hides,
        narrows=index.method == "btree" and (by_predicate or leads),
        orders=index.method == "btree" and _ordered(index, equal, claim.order),
    )


def _implies(conditions: Sequence[Condition], index: Index) -> tuple[_Implied, Condition | None]:
    if index.conditions is None:
        return "unknown", None
    for part in index.conditions:
        answer, test = _implies_one(conditions, part)
        if answer != "yes":
            return answer, test
    return "yes", None


def _implies_one(conditions: Sequence[Condition], part: Condition) -> tuple[_Implied, Condition | None]:
    if part.column is None or part.operator == "or":
        return "unknown", None
    tests = [test for test in conditions if test.column == part.column]
    if not tests:
        return "no", None
    for test in tests:
        if test.cast != part.cast and test.operator == part.operator:
            return ("hidden", test) if test.cast is not None else ("unknown", None)
        if part.operator == "is not null" and test.operator not in ("is null", "expression"):
            return "yes", None
        if test.operator in ("=", "in") and test.value_kind in ("constant", "list", "boolean"):
            if part.operator in ("=", "in") and set(test.values) <= set(part.values) and test.values:
                return "yes", None
            if part.operator in ("<>", "not in") and not set(test.values) & set(part.values):
                return "yes", None
        if (
            test.operator == part.operator
            and test.values == part.values
            and test.value_kind == part.value_kind
        ):
            return "yes", None
        if (
            test.operator in ("=", "in")
            and test.value_kind == "parameter"
            and part.operator in ("=", "in", "<>", "not in")
        ):
            # psql writes the value of a variable into the text: the server never sees a parameter.
            return ("hidden", test) if _bound(test) else ("yes", None)
        if test.operator in ("=", "<>", "in", "not in", "is true", "is false", "is null", "is not null"):
            continue
        return "unknown", None
    return "no", None


def _bound(test: Condition) -> bool:
    return not any(
        value.startswith("$") and value[1:].isdigit() and int(value[1:]) >= FIRST_VARIABLE
        for value in test.values
    )


def _ordered(index: Index, equal: set[str | None], order: Sequence[OrderKey]) -> bool:
    """Tell whether an index gives an order: its keys, those compared by equality left out, begin with it."""
    if not order:
        return True
    wanted = [key for key in order if key.column not in equal or key.column is None]
    keys = [key for key in index.keys if key.column not in equal or key.column is None]
    if len(keys) < len(wanted):
        # A unique column behind the order adds nothing to it once the columns before it decide.
        return False
    turned: bool | None = None
    for key, have in zip(wanted, keys, strict=False):
        if key.column is None or have.column is None:
            return (
                key.column is None and have.column is None
            )  # two expressions: give the index the benefit of the doubt
        if key.column != have.column:
            return False
        nulls = key.nulls_first if key.nulls_first is not None else key.descending
        flips = (key.descending != have.descending, nulls != have.nulls_first)
        # Where the order of NULLs alone differs the column may have none.
        if turned is None:
            turned = flips[0]
        if flips[0] != turned:
            return False
    return True


# Rules


def scans_consumed_rows(program: Program) -> Iterator[Flaw]:
    """A claim for which no index leaves the finished jobs out."""
    for one in judged(program):
        if any(each.narrows and each.implied in ("yes", "hidden") for each in one.servings):
            continue
        claim, placed = one.placed.claim, one.placed.placed
        if _finished_go(program, one.table):
            continue
        yield flaw_at(
            placed,
            severity="warning",
            title=f"No index of {named(claim.table)} leads the claim to the jobs where {one.state.text}",
            why=(
                "Every claim reads rows from the table, or from an index in the claim's order, until it meets one in the asked state. The "
                "finished jobs come first, and each one that is kept makes every claim dearer."
            ),
            remedies=_index_remedy(program, one),
        )


def _finished_go(program: Program, table: Table) -> bool:
    """Tell whether the files delete single jobs: then finished ones do not pile up."""
    return any(
        write.kind == "delete"
        and same(write.table, table.name)
        and (write.by_key_only or bool(placed.statement.claims))
        for placed in program.statements
        for write in placed.statement.writes
    )


def sorts_backlog(program: Program) -> Iterator[Flaw]:
    """A claim whose index finds the ready jobs and not their order."""
    for one in judged(program):
        claim, placed = one.placed.claim, one.placed.placed
        usable = [each for each in one.servings if each.narrows and each.implied in ("yes", "hidden")]
        if not usable or not claim.order or any(each.orders for each in usable):
            continue
        order = ", ".join(key.text for key in claim.order)
        yield flaw_at(
            placed,
            severity="warning",
            title=f"The claim of {named(claim.table)} sorts the backlog: {_named(usable[0].index)} does not give the order {order}",
            why=(
                "To find the first job, every claim reads all that are ready and sorts them. It costs little while the queue is empty and "
                "most when the backlog is long, which is when it has to catch up."
            ),
            remedies=_index_remedy(program, one),
        )


def misses_partial_index(program: Program) -> Iterator[Flaw]:
    """A claim that asks for its state by a bind parameter or through a cast, and a partial index on the state."""
    for one in judged(program):
        claim, placed = one.placed.claim, one.placed.placed
        if any(each.narrows and each.implied == "yes" for each in one.servings):
            continue
        missed = next((each for each in one.servings if each.narrows and each.implied == "hidden"), None)
        if missed is None or missed.hides is None:
            continue
        cast = missed.hides.cast is not None
        what = (
            f"through a cast ({missed.hides.text})" if cast else f"as a bind parameter ({missed.hides.text})"
        )
        yield flaw_at(
            placed,
            severity="warning",
            title=f"The claim of {named(claim.table)} gives its state {what}, so it may miss {_named(missed.index)}",
            why=(
                "A partial index is used only where the statement's text implies its predicate. "
                + (
                    "Behind a cast the planner does not see that it does."
                    if cast
                    else "A generic plan, which a prepared statement, a PL/pgSQL function and many drivers' pools come to after five "
                    "executions, is made for any value, and any value does not imply it."
                )
                + f" Write {missed.index.predicate} into the claim."
            ),
            remedies=corrected(
                placed,
                sqlcorrect.without_cast(placed.statement.text, missed.hides.column or "") if cast else None,
                title="Compare the column as it is",
                expect="the claim finds the ready jobs in the partial index",
            ),
        )


def _named(index: Index) -> str:
    return f"index {quote_ident(index.name)}" if index.name else "the index"


@dataclass(frozen=True, slots=True)
class _Wanted:
    """An index that would serve a claim: its keys, quoted, and its predicate."""

    columns: tuple[str, ...]
    predicate: str | None


def _wanted(one: Judged) -> _Wanted | None:
    claim, state = one.placed.claim, one.state
    constant = state.value_kind in ("constant", "boolean", "null", "list") and state.cast is None
    columns: list[str] = []
    names: set[str] = set()
    if not constant and state.column is not None:
        columns.append(quote_ident(state.column))
        names.add(state.column)
    for key in claim.order:
        if key.column is None or key.column not in one.table.columns:
            break
        if key.column not in names and key.column != state.column:
            columns.append(quote_ident(key.column) + (" DESC" if key.descending else ""))
            names.add(key.column)
    if not columns:
        columns = [quote_ident(name) for name in one.table.primary]
    return _Wanted(tuple(columns), state.text if constant else None) if columns else None


def _free_name(program: Program, one: Judged, wanted: _Wanted) -> str:
    """Return a name that no index in the files has; claims that want another index get another name."""
    others = [each for each in judged(program) if same(each.table.name, one.table.name)]
    place = list(dict.fromkeys(filter(None, map(_wanted, others)))).index(wanted)
    taken = {index.name for index in one.table.indexes}
    base = f"{one.placed.claim.table.name}_ready_idx"
    names = (base if number == 1 else f"{base}_{number}" for number in count(1))
    return next(islice((name for name in names if name not in taken), place, None))


def _index_remedy(program: Program, one: Judged) -> tuple[Remedy, ...]:
    wanted = _wanted(one)
    if wanted is None:
        return ()
    claim, state = one.placed.claim, one.state
    return (
        remedy.create_index(
            schema=claim.table.schema or one.table.name.schema or "public",
            table=claim.table.name,
            name=_free_name(program, one, wanted),
            columns=wanted.columns,
            predicate=wanted.predicate,
            title="Give the claim an index that holds the ready jobs only, in the claim's order"
            if wanted.predicate
            else "Give the claim an index that leads to the ready jobs, in the claim's order",
            expect="a claim reads a handful of buffers, however many finished jobs are kept",
            risk="one more index to write on each enqueue; updates of "
            f"{quote_ident(state.column or '')} cannot be heap-only while an index names it",
        ),
    )
