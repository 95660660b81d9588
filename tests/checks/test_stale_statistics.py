"""Verdicts of stale-statistics without a database."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from pgqdoctor.checks.stale_statistics import CHECK
from pgqdoctor.finding import Finding

from . import build, plans


def state(*common: str, target: int | None = None) -> tuple[Any, ...]:
    columns = list(build.job_columns())
    columns[1] = replace(
        columns[1],
        common_values=common,
        common_fractions=tuple(1 / len(common) for _ in common),
        statistics_target=target,
    )
    return tuple(columns)


def look(
    expected: int,
    ready: int,
    modified: int = 1_000_000,
    exact: bool = True,
    columns: tuple[Any, ...] | None = None,
    scan: dict[str, Any] | None = None,
    rows: float = 600_000,
) -> list[Finding]:
    node = {**(scan or plans.scan("Seq Scan", index=None, buffers=4_000)), "Plan Rows": expected}
    last = build.reading(
        build.WINDOW_S, tables=(build.counters(modified_since_analyze=modified, last_autoanalyze_s=7_200.0),)
    )
    of = build.catalog(tables=(build.table(rows=rows),), columns=columns or build.job_columns())
    return build.evaluated(
        CHECK,
        build.observation(
            last=last,
            of=of,
            probes=(build.probe(ready_rows=ready, ready_exact=exact, plans=(plans.limited(node),)),),
        ),
    )


def test_right_counts() -> None:
    assert look(100, 120) == []


@pytest.mark.parametrize(
    ("expected", "ready", "found"), [(1, 99, 0), (1, 100, 1), (10, 999, 0), (10, 1_000, 1), (10_000, 100, 1)]
)
def test_limits_of_the_factor(expected: int, ready: int, found: int) -> None:
    assert len(look(expected, ready)) == found


@pytest.mark.parametrize(("modified", "found"), [(119_999, 0), (120_000, 1)])
def test_limits_of_staleness(modified: int, found: int) -> None:
    assert len(look(1, 5_000, modified)) == found


def test_plan_that_leaves_the_index_aside_is_a_warning() -> None:
    (finding,) = look(1, 5_000)
    assert finding.severity == "warning"
    assert (
        finding.title
        == "The planner expects 1 ready jobs in public.jobs and there are 5,000: 1 million rows changed since ANALYZE 2 h ago"
    )
    assert finding.remedies[0].sql[1] == "ANALYZE public.jobs;"


def test_backlog_behind_the_right_plan_harms_nobody() -> None:
    assert look(1, 5_000, scan=plans.scan()) == []


def test_more_jobs_than_the_look_counts_prove_nothing_against_a_larger_guess() -> None:
    assert look(5_000_000, 10_000, exact=False) == []
    assert len(look(50, 10_000, exact=False)) == 1


def test_rare_state_that_the_sample_does_not_meet() -> None:
    (finding,) = look(1, 100, modified=0, columns=state("done"))
    assert finding.key == "stale-statistics:public.jobs:sample"
    assert "its sample does not meet the rare state in state" in finding.title
    assert finding.remedies[0].sql[1:] == (
        "ALTER TABLE public.jobs ALTER COLUMN state SET STATISTICS 200;",
        "ANALYZE public.jobs;",
    )
    assert "SET STATISTICS -1;" in finding.remedies[0].undo[1]
    assert not any("ANALYZE" in one.title for one in finding.remedies if one.sql == ("ANALYZE public.jobs;",))


def test_target_grows_with_rarity() -> None:
    (finding,) = look(1, 100, modified=0, columns=state("done", target=50), rows=60_000_000)
    assert "SET STATISTICS 10000;" in finding.remedies[0].sql[1]
    assert "SET STATISTICS 50;" in finding.remedies[0].undo[1]


def test_fresh_statistics_that_know_the_state_prove_nothing() -> None:
    assert look(1, 100, modified=0, columns=state("done", "queued")) == []


def parent(rows: float, leaf_rows: float, claim: str = build.CLAIM) -> list[Finding]:
    tables = (
        build.table(kind="p", rows=rows),
        build.table(1001, "jobs_1", rows=leaf_rows, parent=build.JOBS),
    )
    return build.evaluated(
        CHECK, build.observation(statements={"1/10/1": (claim, 100, 100)}, of=build.catalog(tables=tables))
    )


@pytest.mark.parametrize(
    ("rows", "leaf_rows", "found"), [(-1.0, 9_999.0, 0), (-1.0, 10_000.0, 1), (150_000.0, 150_000.0, 0)]
)
def test_parent_that_was_never_analysed(rows: float, leaf_rows: float, found: int) -> None:
    assert len(parent(rows, leaf_rows)) == found


def test_parent_in_a_join_is_a_warning() -> None:
    joined = (
        "UPDATE jobs SET state = $1 WHERE id = (SELECT j.id FROM jobs j JOIN queues q ON q.id = j.attempts WHERE j.state = $2 "
        "ORDER BY j.id LIMIT $3 FOR UPDATE OF j SKIP LOCKED) RETURNING id"
    )
    assert [one.severity for one in parent(-1.0, 150_000.0, joined)] == ["warning"]
    (finding,) = parent(-1.0, 150_000.0)
    assert finding.severity == "notice"
    assert finding.remedies[0].sql[1] == "ANALYZE public.jobs;"


@pytest.mark.parametrize(("took_ms", "severity"), [(499.0, "notice"), (500.0, "warning")])
def test_joins_of_a_parent_that_was_never_analysed(took_ms: float, severity: str) -> None:
    """Ten seconds, in which statements that join the parent take ``took_ms``."""
    join = "SELECT s.k FROM sig s JOIN jobs j ON j.id = s.job WHERE j.state = $1"
    parent = build.table(kind="p", rows=-1.0)
    leaf = build.table(1001, "jobs_1", parent=build.JOBS, rows=10_000.0)
    counted = (build.calls("1/10/1", 10, 10), replace(build.calls("2/10/1", 5, 5), total_ms=took_ms))
    seen = build.observation(
        of=build.catalog(tables=(parent, leaf)),
        statements={"1/10/1": (build.CLAIM, 10, 10), "2/10/1": (join, 5, 5)},
        first=build.reading(0.0, statements=(build.calls("1/10/1", 0), build.calls("2/10/1", 0))),
        last=build.reading(build.WINDOW_S, statements=counted),
    )
    (finding,) = build.evaluated(CHECK, seen)
    assert finding.severity == severity
    assert "never analysed as a whole" in finding.title


TESTED = "state = $2"


@pytest.mark.parametrize(
    ("test", "found"),
    [
        (TESTED, 1),
        ("state::text = $2", 1),
        ("state = $2 AND run_at::date = $4", 0),
        ("state::integer = $2", 0),
        ("lower(state) = $2", 0),
        ("(state = $2 OR coalesce(run_at, now()) <= now())", 0),
    ],
)
def test_an_expression_says_nothing_about_the_statistics(test: str, found: int) -> None:
    """The planner expects 0.5% of the rows for an equality of an expression; between text types a cast hides nothing from it."""
    claim = build.CLAIM.replace(TESTED, test)
    assert claim != build.CLAIM or test == TESTED
    last = build.reading(
        build.WINDOW_S,
        tables=(build.counters(modified_since_analyze=1_000_000, last_autoanalyze_s=7_200.0),),
    )
    node = {**plans.scan("Seq Scan", index=None, buffers=4_000), "Plan Rows": 302}
    seen = build.observation(
        statements={"1/10/1": (build.CLAIM if test == TESTED else claim, 100, 100)},
        last=last,
        of=build.catalog(tables=(build.table(rows=60_000.0),)),
        probes=(build.probe(ready_rows=1, plans=(plans.limited(node),)),),
    )
    assert len(build.evaluated(CHECK, seen)) == found


def test_an_enum_compared_as_text_says_nothing_about_the_statistics() -> None:
    columns = list(build.job_columns())
    columns[1] = replace(columns[1], type_name="job_state", type_category="E", enum_labels=("queued", "done"))
    claim = build.CLAIM.replace(TESTED, "state::text = $2")
    for text, found in ((build.CLAIM, 1), (claim, 0)):
        node = {**plans.scan("Seq Scan", index=None, buffers=4_000), "Plan Rows": 302}
        seen = build.observation(
            statements={"1/10/1": (text, 100, 100)},
            last=build.reading(build.WINDOW_S, tables=(build.counters(modified_since_analyze=1_000_000),)),
            of=build.catalog(tables=(build.table(rows=60_000.0),), columns=tuple(columns)),
            probes=(build.probe(ready_rows=1, plans=(plans.limited(node),)),),
        )
        assert len(build.evaluated(CHECK, seen)) == found
