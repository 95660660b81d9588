"""The commands ``lab race``, ``triangle``, ``storm``, ``prove`` and ``show``: designs measured on a scratch server."""

from __future__ import annotations

import hashlib
import os
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

import click

from pgqdoctor import __version__
from pgqdoctor.cli import HEALTHY, duration, is_terminal, options, output, tell, width, write
from pgqdoctor.errors import USAGE, PgqdoctorError
from pgqdoctor.labreport import FORMATS

if TYPE_CHECKING:
    from pgqdoctor.lab.ground import Ground
    from pgqdoctor.lab.results import CellResult, Experiment, LabResult, ServerFacts
    from pgqdoctor.lab.saved import Notebook
    from pgqdoctor.lab.strategies import Strategy
    from pgqdoctor.lab.subject import Subject
    from pgqdoctor.queue import Queue
    from pgqdoctor.report import Report

Cell = TypeVar("Cell", bound="CellResult")
Say = Callable[[int, int, str], None]


class Chosen(Protocol):
    """What an experiment was asked for."""

    def described(self) -> Mapping[str, str]: ...
    def scripts(self) -> Mapping[str, str]: ...


BAR = 24
"""Letters of the progress bar."""
LIKE_WINDOW_S = 1.0
"""A copy needs no rates, and a second is enough to catch the claims that run just now."""


def _numbers(context: click.Context, parameter: click.Parameter, value: str | None) -> tuple[int, ...] | None:
    if value is None:
        return None
    try:
        numbers = tuple(dict.fromkeys(int(word) for word in value.replace(" ", "").split(",")))
    except ValueError:
        numbers = ()
    if not numbers or min(numbers) < 1:
        raise click.BadParameter(
            f"{value!r} is no list of positive numbers such as 1,2,10", context, parameter
        )
    return numbers


_READABLE = click.Path(exists=True, dir_okay=False, readable=True, path_type=Path)
_WRITABLE = click.Path(dir_okay=False, writable=True, path_type=Path)

GROUND = (
    click.option(
        "--dsn",
        metavar="DSN",
        help="Measure in this database instead of an embedded server; it must be empty.",
    ),
    click.option(
        "--yes-this-is-scratch",
        "confirmed",
        is_flag=True,
        help="Confirm that nobody else uses the server of --dsn.",
    ),
    click.option(
        "--durable",
        is_flag=True,
        help="Let the embedded server wait for the disk at each commit, as production does.",
    ),
)
KEPT = (
    click.option(
        "--resume", is_flag=True, help="Go on where an interrupted run with the same options stopped."
    ),
    click.option(
        "--state",
        type=_WRITABLE,
        metavar="FILE",
        help="Where results are kept while it runs; default: below ~/.local/state/pgqdoctor.",
    ),
)
RESULT = (
    *output(FORMATS),
    click.option(
        "--save", type=_WRITABLE, metavar="FILE", help="Write the result as JSON too, for 'lab show'."
    ),
)
WORKERS = click.option(
    "--workers", callback=_numbers, metavar="N,N,...", help="Numbers of workers, one connection each."
)
LIKE = (
    click.option(
        "--like",
        nargs=2,
        metavar="DSN TABLE",
        help="Use a copy of this live table's definition; its rows are generated, none is read.",
    ),
)


@click.group()
def lab() -> None:
    """Measure queue designs on a scratch server.

    A PostgreSQL server of its own is started for the experiment and is gone afterwards; pgbench makes the load.
    With --dsn a database of yours is used instead, within a schema of its own, if it has no tables.
    """


