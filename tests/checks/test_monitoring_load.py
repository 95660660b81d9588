"""Verdicts of monitoring-load without a database."""

from __future__ import annotations

import pytest

from pgqdoctor.checks.monitoring_load import CHECK
from pgqdoctor.finding import Finding
from pgqdoctor.observation import Sample

from . import build

COUNT = "SELECT state, count(*) FROM jobs GROUP BY state"
BOUNDED = "SELECT count(*) FROM (SELECT id FROM jobs WHERE state = $1 LIMIT $2) AS q"


def look(ms: float, claim_ms: float = 1.0, text: str = COUNT, calls: int = 100) -> list[Finding]:
    """``ms`` and ``claim_ms`` are spent in the window of ten seconds."""
    used = {"1/10/1": (build.CLAIM, 200, 200), "2/10/1": (text, calls, calls)}
    first = build.reading(0.0, statements=tuple(build.calls(key, 0) for key in used))
    last = build.reading(
        build.WINDOW_S,
        statements=(
            build.calls("1/10/1", 200, total_ms=claim_ms),
            build.calls("2/10/1", calls, total_ms=ms, blocks_hit=5_000 * calls),
        ),
    )
    return build.evaluated(CHECK, build.observation(statements=used, first=first, last=last))


@pytest.mark.parametrize(
    ("ms", "claim_ms", "severity"),
    [
        (499.0, 1.0, None),
        (500.0, 1.0, "warning"),
        (3_000.0, 1_001.0, None),
        (3_000.0, 1_000.0, "warning"),
        (10_000.0, 1.0, "critical"),
    ],
)
def test_limits(ms: float, claim_ms: float, severity: str | None) -> None:
    assert [one.severity for one in look(ms, claim_ms)] == ([] if severity is None else [severity])


def test_title_and_the_bounded_count() -> None:
    (finding,) = look(8_000.0, 10.0)
    assert (
        finding.title
        == "Counting public.jobs takes 80% of a core and its claims 0.1%: 10/s counts of 80 ms each"
    )
    assert finding.remedies[0].sql == (
        "SELECT count(*) FROM (SELECT 1 FROM public.jobs WHERE state = 'queued' AND run_at <= now() LIMIT 10001) AS ready;",
    )
    assert not any("INDEX" in " ".join(one.sql) for one in finding.remedies)


def waiting(share: float, wait: str, samples: int = 100, calls: int = 1) -> list[Finding]:
    """One count that takes the window of ten seconds; ``share`` of its samples show a wait of the type ``wait``."""
    used = {"1/10/1": (build.CLAIM, 200, 200), "2/10/1": (COUNT, calls, calls)}
    sampled = tuple(
        Sample(
            at=place / 10,
            sessions=(
                build.sampled(
                    9, query_id=2, wait_type=wait if place < share * samples else None, wait_event="x"
                ),
            ),
        )
        for place in range(samples)
    )
    first = build.reading(0.0, statements=tuple(build.calls(key, 0) for key in used))
    last = build.reading(
        build.WINDOW_S,
        statements=(
            build.calls("1/10/1", 200, total_ms=1.0),
            build.calls("2/10/1", calls, total_ms=10_000.0, blocks_hit=400 * calls),
        ),
    )
    return build.evaluated(CHECK, build.observation(statements=used, first=first, last=last, samples=sampled))


@pytest.mark.parametrize(
    ("share", "wait", "severity"),
    [
        pytest.param(1.0, "Lock", None, id="it waits for a lock all the time"),
        pytest.param(1.0, "Timeout", None, id="it sleeps all the time"),
        pytest.param(0.96, "Timeout", None, id="it works for 4% of the time"),
        pytest.param(0.9, "Timeout", "warning", id="it works for a tenth of the time"),
        pytest.param(1.0, "IO", "critical", id="it reads from disk"),
        pytest.param(0.0, "Lock", "critical", id="it works all the time"),
    ],
)
def test_only_work_counts(share: float, wait: str, severity: str | None) -> None:
    assert [one.severity for one in waiting(share, wait)] == ([] if severity is None else [severity])


def test_what_waited_is_told_apart() -> None:
    (finding,) = waiting(0.9, "Timeout")
    assert "takes 10% of a core" in finding.title
    (waited,) = [one for one in finding.evidence if one.what == "time in which counts waited"]
    assert waited.value == 9.0


def test_without_samples_the_blocks_bound_the_work() -> None:
    assert waiting(1.0, "Timeout", samples=0, calls=1) == [], (
        "400 blocks in ten seconds are no work of ten seconds"
    )
    (finding,) = waiting(1.0, "Timeout", samples=0, calls=25)
    assert finding.severity == "critical"


def test_bounded_count_is_no_load() -> None:
    assert look(8_000.0, text=BOUNDED) == []


def test_listing_is_no_count() -> None:
    assert look(8_000.0, text="SELECT id FROM jobs WHERE state = $1 ORDER BY id LIMIT 50") == []


def test_counting_another_table() -> None:
    assert look(8_000.0, text="SELECT count(*) FROM users") == []
