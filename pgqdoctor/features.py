"""Since when PostgreSQL can what: the only place where server versions are compared.

Checks, probes and renderers ask ``Server.has(feature)``; the numbers are ``server_version_num``. Each row was
seen on running servers of both sides of the step.
"""

from __future__ import annotations

from enum import Enum
from typing import Final


class Feature(Enum):
    """A capability that came with a major version."""

    STATS_FORCE_FLUSH = "pg_stat_force_next_flush()"
    NEWPAGE_UPDATES = "n_tup_newpage_upd"
    SUBXACT_COUNT = "pg_stat_get_backend_subxact()"
    GENERIC_PLAN = "EXPLAIN (GENERIC_PLAN)"
    BRIN_KEEPS_HOT = "BRIN indexes do not block heap-only tuples"
    RESERVED_CONNECTIONS = "reserved_connections"
    SLRU_BUFFER_SETTINGS = "multixact_member_buffers and its kin"
    TRANSACTION_TIMEOUT = "transaction_timeout"
    VACUUM_MAX_THRESHOLD = "autovacuum_vacuum_max_threshold"
    SKIP_SCAN = "btree skip scan"
    WORKERS_WITHOUT_RESTART = "autovacuum_max_workers changes without a restart"
    AUTOVACUUM_SCORES = "pg_stat_autovacuum_scores"
    BUFFER_WAIT_CLASS = "wait event type Buffer"
    WIDE_MULTIXACT_MEMBERS = "64-bit MultiXact member offsets"


SINCE: Final[dict[Feature, int]] = {
    Feature.STATS_FORCE_FLUSH: 150000,
    Feature.NEWPAGE_UPDATES: 160000,
    Feature.SUBXACT_COUNT: 160000,
    Feature.GENERIC_PLAN: 160000,
    Feature.BRIN_KEEPS_HOT: 160000,
    Feature.RESERVED_CONNECTIONS: 160000,
    Feature.SLRU_BUFFER_SETTINGS: 170000,
    Feature.TRANSACTION_TIMEOUT: 170000,
    Feature.VACUUM_MAX_THRESHOLD: 180000,
    Feature.SKIP_SCAN: 180000,
    Feature.WORKERS_WITHOUT_RESTART: 180000,
    Feature.AUTOVACUUM_SCORES: 190000,
    Feature.BUFFER_WAIT_CLASS: 190000,
    Feature.WIDE_MULTIXACT_MEMBERS: 190000,
}

LOWEST_SERVED: Final = 140000
"""The oldest server_version_num pgqdoctor observes: the oldest major version with community support in 2026.
"""

OFFSETS_PER_PAGE: Final[dict[int, int]] = {140000: 2048, 190000: 1024}
"""MultiXact ids on one 8 kB offsets page, by the version that introduced the layout (measured with
blks_zeroed)."""

MEMBERS_PER_PAGE: Final = 1636
"""MultiXact members on one 8 kB page: 409 groups of four members in 20 bytes (multixact.c, measured)."""


def has(version_num: int, feature: Feature) -> bool:
    """Tell whether a server of ``version_num`` knows ``feature``."""
    return version_num >= SINCE[feature]


def highest_floor(version_num: int, floors: tuple[int, ...]) -> int:
    """Return the highest of ``floors`` that ``version_num`` reaches.

    Raises ValueError where none does.
    """
    reached = [floor for floor in floors if floor <= version_num]
    if not reached:
        raise ValueError(f"no variant serves server version {version_num}")
    return max(reached)


def offsets_per_page(version_num: int) -> int:
    """Return how many MultiXact ids one zeroed offsets page stands for."""
    return OFFSETS_PER_PAGE[highest_floor(version_num, tuple(OFFSETS_PER_PAGE))]
