"""pg_stat_statements that misses statements: said with what it means, and never taken for the absence of claims."""

from __future__ import annotations

import uuid
from collections.abc import Iterator

import psycopg
import pytest

from pgqdoctor.collect import ObserveOptions, observe
from pgqdoctor.engine import diagnose
from pgqdoctor.lab.server import ScratchServer
from pgqdoctor.observation import Lack, Observation
from tests.server.attempts_queue import CLAIM, SETUP
from tests.server.holding import own_database

CLAIM_CHECKS = {"claim-unguarded", "claim-unbounded", "claim-isolation", "claim-empty-polls"}
SMALL = 100
"""The least that pg_stat_statements.max may be."""


@pytest.fixture(scope="module")
def small() -> Iterator[ScratchServer]:
    """A server whose pg_stat_statements is full at once."""
    with ScratchServer(settings={"pg_stat_statements.max": SMALL}) as server:
        yield server


@pytest.fixture
def crowded(small: ScratchServer) -> Iterator[str]:
    name = f"crowded_{uuid.uuid4().hex[:8]}"
    dsn = small.create_database(name)
    run(dsn, SETUP)
    yield dsn
    run(small.dsn(), f"DROP DATABASE {name} WITH (FORCE)")


def run(dsn: str, *statements: str) -> None:
    with psycopg.connect(dsn, autocommit=True) as connection:
        for statement in statements:
            connection.execute(statement.encode())


def crowd(dsn: str) -> None:
    """Run enough different statements that every entry used once is dropped."""
    with psycopg.connect(dsn, autocommit=True) as connection:
        for number in range(1, 3 * SMALL):
            connection.execute(f"SELECT {', '.join(['1'] * number)}".encode())


def look(dsn: str, *queues: str, window: float = 0.3) -> Observation:
    return observe(dsn, ObserveOptions(window_seconds=window, queues=queues))


def lacks(seen: Observation, what: str) -> list[Lack]:
    return [one for one in seen.lacks if one.what == what]


def skipped(seen: Observation) -> dict[str, str]:
    return {one.check: one.reason for one in diagnose(seen).skipped}


def test_evicted_statements_are_told_and_no_claim_check_passes_for_want_of_them(crowded: str) -> None:
    run(crowded, CLAIM)
    crowd(crowded)
    seen = look(crowded, "public.jobs")
    (gap,) = lacks(seen, "evicted statements")
    assert "dropped the least used" in gap.reason
    assert gap.grant == f"ALTER SYSTEM SET pg_stat_statements.max = {2 * SMALL} (restart)"
    assert any("room for 100 statements" in one for one in diagnose(seen).notes)
    reasons = skipped(seen)
    assert reasons.keys() >= CLAIM_CHECKS
    assert all("does not mean that there is none" in reasons[one] for one in CLAIM_CHECKS)


def test_a_claim_that_was_seen_is_judged_though_others_are_evicted(crowded: str) -> None:
    crowd(crowded)
    with psycopg.connect(crowded, autocommit=True) as worker:
        for _ in range(50):
            worker.execute(CLAIM.encode())
    seen = look(crowded, "public.jobs")
    assert lacks(seen, "evicted statements")
    assert not CLAIM_CHECKS & skipped(seen).keys()


def test_statistics_reset_minutes_ago_are_told_where_no_claim_is_seen(crowded: str) -> None:
    run(crowded, CLAIM, "SELECT pg_stat_statements_reset()")
    forced, found = look(crowded, "public.jobs"), look(crowded)
    reasons = skipped(forced)
    assert reasons.keys() >= CLAIM_CHECKS
    assert all("was reset" in reasons[one] for one in CLAIM_CHECKS)
    (gap,) = lacks(found, "unseen claims")
    assert "was reset" in gap.reason and "--queue" in (gap.grant or "")
    run(crowded, CLAIM)
    seen = look(crowded)
    assert [one.name for one in seen.queues] == ["public.jobs"]
    assert not lacks(seen, "unseen claims") and not CLAIM_CHECKS & skipped(seen).keys()


