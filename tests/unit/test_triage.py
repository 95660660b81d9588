"""One screen: do jobs move, how late is the oldest, because of what, what to run first, what to leave alone."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import jsonschema
import msgspec
import pytest

from pgqdoctor import avoid, docs
from pgqdoctor.cli import FOUND, HEALTHY, run
from pgqdoctor.cli_triage import WINDOW_S
from pgqdoctor.errors import USAGE
from pgqdoctor.observation import Lack, Observation, Sample, SampledSession, save_observation
from pgqdoctor.registry import all_checks
from pgqdoctor.render.triage import HEIGHT, WIDEST, render_json, render_text, rows
from pgqdoctor.report import build_report
from pgqdoctor.rows import LockRow, SessionRow
from pgqdoctor.triage import Triage, build_triage, triage
from tests.checks import build
from tests.unit.test_causes import finding, held, number
from tests.unit.test_forecast import plan


def holder(**changes: Any) -> SessionRow:
    known = build.session(
        4711,
        application="analytics",
        state="idle in transaction",
        xmin=700,
        xmin_age=9_000,
        xact_age_s=240.0,
        query="SELECT count(*) FROM jobs",
    )
    return replace(known, **changes)


def sick(*sessions: SessionRow, **changes: Any) -> Observation:
    """A session holds the horizon of a queue on a large table with default autovacuum."""
    used = sessions or (holder(),)
    catalog = build.catalog(tables=(build.table(rows=120_000.0, pages=2_000),))
    return build.observation(
        of=catalog,
        first=build.reading(0.0, sessions=used),
        last=build.reading(
            build.WINDOW_S,
            sessions=used,
            tables=(build.counters(dead=9_000, deleted=1_000, inserted=1_000, last_autovacuum_s=None),),
        ),
        probes=(build.probe(oldest_ready_age_s=240.0, plans=(plan(buffers=9_003, ms=8.0),)),),
        **changes,
    )


def asked(seen: Observation) -> Triage:
    return triage(seen)[1]


def shown(seen: Observation, width: int = 80) -> str:
    return render_text(asked(seen), color=False, width=width)


class TestOrder:
    def test_the_session_first_then_what_it_kept_from_being_done(self) -> None:
        found = asked(sick())
        assert found.verdict == "critical"
        assert found.root is not None
        assert found.root.key == "vacuum-horizon-held:public.jobs"
        first, *rest = found.steps
        assert (first.number, first.when, first.pids) == (1, "first", (4711,))
        assert first.sql == ("SELECT pg_terminate_backend(4711);",)
        assert first.helped_sql == ("SELECT pid, state FROM pg_stat_activity WHERE pid = 4711;",)
        assert first.helped == "the session is gone, and pgqdoctor triage shows fewer than 9,000 dead rows"
        assert [(one.number, one.when, one.check) for one in rest][:1] == [(2, "then", "autovacuum-settings")]
        assert "autovacuum-settings:public.jobs" in found.remaining
        assert not any(key.startswith("vacuum-horizon-held") for key in found.remaining)

    def test_each_command_stands_once(self) -> None:
        commands = [one.sql for one in asked(sick()).steps if one.sql]
        assert len(commands) == len(set(commands))

    def test_a_healthy_queue_needs_nothing(self) -> None:
        found = asked(build.observation())
        assert (found.root, found.steps, found.avoid, found.story) == (None, (), (), "")


class TestRollsBack:
    def test_a_session_without_transaction_id_has_written_nothing(self) -> None:
        assert asked(sick()).steps[0].rolls_back == "nothing it wrote: session 4711 has no transaction id"

    def test_a_writer_loses_what_it_wrote_where_it_wrote_it(self) -> None:
        writer = holder(xid=700, xid_age=9_000, xmin=None, xmin_age=None)
        seen = sick(writer)
        locks = (
            LockRow(
                pid=4711,
                locktype="relation",
                database=1,
                relation=build.JOBS,
                mode="RowExclusiveLock",
                granted=True,
                wait_age_s=None,
                classid=None,
                objid=None,
                blocked_by=(),
            ),
        )
        seen = replace(seen, last=replace(seen.last, locks=locks))
        assert asked(seen).steps[0].rolls_back == (
            "what session 4711 has written since its transaction began 4 min ago, in jobs"
        )

    def test_a_cancelled_statement_is_named(self) -> None:
        found = asked(sick(holder(state="active"))).steps[0]
        assert found.sql == ("SELECT pg_cancel_backend(4711);",)
        assert found.rolls_back.startswith("its statement (SELECT count(*) FROM jobs) and nothing it wrote")
        assert found.helped.startswith("the session is idle")


class TestRights:
    def test_who_may_end_the_session_is_told_nothing(self) -> None:
        assert asked(sick()).steps[0].needs == ""
        mine = build.server(superuser=False, role="app")
        assert asked(sick(on=mine)).steps[0].needs == ""
        granted = build.server(superuser=False, granted_roles=("pg_monitor", "pg_signal_backend"))
        assert asked(sick(on=granted)).steps[0].needs == ""

    def test_who_may_not_is_told_what_it_takes(self) -> None:
        seen = sick(on=build.server(superuser=False))
        assert (
            asked(seen).steps[0].needs == "a superuser, or pg_signal_backend, which role doctor does not have"
        )
        assert "needs       a superuser, or pg_signal_backend" in shown(seen)


def test_one_session_that_harms_two_queues_is_told_once() -> None:
    ended = finding("vacuum-horizon-held", "critical", remedies=held().remedies)
    other = replace(ended, queue="public.mails", title="The same on mails: 1")
    report = build_report(build.observation(), (ended, other), (), ())
    told = build_triage(build.observation(), report, None)
    assert told.others == ()
    assert [one.when for one in told.steps] == ["first"]


def test_where_the_root_has_to_wait_the_next_story_has_the_first_command() -> None:
    """An index cannot be built while a snapshot is held: its finding stands first, and its remedy is withheld."""
    waits = finding("claim-sorts-backlog", "warning", remedies=())
    ended = finding("vacuum-horizon-held", "warning", remedies=held().remedies)
    told = build_triage(build.observation(), build_report(build.observation(), (waits, ended), (), ()), None)
    assert told.root is not None and told.root.check == "claim-sorts-backlog"
    assert (told.steps[0].when, told.steps[0].check) == ("first", "vacuum-horizon-held")
    alone = build_triage(build.observation(), build_report(build.observation(), (waits,), (), ()), None)
    assert alone.steps == ()


class TestMoves:
    def test_claimed_and_finished(self) -> None:
        counted = build.reading(build.WINDOW_S, tables=(build.counters(deleted=90),))
        (state,) = asked(build.observation(last=counted)).queues
        assert state.state == "moving"
        assert state.says == "jobs are claimed (10/s) and finished (9/s); 100 ready, the oldest 500 ms late"

    def test_nothing_to_do(self) -> None:
        idle = build.observation(
            statements={"1/10/1": (build.CLAIM, 100, 0)},
            probes=(build.probe(ready_rows=0, oldest_ready_age_s=None),),
        )
        (state,) = asked(idle).queues
        assert state.state == "idle"
        assert state.says == "no job was claimed, as none is ready; no job waits"

    def test_ready_jobs_that_nobody_takes(self) -> None:
        still = build.observation(statements={"1/10/1": (build.CLAIM, 0, 0)})
        (state,) = asked(still).queues
        assert state.state == "stopped"
        assert state.says.startswith("NO job was claimed or finished; 100 ready")

    def test_table_counters_that_move_are_enough(self) -> None:
        """The claims' entry may have been evicted from pg_stat_statements."""
        seen = build.observation(
            statements={"1/10/1": (build.CLAIM, 0, 0)},
            last=build.reading(build.WINDOW_S, tables=(build.counters(deleted=50),)),
        )
        (state,) = asked(seen).queues
        assert state.state == "moving"

    def test_statements_that_move_are_enough(self) -> None:
        """Table counters arrive late, those of a long transaction at its end."""
        (state,) = asked(build.observation(statements={"1/10/1": (build.CLAIM, 50, 50)})).queues
        assert state.state == "moving"

    def test_behind_a_lock_nothing_is_known_and_nothing_moves(self) -> None:
        waiting = build.sampled(9, query_id=1, text=0, wait_type="Lock", wait_event="relation")
        seen = build.observation(
            statements={"1/10/1": (build.CLAIM, 0, 0)},
            texts=(build.CLAIM,),
            samples=(Sample(at=1.0, sessions=(waiting,)),),
            probes=(
                build.probe(
                    ready_rows=None,
                    oldest_ready_age_s=None,
                    lacks=(Lack(what="rows", reason="public.jobs is behind an exclusive lock"),),
                ),
            ),
        )
        (state,) = asked(seen).queues
        assert (state.state, state.waiting) == ("stopped", 1)
        assert state.says == (
            "NO job was claimed or finished, 1 session waits for a lock; how late the oldest ready job is could not be looked at: "
            "public.jobs is behind an exclusive lock"
        )


