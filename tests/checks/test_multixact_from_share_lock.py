"""Verdicts of multixact-from-share-lock without a database. Mode sets are those that servers showed (15, 17, 18)."""

from __future__ import annotations

from typing import Any

import pytest

from pgqdoctor.checks.multixact_from_share_lock import CHECK
from pgqdoctor.finding import Finding

from . import build

WATCH = "SELECT id, state FROM jobs WHERE id = $1 FOR SHARE"
THREE = ("sh", "sh", "sh")
CHECK_OF_KEY = 'SELECT $2 FROM ONLY "public"."jobs" x WHERE "id" OPERATOR(pg_catalog.=) $1 FOR KEY SHARE OF x'


def look(
    *modes: tuple[str, ...],
    per_second: float = 600.0,
    text: str = WATCH,
    calls: int = 7_000,
    pids: tuple[int, ...] = (),
    sessions: tuple[Any, ...] = (),
    **last: Any,
) -> list[Finding]:
    seen = build.observation(
        statements={"1/10/1": (build.CLAIM, 1_000, 1_000), "2/10/1": (text, calls, calls)},
        last=build.multixacts_made(per_second, **last),
        samples=build.multixact_samples(*modes, pids=pids, sessions=sessions),
    )
    return build.evaluated(CHECK, seen)


def test_quiet_server() -> None:
    assert look(per_second=0.0) == []


def test_readers_that_lock_are_named() -> None:
    (finding,) = look(THREE)
    assert finding.severity == "warning"
    assert (
        "lock rows of public.jobs FOR SHARE meet on the same jobs: 600 MultiXacts per second of 3 members"
        in finding.title
    )
    assert {WATCH} <= {one.value for one in finding.evidence}


def test_remedies_are_the_statement_without_its_lock_or_with_an_exclusive_one() -> None:
    plain, exclusive = look(THREE)[0].remedies
    assert plain.sql == ("SELECT id, state FROM jobs WHERE id = $1;",)
    assert exclusive.sql == ("SELECT id, state FROM jobs WHERE id = $1 FOR NO KEY UPDATE;",)


def test_key_share_statements() -> None:
    (finding,) = look(("keysh", "keysh"), text=WATCH.replace("SHARE", "KEY SHARE"))
    assert "FOR KEY SHARE" in finding.title


def test_the_foreign_keys_own_key_share() -> None:
    assert look(("keysh", "keysh"), text=CHECK_OF_KEY) == []


@pytest.mark.parametrize(
    ("per_second", "severity"), [(0.9, None), (1.0, "notice"), (66.6, "notice"), (66.7, "warning")]
)
def test_limits(per_second: float, severity: str | None) -> None:
    assert [one.severity for one in look(THREE, per_second=per_second)] == (
        [] if severity is None else [severity]
    )


def test_too_few_locks_to_be_the_maker() -> None:
    assert look(THREE, calls=1_790) == []
    assert len(look(THREE, calls=1_800)) == 1


@pytest.mark.parametrize("modes", [("forupd", "nokeyupd"), ("keysh", "keysh")])
def test_other_makers(modes: tuple[str, ...]) -> None:
    assert look(modes) == []


def test_makers_in_another_database() -> None:
    assert look(THREE, pids=(900,), sessions=(build.sampled(7),)) == []
