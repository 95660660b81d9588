"""Samples joined to transactions."""

from __future__ import annotations

from pgqdoctor.observation import Sample
from pgqdoctor.transactions import seen_transactions
from tests.checks import build


def test_samples_of_one_start_are_one_transaction() -> None:
    (one,) = seen_transactions(build.observation(samples=build.held_open(41, 0, 5.0), texts=("SELECT 1",)))
    assert one.pid == 41
    assert round(one.seconds, 1) == 5.0
    assert round(one.idle_s, 1) == 5.0
    assert one.idle
    assert one.writes
    assert one.texts == (0,)


def test_new_start_of_a_backend_is_a_new_transaction() -> None:
    samples = tuple(
        Sample(at=float(second), sessions=(build.sampled(41, xact_age_s=0.01 + 0.2 * second % 2),))
        for second in range(4)
    )
    assert len(seen_transactions(build.observation(samples=samples))) == 4


def test_sessions_without_a_transaction_are_left_out() -> None:
    samples = (Sample(at=0.0, sessions=(build.sampled(41, state="idle", xact_age_s=None),)),)
    assert seen_transactions(build.observation(samples=samples)) == ()


def test_active_time_is_not_idle_time() -> None:
    samples = build.held_open(41, 0, 5.0, state="active")
    (one,) = seen_transactions(build.observation(samples=samples, texts=("SELECT 1",)))
    assert one.idle_s == 0.0
    assert not one.idle
