"""Which remedies of a report make one script, and in which order. Pure; nothing here is ever executed.

A remedy that two findings recommend appears once. A remedy that would overwrite what an earlier one sets is left out, and a
remedy of a finding whose cause is treated before comes later: it may not be needed any more. What is lost for good or
reaches beyond the queue's own tables is a decision: a person takes it, and the script only prints it.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from pgqdoctor.decisions import caution, decision
from pgqdoctor.finding import Remedy
from pgqdoctor.report import QueueFacts, Report, ReportedFinding
from pgqdoctor.sqlremedy import parsed
from pgqdoctor.story import stories

ACTING: Final = ("sql", "setting")
"""Kinds of remedies that a script can carry out; the others are work on the application or an upgrade."""

_LOCK_TIMEOUT: Final = re.compile(r"\s*SET\s+lock_timeout\b", re.IGNORECASE)
_ALTERNATIVE: Final = re.compile(r"or\b", re.IGNORECASE)
"""How checks begin the title of a remedy that stands in the place of the one before it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One remedy with the findings that ask for it. ``sql`` and ``undo`` come without their lock_timeout.

    ``after`` are keys of findings treated earlier that cause this one's: the step may not be needed any more.
    ``alternative`` says that the remedy before it cures the same. ``clashes`` says, in words, what of an earlier
    step this one would overwrite; "" for nothing. ``decide`` says what a person has to
    decide before it runs, ``first`` what to make sure of before; "" for nothing.
    """

    remedy: Remedy
    findings: tuple[ReportedFinding, ...]
    sql: tuple[str, ...]
    undo: tuple[str, ...]
    after: tuple[str, ...] = ()
    alternative: bool = False
    clashes: str = ""
    decide: str = ""
    first: str = ""

    @property
    def acts(self) -> bool:
        """True where the script carries the step out; the others stand in it as comments."""
        return self.ready and not self.decide

    @property
    def ready(self) -> bool:
        """True where nothing but a person's decision keeps the script from carrying the step out."""
        return (
            self.remedy.kind in ACTING
            and bool(self.sql)
            and not (self.after or self.alternative or self.clashes)
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Treatment:
    """The steps of a script: ``first`` treats causes, ``later`` what may be left of their effects.

    ``optional`` are what the knobs of a queue recommend and no finding asks for; they never act.
    """

    findings: tuple[ReportedFinding, ...]
    first: tuple[Step, ...]
    later: tuple[Step, ...]
    optional: tuple[Step, ...] = ()

    @property
    def steps(self) -> tuple[Step, ...]:
        """All steps in their order."""
        return (*self.first, *self.later, *self.optional)


def treatment(report: Report, chosen: Collection[str] = (), *, later_on: Report | None = None) -> Treatment:
    """Return the steps for the findings of ``chosen`` (keys, or ids of checks), for all of them where it is empty.

    The report's order is kept: a cause stands before what it causes. ``later_on`` is the report of what would remain without the
    culprit of the worst story: its remedies are what can be done once that is gone.
    """
    findings = tuple(one for one in report.findings if not chosen or one.key in chosen or one.check in chosen)
    first: dict[tuple[Any, ...], Step] = {}
    later: dict[tuple[Any, ...], Step] = {}
    treated: dict[str, ReportedFinding] = {
        one.key: one for one in findings if any(_acts(remedy) for remedy in one.remedies)
    }
    causes = {one.key: one.caused_by for one in findings}
    for one in findings:
        after = tuple(key for key in _above(one.key, causes) if key in treated)
        for remedy in one.remedies:
            step = _step(remedy, one, after)
            identity = _identity(step)
            known = first if identity in first else later if identity in later else None
            if known is not None:
                known[identity] = replace(known[identity], findings=(*known[identity].findings, one))
            else:
                (later if after and _acts(remedy) else first)[identity] = step
    for step in _afterwards(report, later_on, treated, chosen):
        if _identity(step) not in {*first, *later}:
            later[_identity(step)] = step
    known_already = {*first, *later}
    optional = {
        _identity(step): step
        for queue in (() if chosen else report.queues)
        for step in _optional(queue)
        if _identity(step) not in known_already
    }
    return _without_clashes(
        Treatment(
            findings=findings,
            first=tuple(first.values()),
            later=tuple(later.values()),
            optional=tuple(optional.values()),
        )
    )


def _afterwards(
    report: Report, later_on: Report | None, treated: Collection[str], chosen: Collection[str]
) -> Iterator[Step]:
    """What the going of the worst story's culprit makes possible: for its effects, and for what is still harmful then."""
    told = stories(report)
    if later_on is None or not told or told[0].root.key not in treated:
        return
    root, effects = told[0].root, {one.finding.key for one in told[0].effects}
    now = {one.key: one for one in report.findings}
    for one in later_on.findings:
        if one.key == root.key or not (one.key in effects or one.severity != "notice"):
            continue
        if not chosen or one.key in chosen or one.check in chosen:
            yield from (
                _step(remedy, now.get(one.key, one), (root.key,)) for remedy in one.remedies if _acts(remedy)
            )


def _optional(queue: QueueFacts) -> Iterator[Step]:
    """What the queue's knobs recommend without a finding that asks for it."""
    if queue.triangle is None or queue.triangle.recommendation.asked_by:
        return
    advice = queue.triangle.recommendation
    for remedy in advice.remedies:
        step = _step(remedy, None, ())
        yield replace(step, decide=f"no finding asks for it, nothing is wrong without it; {advice.reason}")


def _acts(remedy: Remedy) -> bool:
    return remedy.kind in ACTING and bool(remedy.sql)


def _step(remedy: Remedy, finding: ReportedFinding | None, after: tuple[str, ...]) -> Step:
    return Step(
        remedy=remedy,
        findings=(finding,) if finding is not None else (),
        sql=_without_timeouts(remedy.sql),
        undo=_without_timeouts(remedy.undo),
        after=after if _acts(remedy) else (),
        alternative=_acts(remedy) and bool(_ALTERNATIVE.match(remedy.title)),
        decide=_decision(remedy),
        first=caution(remedy.sql) if _acts(remedy) else "",
    )


def _decision(remedy: Remedy) -> str:
    """What a person has to decide: by what the statements do, else by whom they shut out for as long as they run."""
    if not _acts(remedy):
        return ""
    shut_out = "" if remedy.blocks == "nothing" else f"{remedy.blocks} wait while it runs: choose the moment"
    return decision(remedy.sql) or shut_out


def _identity(step: Step) -> tuple[Any, ...]:
    """What makes two remedies the same: their statements, or where there are none their words."""
    return (step.remedy.kind, *step.sql) if step.sql else (step.remedy.kind, step.remedy.title)


def _without_timeouts(statements: Iterable[str]) -> tuple[str, ...]:
    return tuple(one for one in statements if not _LOCK_TIMEOUT.match(one))


def _above(key: str, causes: Mapping[str, Sequence[str]]) -> tuple[str, ...]:
    """Return every cause above a finding, the nearest first."""
    found: dict[str, None] = {}
    todo = list(causes.get(key, ()))
    while todo:
        one = todo.pop(0)
        if one not in found and one != key:
            found[one] = None
            todo.extend(causes.get(one, ()))
    return tuple(found)


def _without_clashes(given: Treatment) -> Treatment:
    """Mark the steps that would set what an earlier step sets to something else."""
    known: dict[tuple[str, str], tuple[str, str]] = {}

    def looked(steps: Sequence[Step]) -> tuple[Step, ...]:
        done = []
        for step in steps:
            if not _acts(step.remedy) or step.alternative:
                done.append(step)
                continue
            changes = dict(_changes(step.sql))
            clash = next(
                (key for key, value in changes.items() if key in known and known[key][0] != value), None
            )
            if clash is not None:
                value, title = known[clash]
                done.append(
                    replace(step, clashes=f'"{title}" sets {clash[1]} of {clash[0]} to {value} already')
                )
                continue
            for key, value in changes.items():
                known.setdefault(key, (value, step.remedy.title))
            done.append(step)
        return tuple(done)

    return replace(
        given, first=looked(given.first), later=looked(given.later), optional=looked(given.optional)
    )


def _changes(statements: Iterable[str]) -> Iterator[tuple[tuple[str, str], str]]:
    """Yield what ALTER TABLE ... SET (...) and ALTER SYSTEM SET change: (object, name), value."""
    for node in parsed(statements):
        yield from _changed(node)


def _changed(node: Any) -> Iterator[tuple[tuple[str, str], str]]:
    from pglast import ast, enums

    if isinstance(node, ast.AlterTableStmt):
        relation: Any = node.relation
        table = ".".join(one for one in (relation.schemaname, relation.relname) if one)
        for command in node.cmds or ():
            if command.subtype == enums.AlterTableType.AT_SetRelOptions:
                for option in command.def_ or ():
                    yield (table, option.defname), _value(option.arg)
    elif isinstance(node, ast.AlterSystemStmt):
        setting: Any = node.setstmt
        yield ("the server", setting.name), ", ".join(_value(one.val) for one in setting.args or ())


def _value(node: Any) -> str:
    for name in ("sval", "fval", "ival", "boolval"):
        if hasattr(node, name):
            return str(getattr(node, name))
    return str(node)
