"""Percentiles, won and lost attempts, and pgbench's log lines."""

from __future__ import annotations

import pytest

from pgqdoctor.lab.pgbench import read_log_line
from pgqdoctor.lab.statistics import Attempt, median, nearest_rank, percentiles, tally


def attempt(client: int, number: int, latency_us: int, ended_us: int) -> Attempt:
    return Attempt(client=client, number=number, latency_us=latency_us, ended_us=ended_us)


@pytest.mark.parametrize(
    ("share", "expected"), [(0.0, 1.0), (0.5, 2.0), (0.51, 3.0), (0.75, 3.0), (0.95, 4.0), (1.0, 4.0)]
)
def test_nearest_rank(share: float, expected: float) -> None:
    assert nearest_rank([1.0, 2.0, 3.0, 4.0], share) == expected


def test_nothing_measured_is_zero() -> None:
    assert nearest_rank([], 0.5) == 0.0
    assert median([]) == 0.0
    assert percentiles([]).p99_ms == 0.0


def test_percentiles_are_in_milliseconds_whatever_the_order() -> None:
    found = percentiles([3_000, 1_000, 2_000, 100_000])
    assert (found.p50_ms, found.p95_ms, found.p99_ms) == (2.0, 100.0, 100.0)


def test_median_of_even_and_odd_numbers() -> None:
    assert median([3, 1, 2]) == 2
    assert median([4, 1, 2, 3]) == 2.5


def test_lost_attempts_count_towards_the_next_job_of_the_same_client() -> None:
    log = [
        attempt(0, 1, 100, 1_000),  # lost
        attempt(1, 1, 200, 1_100),  # won
        attempt(0, 2, 300, 1_400),  # won, after 100 + 300
    ]
    found = tally(log, {(1, 1), (0, 2)})
    assert (found.attempts, found.wins, found.wasted) == (3, 2, 1)
    assert found.job.p50_ms == 0.2
    assert found.job.p99_ms == 0.4
    assert found.claim.p99_ms == 0.3


def test_what_ends_after_the_last_win_found_an_empty_queue() -> None:
    log = [attempt(0, 1, 500, 1_000), attempt(1, 1, 10, 1_001), attempt(0, 2, 10, 5_000_000)]
    found = tally(log, {(0, 1)})
    assert (found.attempts, found.wasted) == (1, 0)
    assert found.seconds == pytest.approx(0.0005)


def test_an_empty_log_is_an_empty_tally() -> None:
    found = tally([], set())
    assert (found.attempts, found.wins, found.wasted, found.seconds) == (0, 0, 0, 0.0)


def test_log_lines_are_read_as_pgbench_writes_them() -> None:
    # pgbench 18.6 --log
    assert read_log_line("3 17 6342 0 1795963395 930666\n") == attempt(3, 17, 6342, 1795963395930666)
    assert read_log_line("0 3 failed 0 1795963395 930666\n") is None
    assert read_log_line("0 4 skipped 0 1795963395 930666\n") is None
    assert read_log_line("0 4 8806 0 1795963395 93") is None, "a line that was cut short"
    assert read_log_line("\n") is None
