"""What checks about claims ask for together: rates of claims, known constants, the index that would serve a
claim. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Annotated, Final, Protocol

from pgqdoctor import remedy, sqlcorrect, taking
from pgqdoctor.finding import Evidence, Remedy, Severity
from pgqdoctor.observation import Catalog, Observation
from pgqdoctor.planfacts import ClaimPlanFacts, DeadWalk
from pgqdoctor.predicates import allowed_values, flat, predicate_conditions, predicate_values
from pgqdoctor.queue import Queue, ReadPlan, SeenClaim
from pgqdoctor.rows import ColumnRow, IndexRow
from pgqdoctor.sampled import sampled
from pgqdoctor.sqlfacts import Claim, Condition, OrderKey, Read
from pgqdoctor.sqlread import read_predicate, read_sql
from pgqdoctor.sqlrewrite import quote_ident
from pgqdoctor.statements import SeenStatement
from pgqdoctor.words import count, shortened

_KEYS: Final = re.compile(r" USING \w+ \(([^()]*)\)")
NAME_BYTES = 63
"""NAMEDATALEN - 1: PostgreSQL cuts longer names."""
SERVED_BUFFERS = 5
"""What a claim reads through an index that serves it: DESCENT_BUFFERS from root to leaf and the job's own
page."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Poll:
    """An unlocked SELECT ... LIMIT on the queue that tests a job's state, with its counters."""

    seen: SeenStatement
    read: Read


@dataclass(frozen=True, slots=True, kw_only=True)
class IndexAdvice:
    """The index that would serve a claim: key expressions in order, quoted, and the partial predicate."""

    columns: tuple[str, ...]
    names: tuple[str, ...]
    predicate: str | None
    ordered: bool
    """True where the index also gives the claim's order."""
    order: tuple[tuple[str, bool, bool], ...] = ()
    """The columns that give it, each with whether it descends and whether its nulls come first."""


def state_columns(queue: Queue) -> frozenset[str]:
    """Return the columns whose change marks a job as taken: state, time of the claim, lease and owner."""
    roles = queue.identity.roles
    return frozenset({roles.state, roles.claimed_at, roles.lease, roles.owner} - {None})  # type: ignore[arg-type]


def polls(queue: Queue) -> tuple[Poll, ...]:
    """Return the unlocked SELECTs that look for jobs by state with a LIMIT, the busiest first; counting ones
    are left out."""
    acting = state_columns(queue)
    found = [
        Poll(seen=one, read=read)
        for one in queue.statements
        if not (one.statement.claims or one.statement.locks or one.statement.writes)
        for read in one.statement.reads
        if queue.is_this(read.table)
        and read.limit_kind != "none"
        and not read.counts
        and any(test.column in acting for test in flat(read.conditions))
    ]
    return tuple(sorted(found, key=lambda one: (-one.seen.calls, -one.seen.samples)))


def claim_of_plan(queue: Queue, plan: ReadPlan) -> SeenClaim | None:
    """Return the claim that a plan was made for: the busiest one whose text the identity explains first."""
    return next(
        (one for one in queue.claims if one.seen.statement.text == queue.identity.claim_sql), None
    ) or next(iter(queue.claims), None)


def statements_of(claims: Iterable[SeenClaim]) -> tuple[SeenStatement, ...]:
    """Return the statements of claims, each once: one may make several claims."""
    return tuple({one.seen.key: one.seen for one in claims}.values())


def claims_per_second(queue: Queue) -> float:
    """Executions per second of the queue's claim statements."""
    return queue.churn.per_second(sum(one.calls for one in statements_of(queue.claims)))


def constants(queue: Queue) -> dict[tuple[str, str], tuple[str, ...]]:
    """Return SQL literals that normalised texts have lost: the ready and, where it is one, the running state."""
    identity = queue.identity
    state = identity.roles.state
    if state is None:
        return {}
    known: dict[tuple[str, str], tuple[str, ...]] = {}
    if identity.ready_values:
        known["compare", state] = tuple(remedy.literal(one) for one in identity.ready_values)
    if len(identity.running_values) == 1:
        known["set", state] = (remedy.literal(identity.running_values[0]),)
    return known


def printed(queue: Queue, text: str, *, limit: str | None = None) -> str:
    """Return a corrected statement ready to print: known constants put back, closed with a semicolon."""
    return sqlcorrect.filled(text, constants(queue), limit).rstrip().rstrip(";") + ";"


