"""What causes what: links between the findings of one observation, the order they are told in, and what has to wait.

A link is drawn only where this observation shows it: the same queue and the mechanism's own condition, the same backend, the
same chain of lock waits, or a horizon old enough for the dead rows there are. Then the remedies that could not work, or would
fight a symptom, before their cause is gone are withheld, and the finding says so.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Final

from pgqdoctor import whatif
from pgqdoctor.finding import SEVERITIES, Finding, Remedy
from pgqdoctor.observation import Observation
from pgqdoctor.queue import Queue
from pgqdoctor.words import shortened

Holds = Callable[[Observation, Finding, Finding], bool]

MOST_OF: Final = 0.5
"""Share from which a cause explains an effect: what explains less than half leaves room for another, larger cause."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """``cause`` (a check id) makes ``effect`` where ``holds`` sees it."""

    cause: str
    effect: str
    holds: Holds


def _rules(pairs: str, holds: Holds) -> tuple[Rule, ...]:
    """Read lines of "cause -> effect, effect"; a line that begins with # says by which mechanism."""
    found: list[Rule] = []
    for line in pairs.strip().splitlines():
        if line.lstrip().startswith("#"):
            continue
        cause, _, effects = line.partition("->")
        found.extend(Rule(cause=cause.strip(), effect=one.strip(), holds=holds) for one in effects.split(","))
    return tuple(found)


# --- what an observation shows ------------------------------------------------------------------------


def _same_queue(seen: Observation, cause: Finding, effect: Finding) -> bool:
    return cause.queue == effect.queue or cause.queue is None or effect.queue is None


def _same_pid(seen: Observation, cause: Finding, effect: Finding) -> bool:
    return bool(set(cause.pids) & set(effect.pids))


def _same_index(seen: Observation, cause: Finding, effect: Finding) -> bool:
    return cause.queue == effect.queue and cause.subject != "" and cause.subject == effect.subject


def _in_the_way(seen: Observation, cause: Finding, effect: Finding) -> bool:
    """Tell whether a backend of the effect waits, directly or behind others, for one of the cause's."""
    return bool(waiting_for(seen, cause.pids) & set(effect.pids))


def _holds_others_up(seen: Observation, cause: Finding, effect: Finding) -> bool:
    """Tell whether anybody waits for the cause's backends, on the same queue."""
    return _same_queue(seen, cause, effect) and bool(waiting_for(seen, cause.pids))


def _its_waiters(seen: Observation, cause: Finding, effect: Finding) -> bool:
    """Tell whether the backends that the cause makes wait stand in the effect's line."""
    return bool(waiting_for(seen, effect.pids) & set(cause.pids))


def _harmful(seen: Observation, cause: Finding, effect: Finding) -> bool:
    """Tell whether the cause harms the same queue now: a notice is no explanation for jobs that are late."""
    return _same_queue(seen, cause, effect) and cause.severity != "notice"


def _keeps_its_dead_rows(seen: Observation, cause: Finding, effect: Finding) -> bool:
    """Tell whether the horizon keeps most of the dead rows in question: a younger holder is not what they wait for.

    Where the claim's plan tells how many dead entries it walked, those count: rows that died before the holder began have theirs
    marked by the first scan, and no claim follows them again.
    """
    kept = _number(cause, "dead rows it keeps")
    if cause.queue != effect.queue or kept is None:
        return False
    walked = _number(effect, "dead entries") or _number(effect, "dead entries, at least")
    return kept >= MOST_OF * (_dead(seen, cause, effect) if walked is None else walked)


def _trigger_not_reached(seen: Observation, cause: Finding, effect: Finding) -> bool:
    """Tell whether the settings still let the dead rows lie: autovacuum is off, or its trigger is about as far as they are.

    Where they stand at more than twice the trigger, autovacuum should have come long ago, and something else kept it away. How long
    one pass takes is a matter of its own.
    """
    if cause.queue != effect.queue:
        return False
    trigger = _number(cause, "autovacuum's trigger")
    return trigger is None or _dead(seen, cause, effect) <= 2 * trigger


