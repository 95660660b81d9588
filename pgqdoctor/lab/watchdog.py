"""Nothing outlives pgqdoctor: a watchdog ends servers and clients whose parent died without cleaning up.

SIGKILL and SIGTERM run no Python code, and a parent-death signal (Linux only) follows the thread that
started the child, not the process. A shell that waits for the end of a pipe does work everywhere: the
kernel closes the pipe when the parent is gone, however it went.
"""

from __future__ import annotations

import contextlib
import subprocess
from pathlib import Path
from types import TracebackType
from typing import Self

# $1 directory, $2 signal, then patterns of pid files below the directory. The pid files are read only after
# the parent's death, so a process that ended and was forgotten properly is never signalled by a reused pid.
# They are read for a second and a half: what the parent started last may write its own only now, and may write
# into the directory while it is removed.
_SCRIPT = """
read -r answer
[ "$answer" = done ] && exit 0
dir=$1 signal=$2
shift 2
cd "$dir" || exit 0
pids=
tries=0
while [ "$tries" -lt 100 ]; do
  alive=
  for pattern in "$@"; do
    for file in $pattern; do
      [ -r "$file" ] && read -r pid < "$file" && [ "$pid" -gt 1 ] || continue
      case " $pids " in *" $pid "*) continue ;; esac
      pids="$pids $pid"
      kill -s "$signal" "$pid"
    done
  done
  for pid in $pids; do kill -0 "$pid" && alive=yes; done
  [ -z "$alive" ] && [ "$tries" -ge 15 ] && break
  tries=$((tries + 1))
  sleep 0.1
done
for pid in $pids; do kill -s KILL "$pid"; done
cd /
rm -rf -- "$dir"
sleep 1
rm -rf -- "$dir"
"""


class Watchdog:
    """Signals the processes in the pid files below ``directory`` and removes it, once the parent is dead."""

    def __init__(self, directory: Path, *, signal: str, pid_files: tuple[str, ...]) -> None:
        self._shell = subprocess.Popen(
            ["/bin/sh", "-c", _SCRIPT, "pgqdoctor-watchdog", str(directory), signal, *pid_files],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            cwd="/",
            start_new_session=True,  # Ctrl-C reaches the whole foreground group; the watchdog must survive it
        )

    def dismiss(self) -> None:
        """Ends the watchdog without effect; the caller has cleaned up itself."""
        if self._shell.stdin is not None:
            with contextlib.suppress(BrokenPipeError):
                self._shell.stdin.write(b"done\n")
                self._shell.stdin.flush()
            with contextlib.suppress(BrokenPipeError):
                self._shell.stdin.close()
        self._shell.wait()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.dismiss()
