"""Verdicts of toast-bloat without a database."""

from __future__ import annotations

from typing import Any

import pytest

from pgqdoctor.checks.toast_bloat import CHECK
from pgqdoctor.finding import Finding

from . import build

TOAST = 1900
MB = 1024 * 1024
PROGRESS = "UPDATE jobs SET payload = $1, heartbeat_at = now() WHERE id = $2"


def look(
    *,
    dead: int = 126_950,
    live: int = 200,
    deleted: int = 10_000,
    toast_bytes: int = 248 * MB,
    options: tuple[str, ...] = (),
    toast: int | None = TOAST,
    held: bool = False,
    text: str = PROGRESS,
    **last: Any,
) -> list[Finding]:
    sessions = (
        (build.session(41, state="idle in transaction", xmin=700, xmin_age=9_000, xact_age_s=60.0),)
        if held
        else ()
    )
    counted = build.counters(TOAST, dead=dead, live=live, deleted=deleted)
    seen = build.observation(
        of=build.catalog(tables=(build.table(toast=toast, options=options),)),
        statements={"1/10/1": (build.CLAIM, 10, 10), "2/10/1": (text, 500, 500)},
        first=build.reading(0.0, tables=(build.counters(), build.counters(TOAST)), sessions=sessions),
        last=build.reading(build.WINDOW_S, tables=(build.counters(), counted), sessions=sessions, **last),
        probes=(build.probe(toast_bytes=toast_bytes),),
    )
    return build.evaluated(CHECK, seen)


def test_no_toast_table() -> None:
    assert look(toast=None) == []


def test_column_rewritten_in_a_loop() -> None:
    (finding,) = look()
    assert finding.severity == "warning"
    assert "TOAST table of public.jobs is bloated: 126,950 dead chunks beside 200 live ones" in finding.title
    assert "written by updates of payload" in finding.title
    assert finding.remedies[0].sql[1] == (
        "ALTER TABLE public.jobs SET (toast.autovacuum_vacuum_scale_factor = 0, toast.autovacuum_vacuum_threshold = 60000);"
    )
    assert finding.remedies[0].undo[1] == (
        "ALTER TABLE public.jobs RESET (toast.autovacuum_vacuum_scale_factor, toast.autovacuum_vacuum_threshold);"
    )
    assert finding.remedies[1].sql[1] == "VACUUM (TRUNCATE false) public.jobs;"
    assert finding.remedies[2].kind == "application"


def test_toast_autovacuum_switched_off() -> None:
    (finding,) = look(options=("toast.autovacuum_enabled=off",))
    assert "toast.autovacuum_enabled = true" in finding.remedies[0].sql[1]
    assert "ALTER TABLE public.jobs SET (toast.autovacuum_enabled = off);" in finding.remedies[0].undo


@pytest.mark.parametrize(("dead", "found"), [(9_999, 0), (10_000, 1)])
def test_dead_chunks(dead: int, found: int) -> None:
    assert len(look(dead=dead, toast_bytes=0)) == found


@pytest.mark.parametrize(("live", "found"), [(63_476, 0), (63_475, 1)])
def test_as_many_live_ones(live: int, found: int) -> None:
    assert len(look(live=live, toast_bytes=0)) == found


@pytest.mark.parametrize(("deleted", "severity"), [(999, "notice"), (1_000, "warning")])
def test_chunks_that_die(deleted: int, severity: str) -> None:
    (finding,) = look(deleted=deleted)
    assert finding.severity == severity


def test_file_that_stayed_large_after_vacuum() -> None:
    (finding,) = look(dead=0, deleted=0)
    assert finding.severity == "notice"
    assert "248 MB of 248 MB hold no live chunk" in finding.title
    assert finding.remedies[0].sql[1] == "VACUUM (FULL, ANALYZE) public.jobs;"


def test_large_payloads_that_live() -> None:
    assert look(dead=5_000, live=100_000, deleted=5_000) == []


def test_updates_that_leave_the_column_alone_are_not_named() -> None:
    (finding,) = look(text="UPDATE jobs SET heartbeat_at = now() WHERE id = $1")
    assert "written by" not in finding.title


def test_held_horizon_leaves_the_remedies_out() -> None:
    (finding,) = look(held=True)
    assert finding.remedies == ()
    assert "9,000 transactions back" in finding.why
