"""How many dead rows of a queue one holder of the xmin horizon keeps from vacuum. Pure."""

from __future__ import annotations

from typing import Final

from pgqdoctor.horizon import Holder
from pgqdoctor.queue import Queue

ROWS_PER_TRANSACTION: Final = 100
"""Most rows that a queue's transactions change on the average: the batches of real workers. Rows that were dead before the
holder began are not its doing, and its age in transactions bounds how many can have died since."""


def rows_kept(queue: Queue, holder: Holder) -> tuple[int, str]:
    """Return the dead rows this holder keeps and where the number is from.

    All of them where a vacuum passed since it began (vacuum left what it could not remove), else those made
    since, at the window's rate, and never more than its age in transactions allows for.
    """
    dead = queue.churn.dead_last
    vacuumed = queue.last_any_vacuum_s
    if holder.seconds is not None and vacuumed is not None and vacuumed < holder.seconds:
        return dead, "n_dead_tup of pg_stat_user_tables, left by a vacuum"
    most = min(dead, holder.age * ROWS_PER_TRANSACTION)
    made = queue.churn.per_second(queue.churn.dead_made) * (holder.seconds or 0.0)
    if made <= 0:
        return most, "n_dead_tup of pg_stat_user_tables, bounded by the transactions since it began"
    return min(most, round(made)), "dead rows per second times its age, at most n_dead_tup"
