"""Verdicts of claim-transaction-held without a database."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from pgqdoctor.checks.claim_transaction_held import CHECK
from pgqdoctor.finding import Finding
from pgqdoctor.observation import Sample

from . import build

LOCK = "SELECT id FROM jobs WHERE state = 'queued' LIMIT 1 FOR UPDATE SKIP LOCKED"
MAIL = "INSERT INTO mails (body) VALUES ('x')"


def look(
    samples: tuple[Sample, ...], *texts: str, last: dict[str, Any] | None = None, **changes: Any
) -> list[Finding]:
    seen = build.observation(
        samples=samples,
        texts=texts or (build.CLAIM,),
        last=build.reading(build.WINDOW_S, **(last or {})),
        **changes,
    )
    return build.evaluated(CHECK, seen)


def merged(*runs: tuple[Sample, ...]) -> tuple[Sample, ...]:
    return tuple(
        Sample(at=parts[0].at, sessions=tuple(one for part in parts for one in part.sessions))
        for parts in zip(*runs, strict=True)
    )


def test_nobody_holds_anything() -> None:
    assert look(()) == []


def test_one_session_is_named_with_its_age_and_last_statement() -> None:
    (finding,) = look(build.held_open(41, 0, 12.0, application="worker_http"))
    assert finding.severity == "warning"
    assert finding.title == (
        "Session 41 (worker_http) holds its claim on public.jobs open, idle in transaction, for 12 s"
    )
    assert finding.pids == (41,)
    assert any(str(one.value).startswith("UPDATE jobs SET state = $1") for one in finding.evidence)


def test_many_sessions_are_counted() -> None:
    (finding,) = look(merged(build.held_open(41, 0, 3.0), build.held_open(42, 0, 5.0)))
    assert finding.title.startswith(
        "2 sessions hold their claims on public.jobs open, idle in transaction, for up to 5 s"
    )
    assert finding.pids == (42, 41)


def test_remedy_is_the_claim_committed_at_once_and_the_finish() -> None:
    (remedy,) = look(build.held_open(41, 0, 12.0))[0].remedies
    assert remedy.kind == "application"
    assert remedy.sql[0] == f"{build.CLAIM}; -- without BEGIN around it: committed at once"
    assert remedy.sql[-1].startswith(f"{build.FINISH};")
    assert "heartbeat_at and its sweeper" in remedy.risk


@pytest.mark.parametrize(
    ("seconds", "severity"),
    [(0.005, None), (0.99, None), (1.0, "notice"), (1.99, "notice"), (2.0, "warning")],
)
def test_limits(seconds: float, severity: str | None) -> None:
    assert [one.severity for one in look(build.held_open(41, 0, seconds))] == (
        [] if severity is None else [severity]
    )


def test_session_that_others_wait_for_may_be_ended() -> None:
    waiting = build.lock(50, locktype="transactionid", relation=None, blocked_by=(41,), wait_age_s=2.0)
    (finding,) = look(build.held_open(41, 0, 5.0), last={"locks": (waiting,)})
    assert finding.severity == "critical"
    assert finding.title.endswith("; 1 session waits for it")
    assert finding.remedies[1].sql == ("SELECT pg_terminate_backend(41);",)
    brief = replace(waiting, wait_age_s=0.5)
    assert [one.severity for one in look(build.held_open(41, 0, 5.0), last={"locks": (brief,)})] == [
        "warning"
    ]


def test_claim_seen_earlier_in_the_same_transaction() -> None:
    samples = build.held_open(41, 1, 5.0)
    first = next(place for place, one in enumerate(samples) if one.sessions)
    claim = replace(samples[first].sessions[0], text=0, state="active")
    samples = (*samples[:first], replace(samples[first], sessions=(claim,)), *samples[first + 1 :])
    assert len(look(samples, LOCK, MAIL)) == 1
    assert look(build.held_open(41, 1, 5.0), LOCK, MAIL) == [], "nothing ties it to the queue"


def test_table_locks_tell_where_the_last_statement_does_not() -> None:
    held = (build.lock(41, "RowShareLock"), build.lock(41, "RowExclusiveLock"))
    assert len(look(build.held_open(41, 0, 5.0), MAIL, last={"locks": held})) == 1
    assert look(build.held_open(41, 0, 5.0), MAIL, last={"locks": held[1:]}) == [], (
        "an insert takes ROW EXCLUSIVE alone"
    )


def test_children_inserts_hold_row_share_through_the_foreign_key() -> None:
    key = build.foreign_key("log_fkey", 1600, build.JOBS, "job_id")
    held = (build.lock(41, "RowShareLock"),)
    of = build.catalog(foreign_keys=(key,))
    assert look(build.held_open(41, 0, 40.0), MAIL, last={"locks": held}, of=of) == []


@pytest.mark.parametrize(
    ("text", "changes"),
    [
        pytest.param("INSERT INTO jobs (payload) VALUES ('{}')", {}, id="producer"),
        pytest.param("SELECT count(*) FROM jobs", {"xid_age": None}, id="reader"),
        pytest.param(LOCK, {"state": "active"}, id="a statement that runs long"),
    ],
)
def test_look_alikes(text: str, changes: dict[str, Any]) -> None:
    assert look(build.held_open(41, 0, 30.0, **changes), text) == []


def test_many_short_transactions_of_one_backend_are_not_one_long() -> None:
    samples = tuple(
        Sample(
            at=place / 10,
            sessions=(
                build.sampled(
                    41, 0, state="idle in transaction", xact_age_s=0.02, state_age_s=0.01, xid_age=1
                ),
            ),
        )
        for place in range(100)
    )
    assert look(samples) == []
