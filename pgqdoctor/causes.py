"""What causes what: links between the findings of one observation, and the order they are told in.

A link is drawn only where this observation shows it: the same queue and the mechanism's own condition, the
same backend, or the same table.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from pgqdoctor.finding import SEVERITIES, Finding
from pgqdoctor.observation import Observation
from pgqdoctor.queue import Queue

Holds = Callable[[Observation, Finding, Finding], bool]


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """``cause`` (a check id) makes ``effect`` where ``holds`` sees it."""

    cause: str
    effect: str
    holds: Holds


def _same_queue(seen: Observation, cause: Finding, effect: Finding) -> bool:
    return cause.queue == effect.queue or cause.queue is None or effect.queue is None


def _same_pid(seen: Observation, cause: Finding, effect: Finding) -> bool:
    return bool(set(cause.pids) & set(effect.pids))


def _at_fault(seen: Observation, cause: Finding, effect: Finding) -> bool:
    """A trade-off that is only noted causes nothing that is worth blaming on it."""
    return cause.severity != "notice" and _same_queue(seen, cause, effect)


def _rules(pairs: str, holds: Holds) -> tuple[Rule, ...]:
    found: list[Rule] = []
    for line in pairs.strip().splitlines():
        cause, _, effects = line.partition("->")
        found.extend(Rule(cause=cause.strip(), effect=one.strip(), holds=holds) for one in effects.split(","))
    return tuple(found)


RULES: tuple[Rule, ...] = (
    *_rules(
        """
        claim-transaction-held -> vacuum-horizon-held, lock-queue, claim-not-skip-locked
        vacuum-horizon-held -> lock-queue
        lock-queue -> vacuum-horizon-held
        """,
        _same_pid,
    ),
    *_rules(
        """
        vacuum-horizon-held -> dead-tuples, claim-scans-dead-rows
        autovacuum-settings -> dead-tuples, claim-scans-dead-rows
        dead-tuples -> claim-scans-dead-rows
        multixact-from-subtransaction -> multixact-slru-waits
        multixact-from-foreign-key -> multixact-slru-waits
        multixact-from-share-lock -> multixact-slru-waits
        jobs-stuck -> claim-empty-polls
        """,
        _same_queue,
    ),
    *_rules(
        """
        vacuum-horizon-held -> heap-bloat, index-bloat, toast-bloat
        lock-queue -> autovacuum-behind
        autovacuum-behind -> dead-tuples, claim-scans-dead-rows, heap-bloat, index-bloat
        autovacuum-settings -> heap-bloat, index-bloat, toast-bloat
        dead-tuples -> heap-bloat, index-bloat
        hot-blocked-by-index -> dead-tuples, index-bloat
        hot-no-page-room -> dead-tuples, index-bloat
        finished-jobs-kept -> autovacuum-settings, claim-scans-consumed-rows
        """,
        _at_fault,
    ),
)


def link_and_order(
    seen: Observation, queues: tuple[Queue, ...], findings: tuple[Finding, ...]
) -> tuple[Finding, ...]:
    """Fill in ``caused_by`` and order the findings: a cause before what it causes, the worse story first."""
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
    return _ordered(_without_circles(linked))


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
