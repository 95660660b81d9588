"""The dashboard's application: it takes what the feed posts, keeps what the user chose, and shows one screen."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import ClassVar

from textual import on, work
from textual.app import App, ComposeResult, SystemCommand
from textual.await_complete import AwaitComplete
from textual.binding import Binding, BindingType
from textual.events import Key, Resize
from textual.notifications import SeverityLevel
from textual.screen import ModalScreen, Screen
from textual.widgets import ContentSwitcher, Input, Static

from pgqdoctor.errors import PgqdoctorError
from pgqdoctor.feed import Failure, Feed, Posted, Snapshot
from pgqdoctor.live import Dropped, LinkState, PollCost, Signal, SignalOutcome
from pgqdoctor.recording import write_history
from pgqdoctor.render import FORMATS, render
from pgqdoctor.render.clean import one_line
from pgqdoctor.render.quantities import counted
from pgqdoctor.render.script import fix_script
from pgqdoctor.steps import treatment
from pgqdoctor.tui.keys import KEYS
from pgqdoctor.tui.messages import FeedPosted, FindingChosen, PaneWanted, QueueChosen
from pgqdoctor.tui.screens.claim import ClaimPane
from pgqdoctor.tui.screens.dialogs import ConfirmScreen, HelpScreen, WriteScreen
from pgqdoctor.tui.screens.finding import FindingPane
from pgqdoctor.tui.screens.history import HistoryPane
from pgqdoctor.tui.screens.horizon import HorizonPane
from pgqdoctor.tui.screens.knobs import KnobsPane
from pgqdoctor.tui.screens.overview import OverviewPane
from pgqdoctor.tui.screens.pane import Choice, Pane, matching
from pgqdoctor.tui.screens.waits import WaitsPane
from pgqdoctor.tui.theme import DARK
from pgqdoctor.tui.views import short
from pgqdoctor.tui.views.horizon import Action
from pgqdoctor.tui.views.overview import QueueLine
from pgqdoctor.tui.views.picture import Picture
from pgqdoctor.tui.widgets.statusline import Status, StatusLine
from pgqdoctor.tui.widgets.tabs import PaneTabs
from pgqdoctor.tui.widgets.topline import TopLine

PANES = {
    "overview": "Overview",
    "finding": "Finding",
    "waits": "Waits",
    "horizon": "Horizon",
    "claim": "Claim",
    "knobs": "Knobs",
    "history": "History",
}
WIDE_FROM = 130
SMALLEST = (60, 15)
"""Columns and lines: below them a table has no row and a question not all of its words."""
TOO_SMALL = f"the terminal is too small ({SMALLEST[0]}x{SMALLEST[1]} at least)"
INTERVALS = (0.5, 1.0, 2.0, 3.0, 5.0, 10.0, 30.0, 60.0)
ENDINGS = {
    "text": ".txt",
    "json": ".json",
    "markdown": ".md",
    "html": ".html",
    "sarif": ".sarif",
    "junit": ".xml",
}
EXPORTED_WIDTH = 100
POLL_S = 3.0
"""A probe has a statement timeout of three seconds."""


class DoctorApp(App[None]):
    """``pgqdoctor top``."""

    CSS_PATH = "pgqdoctor.tcss"
    TITLE = "pgqdoctor"
    ENABLE_COMMAND_PALETTE = True
    BINDINGS: ClassVar[list[BindingType]] = [
        *(
            Binding(str(number), f"pane('{pane}')", title)
            for number, (pane, title) in enumerate(PANES.items(), 1)
        ),
        Binding("q", "quit", "Quit"),
        Binding("question_mark", "help", "Help"),
        Binding("space", "pause", "Pause"),
        Binding("plus,equals_sign", "interval(1)", "Slower"),
        Binding("minus", "interval(-1)", "Faster"),
        Binding("slash", "filter", "Filter"),
        Binding("s", "sort", "Sort"),
        Binding("escape", "leave", "Back"),
        Binding("y", "copy", "Copy"),
        Binding("e", "export", "Export"),
        Binding("w", "record", "Record"),
        Binding("f", "fix", "Fix script"),
        Binding("c", "signal('cancel')", "Cancel"),
        Binding("t", "signal('terminate')", "Terminate"),
        Binding("left,h", "sideways(-1)", "Left"),
        Binding("right,l", "sideways(1)", "Right"),
        Binding("left_square_bracket", "travel(-1)", "Back in time"),
        Binding("right_square_bracket", "travel(1)", "On in time"),
        Binding("left_curly_bracket", "travel(-10)", "Ten back"),
        Binding("right_curly_bracket", "travel(10)", "Ten on"),
        Binding("less_than_sign", "first", "First moment"),
        Binding("greater_than_sign", "now", "Now"),
    ]

    def __init__(
        self,
        feed: Feed[Picture],
        *,
        interval_s: float = 2.0,
        read_only: bool = False,
        directory: Path | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        super().__init__()
        self.feed = feed
        self.read_only = read_only
        self.directory = directory or Path.cwd()
        self.clock = clock
        self.interval_s = interval_s
        self.snapshot: Snapshot[Picture] | None = None
        self.link = LinkState(kind="connecting" if feed.live else "connected")
        self.choice = Choice()
        self.paused = False
        self._received = self._heard = clock()
        self._cost: PollCost | None = None
        self._failure = ""
        self._gone: dict[str, QueueLine] = {}
        self._quit = False
        self._small = False
        self._held: list[Callable[[], None]] = []

    # -- the frame of the screen ---------------------------------------------------------------------------

    def compose(self) -> ComposeResult:
        """Make the screens; one is shown at a time."""
        yield TopLine(id="top")
        yield PaneTabs(PANES)
        with ContentSwitcher(id="panes", initial="overview"):
            yield OverviewPane(id="overview")
            yield FindingPane(id="finding")
            yield WaitsPane(id="waits")
            yield HorizonPane(id="horizon")
            yield ClaimPane(id="claim")
            yield KnobsPane(id="knobs")
            yield HistoryPane(id="history")
        yield Input(id="filter", placeholder="filter by name", compact=True)
        yield StatusLine(id="status")
        yield Static(TOO_SMALL, id="too-small", markup=False)

    def on_mount(self) -> None:
        """Begin."""
        self.register_theme(DARK)
        self.theme = DARK.name
        self.query_one(TopLine).wait(one_line(self.feed.source))
        self.query_one(PaneTabs).mark("overview")
        self.pane.take_focus()
        self._show_status()
        self.feed.start(self._posted)
        self.set_interval(1.0, self._show_status)

    def on_unmount(self) -> None:
        """End the threads."""
        self._quit = True
        self.feed.stop()

    def on_resize(self, event: Resize) -> None:
        """Put parts beside each other where there is room."""
        frame = self.screen_stack[0]
        frame.set_class(event.size.width >= WIDE_FROM, "wide")
        # This application's own size is still that of before.
        small = event.size.width < SMALLEST[0] or event.size.height < SMALLEST[1]
        if small != self._small:
            self._shut() if small else self._open_again()
        self.call_after_refresh(self._show)

    def _shut(self) -> None:
        """Show no screen, and ask no question whose words cannot be read."""
        self._small = True
        self.screen_stack[0].add_class("small")
        if isinstance(self.screen, ConfirmScreen):
            self.screen.dismiss(False)

    def _open_again(self) -> None:
        self._small = False
        self.screen_stack[0].remove_class("small")
        self.call_after_refresh(self.pane.take_focus)

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Take no key but that which quits while nothing is shown."""
        return action == "quit" or not self._small

    def notify(
        self,
        message: str,
        *,
        title: str = "",
        severity: SeverityLevel = "information",
        timeout: float | None = None,
        markup: bool = True,
    ) -> None:
        """Say something at the lower right; while a question is asked it waits, so that it covers nothing of it."""
        say = partial(super().notify, message, title=title, severity=severity, timeout=timeout, markup=markup)
        if isinstance(self.screen, ModalScreen):
            self._held.append(say)
        else:
            say()

    def pop_screen(self) -> AwaitComplete:
        """Say after a question what waited for its answer."""
        popped = super().pop_screen()
        if not isinstance(self.screen, ModalScreen):
            held, self._held = self._held, []
            for say in held:
                say()
        return popped

    def get_system_commands(self, screen: Screen[object]) -> Iterable[SystemCommand]:
        """Offer the screens by name in the command palette."""
        yield from super().get_system_commands(screen)
        for pane, title in PANES.items():
            yield SystemCommand(title, f"Show the screen {title}", lambda pane=pane: self.action_pane(pane))
        yield SystemCommand(
            "Export the report", "Write text, JSON, Markdown, HTML, SARIF or JUnit XML", self.action_export
        )
        yield SystemCommand("Write a recording", "Write what was collected", self.action_record)

    @property
    def pane(self) -> Pane:
        """The screen that is shown."""
        return self.query_one(f"#{self.query_one(ContentSwitcher).current}", Pane)

    # -- what comes from the feed --------------------------------------------------------------------------

    def _posted(self, posted: Posted[Picture]) -> None:
        """Hand a message from another thread to this one."""
        if not self._quit:
            self.post_message(FeedPosted(posted))

    @on(FeedPosted)
    def _take(self, event: FeedPosted) -> None:
        posted = event.posted
        if isinstance(posted, Snapshot | PollCost):
            # While the screen is paused no moment comes, and the server answers all the same.
            self._heard = self.clock()
        if isinstance(posted, Snapshot):
            self._take_snapshot(posted)
        elif isinstance(posted, LinkState):
            self.link = posted
        elif isinstance(posted, PollCost):
            self._cost = posted
        elif isinstance(posted, Dropped):
            self._take_dropped(posted)
        elif isinstance(posted, SignalOutcome):
            self.notify(
                one_line(posted.message), severity="information" if posted.done else "warning", markup=False
            )
        elif isinstance(posted, Failure):
            self._failure = one_line(posted.message)
        self._show_status()

    def _take_snapshot(self, snapshot: Snapshot[Picture]) -> None:
        self._failure = ""
        if self.feed.live and snapshot.newest:
            self._received = self.clock()
        names = {one.name for one in snapshot.shown.queues}
        for name in names & set(self._gone):
            del self._gone[name]
        if self._gone and snapshot.newest:
            gone = tuple(self._gone.values())
            snapshot = replace(
                snapshot, shown=replace(snapshot.shown, queues=(*snapshot.shown.queues, *gone))
            )
        self.snapshot = snapshot
        self._show()

    def _take_dropped(self, dropped: Dropped) -> None:
        """Keep the last numbers of a dropped queue on the screen, marked."""
        at = datetime.fromtimestamp(dropped.at, UTC).strftime("%H:%M")
        name = one_line(dropped.name)
        lines = self.snapshot.shown.queues if self.snapshot is not None else ()
        line = next((one for one in lines if one.name == name), None)
        if line is not None:
            self._gone[name] = replace(line, gone=f"gone {at}", severity="")
        self.notify(f"The table {name} was dropped.", severity="warning", markup=False)

    def _show(self) -> None:
        """Show the snapshot on the screen that is looked at."""
        if self.snapshot is None:
            return
        with self.batch_update():
            self.pane.look_at(self.snapshot, self.choice, self.screen_stack[0].size)
            self._show_status()

    # -- how things stand ------------------------------------------------------------------------------------

    @property
    def age_s(self) -> float:
        """Seconds since the latest data came."""
        return self.clock() - self._received

    @property
    def silent_s(self) -> float:
        """Seconds since the server was last heard of, shown or not."""
        return self.clock() - self._heard

    def _stale(self) -> str:
        if self.snapshot is None or not self.feed.live or not self.snapshot.newest:
            return ""
        old = self._late or self.link.kind != "connected"
        return f"DATA {short.seconds(round(self.age_s))} OLD" if old else ""

    @property
    def _late(self) -> bool:
        """True where nothing came for three intervals and the seconds that one poll may take."""
        return self.feed.live and self.snapshot is not None and self.silent_s > 3 * self.interval_s + POLL_S

    def _show_status(self) -> None:
        if self._quit or not self.is_running:
            return
        if self.snapshot is not None:
            self.query_one(TopLine).show(self.snapshot.shown.head, self._stale())
        link, alarm = self._link()
        extras = []
        if self.paused:
            extras.append("PAUSED (space: go on)")
        if self.feed.live:
            extras.append(f"every {short.seconds(self.interval_s)}")
        if self.choice.wanted:
            extras.append(f"filter {self.choice.wanted!r}")
        if order := self.pane.order(self.choice):
            extras.append(f"by {order}")
        if self.read_only:
            extras.append("read-only")
        self.query_one(StatusLine).show(
            Status(link=link, alarm=alarm, place=self._place(), extras=tuple(extras))
        )

    def _link(self) -> tuple[str, bool]:
        if self._failure:
            return self._failure, True
        if not self.feed.live:
            return one_line(f"recording {self.feed.source}"), False
        reason = one_line(self.link.reason)
        if self.link.kind == "connected":
            if self._late:
                return f"no answer from the server for {short.seconds(round(self.silent_s))}", True
            where = self.snapshot.shown.head.server if self.snapshot is not None else "connected"
            if self._cost is not None and self._cost.slow:
                took = short.seconds(self._cost.reading_s)
                return f"{where}: a poll took {took}, longer than its interval", True
            return where, False
        if self.link.kind == "failed":
            return reason, True
        if self.link.kind == "connecting" and not reason:
            return "connecting", False
        return f"{self.link.kind}: {reason}" if reason else self.link.kind, True

    def _place(self) -> str:
        snapshot = self.snapshot
        if snapshot is None:
            return ""
        at = datetime.fromtimestamp(snapshot.shown.frame.at, UTC)
        if snapshot.newest and not self.paused:
            return at.strftime("%H:%M:%S UTC")
        return (
            f"{at.strftime('%Y-%m-%d %H:%M:%S UTC')}, moment {snapshot.number - snapshot.first + 1} of "
            f"{snapshot.last - snapshot.first + 1}"
        )

    # -- keys ------------------------------------------------------------------------------------------------

    def action_pane(self, pane: str) -> None:
        """Show a screen."""
        # One picture for all of it: the key must be on the screen within a tenth of a second.
        with self.batch_update():
            self.query_one(ContentSwitcher).current = pane
            self.query_one(PaneTabs).mark(pane)
            self._show()
            self.pane.take_focus()
        # A screen that was never laid out could only guess how wide its parts are.
        self.call_after_refresh(self._show)

    @on(PaneWanted)
    def _pane_wanted(self, event: PaneWanted) -> None:
        self.action_pane(event.pane)

    @on(FindingChosen)
    def _finding_chosen(self, event: FindingChosen) -> None:
        self.query_one(FindingPane).open(event.key)
        self.action_pane("finding")

    @on(QueueChosen)
    def _queue_chosen(self, event: QueueChosen) -> None:
        self.choice = replace(self.choice, queue=event.name)
        self.action_pane("claim")

    def action_help(self) -> None:
        """Show all keys."""
        self.push_screen(HelpScreen(KEYS), lambda key: self.simulate_key(key) if key else None)

    def action_pause(self) -> None:
        """Stop showing new moments, or go on."""
        self.paused = not self.paused
        if self.paused and self.snapshot is not None:
            self.feed.show(self.snapshot.number)
        elif not self.paused:
            self.feed.show(None)
        self._show_status()

    def action_travel(self, step: int) -> None:
        """Go back or on in time; beyond the latest moment is now."""
        if self.snapshot is None:
            return
        number = self.snapshot.number + step
        if number >= self.snapshot.last:
            self.action_now()
            return
        self.paused = True
        self.feed.show(max(number, self.snapshot.first + 1))
        self._show_status()

    def action_first(self) -> None:
        """Go to the first moment kept."""
        if self.snapshot is not None:
            self.action_travel(self.snapshot.first - self.snapshot.number)

    def action_now(self) -> None:
        """Show the latest moment again."""
        self.paused = False
        self.feed.show(None)
        self._show_status()

    def action_interval(self, step: int) -> None:
        """Poll more seldom or more often."""
        if not self.feed.live:
            self.notify("A recording has its own interval: that at which it was taken.", severity="warning")
            return
        place = min(range(len(INTERVALS)), key=lambda one: abs(INTERVALS[one] - self.interval_s))
        self.interval_s = INTERVALS[min(max(place + step, 0), len(INTERVALS) - 1)]
        self.feed.set_interval(self.interval_s)
        self._show_status()

    def action_sort(self) -> None:
        """Sort what is shown in its next order."""
        choice = self.pane.next_order(self.choice)
        if choice is None:
            self.notify(
                "Nothing to sort here: s sorts the queues of screen 1 and the wait events of screen 3."
            )
            return
        self.choice = choice
        self._show()

    def action_filter(self) -> None:
        """Open the filter."""
        line = self.query_one("#filter", Input)
        line.add_class("open")
        line.focus()

    @on(Input.Changed, "#filter")
    def _filtered(self, event: Input.Changed) -> None:
        self.choice = replace(self.choice, wanted=event.value)
        self._show()

    @on(Input.Submitted, "#filter")
    def _filter_kept(self) -> None:
        self._close_filter(clear=False)

    def on_key(self, event: Key) -> None:
        """Escape in the filter clears it."""
        line = self.query("#filter").first(Input)
        if event.key == "escape" and line.has_focus:
            event.stop()
            self._close_filter(clear=True)

    def _close_filter(self, *, clear: bool) -> None:
        line = self.query_one("#filter", Input)
        if clear:
            line.value = ""
        line.remove_class("open")
        self.pane.take_focus()

    def action_leave(self) -> None:
        """Go back: inside the screen, then out of the filter, then to the overview."""
        if self.pane.back():
            return
        if self.choice.wanted:
            self._close_filter(clear=True)
        elif self.query_one(ContentSwitcher).current != "overview":
            self.action_pane("overview")

    def action_sideways(self, step: int) -> None:
        """Choose the next part of the screen, or the next queue."""
        if self.pane.sideways(step) or self.snapshot is None:
            return
        names = matching((one.name for one in self.snapshot.shown.queues), self.choice)
        if names:
            place = names.index(self.choice.queue) if self.choice.queue in names else 0
            self.choice = replace(self.choice, queue=names[(place + step) % len(names)])
            self._show()

    def action_copy(self) -> None:
        """Copy what the screen offers, through the terminal (OSC 52)."""
        text = self.pane.copied()
        if not text:
            self.notify(self.pane.nothing_copied(), severity="warning", markup=False)
            return
        self.copy_to_clipboard(text)
        self.notify(f"Copied {counted(len(text.splitlines()), 'line')}; the terminal must allow OSC 52.")

    # -- signals ---------------------------------------------------------------------------------------------

    def action_signal(self, action: Action) -> None:
        """Ask whether to signal the backend under the cursor."""
        pane = self.pane
        if not isinstance(pane, HorizonPane):
            return
        if self.read_only or not self.feed.live:
            why = "--read-only" if self.read_only else "this is a recording"
            self.notify(f"No signal is sent: {why}.", severity="warning", markup=False)
            return
        if self.paused or (self.snapshot is not None and not self.snapshot.newest):
            self.notify(
                "No signal is sent from a moment that has passed: > leads back to now.", severity="warning"
            )
            return
        if stale := self._stale():
            self.notify(f"No signal is sent on old data: {stale.lower()}.", severity="warning")
            return
        target = pane.target
        if target is None:
            self.notify("There is no backend under the cursor.", severity="warning")
            return
        if target.forbidden:
            self.notify(one_line(target.forbidden), severity="warning", markup=False)
            return
        if action == "cancel" and not target.runs:
            self.notify(target.cancel[0], severity="warning", markup=False)
            return
        signal = Signal(
            action=action,
            pid=target.pid,
            started=target.started,
            transaction=target.transaction,
            wrote=target.wrote,
        )
        title = f"{'Cancel the statement of' if action == 'cancel' else 'Terminate'} {target.who}?"

        def answered(yes: bool | None) -> None:
            if yes:
                self.feed.signal(signal)

        self.push_screen(
            ConfirmScreen(
                title,
                target.cancel if action == "cancel" else target.terminate,
                "Cancel it (y)" if action == "cancel" else "Terminate it (y)",
            ),
            answered,
        )

    # -- writing files ---------------------------------------------------------------------------------------

    def _stem(self, what: str) -> str:
        name = "server"
        at = 0.0
        if self.snapshot is not None:
            name, at = self.snapshot.shown.frame.report.server.database, self.snapshot.shown.frame.at
        safe = "".join(letter if letter.isalnum() or letter in "-_." else "_" for letter in name)
        return f"pgqdoctor-{what}-{safe}-{datetime.fromtimestamp(at, UTC).strftime('%Y%m%dT%H%M%SZ')}"

    def action_export(self) -> None:
        """Ask where to write the report."""
        if self.snapshot is None:
            self.notify("There is nothing to export yet.", severity="warning")
            return
        report = self.snapshot.shown.frame.report
        forms = [(name, ENDINGS[name]) for name in ENDINGS if name in FORMATS]

        def answered(answer: tuple[str, str, bool] | None) -> None:
            if answer is not None:
                path, form, _ = answer
                self._write(path, lambda: render(report, form, color=False, width=EXPORTED_WIDTH))

        self.push_screen(
            WriteScreen("Export the report as", self._stem("report"), forms, redactable=False), answered
        )

    def action_fix(self) -> None:
        """Ask where to write the fix script."""
        if self.snapshot is None:
            self.notify("There is nothing to fix yet.", severity="warning")
            return
        frame = self.snapshot.shown.frame
        recorded = not self.feed.live

        def script() -> str:
            # What the command prints: with what is left to do once the culprit is gone.
            steps = treatment(frame.report, (), later_on=frame.later_on())
            return fix_script(frame.report, steps, recording=recorded)

        def answered(answer: tuple[str, str, bool] | None) -> None:
            if answer is not None:
                self._write(answer[0], script)

        self.push_screen(
            WriteScreen("Save the fix script", self._stem("fix"), [("SQL", ".sql")], redactable=False),
            answered,
        )

    def action_record(self) -> None:
        """Ask where to write the recording."""
        if self.snapshot is None:
            self.notify("There is nothing to record yet.", severity="warning")
            return

        def answered(answer: tuple[str, str, bool] | None) -> None:
            if answer is not None:
                self._write_recording(Path(answer[0]), answer[2])

        self.push_screen(
            WriteScreen(
                "Write a recording", self._stem("recording"), [("recording", ".pgqd")], redactable=True
            ),
            answered,
        )

    def _write(self, name: str, text: Callable[[], str]) -> None:
        path = self.directory / Path(name).expanduser()
        try:
            made = text()
            with path.open("x", encoding="utf-8") as file:
                file.write(made)
        except FileExistsError:
            self._refuse(path)
            return
        except (OSError, PgqdoctorError) as error:
            self.notify(f"Not written: {one_line(str(error))}", severity="error", markup=False)
            return
        self.notify(f"Written to {path}", markup=False)

    def _refuse(self, path: Path) -> None:
        """Say that what stands in a file is left as it is."""
        said = f"Not written: {one_line(str(path))} exists already; choose another name."
        self.notify(said, severity="error", markup=False)

    @work(thread=True)
    def _write_recording(self, name: Path, redacted: bool) -> None:
        path = self.directory / name.expanduser()
        if path.exists():
            self.call_from_thread(self._refuse, path)
            return
        try:
            size = write_history(self.feed.history, path, redacted=redacted)
        except PgqdoctorError as error:
            self.call_from_thread(self.notify, one_line(str(error)), severity="error", markup=False)
            return
        self.call_from_thread(self.notify, f"Written to {path}, {short.size(size)}", markup=False)
