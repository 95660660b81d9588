"""Which texts of a queue's claims are explained, those that tell most first."""

from __future__ import annotations

from typing import Final

import psycopg

from pgqdoctor.discovery.seen import SeenText, query_id_of
from pgqdoctor.looks.look import LOOK_TIMEOUT_MS, QueueLook
from pgqdoctor.sqlread import read_sql, text_fingerprint

MOST_PLANS: Final = 3


def claim_texts(look: QueueLook, texts: tuple[SeenText, ...]) -> list[tuple[str, str]]:
    """Texts of claims, the busiest first: as they are known, and as a session sent them where one was seen.

    What a worker sent still has the constants that a normalised text has lost.
    """
    by_key = {one.key: one.text for one in texts}
    found = [look.identity.claim_sql] if look.identity.claim_sql else []
    keys = [key for key in look.identity.claim_keys if key in by_key]
    live = [by_key[key] for key in keys if key.startswith("text:")]
    rest = [by_key[key] for key in keys if not key.startswith("text:")]
    # A constant LIMIT may hide what a parameter in its place lets one think: that it is a claim at all.
    sent = {
        text_fingerprint(text): text
        for text in (*live, *_last_texts(look, keys))
        if any(statement.claims for statement in read_sql(text).statements)
    }
    chosen: dict[str, str] = {}
    for text in (*found, *rest, *live):
        chosen.setdefault(sent.get(text_fingerprint(text), text), text)
    return [(known, shown) for shown, known in chosen.items()][: MOST_PLANS * 2]


def parameter_texts(look: QueueLook, texts: tuple[SeenText, ...]) -> list[tuple[str, bool]]:
    """Texts of claims, each with whether it shows what is bound, those that do first."""
    by_key = {one.key: one.text for one in texts}
    keys = [key for key in look.identity.claim_keys if key in by_key]
    own = [(by_key[key], True) for key in keys if key.startswith("text:")]
    own += [(text, True) for text in _last_texts(look, keys)]
    if look.identity.claim_sql is not None and look.identity.claim_source in ("option", "framework"):
        own.insert(0, (look.identity.claim_sql, True))
    return own + [(by_key[key], False) for key in keys if not key.startswith("text:")]


def _last_texts(look: QueueLook, keys: list[str]) -> list[str]:
    """The texts as sessions sent them last: a claim of a millisecond is hardly ever caught running."""
    ids = [number for key in keys if (number := query_id_of(key)) is not None]
    if not ids:
        return []
    try:
        found = look.session.records(
            "SELECT DISTINCT ON (a.query_id) left(a.query, 8192) AS query FROM pg_stat_activity a "
            "WHERE a.query_id = ANY (%(ids)s::bigint[]) AND a.datname = current_database() AND a.query <> ''",
            {"ids": ids},
            statement_timeout_ms=look.budget.milliseconds(LOOK_TIMEOUT_MS),
        )
    except psycopg.Error:
        return []
    cut_at = look.catalog.activity_text_bytes
    return [one["query"] for one in found if not read_sql(one["query"], cut_at=cut_at).unread]
