"""Reports made by hand from the model, one for each thing that every format must show."""

from __future__ import annotations

from dataclasses import replace

from pgqdoctor.finding import Evidence, Remedy
from pgqdoctor.report import (
    ClaimFacts,
    ClaimPlan,
    Crashed,
    QueueFacts,
    Rates,
    Ready,
    Report,
    ReportedFinding,
    ServerFacts,
    Skipped,
    TableFacts,
    Tool,
    Window,
)
from pgqdoctor.triangle import Corner, Knob, Recommendation, Triangle, UpdateShare

CLAIM = (
    "WITH picked AS (SELECT id FROM jobs WHERE state = 'queued' AND run_at <= now() ORDER BY priority, "
    "run_at, id LIMIT $1 FOR UPDATE SKIP LOCKED) UPDATE jobs SET state = 'running', claimed_at = now() "
    "FROM picked WHERE jobs.id = picked.id RETURNING jobs.*"
)

PLAN = ClaimPlan(
    buffers=4905,
    rows_removed_by_filter=0,
    rows=1.0,
    time_ms=3.2,
    mode="select",
    index="jobs_queued_idx",
    parameters={"$1": "1"},
)
JOBS = QueueFacts(
    name="public.jobs",
    framework=None,
    recognised_by=("claim statement in pg_stat_statements", "partial index on state"),
    ready=Ready(predicate="state = 'queued' AND run_at <= now()", rows=1234, exact=True, oldest_age_s=250.4),
    claim=ClaimFacts(
        shape="skip-locked",
        sql=CLAIM,
        source="pg_stat_statements",
        plan=PLAN,
    ),
    rates=Rates(enqueued_per_s=480.0, claimed_per_s=469.0, updates_per_s=938.5, hot_ratio=0.0213),
    table=TableFacts(
        bytes=892_928,
        index_bytes=450_560,
        live_rows=1300,
        dead_rows=25_244,
        fillfactor=100,
        autovacuum={"autovacuum_vacuum_scale_factor": "0.01"},
    ),
)
OUTBOX = QueueFacts(
    name='public."Email Outbox"',
    framework="river",
    recognised_by=("columns of river",),
    ready=Ready(predicate=None, rows=None, exact=False, oldest_age_s=None),
    claim=ClaimFacts(shape="unknown", sql=None, source=None, plan=None),
    rates=Rates(enqueued_per_s=0.0, claimed_per_s=None, updates_per_s=0.0, hot_ratio=None),
    table=TableFacts(bytes=None, index_bytes=None, live_rows=0, dead_rows=0, fillfactor=100, autovacuum={}),
)

HEALTHY = Report(
    tool=Tool(name="pgqdoctor", version="0.1.0"),
    generated_at="2026-03-01T03:04:05Z",
    server=ServerFacts(
        version="17.10 (Debian 17.10-1.pgdg12+1)",
        version_num=170010,
        database="app",
        role="doctor",
        in_recovery=False,
        pooler=False,
        started_at="2026-02-01T00:00:00Z",
    ),
    window=Window(seconds=10.012, samples=100),
    verdict="healthy",
    queues=(
        replace(
            JOBS,
            ready=replace(JOBS.ready, rows=12, oldest_age_s=0.35),
            claim=replace(JOBS.claim, plan=replace(PLAN, buffers=5, time_ms=0.1)),
            rates=replace(JOBS.rates, claimed_per_s=480.0, hot_ratio=0.97),
            table=replace(JOBS.table, dead_rows=210),
        ),
    ),
    findings=(),
    skipped=(),
    crashed=(),
)

LOCK_TIMEOUT = "SET lock_timeout = '2s';"

