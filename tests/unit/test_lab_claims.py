"""The strategies of the race, and the user's own claim made one of them."""

from __future__ import annotations

from typing import Any

import pglast
import pytest

from pgqdoctor.errors import USAGE, PgqdoctorError
from pgqdoctor.lab.custom import custom_strategy
from pgqdoctor.lab.strategies import Strategy, strategies
from pgqdoctor.lab.subject import generic_subject

SUBJECT = generic_subject()


def sent(script: str) -> list[str]:
    """The statements of a pgbench script with values in place of variables."""
    text = script.replace(" \\aset", ";")
    lines = [line for line in text.splitlines() if not line.startswith("\\")]
    plain = "\n".join(lines)
    for name in (":client_id", ":job", ":n "):
        plain = plain.replace(name, "1 ")
    return [str(one) for one in pglast.split(plain)]


@pytest.mark.parametrize("strategy", strategies(SUBJECT), ids=lambda one: str(one.name))
def test_each_strategy_parses_and_audits_in_the_claiming_statement(strategy: Strategy) -> None:
    statements = sent(strategy.script)
    audits = [one for one in statements if "INSERT INTO audit" in one]
    assert len(audits) == 1
    assert any(word in audits[0] for word in ("UPDATE jobs", "DELETE FROM jobs"))
    for statement in strategy.statements:
        pglast.parse_sql(statement.replace("{id}", "1"))


def test_a_claim_with_a_cte_keeps_it_beside_the_audit() -> None:
    claim = (
        "WITH head AS MATERIALIZED (SELECT id FROM jobs WHERE state = 'ready' ORDER BY id LIMIT 1"
        " FOR UPDATE SKIP LOCKED) UPDATE jobs SET state = 'running' FROM head WHERE jobs.id = head.id"
        " RETURNING jobs.id AS job_id;"
    )
    strategy = custom_strategy(claim, SUBJECT)
    (statement,) = sent(strategy.script)
    parsed: Any = pglast.parse_sql(statement)[0].stmt
    assert [one.ctename for one in parsed.withClause.ctes] == ["head", "claimed"]
    assert 'claimed."job_id"::text' in strategy.script


@pytest.mark.parametrize(
    "claim",
    [
        "UPDATE jobs SET state = 'running' WHERE id = 1 RETURNING id",
        "UPDATE jobs SET state = 'running' WHERE id = 1 RETURNING *",
        "DELETE FROM jobs WHERE id = 1 RETURNING payload, id",
        "SELECT id FROM claim_job('default')",
    ],
)
def test_claims_that_return_the_key_are_taken(claim: str) -> None:
    script = custom_strategy(claim, SUBJECT).script
    assert 'claimed."id"::text' in script
    assert sent(script)


@pytest.mark.parametrize(
    ("claim", "said"),
    [
        ("UPDATE jobs SET state = 'running'", "must return the claimed job's id"),
        ("UPDATE jobs SET state = 'running' RETURNING state, worker", "returns state, worker"),
        ("UPDATE jobs SET state = $1 RETURNING id", r"has the parameter \$1"),
        ("UPDATE jobs SET", "cannot be parsed"),
        ("INSERT INTO jobs (payload) VALUES ('x') RETURNING id", "must be one UPDATE, DELETE or SELECT"),
        ("SELECT 1; SELECT 2", "must be one"),
        ("WITH RECURSIVE a AS (SELECT 1 AS id) SELECT id FROM a", "WITH RECURSIVE"),
        ("UPDATE jobs SET payload = 'a:b' RETURNING id", "colon"),
    ],
)
def test_other_claims_are_refused_with_the_reason(claim: str, said: str) -> None:
    with pytest.raises(PgqdoctorError, match=said) as caught:
        custom_strategy(claim, SUBJECT)
    assert caught.value.exit_code == USAGE
