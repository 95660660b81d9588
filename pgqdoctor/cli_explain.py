"""The command ``explain``: the claims' plans, read aloud."""

from __future__ import annotations

from typing import Any

import click

from pgqdoctor.cli import (
    CONNECTION,
    HEALTHY,
    OBSERVING,
    QUEUES_WINDOW_S,
    RECORDED,
    SETTINGS,
    not_beside_recording,
    observation_for,
    options,
    output,
    settings,
    use_color,
    width,
    write,
)

FORMATS = ("text", "json")


@click.command()
@options(CONNECTION, OBSERVING, RECORDED, output(FORMATS), SETTINGS)
@click.pass_context
def explain(context: click.Context, /, **given: Any) -> int:
    """Read the plan of each queue's claim aloud.

    Prints the statement and its shape, the plan with what was measured beside each node, the values put in for
    parameters, and what it all means: buffers for each job, rows read in vain, sorts, estimates. The plan
    for any value of the parameters stands beside it. By default only the SELECT in the claim is executed, without its locks.
    """
    from pgqdoctor.explaining import explain as read
    from pgqdoctor.render.explain import render_json, render_text

    not_beside_recording(context)
    chosen = settings(given, window=QUEUES_WINDOW_S, formats=FORMATS)
    explanation = read(observation_for(chosen))
    text = (
        render_json(explanation)
        if chosen.format == "json"
        else render_text(explanation, color=use_color(chosen.output), width=width(chosen.output))
    )
    write(text, chosen.output)
    return HEALTHY
