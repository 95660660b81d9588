"""What an experiment of the lab found, as data: one model that JSON, text, Markdown and HTML render.

The JSON form is the interface (schema ``pgqdoctor.lab/1``): the members of ``LabResult`` at the top, one
object per measured cell under ``results``. Unknown members of a newer version are ignored when read.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Literal

import msgspec

from pgqdoctor.errors import USAGE, PgqdoctorError

SCHEMA: Final = "pgqdoctor.lab/1"

Experiment = Literal["race", "triangle", "storm", "prove"]
StrategyName = Literal[
    "naive", "guarded", "for-update", "skip-locked", "skip-locked-indexed", "batch", "delete", "custom"
]


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """Where the load ran: numbers of two machines must not be compared."""

    system: str
    architecture: str
    cpu: str
    cpus: int
    """Processors this process may use, not those the machine has."""
    memory_bytes: int | None
    load_1m: float | None
    """Load average of the last minute when the run began: what else the machine did."""
    python: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerFacts:
    """The server the load ran on, and the settings that decide what it can do."""

    version: str
    version_num: int
    embedded: bool
    settings: Mapping[str, str]
    pgbench: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RaceResult:
    """One claim strategy at one number of workers, until the queue was empty or the time was up.

    Rates are per second between the start of the first attempt and the end of the last claim. Latencies are
    nearest-rank percentiles in milliseconds as pgbench logged them: ``p50_ms`` and so on of one attempt to
    claim, won or lost; ``job_p50_ms`` and so on from the first attempt to having a job, lost ones included.
    """

    strategy: StrategyName
    workers: int
    jobs: int
    claims_per_s: float
    distinct_jobs_per_s: float
    duplicate_claims: int
    """Claims in the audit table beyond the first of each job."""
    wasted_attempts: int
    """Attempts that got no job although the queue was not empty yet."""
    p50_ms: float
    p95_ms: float
    p99_ms: float
    buffers_per_claim: float
    """Pages touched by one claim on a half-consumed queue: EXPLAIN (ANALYZE, BUFFERS), rolled back."""
    buffers_jobs: int
    """Length of that queue, the consumed half included."""
    job_p50_ms: float
    job_p95_ms: float
    job_p99_ms: float
    run_buffers_per_claim: float
    """Pages of the table and its indexes touched over the whole run, by the claims made (pg_statio)."""
    claims: int
    distinct_jobs: int
    wins: int
    """Attempts that got at least one job; a batch gets several jobs in one."""
    seconds: float
    drained: bool
    """False where the time was up before the queue was empty."""

    @property
    def wasted_per_win(self) -> float:
        return self.wasted_attempts / self.wins if self.wins else 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Growth:
    """Sizes at one moment of a run, in bytes."""

    at_s: float
    table_bytes: int
    index_bytes: int
    dead_rows: int
    vacuums: int


@dataclass(frozen=True, slots=True, kw_only=True)
class TriangleResult:
    """One table design: what its updates cost (``batch``), and how it stands a steady load (``growth``)."""

    design: str
    fillfactor: int
    indexes: tuple[str, ...]
    jobs: int
    updates: int
    hot_updates: int
    """Of ``updates``, made by one statement in one transaction: no dead row could be pruned meanwhile."""
    newpage_updates: int | None
    """Updates whose new row went to another page; None before PostgreSQL 16, which began to count them."""
    single_updates: int
    single_hot_updates: int
    """The same work as single claims one after the other, where each page is pruned between them."""
    wal_bytes_per_job: float
    """WAL of claiming and finishing one job in the steady run, the enqueue included."""
    index_entries_per_job: float
    """Index entries written for one job from enqueue to finish in the steady run: counted from its inserts and its
    updates that were not HOT, times the indexes that hold the row."""
    claim_buffers: float
    """Pages touched by one claim on a half-consumed queue."""
    jobs_per_s: float
    steady_updates: int
    steady_hot_updates: int
    p50_ms: float
    p99_ms: float
    growth: tuple[Growth, ...]

    @property
    def hot_ratio(self) -> float:
        return self.hot_updates / self.updates if self.updates else 0.0

    @property
    def steady_hot_ratio(self) -> float:
        return self.steady_hot_updates / self.steady_updates if self.steady_updates else 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class StormResult:
    """One fault at one number of workers, with the fault (``sick``) or with its cure (``cured``)."""

    storm: str
    state: Literal["sick", "cured"]
    workers: int
    server: str
    """Version of the server."""
    transactions: int
    transactions_per_s: float
    p50_ms: float
    p99_ms: float
    waits: Mapping[str, int]
    """How often each wait event was seen among the workers' sessions ("" is running)."""
    samples: int
    """Sessions seen in all samples together: what the counts of ``waits`` are parts of."""
    multixacts_per_s: float
    buffers_per_transaction: float


