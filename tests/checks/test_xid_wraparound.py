"""Verdicts of xid-wraparound without a database."""

from __future__ import annotations

import pytest

from pgqdoctor.checks.xid_wraparound import CHECK
from pgqdoctor.finding import Finding
from pgqdoctor.rows import PreparedRow

from . import build


def look(
    age: int, per_second: float, *, table_age: int = 0, prepared: tuple[PreparedRow, ...] = ()
) -> list[Finding]:
    ids = round(per_second * build.WINDOW_S)
    seen = build.observation(
        first=build.reading(0.0, database=build.database(next_xid=5_000_000_000)),
        last=build.reading(
            build.WINDOW_S,
            database=build.database(started_s=100_010.0, next_xid=5_000_000_000 + ids, xid_age=age),
            prepared=prepared,
        ),
        of=build.catalog(
            tables=(build.table(frozen_xid_age=table_age),),
            settings=(build.setting("autovacuum_freeze_max_age", "200000000"),),
        ),
    )
    return build.evaluated(CHECK, seen)


@pytest.mark.parametrize(
    ("age", "per_second", "severity"),
    [
        pytest.param(150_000_000, 50_000.0, None, id="young at any rate"),
        pytest.param(219_999_999, 50_000.0, None, id="the forced vacuum has just begun"),
        pytest.param(220_000_000, 0.0, "notice", id="overdue, nothing written"),
        pytest.param(220_000_000, 100.0, "notice", id="overdue, 222 days left"),
        pytest.param(220_000_000, 2_000.0, "warning", id="11 days left"),
        pytest.param(220_000_000, 25_000.0, "critical", id="21 hours left"),
        pytest.param(1_600_000_000, 1.0, "critical", id="failsafe age"),
    ],
)
def test_verdicts(age: int, per_second: float, severity: str | None) -> None:
    assert [one.severity for one in look(age, per_second)] == ([] if severity is None else [severity])


def test_title_tells_the_time_left() -> None:
    (finding,) = look(220_000_000, 25_000.0)
    assert "220 million transactions old" in finding.title
    assert finding.title.endswith("the range of transactions is used up in about 21 h 23 min")
    (left,) = [one for one in finding.evidence if one.what == "time left at this rate"]
    assert left.value == round((2**31 - 3_000_000 - 220_000_000) / 25_000)
    assert left.source == "computed: 1.92 billion of 2.14 billion transactions left, 25,000/s used"


def test_oldest_table_is_vacuumed_where_it_is_known() -> None:
    (finding,) = look(220_000_000, 2_000.0, table_age=219_000_000)
    assert finding.remedies[0].sql == ("VACUUM (VERBOSE, INDEX_CLEANUP off, TRUNCATE off) public.jobs;",)
    (unknown,) = look(220_000_000, 2_000.0, table_age=1_000)
    assert unknown.remedies[0].sql[0].startswith("SELECT format(")


def test_vacuum_is_not_advised_while_something_holds_the_horizon() -> None:
    held = PreparedRow(gid="x", xid=7, xid_age=215_000_000, prepared_age_s=1e6, owner="app", database="app")
    (finding,) = look(220_000_000, 2_000.0, prepared=(held,))
    assert finding.remedies == ()
    assert {"prepared transaction x"} <= {one.value for one in finding.evidence}
