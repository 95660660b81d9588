"""Jobs were claimed long ago, and nobody works on them.

A worker that is killed leaves its jobs in the running state. Unless something puts them back, they stay there
for ever, and where a limit counts running jobs, a few of them stop the whole queue. Age alone does not tell:
a job may run for 14 hours and renew its heartbeat every second. A lease that has run out, or a heartbeat that
has stopped while others go on, does tell. Where workers show that they live in a table of their own, the job's
times tell nothing, and jobs of living workers must not be put back with those of dead ones.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated, Final

from pgqdoctor import claiming, remedy
from pgqdoctor.check import CLAIMED, ROWS, Check
from pgqdoctor.finding import Evidence, Finding, Remedy, Severity
from pgqdoctor.lifesigns import HEARTBEAT
from pgqdoctor.names import same_table
from pgqdoctor.observation import Observation, StuckProbe
from pgqdoctor.predicates import flat
from pgqdoctor.queue import Queue
from pgqdoctor.rows import ForeignKeyRow
from pgqdoctor.sqlfacts import TableName, Write
from pgqdoctor.sqlread import read_sql
from pgqdoctor.sqlrewrite import quote_ident
from pgqdoctor.words import count, duration, plural, shortened

_REFERENCE: Final = re.compile(r"_(id|key|uuid|name)$")
"""What a column that refers to another table adds to the singular of its name."""
_WORKERS: Final = re.compile(
    r"worker|process|runner|executor|consumer|scheduler|daemon|agent|node|server|instance|^hosts?$"
)
"""Names of tables that hold what works on jobs."""
_SHORTEST_STEM: Final = 3
"""Shortest stem of a column's name that is compared with names of tables."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """From when a claimed job counts as left alone."""

    silence_s: Annotated[
        float, "seconds without a heartbeat: the frameworks met send one every 5 to 60 seconds"
    ] = 120.0
    silence_factor: Annotated[
        float,
        "times the age that the freshest half of the heartbeats shows: a few may be late, ten in a row are not",
    ] = 10.0
    unknown_s: Annotated[
        float, "seconds of silence where no fresh heartbeat or running lease shows how long is usual"
    ] = 600.0
    lease_s: Annotated[
        float, "seconds past the end of a lease: a reaper that comes every minute has passed twice"
    ] = 120.0
    lease_factor: Annotated[
        float, "times the longest lease that still runs: a job may overrun one lease, hardly two"
    ] = 2.0
    claimed_s: Annotated[float, "seconds since the claim, where that is all that is known"] = 3_600.0
    claimed_factor: Annotated[
        float,
        "times the usual duration by Little's law (jobs in flight over jobs claimed per second): durations vary by an order or two",
    ] = 100.0
    claimed_rows: Annotated[int, "jobs claimed in the window that make Little's law worth applying"] = 10
    per_connection: Annotated[
        int,
        "claimed jobs per client connection: no worker runs so many at once, so most of them are nobody's",
    ] = 100
    patience_s: Annotated[
        float, "seconds a job must be overdue to be a warning: a slow reaper may still come"
    ] = 900.0


@dataclass(frozen=True, slots=True, kw_only=True)
class _Beat:
    """Where the workers show that they live, other than in the rows of the queue. Names are quoted."""

    table: str
    column: str | None
    """None where the counters tell that rows of the table are written, and no statement tells what."""
    through: str
    """The queue's column that tells whose the job is."""
    key: str | None
    """The column of the other table at the other end of a foreign key, None where a name is all that ties the tables."""

    @property
    def place(self) -> str:
        return f"{self.table}.{self.column}" if self.column is not None else self.table


@dataclass(frozen=True, slots=True, kw_only=True)
class _Overdue:
    probe: StuckProbe
    rows: int
    oldest_s: float
    limit_s: float
    how: str


