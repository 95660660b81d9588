"""Which tables are queues, and why: from statements first, from shape last. Pure.

The order of belief: a framework's signature, a claim statement, a function whose body claims, and the shape
of the table. A table that only looks like a queue, without any sign that something claims from it, is
reported as possible and left alone.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from pgqdoctor.aims import Aim, Candidate, States, judged, sent_readings
from pgqdoctor.frameworks import Signature, signature_of
from pgqdoctor.lookalikes import (
    finds_known_owner,
    is_kept_record,
    is_mutex,
    is_schedule,
    names_work,
    pins_known_row,
    sweeps,
)
from pgqdoctor.names import Names, columns_used
from pgqdoctor.observation import Catalog, ColumnRoles, QueueIdentity
from pgqdoctor.predicates import allowed_values, flat, predicate_conditions, predicate_values
from pgqdoctor.readiness import Readiness, own_conditions
from pgqdoctor.rows import ColumnRow, FunctionRow, IndexRow, StatementTextRow, TableCounterRow, TableRow
from pgqdoctor.sqlfacts import Claim, Condition, FunctionBody, OrderKey, Statement
from pgqdoctor.sqlfacts import Reading as SqlReading
from pgqdoctor.sqlparameters import argument_types, variables_as_parameters
from pgqdoctor.sqlread import may_concern_queue, read_function, read_sql, text_fingerprint
from pgqdoctor.sqlrewrite import quote_ident
from pgqdoctor.sqltext import word_set
from pgqdoctor.sqlwords import FINISHED, IN_PROGRESS, READY

_STATE = re.compile(
    r"(^|_)(state|status|stage|phase|visible|picked|running|processed|is_available|done)$|^(state|status)"
)
_RUN_AT = re.compile(
    r"^(run_?(at|after|time)|scheduled(_?(at|for|time))?|schedule_at|eta|available_?(at|after)|not_?before|execut(e|ion)_?"
    r"(at|after|time)|start_?after|next_?(run|attempt|retry)\w*|visible_?(at|after)|vt|due(_at)?|process_after|ready_at|deliver_at|send_at)$"
)
_LEASE = re.compile(
    r"(lease|lock(ed)?_?until|lock_?expires|expire[sd]?(_at|_on)?|visible_until|deadline|reserved_until|invisible_until|timeout_at)"
)
_HEARTBEAT = re.compile(r"(heart_?beat|last_?seen|last_?alive|pinged|touched|keep_?alive)")
_CLAIMED = re.compile(
    r"(claimed|locked|started|picked|attempted|taken|reserved|dequeued|fetched|processing_?at|acquired|begun|executing)(_?(at|on|time))?$"
)
_FINISHED = re.compile(
    r"(finished|completed|done|processed|ended|failed|finalized|succeeded|sent|delivered)(_?(at|on|time))$"
)
_CREATED = re.compile(r"(created|enqueued|inserted|queued|added)(_?(at|on|time))$")
_ATTEMPTS = re.compile(
    r"(^|_)(attempts?|tries|retries|retry_count|try_count|read_ct|failures|error_count|attempt_count|num_attempts|retrycount)$"
)
_OWNER = re.compile(
    r"(locked_by|claimed_by|worker(_id)?|owner|node|picked_by|taken_by|reserved_by|attempted_by|executor_id|lock_id|locked_by_id)$"
)
_PRIORITY = re.compile(r"(^|_)(priority|prio|rank)$")

_DENIED = re.compile(
    r"(^|_)(running|processed|processing|done|sent|published|handled|consumed|finished|completed|dispatched|delivered|busy|paused|blocked)$"
)

_UNDER_WAY = re.compile(r"(^|_)(picked|running|processing|locked|claimed|taken|executing|busy)$")

READY_WORDS: Final = READY | word_set(
    "retry retryable scheduled submitted unprocessed unsent runnable requested"
)
RUNNING_WORDS: Final = IN_PROGRESS | word_set("sending")
FINISHED_WORDS: Final = FINISHED | word_set("delivered exception")
"""State names met in real frameworks. They only decide where the claim's own text does not say."""

PUBLIC_WORDS: Final = word_set("open free new created")
"""Words for ready that offers, vacancies and tickets bear too."""

