"""Closed and full outputs, Ctrl-C inside imports, names made to mislead: no database needed."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from pgqdoctor import __main__ as program
from pgqdoctor.sqlrewrite import is_harmless, uses_of


def shell(command: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["/bin/sh", "-c", command.replace("pgqdoctor", f"{sys.executable} -m pgqdoctor")],
        capture_output=True,
        text=True,
        timeout=60,
    )


@pytest.mark.parametrize("command", ["pgqdoctor checks", "pgqdoctor checks dead-tuples"])
def test_a_closed_standard_output_is_one_sentence(command: str) -> None:
    ended = shell(f"{command} >&-")
    assert ended.returncode == 2
    assert ended.stderr == "pgqdoctor: standard output is closed. Name a file with --output.\n"


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="this system has no /dev/full")
def test_a_full_disk_behind_standard_output_is_one_sentence() -> None:
    ended = shell("pgqdoctor checks >/dev/full")
    assert ended.returncode == 2
    assert ended.stderr.startswith("pgqdoctor: standard output cannot be written to: ")
    assert len(ended.stderr.splitlines()) == 1


PRINTING = ["--help", "--version", "report --help", "lab --help", "lab race --help", "demo --list", "checks"]


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="this system has no /dev/full")
@pytest.mark.parametrize("arguments", PRINTING)
def test_whatever_is_printed_bears_full_closed_and_abandoned_outputs(arguments: str) -> None:
    full, closed = shell(f"pgqdoctor {arguments} >/dev/full"), shell(f"pgqdoctor {arguments} >&-")
    for ended in (full, closed):
        assert ended.returncode == 2
        assert ended.stderr.startswith("pgqdoctor: standard output ")
        assert len(ended.stderr.splitlines()) == 1
    left = shell(f"( pgqdoctor {arguments}; echo status $? >&2 ) | true")
    assert left.stderr == "status 0\n"


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="this system has no /dev/full")
@pytest.mark.parametrize("arguments", ["no-such-command", "", "lab", "checks no-such-check"])
def test_an_error_that_nobody_can_read_keeps_its_status(arguments: str) -> None:
    assert shell(f"pgqdoctor {arguments} 2>/dev/full").returncode == 2
    assert shell(f"pgqdoctor {arguments} 2>&-").returncode == 2


def test_a_group_without_a_command_shows_its_help_as_it_is() -> None:
    ended = shell("pgqdoctor lab")
    assert ended.returncode == 2
    assert ended.stderr.startswith("Usage: pgqdoctor lab [OPTIONS] COMMAND")


def test_everything_closed_is_borne() -> None:
    assert shell("pgqdoctor checks >&- 2>&- <&-").returncode == 2


def test_ctrl_c_inside_an_import_is_put_off_until_the_import_is_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "slow_to_load.py").write_text(
        "import os, signal, time\nos.kill(os.getpid(), signal.SIGINT)\ntime.sleep(0.1)\nloaded = True\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    before = signal.signal(signal.SIGINT, program.interrupt)
    try:
        with pytest.raises(KeyboardInterrupt):
            import slow_to_load  # type: ignore[import-not-found]

            assert slow_to_load.loaded
            time.sleep(5)
        assert "slow_to_load" in sys.modules, "the import was not cut off"
    finally:
        signal.signal(signal.SIGINT, before)
        sys.modules.pop("slow_to_load", None)


@pytest.mark.parametrize(
    "text",
    [
        'SELECT "pg_catalog.now"()',
        "SELECT id FROM jobs WHERE \"pg_catalog.lower\"(status) = 'x'",
        'SELECT "pg_catalog.length"(status) FROM jobs',
    ],
)
def test_a_dot_in_a_name_does_not_make_it_a_catalog_function(text: str) -> None:
    assert not is_harmless(text)


def test_every_name_that_the_server_looks_up_is_found() -> None:
    uses = uses_of(
        "WITH c AS (SELECT lower(a.kind) FROM app.jobs a) SELECT j.due, (j).late, 'x'::mood, x.f() FROM jobs j, c "
        "WHERE j.status = CAST($1 AS app.state)"
    )
    assert uses.relations == {"jobs", "c"}
    assert uses.functions == {"lower", "f"}
    assert {"mood", "state"} <= uses.types
    assert {"kind", "due", "late", "status"} <= uses.attributes
    assert {"app", "x"} <= uses.schemas


def test_what_does_not_parse_has_no_known_names() -> None:
    with pytest.raises(ValueError, match="syntax"):
        uses_of("SELECT FROM WHERE (")