class TestAvoid:
    def told(self, *checks: str, sessions: tuple[SampledSession, ...] = (), **changes: Any) -> dict[str, str]:
        """What is advised beside findings of ``checks``, where each sample of the window caught ``sessions``."""
        samples = tuple(Sample(at=place / 10, sessions=sessions) for place in range(100))
        seen = build.observation(samples=samples)
        report = build_report(seen, tuple(finding(one, **changes) for one in checks), (), ())
        return {one.what: one.why for one in avoid.advice(seen, report, ())}

    def test_a_held_horizon_speaks_against_vacuum_restart_and_more_workers(self) -> None:
        told = {one.what: one.why for one in asked(sick()).avoid}
        assert set(told) == {avoid.VACUUM, avoid.VACUUM_FULL, avoid.RESTART, avoid.ADD}
        assert "the 9,000 dead rows" in told[avoid.VACUUM]
        assert told[avoid.RESTART] == "session 4711 (analytics) is none of them and would stay"

    def test_a_worker_that_is_the_culprit_may_be_restarted(self) -> None:
        seen = sick(texts=(build.CLAIM,), samples=(Sample(at=1.0, sessions=(build.sampled(4711, 0),)),))
        assert avoid.RESTART not in {one.what for one in asked(seen).avoid}

    def test_a_line_of_waiters(self) -> None:
        assert set(self.told("lock-queue")) == {avoid.RESTART, avoid.ADD, avoid.VACUUM_FULL}

    @pytest.mark.parametrize(
        "check",
        [
            "claim-not-skip-locked",
            "connections-saturated",
            "claim-empty-polls",
        ],
    )
    def test_more_workers_make_worse_what_grows_with_them(self, check: str) -> None:
        assert set(self.told(check)) == {avoid.ADD}

    @pytest.mark.parametrize(
        ("check", "wait_type", "event"),
        [
            ("multixact-slru-waits", "LWLock", "MultiXactMemberSLRU"),
            ("subtransaction-overflow", "LWLock", "SubtransSLRU"),
            ("notify-contention", "Lock", "object"),
            ("hot-row", "Lock", "transactionid"),
        ],
    )
    def test_workers_wait_for_each_other_only_where_samples_show_it(
        self, check: str, wait_type: str, event: str
    ) -> None:
        waiter = build.sampled(1, wait_type=wait_type, wait_event=event)
        working = tuple(build.sampled(pid) for pid in range(2, 12))
        assert self.told(check, sessions=(waiter, *working[:9])) == {
            avoid.ADD: "those there are wait for each other already"
        }
        assert self.told(check, sessions=(waiter, *working)) == {}
        assert self.told(check, sessions=working) == {}
        assert self.told(check) == {}

    def test_four_samples_of_waiting_are_chance(self) -> None:
        waiter = build.sampled(1, wait_type="LWLock", wait_event="SubtransSLRU")
        report = build_report(build.observation(), (finding("subtransaction-overflow"),), (), ())
        for waited, advised in ((4, 0), (5, 1)):
            samples = tuple(Sample(at=place / 10, sessions=(waiter,)) for place in range(waited))
            assert len(avoid.advice(build.observation(samples=samples), report, ())) == advised

    @pytest.mark.parametrize("check", ["heap-bloat", "index-bloat"])
    def test_room_that_is_free_is_nothing_a_claim_walks_over(self, check: str) -> None:
        assert set(self.told(check)) == {avoid.VACUUM_FULL}

    def test_dead_rows_are_no_reason_to_lock_the_table(self) -> None:
        assert set(self.told("dead-tuples")) == {avoid.VACUUM_FULL, avoid.ADD}

    def test_a_notice_speaks_against_nothing(self) -> None:
        assert self.told("lock-queue", severity="notice") == {}

    def test_a_fault_of_correctness_speaks_against_nothing(self) -> None:
        assert self.told("claim-unguarded") == {}


