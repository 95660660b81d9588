"""Commands, options and exit statuses; the one place that prints errors.

What is heavy (the driver, the parser, the checks) is imported inside the commands that use it, so that
``--help`` and ``--version`` answer at once.
"""

from __future__ import annotations

import dataclasses
import io
import os
import shutil
import sys
import textwrap
import threading
import traceback
from collections.abc import Callable, Collection, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO, TypeVar, cast

import click

from pgqdoctor import __version__
from pgqdoctor.config import (
    EXPLAIN,
    FAIL_ON,
    Config,
    find_config,
    load_config,
    parse_duration,
    require_checks,
    unknown,
    validate_checks,
)
from pgqdoctor.conninfo import connection_string, redact_conninfo
from pgqdoctor.errors import UNREACHABLE, USAGE, PgqdoctorError
from pgqdoctor.render import FORMATS, QUEUE_FORMATS

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from pgqdoctor.check import Check
    from pgqdoctor.observation import Observation
    from pgqdoctor.report import FailOn

HEALTHY = 0
FOUND = 1
INTERRUPTED = 130

REPORT_WINDOW_S = 10.0
QUEUES_WINDOW_S = 1.0
"""Discovery needs no rates; a second suffices to catch the claims that run just now."""
PROGRESS_FROM_S = 3.0
"""Windows up to this length end before a progress line would be read."""
PIPED_WIDTH = 80

F = TypeVar("F", bound=Callable[..., Any])


def run(arguments: Sequence[str]) -> int:
    """Run the command line and return the exit status of the contract; errors are printed, never raised."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            # A locale that lacks a letter must not cost the report.
            stream.reconfigure(errors="replace")
    try:
        return main.main(args=list(arguments), prog_name="pgqdoctor", standalone_mode=False) or HEALTHY
    except click.exceptions.Exit as stop:
        return stop.exit_code
    except (click.Abort, KeyboardInterrupt):
        return INTERRUPTED
    except click.exceptions.NoArgsIsHelpError as error:
        tell(error.ctx.get_help())
        return USAGE
    except click.ClickException as error:
        context = getattr(error, "ctx", None)
        way_on = f"Try '{context.command_path} --help'." if context is not None else ""
        return _fail(error.format_message(), way_on, USAGE)
    except PgqdoctorError as error:
        return _fail(error.message, error.hint, error.exit_code)
    except Exception as error:
        what = f"internal error: {type(error).__name__}: {error}".rstrip(": ")
        if os.environ.get("PGQDOCTOR_DEBUG"):
            traceback.print_exc()
            return _fail(what, "", UNREACHABLE)
        return _fail(f"{what}; run again with PGQDOCTOR_DEBUG=1 for a traceback", "", UNREACHABLE)


def _fail(message: str, hint: str, status: int) -> int:
    sentence = " ".join(redact_conninfo(message).split())
    if hint:
        joint = ";" if hint[0].islower() else "" if sentence.endswith((".", "?", "!")) else "."
        sentence = f"{sentence}{joint} {hint}"
    tell(f"pgqdoctor: {_printable(sentence)}")
    return status


def tell(text: str = "", *, nl: bool = True) -> None:
    """Write to standard error; where nobody can read it (a full disk, a reader that went away) the report stands."""
    with suppress(OSError):
        click.echo(text, nl=nl, err=True)


def _printable(text: str) -> str:
    """``text`` without control characters: names in it come from the server and may aim at the terminal."""
    return "".join(letter if letter.isprintable() else " " for letter in text)


def _silence_stdout() -> None:
    """Let what is still buffered for a reader that went away vanish, at exit too."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


# --- options ----------------------------------------------------------------------------------------


def duration(context: click.Context, parameter: click.Parameter, value: str | None) -> float | None:
    try:
        return None if value is None else parse_duration(value)
    except ValueError as error:
        raise click.BadParameter(str(error), context, parameter) from None


def _existing_directory(
    context: click.Context, parameter: click.Parameter, value: Path | None
) -> Path | None:
    """Complain about an output that cannot be written before the window, not after it."""
    if value is not None and not value.parent.is_dir():
        raise click.BadParameter(f"there is no directory {str(value.parent)!r}", context, parameter)
    return value


