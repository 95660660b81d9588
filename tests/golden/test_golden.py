"""What each format makes of the reports in reports.py, compared with files that people have read.

``pytest tests/golden --update-golden`` writes the files anew and removes those that belong to nothing.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from pgqdoctor.render import Asked, render, render_lint, render_queues, sarif
from pgqdoctor.render.jsonout import written
from pgqdoctor.render.text import render_knobs
from tests.golden.lint_reports import LINT_REPORTS
from tests.golden.reports import KNOBS, REPORTS

FILES = Path(__file__).parent / "files"
WIDTH = 80
WHOLE_KNOBS = "knobs.whole.txt"

CASES = {
    **{f"{name}.txt": (name, "text", False) for name in REPORTS},
    "sick.ansi": ("sick", "text", True),
    **{f"{name}.md": (name, "markdown", False) for name in REPORTS},
    **{f"{name}.github": (name, "github", False) for name in REPORTS if name != "long"},
    **{
        f"{name}.html": (name, "html", False)
        for name in ("healthy", "sick", "hostile", "incomplete", "knobs", "no-queue")
    },
    **{
        f"{name}.json": (name, "json", False)
        for name in ("healthy", "sick", "hostile", "incomplete", "knobs")
    },
}
"""Report, format and colour of each file."""
RAN = ("claim-unguarded", "dead-tuples", "heap-bloat", "retry-storm", "xid-wraparound")
"""Checks that ran for the files which name all of them: a new check must not change these."""
JUNIT_CASES = {
    f"{name}.junit.xml": name for name in ("healthy", "sick", "hostile", "incomplete", "no-queue", "skipped")
}
SARIF_CASES = {f"{name}.sarif": name for name in ("healthy", "sick", "hostile", "incomplete", "no-queue")}
LINT_CASES = {
    f"{name}.lint.{ending}": (name, format_)
    for name in LINT_REPORTS
    for format_, ending in (("text", "txt"), ("markdown", "md"), ("github", "github"), ("junit", "junit.xml"))
}
LINT_SARIF_CASES = {f"{name}.lint.sarif": name for name in LINT_REPORTS}
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


@pytest.mark.parametrize("file", JUNIT_CASES)
def test_junit(file: str, update_golden: bool) -> None:
    asked = Asked(only=RAN, fail_on="warning")
    text = render(REPORTS[JUNIT_CASES[file]], "junit", color=False, width=WIDTH, asked=asked)
    compare(file, text, update_golden)


@pytest.mark.parametrize("file", SARIF_CASES)
def test_sarif(file: str, update_golden: bool) -> None:
    # Without checks: a rule then is its id alone, and their documentation is not held twice.
    compare(file, written(sarif.report_log(REPORTS[SARIF_CASES[file]], ())), update_golden)


@pytest.mark.parametrize("file", LINT_CASES)
def test_lint(file: str, update_golden: bool) -> None:
    name, format_ = LINT_CASES[file]
    report, files = LINT_REPORTS[name]
    asked = Asked(only=("claim-unguarded", "claim-not-skip-locked", "duplicate-index"), fail_on="warning")
    text = render_lint(report, format_, files=files, asked=asked, color=False, width=WIDTH)
    compare(file, text, update_golden)


@pytest.mark.parametrize("file", LINT_SARIF_CASES)
def test_lint_sarif(file: str, update_golden: bool) -> None:
    report, _ = LINT_REPORTS[LINT_SARIF_CASES[file]]
    compare(file, written(sarif.lint_log(report, ())), update_golden)


def test_knobs_with_all_arithmetic(update_golden: bool) -> None:
    compare(WHOLE_KNOBS, render_knobs("public.jobs", KNOBS, color=False, width=WIDTH), update_golden)


def test_no_golden_file_belongs_to_nothing(update_golden: bool) -> None:
    known = {*CASES, *QUEUE_CASES, *JUNIT_CASES, *SARIF_CASES, *LINT_CASES, *LINT_SARIF_CASES, WHOLE_KNOBS}
    orphans = {path for path in FILES.iterdir() if path.name not in known}
    if update_golden:
        for path in orphans:
            path.unlink()
        return
    assert {path.name for path in orphans} == set()
