"""Numbers from a pgbench log and an audit table. Pure."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempt:
    """One transaction of a pgbench log: the ``number``-th of its client, counted from 1; times in microseconds."""

    client: int
    number: int
    latency_us: int
    ended_us: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Percentiles:
    """Nearest-rank percentiles, in milliseconds; all 0 where nothing was measured."""

    p50_ms: float
    p95_ms: float
    p99_ms: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Tally:
    """What a log and its audit say together; ``seconds`` from the first attempt's start to the last win's end."""

    attempts: int
    wins: int
    wasted: int
    seconds: float
    claim: Percentiles
    job: Percentiles


def nearest_rank(ordered: Sequence[float], share: float) -> float:
    """The smallest value that at least ``share`` (0 to 1) of the ``ordered`` values do not exceed; 0 of nothing."""
    if not ordered:
        return 0.0
    return ordered[max(0, math.ceil(share * len(ordered)) - 1)]


def percentiles(microseconds: Iterable[int]) -> Percentiles:
    """The percentiles of latencies in microseconds."""
    ordered = sorted(microseconds)
    return Percentiles(
        p50_ms=nearest_rank(ordered, 0.50) / 1000,
        p95_ms=nearest_rank(ordered, 0.95) / 1000,
        p99_ms=nearest_rank(ordered, 0.99) / 1000,
    )


def tally(attempts: Sequence[Attempt], won: Collection[tuple[int, int]]) -> Tally:
    """Tell won from lost attempts. ``won`` holds (client, number) of those with a row in the audit table.

    What ended after the last win found the queue empty and does not count.
    """
    last = max((one.ended_us for one in attempts if (one.client, one.number) in won), default=0)
    counted = sorted((one for one in attempts if one.ended_us <= last), key=lambda one: one.ended_us)
    waiting: dict[int, int] = {}
    jobs: list[int] = []
    wins = 0
    for one in counted:
        spent = waiting.pop(one.client, 0) + one.latency_us
        if (one.client, one.number) in won:
            wins += 1
            jobs.append(spent)
        else:
            waiting[one.client] = spent
    began = min((one.ended_us - one.latency_us for one in counted), default=last)
    return Tally(
        attempts=len(counted),
        wins=wins,
        wasted=len(counted) - wins,
        seconds=(last - began) / 1e6,
        claim=percentiles(one.latency_us for one in counted),
        job=percentiles(jobs),
    )


def median(values: Sequence[float]) -> float:
    """The middle value, of an even number the mean of the two in the middle; 0 of nothing."""
    ordered = sorted(values)
    if not ordered:
        return 0.0
    half = len(ordered) // 2
    return ordered[half] if len(ordered) % 2 else (ordered[half - 1] + ordered[half]) / 2
