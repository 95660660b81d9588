"""The one exception users meet: a sentence, a way on, and the exit status."""

from __future__ import annotations

USAGE = 2
UNREACHABLE = 3


class PgqdoctorError(Exception):
    """Something the user must act on.

    ``message`` is one sentence: what failed, on which object. ``hint`` says what to do.
    ``exit_code`` is the process's exit status: 2 wrong usage or configuration, 3 the server
    could not be reached or observed.
    """

    def __init__(self, message: str, *, hint: str = "", exit_code: int = UNREACHABLE) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint
        self.exit_code = exit_code