def test_a_reset_during_the_window_is_told(crowded: str, monkeypatch: pytest.MonkeyPatch) -> None:
    from pgqdoctor.collect import Observer

    original = Observer._last_reading

    def strike(self: Observer, *arguments: object) -> object:
        run(crowded, "SELECT pg_stat_statements_reset()")
        return original(self, *arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(Observer, "_last_reading", strike)
    run(crowded, CLAIM)
    seen = look(crowded, "public.jobs", window=1.5)
    assert lacks(seen, "reset statements")
    assert all(row.calls >= 0 for row in seen.last.statements)


def test_one_text_that_is_no_utf8_is_told_with_the_database_it_came_from(small: ScratchServer) -> None:
    name = f"legacy_{uuid.uuid4().hex[:8]}"
    run(
        small.dsn(),
        f"CREATE DATABASE {name} ENCODING 'SQL_ASCII' TEMPLATE template0 LC_COLLATE 'C' LC_CTYPE 'C'",
    )
    legacy = small.dsn(name)
    with own_database(small) as dsn:
        run(dsn, SETUP, CLAIM)
        with psycopg.connect(legacy, autocommit=True, client_encoding="SQL_ASCII") as worker:
            worker.execute(b'SELECT 1 AS "caf\xe9"')
        seen = look(dsn, "public.jobs")
        (gap,) = lacks(seen, "statements")
        assert f"another encoding: {name}" in gap.reason
        assert skipped(seen).keys() >= CLAIM_CHECKS
        assert not diagnose(seen).crashed
        cure = (gap.grant or "").partition(" (")[0]
        assert cure.startswith("SELECT pg_stat_statements_reset(0, ")
        run(dsn, cure, CLAIM)
        assert not lacks(look(dsn, "public.jobs"), "statements"), "the statement of the hint cures it"
    run(small.dsn(), f"DROP DATABASE {name} WITH (FORCE)")


def test_an_extension_of_another_database_or_schema(crowded: str) -> None:
    run(crowded, "DROP EXTENSION pg_stat_statements", CLAIM)
    seen = look(crowded, "public.jobs")
    (gap,) = lacks(seen, "statements")
    assert seen.server.statements == "not installed"
    assert gap.grant == "CREATE EXTENSION pg_stat_statements"
    assert "in another database it may be" in gap.reason
    assert skipped(seen).keys() >= CLAIM_CHECKS
    run(crowded, 'CREATE SCHEMA "Odd one"', 'CREATE EXTENSION pg_stat_statements SCHEMA "Odd one"', CLAIM)
    elsewhere = look(crowded, "public.jobs")
    assert elsewhere.server.statements == "ready" and elsewhere.statement_texts


def test_a_schema_that_the_role_may_not_use_is_told_with_the_grants_that_help(crowded: str) -> None:
    name = f"guest_{uuid.uuid4().hex[:8]}"
    run(
        crowded,
        "CREATE SCHEMA hidden",
        "ALTER EXTENSION pg_stat_statements SET SCHEMA hidden",
        f"CREATE ROLE {name} LOGIN",
        f"GRANT pg_monitor TO {name}",
    )
    dsn = psycopg.conninfo.make_conninfo(crowded, user=name)
    try:
        (gap,) = lacks(look(dsn, "public.jobs"), "statements")
        assert "permission denied for schema hidden" in gap.reason
        run(crowded, *(gap.grant or "").split("; "))
        assert not lacks(look(dsn, "public.jobs"), "statements")
    finally:
        run(crowded, f"DROP OWNED BY {name}", f"DROP ROLE {name}")


def test_a_server_that_counts_nothing(crowded: str) -> None:
    database = psycopg.conninfo.conninfo_to_dict(crowded)["dbname"]
    run(crowded, f"ALTER DATABASE {database} SET pg_stat_statements.track = 'none'", CLAIM)
    seen = look(crowded, "public.jobs")
    (gap,) = lacks(seen, "statements")
    assert "track is none" in gap.reason and "ALTER SYSTEM" in (gap.grant or "")
    assert skipped(seen).keys() >= CLAIM_CHECKS


def test_claims_inside_functions_are_told_where_only_calls_are_counted(crowded: str) -> None:
    run(
        crowded,
        f"CREATE FUNCTION take() RETURNS bigint LANGUAGE plpgsql AS $$DECLARE found bigint; BEGIN {CLAIM} INTO found; RETURN found; END$$",
        "SELECT take()",
    )
    seen = look(crowded)
    (gap,) = lacks(seen, "nested statements")
    assert "the claim of public.jobs runs inside take" in gap.reason
    assert "pg_stat_statements.track = 'all'" in (gap.grant or "")
    assert not CLAIM_CHECKS & skipped(seen).keys()


def test_a_claim_built_inside_a_function_is_not_taken_for_none(crowded: str) -> None:
    body = "EXECUTE format('UPDATE %I SET status = ''running'' WHERE id = (SELECT id FROM %I LIMIT 1 FOR UPDATE SKIP LOCKED)', 'jobs', 'jobs')"
    run(
        crowded,
        f"CREATE FUNCTION take_dynamically() RETURNS void LANGUAGE plpgsql AS $$BEGIN {body}; END$$",
        "SELECT take_dynamically()",
    )
    seen = look(crowded, "public.jobs")
    reasons = skipped(seen)
    assert "take_dynamically names the table" in reasons["claim-unguarded"]
