"""What a plan says about a claim: where it looked for the job, what it read, and what it read in vain.

Pure functions over the tree of ``plan``. On a plan that was not executed every measured value is None.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from itertools import pairwise
from typing import TypeVar

from pgqdoctor.plan import Node, Plan, paths, walk
from pgqdoctor.sqlfacts import TableName

_SCANS = frozenset(
    {
        "Seq Scan",
        "Sample Scan",
        "Index Scan",
        "Index Only Scan",
        "Bitmap Heap Scan",
        "Tid Scan",
        "Tid Range Scan",
        "Foreign Scan",
        "Custom Scan",
    }
)
_INDEX_SCANS = frozenset({"Index Scan", "Index Only Scan"})
_APPENDS = frozenset({"Append", "Merge Append"})
_SORTS = frozenset({"Sort", "Incremental Sort"})
_Path = tuple[Node, ...]
Number = TypeVar("Number", int, float)


@dataclass(frozen=True, slots=True, kw_only=True)
class SortFacts:
    """The sorts between the claim's scan and its LIMIT; several (one per partition) are added up.

    ``rows`` went into the sorts, over all loops; None where the plan was not executed, as are ``method``,
    ``space_kb`` and ``spilled``. ``incremental``: the index gave the order of ``presorted`` already.
    """

    keys: tuple[str, ...]
    presorted: tuple[str, ...]
    incremental: bool
    method: str | None
    space_kb: int | None
    spilled: bool | None
    rows: float | None
    expected_rows: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class SubPlanFacts:
    """A subquery evaluated while the job is looked for (a count of running jobs, an EXISTS ...).

    ``share`` is the part of the finding select's buffers spent in it, 0 to 1; ``dear`` says that it is more
    than half, so that the subquery and not the scan is what the claim costs.
    """

    name: str
    loops: int | None
    buffers: int | None
    share: float | None
    dear: bool | None
    cost: float | None
    """The planner's cost of one execution."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClaimPlanFacts:
    """One claim's plan in numbers. Everything is over all loops and all partitions unless it says otherwise.

    The *finding select* is the part that looks for the job: the whole plan of a SELECT; of a statement that
    also writes, the LIMIT subquery, CTE or InitPlan with the claim's scan in it.

    ``buffers`` (shared blocks, hit or read), ``rows``, ``time_ms`` and ``temp_blocks`` (read and written) are
    those of the finding select, ``buffers_per_row`` divides by one row at least. ``scan_buffers`` is what the
    scan itself touched, without subqueries in its conditions. ``rows_removed_by_filter`` counts rows the scan
    read and refused. Under a row lock the predicate of a partial index stands in ``filter`` too, because a
    row is checked again once it is locked: a filter is a fault only by what it removed.

    ``rows_skipped_locked`` (None without a LockRows node) were found and not returned: locked by others, or
    changed since the scan saw them. With ``limit_loops`` above 1 they include rows this very statement has
    already changed. ``index`` and ``scan_type`` are those of the scan that touched most (or, unmeasured,
    costs most) where partitions differ. ``order_from_index`` needs an ordered scan and no sort before the
    LIMIT; a claim without ORDER BY passes too.

    ``estimated_rows`` and ``actual_rows`` are per loop at the scan. ``estimate_factor`` (1 or more) tells how
    far they lie apart; it is None where the LIMIT may have stopped the scan before it reached the estimate.
    """

    table: TableName
    measured: bool
    buffers: int | None
    rows: float | None
    buffers_per_row: float | None
    time_ms: float | None
    temp_blocks: int | None
    cost: float | None
    scan_type: str
    index: str | None
    indexes: tuple[str, ...]
    index_only: bool
    filter: str | None
    index_cond: str | None
    scan_loops: int | None
    scan_rows: float | None
    scan_buffers: int | None
    rows_removed_by_filter: int | None
    rows_removed_by_index_recheck: int | None
    rows_removed_by_join_filter: int | None
    rows_skipped_locked: float | None
    heap_fetches: int | None
    index_searches: int | None
    bitmap_entries: float | None
    """Entries that bitmap index scans handed over; None unless every bitmap is exact and of one index."""
    order_from_index: bool
    sort: SortFacts | None
    limit_loops: int | None
    """Executions of the nearest LIMIT above the scan; None without a LIMIT."""
    estimated_rows: int | None
    actual_rows: float | None
    estimate_factor: float | None
    partitions: int
    """Scans that ran (unmeasured: that are planned); 1 for a table without partitions, 0 if nothing ran."""
    partitions_planned: int
    subplans: tuple[SubPlanFacts, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class DeadWalk:
    """What an index scan spent on entries whose rows are gone; see ``dead_walk`` for the formula."""

    buffers: int
    expected_buffers: int
    unexplained_buffers: int
    dead_entries: int
    """At least so many entries led to no visible row."""
    counted: bool
    """True where the plan counts the entries; False where they are inferred from buffers, one per buffer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanLine:
    """One line of the plan read aloud; ``conditions`` are further sentences about the same node.

    Names and conditions stand as the server gave them: a renderer strips control characters.
    """

    depth: int
    label: str
    facts: str
    conditions: tuple[str, ...]


def scan_of(plan: Plan, table: TableName, *, partitions: Collection[str] = ()) -> Node | None:
    """The scan that finds the job rows of ``table``: below LockRows, else below a LIMIT, else any.

    The key lookup of an outer UPDATE and a subquery's second look at the queue are not it. Over partitions it
    is the first of them. None where no scan of the table is found. ``partitions`` names the table's
    partitions; without it they are recognised by the aliases that PostgreSQL numbers under an Append, which
    fails where the statement gives the table an alias of its own and a single partition remains.
    """
    path = _claim_path(plan, table, partitions)
    return None if path is None else path[-1]


def claim_facts(plan: Plan, table: TableName, *, partitions: Collection[str] = ()) -> ClaimPlanFacts | None:
    """The facts of the claim on ``table``, or None where the plan has no scan of it (see ``scan_of``)."""
    path = _claim_path(plan, table, partitions)
    if path is None:
        return None
    finder = _finder(plan, path)
    scans = _sibling_scans(path)
    nodes = tuple(each[-1] for each in scans)
    ran = tuple(node for node in nodes if not node.never_run)
    main = max(nodes, key=_weight)
    limit = _nearest(path, "Limit")
    buffers = None if finder.buffers is None else finder.buffers.shared
    sort = _sort_facts(path, scans)
    estimated, actual = _summed(node.plan_rows for node in ran), _summed(node.actual_rows for node in ran)
    return ClaimPlanFacts(
        table=table,
        measured=plan.analyzed,
        buffers=buffers,
        rows=finder.total_rows,
        buffers_per_row=None if buffers is None else buffers / max(finder.total_rows or 0, 1),
        time_ms=None if finder.total_ms is None or finder.loops is None else finder.total_ms * finder.loops,
        temp_blocks=finder.buffers.temp_read + finder.buffers.temp_written if finder.buffers else None,
        cost=finder.total_cost,
        scan_type=main.node_type,
        index=_index(main),
        indexes=tuple(dict.fromkeys(name for node in nodes for name in _indexes(node))),
        index_only=main.node_type == "Index Only Scan",
        filter=main.filter,
        index_cond=_index_cond(main),
        scan_loops=_summed(node.loops for node in nodes),
        scan_rows=_summed(node.total_rows for node in nodes),
        scan_buffers=_summed(_own_buffers(plan, node) for node in nodes),
        rows_removed_by_filter=_summed(node.over_loops(node.rows_removed_by_filter) for node in nodes),
        rows_removed_by_index_recheck=_summed(
            node.over_loops(node.rows_removed_by_index_recheck) for node in nodes
        ),
        rows_removed_by_join_filter=_summed(
            node.over_loops(node.rows_removed_by_join_filter) for node in path[path.index(finder) : -1]
        ),
        rows_skipped_locked=_rows_skipped(path),
        heap_fetches=_summed(node.heap_fetches for node in nodes),
        index_searches=_summed(part.index_searches for node in nodes for part in _index_parts(node)),
        bitmap_entries=_bitmap_entries(nodes),
        order_from_index=sort is None and all(node.node_type in _INDEX_SCANS for node in nodes),
        sort=sort,
        limit_loops=None if limit is None else limit.loops,
        estimated_rows=estimated,
        actual_rows=actual,
        estimate_factor=_estimate_factor(path, limit, estimated, actual),
        partitions=len(ran),
        partitions_planned=len(nodes),
        subplans=_subplans(finder, nodes, buffers),
    )


ENTRY_BYTES = 80
"""A generous index entry: header 8 bytes, a text of 60 characters 64, a bigint 8; (int, bigint) makes 24."""
LEAF_ENTRIES = (8192 - 24 - 16) // 2 // (ENTRY_BYTES + 4)
"""Entries on a half-full page of 8 kB: 24 bytes are its header, 16 its tail, 4 each entry's line pointer."""
DESCENT_BUFFERS = 4
"""Pages from root to leaf: four levels with LEAF_ENTRIES on each page hold five million such entries."""


def dead_walk(facts: ClaimPlanFacts) -> DeadWalk | None:
    """What the claim's index scan spent on entries without a visible row; None for other or unmeasured scans.

    An index scan that visits k visible rows (returned, removed by the filter or by the recheck) touches at
    most

        descents * DESCENT_BUFFERS + k (one heap page each) + k / LEAF_ENTRIES (leaf pages)

    and one page of the visibility map if it is index-only. What it touched beyond that led to nothing it
    could see: entries of dead rows, or of rows inserted by transactions still open. Rows skipped because
    others hold them are visible and counted in k; the locking itself is charged to LockRows.

    Measured on 14 to 18 with 5,000 dead entries before the one row returned: 118 buffers instead of 3 where
    queue order is heap order (52 rows share a heap page), 5,017 instead of 3 where it is not. Buffers
    therefore bound the number of entries from below only. Once nothing holds the horizon, the first scan
    marks the entries and the next ones pay for the leaf pages alone (22 buffers), until VACUUM makes it 3.
    Two kinds of plan count the entries: an index-only scan looks up the row of each ("Heap Fetches": 5,001
    for one row), and an exact bitmap holds them all (10,000 entries for 5,000 rows).

    On a clean table nothing is left unexplained, except that the first execution in a session may look up
    system catalogs at the scan's expense (3 buffers measured, gone on the second execution), and that
    functions in the filter which read tables are charged to the scan too. Where EXPLAIN has no "Index
    Searches", a condition = ANY (parameter) hides the number of descents: only a plan that counts gives an
    answer then.
    """
    if facts.scan_buffers is None or facts.scan_rows is None or facts.scan_loops is None or not facts.indexes:
        return None
    removed = (facts.rows_removed_by_filter or 0) + (facts.rows_removed_by_index_recheck or 0)
    # Each of the three averages may be half a row low per loop.
    rounding = 1.5 * facts.scan_loops if facts.scan_loops > facts.partitions else 0.0
    visible = facts.scan_rows + removed + rounding
    counted: float | None = None
    if facts.index_only:
        counted = None if facts.heap_fetches is None else facts.heap_fetches - visible
    elif facts.bitmap_entries is not None:
        counted = facts.bitmap_entries - visible
    descents = _descents(facts)
    if descents is None and counted is None:
        return None
    map_pages = facts.partitions if facts.index_only else 0
    known_descents = descents or facts.scan_loops
    expected = round(known_descents * DESCENT_BUFFERS + visible + visible / LEAF_ENTRIES) + map_pages
    unexplained = 0 if descents is None else max(0, facts.scan_buffers - expected)
    return DeadWalk(
        buffers=facts.scan_buffers,
        expected_buffers=expected,
        unexplained_buffers=unexplained,
        dead_entries=max(0, unexplained, round(counted or 0)),
        counted=counted is not None,
    )


def tree_lines(plan: Plan) -> tuple[PlanLine, ...]:
    """The plan read aloud, one line per node in the plan's order, then one per trigger."""
    lines = [
        PlanLine(depth=len(path) - 1, label=_label(node), facts=_facts(node), conditions=_conditions(node))
        for path in paths(plan.root)
        for node in path[-1:]
    ]
    for trigger in plan.triggers:
        words = [] if trigger.calls is None else [_count(trigger.calls, "call")]
        if trigger.time_ms is not None:
            words.append(f"{trigger.time_ms:,.2f} ms")
        name = trigger.name or trigger.constraint or "without a name"
        where = f" on {_quoted(trigger.relation)}" if trigger.relation else ""
        lines.append(
            PlanLine(depth=0, label=f"Trigger {_quoted(name)}{where}", facts=", ".join(words), conditions=())
        )
    return tuple(lines)


# Finding the claim's scan


def _claim_path(plan: Plan, table: TableName, partitions: Collection[str]) -> _Path | None:
    found = [path for path in paths(plan.root) if _scans(path, table, partitions)]
    if not found and not partitions:
        found = [path for path in paths(plan.root) if _scans_some_partition(path)]
    # min keeps the first of equals, and CTEs and InitPlans stand first in their parent.
    return min(found, key=_distance_from_claim, default=None)


def _scans(path: _Path, table: TableName, partitions: Collection[str]) -> bool:
    node = path[-1]
    if node.node_type not in _SCANS or node.relation is None:
        return False
    if node.relation in partitions:
        return True
    if node.schema is not None and table.schema is not None and node.schema != table.schema:
        # A partition may live in another schema than its table.
        return node.relation != table.name and _aliased(path, table)
    return node.relation == table.name or _aliased(path, table)


def _aliased(path: _Path, table: TableName) -> bool:
    """A partition left alone keeps the table's name as its alias; several are numbered under their Append."""
    alias = path[-1].alias or ""
    if alias == table.name:
        return True
    appended = any(node.node_type in _APPENDS for node in path)
    return appended and re.fullmatch(rf"{re.escape(table.name)}_\d+", alias) is not None


def _scans_some_partition(path: _Path) -> bool:
    """A partition of a table to which the statement gave an alias of its own."""
    node = path[-1]
    appended = any(each.node_type in _APPENDS for each in path)
    numbered = re.fullmatch(r".+_\d+", node.alias or "") is not None
    return appended and numbered and node.node_type in _SCANS and node.relation is not None


def _distance_from_claim(path: _Path) -> tuple[bool, bool, bool]:
    locked = _outermost(path, "LockRows")
    limited = _outermost(path, "Limit")
    start = locked if locked is not None else limited if limited is not None else 0
    return locked is None, limited is None, not _feeds(path[start:])


def _feeds(path: _Path) -> bool:
    """Whether rows of the last node come out of the first, rather than decide about other rows."""
    for parent, child in pairwise(path):
        if child.parent_relationship in ("SubPlan", "InitPlan") and not _is_cte(child):
            return False
        if parent.join_type in ("Semi", "Anti") and child.parent_relationship == "Inner":
            return False
        if parent.join_type in ("Right Semi", "Right Anti") and child.parent_relationship == "Outer":
            return False
    return True


def _is_cte(node: Node) -> bool:
    return node.subplan_name is not None and node.subplan_name.startswith("CTE ")


def _outermost(path: _Path, node_type: str) -> int | None:
    return next((place for place, node in enumerate(path) if node.node_type == node_type), None)


def _nearest(path: _Path, node_type: str) -> Node | None:
    return next((node for node in reversed(path) if node.node_type == node_type), None)


def _finder(plan: Plan, path: _Path) -> Node:
    """The top of the finding select."""
    if not any(node.node_type == "ModifyTable" for node in walk(plan.root)):
        return plan.root
    start = max((place + 1 for place, node in enumerate(path) if node.node_type == "ModifyTable"), default=0)
    below = path[start:]
    picks = [place for place, node in enumerate(below) if node.node_type in ("Limit", "LockRows")]
    if not picks:
        return below[0]
    tops = [node for node in below[: picks[0] + 1] if node.subplan_name is not None]
    return tops[-1] if tops else below[picks[0]]


def _sibling_scans(path: _Path) -> tuple[_Path, ...]:
    """The claim's scan, or where it is one of several partitions, all of them."""
    for place, node in enumerate(path):
        if node.node_type in _APPENDS and _feeds(path[place:]):
            below = (tail for tail in paths(node) if tail[-1].node_type in _SCANS and tail[-1].relation)
            return tuple((*path[:place], *tail) for tail in below if _feeds(tail))
    return (path,)


def _weight(node: Node) -> tuple[int, float]:
    return node.buffers.shared if node.buffers else 0, node.total_cost or 0.0


# Reading it


def _summed(values: Iterable[Number | None]) -> Number | None:
    known = [value for value in values if value is not None]
    return sum(known[1:], known[0]) if known else None


def _index_parts(node: Node) -> tuple[Node, ...]:
    """The nodes that search an index for a scan: itself, or the bitmap index scans of a bitmap heap scan."""
    if node.node_type in _INDEX_SCANS:
        return (node,)
    if node.node_type == "Bitmap Heap Scan":
        return tuple(each for each in walk(node) if each.node_type == "Bitmap Index Scan")
    return ()


def _indexes(node: Node) -> tuple[str, ...]:
    return tuple(part.index for part in _index_parts(node) if part.index is not None)


def _index(node: Node) -> str | None:
    return next(iter(_indexes(node)), None)


def _index_cond(node: Node) -> str | None:
    conditions = [part.index_cond for part in _index_parts(node) if part.index_cond is not None]
    return " AND ".join(conditions) or None


def _bitmap_entries(nodes: tuple[Node, ...]) -> float | None:
    entries = 0.0
    for node in nodes:
        parts = _index_parts(node)
        if node.node_type != "Bitmap Heap Scan" or len(parts) != 1 or node.lossy_heap_blocks != 0:
            return None
        entries += parts[0].total_rows or 0.0
    return entries


def _own_buffers(plan: Plan, node: Node) -> int | None:
    """Without subqueries in its conditions: an InitPlan is charged to the node that first asks for it."""
    if node.buffers is None:
        return None
    conditions = " ".join(text for text in (node.filter, node.index_cond, node.recheck_cond) if text)
    asked = [
        each
        for each in walk(plan.root)
        if (each in node.children and each.parent_relationship in ("SubPlan", "InitPlan"))
        or (each.parent_relationship == "InitPlan" and _referred(each, conditions))
    ]
    return max(0, node.buffers.shared - sum(each.buffers.shared for each in asked if each.buffers))


def _referred(subplan: Node, conditions: str) -> bool:
    spellings = (re.escape(reference) + r"(?!\d)" for reference in subplan.subplan_reference)
    return any(re.search(spelling, conditions) is not None for spelling in spellings)


def _rows_skipped(path: _Path) -> float | None:
    lock = _nearest(path, "LockRows")
    if lock is None:
        return None
    given, kept = path[path.index(lock) + 1].total_rows, lock.total_rows
    return None if given is None or kept is None else max(0.0, given - kept)


def _sort_facts(path: _Path, scans: tuple[_Path, ...]) -> SortFacts | None:
    sorts: list[Node] = []
    for each in scans:
        limits = [place for place, node in enumerate(each) if node.node_type == "Limit"]
        for node in each[limits[-1] if limits else 0 :]:
            if node.node_type in _SORTS and not any(node is known for known in sorts):
                sorts.append(node)
    if not sorts:
        return None
    used = [node for node in sorts if node.sort_method is not None]
    methods = tuple(dict.fromkeys(node.sort_method for node in used if node.sort_method is not None))
    return SortFacts(
        keys=sorts[0].sort_key,
        presorted=sorts[0].presorted_key,
        incremental=all(node.node_type == "Incremental Sort" for node in sorts),
        method=" and ".join(methods) or None,
        space_kb=_summed(node.sort_space_kb for node in used),
        spilled=any(node.sort_space_type == "Disk" for node in used) if used else None,
        rows=_summed(node.children[0].total_rows for node in sorts if node.children),
        expected_rows=_summed(node.children[0].plan_rows for node in sorts if node.children),
    )


def _estimate_factor(
    path: _Path, limit: Node | None, estimated: int | None, actual: float | None
) -> float | None:
    if estimated is None or actual is None or path[-1].never_run:
        return None
    if actual < estimated and not _ran_out(path, limit):
        return None
    # The planner never expects less than one row.
    larger, smaller = max(estimated, actual, 1.0), max(min(estimated, actual), 1.0)
    return larger / smaller


def _ran_out(path: _Path, limit: Node | None) -> bool:
    """Whether the scan was read to its end: nothing above could stop it, or the LIMIT was not reached."""
    between = path[path.index(limit) + 1 : -1] if limit is not None else path[:-1]
    for node in between:
        hashed = node.node_type == "Aggregate" and node.strategy != "Sorted"
        if hashed or node.node_type in ("Sort", "Hash"):
            return True
    if any(node.node_type == "Merge Join" for node in between):
        return False
    if limit is None:
        return True
    # A LIMIT node's own estimate is its count, or less where fewer rows are expected.
    given, expected = limit.actual_rows, limit.plan_rows
    return given is not None and expected is not None and given < expected


def _subplans(finder: Node, scans: tuple[Node, ...], buffers: int | None) -> tuple[SubPlanFacts, ...]:
    found = []
    for node in walk(finder):
        if node.parent_relationship not in ("SubPlan", "InitPlan") or node.subplan_name is None:
            continue
        if any(each is scan for each in walk(node) for scan in scans):
            continue
        spent = node.buffers.shared if node.buffers else None
        share = spent / buffers if spent is not None and buffers else None
        found.append(
            SubPlanFacts(
                name=node.subplan_name,
                loops=node.loops,
                buffers=spent,
                share=share,
                dear=None if share is None else share > 0.5,
                cost=node.total_cost,
            )
        )
    return tuple(found)


def _descents(facts: ClaimPlanFacts) -> int | None:
    """How often the scan went from the root of an index to a leaf; None where the plan does not tell."""
    if facts.index_searches is not None:
        return facts.index_searches
    if facts.scan_loops is None:
        return None
    condition = facts.index_cond or ""
    values = 1
    for array in re.findall(r"= ANY \(('\{[^']*\}')?", condition):
        if not array:
            return None
        values *= array.count(",") + 1
    return facts.scan_loops * values


# Reading it aloud


def _quoted(name: str) -> str:
    if re.fullmatch(r"[a-z_][a-z0-9_$]*", name):
        return name
    return '"' + name.replace('"', '""') + '"'


def _count(number: float, noun: str) -> str:
    """Averages over loops do not always add up to whole rows: they are rounded."""
    whole = round(number)
    return f"{whole:,} {noun}" if whole == 1 else f"{whole:,} {noun}s"


def _label(node: Node) -> str:
    words = node.operation if node.node_type == "ModifyTable" and node.operation else node.node_type
    if node.join_type not in (None, "Inner"):
        words += f" ({node.join_type.lower()} join)"
    if node.scan_direction == "Backward":
        words += " backward"
    if node.index is not None:
        words += f" using {_quoted(node.index)}"
    target = node.relation or node.cte_name
    if target is not None:
        schema = f"{_quoted(node.schema)}." if node.schema is not None and node.relation is not None else ""
        words += f" on {schema}{_quoted(target)}"
        if node.alias not in (None, target):
            words += f" as {_quoted(node.alias)}"
    return words if node.subplan_name is None else f"{node.subplan_name}: {words}"


def _facts(node: Node) -> str:
    if node.never_run:
        return "never run"
    words: list[str] = []
    if node.total_rows is None:
        if node.plan_rows is not None:
            words.append(_count(node.plan_rows, "row") + " expected")
        if node.total_cost is not None:
            words.append(f"cost {node.total_cost:,.2f}")
        return ", ".join(words)
    if node.buffers is not None:
        words.append(_count(node.buffers.shared, "buffer"))
    words.append(_count(node.total_rows, "row"))
    removed = node.over_loops(node.rows_removed_by_filter)
    if removed is not None and (node.filter is not None or removed):
        words.append(f"{removed:,} removed")
    if node.loops is not None and node.loops > 1:
        words.append(f"run {node.loops:,} times")
    return ", ".join(words)


def _conditions(node: Node) -> tuple[str, ...]:
    said: list[str] = []
    if node.one_time_filter is not None:
        said.append(f"runs only if {node.one_time_filter}")
    if node.index_cond is not None:
        said.append(f"searches the index for {node.index_cond}")
    if node.index_searches is not None and node.index_searches > 1:
        said.append(f"searches the index {node.index_searches:,} times")
    if node.filter is not None:
        # Under a row lock this repeats the predicate of a partial index: no fault while nothing is removed.
        said.append(f"checks each row for {node.filter}")
    removed = node.over_loops(node.rows_removed_by_index_recheck)
    if removed:
        said.append(f"{_count(removed, 'row')} removed when checked again")
    pairs = node.over_loops(node.rows_removed_by_join_filter)
    if pairs:
        said.append(f"{_count(pairs, 'pair')} of rows removed by the join's condition")
    if node.lossy_heap_blocks:
        said.append(f"{_count(node.lossy_heap_blocks, 'page')} read whole because work_mem is too small")
    if node.heap_fetches is not None:
        said.append(f"{_count(node.heap_fetches, 'row')} looked up in the table")
    if node.node_type == "LockRows" and node.children:
        skipped = _rows_skipped((node, node.children[0]))
        if skipped:
            said.append(f"{_count(skipped, 'row')} skipped: locked by others, or changed meanwhile")
    if node.sort_key:
        said.append(f"order: {', '.join(node.sort_key)}")
    if node.presorted_key:
        said.append(f"already in order of {', '.join(node.presorted_key)}")
    if node.sort_method is not None and node.sort_space_kb is not None:
        place = "on disk" if node.sort_space_type == "Disk" else "in memory"
        given = node.children[0].total_rows if node.children else None
        what = "sorted" if given is None else f"{_count(given, 'row')} sorted"
        said.append(f"{what} {place}, {node.sort_space_kb:,} kB ({node.sort_method})")
    if node.workers_planned is not None:
        launched = "" if node.workers_launched is None else f", {node.workers_launched:,} started"
        said.append(f"{_count(node.workers_planned, 'parallel worker')} planned{launched}")
    if node.subplans_removed:
        said.append(f"{_count(node.subplans_removed, 'partition')} left out")
    return tuple(said)
