"""What the DDL in .sql files says about tables: columns, keys, indexes and foreign keys, as they stand after the last statement. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Any, Final

from pgqdoctor.lint.sources import Source
from pgqdoctor.sqlfacts import Condition, TableName
from pgqdoctor.sqlrewrite import quote_ident
from pgqdoctor.sqltext import Piece, Unparsable, parse, split

_SERIAL: Final = {
    "serial": "int4",
    "serial4": "int4",
    "bigserial": "int8",
    "serial8": "int8",
    "smallserial": "int2",
    "serial2": "int2",
}
_SPELLED: Final = {"integer": "int4", "int": "int4", "bigint": "int8", "smallint": "int2"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    """One column. ``type`` is PostgreSQL's internal name where it has one (int4); ``generated`` tells that numbers count up."""

    name: str
    type: str
    counts: bool
    source: Source
    offset: int


@dataclass(frozen=True, slots=True, kw_only=True)
class IndexKey:
    """One key of an index: a column, or None for an expression."""

    column: str | None
    descending: bool
    nulls_first: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Index:
    """One index. ``predicate`` is None without one; ``conditions`` are its conjuncts, None where they could not be read."""

    name: str
    keys: tuple[IndexKey, ...]
    predicate: str | None
    conditions: tuple[Condition, ...] | None
    method: str
    spelled: tuple[str, ...]
    """Each key in one spelling: column or expression, collation, operator class, order."""
    rest: tuple[str, ...]
    """What else tells indexes on the same keys apart, in one spelling: INCLUDE columns, how NULLs are told apart, the predicate."""
    unique: bool
    constraint: bool
    source: Source
    offset: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ForeignKey:
    """One foreign key of ``child`` to ``parent``; ``columns`` are those of the child."""

    child: TableName
    parent: TableName
    columns: tuple[str, ...]
    source: Source
    offset: int


@dataclass(slots=True, kw_only=True)
class Table:
    """One table that the files create."""

    name: TableName
    source: Source
    offset: int
    columns: dict[str, Column] = field(default_factory=dict)
    primary: tuple[str, ...] = ()
    indexes: list[Index] = field(default_factory=list)
    whole: bool = True
    """False where part of it is not in the files, so that an index may exist which is not seen."""


@dataclass(slots=True, kw_only=True)
class Schema:
    """The tables and foreign keys of all files."""

    tables: list[Table] = field(default_factory=list)
    foreign_keys: list[ForeignKey] = field(default_factory=list)

    def table(self, name: TableName) -> Table | None:
        """Return the table that a name means, None where the files do not create it or several may be meant."""
        found = [one for one in self.tables if _same(one.name, name)]
        return found[0] if len(found) == 1 else None


def _same(one: TableName, other: TableName) -> bool:
    return one.name == other.name and (
        one.schema is None or other.schema is None or one.schema == other.schema
    )


def read_definitions(definitions: Iterable[tuple[str, Source, int]]) -> Schema:
    """Follow DDL statements, given as (text, source, offset), in the order of the files."""
    schema = Schema()
    for text, source, offset in definitions:
        try:
            for piece in split(text):
                _follow(schema, parse(piece).stmt, piece, source, offset)
        except (Unparsable, RecursionError):
            continue
    return schema


def _follow(schema: Schema, node: Any, piece: Piece, source: Source, offset: int) -> None:
    from pglast import ast, enums

    text = piece.text
    if isinstance(node, ast.CreateStmt):
        _create(schema, node, text, source, offset)
    elif isinstance(node, ast.AlterTableStmt):
        table = schema.table(_name(node.relation))
        for command in node.cmds or ():
            _alter(schema, table, _name(node.relation), command, text, source, offset)
    elif isinstance(node, ast.IndexStmt):
        table = schema.table(_name(node.relation))
        # A name that is taken: the statement changes nothing (IF NOT EXISTS), or belongs to another state of the schema.
        taken = node.idxname and any(
            one.name == node.idxname for other in schema.tables for one in other.indexes
        )
        if table is not None and not taken:
            table.indexes.append(_index(node, _predicate(piece), source, offset))
    elif isinstance(node, ast.DropStmt):
        for one in node.objects or ():
            _drop(
                schema,
                node.removeType,
                tuple(str(part.sval) for part in one) if isinstance(one, tuple) else (),
            )
    elif isinstance(node, (ast.RenameStmt, ast.AlterObjectSchemaStmt)):
        if node.relation is None:
            return
        table = schema.table(_name(node.relation))
        renamed = getattr(node, "renameType", None)
        if renamed == enums.ObjectType.OBJECT_INDEX:
            for each in schema.tables:
                each.indexes[:] = [
                    replace(one, name=str(getattr(node, "newname", "")))
                    if one.name == node.relation.relname
                    else one
                    for one in each.indexes
                ]
            return
        if table is not None and renamed == enums.ObjectType.OBJECT_TABLE:
            table.name = TableName(schema=table.name.schema, name=str(getattr(node, "newname", "")))
        elif table is not None:
            table.whole = False
    elif isinstance(node, ast.CreateTableAsStmt) and node.into is not None:
        name = _name(node.into.rel)
        schema.tables.append(Table(name=name, source=source, offset=offset, whole=False))


