"""Samples joined to transactions."""

from __future__ import annotations

from dataclasses import replace

from pgqdoctor.observation import Sample
from pgqdoctor.transactions import idle_transactions
from tests.checks import build


def test_samples_of_one_start_are_one_transaction() -> None:
    (one,) = idle_transactions(build.observation(samples=build.held_open(41, 0, 5.0), texts=("SELECT 1",)))
    assert one.pid == 41
    assert round(one.seconds, 1) == 5.0
    assert round(one.idle_s, 1) == 5.0
    assert one.idle
    assert one.writes
    assert one.texts == (0,)


def test_new_start_of_a_backend_is_a_new_transaction() -> None:
    samples = tuple(
        Sample(
            at=float(second),
            sessions=(build.sampled(41, state="idle in transaction", xact_age_s=0.01 + 0.2 * second % 2),),
        )
        for second in range(4)
    )
    assert len(idle_transactions(build.observation(samples=samples))) == 4


def test_sessions_without_a_transaction_are_left_out() -> None:
    samples = (Sample(at=0.0, sessions=(build.sampled(41, state="idle", xact_age_s=None),)),)
    assert idle_transactions(build.observation(samples=samples)) == ()


def test_active_time_is_not_idle_time() -> None:
    busy = build.held_open(41, 0, 5.0, state="active")
    assert idle_transactions(build.observation(samples=busy, texts=("SELECT 1",))) == ()
    place = next(number for number, sample in enumerate(busy) if sample.sessions)
    start, end = busy[place], busy[-1]
    idle = replace(
        start,
        sessions=tuple(replace(one, state="idle in transaction", state_age_s=0.2) for one in start.sessions),
    )
    (one,) = idle_transactions(build.observation(samples=(idle, *busy[place + 1 :]), texts=("SELECT 1",)))
    assert one.idle_s == 0.2
    assert not one.idle
    assert one.seconds == end.sessions[0].xact_age_s
