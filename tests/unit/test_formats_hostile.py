"""Every format stays what it is, whatever a server or a file puts into any text of a report."""

from __future__ import annotations

import json
from dataclasses import replace
from html.parser import HTMLParser
from typing import Any
from xml.etree import ElementTree

import pytest
from hypothesis import given, settings
from markdown_it import MarkdownIt

from pgqdoctor.lint.engine import LintReport
from pgqdoctor.render import FORMATS, LINT_FORMATS, Asked, render, render_lint
from pgqdoctor.report import Report
from tests.golden.lint_reports import FILES, FOUND
from tests.golden.reports import INCOMPLETE, KNOBS, SICK
from tests.unit.hostile import EVIL, TEXTS, filled

WHOLE = replace(
    SICK,
    queues=(replace(SICK.queues[0], triangle=KNOBS), SICK.queues[1]),
    skipped=INCOMPLETE.skipped,
    crashed=INCOMPLETE.crashed,
    notes=("a note",),
)
"""A report with everything that a report may hold."""
ONE = Asked(only=("claim-unguarded",), fail_on="notice")


class Shape(HTMLParser):
    """The tags of a page with the names of their attributes, without texts."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.found: list[object] = []
        self.texts: list[str] = []
        self.feed(page)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, tuple(name for name, _ in attrs)))

    def handle_endtag(self, tag: str) -> None:
        self.found.append(tag)

    def handle_comment(self, data: str) -> None:
        self.found.append("comment")

    def handle_data(self, data: str) -> None:
        self.texts.append(data)


def written(report: Report, format_: str) -> str:
    return render(report, format_, color=False, width=80, asked=ONE)


def linted(report: LintReport, format_: str, files: tuple[str, ...]) -> str:
    return render_lint(report, format_, files=files, asked=ONE, color=False, width=80)


def shape_of_xml(element: ElementTree.Element) -> tuple[Any, ...]:
    return (element.tag, *element.attrib, *(shape_of_xml(one) for one in element))


def shape_of_json(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: shape_of_json(one) for key, one in value.items()}
    if isinstance(value, list):
        return [shape_of_json(one) for one in value]
    return type(value).__name__


def shape_of_markdown(text: str) -> list[str]:
    reader = MarkdownIt("commonmark").enable(["table"])
    inside = ("text", "text_special", "code_inline")
    return [
        one.type
        for token in reader.parse(text)
        for one in (token, *(token.children or ()))
        if one.type not in inside
    ]


def commands(text: str) -> list[str]:
    """The command at the beginning of each line, for every kind of line end that any reader knows."""
    return [line.partition(" ")[0] for line in text.splitlines()]


SHAPES = {
    "json": lambda text: shape_of_json(json.loads(text)),
    "sarif": lambda text: shape_of_json(json.loads(text)),
    "junit": lambda text: shape_of_xml(ElementTree.fromstring(text)),
    "github": commands,
    "html": lambda text: Shape(text).found,
    "markdown": shape_of_markdown,
}


PLAIN = filled(WHOLE, "plain")
PLAIN_LINT = filled(FOUND, "plain")


def check_report(format_: str, evil: str) -> None:
    # Letters around it, since an empty text leaves out the sentence around it.
    text = written(filled(WHOLE, f"a{evil}a"), format_)
    text.encode()  # halves of surrogate pairs could not be written to a file
    shape = SHAPES[format_](text)
    if format_ != "json":  # there texts are also keys
        assert shape == SHAPES[format_](written(PLAIN, format_))
    SHAPES[format_](written(filled(WHOLE, evil), format_))


def check_lint(format_: str, evil: str) -> None:
    text = linted(filled(FOUND, f"a{evil}a"), format_, (f"a{evil}a", *FILES))
    text.encode()
    assert SHAPES[format_](text) == SHAPES[format_](linted(PLAIN_LINT, format_, ("plain", *FILES)))
    SHAPES[format_](linted(filled(FOUND, evil), format_, (evil, *FILES)))


@pytest.mark.parametrize("format_", [one for one in FORMATS if one != "text"])
class TestReport:
    @pytest.mark.parametrize("evil", EVIL, ids=range(len(EVIL)))
    def test_known_evil(self, format_: str, evil: str) -> None:
        check_report(format_, evil)

    @settings(deadline=None, max_examples=60)
    @given(evil=TEXTS)
    def test_any_text(self, format_: str, evil: str) -> None:
        check_report(format_, evil)


@pytest.mark.parametrize("format_", [one for one in LINT_FORMATS if one != "text"])
class TestLint:
    @pytest.mark.parametrize("evil", EVIL, ids=range(len(EVIL)))
    def test_known_evil(self, format_: str, evil: str) -> None:
        check_lint(format_, evil)

    @settings(deadline=None, max_examples=60)
    @given(evil=TEXTS)
    def test_any_text(self, format_: str, evil: str) -> None:
        check_lint(format_, evil)
