"""Everything the screens show of one moment, made once in the feed's thread."""

from __future__ import annotations

from dataclasses import dataclass

from pgqdoctor.frames import Frame
from pgqdoctor.tui.views.claim import QueueClaims, claim_views
from pgqdoctor.tui.views.findings import FindingView, finding_views
from pgqdoctor.tui.views.horizon import HorizonView, horizon_view
from pgqdoctor.tui.views.knobs import KnobsView, knobs_views
from pgqdoctor.tui.views.overview import (
    FindingLine,
    Head,
    QueueLine,
    finding_lines,
    head,
    queue_lines,
    remarks,
)
from pgqdoctor.tui.views.waits import WaitsView, waits_view


@dataclass(frozen=True, slots=True, kw_only=True)
class Picture:
    """One moment, ready to be shown."""

    frame: Frame
    head: Head
    queues: tuple[QueueLine, ...]
    story: tuple[FindingLine, ...]
    remarks: tuple[str, ...]
    findings: tuple[FindingView, ...]
    waits: WaitsView
    horizon: HorizonView
    claims: tuple[QueueClaims, ...]
    knobs: tuple[KnobsView, ...]


def picture(frame: Frame) -> Picture:
    """Return what the screens show of a frame."""
    return Picture(
        frame=frame,
        head=head(frame),
        queues=queue_lines(frame),
        story=finding_lines(frame),
        remarks=remarks(frame),
        findings=finding_views(frame.report),
        waits=waits_view(frame),
        horizon=horizon_view(frame),
        claims=claim_views(frame),
        knobs=knobs_views(frame),
    )