@lab.command()
@click.option("--strategy", "names", multiple=True, metavar="NAME", help="Race only this one (repeatable).")
@click.option(
    "--claim-query",
    type=_READABLE,
    metavar="FILE",
    help="Race this statement too; it must return the job's id.",
)
@click.option("--jobs", type=click.IntRange(10), metavar="N", help="Jobs per race; default: 10000.")
@click.option(
    "--batch",
    type=click.IntRange(2),
    default=20,
    metavar="N",
    help="Jobs per claim of the batch; default: 20.",
)
@click.option(
    "--limit", callback=duration, metavar="DURATION", help="Longest time of one race; default: 60s."
)
@click.option(
    "--quick", is_flag=True, help="Fewer workers and jobs, races of 8s at most: under 3 minutes on two cores."
)
@options((WORKERS,), LIKE, GROUND, KEPT, RESULT)
def race(
    names: tuple[str, ...],
    claim_query: Path | None,
    jobs: int | None,
    batch: int,
    limit: float | None,
    quick: bool,
    workers: tuple[int, ...] | None,
    like: tuple[str, str] | None,
    **given: Any,
) -> int:
    """Race ways to claim a job, by number of workers.

    Naive, guarded, FOR UPDATE, SKIP LOCKED, SKIP LOCKED with a partial index, batches, DELETE ... RETURNING and
    your own claim: claims and distinct jobs per second, duplicates, lost attempts, latencies, buffers.
    """
    from pgqdoctor.lab import race as racing
    from pgqdoctor.lab.results import RaceResult

    chosen_workers = workers or (racing.QUICK_WORKERS if quick else racing.WORKERS)
    subject = _subject(like)
    chosen = racing.RaceOptions(
        subject=subject,
        strategies=_strategies(subject, names, claim_query, batch),
        workers=chosen_workers,
        jobs=jobs or (racing.QUICK_JOBS if quick else racing.JOBS),
        limit_s=limit or (racing.QUICK_LIMIT_S if quick else racing.LIMIT_S),
    )
    with _grounds(given, workers=max(chosen_workers)) as (ground,):
        result = _measured(
            "race",
            RaceResult,
            chosen,
            (ground.facts,),
            given,
            lambda notebook, say: racing.race(ground, chosen, notebook, say),
            notes=subject.notes,
        )
    return _told(result, given)


def _subject(like: tuple[str, str] | None) -> Subject:
    """The lab's own table, or a copy of a live one's definition, which is read and left as it is."""
    from pgqdoctor.lab.subject import generic_subject

    if like is None:
        return generic_subject()
    from pgqdoctor.lab.likeness import subject_like

    return subject_like(_live_queue(*like))


def _live_queue(dsn: str, table: str, *, explain: str = "off") -> Queue:
    from pgqdoctor.collect import ObserveOptions, observe
    from pgqdoctor.queue import build_queues

    seen = observe(dsn, ObserveOptions(window_seconds=LIKE_WINDOW_S, queues=(table,), explain=explain))
    return build_queues(seen)[0]


def _strategies(
    subject: Subject, names: tuple[str, ...], claim_query: Path | None, batch: int
) -> tuple[Strategy, ...]:
    from pgqdoctor.config import unknown
    from pgqdoctor.lab.custom import custom_strategy
    from pgqdoctor.lab.strategies import strategies

    known = {one.name: one for one in strategies(subject, batch)}
    chosen = list(known.values())
    if names:
        for name in names:
            if name not in known and name != "custom":
                raise unknown("--strategy: unknown strategy", name, {*known, "custom"})
        chosen = [one for name, one in known.items() if name in names]
    if claim_query is not None:
        claim = _text_of(claim_query)
        chosen.append(custom_strategy(claim, subject))
    if not chosen:
        raise PgqdoctorError("--strategy custom needs --claim-query", exit_code=USAGE)
    return tuple(chosen)


def _text_of(file: Path) -> str:
    try:
        return file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise PgqdoctorError(f"the claim query in {file} cannot be read: {error}", exit_code=USAGE) from None


