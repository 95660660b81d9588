"""``python -m pgqdoctor`` and the console script."""

from __future__ import annotations

import os
import signal
import sys
import threading
from types import FrameType

INTERRUPTED = 130
AGAIN_S = 0.02


def main() -> None:
    """Run the command line given in ``sys.argv`` and exit with its status."""
    try:
        signal.signal(signal.SIGINT, interrupt)
        # Imported here, so that Ctrl-C while modules load ends the command without a traceback too.
        from pgqdoctor.cli import run

        status = run(sys.argv[1:])
    except KeyboardInterrupt:
        status = INTERRUPTED
    sys.exit(status)


def interrupt(number: int, frame: FrameType | None) -> None:
    """Raise KeyboardInterrupt, but not inside an import.

    There it can be lost with a lock of the import system still held, and where another thread imports too, the
    process then hangs for good. It is sent again until the import is over.
    """
    while frame is not None:
        if frame.f_code.co_filename.startswith("<frozen importlib"):
            again = threading.Timer(AGAIN_S, os.kill, (os.getpid(), number))
            again.daemon = True
            again.start()
            return
        frame = frame.f_back
    raise KeyboardInterrupt


if __name__ == "__main__":
    main()
