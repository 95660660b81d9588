"""Verdicts of foreign-key-unindexed without a database."""

from __future__ import annotations

from typing import Any

import pytest

from pgqdoctor.checks.foreign_key_unindexed import CHECK
from pgqdoctor.finding import Finding

from . import build

CHILD = 1500


def look(
    *, deleted: int = 300, read: int = 18_000_000, rows: float = 60_000.0, kind: str = "r", **key: Any
) -> list[Finding]:
    changes: dict[str, Any] = {"child_name": "public.job_log", "child_rows": rows, **key}
    child, parent = changes.pop("child", CHILD), changes.pop("parent", build.JOBS)
    seen = build.observation(
        of=build.catalog(
            tables=(build.table(), build.table(CHILD, "job_log", rows=rows, kind=kind)),
            foreign_keys=(build.foreign_key("job_log_job_id_fkey", child, parent, "job_id", **changes),),
        ),
        first=build.reading(0.0, tables=(build.counters(), build.counters(CHILD, live=70_000))),
        last=build.reading(
            build.WINDOW_S,
            tables=(build.counters(deleted=deleted), build.counters(CHILD, seq_tup_read=read, live=70_000)),
        ),
    )
    return build.evaluated(CHECK, seen)


def test_child_scanned_for_each_delete() -> None:
    (finding,) = look()
    assert finding.severity == "warning"
    assert finding.key == "foreign-key-unindexed:public.jobs:job_log_job_id_fkey"
    assert "No index on public.job_log (job_id)" in finding.title
    assert "30/s deletes read 1.8 million/s of its 60,000 rows" in finding.title
    assert (
        finding.remedies[0].sql[1]
        == "CREATE INDEX CONCURRENTLY job_log_job_id_idx ON public.job_log (job_id);"
    )
    assert finding.remedies[0].undo[1] == "DROP INDEX CONCURRENTLY IF EXISTS public.job_log_job_id_idx;"


def test_indexed() -> None:
    assert look(indexed=True) == []


@pytest.mark.parametrize(("rows", "found"), [(9_999.0, 0), (10_000.0, 1)])
def test_nothing_deleted_now(rows: float, found: int) -> None:
    findings = look(deleted=0, read=0, rows=rows)
    assert [one.severity for one in findings] == ["notice"] * found


@pytest.mark.parametrize(("read", "severity"), [(999_999, "notice"), (1_000_000, "warning")])
def test_rows_read(read: int, severity: str) -> None:
    (finding,) = look(read=read)
    assert finding.severity == severity


def test_scans_without_deletes_are_somebody_elses() -> None:
    (finding,) = look(deleted=0)
    assert finding.severity == "notice"


def test_never_analysed_child_is_counted_by_its_counters() -> None:
    (finding,) = look(rows=-1.0, deleted=0)
    assert "70,000 rows" in finding.title


def test_partitioned_child_has_no_concurrently() -> None:
    (finding,) = look(kind="p")
    assert finding.remedies[0].blocks == "writes"


def test_the_queues_own_foreign_key_is_not_meant() -> None:
    assert look(child=build.JOBS, parent=CHILD) == []


def test_hostile_names() -> None:
    (finding,) = look(child_columns=('x"); DROP TABLE jobs; --',))
    assert '("x""); DROP TABLE jobs; --")' in finding.remedies[0].sql[1]
