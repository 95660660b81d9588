"""Evidence by claim statements: which of them take jobs, which only look so, and which comes first. Pure."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from pgqdoctor.aims import Aim, Candidate, States, judged, sent_readings
from pgqdoctor.discovery.columns import acts_as_state, key_of, roles_of
from pgqdoctor.discovery.moved import moved_columns
from pgqdoctor.discovery.seen import SeenText
from pgqdoctor.discovery.signs import ClaimingFunction, SeenClaim, Signs
from pgqdoctor.discovery.states import FINISHED_WORDS, READY_WORDS, RUNNING_WORDS, default_value, plain_word
from pgqdoctor.frameworks import Signature
from pgqdoctor.lookalikes import finds_known_owner, is_mutex, names_work, pins_known_row, sweeps
from pgqdoctor.predicates import allowed_values, flat, predicate_values
from pgqdoctor.readiness import own_conditions
from pgqdoctor.rows import ColumnRow, IndexRow, TableRow
from pgqdoctor.sqlfacts import Claim, Statement
from pgqdoctor.sqlread import read_sql, text_fingerprint

SKIPPING: Final = 4.0
"""Weight of a claim with SKIP LOCKED against one without: a sweep that blocks may run as often as an idle worker polls."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TableClaims:
    """The claim-shaped statements of one table: how workers take jobs first, ``others`` finish, free or clear them."""

    claims: tuple[SeenClaim, ...]
    shown: tuple[SeenClaim, ...]
    """The same claims with the constants that sessions sent, where any text does show them."""
    others: tuple[SeenClaim, ...]


def claims_of(
    row: TableRow,
    seen: Sequence[SeenClaim],
    columns: Sequence[ColumnRow],
    indexes: Sequence[IndexRow],
    signature: Signature | None,
    readings: Mapping[str, Sequence[Statement]],
    statements: Sequence[Statement],
) -> TableClaims:
    """Tell which of the claim-shaped statements that name a table take its jobs; ``statements`` are all that name it."""
    by_name = {column.name: column for column in columns}
    claims = [
        one
        for one in seen
        if one[0].source == "option"
        or (
            takes_jobs(one[2], by_name)
            and not _looks_alike(row, one[2], by_name, indexes)
            and (one[1].returns or not _takes_all(one[2]) or names_work(row.name))
        )
    ]
    aims = _aims(claims, signature, columns, indexes, readings, statements)
    order = sorted(
        (
            (one, aim)
            for one, aim in zip(claims, aims, strict=True)
            if aim.verdict != "other" or one[0].source == "option"
        ),
        key=_taking_first,
    )
    return TableClaims(
        claims=tuple(one for one, _ in order),
        shown=tuple((one[0], aim.statement, own_conditions(aim.claim)) for one, aim in order),
        others=tuple(one for one, aim in zip(claims, aims, strict=True) if aim.verdict == "other"),
    )


def functions_of(
    found: Sequence[ClaimingFunction], called: Counter[str], columns: Mapping[str, ColumnRow]
) -> tuple[ClaimingFunction, ...]:
    """Tell which of the functions that name a table take its jobs, the most called first."""
    bodies = [one for one in found if one[2].lock is not None and takes_jobs(one[2], columns)]
    # A function that takes one known job (to cancel or retry it) locks it too: the one with a LIMIT claims.
    bodies = [one for one in bodies if one[2].limit_kind != "none"] or bodies
    bodies.sort(
        key=lambda one: (
            -called[one[0].name],
            one[2].lock is not None and one[2].lock.wait != "skip locked",
            one[0].name,
        )
    )
    return tuple(bodies)


def takes_jobs(claim: Claim, columns: Mapping[str, ColumnRow]) -> bool:
    """Tell whether a claim-shaped statement takes jobs: a lock of one known row or an optimistic update does
    not.

    A guarded update counts only where what it tests acts as a state or a lease: version counters guard every
    second table of an ORM.
    """
    tested = [one.column for one in flat(claim.conditions) if one.column is not None]
    if claim.shape in ("guarded", "unguarded"):
        return any(acts_as_state(columns[name]) for name in tested if name in columns)
    if claim.shape in ("blocking", "nowait") and claim.limit_kind == "none":
        return claim.writes and any(acts_as_state(columns[name]) for name in tested if name in columns)
    if claim.shape in ("skip-locked", "delete-skip-locked"):
        return claim.limit_kind != "none" or any(
            acts_as_state(columns[name]) for name in tested if name in columns
        )
    return True


