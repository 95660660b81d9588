"""Reading .sql files: what is accused, with its place, and above all what is not."""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from pathlib import Path

import jsonschema
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pgqdoctor.cli import FOUND, HEALTHY, run
from pgqdoctor.errors import USAGE
from pgqdoctor.lint import claims, definitions, multixacts, serving
from pgqdoctor.lint.engine import LintReport, lint
from pgqdoctor.lint.flaws import Flaw, Lint
from pgqdoctor.lint.program import Program, read_program
from pgqdoctor.lint.sources import read_source
from pgqdoctor.registry import all_checks
from pgqdoctor.render import LINT_FORMATS

ROOT = Path(__file__).parent.parent.parent
RULES: dict[str, Lint] = {
    "claim-unguarded": claims.unguarded,
    "claim-not-skip-locked": claims.not_skip_locked,
    "claim-limit-overrun": claims.limit_overrun,
    "claim-unbounded": claims.unbounded,
    "claim-advisory-lock": claims.advisory_lock,
    "claim-lock-too-strong": claims.lock_too_strong,
    "multixact-from-subtransaction": multixacts.from_subtransaction,
    "multixact-from-share-lock": multixacts.from_share_lock,
    "claim-scans-consumed-rows": serving.scans_consumed_rows,
    "claim-sorts-backlog": serving.sorts_backlog,
    "claim-misses-partial-index": serving.misses_partial_index,
    "foreign-key-unindexed": definitions.foreign_key_unindexed,
    "id-exhaustion": definitions.id_exhaustion,
    "duplicate-index": definitions.duplicate_index,
}

CLAIM = (
    "UPDATE jobs SET state = 'running' WHERE id = (SELECT id FROM jobs WHERE state = 'queued' ORDER BY run_at, id "
    "LIMIT 1 FOR UPDATE SKIP LOCKED) RETURNING id;"
)
TABLE = "CREATE TABLE jobs (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, state text NOT NULL, run_at timestamptz NOT NULL);"
INDEX = "CREATE INDEX jobs_ready_idx ON jobs (run_at, id) WHERE state = 'queued';"


def program(*texts: str) -> Program:
    return read_program([read_source(f"file{number}.sql", text) for number, text in enumerate(texts, 1)])


def accused(*texts: str) -> set[str]:
    """Return the ids of all rules that accuse something in the files."""
    read = program(*texts)
    assert not read.unparsed, read.unparsed
    return {name for name, rule in RULES.items() if list(rule(read))}


def flaws(rule: Lint, *texts: str) -> list[Flaw]:
    return list(rule(program(*texts)))


def place(flaw: Flaw) -> tuple[int, int]:
    return flaw.source.place(flaw.offset)


class TestEveryRuleBelongsToItsCheck:
    def test_a_check_that_lints_does_it_by_the_rule_of_its_name(self) -> None:
        for check in all_checks():
            if check.lint is not None:
                assert check.lint is RULES[check.id]

    def test_the_checks_that_need_no_server_all_lint(self) -> None:
        assert {check.id for check in all_checks() if check.lint is not None} == set(RULES)


