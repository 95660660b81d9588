"""The triage for a terminal of 24 lines and 80 columns; as JSON the model itself."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from pgqdoctor.decisions import caution, decision
from pgqdoctor.render.clean import one_line, statement
from pgqdoctor.render.jsonout import written
from pgqdoctor.render.text import NARROWEST, Paper

if TYPE_CHECKING:
    from pgqdoctor.triage import Step, Triage

HEIGHT: Final = 24
WIDEST: Final = 80
"""Lines and columns of the screen that is always there: a console, a phone, a split pane."""
MOST_SQL: Final = 10
"""Rows of statements that one step may take; a longer script is not typed off a screen."""
LABEL: Final = 12
"""Columns of the labels."""

_ESCAPE: Final = re.compile(r"\x1b\[[0-9;]*m")


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    """Lines that stand or fall together: where the screen is too small, those of the highest ``rank`` go first.

    Rank 0 always stays: the verdict, the first queue, the story and the first command.
    """

    rank: int
    lines: tuple[str, ...]


def render_json(triage: Triage) -> str:
    """Write the triage as indented JSON."""
    return written(triage)


def render_text(triage: Triage, *, color: bool, width: int) -> str:
    """Write the triage on one screen: at most HEIGHT rows with the prompt that follows, and WIDEST columns.

    A statement longer than a line is not broken, and counts for as many rows as the terminal makes of it.
    """
    paper = Paper(width=min(max(width, NARROWEST), WIDEST), color=color)
    blocks = list(_blocks(triage, paper))
    while sum(rows(one.lines, paper.width) for one in blocks) > HEIGHT - 1 and any(
        one.rank for one in blocks
    ):
        blocks.remove(max(blocks, key=lambda one: one.rank))
    return "\n".join(line for one in blocks for line in one.lines) + "\n"


def rows(lines: Sequence[str], width: int) -> int:
    """Return how many rows of a terminal the lines take."""
    return sum(max(1, -(-len(_ESCAPE.sub("", line)) // width)) for line in lines)


def _blocks(triage: Triage, paper: Paper) -> Iterator[Block]:
    yield Block(rank=0, lines=tuple(_head(triage, paper)))
    for place, queue in enumerate(triage.queues):
        said = paper.prose(f"{queue.name}: {queue.says}", hanging=2)
        yield Block(rank=0 if place == 0 else 90 + place, lines=tuple(said))
    yield Block(rank=0, lines=tuple(paper.prose(triage.story or _all_clear(triage), style="strong")))
    for place, step in enumerate(triage.steps):
        if place == 0:
            yield from _first(step, paper)
        else:
            yield Block(rank=10 if place == 1 else 23 + place, lines=tuple(_step(step, paper)))
    for rank, label, texts in (
        (15, "Crashed", triage.crashed),
        (20, "Do not", [f"{one.what}{one.until and f' {one.until}'}: {one.why}" for one in triage.avoid]),
        (30, "Forecast", [f"{one.what} ({one.how})" for one in triage.forecasts]),
        (50, "Besides", triage.others),
        (60, "Not seen", triage.not_seen),
        (70, "Note", triage.notes),
    ):
        for place, text in enumerate(texts):
            lines = tuple(paper.labelled(label, text, indent=0, column=LABEL))
            yield Block(rank=rank + min(place, 9), lines=lines)


def _head(triage: Triage, paper: Paper) -> Iterator[str]:
    server = triage.server
    standby = " (standby)" if server.in_recovery else ""
    word = _word(triage)
    seen = f"{triage.window.seconds:.2g} s until {triage.generated_at}"
    lines = list(paper.prose(f"{word}: {server.database}, PostgreSQL {server.version}{standby}, {seen}"))
    lines[0] = lines[0].replace(
        word, paper.styled(triage.verdict if word == triage.verdict.upper() else "strong", word), 1
    )
    yield from lines


def _word(triage: Triage) -> str:
    """The verdict in capitals; without findings it is healthy only where everything was looked at."""
    if triage.verdict != "healthy":
        return triage.verdict.upper()
    if triage.crashed:
        return "INCOMPLETE"
    if not triage.queues:
        return "NO QUEUE FOUND"
    if triage.left_waiting is not None:
        return "NO FAULT FOUND"
    return "HEALTHY AS FAR AS SEEN" if triage.not_seen else "HEALTHY"


def _all_clear(triage: Triage) -> str:
    if not triage.queues:
        return "No queue was found, so nothing can be said."
    waiting = triage.left_waiting
    if waiting is not None:
        notices = "; pgqdoctor report lists the notices" if triage.verdict == "notice" else ""
        return (
            f"No fault was found, but jobs of {waiting.name} wait and none was taken: "
            f"so it looks between two turns of a batch, and so it looks when its workers are gone{notices}."
        )
    if triage.verdict == "notice":
        return "Nothing that delays jobs or endangers the queue; pgqdoctor report lists the notices."
    return (
        "Nothing that was looked at is wrong." if triage.not_seen or triage.crashed else "Nothing is wrong."
    )


def _first(step: Step, paper: Paper) -> Iterator[Block]:
    lines = list(_step(step, paper))
    if step.needs:
        lines.extend(paper.labelled("needs", step.needs, indent=3, column=LABEL))
    if step.rolls_back:
        lines.extend(paper.labelled("rolls back", step.rolls_back, indent=3, column=LABEL))
    elif step.kind in ("sql", "setting") and (
        decision(step.sql) or caution(step.sql) or step.blocks != "nothing"
    ):
        lines.extend(paper.labelled("risk", step.risk, indent=3, column=LABEL))
    lines.extend(paper.labelled("helped if", step.helped, indent=3, column=LABEL))
    yield Block(rank=0, lines=tuple(lines))
    for sql in step.helped_sql:
        yield Block(rank=35, lines=(f"     {paper.styled('sql', one_line(sql))}",))


def _step(step: Step, paper: Paper) -> Iterator[str]:
    word = {"first": "", "then": "then: ", "also": "also: "}[step.when]
    yield from paper.prose(
        f"{step.number}. {word}{step.title}", hanging=3, style="strong" if step.when == "first" else ""
    )
    lines = [f"     {line}" for sql in step.sql for line in statement(sql).lines()]
    if step.kind in ("sql", "setting") and rows(lines, paper.width) <= MOST_SQL:
        for line in lines:
            yield paper.styled("sql", line)
    elif step.sql:
        command = f"pgqdoctor fix --finding {shlex.quote(one_line(step.key))}"
        yield f"     printed by  {paper.styled('faint', command)}"
