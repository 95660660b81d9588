"""``lab triangle`` at small size: which updates are HOT, what a claim touches; and copies of live tables."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from pgqdoctor.collect import ObserveOptions, observe
from pgqdoctor.errors import PgqdoctorError
from pgqdoctor.lab.ground import one_value
from pgqdoctor.lab.likeness import scenario_like, subject_like
from pgqdoctor.lab.results import TriangleResult
from pgqdoctor.lab.scenario import Scenario
from pgqdoctor.lab.server import ScratchServer
from pgqdoctor.lab.subject import generic_subject
from pgqdoctor.lab.triangle import TriangleOptions, triangle
from pgqdoctor.queue import Queue, build_queues
from tests.server.lab import ground_in, notebook, quiet

LIVE = """
CREATE SCHEMA app;
CREATE TYPE app.job_state AS ENUM ('available', 'executing', 'completed', 'discarded');
CREATE TABLE app."Job Queue" (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    queue varchar(40) NOT NULL DEFAULT 'default',
    state app.job_state NOT NULL DEFAULT 'available',
    args jsonb NOT NULL,
    attempt integer NOT NULL DEFAULT 0,
    scheduled_at timestamptz NOT NULL DEFAULT now(),
    attempted_at timestamptz,
    completed_at timestamptz,
    note text,
    tags text[] NOT NULL DEFAULT '{}',
    name_length integer GENERATED ALWAYS AS (length(queue)) STORED,
    unique_key text
) WITH (fillfactor = 85);
CREATE UNIQUE INDEX ON app."Job Queue" (unique_key) WHERE state = 'available';
CREATE INDEX jobs_fetch ON app."Job Queue" (state, queue, scheduled_at, id);
INSERT INTO app."Job Queue" (queue, state, args, note, unique_key)
SELECT 'secret-' || g % 3, CASE WHEN g % 5 = 0 THEN 'available' ELSE 'completed' END::app.job_state,
       jsonb_build_object('to', 'secret' || g), CASE WHEN g % 2 = 0 THEN repeat('n', 200) END, 'secret' || g
  FROM generate_series(1, 3000) AS g;
ANALYZE app."Job Queue";
UPDATE app."Job Queue" SET state = 'executing', attempted_at = now()
 WHERE id = (SELECT id FROM app."Job Queue" WHERE state = 'available' AND scheduled_at <= now()
              ORDER BY scheduled_at, id LIMIT 1 FOR UPDATE SKIP LOCKED)
RETURNING id;
"""


def test_the_shape_of_the_triangle(database: str, tmp_path: Path) -> None:
    options = TriangleOptions(
        subject=generic_subject(),
        fillfactors=(100, 70),
        index_forms=("none", "partial"),
        workers=2,
        steady_s=1,
    )
    with ground_in(database) as ground:
        cells = tuple(triangle(ground, options, notebook(tmp_path, TriangleResult), quiet))
        counts_pages = ground.major >= 16
    found = {cell.design: cell for cell in cells}
    assert tuple(found) == ("default", "fillfactor 70", "partial index", "fillfactor 70, partial index")
    default, roomy = found["default"], found["fillfactor 70"]
    assert {cell.updates for cell in cells} == {1_000}
    assert default.hot_updates == 0
    assert 350 < roomy.hot_updates < 500, "a bit under half"
    for name in ("partial index", "fillfactor 70, partial index"):
        assert (
            found[name].hot_updates == found[name].single_hot_updates == found[name].steady_hot_updates == 0
        )
        assert found[name].claim_buffers <= 15
        assert found[name].index_entries_per_job == pytest.approx(3.0, abs=0.1)
    assert default.newpage_updates == (1_000 if counts_pages else None)
    # About 900 where no other transaction, such as autovacuum's, holds the horizon for a moment.
    assert default.single_hot_updates > 400, "single claims prune the page they come to"
    assert default.claim_buffers > 500
    assert roomy.steady_hot_ratio > 0.5
    assert roomy.index_entries_per_job < 1.6
    for cell in cells:
        assert cell.jobs_per_s > 0
        assert cell.wal_bytes_per_job > 100
        assert cell.growth[0].at_s == 0
        assert len(cell.growth) > 3
        assert cell.growth[-1].table_bytes >= cell.growth[0].table_bytes > 0


@pytest.fixture(scope="module")
def live() -> Iterator[str]:
    """A server that is not the lab's, with a queue of its own."""
    with ScratchServer() as server:
        dsn = server.create_database("shop")
        with psycopg.connect(dsn, autocommit=True) as connection:
            connection.execute(LIVE.encode())
        yield dsn