_READABLE = click.Path(exists=True, dir_okay=False, readable=True, path_type=Path)
_WRITABLE = click.Path(dir_okay=False, writable=True, path_type=Path)

CONNECTION = (
    click.argument("dsn", required=False),
    click.option("-h", "--host", help="Server host or socket directory."),
    click.option("-p", "--port", type=click.IntRange(1, 65535), metavar="PORT", help="Server port."),
    click.option("-U", "--username", metavar="NAME", help="Role to connect as."),
    click.option("-d", "--dbname", metavar="DBNAME", help="Database to connect to."),
)
OBSERVING = (
    click.option(
        "--queue",
        "queues",
        multiple=True,
        metavar="SCHEMA.TABLE",
        help="Look at this table only, and take it for a queue (repeatable).",
    ),
    click.option(
        "--claim-query",
        type=_READABLE,
        metavar="FILE",
        help="The statement that claims jobs from the --queue.",
    ),
    click.option(
        "--window", callback=duration, metavar="DURATION", help="How long to watch: 10s, 500ms, 2m."
    ),
    click.option(
        "--explain",
        type=click.Choice(EXPLAIN),
        help="How the claim's plan is had: not at all, without running it, by running its SELECT without "
        "locks (default), with them, or the whole statement; the last two are rolled back.",
    ),
)
SETTINGS = (
    click.option(
        "--config",
        type=_READABLE,
        metavar="FILE",
        help="Settings; default: pgqdoctor.toml or [tool.pgqdoctor] of pyproject.toml, found upwards.",
    ),
)
RECORDED = (
    click.option(
        "--from", "recording", type=_READABLE, metavar="FILE", help="Read a recording instead of a server."
    ),
    click.option(
        "--redact",
        "redacted",
        is_flag=True,
        help="Replace names of roles, applications, databases and hosts, and text values in statements.",
    ),
)
VERDICT = (
    click.option(
        "--fail-on",
        type=click.Choice(FAIL_ON),
        help="Severity from which the exit status is 1; default: critical, for lint: warning.",
    ),
    click.option("--only", multiple=True, metavar="ID", help="Run this check only (repeatable)."),
    click.option(
        "--ignore",
        multiple=True,
        metavar="ID",
        help="Leave this check out, beside those the settings leave out.",
    ),
)


def output(formats: Collection[str]) -> tuple[Callable[[F], F], ...]:
    """The options that say in which of ``formats`` to write, and where."""
    return (
        click.option(
            "--format",
            "format_",
            type=click.Choice(tuple(formats)),
            help="Form of the output; default: text.",
        ),
        click.option(
            "--output",
            type=_WRITABLE,
            metavar="FILE",
            callback=_existing_directory,
            help="Write to FILE instead of standard output.",
        ),
    )


def options(*groups: Sequence[Callable[[F], F]]) -> Callable[[F], F]:
    """Decorate a command with groups of options, listed by ``--help`` in the order given here."""

    def decorate(command: F) -> F:
        for option in reversed([option for group in groups for option in group]):
            command = option(command)
        return command

    return decorate


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """What the command line and the settings file say together; ``window`` is in seconds."""

    conninfo: str
    recording: Path | None
    redacted: bool
    queues: tuple[str, ...]
    claim_queries: Mapping[str, str]
    window: float
    explain: str
    format: str
    output: Path | None
    fail_on: str
    only: tuple[str, ...]
    ignore: tuple[str, ...]
    limits: Mapping[str, Mapping[str, object]]