@dataclass(frozen=True, slots=True, kw_only=True)
class ProvenFinding:
    """One finding of a report, before or after."""

    key: str
    check: str
    severity: str
    title: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ProveResult:
    """One scenario (or a copied queue): what was reported, what was applied, what was reported then."""

    scenario: str
    title: str
    server: str
    expected: tuple[str, ...]
    """Checks that had to speak before and to be silent after; for a copied queue those that spoke."""
    before: tuple[ProvenFinding, ...]
    applied: tuple[str, ...]
    """The statements executed, in order."""
    refused: tuple[str, ...]
    """Statements that failed or were left out, each with the reason."""
    scenario_cure: str
    """How the scenario cured what the remedies' SQL could not, the application's fault; "" where that was not needed."""
    after: tuple[ProvenFinding, ...]
    transactions_per_s_before: float
    transactions_per_s_after: float
    claim_buffers_before: int | None
    claim_buffers_after: int | None
    proven: bool
    """Every expected check spoke before, and none of them at warning or above after; so a copied queue of which
    nothing was said counts as proven."""


CellResult = RaceResult | TriangleResult | StormResult | ProveResult


@dataclass(frozen=True, slots=True, kw_only=True)
class LabResult:
    """One run of one experiment. ``notes`` are sentences a reader must know before using the numbers."""

    experiment: Experiment
    tool_version: str
    started_at: str
    """RFC 3339, UTC."""
    seconds: float
    """Wall time of the whole run; of its last part, where it was resumed."""
    options: Mapping[str, str]
    machine: Machine
    server: ServerFacts
    other_servers: tuple[ServerFacts, ...] = ()
    notes: tuple[str, ...] = ()
    scripts: Mapping[str, str] = field(default_factory=dict)
    """What was run, by name: SQL, or pgbench's language."""
    results: tuple[CellResult, ...] = ()

    def race(self) -> tuple[RaceResult, ...]:
        return tuple(one for one in self.results if isinstance(one, RaceResult))

    def triangle(self) -> tuple[TriangleResult, ...]:
        return tuple(one for one in self.results if isinstance(one, TriangleResult))

    def storm(self) -> tuple[StormResult, ...]:
        return tuple(one for one in self.results if isinstance(one, StormResult))

    def prove(self) -> tuple[ProveResult, ...]:
        return tuple(one for one in self.results if isinstance(one, ProveResult))


CELLS: Final[Mapping[Experiment, type[CellResult]]] = {
    "race": RaceResult,
    "triangle": TriangleResult,
    "storm": StormResult,
    "prove": ProveResult,
}


def to_json(result: LabResult) -> str:
    """The run as JSON, indented, ``schema`` first."""
    plain = msgspec.to_builtins(result)
    tool = {"name": "pgqdoctor", "version": plain.pop("tool_version")}
    document = {"schema": SCHEMA, "experiment": plain.pop("experiment"), "tool": tool, **plain}
    return msgspec.json.format(msgspec.json.encode(document), indent=2).decode() + "\n"


def from_json(text: str | bytes) -> LabResult:
    """Read what ``to_json`` wrote.

    Raises PgqdoctorError (usage) where it is no such document.
    """
    try:
        document: Any = msgspec.json.decode(text)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise PgqdoctorError(f"a lab result must be JSON: {error}", exit_code=USAGE) from None
    schema = document.get("schema") if isinstance(document, dict) else None
    if not isinstance(document, dict) or schema != SCHEMA:
        raise PgqdoctorError(f"a lab result has the schema {SCHEMA}, this one {schema!r}", exit_code=USAGE)
    try:
        cell = CELLS[document["experiment"]]
        cells = msgspec.convert(document.pop("results"), tuple[cell, ...])  # type: ignore[valid-type]
        version = document.pop("tool")["version"]
        rest = msgspec.convert({**document, "tool_version": version, "results": []}, _Frame)
    except (KeyError, TypeError, msgspec.ValidationError) as error:
        raise PgqdoctorError(f"the lab result cannot be read: {error}", exit_code=USAGE) from None
    return rest.filled(cells)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Frame:
    """LabResult without its cells: msgspec cannot tell several dataclasses in one union apart."""

    experiment: Experiment
    tool_version: str
    started_at: str
    seconds: float
    options: Mapping[str, str]
    machine: Machine
    server: ServerFacts
    other_servers: tuple[ServerFacts, ...] = ()
    notes: tuple[str, ...] = ()
    scripts: Mapping[str, str] = field(default_factory=dict)

    def filled(self, cells: tuple[CellResult, ...]) -> LabResult:
        return LabResult(
            experiment=self.experiment,
            tool_version=self.tool_version,
            started_at=self.started_at,
            seconds=self.seconds,
            options=self.options,
            machine=self.machine,
            server=self.server,
            other_servers=self.other_servers,
            notes=self.notes,
            scripts=self.scripts,
            results=cells,
        )
