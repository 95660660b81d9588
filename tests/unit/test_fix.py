"""The script of the remedies: which steps, in which order, and that no text of a server gets out of its comment."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pgqdoctor import cli, remedy
from pgqdoctor.cli import HEALTHY, run
from pgqdoctor.errors import USAGE
from pgqdoctor.finding import Remedy
from pgqdoctor.render.script import CONCURRENT_TIMEOUT, LOCK_TIMEOUT, fix_script, undo_script
from pgqdoctor.report import Report, ReportedFinding, Skipped
from pgqdoctor.sqltext import split
from pgqdoctor.steps import treatment
from tests.golden.reports import DEAD, GUARD, HORIZON, HOSTILE, SICK
from tests.golden.reports import HEALTHY as SOUND

INDEX = remedy.create_index(
    schema="public",
    table="jobs",
    name="jobs_ready_idx",
    columns=["id"],
    predicate="state = 'queued'",
    title="Build the index",
    expect="few buffers",
    risk="one more index",
)

SKIPPED = Skipped(check="heap-bloat", queue=None, reason="needs EXECUTE on pgstattuple", grant=None)


def storage(value: int, title: str = "Set a threshold", **current: str) -> Remedy:
    return remedy.set_storage(
        "public.jobs",
        {"autovacuum_vacuum_threshold": str(value)},
        current,
        title=title,
        expect="vacuum comes",
    )


def finding(
    key: str, *remedies: Remedy, caused_by: tuple[str, ...] = (), title: str = "It is so"
) -> ReportedFinding:
    return replace(
        DEAD, key=key, check=key.partition(":")[0], title=title, remedies=remedies, caused_by=caused_by
    )


def report(*findings: ReportedFinding, **changes: Any) -> Report:
    return replace(SICK, findings=findings, **changes)


def fixing(*findings: ReportedFinding, chosen: tuple[str, ...] = ()) -> str:
    made = report(*findings)
    return fix_script(made, treatment(made, chosen))


def undoing(*findings: ReportedFinding) -> str:
    made = report(*findings)
    return undo_script(made, treatment(made))


def executed(script: str) -> list[str]:
    """Return what psql would send of a script, each statement on one line."""
    text = script.replace("\\gexec", ";")
    return [" ".join(piece.text.split()) for piece in split(text)]


def decided(script: str) -> str:
    """Return a script as a person leaves it who has decided for all steps that ask for it."""
    return "\n\n".join(_taken(part) for part in script.split("\n\n"))


def _taken(step: str) -> str:
    lines = step.split("\n")
    place = next((number for number, line in enumerate(lines) if line.startswith("--   decide ")), None)
    if place is None:
        return step
    done = next(number for number in range(place, len(lines)) if lines[number].endswith("you have"))
    return "\n".join([*lines[: done + 1], *(line.removeprefix("-- ") for line in lines[done + 1 :])])


class TestDecisions:
    """What is lost for good or reaches beyond the queue is printed, and never runs by itself."""

    @pytest.mark.parametrize(
        ("sql", "words"),
        [
            ("SELECT pg_drop_replication_slot('s');", "consumer"),
            ("ROLLBACK PREPARED 'x';", "coordinator"),
            ("ALTER SYSTEM SET autovacuum = 'on';", "whole server"),
            ("ALTER ROLE app IN DATABASE d SET lock_timeout = '1s';", "every client"),
            ("ALTER DATABASE d SET lock_timeout = '1s';", "every client"),
            ("ALTER ROLE app CONNECTION LIMIT 1;", "every client"),
            (
                "WITH gone AS (DELETE FROM jobs RETURNING *) SELECT count(*) FROM gone;",
                "application's own rows",
            ),
            ("DO $$ BEGIN DELETE FROM jobs; END $$;", "application's own rows"),
        ],
    )
    def test_a_person_decides(self, sql: str, words: str) -> None:
        step = remedy.statement(sql=(sql,), title="Do it", expect="", risk="")
        script = fixing(finding("a:b", step))
        assert executed(script) == []
        flat = " ".join(line.removeprefix("--").strip() for line in script.split("\n"))
        (said,) = re.findall(r"decide +(.*?)Remove the comment", flat)
        assert words in said
        assert len(executed(decided(script))) >= 1

    @pytest.mark.parametrize(
        ("sql", "words"),
        [
            ("SELECT pg_terminate_backend(4711);", "whose session"),
            ("SELECT pg_cancel_backend(4711);", "whose statement"),
            ("WITH a AS (SELECT 1) UPDATE jobs SET state = 'queued' FROM a;", "application's own rows"),
        ],
    )
    def test_a_cure_runs_and_says_what_to_make_sure_of_first(self, sql: str, words: str) -> None:
        step = remedy.statement(sql=(sql,), title="Do it", expect="", risk="")
        script = fixing(finding("a:b", step))
        assert len(executed(script)) >= 1
        assert words in " ".join(line.removeprefix("--").strip() for line in script.split("\n"))
        assert "--   first" in script

    @pytest.mark.parametrize(
        "sql",
        [
            "VACUUM (TRUNCATE false) public.jobs;",
            "ANALYZE public.jobs;",
            "ALTER TABLE public.jobs SET (fillfactor = 80);",
            "DROP INDEX CONCURRENTLY IF EXISTS public.i;",
            "SELECT format('VACUUM %I', relname) FROM pg_class;",
        ],
    )
    def test_what_concerns_the_queue_s_own_tables_runs(self, sql: str) -> None:
        step = remedy.statement(sql=(sql,), title="Do it", expect="", risk="")
        assert " ".join(sql.rstrip(";").split()) in executed(fixing(finding("a:b", step)))

    def test_the_way_back_is_decided_too(self) -> None:
        setting = remedy.change_role_setting(
            role="Ana", database="my app", name="lock_timeout", value="1s", title="", expect="", risk=""
        )
        script = undoing(finding("a:b", setting))
        assert executed(script) == []
        assert executed(decided(script)) == ['ALTER ROLE "Ana" IN DATABASE "my app" RESET lock_timeout']


class TestSteps:
    def test_causes_stand_first_and_effects_are_commented_out(self) -> None:
        script = fix_script(SICK, treatment(SICK))
        assert [one.partition("(")[0] for one in executed(script)] == ["SELECT pg_terminate_backend"]
        assert executed(decided(script)) == [
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid = 4711 AND backend_start < '2026-03-01T03:04:05Z'",
            "ALTER SYSTEM SET idle_in_transaction_session_timeout = '60s'",
            "SELECT pg_reload_conf()",
        ]
        later = script[script.index("Only if still needed") :]
        assert f"-- ALTER TABLE public.jobs SET ({DEAD.remedies[0].sql[1].partition('(')[2]}" in later
        assert f"still needed after the steps for {HORIZON.key}" in later

    def test_an_effect_alone_is_carried_out(self) -> None:
        assert executed(fixing(HORIZON, DEAD, chosen=(DEAD.key,)))[-1].startswith(
            "ALTER TABLE public.jobs SET"
        )

    def test_an_effect_of_an_application_s_fault_is_relieved_at_once(self) -> None:
        effect = finding("dead-tuples:public.jobs", storage(100), caused_by=(GUARD.key,))
        assert (
            executed(fixing(GUARD, effect))[-1]
            == "ALTER TABLE public.jobs SET (autovacuum_vacuum_threshold = 100)"
        )

    def test_a_cause_further_up_counts(self) -> None:
        middle = finding("claim-scans-dead-rows:public.jobs", caused_by=(HORIZON.key,))
        effect = finding("heap-bloat:public.jobs", storage(100), caused_by=(middle.key,))
        assert "ALTER TABLE" not in " ".join(executed(fixing(HORIZON, middle, effect)))

    def test_a_remedy_that_two_findings_recommend_appears_once(self) -> None:
        one, other = (
            finding("dead-tuples:public.jobs", storage(100)),
            finding("autovacuum-settings:public.jobs", storage(100)),
        )
        script = fixing(one, other)
        assert len([line for line in executed(script) if line.startswith("ALTER TABLE")]) == 1
        assert script.count("--   finding  warning") == 2

    def test_a_remedy_that_would_overwrite_another_is_left_out(self) -> None:
        one = finding("dead-tuples:public.jobs", storage(100, "Come early"))
        other = finding("autovacuum-settings:public.jobs", storage(200, "Come late"))
        script = fixing(one, other)
        assert executed(script)[1:] == ["ALTER TABLE public.jobs SET (autovacuum_vacuum_threshold = 100)"]
        assert re.search(r"left out .*Come early", script)
        assert "-- ALTER TABLE public.jobs SET (autovacuum_vacuum_threshold = 200);" in script

    def test_server_settings_clash_too(self) -> None:
        def timeout(value: str) -> Remedy:
            return remedy.change_setting(
                name="idle_in_transaction_session_timeout",
                value=value,
                settings=(),
                title=value,
                expect="",
                risk="",
            )

        script = fixing(finding("a:b", timeout("60s")), finding("c:d", timeout("30s")))
        assert [one for one in executed(decided(script)) if one.startswith("ALTER")] == [
            "ALTER SYSTEM SET idle_in_transaction_session_timeout = '60s'"
        ]

    def test_an_alternative_stands_as_a_comment(self) -> None:
        one = finding("dead-tuples:public.jobs", storage(100), storage(200, "Or come late"))
        script = fixing(one)
        assert executed(script)[1:] == ["ALTER TABLE public.jobs SET (autovacuum_vacuum_threshold = 100)"]
        assert "in the place of the step before it" in script

    def test_remedies_of_the_application_stand_as_comments(self) -> None:
        script = fixing(GUARD)
        assert executed(script) == []
        assert "-- UPDATE jobs\n--    SET state = 'running'\n" in script

    def test_nothing_to_do(self) -> None:
        assert "There is nothing to do." in fix_script(SOUND, treatment(SOUND))
        assert "There is nothing to bring back." in undo_script(SOUND, treatment(SOUND))
        assert "None of these has a remedy." in fixing(finding("dead-tuples:public.jobs"))


class TestStatements:
    def test_lock_timeout_is_set_once(self) -> None:
        one = finding("dead-tuples:public.jobs", storage(100))
        other = finding(
            "heap-bloat:public.jobs",
            remedy.set_storage("public.jobs", {"fillfactor": "80"}, {}, title="Room", expect=""),
        )
        assert [line for line in executed(fixing(one, other)) if "lock_timeout" in line] == [
            f"SET lock_timeout = '{LOCK_TIMEOUT}'"
        ]

    def test_what_locks_nothing_needs_none(self) -> None:
        assert "SET lock_timeout" not in fixing(HORIZON)

    def test_an_index_is_built_so_that_it_can_be_run_again(self) -> None:
        sql = executed(fixing(finding("claim-scans-consumed-rows:public.jobs", INDEX)))
        assert sql[0] == f"SET lock_timeout = '{CONCURRENT_TIMEOUT}'"
        assert "to_regclass('public.jobs_ready_idx') AND NOT i.indisvalid" in sql[1]
        assert (
            sql[2]
            == "CREATE INDEX CONCURRENTLY IF NOT EXISTS jobs_ready_idx ON public.jobs (id) WHERE state = 'queued'"
        )

    def test_the_short_timeout_comes_back_after_it(self) -> None:
        sql = executed(
            fixing(
                finding("claim-scans-consumed-rows:public.jobs", INDEX),
                finding("dead-tuples:public.jobs", storage(100)),
            )
        )
        assert sql[-2:] == [
            "SET lock_timeout = '2s'",
            "ALTER TABLE public.jobs SET (autovacuum_vacuum_threshold = 100)",
        ]

    def test_every_step_says_what_a_reviewer_asks(self) -> None:
        script = fixing(finding("claim-scans-consumed-rows:public.jobs", INDEX))
        for words in (
            "-- Step 1: Build the index",
            "finding  warning claim-scans-consumed-rows:public.jobs",
            "lock     takes SHARE UPDATE EXCLUSIVE, blocks nothing",
            "risk     one more index",
            "expect   few buffers",
            "--     DROP INDEX CONCURRENTLY IF EXISTS public.jobs_ready_idx;",
            "database app",
            "PostgreSQL 17.10",
            "2026-03-01T03:04:05Z",
            "psql -X -v ON_ERROR_STOP=1",
            "--single-transaction",
        ):
            assert words in script, words

    def test_it_says_that_something_was_not_seen(self) -> None:
        made = replace(SICK, skipped=(SKIPPED,))
        assert "Not the whole picture" in fix_script(made, treatment(made))

    def test_a_standby_cannot_run_it(self) -> None:
        made = replace(SICK, server=replace(SICK.server, in_recovery=True))
        assert "run this on its primary" in fix_script(made, treatment(made))


class TestUndo:
    def test_the_last_step_is_undone_first(self) -> None:
        script = undoing(
            finding("dead-tuples:public.jobs", storage(100, autovacuum_vacuum_threshold="50")),
            finding("claim-scans-consumed-rows:public.jobs", INDEX),
        )
        assert [one for one in executed(script) if not one.startswith("SET")] == [
            "DROP INDEX CONCURRENTLY IF EXISTS public.jobs_ready_idx",
            "ALTER TABLE public.jobs SET (autovacuum_vacuum_threshold = 50)",
        ]

    def test_what_was_not_set_is_reset(self) -> None:
        assert executed(undoing(finding("dead-tuples:public.jobs", storage(100))))[-1] == (
            "ALTER TABLE public.jobs RESET (autovacuum_vacuum_threshold)"
        )

    def test_a_dropped_index_is_built_again(self) -> None:
        drop = remedy.drop_index(
            schema="public",
            name="i",
            definition="CREATE UNIQUE INDEX i ON public.jobs USING btree (id)",
            title="Drop",
            expect="",
            risk="",
        )
        assert executed(undoing(finding("unused-index:public.jobs", drop)))[-1] == (
            "CREATE UNIQUE INDEX CONCURRENTLY IF NOT EXISTS i ON public.jobs USING btree (id)"
        )

    def test_a_step_without_a_way_back_is_named(self) -> None:
        assert "There is no way back from this step" in undoing(HORIZON)

    def test_the_application_s_steps_are_not(self) -> None:
        assert "There is nothing to bring back." in undoing(GUARD)


HOSTILE_TEXTS = [
    "a\nDROP TABLE jobs;",
    "a\rDROP TABLE jobs;",
    "a\r\n\\! touch /tmp/x",
    "a*/ DROP TABLE jobs; /*",
    "a\x0bDROP TABLE jobs;",
    "a\x00DROP TABLE jobs;",
    "a\u2028DROP TABLE jobs;\u2029\x85DROP",
    "a\x1b[2J\x1b]0;t\x07",
    "'; DROP TABLE jobs; --",
    "$$; DROP TABLE jobs; $$",
    "\\gexec",
    ":'HOME' :x",
]


def everywhere(text: str) -> Report:
    """A report that has the text in every place a server's text can stand in."""
    hurt = replace(
        GUARD.remedies[0],
        title=text,
        sql=(f"SELECT '{text}'", f"-- {text}"),
        undo=(text,),
        lock=text,
        risk=text,
        expect=text,
    )
    one = replace(
        GUARD,
        key=f"claim-unguarded:{text}",
        title=text,
        why=text,
        queue=text,
        caused_by=(text,),
        remedies=(hurt,),
    )
    return replace(
        SICK,
        generated_at=text,
        server=replace(SICK.server, database=text, role=text, version=text),
        findings=(one,),
        notes=(text,),
    )


