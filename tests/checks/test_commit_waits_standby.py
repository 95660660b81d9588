"""Verdicts of commit-waits-standby without a database."""

from __future__ import annotations

from typing import Any

import pytest

from pgqdoctor.checks.commit_waits_standby import CHECK
from pgqdoctor.finding import Finding

from . import build


def look(*waited_s: float, **changes: Any) -> list[Finding]:
    wanted: dict[str, Any] = {
        "state": "active",
        "wait_type": "IPC",
        "wait_event": "SyncRep",
        "query": "COMMIT",
        **changes,
    }
    sessions = tuple(
        build.session(50 + number, query_age_s=age, **wanted) for number, age in enumerate(waited_s)
    )
    return build.evaluated(CHECK, build.observation(last=build.reading(build.WINDOW_S, sessions=sessions)))


@pytest.mark.parametrize(
    ("waited_s", "severity"), [(1.9, None), (2.0, "warning"), (19.9, "warning"), (20.0, "critical")]
)
def test_limits(waited_s: float, severity: str | None) -> None:
    assert [one.severity for one in look(0.01, waited_s)] == ([] if severity is None else [severity])


def test_what_is_said_and_advised() -> None:
    (finding,) = look(68.0, 3.0)
    assert finding.title == "2 commits wait for a synchronous standby, for 68 s by now"
    assert finding.pids == (50, 51)
    reads, without = finding.remedies
    assert reads.sql[0].startswith("SELECT ")
    assert without.title.startswith("Or ")
    assert without.sql == ("ALTER SYSTEM SET synchronous_standby_names = '';", "SELECT pg_reload_conf();")


def test_many_that_wait_for_milliseconds_are_no_finding() -> None:
    assert look(*[0.004] * 50) == []


@pytest.mark.parametrize(
    "changes",
    [{"state": "idle"}, {"wait_event": "WalSync"}, {"backend_type": "walsender"}, {"wait_event": None}],
)
def test_others_that_wait(changes: dict[str, Any]) -> None:
    assert look(68.0, **changes) == []
