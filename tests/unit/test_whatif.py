"""The observation without a culprit: it, its locks and what only showed it are gone, and nothing else."""

from __future__ import annotations

import pytest

from pgqdoctor import horizon, remedy
from pgqdoctor.observation import Observation, Sample
from pgqdoctor.rows import LockRow, PreparedRow, SlotRow
from pgqdoctor.whatif import Culprits, ended_by, without
from tests.checks import build


def lock(pid: int | None, *blockers: int) -> LockRow:
    return LockRow(
        pid=pid,
        locktype="relation",
        database=1,
        relation=build.JOBS,
        mode="RowExclusiveLock",
        granted=not blockers,
        wait_age_s=None,
        classid=None,
        objid=None,
        blocked_by=blockers,
    )


def prepared(gid: str, xid: int) -> PreparedRow:
    return PreparedRow(gid=gid, xid=xid, xid_age=9_000, prepared_age_s=60.0, owner="app", database="app")


def slot(name: str) -> SlotRow:
    return SlotRow(
        name=name,
        slot_type="physical",
        database=None,
        active=False,
        active_pid=None,
        xmin=600,
        xmin_age=9_000,
        catalog_xmin_age=None,
    )


def observed(**last: object) -> Observation:
    known = {
        "sessions": (
            build.session(41, xid=700, xid_age=9_000, xact_age_s=60.0),
            build.session(42, xmin=700, xmin_age=9_000, xact_age_s=50.0, wait_type="Lock"),
            build.session(43, xmin=900, xmin_age=10, xact_age_s=0.1),
        ),
        "locks": (lock(41), lock(42, 41), lock(43, 41, 42), lock(44, 43)),
        **last,
    }
    return build.observation(
        first=build.reading(0.0, **known),
        last=build.reading(build.WINDOW_S, **known),
        samples=(Sample(at=1.0, sessions=(build.sampled(41), build.sampled(43))),),
    )


class TestEndedBy:
    def test_sessions(self) -> None:
        ended = remedy.end_session(pid=4711, gently=True, title="", expect="", risk="")
        assert ended_by(ended.sql) == Culprits(pids=(4711,))

    @pytest.mark.parametrize("name", ["gid", "it's", "back\\slash", "both ' and \\"])
    def test_names_come_back_as_they_were(self, name: str) -> None:
        assert ended_by((f"ROLLBACK PREPARED {remedy.literal(name)};",)) == Culprits(prepared=(name,))
        dropped = f"SELECT pg_drop_replication_slot({remedy.literal(name)});"
        assert ended_by((dropped,)) == Culprits(slots=(name,))

    def test_other_statements_end_nothing(self) -> None:
        assert not ended_by(("VACUUM public.jobs;", "SELECT pg_reload_conf();"))


class TestWithout:
    def test_the_session_goes_with_its_locks_and_the_snapshot_that_only_showed_it(self) -> None:
        left = without(observed(), Culprits(pids=(41,)))
        for reading in (left.first, left.last):
            assert [row.pid for row in reading.sessions] == [43]
            # Who waited for nobody else is through; who waits for another still waits.
            assert [row.pid for row in reading.locks] == [43, 44]
        assert [one.pid for one in left.samples[0].sessions] == [43]

    def test_the_horizon_moves_on(self) -> None:
        seen = observed()
        assert horizon.of(seen).oldest is not None
        oldest = horizon.of(without(seen, Culprits(pids=(41,)))).oldest
        assert oldest is not None
        assert oldest.pid == 43

    def test_a_report_that_shows_the_session_goes_on_holding(self) -> None:
        report = build.session(44, xmin=700, xmin_age=9_000, xact_age_s=50.0)
        writer = build.session(41, xid=700, xid_age=9_000, xact_age_s=60.0)
        seen = observed(sessions=(writer, report))
        assert [one.pid for one in horizon.of(seen).holders] == [41, 44]
        assert [one.pid for one in horizon.of(without(seen, Culprits(pids=(41,)))).holders] == [44]

    def test_a_prepared_transaction_lets_through_who_waited_for_it(self) -> None:
        seen = observed(prepared=(prepared("orphan", 700),), sessions=(), locks=(lock(None), lock(42, 0)))
        left = without(seen, Culprits(prepared=("orphan",)))
        assert left.last.prepared == ()
        assert left.last.locks == ()

    def test_with_another_prepared_transaction_nobody_knows_who_blocks(self) -> None:
        seen = observed(prepared=(prepared("orphan", 700), prepared("other", 701)), locks=(lock(42, 0),))
        left = without(seen, Culprits(prepared=("orphan",)))
        assert [row.gid for row in left.last.prepared] == ["other"]
        assert [row.pid for row in left.last.locks] == [42]

    def test_a_slot(self) -> None:
        left = without(observed(slots=(slot("a"), slot("b"))), Culprits(slots=("a",)))
        assert [row.name for row in left.last.slots] == ["b"]

    def test_nothing_else_changes(self) -> None:
        seen = observed()
        assert without(seen, Culprits()) == seen
