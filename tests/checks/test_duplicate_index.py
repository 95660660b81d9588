"""Verdicts of duplicate-index without a database."""

from __future__ import annotations

from typing import Any

import pytest

from pgqdoctor.checks.duplicate_index import CHECK
from pgqdoctor.finding import Finding
from pgqdoctor.rows import IndexRow

from . import build


def btree(oid: int, name: str, body: str, **changes: Any) -> IndexRow:
    """An index of which only the definition counts."""
    unique = "UNIQUE " if changes.get("unique") else ""
    _, where, predicate = body.partition(" WHERE ")
    method = changes.pop("method", "btree")
    return build.index(
        oid,
        name,
        [3],
        predicate=predicate if where else None,
        definition=f"CREATE {unique}INDEX {name} ON public.jobs USING {method} {body}",
        method=method,
        included_columns=(5,) if " INCLUDE " in body else (),
        **changes,
    )


PKEY = btree(2001, "jobs_pkey", "(id)", unique=True, primary=True, constraint="jobs_pkey")


def look(*indexes: IndexRow, inserted: int = 1_000) -> list[Finding]:
    seen = build.observation(
        of=build.catalog(indexes=(PKEY, *indexes)),
        last=build.reading(build.WINDOW_S, tables=(build.counters(inserted=inserted),)),
    )
    return build.evaluated(CHECK, seen)


def test_one_index() -> None:
    assert look() == []


def test_plain_index_that_repeats_the_primary_key() -> None:
    (finding,) = look(btree(2003, "jobs_id_idx", "(id)"))
    assert finding.severity == "warning"
    assert "public.jobs_id_idx repeats public.jobs_pkey" in finding.title
    assert finding.remedies[0].sql[1] == "DROP INDEX CONCURRENTLY IF EXISTS public.jobs_id_idx;"
    assert "enforces a constraint" in finding.why


def test_of_two_plain_ones_the_newer_goes_and_one_stays() -> None:
    findings = look(btree(2003, "a", "(payload)"), btree(2004, "b", "(payload)"))
    assert [one.subject for one in findings] == ["b"]


@pytest.mark.parametrize(("inserted", "severity"), [(999, "notice"), (1_000, "warning")])
def test_severity(inserted: int, severity: str) -> None:
    (finding,) = look(btree(2003, "jobs_id_idx", "(id)"), inserted=inserted)
    assert finding.severity == severity


def test_beginning_of_a_wider_index() -> None:
    findings = look(btree(2003, "a", "(payload)"), btree(2004, "b", "(payload, run_at DESC)"))
    assert [(one.subject, one.severity) for one in findings] == [("a", "notice")]


def test_commas_inside_an_expression_do_not_part_columns() -> None:
    findings = look(btree(2003, "a", "(f(x, ',)'))"), btree(2004, "b", "(f(x, ',)'), id)"))
    assert [one.subject for one in findings] == ["a"]


@pytest.mark.parametrize(
    ("first", "second"),
    [
        pytest.param(
            "(id) WHERE (state = 'queued'::text)", "(payload)", id="partial index beside the primary key"
        ),
        pytest.param(
            "(payload)", "(payload) WHERE (state = 'queued'::text)", id="partial index beside a full one"
        ),
        pytest.param("(payload)", "(payload text_pattern_ops)", id="operator class"),
        pytest.param("(payload)", "(payload DESC, id)", id="order"),
        pytest.param("(payload)", "(run_at, payload)", id="not the first column"),
        pytest.param("(run_at, payload)", "(payload, run_at)", id="other order of columns"),
        pytest.param("(payload) INCLUDE (run_at)", "(payload, id)", id="INCLUDE"),
    ],
)
def test_indexes_that_differ(first: str, second: str) -> None:
    assert look(btree(2003, "a", first), btree(2004, "b", second)) == []


def test_unique_beginning_enforces_something() -> None:
    assert look(btree(2003, "a", "(payload)", unique=True), btree(2004, "b", "(payload, run_at)")) == []


def test_another_method() -> None:
    assert look(btree(2003, "a", "(payload)"), btree(2004, "b", "(payload)", method="hash")) == []


def test_invalid_index_is_no_substitute() -> None:
    assert look(btree(2003, "a", "(payload)"), btree(2004, "b", "(payload, id)", valid=False)) == []
