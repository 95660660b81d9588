"""Settings from pgqdoctor.toml, or from [tool.pgqdoctor] of pyproject.toml."""

from __future__ import annotations

import dataclasses
import difflib
import math
import re
import tomllib
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from pgqdoctor.errors import USAGE, PgqdoctorError

FAIL_ON = ("critical", "warning", "notice", "never")
EXPLAIN = ("off", "plan", "select", "lock", "full")

LONGEST_DURATION_S = 24 * 3600.0
"""A window of more than a day is a slip of the unit: its rates would be averages of unlike hours."""

_UNITS_S = {"ms": 0.001, "s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0, "": 1.0}
_DURATION = re.compile(r"\s*(\d+(?:\.\d*)?|\.\d+)\s*([a-z]*)\s*", re.IGNORECASE)

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueConfig:
    """One ``[[queue]]`` table: ``name`` is SCHEMA.TABLE, ``claim_query`` a file with its claim, or None.

    Unlike ``queues`` it does not narrow what is looked at.
    """

    name: str
    claim_query: Path | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Config:
    """What a settings file says; None and empty mean that it does not say.

    ``window`` is in seconds. ``format`` is left to the command, which knows its own. ``limits`` holds, per
    check id, the values that replace the check's own. ``file`` is where the settings were read, or None.
    """

    file: Path | None = None
    queues: tuple[str, ...] = ()
    queue: tuple[QueueConfig, ...] = ()
    window: float | None = None
    fail_on: str | None = None
    only: tuple[str, ...] = ()
    ignore: tuple[str, ...] = ()
    format: str | None = None
    explain: str | None = None
    limits: Mapping[str, Mapping[str, object]] = field(default_factory=dict)


def parse_duration(text: str) -> float:
    """Seconds of a duration such as ``10s``, ``250ms``, ``2m``, ``1h`` or ``10`` (seconds).

    Raises ValueError, whose text completes "... is wrong:", for anything else, for zero, and beyond 24 hours.
    """
    match = _DURATION.fullmatch(text)
    if match is None or match[2].lower() not in _UNITS_S:
        raise ValueError(f"{text!r} is not a duration such as 10s, 250ms, 2m or 1h")
    return _within_reason(float(match[1]) * _UNITS_S[match[2].lower()], text)


def find_config(start: Path) -> Path | None:
    """The nearest settings file in ``start`` or above it; in one directory pgqdoctor.toml wins.

    A pyproject.toml without [tool.pgqdoctor] is passed over.
    """
    for directory in (start, *start.parents):
        own = directory / "pgqdoctor.toml"
        if own.is_file():
            return own
        shared = directory / "pyproject.toml"
        if shared.is_file() and _own_table(_read_toml(shared), shared) is not None:
            return shared
    return None


def load_config(file: Path | None) -> Config:
    """The settings in ``file``, an empty Config for None.

    Raises PgqdoctorError (usage) with the file, the key and the nearest known name. Check ids and limits are
    only examined by :func:`validate_checks`, since that needs the checks themselves.
    """
    if file is None:
        return Config()
    document = _read_toml(file)
    table = _own_table(document, file) if file.name == "pyproject.toml" else document
    return _Reader(file).config(table or {})


def validate_checks(config: Config, limits: Mapping[str, object]) -> None:
    """Raise PgqdoctorError (usage) where ``config`` names a check or a limit that does not exist.

    ``limits`` holds the Limits instance of every check by its id.
    """
    where = str(config.file)
    require_checks(f"{where}: only", config.only, limits)
    require_checks(f"{where}: ignore", config.ignore, limits, keys=True)
    require_checks(f"{where}: limits", config.limits, limits)
    for id_, overrides in config.limits.items():
        try:
            override_limits(limits[id_], overrides)
        except PgqdoctorError as error:
            raise PgqdoctorError(
                f"{where}: [limits.{id_}] {error.message}", hint=error.hint, exit_code=USAGE
            ) from None


def require_checks(where: str, ids: Iterable[str], known: Collection[str], *, keys: bool = False) -> None:
    """Raise PgqdoctorError (usage), which begins with ``where``, for an id that is not ``known``.

    With ``keys`` an id may also be the key of one finding, such as dead-tuples:public.jobs.
    """
    for id_ in ids:
        check = id_.partition(":")[0] if keys else id_
        if check not in known:
            raise unknown(f"{where}: unknown check", check, known, listing="pgqdoctor checks")


def override_limits(limits: T, overrides: Mapping[str, object]) -> T:
    """``limits``, a frozen dataclass of numbers, with the named fields replaced.

    Names may be written with hyphens. A whole number serves where a float is wanted, and not the reverse.
    Raises PgqdoctorError (usage) for a name that is no field, and a value that is not a number of the
    field's kind, negative, or not finite.
    """
    fields = {f.name: getattr(limits, f.name) for f in dataclasses.fields(limits)}  # type: ignore[arg-type]
    changes: dict[str, Any] = {}
    for key, value in overrides.items():
        name = key.replace("-", "_")
        if name not in fields:
            raise unknown("unknown limit", key, fields)
        changes[name] = _limit_value(key, value, fields[name])
    return dataclasses.replace(limits, **changes)  # type: ignore[type-var]


MOST_NAMED = 12
"""Names that an error lists; of more it tells how to list them."""


def unknown(what: str, name: str, known: Iterable[str], *, listing: str = "") -> PgqdoctorError:
    """The usage error for a name that is not among ``known``, with the nearest of them as the hint.

    ``listing`` is the command that lists them all: it stands in the hint in place of many names.
    """
    names = sorted(known)
    close = difflib.get_close_matches(name, names, n=1, cutoff=0.5)
    if listing and not close:
        # Part of a name, as of a family of names: "savepoint", "healthy".
        close = [one for one in names if len(name) > 2 and name.lower() in one][:3]
    if close:
        hint = f"Did you mean {' or '.join(close)}?"
    elif listing and len(names) > MOST_NAMED:
        hint = f"There are {len(names)}."
    else:
        hint = f"Known: {', '.join(names) or 'none'}."
    if listing:
        hint = f"{hint} '{listing}' lists them."
    return PgqdoctorError(f"{what} {name!r}", hint=hint, exit_code=USAGE)


def _limit_value(key: str, value: object, default: object) -> object:
    if isinstance(default, bool):
        if not isinstance(value, bool):
            raise PgqdoctorError(f"{key} must be true or false, not {value!r}", exit_code=USAGE)
        return value
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise PgqdoctorError(f"{key} must be a number, not {value!r}", exit_code=USAGE)
    if not math.isfinite(value) or value < 0:
        raise PgqdoctorError(f"{key} must be a number from 0 upwards, not {value!r}", exit_code=USAGE)
    if isinstance(default, int) and isinstance(value, float):
        raise PgqdoctorError(f"{key} must be a whole number, not {value!r}", exit_code=USAGE)
    return float(value) if isinstance(default, float) else value


def _within_reason(seconds: float, shown: object) -> float:
    if not 0 < seconds <= LONGEST_DURATION_S:
        raise ValueError(f"{shown!r} is not between 0 and 24 hours")
    return seconds


def _read_toml(file: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise PgqdoctorError(f"{file} cannot be read: {error.strerror}", exit_code=USAGE) from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise PgqdoctorError(
            f"{file} is not valid TOML: {error}",
            hint="Mend it, or name another file with --config.",
            exit_code=USAGE,
        ) from None


def _own_table(document: Mapping[str, Any], file: Path) -> Mapping[str, Any] | None:
    tool = document.get("tool")
    own = tool.get("pgqdoctor") if isinstance(tool, dict) else None
    if own is not None and not isinstance(own, dict):
        raise PgqdoctorError(f"{file}: tool.pgqdoctor must be a table, not {own!r}", exit_code=USAGE)
    return own


@dataclass(frozen=True, slots=True)
class _Reader:
    """Reads one settings table; every complaint names the file and the key."""

    file: Path

    def config(self, table: Mapping[str, object]) -> Config:
        self.known(
            table,
            "",
            ("queues", "queue", "window", "fail-on", "only", "ignore", "format", "explain", "limits"),
        )
        return Config(
            file=self.file,
            queues=self.strings(table, "queues"),
            queue=self.queue_tables(table),
            window=self.duration(table, "window"),
            fail_on=self.choice(table, "fail-on", FAIL_ON),
            only=self.strings(table, "only"),
            ignore=self.strings(table, "ignore"),
            format=self.string(table, "format") if "format" in table else None,
            explain=self.choice(table, "explain", EXPLAIN),
            limits=self.limits(table),
        )

    def known(self, table: Mapping[str, object], within: str, keys: Collection[str]) -> None:
        for key in table:
            if key not in keys:
                raise unknown(f"{self.file}: {within}unknown key", key, keys)

    def wrong(self, key: str, wanted: str, value: object) -> PgqdoctorError:
        return PgqdoctorError(f"{self.file}: {key} must be {wanted}, not {value!r}", exit_code=USAGE)

    def strings(self, table: Mapping[str, object], key: str) -> tuple[str, ...]:
        value = table.get(key, [])
        if not isinstance(value, list) or not all(isinstance(entry, str) and entry for entry in value):
            raise self.wrong(key, "a list of names", value)
        return tuple(value)

    def string(self, table: Mapping[str, object], key: str, within: str = "") -> str:
        value = table.get(key)
        if not isinstance(value, str) or not value:
            raise self.wrong(f"{within}{key}", "a text", value)
        return value

    def choice(self, table: Mapping[str, object], key: str, choices: Collection[str]) -> str | None:
        value = table.get(key)
        if value is None or (isinstance(value, str) and value in choices):
            return value
        raise self.wrong(key, f"one of {', '.join(choices)}", value)

    def duration(self, table: Mapping[str, object], key: str) -> float | None:
        value = table.get(key)
        if value is None:
            return None
        try:
            if isinstance(value, str):
                return parse_duration(value)
            if isinstance(value, int | float) and not isinstance(value, bool):
                return _within_reason(float(value), value)
        except ValueError as error:
            raise PgqdoctorError(f"{self.file}: {key}: {error}", exit_code=USAGE) from None
        raise self.wrong(key, "a duration such as 10s", value)

    def queue_tables(self, table: Mapping[str, object]) -> tuple[QueueConfig, ...]:
        entries = table.get("queue", [])
        if not isinstance(entries, list) or not all(isinstance(entry, dict) for entry in entries):
            raise self.wrong("queue", "a list of [[queue]] tables", entries)
        return tuple(self.queue(entry) for entry in entries)

    def queue(self, entry: Mapping[str, object]) -> QueueConfig:
        self.known(entry, "[[queue]] ", ("name", "claim-query"))
        name = self.string(entry, "name", "[[queue]] ")
        if "claim-query" not in entry:
            return QueueConfig(name=name)
        # Relative to the settings file, so that the meaning does not change with the working directory.
        claim_query = self.file.parent / self.string(entry, "claim-query", "[[queue]] ")
        return QueueConfig(name=name, claim_query=claim_query)

    def limits(self, table: Mapping[str, object]) -> Mapping[str, Mapping[str, object]]:
        value = table.get("limits", {})
        if not isinstance(value, dict):
            raise self.wrong("limits", "tables such as [limits.dead-tuples]", value)
        for id_, overrides in value.items():
            if not isinstance(overrides, dict):
                raise self.wrong(f"limits.{id_}", f"a table [limits.{id_}] of numbers", overrides)
        return value