def evaluate(seen: Observation, queue: Queue, limits: Limits) -> Iterator[Finding]:
    """Judge claimed jobs by the best sign of life there is: heartbeat, else lease, else the time of the
    claim."""
    if queue.probe is None:
        return
    by_measure = {one.measure: one for one in queue.probe.stuck if one.rows}
    overdue: _Overdue | None
    if "heartbeat" in by_measure and _renewed(queue, by_measure["heartbeat"], by_measure.get("claimed")):
        overdue = _by_heartbeat(by_measure["heartbeat"], limits)
    elif "lease" in by_measure and _is_lease(queue, by_measure["lease"]):
        overdue = _by_lease(by_measure["lease"], limits)
    elif "claimed" in by_measure or "heartbeat" in by_measure:
        overdue = _by_claim(seen, queue, by_measure.get("claimed") or by_measure["heartbeat"], limits)
    else:
        overdue = None
    if overdue is None or not overdue.rows:
        return
    beat = _beat_elsewhere(seen, queue) if overdue.probe.measure == "claimed" else None
    if beat is not None:
        yield _unknown(queue, overdue, beat)
        return
    wedged = _wedged(queue)
    yield _finding(queue, overdue, wedged, limits)


def _finding(queue: Queue, overdue: _Overdue, wedged: bool, limits: Limits) -> Finding:
    probe = overdue.probe
    ready = queue.probe.ready_rows if queue.probe is not None else None
    severity: Severity = "warning" if overdue.oldest_s - overdue.limit_s >= limits.patience_s else "notice"
    if wedged:
        severity = "critical"
    least = "At least " if probe.rows >= probe.limit else ""
    sign = {
        "heartbeat": f"the oldest gave its last sign of life {duration(overdue.oldest_s)} ago",
        "lease": f"the oldest lease ran out {duration(overdue.oldest_s)} ago",
        "claimed": f"the oldest was claimed {duration(overdue.oldest_s)} ago",
    }[probe.measure]
    stop = f", and no worker takes any of the {count(ready or 0)} ready ones" if wedged else ""
    return Finding(
        check=CHECK.id,
        severity=severity,
        queue=queue.name,
        title=f"{least}{plural(overdue.rows, 'job')} of {queue.name} {'is' if overdue.rows == 1 else 'are'} stuck: {sign}{stop}",
        why=(
            f"They are marked as running, {overdue.how}, and nothing puts them back. Their worker was most likely killed."
            + (
                " Where running jobs are counted against a limit, they use it up, so that nothing else starts."
                if wedged
                else ""
            )
        ),
        evidence=_evidence(queue, overdue),
        remedies=tuple(_reaper(queue, overdue)),
        relations=(queue.oid,),
    )


def _unknown(queue: Queue, overdue: _Overdue, beat: _Beat) -> Finding:
    """Tell of old claims whose workers may live: which of them do stands in another table."""
    least = "At least " if overdue.probe.rows >= overdue.probe.limit else ""
    tells = "tells" if beat.column is not None else "may tell"
    renewed = (
        f"The workers renew a sign of life in {beat.place}, to which {beat.through} of the job leads"
        if beat.column is not None
        else f"Rows of {beat.table}, to which {beat.through} of the job leads, are updated, and that may be a worker's sign of life"
    )
    return Finding(
        check=CHECK.id,
        severity="notice",
        queue=queue.name,
        title=(
            f"{least}{plural(overdue.rows, 'job')} of {queue.name} {'was' if overdue.rows == 1 else 'were'} claimed long ago, the oldest "
            f"{duration(overdue.oldest_s)} ago: look at {beat.place} first, which {tells} whose worker lives"
        ),
        why=(
            f"They are marked as running, {overdue.how}. {renewed}, so that the job's own times tell neither that its worker was killed nor that "
            "it goes on. Jobs of living workers among them would run twice if all were put back."
        ),
        evidence=(
            *_evidence(queue, overdue),
            Evidence(
                what="sign of life elsewhere" if beat.column is not None else "perhaps a sign of life",
                value=beat.place,
                unit="",
                source=f"by {beat.through}",
            ),
        ),
        remedies=tuple(_look_first(queue, overdue, beat)),
        relations=(queue.oid,),
    )


