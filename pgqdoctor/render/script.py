"""The remedies as one script for psql, and the way back. What is written here is read by a person before it runs.

Every text of a server (names, titles, statements) that stands in a comment goes through ``clean``: a newline or a
carriage return in it would end the comment, and the rest would be executed.
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from typing import Final

from pgqdoctor.remedy import literal, qualified
from pgqdoctor.render import phrases
from pgqdoctor.render.clean import LEFT_OUT, one_line, statement
from pgqdoctor.render.quantities import counted
from pgqdoctor.report import Report, ReportedFinding
from pgqdoctor.sqlremedy import builds_concurrently, built_index, dropped_index
from pgqdoctor.steps import Step, Treatment

WIDTH: Final = 100
LOCK_TIMEOUT: Final = "2s"
"""How long a step may stand in a lock queue: whoever comes after it waits behind it."""
CONCURRENT_TIMEOUT: Final = "10min"
"""The same for CONCURRENTLY. It waits for older transactions to end and blocks no reader and no writer meanwhile; cancelled
by a short timeout it leaves an invalid index behind (tried on 14 to 18 with a transaction open for longer than 2 s). Unbounded,
one forgotten transaction would make it wait for ever, and no VACUUM of the table can start meanwhile."""
_SESSION_CALL: Final = re.compile(r"SELECT (pg_(?:terminate|cancel)_backend)\((\d+)\);")
_LOCKS_NOTHING: Final = re.compile(r"\s*(?:SELECT|ALTER\s+SYSTEM)\b", re.IGNORECASE)
_LABEL: Final = 9


def fix_script(report: Report, chosen: Treatment, *, recording: bool = False) -> str:
    """Return the script of a treatment. ``recording`` says that it was made of a saved observation."""
    lines = [
        *_head(report, chosen, "Remedies", recording),
        *_how_to_run(chosen.steps, "fix.sql"),
        *_way_back(),
    ]
    writer = _Writer(report)
    number = 0
    if not chosen.steps:
        lines += [
            "",
            *_comment("There is nothing to do." if not chosen.findings else "None of these has a remedy."),
        ]
    for heading, about, part in (
        ("", "", chosen.first),
        (
            "Only if still needed",
            "What these steps cure is caused by findings treated above. Apply those, look again "
            "(pgqdoctor report), and remove the comment marks of what is left.",
            chosen.later,
        ),
        (
            "Optional: what the knobs recommend",
            "No finding asks for these steps: the queue works without them, and by the rates of the window they would save more "
            "than they cost. The reasons stand under Knobs in pgqdoctor report.",
            chosen.optional,
        ),
    ):
        if heading and part:
            lines += ["", *_rule(heading), *_comment(about)]
        for step in part:
            number += 1
            lines += ["", *_step(step, number), *writer.written(step, step.sql)]
    return "\n".join([*lines, ""])


def undo_script(report: Report, chosen: Treatment, *, recording: bool = False) -> str:
    """Return the script that brings back what was set when the observation was made, the last step first."""
    lines = [
        *_head(report, chosen, "The way back from the remedies", recording),
        *_how_to_run(chosen.steps, "undo.sql"),
    ]
    lines += _comment(
        "It restores what was set at the time above. The last step of the remedies is undone first."
    )
    writer = _Writer(report)
    numbered = [
        (number, step) for number, step in enumerate(chosen.steps, 1) if phrases.acts_on_server(step.remedy)
    ]
    for number, step in reversed(numbered):
        lines += ["", *_comment(f"Undo of step {number}: {step.remedy.title}")]
        lines += [line for one in step.findings for line in _labelled("finding", f"{one.severity} {one.key}")]
        if not step.undo:
            lines += _labelled("undo", "There is no way back from this step, and nothing to restore.")
            continue
        lines += _reason_not_to_act(step)
        lines += writer.written(step, step.undo)
    if not numbered:
        lines += ["", *_comment("There is nothing to bring back.")]
    return "\n".join([*lines, ""])


# --- comments -----------------------------------------------------------------------------------------------------------


def _comment(text: str, *, first: str = "-- ", rest: str = "-- ") -> list[str]:
    """Return any text as comment lines; it can neither end the comment nor reach a terminal."""
    return textwrap.wrap(
        one_line(text),
        width=WIDTH,
        initial_indent=first,
        subsequent_indent=rest,
        break_long_words=False,
        break_on_hyphens=False,
    ) or [first.rstrip()]


def _labelled(label: str, text: str) -> list[str]:
    return _comment(text, first=f"--   {label:<{_LABEL}}", rest="--   " + " " * _LABEL)


def _commented(statements: Iterable[str], *, margin: str = "-- ") -> list[str]:
    return [f"{margin}{line}".rstrip() for one in statements for line in _lines(statement(one).text)]


def _lines(text: str) -> list[str]:
    # splitlines() would split at more than a newline, and what it leaves out must not come back.
    return [line for line in text.split("\n") if line.strip()]


def _rule(title: str) -> list[str]:
    return [f"-- {f'--- {title} ':-<{WIDTH - 3}}"]


# --- the head -----------------------------------------------------------------------------------------------------------


def _head(report: Report, chosen: Treatment, what: str, recording: bool) -> Iterator[str]:
    server = report.server
    yield from _comment(f"{what} for database {server.database}, by {report.tool.name} {report.tool.version}")
    yield "--"
    standby = ", a standby: run this on its primary" if server.in_recovery else ""
    yield from _labelled("server", f"PostgreSQL {server.version}{standby}")
    yield from _labelled(
        "observed", f"{report.generated_at} for {phrases.seconds_watched(report)}, as role {server.role}"
    )
    if recording:
        yield from _labelled("from", "a recording: what it says may have changed since")
    found = phrases.verdict_found(report)
    if len(chosen.findings) < len(report.findings):
        found += f"; chosen here: {len(chosen.findings):,}"
    yield from _labelled("findings", found)
    for number, one in enumerate(chosen.findings, 1):
        yield from _listed(number, one)
    if gap := phrases.gaps(report):
        yield from _labelled("note", gap.replace("; see below", "; pgqdoctor report lists them"))
    for note in phrases.notes(report):
        yield from _labelled("note", note)


def _listed(number: int, one: ReportedFinding) -> list[str]:
    nothing = "" if one.remedies else " (no remedy of its own)"
    mark = f"{number}. {one.severity}"
    return [
        *_comment(f"{one.key}{nothing}", first=f"--     {mark} ", rest="--        "),
        *_comment(one.title, first="--        ", rest="--        "),
    ]


def _how_to_run(steps: Sequence[Step], name: str) -> Iterator[str]:
    yield "--"
    yield from _comment("Nothing of this has been executed. Read it, then run it with")
    yield f"--   psql -X -v ON_ERROR_STOP=1 -f {name}"
    if any(builds_concurrently(one) for step in steps if step.acts for one in (*step.sql, *step.undo)):
        yield from _comment(
            "and without --single-transaction: CONCURRENTLY cannot run in a transaction block. It can be run again."
        )


def _way_back() -> list[str]:
    return _comment(
        "The way back: each step has it beside it, and pgqdoctor fix --undo prints it as a script. Print that before you apply "
        "this one: afterwards, what is set today cannot be seen any more."
    )


# --- steps --------------------------------------------------------------------------------------------------------------


def _step(step: Step, number: int) -> Iterator[str]:
    remedy = step.remedy
    kind = "" if remedy.kind == "sql" else f" ({phrases.KINDS[remedy.kind]})"
    yield from _comment(f"Step {number}{kind}: {remedy.title}", rest="--   ")
    for one in step.findings:
        yield from _labelled("finding", f"{one.severity} {one.key}")
    if not step.findings:
        yield from _labelled("finding", "none")
    for label, text in (
        ("lock", phrases.remedy_takes(remedy)),
        ("risk", remedy.risk),
        ("expect", remedy.expect),
        ("undo", "none" if phrases.has_no_undo(remedy) else ""),
    ):
        if text:
            yield from _labelled(label, text)
    if step.undo:
        yield "--   undo"
        yield from _commented(step.undo, margin="--     ")
    yield from _reason_not_to_act(step)


def _reason_not_to_act(step: Step) -> Iterator[str]:
    if not phrases.acts_on_server(step.remedy):
        yield from _labelled("do", "in the application or by hand; nothing of it is executed here")
    elif step.clashes:
        yield from _labelled("left out", f"{step.clashes}; decide which of the two you want")
    elif step.after:
        yield from _labelled("only if", f"still needed after the steps for {', '.join(step.after)}")
    elif step.alternative:
        yield from _labelled("left out", "it stands in the place of the step before it; take one of the two")
    elif step.decide:
        yield from _labelled("decide", f"{step.decide}. Remove the comment marks once you have")
    elif step.first:
        yield from _labelled("first", step.first)


class _Writer:
    """Writes statements one after another and keeps lock_timeout at what the next one needs."""

    def __init__(self, report: Report) -> None:
        self._report = report
        self._timeout = ""

    def written(self, step: Step, statements: Sequence[str]) -> Iterator[str]:
        """Yield the lines of a step: as statements where it acts, else as comments."""
        ready = list(self._safe(statements))
        if not step.acts:
            # Whoever removes the comment marks must not lose the timeout with which the remedy was meant to run.
            yield from _commented([*_timeouts(step, statements), *ready])
            return
        for one in ready:
            shown = statement(one)
            if not shown.complete:
                # Without its control characters it would do something else, with them it must not be printed.
                yield from _comment(LEFT_OUT.removeprefix("-- "))
                yield from _commented([one])
                continue
            if _is_comment(one):
                yield from _commented([one], margin="")
                continue
            yield from self._wait_at_most(one)
            yield shown.text

    def _wait_at_most(self, text: str) -> Iterator[str]:
        concurrent = builds_concurrently(text) or text.endswith("\\gexec")
        if not concurrent and _LOCKS_NOTHING.match(text):
            return
        wanted = CONCURRENT_TIMEOUT if concurrent else LOCK_TIMEOUT
        if wanted != self._timeout:
            self._timeout = wanted
            if concurrent:
                yield "-- CONCURRENTLY waits for older transactions and blocks nobody meanwhile; cut short it leaves an invalid index."
            yield f"SET lock_timeout = '{wanted}';"

    def _safe(self, statements: Sequence[str]) -> Iterator[str]:
        """Make statements safe to run again, and to run some time after they were written."""
        for one, following in pairwise((*statements, "")):
            built = built_index(one)
            dropped = dropped_index(one)
            next_built = built_index(following) if following else None
            if dropped is not None and next_built is not None and next_built.name == dropped:
                continue  # the guarded form below drops only what a failed attempt left behind
            if built is not None:
                if not built.repeatable:
                    one = re.sub(r"\bCONCURRENTLY\b", "CONCURRENTLY IF NOT EXISTS", one, count=1)
                if built.schema is not None:
                    yield _drop_remnant(built.schema, built.name)
            session = _SESSION_CALL.fullmatch(one.strip())
            if session is not None:
                one = _same_session(session[1], session[2], self._report.generated_at)
            yield one if one.rstrip().endswith((";", "\\gexec")) or _is_comment(one) else f"{one};"


def _timeouts(step: Step, statements: Sequence[str]) -> list[str]:
    given = step.remedy.undo if statements is step.undo else step.remedy.sql
    return [one for one in given if one not in statements]


def _is_comment(text: str) -> bool:
    lines = _lines(text)
    return bool(lines) and all(line.lstrip().startswith("--") for line in lines)


def _drop_remnant(schema: str, name: str) -> str:
    """A failed CREATE INDEX CONCURRENTLY leaves an invalid index; DROP INDEX CONCURRENTLY has no WHERE, so psql's \\gexec runs it."""
    return (
        "SELECT format('DROP INDEX CONCURRENTLY %s', i.indexrelid::regclass) FROM pg_index AS i\n"
        f" WHERE i.indexrelid = to_regclass({literal(qualified(schema, name)).lstrip()}) AND NOT i.indisvalid \\gexec"
    )


def _same_session(function: str, pid: str, observed: str) -> str:
    """A pid is used again: the session must be older than the observation."""
    return (
        f"SELECT {function}(pid) FROM pg_stat_activity\n"
        f" WHERE pid = {pid} AND backend_start < {literal(observed).lstrip()};"
    )


def summary(chosen: Treatment) -> str:
    """Return what a script holds in a few words, for standard error."""
    acting = sum(step.acts for step in chosen.steps)
    deciding = sum(bool(step.decide) and not step.acts for step in chosen.steps)
    decided = f", {deciding:,} to decide" if deciding else ""
    return f"{counted(acting, 'step')} to run{decided}, {len(chosen.steps) - acting - deciding:,} as comments only"
