"""Verdicts of hot-blocked-by-index without a database."""

from __future__ import annotations

from typing import Any

import pytest

from pgqdoctor.checks.hot_blocked_by_index import CHECK
from pgqdoctor.finding import Finding
from pgqdoctor.rows import IndexRow

from . import build

HEARTBEAT = "UPDATE jobs SET heartbeat_at = clock_timestamp() WHERE id = $1 AND state = $2"
BEAT_INDEX = build.index(
    2003,
    "jobs_heartbeat_at_idx",
    [6],
    definition="CREATE INDEX jobs_heartbeat_at_idx ON public.jobs USING btree (heartbeat_at)",
)
YEAR_S = 365 * 86_400.0


def look(
    *indexes: IndexRow,
    text: str = HEARTBEAT,
    rows: int = 2_500,
    hot: int = 0,
    version: int = 180000,
    age_s: float | None = YEAR_S,
    scans: tuple[int, int] = (0, 0),
    claims: int = 0,
    also: str | None = None,
    **catalog: Any,
) -> list[Finding]:
    """Look at ``rows`` updates of one statement in ten seconds, beside ``claims`` claims."""
    counted = build.counters(updated=rows + claims, hot_updated=hot)
    before, after = (tuple(build.index_counters(one.oid, count) for one in indexes) for count in scans)
    seen = build.observation(
        of=build.catalog(indexes=(*build.job_indexes(), *indexes), **catalog),
        on=build.server(version),
        statements={
            "1/10/1": (build.CLAIM, claims, claims),
            "2/10/1": (text, rows, rows),
            **({"3/10/1": (also, 1, 0)} if also is not None else {}),
        },
        first=build.reading(0.0, indexes=before),
        last=build.reading(
            build.WINDOW_S, tables=(counted,), indexes=after, database=build.database(stats_reset_s=age_s)
        ),
    )
    return build.evaluated(CHECK, seen)


def test_no_updates() -> None:
    assert look(BEAT_INDEX, rows=0) == []


def test_heartbeat_without_an_index_on_it() -> None:
    assert look() == []


def test_index_on_the_heartbeat_is_named_with_column_and_rates() -> None:
    (finding,) = look(BEAT_INDEX)
    assert finding.severity == "warning"
    assert finding.key == "hot-blocked-by-index:public.jobs:jobs_heartbeat_at_idx"
    # 250 updates a second enter the primary key and the index itself.
    assert "public.jobs_heartbeat_at_idx keeps 250/s updates of heartbeat_at" in finding.title
    assert "500/s index entries" in finding.title
    assert "fillfactor cannot help" in finding.why
    assert finding.remedies[0].sql[1] == "DROP INDEX CONCURRENTLY IF EXISTS public.jobs_heartbeat_at_idx;"
    assert (
        finding.remedies[0]
        .undo[1]
        .startswith("CREATE INDEX CONCURRENTLY jobs_heartbeat_at_idx ON public.jobs")
    )


@pytest.mark.parametrize(
    "index",
    [
        pytest.param(build.index(2003, "i", [4], predicate="(heartbeat_at IS NOT NULL)"), id="predicate"),
        pytest.param(build.index(2003, "i", [4], included_columns=(6,)), id="include"),
        pytest.param(
            build.index(2003, "i", [0], expressions="date_trunc('hour'::text, heartbeat_at), lower(payload)"),
            id="expression",
        ),
        pytest.param(build.index(2003, "i", [6], method="gin"), id="gin"),
        pytest.param(build.index(2003, "i", [6], valid=False), id="an invalid index is maintained too"),
    ],
)
def test_every_place_of_an_index_blocks(index: IndexRow) -> None:
    (finding,) = look(index)
    assert "updates of heartbeat_at" in finding.title


@pytest.mark.parametrize(("version", "found"), [(150000, 1), (160000, 0), (180000, 0)])
def test_brin_is_exempt_from_16(version: int, found: int) -> None:
    assert len(look(build.index(2003, "i", [6], method="brin"), version=version)) == found


@pytest.mark.parametrize(
    ("rows", "severities"), [(199, []), (200, ["notice"]), (499, ["notice"]), (500, ["warning"])]
)
def test_rates(rows: int, severities: list[str]) -> None:
    assert [one.severity for one in look(BEAT_INDEX, rows=rows)] == severities


def test_equal_values_stay_heap_only() -> None:
    assert look(BEAT_INDEX, hot=2_400) == []
    assert (
        look(BEAT_INDEX, text="UPDATE jobs SET heartbeat_at = heartbeat_at, payload = $1 WHERE id = $2") == []
    )


def test_partly_heap_only_updates_are_not_charged() -> None:
    (finding,) = look(BEAT_INDEX, hot=1_250)
    assert "keeps 125/s updates" in finding.title


def test_young_counters_do_not_drop_an_index() -> None:
    for age_s in (600.0, None):
        (finding,) = look(BEAT_INDEX, age_s=age_s)
        assert finding.severity == "warning"
        assert not any("DROP" in sql for one in finding.remedies for sql in one.sql)
        assert "never been scanned" in finding.remedies[0].title


