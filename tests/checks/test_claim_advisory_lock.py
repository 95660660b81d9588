"""Verdicts of claim-advisory-lock without a database."""

from __future__ import annotations

import pytest

from pgqdoctor.checks.claim_advisory_lock import CHECK
from pgqdoctor.finding import Finding
from pgqdoctor.observation import PlanProbe
from pgqdoctor.rows import LockRow

from . import build, plans

RISKY = "SELECT id FROM jobs WHERE state = $1 AND pg_try_advisory_lock(id) ORDER BY attempts LIMIT $2"
CHOSEN = "SELECT id FROM (SELECT id FROM jobs WHERE state = $1 ORDER BY attempts LIMIT 1) q WHERE pg_try_advisory_lock(id)"
FILTER = "((state = 'queued'::text) AND pg_try_advisory_lock(id))"


def lock(pid: int, number: int, **changes: object) -> LockRow:
    return LockRow(
        pid=pid,
        locktype="advisory",
        database=5,
        relation=None,
        mode="ExclusiveLock",
        granted=True,
        wait_age_s=None,
        classid=0,
        objid=number,
        blocked_by=(),
    )


def look(text: str = RISKY, locks: int = 0, plan: PlanProbe | None = None, calls: int = 100) -> list[Finding]:
    last = build.reading(build.WINDOW_S, locks=tuple(lock(71, number) for number in range(locks)))
    plans_seen = () if plan is None else (plan,)
    return build.evaluated(
        CHECK,
        build.observation(
            statements={"1/10/1": (text, calls, calls)}, last=last, probes=(build.probe(plans=plans_seen),)
        ),
    )


def sorted_after() -> PlanProbe:
    scan = plans.scan("Seq Scan", rows=300, index=None, Filter=FILTER)
    return plans.limited(plans.above("Sort", scan, rows=1, **{"Sort Key": ["attempts"]}), analyzed=False)


def ordered() -> PlanProbe:
    return plans.limited(plans.scan(Filter=FILTER), analyzed=False)


@pytest.mark.parametrize(
    ("locks", "severity"), [(19, None), (20, "warning"), (999, "warning"), (1_000, "critical")]
)
def test_locks_that_pile_up(locks: int, severity: str | None) -> None:
    assert [one.severity for one in look(locks=locks, plan=ordered())] == (
        [] if severity is None else [severity]
    )


def test_session_is_named_and_the_statement_corrected() -> None:
    (finding,) = look(locks=300)
    assert (
        finding.title
        == "The claim of public.jobs calls pg_try_advisory_lock for each row it scans: session 71 holds 300 advisory locks"
    )
    assert finding.pids == (71,)
    assert finding.remedies[0].sql == (
        "SELECT id FROM jobs WHERE state = 'queued' ORDER BY attempts LIMIT $2 FOR NO KEY UPDATE SKIP LOCKED;",
    )


def test_sort_behind_the_function_is_a_notice_before_harm_is_done() -> None:
    (finding,) = look(plan=sorted_after())
    assert finding.severity == "notice"
    assert "its plan sorts after the function has been called" in finding.title


def test_ordered_scan_stops_at_the_first_lock() -> None:
    assert look(plan=ordered()) == []


def test_function_on_the_row_already_chosen() -> None:
    assert look(CHOSEN, locks=300) == []


def test_locks_of_others_beside_a_claim_that_skips() -> None:
    assert look(build.CLAIM, locks=300) == []


def test_not_run_in_the_window() -> None:
    assert look(locks=300, calls=0) == []
