"""What claim-shaped statements are for, where the constants are gone: no database."""

from __future__ import annotations

from dataclasses import replace

import pytest

from pgqdoctor.discover import discover
from pgqdoctor.discovery.seen import SeenText, seen_texts
from pgqdoctor.explaining import explain
from pgqdoctor.observation import PlanProbe, QueueIdentity
from tests.checks import build

CLAIM = (
    "UPDATE jobs SET state = $1, attempts = attempts + $2 WHERE id = (SELECT id FROM jobs WHERE state = $3 AND run_at <= now() "
    "ORDER BY run_at LIMIT $4 FOR UPDATE SKIP LOCKED) RETURNING id"
)
BARE_CLAIM = "UPDATE jobs SET state = $1 WHERE id = (SELECT id FROM jobs WHERE state = $2 ORDER BY id LIMIT $3 FOR UPDATE SKIP LOCKED)"
FINISHERS = {
    "deletes": "DELETE FROM jobs WHERE id = (SELECT id FROM jobs WHERE state = $1 LIMIT $2 FOR UPDATE SKIP LOCKED)",
    "updates": "UPDATE jobs SET state = $1 WHERE id = (SELECT id FROM jobs WHERE state = $2 LIMIT $3 FOR UPDATE SKIP LOCKED)",
    "clears": "DELETE FROM jobs WHERE id IN (SELECT id FROM jobs WHERE state = $1 ORDER BY id LIMIT $2 FOR UPDATE SKIP LOCKED) RETURNING id",
    "archives": "WITH d AS (DELETE FROM jobs WHERE id IN (SELECT id FROM jobs WHERE state = $1 ORDER BY id LIMIT $2 FOR UPDATE SKIP LOCKED) "
    "RETURNING *) INSERT INTO jobs_archive SELECT * FROM d RETURNING id",
}
SWEEPS = {
    "puts back": "UPDATE jobs SET state = $1 WHERE id IN (SELECT id FROM jobs WHERE state = $2 AND run_at < now() - $3::interval "
    "ORDER BY run_at LIMIT $4 FOR UPDATE SKIP LOCKED) RETURNING id",
    "tries again": "UPDATE jobs SET state = $1, attempts = attempts + $2 WHERE id IN (SELECT id FROM jobs WHERE state = $3 AND run_at <= now() "
    "ORDER BY run_at LIMIT $4 FOR UPDATE SKIP LOCKED) RETURNING id",
}


def found(*statements: tuple[str, int, int], sent: tuple[str, ...] = ()) -> QueueIdentity:
    """Discover the queue; statements are (text, calls, rows) of the window."""
    texts = tuple(
        SeenText(key=f"{number}/10/1", text=text, weight=calls, rows=rows, source="pg_stat_statements")
        for number, (text, calls, rows) in enumerate(statements, 1)
    )
    (identity,) = discover(build.catalog(), texts, moving=frozenset({build.JOBS}), sent=sent)
    return identity


@pytest.mark.parametrize("other", FINISHERS.values(), ids=FINISHERS)
@pytest.mark.parametrize("calls", [100, 10_000])
def test_what_finishes_or_clears_is_no_second_claim(other: str, calls: int) -> None:
    identity = found((other, calls, calls), (CLAIM, 1_000, 1_000))
    assert identity.claim_sql == CLAIM
    assert (identity.claim_keys, identity.other_keys) == (("2/10/1",), ("1/10/1",))


@pytest.mark.parametrize("other", SWEEPS.values(), ids=SWEEPS)
@pytest.mark.parametrize(("calls", "rows"), [(250, 250), (2_000, 0)])
def test_what_sweeps_seldom_or_in_vain_is_none(other: str, calls: int, rows: int) -> None:
    identity = found((other, calls, rows), (CLAIM, 1_000, 1_000))
    assert identity.claim_keys == ("2/10/1",)


def test_a_second_way_to_claim_stays() -> None:
    batch = CLAIM.replace("id = (", "id IN (")
    identity = found((batch, 251, 251), (CLAIM, 1_000, 1_000))
    assert set(identity.claim_keys) == {"1/10/1", "2/10/1"}
    assert identity.other_keys == ()


@pytest.mark.parametrize("other", FINISHERS.values(), ids=FINISHERS)
def test_the_only_statement_of_its_form_is_the_claim_while_nothing_tells_better(other: str) -> None:
    assert found((other, 100, 100)).other_keys == ()


