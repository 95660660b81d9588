"""Verdicts of claim-isolation without a database."""

from __future__ import annotations

import pytest

from pgqdoctor.checks.claim_isolation import CHECK
from pgqdoctor.finding import Finding
from pgqdoctor.observation import Sample
from pgqdoctor.rows import LockRow

from . import build

BEGIN = "BEGIN ISOLATION LEVEL REPEATABLE READ"


def look(
    committed: int,
    failed: int,
    begins: int | None = None,
    claims: int = 100,
    begin: str = BEGIN,
    default: str = "read committed",
) -> list[Finding]:
    if begins is None:  # each claim that failed had one as well
        begins = claims + failed
    used = {"1/10/1": (build.CLAIM, claims, claims), "2/10/1": (begin, begins, 0)}
    last = build.reading(build.WINDOW_S, database=build.database(commits=committed, rollbacks=failed))
    of = build.catalog(settings=(build.setting("default_transaction_isolation", default),))
    return build.evaluated(CHECK, build.observation(statements=used, last=last, of=of))


@pytest.mark.parametrize(
    ("committed", "failed", "severity"),
    [
        (950, 49, None),
        (950, 50, "warning"),
        (95_000, 4_900, None),
        (501, 499, "warning"),
        (500, 500, "critical"),
    ],
)
def test_limits(committed: int, failed: int, severity: str | None) -> None:
    assert [one.severity for one in look(committed, failed)] == ([] if severity is None else [severity])


def test_title_and_remedy() -> None:
    (finding,) = look(742, 258)
    assert finding.title == "26% of the transactions fail, 26/s: claims of public.jobs run in REPEATABLE READ"
    assert finding.remedies[0].sql[0] == "BEGIN ISOLATION LEVEL READ COMMITTED;"
    assert finding.remedies[0].sql[1].startswith("UPDATE jobs SET state = 'running'")
    assert finding.remedies[0].sql[2] == "COMMIT;"


def test_rare_retries_are_a_design() -> None:
    assert look(900, 49) == []


def test_default_of_the_database_counts_for_all() -> None:
    (finding,) = look(500, 500, begins=0, begin="BEGIN", default="serializable")
    assert "run in SERIALIZABLE" in finding.title


def test_report_in_repeatable_read_beside_the_claims() -> None:
    # More claims succeeded than strict transactions began: they ran in others.
    assert look(500, 500, begins=49, claims=100) == []
    assert look(500, 500, begins=100, claims=100) == []
    assert len(look(500, 500, begins=600, claims=100)) == 1


@pytest.mark.parametrize(("begins", "found"), [(149, 0), (150, 1), (600, 1)])
def test_what_a_pool_rolls_back_did_not_fail(begins: int, found: int) -> None:
    # 500 transactions that only read are rolled back; of those that claim no more can have failed than the 100 that succeeded leave.
    assert len(look(500, 500, begins=begins, claims=100)) == found


def test_rollbacks_in_read_committed_have_another_cause() -> None:
    assert look(500, 500, begin="BEGIN ISOLATION LEVEL READ COMMITTED") == []


def test_no_claims() -> None:
    assert look(500, 500, claims=0) == []


def sampled(pids_that_claim: tuple[int, ...], strict: tuple[int, ...]) -> list[Finding]:
    """Look at sessions whose prepared BEGIN is not counted: half of the transactions fail."""
    texts = (build.CLAIM.replace("$1", "'running'"), f"{BEGIN};")
    sessions = [
        *(build.sampled(pid, 0) for pid in pids_that_claim),
        *(build.sampled(pid, 1) for pid in strict),
    ]
    seen = build.observation(
        statements={"1/10/1": (build.CLAIM, 100, 100), "2/10/1": (BEGIN, 0, 0)},
        texts=texts,
        samples=(Sample(at=1.0, sessions=tuple(sessions)),),
        last=build.reading(build.WINDOW_S, database=build.database(commits=500, rollbacks=500)),
    )
    return build.evaluated(CHECK, seen)


def test_prepared_begin_is_not_counted_but_seen_in_the_sessions_that_claim() -> None:
    (finding,) = sampled((1, 2), (2, 9))
    assert "run in REPEATABLE READ" in finding.title
    assert finding.evidence[0].source == "pg_stat_activity, sessions that claim"


def test_strict_sessions_that_do_not_claim() -> None:
    assert sampled((1, 2), (8, 9)) == []
    assert sampled((1, 2, 3), (3,)) == []


def level_of_the_driver(*locks: LockRow, pid: int = 70) -> list[Finding]:
    """Sessions that no BEGIN tells of, one of them caught with a claim."""
    seen = build.observation(
        statements={"1/10/1": (build.CLAIM, 100, 100)},
        last=build.reading(build.WINDOW_S, database=build.database(commits=500, rollbacks=400), locks=locks),
        samples=(Sample(at=1.0, sessions=(build.sampled(pid, 0),)),),
        texts=(build.CLAIM,),
    )
    return build.evaluated(CHECK, seen)


def test_predicate_locks_show_serializable_where_no_statement_does() -> None:
    (finding,) = level_of_the_driver(build.lock(70, "SIReadLock"))
    assert "claims of public.jobs run in SERIALIZABLE" in finding.title


def test_predicate_locks_of_others_and_of_other_tables() -> None:
    assert level_of_the_driver(build.lock(71, "SIReadLock")) == []
    assert level_of_the_driver(build.lock(70, "SIReadLock", relation=9_999)) == []
    assert level_of_the_driver(build.lock(70, "RowExclusiveLock")) == []
