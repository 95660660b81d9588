"""The table's keys and mouse, and plots of more moments than the screen has columns."""

from __future__ import annotations

import pytest
from rich.cells import cell_len
from rich.console import Console
from textual.app import App, ComposeResult

from pgqdoctor.tui.screens.history import time_unit
from pgqdoctor.tui.screens.overview import told
from pgqdoctor.tui.views.overview import FindingLine
from pgqdoctor.tui.widgets.bars import AXIS, LABEL, Bars, scale_label, time_axis
from pgqdoctor.tui.widgets.grid import Cell, Column, Grid, Row, left, right, stacked
from pgqdoctor.tui.widgets.plot import Turn, strip_of, thinned, ticks

NAME = Column(title="name", width=12)
COUNT = Column(title="count", width=8, right=True)


def row(number: int, *, lines: int = 1) -> Row:
    more = (left("more", NAME, "dim"),) * (lines - 1)
    return Row(
        key=f"k{number}", cells=(stacked(left(f"row {number}", NAME), *more), right(f"{number}", COUNT))
    )


class Shelf(App[None]):
    """One table on a screen of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.opened: list[str] = []

    def compose(self) -> ComposeResult:
        yield Grid(id="grid")

    def on_grid_row_selected(self, event: Grid.RowSelected) -> None:
        self.opened.append(event.key)


def text(app: App[None]) -> list[str]:
    lines = app.screen._compositor.render_strips()
    return ["".join(segment.text for segment in line).rstrip() for line in lines]


async def test_keys_move_the_cursor_and_scroll_to_it() -> None:
    app = Shelf()
    async with app.run_test(size=(40, 8)) as pilot:
        grid = app.query_one(Grid)
        grid.show((NAME, COUNT), [row(number) for number in range(30)])
        grid.focus()
        await pilot.pause()
        assert text(app)[0].split() == ["name", "count"]
        assert text(app)[1].split() == ["row", "0", "0"]
        assert grid.chosen == "k0"
        await pilot.press("down", "j", "k", "j", "enter")
        assert app.opened == ["k2"]
        await pilot.press("end")
        await pilot.pause()
        assert grid.chosen == "k29"
        assert text(app)[7].split()[:3] == ["row", "29", "29"]
        await pilot.press("pageup")
        await pilot.pause()
        assert grid.chosen == "k22"
        assert any(line.split()[:2] == ["row", "22"] for line in text(app))
        await pilot.press("home", "up")
        await pilot.pause()
        assert grid.chosen == "k0"
        assert text(app)[1].split()[:3] == ["row", "0", "0"]


async def test_the_cursor_stays_with_its_row_and_leaves_with_it() -> None:
    app = Shelf()
    async with app.run_test(size=(40, 8)) as pilot:
        grid = app.query_one(Grid)
        grid.show((NAME, COUNT), [row(number) for number in range(5)])
        grid.focus()
        await pilot.press("down", "down")
        grid.show((NAME, COUNT), [row(9), *(row(number) for number in range(5))])
        assert grid.chosen == "k2"
        grid.show((NAME, COUNT), [row(number) for number in (0, 1)])
        assert grid.chosen == "k1"
        grid.show((NAME, COUNT), [])
        await pilot.press("down", "up", "pagedown", "home", "end", "enter")
        assert grid.chosen is None
        assert app.opened == []


async def test_a_click_opens_the_row_below_it_whatever_its_height() -> None:
    app = Shelf()
    async with app.run_test(size=(40, 9)) as pilot:
        app.query_one(Grid).show((NAME, COUNT), [row(number, lines=1 + number % 2) for number in range(9)])
        await pilot.pause()
        await pilot.click("#grid", offset=(3, 0))
        assert app.opened == [], "the heading is no row"
        await pilot.click("#grid", offset=(3, 3))
        assert app.opened == ["k1"], "its second line"
        await pilot.click("#grid", offset=(3, 4))
        assert app.opened == ["k1", "k2"]
        app.query_one(Grid).scroll_to(y=4, animate=False)
        await pilot.pause()
        await pilot.click("#grid", offset=(3, 1))
        assert app.opened[-1] == "k3", "the lines above are scrolled away"


async def test_names_are_no_markup_and_wide_letters_keep_the_columns() -> None:
    app = Shelf()
    async with app.run_test(size=(40, 5)) as pilot:
        names = ("[red]x[/]", "仕事のキューの名前", "e" * 40)
        rows = [Row(key=name, cells=(left(name, NAME), right("7", COUNT))) for name in names]
        app.query_one(Grid).show((NAME, COUNT), rows)
        await pilot.pause()
        shown = text(app)[1:4]
        assert shown[0].startswith("[red]x[/]")
        assert shown[1].startswith("仕事の") and "…" in shown[1]
        assert shown[2].startswith("eeeeeeeeee…")
        strips = app.screen._compositor.render_strips()[1:4]
        assert {strip.cell_length for strip in strips} == {40}


def test_a_cell_has_the_width_of_its_column() -> None:
    for made in (left("abc", NAME), left("a" * 99, NAME), right("5", NAME), left("仕事" * 9, NAME)):
        assert isinstance(made, Cell)
        ((piece,),) = made.lines
        assert Console().measure(piece[0]).maximum == NAME.width - 1 or piece[0].endswith(" ")


def test_thinned_keeps_ends_peaks_and_dips() -> None:
    points = [(float(at), 10.0) for at in range(1000)]
    points[400], points[700] = (400.0, 99.0), (700.0, -5.0)
    kept = thinned(points, 40)
    assert len(kept) <= 42
    assert (kept[0], kept[-1]) == (points[0], points[-1])
    assert {points[400], points[700]} <= set(kept)
    assert kept == sorted(kept)
    assert thinned(points[:30], 40) == points[:30]
    assert thinned([(5.0, 1.0)] * 50, 40)[0] == (5.0, 1.0), "no time between them"


def test_a_line_of_plotext_keeps_its_colours() -> None:
    strip = strip_of("\x1b[48;5;15mab\x1b[0m\x1b[48;5;15m\x1b[38;5;6m⣠⣠\x1b[0m\x1b[31mé\x1b[0m")
    assert strip.text == "ab⣠⣠é"
    assert strip.cell_length == 5
    first, second, third = (segment.style for segment in strip)
    assert first is not None and first.bgcolor is not None and first.color is None
    assert second is not None and second.color is not None and second.color.number == 6
    assert third is not None and third.bgcolor is None, "what was set before ends with its run"


def test_a_turn_begins_with_the_first_question() -> None:
    assert not Turn(0.0).left
    long = Turn(60.0)
    assert long.left and long.left


@pytest.mark.parametrize("depth", [0, 1, 40])
@pytest.mark.parametrize("room", [30, 78])
def test_the_words_of_a_finding_stand_beside_its_mark_and_none_is_lost(depth: int, room: int) -> None:
    title = "仕事の行 12,854 dead rows of public.jobs cannot be vacuumed: " + "x" * 90
    line = FindingLine(key="k", severity="critical", depth=depth, title=title, queue="public.jobs")
    lines = ["".join(text for text, _ in pieces) for pieces in told(line, room).lines]
    assert {cell_len(one) for one in lines} == {room}
    assert "".join("".join(lines).split()).replace("└!!critical", "!!critical") == "".join(
        f"!!critical{title}".split()
    )
    start = lines[0].index("critical") + len("critical ")
    assert all(one[:start].strip() == "" for one in lines[1:])


def test_ticks_are_round_and_those_of_counts_whole() -> None:
    assert ticks(-23.3, 0.0, 5) == (-20.0, -15.0, -10.0, -5.0, 0.0)
    assert ticks(0.0, 1.58, 3, whole=True) == (0.0, 1.0)
    assert ticks(0.0, 12_000.0, 4, whole=True) == (0.0, 5_000.0, 10_000.0)
    assert ticks(0.0, 1.05, 2) == (0.0, 1.0)
    assert ticks(0.0, 0.0, 4) == (0.0,), "no time between the moments"
    assert all(value == int(value) for value in ticks(0.0, 3.15, 9, whole=True))


@pytest.mark.parametrize(
    ("span_s", "unit"), [(23.0, "seconds"), (599.0, "seconds"), (600.0, "minutes"), (36_000.0, "hours")]
)
def test_a_long_session_is_told_in_a_long_unit(span_s: float, unit: str) -> None:
    name, size_s = time_unit(span_s)
    assert name == unit
    assert span_s / size_s < 600


@pytest.mark.parametrize("value", [0.0008, 0.0017, 0.0083, 0.025, 0.5, 1.25, 12.5, 999.5, 9_999.0, 12_345.0])
def test_a_label_of_the_scale_has_room(value: float) -> None:
    label = scale_label(value)
    assert len(label) <= LABEL
    assert label.strip("0.") != "", "a little is not nothing"


def test_the_time_axis_says_how_old_the_first_moment_is() -> None:
    assert time_axis(38.2, 20, 40, "now") == " " * 20 + "-38s ─────────── now"
    assert time_axis(250.0, 3, 40, "now") == "-4m10s … now".rjust(40)
    assert time_axis(38.0, 40, 40, "moment shown").endswith("─ moment shown")
    assert time_axis(0.0, 0, 40, "now") == ""


class Stand(App[None]):
    """Bars on a screen of their own."""

    def compose(self) -> ComposeResult:
        yield Bars(id="bars")


@pytest.mark.parametrize("most", [0.002, 0.05, 0.5, 20.0, 9_000.0])
async def test_bars_stand_in_their_columns_whatever_the_scale(most: float) -> None:
    app = Stand()
    async with app.run_test(size=(60, 8)) as pilot:
        bars = app.query_one(Bars)
        values = tuple((0.0, 0.0, 0.0, 0.0, 0.0, most * (place + 1) / 100, 0.0) for place in range(100))
        bars.show(values, tuple(2.0 * (99 - place) for place in range(100)), newest=True)
        await pilot.pause()
        *rows, axis, _ = text(app)
        assert {line.index("│") for line in rows} == {AXIS - 2}
        # Of a hundred moments 53 have room: the first of them is 104 seconds old.
        assert axis.startswith(" " * AXIS + "-1m44s ─")
        assert axis.endswith("─ now")
