"""The check that CONTRIBUTING.md adds in ten minutes is found, passes its test and satisfies the linter."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
GUIDE = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
EXAMPLE = re.compile(r"`((?:checks|tests)/[\w/]+\.py)`(?:(?!```).)*```python\n(.*?)```", re.DOTALL)
EXAMPLES = dict(EXAMPLE.findall(GUIDE))
ENVIRONMENT = {key: value for key, value in os.environ.items() if not key.startswith("PYTEST_")}


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the checkout with the guide's two files in it."""
    copy = tmp_path_factory.mktemp("guide") / "tree"
    left_out = shutil.ignore_patterns("__pycache__", ".*", "server", "golden", "build", "dist")
    shutil.copytree(ROOT, copy, symlinks=True, ignore=left_out)
    for name, text in EXAMPLES.items():
        (copy / name).write_text(text, encoding="utf-8")
    return copy


def python(tree: Path, *arguments: str) -> str:
    done = subprocess.run(
        [sys.executable, "-m", *arguments],
        cwd=tree,
        env={**ENVIRONMENT, "PYTHONPATH": str(tree)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_the_guide_adds_two_files() -> None:
    assert sorted(EXAMPLES) == ["checks/queue_unlogged.py", "tests/checks/test_queue_unlogged.py"]


def test_the_check_passes_its_test(tree: Path) -> None:
    said = python(tree, "pytest", "-q", "-p", "no:cacheprovider", "tests/checks/test_queue_unlogged.py")
    assert "2 passed" in said


def test_the_check_is_found_by_its_file_name(tree: Path) -> None:
    assert "PostgreSQL writes no WAL for an unlogged table" in python(
        tree, "pgqdoctor", "checks", "queue-unlogged"
    )


def test_the_linter_is_content(tree: Path) -> None:
    python(tree, "ruff", "check", *EXAMPLES)
    python(tree, "ruff", "format", "--check", *EXAMPLES)


def test_every_link_leads_somewhere() -> None:
    for target in re.findall(r"\]\(([^)#]+)\)", GUIDE):
        assert target.startswith("https://") or (ROOT / target).exists(), target
