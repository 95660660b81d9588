"""Why it hurts a queue, in the words of this module.

A | in a cell and a second paragraph.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import pytest

from pgqdoctor.check import PLAN, ROWS, Check, NoLimits
from pgqdoctor.docs import (
    GENERATED,
    LINT_SCHEMA,
    NEEDS,
    PAGES,
    REPORT_SCHEMA,
    TRIAGE_SCHEMA,
    check_page,
    documents,
    main,
    stale,
    write,
)
from pgqdoctor.finding import Finding


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    dead_rows: Annotated[int, "rows | from which\na claim feels it"] = 2_000
    share: Annotated[float, "ratio"] = 0.5


def evaluate(*seen: object) -> Iterator[Finding]:
    return iter(())


CHECK = Check(
    title="A | title",
    needs=(PLAN, "slots of the future"),
    limits=Limits(),
    evaluate=evaluate,
    references=("https://www.postgresql.org/docs/current/mvcc.html",),
    look_alikes=("a queue that rests",),
)
PLAIN = Check(title="Plain", needs=(), limits=NoLimits(), evaluate=evaluate, scope="server")
PAGE = PAGES / "test-docs.md"


class TestPage:
    def test_holds_title_id_and_reason(self) -> None:
        lines = check_page(CHECK).splitlines()
        assert lines[:2] == [GENERATED, ""]
        assert "# A | title" in lines
        assert "Check `test-docs`, looks at each queue." in lines
        assert "Why it hurts a queue, in the words of this module." in lines
        assert "A | in a cell and a second paragraph." in lines

    def test_says_needs_in_words_and_unknown_ones_by_name(self) -> None:
        page = check_page(CHECK)
        assert f"- {NEEDS[PLAN]}\n- slots of the future\n" in page
        assert NEEDS[ROWS] not in page

    def test_lists_limits_with_reasons_in_cells_of_their_own(self) -> None:
        lines = check_page(CHECK).splitlines()
        assert "| `dead_rows` | 2,000 | rows \\| from which a claim feels it |" in lines
        assert "| `share` | 0.5 | ratio |" in lines

    def test_shows_how_a_limit_is_set(self) -> None:
        sample = check_page(CHECK).partition("```toml\n")[2].partition("```")[0]
        assert tomllib.loads(sample) == {"limits": {"test-docs": {"dead_rows": 2000}}}

    def test_lists_look_alikes_and_references(self) -> None:
        page = check_page(CHECK)
        assert "## What it does not speak about\n\n- a queue that rests\n" in page
        assert page.endswith("- <https://www.postgresql.org/docs/current/mvcc.html>\n")

    def test_a_plain_check_has_no_empty_sections(self) -> None:
        page = check_page(PLAIN)
        assert "looks at the whole server" in page
        assert "None: the check decides without a threshold." in page
        assert "## References" not in page
        assert "## What it does not speak about" not in page


def test_the_index_links_every_page() -> None:
    wanted = documents((CHECK,))
    assert set(wanted) == {PAGE, PAGES / "README.md", REPORT_SCHEMA, LINT_SCHEMA, TRIAGE_SCHEMA}
    assert "| [test-docs](test-docs.md) | A \\| title | queue |" in wanted[PAGES / "README.md"]


class TestFiles:
    def test_written_files_are_not_stale_and_not_written_again(self, tmp_path: Path) -> None:
        wanted = documents((CHECK,))
        assert sorted(stale(tmp_path, wanted)) == [f"{path} is missing" for path in sorted(wanted)]
        assert write(tmp_path, wanted) == [f"wrote {path}" for path in sorted(wanted)]
        assert stale(tmp_path, wanted) == []
        assert write(tmp_path, wanted) == []

    def test_a_changed_file_is_stale(self, tmp_path: Path) -> None:
        wanted = documents((CHECK,))
        write(tmp_path, wanted)
        (tmp_path / PAGE).write_text("another", encoding="utf-8")
        assert stale(tmp_path, wanted) == [f"{PAGE} is out of date"]
        assert write(tmp_path, wanted) == [f"wrote {PAGE}"]

    def test_the_page_of_a_check_that_is_gone_is_stale_and_removed(self, tmp_path: Path) -> None:
        write(tmp_path, documents((CHECK,)))
        rest = documents(())
        assert stale(tmp_path, rest) == [
            f"{PAGES / 'README.md'} is out of date",
            f"{PAGE} belongs to no check",
        ]
        assert f"removed {PAGE}" in write(tmp_path, rest)
        assert stale(tmp_path, rest) == []

    def test_a_file_that_somebody_wrote_is_named_and_kept(self, tmp_path: Path) -> None:
        wanted = documents((CHECK,))
        write(tmp_path, wanted)
        own = tmp_path / PAGES / "notes.md"
        own.write_text("mine", encoding="utf-8")
        assert write(tmp_path, wanted) == []
        assert stale(tmp_path, wanted) == [f"{PAGES / 'notes.md'} belongs to no check"]
        assert own.read_text(encoding="utf-8") == "mine"


class TestCommand:
    def test_check_writes_nothing_and_fails_with_the_list(
        self, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        assert main(["--check"], root=tmp_path) == 1
        printed = capsys.readouterr()
        assert f"{REPORT_SCHEMA} is missing\n" in printed.err
        assert printed.out == ""
        assert list(tmp_path.iterdir()) == []

    def test_writes_then_passes(self, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
        assert main([], root=tmp_path) == 0
        assert f"wrote {REPORT_SCHEMA}\n" in capsys.readouterr().out
        assert main(["--check"], root=tmp_path) == 0
        assert capsys.readouterr() == ("", "")
