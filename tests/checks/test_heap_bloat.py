"""Verdicts of heap-bloat without a database."""

from __future__ import annotations

from typing import Any

import pytest

from pgqdoctor.checks.heap_bloat import CHECK
from pgqdoctor.finding import Finding
from pgqdoctor.observation import MeasuredSpace, PlanProbe

from . import build

MB = 1024 * 1024


def plan(node: str, buffers: int) -> PlanProbe:
    return PlanProbe(
        mode="select",
        sql="SELECT ...",
        document=(
            '[{"Plan": {"Node Type": "Limit", "Actual Rows": 1, "Actual Loops": 1, "Plan Rows": 1, '
            f'"Shared Hit Blocks": {buffers}, "Shared Read Blocks": 0, "Plans": [{{"Node Type": "{node}", '
            '"Relation Name": "jobs", "Schema": "public", "Alias": "jobs", "Actual Rows": 1, "Actual Loops": 1, "Plan Rows": 1, '
            f'"Shared Hit Blocks": {buffers}, "Shared Read Blocks": 0}}]}}}}]'
        ),
    )


def look(
    table_bytes: int,
    *,
    rows: float = 1_000.0,
    scans: int = 0,
    claim: PlanProbe | None = None,
    options: tuple[str, ...] = (),
    held: bool = False,
    columns: Any = None,
    measured: tuple[MeasuredSpace, ...] = (),
) -> list[Finding]:
    sessions = (
        (build.session(41, state="idle in transaction", xmin=700, xmin_age=9_000, xact_age_s=60.0),)
        if held
        else ()
    )
    seen = build.observation(
        of=build.catalog(
            tables=(build.table(rows=rows, options=options),), columns=columns or build.job_columns()
        ),
        first=build.reading(0.0, sessions=sessions),
        last=build.reading(build.WINDOW_S, tables=(build.counters(seq_scan=scans),), sessions=sessions),
        probes=(
            build.probe(table_bytes=table_bytes, plans=() if claim is None else (claim,), measured=measured),
        ),
    )
    return build.evaluated(CHECK, seen)


def test_table_as_large_as_its_rows() -> None:
    assert look(163_840, scans=10_000) == []


def test_spare_room_that_nobody_reads() -> None:
    assert look(64 * MB) == []


def test_much_spare_room_is_a_notice() -> None:
    (finding,) = look(400 * MB)
    assert finding.severity == "notice"
    assert "99.9% of public.jobs (400 MB of 400 MB) is more than its rows need" in finding.title
    assert finding.remedies[0].sql[1] == "VACUUM (FULL, ANALYZE) public.jobs;"
    assert finding.remedies[0].blocks == "reads and writes"


@pytest.mark.parametrize(("buffers", "found"), [(500, 0), (1_000, 1)])
def test_claim_that_reads_the_empty_pages(buffers: int, found: int) -> None:
    findings = look(8 * MB, claim=plan("Seq Scan", buffers))
    assert [one.severity for one in findings] == ["warning"] * found


def test_claim_that_finds_its_job_by_an_index() -> None:
    assert look(8 * MB, claim=plan("Index Scan", 5_000)) == []


@pytest.mark.parametrize(("scans", "found"), [(90, 0), (110, 1)])
def test_sequential_scans(scans: int, found: int) -> None:
    # 8 MB are 1,024 pages, of which rows and ordinary dead ones need some 20: about 1,000 spare ones, 10 scans a second.
    findings = look(8 * MB, scans=scans)
    assert [one.severity for one in findings] == ["warning"] * found


def test_rows_that_fill_half_of_it() -> None:
    # A row takes 172 bytes: 47 on a page. 1,010,000 rows and a fifth dead need 25,788 of 51,200 pages.
    assert look(400 * MB, rows=1_010_000.0) == []


def test_fillfactor_keeps_room_on_purpose() -> None:
    assert len(look(400 * MB, rows=900_000.0)) == 1
    assert look(400 * MB, rows=900_000.0, options=("fillfactor=50",)) == []


def test_unknown_width_or_rows_say_nothing() -> None:
    assert look(400 * MB, rows=-1.0) == []
    assert (
        look(
            400 * MB,
            columns=(build.column(1, "id", "bigint", "N", average_width=None), *build.job_columns()[1:]),
        )
        == []
    )


def test_held_horizon_leaves_the_rewrite_out() -> None:
    (finding,) = look(400 * MB, held=True)
    assert finding.remedies == ()


@pytest.mark.parametrize(("used", "found"), [(0.40, 1), (0.55, 0)])
def test_pgstattuple_goes_before_the_estimate(used: float, found: int) -> None:
    # 4,000 pages; the estimate would say that 1,000 rows need 22 of them.
    space = MeasuredSpace(oid=build.JOBS, pages=4_000, used=used)
    findings = look(4_000 * 8_192, scans=10_000, measured=(space,))
    assert len(findings) == found
    assert all("pgstattuple_approx" in {item.source for item in one.evidence} for one in findings)
