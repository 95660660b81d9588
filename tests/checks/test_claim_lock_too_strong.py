"""Verdicts of claim-lock-too-strong without a database."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from pgqdoctor.checks.claim_lock_too_strong import CHECK
from pgqdoctor.finding import Finding
from pgqdoctor.observation import Sample

from . import build

CHILD = 1100
LOG = "INSERT INTO job_log (job_id, line) VALUES (7, 'x')"
MOMENTS = 100


def look(
    waiting: int, claim: str = build.CLAIM, text: str = LOG, event: str = "transactionid", key: bool = True
) -> list[Finding]:
    of = build.catalog(
        tables=(build.table(), build.table(CHILD, "job_log")),
        foreign_keys=(
            build.foreign_key(
                "job_log_job_id_fkey", CHILD, build.JOBS, "job_id", child_name="public.job_log"
            ),
        )
        if key
        else (),
    )
    base = build.observation(statements={"1/10/1": (claim, 100, 100)}, texts=(text,), of=of)
    sessions: tuple[Any, ...] = tuple(
        build.sampled(80 + number % 3, 0, wait_type="Lock", wait_event=event) for number in range(waiting)
    )
    moments = tuple(Sample(at=number / 10, sessions=sessions[number::MOMENTS]) for number in range(MOMENTS))
    return build.evaluated(CHECK, replace(base, samples=moments))


@pytest.mark.parametrize(
    ("waiting", "severity"), [(0, None), (19, None), (20, "warning"), (499, "warning"), (500, "critical")]
)
def test_limits(waiting: int, severity: str | None) -> None:
    assert [one.severity for one in look(waiting)] == ([] if severity is None else [severity])


def test_constraint_is_named_and_the_lock_corrected() -> None:
    (finding,) = look(300)
    assert finding.title == (
        "3 writers of public.job_log wait at any moment for claims of public.jobs: FOR UPDATE shuts out the checks of foreign key job_log_job_id_fkey"
    )
    assert finding.pids == (80, 81, 82)
    assert "LIMIT $3 FOR NO KEY UPDATE SKIP LOCKED" in finding.remedies[0].sql[0]


def test_no_key_update_is_innocent() -> None:
    assert look(300, claim=build.CLAIM.replace("FOR UPDATE", "FOR NO KEY UPDATE")) == []


def test_no_table_refers_to_the_queue() -> None:
    assert look(300, key=False) == []


def test_writers_of_another_table_wait() -> None:
    assert look(300, text="INSERT INTO audit (line) VALUES ('x')") == []


def test_other_waits() -> None:
    assert look(300, event="relation") == []


JOINED = (
    "SELECT j.id FROM jobs j JOIN queues q ON q.name = j.payload WHERE j.state = $1 AND j.run_at <= now() AND NOT q.paused "
    "ORDER BY j.run_at LIMIT $2 FOR UPDATE SKIP LOCKED"
)


def joined(
    calls: int, rows: int, *, text: str = JOINED, ready: int = 2_000, age: float = 60.0
) -> list[Finding]:
    seen = build.observation(
        statements={"1/10/1": (text, calls, rows)},
        probes=(build.probe(ready_rows=ready, oldest_ready_age_s=age),),
    )
    return build.evaluated(CHECK, seen)


@pytest.mark.parametrize(
    ("calls", "rows", "severity"),
    [
        (100, 71, None),
        (100, 70, "warning"),
        (100, 26, "warning"),
        (100, 25, "critical"),
        (19, 0, None),
        (20, 0, "critical"),
    ],
)
def test_claims_in_vain_because_of_a_joined_row(calls: int, rows: int, severity: str | None) -> None:
    assert [one.severity for one in joined(calls, rows)] == ([] if severity is None else [severity])


def test_the_joined_table_is_named_and_left_out_of_the_lock() -> None:
    (finding,) = joined(100, 20)
    assert (
        finding.title
        == "The claim of public.jobs locks rows of queues as well: 80% of the claims find nothing while 2,000 jobs are ready"
    )
    assert finding.key == "claim-lock-too-strong:public.jobs:joins queues"
    assert finding.remedies[0].sql[0].endswith("FOR UPDATE OF j SKIP LOCKED;")


def test_joins_that_hide_no_job() -> None:
    assert joined(100, 20, text=JOINED.replace("FOR UPDATE", "FOR UPDATE OF j")) == []
    assert joined(100, 20, ready=0) == []
    assert joined(100, 20, age=1.0) == [], "jobs do not wait for as long as the window"
