"""Verdicts of connections-saturated without a database."""

from __future__ import annotations

import pytest

from pgqdoctor.checks.connections_saturated import CHECK
from pgqdoctor.finding import Finding

from . import build


def look(taken: int, *, before: int | None = None, known: bool = True) -> list[Finding]:
    settings = (
        build.setting("max_connections", "105"),
        build.setting("superuser_reserved_connections", "3"),
        build.setting("reserved_connections", "2"),
    )
    sessions = (
        build.session(1, application="worker"),
        build.session(2, application="worker", state="idle in transaction"),
        build.session(3, application="", backend_type="autovacuum worker"),
    )
    seen = build.observation(
        first=build.reading(0.0, database=build.database(backends=taken if before is None else before)),
        last=build.reading(
            build.WINDOW_S, database=build.database(started_s=100_010.0, backends=taken), sessions=sessions
        ),
        of=build.catalog(settings=settings if known else ()),
    )
    return build.evaluated(CHECK, seen)


@pytest.mark.parametrize(
    ("taken", "severity"), [(10, None), (84, None), (85, "warning"), (94, "warning"), (95, "critical")]
)
def test_limits(taken: int, severity: str | None) -> None:
    assert [one.severity for one in look(taken)] == ([] if severity is None else [severity])


def test_title_tells_what_they_do() -> None:
    (finding,) = look(95)
    assert finding.title == (
        "95 connections are open and ordinary roles may use 100 (95%): 1 are at a statement, 1 idle in transaction"
    )
    assert finding.queue is None


def test_burst_at_the_end_of_the_window() -> None:
    assert look(99, before=20) == []


def test_settings_not_visible() -> None:
    assert look(99, known=False) == []
