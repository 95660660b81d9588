"""What stands in the place of a claim's parameters."""

from __future__ import annotations

import pytest

from pgqdoctor.planning import make_explainable
from pgqdoctor.rows import ColumnRow
from tests.checks import build

BELOW = "SELECT id FROM jobs WHERE state < $1 AND state = $2 ORDER BY run_at LIMIT $3 FOR UPDATE SKIP LOCKED"
ABOVE = "SELECT id FROM jobs WHERE state > $1 AND state = $2 ORDER BY run_at LIMIT $3 FOR UPDATE SKIP LOCKED"
READY = build.index(2002, "jobs_ready_idx", [5, 1], predicate="(state = 'queued'::text)")
READY_NUMBER = build.index(2002, "jobs_ready_idx", [5, 1], predicate="(state = 1)")


def filled(text: str, state: ColumnRow, *, number: bool = False) -> dict[str, str]:
    columns = tuple(state if row.name == "state" else row for row in build.job_columns())
    indexes = (READY_NUMBER if number else READY,)
    seen = build.observation(
        of=build.catalog(columns=columns, indexes=indexes), statements={"1/10/1": (text, 5, 5)}
    )
    queue = build.the_queue(seen)
    claim = queue.claims[0]
    return make_explainable(claim.seen.statement, claim.claim, queue.identity, seen.catalog).parameters


TEXT = build.column(2, "state", common_values=("done", "queued"), common_fractions=(0.9, 0.1))
ENUM = build.column(2, "state", "job_state", "E", enum_labels=("queued", "running", "done"))
HIDING = build.column(2, "state", "job_state", "E", enum_labels=("hidden", "queued", "running", "done"))
NUMBER = build.column(2, "state", "smallint", "N")


@pytest.mark.parametrize(
    ("text", "state", "bound"),
    [
        pytest.param(BELOW, TEXT, "'queuedz'", id="a longer text sorts after its beginning"),
        pytest.param(ABOVE, TEXT, "''", id="the empty text sorts before all"),
        pytest.param(BELOW, ENUM, "'running'", id="the label after the last ready one"),
        pytest.param(ABOVE, HIDING, "'hidden'", id="the label before the first ready one"),
    ],
)
def test_bound_of_a_state_keeps_the_ready_state_in(text: str, state: ColumnRow, bound: str) -> None:
    found = filled(text, state)
    assert (found["$1"], found["$2"]) == (bound, "'queued'")


@pytest.mark.parametrize(("text", "bound"), [(BELOW, "'2'"), (ABOVE, "'0'")])
def test_bound_of_a_numeric_state(text: str, bound: str) -> None:
    found = filled(text, NUMBER, number=True)
    assert (found["$1"], found["$2"]) == (bound, "'1'")
