"""Verdicts of claim-unbounded without a database."""

from __future__ import annotations

import pytest

from pgqdoctor.checks.claim_unbounded import CHECK
from pgqdoctor.finding import Finding
from pgqdoctor.observation import Sample

from . import build

ALL = "UPDATE jobs SET state = $1 WHERE id IN (SELECT id FROM jobs WHERE state = $2 FOR UPDATE SKIP LOCKED) RETURNING id"
SELECT = "SELECT id FROM jobs WHERE state = $1 FOR UPDATE SKIP LOCKED"
GUARDED = "UPDATE jobs SET state = 'running' WHERE state = 'queued' RETURNING id"
BY_KEY = "UPDATE jobs SET state = $1 WHERE id = $2 AND state = $3"


def look(text: str, calls: int, rows: int, deleted: int = 0) -> list[Finding]:
    last = build.reading(build.WINDOW_S, tables=(build.counters(deleted=deleted),))
    return build.evaluated(CHECK, build.observation(statements={"1/10/1": (text, calls, rows)}, last=last))


@pytest.mark.parametrize(
    ("rows", "severity"),
    [(99, None), (100, "warning"), (999, "warning"), (1_000, "critical"), (20_000, "critical")],
)
def test_limits(rows: int, severity: str | None) -> None:
    assert [one.severity for one in look(ALL, 1, rows)] == ([] if severity is None else [severity])


def test_corrected_statement_takes_what_a_worker_finishes_in_a_second() -> None:
    (finding,) = look(ALL, 1, 20_000, deleted=250)
    assert (
        finding.title
        == "One claim of public.jobs takes 20,000 jobs at a time: it has no LIMIT, and the other workers find nothing"
    )
    assert finding.remedies[0].sql == (
        "UPDATE jobs SET state = 'running' WHERE id IN (SELECT id FROM jobs WHERE state = 'queued' LIMIT 25 FOR UPDATE SKIP LOCKED) RETURNING id;",
    )
    assert "LIMIT 1 FOR" in look(ALL, 1, 20_000)[0].remedies[0].sql[0]
    assert "LIMIT 100 FOR" in look(ALL, 1, 20_000, deleted=9_000)[0].remedies[0].sql[0]


def test_locking_select() -> None:
    (finding,) = look(SELECT, 2, 20_000)
    assert "LIMIT 1 FOR UPDATE SKIP LOCKED" in finding.remedies[0].sql[0]


def test_an_update_that_returns_nothing_and_has_lost_its_constants() -> None:
    """Only what a session sent tells that UPDATE ... SET state = $1 WHERE state = $2 takes jobs."""
    seen = build.observation(
        statements={"1/10/1": ("UPDATE jobs SET state = $1 WHERE state = $2", 2, 20_000)},
        texts=("UPDATE jobs SET state = 'running' WHERE state = 'queued'",),
        samples=(Sample(at=1.0, sessions=(build.sampled(1, 0, query_id=1),)),),
    )
    (finding,) = build.evaluated(CHECK, seen)
    assert "takes 10,000 jobs at a time" in finding.title
    reaped = build.observation(
        statements={"1/10/1": ("UPDATE jobs SET state = $1 WHERE state = $2", 2, 20_000)},
        texts=("UPDATE jobs SET state = 'queued' WHERE state = 'running'",),
        samples=(Sample(at=1.0, sessions=(build.sampled(1, 0, query_id=1),)),),
    )
    assert build.evaluated(CHECK, reaped) == []


def test_update_that_takes_everything() -> None:
    (finding,) = look(GUARDED, 2, 20_000, deleted=100)
    assert (
        finding.remedies[0]
        .sql[0]
        .startswith("WITH picked AS MATERIALIZED (SELECT id FROM public.jobs WHERE state = 'queued'")
    )
    assert "LIMIT 10 FOR NO KEY UPDATE SKIP LOCKED" in finding.remedies[0].sql[0]


@pytest.mark.parametrize("text", [build.CLAIM, BY_KEY])
def test_bounded_claims(text: str) -> None:
    assert look(text, 1, 20_000) == []


MOVES = "UPDATE jobs SET state = 'pending' WHERE id IN (SELECT id FROM jobs WHERE state = 'queued' FOR UPDATE SKIP LOCKED)"
"""Its words do not say whether it takes jobs or moves them on."""


def hoard(age_s: float, rows: int | None, *, won: int = 0, ready: int = 100) -> list[Finding]:
    """Look at a session that has executed MOVES, once in all, and is idle in transaction beside claims that won ``won`` jobs."""
    used = {"1/10/1": (build.CLAIM, 10, won)}
    if rows is not None:
        used["2/10/1"] = (MOVES, 1, rows)
    held = build.sampled(
        77, 0, state="idle in transaction", xact_age_s=age_s, query_id=2 if rows is not None else None
    )
    samples = (Sample(at=1.0, sessions=(held,)),)
    return build.evaluated(
        CHECK,
        build.observation(
            statements=used, texts=(MOVES,), samples=samples, probes=(build.probe(ready_rows=ready),)
        ),
    )


@pytest.mark.parametrize(
    ("age_s", "rows", "severity"),
    [
        (0.9, 20_000, None),
        (1.0, 99, None),
        (1.0, 100, "warning"),
        (1.0, 1_000, "critical"),
    ],
)
def test_update_without_limit_that_stays_open(age_s: float, rows: int, severity: str | None) -> None:
    assert [one.severity for one in hoard(age_s, rows)] == ([] if severity is None else [severity])


def test_holder_is_named() -> None:
    (finding,) = hoard(4.5, 20_000)
    assert finding.title == (
        "An UPDATE of public.jobs without LIMIT has locked the jobs it found, 20,000 on average, "
        "and session 77 keeps its transaction open for 4.5 s"
    )
    assert finding.pids == (77,)


def test_statement_that_pg_stat_statements_has_lost() -> None:
    (finding,) = hoard(4.5, None)
    assert "claims pass over 100 ready ones" in finding.title
    assert hoard(4.5, None, won=1) == []
    assert hoard(4.5, None, ready=99) == []
