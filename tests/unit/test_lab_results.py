"""The JSON of the lab: its shape is the interface, and it can be read back."""

from __future__ import annotations

import json
from typing import get_args

import pytest

from pgqdoctor.errors import USAGE, PgqdoctorError
from pgqdoctor.lab.results import Experiment, from_json, to_json
from tests.unit.lab_results import lab_result

EXPERIMENTS: tuple[Experiment, ...] = get_args(Experiment)
PROMISED = (
    *("strategy", "workers", "jobs", "claims_per_s", "distinct_jobs_per_s", "duplicate_claims"),
    *("wasted_attempts", "p50_ms", "p95_ms", "p99_ms", "buffers_per_claim"),
)


@pytest.mark.parametrize("experiment", EXPERIMENTS)
def test_a_result_can_be_read_back(experiment: Experiment) -> None:
    result = lab_result(experiment)
    assert from_json(to_json(result)) == result


def test_the_race_has_the_promised_members() -> None:
    document = json.loads(to_json(lab_result("race")))
    assert list(document)[:2] == ["schema", "experiment"]
    assert document["schema"] == "pgqdoctor.lab/1"
    assert document["experiment"] == "race"
    assert document["tool"] == {"name": "pgqdoctor", "version": "1.0"}
    assert document["machine"]["cpus"] == 2
    assert document["server"]["settings"]["fsync"] == "off"
    for one in document["results"]:
        assert list(one)[: len(PROMISED)] == list(PROMISED)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "must be JSON"),
        ("[]", "has the schema pgqdoctor.lab/1"),
        ('{"schema": "pgqdoctor.report/1"}', "this one 'pgqdoctor.report/1'"),
        ('{"schema": "pgqdoctor.lab/1"}', "cannot be read"),
        (
            '{"schema": "pgqdoctor.lab/1", "experiment": "race", "results": [{}], "tool": {}}',
            "cannot be read",
        ),
    ],
)
def test_other_documents_are_refused(text: str, said: str) -> None:
    with pytest.raises(PgqdoctorError, match=said) as caught:
        from_json(text)
    assert caught.value.exit_code == USAGE
