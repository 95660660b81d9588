"""What a known framework's signature tells of its tables, beyond what statements show. Pure."""

from __future__ import annotations

from dataclasses import replace

from pgqdoctor.discovery.states import StateNames
from pgqdoctor.frameworks import Signature, signature_of
from pgqdoctor.observation import Catalog, QueueIdentity
from pgqdoctor.rows import TableRow


def framework_states(states: StateNames, signature: Signature) -> StateNames:
    """Return the states as the framework names them, where no claim told which are ready."""
    return replace(
        states,
        ready=states.ready if states.ready_from == "claim" or not signature.waiting else signature.waiting,
        running=signature.running or states.running,
    )


def framework_functions(signature: Signature, row: TableRow, catalog: Catalog) -> list[int]:
    """Return the oids of the functions by which the framework claims, which stand beside its table."""
    return [
        one.oid for one in catalog.functions if one.name in signature.functions and one.schema == row.schema
    ]


def without_helpers(found: list[QueueIdentity], catalog: Catalog) -> list[QueueIdentity]:
    """Leave out a framework's side tables (schedules, logs, counters): claimed like a queue, they are none."""
    own = []
    for one in found:
        names = frozenset(column.name for column in catalog.columns_of(one.oid))
        signature = signature_of(one.table, names) if one.framework is not None else None
        if signature is not None:
            own.append((one.schema, signature))

    def helps(one: QueueIdentity) -> bool:
        if one.framework is not None or "named by --queue" in one.recognised_by:
            return False
        return any(one.schema == schema and signature.is_helper(one.table) for schema, signature in own)

    return [one for one in found if not helps(one)]
