"""The shape of a check, and the names of what a check may need to see."""

from __future__ import annotations

import dataclasses
import inspect
import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, get_type_hints

if TYPE_CHECKING:
    from pgqdoctor.finding import Finding
    from pgqdoctor.lint.flaws import Lint
    from pgqdoctor.observation import Observation
    from pgqdoctor.queue import Queue

STATEMENTS: Final = "statements"
"""pg_stat_statements with readable texts."""
CLAIMS: Final = "claims"
"""The queue's claim, seen: lacking where none was, and pg_stat_statements is known to miss statements."""
ACTIVITY: Final = "activity"
"""Other roles' rows of pg_stat_activity: state, waits and texts."""
PLAN: Final = "plan"
"""The claim's plan from EXPLAIN."""
COUNTERS: Final = "counters"
"""Table counters of a primary: a standby counts its own reads only."""
ROWS: Final = "rows"
"""SELECT on the queue, for the bounded probes."""
SEQUENCES: Final = "sequences"
"""The last values of the sequences that number the queue's rows."""
ATTEMPTS: Final = "attempts"
"""The bounded look at how often ready jobs were tried."""
CLAIMED: Final = "claimed"
"""The bounded look at claimed jobs: a column that tells them, and an index or a small table that makes it cheap."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """One check: what it is called, what it needs, its limits and the function that looks.

    The id is the module's file name with dashes; it is written nowhere else. ``evaluate`` is called once for
    each queue, or once with None for a check of the whole server (``scope="server"``). A need that is lacking
    makes the check skipped for that queue, never passed.
    """

    title: str
    needs: tuple[str, ...]
    limits: Any
    evaluate: Callable[..., Iterable[Finding]]
    scope: str = "queue"
    references: tuple[str, ...] = ()
    """Addresses of PostgreSQL's own documentation that explain the mechanism."""
    look_alikes: tuple[str, ...] = ()
    """Healthy states that must not trip the check, in words, for the documentation."""
    applies: Callable[[Queue], bool] = lambda queue: True
    """False for a queue on which this cannot happen by its design: the check is then neither called nor skipped there."""
    unjudged: Callable[..., str | None] = lambda seen, queue, limits: None
    """Why this queue (None for the server) could not be judged although all needs were served, None where it was; called as
    ``evaluate`` is. The check is then told as skipped there."""
    lint: Lint | None = None
    """What the check can tell from .sql files alone, without a server; see pgqdoctor.lint."""

    @property
    def module(self) -> str:
        """Full name of the module that defines the check."""
        return self.evaluate.__module__

    @property
    def id(self) -> str:
        """The check's id: its file name in kebab case."""
        return self.module.rpartition(".")[2].replace("_", "-")

    @property
    def documentation(self) -> str:
        """The module's docstring: why it hurts a queue."""
        return inspect.cleandoc(sys.modules[self.module].__doc__ or "")

    def limit_notes(self) -> tuple[tuple[str, Any, str], ...]:
        """Return (name, default, unit and reason) of each limit."""
        hints = get_type_hints(type(self.limits), include_extras=True)
        notes = []
        for one in dataclasses.fields(self.limits):
            note = " ".join(str(text) for text in getattr(hints[one.name], "__metadata__", ()))
            notes.append((one.name, getattr(self.limits, one.name), note))
        return tuple(notes)


@dataclass(frozen=True, slots=True, kw_only=True)
class NoLimits:
    """For checks that decide without a threshold."""


if TYPE_CHECKING:
    Evaluate = Callable[[Observation, Queue, Any], Iterable[Finding]]
