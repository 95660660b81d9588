"""What every bounded look shares: the connection, the queue, the time that is left, and what could not be seen.

Nothing here may cost more than a claim does. Before a look at rows runs, plain EXPLAIN tells what it would cost, and what
would cost more than the limit, or could run a user's code, is skipped and said so.
"""

from __future__ import annotations

import json
import time
from typing import Any, Final

import psycopg
from psycopg import sql

from pgqdoctor.connect import Link, Session, one_line, quote
from pgqdoctor.observation import Catalog, Lack, QueueIdentity
from pgqdoctor.sqltext import marked
from pgqdoctor.usercode import user_code

MOST_COST: Final = 4_000.0
"""Planner cost up to which a look is taken: about 4,000 sequential pages, 32 MB, which a server reads from
its cache in some ten milliseconds.
"""
LOOK_TIMEOUT_MS: Final = 400
EXPLAIN_TIMEOUT_MS: Final = 1_000
"""A claim that does not find its job within a second is a diagnosis of its own."""


class Budget:
    """Seconds left for all looks together; the report is due soon after the window."""

    def __init__(self, seconds: float) -> None:
        self._until = time.monotonic() + seconds

    @property
    def spent(self) -> bool:
        """True once the time is used up."""
        return time.monotonic() >= self._until

    def milliseconds(self, most: int) -> int:
        """Return a statement timeout within what is left (at least 50 ms)."""
        return max(50, min(most, int((self._until - time.monotonic()) * 1000)))


class QueueLook:
    """One queue being looked at: what the looks need, and what they could not see."""

    def __init__(
        self, session: Session, link: Link, catalog: Catalog, identity: QueueIdentity, budget: Budget
    ) -> None:
        self.session = session
        self.link = link
        self.catalog = catalog
        self.identity = identity
        self.budget = budget
        self.columns = {row.name: row for row in catalog.columns_of(identity.oid)}
        self.table = sql.Identifier(identity.schema, identity.table)
        self.path = (identity.schema, *link.search_path)
        """The search_path that a look's statement runs with."""
        self._lacks: list[Lack] = []

    @property
    def lacks(self) -> tuple[Lack, ...]:
        """What could not be seen so far, and why."""
        return tuple(self._lacks)

    @property
    def estimated_rows(self) -> float:
        """Rows of the table with its partitions, as the planner's statistics have them."""
        return sum(max(leaf.rows, 0.0) for leaf in self.catalog.partitions_of(self.identity.oid))

    def is_mine(self, table: str) -> bool:
        """Tell whether a name is the queue's table or one of its partitions."""
        return table == self.identity.table or any(
            leaf.name == table for leaf in self.catalog.partitions_of(self.identity.oid)
        )

    def lack(self, what: str, reason: str, grant: str | None = None) -> None:
        """Note something that could not be seen."""
        self._lacks.append(Lack(what=what, reason=reason, grant=grant, queue=self.identity.name))

    def failed(self, what: str, error: psycopg.Error) -> None:
        """Note that the server refused a look."""
        if isinstance(error, psycopg.errors.LockNotAvailable):
            self.lack(what, f"{self.identity.name} is locked")
        elif isinstance(error, psycopg.errors.QueryCanceled):
            self.lack(what, f"looking at {what} took longer than the doctor allows itself")
        elif isinstance(error, psycopg.errors.UndefinedTable):
            self.lack(what, f"{self.identity.name} was dropped during the observation")
        elif isinstance(error, psycopg.errors.InsufficientPrivilege):
            grant = f"GRANT SELECT ON {self.identity.name} TO {quote(self.link.server.role)}"
            self.lack(what, one_line(error), grant)
        else:
            self.lack(what, one_line(error))

    def unsafe(self, text: str, *, execute: bool, writes: bool = False) -> str | None:
        """Say what of users' code planning (or executing) a statement could run, None for nothing."""
        try:
            reached = user_code(
                self.session, text, self.path, timeout_ms=self.budget.milliseconds(LOOK_TIMEOUT_MS)
            )
        except ValueError as error:
            return f"what it calls could not be read: {error}"
        found = reached.executing(writes=writes) if execute else reached.planning(writes=writes)
        return str(found) if found is not None else None

    def bounded(self, what: str, query: sql.Composed) -> list[dict[str, Any]] | None:
        """Run a look that plain EXPLAIN finds cheap enough."""
        if self.budget.spent:
            self.lack(what, "the time for bounded looks was used up")
            return None
        try:
            if (why := self.unsafe(query.as_string(), execute=True)) is not None:
                self.lack(what, f"looking at {what} jobs was left out: {why}")
                return None
            with self.session.transaction(
                statement_timeout_ms=self.budget.milliseconds(LOOK_TIMEOUT_MS),
                search_path=self.path,
                local={"max_parallel_workers_per_gather": "0", "jit": "off"},
            ) as cursor:
                cursor.execute(sql.SQL("EXPLAIN (FORMAT JSON) ") + query)
                cost = float(plan_document(cursor.fetchone())[0]["Plan"]["Total Cost"])
                if cost > MOST_COST:
                    self.lack(
                        what,
                        f"looking at {what} jobs of {self.identity.name} would cost {cost:,.0f} planner units, the limit is {MOST_COST:,.0f}: "
                        "no index serves it",
                    )
                    return None
                cursor.execute(marked(query.as_string()).encode())
                return cursor.fetchall()
        except psycopg.Error as error:
            self.failed(what, error)
            return None


def plan_document(row: dict[str, Any] | None) -> Any:
    """Return what EXPLAIN (FORMAT JSON) returned as its one row, decoded."""
    if row is None:
        raise psycopg.DataError("EXPLAIN returned nothing")
    value = next(iter(row.values()))
    return json.loads(value) if isinstance(value, str) else value
