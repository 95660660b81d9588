"""Workflow commands, read back as the runner of GitHub Actions reads them."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

from pgqdoctor.render import Asked, render, render_lint
from pgqdoctor.render.github import LONGEST_TITLE
from pgqdoctor.report import Report
from tests.golden.lint_reports import EVIL_FILE, LINT_REPORTS
from tests.golden.reports import HORIZON, INCOMPLETE, NO_QUEUE, REPORTS, SICK
from tests.unit.hostile import EVIL

COMMAND = re.compile(r"::([a-z-]+) ([^\r\n]*?)::([^\r\n]*)")


def read(text: str) -> list[tuple[str, dict[str, str], str]]:
    """The commands of an output: name, properties and message; no other line may stand there."""
    found = []
    assert text.endswith("\n")
    for line in text[:-1].split("\n"):
        match = COMMAND.fullmatch(line)
        assert match is not None, line
        name, inside, data = match.groups()
        pairs = [one.split("=", 1) for one in inside.split(",")]
        properties = {key: undone(value, property_=True) for key, value in pairs}
        assert set(properties) <= {"title", "file", "line", "col"}
        found.append((name, properties, undone(data)))
    return found


def undone(text: str, *, property_: bool = False) -> str:
    if property_:
        text = text.replace("%3A", ":").replace("%2C", ",")
    return text.replace("%0D", "\r").replace("%0A", "\n").replace("%25", "%")


def commands(report: Report, fail_on: str = "critical") -> list[tuple[str, dict[str, str], str]]:
    return read(render(report, "github", color=False, width=80, asked=Asked(fail_on=fail_on)))


class TestReport:
    @pytest.mark.parametrize("name", REPORTS)
    def test_one_command_per_finding_and_crash_and_a_summary(self, name: str) -> None:
        report = REPORTS[name]
        found = commands(report)
        assert len(found) == len(report.findings) + len(report.crashed) + 1
        assert found[-1][0] == "notice"

    def test_levels_titles_and_messages(self) -> None:
        found = commands(SICK)
        assert [one[0] for one in found] == ["error", "warning", "error", "notice", "notice"]
        assert found[0][1] == {"title": "vacuum-horizon-held on public.jobs"}
        lines = found[1][2].split("\n")
        assert lines[0] == SICK.findings[1].title
        assert f"because of: {HORIZON.title}" in lines
        assert SICK.findings[1].remedies[0].sql[1] in lines

    def test_the_summary_says_what_was_found_and_what_not_looked_at(self) -> None:
        _, properties, message = commands(INCOMPLETE, "warning")[-1]
        assert properties == {"title": "pgqdoctor: incomplete"}
        assert "Fails from warning upwards." in message
        assert "Not looked at: heap-bloat: the probe timed out after 500 ms" in message
        assert "to see it: CREATE EXTENSION pg_stat_statements" in message
        assert "Looked for: claim statements" in commands(NO_QUEUE)[-1][2]
        assert "Nothing fails." in commands(SICK, "never")[-1][2]

    def test_a_title_is_cut_where_github_refuses_it(self) -> None:
        (long, _) = commands(replace(SICK, findings=(replace(HORIZON, check="c" * 300),)))
        assert len(long[1]["title"]) == LONGEST_TITLE

    @pytest.mark.parametrize("evil", EVIL, ids=range(len(EVIL)))
    def test_no_name_begins_a_command_or_a_property(self, evil: str) -> None:
        finding = replace(HORIZON, check=f"c{evil}", title=f"t{evil}", why=f"w{evil}", caused_by=(evil,))
        (found, summary) = commands(
            replace(SICK, findings=(finding,), server=replace(SICK.server, database=f"d{evil}"))
        )
        assert (found[0], [*found[1]], summary[0], [*summary[1]]) == ("error", ["title"], "notice", ["title"])


class TestLint:
    def commands(self, name: str) -> list[tuple[str, dict[str, str], str]]:
        report, files = LINT_REPORTS[name]
        return read(
            render_lint(report, "github", files=files, asked=Asked(fail_on="warning"), color=False, width=80)
        )

    def test_a_fault_stands_at_its_line(self) -> None:
        found = self.commands("found")
        assert [one[0] for one in found] == ["notice", "warning", "warning", "warning", "notice"]
        place = {"file": "queue/tables.sql", "line": "9", "col": "3", "title": "duplicate-index"}
        assert found[0][1] == place
        assert found[3][1] == {"file": "queue/worker.sql", "line": "30", "title": "not read"}
        assert found[-1][2].startswith("3 files: 3 findings, 1 statement not read\n")

    def test_the_name_of_a_file_is_escaped_and_comes_back(self) -> None:
        found = self.commands("evil")
        assert len(found) == 5
        assert found[0][1]["line"] == "2"
        assert found[0][1]["file"].startswith("a,b:c%0A::error::x ")
        assert found[0][1]["file"].endswith("\n::warning::y.sql")
        assert EVIL_FILE.startswith("a,b:c%0A::error::x ")
        assert found[1][1]["file"] == "../up/a b.sql"
