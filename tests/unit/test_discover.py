"""The condition for ready jobs, look-alikes, functions' arguments and frameworks' signatures: no database."""

from __future__ import annotations

import pytest

from pgqdoctor.discovery.columns import roles_of
from pgqdoctor.discovery.moved import moved_columns
from pgqdoctor.discovery.signs import Signs
from pgqdoctor.discovery.states import states_of
from pgqdoctor.frameworks import signature_of
from pgqdoctor.lookalikes import is_kept_record, is_mutex, pins_known_row, sweeps
from pgqdoctor.names import columns_used
from pgqdoctor.observation import ColumnRoles
from pgqdoctor.planning import literal_for
from pgqdoctor.readiness import Readiness, in_utc, own_conditions
from pgqdoctor.rows import ColumnRow, IndexRow
from pgqdoctor.sqlfacts import Claim
from pgqdoctor.sqlparameters import argument_types, parameters_of, variables_as_parameters
from pgqdoctor.sqlread import read_sql

NAIVE = "timestamp without time zone"
ZONED = "timestamp with time zone"


def column(name: str, type_name: str, category: str, **given: object) -> ColumnRow:
    facts: dict[str, object] = {
        "table": 1,
        "number": 1,
        "name": name,
        "type_name": type_name,
        "type_category": category,
        "not_null": True,
        "generated": False,
        "enum_labels": (),
        "average_width": None,
        "null_fraction": None,
        "distinct": None,
        "correlation": None,
        "common_values": (),
        "common_fractions": (),
        "statistics_target": None,
        "default_expression": None,
        "inherited_statistics": False,
    }
    return ColumnRow(**{**facts, **given})  # type: ignore[arg-type]


def roles(**given: str) -> ColumnRoles:
    names = (
        "state",
        "run_at",
        "lease",
        "heartbeat",
        "claimed_at",
        "finished_at",
        "created_at",
        "attempts",
        "owner",
        "priority",
    )
    return ColumnRoles(**{name: given.get(name) for name in names}, key=("id",))


def claim_of(sql: str) -> Claim:
    (statement,) = read_sql(sql).statements
    return own_conditions(statement.claims[0])


def condition(
    where: str, columns: list[ColumnRow], its: ColumnRoles, ready: tuple[str, ...] = ()
) -> tuple[str | None, str | None]:
    claim = claim_of(f"SELECT id FROM jobs WHERE {where} ORDER BY id LIMIT 1 FOR UPDATE SKIP LOCKED")
    return Readiness(its, {one.name: one for one in columns}, ready).condition(claim.conditions, whole=True)


STATE = column("state", "text", "S")
RUN_AT = column("run_at", ZONED, "D")
LOCKED = column("locked_at", ZONED, "D", not_null=False)


@pytest.mark.parametrize(
    ("where", "expected"),
    [
        ("state = $1 AND run_at <= $2", ("state = 'queued' AND run_at <= now()", "state = 'queued'")),
        ("state = $1 AND queue = $2", ("state = 'queued' AND run_at <= now()", "state = 'queued'")),
        (
            "state = $1 AND (run_at = $2 OR run_at <= $3)",
            ("state = 'queued' AND (run_at >= '9999-01-01' OR run_at <= now())", "state = 'queued'"),
        ),
        (
            "state = $1 AND (run_at <= now() OR run_at IS NULL)",
            ("state = 'queued' AND (run_at IS NULL OR run_at <= now())", "state = 'queued'"),
        ),
        (
            "state = $1 AND attempt < max_attempts AND run_at <= now()",
            (
                "state = 'queued' AND attempt < max_attempts AND run_at <= now()",
                "state = 'queued' AND attempt < max_attempts",
            ),
        ),
        (
            "state = $1 AND (locked_at IS NULL OR locked_at < now() - interval '4 hours') AND run_at <= now()",
            (
                "state = 'queued' AND locked_at IS NULL AND run_at <= now()",
                "state = 'queued' AND locked_at IS NULL",
            ),
        ),
        (
            "(state = $1 OR state = $2) AND run_at <= now()",
            ("state = 'queued' AND run_at <= now()", "state = 'queued'"),
        ),
    ],
)
def test_ready_condition_is_the_claims_own(where: str, expected: tuple[str, str]) -> None:
    columns = [
        STATE,
        RUN_AT,
        LOCKED,
        column("queue", "text", "S"),
        column("attempt", "integer", "N"),
        column("max_attempts", "integer", "N"),
    ]
    assert (
        condition(where, columns, roles(state="state", run_at="run_at", claimed_at="locked_at"), ("queued",))
        == expected
    )