class TestScreen:
    def test_all_parts_in_their_order(self) -> None:
        text = shown(sick())
        places = [
            text.index(part)
            for part in (
                "CRITICAL: app, PostgreSQL 18",
                "public.jobs: jobs are claimed",
                "Session 4711",
                "1. End session 4711",
                "SELECT pg_terminate_backend(4711);",
                "rolls back",
                "helped if",
                "2. then: ",
                "Do not      run VACUUM",
            )
        ]
        assert places == sorted(places)

    @pytest.mark.parametrize("width", [40, 60, 80, 200])
    def test_fits_a_console(self, width: int) -> None:
        lines = shown(sick(), width).splitlines()
        assert rows(lines, min(width, WIDEST)) < HEIGHT or width < 80
        sql = ("     SET", "     ALTER", "     SELECT", "     VACUUM")
        assert all(len(line) <= min(width, WIDEST) for line in lines if not line.startswith(sql))

    def test_what_is_least_needed_goes_first(self) -> None:
        found = asked(sick())
        much = replace(
            found,
            notes=tuple(f"note {place}" for place in range(40)),
            not_seen=("x" * 400,),
            others=("another root",),
        )
        text = render_text(much, color=False, width=80)
        assert rows(text.splitlines(), 80) < HEIGHT
        assert "1. End session 4711" in text
        assert "Do not      run VACUUM" in text
        assert "note 39" not in text

    def test_a_statement_longer_than_a_line_counts_for_the_rows_it_takes(self) -> None:
        assert rows(["x" * 80, "x" * 81, "", "\x1b[32m" + "x" * 80 + "\x1b[0m"], 80) == 5

    def test_a_long_script_is_not_printed_but_named(self) -> None:
        found = asked(sick())
        first = replace(found.steps[0], sql=tuple(f"SELECT {place};" for place in range(30)))
        text = render_text(replace(found, steps=(first,)), color=False, width=80)
        assert "printed by  pgqdoctor fix --finding vacuum-horizon-held:public.jobs" in text
        hostile = replace(found.steps[0], key='dead-tuples:public."a b"', sql=first.sql)
        text = render_text(replace(found, steps=(hostile,)), color=False, width=80)
        assert """pgqdoctor fix --finding 'dead-tuples:public."a b"'""" in text
        assert "SELECT 29" not in text

    def test_color_only_adds_escapes(self) -> None:
        found = asked(sick())
        plain = render_text(found, color=False, width=80)
        colored = render_text(found, color=True, width=80)
        assert "\x1b[1;31mCRITICAL\x1b[0m" in colored
        assert "\x1b" not in plain

    def test_hostile_names_reach_no_terminal(self) -> None:
        evil = holder(application="\x1b[2Jevil\u202e\n\nrm -rf", query="SELECT '\x1b]0;x\x07'")
        text = shown(sick(evil))
        assert all(letter.isprintable() or letter == "\n" for letter in text)
        assert "evil" in text

    def test_healthy(self) -> None:
        text = shown(build.observation())
        assert "jobs are claimed (10/s)" in text
        assert "Nothing" in text
        assert "\n1. " not in text

    def test_jobs_that_wait_without_a_claim_are_not_called_healthy(self) -> None:
        for oldest, word in ((9.9, "HEALTHY:"), (10.0, "NO FAULT FOUND:"), (None, "NO FAULT FOUND:")):
            waiting = (build.probe(ready_rows=3, oldest_ready_age_s=oldest),)
            found = asked(build.observation(statements={"1/10/1": (build.CLAIM, 0, 0)}, probes=waiting))
            found = replace(found, verdict="healthy", not_seen=())
            text = " ".join(render_text(found, color=False, width=80).split())
            assert text.startswith(word)
            assert ("No fault was found, but jobs of public.jobs wait and none was taken" in text) == (
                word != "HEALTHY:"
            )
            assert ("Nothing is wrong." in text) == (word == "HEALTHY:")

    def test_without_a_queue_nothing_is_called_healthy(self) -> None:
        seen = replace(build.observation(), queues=(), looked_for=("claims",))
        text = shown(seen)
        assert text.startswith("NO QUEUE FOUND: app")
        assert "HEALTHY" not in text

    def test_a_crashed_check_is_shown(self) -> None:
        found = replace(
            asked(build.observation()), verdict="healthy", crashed=("dead-tuples: ValueError: no",)
        )
        text = render_text(found, color=False, width=80)
        assert text.startswith("INCOMPLETE")
        assert "Crashed     dead-tuples: ValueError: no" in text


