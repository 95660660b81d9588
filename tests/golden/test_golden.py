"""What each format makes of the reports in reports.py, compared with files that people have read.

``pytest tests/golden --update-golden`` writes the files anew and removes those that belong to nothing.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from pgqdoctor.render import render, render_queues
from pgqdoctor.render.text import render_knobs
from tests.golden.reports import KNOBS, REPORTS

FILES = Path(__file__).parent / "files"
WIDTH = 80
WHOLE_KNOBS = "knobs.whole.txt"

CASES = {
    **{f"{name}.txt": (name, "text", False) for name in REPORTS},
    "sick.ansi": ("sick", "text", True),
    **{f"{name}.md": (name, "markdown", False) for name in REPORTS},
    **{
        f"{name}.json": (name, "json", False)
        for name in ("healthy", "sick", "hostile", "incomplete", "knobs")
    },
}
"""Report, format and colour of each file."""
QUEUE_CASES = {
    "sick.queues.txt": ("sick", "text"),
    "hostile.queues.txt": ("hostile", "text"),
    "no-queue.queues.txt": ("no-queue", "text"),
    "sick.queues.json": ("sick", "json"),
}


def compare(file: str, text: str, update: bool) -> None:
    path = FILES / file
    if update:
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(text.encode())
    assert path.is_file(), f"{path} is missing: pytest tests/golden --update-golden"
    # As bytes: reading as text would make one newline of others.
    assert text == path.read_bytes().decode()


@pytest.mark.parametrize("file", CASES)
def test_report(file: str, update_golden: bool) -> None:
    name, format_, color = CASES[file]
    compare(file, render(REPORTS[name], format_, color=color, width=WIDTH), update_golden)


@pytest.mark.parametrize("file", QUEUE_CASES)
def test_queues(file: str, update_golden: bool) -> None:
    name, format_ = QUEUE_CASES[file]
    compare(file, render_queues(REPORTS[name], format_, color=False, width=WIDTH), update_golden)


def test_knobs_with_all_arithmetic(update_golden: bool) -> None:
    compare(WHOLE_KNOBS, render_knobs("public.jobs", KNOBS, color=False, width=WIDTH), update_golden)


def test_no_golden_file_belongs_to_nothing(update_golden: bool) -> None:
    orphans = {path for path in FILES.iterdir() if path.name not in {*CASES, *QUEUE_CASES, WHOLE_KNOBS}}
    if update_golden:
        for path in orphans:
            path.unlink()
        return
    assert {path.name for path in orphans} == set()
