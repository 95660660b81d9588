"""Verdicts of multixact-from-foreign-key without a database. Mode sets are those that servers showed (15, 17, 18)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from pgqdoctor.checks.multixact_from_foreign_key import CHECK
from pgqdoctor.finding import Finding
from pgqdoctor.rows import ForeignKeyRow

from . import build

TENANTS, LOG = 1500, 1600
EIGHT = ("keysh",) * 8
INSERT = "INSERT INTO jobs (tenant_id) VALUES ($1)"


def to_tenants(**changes: Any) -> ForeignKeyRow:
    known = build.foreign_key(
        "jobs_tenant_id_fkey",
        build.JOBS,
        TENANTS,
        "tenant_id",
        child_name="public.jobs",
        parent_name="public.tenants",
        parent_rows=50.0,
        definition="FOREIGN KEY (tenant_id) REFERENCES public.tenants(id)",
    )
    return replace(known, **changes)


def from_log(**changes: Any) -> ForeignKeyRow:
    known = build.foreign_key(
        "job_log_job_id_fkey",
        LOG,
        build.JOBS,
        "job_id",
        child_name="public.job_log",
        parent_name="public.jobs",
        parent_rows=40_000.0,
        on_delete="c",
        definition="FOREIGN KEY (job_id) REFERENCES public.jobs(id) ON DELETE CASCADE NOT VALID",
    )
    return replace(known, **changes)


def look(
    *modes: tuple[str, ...],
    per_second: float = 400.0,
    inserted: int = 4_000,
    logged: int = 0,
    keys: tuple[ForeignKeyRow, ...] = (),
    statements: Mapping[str, tuple[str, int, int]] | None = None,
    pids: tuple[int, ...] = (),
    sessions: tuple[Any, ...] = (),
    texts: tuple[str, ...] = (),
) -> list[Finding]:
    tables = (
        build.table(),
        build.table(TENANTS, "tenants"),
        build.table(LOG, "job_log"),
    )
    before = build.reading(0.0, tables=(build.counters(), build.counters(LOG)))
    seen = build.observation(
        statements=statements or {"1/10/1": (build.CLAIM, 100, 100), "2/10/1": (INSERT, inserted, inserted)},
        first=before,
        last=build.multixacts_made(
            per_second, tables=(build.counters(inserted=inserted), build.counters(LOG, inserted=logged))
        ),
        samples=build.multixact_samples(*modes, pids=pids, sessions=sessions),
        of=build.catalog(tables=tables, foreign_keys=keys or (to_tenants(),)),
        texts=texts,
    )
    return build.evaluated(CHECK, seen)


def test_quiet_server() -> None:
    assert look(per_second=0.0) == []


def test_hot_parent_is_named_with_constraint_and_rows() -> None:
    (finding,) = look(EIGHT)
    assert finding.severity == "warning"
    assert finding.key == "multixact-from-foreign-key:public.jobs:jobs_tenant_id_fkey"
    assert (
        "lock the same rows of public.tenants (foreign key jobs_tenant_id_fkey): 400 MultiXacts per second of 8 members"
        in finding.title
    )
    facts = {one.what: one.value for one in finding.evidence}
    assert facts["rows of public.tenants"] == 50
    assert facts["members each"] == 8.0


def test_remedies_batch_or_give_the_constraint_up_with_its_way_back() -> None:
    batch, drop = look(EIGHT)[0].remedies
    assert batch.sql == ("INSERT INTO jobs (tenant_id) VALUES ($1), ($2);",)
    assert drop.sql == (
        "SET lock_timeout = '2s';",
        "ALTER TABLE public.jobs DROP CONSTRAINT jobs_tenant_id_fkey;",
    )
    assert drop.undo[1:] == (
        "ALTER TABLE public.jobs ADD CONSTRAINT jobs_tenant_id_fkey FOREIGN KEY (tenant_id) REFERENCES public.tenants(id) NOT VALID;",
        "ALTER TABLE public.jobs VALIDATE CONSTRAINT jobs_tenant_id_fkey;",
    )
    assert drop.lock == "ACCESS EXCLUSIVE"
    assert "do not exist" in drop.risk


def test_transactions_that_stay_open_after_the_insert_are_told_to_commit() -> None:
    held = build.sampled(7, 0, state="idle in transaction", xact_age_s=0.02)
    (finding,) = look(EIGHT, pids=(7,), sessions=(held,), texts=("INSERT INTO jobs (tenant_id) VALUES (1)",))
    assert finding.remedies[0].title.startswith("Commit right after the insert into public.jobs")


@pytest.mark.parametrize(
    ("per_second", "severity"), [(0.9, None), (1.0, "notice"), (24.9, "notice"), (25.0, "warning")]
)
def test_limits(per_second: float, severity: str | None) -> None:
    assert [one.severity for one in look(EIGHT, per_second=per_second)] == (
        [] if severity is None else [severity]
    )


def test_too_few_inserts_to_be_the_maker() -> None:
    assert look(EIGHT, inserted=1_190) == []
    assert len(look(EIGHT, inserted=1_200)) == 1


def test_same_key_spread_over_many_parents() -> None:
    spread = to_tenants(parent_rows=5_000.0)
    assert look(per_second=0.0, keys=(spread,)) == []
    assert look(("keysh", "keysh"), per_second=0.5, keys=(spread,)) == []


@pytest.mark.parametrize("modes", [("forupd", "nokeyupd"), ("sh", "sh", "sh")])
def test_other_makers(modes: tuple[str, ...]) -> None:
    assert look(modes) == []


def test_makers_in_another_database() -> None:
    assert look(EIGHT, pids=(900,), sessions=(build.sampled(7),)) == []


def test_of_two_keys_the_one_with_the_smaller_parent_is_named() -> None:
    other = to_tenants(
        name="jobs_user_id_fkey", parent=1501, parent_name="public.users", parent_rows=1_000_000.0
    )
    (finding,) = look(EIGHT, keys=(other, to_tenants()))
    assert finding.subject == "jobs_tenant_id_fkey"
    assert {"jobs_user_id_fkey"} <= {one.value for one in finding.evidence}


def test_children_of_the_queue_and_the_transaction_that_keeps_them_alive() -> None:
    bulk = build.sampled(44, 0, state="idle in transaction", xact_age_s=40.0, application="bulk_children")
    (finding,) = look(
        ("keysh", "keysh"),
        inserted=0,
        logged=4_000,
        keys=(from_log(),),
        pids=(44,),
        sessions=(bulk,),
        texts=("INSERT INTO job_log SELECT id, 'bulk' FROM jobs",),
    )
    assert "foreign key job_log_job_id_fkey" in finding.title
    assert "kept alive by session 44, open 40 s" in finding.title
    assert finding.pids == (44,)
    end, drop = finding.remedies[0], finding.remedies[-1]
    assert end.sql == ("SELECT pg_terminate_backend(44);",)
    assert "no longer deletes the rows that reference it" in drop.risk
    assert drop.undo[1].endswith("ON DELETE CASCADE NOT VALID;")
    assert "NOT VALID NOT VALID" not in drop.undo[1]


def test_own_key_share_statements_are_not_a_foreign_keys() -> None:
    statements = {
        "1/10/1": (build.CLAIM, 100, 100),
        "2/10/1": ("SELECT id FROM jobs WHERE id = $1 FOR KEY SHARE", 5_000, 5_000),
    }
    assert look(("keysh", "keysh"), inserted=0, logged=1_500, keys=(from_log(),), statements=statements) == []


def test_hostile_constraint_name_is_quoted() -> None:
    (finding,) = look(EIGHT, keys=(to_tenants(name='x"; DROP TABLE jobs; --'),))
    assert (
        finding.remedies[-1].sql[1] == 'ALTER TABLE public.jobs DROP CONSTRAINT "x""; DROP TABLE jobs; --";'
    )
