"""EXPLAIN (FORMAT JSON) of any server version as one typed tree.

Nothing here asks for a version: what a key says is read where the key stands, and is None where it does not.
Two habits of EXPLAIN matter to every reader of the tree. Rows, times and rows removed are averages over
``loops``; block counts, heap fetches and index searches are totals, and include the node's children.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import cast


@dataclass(frozen=True, slots=True, kw_only=True)
class Buffers:
    """Blocks of 8 kB (the server's block size) that a node and its children touched; times in milliseconds.

    The times are None without track_io_timing's keys. ``shared_read_ms`` and ``shared_write_ms`` hold the
    undivided "I/O Read Time" and "I/O Write Time" of servers that do not split them, local blocks included.
    """

    shared_hit: int
    shared_read: int
    shared_dirtied: int
    shared_written: int
    local_hit: int
    local_read: int
    local_dirtied: int
    local_written: int
    temp_read: int
    temp_written: int
    shared_read_ms: float | None
    shared_write_ms: float | None
    local_read_ms: float | None
    local_write_ms: float | None
    temp_read_ms: float | None
    temp_write_ms: float | None

    @property
    def shared(self) -> int:
        """Shared blocks accessed, found in the cache or not: what a claim costs, whatever the cache holds."""
        return self.shared_hit + self.shared_read


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """One node of the plan with its children in the plan's order.

    ``plan_rows`` and ``actual_rows`` are per loop; servers before 18 round the latter to whole rows, so
    totals over several loops are then approximate. ``rows_removed_by_*`` are rounded averages per loop on
    every version. ``subplan_name`` is the same on every version ("InitPlan 1", "SubPlan 2", "CTE c");
    ``subplan_reference`` holds the spellings by which conditions of this plan refer to its result.
    """

    node_type: str
    parent_relationship: str | None
    subplan_name: str | None
    subplan_reference: tuple[str, ...]
    operation: str | None
    """Insert, Update, Delete or Merge, of a ModifyTable node."""
    schema: str | None
    """Only EXPLAIN (VERBOSE) names it."""
    relation: str | None
    alias: str | None
    index: str | None
    scan_direction: str | None
    cte_name: str | None
    join_type: str | None
    strategy: str | None
    disabled: bool | None
    startup_cost: float | None
    total_cost: float | None
    plan_rows: int | None
    plan_width: int | None
    startup_ms: float | None
    total_ms: float | None
    actual_rows: float | None
    loops: int | None
    filter: str | None
    index_cond: str | None
    recheck_cond: str | None
    join_filter: str | None
    one_time_filter: str | None
    rows_removed_by_filter: int | None
    rows_removed_by_index_recheck: int | None
    rows_removed_by_join_filter: int | None
    heap_fetches: int | None
    exact_heap_blocks: int | None
    lossy_heap_blocks: int | None
    index_searches: int | None
    subplans_removed: int | None
    """Partitions that execution pruned under an Append; those that planning pruned leave no trace."""
    sort_key: tuple[str, ...]
    presorted_key: tuple[str, ...]
    sort_method: str | None
    sort_space_kb: int | None
    """Over all participants of a parallel sort; the peak of an incremental sort's largest group."""
    sort_space_type: str | None
    """Memory or Disk; Disk as soon as any participant or group spilled."""
    workers_planned: int | None
    workers_launched: int | None
    buffers: Buffers | None
    wal_records: int | None
    wal_fpi: int | None
    wal_bytes: int | None
    children: tuple[Node, ...]

    @property
    def total_rows(self) -> float | None:
        """Rows over all loops."""
        return None if self.actual_rows is None or self.loops is None else self.actual_rows * self.loops

    @property
    def never_run(self) -> bool:
        """The plan was executed, and this node was not needed."""
        return self.loops == 0

    def over_loops(self, per_loop: int | None) -> int | None:
        """A per-loop count such as ``rows_removed_by_filter`` over all loops."""
        return None if per_loop is None or self.loops is None else per_loop * self.loops


@dataclass(frozen=True, slots=True, kw_only=True)
class TriggerTime:
    """``time_ms`` is None under TIMING OFF. Constraint triggers carry ``constraint`` (foreign key checks)."""

    name: str | None
    constraint: str | None
    relation: str | None
    time_ms: float | None
    calls: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """``analyzed`` tells whether the statement was executed: only then are there measured values."""

    root: Node
    analyzed: bool
    planning_ms: float | None
    execution_ms: float | None
    jit_ms: float | None
    planning_buffers: Buffers | None
    triggers: tuple[TriggerTime, ...]
    settings: tuple[tuple[str, str], ...]


_Object = Mapping[str, object]
_RETURNS = re.compile(r"^(?P<name>.*?) \(returns (?P<parameters>[$\d, ]+)\)$")
_NUMBERED = re.compile(r"^(?P<kind>InitPlan|SubPlan) (?:[a-z]+_)?(?P<number>\d+)$")


def parse_plan(document: str | list[object] | dict[str, object]) -> Plan:
    """The tree of one plan, from the server's text or from its decoded JSON (list of one, or the object).

    Raises ValueError, with a sentence that says what is wrong, for anything that is not such a plan.
    """
    try:
        return _plan(_only_object(document))
    except RecursionError:
        raise ValueError("The plan is nested too deeply to be read.") from None


def _only_object(document: object) -> _Object:
    if isinstance(document, str):
        try:
            document = json.loads(document)
        except ValueError as error:
            raise ValueError(f"The plan is not JSON: {error}.") from None
    if isinstance(document, list):
        if len(document) != 1:
            raise ValueError(f"The document holds {len(document)} plans where one is expected.")
        document = document[0]
    if not isinstance(document, dict):
        raise ValueError(f"The plan is {_kind(document)} where a JSON object is expected.")
    return cast(_Object, document)


def _plan(source: _Object) -> Plan:
    root_source = _object(source, "Plan")
    if root_source is None:
        raise ValueError('The document has no "Plan": it is not the output of EXPLAIN (FORMAT JSON).')
    root = _node(root_source)
    jit_timing = _object(_object(source, "JIT") or {}, "Timing") or {}
    settings = _object(source, "Settings") or {}
    return Plan(
        root=root,
        analyzed=root.loops is not None,
        planning_ms=_number(source, "Planning Time"),
        execution_ms=_number(source, "Execution Time"),
        jit_ms=_number(jit_timing, "Total"),
        planning_buffers=_buffers(_object(source, "Planning") or {}),
        triggers=tuple(_trigger(each) for each in _objects(source, "Triggers")),
        settings=tuple((name, str(value)) for name, value in settings.items()),
    )


def _trigger(source: _Object) -> TriggerTime:
    return TriggerTime(
        name=_text(source, "Trigger Name"),
        constraint=_text(source, "Constraint Name"),
        relation=_text(source, "Relation"),
        time_ms=_number(source, "Time"),
        calls=_integer(source, "Calls"),
    )


def _node(source: _Object) -> Node:
    node_type = _text(source, "Node Type")
    if node_type is None:
        raise ValueError('A node of the plan has no "Node Type".')
    subplan_name, subplan_reference = _subplan(_text(source, "Subplan Name"))
    method, space_kb, space_type = _sort(source)
    return Node(
        node_type=node_type,
        parent_relationship=_text(source, "Parent Relationship"),
        subplan_name=subplan_name,
        subplan_reference=subplan_reference,
        operation=_text(source, "Operation"),
        schema=_text(source, "Schema"),
        relation=_text(source, "Relation Name"),
        alias=_text(source, "Alias"),
        index=_text(source, "Index Name"),
        scan_direction=_text(source, "Scan Direction"),
        cte_name=_text(source, "CTE Name"),
        join_type=_text(source, "Join Type"),
        strategy=_text(source, "Strategy"),
        disabled=_boolean(source, "Disabled"),
        startup_cost=_number(source, "Startup Cost"),
        total_cost=_number(source, "Total Cost"),
        plan_rows=_integer(source, "Plan Rows"),
        plan_width=_integer(source, "Plan Width"),
        startup_ms=_number(source, "Actual Startup Time"),
        total_ms=_number(source, "Actual Total Time"),
        actual_rows=_number(source, "Actual Rows"),
        loops=_integer(source, "Actual Loops"),
        filter=_text(source, "Filter"),
        index_cond=_text(source, "Index Cond"),
        recheck_cond=_text(source, "Recheck Cond"),
        join_filter=_text(source, "Join Filter"),
        one_time_filter=_text(source, "One-Time Filter"),
        rows_removed_by_filter=_integer(source, "Rows Removed by Filter"),
        rows_removed_by_index_recheck=_integer(source, "Rows Removed by Index Recheck"),
        rows_removed_by_join_filter=_integer(source, "Rows Removed by Join Filter"),
        heap_fetches=_integer(source, "Heap Fetches"),
        exact_heap_blocks=_integer(source, "Exact Heap Blocks"),
        lossy_heap_blocks=_integer(source, "Lossy Heap Blocks"),
        index_searches=_integer(source, "Index Searches"),
        subplans_removed=_integer(source, "Subplans Removed"),
        sort_key=_texts(source, "Sort Key"),
        presorted_key=_texts(source, "Presorted Key"),
        sort_method=method,
        sort_space_kb=space_kb,
        sort_space_type=space_type,
        workers_planned=_integer(source, "Workers Planned"),
        workers_launched=_integer(source, "Workers Launched"),
        buffers=_buffers(source),
        wal_records=_integer(source, "WAL Records"),
        wal_fpi=_integer(source, "WAL FPI"),
        wal_bytes=_integer(source, "WAL Bytes"),
        children=tuple(_node(child) for child in _objects(source, "Plans")),
    )


def _subplan(name: str | None) -> tuple[str | None, tuple[str, ...]]:
    """("InitPlan 1", spellings of a reference to it) of "InitPlan 1 (returns $1)", "InitPlan expr_1", ...

    The newest spelling numbers each kind (expr, exists, any ...) for itself, so two subplans of different
    kinds may come out with the same name.
    """
    if name is None:
        return None, ()
    parameters: tuple[str, ...] = ()
    returns = _RETURNS.match(name)
    if returns:
        name = returns["name"]
        parameters = tuple(parameter.strip() for parameter in returns["parameters"].split(","))
    numbered = _NUMBERED.match(name)
    if numbered is None:
        return name, parameters
    return f"{numbered['kind']} {numbered['number']}", (f"({name})", *parameters)


def _sort(source: _Object) -> tuple[str | None, int | None, str | None]:
    """(method, kB, Memory or Disk) of a sort, of its parallel participants, or of an incremental sort."""
    methods: list[str] = []
    space: list[int] = []
    spilled = False
    for participant in (source, *_objects(source, "Workers")):
        method = _text(participant, "Sort Method")
        if method is not None:
            methods.append(method)
            space.append(_integer(participant, "Sort Space Used") or 0)
            spilled = spilled or _text(participant, "Sort Space Type") == "Disk"
    if methods:
        return " and ".join(dict.fromkeys(methods)), sum(space), "Disk" if spilled else "Memory"
    for groups in (_object(source, "Full-sort Groups"), _object(source, "Pre-sorted Groups")):
        if groups is None:
            continue
        methods.extend(_texts(groups, "Sort Methods Used"))
        for place in ("Memory", "Disk"):
            used = _object(groups, f"Sort Space {place}")
            if used is not None:
                space.append(_integer(used, "Peak Sort Space Used") or 0)
                spilled = spilled or place == "Disk"
    if not methods:
        return None, None, None
    return " and ".join(dict.fromkeys(methods)), max(space, default=0), "Disk" if spilled else "Memory"


def _buffers(source: _Object) -> Buffers | None:
    if "Shared Hit Blocks" not in source:
        return None

    def blocks(key: str) -> int:
        return _integer(source, key) or 0

    def either(key: str, older: str) -> float | None:
        return _number(source, key if key in source else older)

    return Buffers(
        shared_hit=blocks("Shared Hit Blocks"),
        shared_read=blocks("Shared Read Blocks"),
        shared_dirtied=blocks("Shared Dirtied Blocks"),
        shared_written=blocks("Shared Written Blocks"),
        local_hit=blocks("Local Hit Blocks"),
        local_read=blocks("Local Read Blocks"),
        local_dirtied=blocks("Local Dirtied Blocks"),
        local_written=blocks("Local Written Blocks"),
        temp_read=blocks("Temp Read Blocks"),
        temp_written=blocks("Temp Written Blocks"),
        shared_read_ms=either("Shared I/O Read Time", "I/O Read Time"),
        shared_write_ms=either("Shared I/O Write Time", "I/O Write Time"),
        local_read_ms=_number(source, "Local I/O Read Time"),
        local_write_ms=_number(source, "Local I/O Write Time"),
        temp_read_ms=_number(source, "Temp I/O Read Time"),
        temp_write_ms=_number(source, "Temp I/O Write Time"),
    )


def _kind(value: object) -> str:
    names = {dict: "an object", list: "a list", str: "text", bool: "true or false", type(None): "null"}
    return names.get(type(value), "a number")


def _wrong(key: str, value: object, expected: str) -> ValueError:
    return ValueError(f'"{key}" of the plan is {_kind(value)} where {expected} is expected.')


def _number(source: _Object, key: str) -> float | None:
    value = source.get(key)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise _wrong(key, value, "a number")
    try:
        number = float(value)
    except OverflowError:
        number = math.inf
    if not math.isfinite(number):
        raise ValueError(f'"{key}" of the plan is not a finite number.')
    return number


def _integer(source: _Object, key: str) -> int | None:
    value = source.get(key)
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    number = _number(source, key)
    return None if number is None else round(number)


def _text(source: _Object, key: str) -> str | None:
    value = source.get(key)
    if value is None or isinstance(value, str):
        return value
    raise _wrong(key, value, "text")


def _boolean(source: _Object, key: str) -> bool | None:
    value = source.get(key)
    if value is None or isinstance(value, bool):
        return value
    raise _wrong(key, value, "true or false")


def _object(source: _Object, key: str) -> _Object | None:
    value = source.get(key)
    if value is None:
        return None
    if not isinstance(value, dict):
        raise _wrong(key, value, "an object")
    return cast(_Object, value)


def _objects(source: _Object, key: str) -> tuple[_Object, ...]:
    value = source.get(key)
    if value is None:
        return ()
    if not isinstance(value, list):
        raise _wrong(key, value, "a list")
    for each in value:
        if not isinstance(each, dict):
            raise _wrong(key, each, "an object")
    return tuple(value)


def _texts(source: _Object, key: str) -> tuple[str, ...]:
    value = source.get(key)
    if value is None:
        return ()
    if not isinstance(value, list):
        raise _wrong(key, value, "a list")
    for each in value:
        if not isinstance(each, str):
            raise _wrong(key, each, "text")
    return tuple(value)


def walk(node: Node) -> Iterator[Node]:
    """The node and all below it, parents before children, in the plan's order."""
    stack = [node]
    while stack:
        current = stack.pop()
        yield current
        stack.extend(reversed(current.children))


def paths(node: Node) -> Iterator[tuple[Node, ...]]:
    """As ``walk``, each node after its ancestors: a path starts with ``node`` and ends with the node met."""
    stack: list[tuple[Node, ...]] = [(node,)]
    while stack:
        path = stack.pop()
        yield path
        stack.extend((*path, child) for child in reversed(path[-1].children))


def find(node: Node, wanted: Callable[[Node], bool]) -> tuple[Node, ...]:
    """The nodes at or below ``node`` for which ``wanted`` holds, in the order of ``walk``."""
    return tuple(each for each in walk(node) if wanted(each))