def with_parameters(sql: str) -> str:
    """Return a sentence about parameters left in a printed statement, "" without any."""
    return " $1, $2 ... stand for the values your application passes." if "$" in sql else ""


def composed_claim(queue: Queue, limit: int = 1) -> str | None:
    """Return a one-statement claim made of what is known about the queue, None where too little is known."""
    identity, roles = queue.identity, queue.identity.roles
    if identity.ready_predicate is None or not roles.key:
        return None
    sets: list[str] = []
    if roles.state is not None and len(identity.running_values) == 1:
        sets.append(f"{quote_ident(roles.state)} = {remedy.literal(identity.running_values[0])}")
    for name in (roles.claimed_at, roles.heartbeat):
        row = queue.column(name) if name else None
        if name is not None and row is not None and row.type_category == "D":
            sets.append(f"{quote_ident(name)} = now()")
    if not sets:
        return None
    keys = ", ".join(quote_ident(one) for one in roles.key)
    order = ", ".join(
        quote_ident(one) for one in (roles.priority, roles.run_at or roles.created_at, *roles.key) if one
    )
    same = " AND ".join(f"j.{quote_ident(one)} = picked.{quote_ident(one)}" for one in roles.key)
    return (
        f"WITH picked AS MATERIALIZED (SELECT {keys} FROM {queue.name} WHERE {identity.ready_predicate} ORDER BY {order} "
        f"LIMIT {limit} FOR NO KEY UPDATE SKIP LOCKED) "
        f"UPDATE {queue.name} AS j SET {', '.join(sets)} FROM picked WHERE {same} RETURNING j.*;"
    )


# The index that would serve a claim


def index_for(queue: Queue, conditions: Sequence[Condition], order: Sequence[OrderKey]) -> IndexAdvice | None:
    """Return the index a claim asks for, None where its conditions name no column of the queue.

    Equalities with one value lead, then the order, then columns that are only compared (a time that is due,
    IN lists): inside the index they are checked without reading the row. The state stands in the predicate
    where its ready values are known, so that finished jobs are not in the index at all.
    """
    predicate = queue.identity.ready_state_predicate
    told = set(_predicate_columns(predicate))
    by_name = {row.name: row for row in queue.columns}
    lead: list[str] = []
    rest: list[str] = []
    for one in conditions:
        name = one.column
        if name is None or name not in by_name or name in told or one.value_kind == "column":
            continue
        if one.table is not None and not queue.is_this(one.table):
            continue
        if one.operator in ("=", "is true", "is false", "is null"):
            lead.append(name)
        elif one.operator in ("in", "<", "<=", ">", ">=", "between"):
            rest.append(name)
    columns = [(quote_ident(name), name) for name in dict.fromkeys(lead) if _indexable(by_name[name])]
    ordered = True
    directions: list[tuple[str, bool, bool]] = []
    for key in order:
        if key.column is None or key.column not in by_name:
            ordered = False
            break
        if key.column in lead or key.column in (name for _, name in columns):
            continue
        text = quote_ident(key.column)
        if key.descending:
            text += " DESC"
        if key.nulls_first is not None and key.nulls_first != key.descending:
            text += " NULLS FIRST" if key.nulls_first else " NULLS LAST"
        columns.append((text, key.column))
        first = key.descending if key.nulls_first is None else key.nulls_first
        directions.append((key.column, key.descending, first))
    columns.extend(
        (quote_ident(name), name)
        for name in dict.fromkeys(rest)
        if name not in {known for _, known in columns} and _indexable(by_name[name])
    )
    if not columns and predicate is not None:
        columns = [(quote_ident(name), name) for name in queue.identity.roles.key]
    if not columns:
        return None
    return IndexAdvice(
        columns=tuple(text for text, _ in columns),
        names=tuple(name for _, name in columns),
        predicate=predicate,
        ordered=ordered,
        order=tuple(directions) if ordered else (),
    )


def index_asked_for(queue: Queue) -> IndexAdvice | None:
    """Return the index that the busiest claim asks for, None where nothing tells it."""
    claim = busiest(queue.claims)
    return index_for(queue, claim.claim.conditions, claim.claim.order) if claim is not None else None


