"""Every scenario live: the sick state yields its findings and no others, the cure removes them, look-alikes
stay silent."""

from __future__ import annotations

import time

import pytest

from pgqdoctor.collect import ObserveOptions, observe
from pgqdoctor.engine import diagnose
from pgqdoctor.finding import SEVERITIES
from pgqdoctor.lab.load import Load, scenario_database
from pgqdoctor.lab.scenario import Scenario, list_scenarios, load_scenario
from pgqdoctor.report import Report
from tests.one_voice import disagreements

WINDOW_S = 4.0
LONGEST_CURE_S = 40.0

SCENARIOS = [load_scenario(name) for name in list_scenarios()]
SICK = [one for one in SCENARIOS if one.kind == "sick"]
HEALTHY = [one for one in SCENARIOS if one.kind == "healthy"]


def look(dsn: str) -> Report:
    seen = observe(dsn, ObserveOptions(window_seconds=WINDOW_S))
    assert disagreements(seen) == []
    return diagnose(seen)


def told(report: Report) -> str:
    """What a failed assertion should show."""
    lines = [f"{one.severity} {one.key}: {one.title}" for one in report.findings]
    lines += [f"skipped {one.check} ({one.queue}): {one.reason}" for one in report.skipped]
    lines += [f"crashed {one.check}: {one.error}" for one in report.crashed]
    lines += [f"queue {one.name} {one.claim.shape}: {', '.join(one.recognised_by)}" for one in report.queues]
    return "\n".join(lines)


def harmful(report: Report) -> set[str]:
    """Checks that found something at warning or above."""
    return {
        one.check for one in report.findings if SEVERITIES.index(one.severity) <= SEVERITIES.index("warning")
    }


def settle(load: Load) -> None:
    time.sleep(load.scenario.settle_s)
    load.check()


def judge(scenario: Scenario, report: Report) -> None:
    assert not report.crashed, told(report)
    if scenario.queue is not None:
        assert scenario.queue in {one.name for one in report.queues}, told(report)
    found = harmful(report)
    assert found >= set(scenario.expected), told(report)
    assert found <= set(scenario.expected) | set(scenario.allowed), told(report)
    assert not {one.check for one in report.findings} & set(scenario.forbidden), told(report)


@pytest.mark.parametrize("scenario", SICK, ids=lambda one: one.name)
def test_sick_state_is_found_and_the_cure_removes_it(any_server: str, scenario: Scenario) -> None:
    with scenario_database(scenario, any_server) as run:
        load = run.load
        settle(load)
        report = look(load.dsn)
        judge(scenario, report)
        first = next(one for one in report.findings if one.severity != "notice")
        assert first.check in {*scenario.expected, *scenario.allowed}
        assert not first.caused_by, "a cause stands before what it causes"
        load.cure()
        until = time.monotonic() + LONGEST_CURE_S
        while True:
            time.sleep(scenario.settle_s / 2)
            after = look(load.dsn)
            if not harmful(after) & set(scenario.expected):
                break
            assert time.monotonic() < until, told(after)
        assert not after.crashed, told(after)


@pytest.mark.parametrize("scenario", HEALTHY, ids=lambda one: one.name)
def test_healthy_look_alike_stays_silent(any_server: str, scenario: Scenario) -> None:
    with scenario_database(scenario, any_server) as run:
        settle(run.load)
        report = look(run.dsn)
        judge(scenario, report)
        assert not harmful(report), told(report)
