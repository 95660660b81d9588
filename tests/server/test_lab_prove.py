"""``lab prove``: found, cured with the report's own remedies, not found again."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import psycopg

ROOT = Path(__file__).parents[2]


def prove(tmp_path: Path, *arguments: str) -> tuple[int, dict[str, object], dict[str, object]]:
    """Exit status, the whole document and its first result."""
    done = subprocess.run(
        [
            *(sys.executable, "-m", "pgqdoctor", "lab", "prove", *arguments),
            *("--window", "2s", "--format", "json", "--state", str(tmp_path / "state.json")),
        ],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        timeout=200,
        check=False,
    )
    assert done.stdout, done.stderr
    document = json.loads(done.stdout)
    return done.returncode, document, document["results"][0]


def test_a_missing_index_is_proven_by_the_remedy_alone(tmp_path: Path) -> None:
    status, document, result = prove(tmp_path, "no-claim-index")
    assert status == 0, result
    assert document["experiment"] == "prove"
    assert result["proven"] is True
    assert result["scenario_cure"] == ""
    assert any("CREATE INDEX CONCURRENTLY" in str(one) for one in list(result["applied"]))  # type: ignore[call-overload]
    before, after = result["claim_buffers_before"], result["claim_buffers_after"]
    assert isinstance(before, int)
    assert isinstance(after, int)
    assert before > 100 > 20 > after


def test_a_fault_of_the_application_is_proven_by_its_cure_and_in_the_lab_schema_alone(
    tmp_path: Path, database: str
) -> None:
    with psycopg.connect(database, autocommit=True) as connection:
        connection.execute("DROP EXTENSION pg_stat_statements")
    status, _, result = prove(tmp_path, "savepoint-storm", "--dsn", database, "--yes-this-is-scratch")
    assert status == 0, result
    assert result["scenario_cure"] == "cured clients"
    assert "multixact-from-subtransaction" in str(result["before"])
    assert "multixact-from-subtransaction" not in str(result["after"])
    with psycopg.connect(database, autocommit=True) as connection:
        rows = connection.execute(
            "SELECT relname FROM pg_class WHERE relnamespace = 'public'::regnamespace"
            " UNION ALL SELECT extname FROM pg_extension WHERE extname <> 'plpgsql'"
            " UNION ALL SELECT nspname FROM pg_namespace WHERE nspname LIKE 'pgqdoctor%'"
        ).fetchall()
    assert rows == []
