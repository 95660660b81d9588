"""Servers for the live tests: an embedded one by default, every version at hand for the matrix.

Each worker process of the test run starts its own servers, so that storms of one test are not seen by
another.
"""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterator

import psycopg
import pytest

from pgqdoctor.lab.server import ScratchServer
from tests.fleet import SUPPORTED, Fleet, open_fleet

MATRIX = os.environ.get("PGQDOCTOR_TEST_MATRIX") == "1"
STATEMENTS_KEPT = 60_000
AUTOVACUUM_NAPTIME_S = 5
"""Vacuum looks every minute by default; a test of seconds must see it work, or fail to."""


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "any_server" in metafunc.fixturenames:
        names = [str(major) for major in SUPPORTED] if MATRIX else ["embedded"]
        metafunc.parametrize("any_server", names, indirect=True, scope="session")


@pytest.fixture(scope="session")
def embedded() -> Iterator[ScratchServer]:
    """The embedded server of this worker."""
    # Entries of dropped databases stay in pg_stat_statements: with its default of 5,000 the claims of late tests
    # would be evicted.
    with ScratchServer(
        autovacuum_naptime_s=AUTOVACUUM_NAPTIME_S,
        max_connections=500,
        settings={"pg_stat_statements.max": STATEMENTS_KEPT},
    ) as running:
        yield running


@pytest.fixture(scope="session")
def fleet() -> Iterator[Fleet]:
    """One server of every version at hand."""
    with open_fleet() as found:
        yield found


@pytest.fixture(scope="session")
def any_server(request: pytest.FixtureRequest) -> str:
    """A server's DSN (superuser): the embedded one, or in the matrix the version asked for."""
    if request.param == "embedded":
        running: ScratchServer = request.getfixturevalue("embedded")
        return running.dsn("postgres")
    found: Fleet = request.getfixturevalue("fleet")
    for server in found.servers:
        if str(server.major) == request.param:
            return server.dsn
    reasons = "; ".join(one.reason for one in found.missing if str(one.major) == request.param)
    pytest.skip(f"no PostgreSQL {request.param} here: {reasons}")


@pytest.fixture
def database(any_server: str) -> Iterator[str]:
    """The DSN of a fresh database with pg_stat_statements."""
    name = f"test_{uuid.uuid4().hex[:12]}"
    with psycopg.connect(any_server, autocommit=True) as connection:
        connection.execute(f"CREATE DATABASE {name}".encode())
    dsn = psycopg.conninfo.make_conninfo(any_server, dbname=name)
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute("CREATE EXTENSION IF NOT EXISTS pg_stat_statements")
    yield dsn
    with psycopg.connect(any_server, autocommit=True) as connection:
        connection.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = %s", [name]
        )
        connection.execute(f"DROP DATABASE IF EXISTS {name}".encode())
