"""What lint might have found, made by hand from the model, with the files it read."""

from __future__ import annotations

from dataclasses import replace

from pgqdoctor.finding import Remedy
from pgqdoctor.lint.engine import LintFinding, LintReport
from pgqdoctor.lint.program import Unparsed
from tests.golden.reports import ANSI, LOCK_TIMEOUT, RTL

LINE = LintFinding(
    check="claim-not-skip-locked",
    severity="warning",
    file="queue/worker.sql",
    line=2,
    column=1,
    title="Workers of jobs line up: FOR UPDATE without SKIP LOCKED",
    why="Each worker waits for the row the one before it has locked.",
    remedies=(
        Remedy(
            title="Skip rows that others hold",
            kind="application",
            sql=(
                "SELECT id FROM jobs\nWHERE state = 'queued'\nORDER BY id\nLIMIT 1 FOR UPDATE SKIP LOCKED;",
            ),
            undo=(),
            lock="",
            blocks="nothing",
            restart=False,
            risk="",
            expect="no worker waits for another",
        ),
    ),
)
TWICE = replace(
    LINE,
    check="duplicate-index",
    severity="notice",
    file="queue/tables.sql",
    line=9,
    column=3,
    title="jobs_b repeats jobs_a",
    why="Every insert writes both.",
    remedies=(
        replace(
            LINE.remedies[0],
            title="Drop jobs_b",
            kind="sql",
            sql=(LOCK_TIMEOUT, "DROP INDEX CONCURRENTLY jobs_b;"),
            expect="one entry less per row",
        ),
    ),
)
FILES = ("queue/tables.sql", "queue/worker.sql", "queue/empty.sql")
FOUND = LintReport(
    findings=(TWICE, LINE, replace(LINE, line=12)),
    unparsed=(Unparsed(file="queue/worker.sql", line=30, error='syntax error at or near "SELEC"'),),
)
EVIL_FILE = f"a,b:c%0A::error::x {ANSI} <b>`|]]>--> \ud800 {RTL}\n::warning::y.sql"
HOSTILE = LintReport(
    findings=(
        replace(LINE, file=EVIL_FILE, title=f"[x](javascript:1) {{0}} {EVIL_FILE}", why=EVIL_FILE),
        replace(LINE, file="../up/a b.sql", severity="critical"),
        replace(LINE, file="/srv/a.sql", severity="critical"),
    ),
    unparsed=(Unparsed(file="<stdin>", line=1, error=f"at or near {ANSI}\n::error::z"),),
)

LINT_REPORTS = {
    "found": (FOUND, FILES),
    "evil": (HOSTILE, (EVIL_FILE, "../up/a b.sql", "/srv/a.sql", "<stdin>")),
    "clean": (LintReport(findings=(), unparsed=()), FILES[:1]),
}
