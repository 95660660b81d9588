"""The scripts of ``fix`` live: applied with psql the finding goes, ``--undo`` brings the catalog back, running it again harms nothing."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from typing import Any

import psycopg
import pytest

from pgqdoctor import remedy
from pgqdoctor.collect import ObserveOptions, observe
from pgqdoctor.engine import diagnose
from pgqdoctor.finding import Remedy
from pgqdoctor.lab.binaries import find_binaries
from pgqdoctor.lab.load import scenario_database
from pgqdoctor.lab.scenario import load_scenario
from pgqdoctor.render.script import fix_script, undo_script
from pgqdoctor.report import Report
from pgqdoctor.steps import treatment
from tests.golden.reports import DEAD, SICK
from tests.one_voice import disagreements
from tests.unit.test_fix import HOSTILE_TEXTS, decided, everywhere

WINDOW_S = 4.0
LONGEST_CURE_S = 40.0

CATALOG = """
SELECT 'index' AS kind, i.indexrelid::regclass::text AS name, pg_get_indexdef(i.indexrelid) || ' valid ' || i.indisvalid AS says
  FROM pg_index i JOIN pg_class c ON c.oid = i.indexrelid WHERE c.relnamespace = 'public'::regnamespace
UNION ALL
SELECT 'options', c.oid::regclass::text, coalesce(array_to_string(ARRAY(SELECT unnest(c.reloptions) ORDER BY 1), ', '), '')
  FROM pg_class c WHERE c.relnamespace = 'public'::regnamespace
UNION ALL
SELECT 'setting', name, setting FROM pg_file_settings WHERE sourcefile LIKE '%postgresql.auto.conf'
UNION ALL
SELECT 'role', s.setrole::regrole::text, array_to_string(s.setconfig, ', ')
  FROM pg_db_role_setting s JOIN pg_database d ON d.oid = s.setdatabase WHERE d.datname = current_database()
