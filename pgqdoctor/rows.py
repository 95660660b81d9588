"""Row types: one per probe, with the columns every variant of its SQL returns.

Ages are seconds on the server's clock unless the name says transactions. A column that the role may
not see, or that the version does not have, is None: never zero.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionRow:
    """One row of pg_stat_activity that matters to a queue, with what only pg_locks can add."""

    pid: int
    database: str | None
    role: str | None
    application: str
    backend_type: str | None
    state: str | None
    wait_type: str | None
    wait_event: str | None
    xid: int | None
    """backend_xid as its 32-bit number, None where the transaction has written nothing."""
    xid_age: int | None
    """age(backend_xid) in transactions."""
    xmin: int | None
    xmin_age: int | None
    """age(backend_xmin) in transactions."""
    xact_age_s: float | None
    query_age_s: float | None
    state_age_s: float | None
    query_id: int | None
    query: str | None
    vacuuming: bool
    """True for a lazy VACUUM, whose xmin the horizon ignores: pg_stat_progress_vacuum has its pid, or that of its leader, or it
    still waits for the table's lock."""
    backend_start_s: float | None
    """Seconds since the backend started; with the pid it identifies a session across pid reuse."""
    subtransactions: int | None = None
    subxact_overflowed: bool | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PreparedRow:
    """One row of pg_prepared_xacts."""

    gid: str
    xid: int
    xid_age: int
    prepared_age_s: float
    owner: str
    database: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SlotRow:
    """One row of pg_replication_slots."""

    name: str
    slot_type: str
    database: str | None
    active: bool
    active_pid: int | None
    xmin: int | None
    xmin_age: int | None
    catalog_xmin_age: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class StandbyRow:
    """One row of pg_stat_replication."""

    pid: int
    application: str
    client: str | None
    state: str | None
    xmin: int | None
    xmin_age: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class LockRow:
    """One row of pg_locks that waits, or that holds a strong lock, with who blocks it."""

    pid: int | None
    locktype: str
    database: int | None
    relation: int | None
    mode: str
    granted: bool
    wait_age_s: float | None
    classid: int | None
    objid: int | None
    blocked_by: tuple[int, ...]
    """pg_blocking_pids() of a waiter; 0 stands for a prepared transaction."""


@dataclass(frozen=True, slots=True, kw_only=True)
class VacuumRow:
    """One row of pg_stat_progress_vacuum."""

    pid: int
    database: str | None
    relation: int | None
    phase: str | None
    heap_blocks: int | None
    heap_blocks_scanned: int | None
    index_vacuum_count: int | None
    autovacuum: bool | None


@dataclass(frozen=True, slots=True, kw_only=True)
class TableCounterRow:
    """The cumulative statistics of one table (pg_stat_get_* functions: they open no relation)."""

    oid: int
    seq_scan: int
    seq_tup_read: int
    idx_scan: int | None
    inserted: int
    updated: int
    hot_updated: int
    newpage_updated: int | None
    deleted: int
    live: int
    dead: int
    modified_since_analyze: int
    inserted_since_vacuum: int
    last_vacuum_s: float | None
    """Seconds since the last manual VACUUM, None for never (or not since the statistics were reset)."""
    last_autovacuum_s: float | None
    last_analyze_s: float | None
    last_autoanalyze_s: float | None
    vacuums: int
    autovacuums: int


@dataclass(frozen=True, slots=True, kw_only=True)
class IndexCounterRow:
    """The cumulative statistics of one index."""

    oid: int
    scans: int
    entries_read: int
    rows_fetched: int


