"""Lab results to render and to read back, made by hand."""

from __future__ import annotations

from pgqdoctor.lab.results import (
    CellResult,
    Experiment,
    Growth,
    LabResult,
    Machine,
    ProvenFinding,
    ProveResult,
    RaceResult,
    ServerFacts,
    StormResult,
    StrategyName,
    TriangleResult,
)

HOSTILE = "<script>alert(1)</script> | \x1b[31m & \"quoted\" 'name' \u202e"


def race_cell(strategy: StrategyName, workers: int, *, duplicates: int = 0, wasted: int = 0) -> RaceResult:
    claims = 1_000 + duplicates
    return RaceResult(
        strategy=strategy,
        workers=workers,
        jobs=1_000,
        claims_per_s=claims / 0.5,
        distinct_jobs_per_s=2_000.0,
        duplicate_claims=duplicates,
        wasted_attempts=wasted,
        p50_ms=0.25,
        p95_ms=0.5,
        p99_ms=1.75,
        buffers_per_claim=1_013.0 if strategy != "skip-locked-indexed" else 12.0,
        buffers_jobs=1_000,
        job_p50_ms=0.25,
        job_p95_ms=0.75,
        job_p99_ms=2.5,
        run_buffers_per_claim=107.0,
        claims=claims,
        distinct_jobs=1_000,
        wins=claims,
        seconds=0.5,
        drained=True,
    )


RACE = (
    race_cell("naive", 1),
    race_cell("naive", 10, duplicates=2_500),
    race_cell("guarded", 1),
    race_cell("guarded", 10, wasted=4_000),
    race_cell("skip-locked", 1),
    race_cell("skip-locked", 10),
    race_cell("skip-locked-indexed", 1),
    race_cell("skip-locked-indexed", 10),
)
TRIANGLE = tuple(
    TriangleResult(
        design=design,
        fillfactor=fillfactor,
        indexes=("btree (id)",),
        jobs=1_000,
        updates=1_000,
        hot_updates=hot,
        newpage_updates=1_000 - hot if design != "default" else None,
        single_updates=1_000,
        single_hot_updates=900,
        wal_bytes_per_job=765.4,
        index_entries_per_job=1.02,
        claim_buffers=1_013.0,
        jobs_per_s=5_423.0,
        steady_updates=9_000,
        steady_hot_updates=8_800,
        p50_ms=0.4,
        p99_ms=5.7,
        growth=(
            Growth(at_s=0.0, table_bytes=163_840, index_bytes=40_960, dead_rows=0, vacuums=0),
            Growth(at_s=3.0, table_bytes=1_700_000, index_bytes=300_000, dead_rows=90, vacuums=1),
        ),
    )
    for design, fillfactor, hot in (("default", 100, 0), ("fillfactor 70", 70, 420))
)
STORM = tuple(
    StormResult(
        storm="savepoint",
        state="sick" if sick else "cured",
        workers=workers,
        server=server,
        transactions=4_000,
        transactions_per_s=500.0 if sick else 1_500.0,
        p50_ms=1.0,
        p99_ms=9.0,
        waits={"running": 30, "LWLock:BufferContent": 10},
        samples=40,
        multixacts_per_s=500.0 if sick else 0.0,
        buffers_per_transaction=42.0,
    )
    for server in ("16.14", "17.10")
    for workers in (4, 16)
    for sick in (True, False)
)
PROVE = (
    ProveResult(
        scenario="no-claim-index",
        title="The claim has no index",
        server="18.6",
        expected=("claim-scans-consumed-rows",),
        before=(
            ProvenFinding(
                key="claim-scans-consumed-rows:public.jobs",
                check="claim-scans-consumed-rows",
                severity="warning",
                title=HOSTILE,
            ),
        ),
        applied=("CREATE INDEX CONCURRENTLY jobs_ready_idx ON public.jobs (id) WHERE status = 'queued';",),
        refused=("VACUUM jobs; (no lock)",),
        scenario_cure="",
        after=(),
        transactions_per_s_before=77.6,
        transactions_per_s_after=74.0,
        claim_buffers_before=169,
        claim_buffers_after=4,
        proven=True,
    ),
)
CELLS: dict[Experiment, tuple[CellResult, ...]] = {
    "race": RACE,
    "triangle": TRIANGLE,
    "storm": STORM,
    "prove": PROVE,
}


def server(version: str, number: int) -> ServerFacts:
    return ServerFacts(
        version=version,
        version_num=number,
        embedded=True,
        settings={"fsync": "off", "shared_buffers": "128MB"},
        pgbench="18.6",
    )


def lab_result(experiment: Experiment) -> LabResult:
    """A whole result of an experiment, hostile where a name of the user's may stand."""
    return LabResult(
        experiment=experiment,
        tool_version="1.0",
        started_at="2026-11-29T12:00:00Z",
        seconds=12.5,
        options={"table": HOSTILE, "workers": "1, 10"},
        machine=Machine(
            system="Linux 6.1",
            architecture="x86_64",
            cpu="Example CPU",
            cpus=2,
            memory_bytes=8 * 1024**3,
            load_1m=0.5,
            python="3.11.7",
        ),
        server=server("16.14", 160014),
        other_servers=(server("17.10", 170010),) if experiment == "storm" else (),
        notes=("Triggers are left out.",),
        scripts={"skip-locked": "SELECT 1; -- </pre><script>"},
        results=CELLS[experiment],
    )