class TestClaims:
    def test_a_sound_claim_on_a_sound_table(self) -> None:
        assert accused(TABLE + INDEX + CLAIM) == set()

    def test_a_sub_select_without_a_lock_can_be_won_twice(self) -> None:
        (flaw,) = flaws(
            claims.unguarded,
            "-- the worker\n  UPDATE jobs SET state = 'running' WHERE id = (SELECT id FROM jobs WHERE state = 'queued' LIMIT 1) RETURNING *;",
        )
        assert flaw.severity == "critical"
        assert place(flaw) == (2, 3)
        assert "FOR NO KEY UPDATE SKIP LOCKED" in flaw.remedies[0].sql[0]

    def test_a_select_and_an_update_by_key_in_one_file(self) -> None:
        (flaw,) = flaws(
            claims.unguarded,
            "SELECT id FROM jobs WHERE state = 'queued' ORDER BY id LIMIT 1 \\gset\n"
            "UPDATE jobs SET state = 'running' WHERE id = :id;\n",
        )
        assert "taken by key in line 2" in flaw.title
        assert "SKIP LOCKED" in flaw.remedies[0].sql[0]

    @pytest.mark.parametrize("returning", ["", " RETURNING id"])
    def test_an_update_that_takes_all_there_is(self, returning: str) -> None:
        text = f"UPDATE jobs SET state = 'running' WHERE state = 'queued'{returning};"
        (flaw,) = flaws(claims.unbounded, text)
        assert "has no LIMIT" in flaw.title
        assert (
            len(flaws(claims.unbounded, text.replace("jobs", "orders") + CLAIM.replace("jobs", "orders")))
            == 1
        )

    @pytest.mark.parametrize(
        "other",
        [
            CLAIM,
            "SELECT id FROM emails WHERE state = 'queued' LIMIT 1 FOR UPDATE SKIP LOCKED; UPDATE emails SET state = 'running' WHERE id = $1;",
            "SELECT id FROM jobs WHERE state = 'queued' LIMIT 1 FOR UPDATE SKIP LOCKED; UPDATE jobs SET state = 'running' WHERE id = $1;",
            "SELECT * FROM jobs WHERE id = $1 FOR UPDATE;",
            "BEGIN; SELECT pg_advisory_xact_lock(1); COMMIT;",
        ],
        ids=["one statement", "another queue", "two statements", "by key", "another transaction"],
    )
    @pytest.mark.parametrize("before", [True, False])
    def test_a_sound_claim_beside_it_hides_nothing(self, other: str, before: bool) -> None:
        pair = "SELECT id FROM jobs WHERE state = 'queued' ORDER BY id LIMIT 1;\nUPDATE jobs SET state = 'running' WHERE id = $1;\n"
        text = other + "\n" + pair if before else pair + other
        (flaw,) = flaws(claims.unguarded, text)
        assert place(flaw) == ((2, 1) if before else (1, 1))

    @pytest.mark.parametrize(
        "text",
        [
            "SELECT id FROM jobs WHERE state = 'queued' LIMIT 1 FOR UPDATE SKIP LOCKED;"
            "SELECT id, kind FROM jobs WHERE state = 'queued' ORDER BY id LIMIT 50;"
            "UPDATE jobs SET state = 'running' WHERE id = $1;",
            "SELECT id, kind FROM jobs WHERE state = 'queued' ORDER BY id LIMIT 50;"
            "SELECT id FROM jobs WHERE state = 'queued' LIMIT 1 FOR UPDATE SKIP LOCKED;"
            "UPDATE jobs SET state = 'running' WHERE id = $1;",
            "SELECT id FROM jobs WHERE locked_at IS NULL ORDER BY id LIMIT $1;"
            "UPDATE jobs SET locked_at = now() WHERE id = (SELECT id FROM jobs WHERE locked_at IS NULL ORDER BY id LIMIT 1 "
            "FOR UPDATE SKIP LOCKED) RETURNING *; UPDATE jobs SET locked_at = now() WHERE id = $1;",
            "BEGIN; SELECT pg_advisory_xact_lock(1); SELECT id FROM jobs WHERE state = 'queued' LIMIT 1;"
            "UPDATE jobs SET state = 'running' WHERE id = $1; COMMIT;",
            "BEGIN; SELECT * FROM queues WHERE name = $1 FOR UPDATE; SELECT id FROM jobs WHERE state = 'queued' LIMIT 1;"
            "UPDATE jobs SET state = 'running' WHERE id = $1; COMMIT;",
            "SELECT id FROM jobs WHERE state = 'queued' LIMIT 10; SELECT id FROM jobs WHERE id = $1 FOR UPDATE;"
            "UPDATE jobs SET state = 'running' WHERE id = $1;",
        ],
        ids=["list after", "list before", "heartbeat", "advisory lock", "queue's row", "locked between"],
    )
    def test_a_list_or_what_is_guarded_is_no_pair(self, text: str) -> None:
        assert flaws(claims.unguarded, text) == []

    def test_a_pair_whose_update_has_a_transaction_of_its_own(self) -> None:
        text = "SELECT * FROM jobs WHERE state = 'queued' ORDER BY id LIMIT 1;\nBEGIN; UPDATE jobs SET state = 'running' WHERE id = 5; COMMIT;"
        assert len(flaws(claims.unguarded, text)) == 1

    def test_the_smallest_id_and_an_update_by_it(self) -> None:
        text = "SELECT min(id) FROM jobs WHERE state = 'queued';\nUPDATE jobs SET state = 'running' WHERE id = $1;"
        (flaw,) = flaws(claims.unguarded, text)
        assert place(flaw) == (1, 1)

    def test_what_cannot_be_locked_where_it_stands_gets_no_wrong_correction(self) -> None:
        text = (
            "WITH r AS (SELECT id, row_number() OVER (ORDER BY id) AS n FROM jobs WHERE state = 'queued') "
            "UPDATE jobs SET state = 'running' FROM (SELECT id FROM r WHERE n = 1 LIMIT 10) p WHERE p.id = jobs.id RETURNING jobs.*;"
        )
        (flaw,) = flaws(claims.unguarded, text)
        assert flaw.remedies == ()

    def test_a_lock_too_weak_is_made_strong_enough(self) -> None:
        (flaw,) = flaws(claims.unguarded, CLAIM.replace("FOR UPDATE", "FOR KEY SHARE"))
        assert "LIMIT 1 FOR NO KEY UPDATE SKIP LOCKED" in flaw.remedies[0].sql[0]

    def test_the_same_pair_inside_a_function(self) -> None:
        (flaw,) = flaws(
            claims.unguarded,
            """
CREATE FUNCTION take() RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE found bigint;
BEGIN
  SELECT id INTO found FROM jobs WHERE state = 'queued' ORDER BY id LIMIT 1;
  UPDATE jobs SET state = 'running' WHERE id = found;
  RETURN found;
END $$;""",
        )
        assert place(flaw) == (5, 3)

    @pytest.mark.parametrize(
        "between",
        [
            "SELECT pg_advisory_xact_lock(1);",
            "LOCK TABLE jobs IN EXCLUSIVE MODE;",
            "SELECT 1 FROM jobs WHERE id = :id FOR UPDATE;",
            "SET TRANSACTION ISOLATION LEVEL SERIALIZABLE;",
        ],
    )
    def test_a_pair_that_something_else_guards_is_not_accused(self, between: str) -> None:
        text = (
            f"SELECT id FROM jobs WHERE state = 'queued' LIMIT 1 \\gset\n{between}\n"
            "UPDATE jobs SET state = 'running' WHERE id = :id;"
        )
        assert flaws(claims.unguarded, text) == []

    def test_statements_of_two_files_are_no_pair(self) -> None:
        assert (
            flaws(
                claims.unguarded,
                "SELECT id FROM jobs WHERE state = 'queued' LIMIT 1;",
                "UPDATE jobs SET state = 'running' WHERE id = 1;",
            )
            == []
        )

    def test_waiting_for_a_lock(self) -> None:
        (flaw,) = flaws(claims.not_skip_locked, CLAIM.replace(" SKIP LOCKED", ""))
        assert flaw.severity == "warning"
        assert "FOR UPDATE SKIP LOCKED" in flaw.remedies[0].sql[0]

    def test_failing_for_a_lock_is_a_notice(self) -> None:
        (flaw,) = flaws(claims.not_skip_locked, CLAIM.replace("SKIP LOCKED", "NOWAIT"))
        assert flaw.severity == "notice"

    def test_psql_variables_come_back_in_the_corrected_statement(self) -> None:
        (flaw,) = flaws(
            claims.not_skip_locked,
            "SELECT id FROM jobs WHERE state = :'wanted' AND queue = :queue ORDER BY id LIMIT :n FOR UPDATE;",
        )
        assert flaw.remedies[0].sql[0] == (
            "SELECT id FROM jobs WHERE state = :'wanted' AND queue = :queue ORDER BY id LIMIT :n FOR UPDATE SKIP LOCKED;"
        )

    def test_a_batch_under_in_may_overrun_its_limit(self) -> None:
        batch = CLAIM.replace("id = (", "id IN (").replace("LIMIT 1", "LIMIT 10")
        (flaw,) = flaws(claims.limit_overrun, batch)
        assert "LIMIT 10" in flaw.title
        assert "AS MATERIALIZED" in flaw.remedies[0].sql[0]

    def test_a_materialised_cte_does_not(self) -> None:
        text = (
            "WITH batch AS MATERIALIZED (SELECT id FROM jobs WHERE state = 'queued' ORDER BY id LIMIT 10 FOR UPDATE SKIP LOCKED) "
            "UPDATE jobs SET state = 'running' FROM batch WHERE jobs.id = batch.id RETURNING jobs.id;"
        )
        assert accused(text) == set()

    def test_a_claim_without_a_limit(self) -> None:
        (flaw,) = flaws(
            claims.unbounded, "SELECT * FROM outbox WHERE sent_at IS NULL FOR UPDATE SKIP LOCKED;"
        )
        assert "LIMIT 10" in flaw.remedies[0].sql[0]

    def test_an_advisory_lock_for_every_row_scanned(self) -> None:
        (flaw,) = flaws(
            claims.advisory_lock,
            "SELECT id FROM jobs WHERE state = 'queued' AND pg_try_advisory_lock(id) ORDER BY id LIMIT 1;",
        )
        assert "pg_try_advisory_lock()" in flaw.title
        assert "until the session ends" in flaw.why
        assert "FOR NO KEY UPDATE SKIP LOCKED" in flaw.remedies[0].sql[0]
        assert "advisory" not in flaw.remedies[0].sql[0]

    def test_an_advisory_lock_on_the_one_row_chosen(self) -> None:
        text = "SELECT id FROM (SELECT id FROM jobs WHERE state = 'queued' ORDER BY id LIMIT 1) AS one WHERE pg_try_advisory_lock(id);"
        assert "claim-advisory-lock" not in accused(text)

    def test_a_lock_that_children_wait_for(self) -> None:
        child = (
            "CREATE TABLE attempts (job_id bigint REFERENCES jobs (id)); CREATE INDEX ON attempts (job_id);"
        )
        (flaw,) = flaws(claims.lock_too_strong, TABLE + child + CLAIM)
        assert flaw.severity == "notice"
        assert "FOR NO KEY UPDATE SKIP LOCKED" in flaw.remedies[0].sql[0]
        assert flaws(claims.lock_too_strong, TABLE + CLAIM) == []
        assert (
            flaws(claims.lock_too_strong, TABLE + child + CLAIM.replace("FOR UPDATE", "FOR NO KEY UPDATE"))
            == []
        )


