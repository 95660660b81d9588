"""Running the checks over an observation: the one function from what was seen to the report."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from pgqdoctor.causes import link_and_order
from pgqdoctor.check import Check
from pgqdoctor.config import override_limits
from pgqdoctor.finding import Finding
from pgqdoctor.observation import Lack, Observation
from pgqdoctor.queue import Queue, build_queues
from pgqdoctor.recommended import with_one_voice
from pgqdoctor.registry import all_checks, check_named
from pgqdoctor.report import Crashed, Report, Skipped, build_report


def diagnose(
    seen: Observation,
    *,
    only: Collection[str] = (),
    ignore: Collection[str] = (),
    limits: Mapping[str, Mapping[str, object]] | None = None,
    checks: tuple[Check, ...] | None = None,
    queues: tuple[Queue, ...] | None = None,
) -> Report:
    """Run the checks and return the report.

    ``only`` and ``ignore`` hold check ids; ``ignore`` also takes the key of one finding. ``limits`` overrides
    limits by check id; ``queues`` are those of the observation, where they are built already. Raises
    PgqdoctorError for an id that does not exist or a limit that does not fit.
    """
    for one in (*only, *(name for name in ignore if ":" not in name)):
        check_named(one)
    chosen = [
        check
        for check in (all_checks() if checks is None else checks)
        if (not only or check.id in only) and check.id not in ignore
    ]
    queues = build_queues(seen) if queues is None else queues
    findings: list[Finding] = []
    skipped: list[Skipped] = []
    crashed: list[Crashed] = []
    for check in chosen:
        bounds = check.limits
        if limits and check.id in limits:
            bounds = override_limits(check.limits, limits[check.id])
        targets: tuple[Queue | None, ...] = queues if check.scope == "queue" else (None,)
        for queue in targets:
            if queue is not None and not check.applies(queue):
                continue
            name = queue.name if queue is not None else None
            lack = _lack(seen, check, queue)
            if lack is not None:
                skipped.append(
                    Skipped(
                        check=check.id,
                        queue=name,
                        reason=lack.reason,
                        grant=lack.grant,
                    )
                )
                continue
            try:
                found = list(check.evaluate(seen, queue, bounds))
                unjudged = None if found else check.unjudged(seen, queue, bounds)
            except Exception as error:
                where = f" on {queue.name}" if queue is not None else ""
                crashed.append(Crashed(check=check.id, error=f"{type(error).__name__}: {error}{where}"))
                continue
            findings.extend(one for one in found if one.key not in ignore)
            if unjudged is not None:
                skipped.append(Skipped(check=check.id, queue=name, reason=unjudged, grant=None))
    ordered = link_and_order(seen, queues, tuple(findings))
    report = build_report(seen, ordered, tuple(skipped), tuple(crashed), queues)
    return with_one_voice(seen, queues, report, ordered)


def _lack(seen: Observation, check: Check, queue: Queue | None) -> Lack | None:
    """Return the first need of the check that this observation could not serve."""
    lacks = [*seen.lacks]
    if queue is not None and queue.probe is not None:
        lacks.extend(queue.probe.lacks)
    for need in check.needs:
        for lack in lacks:
            if lack.what == need and (lack.queue is None or queue is None or lack.queue == queue.name):
                return lack
    return None
