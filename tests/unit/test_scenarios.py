"""Every scenario file is valid, parses as SQL, and stays modest; broken ones are refused with the reason."""

from __future__ import annotations

import re
from pathlib import Path

import pglast
import pytest

from pgqdoctor.errors import USAGE, PgqdoctorError
from pgqdoctor.lab.load import split_statements
from pgqdoctor.lab.scenario import Client, Scenario, list_scenarios, load_scenario, read_scenario

NAMES = list_scenarios()
PGBENCH_VARIABLES = {"client_id", "random_seed", "scale", "default_seed"}
# What two cores can bear beside other work; a poll storm is the one that needs the most.
MOST_CONNECTIONS = 12
MOST_TRANSACTIONS_PER_S = 2_500


@pytest.fixture(params=NAMES)
def scenario(request: pytest.FixtureRequest) -> Scenario:
    return load_scenario(request.param)


def scripts(scenario: Scenario) -> list[tuple[Client, str]]:
    both = [(c, s) for c in scenario.clients for s in (c.script, c.cured_script)]
    return [(client, script) for client, script in both if script is not None]


def test_there_are_scenarios_of_both_kinds() -> None:
    kinds = {load_scenario(name).kind for name in NAMES}
    assert kinds == {"sick", "healthy"}
    assert all(name.startswith("healthy-") == (load_scenario(name).kind == "healthy") for name in NAMES)


def test_mechanism_is_two_sentences(scenario: Scenario) -> None:
    assert len(re.findall(r"[.?](?= [A-Z]|$)", scenario.mechanism)) == 2, scenario.mechanism


def test_setup_and_cure_parse(scenario: Scenario) -> None:
    assert split_statements(scenario.setup)
    for statement in (*split_statements(scenario.setup), *split_statements(scenario.cure or "")):
        pglast.parse_sql(statement)


def test_client_scripts_parse_and_set_what_they_use(scenario: Scenario) -> None:
    for client, script in scripts(scenario):
        plain, known = [], set(PGBENCH_VARIABLES)
        for line in script.splitlines():
            if line.lstrip().startswith("\\"):
                known |= set(re.findall(r"^\s*\\set (\w+)", line))
                assert re.match(r"\s*\\(set|sleep|if|elif|else|endif)\b", line), line
            else:
                plain.append(re.sub(r"\\(aset|gset)\s*$", ";", line))
        text = "\n".join(plain)
        used = set(re.findall(r"(?<!:):([a-z_]\w*)", text))
        assert used <= known, f"client {client.name} uses {used - known} unset"
        assert pglast.parse_sql(re.sub(r"(?<!:):([a-z_]\w*)", "1", text))


def test_session_steps_parse(scenario: Scenario) -> None:
    for session in scenario.sessions:
        for step in session.sql:
            assert len(pglast.parse_sql(step)) == 1


def test_queues_are_tables_of_the_setup(scenario: Scenario) -> None:
    created = set()
    for raw in pglast.parse_sql(scenario.setup):
        if isinstance(raw.stmt, pglast.ast.CreateStmt):
            relation = raw.stmt.relation
            assert relation is not None and relation.relname is not None
            parts = (str(relation.schemaname or "public"), relation.relname)
            created.add(".".join(p if re.fullmatch(r"[a-z_][a-z0-9_]*", p) else f'"{p}"' for p in parts))
    queues = {*scenario.also_queues, *([scenario.queue] if scenario.queue else [])}
    assert queues <= created


def test_load_is_modest(scenario: Scenario) -> None:
    assert sum(client.connections for client in scenario.clients) <= MOST_CONNECTIONS
    assert sum(client.rate or 0 for client in scenario.clients) <= MOST_TRANSACTIONS_PER_S
    for client, script in scripts(scenario):
        # Without a cap the script itself must pause, or pgbench takes a whole core.
        rates = {client.rate} if script == client.script else {client.cured_rate or client.rate}
        assert None not in rates or "\\sleep" in script, client.name


def test_healthy_scenarios_have_nothing_to_cure_and_sick_ones_do(scenario: Scenario) -> None:
    if scenario.kind == "healthy":
        assert scenario.expected == () and scenario.cures is None
    else:
        assert scenario.expected and scenario.cures


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("idle-snapshto", "Did you mean idle-snapshot?"),
        ("savepoint", "Did you mean savepoint-storm?"),
        ("xyzzy", f"There are {len(NAMES)}."),
    ],
)
def test_an_unknown_scenario_is_told_the_near_ones_and_how_to_list_them(name: str, hint: str) -> None:
    with pytest.raises(PgqdoctorError) as caught:
        load_scenario(name)
    assert caught.value.exit_code == USAGE
    assert caught.value.hint == f"{hint} 'pgqdoctor demo --list' lists them."


