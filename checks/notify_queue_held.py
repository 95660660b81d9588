"""The notification queue fills up because a listener does not read it.

Notifications wait in one queue for the whole server until every listening session has read them. A session reads when its transaction
ends: one that listens and stays in a transaction, or whose client is stuck, keeps all notifications since. When the
queue is full, every transaction that notifies fails at commit.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated

from pgqdoctor import remedy
from pgqdoctor.check import Check
from pgqdoctor.finding import Evidence, Finding, Remedy, Severity
from pgqdoctor.observation import Observation
from pgqdoctor.queue import Queue
from pgqdoctor.rows import SessionRow
from pgqdoctor.sqlread import read_sql
from pgqdoctor.words import duration, percent, shortened


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """When a filling notification queue is a fault."""

    used: Annotated[
        float,
        "share of the queue in use: notifications of a healthy listener are read within milliseconds and use none",
    ] = 0.01
    warning_used: Annotated[float, "share of the queue in use"] = 0.1
    critical_used: Annotated[float, "share from which the server itself warns in its log"] = 0.5
    left_s: Annotated[
        float, "seconds until it is full at the present rate: less than an hour is an emergency"
    ] = 3_600.0
    open_s: Annotated[float, "seconds a transaction must have been open to be suspected"] = 10.0


def evaluate(seen: Observation, queue: Queue | None, limits: Limits) -> Iterator[Finding]:
    """Report a queue that is used for longer than a moment, with the sessions that may hold it."""
    before, used = seen.first.database.notify_usage, seen.last.database.notify_usage
    if used is None or before is None or used < limits.used or before < limits.used or used < before:
        return
    growth = (used - before) / seen.seconds if seen.seconds > 0 else 0.0
    left = (1.0 - used) / growth if growth > 0 else None
    severity: Severity = "notice"
    if used >= limits.warning_used:
        severity = "warning"
    if used >= limits.critical_used or (left is not None and left < limits.left_s):
        severity = "critical"
    suspects = [
        row
        for row in seen.last.sessions
        if row.backend_type in (None, "client backend") and (row.xact_age_s or 0.0) >= limits.open_s
    ]
    listening = [row for row in suspects if _listens(row)]
    suspects = listening or suspects
    suspects.sort(key=lambda row: -(row.xact_age_s or 0.0))
    evidence = [
        Evidence(
            what="notification queue in use",
            value=round(used, 4),
            unit="ratio",
            source="pg_notification_queue_usage()",
        ),
        Evidence(
            what="growth",
            value=round(growth * 60, 5),
            unit="ratio per minute",
            source="pg_notification_queue_usage()",
        ),
    ]
    if left is not None:
        evidence.append(
            Evidence(what="time until it is full", value=round(left), unit="seconds", source="computed")
        )
    for row in suspects[:3]:
        evidence.append(
            Evidence(
                what="may hold it" if not listening else "listens in an open transaction",
                value=f"session {row.pid} ({shortened(row.application, 40)}, {row.state}, open {duration(row.xact_age_s or 0.0)})",
                unit="",
                source="pg_stat_activity",
            )
        )
    title = f"The notification queue of the server is {percent(used)} full"
    if left is not None:
        title += f" and will be full in {duration(left)}"
    if suspects:
        first = suspects[0]
        title += (
            f"; session {first.pid} ({shortened(first.application, 40)}) {'listens' if listening else 'may listen'} in a transaction "
            f"open for {duration(first.xact_age_s or 0.0)}"
        )
    yield Finding(
        check=CHECK.id,
        severity=severity,
        queue=None,
        title=title,
        why=(
            "Notifications stay in one queue of the whole server until every listening session has read them, and a session reads them only "
            "between its transactions. When the queue is full, each transaction that notifies fails."
        ),
        evidence=tuple(evidence),
        remedies=tuple(_remedies(suspects, sure=bool(listening))),
        pids=tuple(row.pid for row in suspects[:1]) if listening or len(suspects) == 1 else (),
    )


def _listens(row: SessionRow) -> bool:
    return bool(row.query) and any(one.kind == "listen" for one in read_sql(row.query or "").statements)


def _remedies(suspects: list[SessionRow], *, sure: bool) -> Iterator[Remedy]:
    if suspects and (sure or len(suspects) == 1):
        row = suspects[0]
        yield remedy.end_session(
            pid=row.pid,
            gently=False,
            title=f"End session {row.pid} ({shortened(row.application, 40)})",
            expect="pg_notification_queue_usage() falls to 0 with the next notification",
            risk="its transaction is rolled back, and its client loses the connection and the notifications since",
        )
    yield remedy.corrected_statement(
        sql=("LISTEN queue;", "-- committed at once; wait for notifications outside of any transaction"),
        title="Listen outside of transactions, on a connection that does nothing else",
        expect="notifications are read as they come and the queue stays empty",
    )


CHECK = Check(
    title="The notification queue fills up",
    needs=(),
    limits=Limits(),
    evaluate=evaluate,
    scope="server",
    references=("https://www.postgresql.org/docs/current/sql-notify.html",),
    look_alikes=("idle listeners", "a burst of notifications that is read within the window"),
)