def _updates_make_them(seen: Observation, cause: Finding, effect: Finding) -> bool:
    """Tell whether updates that could not be heap-only make most of what vacuum has to remove from the queue."""
    if cause.queue != effect.queue or not cause.relations:
        return False
    before = {row.oid: row for row in seen.first.tables}
    updated = deleted = 0
    for row in seen.last.tables:
        if row.oid in cause.relations and row.oid in before:
            old = before[row.oid]
            updated += max(0, row.updated - row.hot_updated - (old.updated - old.hot_updated))
            deleted += max(0, row.deleted - old.deleted)
    return updated > 0 and updated >= MOST_OF * (updated + deleted)


def _bounds_the_age(seen: Observation, cause: Finding, effect: Finding) -> bool:
    """Tell whether the holder's own age makes up most of the database's: freezing cannot pass the horizon."""
    age = _number(cause, "age of its xmin") or _number(cause, "age of its xid")
    return age is not None and age >= MOST_OF * seen.last.database.xid_age


def _fills_connections(seen: Observation, cause: Finding, effect: Finding) -> bool:
    """Tell whether most connections stand in the line behind the cause's backends."""
    return len(waiting_for(seen, cause.pids)) >= MOST_OF * max(seen.last.database.backends, 1)


def _workers_are_at_it(seen: Observation, cause: Finding, effect: Finding) -> bool:
    """Tell whether the workers spend most of their time at the claim: only then does its cost decide how many jobs get done.

    Workers are the backends that samples caught at a claim of the queue; those that wait there count as well.
    """
    if not _harmful(seen, cause, effect):
        return False
    queue = effect.queue or cause.queue
    keys = {key for one in seen.queues if one.name == queue for key in one.claim_keys}
    ids = {row.query_id for row in seen.statement_texts if row.key in keys and row.query_id is not None}
    caught = [
        one.pid
        for sample in seen.samples
        for one in sample.sessions
        if one.state == "active" and (one.query_id in ids or f"text:{one.text}" in keys)
    ]
    return bool(caught) and len(caught) >= MOST_OF * len(set(caught)) * len(seen.samples)


def _locks_more(seen: Observation, cause: Finding, effect: Finding) -> bool:
    """Tell whether the claim locks rows of a table it joins, so that SKIP LOCKED passes over the jobs that share them."""
    return cause.queue == effect.queue and cause.subject.startswith("joins ")


def _same_prepared(seen: Observation, cause: Finding, effect: Finding) -> bool:
    """Tell whether one prepared transaction does both: it belongs to no backend, and both would resolve it."""
    resolving = {sql for one in cause.remedies for sql in one.sql if "PREPARED" in sql}
    return any(sql in resolving for one in effect.remedies for sql in one.sql)


def _others_are_locked(seen: Observation, cause: Finding, effect: Finding) -> bool:
    """Tell whether ready jobs are passed over because somebody holds their row locks, as far as the plan tells."""
    return cause.queue == effect.queue and effect.subject == "starved" and "lock" in effect.title


def _an_index_is_there(seen: Observation, cause: Finding, effect: Finding) -> bool:
    """Tell whether another plan could serve the claim: where a new index is asked for, right row counts bring none."""
    return cause.queue == effect.queue and not any(
        "CREATE INDEX" in sql for one in effect.remedies for sql in one.sql
    )


def _nothing_ready(seen: Observation, cause: Finding, effect: Finding) -> bool:
    """Tell whether claims find nothing because nothing is ready, while jobs lie in the hands of nobody."""
    names = {one.oid for one in seen.queues if one.name == cause.queue}
    return cause.queue == effect.queue and any(
        one.oid in names and one.ready_rows == 0 for one in seen.probes
    )


