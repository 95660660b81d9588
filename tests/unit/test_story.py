"""The chain as one sentence: how it shows, because of what, by which way."""

from __future__ import annotations

import re
from dataclasses import replace
from importlib import resources
from pathlib import Path
from typing import Any

import pytest

from pgqdoctor.causes import link_and_order
from pgqdoctor.engine import diagnose
from pgqdoctor.finding import Evidence, Finding, Severity
from pgqdoctor.recording import last_observation
from pgqdoctor.report import Report, build_report
from pgqdoctor.story import LATE_S, stories, story_of, tree_of
from tests.checks import build

QUEUE = "public.jobs"


def finding(check: str, title: str, severity: Severity = "critical", **changes: Any) -> Finding:
    known = Finding(
        check=check,
        severity=severity,
        queue=QUEUE,
        title=title,
        why="",
        evidence=(),
        remedies=(),
        relations=(build.JOBS,),
    )
    return replace(known, **changes)


def number(what: str, value: float) -> Evidence:
    return Evidence(what=what, value=value, unit="rows", source="here")


HELD = finding(
    "vacuum-horizon-held",
    "Session 4711 (reports, idle in transaction, open 4 min) holds the xmin horizon: 9,000 dead rows of public.jobs cannot be vacuumed",
    evidence=(number("dead rows it keeps", 9_000),),
)
WALKS = finding(
    "claim-scans-dead-rows",
    "Each claim of public.jobs walks over 9,000 dead index entries before it finds its job: 9,005 buffers instead of 3",
    evidence=(number("dead entries, at least", 9_000),),
)
BACKLOG = finding("backlog-growing", "The backlog of public.jobs grows by 12/s: 100 arrive", "warning")
LINE = finding(
    "lock-queue", "5 sessions at public.jobs wait for session 7 (migration, idle), up to 12 s", pids=(7,)
)
GUARD = finding(
    "claim-unguarded", "Two workers can win the same job of public.jobs: nothing checks it", "warning"
)


def report(*findings: Finding, late: float | None = 0.5) -> Report:
    seen = build.observation(
        last=build.reading(build.WINDOW_S, tables=(build.counters(dead=9_000),)),
        probes=(build.probe(oldest_ready_age_s=late),),
    )
    busy = tuple(replace(one, sessions=(build.sampled(9, query_id=1),)) for one in seen.samples)
    seen = replace(seen, samples=busy)
    return build_report(seen, link_and_order(seen, (), findings), (), ())


def test_no_finding_no_story() -> None:
    assert story_of(report()) == ""


def test_the_sentence_of_the_product() -> None:
    assert story_of(report(HELD, WALKS, BACKLOG, late=240)) == (
        "The oldest ready job of public.jobs is 4 min late, because session 4711 (reports, idle in transaction, open 4 min) holds "
        "the xmin horizon, so each claim walks 9,000 dead index entries."
    )


@pytest.mark.parametrize(("late", "said"), [(LATE_S, True), (LATE_S - 0.1, False)])
def test_a_job_is_late_from_the_longest_poll_on(late: float, said: bool) -> None:
    assert story_of(report(HELD, WALKS, BACKLOG, late=late)).startswith("The oldest ready job") is said


def test_lateness_is_not_put_down_to_what_does_not_delay() -> None:
    told = story_of(report(GUARD, late=240))
    assert told == "Two workers can win the same job of public.jobs: nothing checks it."


def test_without_a_growing_backlog_a_dear_claim_is_told_for_itself() -> None:
    told = story_of(report(HELD, WALKS, late=240))
    assert told.startswith("Session 4711")
    assert told.endswith("holds the xmin horizon, so each claim walks 9,000 dead index entries.")


def test_a_line_of_waiters_explains_lateness_by_itself() -> None:
    assert story_of(report(LINE, late=60)) == (
        "The oldest ready job of public.jobs is 60 s late, because 5 sessions at public.jobs wait for session 7 (migration, idle), "
        "up to 12 s."
    )


def test_a_horizon_alone_says_what_it_keeps() -> None:
    assert story_of(report(HELD)).endswith("holds the xmin horizon, so 9,000 dead rows cannot be vacuumed.")


