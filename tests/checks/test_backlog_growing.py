"""Verdicts of backlog-growing without a database."""

from __future__ import annotations

from dataclasses import replace

import pytest

from pgqdoctor.checks.backlog_growing import CHECK
from pgqdoctor.engine import diagnose
from pgqdoctor.finding import Finding
from pgqdoctor.observation import Lack, Observation, ServedKind, ServedProbe

from . import build


def look(
    arrived: int, taken: int, ready: int = 3_000, oldest: float | None = 600.0, exact: bool = True
) -> list[Finding]:
    last = build.reading(build.WINDOW_S, tables=(build.counters(inserted=arrived),))
    return build.evaluated(
        CHECK,
        build.observation(
            statements={"1/10/1": (build.CLAIM, max(taken, 1), taken)},
            last=last,
            probes=(build.probe(ready_rows=ready, ready_exact=exact, oldest_ready_age_s=oldest),),
        ),
    )


def test_growth_is_told_with_numbers() -> None:
    (finding,) = look(600, 200)
    assert finding.severity == "warning"
    assert finding.title == "public.jobs grows by 40/s: 3,000 jobs are ready, the oldest for 10 min"
    assert "add 200% more workers" in finding.remedies[0].title
    assert "more than 10,000 jobs are ready" in look(600, 200, ready=10_000, exact=False)[0].title


@pytest.mark.parametrize(
    ("arrived", "taken", "ready", "oldest", "severity"),
    [
        (600, 200, 99, 600.0, None),
        (600, 200, 100, 600.0, "warning"),
        (600, 200, 3_000, 59.9, None),
        (600, 200, 3_000, 60.0, "warning"),
        (600, 200, 3_000, 899.0, "warning"),
        (600, 200, 3_000, 900.0, "critical"),
        (19, 10, 3_000, 600.0, None),
        (20, 10, 3_000, 600.0, "warning"),
        (1_000, 901, 3_000, 600.0, None),
        (1_000, 900, 3_000, 600.0, "warning"),
        (600, 900, 3_000, 600.0, None),
    ],
)
def test_limits(arrived: int, taken: int, ready: int, oldest: float | None, severity: str | None) -> None:
    assert [one.severity for one in look(arrived, taken, ready, oldest)] == (
        [] if severity is None else [severity]
    )


def test_nothing_is_taken_at_all() -> None:
    (finding,) = look(600, 0)
    assert finding.remedies == ()


# --- jobs that are taken by statements which do not look like it

SETTLE = "UPDATE jobs SET state = $1, attempts = attempts + $2 WHERE id = $3"
RAISE = "UPDATE jobs SET payload = payload || $1 WHERE state = $2 AND run_at < now() - $3::interval"
SWEEP = "DELETE FROM jobs WHERE id IN (SELECT id FROM jobs WHERE state = 'done' ORDER BY run_at LIMIT 20)"


def unseen(
    *statements: tuple[str, int, int],
    arrived: int = 200,
    updated: int = 0,
    deleted: int = 0,
    claimed: int = 0,
    served: ServedProbe | None = None,
    oldest: float = 600.0,
) -> Observation:
    """A queue whose claim took ``claimed`` jobs in the window, none for 0, and where other statements ran."""
    entries = {"1/10/1": (build.CLAIM, claimed, claimed)}
    entries |= {f"{place}/10/1": one for place, one in enumerate(statements, 2)}
    tables = (build.counters(inserted=arrived, updated=updated, deleted=deleted),)
    probe = build.probe(ready_rows=400, oldest_ready_age_s=oldest, served=served)
    return build.observation(
        statements=entries, last=build.reading(build.WINDOW_S, tables=tables), probes=(probe,)
    )


@pytest.mark.parametrize(
    "seen",
    [
        pytest.param(unseen((SETTLE, 200, 200), updated=200), id="settled by key in the same request"),
        pytest.param(unseen(updated=400), id="claimed and finished through a view"),
        pytest.param(unseen(updated=200, deleted=200), id="claimed through a view and deleted"),
        pytest.param(unseen(updated=200, claimed=100), id="half of them claimed through a view"),
    ],
)
def test_an_unseen_claim_is_not_none(seen: Observation) -> None:
    findings, (reason,) = told(seen)
    assert findings == []
    assert "rows changed by statements that were not seen to take jobs" in reason


@pytest.mark.parametrize(
    "seen",
    [
        pytest.param(unseen(), id="nothing changed"),
        pytest.param(unseen((SETTLE, 50, 50), updated=50), id="fewer changed than arrived"),
        pytest.param(
            unseen((RAISE, 5, 1_000), updated=1_100),
            id="jobs that wait were changed and stayed ready, counted late",
        ),
        pytest.param(
            unseen((SWEEP, 10, 200), deleted=220), id="only finished ones were cleared away, counted late"
        ),
        pytest.param(
            unseen((SETTLE, 100, 100), updated=200, claimed=100),
            id="a claim, and updates that finish its jobs",
        ),
    ],
)
def test_what_can_be_no_claim_does_not_hide_growth(seen: Observation) -> None:
    findings, reasons = told(seen)
    assert [one.severity for one in findings] == ["warning"]
    assert reasons == []


