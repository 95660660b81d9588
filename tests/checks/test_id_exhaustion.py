"""Verdicts of id-exhaustion without a database."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from pgqdoctor.checks.id_exhaustion import CHECK
from pgqdoctor.finding import Finding
from pgqdoctor.rows import SequenceRow

from . import build

MOST = 2_147_483_647
DAY_S = 86_400
ENQUEUE = "INSERT INTO jobs (payload) VALUES ($1) ON CONFLICT (payload) DO NOTHING"


def sequence(last_value: int | None, **changes: Any) -> SequenceRow:
    known = SequenceRow(
        sequence=3000,
        table=build.JOBS,
        column="id",
        schema="public",
        name="jobs_id_seq",
        column_type="integer",
        last_value=last_value,
        last_possible=MOST,
        increment=1,
        cycles=False,
        identity=True,
    )
    return replace(known, **changes)


def look(
    last: int | None, taken: int = 0, *, inserted: int | None = None, keys: Any = (), **changes: Any
) -> list[Finding]:
    """Look at a sequence that gave ``taken`` values in ten seconds."""
    before = None if last is None else last - taken
    rows = taken if inserted is None else inserted
    seen = build.observation(
        of=build.catalog(foreign_keys=keys, tables=(build.table(), build.table(77, "job_log"))),
        statements={"1/10/1": (build.CLAIM, 10, 10), "2/10/1": (ENQUEUE, taken, rows)},
        first=build.reading(0.0, sequences=(sequence(before, **changes),)),
        last=build.reading(
            build.WINDOW_S,
            sequences=(sequence(last, **changes),),
            tables=(build.counters(inserted=rows),),
        ),
    )
    return build.evaluated(CHECK, seen)


def test_fresh() -> None:
    assert look(None) == []
    assert look(1_000, 100) == []


def test_exhausted_by_a_tiny_table() -> None:
    (finding,) = look(MOST)
    assert finding.severity == "critical"
    assert finding.key == "id-exhaustion:public.jobs:id"
    assert "100% of the ids of public.jobs.id (integer) are consumed: every insert fails" in finding.title
    assert finding.remedies[0].sql == (
        "SET lock_timeout = '2s';",
        "BEGIN;",
        "ALTER TABLE public.jobs ALTER COLUMN id TYPE bigint;",
        "COMMIT;",
    )
    assert finding.remedies[0].blocks == "reads and writes"
    assert (
        "fails while a view or a rule uses the column; such views must be dropped and created again"
        in finding.remedies[0].risk
    )


@pytest.mark.parametrize(
    ("left", "severities"),
    [
        (100 * DAY_S * 7 - 1, ["critical"]),
        (100 * DAY_S * 7, ["warning"]),
        (100 * DAY_S * 90 - 1, ["warning"]),
        (100 * DAY_S * 90, []),
    ],
)
def test_time_left_at_a_hundred_ids_a_second(left: int, severities: list[str]) -> None:
    assert [one.severity for one in look(MOST - left, 1_000)] == severities


@pytest.mark.parametrize(("last", "found"), [(int(MOST * 0.9) - 1, 0), (int(MOST * 0.9) + 1, 1)])
def test_without_a_rate_the_share_counts(last: int, found: int) -> None:
    assert len(look(last)) == found


def test_large_share_with_decades_left() -> None:
    assert look(MOST - 100_000_000, 1) == []


def test_bigint() -> None:
    assert look(5_000_000_000, 10_000, column_type="bigint", last_possible=2**63 - 1) == []


def test_sequence_that_cycles() -> None:
    assert look(MOST, cycles=True) == []


def test_values_burned_by_conflicts_are_told() -> None:
    (finding,) = look(MOST - 1_000_000, 3_800, inserted=0)
    assert "3,800 ids were taken for 0 rows" in finding.why
    assert ENQUEUE in {one.value for one in finding.evidence}
    assert (
        "WHERE NOT EXISTS (SELECT 1 FROM jobs AS seen WHERE seen.payload = $1)" in finding.remedies[1].sql[0]
    )


def test_serial_and_children_change_with_it() -> None:
    keys = (build.foreign_key("job_log_job_id_fkey", 77, build.JOBS, "job_id", child_name="public.job_log"),)
    (finding,) = look(MOST, identity=False, keys=keys)
    assert finding.remedies[0].sql[2:-1] == (
        "ALTER TABLE public.job_log ALTER COLUMN job_id TYPE bigint;",
        "ALTER TABLE public.jobs ALTER COLUMN id TYPE bigint;",
        "ALTER SEQUENCE public.jobs_id_seq AS bigint;",
    )


def test_hostile_names() -> None:
    (finding,) = look(MOST, column='id" --', name='s"q', identity=False)
    assert finding.remedies[0].sql[2:4] == (
        'ALTER TABLE public.jobs ALTER COLUMN "id"" --" TYPE bigint;',
        'ALTER SEQUENCE public."s""q" AS bigint;',
    )


KINDS = 78
BURN = "INSERT INTO kinds (name) VALUES ($1) ON CONFLICT (name) DO NOTHING"


def neighbour(*, parent_column: str = "id", child: int = build.JOBS) -> list[Finding]:
    """Look at a table of kinds, which a job refers to, whose ids are burnt by 1,000 conflicts in ten seconds."""
    key = build.foreign_key(
        "jobs_kind_fkey",
        child,
        KINDS,
        "kind",
        parent_column,
        child_name="public.jobs",
        parent_name="public.kinds",
    )
    row = {"table": KINDS, "name": "kinds_id_seq"}
    seen = build.observation(
        of=build.catalog(foreign_keys=(key,), tables=(build.table(), build.table(KINDS, "kinds", rows=1.0))),
        statements={"1/10/1": (build.CLAIM, 10, 10), "2/10/1": (BURN, 1_000, 0)},
        first=build.reading(0.0, sequences=(sequence(MOST - 2_000, **row),)),
        last=build.reading(build.WINDOW_S, sequences=(sequence(MOST - 1_000, **row),)),
    )
    return build.evaluated(CHECK, seen)


def test_ids_of_a_table_that_jobs_refer_to() -> None:
    (finding,) = neighbour()
    assert finding.severity == "critical"
    assert finding.title.startswith(
        "99.9% of the ids of public.kinds.id (integer) are consumed: the rest lasts about 10 s"
    )
    assert "1,000 ids were taken for 0 rows" in finding.why
    assert "jobs_kind_fkey" in finding.why
    assert finding.remedies[0].sql[2:4] == (
        "ALTER TABLE public.jobs ALTER COLUMN kind TYPE bigint;",
        "ALTER TABLE public.kinds ALTER COLUMN id TYPE bigint;",
    )
    assert "kinds" in finding.remedies[1].sql[0]


def test_tables_that_only_refer_to_jobs_are_left_alone() -> None:
    assert neighbour(child=77) == []
    assert neighbour(parent_column="code") == []


def referring(kind: str, **changes: Any) -> Any:
    return build.foreign_key(
        "job_log_job_id_fkey",
        77,
        build.JOBS,
        "job_id",
        child_name="public.job_log",
        child_types=(kind,),
        **changes,
    )


@pytest.mark.parametrize(
    ("kind", "last", "severity"),
    [
        ("integer", MOST - 1_000, "critical"),
        ("integer", MOST // 2, None),
        ("smallint", 32_000, "critical"),
        ("bigint", MOST - 1_000, None),
    ],
)
def test_a_column_that_refers_to_larger_ids_than_it_can_hold(
    kind: str, last: int, severity: str | None
) -> None:
    findings = look(last, 1, keys=(referring(kind),), column_type="bigint", last_possible=2**63 - 1)
    assert [one.severity for one in findings] == ([] if severity is None else [severity])


def test_the_narrow_column_is_named_and_widened_alone() -> None:
    (finding,) = look(
        MOST - 1_000, 1, keys=(referring("integer"),), column_type="bigint", last_possible=2**63 - 1
    )
    assert finding.key == "id-exhaustion:public.jobs:public.job_log.job_id"
    assert "of the ids of public.job_log.job_id (integer) are consumed" in finding.title
    assert "holds no number above 2.15 billion" in finding.why
    assert finding.remedies[0].sql == (
        "SET lock_timeout = '2s';",
        "BEGIN;",
        "ALTER TABLE public.job_log ALTER COLUMN job_id TYPE bigint;",
        "COMMIT;",
    )
