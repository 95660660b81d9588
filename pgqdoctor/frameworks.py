"""Signatures of queue frameworks: the table they create and columns that no other table of that name has.

A signature names the framework and makes its table a queue even where its claim cannot be read (advisory
locks, dynamic SQL, optimistic updates). Facts are from the frameworks' own public schemas.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True, kw_only=True)
class Signature:
    """``table`` is a pattern for the whole table name; all of ``columns`` must be there.

    ``ready`` is the condition for a job that may be taken now, given where the framework's claim cannot be read
    from statements (advisory locks, dynamic SQL, optimistic updates, mere membership in the table).
    ``helpers`` is a pattern for the names of the framework's other tables in the same schema: they are locked and
    updated like queues and are none. ``functions`` are those that take jobs by SQL built at run time, and ``claim``
    is what they build, with {table} in the place of the name.
    """

    framework: str
    table: str
    columns: frozenset[str]
    ready: str | None = None
    helpers: str = r"(?!)"
    functions: frozenset[str] = frozenset()
    claim: str | None = None
    waiting: tuple[str, ...] = ()
    """The state's values for ready jobs, where normalised claims hide them or the words mislead."""
    running: tuple[str, ...] = ()
    """The state's values for claimed jobs."""

    def matches(self, table: str, columns: frozenset[str]) -> bool:
        """Tell whether a table of that name and those columns is the framework's."""
        return self.columns <= columns and re.fullmatch(self.table, table) is not None

    def is_helper(self, table: str) -> bool:
        """Tell whether a table of that name in the same schema is one of the framework's other tables."""
        return re.fullmatch(self.helpers, table) is not None


def _of(
    framework: str,
    table: str,
    columns: str,
    ready: str | None = None,
    helpers: str = r"(?!)",
    functions: str = "",
    claim: str | None = None,
    waiting: str = "",
    running: str = "",
) -> Signature:
    return Signature(
        framework=framework,
        table=table,
        columns=frozenset(columns.split()),
        ready=ready,
        helpers=helpers,
        functions=frozenset(functions.split()),
        claim=claim,
        waiting=tuple(waiting.split()),
        running=tuple(running.split()),
    )


_ALL: Final = r".*"
"""For frameworks with a schema of their own."""

