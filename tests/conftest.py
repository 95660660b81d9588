"""What every run says about itself, and the marker of the tests that need a server."""

from __future__ import annotations

import importlib.metadata
import os
import platform
from pathlib import Path

import pytest

from pgqdoctor.errors import PgqdoctorError
from pgqdoctor.lab.binaries import find_binaries

HEADED = ("psycopg", "pglast", "textual", "click", "msgspec")
RERUNS = 2
SERVER_TESTS = Path(__file__).parent / "server"


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line(
        "markers", "server: needs a live PostgreSQL; every test below tests/server has it"
    )


def pytest_report_header(config: pytest.Config) -> list[str]:
    versions = ", ".join(f"{name} {importlib.metadata.version(name)}" for name in HEADED)
    return [
        f"pgqdoctor on {platform.python_implementation()} {platform.python_version()}: {versions}",
        f"server tests on {_servers()}",
    ]


def _servers() -> str:
    if os.environ.get("PGQDOCTOR_TEST_MATRIX") == "1":
        return "every PostgreSQL at hand; each test's name says which"
    try:
        found = find_binaries()
    except PgqdoctorError as error:
        return f"no PostgreSQL, so they will fail: {error.message}"
    return f"PostgreSQL {found.version} from {found.bin_dir}"


def pytest_itemcollected(item: pytest.Item) -> None:
    if item.path.is_relative_to(SERVER_TESTS):
        item.add_marker(pytest.mark.server)
    if item.path.is_relative_to(SERVER_TESTS) or item.get_closest_marker("alone") is not None:
        # Load that shares its cores with other tests may not show its signs in one window of seconds: a live test
        # that fails is run again, and every such run is counted in the last line.
        item.add_marker(pytest.mark.flaky(reruns=RERUNS, reruns_delay=1))