HORIZON = ReportedFinding(
    key="vacuum-horizon-held:public.jobs",
    check="vacuum-horizon-held",
    severity="critical",
    queue="public.jobs",
    title="Session 4711 (reports, idle in transaction, open 4 min) holds the xmin horizon: 25,244 dead "
    "rows of public.jobs cannot be vacuumed",
    why="Vacuum may only remove row versions that no transaction could still see. This session keeps a "
    "snapshot, and everything deleted since it was taken must stay for it.",
    caused_by=(),
    evidence=(
        Evidence(what="held by", value="Session 4711 (reports)", unit="", source="pg_stat_activity"),
        Evidence(what="pid", value=4711, unit="", source="pg_stat_activity"),
        Evidence(what="open for", value=250.4, unit="seconds", source="pg_stat_activity"),
        Evidence(what="age of its xmin", value=1_234_567, unit="transactions", source="pg_stat_activity"),
        Evidence(what="dead rows it keeps", value=25_244, unit="rows", source="pg_stat_user_tables"),
        Evidence(what="dead rows made", value=938.5, unit="rows per second", source="pg_stat_user_tables"),
        Evidence(
            what="last statement",
            value="SELECT date_trunc('day', finished_at), count(*), avg(finished_at - claimed_at) "
            "FROM jobs_archive",
            unit="",
            source="pg_stat_activity",
        ),
    ),
    remedies=(
        Remedy(
            title="End session 4711",
            kind="sql",
            sql=("SELECT pg_terminate_backend(4711);",),
            undo=(),
            lock="",
            blocks="nothing",
            restart=False,
            risk="its open transaction is rolled back and its client loses the connection",
            expect="the horizon moves on; the next vacuum of public.jobs removes the dead rows",
        ),
        Remedy(
            title="Let the server end transactions that idle for more than a minute",
            kind="setting",
            sql=(
                "ALTER SYSTEM SET idle_in_transaction_session_timeout = '60s';",
                "SELECT pg_reload_conf();",
            ),
            undo=(
                "ALTER SYSTEM SET idle_in_transaction_session_timeout = '0';",
                "SELECT pg_reload_conf();",
            ),
            lock="",
            blocks="nothing",
            restart=False,
            risk="clients that idle longer on purpose lose their connection",
            expect="a forgotten transaction ends after 60 s",
        ),
    ),
)
DEAD = ReportedFinding(
    key="dead-tuples:public.jobs",
    check="dead-tuples",
    severity="warning",
    queue="public.jobs",
    title="Dead rows of public.jobs outrun vacuum: 25,244 beside 1,300 live ones",
    why="Each finished job leaves a dead row version behind until vacuum removes it.",
    caused_by=(HORIZON.key,),
    evidence=(
        Evidence(what="share of dead rows", value=0.951, unit="ratio", source="pg_stat_user_tables"),
        Evidence(what="table size", value=892_928, unit="bytes", source="pg_relation_size()"),
    ),
    remedies=(
        Remedy(
            title="Vacuum after 2,000 dead rows instead of after 20 %",
            kind="sql",
            sql=(
                LOCK_TIMEOUT,
                "ALTER TABLE public.jobs SET (autovacuum_vacuum_scale_factor = 0, "
                "autovacuum_vacuum_threshold = 2000);",
            ),
            undo=(
                LOCK_TIMEOUT,
                "ALTER TABLE public.jobs RESET (autovacuum_vacuum_scale_factor, "
                "autovacuum_vacuum_threshold);",
            ),
            lock="SHARE UPDATE EXCLUSIVE",
            blocks="nothing",
            restart=False,
            risk="none known",
            expect="a vacuum every few seconds, each of a few pages",
        ),
    ),
)
SCANS = ReportedFinding(
    key="claim-scans-dead-rows:public.jobs",
    check="claim-scans-dead-rows",
    severity="critical",
    queue="public.jobs",
    title="Each claim of public.jobs reads 4,905 buffers to find 1 job",
    why="The claim walks the index entries of dead rows before it meets a live one.",
    caused_by=(HORIZON.key, DEAD.key),
    evidence=(
        Evidence(what="claim reads", value=4905, unit="buffers", source="EXPLAIN (ANALYZE, BUFFERS)"),
        Evidence(what="rows found", value=1, unit="rows", source="EXPLAIN (ANALYZE, BUFFERS)"),
    ),
    remedies=(),
)
GUARD = ReportedFinding(
    key="claim-unguarded:public.jobs:42",
    check="claim-unguarded",
    severity="notice",
    queue="public.jobs",
    title="A claim of public.jobs can be won twice",
    why="The write does not check the state again under its lock.",
    caused_by=(),
    evidence=(),
    remedies=(
        Remedy(
            title="Check the state under the lock",
            kind="application",
            sql=(
                "UPDATE jobs\n   SET state = 'running'\n WHERE id = $1\n   AND state = 'queued'\n"
                "RETURNING id;",
            ),
            undo=(),
            lock="",
            blocks="nothing",
            restart=False,
            risk="a change of the application",
            expect="the loser of a race changes no row",
        ),
    ),
)
SICK = replace(
    HEALTHY,
    verdict="critical",
    queues=(JOBS, OUTBOX),
    findings=(HORIZON, DEAD, SCANS, GUARD),
)