@pytest.mark.parametrize(
    "index",
    [
        pytest.param(build.index(2003, "i", [6], unique=True), id="unique"),
        pytest.param(build.index(2003, "i", [6], constraint="no_overlap"), id="constraint"),
        pytest.param(build.index(2003, "i", [6], replica_identity=True), id="replica identity"),
    ],
)
def test_indexes_that_enforce_something_stay(index: IndexRow) -> None:
    (finding,) = look(index)
    assert not any("DROP" in sql for one in finding.remedies for sql in one.sql)


def test_index_of_a_foreign_key_stays() -> None:
    (finding,) = look(
        build.index(2003, "i", [4]),
        text="UPDATE jobs SET attempts = attempts + 1 WHERE id = $1",
        foreign_keys=(build.foreign_key("jobs_attempts_fkey", build.JOBS, 77, "attempts"),),
        tables=(build.table(), build.table(77, "tries")),
    )
    assert "jobs_attempts_fkey" in finding.remedies[0].title
    assert finding.remedies[0].kind == "application"


def test_index_that_was_scanned_stays() -> None:
    (finding,) = look(BEAT_INDEX, scans=(5, 9))
    assert "scanned 9 times, 4 of them in this window" in finding.remedies[0].title
    assert finding.remedies[0].kind == "application"


REAPER = "UPDATE jobs SET state = $1 WHERE state = $2 AND heartbeat_at < now() - $3::interval"


def test_reapers_index_is_replaced_by_one_on_the_state() -> None:
    (finding,) = look(BEAT_INDEX, scans=(5, 9), also=REAPER)
    first, second = finding.remedies
    assert first.sql == (
        "SET lock_timeout = '10min';",
        "CREATE INDEX CONCURRENTLY jobs_running_idx ON public.jobs (id) WHERE state = 'running';",
        "DROP INDEX CONCURRENTLY IF EXISTS public.jobs_heartbeat_at_idx;",
    )
    assert first.undo[1].startswith("CREATE INDEX CONCURRENTLY jobs_heartbeat_at_idx ON public.jobs")
    assert first.undo[2] == "DROP INDEX CONCURRENTLY IF EXISTS public.jobs_running_idx;"
    assert second.kind == "application"


def test_readers_of_any_state_keep_the_index() -> None:
    also = "SELECT id FROM jobs WHERE heartbeat_at < now() - $1::interval"
    (finding,) = look(BEAT_INDEX, scans=(5, 9), also=also)
    assert [one.kind for one in finding.remedies] == ["application"]


def test_claim_leaving_its_partial_index_is_a_fair_trade() -> None:
    (finding,) = look(claims=6_000, rows=0)
    assert finding.severity == "notice"
    assert finding.remedies == ()
    assert "in its predicate" in finding.why
    assert "keep it" in finding.why


@pytest.mark.parametrize(("claims", "found"), [(4_999, 0), (5_000, 1)])
def test_trade_off_is_told_only_where_it_is_large(claims: int, found: int) -> None:
    assert len(look(claims=claims, rows=0)) == found


def test_dispensable_index_beside_the_claims_own_is_not_blamed_for_the_claim() -> None:
    # Without jobs_state_idx the claim would still leave jobs_ready_idx.
    findings = look(build.index(2004, "jobs_state_idx", [2]), claims=6_000, rows=0)
    assert [one.severity for one in findings] == ["notice"]


def test_hostile_names() -> None:
    (finding,) = look(
        build.index(
            2003,
            'x"; DROP TABLE jobs; --',
            [6],
            definition='CREATE INDEX "x""; DROP TABLE jobs; --" ON public.jobs USING btree (heartbeat_at)',
        )
    )
    assert (
        finding.remedies[0].sql[1] == 'DROP INDEX CONCURRENTLY IF EXISTS public."x""; DROP TABLE jobs; --";'
    )


def test_what_only_include_mentions_is_left_out_of_a_new_index() -> None:
    covering = build.index(
        2003,
        "jobs_attempts_idx",
        [4],
        included_columns=(6, 3),
        definition="CREATE INDEX jobs_attempts_idx ON public.jobs USING btree (attempts) INCLUDE (heartbeat_at, payload)",
    )
    (finding,) = look(covering, scans=(0, 500))
    (remedy,) = finding.remedies
    assert remedy.sql[1:] == (
        "CREATE INDEX CONCURRENTLY jobs_attempts_idx_lean ON public.jobs USING btree (attempts) INCLUDE (payload);",
        "DROP INDEX CONCURRENTLY IF EXISTS public.jobs_attempts_idx;",
    )
    assert remedy.undo[1:] == (
        "CREATE INDEX CONCURRENTLY jobs_attempts_idx ON public.jobs USING btree (attempts) INCLUDE (heartbeat_at, payload);",
        "DROP INDEX CONCURRENTLY IF EXISTS public.jobs_attempts_idx_lean;",
    )
