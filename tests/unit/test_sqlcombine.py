"""A lock and a write made one statement."""

from __future__ import annotations

import pytest

from pgqdoctor.sqlcombine import one_statement, without_locks

LOCK = "SELECT id, payload FROM jobs WHERE state = $1 ORDER BY id LIMIT 1 FOR UPDATE SKIP LOCKED"


def test_limit_one_becomes_a_scalar_subquery() -> None:
    assert one_statement(LOCK, "UPDATE jobs SET state = $1 WHERE id = $2", table="jobs", keys=("id",)) == (
        "UPDATE jobs SET state = $1 WHERE id = (SELECT jobs.id FROM jobs WHERE state = $2 ORDER BY id LIMIT 1 "
        "FOR UPDATE SKIP LOCKED) RETURNING *"
    )


def test_a_batch_becomes_a_cte_that_is_computed_once() -> None:
    assert one_statement(
        "SELECT j.* FROM jobs j WHERE state = 'queued' LIMIT 10 FOR NO KEY UPDATE OF j SKIP LOCKED",
        'DELETE FROM jobs AS "Old" WHERE id = ANY ($1)',
        table="jobs",
        keys=("id",),
    ) == (
        "WITH claimed(claimed_id) AS MATERIALIZED (SELECT j.id FROM jobs AS j WHERE state = 'queued' LIMIT 10 "
        'FOR NO KEY UPDATE OF j SKIP LOCKED) DELETE FROM jobs AS "Old" USING claimed WHERE "Old".id = claimed.claimed_id '
        'RETURNING "Old".*'
    )


def test_other_conditions_of_the_write_stay() -> None:
    text = one_statement(LOCK, "DELETE FROM jobs WHERE id = $1 AND state = $2", table="jobs", keys=("id",))
    assert text is not None
    assert text.endswith("SKIP LOCKED) AND state = $2 RETURNING *")


@pytest.mark.parametrize(
    ("lock", "write"),
    [
        pytest.param("SELECT id FROM jobs LIMIT 1", "DELETE FROM jobs WHERE id = 1", id="no lock"),
        pytest.param(LOCK, "DELETE FROM jobs WHERE state = 'x'", id="not by key"),
        pytest.param(LOCK, "DELETE FROM other WHERE id = 1", id="another table"),
        pytest.param(
            LOCK.replace("ORDER BY id", "ORDER BY 1"),
            "DELETE FROM jobs WHERE id = 1",
            id="sorts by output column",
        ),
        pytest.param(LOCK, "UPDATE jobs SET a = o.a FROM other o WHERE id = 1", id="a join"),
        pytest.param("not SQL", "DELETE FROM jobs WHERE id = 1", id="not SQL"),
        pytest.param("", "", id="nothing"),
    ],
)
def test_what_cannot_be_combined(lock: str, write: str) -> None:
    assert one_statement(lock, write, table="jobs", keys=("id",)) is None


def test_locking_clause_is_taken_away() -> None:
    assert without_locks("SELECT id FROM jobs WHERE id = $1 FOR SHARE") == "SELECT id FROM jobs WHERE id = $1"
    assert without_locks("SELECT id FROM jobs") is None
    assert without_locks("UPDATE jobs SET a = 1") is None