def settings(given: Mapping[str, Any], *, window: float, formats: Collection[str] = FORMATS) -> Settings:
    """Join the options of a command with the settings file; the command line wins.

    ``given`` holds the options of the groups that the command has, ``window`` is its own default in seconds,
    ``formats`` are those it writes; one that only other commands write may stand in the file.
    Raises PgqdoctorError (usage) for contradictions, unknown check ids and a settings file that is wrong.
    """
    file = given["config"] or find_config(Path.cwd())
    config = load_config(file)
    only, ignore = tuple(given.get("only", ())), tuple(given.get("ignore", ()))
    if only or ignore or config.only or config.ignore or config.limits:
        known = {check.id: check.limits for check in _checks()}
        require_checks("--only", only, known)
        require_checks("--ignore", ignore, known, keys=True)
        validate_checks(config, known)
    if config.format is not None and config.format not in FORMATS:
        raise unknown(f"{config.file}: unknown format", config.format, FORMATS)
    recording: Path | None = given.get("recording")
    return Settings(
        conninfo="" if recording is not None else _conninfo(given),
        recording=recording,
        redacted=given.get("redacted", False),
        queues=tuple(given["queues"]) or config.queues,
        claim_queries=_claim_queries(given, config),
        window=given["window"] or config.window or window,
        explain=given["explain"] or config.explain or "select",
        format=given["format_"] or (config.format if config.format in formats else None) or "text",
        output=given["output"],
        fail_on=given.get("fail_on") or config.fail_on or "critical",
        only=only or config.only,
        ignore=(*config.ignore, *ignore),
        limits=config.limits,
    )


def _conninfo(given: Mapping[str, Any]) -> str:
    return connection_string(
        given["dsn"],
        host=given["host"],
        port=given["port"],
        user=given["username"],
        dbname=given["dbname"],
        environment=os.environ,
    )


def _claim_queries(given: Mapping[str, Any], config: Config) -> dict[str, str]:
    files = {entry.name: entry.claim_query for entry in config.queue if entry.claim_query is not None}
    if given["claim_query"] is not None:
        if len(given["queues"]) != 1:
            raise click.UsageError(
                "--claim-query needs exactly one --queue to belong to; "
                "for more queues use [[queue]] tables in the settings"
            )
        files[given["queues"][0]] = given["claim_query"]
    return {name: _statement(file) for name, file in files.items()}


def _statement(file: Path) -> str:
    try:
        text = file.read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise PgqdoctorError(f"the claim query in {file} cannot be read: {error}", exit_code=USAGE) from None
    if not text:
        raise PgqdoctorError(f"the claim query in {file} is empty", exit_code=USAGE)
    from pgqdoctor.given import claim_fault  # the SQL parser costs what most commands need not pay

    fault = claim_fault(text)
    if fault is not None:
        raise PgqdoctorError(f"the claim query in {file} {fault.message}", hint=fault.hint, exit_code=USAGE)
    return text


def not_beside_recording(context: click.Context) -> None:
    """Reject options that say how to observe a server, where a recording is read instead."""
    idle = {"dsn", "host", "port", "username", "dbname", "claim_query", "window", "explain"}
    if context.params.get("recording") is None:
        return
    for parameter in context.command.params:
        name = parameter.name or ""
        if name in idle and context.get_parameter_source(name) is click.core.ParameterSource.COMMANDLINE:
            shown = parameter.opts[-1] if isinstance(parameter, click.Option) else "a DSN"
            raise click.UsageError(f"{shown} cannot stand beside --from, which reads no server", context)


# --- what the commands share ------------------------------------------------------------------------


def _checks() -> tuple[Check, ...]:
    from pgqdoctor.registry import all_checks

    return all_checks()


def observation_for(settings: Settings, *, probe_seconds: float | None = None) -> Observation:
    """The recording's observation, or one made now; redacted where that was asked for.

    A longer window shows its progress on standard error where that is a terminal. ``probe_seconds`` is the time for
    the bounded looks after the window, where a command has less of it than others.
    """
    if settings.recording is not None:
        seen = _recorded(settings.recording, settings.queues)
    else:
        seen = _observed(settings, probe_seconds)
    if settings.redacted:
        from pgqdoctor.redact import redact

        return redact(seen)
    return seen


def _observed(settings: Settings, probe_seconds: float | None) -> Observation:
    from pgqdoctor.collect import ObserveOptions, observe

    how = ObserveOptions(
        window_seconds=settings.window,
        queues=settings.queues,
        claim_queries=settings.claim_queries,
        explain=settings.explain,
    )
    if probe_seconds is not None:
        how = dataclasses.replace(how, probe_seconds=probe_seconds)
    with _progress(settings.window) as progress:
        return observe(settings.conninfo, how, progress)