KNOBS = Triangle(
    corner="HOT, claims scan",
    jobs_per_s=73.0,
    updates_per_s=146.0,
    updates_per_job=2.0,
    updates_blocked_by_claim_index=0.0,
    updates_blocked_by_others=0.0,
    hot_reached=0.998,
    hot_reachable=1.0,
    entries_per_job=1.0,
    wal_bytes_per_job=777.7,
    wal_measured=True,
    wal_page_images=0,
    updates=(
        UpdateShare(
            statement="UPDATE jobs SET state = $1 WHERE id = $2",
            rows_per_s=73.0,
            columns=("state",),
            blocked_by=(),
            claims=False,
        ),
    ),
    corners=(
        Corner(
            name="HOT, claims scan",
            now=True,
            change="as it is",
            claim_buffers=176.0,
            claim_measured=True,
            hot_ratio=0.998,
            hot_measured=True,
            entries_per_job=1.0,
            wal_bytes_per_job=777.7,
            cost_per_s=13053.6,
            arithmetic=("measured: 176 buffers for 1 rows, Seq Scan",),
        ),
        Corner(
            name="claim index, no HOT",
            now=False,
            change="with an index on (run_at, id) WHERE state = 'queued'",
            claim_buffers=3.0,
            hot_ratio=0.0,
            entries_per_job=4.0,
            wal_bytes_per_job=1011.7,
            cost_per_s=691.0,
            arithmetic=("2 + 1 for the job's page = 3 buffers",),
        ),
        Corner(
            name="both",
            now=False,
            change="",
            why_not="most updates set state, which the claim's index must mention",
        ),
    ),
    knobs=(
        Knob(
            name="claim index",
            today="none",
            computed="(run_at, id) WHERE state = 'queued'",
            verdict="change",
            reason="a claim reads 176 buffers instead of 3",
            arithmetic=(
                "saves 173 buffers a claim * 73/s claims = 12,629/s buffers",
                "costs 219/s index entries * 1 + 17 kB/s of WAL / 8 kB * 20 = 261/s buffers",
                "it pays from 1.5/s claims on, and 73/s are made",
            ),
        ),
        Knob(
            name="fillfactor",
            today="85",
            computed="85",
            verdict="keep",
            reason="100% of the updates that no index blocks are heap-only already",
        ),
        Knob(
            name="autovacuum",
            today="threshold 50, scale factor 0.2",
            computed="threshold 4400, scale factor 0",
            verdict="change",
            reason="80,050 dead rows may pile up before it comes, every 18 min",
            arithmetic=("comes after 50 + 0.2 * 400,000 rows = 80,050 dead rows",),
        ),
    ),
    recommendation=Recommendation(
        action="create-index",
        title="Create the claim's index on (run_at, id)",
        reason="a claim reads 176 buffers instead of 3",
        remedies=(
            Remedy(
                title="Create the claim's index on (run_at, id)",
                kind="sql",
                sql=(
                    "SET lock_timeout = '2s';",
                    "CREATE INDEX CONCURRENTLY jobs_ready_idx ON public.jobs (run_at, id) WHERE state = 'queued';",
                ),
                undo=("SET lock_timeout = '2s';", "DROP INDEX CONCURRENTLY IF EXISTS public.jobs_ready_idx;"),
                lock="SHARE UPDATE EXCLUSIVE",
                blocks="nothing",
                restart=False,
                risk="one more index to write on each enqueue",
                expect="a claim reads about 3 buffers instead of 176",
            ),
        ),
    ),
    notes=("WAL is estimated.",),
)
"""A queue that claims by scanning, with everything a triangle may show."""

