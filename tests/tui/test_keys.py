"""What the keys do, driven by Textual's pilot."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import msgspec
import pytest
from textual.containers import Vertical
from textual.widgets import Button, ContentSwitcher, Input, Static
from textual.widgets._toast import Toast

from pgqdoctor.feed import Failure, Snapshot
from pgqdoctor.frames import Frame, Judging
from pgqdoctor.history import History
from pgqdoctor.live import Dropped, LinkState, PollCost, SignalOutcome
from pgqdoctor.pulse import pulse
from pgqdoctor.queue import build_queues
from pgqdoctor.recording import last_observation, open_recording
from pgqdoctor.render import render
from pgqdoctor.render.script import fix_script
from pgqdoctor.steps import treatment
from pgqdoctor.triage import with_what_comes_after
from pgqdoctor.tui.app import ENDINGS, EXPORTED_WIDTH, PANES, TOO_SMALL, DoctorApp
from pgqdoctor.tui.keys import KEYS
from pgqdoctor.tui.screens.dialogs import ConfirmScreen, HelpScreen, WriteScreen
from pgqdoctor.tui.screens.finding import FindingPane
from pgqdoctor.tui.views.picture import Picture, picture
from pgqdoctor.tui.widgets.grid import Grid
from pgqdoctor.tui.widgets.plot import Plot
from pgqdoctor.tui.widgets.statusline import StatusLine
from pgqdoctor.tui.widgets.topline import TopLine
from tests.tui.staged import StagedFeed, app_staged, frame_staged, snapshot_staged

CONNECTED = LinkState(kind="connected")


def feed_of(name: str = "idle-snapshot", *, live: bool = True) -> StagedFeed:
    return StagedFeed(CONNECTED, snapshot_staged(name), name=name, live=live)


def shown(app: DoctorApp, widget: type[Static]) -> str:
    return str(app.query_one(widget).render())


def painted(app: DoctorApp) -> list[str]:
    """The lines of the screen."""
    return [strip.text.rstrip() for strip in app.screen._compositor.render_strips()]


def said(app: DoctorApp) -> list[str]:
    """What the toasts say, or said last."""
    return [one.message for one in app._notifications]


def current(app: DoctorApp) -> str | None:
    return app.query_one(ContentSwitcher).current


async def test_every_screen_opens_by_its_number() -> None:
    app = app_staged(feed_of())
    async with app.run_test(size=(80, 24)) as pilot:
        for number, pane in enumerate(PANES, 1):
            await pilot.press(str(number))
            assert current(app) == pane


async def test_every_screen_stands_in_the_command_palette() -> None:
    app = app_staged(feed_of())
    async with app.run_test(size=(80, 24)) as pilot:
        commands = {one.title: one.callback for one in app.get_system_commands(app.screen)}
        assert set(PANES.values()) <= set(commands)
        commands["Waits"]()
        await pilot.pause()
        assert current(app) == "waits"


async def test_a_click_on_a_name_opens_the_screen() -> None:
    app = app_staged(feed_of())
    async with app.run_test(size=(80, 24)) as pilot:
        await pilot.pause()
        await pilot.click("#tab-history")
        assert current(app) == "history"


async def test_help_names_every_key_that_is_bound() -> None:
    listed = " ".join(key for _, rows in KEYS for key, _ in rows)
    app = app_staged(feed_of())
    async with app.run_test(size=(80, 24)) as pilot:
        await pilot.press("?")
        assert isinstance(app.screen, HelpScreen)
        await pilot.press("escape")
        assert not isinstance(app.screen, HelpScreen)
    spelled = {"plus": "+", "minus": "-", "slash": "/", "left_square_bracket": "[", "question_mark": "?"}
    spelled |= {
        "right_square_bracket": "]",
        "left_curly_bracket": "{",
        "right_curly_bracket": "}",
        "less_than_sign": "<",
    }
    spelled |= {"greater_than_sign": ">"}
    for binding in DoctorApp.BINDINGS:
        keys = binding.key if hasattr(binding, "key") else binding[0]
        key = keys.split(",")[0]
        if key.isdigit() or key in ("left", "right"):
            continue
        assert spelled.get(key, key) in listed.split(), f"{key} is missing from the help"


async def test_enter_opens_a_queue_and_escape_leads_back() -> None:
    app = app_staged(feed_of("healthy-two-queues"))
    async with app.run_test(size=(80, 24)) as pilot:
        await pilot.press("j", "enter")
        assert current(app) == "claim"
        assert app.choice.queue == "public.webhooks"
        await pilot.press("left")
        assert app.choice.queue == "public.emails"
        await pilot.press("escape")
        assert current(app) == "overview"


async def test_enter_on_a_finding_opens_it() -> None:
    app = app_staged(feed_of())
    async with app.run_test(size=(80, 24)) as pilot:
        await pilot.press("tab", "down", "enter")
        await pilot.pause()
        assert current(app) == "finding"
        pane = app.query_one(FindingPane)
        assert pane.current is not None
        assert pane.current.check == "dead-tuples"


async def test_copy_hands_over_the_sql_of_the_chosen_remedy() -> None:
    app = app_staged(feed_of())
    async with app.run_test(size=(80, 24)) as pilot:
        await pilot.press("2", "y")
        assert "pg_terminate_backend" in app.clipboard
        await pilot.press("right", "y")
        assert app.clipboard.startswith("ALTER ROLE postgres IN DATABASE app SET")


async def test_the_number_of_a_screen_leaves_the_help_for_it() -> None:
    app = app_staged(feed_of())
    async with app.run_test(size=(80, 24)) as pilot:
        await pilot.press("?")
        assert len(app.screen_stack) == 2
        await pilot.press("4")
        await pilot.pause()
        assert len(app.screen_stack) == 1
        assert current(app) == "horizon"
        await pilot.press("?", "9")
        await pilot.pause()
        assert (len(app.screen_stack), current(app)) == (1, "horizon"), "there is no ninth screen"


async def test_filter_narrows_and_escape_clears() -> None:
    app = app_staged(feed_of("healthy-two-queues"))
    async with app.run_test(size=(80, 24)) as pilot:
        table = app.query_one("#queues", Grid)
        assert len(table.rows) == 2
        await pilot.press("slash", *"web", "enter")
        assert len(table.rows) == 1
        assert "filter 'web'" in shown(app, StatusLine)
        await pilot.press("escape")
        assert len(table.rows) == 2
        await pilot.press("slash", "q")
        assert app.query_one("#filter", Input).value == "q", "a letter is typed, it quits nothing"
        await pilot.press("escape")
        assert app.choice.wanted == ""


async def test_sort_goes_through_the_columns() -> None:
    app = app_staged(feed_of("healthy-two-queues"))
    async with app.run_test(size=(80, 24)) as pilot:
        first = []
        for _ in range(9):
            await pilot.press("s")
            first.append((app.choice.sort, app.query_one("#queues", Grid).chosen))
        assert ("dead", "public.webhooks") not in first[:1]
        order = dict(first)
        lines = {one.name: one.numbers for one in app.snapshot.shown.queues} if app.snapshot else {}
        most_dead = max(lines, key=lambda name: lines[name][7] or 0.0)
        table = app.query_one("#queues", Grid)
        while app.choice.sort != "dead":
            await pilot.press("s")
        assert table.rows[0].key == most_dead
        assert set(order) == {
            "ready",
            "in flight",
            "oldest",
            "claims/s",
            "finishes/s",
            "buffers",
            "HOT",
            "dead",
            "vacuum",
        }


async def test_pause_and_time_travel() -> None:
    feed = feed_of()
    app = app_staged(feed)
    async with app.run_test(size=(80, 24)) as pilot:
        last = feed.history.span()[1] - 1
        await pilot.press("space")
        assert feed.shown == [last]
        assert "PAUSED" in shown(app, StatusLine)
        await pilot.press("space")
        assert feed.shown[-1] is None
        await pilot.press("left_square_bracket")
        assert feed.shown[-1] == last - 1
        feed.post(replace(snapshot_staged("idle-snapshot"), number=last - 1, newest=False))
        await pilot.pause()
        assert f"moment {last} of {last + 1}" in shown(app, StatusLine)
        await pilot.press("left_curly_bracket")
        assert feed.shown[-1] == last - 11
        await pilot.press("less_than_sign")
        assert feed.shown[-1] == 1, "the first reading alone is no window"
        await pilot.press("greater_than_sign")
        assert feed.shown[-1] is None


async def test_interval_changes_within_bounds() -> None:
    feed = feed_of()
    app = app_staged(feed)
    async with app.run_test(size=(80, 24)) as pilot:
        await pilot.press("plus", "minus", "minus", "minus", "minus")
        assert feed.intervals == [3.0, 2.0, 1.0, 0.5, 0.5]
        assert "every 500ms" in shown(app, StatusLine)


async def test_terminate_asks_first_and_says_what_is_rolled_back() -> None:
    feed = feed_of()
    app = app_staged(feed)
    async with app.run_test(size=(80, 24)) as pilot:
        await pilot.press("4", "t")
        assert isinstance(app.screen, ConfirmScreen)
        text = " ".join(str(one.render()) for one in app.screen.query(Static))
        assert "loses the connection" in text
        assert "has written nothing" in text
        await pilot.press("enter")
        assert feed.signals == [], "enter means no"
        await pilot.press("t", "n")
        assert feed.signals == []
        await pilot.press("t", "y")
        assert [(one.action, one.pid) for one in feed.signals] == [
            ("terminate", app.snapshot.shown.horizon.holders[0].pid if app.snapshot else None)
        ]
        feed.post(SignalOutcome(signal=feed.signals[0], done=True, message="Backend 1 was ended."))
        await pilot.pause()
        assert [one.message for one in app._notifications] == ["Backend 1 was ended."]


@pytest.mark.parametrize(("read_only", "live"), [(True, True), (False, False)])
async def test_no_signal_where_none_may_be_sent(read_only: bool, live: bool) -> None:
    feed = feed_of(live=live)
    app = app_staged(feed, read_only=read_only)
    async with app.run_test(size=(80, 24)) as pilot:
        await pilot.press("4", "t", "c")
        assert not isinstance(app.screen, ConfirmScreen)
        assert feed.signals == []


@pytest.mark.parametrize("keys", [("left_square_bracket",), ("less_than_sign",), ("space",)])
async def test_no_signal_from_a_moment_that_has_passed(keys: tuple[str, ...]) -> None:
    feed = feed_of()
    app = app_staged(feed)
    async with app.run_test(size=(80, 24)) as pilot:
        await pilot.press("4", *keys, "t")
        assert not isinstance(app.screen, ConfirmScreen)
        assert "a moment that has passed" in [one.message for one in app._notifications][-1]
        await pilot.press("space" if keys == ("space",) else "greater_than_sign")
        await pilot.pause()
        await pilot.press("t")
        assert isinstance(app.screen, ConfirmScreen)


async def test_no_signal_on_old_data() -> None:
    now = [0.0]
    feed = feed_of()
    app = DoctorApp(feed, clock=lambda: now[0])
    async with app.run_test(size=(80, 24)) as pilot:
        await pilot.press("4")
        now[0] = 60.0
        await pilot.press("t")
        assert not isinstance(app.screen, ConfirmScreen)
        assert "data 1m00s old" in [one.message for one in app._notifications][-1]


async def test_an_idle_session_has_no_statement_to_cancel() -> None:
    feed = feed_of()
    app = app_staged(feed)
    async with app.run_test(size=(80, 24)) as pilot:
        await pilot.press("4", "c")
        assert not isinstance(app.screen, ConfirmScreen)
        assert "only terminating ends its transaction" in [one.message for one in app._notifications][-1]


async def test_the_fix_script_is_the_command_s(tmp_path: Path) -> None:
    """With what is left to do once the culprit is gone."""
    feed = feed_of()
    app = app_staged(feed, directory=tmp_path)
    async with app.run_test(size=(80, 24)) as pilot:
        await pilot.press("f", "enter")
        await pilot.pause()
    (path,) = tmp_path.iterdir()
    report, later_on = with_what_comes_after(frame_staged("idle-snapshot").observation)
    assert later_on is not None
    assert path.read_text() == fix_script(report, treatment(report, later_on=later_on))
    assert "VACUUM" in path.read_text()


async def test_a_role_without_the_right_is_told_so() -> None:
    snapshot = snapshot_staged("idle-snapshot")
    horizon = snapshot.shown.horizon
    targets = tuple(replace(one, forbidden="it needs pg_signal_backend") for one in horizon.targets)
    weak = replace(snapshot, shown=replace(snapshot.shown, horizon=replace(horizon, targets=targets)))
    feed = StagedFeed(CONNECTED, weak)
    app = app_staged(feed)
    async with app.run_test(size=(80, 24)) as pilot:
        await pilot.press("4", "t")
        assert not isinstance(app.screen, ConfirmScreen)
        assert [one.message for one in app._notifications] == ["it needs pg_signal_backend"]


async def test_signals_belong_to_their_screen() -> None:
    feed = feed_of()
    app = app_staged(feed)
    async with app.run_test(size=(80, 24)) as pilot:
        await pilot.press("1", "t", "c")
        assert not isinstance(app.screen, ConfirmScreen)


async def test_export_recording_and_fix_script_are_written(tmp_path: Path) -> None:
    feed = feed_of()
    app = app_staged(feed, directory=tmp_path)
    async with app.run_test(size=(80, 24)) as pilot:
        await pilot.press("e", "enter")
        await pilot.press("e")
        await pilot.pause()
        await pilot.click("#form-1")
        await pilot.pause()
        await pilot.press("f", "enter")
        await pilot.press("w", "enter")
        await app.workers.wait_for_complete()
        await pilot.pause()
    files = {path.suffix: path for path in tmp_path.iterdir()}
    assert set(files) == {".txt", ".json", ".sql", ".pgqd"}
    assert files[".txt"].read_text().startswith("CRITICAL")
    assert msgspec.json.decode(files[".json"].read_bytes())["schema"] == "pgqdoctor.report/1"
    assert "pg_terminate_backend" in files[".sql"].read_text()
    history = History()
    assert open_recording(files[".pgqd"], history).beats == len(feed.history.times())


@pytest.mark.parametrize("ending", list(ENDINGS.values()))
async def test_export_writes_the_form_of_the_ending(tmp_path: Path, ending: str) -> None:
    app = app_staged(feed_of(), directory=tmp_path)
    async with app.run_test(size=(80, 24)) as pilot:
        await pilot.press("e")
        await pilot.pause()
        buttons = list(app.screen.query(Button))
        assert [str(one.label) for one in buttons] == list(ENDINGS)
        inside = app.screen.query_one(Vertical).content_region
        assert all(inside.contains_region(one.region) for one in buttons)
        app.screen.query_one("#path", Input).value = f"report{ending}"
        await pilot.press("enter")
        await pilot.pause()
    text = (tmp_path / f"report{ending}").read_text()
    form = next(name for name, one in ENDINGS.items() if one == ending)
    assert app.snapshot is not None
    assert text == render(app.snapshot.shown.frame.report, form, color=False, width=EXPORTED_WIDTH)


async def test_redacted_recording(tmp_path: Path) -> None:
    app = app_staged(feed_of(), directory=tmp_path)
    async with app.run_test(size=(80, 24)) as pilot:
        await pilot.press("w")
        await pilot.pause()
        app.screen.query_one("#path", Input).value = "taken.pgqd"
        await pilot.click("#redact")
        await pilot.click("#form-0")
        await app.workers.wait_for_complete()
        await pilot.pause()
    seen = last_observation(tmp_path / "taken.pgqd")
    assert {one.application for one in seen.last.sessions} & {"analytics", "worker"} == set()


async def test_a_file_that_cannot_be_written_is_said(tmp_path: Path) -> None:
    app = app_staged(feed_of(), directory=tmp_path / "missing")
    async with app.run_test(size=(80, 24)) as pilot:
        await pilot.press("e", "enter")
        await pilot.pause()
        assert [one.severity for one in app._notifications] == ["error"]


async def test_lost_connection_keeps_the_data_and_says_its_age() -> None:
    now = [0.0]
    feed = feed_of()
    app = DoctorApp(feed, clock=lambda: now[0])
    async with app.run_test(size=(80, 24)) as pilot:
        await pilot.pause()
        assert "OLD" not in shown(app, TopLine)
        now[0] = 12.0
        app._show_status()
        assert "DATA 12s OLD" in shown(app, TopLine)
        assert "no answer from the server for 12s" in shown(app, StatusLine)
        feed.post(LinkState(kind="reconnecting", reason="the connection was lost: bye"))
        await pilot.pause()
        assert "reconnecting: the connection was lost: bye" in shown(app, StatusLine)
        assert len(app.query_one("#queues", Grid).rows) == 1
        feed.post(CONNECTED)
        feed.post(snapshot_staged("idle-snapshot"))
        await pilot.pause()
        assert "OLD" not in shown(app, TopLine)
        assert "!" not in shown(app, StatusLine)


async def test_slow_poll_and_failed_moment_are_said() -> None:
    feed = feed_of()
    app = app_staged(feed)
    async with app.run_test(size=(80, 24)) as pilot:
        feed.post(PollCost(reading_s=3.4, sampling_s=0.1, interval_s=2.0))
        await pilot.pause()
        assert "a poll took 3.4s, longer than its interval" in shown(app, StatusLine)
        feed.post(Failure(message="this moment could not be shown: ValueError: no"))
        await pilot.pause()
        assert "this moment could not be shown" in shown(app, StatusLine)


async def test_dropped_queue_stays_marked_until_it_is_back() -> None:
    feed = feed_of("healthy-two-queues")
    app = app_staged(feed)
    async with app.run_test(size=(80, 24)) as pilot:
        snapshot = snapshot_staged("healthy-two-queues")
        feed.post(Dropped(name="public.emails", at=snapshot.shown.frame.at))
        rest = replace(snapshot, shown=replace(snapshot.shown, queues=snapshot.shown.queues[1:]))
        feed.post(rest)
        await pilot.pause()
        table = app.query_one("#queues", Grid)
        assert len(table.rows) == 2
        assert "gone" in str(table.rows[0].cells[1])
        feed.post(snapshot)
        await pilot.pause()
        assert "gone" not in str(table.rows[0].cells[1])


async def test_nothing_is_known_yet() -> None:
    feed = StagedFeed()
    app = app_staged(feed)
    async with app.run_test(size=(80, 24)) as pilot:
        for key in (
            "1",
            "2",
            "3",
            "4",
            "5",
            "6",
            "7",
            "y",
            "e",
            "w",
            "f",
            "space",
            "home",
            "end",
            "s",
            "left",
        ):
            await pilot.press(key)
        assert "WAITING" in shown(app, TopLine)
        await pilot.press("q")
    assert feed.stopped


HOSTILE = (
    "[bold]x[/]",
    "[/]",
    "[",
    "\x1b]0;owned\x07\x1b[31mred",
    "a\nb\r\tc",
    "\u202egnp",
    "[red on blue]" * 20,
    "$error",
)


@pytest.mark.parametrize("name", HOSTILE)
async def test_hostile_names_are_text(name: str) -> None:
    feed = StagedFeed(CONNECTED, hostile(name))
    app = app_staged(feed)
    async with app.run_test(size=(120, 40)) as pilot:
        for key in ("1", "2", "3", "enter", "escape", "4", "t", "escape", "5", "6", "7"):
            await pilot.press(key)
            await pilot.pause()
            lines = [strip.text for strip in app.screen._compositor.render_strips()]
            assert [line for line in lines if any(letter in line for letter in "\x1b\x07\r\u202e")] == []
            if name == HOSTILE[0] and key == "4":
                assert any("[bold]x[/]" in line for line in lines), "markup is shown as it is"


def hostile(name: str) -> Snapshot[Picture]:
    """The recorded moment with every name, text and title replaced."""
    frame = frame_staged("idle-snapshot")
    seen, report = frame.observation, frame.report

    last = replace(
        seen.last,
        sessions=tuple(replace(row, application=name, role=name, query=name) for row in seen.last.sessions),
    )
    samples = tuple(
        replace(
            sample, sessions=tuple(replace(one, application=name, wait_event=name) for one in sample.sessions)
        )
        for sample in seen.samples
    )
    seen = replace(
        seen,
        last=last,
        samples=samples,
        texts=tuple(name for _ in seen.texts),
        server=replace(seen.server, database=name),
        queues=tuple(replace(one, name=name, ready_predicate=name, claim_sql=name) for one in seen.queues),
    )
    findings = tuple(
        replace(
            one,
            title=name,
            why=name,
            queue=name,
            evidence=tuple(replace(part, what=name, value=name, source=name) for part in one.evidence),
            remedies=tuple(
                replace(part, title=name, sql=(name,), undo=(name,), risk=name) for part in one.remedies
            ),
        )
        for one in report.findings
    )
    report = replace(report, findings=findings, notes=(name,), server=replace(report.server, database=name))
    queues = build_queues(seen)
    shown_frame = Frame(
        observation=seen, report=report, pulse=pulse(seen, queues), queues=queues, judging=Judging()
    )
    return replace(snapshot_staged("idle-snapshot"), shown=picture(shown_frame))


async def test_a_paused_screen_does_not_accuse_the_server() -> None:
    now = 1_000.0
    feed = feed_of("healthy-two-queues")
    app = app_staged(feed)
    async with app.run_test(size=(120, 40)) as pilot:
        app.clock = lambda: now
        feed.post(PollCost(reading_s=0.1, sampling_s=0.1, interval_s=2.0))
        await pilot.pause()
        await pilot.press("space")
        now += 60.0
        feed.post(PollCost(reading_s=0.1, sampling_s=0.1, interval_s=2.0))
        await pilot.pause()
        assert "no answer" not in shown(app, StatusLine)
        now += 60.0
        app._show_status()
        await pilot.pause()
        assert "no answer from the server for 1m00s" in shown(app, StatusLine)


async def test_what_is_said_covers_neither_a_question_nor_the_last_lines() -> None:
    feed = feed_of()
    app = app_staged(feed)
    async with app.run_test(size=(80, 24), notifications=True) as pilot:
        for _ in range(3):
            app.notify("Written to /home/somebody/a/rather/long/path/to/a/report.txt", markup=False)
        await pilot.press("slash")
        await pilot.pause()
        toasts = [one for one in app.screen.query(Toast) if one.display]
        assert len(toasts) == 3
        for below in (app.query_one(StatusLine), app.query_one("#filter", Input)):
            assert below.region.height > 0
            assert not any(one.region.overlaps(below.region) for one in toasts)
        await pilot.press("escape", "w")
        await pilot.pause()
        assert isinstance(app.screen, WriteScreen)
        feed.post(Dropped(name="public.emails", at=0.0))
        await pilot.pause()
        assert not any(one.display for one in app.screen.query(Toast)), "the name of the file stays readable"
        assert not any("dropped" in one for one in said(app)), (
            "it must not pass by unseen behind the question"
        )
        await pilot.press("escape")
        await pilot.pause()
        assert "The table public.emails was dropped." in said(app)
        assert any("public.emails was dropped" in line for line in painted(app))


@pytest.mark.parametrize("no_color", [False, True])
async def test_a_ticked_box_has_another_letter(monkeypatch: pytest.MonkeyPatch, no_color: bool) -> None:
    if no_color:
        monkeypatch.setenv("NO_COLOR", "1")
    app = app_staged(feed_of())
    async with app.run_test(size=(80, 24)) as pilot:
        await pilot.press("w", "tab")
        await pilot.pause()
        assert any("[ ] redact" in line for line in painted(app))
        await pilot.press("space")
        await pilot.pause()
        assert any("[x] redact" in line for line in painted(app))


async def test_sort_acts_on_the_screen_that_is_shown() -> None:
    app = app_staged(feed_of("savepoint-storm"))
    async with app.run_test(size=(80, 24)) as pilot:
        await pilot.press("3")
        events = app.query_one("#events", Grid)
        assert app.snapshot is not None
        view = {one.event: one for one in app.snapshot.shown.waits.events}

        def sizes() -> list[float]:
            return [view[row.key].sessions for row in events.rows]

        assert sizes() == sorted(sizes(), reverse=True)
        await pilot.press("s")
        assert [row.key for row in events.rows] == list(view), "group by group"
        assert "by group" in shown(app, StatusLine)
        assert app.choice.sort == "name", "the queues of the overview stay as they were"
        await pilot.press("s")
        assert "by " not in shown(app, StatusLine)
        await pilot.press("s", "1")
        assert "by " not in shown(app, StatusLine)
        await pilot.press("s")
        assert "by ready" in shown(app, StatusLine)
        await pilot.press("2", "s")
        assert app.choice.sort == "ready"
        assert ["s sorts" in one for one in said(app)] == [True]


async def test_a_lone_queue_is_one_that_the_filter_lets_through() -> None:
    app = app_staged(feed_of("healthy-two-queues"))
    async with app.run_test(size=(120, 40)) as pilot:
        for key in ("5", "6", "7"):
            await pilot.press(key)
            await pilot.pause()
            assert any("public.emails" in line for line in painted(app)[2:4])
        await pilot.press("slash", *"web", "enter")
        for key in ("5", "6", "7"):
            await pilot.press(key, "right")
            await pilot.pause()
            lines = painted(app)[2:4]
            assert any("public.webhooks" in line for line in lines)
            assert not any("another of" in line for line in lines)
        await pilot.press("slash", *"none", "enter")
        for key in ("5", "6", "7"):
            await pilot.press(key)
            await pilot.pause()
            assert painted(app)[2].strip() == "No queue matches the filter 'none' (escape clears it)."
            assert not any("┤" in line for line in painted(app)), "no plot of the queue before it"


async def test_the_finding_screen_says_that_the_filter_lets_none_through() -> None:
    app = app_staged(feed_of())
    async with app.run_test(size=(80, 24)) as pilot:
        await pilot.press("2", "slash", *"none", "enter")
        await pilot.pause()
        assert any("No finding matches the filter." in line for line in painted(app))


async def test_copy_counts_and_points_to_the_cause_that_has_the_remedy() -> None:
    app = app_staged(feed_of())
    async with app.run_test(size=(80, 24)) as pilot:
        await pilot.press("2")
        assert app.snapshot is not None
        findings = app.snapshot.shown.findings
        app.query_one(FindingPane).open(findings[2].key)
        await pilot.press("y")
        assert findings[2].remedies == ()
        assert said(app)[-1].endswith(f"its cause has the remedy (tab, then choose it): {findings[0].title}")
        app.query_one(FindingPane).open(findings[0].key)
        await pilot.press("y")
        assert said(app)[-1].startswith("Copied 1 line;")
        await pilot.press("3", "y")
        assert said(app)[-1] == "This screen has nothing to copy."


async def test_a_recording_keeps_its_interval_and_says_so() -> None:
    feed = feed_of(live=False)
    app = app_staged(feed)
    async with app.run_test(size=(80, 24)) as pilot:
        await pilot.press("plus", "minus")
        assert feed.intervals == []
        assert ["its own interval" in one for one in said(app)] == [True, True]


@pytest.mark.parametrize(("key", "name"), [("e", "kept.txt"), ("f", "kept.sql"), ("w", "kept.pgqd")])
async def test_what_stands_in_a_file_is_left(tmp_path: Path, key: str, name: str) -> None:
    (tmp_path / name).write_text("mine")
    app = app_staged(feed_of(), directory=tmp_path)
    async with app.run_test(size=(80, 24)) as pilot:
        await pilot.press(key)
        await pilot.pause()
        app.screen.query_one("#path", Input).value = name
        await pilot.press("enter")
        await app.workers.wait_for_complete()
        await pilot.pause()
        assert (tmp_path / name).read_text() == "mine"
        (message,) = said(app)
        assert "exists already; choose another name" in message


@pytest.mark.parametrize("name", ["report.yaml", "report"])
async def test_an_ending_that_names_no_format_is_asked_about(tmp_path: Path, name: str) -> None:
    app = app_staged(feed_of(), directory=tmp_path)
    async with app.run_test(size=(80, 24)) as pilot:
        await pilot.press("e")
        await pilot.pause()
        path = app.screen.query_one("#path", Input)
        path.value = name
        await pilot.press("enter")
        await pilot.pause()
        assert isinstance(app.screen, WriteScreen)
        asked = " ".join(painted(app))
        assert all(ending in asked for ending in ENDINGS.values())
        assert list(tmp_path.iterdir()) == []
        path.value = "report.JSON"
        await pilot.press("enter")
        await pilot.pause()
    assert msgspec.json.decode((tmp_path / "report.JSON").read_bytes())["schema"] == "pgqdoctor.report/1"


async def test_a_small_terminal_says_so_and_takes_no_signal() -> None:
    feed = feed_of()
    app = app_staged(feed)
    async with app.run_test(size=(80, 24)) as pilot:
        await pilot.press("4", "t")
        await pilot.pause()
        assert isinstance(app.screen, ConfirmScreen)
        for width, height in ((59, 24), (80, 14)):
            await pilot.resize_terminal(width, height)
            await pilot.pause()
            assert not isinstance(app.screen, ConfirmScreen), "its words cannot be read"
            await pilot.press("t", "y", "c", "y", "enter")
            await pilot.pause()
            assert [line.strip() for line in painted(app) if line] == [TOO_SMALL]
        assert feed.signals == []
        await pilot.resize_terminal(60, 15)
        await pilot.pause()
        assert any("Horizon" in line for line in painted(app))
        assert not any(TOO_SMALL in line for line in painted(app))
        await pilot.press("t")
        await pilot.pause()
        assert isinstance(app.screen, ConfirmScreen)
        assert any("Terminate it (y)" in line for line in painted(app))
        await pilot.press("y")
        assert len(feed.signals) == 1


async def test_a_terminal_that_is_small_from_the_start() -> None:
    feed = feed_of()
    app = app_staged(feed)
    async with app.run_test(size=(40, 10)) as pilot:
        await pilot.press("4", "t", "y")
        await pilot.pause()
        assert feed.signals == []
        assert TOO_SMALL in " ".join(" ".join(painted(app)).split())
        await pilot.press("q")
    assert feed.stopped


async def test_the_reason_of_a_lost_connection_is_not_cut_away() -> None:
    feed = feed_of()
    app = app_staged(feed)
    reason = (
        'could not connect to database "app_production" on "queue-primary.example.org" port 49639 as role '
        '"doctor": connection to server at "queue-primary.example.org", port 49639 failed: Connection refused'
    )
    async with app.run_test(size=(80, 24)) as pilot:
        feed.post(LinkState(kind="reconnecting", reason=reason))
        await pilot.pause()
        line = app.query_one(StatusLine)
        assert line.size.height == 2
        text = " ".join(" ".join(painted(app)[-2:]).split())
        assert text.startswith("! reconnecting: …")
        assert "port 49639 failed: Connection refused" in text
        assert text.endswith("? help · q quit")
        await pilot.resize_terminal(200, 24)
        await pilot.pause()
        assert reason in " ".join(" ".join(painted(app)[-2:]).split())


async def test_a_long_verdict_ends_with_an_ellipsis() -> None:
    snapshot = snapshot_staged("idle-snapshot")
    long = replace(snapshot.shown.head, cause="Session 1 holds it, and " * 20 + "ends.")
    feed = StagedFeed(CONNECTED, replace(snapshot, shown=replace(snapshot.shown, head=long)))
    app = app_staged(feed)
    async with app.run_test(size=(80, 24)) as pilot:
        await pilot.pause()
        assert painted(app)[0].startswith(" CRITICAL  Session 1")
        assert painted(app)[2].endswith("…")
        assert painted(app)[3].startswith(" 1 Overview")
        await pilot.resize_terminal(200, 24)
        await pilot.pause()
        assert painted(app)[2].endswith("ends.")


async def test_every_plot_spans_the_session_and_counts_have_no_decimals() -> None:
    app = app_staged(feed_of("healthy-two-queues"))
    async with app.run_test(size=(120, 40)) as pilot:
        await pilot.press("7")
        await pilot.pause()
        await pilot.pause()
        lines = painted(app)
        for plot in app.query(Plot):
            x, y, width, height = plot.region
            drawn = [line[x : x + width] for line in lines[y : y + height]]
            assert drawn[-1].split() == ["-20", "-15", "-10", "-5", "0"]
            labels = [line.partition("┤")[0].strip() for line in drawn if "┤" in line]
            assert labels[-1] == "0" and len(labels) > 1
            if plot.id in ("plot-backlog", "plot-buffers", "plot-dead"):
                assert not any("." in label for label in labels)
        assert " ".join(" ".join(lines).split()).count("x: seconds before the last moment") == 1
