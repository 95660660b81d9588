"""Verdicts of unused-index without a database."""

from __future__ import annotations

from typing import Any

import pytest

from pgqdoctor.checks.unused_index import CHECK
from pgqdoctor.finding import Finding
from pgqdoctor.rows import IndexRow, LockRow

from . import build

FORTNIGHT_S = 14 * 86_400.0
PAYLOAD = build.index(
    2003,
    "jobs_payload_idx",
    [3],
    definition="CREATE INDEX jobs_payload_idx ON public.jobs USING btree (payload)",
)


def look(
    *indexes: IndexRow,
    age_s: float | None = FORTNIGHT_S,
    scans: int = 0,
    inserted: int = 1_000,
    locks: Any = (),
) -> list[Finding]:
    counted = tuple(build.index_counters(one.oid, scans) for one in (*build.job_indexes(), *indexes))
    seen = build.observation(
        of=build.catalog(indexes=(*build.job_indexes(), *indexes)),
        first=build.reading(0.0, indexes=counted),
        last=build.reading(
            build.WINDOW_S,
            indexes=counted,
            tables=(build.counters(inserted=inserted),),
            database=build.database(stats_reset_s=age_s),
            locks=locks,
        ),
    )
    return build.evaluated(CHECK, seen)


def test_primary_key_and_claim_index_without_scans() -> None:
    assert look() == []


def test_unused_index_is_named_with_what_it_costs() -> None:
    (finding,) = look(PAYLOAD)
    assert finding.severity == "notice"
    assert "Nothing has used index public.jobs_payload_idx for 14 days: 40 kB, 100/s entries" in finding.title
    assert finding.remedies[0].sql[1] == "DROP INDEX CONCURRENTLY IF EXISTS public.jobs_payload_idx;"
    assert finding.remedies[0].undo[1] == (
        "CREATE INDEX CONCURRENTLY jobs_payload_idx ON public.jobs USING btree (payload);"
    )


@pytest.mark.parametrize(("age_s", "found"), [(600.0, 0), (FORTNIGHT_S - 1, 0), (FORTNIGHT_S, 1), (None, 0)])
def test_age_of_the_counters(age_s: float | None, found: int) -> None:
    assert len(look(PAYLOAD, age_s=age_s)) == found


def test_one_scan_is_use() -> None:
    assert look(PAYLOAD, scans=1) == []


@pytest.mark.parametrize(("inserted", "found"), [(9, 0), (10, 1)])
def test_table_at_rest(inserted: int, found: int) -> None:
    assert len(look(PAYLOAD, inserted=inserted)) == found


@pytest.mark.parametrize(
    "changes",
    [
        pytest.param({"unique": True}, id="unique"),
        pytest.param({"constraint": "no_overlap"}, id="constraint"),
        pytest.param({"replica_identity": True}, id="replica identity"),
        pytest.param({"primary": True}, id="primary key"),
    ],
)
def test_indexes_that_enforce_something(changes: dict[str, Any]) -> None:
    assert look(build.index(2003, "i", [3], **changes)) == []


def test_index_the_claim_asks_for_is_kept_even_without_a_plan() -> None:
    assert look(build.index(2003, "i", [5])) == []


def test_invalid_remnant() -> None:
    (finding,) = look(build.index(2003, "jobs_new_idx", [3], valid=False), age_s=600.0)
    assert "public.jobs_new_idx is invalid" in finding.title
    assert finding.remedies[0].sql[1] == "REINDEX INDEX CONCURRENTLY public.jobs_new_idx;"
    assert finding.remedies[1].sql[1] == "DROP INDEX CONCURRENTLY IF EXISTS public.jobs_new_idx;"


def test_invalid_index_that_is_being_built() -> None:
    lock = LockRow(
        pid=9,
        locktype="relation",
        database=5,
        relation=build.JOBS,
        mode="ShareUpdateExclusiveLock",
        granted=True,
        wait_age_s=None,
        classid=None,
        objid=None,
        blocked_by=(),
    )
    assert look(build.index(2003, "jobs_new_idx", [3], valid=False), locks=(lock,)) == []
