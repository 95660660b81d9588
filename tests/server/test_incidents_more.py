"""More states that stop or slow real queues: the culprit must be named, and its remedy must end the finding.

Each stands in a database of its own while clients work; they go on where a statement fails, as workers do. Where ``cure`` says so
the finding's first SQL remedy is run as it is printed, and the next look must be without the finding.
"""

from __future__ import annotations

import contextlib
import random
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass

import psycopg
import pytest

from pgqdoctor.collect import ObserveOptions, observe
from pgqdoctor.engine import diagnose
from pgqdoctor.report import Report, ReportedFinding

from .holding import prepared, run, session

WINDOW_S = 3.0
SETTLE_S = 1.0
STARTED_S = 0.5

Connection = psycopg.Connection[tuple[object, ...]]
Work = Callable[[Connection], None]
Stage = Callable[[str], AbstractContextManager[object]]

QUEUE = (
    "CREATE TABLE job (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, state text NOT NULL DEFAULT 'queued', "
    "run_at timestamptz NOT NULL DEFAULT now(), payload text NOT NULL DEFAULT repeat('x', 80))",
    "CREATE INDEX job_ready ON job (run_at) WHERE state = 'queued'",
    "INSERT INTO job (run_at) SELECT now() - interval '1 minute' FROM generate_series(1, 3000)",
    "VACUUM ANALYZE job",
)
FIRST = "SELECT id FROM job WHERE state = 'queued' AND run_at <= now() ORDER BY run_at LIMIT 1"
CLAIM = f"UPDATE job SET state = 'running' WHERE id = ({FIRST} FOR UPDATE SKIP LOCKED) RETURNING id"
ENQUEUE = "INSERT INTO job DEFAULT VALUES"


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """A state, the check that must speak and words of its title, and the checks that must not."""

    stage: Stage
    check: str
    words: tuple[str, ...]
    setup: tuple[str, ...] = ()
    queue: tuple[str, ...] = QUEUE
    severities: tuple[str, ...] = ("critical", "warning")
    first: bool = True
    """Whether the finding stands before all others."""
    forbidden: tuple[str, ...] = ()
    cure: bool = False
    settle_s: float = SETTLE_S
    window_s: float = WINDOW_S


def together(*stages: Stage) -> Stage:
    @contextlib.contextmanager
    def stage(dsn: str) -> Iterator[None]:
        with ExitStack() as stack:
            for one in stages:
                stack.enter_context(one(dsn))
            yield

    return stage


def holds(*statements: str, application: str) -> Stage:
    return lambda dsn: session(dsn, *statements, application=application)


def workers(
    work: Work, *, number: int = 1, per_second: float = 50.0, application: str = "worker", options: str = ""
) -> Stage:
    """Sessions that do the work again and again, whatever fails."""

    @contextlib.contextmanager
    def stage(dsn: str) -> Iterator[None]:
        stop = threading.Event()
        connections = [
            psycopg.connect(
                dsn, autocommit=True, application_name=application, options=options, prepare_threshold=None
            )
            for _ in range(number)
        ]

        def loop(connection: Connection) -> None:
            while not stop.is_set() and not connection.closed:
                began = time.monotonic()
                with contextlib.suppress(psycopg.Error):
                    work(connection)
                stop.wait(max(0.0, number / per_second - (time.monotonic() - began)))

        threads = [threading.Thread(target=loop, args=(one,), daemon=True) for one in connections]
        for thread in threads:
            thread.start()
        try:
            yield
        finally:
            stop.set()
            for one in connections:
                one.cancel()
            for thread in threads:
                thread.join(5.0)
            for one in connections:
                one.close()

    return stage


def transaction(*statements: str) -> Work:
    def work(connection: Connection) -> None:
        with connection.transaction():
            for one in statements:
                connection.execute(one.encode())

    return work


def claim_and_delete(connection: Connection) -> None:
    with connection.transaction():
        row = connection.execute(CLAIM.encode()).fetchone()
    if row is not None:
        connection.execute("DELETE FROM job WHERE id = %s", row)