class TestMultixacts:
    BLOCK = """CREATE FUNCTION take() RETURNS bigint LANGUAGE plpgsql AS $body$
DECLARE found bigint;
BEGIN
  SELECT id INTO found FROM jobs WHERE state = 'queued' ORDER BY id LIMIT 1 FOR UPDATE SKIP LOCKED;
  BEGIN
    {inside}UPDATE jobs SET state = 'running' WHERE id = found;
  EXCEPTION WHEN unique_violation THEN
    RETURN NULL;
  END;
  RETURN found;
END $body$;"""

    def test_locked_outside_and_changed_in_an_exception_block(self) -> None:
        (flaw,) = flaws(multixacts.from_subtransaction, self.BLOCK.format(inside=""))
        assert place(flaw) == (6, 5)
        assert "locked in line 4" in flaw.title

    def test_locked_again_inside_the_block(self) -> None:
        inside = "PERFORM 1 FROM jobs WHERE id = found FOR UPDATE;\n    "
        assert flaws(multixacts.from_subtransaction, self.BLOCK.format(inside=inside)) == []

    def test_locked_outside_and_changed_behind_a_savepoint(self) -> None:
        text = (
            "BEGIN;\nSELECT id FROM jobs WHERE state = 'queued' LIMIT 1 FOR UPDATE SKIP LOCKED;\nSAVEPOINT one;\n"
            "UPDATE jobs SET state = 'running' WHERE id = 1;\nRELEASE one;\nCOMMIT;"
        )
        (flaw,) = flaws(multixacts.from_subtransaction, text)
        assert place(flaw) == (4, 1)

    def test_changed_after_the_savepoint_was_released(self) -> None:
        text = (
            "BEGIN; SELECT id FROM jobs WHERE state = 'queued' LIMIT 1 FOR UPDATE SKIP LOCKED; SAVEPOINT one; INSERT INTO log VALUES (1); "
            "RELEASE one; UPDATE jobs SET state = 'running' WHERE id = 1; COMMIT;"
        )
        assert accused(text) == set()

    def test_an_account_is_no_queue(self) -> None:
        text = (
            "BEGIN; SELECT balance FROM accounts WHERE id = 1 FOR UPDATE; SAVEPOINT s; "
            "UPDATE accounts SET balance = balance - 1 WHERE id = 1; RELEASE s; COMMIT;"
        )
        assert accused(text) == set()

    def test_share_locks_on_jobs_and_on_others(self) -> None:
        share = "SELECT * FROM {} WHERE id = 1 FOR SHARE;"
        (flaw,) = flaws(multixacts.from_share_lock, CLAIM + share.format("jobs"))
        assert flaw.severity == "notice"
        assert flaws(multixacts.from_share_lock, CLAIM + share.format("tenants")) == []