RECURRING: Final = 1_000.0
"""Rows that move on in time and are never finished, from which they are work and no list of recurring tasks: a crontab has tens,
a table of everybody's reports and alerts tens of thousands, and workers pull them as from any queue."""

_TIME_CATEGORY = "D"
SKIPPING: Final = 4.0
"""Weight of a claim with SKIP LOCKED against one without: a sweep that blocks may run as often as an idle worker polls."""
CERTAIN_SHAPE: Final = 5
"""Shape points from which a table without a visible claim counts as a queue, if it also churns: a partial
index on a ready-like state (3), and two of run-at, attempts and lease columns, which no look-alike met so far
has.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class SeenText:
    """One statement text for discovery: its key, the times it was seen and where."""

    key: str
    text: str
    weight: int
    source: str
    rows: int | None = None
    """Rows of the same time, None where they were not counted."""
    cut_at: int | None = None
    """Bytes after which the server cuts such texts: one as long as that may be incomplete though it parses."""

    def read(self) -> SqlReading:
        """Return the facts of the text."""
        return read_sql(self.text, cut_at=self.cut_at) if self.cut_at is not None else read_sql(self.text)


@dataclass(slots=True)
class _Signs:
    """What speaks for one table, gathered before it is judged."""

    claims: list[tuple[SeenText, Statement, Claim]] = field(default_factory=list)
    statements: list[tuple[SeenText, Statement]] = field(default_factory=list)
    functions: list[tuple[FunctionRow, FunctionBody, Claim, Statement]] = field(default_factory=list)


LOOKED_FOR: Final = (
    "claim statements in pg_stat_statements and pg_stat_activity",
    "functions that claim",
    "tables of known queue frameworks",
    "partial indexes and columns that act as state, lease, attempts or run-at",
)


def column_pattern() -> str:
    """Return one pattern of all names by which a column may act as state, lease, attempts or time to run, for the server."""
    shapes = (_STATE, _RUN_AT, _LEASE, _HEARTBEAT, _CLAIMED, _ATTEMPTS, _DENIED)
    return "|".join(f"({one.pattern})" for one in shapes)


def claimed_pattern() -> str:
    """Return the pattern of names of columns that tell when a job was claimed, for the server."""
    return _CLAIMED.pattern


def seen_texts(
    texts: Sequence[StatementTextRow],
    calls: Mapping[str, int],
    session_texts: Sequence[str],
    cut_at: int | None = None,
    functions: Sequence[FunctionRow] = (),
) -> tuple[SeenText, ...]:
    """Join the texts of pg_stat_statements and of sessions into what discovery reads.

    What neither writes, nor asks for a LIMIT, nor calls one of ``functions`` says nothing about a queue and is left
    out before it costs parsing. ``cut_at`` is track_activity_query_size in bytes.
    """
    called = {row.name.lower() for row in functions}

    def tells(text: str) -> bool:
        lower = text.lower()
        return may_concern_queue(text) and (
            any(word in lower for word in ("update", "delete", "limit", "lock", "fetch"))
            or any(name in lower for name in called)
        )

    found = [
        SeenText(
            key=row.key, text=row.text, weight=max(calls.get(row.key, 1), 1), source="pg_stat_statements"
        )
        for row in texts
        if row.text is not None and tells(row.text)
    ]
    found.extend(
        SeenText(key=f"text:{position}", text=text, weight=1, source="pg_stat_activity", cut_at=cut_at)
        for position, text in enumerate(session_texts)
        if tells(text)
    )
    return tuple(found)


def tables_named(
    texts: Iterable[SeenText], functions: Iterable[FunctionRow], catalog: Catalog
) -> frozenset[int]:
    """Return the oids of tables that claim-like statements or functions name: their columns are worth
    reading."""
    names = Names(catalog)
    found: set[int] = set()
    for text in texts:
        for statement in text.read().statements:
            if statement.claims or statement.locks:
                for name in columns_used(statement):
                    found |= {names.root(row).oid for row in names.namesakes(name)}
    for function in functions:
        for statement in _body(function).statements:
            for claim in statement.claims:
                found |= {names.root(row).oid for row in names.namesakes(claim.table)}
    return frozenset(found)


def discover(
    catalog: Catalog,
    texts: Sequence[SeenText],
    *,
    moving: frozenset[int] = frozenset(),
    counters: Sequence[TableCounterRow] = (),
    forced: Sequence[str] = (),
    claim_queries: Mapping[str, str] | None = None,
    sent: Sequence[str] = (),
) -> tuple[QueueIdentity, ...]:
    """Return the queues of the catalog, the surest and busiest first.

    ``moving`` are oids of tables whose counters moved; ``forced`` are names given by --queue: only these are
    returned then, and they are queues whatever their shape. ``claim_queries`` maps such a name to the claim's
    text. ``sent`` are statements as sessions sent them last, with the constants that ``texts`` may have lost.
    """
    names = Names(catalog, moving)
    signs: dict[int, _Signs] = defaultdict(_Signs)
    given = [
        SeenText(key=f"option:{name}", text=text, weight=10**9, source="option")
        for name, text in (claim_queries or {}).items()
    ]
    for text in (*given, *texts):
        for statement in text.read().statements:
            for name, columns in columns_used(statement).items():
                for row in names.resolve(name, columns):
                    root = names.root(row).oid
                    signs[root].statements.append((text, statement))
                    signs[root].claims.extend(
                        (text, statement, own_conditions(claim))
                        for claim in statement.claims
                        if claim.table == name
                    )
    for function in catalog.functions:
        body = _body(function)
        for statement in body.statements:
            for claim in statement.claims:
                columns = columns_used(statement).get(claim.table, set())
                for row in names.resolve(claim.table, columns):
                    signs[names.root(row).oid].functions.append(
                        (function, body, own_conditions(claim), statement)
                    )
    readings = _readings(texts, sent, signs)
    called = Counter(
        name.rpartition(".")[2]
        for text in texts
        for statement in text.read().statements
        for name in statement.functions
    )
    wanted = tuple(_oid_of(name, catalog) for name in forced)
    described = {column.table for column in catalog.columns}
    found = []
    for row in catalog.tables:
        if row.parent is not None or row.oid not in described:
            continue
        if forced and row.oid not in wanted:
            continue
        identity = _judge(
            row,
            catalog,
            signs[row.oid],
            called,
            row.oid in moving or _leaf_moves(catalog, row, moving),
            bool(forced),
            readings,
            consumed=_consumed(row, catalog, counters),
        )
        if identity is not None:
            found.append(identity)
    found = _without_helpers(found, catalog)
    activity = {one.oid: one.inserted + one.updated + one.deleted for one in counters}
    found.sort(key=lambda one: (not one.certain, -one.score, -activity.get(one.oid, 0), one.name))
    return tuple(found)


def _without_helpers(found: list[QueueIdentity], catalog: Catalog) -> list[QueueIdentity]:
    """Leave out a framework's side tables (schedules, logs, counters): claimed like a queue, they are none."""
    own = []
    for one in found:
        names = frozenset(column.name for column in catalog.columns_of(one.oid))
        signature = signature_of(one.table, names) if one.framework is not None else None
        if signature is not None:
            own.append((one.schema, signature))

    def helps(one: QueueIdentity) -> bool:
        if one.framework is not None or "named by --queue" in one.recognised_by:
            return False
        return any(one.schema == schema and signature.is_helper(one.table) for schema, signature in own)

    return [one for one in found if not helps(one)]


