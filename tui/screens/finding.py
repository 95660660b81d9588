"""Screen 2."""

from __future__ import annotations

from typing import ClassVar

from textual import on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.content import Content
from textual.widgets import OptionList, Static
from textual.widgets.option_list import Option

from pgqdoctor.feed import Snapshot
from pgqdoctor.tui.screens.pane import Choice, Pane, Scroll
from pgqdoctor.tui.theme import SEVERITY
from pgqdoctor.tui.views.findings import FindingView, RemedyView, remedied_cause
from pgqdoctor.tui.views.overview import MARKS
from pgqdoctor.tui.views.picture import Picture

Part = str | tuple[str, str]


class Chooser(OptionList):
    """The findings, one line each."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("j", "cursor_down", "Down", show=False),
        Binding("k", "cursor_up", "Up", show=False),
    ]


class FindingPane(Pane):
    """One finding: why, evidence, and the remedies, of which one is chosen for copying."""

    DEFAULT_CSS = """
    FindingPane { layout: vertical; }
    FindingPane #chooser { height: auto; max-height: 4; border: none; padding: 0; background: $surface; text-wrap: nowrap; text-overflow: ellipsis; }
    FindingPane #detail { height: 1fr; padding: 0 1; }
    """

    def __init__(self, *, id: str) -> None:
        super().__init__(id=id)
        self._findings: tuple[FindingView, ...] = ()
        self._all: tuple[FindingView, ...] = ()
        self._key: str | None = None
        self._remedy = 0

    def compose(self) -> ComposeResult:
        """Make the list and the text."""
        yield Chooser(id="chooser")
        with Scroll(id="detail"):
            yield Static(id="finding-text")

    def take_focus(self) -> None:
        """Give the keys to the text."""
        self.query_one("#detail", Scroll).focus()

    def open(self, key: str) -> None:
        """Choose a finding."""
        self._key, self._remedy = key, 0
        self.query_one("#detail", Scroll).scroll_home(animate=False)

    @property
    def current(self) -> FindingView | None:
        """The finding that is open: the chosen one, else the first."""
        return next((one for one in self._findings if one.key == self._key), next(iter(self._findings), None))

    @property
    def remedy(self) -> RemedyView | None:
        """The remedy that is chosen."""
        current = self.current
        if current is None or not current.remedies:
            return None
        return current.remedies[min(self._remedy, len(current.remedies) - 1)]

    def copied(self) -> str:
        """The statements of the chosen remedy."""
        return self.remedy.copied if self.remedy is not None else ""

    def nothing_copied(self) -> str:
        """Name the finding that has the remedy, where this one is its consequence."""
        current = self.current
        if current is None:
            return "There is no finding to copy from."
        cause = remedied_cause(current, self._all)
        if cause is not None:
            return f"No SQL here: its cause has the remedy (tab, then choose it): {cause.title}"
        return "This remedy has no SQL." if current.remedies else "This finding has no remedy to copy."

    def sideways(self, step: int) -> bool:
        """Choose another remedy."""
        current = self.current
        if current is not None and current.remedies:
            self._remedy = (self._remedy + step) % len(current.remedies)
            self._show_text()
        return True

    def show(self, snapshot: Snapshot[Picture], choice: Choice) -> None:
        """Show the list and the finding."""
        self._all = snapshot.shown.findings
        self._findings = tuple(
            one for one in self._all if choice.wanted.lower() in f"{one.title} {one.queue}".lower()
        )
        chooser = self.query_one("#chooser", Chooser)
        current = self.current
        with self.prevent(OptionList.OptionHighlighted):
            chooser.clear_options()
            chooser.add_options(
                [
                    Option(
                        Content.assemble((MARKS[one.severity], SEVERITY[one.severity]), f"{one.title}"),
                        id=one.key,
                    )
                    for one in self._findings
                ]
            )
            if current is not None:
                chooser.highlighted = self._findings.index(current)
        chooser.display = len(self._findings) > 1
        self._show_text()

    @on(OptionList.OptionHighlighted, "#chooser")
    @on(OptionList.OptionSelected, "#chooser")
    def _chosen(self, event: OptionList.OptionHighlighted | OptionList.OptionSelected) -> None:
        if event.option_id is not None and event.option_id != self._key:
            self.open(event.option_id)
            self._show_text()

    def _show_text(self) -> None:
        current = self.current
        text = self.query_one("#finding-text", Static)
        text.update(
            Content("No finding matches the filter." if self._all else "No finding.")
            if current is None
            else finding_text(current, self._remedy)
        )


def finding_text(finding: FindingView, chosen: int) -> Content:
    """Return a finding as text; the chosen remedy is marked."""
    parts: list[Part] = [
        (f"{MARKS[finding.severity]}{finding.severity.upper()}", SEVERITY[finding.severity]),
        (f"  {finding.title}\n", "bold"),
        (f"{finding.check} on {finding.queue}\n", "$text-muted"),
    ]
    parts.extend(f"because of: {title}\n" for title in finding.causes)
    parts.extend(f"leads to: {title}\n" for title in finding.effects)
    parts.append(f"\n{finding.why}\n")
    if finding.evidence:
        parts.append(("\nEvidence\n", "bold underline"))
        what = max(len(row[0]) for row in finding.evidence)
        for name, value, source in finding.evidence:
            parts.extend((f"  {name.ljust(what)}  ", (value, "bold"), (f"  {source}\n", "$text-muted")))
    for place, remedy in enumerate(finding.remedies):
        here = place == min(chosen, len(finding.remedies) - 1)
        parts.append(
            (f"\n{'>' if here else ' '} Remedy {place + 1} of {len(finding.remedies)}", "bold underline")
        )
        parts.append((f" ({remedy.kind}): {remedy.title}\n", "bold"))
        parts.extend(_remedy(remedy))
    if finding.remedies:
        parts.append(
            (
                "\ny copies the SQL of the remedy marked >, left and right choose it, f saves the fix script",
                "$text-muted",
            )
        )
    return Content.assemble(*parts)


def _remedy(remedy: RemedyView) -> list[Part]:
    parts: list[Part] = [(f"    {line}\n", "$text-accent") for line in remedy.sql]
    for label, text in (("lock", remedy.takes), ("risk", remedy.risk), ("expect", remedy.expect)):
        if text:
            parts.extend((("  " + label.ljust(7), "$text-muted"), f"{text}\n"))
    if remedy.undo:
        parts.append(("  undo\n", "$text-muted"))
        parts.extend((f"    {line}\n", "$text-accent") for line in remedy.undo)
    elif remedy.no_undo:
        parts.extend((("  undo   ", "$text-muted"), "none\n"))
    return parts
