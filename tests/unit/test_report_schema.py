"""The JSON report keeps the contract, and the committed schema describes it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import jsonschema
import msgspec
import pytest

from pgqdoctor import docs
from pgqdoctor.docs import REPORT_SCHEMA, ROOT
from pgqdoctor.render import render, render_queues
from pgqdoctor.report import Report
from tests.golden.reports import REPORTS, SICK

CONTRACT: dict[str, Any] = {
    "schema": "",
    "tool": {"name": "", "version": ""},
    "generated_at": "",
    "server": dict.fromkeys(
        ("version", "version_num", "database", "role", "in_recovery", "pooler", "started_at"), ""
    ),
    "window": {"seconds": "", "samples": ""},
    "verdict": "",
    "queues": [
        {
            "name": "",
            "framework": "",
            "recognised_by": "",
            "ready": dict.fromkeys(("predicate", "rows", "exact", "oldest_age_s"), ""),
            "claim": {
                "shape": "",
                "sql": "",
                "source": "",
                "plan": dict.fromkeys(
                    ("buffers", "rows_removed_by_filter", "rows", "time_ms", "mode", "index", "parameters"),
                    "",
                ),
            },
            "rates": dict.fromkeys(("enqueued_per_s", "claimed_per_s", "updates_per_s", "hot_ratio"), ""),
            "table": dict.fromkeys(
                ("bytes", "index_bytes", "live_rows", "dead_rows", "fillfactor", "autovacuum"), ""
            ),
        }
    ],
    "findings": [
        {
            "key": "",
            "check": "",
            "severity": "",
            "queue": "",
            "title": "",
            "why": "",
            "caused_by": "",
            "evidence": [dict.fromkeys(("what", "value", "unit", "source"), "")],
            "remedies": [
                dict.fromkeys(
                    ("title", "kind", "sql", "undo", "lock", "blocks", "restart", "risk", "expect"), ""
                )
            ],
        }
    ],
    "skipped": [dict.fromkeys(("check", "queue", "reason", "grant"), "")],
    "crashed": [dict.fromkeys(("check", "error"), "")],
}
"""The keys that scripts rely on. A key may be added here; one that is taken away breaks them."""


def missing(contract: Any, found: Any, where: str = "") -> Iterator[str]:
    if isinstance(contract, list):
        for one in found:
            yield from missing(contract[0], one, f"{where}[]")
    elif isinstance(contract, dict) and found is not None:
        for key, inside in contract.items():
            if key not in found:
                yield f"{where}.{key}"
            else:
                yield from missing(inside, found[key], f"{where}.{key}")


@pytest.fixture(scope="module")
def validator() -> jsonschema.Draft202012Validator:
    schema = json.loads((ROOT / REPORT_SCHEMA).read_text(encoding="utf-8"))
    jsonschema.Draft202012Validator.check_schema(schema)
    return jsonschema.Draft202012Validator(schema)


def test_the_committed_schema_is_that_of_the_model() -> None:
    committed = json.loads((ROOT / REPORT_SCHEMA).read_text(encoding="utf-8"))
    assert committed == json.loads(json.dumps(docs.report_schema()))
    assert committed["$id"] == "pgqdoctor.report/1"


@pytest.mark.parametrize("name", REPORTS)
class TestReports:
    def test_fits_the_schema(self, name: str, validator: jsonschema.Draft202012Validator) -> None:
        validator.validate(json.loads(render(REPORTS[name], "json", color=False, width=80)))

    def test_has_every_key_of_the_contract(self, name: str) -> None:
        found = json.loads(render(REPORTS[name], "json", color=False, width=80))
        assert list(missing(CONTRACT, found)) == []

    def test_reads_back_as_the_same_report(self, name: str) -> None:
        text = render(REPORTS[name], "json", color=True, width=80)
        assert msgspec.json.decode(text, type=Report) == REPORTS[name]

    def test_holds_no_character_that_a_terminal_obeys(self, name: str) -> None:
        text = render(REPORTS[name], "json", color=False, width=80)
        assert [letter for letter in text if not letter.isprintable() and letter != "\n"] == []


@pytest.mark.parametrize(
    ("part", "key"),
    [
        ((), "crashed"),
        ((), "schema"),
        (("server",), "pooler"),
        (("findings", 0), "key"),
        (("queues", 0), "rates"),
    ],
)
def test_the_schema_rejects_a_report_that_lacks_a_key(
    part: tuple[str | int, ...], key: str, validator: jsonschema.Draft202012Validator
) -> None:
    document = json.loads(render(SICK, "json", color=False, width=80))
    at = document
    for step in part:
        at = at[step]
    del at[key]
    with pytest.raises(jsonschema.ValidationError, match=f"'{key}' is a required property"):
        validator.validate(document)


def test_the_list_of_queues_holds_the_queues_of_the_report() -> None:
    listed = json.loads(render_queues(SICK, "json", color=False, width=80))
    report = json.loads(render(SICK, "json", color=False, width=80))
    assert listed["schema"] == "pgqdoctor.queues/1"
    assert listed["queues"] == report["queues"]
    assert "findings" not in listed