SIGNATURES: Final[tuple[Signature, ...]] = (
    _of(
        "river",
        r"river_job",
        "state args attempt kind queue scheduled_at attempted_by",
        helpers=r"river_\w+",
        waiting="available",
        running="running",
    ),
    _of(
        "procrastinate",
        r"procrastinate_jobs",
        "status task_name lock queueing_lock scheduled_at",
        helpers=r"procrastinate_\w+",
    ),
    _of("pgqueuer", r"\w*pgqueuer", "status entrypoint priority payload", helpers=r"\w*pgqueuer_\w+"),
    _of(
        "chancy",
        r"\w*jobs",
        "state func attempts max_attempts unique_key taken_by",
        helpers=r"\w*(workers|queues|leader|cron|workflows|workflow_steps|migrations|rate_limits|metrics)",
        waiting="pending retrying",
        running="running",
    ),
    _of(
        "oban",
        r"oban_jobs",
        "state queue worker args attempt scheduled_at",
        helpers=r"oban_\w+",
        waiting="available",
        running="executing",
    ),
    _of(
        "solid_queue",
        r"solid_queue_ready_executions",
        "job_id queue_name priority",
        ready="true",
        helpers=r"solid_queue_\w+",
    ),
    _of(
        "good_job",
        r"good_jobs",
        "active_job_id serialized_params finished_at scheduled_at",
        ready="finished_at IS NULL AND (scheduled_at IS NULL OR scheduled_at <= (now() AT TIME ZONE 'UTC'))",
        helpers=r"good_job_\w+",
    ),
    _of(
        "que",
        r"que_jobs",
        "job_class error_count run_at expired_at finished_at",
        ready="finished_at IS NULL AND expired_at IS NULL AND run_at <= now()",
        helpers=r"que_(lockers|values)",
    ),
    _of("delayed_job", r"delayed_jobs", "handler attempts run_at locked_at locked_by failed_at"),
    _of("queue_classic", r"queue_classic_jobs", "q_name method args locked_at scheduled_at"),
    _of(
        "pg-boss",
        r"job(_common)?",
        "state name priority start_after retry_limit singleton_key",
        ready="state IN ('created', 'retry') AND start_after <= now()",
        helpers=_ALL,
    ),
    _of(
        "pg-boss",
        r"job",
        "state name priority startafter retrylimit singletonkey",
        ready="state IN ('created', 'retry') AND startafter <= now()",
        helpers=_ALL,
    ),
    _of("graphile-worker", r"_private_jobs", "job_queue_id task_id locked_at run_at attempts", helpers=_ALL),
    _of(
        "graphile-worker",
        r"jobs",
        "queue_name task_identifier locked_at run_at attempts locked_by",
        helpers=_ALL,
    ),
    _of(
        "pgmq",
        r"q_\w+",
        "msg_id read_ct enqueued_at vt message",
        ready="vt <= now()",
        helpers=r"a_\w+|meta|notify_insert_throttle|topic_bindings",
        functions="read read_with_poll pop read_grouped read_grouped_rr",
        claim="WITH cte AS (SELECT msg_id FROM {table} WHERE vt <= clock_timestamp() ORDER BY msg_id ASC LIMIT $1 FOR UPDATE SKIP LOCKED) "
        "UPDATE {table} m SET vt = clock_timestamp() + $2::interval, read_ct = read_ct + 1 FROM cte WHERE m.msg_id = cte.msg_id RETURNING m.msg_id",
    ),
    _of("hangfire", r"jobqueue", "jobid queue fetchedat", helpers=_ALL),
    _of(
        "jobrunr",
        r"\w*jobrunr_jobs",
        "version jobasjson state updatedat",
        helpers=r"\w*jobrunr_\w+",
        waiting="ENQUEUED",
        running="PROCESSING",
    ),
    _of("db-scheduler", r"scheduled_tasks", "task_name task_instance execution_time picked version"),
    _of("dramatiq-pg", r"queue", "message_id queue_name state mtime message", ready="state = 'queued'"),
    _of("kombu", r"kombu_message", "visible payload queue_id", helpers=r"kombu_queue"),
    _of("django-q2", r"django_q_ormq", "key payload lock", ready="lock <= now()", helpers=r"django_q_\w+"),
    _of(
        "django-tasks",
        r"django_tasks_database_dbtaskresult",
        "status enqueued_at run_after task_path",
        waiting="READY",
        running="RUNNING",
    ),
    _of("django-task-psql", r"task_psql_task", "status run_after", waiting="READY", running="RUNNING"),
    _of(
        "django-db-queue",
        r"django_dbq_job",
        "state next_task run_after queue_name",
        helpers=r"django_dbq_\w+",
        waiting="NEW READY",
        running="PROCESSING",
    ),
    _of(
        "dbos",
        r"workflow_status",
        "workflow_uuid status queue_name executor_id",
        helpers=_ALL,
        waiting="ENQUEUED",
        running="PENDING",
    ),
    _of(
        "absurd",
        r"r_\w+",
        "run_id task_id state available_at claimed_by claim_expires_at",
        ready="state IN ('pending', 'sleeping') AND available_at <= now()",
        helpers=r"[tcewi]_\w+|queues",
        functions="claim_task",
        waiting="pending sleeping",
        running="running",
    ),
    _of("windmill", r"v2_job_queue", "running scheduled_for tag suspend", helpers=r"v2_\w+"),
    _of(
        "hatchet",
        r"v1_queue_item",
        "tenant_id queue task_id step_id",
        ready="true",
        helpers=r"v1_\w+",
    ),
    _of("gue", r"gue_jobs", "job_id priority run_at job_type error_count queue"),
    _of("prisma-queue", r"\w+", "finishedAt processedAt runAt maxAttempts key payload"),
    _of("pq", r"\w+", "enqueued_at dequeued_at expected_at schedule_at q_name data"),
    _of(
        "roost",
        r"jobs",
        "state scheduled_at depends_on",
        helpers=_ALL,
        waiting="available",
        running="executing",
    ),
    _of("awa", r"jobs_hot", "state run_at attempt", helpers=_ALL),
    _of(
        "airflow",
        r"task_instance",
        "task_id dag_id run_id state pool queued_dttm",
        ready="state = 'scheduled'",
        helpers=r"dag|dag_\w+|job|callback|callback_request|trigger|deadline\w*|slot_pool|asset\w*|dataset\w*|serialized_dag|task_\w+|\w+_request|log|sla_miss|import_error|xcom|backfill\w*|hitl\w*",
        waiting="scheduled",
        running="running",
    ),
)


def table_patterns() -> list[str]:
    """Return the patterns of table names that say something, anchored for the server's regular expressions."""
    return sorted({f"^({one.table})$" for one in SIGNATURES if one.table != r"\w+"})


def signature_of(table: str, columns: frozenset[str]) -> Signature | None:
    """Return the signature that the table matches, or None."""
    return next((one for one in SIGNATURES if one.matches(table, columns)), None)