class TestIndexes:
    def test_no_index_leads_to_the_ready_jobs(self) -> None:
        (flaw,) = flaws(serving.scans_consumed_rows, TABLE, CLAIM)
        assert flaw.source.name == "file2.sql"
        assert flaw.remedies[0].sql[-1] == (
            "CREATE INDEX CONCURRENTLY jobs_ready_idx ON public.jobs (run_at, id) WHERE state = 'queued';"
        )

    def test_the_remedy_cures_it(self) -> None:
        (flaw,) = flaws(serving.scans_consumed_rows, TABLE, CLAIM)
        assert accused(TABLE + flaw.remedies[0].sql[-1], CLAIM) == set()

    @pytest.mark.parametrize(
        "index",
        [
            INDEX,
            "CREATE INDEX ON jobs (state, run_at, id);",
            "CREATE INDEX ON public.jobs USING btree (state, run_at, id);",
            "CREATE INDEX ON jobs (run_at, id) WHERE state IN ('queued', 'retry');",
            "CREATE INDEX ON jobs (run_at, id) WHERE state <> 'done';",
            "CREATE INDEX ON jobs (run_at, id) WHERE state = 'queued' AND state IS NOT NULL;",
            "CREATE INDEX ON jobs (run_at DESC, id DESC) WHERE state = 'queued';",
            "DO $$ BEGIN CREATE INDEX ON jobs (run_at, id) WHERE state = 'queued'; END $$;",
        ],
    )
    def test_an_index_that_serves(self, index: str) -> None:
        assert accused(TABLE + index, CLAIM) == set()

    def test_claims_that_want_different_indexes_get_different_names(self) -> None:
        newest = CLAIM.replace("ORDER BY run_at, id", "ORDER BY id DESC")
        found = flaws(serving.scans_consumed_rows, TABLE, CLAIM, newest, CLAIM)
        built = [flaw.remedies[0].sql[-1] for flaw in found]
        assert [one.split()[3] for one in built] == ["jobs_ready_idx", "jobs_ready_idx_2", "jobs_ready_idx"]
        assert accused(TABLE + "".join(dict.fromkeys(built)), CLAIM, newest) == set()
        taken = TABLE + "CREATE INDEX jobs_ready_idx ON jobs (run_at);"
        (flaw,) = flaws(serving.scans_consumed_rows, taken, CLAIM)
        assert "CONCURRENTLY jobs_ready_idx_2 ON" in flaw.remedies[0].sql[-1]

    def test_the_last_definition_counts(self) -> None:
        dropped = TABLE + INDEX + "DROP INDEX jobs_ready_idx;"
        assert accused(dropped, CLAIM) == {"claim-scans-consumed-rows"}

    def test_an_index_without_the_order(self) -> None:
        (flaw,) = flaws(serving.sorts_backlog, TABLE + "CREATE INDEX by_state ON jobs (state);", CLAIM)
        assert "by_state" in flaw.title and "run_at, id" in flaw.title
        assert accused(TABLE + "CREATE INDEX ON jobs (run_at, id DESC) WHERE state = 'queued';", CLAIM) == {
            "claim-sorts-backlog"
        }

    def test_a_bind_parameter_hides_the_predicate(self) -> None:
        (flaw,) = flaws(serving.misses_partial_index, TABLE + INDEX, CLAIM.replace("'queued'", "$1"))
        assert "bind parameter" in flaw.title and "jobs_ready_idx" in flaw.title

    def test_a_variable_of_a_function_is_one(self) -> None:
        text = """CREATE FUNCTION take(wanted text) RETURNS SETOF jobs LANGUAGE sql AS $$
            UPDATE jobs SET state = 'running' WHERE id = (SELECT id FROM jobs WHERE state = wanted ORDER BY run_at, id
            LIMIT 1 FOR UPDATE SKIP LOCKED) RETURNING * $$;"""
        assert accused(TABLE + INDEX, text) == {"claim-misses-partial-index"}

    def test_a_cast_hides_it_too(self) -> None:
        (flaw,) = flaws(
            serving.misses_partial_index, TABLE + INDEX, CLAIM.replace("state = 'q", "state::text = 'q")
        )
        assert "cast" in flaw.title
        assert "state = 'queued'" in flaw.remedies[0].sql[0]

    def test_psql_writes_its_variables_into_the_text(self) -> None:
        assert accused(TABLE + INDEX, CLAIM.replace("'queued'", ":'wanted'")) == set()

    @pytest.mark.parametrize(
        "table",
        [
            "CREATE TABLE jobs (LIKE other INCLUDING ALL);",
            "CREATE TABLE jobs (id bigint, state text, run_at timestamptz) INHERITS (base);",
            "CREATE TABLE jobs AS SELECT 1 AS id;",
            "CREATE TABLE jobs_1 PARTITION OF jobs FOR VALUES IN ('a');",
            "CREATE TABLE other (id bigint PRIMARY KEY, state text);",
            TABLE + "CREATE INDEX ON jobs (run_at, id) WHERE is_ready(state);",
            TABLE + "ALTER TABLE jobs RENAME COLUMN status TO state;",
        ],
    )
    def test_a_table_that_is_not_wholly_there_is_not_judged(self, table: str) -> None:
        assert accused(table, CLAIM) == set()

    def test_jobs_that_are_deleted_when_done_do_not_pile_up(self) -> None:
        assert accused(TABLE, CLAIM, "DELETE FROM jobs WHERE id = $1;") == set()

    def test_conditions_that_cannot_be_decided_are_not_judged(self) -> None:
        either = CLAIM.replace(
            "state = 'queued'", "(state = 'queued' OR (state = 'running' AND run_at < now()))"
        )
        assert accused(TABLE, either) == set()


class TestViews:
    VIEW = "CREATE VIEW ready AS SELECT * FROM jobs WHERE state = 'queued';\n"

    @pytest.mark.parametrize(
        "claim",
        [
            "UPDATE jobs SET state = 'running' WHERE id = (SELECT id FROM ready ORDER BY id LIMIT 1) RETURNING *;",
            "UPDATE ready SET state = 'running' WHERE id = (SELECT r.id FROM ready AS r ORDER BY r.id LIMIT 1) RETURNING *;",
            "SELECT id FROM ready ORDER BY id LIMIT 1; UPDATE jobs SET state = 'running' WHERE id = $1;",
            "CREATE VIEW next AS SELECT id FROM ready; UPDATE jobs SET state = 'running' WHERE id = (SELECT id FROM next LIMIT 1) RETURNING *;",
            "UPDATE jobs SET state = 'running' FROM (SELECT r.id FROM queues q JOIN ready r ON r.queue = q.name LIMIT 1) p WHERE p.id = jobs.id RETURNING *;",
        ],
    )
    def test_an_unguarded_claim_from_a_view(self, claim: str) -> None:
        (flaw,) = flaws(claims.unguarded, self.VIEW + claim)
        assert place(flaw)[0] == 2
        assert "job of jobs" in flaw.title

    @pytest.mark.parametrize(
        "text",
        [
            "SELECT id FROM ready ORDER BY id LIMIT 1 FOR UPDATE SKIP LOCKED; UPDATE jobs SET state = 'running' WHERE id = $1;",
            "UPDATE jobs SET state = 'running' WHERE id = (SELECT id FROM ready ORDER BY id LIMIT 1 FOR UPDATE SKIP LOCKED) RETURNING *;",
            "SELECT * FROM ready ORDER BY id LIMIT 50;",
            "WITH ready AS (SELECT id FROM mails WHERE state = 'queued' LIMIT 1 FOR UPDATE SKIP LOCKED) "
            "UPDATE mails SET state = 'running' WHERE id = (SELECT id FROM ready) RETURNING *;",
            "CREATE VIEW loop AS SELECT * FROM loop; SELECT * FROM loop LIMIT 1;",
        ],
    )
    def test_sound_ones(self, text: str) -> None:
        assert accused(self.VIEW + text) == set()


