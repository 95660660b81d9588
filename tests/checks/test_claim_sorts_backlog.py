"""Verdicts of claim-sorts-backlog without a database."""

from __future__ import annotations

from typing import Any

import pytest

from pgqdoctor.checks.claim_sorts_backlog import CHECK
from pgqdoctor.finding import Finding
from pgqdoctor.observation import PlanProbe

from . import build, plans

PRIMARY = (build.index(2001, "jobs_pkey", [1], unique=True, primary=True, constraint="jobs_pkey"),)
CASE = (
    "UPDATE jobs SET state = $1 WHERE id = (SELECT id FROM jobs WHERE state = $2 ORDER BY CASE payload WHEN $3 THEN $4 ELSE $5 END, run_at "
    "LIMIT $6 FOR UPDATE SKIP LOCKED) RETURNING id"
)


def sorting(rows: int, key: str = "run_at", **options: Any) -> PlanProbe:
    scan = plans.scan("Seq Scan", rows=rows, index=None, buffers=max(rows // 50, 1), **{"Plan Rows": rows})
    sort = plans.above(
        "Sort",
        scan,
        rows=1,
        **{
            "Sort Key": [key, "id"],
            "Sort Method": "top-N heapsort",
            "Sort Space Used": 25,
            "Sort Space Type": "Memory",
        },
    )
    return plans.limited(sort, **options)


def look(
    plan: PlanProbe,
    calls: int = 10,
    claim: str = build.CLAIM,
    temp: int = 0,
    indexes: tuple[Any, ...] = PRIMARY,
) -> list[Finding]:
    seen = build.observation(
        statements={"1/10/1": (claim, calls, calls)},
        first=build.reading(0.0, statements=(build.calls("1/10/1", 0),)),
        last=build.reading(
            build.WINDOW_S, statements=(build.calls("1/10/1", calls, temp_blocks_written=temp * calls),)
        ),
        of=build.catalog(indexes=indexes),
        probes=(build.probe(plans=(plan,)),),
    )
    return build.evaluated(CHECK, seen)


def test_no_sort() -> None:
    assert look(plans.limited(plans.scan())) == []


@pytest.mark.parametrize(
    ("rows", "calls", "severity"),
    [
        (999, 10_000, None),
        (1_000, 299, "notice"),
        (1_000, 300, "warning"),
        (19_999, 1, "notice"),
        (20_000, 1, "warning"),
        (99_999, 1, "warning"),
        (100_000, 1, "critical"),
        (50_000, 300, "critical"),
    ],
)
def test_limits(rows: int, calls: int, severity: str | None) -> None:
    assert [one.severity for one in look(sorting(rows), calls)] == ([] if severity is None else [severity])


def test_index_in_the_claims_order() -> None:
    (finding,) = look(sorting(30_000))
    assert (
        finding.title
        == "Each claim of public.jobs sorts 30,000 ready jobs to take the first: no index is in the order of run_at, id"
    )
    assert (
        finding.remedies[0].sql[1]
        == "CREATE INDEX CONCURRENTLY jobs_ready_idx ON public.jobs (run_at, id) WHERE state = 'queued';"
    )
    assert not any("work_mem" in one.title + " ".join(one.sql) for one in finding.remedies)


def test_spill_is_told_and_is_a_warning() -> None:
    (finding,) = look(sorting(1_000), temp=1_280)
    assert finding.severity == "warning"
    assert "writing 10 MB to disk" in finding.title


def test_computed_order_is_asked_group_by_group() -> None:
    (finding,) = look(sorting(30_000, key="(CASE payload WHEN 'a' THEN 0 ELSE 1 END)"), claim=CASE)
    (remedy,) = finding.remedies
    assert remedy.kind == "application"
    assert "AND payload = $" in remedy.sql[0]
    assert "CASE" not in remedy.sql[0]
    assert "ORDER BY run_at LIMIT" in remedy.sql[0]


def test_existing_index_is_not_made_twice() -> None:
    there = build.index(2002, "jobs_todo", [5, 1], predicate="(state = 'queued'::text)")
    assert look(sorting(30_000), indexes=(*PRIMARY, there))[0].remedies == ()


def test_claim_that_did_not_come_to_an_end_is_judged_by_what_is_expected() -> None:
    (finding,) = look(sorting(300_000, analyzed=False, timed_out=True))
    assert finding.severity == "critical"
    assert "sorts about 300,000 ready jobs" in finding.title
    assert look(sorting(300_000, analyzed=False)) == []


AGING = CASE.replace(
    "CASE payload WHEN $3 THEN $4 ELSE $5 END, run_at",
    "attempts + extract(epoch FROM now() - run_at) / $3 DESC",
)


def test_a_rank_that_moves_is_kept_in_a_column_that_stands_still() -> None:
    (finding,) = look(sorting(30_000, key="(attempts + ...)"), claim=AGING)
    (remedy,) = finding.remedies
    assert remedy.title.startswith("Keep the rank in a column of its own that stands still")
    assert remedy.sql == ()


def test_a_random_order_is_left_out() -> None:
    text = AGING.replace("attempts + extract(epoch FROM now() - run_at) / $3 DESC", "random()")
    (finding,) = look(sorting(30_000, key="(random())"), claim=text)
    assert finding.remedies[0].title.startswith("Leave ORDER BY random() out")


READY = "(state = 'queued'::text)"


@pytest.mark.parametrize(
    ("order", "keys", "descending", "predicate", "served"),
    [
        ("attempts DESC, run_at", "attempts DESC, run_at", (True, False), READY, True),
        ("attempts DESC, run_at", "attempts, run_at DESC", (False, True), READY, True),
        ("attempts DESC, run_at", "attempts, run_at", (False, False), READY, False),
        ("attempts DESC NULLS LAST, run_at", "attempts DESC, run_at", (True, False), READY, False),
        ("attempts DESC NULLS LAST, run_at", "attempts DESC NULLS LAST, run_at", (True, False), READY, True),
        (
            "attempts DESC NULLS LAST, run_at DESC",
            "attempts NULLS FIRST, run_at",
            (False, False),
            READY,
            True,
        ),
        ("attempts, run_at", "attempts, run_at", (False, False), "(state = 'done'::text)", False),
        (
            "attempts, run_at",
            "attempts, run_at",
            (False, False),
            "(state = ANY (ARRAY['queued'::text, 'retry'::text]))",
            True,
        ),
    ],
)
def test_an_index_serves_only_in_its_order_and_with_its_rows(
    order: str, keys: str, descending: tuple[bool, ...], predicate: str, served: bool
) -> None:
    there = build.index(
        2002,
        "jobs_todo",
        [4, 5],
        predicate=predicate,
        descending=descending,
        definition=f"CREATE INDEX jobs_todo ON public.jobs USING btree ({keys}) WHERE {predicate}",
    )
    claim = build.CLAIM.replace("ORDER BY run_at, id", f"ORDER BY {order}")
    (finding,) = look(sorting(30_000), claim=claim, indexes=(*PRIMARY, there))
    assert (finding.remedies == ()) == served
