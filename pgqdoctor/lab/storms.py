"""The faults that ``lab storm`` measures, each with its cure: the same work, done so that it does not hurt. Pure.

Every script keeps the backlog constant (what it finishes it enqueues again), so it can run for any time.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

_JOBS: Final = """
CREATE TABLE jobs (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    state text NOT NULL DEFAULT 'ready',
    claimed_at timestamptz,
    payload text NOT NULL DEFAULT repeat('x', 100)
) WITH (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000);
CREATE INDEX jobs_ready_idx ON jobs (id) WHERE state = 'ready';
INSERT INTO jobs (state) SELECT 'ready' FROM generate_series(1, 1000);
"""
_HEAD: Final = "SELECT id FROM jobs WHERE state = 'ready' ORDER BY id LIMIT 1 FOR UPDATE SKIP LOCKED"
_CLAIM: Final = (
    f"UPDATE jobs SET state = 'running', claimed_at = now() WHERE id = ({_HEAD}) RETURNING id \\aset\n"
)
_TAKE: Final = "UPDATE jobs SET state = 'running', claimed_at = now() WHERE id = :id;\n"
_FINISH: Final = "DELETE FROM jobs WHERE id = :id;\n"
_ENQUEUE: Final = "INSERT INTO jobs (state) VALUES ('ready');\n"
_HISTORY: Final = """
DO $$
BEGIN
    FOR place IN 1..60000 LOOP
        PERFORM 1 FROM jobs WHERE id = place FOR UPDATE;
        BEGIN
            UPDATE jobs SET state = 'running' WHERE id = place;
        EXCEPTION WHEN division_by_zero THEN
            NULL;
        END;
    END LOOP;
