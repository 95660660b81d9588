"""``lab storm`` at small size: the fault leaves its sign, the cure does not."""

from __future__ import annotations

from pathlib import Path

from pgqdoctor.lab.ground import embedded_ground
from pgqdoctor.lab.results import StormResult
from pgqdoctor.lab.storm import StormOptions, storm
from pgqdoctor.lab.storms import STORMS
from tests.server.lab import ground_in, notebook, quiet

SECONDS = 1.0


def by_state(cells: tuple[StormResult, ...]) -> dict[tuple[str, str], StormResult]:
    return {(cell.storm, cell.state): cell for cell in cells}


def test_each_fault_leaves_its_sign_and_its_cure_does_not(database: str, tmp_path: Path) -> None:
    options = StormOptions(workers=(6,), seconds=SECONDS)
    with ground_in(database) as ground:
        cells = tuple(storm((ground,), options, notebook(tmp_path, StormResult), quiet))
    found = by_state(cells)
    assert len(cells) == 2 * len(STORMS)
    for cell in cells:
        assert cell.transactions > 10
        assert cell.transactions_per_s > 0
        assert cell.samples == sum(cell.waits.values())
        assert 0 < cell.p50_ms <= cell.p99_ms
    savepoint = found["savepoint", "sick"]
    assert 0.5 < savepoint.multixacts_per_s / savepoint.transactions_per_s < 2, "one for each claim"
    assert found["savepoint", "cured"].multixacts_per_s < savepoint.multixacts_per_s / 20
    shared = found["share-lock", "sick"]
    assert shared.multixacts_per_s > shared.transactions_per_s / 10
    assert found["share-lock", "cured"].multixacts_per_s < shared.multixacts_per_s / 20
    parent = found["foreign-key", "sick"]
    assert parent.multixacts_per_s > parent.transactions_per_s / 2
    held, committed = found["held-transaction", "sick"], found["held-transaction", "cured"]
    assert held.waits.get("idle in transaction", 0) > committed.waits.get("idle in transaction", 0)
    snapshot, free = found["idle-snapshot", "sick"], found["idle-snapshot", "cured"]
    assert snapshot.buffers_per_transaction > 2 * free.buffers_per_transaction


def test_two_servers_stand_side_by_side(database: str, tmp_path: Path) -> None:
    options = StormOptions(
        storms=tuple(one for one in STORMS if one.name == "notify"), workers=(2,), seconds=SECONDS
    )
    with ground_in(database) as first, embedded_ground(workers=2) as second:
        cells = tuple(storm((first, second), options, notebook(tmp_path, StormResult), quiet))
    assert [cell.state for cell in cells] == ["sick", "sick", "cured", "cured"]
    assert [cell.server for cell in cells] == [first.facts.version, second.facts.version] * 2