ANSI = "\x1b[2J\x1b[31mred\x1b]0;title\x07"
RTL = "\u202egpj.exe"
HOSTILE_TABLE = f'public."{ANSI} `tick` | pipe <b>bold</b> {RTL}\nnext"'
HOSTILE = replace(
    HEALTHY,
    verdict="warning",
    server=replace(HEALTHY.server, database="app`|<script>alert(1)</script>\x1b[0m", role="@everyone\n# big"),
    queues=(replace(OUTBOX, name=HOSTILE_TABLE, recognised_by=(f"a {ANSI} sign",)),),
    findings=(
        replace(
            GUARD,
            key=f"claim-unguarded:{HOSTILE_TABLE}",
            severity="warning",
            queue=HOSTILE_TABLE,
            title=f"Session 1 ({ANSI}, @octocat, #12, https://evil.example/x, www.evil.example) "
            "[click](javascript:1)",
            why=f"- not a list\n# not a heading\n| not | a table | {RTL} *not bold* $1 and $2 "
            "<img src=x onerror=1> &lt;",
            evidence=(
                Evidence(
                    what="name|\\|", value=f"``` {ANSI} | a\\|b", unit="", source="pg_stat_activity\n\n---"
                ),
            ),
            remedies=(
                Remedy(
                    title="Rename it </details>",
                    kind="sql",
                    sql=(
                        f"ALTER TABLE {HOSTILE_TABLE} SET (fillfactor = 70);",
                        "UPDATE jobs SET state = 'two\nlines ```' WHERE id = 1;",
                        "SELECT 'tab\tand \u202e override \x1b[1m';",
                    ),
                    undo=(),
                    lock="SHARE UPDATE EXCLUSIVE",
                    blocks="nothing",
                    restart=False,
                    risk=f"{ANSI}",
                    expect="`nothing` much",
                ),
            ),
        ),
    ),
    skipped=(
        Skipped(
            check="heap-bloat",
            queue=HOSTILE_TABLE,
            reason=f"needs {ANSI}",
            grant='GRANT x TO "a\x1b[1m`|b"',
        ),
    ),
    crashed=(Crashed(check="dead-tuples", error=f"ValueError: {ANSI}\n<b>{RTL}"),),
    notes=(f"Possible queues: {HOSTILE_TABLE}.",),
)

NO_QUEUE = replace(
    HEALTHY,
    queues=(),
    notes=(
        "No queue found in database app. Looked for: claim statements in pg_stat_statements; tables of known "
        "frameworks; state and time columns with a partial index.",
    ),
)
INSTALL = "CREATE EXTENSION pg_stat_statements"
STATEMENTS_HIDDEN = "the extension pg_stat_statements is not installed in this database"
INCOMPLETE = replace(
    HEALTHY,
    server=replace(HEALTHY.server, in_recovery=True, pooler=True),
    skipped=(
        *(
            Skipped(check=check, queue=queue, reason=STATEMENTS_HIDDEN, grant=INSTALL)
            for check in ("claim-empty-polls", "claim-unguarded", "multixact-from-foreign-key")
            for queue in ("public.jobs", 'public."Email Outbox"')
        ),
        Skipped(check="heap-bloat", queue=None, reason="the probe timed out after 500 ms", grant=None),
    ),
    crashed=(
        Crashed(check="retry-storm", error="ZeroDivisionError: division by zero on public.jobs"),
        Crashed(check="stale-statistics", error="KeyError: 'Plans' on public.jobs"),
    ),
    notes=(
        "The window was cut short after 10.0 s.",
        f"statements: {STATEMENTS_HIDDEN} ({INSTALL})",
    ),
)
SKIPPED = replace(INCOMPLETE, server=HEALTHY.server, crashed=(), notes=())

LONG = replace(
    HEALTHY,
    verdict="notice",
    queues=tuple(replace(OUTBOX, name=f"public.q{place}") for place in range(25)),
    findings=tuple(
        replace(
            GUARD,
            key=f"claim-unguarded:public.q{place}",
            queue=f"public.q{place}",
            remedies=(),
            evidence=tuple(
                Evidence(what=f"fact {fact}", value=fact, unit="rows", source="pg_class")
                for fact in range(14 if place == 0 else 0)
            ),
        )
        for place in range(25)
    ),
    skipped=tuple(
        Skipped(check=f"check-{place}", queue=None, reason=f"reason {place}", grant=None)
        for place in range(15)
    ),
)

SCANNING = replace(HEALTHY, queues=(replace(HEALTHY.queues[0], triangle=KNOBS), OUTBOX))
HOSTILE_KNOBS = replace(
    HEALTHY,
    queues=(
        replace(
            OUTBOX,
            name=HOSTILE_TABLE,
            triangle=replace(
                KNOBS,
                corners=(replace(KNOBS.corners[0], change=f"without index {ANSI} | `x` <b>"),),
                knobs=(
                    replace(
                        KNOBS.knobs[0], today=ANSI, computed="<img src=x>", arithmetic=(f"{RTL} | {ANSI}",)
                    ),
                ),
                recommendation=replace(KNOBS.recommendation, title=f"Drop {HOSTILE_TABLE}", remedies=()),
            ),
        ),
    ),
)

REPORTS = {
    "knobs": SCANNING,
    "hostile-knobs": HOSTILE_KNOBS,
    "healthy": HEALTHY,
    "sick": SICK,
    "hostile": HOSTILE,
    "no-queue": NO_QUEUE,
    "incomplete": INCOMPLETE,
    "skipped": SKIPPED,
    "long": LONG,
}
