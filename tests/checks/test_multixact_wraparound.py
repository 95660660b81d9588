"""Verdicts of multixact-wraparound without a database."""

from __future__ import annotations

import pytest

from pgqdoctor.checks.multixact_wraparound import CHECK
from pgqdoctor.finding import Finding

from . import build


def look(
    age: int, per_second: float, *, members: int = 2, version: int = 180000, table_age: int = 0
) -> list[Finding]:
    made = round(per_second * build.WINDOW_S)
    seen = build.observation(
        last=build.reading(
            build.WINDOW_S,
            database=build.database(started_s=100_010.0, next_multixact=1_000 + made, multixact_age=age),
        ),
        samples=build.multixact_samples(("keysh",) * members),
        of=build.catalog(
            tables=(build.table(min_multixact_age=table_age),),
            settings=(build.setting("autovacuum_multixact_freeze_max_age", "400000000"),),
        ),
        on=build.server(version),
    )
    return build.evaluated(CHECK, seen)


@pytest.mark.parametrize(
    ("age", "per_second", "severity"),
    [
        pytest.param(300_000_000, 20_000.0, None, id="young at any rate"),
        pytest.param(440_000_000, 0.0, "notice", id="overdue, none made"),
        pytest.param(440_000_000, 1_000.0, "notice", id="overdue, 20 days left"),
        pytest.param(440_000_000, 2_000.0, "warning", id="10 days left"),
        pytest.param(440_000_000, 20_000.0, "critical", id="less than a day left"),
    ],
)
def test_ids(age: int, per_second: float, severity: str | None) -> None:
    assert [one.severity for one in look(age, per_second)] == ([] if severity is None else [severity])


def test_members_run_out_before_ids() -> None:
    assert look(200_000_000, 400.0, members=8) == [], "less than half of the member space"
    (finding,) = look(300_000_000, 400.0, members=8)
    assert finding.severity == "warning"
    assert "may have 2.4 billion of 4.29 billion members in use" in finding.title
    assert finding.title.endswith("the space of MultiXact members is used up in about 7 days")
    (left,) = [one for one in finding.evidence if one.what == "time left at this rate"]
    assert left.value == round((2**32 - 2_400_000_000) / 3_200)
    assert left.source == "computed: 1.89 billion of 4.29 billion members left, 3,200/s used"


def test_member_space_has_no_such_end_from_19_on() -> None:
    assert look(300_000_000, 400.0, members=8, version=190000) == []


def test_oldest_table_is_vacuumed_where_it_is_known() -> None:
    (finding,) = look(440_000_000, 2_000.0, table_age=440_000_000)
    assert finding.remedies[0].sql[-1] == "VACUUM (VERBOSE, INDEX_CLEANUP off, TRUNCATE off) public.jobs;"
