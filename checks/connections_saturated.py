"""Nearly all connections of the server are taken.

When the last one is gone, workers that restart, migrations and monitoring cannot come in, and clients see "too many clients already". More
connections are seldom the cure: each idle one still costs memory and a place in every snapshot; a pooler shares few among many.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated

from pgqdoctor import remedy
from pgqdoctor.check import Check
from pgqdoctor.finding import Evidence, Finding, Severity
from pgqdoctor.observation import Observation
from pgqdoctor.queue import Queue
from pgqdoctor.words import count, percent, shortened


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """How full is too full."""

    used: Annotated[float, "share of the connections open to ordinary roles"] = 0.85
    critical_used: Annotated[float, "share from which one restarted worker pool may find no room"] = 0.95


def evaluate(seen: Observation, queue: Queue | None, limits: Limits) -> Iterator[Finding]:
    """Compare connections with those that ordinary roles may use, and tell what they do."""
    most = int(seen.catalog.setting("max_connections") or 0)
    reserved = int(seen.catalog.setting("superuser_reserved_connections") or 0) + int(
        seen.catalog.setting("reserved_connections") or 0
    )
    room = most - reserved
    taken = min(seen.first.database.backends, seen.last.database.backends)
    if room <= 0 or taken < limits.used * room:
        return
    severity: Severity = "critical" if taken >= limits.critical_used * room else "warning"
    clients = [row for row in seen.last.sessions if row.backend_type in (None, "client backend")]
    busy = sum(1 for row in clients if row.state == "active")
    in_transaction = sum(1 for row in clients if (row.state or "").startswith("idle in transaction"))
    evidence = [
        Evidence(what="connections", value=taken, unit="sessions", source="pg_stat_database.numbackends"),
        Evidence(
            what="open to ordinary roles",
            value=room,
            unit="sessions",
            source="max_connections less the reserved ones",
        ),
        Evidence(what="at a statement", value=busy, unit="sessions", source="pg_stat_activity"),
        Evidence(
            what="idle in transaction", value=in_transaction, unit="sessions", source="pg_stat_activity"
        ),
    ]
    for name, number in Counter(row.application for row in clients if row.application).most_common(2):
        evidence.append(
            Evidence(
                what=f"not idle, of {shortened(name, 40)}",
                value=number,
                unit="sessions",
                source="pg_stat_activity",
            )
        )
    yield Finding(
        check=CHECK.id,
        severity=severity,
        queue=None,
        title=(
            f"{count(taken)} connections are open and ordinary roles may use {count(room)} ({percent(taken / room)}): "
            f"{count(busy)} are at a statement, {count(in_transaction)} idle in transaction"
        ),
        why=(
            "A connection is a server process. When none is left, new clients are refused, workers that lost theirs among them. What is idle "
            "occupies a place all the same."
        ),
        evidence=tuple(evidence),
        remedies=(
            remedy.change_application(
                title="Put a pooler in transaction mode before the server, or give each process a smaller pool",
                risk="session state (LISTEN, session-level advisory locks, prepared statements by name) does not survive transaction pooling",
                expect="connections follow the number of statements that run at once, not the number of workers",
            ),
        ),
    )


CHECK = Check(
    title="Connections run out",
    needs=(),
    limits=Limits(),
    evaluate=evaluate,
    scope="server",
    references=(
        "https://www.postgresql.org/docs/current/runtime-config-connection.html#GUC-MAX-CONNECTIONS",
    ),
    look_alikes=("a burst of connections that is gone at the end of the window",),
)