def test_between_two_turns_of_a_batch() -> None:
    def kept(waits: tuple[float, ...], oldest: float) -> ServedProbe:
        kind = ServedKind(
            name=None,
            jobs=len(waits),
            waits_s=waits,
            runs_s=(),
            span_s=3_600.0,
            last_taken_age_s=oldest,
            waiting=400,
            waiting_s=oldest,
        )
        return ServedProbe(column="started_at", kinds=(kind,))

    turns = tuple(float(place) for place in range(120))
    assert told(unseen(served=kept(turns, 90.0), oldest=90.0)) == ([], [])
    assert told(unseen(served=kept(turns, 130.0), oldest=130.0)) == ([], [])
    for waits, oldest in (((0.2,) * 120, 90.0), (turns, 400.0), (turns[-19:], 90.0)):
        assert len(told(unseen(served=kept(waits, oldest), oldest=oldest))[0]) == 1
    # Some are taken all the while: this is no pause.
    assert len(told(unseen(served=kept(turns, 90.0), oldest=90.0, claimed=100))[0]) == 1


# --- jobs without a time of their own


def by_counters(
    arrived: int,
    taken: int,
    ready: int,
    *,
    exact: bool = True,
    inserts: tuple[tuple[int, int], ...] = (),
    queued: float = 0.2,
    seconds: float = build.WINDOW_S,
) -> Observation:
    """The queue without a column that tells since when; ``inserts`` are (calls, rows); 200,000 rows, of which ``queued`` wait."""
    columns = tuple(
        replace(row, common_fractions=(0.9 - queued, queued, 0.1)) if row.name == "state" else row
        for row in build.job_columns()
    )
    entries = {"1/10/1": (build.CLAIM, max(taken, 1), taken)}
    for place, (calls, rows) in enumerate(inserts, 2):
        entries[f"{place}/10/1"] = (f"INSERT INTO jobs (payload) SELECT $1 LIMIT {place}", calls, rows)
    return build.observation(
        statements=entries,
        of=build.catalog(tables=(build.table(rows=200_000.0),), columns=columns),
        last=build.reading(seconds, tables=(build.counters(inserted=arrived),)),
        probes=(build.probe(ready_rows=ready, ready_exact=exact, oldest_ready_age_s=None),),
    )


def told(seen: Observation) -> tuple[list[Finding], list[str]]:
    """What the check finds, and why it could not judge."""
    report = diagnose(seen, only=("backlog-growing",))
    return build.evaluated(CHECK, seen), [one.reason for one in report.skipped]


def test_the_counters_tell_where_the_jobs_do_not() -> None:
    (finding,), skipped = told(by_counters(1_500, 500, 5_000))
    # 4,000 were there before the window; at 50 per second they take 80 s.
    assert finding.severity == "warning"
    assert (
        finding.title
        == "public.jobs grows by 100/s: 5,000 jobs are ready, 80 s of work at the rate at which they are taken"
    )
    assert "No column tells since when" in finding.why
    assert skipped == []


def test_beyond_the_look_the_statistics_tell_how_many() -> None:
    (finding,), skipped = told(by_counters(5_000, 3_000, 10_000, exact=False))
    assert "more than 10,000 jobs are ready, 2 min of work" in finding.title
    assert skipped == []


def test_what_cannot_be_judged_is_said() -> None:
    assert told(by_counters(5_000, 3_000, 10_000, exact=False, queued=0.0)) == (
        [],
        [
            "no column tells since when a job is ready, and the look at ready jobs ends at 10,000, too few to tell how long they wait"
        ],
    )
    assert told(by_counters(500, 0, 5_000)) == (
        [],
        ["no column tells since when a job is ready, and none was seen to be taken"],
    )


def test_an_unknown_condition_is_told_as_not_looked_at() -> None:
    seen = by_counters(1_500, 500, 5_000)
    lack = Lack(what="ready", reason="the condition for a ready job could not be told")
    blind = replace(seen, probes=(build.probe(ready_rows=None, oldest_ready_age_s=None, lacks=(lack,)),))
    assert told(blind) == ([], [lack.reason])


@pytest.mark.parametrize(
    "seen",
    [
        pytest.param(by_counters(1_500, 500, 3_999), id="less than a minute of work was there"),
        pytest.param(by_counters(5_000, 10, 5_050), id="a producer that has just begun"),
        pytest.param(by_counters(20_500, 500, 28_000, inserts=((1, 20_000), (500, 500))), id="one batch"),
        pytest.param(by_counters(20_500, 500, 28_000, inserts=((2, 20_000), (500, 500))), id="two batches"),
        pytest.param(
            by_counters(20_500, 500, 28_000, inserts=((0, 0), (500, 500))),
            id="a batch of before, counted late",
        ),
        pytest.param(by_counters(500, 1_000, 9_000), id="a backlog that shrinks"),
        pytest.param(by_counters(1_000, 950, 9_000), id="as many taken as arrive"),
        pytest.param(by_counters(600, 500, 9_000, seconds=3.0), id="within the delay of the counters"),
        pytest.param(by_counters(1_500, 500, 0), id="nothing is ready"),
        pytest.param(by_counters(500, 0, 99), id="an archive, of which hardly a row is ready"),
    ],
)
def test_healthy_look_alikes_without_a_time(seen: Observation) -> None:
    assert told(seen) == ([], [])


def test_batches_that_come_again_and_again_are_a_rate() -> None:
    assert len(told(by_counters(1_500, 500, 5_000, inserts=((3, 1_500),)))[0]) == 1