@pytest.mark.parametrize(
    ("text", "sent"),
    [
        (
            FINISHERS["deletes"],
            "DELETE FROM jobs WHERE id = (SELECT id FROM jobs WHERE state = 'running' LIMIT 1 FOR UPDATE SKIP LOCKED)",
        ),
        (
            FINISHERS["clears"],
            "DELETE FROM jobs WHERE id IN (SELECT id FROM jobs WHERE state = 'done' ORDER BY id LIMIT 9 FOR UPDATE SKIP LOCKED) RETURNING id",
        ),
        (
            SWEEPS["tries again"],
            "UPDATE jobs SET state = 'queued', attempts = attempts + 1 WHERE id IN (SELECT id FROM jobs WHERE state = 'failed' AND run_at <= now() "
            "ORDER BY run_at LIMIT 10 FOR UPDATE SKIP LOCKED) RETURNING id",
        ),
        (
            SWEEPS["tries again"],
            "UPDATE jobs SET state = 'queued', attempts = attempts + 1 WHERE id IN (SELECT id FROM jobs WHERE state = 'scheduled' AND run_at <= now() "
            "ORDER BY run_at LIMIT 10 FOR UPDATE SKIP LOCKED) RETURNING id",
        ),
        (
            FINISHERS["updates"] + " RETURNING id",
            "UPDATE jobs SET state = 'done' WHERE id = (SELECT id FROM jobs WHERE state = 'running' LIMIT 1 FOR UPDATE SKIP LOCKED) RETURNING id",
        ),
    ],
    ids=["finishes", "clears", "tries again", "makes ready", "finishes and returns"],
)
def test_what_a_session_sent_tells_where_its_rows_come_from(text: str, sent: str) -> None:
    identity = found((text, 5_000, 5_000), (BARE_CLAIM, 1_000, 1_000), sent=(sent,))
    assert identity.claim_keys == ("2/10/1",)
    assert identity.other_keys == ("1/10/1",)


def test_one_entry_that_stands_for_both_is_a_claim() -> None:
    running = BARE_CLAIM.replace("$1", "'running'").replace("$2", "'queued'").replace("$3", "1")
    done = BARE_CLAIM.replace("$1", "'done'").replace("$2", "'running'").replace("$3", "1")
    assert found((BARE_CLAIM, 100, 100), sent=(done, running)).claim_keys == ("1/10/1",)
    assert found((BARE_CLAIM, 100, 100), sent=(done,)).claim_keys == ()


def test_a_number_in_the_place_of_a_limit_is_no_sign() -> None:
    """LIMIT 10 and nothing returned is how rows are pruned, but these get their next time."""
    text = (
        "WITH c AS MATERIALIZED (SELECT id FROM jobs WHERE run_at <= now() ORDER BY run_at LIMIT $1 FOR UPDATE SKIP LOCKED) "
        "UPDATE jobs SET run_at = now() + $2::interval FROM c WHERE jobs.id = c.id"
    )
    sent = text.replace("$1", "10").replace("$2", "'3 s'")
    assert found((text, 100, 1_000), sent=(sent,)).claim_keys == ("1/10/1",)


def test_a_job_that_is_tried_again_by_its_worker_is_claimed() -> None:
    again = CLAIM.replace("$1", "'running'").replace("$2", "1").replace("$3", "'failed'").replace("$4", "1")
    assert found((CLAIM, 100, 100), sent=(again,)).claim_keys == ("1/10/1",)


def test_the_state_that_a_session_asked_for_is_ready() -> None:
    """A state that few rows have stands in no statistics, and a default may say something else."""
    columns = tuple(
        replace(one, default_expression="'draft'::text", common_values=("done",), common_fractions=(1.0,))
        if one.name == "state"
        else one
        for one in build.job_columns()
    )
    catalog = build.catalog(columns=columns, indexes=())
    sent = CLAIM.replace("$1", "'working'").replace("$2", "1").replace("$3", "'eligible'").replace("$4", "1")
    (identity,) = discover(
        catalog,
        seen_texts((build.statement("1/10/1", CLAIM),), {}, ()),
        moving=frozenset({build.JOBS}),
        sent=(sent,),
    )
    assert identity.ready_values == ("eligible",)
    assert identity.running_values == ("working",)
    assert identity.ready_predicate == "state = 'eligible' AND run_at <= now()"
    assert identity.claim_sql == CLAIM


def test_no_check_and_no_rate_counts_what_finishes() -> None:
    seen = build.observation(
        statements={"1/10/1": (CLAIM, 100, 100), "2/10/1": (FINISHERS["deletes"], 100, 100)},
    )
    assert [one.seen.key for one in build.the_queue(seen).claims] == ["1/10/1"]


def test_no_index_is_advised_for_a_claim_whose_state_nobody_saw() -> None:
    batch = (
        CLAIM.replace("id = (", "id IN (").replace(" AND run_at <= now()", "").replace("ORDER BY run_at ", "")
    )
    document = (
        '[{"Plan": {"Node Type": "Limit", "Actual Rows": 1, "Actual Loops": 1, "Plan Rows": 1, "Total Cost": 9, "Startup Cost": 0, '
        '"Shared Hit Blocks": 900, "Shared Read Blocks": 0, "Plans": [{"Node Type": "Seq Scan", "Relation Name": "jobs", "Schema": "public", '
        '"Alias": "jobs", "Filter": "(state = \'queued\'::text)", "Rows Removed by Filter": 30000, "Actual Rows": 1, "Actual Loops": 1, '
        '"Plan Rows": 1, "Total Cost": 9, "Startup Cost": 0, "Shared Hit Blocks": 900, "Shared Read Blocks": 0}]}}]'
    )
    seen = build.observation(
        statements={"1/10/1": (CLAIM, 100, 100), "2/10/1": (batch, 90, 90)},
        of=build.catalog(indexes=()),
        probes=(
            build.probe(
                plans=tuple(
                    PlanProbe(mode="select", sql=text, document=document, statement=text)
                    for text in (CLAIM, batch)
                )
            ),
        ),
    )
    own, other = explain(seen).queues[0].plans
    assert own.index is not None
    assert other.index is None
