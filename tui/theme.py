"""Colours. Meaning never hangs on them: severities have marks, bars have letters."""

from __future__ import annotations

from textual.theme import Theme

DARK = Theme(
    name="pgqdoctor",
    primary="#5fafd7",
    secondary="#87af87",
    accent="#d7af5f",
    warning="#d7af5f",
    error="#ff6b6b",
    success="#87d787",
    foreground="#dadada",
    background="#14181c",
    surface="#1b2026",
    panel="#242b33",
    dark=True,
)

SEVERITY = {
    "critical": "bold $text-error",
    "warning": "bold $text-warning",
    "notice": "$text-primary",
    "healthy": "bold $text-success",
    "": "",
}
"""Styles of severities and of the verdict, for Content."""

RICH_SEVERITY = {"critical": "bold red", "warning": "bold yellow", "notice": "cyan", "": ""}
"""The same for table cells, which take ANSI colours."""

RICH_GROUP = {
    "multixact": "white on red",
    "subtransaction": "white on magenta",
    "lock": "black on yellow",
    "buffer": "black on cyan",
    "I/O": "white on blue",
    "CPU": "black on green",
    "other": "black on white",
}
"""Fill of the bars of active sessions; each cell also has the group's letter."""