class TestHostileTexts:
    @pytest.mark.parametrize("text", HOSTILE_TEXTS)
    @pytest.mark.parametrize("written", [fix_script, undo_script])
    def test_no_text_gets_out_of_its_comment(self, text: str, written: Callable[..., str]) -> None:
        made = everywhere(text)
        script = written(made, treatment(made))
        assert all(
            line.startswith("--") or not line for line in re.split(r"[\r\n\v\f\x85\u2028\u2029]", script)
        )
        assert not re.search(r"[\x00-\x09\x0b-\x1f\x7f-\x9f]", script)

    @given(st.text())
    def test_whatever_it_is(self, text: str) -> None:
        made = everywhere(text)
        script = fix_script(made, treatment(made))
        assert all(
            line.startswith("--") or not line for line in re.split(r"[\r\n\v\f\x85\u2028\u2029]", script)
        )

    def test_a_statement_with_control_characters_is_not_executed(self) -> None:
        named = remedy.set_storage('public."jo\x1b[31mbs"', {"fillfactor": "80"}, {}, title="Room", expect="")
        script = fixing(finding("hot-no-page-room:x", named))
        assert executed(script) == []
        assert "\x1b" not in script
        assert "Control characters are left out here" in script

    def test_a_name_with_a_newline_in_a_statement_is_still_that_name(self) -> None:
        named = remedy.set_storage(
            'public."jobs\n; DROP TABLE x; --"', {"fillfactor": "80"}, {}, title="Room", expect=""
        )
        (_, altered) = [piece.text for piece in split(fixing(finding("hot-no-page-room:x", named)))]
        assert altered == 'ALTER TABLE public."jobs\n; DROP TABLE x; --" SET (fillfactor = 80)'

    def test_the_golden_hostile_report(self) -> None:
        script = fix_script(HOSTILE, treatment(HOSTILE))
        assert not re.search(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202e]", script)


