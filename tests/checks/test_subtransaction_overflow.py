"""Verdicts of subtransaction-overflow without a database."""

from __future__ import annotations

import pytest

from pgqdoctor.checks.subtransaction_overflow import CHECK
from pgqdoctor.finding import Finding
from pgqdoctor.observation import Sample
from pgqdoctor.rows import SessionRow

from . import build

IMPORT = build.session(
    70,
    application="nightly_import",
    state="idle in transaction",
    xid=9,
    xid_age=500,
    xact_age_s=20.0,
    subtransactions=64,
    subxact_overflowed=True,
)


def look(*sessions: SessionRow, lookups: int, waiting: int = 0) -> list[Finding]:
    sampled = tuple(
        build.sampled(
            n, wait_type="LWLock" if n < waiting else None, wait_event="SubtransSLRU" if n < waiting else None
        )
        for n in range(100)
    )
    seen = build.observation(
        first=build.reading(0.0, slru=(build.slru("subtransaction"),)),
        last=build.reading(
            build.WINDOW_S, sessions=sessions, slru=(build.slru("subtransaction", hit=lookups),)
        ),
        samples=(Sample(at=1.0, sessions=sampled),),
    )
    return build.evaluated(CHECK, seen)


def test_quiet_server() -> None:
    assert look(lookups=0) == []


@pytest.mark.parametrize(("lookups", "found"), [(99_999, 0), (100_000, 1)])
def test_limit(lookups: int, found: int) -> None:
    assert len(look(IMPORT, lookups=lookups)) == found


def test_session_is_named_and_may_be_ended() -> None:
    (finding,) = look(IMPORT, lookups=20_000_000)
    assert finding.severity == "warning"
    assert finding.title.startswith(
        "Session 70 (nightly_import) has more than 64 subtransactions in one transaction, open 20 s"
    )
    assert finding.pids == (70,)
    assert finding.remedies[0].sql == ("SELECT pg_terminate_backend(70);",)


def test_open_subtransactions_counted_from_locks_before_16() -> None:
    row = build.session(70, application="batch", xact_age_s=20.0, subtransactions=65)
    assert look(row, lookups=20_000_000)[0].pids == (70,)
    fewer = build.session(70, application="batch", xact_age_s=20.0, subtransactions=64)
    assert look(fewer, lookups=20_000_000)[0].pids == ()


def test_unknown_maker_is_not_invented() -> None:
    writer = build.session(71, application="batch", xid=9, xid_age=500, xact_age_s=20.0)
    (finding,) = look(writer, lookups=20_000_000)
    assert finding.pids == ()
    assert [one.kind for one in finding.remedies] == ["application"]
    assert any(one.value == "session 71 (batch, open 20 s)" for one in finding.evidence)


def test_waits_make_it_critical() -> None:
    assert [one.severity for one in look(IMPORT, lookups=20_000_000, waiting=5)] == ["critical"]
    assert [one.severity for one in look(IMPORT, lookups=20_000_000, waiting=4)] == ["warning"]


def test_overflow_while_nobody_looks_anything_up() -> None:
    assert look(IMPORT, lookups=2_000) == []