END
$$;
"""
"""An EXCEPTION block is a subtransaction: locked outside of it and changed inside, each job gets a multixact."""
_READ: Final = "\\set place random(1, 60000)\nSELECT state FROM jobs WHERE id = :place;\n"
_BEGIN: Final = "\\set id 0\nBEGIN;\n"


@dataclass(frozen=True, slots=True, kw_only=True)
class Storm:
    """A fault: ``sick`` and ``cured`` are pgbench scripts that do the same work.

    ``held`` are the statements of a session that stays as it is while the sick script runs; ``needs`` says
    what else must be so for the fault to show.
    """

    name: str
    title: str
    mechanism: str
    setup: str
    sick: str
    cured: str
    held: tuple[str, ...] = ()
    history: str = ""
    """What happened before the run, while the held session was there already."""
    needs: str = ""


STORMS: Final = (
    Storm(
        name="savepoint",
        title="The claim locks the job and changes it in a savepoint",
        mechanism="The lock belongs to the transaction and the change to its subtransaction: every claim makes a "
        "multixact with two members, which readers of the row must look up.",
        setup=_JOBS,
        sick=f"{_BEGIN}{_HEAD} \\aset\nSAVEPOINT attempt;\n{_TAKE}RELEASE SAVEPOINT attempt;\nCOMMIT;\n{_FINISH}{_ENQUEUE}",
        cured=f"{_BEGIN}{_HEAD} \\aset\n{_TAKE}COMMIT;\n{_FINISH}{_ENQUEUE}",
    ),
    Storm(
        name="foreign-key",
        title="All inserts reference one parent row and stay open for 5 ms",
        mechanism="Each insert locks the parent FOR KEY SHARE until its transaction ends; every newcomer makes a new "
        "multixact with all present lockers as members. The cure inserts in a transaction of its own, so that the lock lasts as long as a commit.",
        setup="CREATE TABLE tenants (id integer PRIMARY KEY, name text NOT NULL);\n"
        "INSERT INTO tenants SELECT g, 'tenant ' || g FROM generate_series(1, 100) g;\n"
        "CREATE TABLE jobs (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,"
        " tenant integer NOT NULL REFERENCES tenants, state text NOT NULL DEFAULT 'ready');\n",
        sick="BEGIN;\nINSERT INTO jobs (tenant) VALUES (1);\n\\sleep 5 ms\nSELECT name FROM tenants WHERE id = 1;\nCOMMIT;\n",
        cured="BEGIN;\nSELECT name FROM tenants WHERE id = 1;\n\\sleep 5 ms\nCOMMIT;\nINSERT INTO jobs (tenant) VALUES (1);\n",
    ),
    Storm(
        name="share-lock",
        title="Readers lock four parent jobs FOR SHARE beside the claims",
        mechanism="A row with several lockers needs a multixact, and each newcomer makes a new one that names them all.",
        setup=_JOBS + "INSERT INTO jobs (state) SELECT 'parent' FROM generate_series(1, 4);\n",
        sick="\\set parent random(1001, 1004)\nBEGIN;\nSELECT state FROM jobs WHERE id = :parent FOR SHARE;\n\\sleep 2 ms\n"
        f"COMMIT;\n\\set id 0\n{_CLAIM}{_FINISH}{_ENQUEUE}",
        cured="\\set parent random(1001, 1004)\nBEGIN;\nSELECT state FROM jobs WHERE id = :parent;\n\\sleep 2 ms\n"
        f"COMMIT;\n\\set id 0\n{_CLAIM}{_FINISH}{_ENQUEUE}",
    ),
    Storm(
        name="held-transaction",
        title="The claim's transaction stays open for the 10 ms that the job runs",
        mechanism="Every other claim reads and skips the rows that are locked so, and their dead versions cannot be "
        "pruned meanwhile. The cure commits the claim before it works.",
        setup=_JOBS,
        sick=f"{_BEGIN}{_CLAIM}\\sleep 10 ms\n{_FINISH}COMMIT;\n{_ENQUEUE}",
        cured=f"\\set id 0\n{_CLAIM}\\sleep 10 ms\n{_FINISH}{_ENQUEUE}",
    ),
    Storm(
        name="idle-snapshot",
        title="A forgotten REPEATABLE READ session holds the xmin horizon",
        mechanism="No job finished since it began may be vacuumed or pruned, so each claim walks all their dead index "
        "entries. The cure ends the session.",
        setup=_JOBS,
        sick=f"\\set id 0\n{_CLAIM}{_FINISH}{_ENQUEUE}",
        cured=f"\\set id 0\n{_CLAIM}{_FINISH}{_ENQUEUE}",
        held=("BEGIN ISOLATION LEVEL REPEATABLE READ", "SELECT count(*) FROM jobs"),
    ),
    Storm(
        name="multixact-history",
        title="Readers meet the multixacts of 60,000 claims in savepoints that a held snapshot keeps",
        mechanism="Each read of such a row looks up the members of its multixact, and so many do not fit the caches of "
        "multixacts. Before PostgreSQL 17 each of the two caches had one lock for all of its pages and one size; since "
        "then they have banks with a lock each, and settings. The cure ends the session and lets VACUUM clean up.",
        setup="CREATE TABLE jobs (id integer PRIMARY KEY, state text NOT NULL, payload text NOT NULL DEFAULT 'x');\n"
        "INSERT INTO jobs SELECT g, 'ready' FROM generate_series(1, 60000) AS g;\n",
        history=_HISTORY,
        sick=_READ,
        cured=_READ,
        held=("BEGIN ISOLATION LEVEL REPEATABLE READ", "SELECT count(*) FROM jobs"),
    ),
    Storm(
        name="notify",
        title="Every enqueue sends a NOTIFY in its transaction",
        mechanism="A transaction that notifies takes one lock of the whole server before it commits and keeps it until "
        "the commit is on disk: such commits go one by one. The cure lets workers poll.",
        setup=_JOBS,
        sick=f"BEGIN;\n{_ENQUEUE}SELECT pg_notify('jobs', 'new');\nCOMMIT;\n\\set id 0\n{_CLAIM}{_FINISH}",
        cured=f"BEGIN;\n{_ENQUEUE}SELECT 'new';\nCOMMIT;\n\\set id 0\n{_CLAIM}{_FINISH}",
        needs="commits that wait for the disk (--durable, or a server given with --dsn)",
    ),
)
