"""Samples: who is busy at one moment, and the MultiXacts made meanwhile."""

from __future__ import annotations

import time
from typing import Final

import psycopg

from pgqdoctor import probes, rows
from pgqdoctor.collecting.prober import Prober
from pgqdoctor.collecting.texts import Texts
from pgqdoctor.observation import Sample, SampledSession

MULTIXACTS_PER_LOOK: Final = 16
"""MultiXacts looked at once a second: each costs one lookup, beside thousands that the fault itself makes."""


class Sampler:
    """Takes samples, and knows up to which MultiXact it has looked."""

    def __init__(self, prober: Prober) -> None:
        self._prober = prober
        self._last_multixact: int | None = None
        self._last_multixact_look = 0.0
        self._broken_multixacts = False

    def sample(self, texts: Texts) -> Sample:
        """Look once at who is busy; about once a second at new MultiXacts too. ``texts`` keeps what runs."""
        prober = self._prober
        found = prober.records("samples")
        if found:
            prober.set_clock(float(found[0]["at"]))
        # Where nobody is busy no row tells the time.
        at = float(found[0]["at"]) if found else prober.now()
        sessions = tuple(
            SampledSession(
                pid=one["pid"],
                state=one["state"],
                wait_type=one["wait_type"],
                wait_event=one["wait_event"],
                xid_age=one["xid_age"],
                xmin_age=one["xmin_age"],
                xact_age_s=one["xact_age_s"],
                query_age_s=one["query_age_s"],
                state_age_s=one["state_age_s"],
                text=texts.place(one["query"]),
                query_id=one["query_id"],
                vacuuming=one["vacuuming"],
                application=one["application"],
            )
            for one in found
        )
        multixacts, following = self._multixacts()
        return Sample(at=at, sessions=sessions, multixacts=multixacts, next_multixact=following)

    def _multixacts(self) -> tuple[tuple[rows.MultixactRow, ...], int | None]:
        """Look, about once a second, at some of the MultiXacts made since the last look."""
        prober, now = self._prober, time.monotonic()
        if now - self._last_multixact_look < 1.0 or self._broken_multixacts:
            return (), None
        self._last_multixact_look = now
        found = prober.session.records(
            "SELECT datminmxid::text::bigint + mxid_age(datminmxid) AS following "
            "FROM pg_database WHERE datname = current_database()"
        )
        following = int(found[0]["following"])
        before, self._last_multixact = self._last_multixact, following
        # The newest ids may not be written yet: reading one of them would wait for its maker.
        last = following - 2
        if before is None or last <= before:
            return (), following
        # Half of them spread over the second, half the newest: those have makers that still run and tell their database.
        half = MULTIXACTS_PER_LOOK // 2
        step = max(1, (last - before) // half)
        ids = sorted({*range(before, last + 1, step)[:half], *range(max(before, last - half + 1), last + 1)})
        try:
            made = prober.session.rows(
                rows.MultixactRow,
                probes.load("multixacts", prober.version),
                {"ids": ids},
                statement_timeout_ms=500,
            )
        except psycopg.errors.QueryCanceled:
            self._broken_multixacts = True
            return (), following
        except psycopg.Error:
            if prober.session.closed:
                raise
            return (), following
        return made, following
