"""A big server made up from a recorded one: many queues, many sessions at their statements."""

from __future__ import annotations

from dataclasses import replace

from pgqdoctor.observation import Observation, Sample, SampledSession
from tests.tui.staged import frame_staged

STEP = 1_000_000
"""Distance between the oids of one copy of a queue and the next."""
WAITS = (
    (None, None),
    ("LWLock", "MultiXactMemberBuffer"),
    ("LWLock", "SubtransSLRU"),
    ("Lock", "transactionid"),
    ("LWLock", "BufferContent"),
    ("IO", "DataFileRead"),
    ("LWLock", "WALWrite"),
)


def crowd(*, sessions: int = 500, queues: int = 20, samples: int = 100) -> Observation:
    """The recorded queue ``queues`` times, and ``sessions`` active sessions in every sample and reading."""
    seen = frame_staged("idle-snapshot").observation
    oid = seen.queues[0].oid
    name, schema = seen.queues[0].table, seen.queues[0].schema

    def moved(number: int, copy: int) -> int:
        return number + copy * STEP

    def named(text: str, copy: int) -> str:
        return text.replace(name, f"{name}_{copy}") if copy else text

    catalog = seen.catalog
    copies = range(queues)
    tables = tuple(
        replace(row, oid=moved(row.oid, copy), name=named(row.name, copy))
        for copy in copies
        for row in catalog.tables
    )
    columns = tuple(replace(row, table=moved(row.table, copy)) for copy in copies for row in catalog.columns)
    indexes = tuple(
        replace(
            row,
            oid=moved(row.oid, copy),
            table=moved(row.table, copy),
            name=named(row.name, copy),
            definition=named(row.definition or "", copy),
        )
        for copy in copies
        for row in catalog.indexes
    )
    texts = tuple(
        replace(
            row,
            key=f"{row.key}-{copy}",
            query_id=(row.query_id or 0) + copy,
            text=named(row.text, copy) if row.text is not None else None,
        )
        for copy in copies
        for row in seen.statement_texts
    )
    identity = seen.queues[0]
    probe = seen.probe_of(oid)
    assert probe is not None
    ids = [row.query_id for row in texts]
    rows = tuple(
        replace(
            seen.last.sessions[0],
            pid=10_000 + number,
            application=f"worker-{number % 40}",
            query=named(identity.claim_sql or "", number % queues),
            query_id=ids[number % len(ids)],
        )
        for number in range(sessions)
    )
    sampled = tuple(
        SampledSession(
            pid=10_000 + number,
            state="active",
            wait_type=WAITS[number % len(WAITS)][0],
            wait_event=WAITS[number % len(WAITS)][1],
            xid_age=None,
            xmin_age=3,
            xact_age_s=0.01,
            query_age_s=0.01,
            state_age_s=0.01,
            text=number % max(len(seen.texts), 1) if seen.texts else -1,
            query_id=ids[number % len(ids)],
            application=f"worker-{number % 40}",
        )
        for number in range(sessions)
    )
    span = seen.last.at - seen.first.at
    first, last = (
        replace(
            reading,
            tables=tuple(replace(row, oid=moved(row.oid, copy)) for copy in copies for row in reading.tables),
            indexes=tuple(
                replace(row, oid=moved(row.oid, copy)) for copy in copies for row in reading.indexes
            ),
            statements=tuple(
                replace(row, key=f"{row.key}-{copy}") for copy in copies for row in reading.statements
            ),
            sessions=rows,
        )
        for reading in (seen.first, seen.last)
    )
    return replace(
        seen,
        catalog=replace(catalog, tables=tables, columns=columns, indexes=indexes),
        statement_texts=texts,
        first=first,
        last=last,
        samples=tuple(
            Sample(at=seen.first.at + span * (number + 1) / samples, sessions=sampled)
            for number in range(samples)
        ),
        queues=tuple(
            replace(
                identity,
                oid=moved(oid, copy),
                table=named(name, copy),
                name=f"{schema}.{named(name, copy)}",
                claim_keys=tuple(f"{key}-{copy}" for key in identity.claim_keys),
                claim_sql=named(identity.claim_sql or "", copy),
            )
            for copy in copies
        ),
        probes=tuple(replace(probe, oid=moved(oid, copy)) for copy in copies),
    )
