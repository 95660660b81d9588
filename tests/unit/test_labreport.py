"""Reports of the lab: charts that are XML, pages that escape, numbers that agree with the JSON."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from html.parser import HTMLParser
from itertools import pairwise
from typing import get_args
from xml.etree import ElementTree

import pytest

from pgqdoctor.errors import PgqdoctorError
from pgqdoctor.lab.results import Experiment
from pgqdoctor.labreport import chart_files, document_of, render_lab
from pgqdoctor.labreport.svg import PALETTE, Bar, Series, bar_chart, compact, line_chart
from tests.unit.lab_results import RACE, lab_result

EXPERIMENTS: tuple[Experiment, ...] = get_args(Experiment)
SVG = "{http://www.w3.org/2000/svg}"


class Page(HTMLParser):
    """The texts and the table rows of a page, and every tag."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.rows: list[list[str]] = []
        self.loaded: list[str] = []
        self._cell = False
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.loaded += [value or "" for name, value in attrs if name in ("src", "href")]
        if tag == "tr":
            self.rows.append([])
        self._cell = tag in ("td", "th")
        if self._cell:
            self.rows[-1].append("")

    def handle_data(self, data: str) -> None:
        if self._cell:
            self.rows[-1][-1] += data

    def handle_endtag(self, tag: str) -> None:
        if tag in ("td", "th"):
            self._cell = False


@pytest.mark.parametrize("format", ["text", "json", "markdown", "html"])
@pytest.mark.parametrize("experiment", EXPERIMENTS)
def test_every_result_can_be_written_in_every_format(experiment: Experiment, format: str) -> None:
    text = render_lab(lab_result(experiment), format)
    assert text.endswith("\n")
    if format != "json":
        assert document_of(lab_result(experiment)).title in text
        assert "\x1b" not in text
        assert "\u202e" not in text


@pytest.mark.parametrize("experiment", EXPERIMENTS)
def test_a_result_without_cells_can_be_written_too(experiment: Experiment) -> None:
    empty = replace(lab_result(experiment), results=())
    for format in ("text", "markdown", "html"):
        assert document_of(empty).title in render_lab(empty, format)


@pytest.mark.parametrize("experiment", EXPERIMENTS)
def test_a_page_runs_nothing_and_loads_nothing(experiment: Experiment) -> None:
    page = Page(render_lab(lab_result(experiment), "html"))
    assert "script" not in page.tags
    assert not page.loaded
    assert page.tags.count("svg") == len(document_of(lab_result(experiment)).charts)


def test_the_numbers_of_the_page_are_those_of_the_json() -> None:
    result = lab_result("race")
    cells = json.loads(render_lab(result, "json"))["results"]
    page = Page(render_lab(result, "html"))
    header = next(row for row in page.rows if row[:2] == ["strategy", "workers"])
    rows = [dict(zip(header, row, strict=True)) for row in page.rows if len(row) == len(header)][1:]
    assert len(rows) == len(cells) == len(RACE)
    for row, cell in zip(rows, cells, strict=True):
        assert row["strategy"] == cell["strategy"]
        assert int(row["workers"]) == cell["workers"]
        assert number(row["claims/s"]) == round(cell["claims_per_s"])
        assert number(row["jobs/s"]) == round(cell["distinct_jobs_per_s"])
        assert number(row["duplicates"]) == cell["duplicate_claims"]
        assert number(row["wasted"]) == cell["wasted_attempts"]
        assert number(row["buffers"]) == cell["buffers_per_claim"]
        assert float(row["p99 ms"]) == cell["p99_ms"]


def number(shown: str) -> float:
    return float(shown.replace(",", ""))


def test_the_race_says_what_its_numbers_bear_out() -> None:
    says = " ".join(document_of(lab_result("race")).says)
    assert "looks fastest among the claims without an index" in says
    assert "71% of its claims took a job that was already taken" in says
    assert "lost 4.0 races per job won with 10 workers" in says
    assert "touches 1,013 buffers, with the partial index 12" in says


def test_a_slower_naive_claim_is_not_called_fastest() -> None:
    slow = replace(lab_result("race"), results=tuple(one for one in RACE if one.strategy == "naive"))
    assert "fastest" not in " ".join(document_of(slow).says)


def test_the_triangle_says_where_room_does_not_help() -> None:
    result = lab_result("triangle")
    assert "help" not in " ".join(document_of(result).says)
    blocked = replace(result.triangle()[1], hot_updates=0)
    says = " ".join(document_of(replace(result, results=(blocked,))).says)
    assert "Room on the page does not help 'fillfactor 70'" in says


