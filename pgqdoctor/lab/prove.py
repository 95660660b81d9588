"""``lab prove``: a sick queue is reproduced, reported, treated with the remedies of its report, and reported again.

What the remedies' SQL cannot do, because the fault is the application's, the scenario's own cure does. Observing
and choosing the remedies is handed in: the lab makes the queue and its load.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Final, cast

import psycopg

from pgqdoctor.errors import USAGE, PgqdoctorError
from pgqdoctor.finding import SEVERITIES, Severity
from pgqdoctor.lab.ground import APPLICATION_NAME, Ground
from pgqdoctor.lab.load import Load
from pgqdoctor.lab.results import ProvenFinding, ProveResult
from pgqdoctor.lab.saved import Notebook
from pgqdoctor.lab.scenario import CURED_CLIENTS, Scenario
from pgqdoctor.report import Report

PATIENCE_S: Final = 40.0
"""How long the findings may take to go away: vacuum has to come round, and windows to pass."""
FIX_PATIENCE_S: Final = 20.0
"""The same for the remedies alone, before the scenario's own cure is taken."""
LOCK_TIMEOUT: Final = "2s"
TRIES: Final = 3
"""A remedy that gets no lock under load is tried again, as its reader would do."""
NAPTIME_S: Final = 5
WORKERS: Final = 100
"""Connections that the embedded server has for a scenario's clients."""

