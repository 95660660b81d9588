"""Verdicts of notify-queue-held without a database."""

from __future__ import annotations

import pytest

from pgqdoctor.checks.notify_queue_held import CHECK
from pgqdoctor.finding import Finding
from pgqdoctor.rows import SessionRow

from . import build

LISTENER = build.session(
    60,
    application="dispatcher",
    database="other",
    state="idle in transaction",
    xact_age_s=900.0,
    query="LISTEN jobs",
)


def look(before: float | None, after: float | None, *sessions: SessionRow) -> list[Finding]:
    seen = build.observation(
        first=build.reading(0.0, database=build.database(notify_usage=before)),
        last=build.reading(
            build.WINDOW_S,
            database=build.database(started_s=100_010.0, notify_usage=after),
            sessions=sessions,
        ),
    )
    return build.evaluated(CHECK, seen)


@pytest.mark.parametrize(
    ("before", "after", "severity"),
    [
        pytest.param(0.0, 0.0, None, id="empty"),
        pytest.param(None, None, None, id="not known"),
        pytest.param(0.0, 0.2, None, id="a burst of this window"),
        pytest.param(0.2, 0.1, None, id="it is being read"),
        pytest.param(0.0099, 0.0099, None, id="below the limit"),
        pytest.param(0.01, 0.01, "notice", id="held"),
        pytest.param(0.1, 0.1, "warning", id="a tenth"),
        pytest.param(0.5, 0.5, "critical", id="half"),
        pytest.param(0.01, 0.02, "critical", id="full in 16 minutes"),
    ],
)
def test_verdicts(before: float | None, after: float | None, severity: str | None) -> None:
    assert [one.severity for one in look(before, after)] == ([] if severity is None else [severity])


def test_listener_in_a_transaction_is_named_also_in_another_database() -> None:
    (finding,) = look(0.1, 0.1, LISTENER, build.session(61, state="idle in transaction", xact_age_s=2_000.0))
    assert finding.title.endswith("session 60 (dispatcher) listens in a transaction open for 15 min")
    assert finding.pids == (60,)
    assert finding.remedies[0].sql == ("SELECT pg_terminate_backend(60);",)


def test_of_several_suspects_none_is_ended() -> None:
    rows = [build.session(pid, state="idle in transaction", xact_age_s=100.0) for pid in (61, 62)]
    (finding,) = look(0.1, 0.1, *rows)
    assert finding.pids == ()
    assert [one.kind for one in finding.remedies] == ["application"]


def test_short_transactions_are_no_suspects() -> None:
    (finding,) = look(0.1, 0.1, build.session(61, xact_age_s=9.9))
    assert "may listen" not in finding.title