def test_every_row_is_ready_where_the_claim_takes_what_it_finds() -> None:
    assert condition("queue = $1", [column("queue", "text", "S")], roles()) == ("true", None)
    assert condition("queue = $1 AND run_at <= now()", [RUN_AT], roles(run_at="run_at")) == (
        "run_at <= now()",
        None,
    )


def test_nothing_is_said_where_the_state_is_not_known() -> None:
    assert condition("state = $1", [STATE], roles(state="state")) == (None, None)


def test_nothing_is_said_where_an_expression_may_shut_rows_out() -> None:
    document = [column("doc", "jsonb", "U")]
    assert condition("doc ->> 'state' = $1", document, roles()) == (None, None)
    assert condition("doc ->> $1 = $2 AND run_at <= now()", [*document, RUN_AT], roles(run_at="run_at")) == (
        None,
        None,
    )
    assert condition("pg_try_advisory_xact_lock(id)", document, roles()) == ("true", None)


def test_epoch_numbers_are_read_in_their_own_unit() -> None:
    numbers = [STATE, column("run_at", "bigint", "N")]
    ready, state = condition(
        "state = $1 AND run_at <= $2", numbers, roles(state="state", run_at="run_at"), ("queued",)
    )
    assert ready is not None
    assert "CASE WHEN run_at > 1e14 THEN 1e6 WHEN run_at > 1e11 THEN 1e3 ELSE 1 END" in ready
    assert state == "state = 'queued'"


@pytest.mark.parametrize(
    ("default", "utc"),
    [(None, True), ("timezone('UTC'::text, now())", True), ("now()", False), ("CURRENT_TIMESTAMP", False)],
)
def test_timestamps_without_zone_hold_utc_unless_the_server_fills_them(
    default: str | None, utc: bool
) -> None:
    one = column("run_at", NAIVE, "D", default_expression=default)
    assert in_utc(one, [one]) is utc
    assert not in_utc(RUN_AT, [RUN_AT])
    ready, _ = condition(
        "state = $1 AND run_at <= $2", [STATE, one], roles(state="state", run_at="run_at"), ("queued",)
    )
    assert (
        ready
        == f"state = 'queued' AND run_at <= {chr(40) + 'now() AT TIME ZONE ' + repr('UTC') + chr(41) if utc else 'now()'}"
    )


def test_conditions_of_joined_tables_are_not_the_queues() -> None:
    claim = claim_of(
        "SELECT j.id FROM jobs j JOIN queues q ON q.name = j.queue WHERE j.state = 'ready' AND q.state = 'open' ORDER BY j.id LIMIT 1 "
        "FOR UPDATE OF j SKIP LOCKED"
    )
    assert [one.values for one in claim.conditions if one.column == "state"] == [("ready",)]


def test_columns_of_a_sub_select_do_not_decide_which_table_a_name_means() -> None:
    (statement,) = read_sql(
        "WITH n AS (SELECT id, policy AS grouped FROM job WHERE state < 'active' LIMIT 1 FOR UPDATE SKIP LOCKED), g AS (SELECT id, grouped FROM n) "
        "UPDATE job j SET state = 'active' FROM g WHERE j.id = g.id AND grouped = 'x' RETURNING j.id"
    ).statements
    assert {name.name: columns for name, columns in columns_used(statement).items()}["job"] == {"state", "id"}


@pytest.mark.parametrize(
    ("where", "swept"),
    [
        ("date_done < now() - interval '1 day'", True),
        ("expires_at < $1", True),
        ("state = $1 AND last_heartbeat < $2", True),
        ("created_at < $1", True),
        ("state = $1 AND created_at < $2", False),
        ("run_at <= now()", False),
        ("visible_until < now()", False),
    ],
)
def test_looking_for_what_is_old_is_no_claim(where: str, swept: bool) -> None:
    names = ("date_done", "expires_at", "last_heartbeat", "created_at", "run_at", "visible_until")
    columns = {"state": STATE} | {name: column(name, ZONED, "D") for name in names}
    claim = claim_of(f"SELECT id FROM t WHERE {where} ORDER BY id LIMIT 10 FOR UPDATE SKIP LOCKED")
    assert sweeps(claim, columns) is swept


def test_names_of_locks_and_records() -> None:
    assert all(
        is_mutex(name)
        for name in (
            "databasechangeloglock",
            "knex_migrations_lock",
            "shedlock",
            "river_leader",
            "semaphores",
        )
    )
    assert not any(is_mutex(name) for name in ("jobs", "blocks", "clocks", "locked_accounts_queue"))
    assert all(is_kept_record(name) for name in ("jobs_archive", "audit_log", "task_results", "job_history"))
    assert not any(is_kept_record(name) for name in ("jobs", "outbox", "catalog_jobs"))
    assert all(
        is_kept_record(name)
        for name in (
            "dead_letters",
            "deadletter_queue",
            "dead_jobs",
            "jobs_dlq",
            "failed_jobs",
            "job_failures",
        )
    )
    assert not any(is_kept_record(name) for name in ("deadlines", "failed_login_queue", "dead_reckoning"))


