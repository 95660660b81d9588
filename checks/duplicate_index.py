"""Two indexes of the queue do the same work.

An index that repeats another one, or only the beginning of another one, answers no query that the other could not answer. Each
insert and each update that is not heap-only writes both, and each vacuum reads both.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated

from pgqdoctor import indexfacts, remedy
from pgqdoctor.check import COUNTERS, Check
from pgqdoctor.finding import Evidence, Finding, Severity
from pgqdoctor.lint import definitions
from pgqdoctor.observation import Observation
from pgqdoctor.queue import Queue
from pgqdoctor.rows import IndexRow
from pgqdoctor.words import rate, size

PAGE_BYTES = 8192


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """When a duplicate is a burden."""

    entries_per_s: Annotated[
        float, "entries per second written twice, from which it is a warning: over 6,000 a minute for nothing"
    ] = 100.0


def evaluate(seen: Observation, queue: Queue, limits: Limits) -> Iterator[Finding]:
    """Compare the indexes of the table with each other, and give up the one that enforces nothing."""
    churn = queue.churn
    written = churn.per_second(churn.inserted + churn.updated - churn.hot_updated)
    used = {name for one in queue.plans for name in one.facts.indexes}
    told: set[int] = set()
    candidates = [one for one in queue.indexes if one.valid and one.definition is not None]
    # Among equals the one a claim's plan uses stays, then the older one.
    for index in sorted(candidates, key=lambda one: (one.name in used, -one.oid)):
        if not _dispensable(queue, index):
            continue
        for other in candidates:
            if other.oid == index.oid or other.oid in told:
                continue
            exact = _body(index) == _body(other)
            if not exact and (index.name in used or not _begins(index, other)):
                continue
            told.add(index.oid)
            yield _finding(queue, index, other, exact=exact, written=written, limits=limits)
            break


def _dispensable(queue: Queue, index: IndexRow) -> bool:
    enforces = index.primary or index.unique or index.constraint is not None or index.replica_identity
    return not enforces and queue.table.kind != "p"


def _body(index: IndexRow) -> str:
    """The definition from USING on: method, columns with operator classes and collations, INCLUDE, options, predicate."""
    _, using, body = (index.definition or "").partition(" USING ")
    return body if using else f"{index.oid}"


def _begins(index: IndexRow, other: IndexRow) -> bool:
    """Tell whether a btree's columns are the first ones of another over the same rows."""
    if index.method != "btree" or other.method != "btree" or index.included_columns:
        return False
    if index.predicate != other.predicate or index.has_predicate != other.has_predicate:
        return False
    keys, longer = _keys(index), _keys(other)
    return keys is not None and longer is not None and len(keys) < len(longer) and longer[: len(keys)] == keys


def _keys(index: IndexRow) -> tuple[str, ...] | None:
    """The key columns as the definition writes them; None where it cannot be taken apart for certain."""
    body = _body(index)
    start = body.find("(")
    parts: list[str] = []
    depth, quoted, begun = 0, "", start + 1
    for place in range(max(start, 0), len(body)):
        letter = body[place]
        if quoted:
            quoted = "" if letter == quoted else quoted
        elif letter in "'\"":
            quoted = letter
        elif letter == "(":
            depth += 1
        elif letter == ")":
            depth -= 1
            if depth == 0:
                return (*parts, body[begun:place].strip())
        elif letter == "," and depth == 1:
            parts.append(body[begun:place].strip())
            begun = place + 1
    return None


def _finding(
    queue: Queue, index: IndexRow, other: IndexRow, *, exact: bool, written: float, limits: Limits
) -> Finding:
    name, stays = remedy.qualified(index.schema, index.name), remedy.qualified(other.schema, other.name)
    sizes = dict(queue.probe.index_sizes) if queue.probe is not None else {}
    taken = sizes.get(index.oid, index.pages * PAGE_BYTES)
    severity: Severity = "warning" if exact and written >= limits.entries_per_s else "notice"
    what = "repeats" if exact else "only holds the first columns of"
    return Finding(
        check=CHECK.id,
        severity=severity,
        queue=queue.name,
        subject=index.name,
        title=f"Index {name} {what} {stays}: {size(taken)}, and {rate(written)} entries are written twice",
        why=(
            "The other index answers the same queries"
            + (
                ", and it enforces a constraint, so it is the one that stays."
                if other.unique or other.constraint
                else "."
            )
            + (
                ""
                if exact
                else " Its entries are wider, so a scan of a long range reads some more pages, which a claim of a few rows does not feel."
            )
        ),
        evidence=(
            Evidence(what="index", value=index.definition or name, unit="", source="pg_index"),
            Evidence(what="stays", value=other.definition or stays, unit="", source="pg_index"),
            Evidence(what="size", value=taken, unit="bytes", source="pg_relation_size"),
            Evidence(
                what="entries written",
                value=round(written, 1),
                unit="per second",
                source="pg_stat_user_tables",
            ),
            Evidence(
                what="scans in this window",
                value=indexfacts.scans_in_window(queue, index),
                unit="",
                source="pg_stat_user_indexes",
            ),
        ),
        remedies=(
            remedy.drop_index(
                schema=index.schema,
                name=index.name,
                definition=index.definition or "",
                title=f"Drop {name}: {stays} does its work",
                expect=f"{size(taken)} less, and one entry less for each row written",
                risk="statements that used it are planned with the other index"
                + ("" if exact else ", which is wider: look at the plan of a long range scan afterwards"),
            ),
        ),
        relations=tuple(sorted(queue.oids)),
    )


CHECK = Check(
    title="An index repeats another",
    needs=(COUNTERS,),
    limits=Limits(),
    evaluate=evaluate,
    lint=definitions.duplicate_index,
    references=("https://www.postgresql.org/docs/current/indexes-multicolumn.html",),
    look_alikes=(
        "a partial index beside the primary key on the same column",
        "indexes on the same column with other operator classes, orders or predicates",
        "a unique index beside a wider one: it enforces something",
    ),
)