def _evidence(queue: Queue, overdue: _Overdue) -> tuple[Evidence, ...]:
    probe = overdue.probe
    ready = queue.probe.ready_rows if queue.probe is not None else None
    return (
        Evidence(
            what="overdue jobs",
            value=overdue.rows,
            unit="rows",
            source=f"bounded look at {quote_ident(probe.column)}",
        ),
        Evidence(what="claimed jobs seen", value=probe.rows, unit="rows", source="bounded look"),
        Evidence(
            what="oldest",
            value=round(overdue.oldest_s, 1),
            unit="seconds",
            source=f"now() - {quote_ident(probe.column)}",
        ),
        Evidence(what="overdue from", value=round(overdue.limit_s, 1), unit="seconds", source=overdue.how),
        Evidence(
            what="examples",
            value=shortened(" ".join(probe.examples), 200),
            unit="",
            source=f"keys of the oldest ({', '.join(queue.identity.roles.key)})",
        ),
        *(
            (
                Evidence(
                    what="ready jobs",
                    value=ready,
                    unit="rows",
                    source=f"bounded look: {queue.identity.ready_predicate}",
                ),
            )
            if ready is not None
            else ()
        ),
    )


def _by_heartbeat(probe: StuckProbe, limits: Limits) -> _Overdue:
    fresh = sorted(age for age in probe.ages_s if age <= limits.silence_s)
    if fresh:
        usual = max(fresh[len(fresh) // 2], 0.0)
        limit = max(limits.silence_s, limits.silence_factor * usual)
        how = f"their heartbeat has stopped while others are {duration(usual)} old"
    else:
        limit, how = limits.unknown_s, "their heartbeat has stopped and no other job has a fresh one"
    return _overdue(probe, limit, how)


def _by_lease(probe: StuckProbe, limits: Limits) -> _Overdue:
    running = [-age for age in probe.ages_s if age < 0]
    limit = max(limits.lease_s, limits.lease_factor * max(running)) if running else limits.unknown_s
    return _overdue(probe, limit, "their lease has run out")


def _by_claim(seen: Observation, queue: Queue, probe: StuckProbe, limits: Limits) -> _Overdue | None:
    """Judge by the time of the claim alone, which says little: only what is far beyond the usual duration is
    overdue."""
    taken = claiming.taken(queue)
    in_flight = probe.rows - probe.older_than(limits.claimed_s)
    if taken >= limits.claimed_rows and queue.churn.seconds > 0:
        usual = in_flight / (taken / queue.churn.seconds)
        limit = max(limits.claimed_s, limits.claimed_factor * usual)
        takes = f"about {duration(usual)}" if usual >= 0.001 else "a moment"
        return _overdue(probe, limit, f"claimed long ago where a job takes {takes}")
    if probe.rows > limits.per_connection * max(seen.last.database.backends, 1):
        return _overdue(
            probe, limits.claimed_s, "claimed long ago and far more than all connections could be working on"
        )
    return None


def _overdue(probe: StuckProbe, limit: float, how: str) -> _Overdue:
    # Both ends of the thinned list are kept, so its first age is that of the oldest job.
    return _Overdue(
        probe=probe,
        rows=probe.older_than(limit),
        oldest_s=max(probe.ages_s, default=0.0),
        limit_s=limit,
        how=how,
    )


def _renewed(queue: Queue, heartbeat: StuckProbe, claimed: StuckProbe | None) -> bool:
    """Tell whether the column is renewed while a job runs, rather than written once by the claim."""
    claims = {one.seen.statement for one in queue.claims}
    if any(
        heartbeat.column in {each.column for each in write.sets} and seen.statement not in claims
        for seen, write in queue.writes("update")
    ):
        return True
    # The freshest heartbeat is younger than the youngest claim by more than a moment.
    return claimed is not None and bool(claimed.ages_s) and min(heartbeat.ages_s) + 1.0 < min(claimed.ages_s)


def _is_lease(queue: Queue, probe: StuckProbe) -> bool:
    """Tell whether the column bounds a claim: the claim writes it, and does not itself take jobs whose lease
    has run out."""
    if any(test.column == probe.column for one in queue.claims for test in flat(one.claim.conditions)):
        return False
    writes = [*queue.writes("update")]
    return not writes or any(probe.column in {one.column for one in write.sets} for _, write in writes)


def _wedged(queue: Queue) -> bool:
    """Tell whether workers ask, jobs are ready, and none is taken."""
    asked = [one.seen for one in queue.claims if not one.claim.by_key]
    return (
        queue.probe is not None
        and bool(queue.probe.ready_rows)
        and sum(one.calls for one in asked) > 0
        and sum(one.rows for one in asked) == 0
    )


# Signs of life in another table


def _beat_elsewhere(seen: Observation, queue: Queue) -> _Beat | None:
    """Return where workers that a column of the queue refers to show that they live, None where nothing tells of such a table."""
    texts = [
        *(one.text for one in seen.statement_texts if one.text is not None),
        *seen.texts,
    ]
    tied = {oid for key in queue.foreign_keys for oid in (key.parent, key.child)} - queue.oids
    names = [row.name.lower() for row in queue.catalog.tables if row.oid in tied]
    for text in dict.fromkeys(texts):
        plain = text.lower()
        if not HEARTBEAT.search(plain) and not any(name in plain for name in names):
            continue
        for write in (one for statement in read_sql(text).statements for one in statement.writes):
            beat = _beat_of(queue, write)
            if beat is not None:
                return beat
    return _written_parent(seen, queue)


def _beat_of(queue: Queue, write: Write) -> _Beat | None:
    """Return what a write renews of a table that the jobs refer to: by a foreign key, by a name, or by their owner alone."""
    if write.kind == "delete" or queue.is_this(write.table):
        return None
    named = [one.column for one in write.sets if HEARTBEAT.search(one.column.lower())]
    owner = queue.identity.roles.owner
    # Users and devices are seen too, and work on no job: what does not refer to the job's owner must be named as workers are.
    workers = _WORKERS.search(write.table.name.lower()) is not None
    for key in queue.foreign_keys:
        if not _refers_to(queue, key, write.table):
            continue
        of_job = key.parent in queue.oids
        ends = (key.child_columns[0], key.parent_columns[0])
        through, at = reversed(ends) if of_job else ends
        # The row of the worker itself shows life by whatever time it is given.
        now = [one.column for one in write.sets if one.value_kind == "now"] if through == owner else []
        if of_job or workers or through == owner:
            for column in (*named, *now):
                return _Beat(
                    table=key.child_name if of_job else key.parent_name,
                    column=quote_ident(column),
                    through=quote_ident(through),
                    key=quote_ident(at),
                )
    by_name = [
        row.name
        for row in queue.columns
        if _names(row.name, write.table.name) and (workers or row.name == owner)
    ]
    if workers and owner is not None:
        by_name.append(owner)
    if not named or not by_name:
        return None
    schema = f"{quote_ident(write.table.schema)}." if write.table.schema is not None else ""
    return _Beat(
        table=f"{schema}{quote_ident(write.table.name)}",
        column=quote_ident(named[0]),
        through=quote_ident(by_name[0]),
        key=None,
    )


def _written_parent(seen: Observation, queue: Queue) -> _Beat | None:
    """Return the table of owners whose rows are ever updated, where no statement tells what is written: a heartbeat may come
    less often than the window is long."""
    updated = {row.oid for row in seen.last.tables if row.updated > 0}
    for key in queue.foreign_keys:
        mine = key.child in queue.oids and key.parent not in queue.oids
        if mine and key.child_columns == (queue.identity.roles.owner,) and key.parent in updated:
            return _Beat(
                table=key.parent_name,
                column=None,
                through=quote_ident(key.child_columns[0]),
                key=quote_ident(key.parent_columns[0]),
            )
    return None


def _refers_to(queue: Queue, key: ForeignKeyRow, table: TableName) -> bool:
    """Tell whether a key of one column ties the queue to the table of that name, whichever of them refers to the other."""
    other = key.child if key.parent in queue.oids else key.parent
    row = queue.catalog.table(other)
    return (
        len(key.child_columns) == 1
        and other not in queue.oids
        and row is not None
        and same_table(table, row.schema, row.name)
    )


def _names(column: str, table: str) -> bool:
    """Tell whether a column is named after a table: worker_id after workers, process_id after solid_queue_processes."""
    stem, found = _REFERENCE.subn("", column.lower())
    return (
        bool(found)
        and len(stem) >= _SHORTEST_STEM
        and any(
            table.lower() == end or table.lower().endswith(f"_{end}")
            for end in (stem, f"{stem}s", f"{stem}es")
        )
    )


def _look_first(queue: Queue, overdue: _Overdue, beat: _Beat) -> Iterator[Remedy]:
    """A look at the claims beside the sign of life, where a foreign key tells how the tables are joined; never a statement that
    puts jobs back."""
    running = _running_condition(queue)
    if beat.key is None or beat.column is None or running is None:
        yield remedy.change_application(
            title=f"Look at {beat.place} first, and put back only jobs whose worker has shown no sign of life there",
            expect="jobs of dead workers are ready again, and those of living ones run on",
            risk="a worker that is alive but silent will see its job run a second time",
        )
        return
    column = quote_ident(overdue.probe.column)
    keys = "".join(f"j.{quote_ident(one)}, " for one in queue.identity.roles.key)
    yield remedy.statement(
        sql=(
            f"SELECT {keys}j.{beat.through}, j.{column}, w.{beat.column}\n  FROM (SELECT * FROM {queue.name}\n         WHERE {running} AND "
            f"{column} < now() - interval '{round(overdue.limit_s)} seconds'\n         ORDER BY {column} LIMIT 1000) AS j\n"
            f"  LEFT JOIN {beat.table} AS w ON w.{beat.key} = j.{beat.through}\n ORDER BY w.{beat.column} NULLS FIRST;",
        ),
        title=f"Look at {beat.place} of their workers first, and put back only jobs of those that are silent",
        expect=(
            "the jobs of dead workers come first; a reaper that compares this time, and not that of the claim, puts back those and no others"
        ),
        risk="none, it only reads",
        lock="ACCESS SHARE",
    )


# The reaper


def _running_condition(queue: Queue) -> str | None:
    """Return the SQL condition for claimed jobs, None where the columns do not tell them."""
    identity, roles = queue.identity, queue.identity.roles
    state = queue.column(roles.state) if roles.state is not None else None
    if state is not None and state.type_category != "D" and roles.state is not None:
        values = identity.running_values
        if not values:
            return None
        listed = ", ".join(remedy.literal(one) for one in values)
        return (
            f"{quote_ident(roles.state)} = {listed}"
            if len(values) == 1
            else f"{quote_ident(roles.state)} IN ({listed})"
        )
    held = roles.claimed_at or roles.lease
    if held is None:
        return None
    parts = [f"{quote_ident(held)} IS NOT NULL"]
    ended = (
        roles.finished_at
        if roles.finished_at not in (None, held)
        else roles.state
        if roles.state != held
        else None
    )
    if ended is not None:
        parts.append(f"{quote_ident(ended)} IS NULL")
    return " AND ".join(parts)


def _put_back(queue: Queue) -> list[str] | None:
    """Return the SET clauses that make a running job ready again, None where the ready state is not known."""
    identity, roles = queue.identity, queue.identity.roles
    sets: list[str] = []
    state = queue.column(roles.state) if roles.state is not None else None
    if state is not None and roles.state is not None:
        if state.type_category == "D":
            sets.append(f"{quote_ident(roles.state)} = NULL")
        elif identity.ready_values:
            again = next(
                (one for one in identity.ready_values if one.lower().startswith("retr")),
                identity.ready_values[0],
            )
            sets.append(f"{quote_ident(roles.state)} = {remedy.literal(again)}")
        else:
            return None
    for name in dict.fromkeys((roles.owner, roles.claimed_at, roles.lease, roles.heartbeat)):
        row = queue.column(name) if name is not None else None
        if (
            name is not None
            and row is not None
            and not row.not_null
            and not row.generated
            and name != roles.state
        ):
            sets.append(f"{quote_ident(name)} = NULL")
    if roles.attempts is not None and not _claim_counts(queue):
        sets.append(f"{quote_ident(roles.attempts)} = {quote_ident(roles.attempts)} + 1")
    return sets or None


def _claim_counts(queue: Queue) -> bool:
    """Tell whether the claim has counted the attempt already."""
    return any(
        queue.identity.roles.attempts in {each.column for each in write.sets}
        for one in queue.claims
        for write in one.seen.statement.writes
        if write.kind == "update"
    )


def _reaper(queue: Queue, overdue: _Overdue) -> Iterator[Remedy]:
    running, sets, key = _running_condition(queue), _put_back(queue), queue.identity.roles.key
    if running is None or sets is None or not key:
        return
    column = quote_ident(overdue.probe.column)
    stale = f"{running} AND {column} < now() - interval '{round(overdue.limit_s)} seconds'"
    keys = ", ".join(quote_ident(one) for one in key)
    same = " AND ".join(f"j.{quote_ident(one)} = overdue.{quote_ident(one)}" for one in key)
    counted = (
        f"; {quote_ident(queue.identity.roles.attempts)} stays, because the claim counts it"
        if queue.identity.roles.attempts is not None and _claim_counts(queue)
        else ""
    )
    yield remedy.statement(
        sql=(
            f"WITH overdue AS MATERIALIZED (\n  SELECT {keys} FROM {queue.name}\n   WHERE {stale}\n   ORDER BY {column} LIMIT 1000 "
            f"FOR UPDATE SKIP LOCKED\n)\nUPDATE {queue.name} AS j SET {', '.join(sets)}\n  FROM overdue WHERE {same}\n"
            f"RETURNING {', '.join('j.' + quote_ident(one) for one in key)};",
        ),
        title="Put the overdue jobs back, 1,000 at a time, and run the same statement every minute as a reaper",
        expect=f"the jobs are ready again and workers take them; repeat until it returns no row{counted}",
        risk=(
            "a worker that is alive but silent will see its job run a second time; a job that killed its worker will do so again, so the reaper "
            "should give up on jobs with too many attempts. There is no way back: the keys it returns tell which jobs it touched"
        ),
        lock="ROW EXCLUSIVE",
    )


def _can_get_stuck(queue: Queue) -> bool:
    """Tell whether a killed worker leaves a claimed job behind: where claims delete it, its transaction's end brings it back."""
    claims = [one.claim for one in queue.claims]
    return not claims or any(one.shape != "delete-skip-locked" for one in claims)


CHECK = Check(
    title="Claimed jobs that nobody works on",
    applies=_can_get_stuck,
    needs=(ROWS, CLAIMED),
    limits=Limits(),
    evaluate=evaluate,
    look_alikes=(
        "a job that has run for 14 hours and renews its heartbeat",
        "a lease that ran out a moment ago",
        "a queue whose claim itself takes jobs with an expired lease",
        "long jobs of which only the time of the claim is known",
        "jobs of a worker that renews its heartbeat in a table of workers",
    ),
)