@lab.command()
@click.option(
    "--fillfactor",
    "fillfactors",
    callback=_numbers,
    metavar="N,N,...",
    help="Fillfactors; default: 100,85,70.",
)
@click.option(
    "--index",
    "forms",
    multiple=True,
    metavar="FORM",
    help="none, partial or state; a copy's own indexes: own (repeatable).",
)
@click.option(
    "--jobs", type=click.IntRange(10), metavar="N", help="Updates to count, and the backlog; default: 1000."
)
@click.option("--steady", callback=duration, metavar="DURATION", help="Steady load per design; default: 20s.")
@click.option("--quick", is_flag=True, help="Fillfactors 100 and 70, no or a partial index, 6s of load each.")
@options((WORKERS,), LIKE, GROUND, KEPT, RESULT)
def triangle(
    fillfactors: tuple[int, ...] | None,
    forms: tuple[str, ...],
    jobs: int | None,
    steady: float | None,
    quick: bool,
    workers: tuple[int, ...] | None,
    like: tuple[str, str] | None,
    **given: Any,
) -> int:
    """Measure fillfactors and index forms against each other.

    HOT ratio, updates to a new page, WAL and index entries per job, buffers per claim, throughput, and how table
    and indexes grow with autovacuum on.
    """
    from pgqdoctor.lab import triangle as measuring
    from pgqdoctor.lab.results import TriangleResult
    from pgqdoctor.lab.subject import NONE, PARTIAL

    subject = _subject(like)
    default = measuring.QUICK_FILLFACTORS if quick else measuring.FILLFACTORS
    if any(one > 100 or one < 10 for one in fillfactors or ()):
        raise click.UsageError("a fillfactor is between 10 and 100")
    for form in forms:
        subject.require_form(form)
    quick_forms = tuple(dict.fromkeys((subject.own_form, NONE, PARTIAL)))
    chosen = measuring.TriangleOptions(
        subject=subject,
        fillfactors=fillfactors or tuple(dict.fromkeys((*default, subject.fillfactor))),
        index_forms=forms or (quick_forms if quick else tuple(subject.forms)),
        jobs=jobs or measuring.JOBS,
        workers=max(workers) if workers else measuring.WORKERS,
        steady_s=steady or (measuring.QUICK_STEADY_S if quick else measuring.STEADY_S),
    )
    with _grounds(given, workers=chosen.workers, naptime_s=measuring.NAPTIME_S) as (ground,):
        result = _measured(
            "triangle",
            TriangleResult,
            chosen,
            (ground.facts,),
            given,
            lambda notebook, say: measuring.triangle(ground, chosen, notebook, say),
            notes=subject.notes,
        )
    return _told(result, given)


@lab.command()
@click.option("--fault", "names", multiple=True, metavar="NAME", help="Measure only this fault (repeatable).")
@click.option(
    "--seconds", type=click.FloatRange(1), metavar="N", help="Length of each measurement; default: 8."
)
@click.option("--quick", is_flag=True, help="8 workers and 3 seconds each: about a minute.")
@click.option(
    "--dsn",
    "dsns",
    multiple=True,
    metavar="DSN",
    help="Measure in this empty database instead of an embedded server; several are compared side by side.",
)
@options((WORKERS,), GROUND[1:], KEPT, RESULT)
def storm(
    names: tuple[str, ...],
    seconds: float | None,
    quick: bool,
    dsns: tuple[str, ...],
    workers: tuple[int, ...] | None,
    **given: Any,
) -> int:
    """Measure faults of transactions and locks, and their cures.

    Savepoints, a foreign key to a hot parent, FOR SHARE readers, held transactions, an idle snapshot, NOTIFY on
    every insert: throughput and waits by workers, side by side on servers of several versions.
    """
    from pgqdoctor.config import unknown
    from pgqdoctor.lab import storm as measuring
    from pgqdoctor.lab.results import StormResult
    from pgqdoctor.lab.storms import STORMS

    known = {one.name: one for one in STORMS}
    for name in names:
        if name not in known:
            raise unknown("--fault: unknown fault", name, known)
    chosen = measuring.StormOptions(
        storms=tuple(one for name, one in known.items() if name in names) if names else STORMS,
        workers=workers or (measuring.QUICK_WORKERS if quick else measuring.WORKERS),
        seconds=seconds or (measuring.QUICK_SECONDS if quick else measuring.SECONDS),
    )
    with _grounds(given, workers=max(chosen.workers), naptime_s=measuring.NAPTIME_S, dsns=dsns) as grounds:
        result = _measured(
            "storm",
            StormResult,
            chosen,
            tuple(one.facts for one in grounds),
            given,
            lambda notebook, say: measuring.storm(grounds, chosen, notebook, say),
        )
    return _told(result, given)


