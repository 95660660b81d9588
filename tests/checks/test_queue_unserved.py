"""Verdicts of queue-unserved without a database."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from pgqdoctor.check import ACTIVITY, CLAIMED, COUNTERS
from pgqdoctor.checks.queue_unserved import CHECK
from pgqdoctor.engine import diagnose
from pgqdoctor.finding import Finding
from pgqdoctor.finishing import finished_per_s
from pgqdoctor.observation import Lack, Observation, Sample, ServedKind, ServedProbe, StateCount, StuckProbe
from pgqdoctor.sqlread import read_sql
from pgqdoctor.triage import triage

from . import build

HOUR = 3_600.0
SOON = tuple(place / 100 for place in range(100))
"""Waits of jobs that were taken within a second."""
PRUNE = "DELETE FROM jobs WHERE state = 'done' AND run_at < now() - interval '1 day'"
FINISH_BY_UPDATE = "UPDATE jobs SET state = 'done' WHERE id = $1"
RAISE = "UPDATE jobs SET payload = payload || $1 WHERE state = $2 AND run_at < now() - $3::interval"
PROMOTE = "UPDATE jobs SET state = 'queued' WHERE state = 'scheduled' AND run_at <= now()"


def kind(waits: Sequence[float] = SOON, name: str | None = None, **changes: Any) -> ServedKind:
    known = ServedKind(
        name=name,
        jobs=len(waits),
        waits_s=tuple(sorted(waits)),
        runs_s=(1.0,) * len(waits),
        span_s=72 * HOUR,
        last_taken_age_s=1_201.0,
        waiting=240,
        waiting_s=1_200.0,
    )
    return replace(known, **changes)


def served(waits: Sequence[float] = SOON, **changes: Any) -> ServedProbe:
    """What the look told; changes of the one kind of jobs, or of the look."""
    of_kind = {name: changes.pop(name) for name in tuple(changes) if name in ServedKind.__slots__}
    kinds = (kind(waits, **of_kind),) if waits else ()
    return replace(ServedProbe(column="started_at" if waits else "", kinds=kinds), **changes)


def kinds(*found: ServedKind) -> ServedProbe:
    return ServedProbe(column="started_at", kind_column="queue", kinds=found)


def claimed(age: float, measure: str = "claimed", rows: int = 3) -> StuckProbe:
    return StuckProbe(
        measure=measure, column="started_at", rows=rows, ages_s=(age,) * rows, limit=10_000, examples=()
    )


def seen(
    probe: ServedProbe | None = None,
    *,
    ready: int = 240,
    oldest: float | None = 1_200.0,
    calls: int = 0,
    rows: int = 0,
    counters: dict[str, int] | None = None,
    statements: dict[str, tuple[str, int, int]] | None = None,
    stuck: tuple[StuckProbe, ...] = (),
    states: tuple[StateCount, ...] = (),
    lacks: tuple[Lack, ...] = (),
    **changes: Any,
) -> Observation:
    used = {"1/10/1": (build.CLAIM, calls, rows), "2/10/1": (build.FINISH, 0, 0), **(statements or {})}
    return build.observation(
        statements=used,
        last=build.reading(build.WINDOW_S, tables=(build.counters(**{"inserted": 20, **(counters or {})}),)),
        probes=(
            build.probe(
                ready_rows=ready,
                oldest_ready_age_s=oldest,
                served=probe,
                stuck=stuck,
                states=states,
                lacks=lacks,
            ),
        ),
        **changes,
    )


def look(probe: ServedProbe | None = None, **changes: Any) -> list[Finding]:
    return build.evaluated(CHECK, seen(probe, **changes))


def severity(found: list[Finding]) -> str | None:
    assert len(found) <= 1
    return found[0].severity if found else None


def polled(per_second: float, *, statements_age_s: float = 10 * HOUR) -> Observation:
    """Nobody asks now; on average so many claims a second found nothing."""
    before = round(per_second * statements_age_s)
    given = seen(served((), statements_age_s=statements_age_s))
    counted = tuple(
        replace(one, calls=before, rows=0) if one.key == "1/10/1" else one for one in given.last.statements
    )
    return replace(
        given, first=replace(given.first, statements=counted), last=replace(given.last, statements=counted)
    )


def test_gone_workers_are_told_with_what_was_usual() -> None:
    (finding,) = look(served())
    assert finding.severity == "critical"
    assert (
        finding.title
        == "Nobody takes jobs from public.jobs: 240 jobs wait, the oldest for 20 min, and in 10 s none was claimed or finished"
    )
    assert finding.why.startswith(
        "95% of 100 earlier jobs, enqueued over 3 days, were taken within a second."
    )
    (first,) = finding.remedies
    assert first.kind == "application" and first.title.startswith("Look whether the workers run")
    assert all(read_sql(one).statements and not read_sql(one).unread for one in first.sql)


def test_an_empty_queue_and_jobs_of_the_future_are_silent() -> None:
    assert look(served(), ready=0, oldest=None) == []
    assert look(None, ready=12, oldest=None) == []


@pytest.mark.parametrize(
    ("waiting_s", "jobs", "expected"),
    [
        (59.9, 240, None),
        (60.0, 240, "notice"),
        (119.9, 240, "notice"),
        (120.0, 240, "warning"),
        (899.9, 240, "warning"),
        (900.0, 240, "critical"),
        (900.0, 10, "critical"),
        (900.0, 9, "warning"),
    ],
)
def test_limits(waiting_s: float, jobs: int, expected: str | None) -> None:
    assert severity(look(served(waiting=jobs, waiting_s=waiting_s))) == expected


def test_without_any_history_it_is_a_notice_with_the_number() -> None:
    (finding,) = look(served(()))
    assert finding.severity == "notice"
    assert finding.title == "No job of public.jobs was taken in 10 s: 240 jobs wait, the oldest for 20 min"
    assert "cannot tell" in finding.why and finding.remedies == ()
    assert severity(look(None)) == "notice"


class TestBatches:
    """A queue that somebody empties in turns: in the middle of a turn its jobs wait as long as ever."""

    @pytest.mark.parametrize("period", [300.0, 24 * HOUR])
    @pytest.mark.parametrize("share", [0.3, 0.6, 0.9, 0.94])
    def test_between_two_turns_nothing_is_said(self, period: float, share: float) -> None:
        waits = tuple(period * place / 100 for place in range(100))
        waiting = period * share
        assert look(served(waits, span_s=30 * period, waiting_s=waiting), oldest=waiting) == []

    @pytest.mark.parametrize(
        ("turns", "expected"), [(1.0, "notice"), (2.0, "notice"), (2.8, "notice"), (3.0, "critical")]
    )
    def test_a_turn_that_was_missed_is_a_notice_and_several_are_more(
        self, turns: float, expected: str
    ) -> None:
        day = 24 * HOUR
        waits = tuple(day * place / 100 for place in range(100))
        found = look(served(waits, span_s=30 * day, waiting_s=day * turns), oldest=day * turns)
        assert severity(found) == expected

    def test_the_last_jobs_of_a_turn_say_nothing_of_the_time_between(self) -> None:
        # Only the last ten minutes before the batch came are still in the table; it came eight minutes ago.
        assert severity(look(served(span_s=959.9, waiting_s=480.0))) == "notice"
        assert severity(look(served(span_s=960.0, waiting_s=480.0))) == "warning"

    def test_an_earlier_outage_does_not_hide_this_one(self) -> None:
        assert severity(look(served((*SOON, *(5 * HOUR,) * 5)))) == "critical"
        assert look(served((*SOON, *(5 * HOUR,) * 6))) == []

    @pytest.mark.parametrize(("again", "expected"), [(0, "critical"), (1, "critical"), (2, "notice")])
    def test_workers_that_rest_at_night_or_at_weekends(self, again: int, expected: str) -> None:
        (finding,) = look(served(again=again))
        assert finding.severity == expected
        assert ("waited as long on 2 earlier days or weeks" in finding.why) == (expected == "notice")

    def test_few_earlier_jobs_say_nothing(self) -> None:
        assert severity(look(served((0.5,) * 19))) == "notice"
        assert severity(look(served((0.5,) * 20))) == "critical"


class TestPolls:
    """Where the table keeps nothing: claims that found nothing were somebody's who asks again and again."""

    @pytest.mark.parametrize(("per_second", "expected"), [(0.99, "notice"), (1.0, "critical")])
    def test_polls_that_ceased(self, per_second: float, expected: str) -> None:
        found = build.evaluated(CHECK, polled(per_second))
        assert severity(found) == expected
        assert ("now none comes" in found[0].why) == (expected == "critical")

    def test_claims_counted_since_a_moment_ago(self) -> None:
        assert severity(build.evaluated(CHECK, polled(50.0, statements_age_s=2_399.0))) == "notice"
        assert severity(build.evaluated(CHECK, polled(50.0, statements_age_s=2_400.0))) == "critical"

    def test_slow_polls_are_no_sign(self) -> None:
        # Ten workers that ask every 30 s: a window of 10 s should have seen three or four.
        assert severity(build.evaluated(CHECK, polled(10 / 30))) == "notice"

    def test_claims_of_a_batch_found_jobs(self) -> None:
        given = polled(5.0)
        counted = tuple(replace(one, rows=one.calls) for one in given.last.statements)
        given = replace(
            given,
            first=replace(given.first, statements=counted),
            last=replace(given.last, statements=counted),
        )
        assert severity(build.evaluated(CHECK, given)) == "notice"


