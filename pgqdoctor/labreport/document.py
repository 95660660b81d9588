"""What a lab report holds, whatever its format: sentences, charts, tables, facts. Pure."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from pgqdoctor.lab.results import LabResult, ServerFacts
from pgqdoctor.render.quantities import number, size


@dataclass(frozen=True, slots=True, kw_only=True)
class Chart:
    """One chart, drawn for a page and as a file of its own; ``name`` is the file's, without its ending."""

    name: str
    title: str
    inline: str
    file: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """One table; the columns in ``right`` hold numbers."""

    title: str
    headers: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    right: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Listing:
    """SQL to read: statements in order."""

    title: str
    statements: tuple[str, ...]
    important: bool = False
    """Part of the result, not of how it was had."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Document:
    """One report. ``says`` are the sentences that the numbers bear out, ``method`` how they were had."""

    title: str
    says: tuple[str, ...]
    charts: tuple[Chart, ...]
    tables: tuple[Table, ...]
    listings: tuple[Listing, ...]
    method: tuple[str, ...]
    facts: tuple[tuple[str, str], ...]


def drawn(name: str, title: str, draw: Callable[[bool], str]) -> Chart:
    """A chart from a function that takes ``standalone``."""
    return Chart(name=name, title=title, inline=draw(False), file=draw(True))


def facts(result: LabResult) -> tuple[tuple[str, str], ...]:
    """The machine, the servers, the options: what another run must share to be compared."""
    machine = result.machine
    memory = f", {size(machine.memory_bytes)} of memory" if machine.memory_bytes else ""
    load = f", load {machine.load_1m:g} at the start" if machine.load_1m is not None else ""
    servers = (result.server, *result.other_servers)
    return (
        ("Machine", f"{machine.cpu or machine.architecture}, {machine.cpus} usable processors{memory}{load}"),
        ("System", f"{machine.system}, Python {machine.python}"),
        *(
            (f"Server {place}" if len(servers) > 1 else "Server", _server(one))
            for place, one in enumerate(servers, 1)
        ),
        *(
            (f"Settings {place}" if len(servers) > 1 else "Settings", _settings(one))
            for place, one in enumerate(servers, 1)
        ),
        *((key.capitalize(), value) for key, value in result.options.items()),
        ("Run", f"{result.started_at}, {number(round(result.seconds))} s, pgqdoctor {result.tool_version}"),
    )


def _server(server: ServerFacts) -> str:
    where = "embedded" if server.embedded else "given as scratch"
    return f"PostgreSQL {server.version}, {where}; load by pgbench {server.pgbench}"


def _settings(server: ServerFacts) -> str:
    return ", ".join(f"{name} {value or '(empty)'}" for name, value in server.settings.items())


def listings(result: LabResult) -> tuple[Listing, ...]:
    """What was run, for readers who want to repeat it."""
    return tuple(Listing(title=name, statements=(text,)) for name, text in result.scripts.items())
