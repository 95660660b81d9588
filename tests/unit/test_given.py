"""What --queue and --claim-query name, and what is said where it cannot be that: no database."""

from __future__ import annotations

import pytest

from pgqdoctor.given import claim_fault, claim_table_fault, near, relation_fault
from tests.checks import build

CLAIM = "SELECT id FROM jobs WHERE state = 'queued' ORDER BY id LIMIT 1 FOR UPDATE SKIP LOCKED"


@pytest.mark.parametrize(
    "text",
    [
        CLAIM,
        f"-- the worker's\n{CLAIM};\n",
        "UPDATE jobs SET state = 'running' WHERE id = $1 AND state = 'queued'",
        "SELECT id FROM jobs WHERE pg_try_advisory_xact_lock(id) LIMIT 1",
    ],
)
def test_a_claim(text: str) -> None:
    assert claim_fault(text) is None


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (";", "holds no statement"),
        (f"{CLAIM}; UPDATE jobs SET state = 'running' WHERE id = $1;", "holds 2 statements"),
        ("SELEKT id FROM jobs", "is no SQL that could be read"),
        ("SELECT * FROM take_job($1)", "calls the function take_job()"),
        ("SELECT count(*) FROM jobs", "is a SELECT that takes no job"),
        ("UPDATE jobs SET state = 'done' WHERE id = $1", "is an UPDATE that takes no job"),
        ("DELETE FROM jobs WHERE id = $1", "is a DELETE that takes no job"),
        ("CREATE INDEX ON jobs (id)", "is a definition"),
        ("COMMIT", "is a statement of kind commit"),
    ],
)
def test_no_claim(text: str, said: str) -> None:
    fault = claim_fault(text)
    assert fault is not None
    assert fault.message.startswith(said)
    assert fault.hint.endswith(".")


def test_a_claim_of_another_table() -> None:
    queue, leaf = build.table(kind="p"), build.table(7, "jobs_1", parent=build.JOBS)
    known = build.catalog(tables=(queue, leaf, build.table(8, "emails")))
    assert claim_table_fault(CLAIM, queue, known) is None
    assert claim_table_fault(CLAIM.replace("jobs", "public.jobs_1"), queue, known) is None
    fault = claim_table_fault(CLAIM.replace("jobs", "emails"), queue, known)
    assert fault is not None
    assert (fault.message, fault.hint) == (
        "takes jobs from emails, which is another table",
        "Give emails as --queue, or the claim of this queue.",
    )
    fault = claim_table_fault(CLAIM.replace("jobs", '"Ready Jobs"'), queue, known)
    assert fault is not None
    assert fault.message == 'takes jobs from "Ready Jobs", which is no table here'


@pytest.mark.parametrize(
    ("kind", "persistence", "tables", "message", "hint"),
    [
        (
            "v",
            "p",
            ["public.jobs"],
            'public."Ready" is a view, not a table',
            "Give the table that it reads: public.jobs.",
        ),
        (
            "m",
            "p",
            [],
            'public."Ready" is a materialised view, not a table',
            "Give the table that holds the jobs, as SCHEMA.TABLE.",
        ),
        (
            "i",
            "p",
            ["public.jobs"],
            'public."Ready" is an index, not a table',
            "Give its table: public.jobs.",
        ),
        (
            "S",
            "p",
            ["a.b"],
            'public."Ready" is a sequence, not a table',
            "Give the table that it counts for: a.b.",
        ),
        ("f", "p", [], 'public."Ready" is a foreign table, not a table', "Its rows are on another server"),
        ("r", "t", [], 'public."Ready" is a temporary table', "A queue is a table that all workers see"),
        ("r", "p", [], 'public."Ready" is a table of the system', "Give a table of your own"),
    ],
)
def test_what_is_no_table(kind: str, persistence: str, tables: list[str], message: str, hint: str) -> None:
    row = {"schema": "public", "name": "Ready", "kind": kind, "persistence": persistence, "tables": tables}
    fault = relation_fault(row)
    assert fault is not None
    assert fault.message.startswith(message)
    assert fault.hint.startswith(hint)


def test_a_view_of_many_tables_names_the_first() -> None:
    row = {
        "schema": "s",
        "name": "v",
        "kind": "v",
        "persistence": "p",
        "tables": [f"s.t{n}" for n in range(7)],
    }
    fault = relation_fault(row)
    assert fault is not None
    assert fault.hint == "Give the table that it reads: s.t0, s.t1, s.t2, s.t3, s.t4 and 2 more."


def test_names_that_come_near_are_given_as_the_option_takes_them() -> None:
    assert near("job", (build.table(), build.table(7, "Old jobs"))) == ['public."Old jobs"', "public.jobs"]