def served_already(queue: Queue, advice: IndexAdvice) -> IndexRow | None:
    """Return an existing valid index that does what the advised one would, or None.

    It begins with the advised columns, in the advised order or its reverse, and its predicate is on the same columns and holds all the
    jobs that the advised one does.
    """
    wanted = set(_predicate_columns(advice.predicate))
    for index in queue.indexes:
        if not index.valid or index.has_expressions or index.method != "btree":
            continue
        own = {one.column for one in flat(predicate_conditions(index)) if one.column is not None}
        if (
            queue.index_columns(index)[: len(advice.names)] == advice.names
            and own == wanted
            and _holds_them(index, advice)
            and _gives_order(queue, index, advice)
        ):
            return index
    return None


def as_walked(queue: Queue, advice: IndexAdvice) -> bool:
    """Tell whether the plan walks such an index already, so that another one would show it the same rows in the same order.

    What the walked index's predicate asks for need not lead another index, nor stand in its predicate.
    """
    plan = queue.plan
    index = queue.index(plan.facts.index) if plan is not None and plan.facts.index is not None else None
    if index is None or not index.valid or index.has_expressions or index.method != "btree":
        return False
    held = {one.column for one in flat(predicate_conditions(index)) if one.column is not None}
    wanted = tuple(name for name in advice.names if name not in held)
    return (
        bool(held)
        and set(_predicate_columns(advice.predicate)) <= held
        and queue.index_columns(index)[: len(wanted)] == wanted
        and _holds_them(index, advice)
    )


def _holds_them(index: IndexRow, advice: IndexAdvice) -> bool:
    """Tell whether a partial index holds every value that the advised predicate lets in, as far as its text shows."""
    asked = read_predicate(advice.predicate) if advice.predicate is not None else None
    for one in flat(asked or ()):
        held = predicate_values(index, one.column) if one.column is not None else ()
        if held and not set(allowed_values(one)) <= set(held):
            return False
    return True


def _gives_order(queue: Queue, index: IndexRow, advice: IndexAdvice) -> bool:
    """Tell whether the index, read forwards or backwards, gives the advised order with its nulls where they are asked for."""
    names = queue.index_columns(index)
    keys = _key_texts(index)
    same: set[bool] = set()
    for name, descending, nulls_first in advice.order:
        place = names.index(name)
        down = index.descending[place] if place < len(index.descending) else False
        text = keys[place].upper() if place < len(keys) else ""
        first = down if "NULLS" not in text else text.endswith("NULLS FIRST")
        if (down == descending) != (first == nulls_first):
            return False
        same.add(down == descending)
    return len(same) <= 1


def _key_texts(index: IndexRow) -> tuple[str, ...]:
    """Return the key columns of an index on plain columns as its definition writes them."""
    found = _KEYS.search(index.definition or "")
    return tuple(part.strip() for part in found[1].split(",")) if found else ()


def create_index(queue: Queue, advice: IndexAdvice, *, title: str, expect: str) -> Remedy:
    """Return the remedy that builds the advised index under a name that is free."""
    state = queue.identity.roles.state
    risk = "one more index to write on each enqueue"
    if advice.predicate is not None and state is not None:
        risk += (
            f"; updates of {quote_ident(state)} cannot be heap-only while an index predicate names it. A claim that passes the "
            f"state as a bind parameter may not use the index: write {advice.predicate} into the claim's text"
        )
    name = free_name(queue, f"{queue.table.name}_ready_idx")
    return remedy.create_index(
        schema=queue.table.schema,
        table=queue.table.name,
        name=name,
        columns=advice.columns,
        predicate=advice.predicate,
        title=title,
        expect=expect,
        risk=risk,
        partitioned=queue.table.kind == "p",
        remnant=invalid_index(queue.catalog, queue.table.schema, name),
    )


def invalid_index(catalog: Catalog, schema: str, name: str) -> bool:
    """Tell whether a failed CREATE INDEX CONCURRENTLY has left an index of that name."""
    return any(not row.valid and (row.schema, row.name) == (schema, name) for row in catalog.indexes)


def free_name(queue: Queue, wanted: str) -> str:
    """Return a name for a new index that no relation known here has, within PostgreSQL's length."""
    taken = {row.name for row in queue.catalog.indexes if row.valid} | {
        row.name for row in queue.catalog.tables
    }
    number = 1
    name = _cut(wanted, "")
    while name in taken:
        number += 1
        name = _cut(wanted, f"_{number}")
    return name


