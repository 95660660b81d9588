"""EXPLAIN documents by hand: the few shapes of plan that claim checks tell apart."""

from __future__ import annotations

import json
from typing import Any

from pgqdoctor.observation import PlanProbe


def scan(
    kind: str = "Index Scan",
    *,
    rows: float = 1,
    buffers: int = 3,
    index: str | None = "jobs_ready_idx",
    **more: Any,
) -> dict[str, Any]:
    """One executed scan of public.jobs."""
    node: dict[str, Any] = {
        "Node Type": kind,
        "Relation Name": "jobs",
        "Schema": "public",
        "Alias": "jobs",
        "Plan Rows": 100,
        "Total Cost": 100.0,
        "Actual Rows": rows,
        "Actual Loops": 1,
        "Shared Hit Blocks": buffers,
        "Shared Read Blocks": 0,
        **more,
    }
    if index is not None and kind.startswith("Index"):
        node["Index Name"] = index
    return node


def above(
    kind: str, child: dict[str, Any], *, rows: float | None = None, buffers: int | None = None, **more: Any
) -> dict[str, Any]:
    """One executed node over another, by default with the same rows and buffers."""
    return {
        "Node Type": kind,
        "Plan Rows": 1,
        "Total Cost": child["Total Cost"],
        "Actual Rows": child["Actual Rows"] if rows is None else rows,
        "Actual Loops": 1,
        "Shared Hit Blocks": child["Shared Hit Blocks"] if buffers is None else buffers,
        "Shared Read Blocks": 0,
        "Plans": [{**child, "Parent Relationship": "Outer"}],
        **more,
    }


def probe(root: dict[str, Any], *, analyzed: bool = True, timed_out: bool = False) -> PlanProbe:
    """The probe that holds a plan; without ``analyzed`` what was measured is taken out."""
    document: dict[str, Any] = {"Plan": root}
    if analyzed:
        document["Execution Time"] = 0.1
    else:
        document["Plan"] = _planned(root)
    return PlanProbe(mode="select", sql="SELECT ...", document=json.dumps([document]), timed_out=timed_out)


def limited(child: dict[str, Any], **options: Any) -> PlanProbe:
    """LIMIT over a scan."""
    return probe(above("Limit", child), **options)


def _planned(node: dict[str, Any]) -> dict[str, Any]:
    measured = ("Actual", "Shared", "Rows Removed", "Sort Method", "Sort Space", "Heap Fetches", "Temp")
    kept = {name: value for name, value in node.items() if not name.startswith(measured)}
    if "Plans" in kept:
        kept["Plans"] = [_planned(child) for child in kept["Plans"]]
    return kept
