"""What is installed is the package, all of it, and nothing else.

checks/, tui/ and fixtures/ stand at the top of the checkout and belong inside the package. So the wheel is
built from a copy of the tree with the committed links, from one as a checkout without links leaves it,
and through the source distribution; all three must be the same.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from pathlib import Path, PurePosixPath

import pytest

ROOT = Path(__file__).parent.parent
MAPPED = ("checks", "fixtures", "tui")
"""Top-level directories that are installed as pgqdoctor.NAME."""
SOURCES = ("pgqdoctor", *MAPPED)
PROJECT = ("pyproject.toml", "README.md", "LICENSE")
LEFT_OUT = shutil.ignore_patterns("__pycache__", "*.pyc")


def tree() -> set[str]:
    """Every file of the sources under the path it has to have in the wheel."""
    files = set()
    for top in SOURCES:
        for directory, names, inside in os.walk(ROOT / top):
            names[:] = [n for n in names if n != "__pycache__" and not (Path(directory) / n).is_symlink()]
            path = PurePosixPath(Path(directory).relative_to(ROOT).as_posix())
            within = path if top == "pgqdoctor" else PurePosixPath("pgqdoctor") / path
            files |= {str(within / name) for name in inside if not (Path(directory) / name).is_symlink()}
    return {file for file in files if not file.endswith(".pyc")}


def copy_of_tree(target: Path, *, links: bool) -> Path:
    target.mkdir()
    for name in SOURCES:
        shutil.copytree(ROOT / name, target / name, symlinks=True, ignore=LEFT_OUT)
    for name in PROJECT:
        shutil.copy(ROOT / name, target / name)
    for name in MAPPED:
        link = target / "pgqdoctor" / name
        assert link.is_symlink(), f"pgqdoctor/{name} must be a committed link to ../{name}"
        assert link.readlink() == Path("..", name)
        if not links:
            # git writes the link's text into a plain file where the file system has no links.
            link.unlink()
            link.write_text(f"../{name}")
    return target


def build(kind: str, source: Path, target: Path) -> Path:
    """Build with the backend itself, in a process of its own as it changes directories: needs no index."""
    program = f"import sys; from setuptools import build_meta; print(build_meta.build_{kind}(sys.argv[1]))"
    target.mkdir(exist_ok=True)
    done = subprocess.run(
        [sys.executable, "-c", program, str(target)], cwd=source, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return target / done.stdout.splitlines()[-1]


def members(wheel: Path) -> list[str]:
    with zipfile.ZipFile(wheel) as archive:
        return [name for name in archive.namelist() if not name.endswith("/")]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    base = tmp_path_factory.mktemp("linked")
    return build("wheel", copy_of_tree(base / "tree", links=True), base / "dist")


def test_the_wheel_holds_every_source_and_nothing_else(wheel: Path) -> None:
    names = [name for name in members(wheel) if ".dist-info/" not in name]
    assert len(names) == len(set(names)), "a file is packaged twice"
    assert set(names) == tree()


def test_every_kind_of_data_is_among_them(wheel: Path) -> None:
    suffixes = {PurePosixPath(name).suffix for name in members(wheel)}
    assert {".sql", ".toml", ".json", ".typed"} <= suffixes


def test_only_pgqdoctor_lands_in_site_packages(wheel: Path) -> None:
    tops = {name.split("/", 1)[0] for name in members(wheel)}
    assert {top for top in tops if not top.endswith(".dist-info")} == {"pgqdoctor"}
    with zipfile.ZipFile(wheel) as archive:
        (top_level,) = (name for name in members(wheel) if name.endswith(".dist-info/top_level.txt"))
        assert archive.read(top_level).decode().split() == ["pgqdoctor"]


def test_a_checkout_without_links_builds_the_same_wheel(wheel: Path, tmp_path: Path) -> None:
    unlinked = build("wheel", copy_of_tree(tmp_path / "tree", links=False), tmp_path / "dist")
    assert sorted(members(unlinked)) == sorted(members(wheel))


def test_the_source_distribution_builds_the_same_wheel(wheel: Path, tmp_path: Path) -> None:
    sdist = build("sdist", copy_of_tree(tmp_path / "tree", links=True), tmp_path / "dist")
    with tarfile.open(sdist) as archive:
        names = archive.getnames()
        assert not [name for name in names if "/pgqdoctor/checks/" in name], "the links must not be followed"
    shutil.unpack_archive(sdist, tmp_path / "unpacked")
    (source,) = (tmp_path / "unpacked").iterdir()
    assert sorted(members(build("wheel", source, tmp_path / "again"))) == sorted(members(wheel))


def test_the_list_of_packages_is_the_tree() -> None:
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]
    with_code = {str(PurePosixPath(file).parent).replace("/", ".") for file in tree() if file.endswith(".py")}
    assert sorted(settings["packages"]) == sorted(with_code)
    assert settings["package-dir"] == {"pgqdoctor": "pgqdoctor"} | {
        f"pgqdoctor.{name}": name for name in MAPPED
    }


def test_the_unpacked_wheel_runs(wheel: Path, tmp_path: Path) -> None:
    """Without the checkout on the path: every check is found and its data is at hand."""
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(tmp_path / "site")
    program = (
        "import sys; sys.path.insert(0, sys.argv[1]);"
        "import pgqdoctor, importlib.resources as r;"
        "from pgqdoctor.registry import all_checks;"
        "print(pgqdoctor.__file__); print(len(all_checks()));"
        "print(sum(1 for one in (r.files('pgqdoctor.fixtures') / 'scenarios').iterdir()))"
    )
    done = subprocess.run(
        [sys.executable, "-P", "-c", program, str(tmp_path / "site")],
        cwd=tmp_path,
        env={key: value for key, value in os.environ.items() if key != "PYTHONPATH"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    where, checks, scenarios = done.stdout.splitlines()
    assert where.startswith(str(tmp_path))
    assert int(checks) == len([path for path in (ROOT / "checks").glob("*.py") if path.name != "__init__.py"])
    assert int(scenarios) == len(list((ROOT / "fixtures" / "scenarios").iterdir()))
