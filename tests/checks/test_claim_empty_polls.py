"""Verdicts of claim-empty-polls without a database."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from pgqdoctor.checks.claim_empty_polls import CHECK
from pgqdoctor.finding import Finding
from pgqdoctor.observation import PlanProbe, Sample, ServedKind, ServedProbe

from . import build, plans

POLL = "SELECT id FROM jobs WHERE state = $1 ORDER BY id LIMIT $2"
GUARDED = "UPDATE jobs SET state = $1 WHERE id = $2 AND state = $3"


def look(
    calls: int,
    won: int,
    *more: tuple[str, int, int],
    ms: float = 0.006,
    claim: str = build.CLAIM,
    plan: PlanProbe | None = None,
    **probe: Any,
) -> list[Finding]:
    statements = [(claim, calls, won), *more]
    used = {f"{number}/10/1": one for number, one in enumerate(statements, 1)}
    last = build.reading(
        build.WINDOW_S,
        statements=tuple(
            build.calls(key, count, rows, total_ms=count * ms) for key, (_, count, rows) in used.items()
        ),
    )
    first = build.reading(0.0, statements=tuple(build.calls(key, 0) for key in used))
    known: dict[str, Any] = {
        "ready_rows": 0,
        "oldest_ready_age_s": None,
        "plans": () if plan is None else (plan,),
        **probe,
    }
    return build.evaluated(
        CHECK,
        replace(build.observation(statements=used, first=first, last=last, probes=(build.probe(**known),))),
    )


def test_nobody_asks() -> None:
    assert look(0, 0) == []


def test_storm() -> None:
    (finding,) = look(20_000, 20)
    assert finding.severity == "warning"
    assert finding.title == "99.9% of the claims of public.jobs find nothing: 1,998/s, 1% of a core"
    assert finding.remedies[0].sql == ("LISTEN jobs_ready;", "NOTIFY jobs_ready;")


@pytest.mark.parametrize(
    ("calls", "won", "severity"),
    [
        (1_999, 0, None),
        (2_000, 0, "warning"),
        (4_000, 1_000, "warning"),
        (4_000, 1_001, None),
        (99_999, 0, "warning"),
        (100_000, 0, "critical"),
    ],
)
def test_limits(calls: int, won: int, severity: str | None) -> None:
    assert [one.severity for one in look(calls, won, ms=0.001)] == ([] if severity is None else [severity])


def test_slow_polls_of_a_few_workers() -> None:
    assert look(60, 0) == []


@pytest.mark.parametrize(
    ("ms", "severity"), [(9.9, None), (10.1, "warning"), (99.0, "warning"), (100.1, "critical")]
)
def test_dear_polls_hurt_at_any_rate(ms: float, severity: str | None) -> None:
    assert [one.severity for one in look(100, 0, ms=ms)] == ([] if severity is None else [severity])


def test_batches_are_counted_by_their_rows() -> None:
    assert look(4_000, 40_000) == []


def test_looks_before_a_guarded_update_are_polls_and_lost_races_are_not() -> None:
    assert len(look(20, 20, (POLL, 20_000, 20), claim=GUARDED)) == 1
    assert look(20_000, 20, (POLL, 20_000, 20_000), claim=GUARDED) == []


def ready_plan(found: int) -> PlanProbe:
    return plans.limited(plans.scan(rows=found))


def test_everything_is_locked() -> None:
    (finding,) = look(60, 0, ready_rows=500, oldest_ready_age_s=600.0, plan=ready_plan(1))
    assert finding.severity == "critical"
    assert finding.key == "claim-empty-polls:public.jobs:starved"
    assert (
        "find nothing although 500 jobs are ready: other transactions hold the locks of all of them"
        in finding.title
    )
    assert finding.remedies == ()


def test_other_conditions_shut_the_jobs_out() -> None:
    (finding,) = look(60, 0, ready_rows=500, oldest_ready_age_s=600.0, plan=ready_plan(0))
    assert "the claim's other conditions shut them out" in finding.title


def test_cause_is_open_without_a_measured_plan() -> None:
    (finding,) = look(60, 0, ready_rows=10_000, ready_exact=False, oldest_ready_age_s=600.0)
    assert "although more than 10,000 jobs are ready: they are locked, or" in finding.title


@pytest.mark.parametrize(
    ("calls", "won", "age", "found"),
    [
        (4, 0, 600.0, 0),
        (5, 0, 600.0, 1),
        (5, 1, 600.0, 0),
        (60, 0, 9.9, 0),
        (60, 0, 10.0, 1),
        (60, 0, None, 1),
    ],
)
def test_limits_of_starving(calls: int, won: int, age: float | None, found: int) -> None:
    assert len(look(calls, won, ready_rows=500, oldest_ready_age_s=age)) == found


BY_QUEUE = (
    "UPDATE jobs SET state = $1 WHERE id = (SELECT id FROM jobs WHERE state = $2 AND queue = {} "
    "ORDER BY run_at, id LIMIT $4 FOR UPDATE SKIP LOCKED) RETURNING id"
)


def of_kind(name: str, jobs: int) -> ServedProbe:
    """200 jobs of one kind wait, and so many of it were seen that were taken before."""
    one = ServedKind(
        name=name, jobs=jobs, waits_s=(0.1,) * jobs, runs_s=(), span_s=900.0, last_taken_age_s=700.0, waiting=200, waiting_s=600.0
    )  # fmt: skip
    return ServedProbe(column="started_at", kind_column="queue", kinds=(one,))


def starved(claim: str, served: ServedProbe | None, *samples: Sample, plan: int | None = 0) -> Finding:
    used = {"1/10/1": (claim, 60, 0)}
    given = build.observation(
        statements=used,
        samples=samples,
        of=build.catalog(columns=(*build.job_columns(), build.column(7, "queue"))),
        probes=(
            build.probe(
                ready_rows=200,
                oldest_ready_age_s=600.0,
                served=served,
                plans=() if plan is None else (ready_plan(plan),),
            ),
        ),
    )
    (finding,) = build.evaluated(CHECK, given)
    return finding


@pytest.mark.parametrize(
    ("claim", "served", "severity"),
    [
        # Nobody was ever seen to take a dead letter.
        (BY_QUEUE.format("$3"), of_kind("dead", 0), "notice"),
        (BY_QUEUE.format("'mails'"), of_kind("dead", 0), "notice"),
        (BY_QUEUE.format("$3"), of_kind("dead", 19), "notice"),
        (BY_QUEUE.format("$3"), None, "notice"),
        # These were taken until a while ago, or are just those that the claim names.
        (BY_QUEUE.format("$3"), of_kind("mails", 20), "critical"),
        (BY_QUEUE.format("'mails'"), of_kind("mails", 0), "critical"),
        (BY_QUEUE.format("'mail'"), of_kind("mails", 20), "critical"),
        # This one takes jobs of every kind.
        (build.CLAIM, of_kind("dead", 0), "critical"),
    ],
)
def test_jobs_of_a_kind_that_nobody_asks_for(claim: str, served: ServedProbe | None, severity: str) -> None:
    finding = starved(claim, served)
    assert finding.severity == severity
    assert finding.key.endswith(":other-kinds" if severity == "notice" else ":starved")


def test_dead_letters_are_not_taken_for_locked_ones() -> None:
    # The parameter was filled in from a ready job, so that this plan finds one.
    finding = starved(BY_QUEUE.format("$3"), of_kind("dead", 0), plan=1)
    assert finding.severity == "notice" and "200 jobs that are ready may be of another queue" in finding.title


@pytest.mark.parametrize(
    ("xid_age", "open_s", "severity"), [(None, 60.0, "notice"), (9, 9.9, "notice"), (9, 10.0, "critical")]
)
def test_a_writer_that_stays_open_may_hold_all_locks(
    xid_age: int | None, open_s: float, severity: str
) -> None:
    one = build.sampled(7, state="idle in transaction", xid_age=xid_age, xact_age_s=open_s)
    finding = starved(BY_QUEUE.format("$3"), None, Sample(at=1.0, sessions=(one,)), plan=1)
    assert finding.severity == severity
