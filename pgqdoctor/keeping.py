"""How many dead rows of a queue one holder of the xmin horizon keeps from vacuum. Pure."""

from __future__ import annotations

from typing import Final

from pgqdoctor.horizon import Holder
from pgqdoctor.queue import Queue
from pgqdoctor.words import count

ROWS_PER_TRANSACTION: Final = 100
"""Most rows that a queue's transactions change on the average, where none was seen to change more: the batches of real
workers. Rows that were dead before the holder began are not its doing, and its age in transactions bounds how many can have
died since. One bulk change among them leaves more, which no counter can date: so the number is told as what it is, a bound."""


def rows_kept(queue: Queue, holder: Holder) -> tuple[int, str]:
    """Return the dead rows this holder keeps and where the number is from.

    All of them where a vacuum passed since it began (vacuum left what it could not remove), else those made
    since, at the window's rate, and never more than its age in transactions allows for: as many rows for each as the
    largest of the statements that wrote the queue in the window.
    """
    dead = queue.churn.dead_last
    vacuumed = queue.last_any_vacuum_s
    if holder.seconds is not None and vacuumed is not None and vacuumed < holder.seconds:
        return dead, "n_dead_tup of pg_stat_user_tables, left by a vacuum"
    batch = _rows_per_transaction(queue)
    most = min(dead, round(holder.age * batch))
    made = queue.churn.per_second(queue.churn.dead_made) * (holder.seconds or 0.0)
    if made <= 0:
        if most == dead:
            return dead, "n_dead_tup of pg_stat_user_tables"
        return (
            most,
            f"n_dead_tup of pg_stat_user_tables, of which {count(round(batch))} for each transaction since it began; a bulk change "
            "among them would leave more",
        )
    return min(
        most, round(made)
    ), "dead rows per second times its age, at most n_dead_tup; a bulk change would leave more"


def _rows_per_transaction(queue: Queue) -> float:
    """Rows that a transaction of the queue changes at most: what was seen in the window, or what batches of workers change."""
    writing = (*queue.writes("update"), *queue.writes("delete"))
    return max([float(ROWS_PER_TRANSACTION), *(one.rows / one.calls for one, _ in writing if one.calls > 0)])