class TestDefinitions:
    def test_a_foreign_key_without_an_index(self) -> None:
        child = "CREATE TABLE attempts (\n  id bigint PRIMARY KEY,\n  job_id bigint REFERENCES jobs\n);"
        (flaw,) = flaws(definitions.foreign_key_unindexed, TABLE + INDEX + CLAIM, child)
        assert (flaw.source.name, place(flaw)[0], flaw.severity) == ("file2.sql", 3, "notice")
        (flaw,) = flaws(
            definitions.foreign_key_unindexed, TABLE + INDEX + CLAIM + "DELETE FROM jobs WHERE id = 1;", child
        )
        assert flaw.severity == "warning"
        assert "ON public.attempts (job_id)" in flaw.remedies[0].sql[-1]

    def test_a_foreign_key_with_an_index(self) -> None:
        child = "CREATE TABLE attempts (job_id bigint); ALTER TABLE ONLY attempts ADD CONSTRAINT a FOREIGN KEY (job_id) REFERENCES jobs (id);"
        assert flaws(definitions.foreign_key_unindexed, TABLE + CLAIM + child) != []
        assert (
            flaws(
                definitions.foreign_key_unindexed,
                TABLE + CLAIM + child + "CREATE INDEX ON attempts (job_id, id);",
            )
            == []
        )

    def test_a_foreign_key_to_another_table(self) -> None:
        child = "CREATE TABLE attempts (tenant_id bigint REFERENCES tenants);"
        assert flaws(definitions.foreign_key_unindexed, TABLE + CLAIM + child) == []

    @pytest.mark.parametrize(
        "column",
        [
            "id serial PRIMARY KEY",
            "id int GENERATED BY DEFAULT AS IDENTITY PRIMARY KEY",
            "id int DEFAULT nextval('s') PRIMARY KEY",
        ],
    )
    def test_a_key_that_runs_out(self, column: str) -> None:
        (flaw,) = flaws(definitions.id_exhaustion, f"CREATE TABLE jobs (\n  {column}, state text);" + CLAIM)
        assert place(flaw) == (2, 3)
        assert "2.15 billion jobs" in flaw.title

    @pytest.mark.parametrize(
        "column", ["id bigserial PRIMARY KEY", "id int PRIMARY KEY", "id uuid PRIMARY KEY"]
    )
    def test_a_key_that_does_not(self, column: str) -> None:
        assert flaws(definitions.id_exhaustion, f"CREATE TABLE jobs ({column}, state text);" + CLAIM) == []

    def test_a_key_that_was_widened(self) -> None:
        text = "CREATE TABLE jobs (id serial PRIMARY KEY, state text); ALTER TABLE jobs ALTER COLUMN id TYPE bigint;"
        assert flaws(definitions.id_exhaustion, text + CLAIM) == []

    def test_a_table_that_is_no_queue(self) -> None:
        assert flaws(definitions.id_exhaustion, "CREATE TABLE users (id serial PRIMARY KEY);" + CLAIM) == []

    def test_an_index_that_repeats_another(self) -> None:
        other = "\nCREATE INDEX CONCURRENTLY IF NOT EXISTS \"My idx\" ON public.jobs USING btree (run_at ASC, id) WHERE (state = 'queued');"
        (flaw,) = flaws(definitions.duplicate_index, TABLE + INDEX + CLAIM + other)
        assert (flaw.severity, place(flaw)) == ("warning", (2, 1))
        assert flaw.title == 'Index "My idx" of jobs repeats jobs_ready_idx (line 1)'
        assert flaw.remedies[0].sql == ('DROP INDEX CONCURRENTLY "My idx";',)

    def test_an_index_that_repeats_one_of_another_file(self) -> None:
        (flaw,) = flaws(definitions.duplicate_index, TABLE + INDEX, INDEX.replace("jobs_ready_idx", "again"))
        assert flaw.title.endswith("(file1.sql:1)")

    def test_an_index_that_is_the_beginning_of_another(self) -> None:
        wider = TABLE + CLAIM + "CREATE INDEX a ON jobs (state); CREATE INDEX b ON jobs (state, run_at);"
        (flaw,) = flaws(definitions.duplicate_index, wider)
        assert (flaw.severity, "a of jobs only holds the first columns of b" in flaw.title) == (
            "notice",
            True,
        )
        assert flaws(definitions.duplicate_index, wider.replace(CLAIM, "")) == []

    def test_an_index_on_the_primary_key(self) -> None:
        (flaw,) = flaws(definitions.duplicate_index, TABLE + CLAIM + "CREATE INDEX i ON jobs (id);")
        assert "repeats id" in flaw.title

    @pytest.mark.parametrize(
        "text",
        [
            "CREATE UNIQUE INDEX a ON jobs (run_at); CREATE INDEX b ON jobs (run_at, id);",
            "CREATE INDEX a ON jobs (run_at) WHERE state = 'queued'; CREATE INDEX b ON jobs (run_at) WHERE state = 'running';",
            "CREATE INDEX a ON jobs (run_at) WHERE state = 'queued'; CREATE INDEX b ON jobs (run_at);",
            "CREATE INDEX a ON jobs (run_at DESC); CREATE INDEX b ON jobs (run_at, id);",
            "CREATE INDEX a ON jobs (state text_pattern_ops); CREATE INDEX b ON jobs (state);",
            'CREATE INDEX a ON jobs (state COLLATE "C"); CREATE INDEX b ON jobs (state);',
            "CREATE INDEX a ON jobs USING hash (state); CREATE INDEX b ON jobs (state);",
            "CREATE INDEX a ON jobs (lower(state)); CREATE INDEX b ON jobs (upper(state));",
            "CREATE INDEX a ON jobs (run_at) INCLUDE (state); CREATE INDEX b ON jobs (run_at, id);",
            "CREATE INDEX IF NOT EXISTS a ON jobs (run_at); CREATE INDEX IF NOT EXISTS a ON jobs (run_at);",
            "CREATE INDEX a ON jobs (run_at); CREATE INDEX b ON jobs (run_at); DROP INDEX a;",
            "CREATE INDEX a ON jobs (run_at); ALTER INDEX a RENAME TO old; CREATE INDEX a ON jobs (run_at); DROP INDEX old;",
        ],
    )
    def test_indexes_that_differ(self, text: str) -> None:
        assert flaws(definitions.duplicate_index, TABLE + CLAIM + text) == []