class TestSignsOfLife:
    """What shows that somebody serves the queue, or may."""

    def test_jobs_taken_or_finished(self) -> None:
        assert look(served(), calls=1, rows=1, counters={"updated": 1}) == []
        assert look(served(), counters={"deleted": 1}) == []
        assert look(served(), counters={"updated": 1}) == []

    def test_pruning_and_promotion_are_no_workers(self) -> None:
        assert (
            severity(look(served(), counters={"deleted": 50}, statements={"7/10/1": (PRUNE, 1, 50)}))
            == "critical"
        )
        assert (
            severity(look(served(), counters={"updated": 5}, statements={"8/10/1": (PROMOTE, 9, 5)}))
            == "critical"
        )
        assert look(served(), counters={"updated": 7}, statements={"8/10/1": (PROMOTE, 9, 5)}) == []

    @pytest.mark.parametrize(
        "text",
        [
            "DELETE FROM jobs WHERE id IN (SELECT id FROM jobs WHERE state = 'done' ORDER BY run_at LIMIT 20)",
            "DELETE FROM jobs WHERE id IN (SELECT id FROM jobs WHERE finished_at < $1 LIMIT $2)",
            "DELETE FROM jobs WHERE id IN (SELECT id FROM jobs WHERE state = $1 ORDER BY finished_at LIMIT $2)",
            "DELETE FROM jobs WHERE state = $1 AND finished_at < now() - $2::interval",
        ],
    )
    def test_a_cleaner_is_no_worker(self, text: str) -> None:
        columns = (*build.job_columns(), build.column(90, "finished_at", "timestamp with time zone", "D"))
        cleaned = seen(
            served(),
            counters={"deleted": 220},
            statements={"7/10/1": (text, 10, 200), "2/10/1": (FINISH_BY_UPDATE, 0, 0)},
            of=build.catalog(columns=columns),
        )
        assert severity(build.evaluated(CHECK, cleaned)) == "critical"
        assert finished_per_s(build.the_queue(cleaned)) == 0.0
        (queue,) = triage(cleaned)[1].queues
        assert queue.state == "stopped"

    def test_changing_jobs_that_wait_is_no_work(self) -> None:
        raised = seen(served(), counters={"updated": 550}, statements={"7/10/1": (RAISE, 5, 500)})
        assert severity(build.evaluated(CHECK, raised)) == "critical"
        (queue,) = triage(raised)[1].queues
        assert queue.state == "stopped"
        # A worker that tells how far its job is knows the key.
        progress = "UPDATE jobs SET payload = $1 WHERE id = $2"
        assert look(served(), counters={"updated": 5}, statements={"7/10/1": (progress, 5, 5)}) == []

    def test_what_exceeds_the_late_counters_is_work(self) -> None:
        swept = {"7/10/1": (PRUNE, 10, 200)}
        # 200 deleted in ten executions: a second's worth and two executions are 60.
        assert severity(look(served(), counters={"deleted": 260}, statements=swept)) == "critical"
        assert look(served(), counters={"deleted": 261}, statements=swept) == []

    def test_slow_pollers_that_find_nothing(self) -> None:
        (finding,) = look(served(), calls=4)
        assert finding.severity == "notice" and "4 claims ran and found none of them" in finding.why
        assert look(served(), calls=5) == []  # claim-empty-polls says why

    def test_a_session_at_a_claim(self) -> None:
        one = build.sampled(31, 0, state="idle in transaction")
        samples = tuple(Sample(at=float(at), sessions=(one,)) for at in range(10))
        assert look(served(), samples=samples, texts=(build.CLAIM,)) == []

    @pytest.mark.parametrize("text", [PRUNE, RAISE.replace("$1", "'{}'").replace("$2", "'queued'")])
    def test_a_session_that_clears_away_or_changes_what_waits(self, text: str) -> None:
        samples = (Sample(at=1.0, sessions=(build.sampled(31, 0, state="active"),)),)
        assert severity(look(served(), samples=samples, texts=(text,))) == "critical"

    def test_sessions_that_wait_for_a_lock_make_it_a_notice(self) -> None:
        one = build.sampled(31, 0, wait_type="Lock", wait_event="relation")
        samples = tuple(Sample(at=float(at), sessions=(one,)) for at in range(10))
        (finding,) = look(served(), samples=samples, texts=(build.CLAIM,))
        assert finding.severity == "notice" and finding.pids == (31,)

    @pytest.mark.parametrize(
        ("probe", "expected"),
        [
            (claimed(119.0, "heartbeat"), "notice"),
            (claimed(120.0, "heartbeat"), "critical"),
            (claimed(-1.0, "lease"), "notice"),
            (claimed(1.0, "lease"), "critical"),
            (claimed(59.9), "notice"),
            (claimed(60.0), "critical"),
        ],
    )
    def test_jobs_at_work(self, probe: StuckProbe, expected: str) -> None:
        assert severity(look(served(), stuck=(probe,))) == expected

    def test_long_jobs_stay_at_work_as_long_as_they_usually_do(self) -> None:
        long = served(runs_s=(1_000.0,) * 100)
        assert severity(look(long, stuck=(claimed(9_999.0),))) == "notice"
        assert severity(look(long, stuck=(claimed(10_000.0),))) == "critical"
        unknown = served(runs_s=())
        assert severity(look(unknown, stuck=(claimed(3_599.0),))) == "notice"
        assert severity(look(unknown, stuck=(claimed(3_600.0),))) == "critical"

    @pytest.mark.parametrize(
        ("run", "expected"), [((119.0,) * 100, "critical"), ((120.0,) * 100, "notice"), ((), "notice")]
    )
    def test_jobs_at_work_that_cannot_be_looked_at(self, run: tuple[float, ...], expected: str) -> None:
        dear = (Lack(what=CLAIMED, reason="no index serves it"),)
        assert severity(look(served(runs_s=run), lacks=dear)) == expected

    def test_no_row_is_at_work(self) -> None:
        lacks = (Lack(what=CLAIMED, reason="the state of a job at work could not be told"),)
        given = polled(5.0)

        def told(*states: StateCount) -> str | None:
            probes = (replace(given.probes[0], lacks=lacks, states=states),)
            return severity(build.evaluated(CHECK, replace(given, probes=probes)))

        ready = StateCount(value="queued", rows=240, exact=True)
        assert told(ready) == "critical"
        assert told(replace(ready, exact=False)) == "notice"
        assert told(ready, StateCount(value="elsewhere", rows=1, exact=True)) == "notice"
        assert told() == "notice"

    def test_running_jobs_of_unknown_age(self) -> None:
        running = (StateCount(value="running", rows=2, exact=True),)
        (finding,) = look(served(), states=running)
        assert (finding.severity == "notice") == bool(build.the_queue(seen()).identity.running_values)

    def test_a_connected_worker_that_asked_since(self) -> None:
        (finding,) = look(served(connected=1, last_asked_s=30.0))
        assert finding.severity == "notice" and "a connected worker asked 30 s ago" in finding.why
        assert severity(look(served(connected=1, last_asked_s=1_300.0))) == "critical"
        unseen = (Lack(what=CLAIMED, reason="no column tells which jobs are claimed"),)
        assert severity(look(served(connected=1, last_asked_s=1_300.0), lacks=unseen)) == "notice"

    @pytest.mark.parametrize(
        ("newest_s", "inserted", "expected"),
        [
            (8 * 24 * HOUR - 1, 0, "critical"),
            (8 * 24 * HOUR, 0, "notice"),
            (90 * 24 * HOUR, 1, "critical"),
            (60.0, 0, "critical"),
        ],
    )
    def test_a_queue_that_is_out_of_use(self, newest_s: float, inserted: int, expected: str) -> None:
        age = 91 * 24 * HOUR
        left = served(newest_s=newest_s, waiting_s=age, span_s=3 * age)
        (finding,) = look(left, oldest=age, counters={"inserted": inserted})
        assert finding.severity == expected
        assert ("the queue may be out of use" in finding.why) == (expected == "notice")

    @pytest.mark.parametrize(
        ("table", "claim", "expected"),
        [
            ("orders", "UPDATE orders SET state = $1 WHERE id = $2 AND state = $3", "notice"),
            ("jobs", "UPDATE jobs SET state = $1 WHERE id = $2 AND state = $3", "critical"),
            ("orders", build.CLAIM.replace("jobs", "orders"), "critical"),
        ],
    )
    def test_rows_that_people_may_take(self, table: str, claim: str, expected: str) -> None:
        given = build.observation(
            statements={"1/10/1": (claim, 0, 0)},
            of=build.catalog(tables=(build.table(name=table),)),
            probes=(build.probe(ready_rows=240, oldest_ready_age_s=1_200.0, served=served()),),
        )
        (finding,) = build.evaluated(CHECK, given)
        assert finding.severity == expected
        assert ("as people do" in finding.why) == (expected == "notice")

    def test_a_queue_out_of_use_whose_table_keeps_no_times(self) -> None:
        given = polled(5.0, statements_age_s=400 * 24 * HOUR)

        def told(oldest: float, inserted: int) -> str | None:
            probes = (replace(given.probes[0], oldest_ready_age_s=oldest),)
            tables = (build.counters(inserted=inserted),)
            changed = replace(given, probes=probes, last=replace(given.last, tables=tables))
            return severity(build.evaluated(CHECK, changed))

        assert told(8 * 24 * HOUR, 0) == "notice"
        assert told(8 * 24 * HOUR, 1) == told(7 * 24 * HOUR, 0) == "critical"

    def test_a_paused_queue(self) -> None:
        (finding,) = look(served(paused="public.river_queue.paused_at"))
        assert finding.severity == "notice" and "paused by public.river_queue.paused_at" in finding.why

    def test_a_job_left_over_while_those_after_it_are_taken(self) -> None:
        after = served(last_taken_age_s=30.0, waiting=0, waiting_s=None)
        assert look(after, oldest=500_000.0, ready=3) == []

    def test_sessions_that_cannot_be_seen(self) -> None:
        hidden = (Lack(what=ACTIVITY, reason="other roles' sessions are hidden"),)
        given = replace(seen(served()), lacks=hidden)
        assert severity(build.evaluated(CHECK, given)) == "notice"


