"""The questions that stand in front of a screen: help, a signal to a backend, where to write."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal, Vertical
from textual.content import Content
from textual.events import Key
from textual.screen import ModalScreen
from textual.widgets import Button, Checkbox, Input, Static

from pgqdoctor.tui.screens.pane import Scroll

_BOX = """
    align: center middle;
    background: $background 60%;
"""


class HelpScreen(ModalScreen[str | None]):
    """All keys. The number of a screen closes it and is handed back."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "dismiss", "Close"),
        Binding("q", "dismiss", "Close", show=False),
        Binding("question_mark", "dismiss", "Close", show=False),
    ]
    DEFAULT_CSS = (
        "HelpScreen {"
        + _BOX
        + "}"
        + """
    HelpScreen Scroll {
        width: 76; max-width: 100%; height: auto; max-height: 100%;
        border: solid $primary; padding: 0 1; background: $surface;
    }
    """
    )

    def __init__(self, keys: Sequence[tuple[str, Sequence[tuple[str, str]]]]) -> None:
        super().__init__()
        self._keys = keys

    def compose(self) -> ComposeResult:
        """List the keys."""
        parts: list[str | tuple[str, str]] = []
        for title, rows in self._keys:
            parts.append((f"{title}\n", "bold underline"))
            for key, text in rows:
                parts.extend(((f"  {key.ljust(16)}", "bold"), f"{text}\n"))
        with Scroll():
            yield Static(Content.assemble(*parts))

    def on_key(self, event: Key) -> None:
        """Take the keys of the screens, which would not reach the application from here."""
        if event.character is not None and event.character.isdecimal():
            event.stop()
            self.dismiss(event.character)


class ConfirmScreen(ModalScreen[bool]):
    """A signal to a backend: nothing is sent before a yes."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,n", "answer(False)", "No"),
        Binding("y", "answer(True)", "Yes"),
    ]
    DEFAULT_CSS = (
        "ConfirmScreen {"
        + _BOX
        + "}"
        + """
    ConfirmScreen Vertical {
        width: 76; max-width: 100%; height: auto; border: solid $error; padding: 0 1; background: $surface;
    }
    ConfirmScreen Horizontal { height: auto; }
    ConfirmScreen Button { margin-right: 2; }
    """
    )

    def __init__(self, title: str, lines: Sequence[str], yes: str) -> None:
        super().__init__()
        self._title, self._lines, self._yes = title, lines, yes

    def compose(self) -> ComposeResult:
        """Say what would happen."""
        with Vertical():
            yield Static(
                Content.assemble((f"{self._title}\n", "bold"), *(f"\n{line}\n" for line in self._lines))
            )
            with Horizontal():
                yield Button("No (n)", id="no", variant="primary")
                yield Button(self._yes, id="yes", variant="error")

    def on_mount(self) -> None:
        """Enter means no."""
        self.query_one("#no", Button).focus()

    def on_button_pressed(self, event: Button.Pressed) -> None:
        """Answer."""
        self.dismiss(event.button.id == "yes")

    def action_answer(self, yes: bool) -> None:
        """Answer by key."""
        self.dismiss(yes)


class Tick(Checkbox):
    """A box that says with a letter whether it is ticked, not with a shade."""

    @property
    def _button(self) -> Content:
        return Content("[x]" if self.value else "[ ]")


class WriteScreen(ModalScreen[tuple[str, str, bool] | None]):
    """Where to write, in which of several forms, redacted or not."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape", "dismiss(None)", "Close")]
    DEFAULT_CSS = (
        "WriteScreen {"
        + _BOX
        + "}"
        + """
    WriteScreen Vertical {
        width: 76; max-width: 100%; height: auto; border: solid $primary; padding: 0 1; background: $surface;
    }
    WriteScreen Horizontal { height: auto; }
    WriteScreen #refused { color: $text-warning; display: none; }
    WriteScreen Button { margin-right: 1; min-width: 10; }
    """
    )

    def __init__(self, title: str, stem: str, forms: Sequence[tuple[str, str]], *, redactable: bool) -> None:
        super().__init__()
        self._title, self._stem, self._forms, self._redactable = title, stem, forms, redactable
        self._form = forms[0]

    def compose(self) -> ComposeResult:
        """Ask."""
        with Vertical():
            yield Static(Content.styled(self._title, "bold"))
            yield Input(self._stem + self._form[1], id="path")
            yield Static(id="refused")
            if self._redactable:
                yield Tick(
                    "redact: replace names of roles, applications, hosts, and literals",
                    id="redact",
                    compact=True,
                )
            with Horizontal():
                for number, (name, _) in enumerate(self._forms):
                    # Several have to fit on one line of 72 columns.
                    label = f"Write {name}" if len(self._forms) == 1 else name
                    yield Button(label, id=f"form-{number}", variant="default" if number else "primary")

    def on_mount(self) -> None:
        """The name is there to be changed."""
        self.query_one("#path", Input).focus()

    def on_input_submitted(self, event: Input.Submitted) -> None:
        """Enter writes in the form that the name ends with; where there is but one form, whatever the name."""
        path = event.value.strip().lower()
        form = next((one for one in self._forms if path.endswith(one[1])), None)
        if form is not None or len(self._forms) == 1 or not path:
            self._done(form or self._form)
            return
        *endings, last = (ending for _, ending in self._forms)
        refused = self.query_one("#refused", Static)
        refused.update(
            Content(f"The name has to end with {', '.join(endings)} or {last}: it picks the format.")
        )
        refused.display = True

    def on_button_pressed(self, event: Button.Pressed) -> None:
        """Write in the form that was pressed."""
        form = self._forms[int((event.button.id or "form-0").removeprefix("form-"))]
        path = self.query_one("#path", Input)
        for _, ending in self._forms:
            if path.value.endswith(ending):
                path.value = path.value.removesuffix(ending) + form[1]
                break
        self._done(form)

    def _done(self, form: tuple[str, str]) -> None:
        path = self.query_one("#path", Input).value.strip()
        redact = bool(self._redactable and self.query_one("#redact", Checkbox).value)
        self.dismiss((path, form[0], redact) if path else None)
