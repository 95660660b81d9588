"""The session that probes are run over: what the server refuses is noted, and a lost connection is made anew."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any, TypeVar

import psycopg

from pgqdoctor import probes
from pgqdoctor.connect import PATIENCE_S, Link, Session, connect, one_line, survey
from pgqdoctor.errors import PgqdoctorError
from pgqdoctor.observation import Lack

Row = TypeVar("Row")


class Prober:
    """Runs probes; ``lacks`` gathers what they could not read."""

    def __init__(self, session: Session) -> None:
        self.session = session
        self.link: Link = survey(session)
        self.lacks: list[Lack] = list(self.link.lacks)
        self.version = self.link.server.version_num
        self._clock = time.time() - time.monotonic()
        """The server's clock, seconds since the epoch, at this machine's monotonic zero."""

    def now(self) -> float:
        """Return the server's time, as far as its last answer tells: the client's own clock may be hours off."""
        return time.monotonic() + self._clock

    def set_clock(self, at: float) -> None:
        """Take the time that the server has just told, in seconds since the epoch."""
        self._clock = at - time.monotonic()

    def rows(
        self,
        row: type[Row],
        name: str,
        parameters: Mapping[str, object] | None = None,
        *,
        timeout_ms: int = 3_000,
        required: bool = False,
    ) -> tuple[Row, ...]:
        """Run a probe; one that the server refuses becomes a lack, and the rest of the report stands."""
        try:
            return self.session.rows(
                row, probes.load(name, self.version), parameters, statement_timeout_ms=timeout_ms
            )
        except psycopg.Error as error:
            if self.session.closed or required:
                raise
            self.lacks.append(Lack(what=name, reason=f"{name} were not read: {one_line(error)}"))
            return ()

    def records(self, name: str, parameters: Mapping[str, object] | None = None) -> list[dict[str, Any]]:
        """Run a probe and return its rows as dictionaries."""
        return self.session.records(probes.load(name, self.version), parameters)

    def locked(self) -> frozenset[int]:
        """Return the oids of the tables on which somebody has, or waits for, an ACCESS EXCLUSIVE lock."""
        return frozenset(int(one["oid"]) for one in self.records("exclusive_locks"))

    def recover(self, error: psycopg.Error, left_s: float = 0.0) -> bool:
        """Reconnect after a lost connection; a refused statement needs nothing but a note.

        What is left of the window, ``left_s``, may be waited for in any case.
        """
        if not self.session.closed:
            self.lacks.append(Lack(what="samples", reason=f"a sample was not taken: {one_line(error)}"))
            return True
        self.lacks.append(Lack(what="connection", reason=f"the connection was lost: {one_line(error)}"))
        try:
            self.session = connect(
                self.session.conninfo, timeout_s=2, patience_s=max(PATIENCE_S, left_s), dropped=True
            )
        except PgqdoctorError:
            return False
        return True
