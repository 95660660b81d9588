"""JUnit XML: what passed was looked at, and counts agree with what stands there."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree

import pytest

from pgqdoctor.engine import diagnose
from pgqdoctor.finding import SEVERITIES
from pgqdoctor.recording import last_observation
from pgqdoctor.registry import all_checks
from pgqdoctor.render import Asked, render, render_lint
from pgqdoctor.render.junit import LOOKED_FOR, READ, SERVER
from pgqdoctor.report import Crashed, Report, Skipped
from tests.golden.lint_reports import LINT_REPORTS
from tests.golden.reports import HEALTHY, HORIZON, INCOMPLETE, JOBS, NO_QUEUE, OUTBOX, REPORTS, SICK

ROOT = Path(__file__).parents[2]
RECORDINGS = sorted((ROOT / "fixtures" / "observations").glob("*.pgqd"))
COUNTED = {"failures": "failure", "errors": "error", "skipped": "skipped"}


def suites(text: str) -> dict[str, ElementTree.Element]:
    """The suites by name, after their counts were compared with their cases."""
    root = ElementTree.fromstring(text)
    assert root.tag == "testsuites"
    found = {one.attrib["name"]: one for one in root}
    assert len(found) == len(root)
    for counted, whole in ((root, root.iter("testcase")), *((one, one.iter("testcase")) for one in root)):
        cases = list(whole)
        assert counted.attrib["tests"] == str(len(cases))
        for attribute, tag in COUNTED.items():
            assert counted.attrib[attribute] == str(sum(1 for one in cases if one.find(tag) is not None))
        # Readers take the first of several outcomes, and lose the others.
        assert all(sum(1 for tag in COUNTED.values() if one.find(tag) is not None) <= 1 for one in cases)
    for suite in root:
        order = [one.tag for one in suite]
        assert order == sorted(order, key=("properties", "testcase", "system-out").index)
    return found


def suites_of(report: Report, **asked: object) -> dict[str, ElementTree.Element]:
    return suites(render(report, "junit", color=False, width=80, asked=replace(Asked(), **asked)))  # type: ignore[arg-type]


def outcome(suite: ElementTree.Element, name: str) -> str | None:
    """How a case ended, None where it passed; KeyError where there is none."""
    cases = {one.attrib["name"]: one for one in suite.iter("testcase")}
    return next((tag for tag in COUNTED.values() if cases[name].find(tag) is not None), None)


def names(suite: ElementTree.Element) -> set[str]:
    return {one.attrib["name"] for one in suite.iter("testcase")}


class TestReport:
    @pytest.mark.parametrize("name", REPORTS)
    @pytest.mark.parametrize("fail_on", [*SEVERITIES, "never"])
    def test_every_report_counts_right(self, name: str, fail_on: str) -> None:
        suites_of(REPORTS[name], fail_on=fail_on)

    @pytest.mark.parametrize("recording", RECORDINGS, ids=lambda path: str(path.stem))
    def test_every_check_has_a_case_where_it_looks(self, recording: Path) -> None:
        report = diagnose(last_observation(recording))
        found = suites_of(report)
        server = {one.id for one in all_checks() if one.scope == "server"}
        assert [*found] == [SERVER, *(one.name for one in report.queues)]
        assert names(found[SERVER]) == {LOOKED_FOR, *server}
        for queue in report.queues:
            assert names(found[queue.name]) == {one.id for one in all_checks()} - server

    @pytest.mark.parametrize(
        ("fail_on", "failing"),
        [
            ("critical", {"vacuum-horizon-held", "claim-scans-dead-rows"}),
            ("warning", {"vacuum-horizon-held", "claim-scans-dead-rows", "dead-tuples"}),
            (
                "notice",
                {"vacuum-horizon-held", "claim-scans-dead-rows", "dead-tuples", "claim-unguarded"},
            ),
            ("never", set()),
        ],
    )
    def test_findings_fail_from_fail_on_upwards(self, fail_on: str, failing: set[str]) -> None:
        jobs = suites_of(SICK, fail_on=fail_on)["public.jobs"]
        assert {one for one in names(jobs) if outcome(jobs, one) == "failure"} == failing
        milder = {one.attrib["name"] for one in jobs.iter("testcase") if one.findtext("system-out")}
        assert milder == {one.check for one in SICK.findings} - failing

    def test_two_findings_of_one_check_are_one_case(self) -> None:
        two = replace(SICK, findings=(HORIZON, replace(HORIZON, severity="notice", title="another holder")))
        jobs = suites_of(two)["public.jobs"]
        (case,) = [one for one in jobs.iter("testcase") if one.attrib["name"] == "vacuum-horizon-held"]
        assert HORIZON.title in (case.findtext("failure") or "")
        assert (case.findtext("system-out") or "").startswith("notice: another holder")

    def test_skipped_and_crashed_are_not_passed(self) -> None:
        found = suites_of(INCOMPLETE)
        jobs = found["public.jobs"]
        assert outcome(jobs, "claim-unguarded") == "skipped"
        assert outcome(jobs, "retry-storm") == "error"
        assert outcome(jobs, "dead-tuples") is None

    def test_a_skip_without_a_queue_passes_on_none(self) -> None:
        report = replace(
            HEALTHY, skipped=(Skipped(check="heap-bloat", queue=None, reason="no time", grant=None),)
        )
        found = suites_of(report)
        assert outcome(found[SERVER], "heap-bloat") == "skipped"
        assert "heap-bloat" not in names(found["public.jobs"])

    def test_a_crash_stands_where_it_happened_and_an_unclear_one_passes_nowhere(self) -> None:
        report = replace(
            HEALTHY,
            queues=(JOBS, replace(OUTBOX, name="x on public.jobs")),
            crashed=(
                Crashed(check="dead-tuples", error="ValueError: a on x on public.jobs"),
                Crashed(check="heap-bloat", error="ValueError: a"),
                Crashed(check="knobs", error="KeyError: b on public.jobs"),
            ),
        )
        found = suites_of(report)
        assert outcome(found["x on public.jobs"], "dead-tuples") == "error"
        assert outcome(found["public.jobs"], "dead-tuples") is None
        assert outcome(found[SERVER], "heap-bloat") == "error"
        assert "heap-bloat" not in names(found["public.jobs"])
        assert outcome(found["public.jobs"], "knobs") == "error"

    def test_no_queue_is_not_passed(self) -> None:
        found = suites_of(NO_QUEUE)
        assert [*found] == [SERVER]
        assert outcome(found[SERVER], LOOKED_FOR) == "skipped"

    def test_only_and_ignore_leave_no_case(self) -> None:
        found = suites_of(HEALTHY, only=("dead-tuples", "heap-bloat"), ignore=("heap-bloat",))
        assert names(found[SERVER]) == {LOOKED_FOR}
        assert names(found["public.jobs"]) == {"dead-tuples"}

    def test_the_time_is_that_of_the_window(self) -> None:
        jobs = suites_of(HEALTHY)["public.jobs"]
        assert (jobs.attrib["timestamp"], jobs.attrib["time"]) == ("2026-03-01T03:04:05", "10.012")
        assert "timestamp" not in suites_of(replace(HEALTHY, generated_at="soon"))["public.jobs"].attrib

    def test_what_xml_cannot_hold_is_left_out_and_the_rest_stays(self) -> None:
        title = "a\x00\ufffe]]> --> <b>&amp;\ud800z"
        text = render(
            replace(SICK, findings=(replace(HORIZON, title=title),)), "junit", color=False, width=80
        )
        (failure,) = ElementTree.fromstring(text).iter("failure")
        assert failure.attrib["message"] == "critical: a]]> --> <b>&amp;\ufffdz"


class TestLint:
    def suites(self, name: str, fail_on: str = "warning") -> dict[str, ElementTree.Element]:
        report, files = LINT_REPORTS[name]
        text = render_lint(report, "junit", files=files, asked=Asked(fail_on=fail_on), color=False, width=80)
        return suites(text)

    def test_a_suite_per_file_with_every_check_that_reads_files(self) -> None:
        found = self.suites("found")
        assert [*found] == [*LINT_REPORTS["found"][1]]
        lints = {one.id for one in all_checks() if one.lint is not None}
        assert all(names(one) == {READ, *lints} for one in found.values())

    def test_outcomes(self) -> None:
        found = self.suites("found")
        assert outcome(found["queue/worker.sql"], "claim-not-skip-locked") == "failure"
        assert outcome(found["queue/worker.sql"], READ) == "skipped"
        assert outcome(found["queue/tables.sql"], "duplicate-index") is None
        assert outcome(found["queue/empty.sql"], "claim-not-skip-locked") is None
        assert outcome(self.suites("found", "notice")["queue/tables.sql"], "duplicate-index") == "failure"

    def test_hostile_names(self) -> None:
        assert len(self.suites("evil")) == 4
