"""Verdicts of multixact-slru-waits without a database."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from pgqdoctor.checks.multixact_slru_waits import CHECK
from pgqdoctor.finding import Finding
from pgqdoctor.observation import Sample

from . import build

MEMBER = ("LWLock", "MultiXactMemberSLRU")
CONTENT = ("LWLock", "BufferContent")


def look(
    waits: Sequence[tuple[str, str]] = (),
    *,
    active: int = 100,
    reads: int = 0,
    hits: int = 0,
    offset_reads: int = 0,
) -> list[Finding]:
    """``active`` sampled sessions, of which the first wait as given; counters of a window of ten seconds."""
    sessions = [
        build.sampled(place, wait_type=waits[place][0], wait_event=waits[place][1])
        if place < len(waits)
        else build.sampled(place)
        for place in range(active)
    ]
    seen = build.observation(
        first=build.reading(0.0, slru=(build.slru("multixact_member"), build.slru("multixact_offset"))),
        last=build.multixacts_made(
            100.0,
            slru=(
                build.slru("multixact_member", hit=hits, read=reads),
                build.slru("multixact_offset", read=offset_reads),
            ),
        ),
        samples=(Sample(at=1.0, sessions=tuple(sessions)),),
    )
    return build.evaluated(CHECK, seen)


def test_nothing_waits() -> None:
    assert look() == []


def test_no_sessions_at_all() -> None:
    assert look(active=0) == []


def test_waits_name_share_and_event() -> None:
    (finding,) = look([MEMBER] * 20)
    assert finding.severity == "warning"
    assert finding.queue is None
    assert (
        finding.title
        == "20% of the samples of active sessions wait for the MultiXact caches (LWLock:MultiXactMemberSLRU)"
    )
    assert finding.remedies == (), "the cure is that of its cause"


@pytest.mark.parametrize(
    ("waiting", "active", "severity"),
    [(4, 10, None), (5, 101, None), (5, 100, "warning"), (24, 100, "warning"), (25, 100, "critical")],
)
def test_limits_of_waits(waiting: int, active: int, severity: str | None) -> None:
    assert [one.severity for one in look([MEMBER] * waiting, active=active)] == (
        [] if severity is None else [severity]
    )


def test_rare_single_samples() -> None:
    assert look([MEMBER], active=100) == []


def test_reads_without_any_wait_are_enough() -> None:
    assert look(reads=999) == []
    (finding,) = look(reads=600, offset_reads=400, hits=100_000)
    assert finding.severity == "warning"
    assert "miss their caches: 100 pages read per second" in finding.title


def test_hits_without_reads_are_no_incident() -> None:
    assert look(hits=4_000_000) == []


@pytest.mark.parametrize("wait", [CONTENT, ("Buffer", "BufferExclusive"), ("Buffer", "BufferShared")])
def test_waits_for_page_contents_count_beside_many_lookups_only(wait: tuple[str, str]) -> None:
    assert look([wait] * 30, hits=99_999) == []
    assert [one.severity for one in look([wait] * 30, hits=100_000)] == ["critical"]


def test_a_multixact_event_is_named_before_a_more_frequent_content_wait() -> None:
    (finding,) = look([CONTENT] * 10 + [MEMBER] * 3, hits=100_000)
    assert finding.title.endswith("(LWLock:MultiXactMemberSLRU)")
