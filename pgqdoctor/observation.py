"""The immutable picture of one server over one window: what every check, report and screen is made from.

An Observation is a value: a catalog, two readings of the cumulative counters and the samples between
them. Any two readings make one, so a sliding window works as well as a single run. It can be
saved and replayed; the saved form carries its schema version.
"""

from __future__ import annotations

import gzip
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from pgqdoctor import features
from pgqdoctor.errors import USAGE, PgqdoctorError
from pgqdoctor.features import Feature
from pgqdoctor.rows import (
    ColumnRow,
    DatabaseRow,
    ForeignKeyRow,
    FunctionRow,
    IndexCounterRow,
    IndexRow,
    LockRow,
    MultixactRow,
    PreparedRow,
    SequenceRow,
    SessionRow,
    SettingRow,
    SlotRow,
    SlruRow,
    StandbyRow,
    StatementCounterRow,
    StatementTextRow,
    TableCounterRow,
    TableRow,
    TriggerRow,
    VacuumRow,
)

SCHEMA = "pgqdoctor.observation/1"


@dataclass(frozen=True, slots=True, kw_only=True)
class Extension:
    """An installed extension, the schema of its objects and its version (not the server's)."""

    name: str
    version: str
    schema: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Server:
    """The capability table: the one place that tells what this server, role and connection can do."""

    version: str
    version_num: int
    database: str
    role: str
    superuser: bool
    granted_roles: tuple[str, ...]
    """Predefined roles the role is a member of, directly or not."""
    extensions: tuple[Extension, ...]
    statements: str
    """pg_stat_statements: "ready", "not installed", "not preloaded" or "texts hidden"."""
    in_recovery: bool
    pooler: bool
    started_at: str
    """pg_postmaster_start_time() in RFC 3339, UTC."""
    backend_pid: int

    def has(self, feature: Feature) -> bool:
        """Tell whether the server's version knows ``feature``."""
        return features.has(self.version_num, feature)

    def extension(self, name: str) -> Extension | None:
        """Return the installed extension of that name, or None."""
        return next((one for one in self.extensions if one.name == name), None)

    def member_of(self, *roles: str) -> bool:
        """Tell whether the role may do what any of ``roles`` may."""
        return self.superuser or any(role in self.granted_roles for role in roles)


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """One look at the counters and at who is doing what. ``at`` is the server's clock, seconds since the
    epoch."""

    at: float
    database: DatabaseRow
    tables: tuple[TableCounterRow, ...]
    indexes: tuple[IndexCounterRow, ...]
    statements: tuple[StatementCounterRow, ...]
    slru: tuple[SlruRow, ...]
    sessions: tuple[SessionRow, ...]
    locks: tuple[LockRow, ...]
    prepared: tuple[PreparedRow, ...]
    slots: tuple[SlotRow, ...]
    standbys: tuple[StandbyRow, ...]
    vacuums: tuple[VacuumRow, ...]
    sequences: tuple[SequenceRow, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class SampledSession:
    """One session at one moment between the readings. ``text`` is its statement's place in Observation.texts,
    -1 for none."""

    pid: int
    state: str | None
    wait_type: str | None
    wait_event: str | None
    xid_age: int | None
    xmin_age: int | None
    xact_age_s: float | None
    query_age_s: float | None
    state_age_s: float | None
    text: int
    query_id: int | None = None
    vacuuming: bool = False
    application: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """The sessions of the observed database that were busy or held something at one moment."""

    at: float
    sessions: tuple[SampledSession, ...]
    multixacts: tuple[MultixactRow, ...] = ()
    next_multixact: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Catalog:
    """What the system catalogs say about the tables that may be queues and their neighbours."""

    tables: tuple[TableRow, ...]
    columns: tuple[ColumnRow, ...]
    indexes: tuple[IndexRow, ...]
    foreign_keys: tuple[ForeignKeyRow, ...]
    triggers: tuple[TriggerRow, ...]
    functions: tuple[FunctionRow, ...]
    settings: tuple[SettingRow, ...]

    def setting(self, name: str) -> str | None:
        """Return a setting's value in its own unit, None where the server has no such setting."""
        return next((row.setting for row in self.settings if row.name == name), None)

    @property
    def activity_text_bytes(self) -> int | None:
        """Bytes after which pg_stat_activity cuts statement texts, None where the setting was not seen."""
        value = self.setting("track_activity_query_size")
        return int(value) if value is not None and value.isdigit() else None

    def table(self, oid: int) -> TableRow | None:
        """Return the table of that oid, or None."""
        return next((row for row in self.tables if row.oid == oid), None)

    def columns_of(self, table: int) -> tuple[ColumnRow, ...]:
        """Return the columns of a table in their order."""
        return tuple(row for row in self.columns if row.table == table)

    def indexes_of(self, table: int) -> tuple[IndexRow, ...]:
        """Return the indexes of a table, those of its partitions left out."""
        return tuple(row for row in self.indexes if row.table == table)

    def partitions_of(self, table: int) -> tuple[TableRow, ...]:
        """Return the leaf partitions below a table; the table itself where it is not partitioned."""
        row = self.table(table)
        if row is None:
            return ()
        if row.kind != "p":
            return (row,)
        children = [one for one in self.tables if one.parent == table]
        return tuple(leaf for child in children for leaf in self.partitions_of(child.oid))


@dataclass(frozen=True, slots=True, kw_only=True)
class ColumnRoles:
    """Which column plays which part in a queue; None where the table has none."""

    state: str | None = None
    run_at: str | None = None
    lease: str | None = None
    """Time until which a claim is valid; a row whose lease is past may be taken again."""
    heartbeat: str | None = None
    claimed_at: str | None = None
    finished_at: str | None = None
    created_at: str | None = None
    attempts: str | None = None
    owner: str | None = None
    priority: str | None = None
    key: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueIdentity:
    """A table recognised as a queue, and why."""

    oid: int
    schema: str
    table: str
    name: str
    """Quoted as SQL needs it."""
    framework: str | None
    score: int
    recognised_by: tuple[str, ...]
    certain: bool
    """False for a table that only looks like a queue: it is listed, and no check speaks about it."""
    roles: ColumnRoles
    ready_values: tuple[str, ...]
    running_values: tuple[str, ...]
    finished_values: tuple[str, ...]
    ready_predicate: str | None
    """An SQL condition for jobs that may be claimed now, or None where none could be told."""
    ready_state_predicate: str | None
    """The same without the time condition."""
    claim_keys: tuple[str, ...]
    """Statement keys (pg_stat_statements entries, "text:N" for texts seen in sessions) of its claims, the
    busiest first."""
    claim_sql: str | None
    claim_source: str | None
    functions: tuple[int, ...] = ()
    """Oids of the functions whose bodies claim from it."""
    other_keys: tuple[str, ...] = ()
    """Keys, as in ``claim_keys``, of statements in the form of a claim that finish jobs, put them back or clear them away."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanProbe:
    """What EXPLAIN said about the claim. ``document`` is its JSON; ``error`` says why there is none.

    ``mode`` is the contract's plan, select, lock or full (the parameters filled in), or generic: the plan a server makes for
    any value of the parameters, which prepared statements get from their sixth execution on where it looks no dearer. A generic
    plan is never executed; its ``sql`` has $1, $2 ...
    """

    mode: str
    sql: str
    parameters: dict[str, str] = field(default_factory=dict)
    document: str | None = None
    error: str | None = None
    timed_out: bool = False
    buffers_before: int | None = None
    statement: str = ""
    """The claim that the explained SELECT was taken out of."""
    bound: bool = False
    """For a generic plan: True where the application's own text shows these parameters, False where it was normalised by
    pg_stat_statements, so that any of them may be a constant in truth."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StateCount:
    """How many rows stand in one state, from the planner's statistics or from a bounded look."""

    value: str
    rows: int
    exact: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class StuckProbe:
    """A bounded look at claimed jobs by one sign of life.

    ``measure`` is "heartbeat" (``column`` is the last sign of life), "lease" (the time until which the claim
    is valid) or "claimed" (when it was claimed). ``ages_s`` are seconds from ``column`` to now, the oldest
    first, thinned to evenly spaced ranks where there are many; a lease that still runs has a negative age.
    ``rows`` of at most ``limit`` claimed jobs were seen. ``examples`` are keys of the oldest.
    """

    measure: str
    column: str
    rows: int
    ages_s: tuple[float, ...]
    limit: int
    examples: tuple[str, ...]

    def older_than(self, seconds: float) -> int:
        """Estimate how many of the jobs seen are older than ``seconds`` (exact for up to 200 jobs)."""
        if not self.ages_s:
            return 0
        share = sum(1 for age in self.ages_s if age > seconds) / len(self.ages_s)
        return round(share * self.rows)


@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptsProbe:
    """A bounded look at how often ready jobs were tried: at most ``limit`` of them, ``often_rows`` at least ``often`` times.

    ``attempts`` and ``often_attempts`` are sums over all the jobs seen and over those tried often; ``examples`` are keys of the jobs
    tried most.
    """

    column: str
    rows: int
    attempts: int
    most: int
    often: int
    often_rows: int
    often_attempts: int
    limit: int
    examples: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ServedKind:
    """How soon jobs of one kind were taken before, and which of them wait now; ``name`` is None where all are of one kind.

    ``jobs`` that were taken before were seen, of which ``waits_s`` are the seconds from ready to taken and ``runs_s`` those from
    taken to finished, both in order and thinned to evenly spaced ranks. They became ready over ``span_s`` seconds before the last
    of them was taken, ``last_taken_age_s`` ago. Since then ``waiting`` jobs became ready and wait still, the oldest for
    ``waiting_s`` seconds, the newest for ``newest_s``. On ``again`` earlier days or weeks those of the same hour waited as long.
    """

    name: str | None
    jobs: int
    waits_s: tuple[float, ...]
    runs_s: tuple[float, ...]
    span_s: float
    last_taken_age_s: float | None
    waiting: int
    waiting_s: float | None
    newest_s: float | None = None
    again: int = 0

    def waited_as_long(self, seconds: float) -> float:
        """Return the ratio of the earlier jobs that waited at least so long, 0.0 where none is known."""
        return sum(1 for one in self.waits_s if one >= seconds) / max(len(self.waits_s), 1)

    def often_waited(self, seconds: float, *, of_jobs: int, unusual: float) -> bool:
        """Tell whether more than the ratio ``unusual`` of at least ``of_jobs`` earlier jobs waited as long."""
        return self.jobs >= of_jobs and self.waited_as_long(seconds) > unusual


@dataclass(frozen=True, slots=True, kw_only=True)
class ServedProbe:
    """A bounded look at whether anybody serves the queue, taken only where a ready job has waited for a minute; see pgqdoctor.serving.

    ``column`` is the time by which jobs count as taken, "" where the table keeps none; ``kind_column`` is the one that tells the
    kinds apart, "" for none.
    """

    column: str = ""
    kind_column: str = ""
    kinds: tuple[ServedKind, ...] = ()
    """Those with the oldest ready jobs."""
    connected: int = 0
    """Idle sessions whose last statement claims, changes or deletes jobs of the queue."""
    last_asked_s: float | None = None
    """Seconds since the last of them did so."""
    statements_age_s: float | None = None
    """Seconds since pg_stat_statements was reset, None where it does not tell."""
    paused: str | None = None
    """The column of a neighbouring table that marks a queue as paused now, None for none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredSpace:
    """What pgstattuple says about one small relation: ``used`` is the share of its space that entries or rows take up, 0 to 1.

    For a table used and dead rows count together; for a btree it is the density of its leaf pages, empty ones included.
    """

    oid: int
    pages: int
    used: float


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueProbe:
    """The bounded one-time readings of one queue; ``lacks`` says what could not be looked at and why."""

    oid: int
    table_bytes: int | None
    index_bytes: int | None
    toast_bytes: int | None
    index_sizes: tuple[tuple[int, int], ...]
    ready_rows: int | None
    ready_exact: bool
    oldest_ready_age_s: float | None
    states: tuple[StateCount, ...]
    stuck: tuple[StuckProbe, ...]
    plans: tuple[PlanProbe, ...]
    lacks: tuple[Lack, ...] = ()
    measured: tuple[MeasuredSpace, ...] = ()
    whole_plans: tuple[PlanProbe, ...] = ()
    """Plans, never executed, of whole claim statements whose LIMIT a join may execute again."""
    attempts: AttemptsProbe | None = None
    served: ServedProbe | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Lack:
    """Something that could not be looked at: the reason in words and the grant that would show it."""

    what: str
    """A need of pgqdoctor.check (such as "statements"), or a probe's name."""
    reason: str
    grant: str | None = None
    queue: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Observation:
    """One server seen over one window."""

    schema: str = SCHEMA
    generated_at: str
    tool_version: str
    server: Server
    catalog: Catalog
    statement_texts: tuple[StatementTextRow, ...]
    texts: tuple[str, ...]
    """Statement texts seen in sessions; samples refer to them by position."""
    first: Reading
    last: Reading
    samples: tuple[Sample, ...]
    queues: tuple[QueueIdentity, ...]
    probes: tuple[QueueProbe, ...]
    lacks: tuple[Lack, ...]
    looked_for: tuple[str, ...] = ()
    """What discovery looked at, for the sentence "no queue found"."""
    interrupted: bool = False

    @property
    def seconds(self) -> float:
        """Length of the window in seconds on the server's clock."""
        return max(self.last.at - self.first.at, 0.0)

    @property
    def restarted(self) -> bool:
        """True where the server restarted between the readings, so that counters cannot be compared."""
        return self.last.database.started_s + 1.0 < self.first.database.started_s + self.seconds

    @property
    def counters_lost(self) -> bool:
        """True where the cumulative statistics began anew between the readings, and cannot be compared.

        After a backend's crash the server recovers within the same postmaster: its start is the old one, its counters are gone.
        """
        return self.restarted or self.last.database.commits < self.first.database.commits

    def probe_of(self, oid: int) -> QueueProbe | None:
        """Return the one-time readings of a queue, or None."""
        return next((probe for probe in self.probes if probe.oid == oid), None)


def dump_observation(observation: Observation) -> bytes:
    """Return the observation as compressed JSON."""
    return gzip.compress(msgspec.json.encode(observation), mtime=0)


def save_observation(observation: Observation, path: Path) -> None:
    """Write the observation to ``path`` as compressed JSON.

    Raises PgqdoctorError where the file cannot be written.
    """
    try:
        path.write_bytes(dump_observation(observation))
    except OSError as error:
        raise PgqdoctorError(f"could not write {path}: {error.strerror}", exit_code=USAGE) from error


def load_observation(path: Path) -> Observation:
    """Read a saved observation, compressed or not.

    Raises PgqdoctorError where the file cannot be read or is of another schema.
    """
    try:
        data = path.read_bytes()
    except OSError as error:
        raise PgqdoctorError(f"could not read {path}: {error.strerror}", exit_code=USAGE) from error
    try:
        if data[:2] == b"\x1f\x8b":
            data = gzip.decompress(data)
        observation = msgspec.json.decode(data, type=Observation)
    except (msgspec.DecodeError, OSError, EOFError) as error:
        raise PgqdoctorError(
            f"{path} is not a pgqdoctor recording: {error}",
            hint="Record one with: pgqdoctor record DSN FILE",
            exit_code=USAGE,
        ) from error
    if observation.schema != SCHEMA:
        raise PgqdoctorError(
            f"{path} has the schema {observation.schema!r}, this version reads {SCHEMA!r}",
            hint="Use the pgqdoctor version that wrote it.",
            exit_code=USAGE,
        )
    return observation
