"""Who needs an index: claims, unlocked polls, and the partitions behind a partitioned table's index."""

from __future__ import annotations

import pytest

from pgqdoctor import indexfacts
from pgqdoctor.rows import IndexRow
from tests.checks import build

POLL = "SELECT id FROM jobs WHERE state = $1 ORDER BY run_at LIMIT $2"
TAKE = "UPDATE jobs SET state = $1, attempts = attempts + 1 WHERE id = $2"
LEAVES = (1001, 1002)


def made_on(table: int, oid: int, name: str, where: str = "(state = 'queued'::text)") -> IndexRow:
    return build.index(
        oid,
        name,
        [5, 1],
        predicate=where,
        table=table,
        definition=f"CREATE INDEX {name} ON public.t USING btree (run_at, id) WHERE {where}",
    )


def test_index_of_an_unlocked_poll_is_needed() -> None:
    seen = build.observation(statements={"1/10/1": (POLL, 100, 100), "2/10/1": (TAKE, 100, 100)})
    queue = build.the_queue(seen)
    index = queue.index("jobs_ready_idx")
    assert not queue.claims and index is not None
    assert indexfacts.serves_claim(queue, index)


@pytest.mark.parametrize(
    ("where", "counterparts"),
    [("(state = 'queued'::text)", 2), ("(state = 'done'::text)", 0)],
)
def test_scans_of_a_partitioned_index_are_those_of_its_partitions(where: str, counterparts: int) -> None:
    parent = made_on(build.JOBS, 2002, "jobs_ready_idx", where)
    leaves = tuple(made_on(oid, 3000 + oid, f"jobs_{oid}_idx") for oid in LEAVES)
    tables = (
        build.table(kind="p"),
        *(build.table(oid, f"jobs_{oid}", parent=build.JOBS) for oid in LEAVES),
    )
    seen = build.observation(
        of=build.catalog(tables=tables, indexes=(parent, *leaves)),
        first=build.reading(0.0, indexes=tuple(build.index_counters(one.oid, 5) for one in leaves)),
        last=build.reading(
            build.WINDOW_S, indexes=tuple(build.index_counters(one.oid, 12) for one in leaves)
        ),
    )
    queue = build.the_queue(seen)
    assert len(indexfacts.counterparts(queue, parent)) == counterparts
    assert indexfacts.scans_in_window(queue, parent) == 7 * counterparts
