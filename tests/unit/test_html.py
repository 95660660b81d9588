"""The page of a report: complete by itself, causes first, nothing lost, nothing executed."""

from __future__ import annotations

import re
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import pytest

from pgqdoctor.engine import diagnose
from pgqdoctor.recording import last_observation
from pgqdoctor.render import render
from pgqdoctor.report import Report
from pgqdoctor.story import story_of
from tests.golden.reports import HEALTHY, INCOMPLETE, LONG, REPORTS, SCANNING, SICK

ROOT = Path(__file__).parents[2]
RECORDINGS = sorted((ROOT / "fixtures" / "observations").glob("*.pgqd"))
VOID = {"meta"}
LOADING = {"src", "srcset", "data", "action", "formaction", "poster", "background"}


class Page(HTMLParser):
    """A page taken apart; fails where a tag is not closed, or in the wrong order."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.headings: list[int] = []
        self.text = ""
        self.pre: list[str] = []
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag in VOID:
            return
        self.open.append(tag)
        if re.fullmatch(r"h\d", tag):
            self.headings.append(int(tag[1]))
        if tag == "pre":
            self.pre.append("")

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if "style" not in self.open:
            self.text += data
        if "pre" in self.open:
            self.pre[-1] += data


def page(report: Report) -> Page:
    return Page(render(report, "html", color=False, width=80))


@pytest.mark.parametrize("name", REPORTS)
class TestEveryPage:
    def test_it_loads_and_runs_nothing(self, name: str) -> None:
        text = render(REPORTS[name], "html", color=False, width=80)
        for tag, attributes in Page(text).tags:
            assert tag not in ("script", "link", "img", "iframe", "object", "base", "form")
            assert not LOADING & set(attributes)
            assert not any(one.startswith("on") for one in attributes)
            assert (attributes.get("href") or "#").startswith("#")
        assert "url(" not in text
        assert "@import" not in text
        assert "default-src 'none'" in text

    def test_headings_go_down_by_one_step_and_ids_are_unique(self, name: str) -> None:
        shown = page(REPORTS[name])
        assert shown.headings[0] == 1
        assert shown.headings.count(1) == 1
        assert all(
            below - above <= 1 for above, below in zip(shown.headings, shown.headings[1:], strict=False)
        )
        ids = [attributes["id"] for _, attributes in shown.tags if "id" in attributes]
        assert len(ids) == len(set(ids))
        links = {attributes["href"] for tag, attributes in shown.tags if tag == "a"}
        assert links <= {f"#{one}" for one in ids}

    def test_language_and_tables_can_be_heard(self, name: str) -> None:
        tags = page(REPORTS[name]).tags
        assert ("html", {"lang": "en"}) in tags
        kinds = [tag for tag, _ in tags]
        assert kinds.count("table") == kinds.count("caption")
        assert all(attributes.get("scope") in ("col", "row") for tag, attributes in tags if tag == "th")


@pytest.mark.parametrize("recording", RECORDINGS, ids=lambda path: str(path.stem))
def test_every_recording_says_what_its_report_says(recording: Path) -> None:
    report = diagnose(last_observation(recording))
    shown = page(report)
    places = [shown.text.index(f" {one.title}") for one in report.findings]
    assert places == sorted(places)
    # A root alone is told by its title.
    assert story_of(report).rstrip(".") in shown.text
    for one in report.findings:
        for remedy in one.remedies:
            for statements in (remedy.sql, remedy.undo):
                # The parser of a browser drops the newline behind the tag.
                assert not statements or "\n" + "\n".join(statements) in shown.pre


def test_sql_is_in_pre_as_it_is_to_be_pasted() -> None:
    shown = page(REPORTS["hostile"])
    assert any("UPDATE jobs SET state = 'two\nlines ```' WHERE id = 1;" in one for one in shown.pre)


def test_effects_lead_to_their_cause() -> None:
    text = render(SICK, "html", color=False, width=80)
    assert '<article id="finding-2" class="finding warning d1">' in text
    assert 'because of <a href="#finding-1">1</a>: Session 4711' in text
    gone = render(replace(SICK, findings=SICK.findings[1:2]), "html", color=False, width=80)
    assert "because of vacuum-horizon-held:public.jobs" in gone


def test_knobs_stand_there_with_their_arithmetic() -> None:
    shown = page(SCANNING)
    assert "saves 173 buffers a claim * 73/s claims = 12,629/s buffers" in shown.text
    assert any("CREATE INDEX CONCURRENTLY jobs_ready_idx" in one for one in shown.pre)


def test_nothing_is_left_out() -> None:
    text = page(LONG).text
    assert all(f"public.q{place}" in text for place in range(25))
    assert all(f"reason {place}" in text for place in range(15))


def test_only_what_was_seen_whole_is_green() -> None:
    def mark(report: Report) -> str | None:
        return next(one["class"] for tag, one in page(report).tags if tag == "span")

    assert mark(HEALTHY) == "mark healthy"
    assert mark(INCOMPLETE) == "mark unsure"
    assert mark(SICK) == "mark critical"
    text = page(INCOMPLETE).text
    assert "2 checks crashed and 4 checks could not look" in text
    assert "These checks failed and say nothing" in text