ORDER BY 1, 2, 3
"""


def psql(dsn: str, script: str) -> subprocess.CompletedProcess[str]:
    """Run a script as its header says."""
    return subprocess.run(
        [str(find_binaries().psql), "-X", "-v", "ON_ERROR_STOP=1", "-f", "-", dsn],
        input=script,
        text=True,
        capture_output=True,
        timeout=60,
    )


def applied(dsn: str, script: str) -> None:
    done = psql(dsn, script)
    assert done.returncode == 0, f"{done.stderr}\n{script}"


def catalog(dsn: str) -> list[tuple[Any, ...]]:
    with psycopg.connect(dsn, autocommit=True) as connection:
        return connection.execute(CATALOG).fetchall()


def look(dsn: str) -> Report:
    seen = observe(dsn, ObserveOptions(window_seconds=WINDOW_S))
    assert disagreements(seen) == []
    return diagnose(seen)


def told(report: Report) -> str:
    return "\n".join(f"{one.severity} {one.key}: {one.title}" for one in report.findings)


def harmful(report: Report) -> set[str]:
    return {one.check for one in report.findings if one.severity != "notice"}


def claim_buffers(report: Report) -> int:
    plan = next(one.claim.plan for one in report.queues if one.claim.plan is not None)
    assert plan.buffers is not None
    return plan.buffers


@pytest.mark.parametrize(
    ("scenario", "check"),
    [
        ("no-claim-index", "claim-scans-consumed-rows"),
        ("autovacuum-off", "autovacuum-settings"),
        ("autovacuum-default-large", "autovacuum-settings"),
        ("hot-full-pages", "hot-no-page-room"),
        ("idle-snapshot", "vacuum-horizon-held"),
    ],
)
def test_applied_the_finding_goes_and_undone_the_catalog_is_as_it_was(
    any_server: str, scenario: str, check: str
) -> None:
    sick = load_scenario(scenario)
    with scenario_database(sick, any_server) as run:
        time.sleep(sick.settle_s)
        run.load.check()
        before = catalog(run.dsn)
        report = look(run.dsn)
        assert check in harmful(report), told(report)
        chosen = treatment(report, [one.key for one in report.findings if one.check == check])
        undo, fix = decided(undo_script(report, chosen)), fix_script(report, chosen)
        if scenario == "idle-snapshot":
            assert "ALTER ROLE" in fix
            applied(run.dsn, fix)
            assert catalog(run.dsn) == before, "what a person decides does not run by itself"
            assert check not in harmful(look(run.dsn)), "the session is ended"
            fix = decided(fix)
        applied(run.dsn, fix)
        changed = catalog(run.dsn)
        assert changed != before
        applied(run.dsn, fix)
        assert catalog(run.dsn) == changed, "run again it changes nothing more"
        until = time.monotonic() + LONGEST_CURE_S
        while check in harmful(after := look(run.dsn)):
            assert time.monotonic() < until, told(after)
        if scenario == "no-claim-index":
            assert claim_buffers(after) < claim_buffers(report) / 10
        applied(run.dsn, undo)
        assert catalog(run.dsn) == before


def scripts(*remedies: Remedy) -> tuple[str, str]:
    report = replace(SICK, findings=(replace(DEAD, caused_by=(), remedies=remedies),))
    return fix_script(report, treatment(report)), undo_script(report, treatment(report))


INDEX = remedy.create_index(
    schema="public",
    table='job"s\n',
    name="ready\n; x",
    columns=["id"],
    predicate="state = 'a;b'",
    title="Build",
    expect="",
    risk="",
)


@pytest.fixture
def jobs(database: str) -> str:
    with psycopg.connect(database, autocommit=True) as connection:
        connection.execute('CREATE TABLE "job""s\n" (id bigint PRIMARY KEY, state text)')
        connection.execute('INSERT INTO "job""s\n" SELECT g, \'a;b\' FROM generate_series(1, 100) g')
    return database


def test_an_invalid_index_of_a_failed_attempt_is_replaced_and_a_valid_one_kept(jobs: str) -> None:
    with psycopg.connect(jobs) as writer, psycopg.connect(jobs, autocommit=True) as builder:
        writer.execute('UPDATE "job""s\n" SET state = \'b\' WHERE id = 1')
        builder.execute("SET lock_timeout = '100ms'")
        with suppress(psycopg.errors.LockNotAvailable):
            builder.execute(INDEX.sql[-1].encode())
        assert any(row[0] == "index" and row[2].endswith("valid false") for row in catalog(jobs))
    fix, undo = scripts(INDEX)
    applied(jobs, fix)
    built = catalog(jobs)
    assert not any(row[2].endswith("valid false") for row in built)
    with psycopg.connect(jobs) as connection:
        first = connection.execute("SELECT 'public.\"ready\n; x\"'::regclass::oid").fetchone()
    applied(jobs, fix)
    with psycopg.connect(jobs) as connection:
        assert connection.execute("SELECT 'public.\"ready\n; x\"'::regclass::oid").fetchone() == first
    applied(jobs, undo)
    assert not any("ready" in row[1] for row in catalog(jobs))


def test_a_short_transaction_in_the_way_is_waited_for(jobs: str) -> None:
    fix, _ = scripts(INDEX)
    with psycopg.connect(jobs) as writer:
        writer.execute('UPDATE "job""s\n" SET state = \'b\' WHERE id = 1')
        running = subprocess.Popen(
            [str(find_binaries().psql), "-X", "-v", "ON_ERROR_STOP=1", "-f", "-", jobs],
            stdin=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        assert running.stdin is not None
        running.stdin.write(fix)
        running.stdin.close()
        time.sleep(3.0)  # longer than the lock_timeout of other steps
        assert running.poll() is None
        writer.commit()
    assert running.wait(timeout=20) == 0, running.stderr.read() if running.stderr else ""
    assert any("ready" in row[1] and row[2].endswith("valid true") for row in catalog(jobs))


def test_a_session_that_started_after_the_observation_is_left_alone(database: str) -> None:
    with psycopg.connect(database, autocommit=True) as victim:
        end = remedy.end_session(
            pid=victim.info.backend_pid, gently=False, title="End it", expect="", risk=""
        )
        report = replace(SICK, findings=(replace(DEAD, caused_by=(), remedies=(end,)),))
        for observed, survives in (("2001-01-01T00:00:00Z", True), ("2999-01-01T00:00:00Z", False)):
            seen = replace(report, generated_at=observed)
            applied(database, decided(fix_script(seen, treatment(seen))))
            try:
                victim.execute("SELECT 1")
            except psycopg.OperationalError:
                assert not survives
            else:
                assert survives


@pytest.mark.parametrize("text", HOSTILE_TEXTS)
@pytest.mark.parametrize("written", [fix_script, undo_script])
def test_psql_finds_nothing_to_execute_in_hostile_texts(
    database: str, text: str, written: Callable[..., str]
) -> None:
    report = everywhere(text)
    before = catalog(database)
    done = psql(database, written(report, treatment(report)))
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    assert catalog(database) == before
