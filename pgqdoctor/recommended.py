"""What the knobs recommend, and what the findings ask for, said with one voice.

Both come from one observation by different ways: a finding from a limit that was passed, the recommendation from what two designs cost
in a second. Where a finding of the queue brings the same kind of remedy, that one is taken, and where a remedy would have to
wait, the recommendation waits for the same reason. Pure.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from pgqdoctor.causes import withhold
from pgqdoctor.finding import Finding, Remedy
from pgqdoctor.observation import Observation
from pgqdoctor.queue import Queue
from pgqdoctor.report import Report
from pgqdoctor.sqlremedy import BuiltIndex, built_index, index_keys
from pgqdoctor.trianglefacts import Recommendation, Triangle
from pgqdoctor.words import shortened

_CHECK: Final = "knobs"
"""Stands for the id of a check while the remedies are weighed against the findings; no check is called so."""


def with_one_voice(
    seen: Observation, queues: Sequence[Queue], report: Report, findings: Sequence[Finding]
) -> Report:
    """Return the report with the knobs of each queue agreed with the findings."""
    by_name = {one.name: one for one in queues}
    return replace(
        report,
        queues=tuple(
            replace(one, triangle=agreed(seen, by_name[one.name], one.triangle, findings))
            if one.triangle is not None and one.name in by_name
            else one
            for one in report.queues
        ),
    )


def agreed(seen: Observation, queue: Queue, triangle: Triangle, findings: Sequence[Finding]) -> Triangle:
    """Return the triangle with a recommendation that no finding contradicts and that names the findings that ask for it."""
    found = triangle.recommendation
    if not found.remedies:
        return _asked_for(queue, triangle, findings) if found.action == "leave" else triangle
    asking = [one for one in findings if one.queue == queue.name and _brings(one.remedies, found.remedies)]
    if asking:
        same = next(one for one in asking[0].remedies if _alike(one, found.remedies))
        brought = (same,) if len(found.remedies) == 1 else found.remedies
        reason = asking[0].title.rstrip(".")
        return replace(
            triangle,
            recommendation=replace(
                found, reason=reason, remedies=brought, asked_by=tuple(one.key for one in asking)
            ),
            knobs=tuple(
                replace(one, reason=reason) if one.reason == found.reason else one for one in triangle.knobs
            ),
        )
    return replace(triangle, recommendation=_in_its_turn(seen, queue, found, findings))


def _asked_for(queue: Queue, triangle: Triangle, findings: Sequence[Finding]) -> Triangle:
    """Return the triangle with the index of the queue that a finding asks for, where the knobs would leave all as it is.

    The knobs weigh what an index saves in the plan of today; a finding may know of claims that the plan does not show, such as those
    that sort the backlog only while there is one.
    """
    for one in findings:
        if one.queue != queue.name:
            continue
        for remedy in one.remedies:
            building = next((sql for sql in remedy.sql if _on_queue(queue, built_index(sql))), None)
            if building is None:
                continue
            reason = one.title.rstrip(".")
            return replace(
                triangle,
                recommendation=Recommendation(
                    action="create-index",
                    title=remedy.title,
                    reason=reason,
                    remedies=(remedy,),
                    asked_by=(one.key,),
                ),
                knobs=tuple(
                    replace(knob, computed=index_keys(building), verdict="change", reason=reason)
                    if knob.name == "claim index"
                    else knob
                    for knob in triangle.knobs
                ),
            )
    return triangle


def _on_queue(queue: Queue, made: BuiltIndex | None) -> bool:
    """Tell whether an index is built on the queue's own table."""
    return made is not None and (made.schema, made.table) == (queue.table.schema, queue.table.name)


def _in_its_turn(
    seen: Observation, queue: Queue, found: Recommendation, findings: Sequence[Finding]
) -> Recommendation:
    """Withhold what would have to wait for another finding's cure, as causes.py does for findings."""
    stand_in = Finding(
        check=_CHECK,
        severity="notice",
        queue=queue.name,
        title=found.title,
        why="",
        evidence=(),
        remedies=found.remedies,
        relations=tuple(sorted(queue.oids)),
    )
    weighed = withhold(seen, (*findings, stand_in))[-1]
    if len(weighed.remedies) == len(found.remedies):
        return found
    waits = weighed.why.strip().rstrip(".").removesuffix(f": {shortened(found.remedies[0].title, 100)}")
    return replace(found, remedies=weighed.remedies, reason=f"{found.reason}. {waits}")


def _brings(remedies: Sequence[Remedy], wanted: Sequence[Remedy]) -> bool:
    return any(_alike(one, wanted) for one in remedies)


def _alike(one: Remedy, wanted: Sequence[Remedy]) -> bool:
    """Tell whether a remedy is one of those wanted: the same statements, or another index for the same claim under its name."""
    return any(
        one.sql == other.sql or (_built(one) is not None and _built(one) == _built(other)) for other in wanted
    )


def _built(remedy: Remedy) -> str | None:
    """The index that a remedy builds, None for none."""
    return next((made.name for sql in remedy.sql if (made := built_index(sql)) is not None), None)
