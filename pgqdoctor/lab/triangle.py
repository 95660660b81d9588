"""``lab triangle``: what a table's fillfactor and indexes cost its updates, its claims and its size.

Three things pull against each other: a claim wants a partial index, an update wants to be HOT (no indexed
column changed, predicates of partial indexes included, and room on the page), and room on the page makes the
table larger. Each design is measured on its own.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from pgqdoctor.lab.ground import Connection, Ground, one_value, run_sql
from pgqdoctor.lab.pgbench import Bench, Work
from pgqdoctor.lab.race import explain, touched
from pgqdoctor.lab.results import Growth, TriangleResult
from pgqdoctor.lab.saved import Notebook
from pgqdoctor.lab.statistics import percentiles
from pgqdoctor.lab.subject import NONE, OWN, Subject, regclass

FILLFACTORS: Final = (100, 85, 70)
JOBS: Final = 1_000
STEADY_S: Final = 20.0
QUICK_FILLFACTORS: Final = (100, 70)
QUICK_STEADY_S: Final = 6.0
WORKERS: Final = 4
GROWTH_SAMPLES: Final = 20
NAPTIME_S: Final = 2
"""Autovacuum's pause on the embedded server: in twenty seconds it must come several times, as it does in hours."""

Say = Callable[[int, int, str], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class TriangleOptions:
    """What to measure. ``jobs`` is the number of updates of the exact part and the backlog of the steady one."""

    subject: Subject
    fillfactors: tuple[int, ...] = FILLFACTORS
    index_forms: tuple[str, ...]
    jobs: int = JOBS
    workers: int = WORKERS
    steady_s: float = STEADY_S

    def described(self) -> Mapping[str, str]:
        """As recorded, and as compared by --resume."""
        return {
            "table": self.subject.title,
            "fillfactors": ", ".join(map(str, self.fillfactors)),
            "indexes": ", ".join(self.index_forms),
            "jobs": str(self.jobs),
            "workers": str(self.workers),
            "steady": f"{self.steady_s:g}s",
        }

    def scripts(self) -> Mapping[str, str]:
        """The table, its index forms and its life."""
        return self.subject.scripts()


def triangle(
    ground: Ground, options: TriangleOptions, notebook: Notebook[TriangleResult], say: Say
) -> Iterator[TriangleResult]:
    """Measure each design; cells that ``notebook`` holds are not measured again."""
    ground.require_workers(options.workers)
    designs = [(form, fillfactor) for form in options.index_forms for fillfactor in options.fillfactors]
    with Bench(ground.binaries) as bench:
        for done, (form, fillfactor) in enumerate(designs):
            name = design_name(options.subject, fillfactor, form)
            known = notebook.get(name)
            if known is None:
                say(done, len(designs), name)
                known = _design(ground, bench, options, form, fillfactor)
                notebook.add(name, known)
            yield known
        say(len(designs), len(designs), "")


def design_name(subject: Subject, fillfactor: int, form: str) -> str:
    """How a design is called: "default", "fillfactor 70", "fillfactor 70, partial index"."""
    if form == OWN:
        indexes = "own indexes"
    elif form != NONE:
        indexes = f"{form} index"
    else:
        indexes = "keys only" if subject.own_form == OWN else ""
    room = f"fillfactor {fillfactor}" if fillfactor != 100 else ""
    return ", ".join(part for part in (room, indexes) if part) or "default"


def _design(
    ground: Ground, bench: Bench, options: TriangleOptions, form: str, fillfactor: int
) -> TriangleResult:
    updates, hot, newpage = _at_once(ground, options, form, fillfactor)
    single_updates, single_hot = _one_by_one(ground, bench, options, form, fillfactor)
    buffers = _claim_buffers(ground, options, form, fillfactor)
    steady = _steady(ground, bench, options, form, fillfactor)
    return TriangleResult(
        design=design_name(options.subject, fillfactor, form),
        fillfactor=fillfactor,
        indexes=steady.indexes,
        jobs=options.jobs,
        updates=updates,
        hot_updates=hot,
        newpage_updates=newpage,
        single_updates=single_updates,
        single_hot_updates=single_hot,
        wal_bytes_per_job=steady.wal_bytes / max(1, steady.jobs),
        index_entries_per_job=steady.index_entries / max(1, steady.jobs),
        claim_buffers=buffers,
        jobs_per_s=steady.jobs / max(1e-6, steady.seconds),
        steady_updates=steady.updates,
        steady_hot_updates=steady.hot_updates,
        p50_ms=steady.p50_ms,
        p99_ms=steady.p99_ms,
        growth=steady.growth,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Counters:
    inserts: int
    updates: int
    hot_updates: int
    newpage_updates: int | None
    deletes: int
    dead_rows: int
    vacuums: int


@dataclass(frozen=True, slots=True, kw_only=True)
class _Steady:
    indexes: tuple[str, ...]
    jobs: int
    seconds: float
    wal_bytes: int
    index_entries: float
    updates: int
    hot_updates: int
    p50_ms: float
    p99_ms: float
    growth: tuple[Growth, ...]


def _prepare(
    ground: Ground, options: TriangleOptions, form: str, fillfactor: int, *, autovacuum: bool = False
) -> None:
    subject = options.subject
    with ground.connect() as connection:
        subject.make(connection, fillfactor=fillfactor, form=form, autovacuum=autovacuum)
        subject.add_jobs(connection, options.jobs)
        run_sql(connection, f"VACUUM ANALYZE {subject.table}")


def _at_once(
    ground: Ground, options: TriangleOptions, form: str, fillfactor: int
) -> tuple[int, int, int | None]:
    """One UPDATE claims all jobs: no dead row can be pruned meanwhile, as under an older snapshot."""
    _prepare(ground, options, form, fillfactor)
    before = _counters(ground, options.subject)
    with ground.connect() as connection:
        run_sql(connection, options.subject.claim_first(options.jobs))
    after = _counters(ground, options.subject)
    newpage = (
        None
        if after.newpage_updates is None or before.newpage_updates is None
        else after.newpage_updates - before.newpage_updates
    )
    return after.updates - before.updates, after.hot_updates - before.hot_updates, newpage


def _one_by_one(
    ground: Ground, bench: Bench, options: TriangleOptions, form: str, fillfactor: int
) -> tuple[int, int]:
    """The same jobs claimed one after the other by one worker."""
    _prepare(ground, options, form, fillfactor)
    before = _counters(ground, options.subject)
    work = Work(script=f"{options.subject.claim};\n", clients=1, transactions=options.jobs)
    bench.run(ground.conninfo, work, longest_s=0, log=False)
    after = _counters(ground, options.subject)
    return after.updates - before.updates, after.hot_updates - before.hot_updates


def _claim_buffers(ground: Ground, options: TriangleOptions, form: str, fillfactor: int) -> float:
    """Pages of one claim after half of the jobs were consumed by one statement; rolled back."""
    subject = options.subject
    with ground.connect() as connection:
        subject.make(connection, fillfactor=fillfactor, form=NONE, autovacuum=False)
        subject.add_jobs(connection, options.jobs)
        run_sql(connection, f"VACUUM ANALYZE {subject.table}")
        run_sql(connection, subject.claim_first(options.jobs // 2))
        run_sql(connection, f"ANALYZE {subject.table}")
        subject.index(connection, form)
        run_sql(connection, "BEGIN")
        try:
            return float(touched(explain(connection, subject.claim)))
        finally:
            run_sql(connection, "ROLLBACK")


def _steady(ground: Ground, bench: Bench, options: TriangleOptions, form: str, fillfactor: int) -> _Steady:
    """Workers enqueue, claim and finish at a constant backlog, with autovacuum on."""
    subject = options.subject
    _prepare(ground, options, form, fillfactor, autovacuum=True)
    before = _counters(ground, subject)
    growth: list[Growth] = []
    with ground.connect() as watcher:
        indexes = subject.indexes(watcher)
        entries_ready, entries_claimed = subject.entries(watcher)
        lsn = one_value(watcher, "SELECT pg_current_wal_insert_lsn()")
        growth.append(_grown(watcher, subject, 0.0))
        began = time.monotonic()
        due = options.steady_s / GROWTH_SAMPLES

        def sample() -> bool:
            passed = time.monotonic() - began
            if passed >= due * len(growth):
                growth.append(_grown(watcher, subject, passed))
            return False

        work = Work(script=subject.life, clients=options.workers, variables={"job": subject.no_key})
        outcome = bench.run(ground.conninfo, work, longest_s=options.steady_s, until=sample, ask_share=0)
        wal = int(one_value(watcher, f"SELECT pg_wal_lsn_diff(pg_current_wal_insert_lsn(), '{lsn}')::bigint"))
        growth.append(_grown(watcher, subject, time.monotonic() - began))
    after = _counters(ground, subject)
    updates, hot = after.updates - before.updates, after.hot_updates - before.hot_updates
    latency = percentiles(one.latency_us for one in outcome.attempts)
    return _Steady(
        indexes=indexes,
        jobs=outcome.transactions,
        seconds=outcome.transactions / outcome.tps if outcome.tps else outcome.seconds,
        wal_bytes=wal,
        index_entries=(after.inserts - before.inserts) * entries_ready + (updates - hot) * entries_claimed,
        updates=updates,
        hot_updates=hot,
        p50_ms=latency.p50_ms,
        p99_ms=latency.p99_ms,
        growth=tuple(growth),
    )


def _counters(ground: Ground, subject: Subject) -> _Counters:
    """The table's counters; sessions that did the work have ended, so theirs are in."""
    with ground.counting() as connection:
        newpage = "n_tup_newpage_upd" if ground.major >= 16 else "NULL"
        row = connection.execute(
            f"SELECT n_tup_ins, n_tup_upd, n_tup_hot_upd, {newpage}, n_tup_del, n_dead_tup, autovacuum_count"
            f" FROM pg_stat_all_tables WHERE relid = {regclass(subject)}".encode()
        ).fetchone()
    assert row is not None
    return _Counters(
        inserts=row[0],
        updates=row[1],
        hot_updates=row[2],
        newpage_updates=row[3],
        deletes=row[4],
        dead_rows=row[5],
        vacuums=row[6],
    )


def _grown(connection: Connection, subject: Subject, at_s: float) -> Growth:
    row = connection.execute(
        f"SELECT pg_relation_size(relid), pg_indexes_size(relid), n_dead_tup, autovacuum_count"
        f" FROM pg_stat_all_tables WHERE relid = {regclass(subject)}".encode()
    ).fetchone()
    assert row is not None
    return Growth(
        at_s=round(at_s, 2), table_bytes=row[0], index_bytes=row[1], dead_rows=row[2], vacuums=row[3]
    )
