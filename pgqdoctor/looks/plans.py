"""Looks at the plans of a queue's claims, executed only as far as was asked for and as is harmless."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType

import psycopg
from psycopg import sql

from pgqdoctor.connect import one_line
from pgqdoctor.discovery.seen import SeenText
from pgqdoctor.looks.generic import generic_plans
from pgqdoctor.looks.look import EXPLAIN_TIMEOUT_MS, LOOK_TIMEOUT_MS, QueueLook, plan_document
from pgqdoctor.looks.texts import MOST_PLANS, claim_texts
from pgqdoctor.observation import PlanProbe
from pgqdoctor.planning import Explainable, make_explainable
from pgqdoctor.sqlfacts import Claim, Statement
from pgqdoctor.sqlread import read_sql
from pgqdoctor.sqlrewrite import is_harmless, joining_select


@dataclass(frozen=True, slots=True, kw_only=True)
class Plans:
    """Plans of a queue's claims, and of whole claim statements whose LIMIT a join may execute again."""

    plans: tuple[PlanProbe, ...] = ()
    whole: tuple[PlanProbe, ...] = ()


def claim_plans(look: QueueLook, texts: tuple[SeenText, ...], explain: str) -> Plans:
    """Explain the busiest claims: EXPLAIN in the mode asked for, then the plans with bound parameters."""
    if explain == "off":
        look.lack("plan", "EXPLAIN is off (--explain off)")
        return Plans()
    tried: list[str] = []
    explained: set[str] = set()
    plans: list[PlanProbe] = []
    whole: tuple[PlanProbe, ...] = ()
    for known, text in claim_texts(look, texts):
        own = [one.text for one in read_sql(known).statements]
        for place, statement in enumerate(read_sql(text).statements):
            for claim in statement.claims:
                if not look.is_mine(claim.table.name):
                    continue
                ready = _explainable(look, statement, claim)
                if ready.wanted:
                    job = _some_job(look, ready.wanted)
                    ready = _explainable(look, statement, claim, job)
                if ready.select is None:
                    tried.append(ready.reason)
                    continue
                if ready.select in explained:
                    continue
                if look.budget.spent:
                    look.lack("plan", "the time for bounded looks was used up")
                    return Plans(plans=tuple(plans), whole=whole)
                explained.add(ready.select)
                name = own[place] if place < len(own) else statement.text
                plans.append(replace(_explain(look, ready, explain), statement=name))
                if claim.repeatable_limit and claim.writes and ready.whole and not whole:
                    whole = _whole_plan(look, ready)
        if len(plans) >= MOST_PLANS:
            break
    if not any(one.document for one in plans):
        errors = [one.error for one in plans if one.error] + tried
        look.lack("plan", errors[0] if errors else "no claim statement was seen that could be explained")
    return Plans(plans=(*plans, *generic_plans(look, texts)), whole=whole)


def _explainable(
    look: QueueLook, statement: Statement, claim: Claim, job: Mapping[str, str] = MappingProxyType({})
) -> Explainable:
    return make_explainable(
        statement, claim, look.identity, look.catalog, job, superuser=look.link.server.superuser
    )


def _some_job(look: QueueLook, columns: tuple[str, ...]) -> dict[str, str]:
    """Return values that a ready job has, any job where none is ready: the claim is for such a one."""
    names = sql.SQL(", ").join(sql.SQL("q.{0}::text AS {0}").format(sql.Identifier(one)) for one in columns)
    known = sql.SQL(" AND ").join(sql.SQL("{} IS NOT NULL").format(sql.Identifier(one)) for one in columns)
    row = look.catalog.table(look.identity.oid)
    if row is not None and row.row_security and not look.link.server.superuser:
        return {}
    for ready in dict.fromkeys((look.identity.ready_predicate or "true", "true")):
        query = sql.SQL(
            "SELECT {names} FROM (SELECT * FROM {table} WHERE {ready} AND {known} LIMIT 1) q"
        ).format(names=names, table=look.table, ready=sql.SQL(ready), known=known)
        found = look.bounded("plan", query)
        if found:
            return dict(found[0])
    return {}


