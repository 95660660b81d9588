"""Words by which people name job states and the columns around them.

A statement's structure decides what it does; words only settle what structure leaves open: whether an
equality pins one known row, whether an update takes a job, finishes it or puts it back. Where they do not
settle it the answer is "not known", and whoever asks has to look at the catalogs.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final, Literal

from pgqdoctor.sqlfacts import Assignment, Condition
from pgqdoctor.sqltext import word_set

Purpose = Literal["claim", "finish", "release"]

KINDS: Final = (
    "queue",
    "queue_name",
    "queue_id",
    "kind",
    "task_name",
    "job_class",
    "task",
    "job_type",
    "type",
)
"""How frameworks call the column by which a worker chooses its jobs, the coarsest first."""

_KEY = re.compile(r"(?:^|_)(?:id|uuid|guid|ulid|pk|ctid)$|^[a-z]+id$", re.IGNORECASE)
_OWN_KEY = re.compile(r"^(?:id|uuid|guid|ulid|pk|ctid)$", re.IGNORECASE)
_FOREIGN = re.compile(
    r"^_?(?:queue|worker|tenant|user|account|owner|batch|group|parent|process|shard|org|organi[sz]ation"
    r"|customer|client|project|workspace|node|host|locked_by|claimed_by|backend|schedule|paid|valid)",
    re.IGNORECASE,
)
_STATE = re.compile(r"state|status|phase|stage$", re.IGNORECASE)
_FLAG = re.compile(
    r"^(?:is_|has_|was_)|^(?:locked|picked|running|claimed|processed|processing|done|visible|available|completed"
    r"|active|consumed|dispatched|published|sent|handled|finished|started|blocked|paused|suspended)$",
    re.IGNORECASE,
)
_TIME = re.compile(
    r"(?:^|_)(?:at|on|time|date|until|after|before|eta|vt|dttm|ts|timestamp|expires|deadline)$"
    r"|(?:At|After|Until|Time)$"
    r"|^(?:visible|available|scheduled|locked|lock|not_?before|run_?at|start_?after)",
    re.IGNORECASE,
)
_STARTS = re.compile(
    r"^(?:date_?)?(?:lock|claim|pick|start|dequeue|fetch|reserve|taken?_|acquire|lease|attempted|worker|executor"
    r"|running|processing|process_?id|consumer|owner|runner|picked)",
    re.IGNORECASE,
)
_FINISHES = re.compile(
    r"^(?:date_?)?(?:finish|complet|finali[sz]|done|ended|fail|succeed|success|error|last_?error|result"
    r"|output|return_?value|exception|discard|cancel|processed_?(?:at|on))",
    re.IGNORECASE,
)
IN_PROGRESS = word_set(
    """
    running processing active picked claimed locked executing doing started working in_progress
    inprogress in-progress busy reserved consumed leased dispatched acquired assigned taken
    """
)
AT_WORK = word_set(
    "running processing claimed locked executing working in_progress inprogress in-progress leased"
)
"""Those that say by themselves that somebody works: an order is active or started, and no worker has it."""
FINISHED = word_set(
    """
    done completed complete succeeded success successful failed failure error errored cancelled
    canceled discarded dead expired finished processed aborted rejected skipped archived deleted sent
    published
    """
)
READY = word_set(
    """
    ready queued available pending waiting new todo enqueued created idle free open
    """
)


def is_key(column: str) -> bool:
    """Tell whether a name is that of a row's own key rather than of a reference to something else."""
    return bool(_KEY.search(column)) and not _FOREIGN.match(column)


def is_state(column: str) -> bool:
    """Tell whether a name is that of a state column."""
    return bool(_STATE.search(column))


def tests_state(condition: Condition, *, flags: bool = True) -> bool:
    """Tell whether a condition asks in which state a job is, or whether it is due.

    With ``flags`` false a bare boolean column does not count: ``WHERE success`` selects as well for a pruning
    of results as for a queue.
    """
    if condition.operator == "or":
        return any(tests_state(part, flags=flags) for branch in condition.branches for part in branch)
    column = condition.column
    if column is None:
        return False
    if condition.operator in ("is true", "is false", "is not true", "is not false"):
        return flags
    if condition.operator in ("is null", "is not null"):
        return True
    if condition.value_kind == "now":
        return True
    if condition.value_kind == "column":
        return False
    if is_state(column):
        return True
    if condition.operator in ("<", "<=", ">", ">="):
        return bool(_TIME.search(column))
    if condition.value_kind == "boolean" or _FLAG.search(column):
        return flags
    return condition.operator == "<>" and not is_key(column)


def asks_taken(condition_list: Iterable[Condition]) -> bool:
    """Tell whether conditions ask by words for jobs that are under way or over, and for no others."""
    asked = _asked_states(condition_list)
    return bool(asked) and asked <= IN_PROGRESS | FINISHED


def asks_ready(condition_list: Iterable[Condition]) -> bool:
    """Tell whether conditions ask by words for jobs that wait, and for no others."""
    asked = _asked_states(condition_list)
    return bool(asked) and asked <= READY


def _asked_states(condition_list: Iterable[Condition]) -> set[str]:
    return {
        value.lower()
        for test in condition_list
        if test.column is not None
        and is_state(test.column)
        and test.operator in ("=", "in")
        and test.value_kind in ("constant", "list")
        for value in test.values
    }


def marks_worker(column: str) -> bool:
    """Tell whether a name is that of a column by which a worker, or the time of its claim, is known."""
    return bool(_STARTS.match(column))


def pins_row(condition: Condition) -> bool:
    """Tell whether a condition names rows by their key: ``id = $1``, ``id = ANY($1)``."""
    return (
        condition.column is not None
        and condition.operator in ("=", "in")
        and condition.value_kind in ("constant", "parameter", "list")
        and is_key(condition.column)
    )


def names_one_row(condition: Condition) -> bool:
    """Tell whether a condition is ``id = $1`` on a column that can only be the table's own key."""
    return condition.operator == "=" and pins_row(condition) and bool(_OWN_KEY.match(condition.column or ""))


def purpose(sets: Iterable[Assignment], conditions: Iterable[Condition]) -> Purpose | None:
    """Tell what an UPDATE does to a job where its words say so, else None.

    Normalised texts hide the constants, so None is common.
    """
    sets = tuple(sets)
    starts = any(_STARTS.match(each.column) and each.value_kind not in ("null",) for each in sets)
    stops = any(_STARTS.match(each.column) and each.value_kind == "null" for each in sets)
    for each in sets:
        value = each.value.lower()
        if each.value_kind == "boolean" and _FLAG.search(each.column):
            if _STARTS.match(each.column):
                return "claim" if value == "true" else "release"
            if _FINISHES.match(each.column) and value == "true":
                return "finish"
        if each.value_kind != "constant" or not is_state(each.column):
            continue
        if value in IN_PROGRESS:
            return "claim"
        if value in FINISHED:
            return "finish"
        if value in READY and not starts:
            tested = {
                word.lower() for test in conditions if test.column == each.column for word in test.values
            }
            # From one word for ready to another: the words do not tell.
            return None if tested & READY else "release"
    finishes = any(_FINISHES.match(each.column) and each.value_kind != "null" for each in sets)
    if stops and not starts:
        return "finish" if finishes else "release"
    if starts != finishes:
        return "claim" if starts else "finish"
    return None
