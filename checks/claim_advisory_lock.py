"""An advisory lock is taken for each row that the claim looks at.

A function such as pg_try_advisory_lock(id) in WHERE is evaluated for every row that the scan meets before it,
not for the one row that is returned. Where the rows are sorted afterwards, every ready job is locked; the
session keeps all those locks, and the other workers find nothing. The function belongs on the one row already
chosen.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated

from pgqdoctor import claiming, remedy, sqlcorrect
from pgqdoctor.check import CLAIMS, STATEMENTS, Check
from pgqdoctor.finding import Evidence, Finding, Remedy, Severity
from pgqdoctor.lint import claims as lint_claims
from pgqdoctor.observation import Observation
from pgqdoctor.queue import Queue, SeenClaim
from pgqdoctor.words import count, shortened


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """When the locks do harm."""

    locks: Annotated[
        int, "advisory locks of one session: a worker that holds one for each job it runs has a few"
    ] = 20
    critical_locks: Annotated[
        int, "advisory locks of one session, from which the server's shared lock table is at risk as well"
    ] = 1_000


def evaluate(seen: Observation, queue: Queue, limits: Limits) -> Iterator[Finding]:
    """Report a lock function in the scanned WHERE: as harm where its locks pile up or the plan sorts behind
    it."""
    risky = [one for one in queue.claims if one.claim.advisory and one.seen.seen]
    if not risky:
        return
    one = risky[0]
    pid, held = _most_locks(seen)
    sorted_after = _sorted_after(queue, one)
    if held < limits.locks and not sorted_after:
        return
    severity: Severity = (
        "critical" if held >= limits.critical_locks else "warning" if held >= limits.locks else "notice"
    )
    function = one.claim.advisory[0]
    many = (
        f"session {pid} holds {count(held)} advisory locks"
        if held >= limits.locks
        else "its plan sorts after the function has been called"
    )
    evidence = [
        claiming.text_evidence(one.seen),
        Evidence(what="advisory locks of one session", value=held, unit="locks", source="pg_locks"),
    ]
    plan = queue.plan
    if plan is not None and plan.facts.filter is not None:
        evidence.append(
            Evidence(
                what="evaluated for each row",
                value=shortened(plan.facts.filter, 200),
                unit="",
                source="EXPLAIN",
            )
        )
    yield Finding(
        check=CHECK.id,
        severity=severity,
        queue=queue.name,
        title=f"The claim of {queue.name} calls {function} for each row it scans: {many}",
        why=(
            "A function in WHERE runs for each row that reaches it. With a sort above, that is every ready job: all are locked and one is returned. "
            "Session locks stay until they are released one by one or the session ends."
        ),
        evidence=tuple(evidence),
        remedies=tuple(_remedies(queue, one)),
        pids=(pid,) if pid is not None and held >= limits.locks else (),
        relations=(queue.oid,),
    )


def _most_locks(seen: Observation) -> tuple[int | None, int]:
    held = Counter(row.pid for row in seen.last.locks if row.locktype == "advisory" and row.granted)
    if not held:
        return None, 0
    pid, number = held.most_common(1)[0]
    return pid, number


def _sorted_after(queue: Queue, one: SeenClaim) -> bool:
    plan = queue.plan
    if plan is None or plan.facts.filter is None:
        return False
    called = any(name in plan.facts.filter for name in one.claim.advisory)
    return called and plan.facts.sort is not None and not plan.facts.sort.incremental


def _remedies(queue: Queue, one: SeenClaim) -> Iterator[Remedy]:
    text = sqlcorrect.without_advisory(one.seen.statement.text, one.claim)
    sql = claiming.printed(queue, text) if text is not None else claiming.composed_claim(queue)
    if sql is not None:
        yield remedy.corrected_statement(
            sql=(sql,),
            title="Let SKIP LOCKED choose the row, and mark it as taken in the same transaction",
            expect=f"one row is locked, and its lock ends with the transaction.{claiming.with_parameters(sql)}",
            risk="a change of the application: a lock that has to outlast the transaction becomes a state or a lease in the row",
        )


CHECK = Check(
    title="An advisory lock is taken for each row scanned",
    needs=(STATEMENTS, CLAIMS),
    limits=Limits(),
    evaluate=evaluate,
    lint=lint_claims.advisory_lock,
    references=("https://www.postgresql.org/docs/current/explicit-locking.html#ADVISORY-LOCKS",),
    look_alikes=(
        "a lock function on the one row that an inner LIMIT 1 has chosen",
        "an ordered scan whose LIMIT stops at the first lock that is got",
        "advisory locks for migrations or leaders",
    ),
)