def _shuts_out(seen: Observation, cause: Finding, effect: Finding) -> bool:
    """Tell whether ready jobs are not taken while stuck ones are: a limit on running jobs counts both."""
    return cause.queue == effect.queue and cause.severity == "critical" and effect.subject == "starved"


def _stops_all(seen: Observation, cause: Finding, effect: Finding) -> bool:
    """Tell whether workers ask and get nothing while stuck jobs count as running."""
    return cause.queue == effect.queue and cause.severity == "critical"


def _most_are_running(seen: Observation, cause: Finding, effect: Finding) -> bool:
    """Tell whether the rows that the claim walks over are running jobs rather than finished ones."""
    for queue in seen.queues:
        probe = seen.probe_of(queue.oid)
        if queue.name != cause.queue or cause.queue != effect.queue or probe is None:
            continue
        others = [one for one in probe.states if one.value not in queue.ready_values]
        running = sum(one.rows for one in others if one.value in queue.running_values)
        return running >= MOST_OF * sum(one.rows for one in others) > 0
    return False


def waiting_for(seen: Observation, pids: tuple[int, ...]) -> frozenset[int]:
    """Return the backends that waited at the end of the window for one of ``pids``, directly or behind another waiter."""
    behind: set[int] = set()
    ahead = set(pids)
    while ahead:
        found = {
            row.pid
            for row in seen.last.locks
            if row.pid is not None and row.pid not in behind and set(row.blocked_by) & ahead
        }
        behind |= found
        ahead = found
    return frozenset(behind)


def _number(finding: Finding, what: str) -> float | None:
    return next(
        (float(one.value) for one in finding.evidence if one.what == what and not isinstance(one.value, str)),
        None,
    )


def _dead(seen: Observation, cause: Finding, effect: Finding) -> int:
    oids = {*cause.relations, *effect.relations}
    return sum(row.dead for row in seen.last.tables if row.oid in oids)


# --- the rules ----------------------------------------------------------------------------------------