def test_storms_on_two_servers_stand_side_by_side() -> None:
    document = document_of(lab_result("storm"))
    assert [one for one in document.says if "on 16.14" in one]
    assert [one for one in document.says if "on 17.10" in one]
    assert "sick, 16.14" in document.charts[0].inline
    assert {row[2] for row in document.tables[0].rows} == {"16.14", "17.10"}


def test_markdown_refers_to_its_charts_only_where_they_are_written() -> None:
    result = lab_result("race")
    assert "![" not in render_lab(result, "markdown")
    text = render_lab(result, "markdown", charts_at="report-charts")
    files = chart_files(result)
    assert re.findall(r"\(<report-charts/(.+?)>\)", text) == list(files)
    for svg in files.values():
        ElementTree.fromstring(svg)


def test_an_unknown_format_is_refused() -> None:
    with pytest.raises(PgqdoctorError, match="cannot be written as 'pdf'"):
        render_lab(lab_result("race"), "pdf")


# --- charts -----------------------------------------------------------------------------------------


def texts(svg: str) -> list[str]:
    return [one.text or "" for one in ElementTree.fromstring(svg).iter(f"{SVG}text")]


def test_lines_have_their_names_ticks_and_points() -> None:
    series = (
        Series(name="one & <two>", points=((1, 10), (10, 100), (100, 1_000)), color=0),
        Series(name="flat", points=((1, 10), (100, 10)), color=1, dashed=True),
    )
    svg = line_chart("Title", series, x_label="workers", y_label="per second", log_x=True, log_y=True)
    root = ElementTree.fromstring(svg)
    assert {"Title", "one & <two>", "flat", "workers", "per second", "1", "10", "100", "1k"} <= set(
        texts(svg)
    )
    lines = root.findall(f"{SVG}polyline")
    assert [one.get("stroke") for one in lines] == [PALETTE[0], PALETTE[1]]
    assert lines[1].get("stroke-dasharray")
    xs = [float(point.split(",")[0]) for point in (lines[0].get("points") or "").split()]
    ys = [float(point.split(",")[1]) for point in (lines[0].get("points") or "").split()]
    assert xs[1] - xs[0] == pytest.approx(xs[2] - xs[1], abs=0.2), "equal factors, equal distances"
    assert ys[0] > ys[1] > ys[2], "larger is higher"
    assert len(root.findall(f"{SVG}circle")) == 5


def test_names_at_the_ends_of_lines_do_not_overlap() -> None:
    series = tuple(Series(name=f"s{n}", points=((1, 5), (2, 5.01 + n / 1000)), color=n) for n in range(8))
    svg = line_chart("t", series, x_label="x", y_label="y")
    places = sorted(
        float(one.get("y") or 0)
        for one in ElementTree.fromstring(svg).iter(f"{SVG}text")
        if (one.text or "").startswith("s")
    )
    assert len(places) == 8
    assert min(high - low for low, high in pairwise(places)) >= 14


def test_bars_have_lengths_by_value() -> None:
    bars = tuple(Bar(label=str(v), value=v, shown=f"{v:g}", color=0) for v in (0.0, 50.0, 100.0))
    root = ElementTree.fromstring(bar_chart("t", bars, x_label="x"))
    lengths = [float(one.get("width") or 0) for one in root.iter(f"{SVG}rect")]
    assert lengths[0] < 2
    assert lengths[2] == pytest.approx(2 * lengths[1], rel=0.01)


def test_a_chart_of_nothing_and_of_one_point_is_still_a_chart() -> None:
    for series in (
        (),
        (Series(name="none", points=(), color=0),),
        (Series(name="one", points=((1, 0),), color=0),),
    ):
        for log in (False, True):
            ElementTree.fromstring(line_chart("t", series, x_label="x", y_label="y", log_x=log, log_y=log))
    ElementTree.fromstring(bar_chart("t", (), x_label="x", log=True))


def test_a_file_has_a_background_of_its_own() -> None:
    bars = (Bar(label="a", value=1, shown="1", color=0),)
    assert 'fill="#ffffff"' in bar_chart("t", bars, x_label="x", standalone=True)
    assert 'fill="#ffffff"' not in bar_chart("t", bars, x_label="x")


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (0, "0"),
        (0.25, "0.25"),
        (2.5, "2.5"),
        (950, "950"),
        (1_000, "1k"),
        (1_250, "1.2k"),
        (34_000, "34k"),
        (5_600_000, "5.6M"),
    ],
)
def test_compact_numbers(value: float, shown: str) -> None:
    assert compact(value) == shown
