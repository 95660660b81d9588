"""``lab race``: ways to claim a job, measured against each other by number of workers."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, cast

from pgqdoctor.errors import PgqdoctorError
from pgqdoctor.lab.ground import Connection, Ground, one_value, run_sql
from pgqdoctor.lab.pgbench import Bench, Work
from pgqdoctor.lab.results import RaceResult
from pgqdoctor.lab.saved import Notebook
from pgqdoctor.lab.statistics import tally
from pgqdoctor.lab.strategies import AUDIT, VARIABLES, Strategy
from pgqdoctor.lab.subject import Subject

WORKERS = (1, 2, 5, 10, 25, 50, 100)
JOBS = 10_000
LIMIT_S = 60.0
QUICK_WORKERS = (1, 2, 10, 25)
QUICK_JOBS = 3_000
QUICK_LIMIT_S = 8.0

Say = Callable[[int, int, str], None]
"""Told before each cell: how many are done, how many there are, and what comes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RaceOptions:
    """What to race. ``limit_s`` ends a cell whose queue is not empty by then."""

    subject: Subject
    strategies: tuple[Strategy, ...]
    workers: tuple[int, ...] = WORKERS
    jobs: int = JOBS
    limit_s: float = LIMIT_S

    @property
    def probed_jobs(self) -> int:
        """Jobs of the queue on which a claim's buffers are counted: that needs one claim, so a long queue costs nothing.

        A copy that has rows of other states beside each ready one keeps to the race's own length.
        """
        return self.jobs if self.subject.others else max(self.jobs, JOBS)

    def described(self) -> Mapping[str, str]:
        """As recorded, and as compared by --resume."""
        return {
            "table": self.subject.title,
            "strategies": ", ".join(one.name for one in self.strategies),
            "workers": ", ".join(map(str, self.workers)),
            "jobs": str(self.jobs),
            "limit": f"{self.limit_s:g}s",
        }

    def scripts(self) -> Mapping[str, str]:
        """The table, and what each strategy runs."""
        table = {name: text for name, text in self.subject.scripts().items() if not name.startswith("life")}
        return {**table, **{one.name: f"-- {one.title}\n{one.script}" for one in self.strategies}}


def race(
    ground: Ground, options: RaceOptions, notebook: Notebook[RaceResult], say: Say
) -> Iterator[RaceResult]:
    """Measure each strategy at each number of workers; cells that ``notebook`` holds are not measured again.

    Raises PgqdoctorError where the server has no room for the workers, or where a claim fails.
    """
    ground.require_workers(max(options.workers))
    cells = [(strategy, workers) for strategy in options.strategies for workers in options.workers]
    buffers: dict[str, float] = {}
    with Bench(ground.binaries) as bench:
        for done, (strategy, workers) in enumerate(cells):
            key = f"{strategy.name}/{workers}"
            known = notebook.get(key)
            if known is not None:
                buffers[strategy.name] = known.buffers_per_claim
                yield known
                continue
            say(done, len(cells), f"{strategy.name}, {workers} worker{'s' if workers > 1 else ''}")
            if strategy.name not in buffers:
                buffers[strategy.name] = half_consumed_buffers(
                    ground, options.subject, strategy, options.probed_jobs
                )
            result = _cell(ground, bench, strategy, workers, options, buffers[strategy.name])
            notebook.add(key, result)
            yield result
        say(len(cells), len(cells), "")


def prepare(ground: Ground, subject: Subject, form: str, jobs: int) -> None:
    """Make the queue with ``form`` of its indexes, and its audit, anew."""
    with ground.connect() as connection:
        run_sql(connection, "DROP TABLE IF EXISTS audit")
        run_sql(connection, AUDIT)
        subject.make(connection, fillfactor=subject.fillfactor, form=form, autovacuum=False)
        subject.add_jobs(connection, jobs)
        run_sql(connection, f"VACUUM ANALYZE {subject.table}")
        if ground.embedded:
            # One that begins during a cell would charge its writes to whoever runs then.
            run_sql(connection, "CHECKPOINT")


