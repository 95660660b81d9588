"""What speaks for each table, gathered before any is judged: statements, claims and functions that name it. Pure."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from pgqdoctor.discovery.seen import SeenText, body_of
from pgqdoctor.names import Names, columns_used
from pgqdoctor.observation import Catalog
from pgqdoctor.readiness import own_conditions
from pgqdoctor.rows import FunctionRow
from pgqdoctor.sqlfacts import Claim, FunctionBody, Statement

SeenClaim = tuple[SeenText, Statement, Claim]
"""A text, one statement of it, and a claim that this statement makes."""
ClaimingFunction = tuple[FunctionRow, FunctionBody, Claim, Statement]
"""A function, the facts of its body, and a claim there with its statement."""


@dataclass(slots=True)
class Signs:
    """What speaks for one table, gathered before it is judged."""

    claims: list[SeenClaim] = field(default_factory=list)
    statements: list[tuple[SeenText, Statement]] = field(default_factory=list)
    functions: list[ClaimingFunction] = field(default_factory=list)
    inside: list[Statement] = field(default_factory=list)
    """Statements in the bodies of functions that write to the table."""


def gathered(catalog: Catalog, names: Names, texts: Sequence[SeenText]) -> Mapping[int, Signs]:
    """Return the signs of each table by its oid; a partition's are those of the table it belongs to."""
    signs: dict[int, Signs] = defaultdict(Signs)
    for text in texts:
        for statement in text.read().statements:
            for name, columns in columns_used(statement).items():
                for row in names.resolve(name, columns):
                    root = names.root(row).oid
                    signs[root].statements.append((text, statement))
                    signs[root].claims.extend(
                        (text, statement, own_conditions(claim))
                        for claim in statement.claims
                        if claim.table == name
                    )
    for function in catalog.functions:
        body = body_of(function)
        for statement in body.statements:
            for written in dict.fromkeys(write.table for write in statement.writes):
                for row in names.resolve(written, columns_used(statement).get(written, set())):
                    signs[names.root(row).oid].inside.append(statement)
            for claim in statement.claims:
                columns = columns_used(statement).get(claim.table, set())
                for row in names.resolve(claim.table, columns):
                    signs[names.root(row).oid].functions.append(
                        (function, body, own_conditions(claim), statement)
                    )
    return signs


def called_functions(texts: Iterable[SeenText]) -> Counter[str]:
    """Count the statements that call each function, by its name without the schema."""
    return Counter(
        name.rpartition(".")[2]
        for text in texts
        for statement in text.read().statements
        for name in statement.functions
    )