def qualified(row: TableRow) -> str:
    """Return schema.table, quoted as SQL needs it."""
    return f"{quote_ident(row.schema)}.{quote_ident(row.name)}"


def table_named(name: str, catalog: Catalog) -> TableRow | None:
    """Return the table that a name given by a person means: schema.table, table, quoted or not."""
    for row in catalog.tables:
        plain = f"{row.schema}.{row.name}"
        if name in (qualified(row), plain):
            return row
    matches = [row for row in catalog.tables if name in (row.name, quote_ident(row.name))]
    visible = [row for row in matches if row.visible]
    return next(iter(visible or matches), None)


def queue_named(name: str, catalog: Catalog) -> TableRow | None:
    """Return the queue that a name given by a person means: of a partition the table it belongs to."""
    row = table_named(name, catalog)
    return Names(catalog).root(row) if row is not None else None


def _oid_of(name: str, catalog: Catalog) -> int:
    row = queue_named(name, catalog)
    return row.oid if row is not None else 0


def _consumed(row: TableRow, catalog: Catalog, counters: Sequence[TableCounterRow]) -> bool:
    """Tell whether rows are updated or deleted: what is only inserted into keeps records. True where nothing was counted."""
    if is_kept_record(row.name):
        return False
    oids = {row.oid, *(leaf.oid for leaf in catalog.partitions_of(row.oid))}
    counted = [one for one in counters if one.oid in oids]
    return not any(one.inserted for one in counted) or any(one.updated + one.deleted for one in counted)