def _cut(name: str, suffix: str) -> str:
    room = NAME_BYTES - len(suffix.encode())
    return name.encode()[:room].decode(errors="ignore") + suffix


def _predicate_columns(predicate: str | None) -> tuple[str, ...]:
    if predicate is None:
        return ()
    conditions = (
        one
        for statement in read_sql(f"SELECT FROM t WHERE {predicate}").statements
        for read in statement.reads
        for one in flat(read.conditions)
    )
    return tuple(one.column for one in conditions if one.column is not None)


def _indexable(row: ColumnRow) -> bool:
    """Tell whether a column's type has a btree order: json, xml and geometric types have none."""
    return row.type_name not in ("json", "xml") and row.type_category not in ("G",)


# Rows that a claim reads in vain


@dataclass(frozen=True, slots=True, kw_only=True)
class RefusedLimits:
    """When rows that a claim reads and refuses cost something, in whatever state they are."""

    rows: Annotated[
        int,
        "rows refused per claim: 1,000 were measured to make a claim of 0.01 ms one of 0.1 ms, all of it in the cache",
    ] = 1_000
    rows_per_s: Annotated[
        float,
        "rows refused per second by all claims: 11 million a second were measured to fill one core, so this is 2% of it",
    ] = 200_000.0
    slow_rows: Annotated[
        int, "rows refused per claim that are felt as delay even if claims are rare: 300,000 took 26 ms"
    ] = 50_000
    critical_rows: Annotated[
        int, "rows refused per claim: some 45 ms from the cache, and many times that from disk"
    ] = 500_000
    critical_rows_per_s: Annotated[float, "rows refused per second that keep about one core busy"] = (
        10_000_000.0
    )


class FeltRows(Protocol):
    """Limits from which rows that each claim goes through are felt, by one claim or by all of them in a second."""

    @property
    def slow_rows(self) -> int: ...
    @property
    def critical_rows(self) -> int: ...
    @property
    def rows_per_s(self) -> float: ...
    @property
    def critical_rows_per_s(self) -> float: ...


def severity_of(queue: Queue, rows: float, limits: FeltRows, *, slow: bool = False) -> Severity:
    """Judge the rows that each claim goes through in vain; ``slow`` says that something else makes it felt already."""
    per_second = rows * claims_per_second(queue)
    if rows >= limits.critical_rows or per_second >= limits.critical_rows_per_s:
        return "critical"
    if rows >= limits.slow_rows or per_second >= limits.rows_per_s or slow:
        return "warning"
    return "notice"


@dataclass(frozen=True, slots=True, kw_only=True)
class Refused:
    """Rows that the claim's scan reads and refuses, by why it may not take them.

    ``consumed`` are in another state than a ready one (finished, failed, running), ``ineligible`` are in the
    ready state and fail another condition (scheduled for later, of another queue). The split is exact where
    the index or the row counts decide it.
    """

    plan: ReadPlan
    rows: int
    consumed: int
    ineligible: int


def refused(queue: Queue) -> Refused | None:
    """Tell what the claim's measured plan read in vain, None without a measured plan."""
    plan = queue.plan
    if plan is None or not plan.facts.measured:
        return None
    facts = plan.facts
    rows = (facts.rows_removed_by_filter or 0) + (facts.rows_removed_by_index_recheck or 0)
    if state_by_index(queue, facts):
        return Refused(plan=plan, rows=rows, consumed=0, ineligible=rows)
    ready = rows_in_ready_state(queue)
    if ready is None:
        return Refused(plan=plan, rows=rows, consumed=rows, ineligible=0)
    # What the scan refused beyond the rows of other states was in the ready state. The planner's row count may be older than the rows.
    others = max(max(queue.rows, queue.churn.live, rows) - ready, 0)
    consumed = min(rows, others)
    return Refused(plan=plan, rows=rows, consumed=consumed, ineligible=rows - consumed)


def state_by_index(queue: Queue, facts: ClaimPlanFacts) -> bool:
    """Tell whether the scan meets rows in the ready state only, by its index's predicate or its condition."""
    state = queue.identity.roles.state
    states = frozenset({state}) if state is not None else _tested_and_set(queue)
    if not states or not facts.indexes:
        return False
    if facts.index_cond is not None and {quote_ident(one) for one in states} & _words(facts.index_cond):
        return True
    index = queue.index(facts.index) if facts.index is not None else None
    return index is not None and any(one.column in states for one in flat(predicate_conditions(index)))


