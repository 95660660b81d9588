"""Commits wait for a synchronous standby that does not answer.

With synchronous_standby_names set, a COMMIT returns when enough of the named standbys have confirmed it. If none of them is connected it
waits without end: the change is made and its locks are kept, so that workers stand still at whatever they
commit next, and nobody else sees the jobs as taken or finished. Nothing in the log says so.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated

from pgqdoctor import remedy
from pgqdoctor.check import Check
from pgqdoctor.finding import Evidence, Finding, Severity
from pgqdoctor.observation import Observation
from pgqdoctor.queue import Queue
from pgqdoctor.words import duration, plural

WAIT = "SyncRep"


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """When a wait is no standby's way across the network."""

    waiting_s: Annotated[
        float, "seconds that a commit has waited: a standby that is there answers in milliseconds"
    ] = 2.0
    critical_s: Annotated[
        float, "seconds from which on no answer is to be expected: ten times what a slow one would take"
    ] = 20.0


def evaluate(seen: Observation, queue: Queue | None, limits: Limits) -> Iterator[Finding]:
    """Report the commits that wait now, and for how long."""
    waits = sorted(
        (
            (row.query_age_s or 0.0, row.pid)
            for row in seen.last.sessions
            if row.state == "active" and row.wait_event == WAIT and row.backend_type == "client backend"
        ),
        reverse=True,
    )
    if not waits or waits[0][0] < limits.waiting_s:
        return
    longest, _ = waits[0]
    severity: Severity = "critical" if longest >= limits.critical_s else "warning"
    yield Finding(
        check=CHECK.id,
        severity=severity,
        queue=None,
        title=f"{plural(len(waits), 'commit')} {'waits' if len(waits) == 1 else 'wait'} for a synchronous standby, for {duration(longest)} by now",
        why=(
            "synchronous_standby_names asks standbys to confirm each commit, and none that is connected does. Until one does, the "
            "transactions keep their locks and nobody sees what they changed. A session that is cancelled or ended here has committed all "
            "the same: only the confirmation is given up."
        ),
        evidence=(
            Evidence(
                what="commits that wait",
                value=len(waits),
                unit="sessions",
                source="pg_stat_activity (IPC:SyncRep)",
            ),
            Evidence(
                what="the longest for", value=round(longest, 1), unit="seconds", source="pg_stat_activity"
            ),
        ),
        remedies=(
            remedy.statement(
                sql=(
                    "SELECT current_setting('synchronous_standby_names') AS asked, application_name, state, sync_state FROM "
                    "(SELECT 1) AS one LEFT JOIN pg_stat_replication ON true;",
                ),
                title="See which standbys are asked for and which are connected, and bring the missing one back",
                expect="the waiting commits return as soon as a standby that is asked for has confirmed them",
                risk="none: this only reads",
            ),
            remedy.change_setting(
                name="synchronous_standby_names",
                value="",
                settings=seen.catalog.settings,
                title="Or go on without a synchronous standby until it is back",
                expect="the waiting commits return at once",
                risk="what is committed from then on is lost if this server is lost before a standby has it",
            ),
        ),
        pids=tuple(pid for _, pid in waits),
    )


CHECK = Check(
    title="Commits wait for a synchronous standby",
    needs=(),
    limits=Limits(),
    evaluate=evaluate,
    scope="server",
    references=(
        "https://www.postgresql.org/docs/current/warm-standby.html#SYNCHRONOUS-REPLICATION",
        "https://www.postgresql.org/docs/current/runtime-config-replication.html#GUC-SYNCHRONOUS-STANDBY-NAMES",
    ),
    look_alikes=(
        "a standby that confirms: each commit waits for its way across the network, however many wait at a moment",
        "a walsender or a base backup that waits",
    ),
)
