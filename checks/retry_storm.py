"""A few jobs that fail eat most of the attempts.

A job that fails and becomes ready again at once is claimed again at once. Each attempt costs a claim, two
updates and the work itself, and it comes before jobs that would succeed wherever the order is by age. Without
a pause that grows and a limit to the attempts, a handful of poisoned jobs can keep every worker busy.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated

from pgqdoctor import claiming, remedy
from pgqdoctor.check import ATTEMPTS, COUNTERS, ROWS, STATEMENTS, Check
from pgqdoctor.finding import Evidence, Finding, Remedy, Severity
from pgqdoctor.observation import AttemptsProbe, Observation
from pgqdoctor.queue import Queue
from pgqdoctor.sqlrewrite import quote_ident
from pgqdoctor.words import count, percent, plural, rate, shortened


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """When repeated attempts are a storm."""

    repeated: Annotated[
        float, "ratio of claims beyond the jobs that arrived: half of the work is done again"
    ] = 0.5
    rate: Annotated[
        float, "repeated attempts per second: below one a second a few jobs retry at a pace that harms nobody"
    ] = 1.0
    attempts_share: Annotated[float, "ratio of the ready jobs' attempts that the often tried ones made"] = 0.5
    critical: Annotated[
        float, "ratio of claims beyond the jobs that arrived: hardly anything else is worked on"
    ] = 0.9


def evaluate(seen: Observation, queue: Queue, limits: Limits) -> Iterator[Finding]:
    """Compare claims with arrivals, and look at who was tried how often."""
    probe = queue.probe.attempts if queue.probe is not None else None
    if probe is None or not probe.often_rows or probe.often_attempts < limits.attempts_share * probe.attempts:
        return
    taken = claiming.taken(queue)
    again = taken - queue.churn.inserted
    per_second = queue.churn.per_second(again)
    if taken <= 0 or again < limits.repeated * taken or per_second < limits.rate:
        return
    severity: Severity = "critical" if again >= limits.critical * taken else "warning"
    least = "at least " if probe.rows >= probe.limit else ""
    yield Finding(
        check=CHECK.id,
        severity=severity,
        queue=queue.name,
        title=(
            f"{percent(again / taken)} of the claims of {queue.name} are attempts made again, {rate(per_second)}: "
            f"{least}{plural(probe.often_rows, 'job')} {'was' if probe.often_rows == 1 else 'were'} tried up to {count(probe.most)} times"
        ),
        why=(
            "The jobs fail and become ready again at once or after a short pause, so that the same ones are claimed over and over. Each attempt leaves "
            "dead rows behind and takes a worker from jobs that would succeed."
        ),
        evidence=(
            Evidence(
                what="claims",
                value=round(queue.churn.per_second(taken), 1),
                unit="per second",
                source="pg_stat_statements",
            ),
            Evidence(
                what="arrivals",
                value=round(queue.churn.per_second(queue.churn.inserted), 1),
                unit="per second",
                source="pg_stat_user_tables",
            ),
            Evidence(
                what=f"ready jobs tried {probe.often} times or more",
                value=probe.often_rows,
                unit="rows",
                source=f"bounded look at {quote_ident(probe.column)}",
            ),
            Evidence(
                what="of all attempts",
                value=round(probe.often_attempts / max(probe.attempts, 1), 2),
                unit="ratio",
                source="bounded look",
            ),
            Evidence(
                what="tried most", value=shortened(" ".join(probe.examples), 200), unit="", source="keys"
            ),
        ),
        remedies=tuple(_remedies(queue, probe)),
        relations=(queue.oid,),
    )


def _remedies(queue: Queue, probe: AttemptsProbe) -> Iterator[Remedy]:
    """Put the often tried jobs off by a pause that grows, as the application should after each failure."""
    roles, ready = queue.identity.roles, queue.identity.ready_state_predicate
    run_at = queue.column(roles.run_at) if roles.run_at is not None else None
    if run_at is None or run_at.type_category != "D" or ready is None or not roles.key:
        return
    when, tried = quote_ident(run_at.name), quote_ident(probe.column)
    keys = ", ".join(quote_ident(one) for one in roles.key)
    same = " AND ".join(f"j.{quote_ident(one)} = often.{quote_ident(one)}" for one in roles.key)
    yield remedy.statement(
        sql=(
            f"WITH often AS MATERIALIZED (\n  SELECT {keys} FROM {queue.name}\n   WHERE {ready} AND {tried} >= {probe.often} AND "
            f"{when} < now() + interval '1 minute'\n   LIMIT 1000 FOR UPDATE SKIP LOCKED\n)\n"
            f"UPDATE {queue.name} AS j SET {when} = now() + interval '1 second' * least(power(2, least(j.{tried}, 20)), 21600)\n"
            f"  FROM often WHERE {same}\nRETURNING {', '.join('j.' + quote_ident(one) for one in roles.key)};",
        ),
        title=f"Put off the jobs tried {probe.often} times or more: two to the power of their attempts in seconds, at most 6 hours",
        expect=(
            "workers go on to the other jobs. The application should set the same pause after each failure, with a random part, and give a job up after "
            "a number of attempts"
        ),
        risk="the jobs run later; there is no way back but to set their time again",
        lock="ROW EXCLUSIVE",
    )


CHECK = Check(
    title="A few failing jobs eat most attempts",
    needs=(ROWS, ATTEMPTS, STATEMENTS, COUNTERS),
    limits=Limits(),
    evaluate=evaluate,
    look_alikes=(
        "a backlog that is worked off: more claims than arrivals, each of them for the first time",
        "a few jobs that wait for hours between their attempts",
        "jobs that succeed at the second attempt",
    ),
)