def _tested_and_set(queue: Queue) -> frozenset[str]:
    """Return the columns that claims test and change: they say what is ready, whatever their names."""
    found: set[str] = set()
    for one in queue.claims:
        tested = {test.column for test in flat(one.claim.conditions)}
        for write in one.seen.statement.writes:
            if write.kind == "update" and queue.is_this(write.table):
                found |= {each.column for each in write.sets if each.column in tested}
    return frozenset(found)


def rows_in_ready_state(queue: Queue) -> int | None:
    """Estimate how many rows are in a ready state, whatever else keeps them from being taken; None where
    nothing tells."""
    identity, probe = queue.identity, queue.probe
    state = identity.roles.state
    row = queue.column(state) if state is not None else None
    if row is None:
        return None
    if probe is not None and probe.states and identity.ready_values:
        return sum(one.rows for one in probe.states if same_state(one.value) in identity.ready_values)
    if row.common_values and identity.ready_values:
        shares = dict(zip(map(same_state, row.common_values), row.common_fractions, strict=False))
        return round(queue.rows * sum(shares.get(value, 0.0) for value in identity.ready_values))
    if (identity.ready_state_predicate or "").endswith("IS NULL") and row.null_fraction is not None:
        return round(queue.rows * row.null_fraction)
    return None


def same_state(value: str) -> str:
    """Return a state as statements write it: booleans come out of the server as t and f."""
    return {"t": "true", "f": "false"}.get(value, value)


def _words(condition: str) -> frozenset[str]:
    """Names in a condition as EXPLAIN prints it."""
    return frozenset(re.findall(r'"(?:[^"]|"")+"|[A-Za-z_][A-Za-z0-9_$]*', condition))


def text_evidence(seen: SeenStatement) -> Evidence:
    """Return the claim's text as evidence."""
    return Evidence(what="claim", value=shortened(seen.text, 300), unit="", source=seen.source)


def in_vain_evidence(calls: int) -> Evidence:
    """Return the claims of the window that found nothing as evidence."""
    return Evidence(
        what="claims that found nothing",
        value=calls,
        unit="calls",
        source="pg_stat_statements, in the window",
    )


def ready_evidence(queue: Queue) -> tuple[Evidence, ...]:
    """Return the ready jobs as evidence, nothing where they could not be looked at."""
    probe = queue.probe
    if probe is None or probe.ready_rows is None:
        return ()
    return (
        Evidence(
            what="ready jobs",
            value=probe.ready_rows,
            unit="rows",
            source=f"bounded look: {queue.identity.ready_predicate}",
        ),
    )


def dead_ms(plan: ReadPlan, walk: DeadWalk) -> float:
    """Return the part of the claim's measured time, in milliseconds, that goes with the buffers read for dead entries."""
    took = plan.facts.time_ms if plan.facts.time_ms is not None else plan.plan.execution_ms
    return (took or 0.0) * walk.unexplained_buffers / max(walk.buffers, 1)


def dead_core(queue: Queue, plan: ReadPlan, walk: DeadWalk) -> float:
    """Return the share of one core that all claims together spend on dead entries.

    EXPLAIN's own clock adds to what it times, and short claims feel it most: where pg_stat_statements has timed the claims, their
    time in it is the most that any part of them can have taken.
    """
    explained = claims_per_second(queue) * dead_ms(plan, walk) / 1000
    timed_ms = sum(one.total_ms for one in statements_of(queue.claims))
    if timed_ms <= 0 or queue.churn.seconds <= 0:
        return explained
    in_vain = walk.unexplained_buffers / max(walk.buffers, 1)
    return min(explained, timed_ms / queue.churn.seconds / 1000 * in_vain)


def mean_buffers(queue: Queue, least_calls: int) -> float | None:
    """Return the buffers that claims of the window read on average for a job, what they wrote included; None after fewer calls.

    A claim of many jobs writes as many rows, and one that finds none reads all the same: the more of calls and rows counts.
    """
    seen = statements_of(queue.claims)
    calls = sum(one.calls for one in seen)
    if calls < max(least_calls, 1):
        return None
    return sum(one.blocks for one in seen) / sum(one.turns for one in seen)