@dataclass(frozen=True, slots=True, kw_only=True)
class StatementCounterRow:
    """The counters of one pg_stat_statements entry; milliseconds and 8 kB blocks."""

    key: str
    calls: int
    rows: int
    total_ms: float
    blocks_hit: int
    blocks_read: int
    blocks_dirtied: int
    temp_blocks_written: int
    wal_bytes: int | None = None
    """WAL written, page images included; None before version 1.8 of the extension."""
    wal_page_images: int | None = None
    """Full page images in it: the first change of a page after a checkpoint writes the whole page."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StatementTextRow:
    """The text of one pg_stat_statements entry. ``key`` joins it to its counters."""

    key: str
    query_id: int | None
    role: str | None
    toplevel: bool | None
    text: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class StatementsInfoRow:
    """How pg_stat_statements counts: what it dropped for want of room, and seconds since it was reset (None before 1.9)."""

    evictions: int | None
    reset_s: float | None
    most: int
    track: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SlruRow:
    """One row of pg_stat_slru under its name of version 17 (multixact_member, subtransaction, ...)."""

    name: str
    blocks_zeroed: int
    blocks_hit: int
    blocks_read: int
    blocks_written: int


@dataclass(frozen=True, slots=True, kw_only=True)
class DatabaseRow:
    """pg_stat_database of the observed database and the server's id counters."""

    commits: int
    rollbacks: int
    deadlocks: int
    temp_bytes: int
    blocks_hit: int
    blocks_read: int
    next_multixact: int
    """The next MultiXactId: datminmxid + mxid_age(datminmxid); any role, no cost, live."""
    multixact_age: int
    """mxid_age(datminmxid): ids until now since the oldest this database may still need."""
    next_xid: int
    """The next full transaction id as pg_snapshot_xmax() shows it."""
    xid_age: int
    """age(datfrozenxid) in transactions."""
    notify_usage: float | None
    """pg_notification_queue_usage(): the fraction of the notification queue in use."""
    stats_reset_s: float | None
    backends: int
    """Client connections of the whole server, idle ones included."""
    started_s: float
    """Seconds since the server started: a smaller number in the second reading means a restart."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TableRow:
    """One ordinary or partitioned table as pg_class describes it."""

    oid: int
    schema: str
    name: str
    kind: str
    """pg_class.relkind: r ordinary, p partitioned."""
    persistence: str
    rows: float
    """pg_class.reltuples, -1 for never vacuumed nor analysed."""
    pages: int
    options: tuple[str, ...]
    parent: int | None
    """The partition parent's oid, None where the table is no partition."""
    toast: int | None
    frozen_xid_age: int | None
    min_multixact_age: int | None
    row_security: bool
    visible: bool
    """pg_table_is_visible(): an unqualified name means this table on the doctor's own search_path."""
    may_select: bool
    owner: str
    unlogged: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ColumnRow:
    """One column, with the planner's statistics where the role may see them."""

    table: int
    number: int
    name: str
    type_name: str
    """format_type() without modifiers' effect on meaning, such as timestamp with time zone."""
    type_category: str
    """pg_type.typcategory: E enum, S string, N number, B boolean, D date and time, ..."""
    not_null: bool
    generated: bool
    enum_labels: tuple[str, ...]
    average_width: int | None
    null_fraction: float | None
    distinct: float | None
    common_values: tuple[str, ...]
    common_fractions: tuple[float, ...]
    statistics_target: int | None
    inherited_statistics: bool
    """True where the statistics shown are those of the whole inheritance tree."""
    default_expression: str | None = None
    """The column's default (or generation expression) as SQL; None also where reading it would have to wait for a lock."""
    seen_values: tuple[str, ...] = ()
    """Values met in an index that begins with the column, where the statistics do not tell the states."""
    correlation: float | None = None
    """pg_stats.correlation: 1 or -1 where the rows lie in the order of the column, 0 where they lie anyhow."""


@dataclass(frozen=True, slots=True, kw_only=True)
class IndexRow:
    """One index. ``definition`` and ``predicate`` are None where reading them would have to wait for a lock."""

    oid: int
    table: int
    schema: str
    name: str
    method: str
    unique: bool
    primary: bool
    constraint: str | None
    """Name of the constraint the index enforces, None for a plain index."""
    valid: bool
    key_columns: tuple[int, ...]
    """Attribute numbers of the key, 0 for an expression."""
    included_columns: tuple[int, ...]
    has_predicate: bool
    has_expressions: bool
    predicate: str | None
    definition: str | None
    expressions: str | None
    pages: int
    rows: float
    replica_identity: bool
    descending: tuple[bool, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ForeignKeyRow:
    """One foreign key from ``child`` to ``parent``."""

    name: str
    child: int
    parent: int
    child_name: str
    parent_name: str
    child_columns: tuple[str, ...]
    parent_columns: tuple[str, ...]
    on_delete: str
    indexed: bool
    """True where an index of the child begins with the foreign key's columns."""
    parent_rows: float
    child_rows: float
    definition: str | None = None
    """pg_get_constraintdef(): what ADD CONSTRAINT takes."""
    child_types: tuple[str, ...] = ()
    """Types of the child's columns; empty in recordings of before they were read."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SequenceRow:
    """One sequence that numbers a column of a queue."""

    sequence: int
    """Its oid; one sequence may number several columns."""
    table: int
    column: str
    schema: str
    name: str
    column_type: str
    last_value: int | None
    """None where it was never used, or where the role may not read it."""
    last_possible: int
    """The largest value that both the sequence and the column's type allow."""
    increment: int
    cycles: bool
    identity: bool
    """True for GENERATED ... AS IDENTITY: the sequence follows the column's type."""
    may_read: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class TriggerRow:
    """One user trigger of a table and the function it calls."""

    table: int
    name: str
    function_schema: str
    function_name: str
    function_oid: int
    enabled: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class FunctionRow:
    """One user function whose body may touch a queue."""

    oid: int
    schema: str
    name: str
    language: str
    body: str
    arguments: str
    returns: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SettingRow:
    """One setting as pg_settings shows it."""

    name: str
    setting: str
    unit: str | None
    source: str


@dataclass(frozen=True, slots=True, kw_only=True)
class MultixactRow:
    """One recently made MultiXact: the lock modes of its members, sorted; of each transaction id its strongest."""

    id: int
    modes: tuple[str, ...]
    pids: tuple[int, ...]
    """Backends that run the members' transactions at the moment of looking; may be empty."""