def _leaf_moves(catalog: Catalog, row: TableRow, moving: frozenset[int]) -> bool:
    return row.kind == "p" and any(leaf.oid in moving for leaf in catalog.partitions_of(row.oid))


def _body(function: FunctionRow) -> FunctionBody:
    return read_function(
        function.name, function.language, function.body, arguments=_arguments(function.arguments)
    )


def _arguments(text: str) -> tuple[str, ...]:
    return (text,) if text else ()


def _judge(
    row: TableRow,
    catalog: Catalog,
    signs: _Signs,
    called: Counter[str],
    moves: bool,
    forced: bool,
    readings: Mapping[str, Sequence[Statement]],
    *,
    consumed: bool,
) -> QueueIdentity | None:
    columns = catalog.columns_of(row.oid)
    indexes = [index for index in catalog.indexes_of(row.oid) if index.valid]
    by_name = {column.name: column for column in columns}
    signature = signature_of(row.name, frozenset(by_name))
    framework = signature.framework if signature is not None else None
    claims = [
        one
        for one in signs.claims
        if one[0].source == "option"
        or (
            takes_jobs(one[2], by_name)
            and not _looks_alike(row, one[2], by_name, indexes)
            and (one[1].returns or not _takes_all(one[2]) or names_work(row.name))
        )
    ]
    aims = _aims(claims, signature, columns, indexes, catalog, readings)
    others = [one for one, aim in zip(claims, aims, strict=True) if aim.verdict == "other"]
    order = sorted(
        (
            (one, aim)
            for one, aim in zip(claims, aims, strict=True)
            if aim.verdict != "other" or one[0].source == "option"
        ),
        key=_taking_first,
    )
    claims = [one for one, _ in order]
    shown = [(one[0], aim.statement, own_conditions(aim.claim)) for one, aim in order]
    bodies = [one for one in signs.functions if one[2].lock is not None and takes_jobs(one[2], by_name)]
    # A function that takes one known job (to cancel or retry it) locks it too: the one with a LIMIT claims.
    bodies = [one for one in bodies if one[2].limit_kind != "none"] or bodies
    bodies.sort(
        key=lambda one: (
            -called[one[0].name],
            one[2].lock is not None and one[2].lock.wait != "skip locked",
            one[0].name,
        )
    )
    texts = [claim for _, _, claim in shown] + [claim for _, _, claim, _ in bodies]
    polls = _polls(signs, by_name)
    roles = _roles(columns, indexes, texts, [c for conditions in polls for c in conditions], catalog)
    states = _states(roles, by_name, indexes, texts, signs, polls, shown)
    if signature is not None:
        states = replace(
            states,
            ready=states.ready
            if states.ready_from == "claim" or not signature.waiting
            else signature.waiting,
            running=signature.running or states.running,
        )
    reasons: list[str] = []
    score = 0
    if framework is not None:
        reasons.append(f"table of {framework}")
        score += 10
    for place in ("option", "pg_stat_statements", "pg_stat_activity"):
        if any(text.source == place for text, _, _ in claims):
            reasons.append(f"claim statement in {place}" if place != "option" else "claim query given")
            score += 10
    if bodies:
        used = sorted({function.name for function, *_ in bodies})
        ran = [name for name in used if called[name]]
        reasons.append(
            f"function {', '.join(map(quote_ident, used))} claims" + (" and is called" if ran else "")
        )
        score += 8 if ran else 4
    shape, points = _shape(roles, indexes, by_name, states)
    reasons.extend(shape)
    score += points
    pair = bool(polls) and _written_by_key(signs, roles)
    if pair and not claims:
        reasons.append("polled by state without a lock, then written by key")
        score += 6
    if forced:
        reasons.insert(0, "named by --queue")
    shape_alone = not claims and not bodies and framework is None and not pair
    worked_on = _worked_on(roles)
    named_so = names_work(row.name) and _works_jobs(roles, indexes, by_name, states)
    looking = any(not claim.by_key for _, _, claim in claims)
    schedule = row.rows < RECURRING and is_schedule(
        roles,
        [claim for _, _, claim in claims],
        [statement for _, statement in signs.statements],
        frozenset(claim.table for _, _, claim in claims),
    )
    certain = (
        forced
        or framework is not None
        or bool(bodies)
        or (
            bool(claims)
            and (points >= 1 or _locks_with_limit(claims))
            and (looking or worked_on or named_so)
            and not schedule
        )
        or (pair and points >= 2 and (worked_on or named_so) and not is_kept_record(row.name))
        or (
            shape_alone
            and moves
            and consumed
            and points >= CERTAIN_SHAPE
            and bool(set(states.ready) & READY_WORDS)
        )
    )
    if not certain and (
        points < 3 or not moves or schedule or not consumed or not (worked_on or names_work(row.name))
    ):
        return None
    best = claims[0] if claims else None
    asking = next(iter(texts), None)
    ready, ready_state = Readiness(roles, by_name, states.ready).condition(
        asking.conditions if asking is not None else polls[0] if polls else (),
        whole=asking is not None and asking.lock is not None and asking.limit_kind != "none",
    )
    untold = ready is None or (
        roles.state is not None
        and not states.ready
        and by_name[roles.state].type_category in ("S", "E", "N", "U")
    )
    if signature is not None and signature.ready is not None and untold:
        ready, ready_state = signature.ready, None
    claim_sql: str | None = None
    source: str | None = None
    if best is not None:
        claim_sql, source = best[1].text, best[0].source
    elif bodies:
        function, body, _, statement = bodies[0]
        inner = variables_as_parameters(statement.text, body.variables, argument_types(function.arguments))
        claim_sql, source = inner or statement.text, "framework" if framework else "derived"
    functions = [function.oid for function, *_ in bodies]
    if signature is not None and signature.functions and not bodies:
        functions = [
            one.oid
            for one in catalog.functions
            if one.name in signature.functions and one.schema == row.schema
        ]
        if functions and signature.claim is not None and claim_sql is None:
            claim_sql, source = signature.claim.replace("{table}", qualified(row)), "framework"
    return QueueIdentity(
        oid=row.oid,
        schema=row.schema,
        table=row.name,
        name=qualified(row),
        framework=framework,
        score=score,
        recognised_by=tuple(reasons),
        certain=certain,
        roles=roles,
        ready_values=states.ready,
        running_values=states.running,
        finished_values=states.finished,
        ready_predicate=ready,
        ready_state_predicate=ready_state,
        claim_keys=tuple(dict.fromkeys(text.key for text, _, _ in claims)),
        claim_sql=claim_sql,
        claim_source=source,
        functions=tuple(dict.fromkeys(functions)),
        other_keys=tuple(dict.fromkeys(text.key for text, _, _ in others)),
    )


