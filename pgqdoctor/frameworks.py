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
    """

    framework: str
    table: str
    columns: frozenset[str]
    ready: str | None = None

    def matches(self, table: str, columns: frozenset[str]) -> bool:
        """Tell whether a table of that name and those columns is the framework's."""
        return self.columns <= columns and re.fullmatch(self.table, table) is not None


def _of(framework: str, table: str, columns: str, ready: str | None = None) -> Signature:
    return Signature(framework=framework, table=table, columns=frozenset(columns.split()), ready=ready)


SIGNATURES: Final[tuple[Signature, ...]] = (
    _of("river", r"river_job", "state args attempt kind queue scheduled_at attempted_by"),
    _of("procrastinate", r"procrastinate_jobs", "status task_name lock queueing_lock scheduled_at"),
    _of("pgqueuer", r"pgqueuer", "status entrypoint priority"),
    _of("chancy", r"\w*jobs", "state func attempts max_attempts unique_key taken_by"),
    _of("oban", r"oban_jobs", "state queue worker args attempt scheduled_at"),
    _of("solid_queue", r"solid_queue_ready_executions", "job_id queue_name priority", ready="true"),
    _of(
        "good_job",
        r"good_jobs",
        "active_job_id serialized_params finished_at scheduled_at",
        ready="finished_at IS NULL AND (scheduled_at IS NULL OR scheduled_at <= now())",
    ),
    _of(
        "que",
        r"que_jobs",
        "job_class error_count run_at expired_at finished_at",
        ready="finished_at IS NULL AND expired_at IS NULL AND run_at <= now()",
    ),
    _of("delayed_job", r"delayed_jobs", "handler attempts run_at locked_at locked_by failed_at"),
    _of("queue_classic", r"queue_classic_jobs", "q_name method args locked_at scheduled_at"),
    _of("pg-boss", r"job(_common)?", "state name priority start_after retry_limit singleton_key"),
    _of("pg-boss", r"job", "state name priority startafter retrylimit singletonkey"),
    _of("graphile-worker", r"_private_jobs", "job_queue_id task_id locked_at run_at attempts"),
    _of("graphile-worker", r"jobs", "queue_name task_identifier locked_at run_at attempts locked_by"),
    _of("pgmq", r"q_\w+", "msg_id read_ct enqueued_at vt message", ready="vt <= now()"),
    _of("hangfire", r"jobqueue", "jobid queue fetchedat"),
    _of("jobrunr", r"jobrunr_jobs", "version jobasjson state updatedat"),
    _of("db-scheduler", r"scheduled_tasks", "task_name task_instance execution_time picked version"),
    _of("dramatiq-pg", r"queue", "message_id queue_name state mtime message"),
    _of("kombu", r"kombu_message", "visible payload queue_id"),
    _of("django-q2", r"django_q_ormq", "key payload lock", ready="lock <= now()"),
    _of("django-tasks", r"django_tasks_database_dbtaskresult", "status enqueued_at run_after task_path"),
    _of("django-db-queue", r"django_dbq_job", "state next_task run_after queue_name"),
    _of("dbos", r"workflow_status", "workflow_uuid status queue_name executor_id"),
    _of("windmill", r"v2_job_queue", "running scheduled_for tag suspend"),
    _of("hatchet", r"v1_queue_item", "tenant_id queue task_id step_id"),
    _of("gue", r"gue_jobs", "job_id priority run_at job_type error_count queue"),
    _of("prisma-queue", r"\w+", "finishedAt processedAt runAt maxAttempts key payload"),
    _of("pq", r"\w+", "enqueued_at dequeued_at expected_at schedule_at q_name data"),
    _of("roost", r"jobs", "state scheduled_at depends_on"),
    _of("awa", r"jobs_hot", "state run_at attempt"),
)


def table_patterns() -> list[str]:
    """Return the patterns of table names that say something, anchored for the server's regular expressions."""
    return sorted({f"^({one.table})$" for one in SIGNATURES if not one.table.startswith(r"\w")})


def signature_of(table: str, columns: frozenset[str]) -> Signature | None:
    """Return the signature that the table matches, or None."""
    return next((one for one in SIGNATURES if one.matches(table, columns)), None)
