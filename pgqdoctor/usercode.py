"""Code of users that the doctor could be made to run: statements that reach any are not planned or not executed.

The doctor often is a superuser, and the statements it explains are written by others. What they call is read from
their text (sqlrewrite.is_harmless), but names resolve along a search_path: a user's function or operator wins over
pg_catalog's with argument types that fit better, a view's functions run as whoever reads it, and the planner itself
evaluates what is immutable in index predicates, expressions and constraints. So the server is asked what is there
before anything is planned.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from pgqdoctor import probes
from pgqdoctor.connect import Session
from pgqdoctor.features import LOWEST_SERVED
from pgqdoctor.sqlharmless import HARMLESS_FUNCTIONS
from pgqdoctor.sqlrewrite import Uses, uses_of

ONLY_IF_WRITTEN: Final = frozenset({"default", "rule", "trigger"})
"""Kinds that a SELECT does not reach."""
NEVER_PLANNED: Final = frozenset({"trigger", "volatile function"})
"""Kinds that run when a statement is executed, never while it is planned: only immutable and stable functions are
evaluated by the planner, and only functions in SQL are opened to look for such."""


@dataclass(frozen=True, slots=True, kw_only=True)
class UserCode:
    """One thing that runs, or may run, a user's code: its kind and its name."""

    kind: str
    name: str

    def __str__(self) -> str:
        what = {
            "view": f"it reads the view {self.name}, whose functions would run as the reader",
            "foreign table": f"it reads the foreign table {self.name}",
            "row security": f"row security policies of {self.name} may call functions",
            "rule": f"a rule of {self.name} rewrites it",
            "trigger": f"triggers of {self.name} would run",
            "operator": f"operator {self.name} could stand in for PostgreSQL's own",
            "cast": f"the cast from {self.name} calls a function of a user",
        }
        if self.kind in what:
            return what[self.kind]
        if self.kind.endswith("function"):
            return f"it calls {self.name}, a function that is not known to be harmless"
        return f"{self.kind} of {self.name} calls a function of a user"


@dataclass(frozen=True, slots=True, kw_only=True)
class Reached:
    """What of users' code a statement can reach."""

    found: tuple[UserCode, ...]

    def planning(self, *, writes: bool = False) -> UserCode | None:
        """Return what planning the statement could run, None for nothing."""
        return self._first(writes, NEVER_PLANNED)

    def executing(self, *, writes: bool = False) -> UserCode | None:
        """Return what executing the statement could run, None for nothing."""
        return self._first(writes, frozenset())

    def _first(self, writes: bool, spared: frozenset[str]) -> UserCode | None:
        left = spared if writes else spared | ONLY_IF_WRITTEN
        return next((one for one in self.found if one.kind not in left), None)


def user_code(session: Session, text: str, schemas: Sequence[str], *, timeout_ms: int) -> Reached:
    """Ask what of users' code a statement reaches when its names are looked up in ``schemas``.

    Raises ValueError where the statement cannot be read, psycopg.Error where the server refuses.
    """
    return _asked(session, uses_of(text), schemas, timeout_ms)


def _asked(session: Session, uses: Uses, schemas: Sequence[str], timeout_ms: int) -> Reached:
    found = session.rows(
        UserCode,
        probes.load("user_code", LOWEST_SERVED),
        {
            "schemas": sorted({*schemas, *uses.schemas}),
            "relations": sorted(uses.relations),
            "types": sorted(uses.types),
            "harmless": sorted(uses.functions & HARMLESS_FUNCTIONS),
            "others": sorted(uses.functions - HARMLESS_FUNCTIONS),
            "attributes": sorted(uses.attributes),
        },
        statement_timeout_ms=timeout_ms,
    )
    return Reached(found=found)