class TestKinds:
    """Several queues in one table: each is judged by its own jobs."""

    NIGHTLY = kind(tuple(24 * HOUR * place / 100 for place in range(100)), "reports", waiting_s=8 * HOUR)
    GONE = kind(SOON, "mails", waiting=40)
    FRESH = kind(SOON, "orders", waiting=1, waiting_s=0.5)

    def test_one_kind_is_drained_at_night_and_the_other_is_served(self) -> None:
        assert look(kinds(self.NIGHTLY, self.FRESH), oldest=8 * HOUR) == []

    def test_one_kind_is_drained_at_night_and_the_other_is_not_served_any_more(self) -> None:
        (finding,) = look(kinds(self.NIGHTLY, self.GONE), oldest=8 * HOUR)
        assert finding.severity == "critical"
        assert finding.title.startswith(
            "Nobody takes jobs from public.jobs where queue = 'mails': 40 jobs wait, the oldest for 20 min"
        )

    def test_both_are_not_served(self) -> None:
        (finding,) = look(kinds(self.GONE, replace(self.GONE, name="sms", waiting=2)))
        assert finding.title.startswith("Nobody takes jobs from public.jobs: 42 jobs wait")

    def test_others_are_taken(self) -> None:
        (finding,) = look(kinds(self.GONE, self.FRESH), calls=9, rows=9)
        assert finding.severity == "notice"
        assert finding.title.startswith(
            "Jobs of public.jobs where queue = 'mails' are passed over while others are taken: 40 jobs wait"
        )
        assert look(kinds(self.NIGHTLY, self.FRESH), calls=9, rows=9, oldest=8 * HOUR) == []
        assert look(kinds(kind(SOON[:5], "new"), self.FRESH), calls=9, rows=9) == []

    def test_hostile_names_are_quoted(self) -> None:
        evil = replace(self.GONE, name="x'); DROP TABLE jobs; --" + "y" * 60)
        (finding,) = look(kinds(evil, self.FRESH))
        assert "where queue = 'x''); DROP TABLE jobs; --" in finding.title
        assert len(finding.title) < 220


