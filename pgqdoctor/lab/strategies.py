"""The ways to claim a job that ``lab race`` compares, as scripts for pgbench. Pure.

Each claim writes the job, the worker and the worker's attempt number into the audit table in its own
transaction, inside the claiming statement wherever that can be: a claim is what committed, whatever the worker
believes. The audit table is unlogged and has no index, so it costs one heap insert, and no round trip.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from pgqdoctor.lab.results import StrategyName

TABLE: Final = """
CREATE TABLE jobs (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    state text NOT NULL DEFAULT 'ready',
    attempts integer NOT NULL DEFAULT 0,
    worker integer,
    claimed_at timestamptz,
    payload text NOT NULL
) WITH (autovacuum_enabled = false);
"""
"""Autovacuum looks once a minute: it would come into some cells of a race and not into others."""
AUDIT: Final = """
CREATE UNLOGGED TABLE audit (job text NOT NULL, client integer NOT NULL, attempt integer NOT NULL)
WITH (autovacuum_enabled = false);
"""
FILL: Final = "INSERT INTO jobs (payload) SELECT repeat('x', 100) FROM generate_series(1, {jobs});"
CONSUME_HALF: Final = (
    "UPDATE jobs SET state = 'running', attempts = 1, worker = 0, claimed_at = now() WHERE id <= {half};"
)
READY: Final = "SELECT EXISTS (SELECT FROM (SELECT FROM jobs WHERE state = 'ready' ORDER BY id DESC LIMIT 1) AS one)"
"""Whether a job is left, asked from the end of the queue, where the last ones are: it must not walk the consumed."""
VARIABLES: Final[Mapping[str, str]] = {"n": "0"}
COUNTED: Final = "\\set n :n + 1\n"
"""pgbench keeps variables between a client's transactions: this is its attempt number, as its log has it."""

_READY_INDEX: Final = "CREATE INDEX jobs_ready_idx ON jobs (id) WHERE state = 'ready';"
_SET: Final = "state = 'running', attempts = attempts + 1, worker = :client_id, claimed_at = now()"
_HEAD: Final = "SELECT id FROM jobs WHERE state = 'ready' ORDER BY id LIMIT 1"


@dataclass(frozen=True, slots=True, kw_only=True)
class Strategy:
    """One way to claim.

    ``script`` is one attempt in pgbench's language; ``statements`` are what it sends on the way to a job, for
    EXPLAIN: ``{id}`` in one stands for the id that the one before returned.
    """

    name: StrategyName
    title: str
    script: str
    statements: tuple[str, ...]
    table: str = TABLE
    fill: str = FILL
    ready: str = READY
    indexes: str = ""
    consume: str = CONSUME_HALF
    """How half of the queue was consumed before the claim's buffers are counted."""


def audited(claim: str) -> str:
    """One statement that claims and records; ``claim`` must return the column ``id``."""
    return (
        f"WITH claimed AS ({claim})\nINSERT INTO audit SELECT id::text, :client_id, :n FROM claimed;\n"
    )


def _skip_locked() -> str:
    return f"UPDATE jobs SET {_SET} WHERE id = ({_HEAD} FOR UPDATE SKIP LOCKED) RETURNING id"


def _batch(size: int) -> tuple[str, str]:
    # Materialised: a plain sub-select could be executed more than once and lock more rows than it returns.
    return (
        "picked AS MATERIALIZED (SELECT id FROM jobs WHERE state = 'ready' ORDER BY id "
        f"LIMIT {size} FOR UPDATE SKIP LOCKED)",
        f"UPDATE jobs SET {_SET} FROM picked WHERE jobs.id = picked.id RETURNING jobs.id",
    )


def _explained(statement: str) -> str:
    return statement.replace(":client_id", "0")


def strategies(batch: int = 20) -> tuple[Strategy, ...]:
    """All strategies but the user's own; ``batch`` is the size of a batch."""
    unguarded = f"UPDATE jobs SET {_SET} WHERE id = :id RETURNING id"
    guarded = f"UPDATE jobs SET {_SET} WHERE id = :id AND state = 'ready' RETURNING id"
    look = f"{COUNTED}\\set id 0\n{_HEAD} \\aset\n"
    locked = f"{_HEAD} FOR UPDATE"
    skip = _skip_locked()
    picked, take = _batch(batch)
    delete = (
        "DELETE FROM jobs WHERE id = (SELECT id FROM jobs ORDER BY id LIMIT 1 FOR UPDATE SKIP LOCKED) RETURNING id"
    )
    return (
        Strategy(
            name="naive",
            title="SELECT, then UPDATE by id",
            script=look + audited(unguarded),
            statements=(_HEAD, _explained(unguarded).replace(":id", "{id}")),
        ),
        Strategy(
            name="guarded",
            title="SELECT, then UPDATE by id if still ready",
            script=look + audited(guarded),
            statements=(_HEAD, _explained(guarded).replace(":id", "{id}")),
        ),
        Strategy(
            name="for-update",
            title="SELECT ... FOR UPDATE, then UPDATE",
            script=f"{COUNTED}\\set id 0\nBEGIN;\n{locked} \\aset\n{audited(unguarded)}COMMIT;\n",
            statements=(locked, _explained(unguarded).replace(":id", "{id}")),
        ),
        Strategy(
            name="skip-locked",
            title="UPDATE of a FOR UPDATE SKIP LOCKED sub-select",
            script=COUNTED + audited(skip),
            statements=(_explained(skip),),
        ),
        Strategy(
            name="skip-locked-indexed",
            title="SKIP LOCKED and a partial index on the ready jobs",
            script=COUNTED + audited(skip),
            statements=(_explained(skip),),
            indexes=_READY_INDEX,
        ),
        Strategy(
            name="batch",
            title=f"SKIP LOCKED, {batch} jobs at once, partial index",
            script=f"{COUNTED}WITH {picked},\nclaimed AS ({take})\n"
            "INSERT INTO audit SELECT id::text, :client_id, :n FROM claimed;\n",
            statements=(f"WITH {picked} {_explained(take)}",),
            indexes=_READY_INDEX,
        ),
        Strategy(
            name="delete",
            title="DELETE ... RETURNING of a SKIP LOCKED sub-select",
            script=COUNTED + audited(delete),
            statements=(delete,),
            consume="DELETE FROM jobs WHERE id <= {half};",
        ),
    )