def half_consumed_buffers(ground: Ground, subject: Subject, strategy: Strategy, jobs: int) -> float:
    """Pages one claim touches on a queue of which one statement has just consumed half; rolled back.

    That is the state of a queue whose dead rows cannot be pruned yet, as under any older snapshot. The
    strategy's own indexes come last, as a cure comes to a queue that is in use.
    """
    consume = subject.claim_first if strategy.consumes == "update" else subject.delete_first
    with ground.connect() as connection:
        subject.make(connection, fillfactor=subject.fillfactor, form=subject.own_form, autovacuum=False)
        subject.add_jobs(connection, jobs)
        run_sql(connection, f"VACUUM ANALYZE {subject.table}")
        run_sql(connection, consume(jobs // 2))
        run_sql(connection, f"ANALYZE {subject.table}")
        if strategy.form != subject.own_form:
            subject.index(connection, strategy.form)
        run_sql(connection, "BEGIN")
        try:
            return float(sum(_explained(connection, subject, strategy)))
        finally:
            run_sql(connection, "ROLLBACK")


def _explained(connection: Connection, subject: Subject, strategy: Strategy) -> Iterator[int]:
    found: object = subject.no_key
    for place, statement in enumerate(strategy.statements):
        text = statement.replace("{id}", f"'{found}'")
        # The plan before the key itself: asked the other way round, what was touched would be marked already.
        yield touched(explain(connection, text))
        if place + 1 < len(strategy.statements):
            found = one_value(connection, text) or subject.no_key


def explain(connection: Connection, statement: str) -> Mapping[str, Any]:
    """The plan node at the top of an executed statement."""
    found = one_value(connection, f"EXPLAIN (ANALYZE, BUFFERS, TIMING OFF, FORMAT JSON) {statement}")
    return cast("Mapping[str, Any]", found[0]["Plan"])


def touched(plan: Mapping[str, Any]) -> int:
    """Shared pages hit and read below a plan node; those of planning are not part of it."""
    return int(plan.get("Shared Hit Blocks", 0)) + int(plan.get("Shared Read Blocks", 0))


def _left(subject: Subject) -> str:
    """Whether a job is left, asked from the end of the queue: from its head it would walk the consumed ones."""
    order = ", ".join(f"{part} DESC" for part in subject.order.split(", "))
    return (
        f"SELECT EXISTS (SELECT FROM (SELECT FROM {subject.table} WHERE {subject.ready}"
        f" ORDER BY {order} LIMIT 1) AS one)"
    )


def _cell(
    ground: Ground, bench: Bench, strategy: Strategy, workers: int, options: RaceOptions, buffers: float
) -> RaceResult:
    subject = options.subject
    prepare(ground, subject, strategy.form, options.jobs)
    before = pages_touched(ground)
    work = Work(script=strategy.script, clients=workers, variables=VARIABLES)
    drained = False
    left = _left(subject)
    with ground.connect() as watcher:

        def empty() -> bool:
            nonlocal drained
            drained = not one_value(watcher, left)
            return drained

        outcome = bench.run(ground.conninfo, work, longest_s=options.limit_s, until=empty)
        drained = drained or empty()
    after = pages_touched(ground)
    with ground.connect() as connection:
        rows = connection.execute("SELECT client, attempt, job FROM audit").fetchall()
    if not rows:
        raise PgqdoctorError(
            f"the claim {strategy.name} got no job of {options.jobs} in {outcome.transactions} attempts"
        )
    distinct = len({str(row[2]) for row in rows})
    won = {(int(row[0]), int(row[1])) for row in rows}
    counted = tally(outcome.attempts, won)
    seconds = max(counted.seconds, 1e-6)
    return RaceResult(
        strategy=strategy.name,
        workers=workers,
        jobs=options.jobs,
        claims_per_s=len(rows) / seconds,
        distinct_jobs_per_s=distinct / seconds,
        duplicate_claims=len(rows) - distinct,
        wasted_attempts=counted.wasted + outcome.failed,
        p50_ms=counted.claim.p50_ms,
        p95_ms=counted.claim.p95_ms,
        p99_ms=counted.claim.p99_ms,
        buffers_per_claim=buffers,
        buffers_jobs=options.probed_jobs,
        job_p50_ms=counted.job.p50_ms,
        job_p95_ms=counted.job.p95_ms,
        job_p99_ms=counted.job.p99_ms,
        run_buffers_per_claim=max(0, after - before) / len(rows),
        claims=len(rows),
        distinct_jobs=distinct,
        wins=counted.wins,
        seconds=counted.seconds,
        drained=drained,
    )


def pages_touched(ground: Ground) -> int:
    """Pages of the queue's table and indexes touched so far, by sessions that have ended."""
    with ground.counting() as connection:
        found = one_value(
            connection,
            "SELECT coalesce(sum(coalesce(heap_blks_hit, 0) + coalesce(heap_blks_read, 0)"
            " + coalesce(idx_blks_hit, 0) + coalesce(idx_blks_read, 0)), 0)::bigint"
            " FROM pg_statio_all_tables WHERE schemaname = current_schema() AND relname <> 'audit'",
        )
    return int(found)
