"""The model every output renders: the contract's JSON, field by field."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from pgqdoctor.finding import Evidence, Finding, Remedy, Severity, worst
from pgqdoctor.observation import Observation
from pgqdoctor.queue import Queue, SeenClaim, build_queues
from pgqdoctor.taking import taken
from pgqdoctor.triangle import Triangle, triangle_of
from pgqdoctor.words import duration

SCHEMA = "pgqdoctor.report/1"

Verdict = Literal["healthy", "notice", "warning", "critical"]
FailOn = Literal["critical", "warning", "notice", "never"]

_RANK: dict[str, int] = {"healthy": 0, "notice": 1, "warning": 2, "critical": 3, "never": 4}


@dataclass(frozen=True, slots=True, kw_only=True)
class Tool:
    """Who wrote the report."""

    name: str
    version: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerFacts:
    """The server that was observed."""

    version: str
    version_num: int
    database: str
    role: str
    in_recovery: bool
    pooler: bool
    started_at: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Window:
    """How long was looked, and how often."""

    seconds: float
    samples: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Ready:
    """Jobs that may be claimed now. ``rows`` is a lower bound where ``exact`` is false and the probe hit its
    limit."""

    predicate: str | None
    rows: int | None
    exact: bool
    oldest_age_s: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ClaimPlan:
    """What the claim costs, from EXPLAIN."""

    buffers: int | None
    rows_removed_by_filter: int | None
    rows: float | None
    time_ms: float | None
    mode: str
    index: str | None
    parameters: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class ClaimFacts:
    """How the queue is claimed."""

    shape: str
    sql: str | None
    source: str | None
    plan: ClaimPlan | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Rates:
    """What happens per second, over the window."""

    enqueued_per_s: float
    claimed_per_s: float | None
    updates_per_s: float
    hot_ratio: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class TableFacts:
    """The queue's table and its settings."""

    bytes: int | None
    index_bytes: int | None
    live_rows: int
    dead_rows: int
    fillfactor: int
    autovacuum: dict[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueFacts:
    """One queue."""

    name: str
    framework: str | None
    recognised_by: tuple[str, ...]
    ready: Ready
    claim: ClaimFacts
    rates: Rates
    table: TableFacts
    triangle: Triangle | None = None
    """Claim index, fillfactor and heap-only updates weighed against each other; null where nothing tells."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportedFinding:
    """One finding, with its stable key and its causes."""

    key: str
    check: str
    severity: Severity
    queue: str | None
    title: str
    why: str
    caused_by: tuple[str, ...]
    evidence: tuple[Evidence, ...]
    remedies: tuple[Remedy, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Skipped:
    """A check that could not look, and why."""

    check: str
    queue: str | None
    reason: str
    grant: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Crashed:
    """A check that raised."""

    check: str
    error: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """One diagnosis: what JSON prints and every other format renders."""

    schema: str = SCHEMA
    tool: Tool
    generated_at: str
    server: ServerFacts
    window: Window
    verdict: Verdict
    queues: tuple[QueueFacts, ...]
    findings: tuple[ReportedFinding, ...]
    skipped: tuple[Skipped, ...]
    crashed: tuple[Crashed, ...]
    notes: tuple[str, ...] = ()
    """What a reader must know of the observation itself: an interruption, a restart, no queue found."""


def verdict_of(findings: tuple[Finding, ...]) -> Verdict:
    """Return the verdict: the worst severity, or healthy."""
    return worst([one.severity for one in findings]) or "healthy"


def left_waiting(report: Report) -> tuple[QueueFacts, ...]:
    """Return the queues in which a job has waited for longer than the window, and no claim was seen."""
    return tuple(
        one
        for one in report.queues
        if one.ready.rows
        and (one.ready.oldest_age_s is None or one.ready.oldest_age_s >= report.window.seconds)
        and not one.rates.claimed_per_s
        and not one.rates.updates_per_s
    )


def verdict_reaches(report: Report, fail_on: FailOn) -> bool:
    """Tell whether the verdict is at or above the severity at which the command fails."""
    return report.verdict != "healthy" and _RANK[report.verdict] >= _RANK[fail_on]


def server_facts(seen: Observation) -> ServerFacts:
    """Return the server of an observation as every output names it."""
    return ServerFacts(
        version=seen.server.version,
        version_num=seen.server.version_num,
        database=seen.server.database,
        role=seen.server.role,
        in_recovery=seen.server.in_recovery,
        pooler=seen.server.pooler,
        started_at=seen.server.started_at,
    )


def build_report(
    seen: Observation,
    findings: tuple[Finding, ...],
    skipped: tuple[Skipped, ...],
    crashed: tuple[Crashed, ...],
    queues: tuple[Queue, ...] | None = None,
) -> Report:
    """Make the report of an observation and what the checks said of it, in the order given."""
    known = build_queues(seen) if queues is None else queues
    facts: list[QueueFacts] = []
    failed: list[Crashed] = []
    for one in known:
        try:
            triangle = triangle_of(seen, one)
        except Exception as error:
            # As with a check: one that fails is named, and the rest of the report stands.
            triangle = None
            failed.append(Crashed(check="knobs", error=f"{type(error).__name__}: {error} on {one.name}"))
        facts.append(queue_facts(one, triangle))
    return Report(
        tool=Tool(name="pgqdoctor", version=seen.tool_version),
        generated_at=seen.generated_at,
        server=server_facts(seen),
        window=Window(seconds=round(seen.seconds, 3), samples=len(seen.samples)),
        verdict=verdict_of(findings),
        queues=tuple(facts),
        findings=tuple(
            ReportedFinding(
                key=one.key,
                check=one.check,
                severity=one.severity,
                queue=one.queue,
                title=one.title,
                why=one.why,
                caused_by=one.caused_by,
                evidence=one.evidence,
                remedies=one.remedies,
            )
            for one in findings
        ),
        skipped=skipped,
        crashed=(*crashed, *failed),
        notes=notes_of(seen),
    )


def notes_of(seen: Observation) -> tuple[str, ...]:
    """Return what must be known of the observation itself."""
    notes = []
    if not any(one.certain for one in seen.queues):
        looked = "; ".join(seen.looked_for)
        notes.append(f"No queue found in database {seen.server.database}. Looked for: {looked}.")
    maybe = [one.name for one in seen.queues if not one.certain]
    if maybe:
        notes.append(
            "Possible queues that no claim was seen for: " + ", ".join(maybe) + ". Name one with --queue."
        )
    if seen.interrupted:
        notes.append(f"The window was cut short after {duration(seen.seconds)}.")
    if seen.restarted:
        notes.append("The server restarted during the window: counters before and after cannot be compared.")
    elif seen.counters_lost:
        notes.append(
            "The statistics of the database began anew during the window, as after a crash of a backend or a reset: counters before "
            "and after cannot be compared."
        )
    notes.extend(
        f"{one.what}: {one.reason}" + (f" ({one.grant})" if one.grant else "")
        for one in seen.lacks
        if one.queue is None
    )
    return tuple(notes)


def _by_meaning(queue: Queue) -> list[SeenClaim]:
    """The queue's claims, how jobs are taken first: a guarded update by key beside it finishes them or puts them back."""
    claims = [one for one in queue.claims if one.seen.seen] or list(queue.claims)
    return sorted(
        claims,
        key=lambda one: (one.claim.by_key, one.seen.statement.text != queue.identity.claim_sql),
    )


def queue_facts(queue: Queue, triangle: Triangle | None = None) -> QueueFacts:
    """Return one queue as the report shows it."""
    identity, probe, churn = queue.identity, queue.probe, queue.churn
    claims = _by_meaning(queue)
    plan = queue.plan
    jobs = taken(queue)
    autovacuum = {
        name: value
        for name, value in queue.option.items()
        if name.startswith(("autovacuum", "vacuum", "toast.autovacuum"))
    }
    return QueueFacts(
        name=identity.name,
        framework=identity.framework,
        recognised_by=identity.recognised_by,
        ready=Ready(
            predicate=identity.ready_predicate,
            rows=probe.ready_rows if probe else None,
            exact=bool(probe and probe.ready_exact),
            oldest_age_s=probe.oldest_ready_age_s if probe else None,
        ),
        claim=ClaimFacts(
            shape=claims[0].claim.shape if claims else ("function" if identity.functions else "unknown"),
            sql=identity.claim_sql,
            source=identity.claim_source,
            plan=None
            if plan is None
            else ClaimPlan(
                buffers=plan.facts.buffers,
                rows_removed_by_filter=plan.facts.rows_removed_by_filter,
                rows=plan.facts.rows,
                time_ms=plan.facts.time_ms if plan.facts.time_ms is not None else plan.plan.execution_ms,
                mode=plan.probe.mode,
                index=plan.facts.index,
                parameters=dict(plan.probe.parameters),
            ),
        ),
        rates=Rates(
            enqueued_per_s=round(churn.per_second(churn.inserted), 3),
            claimed_per_s=round(churn.per_second(jobs.jobs), 3) if jobs.known else None,
            updates_per_s=round(churn.per_second(churn.updated), 3),
            hot_ratio=round(churn.hot_ratio, 4) if churn.hot_ratio is not None else None,
        ),
        table=TableFacts(
            bytes=probe.table_bytes if probe else None,
            index_bytes=probe.index_bytes if probe else None,
            live_rows=queue.rows,
            dead_rows=churn.dead_last,
            fillfactor=queue.fillfactor,
            autovacuum=autovacuum,
        ),
        triangle=triangle,
    )
