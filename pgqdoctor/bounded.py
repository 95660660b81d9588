"""The bounded one-time looks at one queue: sizes, ready jobs, claimed jobs and the claim's plan.

Which look is taken, in which order, and which are left out where a lock, a missing right or row security stands before
them. Every look survives the failure of the others: what it could not see is a lack.
"""

from __future__ import annotations

from dataclasses import replace

from pgqdoctor.connect import Link, Session, quote
from pgqdoctor.discovery.seen import SeenText
from pgqdoctor.looks.jobs import claimed_jobs, job_states, ready_jobs, tried_jobs
from pgqdoctor.looks.look import Budget, QueueLook
from pgqdoctor.looks.plans import claim_plans
from pgqdoctor.looks.served import served_jobs
from pgqdoctor.looks.space import measured_space, sizes
from pgqdoctor.observation import Catalog, Lack, QueueIdentity, QueueProbe


def probe_queue(
    session: Session,
    link: Link,
    catalog: Catalog,
    identity: QueueIdentity,
    texts: tuple[SeenText, ...],
    *,
    explain: str,
    locked: frozenset[int],
    budget: Budget,
) -> QueueProbe:
    """Take the bounded looks at one queue."""
    look = QueueLook(session, link, catalog, identity, budget)
    found = _nothing(identity)
    leaves = {leaf.oid for leaf in catalog.partitions_of(identity.oid)}
    if (leaves | {identity.oid}) & locked:
        for what in ("plan", "rows", "sizes"):
            look.lack(what, f"{identity.name} is behind an exclusive lock")
        return replace(found, lacks=look.lacks)
    found = _space(look, found, tuple(sorted(leaves | {identity.oid})))
    row = catalog.table(identity.oid)
    if row is not None and not row.may_select and not link.server.superuser:
        grant = f"GRANT SELECT ON {identity.name} TO {quote(link.server.role)}"
        for what in ("plan", "rows"):
            look.lack(what, f"the role may not read {identity.name}", grant)
        return replace(found, lacks=look.lacks)
    if row is not None and row.row_security and not link.server.superuser:
        look.lack("rows", f"row security of {identity.name} may hide rows and call functions")
    else:
        found = _jobs(look, found, texts)
    plans = claim_plans(look, texts, explain)
    return replace(found, plans=plans.plans, whole_plans=plans.whole, lacks=look.lacks)


def _space(look: QueueLook, found: QueueProbe, oids: tuple[int, ...]) -> QueueProbe:
    read = sizes(look, oids)
    return replace(
        found,
        table_bytes=read.table,
        index_bytes=read.indexes,
        toast_bytes=read.toast,
        index_sizes=read.by_index,
        measured=measured_space(look, oids),
    )


def _jobs(look: QueueLook, found: QueueProbe, texts: tuple[SeenText, ...]) -> QueueProbe:
    ready = ready_jobs(look)
    return replace(
        found,
        ready_rows=ready.rows,
        ready_exact=ready.exact,
        oldest_ready_age_s=ready.oldest_age_s,
        states=job_states(look),
        stuck=claimed_jobs(look),
        attempts=tried_jobs(look),
        served=served_jobs(look, texts, ready.oldest_age_s),
    )


def unseen(identity: QueueIdentity, reason: str) -> QueueProbe:
    """Return what is known of a queue that could not be looked at: why."""
    lacks = tuple(Lack(what=what, reason=reason, queue=identity.name) for what in ("plan", "rows", "sizes"))
    return replace(_nothing(identity), lacks=lacks)


def _nothing(identity: QueueIdentity) -> QueueProbe:
    return QueueProbe(
        oid=identity.oid,
        table_bytes=None,
        index_bytes=None,
        toast_bytes=None,
        index_sizes=(),
        ready_rows=None,
        ready_exact=False,
        oldest_ready_age_s=None,
        states=(),
        stuck=(),
        plans=(),
    )