def _explain(look: QueueLook, ready: Explainable, explain: str) -> PlanProbe:
    mode, text = explain, ready.select or ""
    note: str | None = None
    if explain == "lock" and ready.locking:
        text = ready.locking
    elif explain == "full" and ready.whole:
        text = ready.whole
    if mode != "plan" and not ready.harmless:
        mode, note = "plan", f"not executed: {ready.reason}"
    elif mode == "full" and text == ready.whole and not is_harmless(text):
        mode, note = (
            "plan",
            "not executed: the statement calls a function that is not known to be harmless",
        )
    if mode != "plan" and ready.unknown:
        mode, note = "plan", f"not executed: no value is known for {', '.join(ready.unknown)}"
    timeout_ms = look.budget.milliseconds(EXPLAIN_TIMEOUT_MS)
    planned: str | None = None
    try:
        if (why := look.unsafe(ready.select or "", execute=False)) is not None:
            return PlanProbe(
                mode="plan",
                sql=ready.select or "",
                parameters=ready.parameters,
                error=f"not planned: {why}",
            )
        if mode != "plan" and (why := look.unsafe(text, execute=True, writes=mode == "full")) is not None:
            mode, note = "plan", f"not executed: {why}"
        with look.session.transaction(
            statement_timeout_ms=timeout_ms,
            search_path=look.path,
            read_only=mode in ("plan", "select"),
            local={"max_parallel_workers_per_gather": "0", "jit": "off"},
        ) as cursor:
            # Planning first fills the backend's catalog caches: otherwise their look-ups are charged to
            # the scan.
            cursor.execute(f"EXPLAIN (FORMAT JSON) {ready.select}".encode())
            planned = json.dumps(plan_document(cursor.fetchone()))
            options = "FORMAT JSON" if mode == "plan" else "ANALYZE, BUFFERS, TIMING OFF, FORMAT JSON"
            cursor.execute(f"EXPLAIN ({options}) {ready.select if mode == 'plan' else text}".encode())
            document = json.dumps(plan_document(cursor.fetchone()))
    except psycopg.errors.QueryCanceled:
        return PlanProbe(
            mode=mode,
            sql=text,
            parameters=ready.parameters,
            document=planned,
            error=f"the claim did not find its job within {timeout_ms} ms",
            # A timeout cut short because the doctor's own time was used up says nothing about the claim.
            timed_out=timeout_ms >= EXPLAIN_TIMEOUT_MS,
        )
    except psycopg.Error as error:
        return PlanProbe(mode=mode, sql=text, parameters=ready.parameters, error=one_line(error))
    return PlanProbe(mode=mode, sql=text, parameters=ready.parameters, document=document, error=note)


def _whole_plan(look: QueueLook, ready: Explainable) -> tuple[PlanProbe, ...]:
    """Plan the whole statement without executing it: whether a join repeats its LIMIT shows there only.

    A role that may only read gets the plan of a SELECT that joins in the same way.
    """
    for text, writes in ((ready.whole or "", True), (joining_select(ready.whole or "") or "", False)):
        if not text:
            return ()
        try:
            if look.unsafe(text, execute=False, writes=writes) is not None:
                return ()
            with look.session.transaction(
                statement_timeout_ms=look.budget.milliseconds(LOOK_TIMEOUT_MS),
                search_path=look.path,
            ) as cursor:
                cursor.execute(f"EXPLAIN (FORMAT JSON) {text}".encode())
                document = json.dumps(plan_document(cursor.fetchone()))
        except psycopg.errors.InsufficientPrivilege:
            continue
        except psycopg.Error:
            return ()
        return (PlanProbe(mode="plan", sql=text, parameters=ready.parameters, document=document),)
    return ()