@contextlib.contextmanager
def prepared_and_gone(dsn: str, statement: str) -> Iterator[None]:
    """A prepared transaction that the cure may have resolved already."""
    gid = f"lost-{random.getrandbits(48):x}"
    with contextlib.suppress(psycopg.errors.UndefinedObject), prepared(dsn, statement, gid=gid):
        yield


ORDINARY = together(
    workers(transaction(ENQUEUE), per_second=40.0, application="producer"),
    workers(claim_and_delete, number=2, per_second=40.0),
)


def batch_in_any_order(connection: Connection) -> None:
    with connection.transaction():
        for place in random.sample(range(1, 60), 8):
            connection.execute("UPDATE job SET payload = 'p' WHERE id = %s", (place,))


def joined_claim(connection: Connection) -> None:
    with connection.transaction():
        row = connection.execute(
            "SELECT j.id FROM job j JOIN queue q ON q.name = 'default' WHERE j.state = 'queued' AND j.run_at <= now() AND NOT q.paused "
            "ORDER BY j.run_at LIMIT 1 FOR UPDATE SKIP LOCKED"
        ).fetchone()
        if row is not None:
            connection.execute("SELECT pg_sleep(0.03)")
            connection.execute("UPDATE job SET state = 'done' WHERE id = %s", row)


def look_then_lock(connection: Connection) -> None:
    for row in connection.execute(f"{FIRST[:-1]}20".encode()).fetchall():
        locked = connection.execute("SELECT pg_try_advisory_lock(%s)", row).fetchone()
        if locked is not None and locked[0]:
            connection.execute("UPDATE job SET state = 'done' WHERE id = %s AND state = 'queued'", row)
            connection.execute("SELECT pg_advisory_unlock(%s)", row)
            return


def of_reports(connection: Connection) -> None:
    with connection.transaction():
        connection.execute(
            "UPDATE job SET state = 'done' WHERE id = (SELECT id FROM job WHERE state = 'queued' AND payload = %s AND run_at <= now() "
            "ORDER BY run_at LIMIT 1 FOR UPDATE SKIP LOCKED)",
            ("reports",),
        )


FUNCTION = (
    "CREATE FUNCTION take() RETURNS bigint LANGUAGE plpgsql AS $$ DECLARE j bigint; BEGIN "
    "SELECT id INTO j FROM job WHERE state = 'queued' ORDER BY run_at LIMIT 1 FOR UPDATE{0}; "
    "UPDATE job SET state = 'done' WHERE id = j; RETURN j; END $$"
)
ACCOUNTS = ("CREATE TABLE account (id int PRIMARY KEY, balance int)", "INSERT INTO account VALUES (1, 0)")
CHARGE = "UPDATE account SET balance = balance + 1 WHERE id = 1"

