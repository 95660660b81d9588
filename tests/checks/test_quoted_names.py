"""Names of constraints, indexes and columns stand in findings as SQL needs them."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from pgqdoctor.checks import claim_lock_too_strong, hot_blocked_by_index
from pgqdoctor.observation import Sample

from . import build

CHECKS = Path(claim_lock_too_strong.__file__).parent
NAMED = frozenset({"name", "constraint", "column", "index", "table"})
QUOTED = frozenset({"queue.name", "identity.name", "place.name"})
"""Those that hold a name as SQL needs it."""
NO_IDENTIFIERS = frozenset({"holder.name"})
"""Slots and prepared transactions: strings in SQL."""


def _bare(path: Path) -> Iterator[str]:
    """Yield the names that an f-string of a title, a reason or a piece of advice shows as they are."""
    for call in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if not isinstance(call, ast.Call):
            continue
        for keyword in call.keywords:
            if keyword.arg not in ("title", "why", "expect", "risk"):
                continue
            for part in ast.walk(keyword.value):
                if isinstance(part, ast.FormattedValue) and isinstance(part.value, ast.Attribute):
                    shown = ast.unparse(part.value)
                    if part.value.attr in NAMED and shown not in QUOTED | NO_IDENTIFIERS:
                        yield f"{path.name}:{part.value.lineno} {shown}"


@pytest.mark.parametrize("path", sorted(CHECKS.glob("*.py")), ids=lambda path: path.stem)
def test_no_check_shows_a_name_as_it_is(path: Path) -> None:
    assert list(_bare(path)) == []


def test_a_foreign_key_of_an_unusual_name() -> None:
    child = 1100
    seen = build.observation(
        statements={"1/10/1": (build.CLAIM, 100, 100)},
        texts=("INSERT INTO job_log (job_id) VALUES (7)",),
        of=build.catalog(
            tables=(build.table(), build.table(child, "job_log")),
            foreign_keys=(
                build.foreign_key("Job Log's key", child, build.JOBS, "job_id", child_name="public.job_log"),
            ),
        ),
        samples=tuple(
            Sample(at=at / 10, sessions=(build.sampled(80, 0, wait_type="Lock", wait_event="transactionid"),))
            for at in range(100)
        ),
    )
    (finding,) = build.evaluated(claim_lock_too_strong.CHECK, seen)
    assert finding.title.endswith('foreign key "Job Log\'s key"')


def test_a_column_of_an_unusual_name() -> None:
    columns = (*build.job_columns(), build.column(20, "Last Beat", "timestamp with time zone", "D"))
    index = build.index(
        2003, "Beat Idx", [20], definition='CREATE INDEX "Beat Idx" ON public.jobs USING btree ("Last Beat")'
    )
    seen = build.observation(
        of=build.catalog(columns=columns, indexes=(*build.job_indexes(), index)),
        statements={"1/10/1": ('UPDATE jobs SET "Last Beat" = now() WHERE id = $1', 2_500, 2_500)},
        last=build.reading(build.WINDOW_S, tables=(build.counters(updated=2_500),)),
    )
    (finding,) = build.evaluated(hot_blocked_by_index.CHECK, seen)
    assert 'Index public."Beat Idx" keeps 250/s updates of "Last Beat" from' in finding.title
    assert 'The index mentions "Last Beat" as its key' in finding.why
