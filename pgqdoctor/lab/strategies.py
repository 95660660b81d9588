"""The ways to claim a job that ``lab race`` compares, as scripts for pgbench. Pure.

Each claim writes the job, the worker and the worker's attempt number into the audit table in its own
transaction, inside the claiming statement: a claim is what committed, whatever the worker believes. The audit
table is unlogged and has no index, so a claim pays one heap insert for it and no round trip; ``make bench``
measures what that costs.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Literal

from pgqdoctor.lab.results import StrategyName
from pgqdoctor.lab.subject import PARTIAL, Subject

AUDIT: Final = (
    "CREATE UNLOGGED TABLE audit (job text NOT NULL, client integer NOT NULL, attempt integer NOT NULL)"
    " WITH (autovacuum_enabled = false)"
)
VARIABLES: Final[Mapping[str, str]] = {"n": "0"}
COUNTED: Final = "\\set n :n + 1\n"
"""pgbench keeps variables between a client's transactions: this is its attempt number, as its log has it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Strategy:
    """One way to claim.

    ``script`` is one attempt in pgbench's language; ``statements`` are what it sends on the way to a job, for
    EXPLAIN: ``{id}`` in one stands for the key that the one before returned. ``form`` are the indexes it is
    raced with; ``consumes`` says how its jobs leave the backlog.
    """

    name: StrategyName
    title: str
    script: str
    statements: tuple[str, ...]
    form: str
    consumes: Literal["update", "delete"] = "update"


def audited(claim: str, key: str) -> str:
    """One statement that claims and records; ``claim`` must return the column ``key``."""
    return f"WITH claimed AS (\n{claim}\n)\nINSERT INTO audit SELECT claimed.{key}::text, :client_id, :n FROM claimed;\n"


def strategies(subject: Subject, batch: int = 20) -> tuple[Strategy, ...]:
    """All strategies but the user's own, on ``subject``; ``batch`` is the size of a batch."""
    table, key, head, own = subject.table, subject.key, subject.head, subject.own_form
    take = f"UPDATE {table} SET {subject.taken} WHERE {key} = :job"
    unguarded, guarded = f"{take} RETURNING {key}", f"{take} AND {subject.ready} RETURNING {key}"
    look = f"{COUNTED}\\set job {subject.no_key}\n{_as_job(head, key)} \\aset\n"
    locked = f"{head} FOR UPDATE"
    # Materialised: a plain sub-select could be executed more than once and lock more rows than it returns.
    picked = (
        f"picked AS MATERIALIZED (SELECT {key} FROM {table} WHERE {subject.ready} ORDER BY {subject.order}"
        f" LIMIT {batch} FOR UPDATE SKIP LOCKED)"
    )
    take_all = f"UPDATE {table} SET {subject.taken} FROM picked WHERE {table}.{key} = picked.{key} RETURNING {table}.{key}"
    delete = f"DELETE FROM {table} WHERE {key} = ({head} FOR UPDATE SKIP LOCKED) RETURNING {key}"
    skip = COUNTED + audited(subject.claim, key)
    return (
        Strategy(
            name="naive",
            title="SELECT, then UPDATE by key",
            script=look + audited(unguarded, key),
            statements=(head, _explained(unguarded)),
            form=own,
        ),
        Strategy(
            name="guarded",
            title="SELECT, then UPDATE by key if still ready",
            script=look + audited(guarded, key),
            statements=(head, _explained(guarded)),
            form=own,
        ),
        Strategy(
            name="for-update",
            title="SELECT ... FOR UPDATE, then UPDATE",
            script=f"{COUNTED}\\set job {subject.no_key}\nBEGIN;\n{_as_job(locked, key)} \\aset\n"
            f"{audited(unguarded, key)}COMMIT;\n",
            statements=(locked, _explained(unguarded)),
            form=own,
        ),
        Strategy(
            name="skip-locked",
            title="UPDATE of a FOR UPDATE SKIP LOCKED sub-select",
            script=skip,
            statements=(subject.claim,),
            form=own,
        ),
        Strategy(
            name="skip-locked-indexed",
            title="SKIP LOCKED and a partial index on the ready jobs",
            script=skip,
            statements=(subject.claim,),
            form=PARTIAL,
        ),
        Strategy(
            name="batch",
            title=f"SKIP LOCKED, {batch} jobs at once, partial index",
            script=f"{COUNTED}WITH {picked},\nclaimed AS ({take_all})\n"
            f"INSERT INTO audit SELECT claimed.{key}::text, :client_id, :n FROM claimed;\n",
            statements=(f"WITH {picked} {take_all}",),
            form=PARTIAL,
        ),
        Strategy(
            name="delete",
            title="DELETE ... RETURNING of a SKIP LOCKED sub-select",
            script=COUNTED + audited(delete, key),
            statements=(delete,),
            form=own,
            consumes="delete",
        ),
    )


def _as_job(select: str, key: str) -> str:
    """The query with its key named as pgbench's variable."""
    return select.replace(f"SELECT {key} ", f"SELECT {key} AS job ", 1)


def _explained(statement: str) -> str:
    return statement.replace(":job", "{id}")