Say = Callable[[int, int, str], None]
Look = Callable[[str], Report]
"""Observes a DSN and diagnoses it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Act:
    """One remedy to carry out; kind "setting" changes the whole server."""

    kind: str
    statements: tuple[str, ...]


Treat = Callable[[Report], tuple[Act, ...]]
"""What a report's remedies would execute, in order."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProveOptions:
    """The scenarios to prove, one after the other."""

    scenarios: tuple[Scenario, ...]

    def described(self) -> Mapping[str, str]:
        """As recorded, and as compared by --resume."""
        return {"scenarios": ", ".join(one.name for one in self.scenarios)}

    def scripts(self) -> Mapping[str, str]:
        """Each scenario's table and clients."""
        return {
            f"{one.name}, {name}": text.strip()
            for one in self.scenarios
            for name, text in (
                ("table", one.setup),
                *((client.name, client.script) for client in one.clients),
            )
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class _Seen:
    """One look, and the transactions of all clients per second meanwhile."""

    report: Report
    transactions_per_s: float


def prove(
    open_ground: Callable[[], AbstractContextManager[Ground]],
    options: ProveOptions,
    notebook: Notebook[ProveResult],
    say: Say,
    *,
    look: Look,
    treat: Treat,
) -> Iterator[ProveResult]:
    """Prove each scenario on a ground of its own: multixacts and settings of one would show in the next.

    Raises PgqdoctorError (usage) for a scenario that the server cannot show, and where the load itself fails.
    """
    total = len(options.scenarios)
    for done, one in enumerate(options.scenarios):
        known = notebook.get(one.name)
        if known is None:

            def step(what: str, done: int = done, name: str = one.name) -> None:
                say(done, total, f"{name}, {what}")

            with open_ground() as ground:
                known = _prove(ground, one, step, look, treat)
            notebook.add(one.name, known)
        yield known
    say(total, total, "")


def require_sick(scenarios: Iterable[Scenario]) -> None:
    """Raise PgqdoctorError (usage) for a healthy scenario: it has no finding that could go away."""
    for one in scenarios:
        if one.kind == "healthy":
            raise PgqdoctorError(
                f"the scenario {one.name} is healthy: there is nothing to prove", exit_code=USAGE
            )


def _prove(
    ground: Ground, scenario: Scenario, step: Callable[[str], None], look: Look, treat: Treat
) -> ProveResult:
    if not scenario.runs_on(ground.major):
        raise PgqdoctorError(
            f"the scenario {scenario.name} is not meant for PostgreSQL {ground.facts.version}",
            exit_code=USAGE,
        )
    if scenario.databases and not ground.embedded:
        raise PgqdoctorError(
            f"the scenario {scenario.name} needs a database beside its own, and the lab makes none on a server of yours",
            hint="Leave --dsn away: the embedded server will do.",
            exit_code=USAGE,
        )
    target = ground.dsn if ground.embedded else ground.conninfo
    load = Load(scenario, target, binaries=ground.binaries)
    load.start()
    try:
        step("waiting for the signs")
        time.sleep(scenario.settle_s)
        load.check()
        step("report before")
        before = _look(load, target, look)
        # Of a copied queue nothing is known beforehand: whatever is said of it, notices too, is to be cured.
        least: Severity = "warning" if scenario.expected else "notice"
        expected = scenario.expected or tuple(dict.fromkeys(_speaking(before.report, least)))
        step("applying the remedies")
        applied, refused = _apply(target, treat(before.report), whole_server=ground.embedded)
        after: _Seen | None = None
        cure = ""
        if applied and scenario.cures != CURED_CLIENTS:
            step("report after")
            after = _look_until_gone(load, target, look, expected, least, FIX_PATIENCE_S)
        if (
            after is None or set(expected) & set(_speaking(after.report, least))
        ) and scenario.cures is not None:
            step("applying the scenario's cure")
            load.cure()
            cure = scenario.cures
            step("report after")
            after = _look_until_gone(load, target, look, expected, least, PATIENCE_S)
        if after is None:
            after = _look_until_gone(load, target, look, expected, least, FIX_PATIENCE_S)
    finally:
        load.stop()
    spoke = set(_speaking(before.report, least)) >= set(expected)
    return ProveResult(
        scenario=scenario.name,
        title=scenario.title,
        server=ground.facts.version,
        expected=expected,
        before=_findings(before.report),
        applied=applied,
        refused=refused,
        scenario_cure=cure,
        after=_findings(after.report),
        transactions_per_s_before=before.transactions_per_s,
        transactions_per_s_after=after.transactions_per_s,
        claim_buffers_before=_claim_buffers(before.report),
        claim_buffers_after=_claim_buffers(after.report),
        proven=spoke and not set(expected) & set(_speaking(after.report, least)),
    )


def _look(load: Load, dsn: str, look: Look) -> _Seen:
    transactions, began = sum(load.transactions().values()), time.monotonic()
    report = look(dsn)
    seconds = time.monotonic() - began
    return _Seen(
        report=report, transactions_per_s=(sum(load.transactions().values()) - transactions) / seconds
    )


def _look_until_gone(
    load: Load, dsn: str, look: Look, expected: tuple[str, ...], least: Severity, patience_s: float
) -> _Seen:
    """The first look that does not report what was expected before, or the last one within the patience."""
    until = time.monotonic() + patience_s
    while True:
        time.sleep(load.scenario.settle_s / 2)
        seen = _look(load, dsn, look)
        if not set(_speaking(seen.report, least)) & set(expected) or time.monotonic() > until:
            return seen


def _apply(dsn: str, acts: tuple[Act, ...], *, whole_server: bool) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Execute the statements, each on its own; return those that were, and those that were not, with the reason."""
    applied: list[str] = []
    refused: list[str] = []
    with psycopg.connect(dsn, autocommit=True, application_name=APPLICATION_NAME) as connection:
        connection.execute(f"SET lock_timeout = '{LOCK_TIMEOUT}'".encode())
        for act in acts:
            if act.kind == "setting" and not whole_server:
                refused += [
                    f"{one} (left out: it changes the whole server, which is yours)" for one in act.statements
                ]
                continue
            for statement in act.statements:
                reason = _execute(connection, statement)
                if reason:
                    refused.append(f"{statement} ({reason})")
                    break
                applied.append(statement)
    return tuple(applied), tuple(refused)


def _execute(connection: psycopg.Connection[tuple[object, ...]], statement: str) -> str:
    """Execute one statement; the reason where it failed."""
    reason = ""
    for _ in range(TRIES):
        try:
            connection.execute(cast("psycopg.abc.Query", statement.encode()))
        except psycopg.errors.LockNotAvailable as error:
            reason = error.diag.message_primary or "no lock"
        except psycopg.Error as error:
            return error.diag.message_primary or str(error).strip()
        else:
            return ""
    return f"{reason}, tried {TRIES} times"


def _speaking(report: Report, least: Severity) -> tuple[str, ...]:
    """Checks that found something of severity ``least`` or worse."""
    worst = SEVERITIES.index(least)
    return tuple(one.check for one in report.findings if SEVERITIES.index(one.severity) <= worst)


def _findings(report: Report) -> tuple[ProvenFinding, ...]:
    return tuple(
        ProvenFinding(key=one.key, check=one.check, severity=one.severity, title=one.title)
        for one in report.findings
    )


def _claim_buffers(report: Report) -> int | None:
    """Buffers of the costliest claim among the queues."""
    plans = [one.claim.plan.buffers for one in report.queues if one.claim.plan is not None]
    return max((buffers for buffers in plans if buffers is not None), default=None)