@pytest.mark.parametrize("name", ["../scenarios/" + NAMES[0], "", ".", NAMES[0].upper()])
def test_names_are_not_paths(name: str) -> None:
    with pytest.raises(PgqdoctorError, match="there is no scenario"):
        load_scenario(name)


GOOD = """
title = "A title"
kind = "sick"
mechanism = "One. Two."
queue = "public.jobs"
settle = 1
expected = ["claim-unguarded"]
forbidden = ["lock-queue"]
cures = "cure.sql"
[server]
min = 15
[[clients]]
name = "worker"
rate = 5
[[sessions]]
application_name = "x"
sql = ["BEGIN"]
hold = "idle in transaction"
"""


def write(directory: Path, toml: str) -> Path:
    (directory / "scenario.toml").write_text(toml)
    for name in ("setup.sql", "worker.sql", "cure.sql"):
        (directory / name).write_text("SELECT 1;\n")
    return directory


def test_a_good_one_is_read(tmp_path: Path) -> None:
    read = read_scenario(write(tmp_path, GOOD))
    assert (read.min_version, read.max_version, read.settle_s) == (15, None, 1.0)
    assert not read.runs_on(14) and read.runs_on(15) and read.runs_on(19)
    client = read.clients[0]
    assert (client.application_name, client.connections, client.rate, client.protocol) == (
        "worker",
        1,
        5.0,
        "simple",
    )
    assert read.sessions[0].hold == "idle in transaction"


@pytest.mark.parametrize(
    ("old", "new", "complaint"),
    [
        ("settle = 1", "settle = 1\nsetle = 2", "unknown key setle"),
        ("rate = 5", "rat = 5", "unknown key rat"),
        ('title = "A title"', "", "title is missing"),
        ('kind = "sick"', 'kind = "ill"', "kind is 'ill'"),
        ("rate = 5", "rate = 0", "rate must be a number of at least 0.1"),
        ("rate = 5", "rate = true", "rate must be a number"),
        ("rate = 5", "connections = 1.5", "connections must be a whole number"),
        ("rate = 5", 'protocol = "binary"', "protocol is 'binary'"),
        ("rate = 5", 'script = "other.sql"', "other.sql is missing"),
        ("rate = 5", 'script = "../x.sql"', "must be the name of an .sql file"),
        ("rate = 5", 'database = "Two Words"', "must be lower case letters"),
        ('hold = "idle in transaction"', 'hold = "asleep"', "hold is 'asleep'"),
        ('sql = ["BEGIN"]', "sql = []", "sql has no step"),
        ('["lock-queue"]', '["claim-unguarded"]', "only one of expected, allowed and forbidden"),
        ('["lock-queue"]', '["Lock Queue"]', "is no check id"),
        ('cures = "cure.sql"', "", "must say what cures it"),
        ('cures = "cure.sql"', 'cures = "cured clients"', "nothing in"),
        ('cures = "cure.sql"', 'cures = "healthy-skip-lock"', "nothing in"),
        ("min = 15", "min = 15\nmax = 14", "server.max is below server.min"),
        ("min = 15", "min = 9", "min must be a whole number of at least 14"),
        ('expected = ["claim-unguarded"]', "", "expects at least one finding"),
        ('kind = "sick"', 'kind = "healthy"', "a healthy scenario expects no finding"),
        ("settle = 1", "settle = ", "is no TOML"),
    ],
)
def test_a_broken_one_is_refused(tmp_path: Path, old: str, new: str, complaint: str) -> None:
    assert old in GOOD
    with pytest.raises(PgqdoctorError) as caught:
        read_scenario(write(tmp_path, GOOD.replace(old, new, 1)))
    assert complaint in caught.value.message
    assert tmp_path.name in caught.value.message
    assert caught.value.exit_code == USAGE


def test_a_file_that_no_client_uses_is_refused(tmp_path: Path) -> None:
    write(tmp_path, GOOD)
    (tmp_path / "cured_wroker.sql").write_text("SELECT 1;")
    with pytest.raises(PgqdoctorError, match=r"no client uses cured_wroker\.sql"):
        read_scenario(tmp_path)


def test_split_minds_quotes_and_comments() -> None:
    text = "-- a; b\nSELECT ';'; DO $$ BEGIN PERFORM 1; END $$;\nVACUUM jobs;\n"
    assert [" ".join(s.split()) for s in split_statements(text)] == [
        "SELECT ';'",
        "DO $$ BEGIN PERFORM 1; END $$",
        "VACUUM jobs",
    ]
