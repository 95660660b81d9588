"""Looks at the plans that a queue's claims get where their parameters are bound."""

from __future__ import annotations

import json
import os
from typing import Any

import psycopg
from psycopg import sql

from pgqdoctor.connect import one_line
from pgqdoctor.discovery.seen import SeenText
from pgqdoctor.features import Feature
from pgqdoctor.looks.look import EXPLAIN_TIMEOUT_MS, QueueLook, plan_document
from pgqdoctor.looks.texts import MOST_PLANS, parameter_texts
from pgqdoctor.observation import PlanProbe
from pgqdoctor.planning import Generic, make_generic
from pgqdoctor.queue import GENERIC
from pgqdoctor.sqlread import read_sql, text_fingerprint


def generic_plans(look: QueueLook, texts: tuple[SeenText, ...]) -> tuple[PlanProbe, ...]:
    """Ask for the plans that the claims get where their parameters are bound.

    A session's own text shows what is bound. In a text that pg_stat_statements has normalised a parameter may be a constant in
    truth, so such a text is asked about only where no session was caught with it.
    """
    known: set[str] = set()
    found: list[PlanProbe] = []
    for text, bound in parameter_texts(look, texts):
        key = text_fingerprint(text)
        if key in known:
            continue
        known.add(key)
        for statement in read_sql(text).statements:
            for claim in statement.claims:
                if not look.is_mine(claim.table.name):
                    continue
                generic = make_generic(statement, claim)
                if generic is None or any(one.sql == generic.select for one in found):
                    continue
                if look.budget.spent or len(found) >= MOST_PLANS:
                    return tuple(found)
                found.append(_explain_generic(look, generic, statement.text, bound))
    return tuple(found)


def _explain_generic(look: QueueLook, generic: Generic, statement: str, bound: bool) -> PlanProbe:
    document = error = None
    try:
        if (why := look.unsafe(generic.select, execute=False)) is not None:
            return PlanProbe(
                mode=GENERIC,
                sql=generic.select,
                error=f"not planned: {why}",
                statement=statement,
                bound=bound,
            )
        with look.session.transaction(
            statement_timeout_ms=look.budget.milliseconds(EXPLAIN_TIMEOUT_MS),
            search_path=look.path,
            local={
                "max_parallel_workers_per_gather": "0",
                "jit": "off",
                "plan_cache_mode": "force_generic_plan",
            },
        ) as cursor:
            if look.link.server.has(Feature.GENERIC_PLAN):
                cursor.execute(f"EXPLAIN (GENERIC_PLAN, FORMAT JSON) {generic.select}".encode())
                document = json.dumps(plan_document(cursor.fetchone()))
            else:
                document = explain_prepared(cursor, generic)
    except psycopg.Error as failure:
        error = one_line(failure)
    return PlanProbe(
        mode=GENERIC, sql=generic.select, document=document, error=error, statement=statement, bound=bound
    )


def explain_prepared(cursor: psycopg.Cursor[dict[str, Any]], generic: Generic) -> str:
    """Explain a generic plan where EXPLAIN has no GENERIC_PLAN: by a prepared statement.

    A prepared statement outlives its transaction, and through a pooler it would be left to somebody else. A savepoint keeps the
    transaction usable whatever EXPLAIN says, so that DEALLOCATE reaches the backend that has it.
    """
    name = sql.Identifier(f"pgqdoctor_generic_{os.getpid()}")
    nothing = sql.SQL(", ").join([sql.SQL("NULL")] * generic.parameters)
    cursor.execute(sql.SQL("PREPARE {} AS ").format(name).as_bytes() + generic.select.encode())
    try:
        cursor.execute("SAVEPOINT pgqdoctor")
        cursor.execute(sql.SQL("EXPLAIN (FORMAT JSON) EXECUTE {} ({})").format(name, nothing))
        return json.dumps(plan_document(cursor.fetchone()))
    except psycopg.Error:
        cursor.execute("ROLLBACK TO SAVEPOINT pgqdoctor")
        raise
    finally:
        if not cursor.connection.broken:
            cursor.execute(sql.SQL("DEALLOCATE {}").format(name))
