"""Jobs are taken and let go again, by transactions that fail.

A worker that keeps the job's row locked while it works has only to roll back to give the job up: the row is as it was, no attempt is
counted, and being the oldest it is the next to be claimed. A few jobs that always fail then keep all workers
busy, claims run by the hundred, and nothing is done.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated

from pgqdoctor import claiming, remedy, taking
from pgqdoctor.check import ROWS, STATEMENTS, Check
from pgqdoctor.finding import Evidence, Finding
from pgqdoctor.observation import Observation
from pgqdoctor.queue import Queue
from pgqdoctor.words import count, duration, rate


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """When claims lead to nothing."""

    jobs: Annotated[int, "jobs taken in the window: fewer may still be at work when it ends"] = 20
    changed: Annotated[
        float, "ratio of rows changed or deleted to jobs taken, up to which the jobs are not finished"
    ] = 0.1
    rolled_back: Annotated[
        float, "ratio of rollbacks to claims: below it the transactions do not fail, they are long"
    ] = 0.5
    oldest_s: Annotated[
        float, "seconds that the oldest ready job has waited: a queue that keeps up has nothing to explain"
    ] = 60.0


def evaluate(seen: Observation, queue: Queue, limits: Limits) -> Iterator[Finding]:
    """Report claims by row lock after which nothing was changed and about as many transactions were rolled back."""
    taken, probe, churn = taking.taken(queue), queue.probe, queue.churn
    if not taken.known or taken.jobs < limits.jobs or probe is None or seen.seconds <= 0:
        return
    running = [one for one in queue.claims if one.seen.calls]
    # A claim that changes the row counts as a change also where it is rolled back, and one with NOWAIT fails by itself.
    if not running or any(one.seen.statement.writes for one in running) or queue.function_claims:
        return
    if any(one.claim.lock is not None and one.claim.lock.wait == "nowait" for one in running):
        return
    changed = churn.updated + churn.deleted
    failed = seen.last.database.rollbacks - seen.first.database.rollbacks
    oldest_s = probe.oldest_ready_age_s
    if changed > limits.changed * taken.jobs or failed < limits.rolled_back * taken.calls:
        return
    if not probe.ready_rows or oldest_s is None or oldest_s < limits.oldest_s:
        return
    claim = claiming.busiest(queue.claims)
    yield Finding(
        check=CHECK.id,
        severity="critical",
        queue=queue.name,
        title=(
            f"{rate(taken.jobs / seen.seconds)} jobs of {queue.name} are taken and let go again: {rate(failed / seen.seconds)} transactions "
            f"are rolled back, and {count(changed)} rows were changed while the oldest ready job is {duration(oldest_s)} late"
        ),
        why=(
            "The claim only locks the row. When the transaction that holds the lock fails the job is ready again at once, without a trace of "
            "the attempt, and as the oldest it is the next that anybody claims. Jobs behind it wait for it for ever."
        ),
        evidence=(
            Evidence(
                what="jobs taken", value=taken.jobs, unit="rows", source="pg_stat_statements, in the window"
            ),
            Evidence(
                what="rows changed or deleted",
                value=changed,
                unit="rows",
                source="pg_stat_user_tables, in the window",
            ),
            Evidence(
                what="rolled back",
                value=failed,
                unit="transactions",
                source="pg_stat_database, in the window, whole database",
            ),
            *((claiming.text_evidence(claim.seen),) if claim is not None else ()),
        ),
        remedies=(
            remedy.change_application(
                title=(
                    "Find in the workers' or the server's log why the work after the claim fails, and set a job aside after some attempts: "
                    "count the attempt in a transaction of its own, which commits before the work begins"
                ),
                expect="a job that always fails is tried a few times and then no longer stands before the others",
                risk="one more update per job; a worker that dies leaves the job marked, so it needs a lease",
            ),
        ),
        relations=(queue.oid,),
    )


CHECK = Check(
    title="Jobs are taken and let go again by transactions that fail",
    needs=(STATEMENTS, ROWS),
    limits=Limits(),
    evaluate=evaluate,
    references=("https://www.postgresql.org/docs/current/explicit-locking.html#LOCKING-ROWS",),
    look_alikes=(
        "long jobs: their claims are few, and they have not been finished yet",
        "a connection pool that rolls back after every read, also after a claim that finds nothing",
        "claims with NOWAIT that fail by themselves: claim-not-skip-locked tells",
        "workers that pass over jobs that are not theirs, while jobs are finished",
    ),
)
