"""The command ``triage``: one screen for the engineer on call."""

from __future__ import annotations

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
    from pgqdoctor import triage as oncall
    from pgqdoctor.render.triage import render_json, render_text
    from pgqdoctor.report import verdict_reaches

    not_beside_recording(context)
    chosen = settings(given, window=WINDOW_S, formats=FORMATS)
    seen = observation_for(chosen, probe_seconds=PROBE_S)
    report, result = oncall.triage(seen, only=chosen.only, ignore=chosen.ignore, limits=chosen.limits)
    if chosen.format == "json":
        text = render_json(result)
    else:
        text = render_text(result, color=use_color(chosen.output), width=width(chosen.output))
    write(text, chosen.output)
    return FOUND if verdict_reaches(report, cast("FailOn", chosen.fail_on)) else HEALTHY