INNOCENT = {
    "bank transfer": "BEGIN; SELECT balance FROM accounts WHERE id IN (1, 2) ORDER BY id FOR UPDATE; "
    "UPDATE accounts SET balance = balance - 10 WHERE id = 1; UPDATE accounts SET balance = balance + 10 WHERE id = 2; COMMIT;",
    "newest balance": "SELECT balance FROM ledger WHERE account_id = 1 ORDER BY created_at DESC LIMIT 1 FOR UPDATE;",
    "open items of an order": "SELECT * FROM order_items WHERE order_id = 1 AND status = 'open' FOR UPDATE;",
    "open orders of a customer": "SELECT * FROM orders WHERE customer_id = 1 AND status = 'open' FOR UPDATE;",
    "heartbeat": "UPDATE jobs SET heartbeat_at = now() WHERE id = 1 AND state = 'running';",
    "heartbeat by id": "UPDATE jobs SET heartbeat_at = now() WHERE id = 1;",
    "guarded update": "UPDATE jobs SET state = 'running' WHERE id = 1 AND state = 'queued';",
    "look and guarded update": "SELECT id FROM jobs WHERE state = 'queued' ORDER BY id LIMIT 1 \\gset\n"
    "UPDATE jobs SET state = 'running' WHERE id = :id AND state = 'queued';",
    "optimistic lock": "UPDATE docs SET body = 'x', version = version + 1 WHERE id = 1 AND version = 3;",
    "finish": "UPDATE jobs SET state = 'done', finished_at = now() WHERE id = 1;",
    "dashboard": "SELECT state, count(*) FROM jobs GROUP BY state; SELECT * FROM jobs WHERE state = 'failed' ORDER BY id DESC LIMIT 50;",
    "upsert": "INSERT INTO jobs (key, state) VALUES ('a', 'queued') ON CONFLICT (key) DO UPDATE SET state = excluded.state;",
    "row by key": "SELECT * FROM users WHERE id = 1 FOR UPDATE;",
    "backfill": "UPDATE users SET email_lower = lower(email) WHERE id IN (SELECT id FROM users WHERE email_lower IS NULL LIMIT 1000);",
    "retention": "DELETE FROM jobs WHERE id IN (SELECT id FROM jobs WHERE finished_at < now() - interval '7 days' LIMIT 1000);",
    "reaper": "UPDATE jobs SET state = 'queued', worker = NULL WHERE state = 'running' AND lease_until < now();",
    "delete returning": "DELETE FROM jobs WHERE id = (SELECT id FROM jobs WHERE state = 'queued' ORDER BY id LIMIT 1 FOR UPDATE SKIP LOCKED) RETURNING *;",
    "migration": "ALTER TABLE jobs ADD COLUMN priority int NOT NULL DEFAULT 0; CREATE INDEX CONCURRENTLY i ON jobs (priority);",
    "sessions": "UPDATE sessions SET expired = true WHERE expires_at < now();",
    "cursor": "BEGIN; DECLARE c CURSOR FOR SELECT id FROM jobs WHERE state = 'queued' ORDER BY id FOR UPDATE SKIP LOCKED; FETCH 1 FROM c; "
    "UPDATE jobs SET state = 'running' WHERE CURRENT OF c; COMMIT;",
    "keys given": "UPDATE jobs j SET state = 'running' FROM unnest($1::bigint[]) u (id) WHERE j.id = u.id AND j.state = 'queued' RETURNING j.id;",
    "first row into a variable": "DO $$ DECLARE v bigint; BEGIN SELECT id INTO v FROM jobs WHERE state = 'queued' ORDER BY id FOR UPDATE SKIP LOCKED; "
    "UPDATE jobs SET state = 'running' WHERE id = v; END $$;",
    "advisory lock behind a fence": "SELECT * FROM jobs WHERE id IN (WITH r AS MATERIALIZED (SELECT id FROM jobs WHERE state = 'queued' ORDER BY id) "
    "SELECT id FROM r WHERE pg_try_advisory_lock(id) LIMIT 1);",
    "merge with a test": "MERGE INTO jobs j USING (SELECT id FROM jobs WHERE state = 'queued' ORDER BY id LIMIT 1) p ON j.id = p.id "
    "WHEN MATCHED AND j.state = 'queued' THEN UPDATE SET state = 'running';",
    "activation": "UPDATE subscriptions SET status = 'active' WHERE status = 'pending' RETURNING id;",
    "orders move on": "UPDATE orders SET status = 'processing' WHERE status = 'new';",
    "account lock": "UPDATE accounts SET locked_at = now() WHERE locked_at IS NULL AND failures > 5;",
    "finisher in the form of a claim": "UPDATE jobs SET state = 'done' WHERE id = (SELECT id FROM jobs WHERE state = 'running' LIMIT 1 "
    "FOR UPDATE) RETURNING id;",
    "sequence": "SELECT setval('jobs_id_seq', (SELECT max(id) FROM jobs));",
}


@pytest.mark.parametrize("text", INNOCENT.values(), ids=INNOCENT.keys())
def test_the_innocent_are_not_accused(text: str) -> None:
    assert accused(text) == set()


@pytest.mark.parametrize(
    "scenario", sorted(path.name for path in (ROOT / "fixtures" / "scenarios").glob("healthy-*"))
)
def test_healthy_scenarios_are_not_accused(scenario: str) -> None:
    files = sorted((ROOT / "fixtures" / "scenarios" / scenario).glob("*.sql"))
    assert accused(*(file.read_text() for file in files)) == set()


@pytest.mark.parametrize(
    ("scenario", "expected"),
    [
        ("unguarded-claim", "claim-unguarded"),
        ("unguarded-subselect", "claim-unguarded"),
        ("for-update-convoy", "claim-not-skip-locked"),
        ("savepoint-storm", "multixact-from-subtransaction"),
        ("exception-block-storm", "multixact-from-subtransaction"),
        ("share-lock-storm", "multixact-from-share-lock"),
        ("no-claim-index", "claim-scans-consumed-rows"),
    ],
)
def test_sick_scenarios_are(scenario: str, expected: str) -> None:
    folder = ROOT / "fixtures" / "scenarios" / scenario
    files = [file for file in sorted(folder.glob("*.sql")) if not file.name.startswith("cure")]
    assert accused(*(file.read_text() for file in files)) == {expected}