def _readings(
    texts: Sequence[SeenText], sent: Sequence[str], signs: Mapping[int, _Signs]
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
    claims: Sequence[tuple[SeenText, Statement, Claim]],
    signature: Signature | None,
    columns: Sequence[ColumnRow],
    indexes: Sequence[IndexRow],
    catalog: Catalog,
    readings: Mapping[str, Sequence[Statement]],
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
    roles = _roles(columns, indexes, [claim for _, _, claim in claims], (), catalog)
    column = next((one for one in columns if one.name == roles.state), None)
    ready: set[str] = set()
    if column is not None:
        born = _default_value(column)
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
        ready.update(value for value in known if _word(value) in READY_WORDS)
        if born is not None and _word(born) not in FINISHED_WORDS | RUNNING_WORDS:
            ready.add(born)
    running = frozenset(signature.running) if signature is not None else frozenset()
    waiting = frozenset(signature.waiting) if signature is not None else frozenset()
    return judged(candidates, roles, States(ready=(frozenset(ready) | waiting) - running, running=running))


def _taking_first(
    judged_one: tuple[tuple[SeenText, Statement, Claim], Aim],
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


def _takes_all(claim: Claim) -> bool:
    """Tell whether a claim is an UPDATE of whatever is ready: where nobody reads what it changed, orders move on by such ones too."""
    return claim.shape == "guarded" and claim.limit_kind == "none" and not claim.by_key


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


def _worked_on(roles: ColumnRoles) -> bool:
    """Tell whether columns speak of work: tried, due, taken by somebody, alive. A state alone has every second table."""
    return any((roles.attempts, roles.run_at, roles.claimed_at, roles.heartbeat, roles.owner))


def takes_jobs(claim: Claim, columns: Mapping[str, ColumnRow]) -> bool:
    """Tell whether a claim-shaped statement takes jobs: a lock of one known row or an optimistic update does
    not.

    A guarded update counts only where what it tests acts as a state or a lease: version counters guard every
    second table of an ORM.
    """
    tested = [one.column for one in flat(claim.conditions) if one.column is not None]
    if claim.shape in ("guarded", "unguarded"):
        return any(_acts_as_state(columns[name]) for name in tested if name in columns)
    if claim.shape in ("blocking", "nowait") and claim.limit_kind == "none":
        return claim.writes and any(_acts_as_state(columns[name]) for name in tested if name in columns)
    if claim.shape in ("skip-locked", "delete-skip-locked"):
        return claim.limit_kind != "none" or any(
            _acts_as_state(columns[name]) for name in tested if name in columns
        )
    return True


def _locks_with_limit(claims: Sequence[tuple[SeenText, Statement, Claim]]) -> bool:
    return any(claim.lock is not None and claim.limit_kind != "none" for _, _, claim in claims)


def _acts_as_state(column: ColumnRow) -> bool:
    name = column.name.lower()
    if column.type_category == _TIME_CATEGORY:
        return bool(
            _LEASE.search(name) or _CLAIMED.search(name) or _FINISHED.search(name) or _RUN_AT.match(name)
        )
    return bool(
        _STATE.search(name)
        or _LEASE.search(name)
        or _OWNER.search(name)
        or column.type_category == "E"
        or _CLAIMED.search(name)
    )


def _polls(signs: _Signs, columns: Mapping[str, ColumnRow]) -> list[tuple[Condition, ...]]:
    """Return the conditions of unlocked reads with a LIMIT that test something acting as a state."""
    found = []
    for _, statement in signs.statements:
        if statement.claims or statement.locks or statement.writes:
            continue
        for read in statement.reads:
            if read.limit_kind == "none" or read.counts or _newest_first(read.order, columns):
                continue
            tested = [one.column for one in flat(read.conditions) if one.column in columns]
            if any(name is not None and _acts_as_state(columns[name]) for name in tested):
                found.append(read.conditions)
    return found


def _works_jobs(
    roles: ColumnRoles, indexes: Sequence[IndexRow], columns: Mapping[str, ColumnRow], states: _States
) -> bool:
    """Tell whether a table that is read by state and then written by key holds work, and not what people publish and close.

    A list of vacancies has a status, an index on it and a date of expiry as well. Work is taken: by whom or when, how often,
    when it is due, or in which state meanwhile.
    """
    told = (roles.run_at, roles.attempts, roles.owner, roles.claimed_at, roles.heartbeat)
    state = columns[roles.state] if roles.state is not None else None
    if any(told) or state is None or state.type_category not in ("S", "E"):
        return True
    partial = any(one.column == roles.state for index in indexes for one in flat(predicate_conditions(index)))
    words = {_word(value) for value in (*states.ready, *states.running)}
    return partial or not words or bool(words & ((READY_WORDS - PUBLIC_WORDS) | RUNNING_WORDS))


def _newest_first(order: Sequence[OrderKey], columns: Mapping[str, ColumnRow]) -> bool:
    """Tell whether a read lists the latest rows, as a page for people does: a worker asks for the oldest."""
    first = next(iter(order), None)
    row = columns.get(first.column) if first is not None and first.column is not None else None
    return first is not None and row is not None and first.descending and row.type_category == _TIME_CATEGORY


def _written_by_key(signs: _Signs, roles: ColumnRoles) -> bool:
    """Tell whether the state is set by an UPDATE that finds its row by key."""
    acting = {roles.state, roles.claimed_at, roles.lease, roles.owner} - {None}
    return any(
        write.kind == "update" and write.by_key_only and acting & {one.column for one in write.sets}
        for _, statement in signs.statements
        for write in statement.writes
    )


def _roles(
    columns: Sequence[ColumnRow],
    indexes: Sequence[IndexRow],
    claims: Sequence[Claim],
    polled: Sequence[Condition],
    catalog: Catalog,
) -> ColumnRoles:
    conditions = [*(one for claim in claims for one in flat(claim.conditions)), *polled]
    by_name = {column.name: column for column in columns}
    tested: Counter[str | None] = Counter(one.column for one in conditions if one.column in by_name)

    def timed(pattern: re.Pattern[str]) -> list[ColumnRow]:
        return [
            one
            for one in columns
            if one.type_category in (_TIME_CATEGORY, "N")
            and pattern.search(one.name.lower())
            and not one.generated
        ]

    state = _state_column(columns, conditions, tested)
    run_at = next(
        (
            one.column
            for one in conditions
            if one.column in by_name
            and one.column != state
            and by_name[one.column].type_category == _TIME_CATEGORY
            and one.operator in ("<", "<=")
            and not _LEASE.search(one.column.lower())
            and not _HEARTBEAT.search(one.column.lower())
            and not _CLAIMED.search(one.column.lower())
        ),
        None,
    ) or next((one.name for one in timed(_RUN_AT)), None)
    taken = {state, run_at}

    def first(pattern: re.Pattern[str]) -> str | None:
        return next((one.name for one in timed(pattern) if one.name not in taken), None)

    def named(pattern: re.Pattern[str]) -> str | None:
        return next(
            (one.name for one in columns if pattern.search(one.name.lower()) and one.name not in taken), None
        )

    primary = next((index for index in indexes if index.primary), None)
    numbers = {column.number: column.name for column in columns}
    return ColumnRoles(
        state=state,
        run_at=run_at,
        lease=first(_LEASE),
        heartbeat=first(_HEARTBEAT),
        claimed_at=state
        if state and _CLAIMED.search(state.lower()) and by_name[state].type_category == _TIME_CATEGORY
        else first(_CLAIMED),
        finished_at=first(_FINISHED),
        created_at=first(_CREATED),
        attempts=next(
            (one.name for one in columns if one.type_category == "N" and _ATTEMPTS.search(one.name.lower())),
            None,
        ),
        owner=named(_OWNER),
        priority=next(
            (one.name for one in columns if one.type_category == "N" and _PRIORITY.search(one.name.lower())),
            None,
        ),
        key=tuple(numbers[number] for number in primary.key_columns if number in numbers) if primary else (),
    )


def _state_column(
    columns: Sequence[ColumnRow], conditions: Sequence[Condition], tested: Counter[str | None]
) -> str | None:
    """The tested column that acts as state: a named one first, then enum, boolean, then a timestamp tested
    for NULL."""
    by_name = {column.name: column for column in columns}
    named = [
        one.name
        for one in columns
        if _STATE.search(one.name.lower()) and one.type_category in ("S", "E", "B", "N", "U")
    ]
    for pool in (named, [one.name for one in columns if one.type_category in ("E", "B")]):
        seen = sorted((name for name in pool if tested[name]), key=lambda name: -tested[name])
        if seen:
            return seen[0]
    nulls = [
        one.column
        for one in conditions
        if one.operator == "is null" and one.column in by_name and not _RUN_AT.match(one.column.lower())
    ]
    if nulls:
        return Counter(nulls).most_common(1)[0][0]
    if conditions:
        return None
    return named[0] if named else None


@dataclass(frozen=True, slots=True, kw_only=True)
class _States:
    ready: tuple[str, ...]
    running: tuple[str, ...]
    finished: tuple[str, ...]
    ready_from: str


def _states(
    roles: ColumnRoles,
    columns: Mapping[str, ColumnRow],
    indexes: Sequence[IndexRow],
    claims: Sequence[Claim],
    signs: _Signs,
    polls: Sequence[tuple[Condition, ...]],
    shown: Sequence[tuple[SeenText, Statement, Claim]],
) -> _States:
    state = roles.state
    if state is None or state not in columns:
        return _States(ready=(), running=(), finished=(), ready_from="")
    column = columns[state]
    conditions = [
        *(one for claim in claims for one in flat(claim.conditions)),
        *(c for conditions in polls for c in conditions),
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
    known = [*column.enum_labels, *column.common_values, *column.seen_values]
    before = [one for one in conditions if one.column == state and one.operator in ("<", "<=") and one.values]
    if before and column.enum_labels:
        # Enum labels compare by their order: state < 'active' asks for every label that stands before it.
        bound = before[0].values[0]
        if bound not in column.enum_labels:
            bound = next((label for label in column.enum_labels if _word(label) in RUNNING_WORDS), "")
        if bound in column.enum_labels:
            place = column.enum_labels.index(bound) + (before[0].operator == "<=")
            ready.extend(column.enum_labels[:place])
    source = "claim" if ready else ""
    tested = {one.column for one in conditions}
    if not ready and column.type_category not in (_TIME_CATEGORY,):
        for index in indexes:
            values = predicate_values(index, state)
            if values and (
                not tested or set(values) & READY_WORDS or not set(values) & (FINISHED_WORDS | RUNNING_WORDS)
            ):
                ready, source = list(values), "partial index"
                break
    if not ready and conditions:
        # A row is born ready: what the column's default says is what the claim's parameter asks for.
        born = _default_value(column)
        if born is not None and _word(born) not in FINISHED_WORDS | RUNNING_WORDS:
            ready, source = [born], "column default"
    if not ready and column.type_category == "B":
        # A generated flag has no default: is_available says by its name what picked and sent deny.
        denied = any(one.search(state.lower()) for one in (_CLAIMED, _FINISHED, _DENIED))
        ready, source = ["false" if denied else "true"], "column name"
    if not ready and column.type_category in ("S", "E"):
        ready = [value for value in known if _word(value) in READY_WORDS]
        source = "state names" if ready else ""
    assigned = [
        one.value
        for _, statement in signs.statements
        for write in statement.writes
        for one in write.sets
        if one.column == state and one.value_kind == "constant"
    ]
    claimed = [
        one.value
        for _, statement, claim in shown
        for write in statement.writes
        if write.kind == "update" and claim.writes
        for one in write.sets
        if one.column == state and one.value_kind == "constant"
    ]
    running = [value for value in claimed if value not in ready] or [
        value for value in (*assigned, *known) if _word(value) in RUNNING_WORDS and value not in ready
    ]
    if not running and column.type_category == "B" and ready and _UNDER_WAY.search(state.lower()):
        running = ["false" if ready[0] in ("t", "true") else "true"]
    finished = [
        value
        for value in (*assigned, *known)
        if _word(value) in FINISHED_WORDS and value not in ready and value not in running
    ]
    return _States(
        ready=tuple(dict.fromkeys(ready)),
        running=tuple(dict.fromkeys(running)),
        finished=tuple(dict.fromkeys(finished)),
        ready_from=source,
    )


def _word(value: str) -> str:
    return value.lower().replace("-", "_").replace(" ", "_")


def _default_value(column: ColumnRow) -> str | None:
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


def _shape(
    roles: ColumnRoles, indexes: Sequence[IndexRow], columns: Mapping[str, ColumnRow], states: _States
) -> tuple[list[str], int]:
    reasons: list[str] = []
    points = 0
    if roles.state is not None:
        partial = [
            index
            for index in indexes
            if any(one.column == roles.state for one in flat(predicate_conditions(index)))
        ]
        leading = [
            index
            for index in indexes
            if index.key_columns and columns[roles.state].number == index.key_columns[0]
        ]
        if partial:
            reasons.append(f"partial index on {quote_ident(roles.state)}")
            points += 3
        elif leading:
            reasons.append(f"index led by {quote_ident(roles.state)}")
            points += 1
        if states.ready or columns[roles.state].type_category in (_TIME_CATEGORY, "B"):
            reasons.append(f"{quote_ident(roles.state)} acts as state")
            points += 1
    for name, what in (
        (roles.run_at, "run-at"),
        (roles.lease or roles.heartbeat or roles.claimed_at, "lease"),
        (roles.attempts, "attempts"),
    ):
        if name is not None:
            reasons.append(f"{what} column {quote_ident(name)}")
            points += 1
    return reasons, points


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


def unsure(identity: QueueIdentity) -> QueueIdentity:
    """Return the identity as one that checks leave alone."""
    return replace(identity, certain=False)
