"""The table that an experiment works on: the lab's generic queue, or a copy of a live one's definition."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from pgqdoctor.errors import USAGE, PgqdoctorError
from pgqdoctor.lab.ground import Connection, one_value, run_sql

NONE: Final = "none"
"""The index form without any index but those that constraints need."""
PARTIAL: Final = "partial"
"""The index form with one index on the ready jobs alone, in the order of the claim."""
OWN: Final = "own"
"""The index form of a copied table as it is."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Subject:
    """A queue table as SQL, its names quoted.

    ``forms`` are the sets of indexes to compare, each a tuple of CREATE INDEX. ``fill`` adds ``{jobs}`` ready jobs;
    ``others`` adds the rows of other states that a live table has beside so many ready ones, "" for none.
    ``taken`` is what a claim sets, ``order`` the claim's order, ``key`` the column that names a job.
    """

    title: str
    table: str
    create: tuple[str, ...]
    forms: Mapping[str, tuple[str, ...]]
    fill: str
    key: str
    ready: str
    order: str
    taken: str
    others: str = ""
    no_key: str = "0"
    """A value of the key's type that no job has."""
    fillfactor: int = 100
    notes: tuple[str, ...] = ()
    """What a copy lacks, in sentences."""

    @property
    def head(self) -> str:
        """The query for the next job; a locking clause may follow."""
        return f"SELECT {self.key} FROM {self.table} WHERE {self.ready} ORDER BY {self.order} LIMIT 1"

    @property
    def claim(self) -> str:
        """A sound claim, which returns the key."""
        return (
            f"UPDATE {self.table} SET {self.taken} WHERE {self.key} = ({self.head} FOR UPDATE SKIP LOCKED)"
            f" RETURNING {self.key}"
        )

    @property
    def own_form(self) -> str:
        """The indexes it has as it is."""
        return OWN if OWN in self.forms else NONE

    def claim_first(self, jobs: int) -> str:
        """One statement that claims the first ``jobs`` jobs."""
        return (
            f"UPDATE {self.table} SET {self.taken} WHERE {self.key} IN"
            f" (SELECT {self.key} FROM {self.table} WHERE {self.ready} ORDER BY {self.order} LIMIT {jobs})"
        )

    def delete_first(self, jobs: int) -> str:
        """One statement that deletes the first ``jobs`` jobs."""
        return (
            f"DELETE FROM {self.table} WHERE {self.key} IN"
            f" (SELECT {self.key} FROM {self.table} WHERE {self.ready} ORDER BY {self.order} LIMIT {jobs})"
        )

    @property
    def finish(self) -> str:
        """Deletes the claimed job: a pgbench script's line, the key in its variable ``job``."""
        return f"DELETE FROM {self.table} WHERE {self.key} = :job;\n"

    @property
    def enqueue(self) -> str:
        """Adds one ready job: a pgbench script's line."""
        return f"{self.fill.replace('{jobs}', '1')};\n"

    @property
    def life(self) -> str:
        """A pgbench script that claims and finishes one job and enqueues the next, so that the backlog stays.

        The variable ``job`` must be set to ``no_key`` before the first time.
        """
        return f"{as_job(self.claim, self.key)} \\aset\n{self.finish}{self.enqueue}"

    def scripts(self) -> Mapping[str, str]:
        """All that is run, by name."""
        return {
            "table": "".join(f"{one};\n" for one in (*self.create, self.fill, self.others) if one),
            **{
                f"indexes, {name}": "".join(f"{one};\n" for one in form)
                for name, form in self.forms.items()
                if form
            },
            "life of a job": self.life,
        }

    def make(self, connection: Connection, *, fillfactor: int, form: str, autovacuum: bool) -> None:
        """Create the table anew, empty, with the indexes of ``form``."""
        run_sql(connection, f"DROP TABLE IF EXISTS {self.table} CASCADE")
        for statement in self.create:
            run_sql(connection, statement)
        switch = "on" if autovacuum else "off"
        run_sql(
            connection,
            f"ALTER TABLE {self.table} SET (fillfactor = {fillfactor}, autovacuum_enabled = {switch})",
        )
        self.index(connection, form)

    def index(self, connection: Connection, form: str) -> None:
        """Create the indexes of ``form``."""
        self.require_form(form)
        for statement in self.forms[form]:
            run_sql(connection, statement)

    def require_form(self, form: str) -> None:
        """Raise PgqdoctorError (usage) where there is no such form of indexes."""
        if form not in self.forms:
            raise PgqdoctorError(
                f"{self.title} has no index form {form!r}",
                hint=f"Choose {', '.join(self.forms)}.",
                exit_code=USAGE,
            )

    def add_jobs(self, connection: Connection, jobs: int) -> None:
        """Add the rows of other states, then ``jobs`` ready jobs."""
        for text in (self.others, self.fill):
            if text:
                run_sql(connection, text.replace("{jobs}", str(jobs)))

    def indexes(self, connection: Connection) -> tuple[str, ...]:
        """The definitions of its indexes, without schema and table."""
        rows = connection.execute(
            "SELECT pg_get_indexdef(indexrelid) FROM pg_index"
            f" WHERE indrelid = '{_literal(self.table)}'::regclass ORDER BY indexrelid".encode()
        ).fetchall()
        return tuple(" ".join(str(row[0]).partition(" USING ")[2].split()) for row in rows)

    def entries(self, connection: Connection) -> tuple[int, int]:
        """How many indexes hold a ready job, and how many a claimed one; the claim is rolled back."""
        rows = connection.execute(
            "SELECT coalesce(pg_get_expr(indpred, indrelid), 'true') FROM pg_index"
            f" WHERE indrelid = '{_literal(self.table)}'::regclass".encode()
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
            if one_value(connection, self.claim) is None:
                return ready, 0
            # The claimed row is the one that this transaction wrote.
            return ready, held("xmin::text = (pg_current_xact_id()::text::bigint % 4294967296)::text")
        finally:
            run_sql(connection, "ROLLBACK")


def generic_subject() -> Subject:
    """The lab's own queue: a text state and 100 bytes of payload, claimed in the order of its key."""
    return Subject(
        title="the lab's generic queue",
        table="jobs",
        create=(
            "CREATE TABLE jobs (\n"
            "    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,\n"
            "    state text NOT NULL DEFAULT 'ready',\n"
            "    attempts integer NOT NULL DEFAULT 0,\n"
            "    worker integer,\n"
            "    claimed_at timestamptz,\n"
            "    payload text NOT NULL\n"
            ")",
        ),
        forms={
            NONE: (),
            PARTIAL: ("CREATE INDEX jobs_ready_idx ON jobs (id) WHERE state = 'ready'",),
            "state": ("CREATE INDEX jobs_state_idx ON jobs (state, id)",),
        },
        fill="INSERT INTO jobs (payload) SELECT repeat('x', 100) FROM generate_series(1, {jobs})",
        key="id",
        ready="state = 'ready'",
        order="id",
        taken="state = 'running', attempts = attempts + 1, worker = 1, claimed_at = now()",
    )


def as_job(claim: str, key: str) -> str:
    """A claim that ends in RETURNING ``key``, with the key named as pgbench's variable."""
    return f"{claim.removesuffix(key)}{key} AS job"


def regclass(subject: Subject) -> str:
    """The table as an SQL expression of type regclass."""
    return f"'{_literal(subject.table)}'::regclass"


def _literal(name: str) -> str:
    return name.replace("'", "''")
