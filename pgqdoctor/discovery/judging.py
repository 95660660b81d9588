"""One table judged: whether it is a queue, how sure that is, and what its claim and its ready jobs are. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from pgqdoctor.discovery.claims import TableClaims, claims_of, functions_of, locks_with_limit
from pgqdoctor.discovery.columns import key_of, roles_of
from pgqdoctor.discovery.framework import framework_functions, framework_states
from pgqdoctor.discovery.moved import moved_columns
from pgqdoctor.discovery.polls import TWO_STATEMENTS, polls_of, written_by_key
from pgqdoctor.discovery.shape import CERTAIN_SHAPE, shape, worked_on, works_jobs
from pgqdoctor.discovery.signs import ClaimingFunction, SeenClaim, Signs
from pgqdoctor.discovery.states import READY_WORDS, StateNames, states_of
from pgqdoctor.discovery.tables import qualified
from pgqdoctor.frameworks import Signature, signature_of
from pgqdoctor.lookalikes import is_kept_record, is_schedule, names_work
from pgqdoctor.observation import Catalog, ColumnRoles, QueueIdentity
from pgqdoctor.readiness import Readiness
from pgqdoctor.rows import ColumnRow, IndexRow, TableRow
from pgqdoctor.sqlfacts import Claim, Condition, Statement
from pgqdoctor.sqlparameters import argument_types, variables_as_parameters
from pgqdoctor.sqlrewrite import quote_ident

RECURRING: Final = 1_000.0
"""Rows that move on in time and are never finished, from which they are work and no list of recurring tasks: a crontab has tens,
a table of everybody's reports and alerts tens of thousands, and workers pull them as from any queue."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Moves:
    """What the counters tell of a table: whether it moved lately, and whether its rows are used up."""

    lately: bool
    consumed: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class _Evidence:
    """Everything known of one table, before it is weighed."""

    row: TableRow
    columns: Mapping[str, ColumnRow]
    indexes: Sequence[IndexRow]
    signature: Signature | None
    seen: TableClaims
    bodies: Sequence[ClaimingFunction]
    asked: Sequence[Claim]
    """The claims of both, with the constants that sessions sent, the likeliest first."""
    statements: Sequence[Statement]
    polls: Sequence[tuple[Condition, ...]]
    pair: bool
    """Polled without a lock, then written by key."""
    roles: ColumnRoles
    states: StateNames
    shape: Sequence[str]
    """What the shape says for a queue, in words, and in ``points``."""
    points: int
    moves: Moves
    forced: bool

    @property
    def claims(self) -> tuple[SeenClaim, ...]:
        return self.seen.claims


def judge(
    row: TableRow,
    catalog: Catalog,
    signs: Signs,
    called: Counter[str],
    readings: Mapping[str, Sequence[Statement]],
    moves: Moves,
    *,
    forced: bool,
) -> QueueIdentity | None:
    """Return what a table is as a queue, None where it is none.

    ``called`` counts calls of functions, ``readings`` are statements as sessions sent them; ``forced`` is a table named by --queue.
    """
    found = _evidence(row, catalog, signs, called, readings, moves, forced)
    certain = _is_certain(found)
    if not certain and not _is_possible(found):
        return None
    reasons, score = _weighed(found, called)
    ready, ready_state = _ready(found)
    claim_sql, source, functions = _claim(found, catalog)
    return QueueIdentity(
        oid=row.oid,
        schema=row.schema,
        table=row.name,
        name=qualified(row),
        framework=found.signature.framework if found.signature is not None else None,
        score=score,
        recognised_by=tuple(reasons),
        certain=certain,
        roles=found.roles,
        ready_values=found.states.ready,
        running_values=found.states.running,
        finished_values=found.states.finished,
        ready_predicate=ready,
        ready_state_predicate=ready_state,
        claim_keys=tuple(dict.fromkeys(text.key for text, _, _ in found.claims)),
        claim_sql=claim_sql,
        claim_source=source,
        functions=tuple(dict.fromkeys(functions)),
        other_keys=tuple(dict.fromkeys(text.key for text, _, _ in found.seen.others)),
    )


def _evidence(
    row: TableRow,
    catalog: Catalog,
    signs: Signs,
    called: Counter[str],
    readings: Mapping[str, Sequence[Statement]],
    moves: Moves,
    forced: bool,
) -> _Evidence:
    columns = catalog.columns_of(row.oid)
    indexes = [index for index in catalog.indexes_of(row.oid) if index.valid]
    by_name = {column.name: column for column in columns}
    signature = signature_of(row.name, frozenset(by_name))
    statements = [statement for _, statement in signs.statements]
    seen = claims_of(row, signs.claims, columns, indexes, signature, readings, (*statements, *signs.inside))
    bodies = functions_of(signs.functions, called, by_name)
    asked = [claim for _, _, claim in seen.shown] + [claim for _, _, claim, _ in bodies]
    polls = polls_of(signs, by_name)
    claiming = [(statement, claim) for _, statement, claim in seen.shown]
    claiming.extend((statement, claim) for _, _, claim, statement in bodies)
    moved = moved_columns(columns, key_of(columns, indexes), claiming, (*statements, *signs.inside))
    roles = roles_of(columns, indexes, asked, [c for conditions in polls for c in conditions], moved)
    # Another function of the same table may free or move jobs: only the likeliest one tells what a claim sets.
    taking = [(statement, claim) for _, statement, claim in seen.shown] or [
        (statement, claim) for _, _, claim, statement in bodies[:1]
    ]
    states = states_of(roles, by_name, indexes, asked, signs, polls, taking)
    if signature is not None:
        states = framework_states(states, signature)
    reasons, points = shape(roles, indexes, by_name, states)
    return _Evidence(
        row=row,
        columns=by_name,
        indexes=indexes,
        signature=signature,
        seen=seen,
        bodies=bodies,
        asked=asked,
        statements=statements,
        polls=polls,
        pair=bool(polls) and written_by_key(signs, roles),
        roles=roles,
        states=states,
        shape=reasons,
        points=points,
        moves=moves,
        forced=forced,
    )


