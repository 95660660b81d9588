"""Which levels of a statement take jobs, from which table, and in which shape.

The semantics behind the decisions were tried with two sessions on PostgreSQL 14 and 18 (READ COMMITTED, both
sessions start before the first commits):

- ``UPDATE ... WHERE id = (SELECT id ... LIMIT 1)``, ``IN (SELECT ... LIMIT 1)``, ``FROM (SELECT ... LIMIT
  1)`` and the same through a CTE, without a lock: both sessions get the same row. The second waits for the
  first and then re-checks only the conditions on the target row (EvalPlanQual), with the sub-select's old
  answer.
- the same with the state tested again on the target's own alias: the second gets nothing. A test on another
  alias of the same table does not help (``FROM q k WHERE k.id = q.id AND k.state = 'ready'``: both win).
- DELETE in that form: the second finds the row gone and gets nothing.
- with FOR UPDATE in the sub-select the second waits, re-checks there, and goes on to the next row.
- ``SELECT ... WHERE id = (SELECT id ... LIMIT 1) FOR UPDATE``, the state tested in the sub-select only: the second
  gets the row that the first has taken and changed. With the state tested outside it gets nothing.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any

from pglast import ast, enums

from pgqdoctor.sqlconditions import Reader, limit_of, order_of, same_table
from pgqdoctor.sqlfacts import Assignment, Claim, ClaimShape, Condition, TableName
from pgqdoctor.sqllocks import Locked, locks_of
from pgqdoctor.sqlonce import repeats
from pgqdoctor.sqlscope import Item, Level, Tree, column_name, conjuncts, dotted, expression_nodes
from pgqdoctor.sqlwords import (
    AT_WORK,
    READY,
    asks_ready,
    asks_taken,
    is_key,
    marks_worker,
    names_one_row,
    pins_row,
    purpose,
    tests_state,
)

ADVISORY_LOCKS = frozenset(
    {
        "pg_advisory_lock",
        "pg_advisory_lock_shared",
        "pg_advisory_xact_lock",
        "pg_advisory_xact_lock_shared",
        "pg_try_advisory_lock",
        "pg_try_advisory_lock_shared",
        "pg_try_advisory_xact_lock",
        "pg_try_advisory_xact_lock_shared",
    }
)


@dataclass(frozen=True, slots=True)
class Found:
    """A claim with the level whose rows it takes, for rewriting."""

    claim: Claim
    level: Level


def claims_of(tree: Tree, reader: Reader) -> tuple[Found, ...]:
    """Return the claims of a statement; those whose table the statement also writes come first."""
    finder = _Finder(tree, reader)
    found = [*finder.locking(), *finder.advisory()]
    taken = [each.claim.table for each in found]
    for level in tree.levels:
        if level.kind not in ("update", "delete", "merge") or level.target is None:
            continue
        if not any(same_table(level.target.table, table) for table in taken):
            claim = finder.writing(level)
            if claim is not None:
                found.append(claim)
    return tuple(sorted(found, key=lambda each: not each.claim.writes))


class _Finder:
    def __init__(self, tree: Tree, reader: Reader) -> None:
        self.tree = tree
        self.reader = reader
        self.by_node = {id(level.node): level for level in tree.levels}
        self.bounds: dict[int, Level] = {}
        tops = [level for level in tree.levels if level.how in ("top", "setop") and level.parent is None]
        self.returns = any(level.kind == "select" or level.returning for level in tops)

    # Locking claims

    def locking(self) -> Iterator[Found]:
        for level in self.tree.levels:
            if level.kind != "select" or not level.locking:
                continue
            candidates = [
                each for each in locks_of(level) if each.lock.strength in ("update", "no key update")
            ]
            chosen = self.main_lock(candidates)
            if chosen is None or self.is_helper(level, chosen.lock.table):
                continue
            claim = self.locking_claim(level, chosen)
            if claim is not None:
                yield Found(claim, level)

    def main_lock(self, candidates: list[Locked]) -> Locked | None:
        """Choose whose rows are taken where one clause locks several tables.

        First the one the statement writes, then the one whose state is tested, then the first of the FROM
        clause.
        """
        if len(candidates) < 2:
            return candidates[0] if candidates else None
        written = [each for each in candidates if self.writers(each.lock.table)]
        pool = written or candidates
        for each in pool:
            conditions = self.reader.conditions(each.reader)
            if any(same_table(test.table, each.lock.table) and tests_state(test) for test in conditions):
                return each
        return pool[0]

    def is_helper(self, level: Level, table: TableName) -> bool:
        """Tell whether a level only filters for an enclosing level that locks another table's rows."""
        if level.how not in ("in", "expr", "array", "exists"):
            return False
        return any(
            outer.locking and not any(same_table(each.lock.table, table) for each in locks_of(outer))
            for outer in level.ancestors()
        )

    def locking_claim(self, level: Level, chosen: Locked) -> Claim | None:
        table, wait = chosen.lock.table, chosen.lock.wait
        levels = [level] if chosen.reader is level else [level, chosen.reader]
        inner = [each for each in self.finders(level, table) if each not in levels and not each.locking]
        conditions = self.merged([*levels, *inner])
        node = next(
            (each.limit for each in [*levels, *inner, *enclosing(level)] if each.limit is not None), None
        )
        limit_kind, limit = limit_of(node)
        states = any(tests_state(test) for test in conditions)
        order = next((each.sort for each in [*levels, *inner] if each.sort), ())
        # Beside a LIMIT and an order, task_id = $1 is a reference (the jobs of one kind), id = $1 is not.
        pins = names_one_row if limit_kind != "none" and (states or order) else pins_row
        keyed = any(pins(test) for test in conditions)
        if keyed and not (states and wait == "skip locked"):
            # SELECT ... WHERE id = $1 FOR UPDATE protects a row that the caller already knows (a transfer
            # between accounts); a test such as deleted_at IS NULL beside it changes nothing. With SKIP LOCKED
            # and a state test it is the claim of a job whose id came by NOTIFY.
            return None
        if limit_kind == "none":
            if not any(tests_state(test, flags=wait == "skip locked") for test in conditions):
                return None
        elif wait != "skip locked" and conditions and not states and not order:
            # Rails' find_by(...).lock writes WHERE user_id = $1 LIMIT 1 FOR UPDATE: one row, known to the
            # caller.
            return None
        writers = self.writers(table)
        # A worker asks for the next job, one or in an order; who moves or deletes a heap of rows does not.
        next_one = limit == 1 or (limit_kind == "parameter" and bool(order or level.how == "expr"))
        if writers and not self.takes(writers, conditions, next_one=next_one):
            return None
        shape: ClaimShape = (
            "skip-locked" if wait == "skip locked" else "nowait" if wait == "nowait" else "blocking"
        )
        if shape == "skip-locked" and writers and all(each.kind == "delete" for each in writers):
            shape = "delete-skip-locked"
        # A lock on rows that a sub-select without lock has chosen re-checks only the outer conditions.
        rechecks = not inner or any(
            tests_state(test) for each in levels for test in self.reader.conditions(each)
        )
        return Claim(
            table=table,
            shape=shape,
            lock=chosen.lock,
            writes=bool(writers),
            rechecks=rechecks,
            conditions=conditions,
            order=order_of(order),
            limit_kind=limit_kind,
            limit=limit,
            repeatable_limit=limit_kind != "none" and repeats(level),
            advisory=() if keyed else self.advisory_in(levels),
            joins=_joins(levels, chosen.item),
            by_key=keyed,
        )

    def takes(self, writers: list[Level], conditions: tuple[Condition, ...], *, next_one: bool) -> bool:
        """Tell whether the writes behind a lock take jobs, rather than prune, finish or put them back.

        ``next_one``: the search asks for the next job in line, not for whatever it finds.
        """
        for level in writers:
            if level.kind == "delete":
                if asks_taken(conditions):
                    continue
                # Whoever deletes without reading what was deleted is pruning, unless it takes the next in line.
                if self.returns or (next_one and not _overdue(conditions)):
                    return True
                continue
            meaning = purpose(self.reader.assignments(level), conditions)
            if meaning == "finish" and asks_taken(conditions):
                continue
            # An update that neither returns its rows nor marks them as taken leaves no way to know which they
            # were: it moves jobs on (scheduled to available), nobody works on them. The next job in line is
            # taken all the same, by a worker that needs nothing of it or whose text lost its words.
            if meaning == "claim" or (
                meaning != "release" and (self.returns or (next_one and not _overdue(conditions)))
            ):
                return True
        return False

    # Advisory claims

    def advisory(self) -> Iterator[Found]:
        for level in self.tree.levels:
            if level.kind != "select" or level.locking:
                continue
            names = self.advisory_in([level])
            selected = tuple(_advisory_names(level.node.targetList))
            if not names and not selected:
                continue
            source = self.source_of(level)
            if source is None or source.locking:
                continue
            item = next(item for item in source.items if item.table is not None)
            levels = [level] if source is level else [level, source]
            conditions = self.merged(levels)
            keyed = any(pins_row(test) for test in conditions)
            node = next((each.limit for each in [*levels, *enclosing(level)] if each.limit is not None), None)
            limit_kind, limit = limit_of(node)
            if not names and (keyed or limit_kind == "none"):
                continue
            if source is not level and (
                limit_of(source.limit) == ("constant", 1)
                or (_fenced(source) and level.limit and not level.sort)
            ):
                # The function sees the one row that the inner LIMIT 1 has already chosen, or rows in an order that is settled, up
                # to the first that it locks.
                names = ()
            assert item.table is not None
            yield Found(
                Claim(
                    table=item.table,
                    shape="advisory",
                    lock=None,
                    writes=bool(self.writers(item.table)),
                    rechecks=False,
                    conditions=conditions,
                    order=order_of(next((each.sort for each in levels if each.sort), ())),
                    limit_kind=limit_kind,
                    limit=limit,
                    repeatable_limit=limit_kind != "none" and repeats(level),
                    advisory=() if keyed else names,
                    joins=_joins(levels, item),
                    by_key=keyed,
                ),
                level,
            )

    def source_of(self, level: Level, seen: frozenset[int] = frozenset()) -> Level | None:
        """Return the level that reads the table behind a chain of sub-selects and CTEs."""
        if id(level) in seen:
            return None
        if any(item.table is not None for item in level.items):
            return level
        for item in level.items:
            for inner in item.levels:
                found = self.source_of(inner, seen | {id(level)})
                if found is not None:
                    return found
        return None

    def advisory_in(self, levels: list[Level]) -> tuple[str, ...]:
        return tuple(dict.fromkeys(name for level in levels for name in _advisory_names(tuple(level.where))))

    # Claims that only write

    def writing(self, level: Level) -> Found | None:
        assert level.target is not None and level.target.table is not None
        table = level.target.table
        if level.kind == "merge" and not level.sets:
            return None
        inner = [each for each in self.finders(level, table) if not self.holds(each)]
        limited = [
            each for each in inner if limit_of(self.bounding(each).limit)[0] != "none" or picks_extreme(each)
        ]
        own = self.merged([level])
        if level.kind == "delete":
            # The loser of the race finds the row gone, so the delete itself is the guard.
            if not limited:
                return None
            if not self.returns and (
                not _next_in_line(self.bounding(limited[0])) or _overdue(self.merged(limited))
            ):
                return None
            return self.found(level, limited, shape="guarded", rechecks=True)
        sets = self.reader.assignments(level)
        conditions = self.merged([level, *inner])
        meaning = purpose(sets, conditions)
        if meaning == "release":
            return None
        guarded = any(self.guards(node, level, sets) for node in (*level.where, *_matched(level)))
        if limited:
            next_in_line = _next_in_line(self.bounding(limited[0]))
            # From ready to done in one statement: it takes the job and finishes it.
            takes = next_in_line and asks_ready(self.merged(limited))
            if meaning == "finish" and not (self.returns or takes):
                return None
            if guarded:
                return self.found(level, limited, shape="guarded", rechecks=True)
            changed = {each.column for each in sets}
            asks = any(
                tests_state(test) or test.column in changed
                for each in limited
                for test in self.merged([each])
            )
            # A state inside a document: its column is set, and the search asks for something in it.
            asks = asks or (
                next_in_line and any(changed & _columns_in(node) for each in limited for node in each.where)
            )
            next_one = (meaning is None or takes) and next_in_line and not _overdue(self.merged(limited))
            if asks and (self.returns or meaning == "claim" or next_one):
                return self.found(level, limited, shape="unguarded", rechecks=False)
            return None
        if not guarded or meaning == "finish":
            return None
        if any(pins_row(test) for test in own) or _composite_key(own, sets):
            return self.found(level, [], shape="guarded", rechecks=True)
        if any(_names_rows(test) for test in own):
            # The keys come from a list or from another table's rows: known to whoever asks.
            found = self.found(level, [], shape="guarded", rechecks=True)
            return Found(replace(found.claim, by_key=True), found.level)
        if meaning == "claim" and not inner and (self.returns or _starts_work(sets, own)):
            # UPDATE ... SET state = 'running' WHERE state = 'ready' takes everything there is; without RETURNING the worker
            # asks afterwards for what bears its name, or for all that is running.
            return self.found(level, [], shape="guarded", rechecks=True)
        return None

    def found(self, level: Level, finders: list[Level], *, shape: ClaimShape, rechecks: bool) -> Found:
        assert level.target is not None and level.target.table is not None
        source = finders[0] if finders else level
        levels = [level, *finders] if shape == "guarded" and finders else [source]
        conditions = self.merged(levels)
        bounding = self.bounding(source)
        limit_kind, limit = limit_of(bounding.limit)
        if finders and limit_kind == "none":
            limit_kind, limit = "constant", 1  # min() or max(): one row
        return Found(
            Claim(
                table=level.target.table,
                shape=shape,
                lock=None,
                writes=True,
                rechecks=rechecks,
                conditions=conditions,
                order=order_of(source.sort or bounding.sort),
                limit_kind=limit_kind,
                limit=limit,
                repeatable_limit=bool(finders) and bounding.limit is not None and repeats(bounding),
                advisory=(),
                joins=_joins(levels, level.target),
                by_key=not finders
                and (
                    any(pins_row(test) for test in conditions)
                    or _composite_key(conditions, self.reader.assignments(level))
                ),
            ),
            source,
        )

    def guards(self, node: ast.Node, level: Level, sets: tuple[Assignment, ...]) -> bool:
        """Tell whether a conjunct of an UPDATE fails once another worker has made the same update.

        It has to test, on the target's own alias, a column that SET changes. ``attempts < 5`` beside
        ``attempts = attempts + 1`` still holds for the second worker; ``locked_until > now()`` asks for a
        lease that is held, as a renewal does.
        """
        columns = {
            column_name(part)
            for part in expression_nodes(node)
            if isinstance(part, ast.ColumnRef) and level.item_of(part) in (level.target, None)
        }
        changed = {each.column: each for each in sets}
        if not columns & changed.keys():
            return False
        return any(_guarding(test, changed) for test in [self.reader.condition(node, level)])

    # What feeds a level

    def bounding(self, level: Level) -> Level:
        """Return the level whose LIMIT bounds a search: its own, else that of a level between it and the write."""
        return level if level.limit is not None else self.bounds.get(id(level), level)

    def holds(self, level: Level) -> bool:
        """Tell whether a level locks what it reads against others that would take it: FOR KEY SHARE does not."""
        return any(each.lock.strength != "key share" for each in locks_of(level))

    def finders(
        self,
        level: Level,
        table: TableName,
        seen: frozenset[int] = frozenset(),
        bound: Level | None = None,
    ) -> list[Level]:
        """Return the SELECTs whose answer names the rows of ``table`` that a level takes.

        They stand in its FROM clause, or as ``key IN (...)``, ``key = (...)`` or ``key = ANY(ARRAY(...))`` in
        its WHERE. EXISTS and counting sub-selects are filters, not choices.
        """
        found: list[Level] = []
        if id(level) in seen:
            return found
        seen = seen | {id(level)}
        sources = [inner for item in level.items for inner in item.levels]
        for node in level.where:
            sources.extend(self.feeding(node))
        for source in sources:
            if source.kind != "select":
                continue
            if any(same_table(item.table, table) for item in source.items):
                if not source.aggregates or picks_extreme(source):
                    found.append(source)
                    if bound is not None:
                        self.bounds.setdefault(id(source), bound)
            else:
                inside = source if source.limit is not None else bound
                found.extend(self.finders(source, table, seen, inside))
        return list(dict.fromkeys(found))

    def feeding(self, node: Any) -> Iterator[Level]:
        if isinstance(node, ast.SubLink) and node.subLinkType == enums.SubLinkType.ANY_SUBLINK:
            yield from self.leaves(node.subselect)
        elif (
            isinstance(node, ast.A_Expr)
            and node.kind in (enums.A_Expr_Kind.AEXPR_OP, enums.A_Expr_Kind.AEXPR_OP_ANY)
            and dotted(node.name).rpartition(".")[2] == "="
        ):
            for side in (node.lexpr, node.rexpr):
                if isinstance(side, ast.SubLink):
                    yield from self.leaves(side.subselect)

    def leaves(self, node: Any) -> Iterator[Level]:
        level = self.by_node.get(id(node))
        if level is not None:
            yield level
        elif isinstance(node, ast.SelectStmt):
            for side in (node.larg, node.rarg):
                if side is not None:
                    yield from self.leaves(side)

    def writers(self, table: TableName) -> list[Level]:
        return [
            level
            for level in self.tree.levels
            if (level.kind in ("update", "delete") or (level.kind == "merge" and level.sets))
            and level.target
            and same_table(level.target.table, table)
        ]

    def merged(self, levels: Iterable[Level]) -> tuple[Condition, ...]:
        return tuple(dict.fromkeys(test for level in levels for test in self.reader.conditions(level)))