def _create(schema: Schema, node: Any, text: str, source: Source, offset: int) -> None:
    from pglast import ast

    name = _name(node.relation)
    if schema.table(name) is not None and node.if_not_exists:
        return
    table = Table(name=name, source=source, offset=offset)
    # A partition has the indexes of its parent; an inherited table has columns that are not written here.
    table.whole = not node.inhRelations and node.partbound is None
    for element in node.tableElts or ():
        if isinstance(element, ast.ColumnDef):
            _column(schema, table, element, text, source, offset)
        elif isinstance(element, ast.Constraint):
            _constraint(schema, table, name, element, (), text, source, offset)
        else:
            table.whole = False
    schema.tables.append(table)


def _column(schema: Schema, table: Table, node: Any, text: str, source: Source, offset: int) -> None:
    from pglast import ast, enums

    names = [str(one.sval) for one in node.typeName.names or ()] if node.typeName is not None else [""]
    kind = names[-1].lower()
    counts = kind in _SERIAL
    for constraint in node.constraints or ():
        if constraint.contype == enums.ConstrType.CONSTR_IDENTITY:
            counts = True
        elif constraint.contype == enums.ConstrType.CONSTR_DEFAULT and isinstance(
            constraint.raw_expr, ast.FuncCall
        ):
            counts = counts or _called(constraint.raw_expr) == "nextval"
        _constraint(schema, table, table.name, constraint, (node.colname,), text, source, offset)
    table.columns[node.colname] = Column(
        name=node.colname,
        type=_SERIAL.get(kind, _SPELLED.get(kind, kind)),
        counts=counts,
        source=source,
        offset=offset + _characters(text, node.location),
    )


def _called(node: Any) -> str:
    """Return the name of the function that an expression calls, "" where it is no call."""
    names = getattr(node, "funcname", None) or ()
    return str(names[-1].sval) if names else ""


def _characters(text: str, location: int | None) -> int:
    """The parser counts bytes; a place counts characters."""
    if location is None or location < 0:
        return 0
    return len(text.encode("utf-8", "surrogatepass")[:location].decode("utf-8", "ignore"))


def _constraint(
    schema: Schema,
    table: Table | None,
    name: TableName,
    node: Any,
    columns: tuple[str, ...],
    text: str,
    source: Source,
    offset: int,
) -> None:
    from pglast import enums

    kinds = enums.ConstrType
    keys = tuple(str(one.sval) for one in node.keys or ()) or columns
    if node.contype in (kinds.CONSTR_PRIMARY, kinds.CONSTR_UNIQUE) and table is not None:
        if node.contype == kinds.CONSTR_PRIMARY:
            table.primary = keys
        if node.indexname is None:
            ascending = tuple(IndexKey(column=one, descending=False, nulls_first=False) for one in keys)
            table.indexes.append(
                Index(
                    name=node.conname or "",
                    keys=ascending,
                    predicate=None,
                    conditions=(),
                    method="btree",
                    spelled=tuple(quote_ident(one) for one in keys),
                    rest=(
                        ", ".join(str(one.sval) for one in node.including or ()),
                        "nulls not distinct" if node.nulls_not_distinct else "",
                        "",
                    ),
                    unique=True,
                    constraint=True,
                    source=source,
                    offset=offset + _characters(text, node.location),
                )
            )
    elif node.contype == kinds.CONSTR_FOREIGN and node.pktable is not None:
        own = tuple(str(one.sval) for one in node.fk_attrs or ()) or columns
        schema.foreign_keys.append(
            ForeignKey(
                child=name,
                parent=_name(node.pktable),
                columns=own,
                source=source,
                offset=offset + _characters(text, node.location),
            )
        )


