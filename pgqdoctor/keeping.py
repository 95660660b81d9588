"""How many dead rows of a queue one holder of the xmin horizon keeps from vacuum. Pure."""

from __future__ import annotations

from pgqdoctor.horizon import Holder
from pgqdoctor.queue import Queue


def rows_kept(queue: Queue, holder: Holder) -> tuple[int, str]:
    """Return the dead rows this holder keeps and where the number is from.

    All of them where a vacuum passed since it began (vacuum left what it could not remove), else those made
    since, at the window's rate.
    """
    dead = queue.churn.dead_last
    vacuumed = queue.last_any_vacuum_s
    if holder.seconds is None or (vacuumed is not None and vacuumed < holder.seconds):
        left = ", left by a vacuum" if vacuumed is not None else ""
        return dead, f"n_dead_tup of pg_stat_user_tables{left}"
    made = queue.churn.per_second(queue.churn.dead_made) * holder.seconds
    if made <= 0:
        return dead, "n_dead_tup of pg_stat_user_tables"
    return min(dead, round(made)), "dead rows per second times its age, at most n_dead_tup"