def _guarding(test: Condition, changed: dict[str, Assignment]) -> bool:
    if test.operator == "or":
        return any(_guarding(part, changed) for branch in test.branches for part in branch)
    if test.column is None:
        # An expression over a changed column, such as coalesce(locked_until, now()) <= now().
        return test.operator == "expression"
    if test.column not in changed:
        return False
    if test.operator in ("<", "<=", ">", ">=", "between"):
        if test.operator in (">", ">=") and test.value_kind == "now":
            return False
        return not (changed[test.column].value_kind == "expression" and test.value_kind != "now")
    return True


def _matched(level: Level) -> Iterator[Any]:
    """Yield what a MERGE asks of the rows that it updates, beside its join condition: it is asked again under the row's lock."""
    if level.kind != "merge":
        return
    for clause in level.node.mergeWhenClauses or ():
        if clause.commandType == enums.CmdType.CMD_UPDATE:
            yield from conjuncts(clause.condition)


def _columns_in(node: Any) -> set[str]:
    return {name for part in expression_nodes(node) if (name := column_name(part)) is not None}


def _fenced(level: Level) -> bool:
    """Tell whether a level is computed by itself, so that no condition from outside reaches into its scan."""
    return level.limit is not None or (level.cte is not None and level.cte.runs_once)