def filter_columns(queue: Queue, facts: ClaimPlanFacts) -> tuple[str, ...]:
    """Return the queue's columns that stand in the scan's filter, the state left out."""
    words = _words(facts.filter or "")
    return tuple(
        row.name
        for row in queue.columns
        if quote_ident(row.name) in words and row.name != queue.identity.roles.state
    )


def timed_out(queue: Queue) -> ReadPlan | None:
    """Return the plan of a claim that did not find its job in the time the doctor allows it."""
    return next((one for one in queue.plans if one.probe.timed_out), None)


def common_states(queue: Queue, most: int = 3) -> str:
    """Return the most frequent states that are not ready, as "done 10,000, failed 12"; "" where nothing
    tells."""
    ready = queue.identity.ready_values
    states = queue.probe.states if queue.probe is not None else ()
    others = sorted(
        (one for one in states if same_state(one.value) not in ready and one.rows > 0),
        key=lambda one: -one.rows,
    )
    return ", ".join(f"{shortened(one.value, 30)} {count(one.rows)}" for one in others[:most])


def literal_limit(seen: Observation, one: SeenClaim) -> int | None:
    """Return the LIMIT that sessions sent with this claim: a normalised text has lost it."""
    if one.claim.limit is not None or one.seen.query_id is None:
        return one.claim.limit
    sent = [
        row.query for row in (*seen.first.sessions, *seen.last.sessions) if row.query_id == one.seen.query_id
    ]
    sent += [seen.texts[place] for place in sampled(seen).texts_of_query.get(one.seen.query_id, ())]
    found = {
        claim.limit
        for text in dict.fromkeys(text for text in sent if text)
        for statement in read_sql(text).statements
        for claim in statement.claims
        if claim.limit is not None
    }
    return max(found, default=None)


# Evidence that several checks share


def plan_evidence(plan: ReadPlan) -> tuple[Evidence, ...]:
    """Return what the claim's plan read, as evidence."""
    facts: ClaimPlanFacts = plan.facts
    source = "EXPLAIN (ANALYZE, BUFFERS)" if facts.measured else "EXPLAIN"
    found = []
    if facts.buffers_per_row is not None:
        found.append(
            Evidence(
                what="claim reads",
                value=round(facts.buffers_per_row, 1),
                unit="buffers per job" if takes_many(plan) else "buffers",
                source=source,
            )
        )
    found.append(Evidence(what="scan", value=_scan(facts), unit="", source=source))
    if facts.rows_removed_by_filter:
        found.append(
            Evidence(
                what="rows read and refused", value=facts.rows_removed_by_filter, unit="rows", source=source
            )
        )
    return tuple(found)


def takes_many(plan: ReadPlan) -> bool:
    """Tell whether the claim took more than one job, so that its buffers per job are not those per claim."""
    return (plan.facts.rows or 0.0) > 1


def per_claim(plan: ReadPlan) -> str:
    """Return the unit of buffers that are those of the whole claim, which is said where it takes many jobs."""
    return "buffers per claim" if takes_many(plan) else "buffers"


def _scan(facts: ClaimPlanFacts) -> str:
    return f"{facts.scan_type} using {quote_ident(facts.index)}" if facts.index else facts.scan_type


def rate_evidence(queue: Queue) -> tuple[Evidence, ...]:
    """Return how often the queue is claimed from, where pg_stat_statements tells."""
    calls = claims_per_second(queue)
    if calls <= 0:
        return ()
    return (Evidence(what="claims", value=round(calls, 1), unit="per second", source="pg_stat_statements"),)


def busiest(claims: Iterable[SeenClaim]) -> SeenClaim | None:
    """Return the claim that ran most in the window; one that looks for a job before one that knows its key."""
    return max(claims, key=lambda one: (not one.claim.by_key, one.seen.calls, one.seen.samples), default=None)


def taken(queue: Queue) -> int:
    """Jobs taken in the window; see pgqdoctor.taking."""
    return taking.taken(queue).jobs


def of_text(claim: Claim) -> str:
    """Return a claim's lock as SQL says it."""
    return {"update": "FOR UPDATE", "no key update": "FOR NO KEY UPDATE"}[
        claim.lock.strength if claim.lock else "update"
    ]
