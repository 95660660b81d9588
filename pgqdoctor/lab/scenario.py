"""Scenarios: a queue, its workers and its fault (or its health) as data.

A scenario is a directory ``fixtures/scenarios/NAME`` with ``scenario.toml``, ``setup.sql``, one script in
pgbench's language per kind of client and, for a sick one, its cure: ``cure.sql``, ``cured_SCRIPT.sql`` in
place of a client's script, or simply the end of the sessions held open. The keys of the TOML file are the
fields below; times are in seconds.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import resources
from importlib.resources.abc import Traversable
from typing import Literal, cast, get_args

from pgqdoctor.config import unknown
from pgqdoctor.errors import USAGE, PgqdoctorError

Kind = Literal["sick", "healthy"]
Protocol = Literal["simple", "extended", "prepared"]
Hold = Literal["idle", "idle in transaction", "active", "prepared"]

OLDEST_SERVER = 14
END_SESSIONS = "end sessions"
CURE_SCRIPT = "cure.sql"
CURED_CLIENTS = "cured clients"

_NAME = re.compile(r"[a-z0-9]+(-[a-z0-9]+)*")
_DATABASE = re.compile(r"[a-z][a-z0-9_]*")


@dataclass(frozen=True, slots=True, kw_only=True)
class Client:
    """One kind of client: ``connections`` pgbench sessions that repeat ``script``.

    ``rate`` caps their transactions per second, all connections together; None is as fast as they can.
    ``cured_script`` and ``cured_rate`` take over when the cure is applied. ``database`` is None for the
    scenario's own, else the suffix of a second database.
    """

    name: str
    application_name: str
    script: str
    cured_script: str | None
    connections: int
    rate: float | None
    cured_rate: float | None
    protocol: Protocol
    database: str | None

    @property
    def cured(self) -> bool:
        """Whether the cure changes this client."""
        return self.cured_script is not None or self.cured_rate is not None


@dataclass(frozen=True, slots=True, kw_only=True)
class Session:
    """A session that runs ``sql`` step by step and stays in the state ``hold``.

    ``active`` means that the last step is still running (or waiting); ``prepared`` that it left a prepared
    transaction behind and is gone. ``{database}`` in a step stands for the database's name. ``after_s``
    seconds pass between the start of the clients and the first step. The cure ends the session unless it
    ``stays``.
    """

    application_name: str
    sql: tuple[str, ...]
    hold: Hold
    database: str | None
    after_s: float
    stays: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    """One directory of ``fixtures/scenarios``, checked.

    ``expected`` are the check ids that must report at warning or above, ``allowed`` those that may,
    ``forbidden`` those that must not; what stands in none of the three must not report for a healthy
    scenario. ``queue`` is the queue's name as the report prints it, None where there is no queue to find.
    ``cures`` says how the fault ends: "cure.sql", "cured clients", "end sessions", or the name of the healthy
    scenario that shows the same work done right. ``settle_s`` is how long the load runs before the signs
    are there.
    """

    name: str
    title: str
    kind: Kind
    mechanism: str
    queue: str | None
    also_queues: tuple[str, ...]
    clients: tuple[Client, ...]
    sessions: tuple[Session, ...]
    expected: tuple[str, ...]
    allowed: tuple[str, ...]
    forbidden: tuple[str, ...]
    cures: str | None
    settle_s: float
    min_version: int
    max_version: int | None
    setup: str
    cure: str | None

    @property
    def databases(self) -> tuple[str, ...]:
        """The suffixes of the databases it needs beside its own."""
        users: tuple[Client | Session, ...] = (*self.clients, *self.sessions)
        return tuple(sorted({user.database for user in users if user.database is not None}))

    def runs_on(self, major: int) -> bool:
        """Whether the scenario is meant for servers of this major version."""
        return self.min_version <= major and (self.max_version is None or major <= self.max_version)


def list_scenarios() -> tuple[str, ...]:
    """The names of all scenarios, sorted."""
    return tuple(sorted(entry.name for entry in _home().iterdir() if (entry / "scenario.toml").is_file()))


def load_scenario(name: str) -> Scenario:
    """Reads and checks one scenario.

    Raises PgqdoctorError (exit status 2) where there is none of that name, or where its files are wrong.
    """
    directory = _home() / name
    if not _NAME.fullmatch(name) or not (directory / "scenario.toml").is_file():
        raise unknown("there is no scenario", name, list_scenarios(), listing="pgqdoctor demo --list")
    return read_scenario(directory)


def read_scenario(directory: Traversable) -> Scenario:
    """Reads and checks the scenario in ``directory``; raises PgqdoctorError where its files are wrong."""
    try:
        data = tomllib.loads((directory / "scenario.toml").read_text(encoding="utf-8"))
    except tomllib.TOMLDecodeError as error:
        raise _wrong(directory.name, f"scenario.toml is no TOML: {error}") from None
    return _scenario(directory, _Table(directory.name, "scenario.toml", data))


def _home() -> Traversable:
    return resources.files("pgqdoctor.fixtures") / "scenarios"


def _wrong(scenario: str, what: str) -> PgqdoctorError:
    return PgqdoctorError(f"scenario {scenario}: {what}", exit_code=USAGE)


class _Table:
    """One TOML table, read key by key, that complains about what nobody read."""

    def __init__(self, scenario: str, where: str, data: Mapping[str, object]) -> None:
        self.scenario = scenario
        self.where = where
        self._data = dict(data)

    def wrong(self, what: str) -> PgqdoctorError:
        return _wrong(self.scenario, f"{self.where}: {what}")

    def text(self, key: str, default: str | None = None) -> str:
        value = self.optional_text(key)
        if value is not None:
            return value
        if default is None:
            raise self.wrong(f"{key} is missing")
        return default

    def optional_text(self, key: str) -> str | None:
        value = self._data.pop(key, None)
        if value is not None and (not isinstance(value, str) or not value.strip()):
            raise self.wrong(f"{key} must be a text that is not empty")
        return value.strip() if isinstance(value, str) else None

    def choice(self, key: str, choices: tuple[str, ...], default: str | None = None) -> str:
        value = self.text(key, default)
        if value not in choices:
            raise self.wrong(f"{key} is {value!r}, not one of {', '.join(choices)}")
        return value

    def number(self, key: str, *, default: float | None = None, least: float) -> float:
        value = self.optional_number(key, least=least)
        if value is None:
            if default is None:
                raise self.wrong(f"{key} is missing")
            return default
        return value

    def optional_number(self, key: str, *, least: float) -> float | None:
        value = self._data.pop(key, None)
        if value is None:
            return None
        if isinstance(value, bool) or not isinstance(value, int | float) or value < least:
            raise self.wrong(f"{key} must be a number of at least {least:g}")
        return float(value)

    def integer(self, key: str, *, default: int | None = None, least: int) -> int:
        value = self._data.pop(key, default)
        if isinstance(value, bool) or not isinstance(value, int) or value < least:
            raise self.wrong(f"{key} must be a whole number of at least {least}")
        return value

    def flag(self, key: str) -> bool:
        value = self._data.pop(key, False)
        if not isinstance(value, bool):
            raise self.wrong(f"{key} must be true or false")
        return value

    def texts(self, key: str, *, required: bool = False) -> tuple[str, ...]:
        value = self._data.pop(key, None)
        if value is None and not required:
            return ()
        if not isinstance(value, list) or not all(isinstance(item, str) and item.strip() for item in value):
            raise self.wrong(f"{key} must be a list of texts")
        return tuple(value)

    def ids(self, key: str) -> tuple[str, ...]:
        values = self.texts(key)
        for value in values:
            if not _NAME.fullmatch(value):
                raise self.wrong(f"{key}: {value!r} is no check id")
        if len(set(values)) != len(values):
            raise self.wrong(f"{key} names a check twice")
        return values

    def database(self) -> str | None:
        value = self.optional_text("database")
        if value is not None and not _DATABASE.fullmatch(value):
            raise self.wrong(f"database: {value!r} must be lower case letters, digits and underscores")
        return value

    def table(self, key: str) -> _Table:
        value = self._data.pop(key, {})
        if not isinstance(value, dict):
            raise self.wrong(f"{key} must be a table")
        return _Table(self.scenario, f"{self.where} [{key}]", value)

    def tables(self, key: str) -> tuple[_Table, ...]:
        value = self._data.pop(key, [])
        if not isinstance(value, list) or not all(isinstance(item, dict) for item in value):
            raise self.wrong(f"{key} must be an array of tables")
        return tuple(
            _Table(self.scenario, f"{self.where} [[{key}]] {number}", item)
            for number, item in enumerate(value, start=1)
        )

    def finish(self) -> None:
        if self._data:
            raise self.wrong(f"unknown key {', '.join(sorted(self._data))}")


def _scenario(directory: Traversable, table: _Table) -> Scenario:
    kind = cast(Kind, table.choice("kind", get_args(Kind)))
    versions = table.table("server")
    scenario = Scenario(
        name=directory.name,
        title=table.text("title"),
        kind=kind,
        mechanism=table.text("mechanism"),
        queue=table.optional_text("queue"),
        also_queues=table.texts("also_queues"),
        clients=tuple(_client(directory, each) for each in table.tables("clients")),
        sessions=tuple(_session(each) for each in table.tables("sessions")),
        expected=table.ids("expected"),
        allowed=table.ids("allowed"),
        forbidden=table.ids("forbidden"),
        cures=table.optional_text("cures"),
        settle_s=table.number("settle", least=0),
        min_version=versions.integer("min", default=OLDEST_SERVER, least=OLDEST_SERVER),
        max_version=_max_version(versions),
        setup=_required_file(directory, "setup.sql"),
        cure=_file(directory, CURE_SCRIPT),
    )
    versions.finish()
    table.finish()
    _check_whole(directory, table, scenario)
    return scenario


def _max_version(versions: _Table) -> int | None:
    value = versions.integer("max", default=0, least=0)
    return value or None


def _client(directory: Traversable, table: _Table) -> Client:
    name = table.text("name")
    if not _NAME.fullmatch(name):
        raise table.wrong(f"name {name!r} must be lower case words joined by hyphens")
    script = table.text("script", f"{name.replace('-', '_')}.sql")
    client = Client(
        name=name,
        application_name=table.text("application_name", name),
        script=_required_file(directory, script),
        cured_script=_file(directory, f"cured_{script}"),
        connections=table.integer("connections", default=1, least=1),
        rate=table.optional_number("rate", least=0.1),
        cured_rate=table.optional_number("cured_rate", least=0.1),
        protocol=cast(Protocol, table.choice("protocol", get_args(Protocol), "simple")),
        database=table.database(),
    )
    table.finish()
    return client


def _session(table: _Table) -> Session:
    session = Session(
        application_name=table.text("application_name"),
        sql=table.texts("sql", required=True),
        hold=cast(Hold, table.choice("hold", get_args(Hold))),
        database=table.database(),
        after_s=table.number("after", default=0.0, least=0),
        stays=table.flag("stays"),
    )
    table.finish()
    if not session.sql:
        raise table.wrong("sql has no step")
    return session


def _check_whole(directory: Traversable, table: _Table, scenario: Scenario) -> None:
    names = [client.name for client in scenario.clients]
    if len(set(names)) != len(names):
        raise table.wrong("two clients have the same name")
    both = set(scenario.forbidden) & {*scenario.expected, *scenario.allowed}
    if both or set(scenario.expected) & set(scenario.allowed):
        raise table.wrong("a check may stand in only one of expected, allowed and forbidden")
    if scenario.max_version is not None and scenario.max_version < scenario.min_version:
        raise table.wrong("server.max is below server.min")
    if scenario.kind == "healthy":
        if scenario.expected or scenario.cures or scenario.cure is not None:
            raise table.wrong("a healthy scenario expects no finding and has no cure")
    else:
        _check_cure(directory, table, scenario)
    used = {"scenario.toml", "setup.sql", CURE_SCRIPT}
    for each in _scripts(directory):
        used |= {each, f"cured_{each}"}
    for entry in directory.iterdir():
        if entry.is_file() and entry.name not in used:
            raise _wrong(scenario.name, f"no client uses {entry.name}")


def _scripts(directory: Traversable) -> tuple[str, ...]:
    data = tomllib.loads((directory / "scenario.toml").read_text(encoding="utf-8"))
    return tuple(
        each.get("script", f"{each['name'].replace('-', '_')}.sql") for each in data.get("clients", ())
    )


def _check_cure(directory: Traversable, table: _Table, scenario: Scenario) -> None:
    if not scenario.expected:
        raise table.wrong("a sick scenario expects at least one finding")
    ways = {
        CURE_SCRIPT: scenario.cure is not None,
        CURED_CLIENTS: any(client.cured for client in scenario.clients),
        END_SESSIONS: any(not session.stays for session in scenario.sessions),
    }
    if scenario.cures is None:
        raise table.wrong("a sick scenario must say what cures it")
    if not ways.get(scenario.cures, scenario.cures in list_scenarios() and any(ways.values())):
        raise table.wrong(f"cures is {scenario.cures!r}, but nothing in {directory.name} does that")


def _file(directory: Traversable, name: str) -> str | None:
    if "/" in name or not name.endswith(".sql"):
        raise _wrong(directory.name, f"{name!r} must be the name of an .sql file of the scenario's directory")
    file = directory / name
    return file.read_text(encoding="utf-8") if file.is_file() else None


def _required_file(directory: Traversable, name: str) -> str:
    text = _file(directory, name)
    if text is None:
        raise _wrong(directory.name, f"{name} is missing")
    return text
