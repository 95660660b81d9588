"""The command ``triage``: one screen for the engineer on call."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any, cast

import click

from pgqdoctor.cli import (
    CONNECTION,
    FOUND,
    HEALTHY,
    OBSERVING,
    RECORDED,
    SETTINGS,
    VERDICT,
    not_beside_recording,
    observation_for,
    options,
    output,
    settings,
    use_color,
    width,
    write,
)

if TYPE_CHECKING:
    from pgqdoctor.report import FailOn

WINDOW_S = 3.0
PROBE_S = 0.6
"""Time for the bounded looks: the answer is due one and a half seconds after the window, starting up and connecting included."""
FORMATS = ("text", "json")


@click.command()
@options(CONNECTION, OBSERVING, RECORDED, output(FORMATS), VERDICT, SETTINGS)
@click.pass_context
def triage(context: click.Context, /, **given: Any) -> int:
    """Say in seconds what is wrong now and what to run first.

    Watches for 3s and prints one screen: whether jobs move, how late the oldest is, the root cause, the commands in order,
    and what to leave alone. Nothing is executed.
    """
    not_beside_recording(context)
    chosen = settings(given, window=WINDOW_S, formats=FORMATS)
    threading.Thread(target=_load, daemon=True).start()
    seen = observation_for(chosen, probe_seconds=PROBE_S)
    from pgqdoctor import triage as oncall
    from pgqdoctor.render.triage import render_json, render_text
    from pgqdoctor.report import verdict_reaches

    report, result = oncall.triage(seen, only=chosen.only, ignore=chosen.ignore, limits=chosen.limits)
    if chosen.format == "json":
        write(render_json(result), chosen.output)
    else:
        write(render_text(result, color=use_color(chosen.output), width=width(chosen.output)), chosen.output)
    return FOUND if verdict_reaches(report, cast("FailOn", chosen.fail_on)) else HEALTHY


def _load() -> None:
    """Import what is needed after the window while it runs: parser and checks take a third of a second."""
    from pgqdoctor import triage
    from pgqdoctor.registry import all_checks
    from pgqdoctor.render import triage as renderer

    del triage, renderer
    all_checks()