def test_a_standby_is_skipped() -> None:
    given = replace(
        seen(served()), lacks=(Lack(what=COUNTERS, reason="a standby counts its own reads only"),)
    )
    report = diagnose(given, only=("queue-unserved",))
    assert report.findings == () and [one.check for one in report.skipped] == ["queue-unserved"]


def test_a_table_known_by_its_shape_only_is_not_accused() -> None:
    given = seen(served())
    given = replace(given, queues=tuple(replace(one, certain=False) for one in given.queues))
    assert diagnose(given, only=("queue-unserved",)).findings == ()


def test_the_growing_backlog_is_its_effect() -> None:
    report = diagnose(
        seen(served(), counters={}, statements={"3/10/1": (build.ENQUEUE, 20, 20)}),
        only=("queue-unserved", "backlog-growing"),
    )
    by_check = {one.check: one for one in report.findings}
    assert by_check["backlog-growing"].caused_by == ("queue-unserved:public.jobs",)
    assert by_check["queue-unserved"].caused_by == ()


def test_triage_begins_with_the_workers_and_leaves_the_server_alone() -> None:
    _, shown = triage(seen(served()))
    assert shown.root is not None and shown.root.check == "queue-unserved"
    assert shown.story == (
        "The oldest ready job of public.jobs is 20 min late, because nobody takes jobs from public.jobs, so 240 jobs wait."
    )
    assert shown.queues[0].state == "stopped"
    assert shown.steps[0].title.startswith("Look whether the workers run")
    assert {one.what for one in shown.avoid} >= {"restart or tune PostgreSQL", "enqueue the late jobs again"}
