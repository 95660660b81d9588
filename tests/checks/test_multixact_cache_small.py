"""Verdicts of multixact-cache-small without a database."""

from __future__ import annotations

import pytest

from pgqdoctor.checks.multixact_cache_small import CHECK
from pgqdoctor.finding import Finding

from . import build


def look(
    *,
    reads: int = 0,
    hits: int = 0,
    version: int = 170000,
    member_pages: int = 32,
    per_second: float = 3_500.0,
    open_s: float = 17.0,
) -> list[Finding]:
    seen = build.observation(
        first=build.reading(0.0, slru=(build.slru("multixact_member"), build.slru("multixact_offset"))),
        last=build.multixacts_made(
            per_second,
            slru=(
                build.slru("multixact_member", zeroed=43, hit=hits, read=reads),
                build.slru("multixact_offset"),
            ),
            sessions=(build.session(7, xact_age_s=open_s),),
        ),
        of=build.catalog(
            settings=(
                build.setting("multixact_member_buffers", str(member_pages)),
                build.setting("multixact_offset_buffers", "16"),
            )
        ),
        on=build.server(version),
    )
    return build.evaluated(CHECK, seen)


def test_no_activity() -> None:
    assert look(per_second=0.0) == []


def test_hits_alone() -> None:
    assert look(hits=40_000_000) == []


@pytest.mark.parametrize(("reads", "found"), [(999, 0), (1_000, 1)])
def test_limit(reads: int, found: int) -> None:
    assert len(look(reads=reads)) == found


def test_size_is_computed_from_what_the_oldest_transaction_makes_count() -> None:
    (finding,) = look(reads=100_000)
    assert finding.severity == "warning"
    members, offsets = finding.remedies
    # 3,500/s for 17 s and half as much again are 89,250 ids of 2.01 members: 110 and 44 pages, in banks of 16.
    assert members.sql == ("ALTER SYSTEM SET multixact_member_buffers = '112';",)
    assert offsets.sql == ("ALTER SYSTEM SET multixact_offset_buffers = '48';",)
    assert members.restart


def test_caches_that_are_large_enough_are_left_alone() -> None:
    (finding,) = look(reads=100_000, member_pages=512)
    assert [one.title.split()[1] for one in finding.remedies] == ["multixact_offset_buffers"]


def test_before_17_only_an_upgrade_enlarges_them() -> None:
    (finding,) = look(reads=100_000, version=150000)
    assert [one.kind for one in finding.remedies] == ["upgrade"]
    assert "version 15 cannot be enlarged" in finding.title
