"""What a screen shows at one moment: the observation of the window, its report and its numbers. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from pgqdoctor.check import Check
from pgqdoctor.engine import diagnose
from pgqdoctor.observation import Observation
from pgqdoctor.pulse import Pulse, pulse
from pgqdoctor.queue import Queue, build_queues
from pgqdoctor.report import Report
from pgqdoctor.triage import without_culprits

WINDOW_S = 10.0
"""Seconds a frame looks back: the window of ``pgqdoctor report``, so that both say the same."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Judging:
    """How frames are made: the window in seconds, the queues to look at (none: all), and what
    ``engine.diagnose`` takes."""

    window_s: float = WINDOW_S
    queues: tuple[str, ...] = ()
    only: tuple[str, ...] = ()
    ignore: tuple[str, ...] = ()
    limits: Mapping[str, Mapping[str, object]] = field(default_factory=dict)
    checks: tuple[Check, ...] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Frame:
    """One moment, complete."""

    observation: Observation
    report: Report
    pulse: Pulse
    queues: tuple[Queue, ...]
    judging: Judging

    @property
    def at(self) -> float:
        """The server's clock at the end of the window."""
        return self.observation.last.at

    def later_on(self) -> Report | None:
        """Judge what would remain without the culprit of the worst story, as ``fix`` does; None where nothing can be taken away."""
        remaining = without_culprits(self.observation, self.report)
        return None if remaining is None else _judged(remaining, self.judging)


def frame_of(seen: Observation, judging: Judging | None = None, *, since: float | None = None) -> Frame:
    """Judge an observation; ``since`` is the reading before the last, from which its waits are counted."""
    how = judging or Judging()
    if how.queues:
        seen = replace(
            seen,
            queues=tuple(
                one for one in seen.queues if {one.name, f"{one.schema}.{one.table}"} & set(how.queues)
            ),
        )
    queues = build_queues(seen)
    return Frame(
        observation=seen,
        report=_judged(seen, how, queues),
        pulse=pulse(seen, queues, since=since),
        queues=queues,
        judging=how,
    )


def _judged(seen: Observation, how: Judging, queues: tuple[Queue, ...] | None = None) -> Report:
    return diagnose(
        seen, only=how.only, ignore=how.ignore, limits=how.limits, checks=how.checks, queues=queues
    )
