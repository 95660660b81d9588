"""What lock modes tell about who made a MultiXact. The mode sets were shown by servers of versions 14 to 19."""

from __future__ import annotations

from dataclasses import replace

import pytest

from pgqdoctor import multixacts
from pgqdoctor.rows import MultixactRow
from tests.checks import build


@pytest.mark.parametrize(
    ("modes", "kind"),
    [
        (("forupd", "nokeyupd"), "subtransaction"),
        (("fornokeyupd", "nokeyupd"), "subtransaction"),
        (("forupd", "upd"), "subtransaction"),
        (("forupd", "keysh"), "subtransaction"),
        (("nokeyupd", "sh"), "subtransaction"),
        (("keysh", "keysh"), "key share"),
        (("keysh",) * 8, "key share"),
        (("keysh", "nokeyupd"), "key share"),
        (("fornokeyupd", "keysh"), "key share"),
        (("sh", "sh", "sh"), "share"),
        (("keysh", "sh"), "share"),
        (("upd",), "other"),
        ((), "other"),
    ],
)
def test_kinds(modes: tuple[str, ...], kind: str) -> None:
    assert multixacts.kind_of(modes) == kind


def test_conflicts_are_symmetric() -> None:
    modes = ("keysh", "sh", "fornokeyupd", "nokeyupd", "forupd", "upd")
    for one in modes:
        for other in modes:
            assert multixacts.conflict(one, other) == multixacts.conflict(other, one)


def test_rates_follow_the_shares_of_those_looked_at() -> None:
    seen = build.observation(
        last=build.multixacts_made(400.0),
        samples=build.multixact_samples(("keysh", "keysh"), ("keysh",) * 4, ("sh", "sh")),
    )
    made = multixacts.activity(seen)
    assert (made.made, made.looked) == (4_000, 30)
    assert made.rate("key share") == pytest.approx(400 * 2 / 3)
    assert made.members["key share"] == 3.0
    assert made.rate("subtransaction") == 0.0


def test_ids_that_wrap_around_are_still_counted() -> None:
    seen = build.observation(
        first=build.reading(0.0, database=build.database(next_multixact=2**32 - 10)),
        last=build.reading(build.WINDOW_S, database=build.database(started_s=100_010.0, next_multixact=20)),
    )
    assert multixacts.activity(seen).made == 30


def test_restarted_server_counts_nothing() -> None:
    seen = build.observation(
        last=build.reading(build.WINDOW_S, database=build.database(started_s=2.0, next_multixact=9_000))
    )
    assert multixacts.activity(seen).made == 0


def test_members_from_pages_begun_need_some_pages() -> None:
    def zeroed(pages: int) -> float | None:
        seen = build.observation(
            first=build.reading(0.0, slru=(build.slru("multixact_member"),)),
            last=build.multixacts_made(400.0, slru=(build.slru("multixact_member", zeroed=pages),)),
        )
        return multixacts.activity(seen).members_zeroed

    assert zeroed(3) is None
    assert zeroed(19) == pytest.approx(19 * 1636 / 4_000)


def test_keeper_is_the_old_transaction_that_most_of_them_share() -> None:
    bulk = build.sampled(44, state="idle in transaction", xact_age_s=40.0)
    short = build.sampled(45, xact_age_s=0.01)
    samples = build.multixact_samples(("keysh", "keysh"), pids=(44, 45), sessions=(bulk, short))
    found = multixacts.keeper(build.observation(samples=samples), "key share", 3.0)
    assert found is not None
    assert found.pid == 44
    young = tuple(replace(one, sessions=(replace(bulk, xact_age_s=2.9), short)) for one in samples)
    assert multixacts.keeper(build.observation(samples=young), "key share", 3.0) is None
    rare = tuple(
        replace(
            one,
            multixacts=(
                one.multixacts[0],
                *(MultixactRow(id=n, modes=("keysh", "keysh"), pids=()) for n in (1, 2)),
            ),
        )
        for one in samples
    )
    assert multixacts.keeper(build.observation(samples=rare), "key share", 3.0) is None


@pytest.mark.parametrize(
    ("text", "own"),
    [
        (
            'SELECT $2 FROM ONLY "public"."jobs" x WHERE "id" OPERATOR(pg_catalog.=) $1 FOR KEY SHARE OF x',
            True,
        ),
        ("SELECT id FROM jobs WHERE id = $1 FOR KEY SHARE", False),
    ],
)
def test_foreign_key_checks_are_told_from_statements(text: str, own: bool) -> None:
    assert multixacts.is_foreign_key_check(text) is own