CASES = {
    "a migration of a child table stops the workers that delete their jobs": Case(
        setup=(
            "CREATE TABLE job_log (id bigserial PRIMARY KEY, job_id bigint REFERENCES job (id) ON DELETE CASCADE)",
            "CREATE INDEX ON job_log (job_id)",
        ),
        stage=together(
            holds("BEGIN", "SELECT count(*) FROM job_log", application="psql"),
            holds("ALTER TABLE job_log ADD COLUMN note text", application="deploy"),
            ORDINARY,
        ),
        check="lock-queue",
        words=("(deploy, active", "(psql, idle in transaction", "to lock public.job_log"),
        cure=True,
    ),
    "workers stand at a row of another table": Case(
        setup=ACCOUNTS,
        stage=together(
            holds("BEGIN", CHARGE, application="billing"),
            workers(transaction(CLAIM, CHARGE), number=3),
        ),
        check="lock-queue",
        words=("3 sessions at public.job wait for", "(billing, idle in transaction"),
        cure=True,
    ),
    "a trigger that was created and not committed, in front of a migration that waits": Case(
        stage=together(
            holds("BEGIN", "SELECT count(*) FROM job", application="reader"),
            holds(
                "BEGIN",
                "CREATE TRIGGER t BEFORE UPDATE ON job FOR EACH ROW EXECUTE FUNCTION suppress_redundant_updates_trigger()",
                application="first-migration",
            ),
            holds("ALTER TABLE job ALTER payload SET DEFAULT ''", application="second-migration"),
            ORDINARY,
        ),
        check="lock-queue",
        words=("wait for", "(first-migration, idle in transaction"),
    ),
    "a prepared transaction has the row that every enqueue counts in": Case(
        setup=ACCOUNTS,
        stage=together(
            lambda dsn: prepared_and_gone(dsn, CHARGE),
            workers(transaction(ENQUEUE, CHARGE), number=3, application="api"),
            workers(claim_and_delete),
        ),
        check="lock-queue",
        words=("3 sessions at public.job wait for a prepared transaction",),
        cure=True,
    ),
    "jobs that an idle session has locked by number are passed over": Case(
        stage=together(
            holds(
                "SELECT count(pg_try_advisory_lock(id)) FROM (SELECT id FROM job ORDER BY run_at, id LIMIT 3000) j",
                application="lost",
            ),
            workers(look_then_lock, number=2),
            workers(transaction(ENQUEUE), per_second=10.0, application="producer"),
        ),
        check="advisory-lock-leak",
        words=("holds", "advisory locks without running anything", "no job of public.job was taken"),
        severities=("critical",),
        cure=True,
    ),
    "transactions change job after job in any order": Case(
        stage=together(workers(batch_in_any_order, number=5, per_second=60.0), workers(transaction(CLAIM))),
        check="deadlocks",
        words=("while transactions at public.job lock rows one by one",),
        settle_s=2.0,
    ),
    "a function claims in SERIALIZABLE, which the connection's options ask for": Case(
        setup=(FUNCTION.format(" SKIP LOCKED"),),
        stage=together(
            workers(
                transaction("SELECT take()", "SELECT pg_sleep(0.005)"),
                number=5,
                per_second=300.0,
                options="-c default_transaction_isolation=serializable",
            ),
            workers(transaction(ENQUEUE), application="producer"),
        ),
        check="claim-isolation",
        words=("claims of public.job run in SERIALIZABLE",),
    ),
    "workers line up inside a function": Case(
        setup=(FUNCTION.format(""),),
        stage=workers(transaction("SELECT take()", "SELECT pg_sleep(0.01)"), number=5, per_second=300.0),
        check="claim-not-skip-locked",
        words=("wait in line for one row at any moment", "FOR UPDATE without SKIP LOCKED"),
    ),
    "claims that fail at once": Case(
        stage=workers(
            transaction(f"{FIRST} FOR UPDATE NOWAIT", "SELECT pg_sleep(0.01)"), number=5, per_second=300.0
        ),
        check="claim-not-skip-locked",
        words=("of the claims of public.job fail", "NOWAIT"),
    ),
    "a lock on the table around each claim": Case(
        stage=workers(
            transaction(
                "LOCK TABLE job IN SHARE ROW EXCLUSIVE MODE",
                f"UPDATE job SET state = 'running' WHERE id = ({FIRST}) RETURNING id",
                "SELECT pg_sleep(0.02)",
            ),
            number=4,
        ),
        check="claim-not-skip-locked",
        words=("wait in line for a lock on the table",),
        forbidden=("claim-unguarded",),
    ),
    "a semaphore's row is locked for each job": Case(
        setup=ACCOUNTS,
        stage=workers(
            transaction(
                "SELECT balance FROM account WHERE id = 1 FOR UPDATE", CLAIM, "SELECT pg_sleep(0.02)"
            ),
            number=5,
            per_second=200.0,
        ),
        check="hot-row",
        words=("wait for a row of account that its statements lock",),
    ),
    "a claim locks the settings that it joins": Case(
        setup=(
            "CREATE TABLE queue (name text PRIMARY KEY, paused bool)",
            "INSERT INTO queue VALUES ('default', false)",
        ),
        stage=workers(joined_claim, number=5, per_second=150.0),
        check="claim-lock-too-strong",
        words=("locks rows of queue as well", "of the claims find nothing while"),
    ),
    "jobs of the largest queue stand in front of another's": Case(
        queue=QUEUE[:2],
        setup=(
            "INSERT INTO job (payload, run_at) SELECT 'emails', now() - interval '2 hours' FROM generate_series(1, 80000)",
            "INSERT INTO job (payload) SELECT 'reports' FROM generate_series(1, 200)",
            "VACUUM ANALYZE job",
        ),
        stage=workers(of_reports, number=2, per_second=30.0),
        check="claim-scans-ineligible-rows",
        words=("with payload = 'emails' it would read",),
        cure=True,
    ),
    "an index has its nulls at the other end": Case(
        queue=(
            "CREATE TABLE job (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, state text NOT NULL DEFAULT 'queued', priority int)",
            "CREATE INDEX job_ready ON job (priority DESC, id) WHERE state = 'queued'",
            "INSERT INTO job (priority) SELECT i % 10 FROM generate_series(1, 30000) i",
            "VACUUM ANALYZE job",
        ),
        stage=workers(
            transaction(
                "UPDATE job SET state = 'done' WHERE id = (SELECT id FROM job WHERE state = 'queued' "
                "ORDER BY priority DESC NULLS LAST, id LIMIT 1 FOR UPDATE SKIP LOCKED)"
            ),
            per_second=10.0,
        ),
        check="claim-sorts-backlog",
        words=("no index is in the order of priority DESC NULLS LAST, id",),
        cure=True,
    ),
    "a child's column holds smaller numbers than the job's id": Case(
        queue=(
            "CREATE TABLE job (id bigint GENERATED ALWAYS AS IDENTITY (START WITH 2147400000) PRIMARY KEY, "
            "state text NOT NULL DEFAULT 'queued', run_at timestamptz NOT NULL DEFAULT now())",
            "CREATE INDEX job_ready ON job (run_at) WHERE state = 'queued'",
            "CREATE TABLE job_event (id bigserial PRIMARY KEY, job_id int NOT NULL REFERENCES job (id) ON DELETE CASCADE)",
            "CREATE INDEX ON job_event (job_id)",
        ),
        stage=ORDINARY,
        check="id-exhaustion",
        words=("of the ids of public.job_event.job_id (integer) are consumed",),
        cure=True,
    ),
}