RULES: tuple[Rule, ...] = (
    *_rules(
        """
        # A worker that keeps its transaction open keeps its transaction id, which bounds what vacuum may remove.
        claim-transaction-held -> vacuum-horizon-held
        # The session that the line waits for keeps the table locked for as long as its transaction is open.
        claim-transaction-held -> lock-queue
        # One transaction does both. The line stops the work at once, the horizon slows it, so the line is told first.
        lock-queue -> vacuum-horizon-held
        # Autovacuum gives way to a table lock: it is cancelled by who waits for it and does not wait itself.
        lock-queue -> autovacuum-behind
        # A listener inside an open transaction reads no notifications, and the queue cannot be truncated past it.
        vacuum-horizon-held -> notify-queue-held
        # A transaction that stays open keeps its lock on the parent row, and each child inserted since joins it in a new MultiXact.
        vacuum-horizon-held -> multixact-from-foreign-key
        # A lock function in WHERE takes a lock for each row that the scan meets; those nobody releases are the leak.
        claim-advisory-lock -> advisory-lock-leak
        # The same open savepoints lock rows twice and fill the backend's cache of subtransaction ids.
        multixact-from-subtransaction -> subtransaction-overflow
        """,
        _same_pid,
    ),
    *_rules(
        """
        # The row that everybody waits for stays locked until the worker's transaction ends.
        claim-transaction-held -> claim-not-skip-locked
        # Who waits for a row lock may stand behind a transaction that itself waits for a table lock.
        lock-queue -> claim-not-skip-locked, claim-transaction-held
        """,
        _in_the_way,
    ),
    *_rules(
        """
        # The counter's row stays locked as long as a transaction that has updated it and goes on to work.
        claim-transaction-held -> hot-row
        """,
        _holds_others_up,
    ),
    *_rules(
        """
        # Writers of a child table would not wait for the claim at all if it locked the job less strongly.
        claim-lock-too-strong -> lock-queue
        """,
        _its_waiters,
    ),
    *_rules(
        """
        # Vacuum may not remove what the oldest snapshot could see; pages, indexes and TOAST keep it too.
        vacuum-horizon-held -> dead-tuples, claim-scans-dead-rows, heap-bloat, index-bloat, toast-bloat
        """,
        _keeps_its_dead_rows,
    ),
    *_rules(
        """
        # Rows younger than the horizon cannot be frozen, so the database's age grows with its holder's.
        vacuum-horizon-held -> xid-wraparound
        """,
        _bounds_the_age,
    ),
    *_rules(
        """
        # Nobody removes dead rows before the trigger is passed, or at all where autovacuum is off.
        autovacuum-settings -> dead-tuples, claim-scans-dead-rows, heap-bloat, index-bloat
        """,
        _trigger_not_reached,
    ),
    *_rules(
        """
        # A vacuum that does not finish has not removed the index entries: it cleans the indexes after the heap.
        autovacuum-behind -> dead-tuples, claim-scans-dead-rows, heap-bloat, index-bloat, toast-bloat
        # Each dead row keeps its entry at the head of the ready index, where the claim begins.
        dead-tuples -> claim-scans-dead-rows
        # Space that dead rows take is what the table and its indexes have too much.
        dead-tuples -> heap-bloat, index-bloat
        # A row locked by one transaction and updated by its subtransaction, or locked by several, needs a MultiXact.
        multixact-from-subtransaction -> multixact-slru-waits, multixact-wraparound, multixact-cache-small
        multixact-from-foreign-key -> multixact-slru-waits, multixact-wraparound, multixact-cache-small
        multixact-from-share-lock -> multixact-slru-waits, multixact-wraparound, multixact-cache-small
        # A look-up that misses the cache reads a page under the lock that all others wait for.
        multixact-cache-small -> multixact-slru-waits
        # A plan that cannot use the partial index reads the whole table, or sorts what that index has in order.
        claim-misses-partial-index -> claim-scans-consumed-rows, claim-sorts-backlog
        # One claim that locks the whole backlog, or locks rows it only looks at, leaves the other workers nothing.
        claim-unbounded -> claim-empty-polls
        claim-advisory-lock -> claim-empty-polls
        """,
        _same_queue,
    ),
    *_rules(
        """
        # An update that is not heap-only leaves a line pointer and index entries that only vacuum removes.
        hot-blocked-by-index -> dead-tuples
        hot-no-page-room -> dead-tuples
        """,
        _updates_make_them,
    ),
    *_rules(
        """
        # An index that nothing reads, or that another one covers, blocks heap-only updates for nothing.
        unused-index -> hot-blocked-by-index
        duplicate-index -> hot-blocked-by-index
        """,
        _same_index,
    ),
    *_rules(
        """
        # Wrong row counts make a scan of the table look cheaper than the index that serves the claim.
        stale-statistics -> claim-scans-consumed-rows, claim-sorts-backlog
        """,
        _an_index_is_there,
    ),
    *_rules(
        """
        # Workers ask again and again for jobs that another worker's lock on a joined row hides from them.
        claim-lock-too-strong -> claim-empty-polls
        """,
        _locks_more,
    ),
    *_rules(
        """
        # A prepared transaction keeps its row locks and its transaction id.
        lock-queue -> vacuum-horizon-held
        """,
        _same_prepared,
    ),
    *_rules(
        """
        # Jobs that one open transaction has locked, and not yet worked on, are passed over by all others.
        claim-transaction-held -> claim-empty-polls
        """,
        _others_are_locked,
    ),
    *_rules(
        """
        # Jobs claimed by workers that are gone are neither ready nor done.
        jobs-stuck -> claim-empty-polls
        """,
        _nothing_ready,
    ),
    *_rules(
        """
        # Stuck jobs use up a limit on running ones, so that the claim may take none of those that are ready.
        jobs-stuck -> claim-empty-polls
        """,
        _shuts_out,
    ),
    *_rules(
        """
        # Jobs that never leave the running state pile up in the way of the claim like finished ones.
        jobs-stuck -> claim-scans-consumed-rows
        """,
        _most_are_running,
    ),
    *_rules(
        """
        # A limit on running jobs that stuck ones use up lets workers take none.
        jobs-stuck -> queue-unserved
        """,
        _stops_all,
    ),
    *_rules(
        """
        # Each client that waits keeps its connection, and new ones come to wait as well.
        lock-queue -> connections-saturated
        claim-transaction-held -> connections-saturated
        """,
        _fills_connections,
    ),
    *_rules(
        """
        # Workers that stand in a line finish fewer jobs than arrive.
        lock-queue -> backlog-growing
        claim-not-skip-locked -> backlog-growing
        multixact-slru-waits -> backlog-growing
        subtransaction-overflow -> backlog-growing
        notify-contention -> backlog-growing
        hot-row -> backlog-growing
        # A worker that holds its claim while it works has its connection taken, and so has whoever finds no slot.
        claim-transaction-held -> backlog-growing
        connections-saturated -> backlog-growing
        # Jobs that fail and are claimed again at once leave no worker for the others.
        claims-rolled-back -> backlog-growing, queue-unserved
        # A worker whose commit waits takes no other job.
        commit-waits-standby -> backlog-growing, queue-unserved
        # Attempts that fail take the place of jobs that would succeed.
        retry-storm -> backlog-growing
        # Workers that cannot connect, cannot get past a lock or find every job shut out take none, and look as if they were gone.
        lock-queue -> queue-unserved
        connections-saturated -> queue-unserved
        claim-transaction-held -> queue-unserved
        claim-not-skip-locked -> queue-unserved
        claim-unbounded -> queue-unserved
        claim-empty-polls -> queue-unserved
        # Jobs locked by a session that has forgotten them are passed over by everybody.
        advisory-lock-leak -> queue-unserved, backlog-growing
        # What nobody takes piles up.
        queue-unserved -> backlog-growing
        """,
        _harmful,
    ),
    *_rules(
        """
        # Workers that search finish fewer jobs than arrive.
        claim-scans-dead-rows -> backlog-growing
        claim-scans-consumed-rows -> backlog-growing
        claim-scans-ineligible-rows -> backlog-growing
        claim-sorts-backlog -> backlog-growing
        claim-advisory-lock -> backlog-growing
        claim-unbounded -> backlog-growing
        """,
        _workers_are_at_it,
    ),
)