def live_queue(dsn: str) -> Queue:
    seen = observe(dsn, ObserveOptions(window_seconds=1, queues=('app."Job Queue"',), explain="plan"))
    return build_queues(seen)[0]


def test_a_copy_has_the_definition_and_none_of_the_data(live: str, database: str) -> None:
    subject = subject_like(live_queue(live))
    assert subject.fillfactor == 85
    with ground_in(database) as ground, ground.connect() as connection:
        subject.make(connection, fillfactor=85, form="own", autovacuum=False)
        subject.add_jobs(connection, 500)
        connection.execute('ANALYZE "Job Queue"')
        indexes = subject.indexes(connection)
        assert len(indexes) == 3
        assert any("(state, queue, scheduled_at, id)" in one for one in indexes)
        states: dict[str, int] = dict(
            connection.execute('SELECT state::text, count(*) FROM "Job Queue" GROUP BY 1').fetchall()
        )
        assert states["available"] == 500
        assert states["completed"] == pytest.approx(2_000, rel=0.02), "four finished jobs for each ready one"
        assert (
            one_value(
                connection, 'SELECT count(*) FROM "Job Queue" WHERE "Job Queue"::text LIKE \'%secret%\''
            )
            == 0
        )
        rows = connection.execute(
            "SELECT attname, avg_width, null_frac FROM pg_stats WHERE schemaname = current_schema()"
        ).fetchall()
        width = {str(row[0]): int(row[1]) for row in rows}
        nulls = {str(row[0]): float(row[2]) for row in rows}
        assert width["note"] == pytest.approx(204, abs=6)
        assert nulls["note"] == pytest.approx(0.5, abs=0.1)
        assert width["queue"] == pytest.approx(9, abs=2)
        claimed = connection.execute(subject.claim.encode()).fetchone()
        assert claimed is not None
        ready, taken = subject.entries(connection)
        assert (ready, taken) == (3, 2), "the unique index holds available jobs alone"


def test_a_copy_goes_through_the_triangle(live: str, database: str, tmp_path: Path) -> None:
    subject = subject_like(live_queue(live))
    options = TriangleOptions(
        subject=subject, fillfactors=(85,), index_forms=tuple(subject.forms), jobs=200, workers=2, steady_s=1
    )
    with ground_in(database) as ground:
        cells = tuple(triangle(ground, options, notebook(tmp_path, TriangleResult), quiet))
    found = {cell.design: cell for cell in cells}
    assert set(found) == {f"fillfactor 85, {form}" for form in ("own indexes", "keys only", "partial index")}
    assert {cell.hot_updates for cell in cells} == {0}, "the unique index's predicate holds the state"
    own, partial = found["fillfactor 85, own indexes"], found["fillfactor 85, partial index"]
    assert own.updates == 200
    assert partial.claim_buffers <= own.claim_buffers


def test_a_copy_replays_its_own_claim(live: str) -> None:
    scenario, notes = scenario_like(live_queue(live))
    assert isinstance(scenario, Scenario)
    worker = next(one for one in scenario.clients if one.name == "worker")
    assert "state = 'executing'" in worker.script
    assert "RETURNING id AS job \\aset" in worker.script
    assert "app." not in worker.script
    assert not [one for one in notes if "could not be replayed" in one]
    assert "secret" not in scenario.setup


def test_what_cannot_be_copied_is_refused_with_the_reason(live: str) -> None:
    with psycopg.connect(live, autocommit=True) as connection:
        connection.execute(
            "CREATE TABLE IF NOT EXISTS keyless (state text NOT NULL DEFAULT 'queued', run_at timestamptz)"
        )
    seen = observe(live, ObserveOptions(window_seconds=0.5, queues=("public.keyless",), explain="off"))
    with pytest.raises(
        PgqdoctorError, match=r"cannot copy public\.keyless: it has no primary key of one column"
    ):
        subject_like(build_queues(seen)[0])
