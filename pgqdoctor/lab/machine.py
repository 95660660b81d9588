"""What a result must say about the machine and the server it was measured on."""

from __future__ import annotations

import os
import platform
import re
from collections.abc import Mapping
from pathlib import Path

import psycopg

from pgqdoctor.lab.binaries import Binaries
from pgqdoctor.lab.results import Machine, ServerFacts

SETTINGS = (
    "autovacuum",
    "autovacuum_naptime",
    "autovacuum_vacuum_scale_factor",
    "checkpoint_timeout",
    "effective_io_concurrency",
    "fsync",
    "full_page_writes",
    "io_method",
    "jit",
    "max_connections",
    "max_wal_size",
    "multixact_member_buffers",
    "multixact_offset_buffers",
    "random_page_cost",
    "shared_buffers",
    "shared_preload_libraries",
    "subtransaction_buffers",
    "synchronous_commit",
    "wal_compression",
    "wal_level",
    "work_mem",
)
"""Recorded with every result, where the server has them: what makes two runs differ."""


def this_machine() -> Machine:
    """The machine this process runs on. Its name is left out: results are published."""
    return Machine(
        system=f"{platform.system()} {platform.release()}",
        architecture=platform.machine(),
        cpu=_cpu_model(),
        cpus=usable_cpus(),
        memory_bytes=_memory_bytes(),
        load_1m=_load(),
        python=platform.python_version(),
    )


def server_facts(
    connection: psycopg.Connection[tuple[object, ...]], *, embedded: bool, pgbench: Binaries
) -> ServerFacts:
    """The server behind ``connection``."""
    rows = connection.execute(
        "SELECT name, current_setting(name) FROM pg_settings WHERE name = ANY (%s) ORDER BY name",
        [list(SETTINGS)],
    ).fetchall()
    settings: Mapping[str, str] = {str(name): str(value) for name, value in rows}
    version = connection.info.parameter_status("server_version") or str(connection.info.server_version)
    return ServerFacts(
        version=version.split(" ")[0],
        version_num=connection.info.server_version,
        embedded=embedded,
        settings=settings,
        pgbench=pgbench.version,
    )


def usable_cpus() -> int:
    """Processors this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _cpu_model() -> str:
    try:
        text = Path("/proc/cpuinfo").read_text(errors="replace")
    except OSError:
        return platform.processor()
    found = re.search(r"^model name\s*:\s*(.+)$", text, re.MULTILINE)
    return found[1].strip() if found else platform.processor()


def _memory_bytes() -> int | None:
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (ValueError, OSError):
        return None


def _load() -> float | None:
    try:
        return round(os.getloadavg()[0], 2)
    except OSError:
        return None