def test_a_key_that_is_not_unique_pins_nothing() -> None:
    claim = claim_of("SELECT id FROM t WHERE queue = $1 ORDER BY id LIMIT 1 FOR UPDATE SKIP LOCKED")
    assert not pins_known_row(claim, {"queue": column("queue", "text", "S")}, ())


def test_variables_of_a_function_become_typed_parameters() -> None:
    types = argument_types("names character varying[], worker bigint DEFAULT NULL::bigint, OUT found integer")
    assert types == {"names": "character varying[]", "worker": "bigint"}
    text = "SELECT j.id FROM jobs j WHERE (names IS NULL OR j.queue = ANY (names)) AND j.worker = worker LIMIT 1 FOR UPDATE SKIP LOCKED"
    written = variables_as_parameters(text, {"names", "worker"}, types)
    assert written is not None
    uses = {use.number: use for use in parameters_of(written) if use.column is not None}
    assert (uses[1].column, uses[1].array, uses[2].column) == ("queue", True, "worker")
    assert variables_as_parameters("SELECT 1 FROM jobs", {"names"}, types) == "SELECT 1 FROM jobs"


def test_rows_out_of_an_array_stand_for_the_column_of_their_name() -> None:
    for text in ("SELECT unnest($1::text[]) AS queue", "SELECT q.queue FROM unnest($1::text[]) AS q(queue)"):
        (use,) = parameters_of(text)
        assert (use.column, use.array, use.operator) == ("queue", True, "in")


def test_a_jobs_own_value_stands_for_a_parameter_that_nothing_else_tells() -> None:
    (use,) = parameters_of("SELECT 1 FROM jobs WHERE queue = $1")
    identity = type(
        "Identity", (), {"roles": roles(), "ready_values": (), "running_values": (), "finished_values": ()}
    )()
    columns = {"queue": column("queue", "text", "S")}
    assert literal_for(use, identity, columns) is None
    assert literal_for(use, identity, columns, {"queue": "it's"}) == "'it''s'"


def test_signatures_know_their_helpers() -> None:
    names = frozenset(["task_id", "dag_id", "run_id", "state", "pool", "queued_dttm"])
    airflow = signature_of("task_instance", names)
    assert airflow is not None
    assert all(airflow.is_helper(name) for name in ("dag", "dag_run", "job", "callback_request"))
    assert not airflow.is_helper("orders")
    assert signature_of("task_instance", frozenset({"state"})) is None


def test_an_order_by_another_tables_column_does_not_decide_either() -> None:
    (statement,) = read_sql(
        "SELECT t.id FROM task t JOIN run r ON r.id = t.run WHERE t.state = 'queued' ORDER BY r.made_at LIMIT 5 FOR UPDATE OF t SKIP LOCKED"
    ).statements
    assert {name.name: columns for name, columns in columns_used(statement).items()}["task"] == {"state"}


LEASED = "state = 'queued' OR (state = 'running' AND leased_until < now())"


@pytest.mark.parametrize(
    ("where", "sets", "ready"),
    [
        (LEASED, "state = 'running', leased_until = now() + interval '1 minute'", ("queued",)),
        (LEASED, "state = $1, leased_until = $2", ("queued",)),
        ("state IN ('queued', 'retry')", "state = 'running'", ("queued", "retry")),
        ("state = 'running'", "state = 'running'", ("running",)),
    ],
)
def test_jobs_whose_lease_ran_out_are_claimed_again_and_not_ready(
    where: str, sets: str, ready: tuple[str, ...]
) -> None:
    text = (
        f"UPDATE jobs SET {sets} WHERE id = (SELECT id FROM jobs WHERE {where} "
        "ORDER BY id LIMIT 1 FOR UPDATE SKIP LOCKED) RETURNING id"
    )
    (statement,) = read_sql(text).statements
    claim = own_conditions(statement.claims[0])
    found = states_of(
        roles(state="state", lease="leased_until"),
        {"state": STATE, "leased_until": column("leased_until", ZONED, "D", not_null=False)},
        (),
        [claim],
        Signs(),
        (),
        [(statement, claim)],
    )
    assert found.ready == ready


