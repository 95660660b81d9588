"""What a screen shows at one moment: the observation of the window, its report and its numbers. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from pgqdoctor.check import Check
from pgqdoctor.engine import diagnose
from pgqdoctor.observation import Observation
from pgqdoctor.pulse import Pulse, pulse
from pgqdoctor.queue import Queue, build_queues
from pgqdoctor.report import Report
from pgqdoctor.window import Moment, observation_of, window_of

WINDOW_S = 10.0
"""Seconds a frame looks back: the window of ``pgqdoctor report``, so that both say the same."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Judging:
    """How frames are made: the window in seconds, and what ``engine.diagnose`` takes."""

    window_s: float = WINDOW_S
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

    @property
    def at(self) -> float:
        """The server's clock at the end of the window."""
        return self.observation.last.at


def frame_of(seen: Observation, judging: Judging | None = None) -> Frame:
    """Judge an observation."""
    how = judging or Judging()
    report = diagnose(seen, only=how.only, ignore=how.ignore, limits=how.limits, checks=how.checks)
    queues = build_queues(seen)
    return Frame(observation=seen, report=report, pulse=pulse(seen, queues), queues=queues)


def frame_at(moments: Sequence[Moment], judging: Judging | None = None) -> Frame | None:
    """Judge the window at the end of the moments; None for fewer than two readings."""
    how = judging or Judging()
    seen = observation_of(window_of(moments, how.window_s))
    return None if seen is None else frame_of(seen, how)
