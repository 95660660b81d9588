"""``pgqdoctor demo`` as a newcomer runs it: the report alone on standard output, and nothing left behind."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from pgqdoctor.demo import DEFAULT_SCENARIO
from pgqdoctor.lab.scenario import load_scenario

ROOT = Path(__file__).parent.parent.parent
LONGEST_DEMO_S = 90.0
LONGEST_STOP_S = 15.0


@pytest.fixture
def scratch() -> Iterator[Path]:
    """A TMPDIR of the demo's own, short enough for a socket, so that what it leaves behind is seen."""
    with tempfile.TemporaryDirectory(prefix="pgqt-", dir="/tmp") as name:
        # Run by root the server has another account, which must be able to enter.
        Path(name).chmod(0o755)
        yield Path(name)


def start(scratch: Path, *arguments: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "pgqdoctor", "demo", *arguments],
        env={**os.environ, "TMPDIR": str(scratch), "PYTHONPATH": str(ROOT)},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


def read_until(demo: subprocess.Popen[str], words: str) -> str:
    assert demo.stderr is not None
    for line in demo.stderr:
        if words in line:
            return line
    raise AssertionError(f"the demo never said {words!r}")


def test_the_default_demo_shows_what_it_is_meant_to(scratch: Path) -> None:
    began = time.monotonic()
    demo = start(scratch, "--window", "5s", "--format", "json")
    said, steps = demo.communicate(timeout=LONGEST_DEMO_S)
    assert demo.returncode == 0, steps
    assert time.monotonic() - began < LONGEST_DEMO_S
    found = {finding["check"] for finding in json.loads(said)["findings"]}
    assert found >= set(load_scenario(DEFAULT_SCENARIO).expected)
    assert "starting a scratch PostgreSQL server" in steps
    assert list(scratch.iterdir()) == []


def test_ctrl_c_ends_it_and_leaves_nothing(scratch: Path) -> None:
    demo = start(scratch)
    read_until(demo, "is under load")
    os.killpg(demo.pid, signal.SIGINT)
    said, _ = demo.communicate(timeout=LONGEST_STOP_S)
    assert (demo.returncode, said) == (130, "")
    assert list(scratch.iterdir()) == []


def test_a_kept_server_stays_until_ctrl_c(scratch: Path) -> None:
    demo = start(scratch, "--window", "1s", "--format", "json", "--keep")
    line = read_until(demo, "the server stays under load at ")
    dsn = line.split(" at ", 1)[1].split(";", 1)[0]
    listing = [sys.executable, "-m", "pgqdoctor", "queues", dsn, "--format", "json"]
    queues = subprocess.run(listing, capture_output=True, text=True, cwd=ROOT, check=True).stdout
    assert [queue["name"] for queue in json.loads(queues)["queues"]] == [
        load_scenario(DEFAULT_SCENARIO).queue
    ]
    os.killpg(demo.pid, signal.SIGINT)
    demo.communicate(timeout=LONGEST_STOP_S)
    assert list(scratch.iterdir()) == []


def test_an_unknown_scenario_is_wrong_usage(scratch: Path) -> None:
    demo = start(scratch, "no-such-thing")
    said, error = demo.communicate(timeout=LONGEST_STOP_S)
    assert (demo.returncode, said) == (2, "")
    assert error.startswith("pgqdoctor: there is no scenario 'no-such-thing'")
