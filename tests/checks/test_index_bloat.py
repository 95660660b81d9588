"""Verdicts of index-bloat without a database."""

from __future__ import annotations

from dataclasses import replace

import pytest

from pgqdoctor.checks.index_bloat import CHECK
from pgqdoctor.finding import Finding
from pgqdoctor.observation import MeasuredSpace, PlanProbe
from pgqdoctor.rows import IndexRow

from . import build

MB = 1024 * 1024
READY = build.job_indexes()[1]


def plan(buffers: int) -> PlanProbe:
    return PlanProbe(
        mode="select",
        sql="SELECT ...",
        document=(
            '[{"Plan": {"Node Type": "Limit", "Actual Rows": 1, "Actual Loops": 1, "Plan Rows": 1, '
            f'"Shared Hit Blocks": {buffers}, "Shared Read Blocks": 0, "Plans": [{{"Node Type": "Index Scan", '
            '"Index Name": "jobs_ready_idx", "Relation Name": "jobs", "Schema": "public", "Alias": "jobs", '
            '"Actual Rows": 1, "Actual Loops": 1, "Plan Rows": 10, "Index Searches": 1, '
            f'"Shared Hit Blocks": {buffers}, "Shared Read Blocks": 0}}]}}}}]'
        ),
    )


def look(
    index: IndexRow,
    held_bytes: int,
    *,
    rows: float = 1_000.0,
    buffers: int | None = None,
    held: bool = False,
    measured: tuple[MeasuredSpace, ...] = (),
) -> list[Finding]:
    sessions = (
        (build.session(41, state="idle in transaction", xmin=700, xmin_age=9_000, xact_age_s=60.0),)
        if held
        else ()
    )
    seen = build.observation(
        of=build.catalog(tables=(build.table(rows=rows),), indexes=(build.job_indexes()[0], index)),
        first=build.reading(0.0, sessions=sessions),
        last=build.reading(build.WINDOW_S, sessions=sessions),
        probes=(
            build.probe(
                index_sizes=((index.oid, held_bytes),),
                measured=measured,
                plans=() if buffers is None else (plan(buffers),),
            ),
        ),
    )
    return build.evaluated(CHECK, seen)


def test_index_as_large_as_its_entries() -> None:
    assert look(READY, 81_920) == []


def test_claim_index_with_few_entries_on_many_pages() -> None:
    (finding,) = look(READY, 40 * MB)
    assert finding.severity == "notice"
    assert finding.key == "index-bloat:public.jobs:jobs_ready_idx"
    assert "99.9% of index public.jobs_ready_idx (40 MB of 40 MB)" in finding.title
    assert finding.remedies[0].sql[1] == "REINDEX INDEX CONCURRENTLY public.jobs_ready_idx;"
    assert finding.remedies[0].blocks == "nothing"


@pytest.mark.parametrize(("buffers", "severity"), [(34, "notice"), (35, "warning")])
def test_claim_that_pays(buffers: int, severity: str) -> None:
    (finding,) = look(READY, 40 * MB, buffers=buffers)
    assert finding.severity == severity


@pytest.mark.parametrize(("held_bytes", "found"), [(15 * MB, 0), (17 * MB, 1)])
def test_small_indexes_are_left_alone(held_bytes: int, found: int) -> None:
    assert len(look(READY, held_bytes)) == found


def test_random_entries_leave_a_third_empty() -> None:
    # 1,000,000 entries and a fifth dead of 28 bytes need 4,600 pages, 36 MB.
    index = build.index(2003, "jobs_run_at_idx", [5, 1])
    assert look(index, 100 * MB, rows=1_000_000.0) == []
    assert len(look(index, 150 * MB, rows=1_000_000.0)) == 1


def test_gin_is_compared_with_its_data() -> None:
    index = build.index(2003, "jobs_payload_idx", [3], method="gin")
    # 12,050 or 120,050 payloads of 104 bytes, four times.
    assert len(look(index, 40 * MB, rows=10_000.0)) == 1
    assert look(index, 40 * MB, rows=100_000.0) == []
    (finding,) = look(index, 40 * MB, rows=10_000.0)
    assert "GIN index" in finding.why


def test_what_cannot_be_estimated() -> None:
    assert look(build.index(2003, "i", [0], expressions="lower(payload)"), 400 * MB) == []
    assert look(build.index(2003, "i", [5], method="brin"), 400 * MB) == []
    assert look(replace(READY, rows=-1.0), 400 * MB) == []
    assert look(replace(READY, valid=False), 400 * MB) == []


def test_held_horizon_leaves_the_rebuild_out() -> None:
    (finding,) = look(READY, 40 * MB, held=True)
    assert finding.remedies == ()


@pytest.mark.parametrize(("used", "found"), [(0.25, 1), (0.30, 0)])
def test_pgstatindex_goes_before_the_estimate(used: float, found: int) -> None:
    space = MeasuredSpace(oid=READY.oid, pages=3_500, used=used)
    assert len(look(READY, 3_500 * 8_192, measured=(space,))) == found