def _names_rows(test: Condition) -> bool:
    """Tell whether a condition finds rows by keys that stand elsewhere: ``id = v.id``, ``id IN (SELECT unnest($1))``."""
    return (
        test.column is not None
        and is_key(test.column)
        and (
            (test.operator == "=" and test.value_kind == "column")
            or (test.operator == "in" and test.value_kind == "expression")
        )
    )


def _starts_work(sets: tuple[Assignment, ...], conditions: tuple[Condition, ...]) -> bool:
    """Tell whether an UPDATE puts what is ready, and nobody's, to work: by words, or by the mark of a worker where there was none."""
    asked = {test.column: test for test in conditions}
    for each in sets:
        test = asked.get(each.column)
        if test is None:
            continue
        if each.value_kind == "constant" and each.value.lower() in AT_WORK and test.operator in ("=", "in"):
            return bool(test.values) and {one.lower() for one in test.values} <= READY
        if test.operator == "is null" and each.value_kind != "null" and marks_worker(each.column):
            return True
    return False


def _composite_key(conditions: tuple[Condition, ...], sets: tuple[Assignment, ...]) -> bool:
    """Tell whether equalities on several unchanged columns pin a row, as ``(task_name, task_instance)``
    does."""
    changed = {each.column for each in sets}
    if any(test.operator not in ("=", "in", "is true", "is false", "is null") for test in conditions):
        return False
    equal = {
        test.column
        for test in conditions
        if test.operator == "="
        and test.column not in changed
        and test.value_kind in ("constant", "parameter")
        and not tests_state(test)
    }
    return len(equal) > 1


