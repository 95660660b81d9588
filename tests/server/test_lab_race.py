"""``lab race`` at small size: who duplicates, who loses races, who walks. Shapes, not speed."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import psycopg
import pytest

from pgqdoctor.cli import run
from pgqdoctor.errors import PgqdoctorError
from pgqdoctor.lab.custom import custom_strategy
from pgqdoctor.lab.pgbench import Bench, Work
from pgqdoctor.lab.race import RaceOptions, half_consumed_buffers, race
from pgqdoctor.lab.results import RaceResult
from pgqdoctor.lab.strategies import strategies
from pgqdoctor.lab.subject import generic_subject
from tests.server.lab import ground_in, notebook, quiet

ROOT = Path(__file__).parents[2]
SUBJECT = generic_subject()
JOBS = 600
WORKERS = (1, 6)


def test_the_shape_of_a_race(database: str, tmp_path: Path) -> None:
    options = RaceOptions(subject=SUBJECT, strategies=strategies(SUBJECT, 10), workers=WORKERS, jobs=JOBS)
    with ground_in(database) as ground:
        cells = tuple(race(ground, options, notebook(tmp_path, RaceResult), quiet))
    found = {(cell.strategy, cell.workers): cell for cell in cells}
    assert len(found) == len(options.strategies) * len(WORKERS)
    for cell in cells:
        assert cell.drained
        assert cell.distinct_jobs == JOBS
        assert cell.claims == JOBS + cell.duplicate_claims
        assert 0 < cell.p50_ms <= cell.p95_ms <= cell.p99_ms
        assert 0 < cell.job_p50_ms <= cell.job_p95_ms <= cell.job_p99_ms
        assert cell.run_buffers_per_claim > 1
        if cell.workers == 1:
            assert cell.duplicate_claims == 0
            assert cell.wasted_attempts == 0
        if cell.strategy != "naive":
            assert cell.duplicate_claims == 0, "only the naive claim may take a job twice"
    naive, guarded = found["naive", 6], found["guarded", 6]
    assert naive.duplicate_claims > JOBS / 2, "most jobs are claimed twice"
    assert naive.claims_per_s > 1.5 * naive.distinct_jobs_per_s
    assert guarded.wasted_per_win > 0.5, "many races are lost for each one that is won"
    assert found["skip-locked", 6].wasted_per_win < 0.1
    assert found["batch", 1].wins == JOBS / 10


def test_the_partial_index_spares_the_walk_over_consumed_jobs(database: str) -> None:
    by_name = {one.name: one for one in strategies(SUBJECT)}
    with ground_in(database) as ground:
        plain = half_consumed_buffers(ground, SUBJECT, by_name["skip-locked"], 10_000)
        naive = half_consumed_buffers(ground, SUBJECT, by_name["naive"], 10_000)
        indexed = half_consumed_buffers(ground, SUBJECT, by_name["skip-locked-indexed"], 10_000)
    # 5,000 consumed jobs have an entry for the dead and one for the live version each, pages apart.
    assert 9_500 < plain < 11_000
    assert 9_500 < naive < 11_000
    assert indexed <= 15


def test_the_users_own_claim_is_raced(database: str, tmp_path: Path) -> None:
    claim = (
        "WITH head AS (SELECT id FROM jobs WHERE state = 'ready' ORDER BY id LIMIT 1 FOR UPDATE SKIP LOCKED) "
        "UPDATE jobs SET state = 'running' FROM head WHERE jobs.id = head.id RETURNING jobs.id"
    )
    options = RaceOptions(
        subject=SUBJECT, strategies=(custom_strategy(claim, SUBJECT),), workers=(3,), jobs=200
    )
    with ground_in(database) as ground:
        (cell,) = race(ground, options, notebook(tmp_path, RaceResult), quiet)
    assert (cell.strategy, cell.distinct_jobs, cell.duplicate_claims) == ("custom", 200, 0)


def test_pgbench_logs_each_attempt_under_the_number_that_the_audit_has(database: str) -> None:
    with ground_in(database) as ground, Bench(ground.binaries) as bench:
        with ground.connect() as connection:
            connection.execute("CREATE TABLE seen (client integer, n integer)")
        script = "\\set n :n + 1\nINSERT INTO seen VALUES (:client_id, :n);\n"
        outcome = bench.run(
            ground.conninfo,
            Work(script=script, clients=3, transactions=40, variables={"n": "0"}),
            longest_s=0,
        )
        with ground.connect() as connection:
            rows = connection.execute("SELECT client, n FROM seen").fetchall()
        assert outcome.transactions == len(rows) == 120
        assert {(one.client, one.number) for one in outcome.attempts} == {(row[0], row[1]) for row in rows}
        assert not list(bench.directory.glob("run*.[0-9]*")), "a log is deleted once it is read"


def test_a_race_whose_time_is_up_says_so(database: str, tmp_path: Path) -> None:
    naive = tuple(one for one in strategies(SUBJECT) if one.name == "guarded")
    options = RaceOptions(subject=SUBJECT, strategies=naive, workers=(2,), jobs=30_000, limit_s=1)
    with ground_in(database) as ground:
        (cell,) = race(ground, options, notebook(tmp_path, RaceResult), quiet)
    assert not cell.drained
    assert 0 < cell.distinct_jobs < 30_000


def command(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "pgqdoctor", "lab", *arguments]


def test_an_interrupted_race_is_resumed(tmp_path: Path) -> None:
    state = tmp_path / "state.json"
    arguments = ["race", "--jobs", "300", "--workers", "1,3", "--state", str(state), "--format", "json"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    first = subprocess.Popen(
        command(*arguments), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment
    )
    until = time.monotonic() + 60
    while not state.exists() or len(json.loads(state.read_text())["cells"]) < 3:
        assert first.poll() is None, first.communicate()
        assert time.monotonic() < until
        time.sleep(0.02)
    first.send_signal(signal.SIGINT)
    _, said = first.communicate(timeout=30)
    assert first.returncode == 130
    assert "--resume goes on" in said
    kept = json.loads(state.read_text())["cells"]
    second = subprocess.run(
        command(*arguments, "--resume"),
        capture_output=True,
        text=True,
        env=environment,
        timeout=120,
        check=True,
    )
    document = json.loads(second.stdout)
    assert document["schema"] == "pgqdoctor.lab/1"
    results = {f"{one['strategy']}/{one['workers']}": one for one in document["results"]}
    assert len(results) == 14
    for key, cell in kept.items():
        assert results[key] == cell, "what was measured before is not measured again"
    assert not state.exists()


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("race", "--workers", "0"), "no list of positive numbers"),
        (("race", "--strategy", "lifo"), "unknown strategy"),
        (("race", "--strategy", "custom"), "needs --claim-query"),
        (("race", "--dsn", "postgresql://127.0.0.1:1/x", "--durable"), "cannot stand beside --dsn"),
        (("race", "--dsn", "postgresql://127.0.0.1:1/x"), "--yes-this-is-scratch"),
        (("triangle", "--fillfactor", "5"), "between 10 and 100"),
        (("triangle", "--index", "hash"), "has no index form"),
        (("storm", "--fault", "rain"), "unknown fault"),
        (("prove",), "name the scenarios"),
        (("prove", "no-such"), "there is no scenario"),
        (("prove", "healthy-guarded"), "is healthy"),
        (("show", str(ROOT / "pyproject.toml")), "must be JSON"),
    ],
)
def test_wrong_usage_is_told_before_a_server_starts(
    arguments: tuple[str, ...], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["lab", *arguments]) == 2
    shown = capsys.readouterr()
    assert said in shown.err
    assert not shown.out


def test_more_workers_than_connections_are_refused(database: str, tmp_path: Path) -> None:
    with psycopg.connect(database, autocommit=True) as connection:
        row = connection.execute("SHOW max_connections").fetchone()
    assert row is not None
    options = RaceOptions(
        subject=SUBJECT, strategies=strategies(SUBJECT), workers=(int(row[0]) + 1,), jobs=10
    )
    with ground_in(database) as ground, pytest.raises(PgqdoctorError, match="the server has room for"):
        list(race(ground, options, notebook(tmp_path, RaceResult), quiet))