def link_and_order(
    seen: Observation, queues: tuple[Queue, ...], findings: tuple[Finding, ...]
) -> tuple[Finding, ...]:
    """Fill in ``caused_by``, withhold remedies that have to wait, and order the findings.

    A cause stands before what it causes, the worse story before the milder.
    """
    linked = []
    for effect in findings:
        causes: list[str] = []
        for rule in RULES:
            if rule.effect != effect.check:
                continue
            causes.extend(
                cause.key
                for cause in findings
                if cause.check == rule.cause and cause.key != effect.key and rule.holds(seen, cause, effect)
            )
        linked.append(replace(effect, caused_by=tuple(dict.fromkeys(causes))))
    return withhold(seen, _ordered(_without_circles(linked)))


def _without_circles(findings: list[Finding]) -> list[Finding]:
    """Drop links that would make two findings each other's cause: the first rule that applied stays."""
    by_key = {one.key: one for one in findings}

    def reaches(start: str, goal: str, links: dict[str, tuple[str, ...]]) -> bool:
        todo, seen_keys = [start], set()
        while todo:
            key = todo.pop()
            if key == goal:
                return True
            if key not in seen_keys:
                seen_keys.add(key)
                todo.extend(links.get(key, ()))
        return False

    links: dict[str, tuple[str, ...]] = dict.fromkeys(by_key, ())
    for one in findings:
        for cause in one.caused_by:
            if not reaches(cause, one.key, links):
                links[one.key] = (*links[one.key], cause)
    return [replace(one, caused_by=links[one.key]) for one in findings]


