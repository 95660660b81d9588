"""The table that ``lab triangle`` redesigns: the lab's generic queue, or a copy of a live one's definition."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from pgqdoctor.errors import USAGE, PgqdoctorError
from pgqdoctor.lab.ground import Connection, one_value, run_sql

NONE: Final = "none"
"""The index form without any index but those that constraints need."""
OWN: Final = "own"
"""The index form of a copied table as it is."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Subject:
    """A queue table and its life, as SQL.

    ``forms`` are the sets of indexes to compare, each a tuple of CREATE INDEX. ``fill`` has ``{jobs}`` ready jobs
    to add, ``claim_half`` has ``{half}``. ``claim`` returns the key; ``life`` is a pgbench script that claims and
    finishes one job and enqueues the next. ``notes`` say what a copy lacks.
    """

    title: str
    table: str
    create: tuple[str, ...]
    forms: Mapping[str, tuple[str, ...]]
    fill: str
    ready: str
    """Condition of a job that may be claimed."""
    claim: str
    claim_all: str
    claim_half: str
    life: str
    variables: Mapping[str, str] = field(default_factory=dict)
    fillfactor: int = 100
    """The table's own, where it is a copy."""
    notes: tuple[str, ...] = ()

    def fingerprint(self) -> str:
        """All that decides what is measured: two runs with the same one can be put together."""
        return "\n".join(
            (*self.create, *(sql for form in self.forms.values() for sql in form), self.fill, self.claim, self.life)
        )

    def make(self, connection: Connection, *, fillfactor: int, form: str, autovacuum: bool) -> None:
        """Create the table anew, empty, with the indexes of ``form``."""
        run_sql(connection, f"DROP TABLE IF EXISTS {self.table} CASCADE")
        for statement in self.create:
            run_sql(connection, statement)
        switch = "on" if autovacuum else "off"
        run_sql(
            connection, f"ALTER TABLE {self.table} SET (fillfactor = {fillfactor}, autovacuum_enabled = {switch})"
        )
        self.index(connection, form)

    def index(self, connection: Connection, form: str) -> None:
        """Create the indexes of ``form``."""
        if form not in self.forms:
            raise PgqdoctorError(
                f"{self.title} has no index form {form!r}",
                hint=f"Choose {', '.join(self.forms)}.",
                exit_code=USAGE,
            )
        for statement in self.forms[form]:
            run_sql(connection, statement)

    def add_jobs(self, connection: Connection, jobs: int) -> None:
        """Enqueue ``jobs`` ready jobs; a copy gets rows of its other states too."""
        run_sql(connection, self.fill.replace("{jobs}", str(jobs)))

    def indexes(self, connection: Connection) -> tuple[str, ...]:
        """The definitions of its indexes, without schema and table."""
        rows = connection.execute(
            "SELECT pg_get_indexdef(indexrelid) FROM pg_index"
            f" WHERE indrelid = '{self.table}'::regclass ORDER BY indexrelid".encode()
        ).fetchall()
        return tuple(" ".join(str(row[0]).partition(" USING ")[2].split()) for row in rows)

    def entries(self, connection: Connection) -> tuple[int, int]:
        """How many indexes hold a ready job, and how many a claimed one; the claim is rolled back."""
        rows = connection.execute(
            "SELECT coalesce(pg_get_expr(indpred, indrelid), 'true') FROM pg_index"
            f" WHERE indrelid = '{self.table}'::regclass".encode()
        ).fetchall()
        predicates = [str(row[0]) for row in rows]

        def held(condition: str) -> int:
            return sum(
                bool(
                    one_value(
                        connection,
                        f"SELECT coalesce(bool_or({predicate}), false)"
                        f" FROM (SELECT * FROM {self.table} WHERE {condition} LIMIT 1) AS one",
                    )
                )
                for predicate in predicates
            )

        ready = held(self.ready)
        run_sql(connection, "BEGIN")
        try:
            place = one_value(connection, f"WITH won AS ({self.claim}) SELECT won.* FROM won")
            if place is None:
                return ready, 0
            # The claimed row is the one that this transaction wrote.
            return ready, held("xmin::text = (pg_current_xact_id()::text::bigint % 4294967296)::text")
        finally:
            run_sql(connection, "ROLLBACK")


def generic_subject() -> Subject:
    """The lab's own queue: a text state and 100 bytes of payload, claimed in the order of its key."""
    head = "SELECT id FROM jobs WHERE state = 'ready' ORDER BY id LIMIT 1 FOR UPDATE SKIP LOCKED"
    taken = "state = 'running', attempts = attempts + 1, worker = 1, claimed_at = now()"
    fill = "INSERT INTO jobs (payload) SELECT repeat('x', 100) FROM generate_series(1, {jobs})"
    claim = f"UPDATE jobs SET {taken} WHERE id = ({head}) RETURNING id"
    return Subject(
        title="the lab's generic queue",
        table="jobs",
        create=(
            "CREATE TABLE jobs (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,"
            " state text NOT NULL DEFAULT 'ready', attempts integer NOT NULL DEFAULT 0, worker integer,"
            " claimed_at timestamptz, payload text NOT NULL)",
        ),
        forms={
            NONE: (),
            "partial": ("CREATE INDEX jobs_ready_idx ON jobs (id) WHERE state = 'ready'",),
            "state": ("CREATE INDEX jobs_state_idx ON jobs (state, id)",),
        },
        fill=fill,
        ready="state = 'ready'",
        claim=claim,
        claim_all=f"UPDATE jobs SET {taken} WHERE state = 'ready'",
        claim_half=f"UPDATE jobs SET {taken} WHERE id <= {{half}}",
        life=f"{claim} \\aset\nDELETE FROM jobs WHERE id = :id;\n{fill.replace('{jobs}', '1')};\n",
        variables={"id": "0"},
    )