@lab.command()
@click.argument("scenarios", nargs=-1, metavar="[SCENARIO]...")
@click.option("--all", "everything", is_flag=True, help="Every sick scenario.")
@click.option(
    "--window",
    callback=duration,
    default="4s",
    metavar="DURATION",
    help="Length of each observation; default: 4s.",
)
@options(LIKE, GROUND, KEPT, RESULT)
def prove(
    scenarios: tuple[str, ...],
    like: tuple[str, str] | None,
    everything: bool,
    window: float,
    **given: Any,
) -> int:
    """Reproduce a fault, report it, apply the remedies, report again.

    Prints what was found before and after, the statements that were executed, and what the claim cost. Where the
    fault is the application's, the scenario's own cure is applied. 'pgqdoctor demo --list' names the scenarios.
    """
    from pgqdoctor.cli import FOUND
    from pgqdoctor.collect import ObserveOptions, observe
    from pgqdoctor.engine import diagnose
    from pgqdoctor.lab import prove as proving
    from pgqdoctor.lab.results import ProveResult
    from pgqdoctor.lab.scenario import list_scenarios, load_scenario
    from pgqdoctor.steps import treatment

    if bool(scenarios) + everything + (like is not None) != 1:
        raise click.UsageError("name the scenarios to prove, or give --all, or --like")
    notes: tuple[str, ...] = ()
    if like is not None:
        from pgqdoctor.lab.likeness import scenario_like

        copied, notes = scenario_like(_live_queue(*like, explain="plan"))
        loaded = [copied]
    else:
        loaded = [load_scenario(one) for one in (list_scenarios() if everything else scenarios)]
    chosen = proving.ProveOptions(
        scenarios=tuple(one for one in loaded if not everything or one.kind == "sick")
    )
    proving.require_sick(chosen.scenarios)

    def look(dsn: str) -> Report:
        return diagnose(observe(dsn, ObserveOptions(window_seconds=window)))

    def treat(report: Report) -> tuple[proving.Act, ...]:
        # On a scratch server nobody's work is at stake: what a person decides elsewhere is done here.
        steps = treatment(report).first
        return tuple(proving.Act(kind=one.remedy.kind, statements=one.sql) for one in steps if one.ready)

    @contextmanager
    def ground() -> Iterator[Ground]:
        with _grounds(given, workers=proving.WORKERS, naptime_s=proving.NAPTIME_S) as (one,):
            yield one

    with ground() as first:
        facts = first.facts
    result = _measured(
        "prove",
        ProveResult,
        chosen,
        (facts,),
        given,
        lambda notebook, say: proving.prove(ground, chosen, notebook, say, look=look, treat=treat),
        notes=notes,
    )
    _told(result, given)
    return HEALTHY if all(one.proven for one in result.prove()) else FOUND


@lab.command()
@click.argument("file", type=_READABLE)
@options(output(FORMATS))
def show(file: Path, format_: str | None, output: Path | None) -> int:
    """Write a saved result in another format."""
    from pgqdoctor.lab.results import from_json

    try:
        result = from_json(file.read_bytes())
    except OSError as error:
        raise PgqdoctorError(f"{file} cannot be read: {error.strerror}", exit_code=USAGE) from None
    return _told(result, {"format_": format_, "output": output, "save": None})


# --- what the experiments share ---------------------------------------------------------------------


@contextmanager
def _grounds(
    given: Mapping[str, Any], *, workers: int, naptime_s: int = 60, dsns: tuple[str, ...] | None = None
) -> Iterator[tuple[Ground, ...]]:
    """The embedded server, or the schemas of the databases that the user named."""
    from pgqdoctor.lab.ground import embedded_ground, scratch_ground

    named = dsns if dsns is not None else tuple(filter(None, (given["dsn"],)))
    if named and given["durable"]:
        raise click.UsageError("--durable is a setting of the embedded server and cannot stand beside --dsn")
    with ExitStack() as stack:
        if named:
            yield tuple(
                stack.enter_context(scratch_ground(one, confirmed=given["confirmed"])) for one in named
            )
        else:
            yield (
                stack.enter_context(
                    embedded_ground(workers=workers, autovacuum_naptime_s=naptime_s, durable=given["durable"])
                ),
            )