def picks_extreme(level: Level) -> bool:
    """Tell whether a level is ``SELECT min(id)`` or ``max(id)`` without grouping: LIMIT 1 in other words."""
    if level.kind != "select":
        return False
    targets: tuple[Any, ...] = level.node.targetList or ()
    return (
        not level.node.groupClause
        and len(targets) == 1
        and isinstance(targets[0].val, ast.FuncCall)
        and dotted(targets[0].val.funcname).removeprefix("pg_catalog.") in ("min", "max")
    )


def enclosing(level: Level) -> Iterator[Level]:
    """Yield the SELECTs whose LIMIT also bounds a level because they read nothing else than it."""
    at = level
    while (
        at.how == "from"
        and at.parent is not None
        and at.parent.kind == "select"
        and len(at.parent.items) == 1
    ):
        at = at.parent
        yield at


def _advisory_names(root: Any) -> Iterator[str]:
    for node in expression_nodes(root):
        if isinstance(node, ast.FuncCall):
            name = dotted(node.funcname).removeprefix("pg_catalog.")
            if name in ADVISORY_LOCKS:
                yield name


_PAST = re.compile(
    r"lease|heart_?beat|lock(?:ed)?_?(?:at|until)|expire|claimed_?at|started_?at|deadline"
    r"|finished|completed|created|updated|processed|done_?at|ended|sent_?(?:at|on)|delivered|archived",
    re.IGNORECASE,
)


def _next_in_line(level: Level) -> bool:
    """Tell whether a search asks for the next row, one or in an order, rather than for whatever it finds."""
    kind, limit = limit_of(level.limit)
    return limit == 1 or (kind == "parameter" and bool(level.sort or level.how == "expr"))


def _overdue(conditions: tuple[Condition, ...]) -> bool:
    """Tell whether a search asks for old rows by a sign of life or an end: a reaper's or a pruning's."""
    return any(
        test.operator in ("<", "<=") and test.column is not None and _PAST.search(test.column)
        for test in conditions
    )


def _joins(levels: list[Level], taken: Item) -> tuple[TableName, ...]:
    tables = [
        item.table for level in levels for item in level.items if item.table is not None and item is not taken
    ]
    return tuple(dict.fromkeys(tables))