def _ordered(findings: list[Finding]) -> tuple[Finding, ...]:
    """Roots by the worst severity in their story, each followed by what it causes."""
    by_key = {one.key: one for one in findings}
    effects: dict[str, list[Finding]] = {one.key: [] for one in findings}
    for one in findings:
        for cause in one.caused_by:
            effects[cause].append(one)

    def story(one: Finding) -> int:
        ranks = [SEVERITIES.index(one.severity)]
        ranks.extend(story(effect) for effect in effects[one.key])
        return min(ranks)

    def rank(one: Finding) -> tuple[int, int, int, str]:
        return (story(one), SEVERITIES.index(one.severity), -len(effects[one.key]), one.key)

    told: dict[str, Finding] = {}

    def tell(one: Finding) -> None:
        if one.key in told or any(cause not in told for cause in one.caused_by):
            return
        told[one.key] = one
        for effect in sorted(effects[one.key], key=rank):
            tell(effect)

    for root in sorted((one for one in findings if not one.caused_by), key=rank):
        tell(root)
    return tuple(told[key] for key in told if key in by_key)


# --- what has to wait ---------------------------------------------------------------------------------

HIDES: Final = frozenset(
    {"claim-lock-too-strong", "claim-unbounded", "claim-advisory-lock", "claim-transaction-held"}
)
"""Checks of locks that make claims find nothing although jobs are ready: there asking less often makes jobs later."""
_VACUUMS: Final = re.compile(r"\bVACUUM\b|autovacuum|vacuum_cost|\bpg_repack\b", re.IGNORECASE)
_DELETES: Final = re.compile(r"\bDELETE\s+FROM\b", re.IGNORECASE)
_BUILDS_INDEX: Final = re.compile(
    r"\b(CREATE\s+(UNIQUE\s+)?INDEX|REINDEX\b.*)\s+CONCURRENTLY\b", re.IGNORECASE
)


def withhold(seen: Observation, findings: tuple[Finding, ...]) -> tuple[Finding, ...]:
    """Take out the remedies that cannot work, or fight a symptom, before another finding is cured; say so in ``why``.

    The findings stand in their order: causes first.
    """
    kept: list[Finding] = []
    for one in findings:
        remedies: list[Remedy] = []
        waits: dict[str, list[Remedy]] = {}
        for remedy in one.remedies:
            reason = next(_reasons(seen, one, remedy, findings, kept), None)
            if reason is None:
                remedies.append(remedy)
            else:
                waits.setdefault(reason, []).append(remedy)
        if waits:
            said = " ".join(f"{reason}: {_named(held)}." for reason, held in waits.items())
            one = replace(one, why=f"{one.why} {said}", remedies=tuple(remedies))
        kept.append(one)
    return tuple(kept)


def _reasons(
    seen: Observation, one: Finding, remedy: Remedy, findings: tuple[Finding, ...], before: list[Finding]
) -> Iterator[str]:
    """Yield why a remedy has to wait: the sentence up to the remedy's title."""
    sql = "\n".join(remedy.sql)
    for other in findings:
        if other.key == one.key:
            continue
        if other.check == "vacuum-horizon-held":
            if _VACUUMS.search(sql) and _same_queue(seen, other, one):
                yield f"Comes after {_culprit(other)}, without which no vacuum removes a row"
            if remedy.kind == "sql" and _DELETES.search(sql) and _same_queue(seen, other, one):
                yield f"Comes after {_culprit(other)}, until which each deleted row stays as a dead one"
            if _BUILDS_INDEX.search(sql) and _index_build_waits(seen, other, one):
                yield f"Comes after {_culprit(other)}, for whose snapshot the building of an index would wait"
        elif other.check == "lock-queue" and remedy.lock and _behind_lock(seen, other, one):
            yield f"Comes after {_culprit(other)}, behind whose lock it would wait"
    above = _above(one, before)
    if one.check == "backlog-growing" and above:
        nearest = next(cause for cause in reversed(before) if cause.key in one.caused_by)
        yield f"Comes after {_culprit(nearest)}, which keeps the workers there are from their work"
    elif one.check == "backlog-growing":
        slowing = next((each for each in findings if _may_slow(each, one)), None)
        if slowing is not None:
            yield f"Comes after {_culprit(slowing)}, which more workers would meet as well"
    if one.check == "claim-empty-polls" and any(
        cause.check in HIDES and cause.key in above for cause in before
    ):
        yield "Comes after the cure of what hides ready jobs from the claims"
    for cause in before:
        if cause.key in above and any(_same_work(remedy, each) for each in cause.remedies):
            yield f"Done with the remedy of {cause.check}"


