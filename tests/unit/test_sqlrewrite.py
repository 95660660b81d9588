"""Statements taken out of claims, parameters, and what may be executed."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pgqdoctor.sqlfacts import Claim, ParameterUse
from pgqdoctor.sqlread import read_sql
from pgqdoctor.sqlrewrite import (
    HARMLESS_FUNCTIONS,
    fill_parameters,
    finding_select,
    first_statement,
    functions_called,
    is_harmless,
    joining_select,
    locking_select,
    parameters_of,
    quote_ident,
    renumber_parameters,
)


def claim_of(text: str) -> Claim:
    (statement,) = read_sql(text).statements
    return statement.claims[0]


# id: (claim, the SELECT that finds its rows, with the locking clause or None)
SELECTS: dict[str, tuple[str, str | None, str | None]] = {
    "two statements": (
        "SELECT * FROM q WHERE state = $1 ORDER BY id LIMIT $2 FOR UPDATE SKIP LOCKED",
        "SELECT * FROM q WHERE state = $1 ORDER BY id LIMIT $2",
        "SELECT * FROM q WHERE state = $1 ORDER BY id LIMIT $2 FOR UPDATE SKIP LOCKED",
    ),
    "sub-select": (
        'UPDATE "app"."Jobs" SET state = $1 WHERE id = (SELECT id FROM "app"."Jobs" WHERE "runAt" <= now() AND tag IN ($2 '
        "/*, ... */) FOR NO KEY UPDATE SKIP LOCKED LIMIT 1) RETURNING *",
        'SELECT id FROM app."Jobs" WHERE "runAt" <= now() AND tag IN ($2) LIMIT 1',
        'SELECT id FROM app."Jobs" WHERE "runAt" <= now() AND tag IN ($2) LIMIT 1 FOR NO KEY UPDATE SKIP LOCKED',
    ),
    "interval": (
        "SELECT * FROM q WHERE state = 'ready' AND seen < now() - INTERVAL $1 LIMIT 1 FOR UPDATE",
        "SELECT * FROM q WHERE state = 'ready' AND seen < now() - CAST($1 AS interval) LIMIT 1",
        "SELECT * FROM q WHERE state = 'ready' AND seen < now() - CAST($1 AS interval) LIMIT 1 FOR UPDATE",
    ),
    "locks inside are taken away too": (
        "SELECT id FROM q WHERE state = $1 AND kind IN (SELECT id FROM kinds WHERE free FOR UPDATE SKIP LOCKED) LIMIT 1 "
        "FOR UPDATE SKIP LOCKED",
        "SELECT id FROM q WHERE state = $1 AND kind IN (SELECT id FROM kinds WHERE free) LIMIT 1",
        "SELECT id FROM q WHERE state = $1 AND kind IN (SELECT id FROM kinds WHERE free FOR UPDATE SKIP LOCKED) LIMIT 1 "
        "FOR UPDATE SKIP LOCKED",
    ),
    "the CTEs it reads, and no others": (
        "WITH room AS (SELECT kind FROM kinds), unused AS (SELECT 1), more AS (SELECT kind FROM room), "
        "c AS (SELECT id FROM q WHERE kind IN (SELECT kind FROM more) LIMIT 1 FOR UPDATE SKIP LOCKED) "
        "UPDATE q SET state = 'running' FROM c WHERE q.id = c.id",
        "WITH room AS (SELECT kind FROM kinds), more AS (SELECT kind FROM room) "
        "SELECT id FROM q WHERE kind IN (SELECT kind FROM more) LIMIT 1",
        "WITH room AS (SELECT kind FROM kinds), more AS (SELECT kind FROM room) "
        "SELECT id FROM q WHERE kind IN (SELECT kind FROM more) LIMIT 1 FOR UPDATE SKIP LOCKED",
    ),
    "LATERAL needs the level around it": (
        "WITH w AS (SELECT unnest($1::text[]) AS kind), f AS (SELECT j.id FROM w CROSS JOIN LATERAL (SELECT q.id FROM q "
        "WHERE q.kind = w.kind AND q.state = 'ready' LIMIT $2 FOR UPDATE SKIP LOCKED) j LIMIT $3) "
        "UPDATE q SET state = 'running' WHERE id = ANY (SELECT id FROM f)",
        "WITH w AS (SELECT unnest(CAST($1 AS text[])) AS kind) SELECT j.id FROM w CROSS JOIN LATERAL (SELECT q.id FROM q "
        "WHERE q.kind = w.kind AND q.state = 'ready' LIMIT $2) AS j LIMIT $3",
        "WITH w AS (SELECT unnest(CAST($1 AS text[])) AS kind) SELECT j.id FROM w CROSS JOIN LATERAL (SELECT q.id FROM q "
        "WHERE q.kind = w.kind AND q.state = 'ready' LIMIT $2 FOR UPDATE SKIP LOCKED) AS j LIMIT $3",
    ),
    "the LIMIT around it": (
        "SELECT x.id FROM (SELECT id FROM q WHERE state = 'ready' ORDER BY id FOR UPDATE SKIP LOCKED) x LIMIT 3",
        "SELECT x.id FROM (SELECT id FROM q WHERE state = 'ready' ORDER BY id) AS x LIMIT 3",
        "SELECT x.id FROM (SELECT id FROM q WHERE state = 'ready' ORDER BY id FOR UPDATE SKIP LOCKED) AS x LIMIT 3",
    ),
    "guarded by key": (
        "UPDATE q AS j SET state = $1 WHERE j.id = $2 AND j.state = $3",
        "SELECT 1 FROM q AS j WHERE j.id = $2 AND j.state = $3",
        None,
    ),
    "unguarded": (
        "UPDATE q SET state = 'running' WHERE id = (SELECT id FROM q WHERE state = 'ready' LIMIT 1) RETURNING id",
        "SELECT id FROM q WHERE state = 'ready' LIMIT 1",
        None,
    ),
    "reads what another CTE writes": (
        "WITH freed AS (UPDATE kinds SET n = 0 RETURNING kind), c AS (SELECT id FROM q WHERE kind IN (SELECT kind FROM freed) "
        "LIMIT 1 FOR UPDATE SKIP LOCKED) UPDATE q SET state = 'running' FROM c WHERE q.id = c.id",
        None,
        None,
    ),
    "correlated with the row to be changed": (
        "UPDATE q SET state = 'running' WHERE id = (SELECT k.id FROM q k WHERE k.id = q.id AND k.state = 'ready' LIMIT 1 "
        "FOR UPDATE)",
        None,
        None,
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", SELECTS.values(), ids=SELECTS.keys())
def test_selects(case: tuple[str, str | None, str | None]) -> None:
    text, finding, locking = case
    claim = claim_of(text)
    assert finding_select(text, claim) == finding
    assert locking_select(text, claim) == locking


def test_select_of_a_statement_among_others() -> None:
    claim = claim_of(SELECTS["unguarded"][0])
    assert finding_select(f"SELEC; SELECT 1; {SELECTS['unguarded'][0]}", claim) == SELECTS["unguarded"][1]
    assert finding_select("SELECT 1", claim) is None
    assert finding_select("SELECT 'abc", claim) is None


def uses(text: str) -> list[tuple[int, str, str | None, str | None, str | None]]:
    return [(use.number, use.role, use.column, use.operator, use.cast) for use in parameters_of(text)]


def test_parameters() -> None:
    text = (
        "UPDATE app.q SET state = $1, attempts = attempts + $2 FROM (SELECT id FROM app.q WHERE $3 = queue AND state = ANY($4::"
        "app.st[]) AND tag IN ($5 /*, ... */) AND seen < now() - interval $6 AND n BETWEEN $7 AND $8 AND lower(x) = $9 "
        "ORDER BY id LIMIT $10::int OFFSET $11 FOR UPDATE SKIP LOCKED) f WHERE q.id = f.id"
    )
    assert uses(text) == [
        (1, "set", "state", None, None),
        (2, "other", "attempts", None, None),
        (3, "compare", "queue", "=", None),
        (4, "compare", "state", "in", "app.st[]"),
        (5, "compare", "tag", "in", None),
        (6, "interval", "seen", "<", "interval"),
        (7, "compare", "n", "between", None),
        (8, "compare", "n", "between", None),
        (9, "other", None, None, None),
        (10, "limit", None, None, "integer"),
        (11, "offset", None, None, None),
    ]
    table = parameters_of(text)[2].table
    assert table is not None
    assert (table.schema, table.name) == ("app", "q")


def test_parameters_of_inserts_and_of_text_that_does_not_parse() -> None:
    assert uses("INSERT INTO q (a, b) VALUES ($1, lower($2))") == [
        (1, "set", "a", None, None),
        (2, "other", "b", None, None),
    ]
    assert parameters_of("SELECT $1 FROM WHERE") == ()


def test_one_parameter_in_two_places() -> None:
    found: tuple[ParameterUse, ...] = parameters_of("SELECT * FROM q WHERE a = $1 OR b = $1")
    assert [(use.number, use.column) for use in found] == [(1, "a"), (1, "b")]


FILLED = [
    ("SELECT * FROM q WHERE a = $1", {1: "'it''s $2'"}, "SELECT * FROM q WHERE a = 'it''s $2'"),
    ("SELECT * FROM q WHERE a = $1 AND b = $2", {2: "5"}, "SELECT * FROM q WHERE a = $1 AND b = 5"),
    ("SELECT * FROM q WHERE t < now() - interval $1", {1: "'1 day'"}, "SELECT * FROM q WHERE t < now() - CAST('1 day' AS interval)"),
    ("SELECT date $1, timestamp(3) $2", {1: "'2030-01-01'", 2: "'x'"}, "SELECT CAST('2030-01-01' AS date), CAST('x' AS timestamp(3))"),
    ("SELECT * FROM q WHERE a IN ($1 /*, ... */)", {1: "'x', 'y'"}, "SELECT * FROM q WHERE a IN ('x', 'y')"),
    ("SELECT * FROM q WHERE a = $1 LIMIT $2", {1: "NULL", 2: "10"}, "SELECT * FROM q WHERE a = NULL LIMIT 10"),
    ("SELECT * FROM q WHERE a = $1 AND b", {1: "x OR y"}, "SELECT * FROM q WHERE a = (x OR y) AND b"),
    ("SELECT - $1, $1::int", {1: "-5"}, "SELECT 5, CAST(-5 AS integer)"),
    ("PREPARE p AS SELECT $1; SELECT 2", {1: "1"}, "SELECT 1"),
]  # fmt: skip


@pytest.mark.parametrize(("text", "values", "expected"), FILLED)
def test_fill(text: str, values: dict[int, str], expected: str) -> None:
    assert fill_parameters(text, values) == expected


@pytest.mark.parametrize(
    "value", ["1; DROP TABLE q", "1 FROM q", "", "1, 2", "1 --", "(", "1 AS x", "1 UNION SELECT 2", "*\0"]
)
def test_fill_takes_one_expression_only(value: str) -> None:
    text = "SELECT * FROM q WHERE a = $1 AND b"
    try:
        filled = fill_parameters(text, {1: value})
    except ValueError:
        return
    # A comment after the value ends with its line.
    assert (value, filled) == ("1 --", "SELECT * FROM q WHERE a = 1 AND b")


def test_fill_of_text_that_does_not_parse() -> None:
    for text in ("SELEC", "", "SELECT '", "SELECT " + "(" * 9_000):
        with pytest.raises(ValueError, match=r"."):
            fill_parameters(text, {})


def test_renumber() -> None:
    text = "SELECT * FROM q WHERE a = $5 AND b = $3 AND c = $5 LIMIT $7"
    assert renumber_parameters(text) == (
        "SELECT * FROM q WHERE a = $1 AND b = $2 AND c = $1 LIMIT $3",
        (5, 3, 7),
    )
    with pytest.raises(ValueError, match="no statement"):
        renumber_parameters("")


def test_functions_called() -> None:
    text = (
        "SELECT app.f(a), lower(b) OPERATOR(app.+) 1 FROM q TABLESAMPLE app.mine(1), generate_series(1, 2) "
        "WHERE x AT TIME ZONE 'utc' < now() AND y IN (SELECT g() FROM z ORDER BY k USING OPERATOR(app.<<))"
    )
    assert set(functions_called(text)) == {
        "app.f", "lower", "app.+", "app.mine", "generate_series", "pg_catalog.timezone", "now", "g", "app.<<",
    }  # fmt: skip
    with pytest.raises(ValueError, match="syntax error"):
        functions_called("SELECT FROM WHERE")


HARMLESS = [
    "SELECT * FROM q WHERE a <= now() AND lower(b) = 'x' AND c @> '{}' AND coalesce(d, CURRENT_TIMESTAMP) < clock_timestamp()",
    "SELECT count(*), pg_catalog.max(a) FROM q WHERE j ->> 'x' = ANY (ARRAY['y']) AND t AT TIME ZONE 'utc' < now()",
    "UPDATE q SET a = greatest(a, 1) WHERE id = 5",
    "SELECT * FROM q TABLESAMPLE system (1)",
]  # fmt: skip
HARMFUL = [
    "SELECT pg_sleep(1)",
    "SELECT pg_catalog.pg_sleep(1)",
    "SELECT * FROM q WHERE pg_try_advisory_lock(id)",
    "SELECT nextval('s')",
    "SELECT set_config('a', 'b', false)",
    "SELECT app.now()",
    "SELECT * FROM app.lower(1)",
    "SELECT a OPERATOR(app.=) b FROM q",
    "SELECT a <#> b FROM q",
    "SELECT 1 IN (SELECT lo_unlink(a) FROM q)",
    "SELECT * FROM q ORDER BY a USING OPERATOR(app.<)",
    "SELECT * FROM q TABLESAMPLE app.mine (1)",
    "WITH d AS (DELETE FROM q RETURNING pg_notify('a', 'b')) SELECT 1",
    "SELECT 1; SELECT dblink('x', 'y')",
    "SELECT * INTO r FROM q",
    "EXPLAIN ANALYZE SELECT f()",
    "CALL p()",
    "DO $$ BEGIN END $$",
    "COPY q TO PROGRAM 'x'",
    "SELECT FROM WHERE",
    "",
]


@pytest.mark.parametrize("text", HARMLESS)
def test_harmless(text: str) -> None:
    assert is_harmless(text)


@pytest.mark.parametrize("text", HARMFUL)
def test_not_harmless(text: str) -> None:
    assert not is_harmless(text)


def test_harmless_list_can_be_widened() -> None:
    assert is_harmless("SELECT app.job_now()", harmless={*HARMLESS_FUNCTIONS, "app.job_now"})
    assert not is_harmless("SELECT job_now()", harmless={*HARMLESS_FUNCTIONS, "app.job_now"})


@pytest.mark.parametrize(
    "word",
    ["pg_sleep", "nextval", "setval", "pg_notify", "set_config", "pg_terminate_backend", "pg_advisory_lock", "lo_unlink",
     "txid_current", "pg_current_xact_id", "query_to_xml", "pg_read_file", "dblink", "pg_stat_reset"],
)  # fmt: skip
def test_harmless_functions_leave_out(word: str) -> None:
    assert word not in HARMLESS_FUNCTIONS


@pytest.mark.parametrize(
    ("given_name", "quoted"),
    [
        ("jobs", "jobs"),
        ("_jobs2", "_jobs2"),
        ("Jobs", '"Jobs"'),
        ("email outbox", '"email outbox"'),
        ('a"b', '"a""b"'),
        ("1a", '"1a"'),
        ("a$", '"a$"'),
        ("jobs\n", '"jobs\n"'),
        ("ä", '"ä"'),
        ("", '""'),
        ("user", '"user"'),
        ("select", '"select"'),
        ("between", '"between"'),
        ("left", '"left"'),
        ("name", "name"),
        ("lock", "lock"),
    ],
)
def test_quote_ident(given_name: str, quoted: str) -> None:
    assert quote_ident(given_name) == quoted


def test_first_statement() -> None:
    assert first_statement("-- a\nPREPARE p AS SELECT 1 ; SELECT 2") == "SELECT 1"
    assert first_statement(" ; ") is None
    assert first_statement("SELECT '") is None


@settings(deadline=None, max_examples=200)
@given(st.text(max_size=100), st.text(max_size=30))
def test_arbitrary_text_never_raises(text: str, value: str) -> None:
    parameters_of(text)
    is_harmless(text)
    first_statement(text)
    for call in (functions_called, renumber_parameters):
        try:
            call(text)
        except ValueError as error:
            assert str(error)
    try:
        filled = fill_parameters("SELECT * FROM q WHERE a = $1 AND b = 'end'", {1: value})
    except ValueError:
        return
    assert filled.startswith("SELECT * FROM q WHERE a = ")
    assert filled.endswith(" AND b = 'end'")


@pytest.mark.parametrize(
    ("text", "select"),
    [
        (
            "UPDATE q SET a = 1 WHERE id IN (SELECT id FROM q WHERE s = 'r' LIMIT 3 FOR UPDATE SKIP LOCKED) RETURNING id",
            "SELECT 1 FROM q WHERE id IN (SELECT id FROM q WHERE s = 'r' LIMIT 3)",
        ),
        (
            "DELETE FROM app.q AS x USING w WHERE x.id = w.id AND w.id IN (SELECT 1 FOR UPDATE)",
            "SELECT 1 FROM app.q AS x, w WHERE x.id = w.id AND w.id IN (SELECT 1)",
        ),
        ("WITH g AS (DELETE FROM w RETURNING id) UPDATE q SET a = 1 FROM g WHERE q.id = g.id", None),
        ("SELECT 1 FROM q", None),
        ("UPDATE q SET a = 1; UPDATE q SET a = 2", None),
        ("UPDATE q SET", None),
    ],
)
def test_select_that_joins_as_a_write_does(text: str, select: str | None) -> None:
    assert joining_select(text) == select