def _weighed(found: _Evidence, called: Counter[str]) -> tuple[list[str], int]:
    """Return why the table is taken for a queue, and the score of these reasons."""
    reasons: list[str] = []
    score = 0
    if found.forced:
        reasons.append("named by --queue")
    if found.signature is not None:
        reasons.append(f"table of {found.signature.framework}")
        score += 10
    for place in ("option", "pg_stat_statements", "pg_stat_activity"):
        if any(text.source == place for text, _, _ in found.claims):
            reasons.append(f"claim statement in {place}" if place != "option" else "claim query given")
            score += 10
    if found.bodies:
        used = sorted({function.name for function, *_ in found.bodies})
        ran = [name for name in used if called[name]]
        reasons.append(
            f"function {', '.join(map(quote_ident, used))} claims" + (" and is called" if ran else "")
        )
        score += 8 if ran else 4
    reasons.extend(found.shape)
    score += found.points
    if found.pair and not found.claims:
        reasons.append(TWO_STATEMENTS)
        score += 6
    return reasons, score


def _is_certain(found: _Evidence) -> bool:
    if found.forced or found.signature is not None or found.bodies:
        return True
    works = worked_on(found.roles) or (
        names_work(found.row.name) and works_jobs(found.roles, found.indexes, found.columns, found.states)
    )
    if found.claims:
        looking = any(not claim.by_key for _, _, claim in found.claims)
        held = found.points >= 1 or locks_with_limit(found.claims)
        if held and (looking or works) and not _is_schedule(found):
            return True
    if found.pair:
        return found.points >= 2 and works and not is_kept_record(found.row.name)
    return (
        not found.claims
        and found.moves.lately
        and found.moves.consumed
        and found.points >= CERTAIN_SHAPE
        and bool(set(found.states.ready) & READY_WORDS)
    )


def _is_possible(found: _Evidence) -> bool:
    """Tell whether a table that nothing is sure to claim from is worth a word."""
    return (
        found.points >= 3
        and found.moves.lately
        and found.moves.consumed
        and (worked_on(found.roles) or names_work(found.row.name))
        and not _is_schedule(found)
    )


def _is_schedule(found: _Evidence) -> bool:
    return found.row.rows < RECURRING and is_schedule(
        found.roles,
        [claim for _, _, claim in found.claims],
        found.statements,
        frozenset(claim.table for _, _, claim in found.claims),
    )


def _ready(found: _Evidence) -> tuple[str | None, str | None]:
    """Return the conditions for a ready job: that may be claimed now, and that is in a ready state."""
    roles, states, signature = found.roles, found.states, found.signature
    asking = next(iter(found.asked), None)
    ready, ready_state = Readiness(roles, found.columns, states.ready).condition(
        asking.conditions if asking is not None else found.polls[0] if found.polls else (),
        whole=asking is not None and asking.lock is not None and asking.limit_kind != "none",
    )
    untold = ready is None or (
        roles.state is not None
        and not states.ready
        and found.columns[roles.state].type_category in ("S", "E", "N", "U")
    )
    if signature is not None and signature.ready is not None and untold:
        return signature.ready, None
    return ready, ready_state


def _claim(found: _Evidence, catalog: Catalog) -> tuple[str | None, str | None, list[int]]:
    """Return the text of the claim, where it is from, and the oids of the functions that claim."""
    signature, row = found.signature, found.row
    claim_sql: str | None = None
    source: str | None = None
    if found.claims:
        text, statement, _ = found.claims[0]
        claim_sql, source = statement.text, text.source
    elif found.bodies:
        function, body, _, statement = found.bodies[0]
        inner = variables_as_parameters(statement.text, body.variables, argument_types(function.arguments))
        claim_sql, source = inner or statement.text, "framework" if signature is not None else "derived"
    functions = [function.oid for function, *_ in found.bodies]
    if signature is not None and signature.functions and not found.bodies:
        functions = framework_functions(signature, row, catalog)
        if functions and signature.claim is not None and claim_sql is None:
            claim_sql, source = signature.claim.replace("{table}", qualified(row)), "framework"
    return claim_sql, source, functions
