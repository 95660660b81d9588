"""Results kept while an experiment runs, so that ``--resume`` goes on where an interruption left it."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, TypeVar

import msgspec

from pgqdoctor.errors import USAGE, PgqdoctorError

Cell = TypeVar("Cell")


def state_file(experiment: str, environment: Mapping[str, str]) -> Path:
    """Where an experiment keeps its state by default: below XDG_STATE_HOME, else ~/.local/state."""
    home = environment.get("XDG_STATE_HOME")
    base = Path(home) if home else Path.home() / ".local" / "state"
    return base / "pgqdoctor" / f"lab-{experiment}.json"


@dataclass(frozen=True, slots=True, kw_only=True)
class Saved:
    """What a state file holds: the options that the cells were measured with, and the cells by key."""

    options: Mapping[str, str]
    cells: Mapping[str, Any]


class Notebook(Generic[Cell]):
    """The cells measured so far; each is written to the state file at once.

    ``options`` must be all that decides what a cell measures: results of other options are never mixed in.
    """

    def __init__(self, file: Path, cell: type[Cell], options: Mapping[str, str], *, resume: bool) -> None:
        self._file = file
        self._options = dict(options)
        self._cells: dict[str, Cell] = {}
        if resume:
            self._cells = self._read(cell)

    def __len__(self) -> int:
        return len(self._cells)

    def get(self, key: str) -> Cell | None:
        """The cell measured under ``key`` before, if any."""
        return self._cells.get(key)

    def add(self, key: str, cell: Cell) -> None:
        """Keep a cell; the file is replaced in one step, so an interruption leaves the old or the new one.

        Raises PgqdoctorError where the file cannot be written.
        """
        self._cells[key] = cell
        plain = {name: msgspec.to_builtins(one) for name, one in self._cells.items()}
        data = msgspec.json.encode(Saved(options=self._options, cells=plain))
        beside = self._file.with_name(f"{self._file.name}.{os.getpid()}")
        try:
            self._file.parent.mkdir(parents=True, exist_ok=True)
            beside.write_bytes(data)
            beside.replace(self._file)
        except OSError as error:
            raise PgqdoctorError(
                f"the state file {self._file} cannot be written: {error.strerror}",
                hint="Name another with --state.",
                exit_code=USAGE,
            ) from None

    def close(self) -> None:
        """The experiment is complete: there is nothing to resume."""
        self._file.unlink(missing_ok=True)

    def _read(self, cell: type[Cell]) -> dict[str, Cell]:
        try:
            saved = msgspec.json.decode(self._file.read_bytes(), type=Saved)
            cells = {key: msgspec.convert(value, cell) for key, value in saved.cells.items()}
        except FileNotFoundError:
            raise PgqdoctorError(
                f"there is nothing to resume: {self._file} does not exist", exit_code=USAGE
            ) from None
        except (OSError, msgspec.MsgspecError) as error:
            raise PgqdoctorError(
                f"the state file {self._file} cannot be read: {error}",
                hint="Start again without --resume.",
                exit_code=USAGE,
            ) from None
        differing = sorted(
            name
            for name in {*saved.options, *self._options}
            if saved.options.get(name) != self._options.get(name)
        )
        if differing:
            was = ", ".join(f"{name} {saved.options.get(name, 'not set')}" for name in differing)
            raise PgqdoctorError(
                f"the interrupted run had other options: {was}",
                hint="Resume with the same options, or start again without --resume.",
                exit_code=USAGE,
            )
        return cells