def _may_slow(cause: Finding, backlog: Finding) -> bool:
    """Tell whether a harmful finding of the same queue is one that may cause a backlog, whether or not this window links the two."""
    return (
        cause.severity != "notice"
        and cause.queue == backlog.queue
        and any(rule.cause == cause.check and rule.effect == backlog.check for rule in RULES)
    )


def _above(one: Finding, before: list[Finding]) -> set[str]:
    """Keys of all causes above a finding, however far."""
    by_key = {each.key: each for each in before}
    found: set[str] = set()
    todo = list(one.caused_by)
    while todo:
        key = todo.pop()
        if key not in found:
            found.add(key)
            todo.extend(by_key[key].caused_by if key in by_key else ())
    return found


def _culprit(finding: Finding) -> str:
    """Who has to go first: the session that one of the finding's remedies ends, else the finding itself."""
    pids = next((ended for one in finding.remedies if (ended := whatif.ended_by(one.sql).pids)), ())
    return f"the end of session {pids[0]} ({finding.check})" if pids else f"the cure of {finding.check}"


def _named(remedies: list[Remedy]) -> str:
    return "; ".join(shortened(one.title, 100) for one in remedies)


def _index_build_waits(seen: Observation, holder: Finding, one: Finding) -> bool:
    """Tell whether CREATE INDEX CONCURRENTLY would wait for the holder.

    Before the index may be used, it waits for every session of the database with a snapshot older than its own, and before it
    scans, for all transactions that hold a writer's lock on the table (index.c, WaitForOlderSnapshots, WaitForLockers). A slot or a
    standby does not keep it waiting.
    """
    if any(row.pid in holder.pids and row.xmin is not None for row in seen.last.sessions):
        return True
    return any(
        row.pid in holder.pids and row.granted and row.relation in one.relations and row.mode in _WRITERS
        for row in seen.last.locks
    )


_WRITERS: Final = frozenset(
    {
        "RowExclusiveLock",
        "ShareUpdateExclusiveLock",
        "ShareRowExclusiveLock",
        "ExclusiveLock",
        "AccessExclusiveLock",
    }
)
"""Lock modes that conflict with the SHARE lock an index build must be able to take."""


def _behind_lock(seen: Observation, line: Finding, one: Finding) -> bool:
    """Tell whether an exclusive lock, held or waited for, stands on a table of both findings."""
    tables = set(line.relations) & set(one.relations) if line.relations else set(one.relations)
    return any(row.relation in tables and row.mode == "AccessExclusiveLock" for row in seen.last.locks)


def _same_work(remedy: Remedy, other: Remedy) -> bool:
    """Tell whether two remedies do the same: one VACUUM of a table serves both findings, whatever its options."""
    return remedy.sql == other.sql or (_vacuumed(remedy) != "" and _vacuumed(remedy) == _vacuumed(other))


def _vacuumed(remedy: Remedy) -> str:
    """The table that a remedy vacuums by hand, "" for none."""
    for sql in remedy.sql:
        found = re.match(r"VACUUM\s*(?:\([^)]*\))?\s*(.+?);?\s*$", sql)
        if found:
            return found[1]
    return ""