class TestJson:
    def test_the_committed_schema_describes_it(self) -> None:
        committed = json.loads((docs.ROOT / docs.TRIAGE_SCHEMA).read_text(encoding="utf-8"))
        assert committed == json.loads(json.dumps(docs.triage_schema()))
        assert committed["$id"] == "pgqdoctor.triage/1"
        validator = jsonschema.Draft202012Validator(committed)
        for seen in (sick(), build.observation()):
            validator.validate(json.loads(render_json(asked(seen))))

    def test_it_reads_back(self) -> None:
        found = asked(sick())
        assert msgspec.json.decode(render_json(found), type=Triage) == found

    def test_the_steps_are_in_order(self) -> None:
        steps = json.loads(render_json(asked(sick())))["steps"]
        assert [one["number"] for one in steps] == list(range(1, len(steps) + 1))


class TestCommand:
    @pytest.fixture
    def recorded(self, tmp_path: Path) -> Path:
        file = tmp_path / "sick.json.gz"
        save_observation(sick(), file)
        return file

    def test_a_recording_gives_the_same_answer(
        self, recorded: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        assert run(["triage", "--from", str(recorded)]) == FOUND
        said = capsys.readouterr()
        assert said.out == render_text(asked(sick()), color=False, width=80)
        assert said.err == ""

    def test_exit_status_follows_fail_on(self, recorded: Path, capsys: pytest.CaptureFixture[str]) -> None:
        assert run(["triage", "--from", str(recorded), "--fail-on", "never"]) == HEALTHY
        assert run(["triage", "--from", str(recorded), "--ignore", "vacuum-horizon-held"]) in (HEALTHY, FOUND)
        capsys.readouterr()

    def test_json_goes_to_a_file(self, recorded: Path, tmp_path: Path) -> None:
        target = tmp_path / "out.json"
        run(["triage", "--from", str(recorded), "--format", "json", "--output", str(target)])
        assert msgspec.json.decode(target.read_bytes(), type=Triage) == asked(sick())

    def test_only_its_own_formats(self, recorded: Path, capsys: pytest.CaptureFixture[str]) -> None:
        assert run(["triage", "--from", str(recorded), "--format", "markdown"]) == USAGE
        assert "markdown" in capsys.readouterr().err

    def test_a_recording_has_no_window(self, recorded: Path, capsys: pytest.CaptureFixture[str]) -> None:
        assert run(["triage", "--from", str(recorded), "--window", "3s"]) == USAGE
        assert "--window cannot stand beside --from" in capsys.readouterr().err

    def test_help_names_the_default_window(self, capsys: pytest.CaptureFixture[str]) -> None:
        assert run(["triage", "--help"]) == HEALTHY
        assert f"{WINDOW_S:.0f}s" in capsys.readouterr().out


def test_every_check_can_lead_a_triage() -> None:
    """Whatever a check says, the triage of it fits the screen."""
    seen = build.observation()
    for check in all_checks():
        one = replace(
            finding(check.id, "critical", evidence=(number("dead rows", 5),)),
            title="A title that goes on and on " * 6,
        )
        told = build_triage(seen, build_report(seen, (one,), (), ()), None)
        assert told.root is not None
        assert rows(render_text(told, color=False, width=80).splitlines(), 80) < HEIGHT