def _looks_alike(
    row: TableRow, claim: Claim, columns: Mapping[str, ColumnRow], indexes: Sequence[IndexRow]
) -> bool:
    """Tell whether a claim-shaped statement does what other tables are for."""
    if claim.shape in ("guarded", "unguarded"):
        return claim.limit_kind == "none" and is_mutex(row.name)
    return (
        (not claim.by_key and pins_known_row(claim, columns, indexes))
        or sweeps(claim, columns)
        or finds_known_owner(claim)
    )


def _takes_all(claim: Claim) -> bool:
    """Tell whether a claim is an UPDATE of whatever is ready: where nobody reads what it changed, orders move on by such ones too."""
    return claim.shape == "guarded" and claim.limit_kind == "none" and not claim.by_key


def locks_with_limit(claims: Sequence[SeenClaim]) -> bool:
    """Tell whether any claim locks the row it looks for and asks for a LIMIT."""
    return any(claim.lock is not None and claim.limit_kind != "none" for _, _, claim in claims)


def sent_statements(
    texts: Sequence[SeenText], sent: Sequence[str], signs: Mapping[int, Signs]
) -> dict[str, list[Statement]]:
    """Return what sessions sent, by the fingerprint that it shares with the normalised text."""
    wanted = {text_fingerprint(text.text) for one in signs.values() for text, _, _ in one.claims}
    found: dict[str, list[Statement]] = defaultdict(list)
    shown = [one.text for one in texts if one.source == "pg_stat_activity" and not _is_cut(one)]
    for text in dict.fromkeys((*sent, *shown)):
        key = text_fingerprint(text)
        if key in wanted:
            found[key].extend(read_sql(text).statements)
    return found


def _is_cut(text: SeenText) -> bool:
    return bool(text.read().unread)


def _aims(
    claims: Sequence[SeenClaim],
    signature: Signature | None,
    columns: Sequence[ColumnRow],
    indexes: Sequence[IndexRow],
    readings: Mapping[str, Sequence[Statement]],
    statements: Sequence[Statement],
) -> tuple[Aim, ...]:
    """Judge what each claim-shaped statement of a table is for."""
    candidates = [
        Candidate(
            calls=text.weight,
            rows=text.rows,
            statement=statement,
            claim=claim,
            sent=sent_readings(readings, text_fingerprint(text.text), claim)
            if text.source == "pg_stat_statements"
            else (),
        )
        for text, statement, claim in claims
    ]
    pairs = [(statement, claim) for _, statement, claim in claims]
    moved = moved_columns(columns, key_of(columns, indexes), pairs, statements)
    roles = roles_of(columns, indexes, [claim for _, _, claim in claims], (), moved)
    column = next((one for one in columns if one.name == roles.state), None)
    ready: set[str] = set()
    if column is not None:
        born = default_value(column)
        told = [value for index in indexes for value in predicate_values(index, column.name)]
        asked = (
            value
            for one in candidates
            for claim in (one.claim, *(each for _, each in one.sent if each is not None))
            for test in flat(claim.conditions)
            if test.column == column.name
            for value in allowed_values(test)
        )
        known = (*told, *column.common_values, *column.enum_labels, *asked)
        ready.update(value for value in known if plain_word(value) in READY_WORDS)
        if born is not None and plain_word(born) not in FINISHED_WORDS | RUNNING_WORDS:
            ready.add(born)
    running = frozenset(signature.running) if signature is not None else frozenset()
    waiting = frozenset(signature.waiting) if signature is not None else frozenset()
    return judged(candidates, roles, States(ready=(frozenset(ready) | waiting) - running, running=running))


def _taking_first(
    judged_one: tuple[SeenClaim, Aim],
) -> tuple[bool, bool, bool, float]:
    """Order claims: how workers take jobs before how schedulers move and reapers free them.

    Those run once for many polls of the workers; among equals SKIP LOCKED is what workers use.
    """
    (text, _, claim), aim = judged_one
    skips = claim.lock is not None and claim.lock.wait == "skip locked"
    return (
        claim.shape in ("unguarded", "guarded"),
        claim.limit_kind == "none" and not claim.by_key,
        aim.verdict != "takes",
        -text.weight * (SKIPPING if skips else 1.0),
    )