def _measured(
    experiment: Experiment,
    cell: type[Cell],
    chosen: Chosen,
    servers: tuple[ServerFacts, ...],
    given: Mapping[str, Any],
    measure: Callable[[Notebook[Cell], Say], Iterator[Cell]],
    *,
    notes: tuple[str, ...] = (),
) -> LabResult:
    """Run an experiment to its end, keeping each cell, and put the result together."""
    from pgqdoctor.lab.machine import this_machine
    from pgqdoctor.lab.results import LabResult
    from pgqdoctor.lab.saved import Notebook, state_file

    machine = this_machine()
    began, clock = datetime.now(UTC), time.monotonic()
    described, scripts = chosen.described(), chosen.scripts()
    digest = hashlib.sha256("\0".join((*scripts, *scripts.values())).encode()).hexdigest()[:16]
    kept = {
        **described,
        "scripts": digest,
        "server": ", ".join(f"{one.version}{_where(one)}" for one in servers),
    }
    file = given["state"] or state_file(experiment, os.environ)
    notebook = Notebook(file, cell, kept, resume=given["resume"])
    cells: list[Cell] = []
    with _progress(experiment, len(notebook)) as say:
        try:
            for one in measure(notebook, say):
                cells.append(one)
        except BaseException:
            if len(notebook):
                # Before the error or the interruption is told, on a line of its own.
                say(-1, 0, "")
                tell(
                    f"pgqdoctor: {len(notebook)} measured cells are kept; the same command with --resume goes on"
                )
            raise
    notebook.close()
    return LabResult(
        experiment=experiment,
        tool_version=__version__,
        started_at=began.strftime("%Y-%m-%dT%H:%M:%SZ"),
        seconds=round(time.monotonic() - clock, 3),
        options=described,
        machine=machine,
        server=servers[0],
        other_servers=servers[1:],
        notes=notes,
        scripts=scripts,
        results=tuple(cells),
    )


def _where(server: ServerFacts) -> str:
    return " embedded" if server.embedded else ""


def _told(result: LabResult, given: Mapping[str, Any]) -> int:
    """Write the result where and as it was asked for."""
    from pgqdoctor.labreport import chart_files, render_lab

    format_ = given["format_"] or "text"
    target: Path | None = given["output"]
    charts_at = None
    if format_ == "markdown" and target is not None:
        directory = target.with_name(f"{target.stem}-charts")
        files = chart_files(result)
        if files:
            charts_at = directory.name
            _write_charts(directory, files)
    if given["save"] is not None:
        write(render_lab(result, "json"), given["save"])
    write(render_lab(result, format_, width=width(target), charts_at=charts_at), target)
    return HEALTHY


def _write_charts(directory: Path, files: Mapping[str, str]) -> None:
    try:
        directory.mkdir(exist_ok=True)
        for name, text in files.items():
            (directory / name).write_text(text, encoding="utf-8")
    except OSError as error:
        raise PgqdoctorError(
            f"the charts cannot be written to {directory}: {error.strerror}", exit_code=USAGE
        ) from None


@contextmanager
def _progress(experiment: str, already: int) -> Iterator[Say]:
    """A bar on a terminal; a line per cell where nobody watches live, as in a job's log."""
    live = is_terminal(sys.stderr)
    began = time.monotonic()
    shown = 0

    def say(done: int, total: int, what: str) -> None:
        nonlocal shown
        if live:
            line = (
                "" if done < 0 or done >= total else _bar(experiment, done, total, what, _left(done, total))
            )
            tell(f"\r{line}{' ' * max(0, shown - len(line))}{chr(13) if not line else ''}", nl=False)
            shown = len(line)
        elif 0 <= done < total:
            tell(f"pgqdoctor: {experiment} {done + 1} of {total}: {what}")

    def _left(done: int, total: int) -> str:
        fresh = done - already
        if fresh <= 0:
            return ""
        return f", about {_minutes((time.monotonic() - began) / fresh * (total - done))} left"

    try:
        yield say
    finally:
        if live and shown:
            tell(f"\r{' ' * shown}\r", nl=False)


def _bar(experiment: str, done: int, total: int, what: str, left: str) -> str:
    full = BAR * done // total
    columns = width(None) - 1
    return f"{experiment} [{'#' * full}{'.' * (BAR - full)}] {done} of {total}: {what}{left}"[:columns]


def _minutes(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds < 90 else f"{seconds / 60:.0f} min"
