"""What the live tests of the lab share: a ground in a test's own database, and notebooks nobody keeps."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

from pgqdoctor.lab.ground import Ground, scratch_ground
from pgqdoctor.lab.saved import Notebook

Cell = TypeVar("Cell")


@contextmanager
def ground_in(dsn: str) -> Iterator[Ground]:
    """The lab's schema in an empty database."""
    with scratch_ground(dsn, confirmed=True) as ground:
        yield ground


def notebook(tmp_path: Path, cell: type[Cell]) -> Notebook[Cell]:
    return Notebook(tmp_path / "state.json", cell, {}, resume=False)


def quiet(done: int, total: int, what: str) -> None:
    """Progress that nobody looks at."""
