"""``python -m pgqdoctor`` and the console script."""

from __future__ import annotations

import sys

from pgqdoctor.cli import run


def main() -> None:
    """Run the command line given in ``sys.argv`` and exit with its status."""
    sys.exit(run(sys.argv[1:]))


if __name__ == "__main__":
    main()