class TestCommand:
    @pytest.fixture
    def sick(self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
        """A recording that is read as the sick report."""
        monkeypatch.chdir(tmp_path)
        monkeypatch.setattr(cli, "_recorded", lambda *asked: object())
        monkeypatch.setattr("pgqdoctor.triage.with_what_comes_after", lambda *asked, **more: (SICK, None))
        (tmp_path / "seen").write_text("")
        return tmp_path

    def test_the_script_goes_to_standard_output(self, sick: Path, capsys: pytest.CaptureFixture[str]) -> None:
        assert run(["fix", "--from", "seen"]) == HEALTHY
        shown = capsys.readouterr()
        assert shown.out.startswith("-- Remedies for database app")
        assert "a recording" in shown.out
        assert shown.err == ""

    def test_undo(self, sick: Path, capsys: pytest.CaptureFixture[str]) -> None:
        assert run(["fix", "--undo", "--from", "seen"]) == HEALTHY
        assert capsys.readouterr().out.startswith("-- The way back")

    def test_to_a_file_with_a_word_on_standard_error(
        self, sick: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        assert run(["fix", "--from", "seen", "--output", "fix.sql"]) == HEALTHY
        assert "1 step to run, 1 to decide, 2 as comments only" in capsys.readouterr().err
        assert (sick / "fix.sql").read_text().startswith("-- Remedies")

    @pytest.mark.parametrize("name", [DEAD.key, DEAD.check])
    def test_one_finding(self, sick: Path, name: str, capsys: pytest.CaptureFixture[str]) -> None:
        assert run(["fix", "--from", "seen", "--finding", name]) == HEALTHY
        shown = capsys.readouterr().out
        assert "pg_terminate_backend" not in shown
        assert "chosen here: 1" in shown

    def test_an_unknown_finding_is_wrong_usage(self, sick: Path, capsys: pytest.CaptureFixture[str]) -> None:
        assert run(["fix", "--from", "seen", "--finding", "dead-tuples:public.job"]) == USAGE
        assert "Did you mean dead-tuples:public.jobs?" in capsys.readouterr().err
