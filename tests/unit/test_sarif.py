"""SARIF: what readers rely on, by a schema of the parts in use, and that nothing unseen looks healthy."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from pgqdoctor.engine import diagnose
from pgqdoctor.recording import last_observation
from pgqdoctor.registry import all_checks
from pgqdoctor.render import Asked, render, render_lint
from pgqdoctor.report import Report
from tests.golden.lint_reports import LINT_REPORTS
from tests.golden.reports import HORIZON, INCOMPLETE, REPORTS, SICK

ROOT = Path(__file__).parents[2]
RECORDINGS = sorted((ROOT / "fixtures" / "observations").glob("*.pgqd"))

TEXT = {"type": "object", "required": ["text"], "properties": {"text": {"type": "string", "minLength": 1}}}
LEVEL = {"enum": ["none", "note", "warning", "error"]}


def closed(required: list[str], **properties: Any) -> dict[str, Any]:
    return {
        "type": "object",
        "required": required,
        "additionalProperties": False,
        "properties": properties,
    }


LOCATION = closed(
    [],
    id={"type": "integer", "minimum": -1},
    message=TEXT,
    logicalLocations={
        "type": "array",
        "items": closed(
            ["fullyQualifiedName", "kind"], fullyQualifiedName={"type": "string"}, kind={"type": "string"}
        ),
    },
    physicalLocation=closed(
        ["artifactLocation", "region"],
        artifactLocation=closed(
            ["uri"],
            # RFC 3986: no blank, no control, nothing beyond ASCII.
            uri={"type": "string", "pattern": "^[!#-;=?-~]+$"},
            uriBaseId={"type": "string"},
        ),
        region=closed(
            ["startLine"],
            startLine={"type": "integer", "minimum": 1},
            startColumn={"type": "integer", "minimum": 1},
        ),
    ),
)
LOCATIONS = {"type": "array", "items": LOCATION}
# The parts of https://docs.oasis-open.org/sarif/sarif/v2.1.0/ that are written here, and no others.
SCHEMA = closed(
    ["$schema", "version", "runs"],
    **{"$schema": {"type": "string", "format": "uri"}},
    version={"const": "2.1.0"},
    runs={
        "type": "array",
        "minItems": 1,
        "maxItems": 1,
        "items": closed(
            ["tool", "invocations", "results"],
            tool=closed(
                ["driver"],
                driver=closed(
                    ["name", "version", "rules"],
                    name={"const": "pgqdoctor"},
                    version={"type": "string"},
                    rules={
                        "type": "array",
                        "uniqueItems": True,
                        "items": closed(
                            ["id"],
                            id={"type": "string"},
                            shortDescription=TEXT,
                            fullDescription=TEXT,
                            help={**TEXT, "required": ["text", "markdown"]},
                            helpUri={"type": "string", "format": "uri"},
                            defaultConfiguration=closed(["level"], level=LEVEL),
                            properties={"type": "object"},
                        ),
                    },
                ),
            ),
            automationDetails=closed(["id"], id={"type": "string"}),
            columnKind={"enum": ["utf16CodeUnits", "unicodeCodePoints"]},
            invocations={
                "type": "array",
                "items": closed(
                    ["executionSuccessful"],
                    executionSuccessful={"type": "boolean"},
                    endTimeUtc={"type": "string", "format": "date-time"},
                    toolExecutionNotifications={
                        "type": "array",
                        "items": closed(
                            ["level", "message"],
                            level=LEVEL,
                            message=TEXT,
                            locations=LOCATIONS,
                            associatedRule=closed(
                                ["id", "index"],
                                id={"type": "string"},
                                index={"type": "integer", "minimum": 0},
                            ),
                        ),
                    },
                ),
            },
            results={
                "type": "array",
                "items": closed(
                    ["ruleId", "ruleIndex", "level", "message", "locations", "partialFingerprints"],
                    ruleId={"type": "string"},
                    ruleIndex={"type": "integer", "minimum": 0},
                    level=LEVEL,
                    message=TEXT,
                    locations=LOCATIONS,
                    relatedLocations=LOCATIONS,
                    partialFingerprints={"type": "object", "additionalProperties": {"type": "string"}},
                    properties={"type": "object"},
                ),
            },
            properties={"type": "object"},
        ),
    },
)


def run_of(report: Report, *, only: tuple[str, ...] = ()) -> dict[str, Any]:
    return checked(render(report, "sarif", color=False, width=80, asked=Asked(only=only)))


def lint_run(name: str) -> dict[str, Any]:
    report, files = LINT_REPORTS[name]
    return checked(
        render_lint(report, "sarif", files=files, asked=Asked(fail_on="warning"), color=False, width=80)
    )


def checked(text: str) -> dict[str, Any]:
    """The run, after the schema and what no schema says: indexes lead to the rule that is named."""
    log = json.loads(text)
    jsonschema.Draft202012Validator(SCHEMA).validate(log)
    run: dict[str, Any] = log["runs"][0]
    ids = [one["id"] for one in run["tool"]["driver"]["rules"]]
    assert len(ids) == len(set(ids))
    for one in run["results"]:
        assert ids[one["ruleIndex"]] == one["ruleId"]
    for one in run["invocations"][0]["toolExecutionNotifications"]:
        if "associatedRule" in one:
            assert ids[one["associatedRule"]["index"]] == one["associatedRule"]["id"]
    return run


class TestReport:
    @pytest.mark.parametrize("name", REPORTS)
    def test_every_report_fits_the_schema(self, name: str) -> None:
        run_of(REPORTS[name])

    @pytest.mark.parametrize("recording", RECORDINGS, ids=lambda path: str(path.stem))
    def test_every_recording_does_and_loses_no_finding(self, recording: Path) -> None:
        report = diagnose(last_observation(recording))
        run = run_of(report)
        assert [one["partialFingerprints"] for one in run["results"]] == [
            {"pgqdoctorFinding/v1": one.key} for one in report.findings
        ]
        assert [one["id"] for one in run["tool"]["driver"]["rules"]] == [one.id for one in all_checks()]

    def test_levels_follow_severities(self) -> None:
        assert [one["level"] for one in run_of(SICK)["results"]] == ["error", "warning", "error", "note"]

    def test_a_result_names_its_table_and_its_causes(self) -> None:
        result = run_of(SICK)["results"][1]
        table = [{"fullyQualifiedName": "public.jobs", "kind": "table"}]
        assert result["locations"] == [{"logicalLocations": table}]
        assert result["properties"]["causedBy"] == [HORIZON.key]
        assert result["relatedLocations"] == [
            {"id": 0, "logicalLocations": table, "message": {"text": f"because of: {HORIZON.title}"}}
        ]

    def test_a_finding_of_the_server_names_the_database(self) -> None:
        alone = replace(SICK, findings=(replace(HORIZON, queue=None),))
        assert run_of(alone)["results"][0]["locations"] == [
            {"logicalLocations": [{"fullyQualifiedName": "app", "kind": "database"}]}
        ]

    def test_what_could_not_look_is_said_and_a_crash_is_no_success(self) -> None:
        invocation = run_of(INCOMPLETE)["invocations"][0]
        assert invocation["executionSuccessful"] is False
        said = [
            (one.get("associatedRule", {}).get("id"), one["level"])
            for one in invocation["toolExecutionNotifications"]
        ]
        assert said == [
            ("retry-storm", "error"),
            ("stale-statistics", "error"),
            *[(one.check, "warning") for one in INCOMPLETE.skipped],
            (None, "note"),
        ]
        crashed = invocation["toolExecutionNotifications"][0]["locations"]
        assert crashed == [{"logicalLocations": [{"fullyQualifiedName": "public.jobs", "kind": "table"}]}]
        assert run_of(SICK)["invocations"][0]["executionSuccessful"] is True

    def test_rules_are_the_checks_that_ran(self) -> None:
        rules = run_of(replace(SICK, findings=()), only=("dead-tuples",))["tool"]["driver"]["rules"]
        assert [one["id"] for one in rules] == ["dead-tuples"]
        (check,) = [one for one in all_checks() if one.id == "dead-tuples"]
        assert rules[0]["shortDescription"]["text"] == check.title
        assert rules[0]["helpUri"] == check.references[0]
        assert all(" ".join(one.split()) in rules[0]["help"]["markdown"] for one in check.look_alikes)

    def test_no_name_makes_a_link_or_the_place_of_an_argument(self) -> None:
        title = "[x](javascript:1) {0} [y] (z)"
        run = run_of(replace(SICK, findings=(replace(HORIZON, title=title, why="w"),)))
        assert run["results"][0]["message"]["text"] == "[x]\u200b(javascript:1) {{0}} [y] (z). w"

    def test_a_time_that_is_none_is_left_out(self) -> None:
        assert "endTimeUtc" in run_of(SICK)["invocations"][0]
        assert "endTimeUtc" not in run_of(replace(SICK, generated_at="soon"))["invocations"][0]


class TestLint:
    @pytest.mark.parametrize("name", LINT_REPORTS)
    def test_every_result_fits_the_schema(self, name: str) -> None:
        run = lint_run(name)
        lints = [one.id for one in all_checks() if one.lint is not None]
        assert [one["id"] for one in run["tool"]["driver"]["rules"]] == lints

    def test_a_result_names_file_line_and_column(self) -> None:
        run = lint_run("found")
        assert run["results"][0]["locations"] == [
            {
                "physicalLocation": {
                    "artifactLocation": {"uri": "queue/tables.sql", "uriBaseId": "%SRCROOT%"},
                    "region": {"startLine": 9, "startColumn": 3},
                }
            }
        ]

    def test_two_faults_alike_have_two_fingerprints_without_lines(self) -> None:
        first, second = (
            one["partialFingerprints"]["pgqdoctorFinding/v1"] for one in lint_run("found")["results"][1:]
        )
        assert first.endswith(":1")
        assert second == first.removesuffix(":1") + ":2"

    def test_what_was_not_read_is_said(self) -> None:
        (said,) = lint_run("found")["invocations"][0]["toolExecutionNotifications"]
        assert said["level"] == "warning"
        assert said["locations"][0]["physicalLocation"]["region"] == {"startLine": 30}

    def test_files_are_addresses(self) -> None:
        places = [
            one["locations"][0]["physicalLocation"]["artifactLocation"] for one in lint_run("evil")["results"]
        ]
        assert places[0]["uri"].startswith("a%2Cb%3Ac%250A%3A%3Aerror")
        assert places[1:] == [{"uri": "../up/a%20b.sql"}, {"uri": "file:///srv/a.sql"}]
