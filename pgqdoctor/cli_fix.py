"""The command ``fix``: the remedies as one script, and the way back."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from pgqdoctor.cli import (
    CONNECTION,
    HEALTHY,
    OBSERVING,
    RECORDED,
    REPORT_WINDOW_S,
    SETTINGS,
    VERDICT,
    not_beside_recording,
    observation_for,
    options,
    output,
    say,
    settings,
    write,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pgqdoctor.report import Report

CHOOSING = (
    click.option(
        "--finding",
        "findings",
        multiple=True,
        metavar="KEY",
        help="Only the remedies of this finding, by its key or by its check's id (repeatable).",
    ),
    click.option("--undo", is_flag=True, help="Print the script that brings back what is set today."),
)


@click.command()
@options(CONNECTION, CHOOSING, OBSERVING, RECORDED[:1], output(())[1:], VERDICT[1:], SETTINGS)
@click.pass_context
def fix(context: click.Context, /, findings: tuple[str, ...], undo: bool, **given: Any) -> int:
    """Print the SQL of the remedies as a script to review.

    Nothing is executed. The script is for psql; each step says which finding asks for it, what it locks and
    blocks, what it risks, what to expect and how to undo it. Remedies of the application stand as comments.
    """
    from pgqdoctor.render.script import fix_script, summary, undo_script
    from pgqdoctor.steps import treatment
    from pgqdoctor.triage import with_what_comes_after

    not_beside_recording(context)
    chosen = settings({**given, "format_": None}, window=REPORT_WINDOW_S, formats=())
    report, later_on = with_what_comes_after(
        observation_for(chosen), only=chosen.only, ignore=chosen.ignore, limits=chosen.limits
    )
    require_findings(report, findings)
    steps = treatment(report, findings, later_on=later_on)
    written = undo_script if undo else fix_script
    write(written(report, steps, recording=chosen.recording is not None), chosen.output)
    if chosen.output is not None:
        say(f"{chosen.output}: {summary(steps)}")
    return HEALTHY


def require_findings(report: Report, wanted: Sequence[str]) -> None:
    """Raise PgqdoctorError (usage) for a finding that the report does not have."""
    from pgqdoctor.config import unknown

    known = {name for one in report.findings for name in (one.key, one.check)}
    for name in wanted:
        if name not in known:
            raise unknown("--finding: nothing was found under", name, {one.key for one in report.findings})
