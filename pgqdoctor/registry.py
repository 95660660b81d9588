"""Finding the checks: every module in pgqdoctor.checks is one, and nothing lists them."""

from __future__ import annotations

import importlib
import pkgutil
from difflib import get_close_matches
from functools import cache

import pgqdoctor.checks
from pgqdoctor.check import Check
from pgqdoctor.errors import USAGE, PgqdoctorError


@cache
def all_checks() -> tuple[Check, ...]:
    """Return every check, sorted by id.

    Raises TypeError for a module in checks/ without a CHECK: a check that is not found must not look like a
    healthy one.
    """
    found = []
    for module in pkgutil.iter_modules(pgqdoctor.checks.__path__):
        if module.name.startswith("_"):
            continue
        loaded = importlib.import_module(f"pgqdoctor.checks.{module.name}")
        check = getattr(loaded, "CHECK", None)
        if not isinstance(check, Check):
            raise TypeError(f"checks/{module.name}.py defines no CHECK")
        found.append(check)
    return tuple(sorted(found, key=lambda one: one.id))


def check_named(check_id: str) -> Check:
    """Return the check of that id.

    Raises PgqdoctorError, with the nearest ids, where there is none.
    """
    for check in all_checks():
        if check.id == check_id:
            return check
    near = get_close_matches(check_id, [check.id for check in all_checks()], n=3)
    raise PgqdoctorError(
        f"there is no check {check_id!r}",
        hint=f"Did you mean {', '.join(near)}?" if near else "pgqdoctor checks lists them.",
        exit_code=USAGE,
    )
