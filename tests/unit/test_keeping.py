"""How many dead rows one holder keeps: an estimate, and a bound where nothing better is known."""

from __future__ import annotations

from dataclasses import replace

from pgqdoctor import horizon
from pgqdoctor.keeping import ROWS_PER_TRANSACTION, rows_kept
from tests.checks import build

ARCHIVE = "DELETE FROM jobs WHERE state = 'done'"


def kept(
    *, age: int, dead: int, made: int = 0, calls: int = 0, rows: int = 0, vacuum_s: float = 900.0
) -> tuple[int, str]:
    holder = replace(build.session(41, state="idle in transaction"), xmin=700, xmin_age=age, xact_age_s=600.0)
    counted = build.counters(dead=dead, deleted=made, last_autovacuum_s=vacuum_s)
    seen = build.observation(
        statement_texts=(build.statement("7/10/1", ARCHIVE),),
        first=build.reading(0.0, sessions=(holder,), statements=(build.calls("7/10/1", 0),)),
        last=build.reading(
            build.WINDOW_S,
            sessions=(holder,),
            tables=(counted,),
            statements=(build.calls("7/10/1", calls, rows),),
        ),
    )
    (one,) = horizon.of(seen).holders
    return rows_kept(build.the_queue(seen), one)


def test_rows_that_were_dead_before_it_began_are_not_its_doing_and_the_number_is_told_as_a_bound() -> None:
    number, how = kept(age=5, dead=200_000)
    assert number == 5 * ROWS_PER_TRANSACTION
    assert "100 for each transaction" in how and "bulk change" in how


def test_batches_larger_than_usual_raise_the_bound_to_what_was_seen() -> None:
    number, how = kept(age=50, dead=200_000, made=25_000, calls=10, rows=25_000)
    assert number == 50 * 2_500
    assert "bulk" in how


def test_a_vacuum_that_passed_meanwhile_tells_the_number_itself() -> None:
    assert kept(age=5, dead=200_000, vacuum_s=30.0) == (
        200_000,
        "n_dead_tup of pg_stat_user_tables, left by a vacuum",
    )


def test_nothing_is_bounded_where_the_transactions_allow_for_all() -> None:
    assert kept(age=9_000, dead=8_000) == (8_000, "n_dead_tup of pg_stat_user_tables")
