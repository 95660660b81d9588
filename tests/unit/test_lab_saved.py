"""What an interrupted experiment keeps, and when it may go on."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pytest

from pgqdoctor.errors import USAGE, PgqdoctorError
from pgqdoctor.lab.saved import Notebook, state_file


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    name: str
    values: tuple[int, ...]


OPTIONS = {"jobs": "10", "server": "18.6 embedded"}


def test_cells_are_there_again_after_an_interruption(tmp_path: Path) -> None:
    file = tmp_path / "deep" / "state.json"
    first = Notebook(file, Cell, OPTIONS, resume=False)
    first.add("a/1", Cell(name="a", values=(1, 2)))
    first.add("a/2", Cell(name="b", values=()))
    again = Notebook(file, Cell, OPTIONS, resume=True)
    assert len(again) == 2
    assert again.get("a/1") == Cell(name="a", values=(1, 2))
    assert again.get("a/3") is None
    assert [one.name for one in file.parent.iterdir()] == ["state.json"], "no half-written file stays"


def test_without_resume_nothing_is_taken_over(tmp_path: Path) -> None:
    file = tmp_path / "state.json"
    Notebook(file, Cell, OPTIONS, resume=False).add("a", Cell(name="a", values=()))
    assert Notebook(file, Cell, OPTIONS, resume=False).get("a") is None


def test_other_options_are_refused_by_name(tmp_path: Path) -> None:
    file = tmp_path / "state.json"
    Notebook(file, Cell, OPTIONS, resume=False).add("a", Cell(name="a", values=()))
    with pytest.raises(PgqdoctorError, match=r"other options: jobs 10$") as caught:
        Notebook(file, Cell, {**OPTIONS, "jobs": "20"}, resume=True)
    assert caught.value.exit_code == USAGE


def test_nothing_to_resume(tmp_path: Path) -> None:
    with pytest.raises(PgqdoctorError, match="nothing to resume"):
        Notebook(tmp_path / "state.json", Cell, OPTIONS, resume=True)


def test_a_complete_experiment_leaves_nothing_to_resume(tmp_path: Path) -> None:
    file = tmp_path / "state.json"
    notebook = Notebook(file, Cell, OPTIONS, resume=False)
    notebook.add("a", Cell(name="a", values=()))
    notebook.close()
    assert not file.exists()
    notebook.close()


@pytest.mark.parametrize("text", ["", "{", '{"options": {}}', '{"options": {}, "cells": {"a": {"name": 3}}}'])
def test_a_broken_state_file_is_told(tmp_path: Path, text: str) -> None:
    file = tmp_path / "state.json"
    file.write_text(text)
    with pytest.raises(PgqdoctorError, match=r"state\.json cannot be read"):
        Notebook(file, Cell, {}, resume=True)


def test_a_state_file_that_cannot_be_written_is_told(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    notebook = Notebook(tmp_path / "file" / "state.json", Cell, OPTIONS, resume=False)
    with pytest.raises(PgqdoctorError, match="cannot be written"):
        notebook.add("a", Cell(name="a", values=()))


def test_the_default_place_follows_the_environment(tmp_path: Path) -> None:
    assert state_file("race", {"XDG_STATE_HOME": str(tmp_path)}) == tmp_path / "pgqdoctor" / "lab-race.json"
    assert state_file("race", {}) == Path.home() / ".local" / "state" / "pgqdoctor" / "lab-race.json"