def _alter(
    schema: Schema, table: Table | None, name: TableName, command: Any, text: str, source: Source, offset: int
) -> None:
    from pglast import enums

    kinds = enums.AlterTableType
    if command.subtype == kinds.AT_AddConstraint:
        _constraint(schema, table, name, command.def_, (), text, source, offset)
        return
    if table is None:
        return
    column = table.columns.get(command.name or "")
    if command.subtype == kinds.AT_AddColumn:
        _column(schema, table, command.def_, text, source, offset)
    elif command.subtype == kinds.AT_DropColumn:
        table.columns.pop(command.name, None)
    elif command.subtype == kinds.AT_AlterColumnType and column is not None:
        kind = str(command.def_.typeName.names[-1].sval).lower()
        table.columns[column.name] = replace(column, type=_SPELLED.get(kind, kind))
    elif command.subtype == kinds.AT_AddIdentity and column is not None:
        table.columns[column.name] = replace(column, counts=True)
    elif command.subtype == kinds.AT_ColumnDefault and column is not None:
        table.columns[column.name] = replace(column, counts=_called(command.def_) == "nextval")
    elif command.subtype in (kinds.AT_AttachPartition, kinds.AT_AddInherit):
        table.whole = False


def _predicate(piece: Piece) -> str | None:
    """Return the predicate of a CREATE INDEX: its WHERE is the last clause. None without one."""
    depth, start = 0, None
    for token in piece.tokens:
        if token.name in ("ASCII_40", "ASCII_91"):
            depth += 1
        elif token.name in ("ASCII_41", "ASCII_93"):
            depth -= 1
        elif token.name == "WHERE" and not depth:
            start = token.end + 1 - piece.offset
    return piece.text[start:].strip() if start is not None else None


def _index(node: Any, predicate: str | None, source: Source, offset: int) -> Index:
    from pglast import enums
    from pglast.stream import RawStream

    from pgqdoctor.sqlread import read_predicate

    def written(part: Any) -> str:
        return str(RawStream()(part)) if part is not None else ""

    def names(parts: Any) -> str:
        return ".".join(str(one.sval) for one in parts or ())

    keys, spelled = [], []
    for one in node.indexParams or ():
        descending = one.ordering == enums.SortByDir.SORTBY_DESC
        nulls = one.nulls_ordering
        first = (
            descending
            if nulls == enums.SortByNulls.SORTBY_NULLS_DEFAULT
            else nulls == enums.SortByNulls.SORTBY_NULLS_FIRST
        )
        keys.append(IndexKey(column=one.name, descending=descending, nulls_first=first))
        words = (
            quote_ident(one.name) if one.name else f"({written(one.expr)})",
            f"COLLATE {names(one.collation)}" if one.collation else "",
            names(one.opclass),
            f"({', '.join(written(each) for each in one.opclassopts)})" if one.opclassopts else "",
            "DESC" if descending else "",
            ("NULLS FIRST" if first else "NULLS LAST") if first != descending else "",
        )
        spelled.append(" ".join(word for word in words if word))
    return Index(
        name=node.idxname or "",
        keys=tuple(keys),
        predicate=predicate,
        conditions=() if predicate is None else read_predicate(predicate),
        method=node.accessMethod or "btree",
        spelled=tuple(spelled),
        rest=(
            ", ".join(str(one.name or written(one.expr)) for one in node.indexIncludingParams or ()),
            "nulls not distinct" if node.nulls_not_distinct else "",
            written(node.whereClause),
        ),
        unique=bool(node.unique),
        constraint=False,
        source=source,
        offset=offset,
    )


def _drop(schema: Schema, kind: Any, parts: tuple[str, ...]) -> None:
    from pglast import enums

    if not parts:
        return
    if kind == enums.ObjectType.OBJECT_INDEX:
        for table in schema.tables:
            table.indexes[:] = [one for one in table.indexes if one.name != parts[-1]]
    elif kind == enums.ObjectType.OBJECT_TABLE:
        name = TableName(schema=parts[-2] if len(parts) > 1 else None, name=parts[-1])
        schema.tables[:] = [one for one in schema.tables if not _same(one.name, name)]
        schema.foreign_keys[:] = [one for one in schema.foreign_keys if not _same(one.child, name)]


def _name(relation: Any) -> TableName:
    return TableName(schema=relation.schemaname, name=relation.relname)