class TestFilesAsPsqlReadsThem:
    def test_copy_data_is_no_sql(self) -> None:
        text = f"COPY jobs (id, state) FROM stdin;\n1\tit's; broken (\n2\t$$\n\\.\n{CLAIM.replace(' SKIP LOCKED', '')}"
        (flaw,) = flaws(claims.not_skip_locked, text)
        assert place(flaw) == (5, 1)
        assert program(text).unparsed == ()

    def test_meta_commands_variables_and_conditions(self) -> None:
        text = (
            "\\set ON_ERROR_STOP on\n\\i other.sql\n\\if :{?queue}\n\\echo 'it''s here; '\n\\endif\n"
            'CREATE TABLE :"name" (id int); ALTER TABLE :schema.jobs ADD COLUMN x int;\n'
            "SELECT a[1:2], b::text, :'text' || :n FROM t \\gset\nSELECT 1 \\; SELECT 2 \\g\n"
        )
        assert program(text).unparsed == ()

    def test_inserts_of_a_dump_are_passed_over_and_wrong_ones_listed(self) -> None:
        text = "INSERT INTO jobs VALUES (1, 'it''s; (fine');\nINSERT INTO jobs VALUES (2,);\nINSERT INTO jobs SELECT 1;\n"
        read = program(text)
        assert [one.statement.text for one in read.statements] == ["INSERT INTO jobs SELECT 1"]
        assert [one.line for one in read.unparsed] == [2]

    def test_dollar_quotes_and_nested_comments(self) -> None:
        text = "/* a /* nested; */ comment; */ SELECT $q$ ; it's $$ $q$ AS a; -- '; $$\n" + CLAIM.replace(
            "SKIP LOCKED", "NOWAIT"
        )
        (flaw,) = flaws(claims.not_skip_locked, text)
        assert place(flaw) == (2, 1)

    def test_sql_bodies_and_rules(self) -> None:
        text = (
            "CREATE FUNCTION f() RETURNS int BEGIN ATOMIC SELECT 1; SELECT CASE WHEN true THEN 2 END; END;\n"
            "CREATE RULE r AS ON INSERT TO t DO ALSO (INSERT INTO u VALUES (1);\n INSERT INTO v VALUES (2););\n"
            + CLAIM
        )
        assert program(text).unparsed == ()

    def test_columns_count_characters(self) -> None:
        (flaw,) = flaws(claims.not_skip_locked, "SELECT 'ß€😀'; " + CLAIM.replace(" SKIP LOCKED", ""))
        assert place(flaw) == (1, 15)

    def test_windows_line_ends(self) -> None:
        (flaw,) = flaws(
            claims.not_skip_locked,
            "SELECT 1;\r\n\\set x 1\r\n" + CLAIM.replace(" SKIP LOCKED", "").replace(" WHERE", "\r\nWHERE"),
        )
        assert place(flaw) == (3, 1)

    @pytest.mark.parametrize(
        "broken",
        [
            "SELEC 1;",
            "SELECT 'open;\nSELECT 2;",
            "SELECT (1;\n",
            "CREATE TABLE {{ table }} (id int);",
            "SELECT $$ open;\n",
            'SELECT "open;\n',
            "/* open;\n",
            "CREATE FUNCTION f() RETURNS int LANGUAGE plpgsql AS $$ BEGIN SELEC 1; END $$;",
        ],
    )
    def test_what_does_not_parse_is_listed_and_the_rest_is_read(self, broken: str) -> None:
        text = f"SELECT 1;\n{broken}\n{CLAIM.replace(' SKIP LOCKED', '')}\n"
        read = program(text)
        assert [one.line for one in read.unparsed] == [2]
        assert len(list(claims.not_skip_locked(read))) == 1

    @settings(max_examples=300, deadline=None)
    @given(
        st.lists(
            st.sampled_from(
                ["SELECT", "'", '"', "$$", "$a$", ";", "\n", "\\", "\\.", "--", "/*", "*/", "(", ")", ":x", ":'y'", "COPY t FROM stdin;", "BEGIN ATOMIC",
                 "END", "E'\\", "CREATE FUNCTION f() RETURNS int LANGUAGE plpgsql AS", "\x00", "\ud800", "[1:", "😀", CLAIM]
            )
        ).map(" ".join)
    )  # fmt: skip
    def test_no_text_makes_it_raise(self, text: str) -> None:
        read = program(text)
        for rule in RULES.values():
            for flaw in rule(read):
                assert place(flaw) >= (1, 1)


class TestSuppression:
    SICK = "SELECT id FROM jobs WHERE state = 'queued'\n ORDER BY id LIMIT 1 FOR UPDATE;"

    def report(self, text: str) -> LintReport:
        return lint([("a.sql", text)])

    def test_without_a_comment(self) -> None:
        assert [one.check for one in self.report(self.SICK).findings] == ["claim-not-skip-locked"]

    @pytest.mark.parametrize(
        "text",
        [
            f"-- pgqdoctor: ignore=claim-not-skip-locked\n{SICK}",
            f"-- one worker only; pgqdoctor: ignore=dead-tuples, claim-not-skip-locked\n{SICK}",
            f"{SICK} -- pgqdoctor: ignore=claim-not-skip-locked",
            f"/* pgqdoctor: ignore=claim-not-skip-locked */\n{SICK}",
            SICK.replace("\n", " -- pgqdoctor: ignore=claim-not-skip-locked\n"),
        ],
    )
    def test_with_one(self, text: str) -> None:
        assert self.report(text).findings == ()

    @pytest.mark.parametrize(
        "text",
        [
            f"-- pgqdoctor: ignore=dead-tuples\n{SICK}",
            f"-- pgqdoctor: ignore=claim-not-skip-locked\n\n{SICK}",
            f"SELECT 'pgqdoctor: ignore=claim-not-skip-locked';\n{SICK}",
        ],
    )
    def test_with_one_that_is_not_meant(self, text: str) -> None:
        assert len(self.report(text).findings) == 1

    def test_above_a_function(self) -> None:
        text = f"CREATE FUNCTION f() RETURNS SETOF bigint LANGUAGE sql AS $$\n\n{self.SICK}\n$$;"
        assert len(self.report(text).findings) == 1
        assert self.report(f"-- pgqdoctor: ignore=claim-not-skip-locked\n{text}").findings == ()


