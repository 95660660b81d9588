"""Statement texts as sessions show them: those that were running, and those that were sent last."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

import psycopg

from pgqdoctor.collecting.prober import Prober
from pgqdoctor.discovery.seen import SeenText, query_id_of

MAX_TEXTS: Final = 400
"""Distinct texts kept from sessions: without query ids literals would make every execution a new one."""
MAX_SENT: Final = 50
"""Statements kept as sessions sent them, with their constants: a queue has a handful of claims, each for a few states."""


@dataclass(slots=True)
class Texts:
    """Texts seen in sessions, each kept once."""

    places: dict[str, int] = field(default_factory=dict)

    def place(self, text: str | None) -> int:
        """Return the position of a text, kept from now on; -1 for none, and where there is no more room."""
        if not text:
            return -1
        if text not in self.places:
            if len(self.places) >= MAX_TEXTS:
                return -1
            self.places[text] = len(self.places)
        return self.places[text]


class SentTexts:
    """The claim-shaped statements as sessions sent them last: idle ones still show the constants that normalised texts lost."""

    def __init__(self, prober: Prober) -> None:
        self._prober = prober
        self._kept: dict[str, None] = {}

    def read(self, texts: tuple[SeenText, ...]) -> tuple[str, ...]:
        """Look for the claims among ``texts`` once more; return the latest of all that were found."""
        prober = self._prober
        ids = {
            number
            for one in texts
            if one.source == "pg_stat_statements"
            and (number := query_id_of(one.key)) is not None
            and any(statement.claims for statement in one.read().statements)
        }
        if ids and not prober.session.closed:
            try:
                found = prober.records("sent_texts", {"ids": sorted(ids), "limit": MAX_SENT})
            except psycopg.Error as error:
                prober.recover(error)
            else:
                self._kept.update((str(one["query"]), None) for one in found)
        self._kept = dict.fromkeys(tuple(self._kept)[-MAX_SENT:])
        return tuple(self._kept)