def test_a_root_that_says_its_effect_says_it_once() -> None:
    entries = "46,679 dead index entries"
    walks = replace(
        WALKS,
        title=f"Each claim of public.jobs walks over at least {entries} before it finds its job: 46,685 buffers instead of 6",
        evidence=(number("dead entries, at least", 46_679),),
    )
    told = story_of(report(walks, BACKLOG, late=72))
    assert told.count(entries) == 1
    assert story_of(report(walks)) == f"{walks.title}."


def test_the_same_number_of_something_else_is_no_repetition() -> None:
    dead = finding("dead-tuples", "9,000 dead rows in public.jobs, 4.5 times autovacuum's trigger of 2,000")
    assert story_of(report(dead, WALKS)) == f"{dead.title}, so each claim walks 9,000 dead index entries."


def test_the_sentence_does_not_end_with_what_it_began_with() -> None:
    grows = replace(
        BACKLOG, title="public.jobs grows by 134/s: more than 10,000 jobs are ready, the oldest for 75 s"
    )
    assert story_of(report(grows, late=75)) == (
        "The oldest ready job of public.jobs is 75 s late, because public.jobs grows by 134/s: more than 10,000 jobs are ready."
    )


def test_nobody_takes_jobs_is_said_once() -> None:
    nobody = finding(
        "queue-unserved",
        "Nobody takes jobs from public.jobs: 3 jobs wait, the oldest for 12 min, and in 3 s none was claimed or finished",
        evidence=(number("jobs nobody takes", 3),),
    )
    told = story_of(report(nobody, late=720))
    assert told == (
        "The oldest ready job of public.jobs is 12 min late, because nobody takes jobs from public.jobs, so 3 jobs wait."
    )


def test_a_backlog_without_times_is_how_it_shows() -> None:
    title = "public.jobs grows by 100/s: 5,000 jobs are ready, 80 s of work"
    grows = replace(BACKLOG, title=title)
    assert story_of(report(HELD, WALKS, grows, late=None)) == (
        "public.jobs grows by 100/s, because session 4711 (reports, idle in transaction, open 4 min) holds the xmin horizon, "
        "so each claim walks 9,000 dead index entries."
    )
    assert story_of(report(LINE, grows, late=None)).startswith(
        "public.jobs grows by 100/s, because 5 sessions"
    )
    # A name is written as it is, at the beginning as well.
    assert story_of(report(grows, late=None)) == f"{title}."


def test_a_name_keeps_its_capital_inside_the_sentence() -> None:
    shouting = replace(LINE, title="DDL of role Ann waits: 3 s")
    assert ", because DDL of role Ann waits" in story_of(report(shouting, late=60))


def test_an_effect_is_told_once_in_the_worst_story() -> None:
    settings = finding("autovacuum-settings", "Autovacuum comes late: after 24,000 dead rows", "warning")
    found = stories(report(HELD, WALKS, settings))
    assert [one.root.check for one in found] == ["vacuum-horizon-held", "autovacuum-settings"]
    assert [len(one.effects) for one in found] == [1, 0]


def test_notices_are_no_story() -> None:
    assert stories(report(replace(GUARD, severity="notice"))) == ()


def test_the_tree_counts_the_causes_above() -> None:
    dead = finding("dead-tuples", "9,000 dead rows: too many")
    depths = {one.finding.check: one.depth for one in tree_of(report(HELD, dead, WALKS, GUARD))}
    assert depths == {
        "vacuum-horizon-held": 0,
        "dead-tuples": 1,
        "claim-scans-dead-rows": 2,
        "claim-unguarded": 0,
    }


def recordings() -> list[str]:
    with resources.as_file(resources.files("pgqdoctor.fixtures") / "observations") as home:
        return sorted(str(one) for one in home.glob("*.pgqd"))


@pytest.mark.parametrize("recording", recordings(), ids=lambda path: Path(path).stem)
def test_nothing_counted_is_said_twice(recording: str) -> None:
    """Times are left out: several sessions may have waited for as long."""
    told = story_of(diagnose(last_observation(Path(recording))))
    counted = re.findall(r"\d[\d,.]*(?!\s*(?:ms|s|min|h)\b) \w+", told)
    assert len(counted) == len(set(counted)), told