def guarding(where: str) -> IndexRow:
    """Return a partial index."""
    return IndexRow(
        oid=9,
        table=1,
        schema="public",
        name="jobs_claim",
        method="btree",
        unique=False,
        primary=False,
        constraint=None,
        valid=True,
        key_columns=(9,),
        included_columns=(),
        has_predicate=True,
        has_expressions=False,
        predicate=where,
        definition=None,
        expressions=None,
        pages=1,
        rows=1.0,
        replica_identity=False,
        descending=(False,),
    )


UNNAMED = (
    column("id", "bigint", "N"),
    column("zustand", "text", "S", number=2),
    column("mode", "text", "S", number=3),
    column("queue", "text", "S", number=4),
    column("stage", "text", "S", number=5),
    column("attempts", "integer", "N", number=6),
    column("version", "integer", "N", number=7),
    column("locked_at", ZONED, "D", number=8, not_null=False),
    column("seit", ZONED, "D", number=9, default_expression="now()"),
    column("angefasst", ZONED, "D", number=10, default_expression="now()"),
)


def roles_by(*texts: str, indexes: tuple[IndexRow, ...] = ()) -> ColumnRoles:
    """Return the roles that statements tell of a table whose names tell nothing."""
    statements = [one for text in texts for one in read_sql(text).statements]
    claims = [(one, own_conditions(claim)) for one in statements for claim in one.claims]
    moved = moved_columns(UNNAMED, ("id",), claims, statements)
    return roles_of(UNNAMED, indexes, [claim for _, claim in claims], (), moved)


def claiming(where: str, sets: str) -> str:
    found = f"SELECT id FROM jobs WHERE {where} ORDER BY seit LIMIT $9 FOR UPDATE SKIP LOCKED"
    return f"UPDATE jobs SET {sets} WHERE id = ({found}) RETURNING id" if sets else found


@pytest.mark.parametrize(
    ("texts", "state"),
    [
        ((claiming("zustand = $1", "zustand = $2"),), "zustand"),
        ((claiming("zustand = 'offen'", "zustand = 'laufend'"),), "zustand"),
        ((claiming("zustand IN ($1, $2)", "zustand = $3, attempts = attempts + $4"),), "zustand"),
        ((claiming("queue = $1 AND zustand = $2", "queue = $3, zustand = $4"),), "zustand"),
        ((claiming("stage = $1 AND zustand = $2", "zustand = $3"),), "zustand"),
        ((claiming("stage = $1 AND zustand = $2", "zustand = $3, stage = $4"),), "stage"),
        ((claiming("zustand = $1", ""), "UPDATE jobs SET zustand = $1 WHERE id = $2"), "zustand"),
        ((claiming("locked_at IS NULL AND zustand = $1", "locked_at = now(), zustand = $2"),), "zustand"),
        ((claiming("mode = $1 AND zustand = $2", "mode = $1, zustand = $3"),), "zustand"),
        # What is compared and set without being a state.
        ((claiming("zustand = $1", ""),), None),
        ((claiming("zustand = 'eilig'", "zustand = 'eilig', attempts = $2"),), None),
        ((claiming("attempts = $1", "attempts = $2"),), None),
        ((claiming("version = $1", "version = $2"),), None),
        ((claiming("queue = $1", ""), "UPDATE jobs SET queue = $1 WHERE id = $2"), None),
        ((claiming("locked_at IS NULL AND zustand = $1", "locked_at = now()"),), "locked_at"),
        ((claiming("stage = $1", ""), "UPDATE jobs SET zustand = $1 WHERE id = $2"), "stage"),
        ((claiming("zustand = $1", ""), "UPDATE runs SET zustand = $1 WHERE id = $2"), None),
    ],
)
def test_what_the_claim_moves_on_is_the_state_whatever_its_name(
    texts: tuple[str, ...], state: str | None
) -> None:
    assert roles_by(*texts).state == state


@pytest.mark.parametrize("name", ["mode", "zustand"])
def test_a_partial_index_chooses_among_columns_that_are_moved_on(name: str) -> None:
    text = claiming("mode = $1 AND zustand = $2", "mode = $3, zustand = $4")
    assert roles_by(text, indexes=(guarding(f"({name} = 'x'::text)"),)).state == name


def test_the_time_that_claims_order_by_and_nobody_changes_is_when_a_job_was_made() -> None:
    ordered = claiming("zustand = $1", "zustand = $2")
    assert roles_by(ordered).created_at == "seit"
    unordered = ordered.replace("ORDER BY seit ", "")
    assert roles_by(unordered).created_at is None
    assert roles_by(unordered.replace("$2", "$2, angefasst = now()", 1)).created_at == "seit"
    assert roles_by(ordered.replace("$2", "$2, seit = now()", 1)).created_at == "angefasst"
    assert roles_by(ordered.replace("BY seit", "BY seit DESC")).created_at is None
