"""The keys, in the words of the help."""

from __future__ import annotations

KEYS: tuple[tuple[str, tuple[tuple[str, str], ...]], ...] = (
    (
        "Screens",
        (
            ("1 to 7", "Overview, Finding, Waits, Horizon, Claim, Knobs, History"),
            ("ctrl+p", "command palette: screens by name, themes"),
            ("enter", "open what is under the cursor"),
            ("escape", "back"),
            ("tab", "to the next part of the screen"),
            ("arrows, j k", "move; left and right: another remedy or queue"),
        ),
    ),
    (
        "Looking",
        (
            ("space", "pause and go on; collecting goes on meanwhile"),
            ("+ -", "poll more seldom, more often (not in a recording)"),
            ("/", "filter by name; escape clears it"),
            ("s", "sort the queues (screen 1) or wait events (3)"),
            ("[ ]", "one moment back in time, one on"),
            ("{ }", "ten moments back, ten on"),
            ("< >", "the first moment kept; back to now"),
        ),
    ),
    (
        "Taking along",
        (
            ("y", "copy the SQL shown (needs a terminal with OSC 52)"),
            ("f", "save the fix script of all findings"),
            ("e", "export the report"),
            ("w", "write a recording of what was collected"),
        ),
    ),
    (
        "Screen 4 only",
        (
            ("c", "cancel the statement of the backend under the cursor"),
            ("t", "terminate the backend under the cursor"),
        ),
    ),
    ("The rest", (("?", "this help"), ("q", "quit"))),
    (
        "Signs on the screens",
        (
            ("!!  !  ·", "critical, warning, notice"),
            ("?  -", "not known; none"),
            ("~  +", "about; at least"),
            ("in flt", "jobs that are claimed and not finished"),
            ("fins/s", "jobs finished per second"),
            ("buf/clm", "buffers that one claim reads"),
        ),
    ),
)