class TestCommand:
    @pytest.fixture
    def sick(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
        monkeypatch.chdir(tmp_path)
        (tmp_path / "worker.sql").write_text("\n" + CLAIM.replace(" SKIP LOCKED", "") + "\nSELEC 1;\n")
        return tmp_path / "worker.sql"

    def test_text_begins_with_the_place(self, sick: Path, capsys: pytest.CaptureFixture[str]) -> None:
        assert run(["lint", "worker.sql"]) == FOUND
        shown = capsys.readouterr().out
        assert shown.startswith("worker.sql:2:1: warning: Workers of jobs line up")
        assert "[claim-not-skip-locked]" in shown
        assert "worker.sql:3: not read: syntax error" in shown
        assert "1 file: 1 finding, 1 statement not read" in shown

    def test_json_is_the_contract(self, sick: Path, capsys: pytest.CaptureFixture[str]) -> None:
        run(["lint", "--format", "json", "worker.sql"])
        found = json.loads(capsys.readouterr().out)
        assert found["schema"] == "pgqdoctor.lint/1"
        assert set(found) == {"schema", "findings", "unparsed"}
        assert set(found["findings"][0]) == {
            "check",
            "severity",
            "file",
            "line",
            "column",
            "title",
            "why",
            "remedies",
        }
        assert found["unparsed"] == [
            {"file": "worker.sql", "line": 3, "error": 'syntax error at or near "SELEC"'}
        ]
        schema = json.loads((ROOT / "pgqdoctor" / "schemas" / "lint.schema.json").read_text())
        jsonschema.validate(found, schema)

    @pytest.mark.parametrize(
        ("fail_on", "status"),
        [("critical", HEALTHY), ("warning", FOUND), ("notice", FOUND), ("never", HEALTHY)],
    )
    def test_exit_status(self, sick: Path, fail_on: str, status: int) -> None:
        assert run(["lint", "--fail-on", fail_on, "worker.sql"]) == status

    def test_the_settings_file_counts(self, sick: Path) -> None:
        (sick.parent / "pgqdoctor.toml").write_text('fail-on = "critical"\n')
        assert run(["lint", "worker.sql"]) == HEALTHY
        assert run(["lint", "--fail-on", "warning", "worker.sql"]) == FOUND

    @pytest.mark.parametrize("format_", LINT_FORMATS)
    def test_every_format_names_the_fault_its_place_and_what_was_not_read(
        self, sick: Path, format_: str, capsys: pytest.CaptureFixture[str]
    ) -> None:
        assert run(["lint", "--format", format_, "--fail-on", "never", "worker.sql"]) == HEALTHY
        assert run(["lint", "--format", format_, "worker.sql"]) == FOUND
        shown = capsys.readouterr().out
        assert "claim-not-skip-locked" in shown
        assert "worker.sql" in shown
        assert "SELEC" in shown

    def test_junit_fails_from_fail_on_upwards(self, sick: Path, capsys: pytest.CaptureFixture[str]) -> None:
        run(["lint", "--format", "junit", "worker.sql"])
        assert 'failures="1"' in capsys.readouterr().out
        run(["lint", "--format", "junit", "--fail-on", "critical", "worker.sql"])
        assert 'failures="1"' not in capsys.readouterr().out

    def test_the_format_of_the_settings_file(self, sick: Path, capsys: pytest.CaptureFixture[str]) -> None:
        settings = sick.parent / "pgqdoctor.toml"
        settings.write_text('format = "github"\n')
        run(["lint", "worker.sql"])
        assert capsys.readouterr().out.startswith("::warning file=worker.sql,line=2,col=1,")
        run(["lint", "--format", "text", "worker.sql"])
        assert capsys.readouterr().out.startswith("worker.sql:2:1: warning")
        # One that only the report has.
        settings.write_text('format = "html"\n')
        run(["lint", "worker.sql"])
        assert capsys.readouterr().out.startswith("worker.sql:2:1: warning")
        settings.write_text('format = "sarfi"\n')
        assert run(["lint", "worker.sql"]) == USAGE
        assert "unknown format 'sarfi'. Did you mean sarif?" in capsys.readouterr().err

    def test_only_and_ignore(self, sick: Path) -> None:
        assert run(["lint", "--ignore", "claim-not-skip-locked", "worker.sql"]) == HEALTHY
        assert run(["lint", "--only", "claim-unguarded", "worker.sql"]) == HEALTHY
        assert run(["lint", "--only", "claim-ungarded", "worker.sql"]) == USAGE

    def test_standard_input(
        self, sick: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
    ) -> None:
        monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(sick.read_bytes())))
        assert run(["lint", "-"]) == FOUND
        assert capsys.readouterr().out.startswith("<stdin>:2:1: warning")

    def test_a_directory_is_read_as_one_set(self, sick: Path, capsys: pytest.CaptureFixture[str]) -> None:
        (sick.parent / "migrations").mkdir()
        (sick.parent / "migrations" / "1.sql").write_text(TABLE)
        (sick.parent / "migrations" / "2.sql").write_text(CLAIM)
        assert run(["lint", "migrations"]) == FOUND
        assert "claim-scans-consumed-rows" in capsys.readouterr().out

    @pytest.mark.parametrize("name", ["missing.sql", "empty"])
    def test_nothing_to_read_is_wrong_usage(
        self, sick: Path, name: str, capsys: pytest.CaptureFixture[str]
    ) -> None:
        (sick.parent / "empty").mkdir()
        assert run(["lint", name]) == USAGE
        assert name in capsys.readouterr().err

    def test_names_cannot_reach_the_terminal(self, sick: Path, capsys: pytest.CaptureFixture[str]) -> None:
        sick.write_text(
            "SELECT id FROM \"jo\x1b[31mbs\nx\" WHERE state = 'queued' ORDER BY id LIMIT 1 FOR UPDATE;"
        )
        run(["lint", "worker.sql"])
        shown = capsys.readouterr().out
        assert "\x1b" not in shown
        assert shown.count("warning") == 1


def test_hooks_for_pre_commit_run_this_command() -> None:
    text = (ROOT / ".pre-commit-hooks.yaml").read_text()
    assert "entry: pgqdoctor lint" in text


def test_rules_are_functions_of_a_program() -> None:
    rules: list[Callable[[Program], object]] = list(RULES.values())
    assert all(list(rule(program("")) or ()) == [] for rule in rules)  # type: ignore[call-overload]