def _recorded(file: Path, names: tuple[str, ...]) -> Observation:
    """A recording, narrowed to the queues of ``names`` where there are any."""
    from pgqdoctor.recording import last_observation

    observation = last_observation(file)
    if not names:
        return observation
    known = {
        name: queue for queue in observation.queues for name in (queue.name, f"{queue.schema}.{queue.table}")
    }
    for name in names:
        if name not in known:
            raise unknown(
                "--queue: the recording has no queue", name, {queue.name for queue in observation.queues}
            )
    chosen = tuple(queue for queue in observation.queues if any(known[name] is queue for name in names))
    return dataclasses.replace(observation, queues=chosen)


@contextmanager
def _progress(window_s: float) -> Iterator[Callable[[float, float], None] | None]:
    if window_s <= PROGRESS_FROM_S or not is_terminal(sys.stderr):
        yield None
        return

    shown = 0

    def show(elapsed_s: float, total_s: float) -> None:
        nonlocal shown
        line = f"observing: {min(elapsed_s, total_s):.0f} of {total_s:.0f} s"
        tell(f"\r{line}", nl=False)
        shown = max(shown, len(line))

    try:
        yield show
    finally:
        tell(f"\r{' ' * shown}\r", nl=False)


def write(text: str, output: Path | None) -> None:
    """Write a report to ``output`` or to standard output; a reader that went away is no error."""
    text = text if text.endswith("\n") else text + "\n"
    if output is not None:
        try:
            output.write_text(text, encoding="utf-8")
        except OSError as error:
            raise PgqdoctorError(
                f"the report cannot be written to {output}: {error.strerror}", exit_code=USAGE
            ) from None
        return
    if sys.stdout is None:  # closed before the start, as by >&-
        raise PgqdoctorError("standard output is closed", hint="Name a file with --output.", exit_code=USAGE)
    try:
        # Colour was decided by use_color(); click must not strip what it thinks no terminal shows.
        click.echo(text, nl=False, color=True)
        sys.stdout.flush()
    except BrokenPipeError:
        _silence_stdout()
    except OSError as error:
        _silence_stdout()
        raise PgqdoctorError(
            f"standard output cannot be written to: {error.strerror}", exit_code=USAGE
        ) from None


def is_terminal(stream: TextIO | None) -> bool:
    """Whether somebody looks at ``stream`` (None where it was closed before the start)."""
    return stream is not None and stream.isatty()


def use_color(output: Path | None) -> bool:
    """Colour only on a terminal that has it, and never against NO_COLOR (https://no-color.org)."""
    return (
        output is None
        and is_terminal(sys.stdout)
        and not os.environ.get("NO_COLOR")
        and os.environ.get("TERM") != "dumb"
    )


def width(output: Path | None) -> int:
    """Columns of the terminal; for files and pipes a fixed number, so that two runs can be compared."""
    if output is None and is_terminal(sys.stdout):
        return shutil.get_terminal_size().columns
    return PIPED_WIDTH


# --- commands ---------------------------------------------------------------------------------------


ELSEWHERE = {
    "explain": "pgqdoctor.cli_explain:explain",
    "fix": "pgqdoctor.cli_fix:fix",
    "lab": "pgqdoctor.cli_lab:lab",
    "lint": "pgqdoctor.cli_lint:lint",
    "record": "pgqdoctor.cli_record:record",
    "top": "pgqdoctor.cli_top:top",
    "triage": "pgqdoctor.cli_triage:triage",
}
"""Commands in modules of their own, imported when one of them is asked for."""


