"""``lab storm``: faults of transactions and locks, measured with and without their cure, by workers and server."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Final, Literal

from pgqdoctor.lab.ground import WORKER_NAME, Connection, Ground, one_value, run_sql
from pgqdoctor.lab.pgbench import Bench, Work
from pgqdoctor.lab.race import pages_touched
from pgqdoctor.lab.results import StormResult
from pgqdoctor.lab.saved import Notebook
from pgqdoctor.lab.statistics import percentiles
from pgqdoctor.lab.storms import STORMS, Storm

WORKERS: Final = (4, 16, 48)
SECONDS: Final = 8.0
QUICK_WORKERS: Final = (8,)
QUICK_SECONDS: Final = 3.0
NAPTIME_S: Final = 2
"""Autovacuum's pause on the embedded server: it must come within a cell, as it does within hours."""
RUNNING: Final = "running"
IDLE_IN_TRANSACTION: Final = "idle in transaction"

Say = Callable[[int, int, str], None]
State = Literal["sick", "cured"]


@dataclass(frozen=True, slots=True, kw_only=True)
class StormOptions:
    """What to measure, each for ``seconds``."""

    storms: tuple[Storm, ...] = STORMS
    workers: tuple[int, ...] = WORKERS
    seconds: float = SECONDS

    def described(self) -> Mapping[str, str]:
        """As recorded, and as compared by --resume."""
        return {
            "storms": ", ".join(one.name for one in self.storms),
            "workers": ", ".join(map(str, self.workers)),
            "seconds": f"{self.seconds:g}",
        }

    def scripts(self) -> Mapping[str, str]:
        """What each fault and each cure runs."""
        parts: dict[str, str] = {}
        for one in self.storms:
            held = "".join(f"-- held meanwhile: {statement}\n" for statement in one.held)
            parts[f"{one.name}, table"] = one.setup.strip()
            if one.history:
                parts[f"{one.name}, before"] = one.history.strip()
            parts[f"{one.name}, sick"] = held + one.sick
            parts[f"{one.name}, cured"] = one.cured
        return parts


def storm(
    grounds: tuple[Ground, ...], options: StormOptions, notebook: Notebook[StormResult], say: Say
) -> Iterator[StormResult]:
    """Measure each fault and its cure on each server; cells that ``notebook`` holds are not measured again.

    Servers take turns within a cell, so that what else the machine does meets all of them.
    """
    for ground in grounds:
        ground.require_workers(max(options.workers))
    states: tuple[State, ...] = ("sick", "cured")
    cells = [
        (one, workers, state, place)
        for one in options.storms
        for workers in options.workers
        for state in states
        for place in range(len(grounds))
    ]
    with ExitStack() as stack:
        benches = [stack.enter_context(Bench(ground.binaries)) for ground in grounds]
        for done, (one, workers, state, place) in enumerate(cells):
            ground = grounds[place]
            key = f"{one.name}/{workers}/{state}/{place}"
            known = notebook.get(key)
            if known is None:
                where = f" on {ground.facts.version}" if len(grounds) > 1 else ""
                say(done, len(cells), f"{one.name} {state}, {workers} workers{where}")
                known = _cell(ground, benches[place], one, workers, state, options.seconds)
                notebook.add(key, known)
            yield known
        say(len(cells), len(cells), "")


def _cell(
    ground: Ground, bench: Bench, one: Storm, workers: int, state: State, seconds: float
) -> StormResult:
    with ground.connect() as connection:
        run_sql(connection, "DROP TABLE IF EXISTS jobs, tenants CASCADE")
        run_sql(connection, one.setup)
        run_sql(connection, "VACUUM ANALYZE jobs")
    before = pages_touched(ground)
    waits: Counter[str] = Counter()
    with ExitStack() as stack:
        watcher = stack.enter_context(ground.connect())
        if state == "sick" and one.held:
            holder = stack.enter_context(ground.connect())
            for statement in one.held:
                run_sql(holder, statement)
        if one.history:
            run_sql(watcher, one.history)
            if state == "cured":
                run_sql(watcher, "VACUUM jobs")
        multixacts = _next_multixact(watcher)

        def sample() -> bool:
            waits.update(_waits(watcher))
            return False

        work = Work(script=one.sick if state == "sick" else one.cured, clients=workers, variables={"id": "0"})
        outcome = bench.run(ground.conninfo, work, longest_s=seconds, until=sample, ask_share=0)
        made = _next_multixact(watcher) - multixacts
    after = pages_touched(ground)
    latency = percentiles(attempt.latency_us for attempt in outcome.attempts)
    length = outcome.transactions / outcome.tps if outcome.tps else seconds
    return StormResult(
        storm=one.name,
        state=state,
        workers=workers,
        server=ground.facts.version,
        transactions=outcome.transactions,
        transactions_per_s=outcome.tps,
        p50_ms=latency.p50_ms,
        p99_ms=latency.p99_ms,
        waits=dict(waits.most_common()),
        samples=sum(waits.values()),
        multixacts_per_s=made / length if length else 0.0,
        buffers_per_transaction=max(0, after - before) / max(1, outcome.transactions),
    )


def _waits(connection: Connection) -> list[str]:
    """What each worker is at: a wait event, running, or idle inside its transaction; idle ones are left out."""
    rows = connection.execute(
        "SELECT state, wait_event_type || ':' || wait_event FROM pg_stat_activity"
        " WHERE application_name = %s AND datname = current_database() AND state <> 'idle'",
        [WORKER_NAME],
    ).fetchall()
    return [
        IDLE_IN_TRANSACTION if state.startswith(IDLE_IN_TRANSACTION) else (event or RUNNING)
        for state, event in rows
    ]


def _next_multixact(connection: Connection) -> int:
    """The next multixact id, less a constant: its distance from 1, which wraps only beyond two billion."""
    return int(one_value(connection, "SELECT mxid_age('1'::xid)"))