def look(dsn: str, case: Case) -> Report:
    return diagnose(observe(dsn, ObserveOptions(window_seconds=case.window_s)))


def told(report: Report) -> str:
    """What a failed assertion shows."""
    lines = [f"{one.severity} {one.key}: {one.title} <- {one.caused_by}" for one in report.findings]
    lines += [f"crashed {one.check}: {one.error}" for one in report.crashed]
    lines += [f"skipped {one.check} ({one.queue}): {one.reason}" for one in report.skipped]
    lines += [f"queue {one.name} {one.claim.shape} {one.rates} {one.ready}" for one in report.queues]
    return "\n".join(lines)


def named(report: Report, case: Case) -> ReportedFinding | None:
    """The finding that the case is about."""
    return next(
        (
            one
            for one in report.findings
            if one.check == case.check
            and one.severity in case.severities
            and all(word in one.title for word in case.words)
        ),
        None,
    )


@pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
def test_the_culprit_is_named_and_its_remedy_works(database: str, case: Case) -> None:
    run(database, *case.queue, *case.setup)
    with case.stage(database):
        time.sleep(STARTED_S + case.settle_s)
        report = look(database, case)
        found = named(report, case)
        assert not report.crashed, told(report)
        assert found is not None, told(report)
        assert not case.first or report.findings[0] == found, told(report)
        assert not {one.check for one in report.findings} & set(case.forbidden), told(report)
        assert found.remedies, told(report)
        if case.cure:
            remedy = next(one for one in found.remedies if one.kind == "sql")
            run(database, *remedy.sql)
            time.sleep(STARTED_S)
            after = look(database, case)
            assert named(after, case) is None, told(after)