class Commands(click.Group):
    """The commands of this module and those of ELSEWHERE."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return sorted({*super().list_commands(ctx), *ELSEWHERE})

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in ELSEWHERE:
            command = super().get_command(ctx, cmd_name)
        else:
            module, _, name = ELSEWHERE[cmd_name].partition(":")
            command = cast("click.Command", getattr(import_module(module), name))
        if command is not None:
            _own_help(command)
        return command


def _shown(text: Callable[[click.Context], str]) -> Callable[[click.Context, click.Parameter, bool], None]:
    def show(context: click.Context, parameter: click.Parameter, asked: bool) -> None:
        if asked and not context.resilient_parsing:
            write(text(context), None)
            context.exit()

    return show


def _help_option() -> click.Option:
    return click.Option(
        ["--help"],
        is_flag=True,
        is_eager=True,
        expose_value=False,
        help="Show this message and exit.",
        callback=_shown(lambda context: context.get_help()),
    )


def _own_help(command: click.Command) -> None:
    """Let the help of a command and of those below it be written as a report is: click's own writing raises where
    standard output is full or closed."""
    if command.add_help_option:
        command.add_help_option = False
        command.params.append(_help_option())
    if isinstance(command, click.Group):
        for one in command.commands.values():
            _own_help(one)


@click.group(
    cls=Commands,
    add_help_option=False,
    params=[
        click.Option(
            ["--version"],
            is_flag=True,
            is_eager=True,
            expose_value=False,
            help="Show the version and exit.",
            callback=_shown(lambda context: f"pgqdoctor {__version__}"),
        ),
        _help_option(),
    ],
    invoke_without_command=True,
    epilog="Exit status: 0 nothing at or above --fail-on; 1 something is; 2 wrong usage or settings; "
    "3 the server could not be reached or observed.",
)
@click.pass_context
def main(context: click.Context) -> None:
    """A doctor for job queues in PostgreSQL tables.

    Finds the queues of a database, watches them for a window and says what slows or endangers them, what
    causes it and which SQL cures it. It reads only; nothing is ever applied.

    The server is given as a DSN, by -h/-p/-U/-d as psql has them, by libpq's environment (PGHOST,
    PGSERVICE, ...), or by DATABASE_URL.
    """
    if context.invoked_subcommand is None:
        tell(context.get_help())
        context.exit(USAGE)


@main.command()
@options(CONNECTION, OBSERVING, RECORDED, output(FORMATS), VERDICT, SETTINGS)
@click.pass_context
def report(context: click.Context, /, **given: Any) -> int:
    """Watch for a window (10s), print what is wrong and the cure."""
    from pgqdoctor.engine import diagnose
    from pgqdoctor.render import Asked, render
    from pgqdoctor.report import verdict_reaches

    not_beside_recording(context)
    chosen = settings(given, window=REPORT_WINDOW_S)
    result = diagnose(observation_for(chosen), only=chosen.only, ignore=chosen.ignore, limits=chosen.limits)
    asked = Asked(only=chosen.only, ignore=chosen.ignore, fail_on=chosen.fail_on)
    write(
        render(
            result, chosen.format, color=use_color(chosen.output), width=width(chosen.output), asked=asked
        ),
        chosen.output,
    )
    return FOUND if verdict_reaches(result, cast("FailOn", chosen.fail_on)) else HEALTHY


@main.command()
@options(CONNECTION, OBSERVING, RECORDED, output(QUEUE_FORMATS), SETTINGS)
@click.pass_context
def queues(context: click.Context, /, **given: Any) -> int:
    """List the queues, how each was recognised, its claim."""
    from pgqdoctor.engine import diagnose
    from pgqdoctor.render import render_queues

    not_beside_recording(context)
    chosen = settings(given, window=QUEUES_WINDOW_S, formats=QUEUE_FORMATS)
    result = diagnose(observation_for(chosen), only=(), ignore=(), limits={})
    write(
        render_queues(result, chosen.format, color=use_color(chosen.output), width=width(chosen.output)),
        chosen.output,
    )
    return HEALTHY


@main.command()
@click.argument("id_", metavar="[ID]", required=False)
def checks(id_: str | None) -> int:
    """List the checks, or print the documentation of one."""
    known = {check.id: check for check in _checks()}
    if id_ is None:
        column = max(map(len, known), default=0)
        write("\n".join(f"{check.id:<{column}}  {check.title}" for check in known.values()), None)
        return HEALTHY
    if id_ not in known:
        raise unknown("unknown check", id_, known, listing="pgqdoctor checks")
    write(_manual(known[id_]), None)
    return HEALTHY


def _manual(check: Check) -> str:
    columns = min(width(None), PIPED_WIDTH)

    def wrapped(text: str, indent: str, first: str | None = None) -> str:
        # Not click's own wrapping: it breaks words at hyphens, and "sub-select" must be found by searching.
        wrapper = textwrap.TextWrapper(
            columns,
            initial_indent=indent if first is None else first,
            subsequent_indent=indent,
            break_on_hyphens=False,
            break_long_words=False,
        )
        return "\n\n".join(wrapper.fill(paragraph) for paragraph in text.split("\n\n"))

    parts = [f"{check.id}: {check.title}", wrapped(check.documentation, "")]
    if limits := check.limit_notes():
        lines = [f"  {name} = {value}\n{wrapped(note, '      ')}".rstrip() for name, value, note in limits]
        parts.append("\n".join(["Limits:", *lines]))
    if check.look_alikes:
        lines = [wrapped(text, "    ", first="  - ") for text in check.look_alikes]
        parts.append("\n".join(["Does not speak about:", *lines]))
    if check.references:
        parts.append("\n".join(["See:", *(f"  {address}" for address in check.references)]))
    return "\n\n".join(parts)


@main.command()
@click.argument("scenario", required=False)
@click.option("--list", "listing", is_flag=True, help="List the scenarios and exit.")
@click.option(
    "--window", callback=duration, default="10s", metavar="DURATION", help="How long to watch; default: 10s."
)
@click.option("--keep", is_flag=True, help="Leave the server running under load until Enter or Ctrl-C.")
@click.option("--top", "dashboard", is_flag=True, help="Open the dashboard on it instead of a report.")
@options(output(FORMATS))
def demo(
    scenario: str | None,
    listing: bool,
    window: float,
    keep: bool,
    dashboard: bool,
    format_: str | None,
    output: Path | None,
) -> int:
    """Start a PostgreSQL with a sick queue under load, diagnose it."""
    from pgqdoctor.lab.scenario import list_scenarios, load_scenario

    if listing:
        known = {name: load_scenario(name) for name in list_scenarios()}
        column = max(map(len, known), default=0)
        write("\n".join(f"{name:<{column}}  {one.title}" for name, one in known.items()), output)
        return HEALTHY
    from pgqdoctor.collect import ObserveOptions, observe
    from pgqdoctor.demo import DEFAULT_SCENARIO, run_demo
    from pgqdoctor.engine import diagnose
    from pgqdoctor.render import render

    chosen = load_scenario(scenario or DEFAULT_SCENARIO)
    say(f"{chosen.name}: {chosen.title}")
    if dashboard:
        from pgqdoctor.cli_top import show, terminal

        terminal()
        with run_demo(chosen, say=say) as dsn:
            show(dsn, window_s=window)
        return HEALTHY
    with run_demo(chosen, say=say) as dsn:
        say(f"watching it as 'pgqdoctor report {dsn} --window {window:g}s' does")
        with _progress(window) as progress:
            seen = observe(dsn, ObserveOptions(window_seconds=window), progress)
        result = diagnose(seen)
        write(render(result, format_ or "text", color=use_color(output), width=width(output)), output)
        if keep:
            _stay(dsn)
    missed = [id_ for id_ in chosen.expected if id_ not in {finding.check for finding in result.findings}]
    if missed and not seen.interrupted:
        raise PgqdoctorError(
            f"the scenario {chosen.name} is meant to show {', '.join(missed)}, and this window did not",
            hint="On a slow machine a longer --window helps.",
        )
    return HEALTHY


def say(text: str) -> None:
    tell(f"pgqdoctor: {text}")


def _stay(dsn: str) -> None:
    """Wait for Enter on a terminal, for Ctrl-C in any case."""
    say(f"the server stays under load at {dsn}; Enter or Ctrl-C ends it")
    try:
        if is_terminal(sys.stdin):
            sys.stdin.readline()
        else:
            threading.Event().wait()
    except KeyboardInterrupt:
        tell()
