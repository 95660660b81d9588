"""How long until an id counter stops the server: shared by the checks of transaction ids and MultiXactIds.

Both counters are 32 bits wide and compare modulo 2^32, so at most half of it, 2^31, may lie between the oldest id still in use and the
newest. varsup.c and multixact.c refuse new ids three million before that.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Annotated, Final

from pgqdoctor import forecast, remedy
from pgqdoctor.finding import Evidence, Remedy, Severity
from pgqdoctor.forecast import Forecast
from pgqdoctor.rows import TableRow
from pgqdoctor.words import count

STOP_AGE: Final = 2**31 - 3_000_000
"""Age in ids at which the server assigns no more (xidStopLimit, multiStopLimit)."""
FAILSAFE_AGE: Final = 1_600_000_000
"""Default of vacuum_failsafe_age and vacuum_multixact_failsafe_age."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TimeLeft:
    """How much time must be left, once the forced vacuum is overdue (or, of MultiXacts, half of the member space is used)."""

    critical_s: Annotated[float, "seconds left at the present rate: less than a day is an emergency"] = (
        86_400.0
    )
    warning_s: Annotated[
        float, "seconds left at the present rate: two weeks, in which large tables can be vacuumed"
    ] = 1_209_600.0

    def severity(self, coming: Forecast | None) -> Severity:
        """Judge a forecast: what is not in sight is worth a notice."""
        if coming is None or coming.seconds is None or coming.seconds >= self.warning_s:
            return "notice"
        return "critical" if coming.seconds < self.critical_s else "warning"


@dataclass(frozen=True, slots=True, kw_only=True)
class Countdown:
    """The age of the oldest id, how fast it grows (per second) and where autovacuum was to have stepped in.

    ``unit`` is what is counted, ``source`` where the age was read, ``setting`` the name of the limit.
    """

    age: int
    per_second: float
    forced_at: int
    """autovacuum_freeze_max_age or its MultiXact kin: vacuum is forced from this age on."""
    what: str
    unit: str
    source: str
    setting: str

    @property
    def late(self) -> bool:
        """True where the forced vacuum is overdue: it had a tenth of its limit's time to finish."""
        return self.age * 10 >= self.forced_at * 11

    @property
    def coming(self) -> Forecast | None:
        """When the server assigns no more ids, None where none are used now or the end is out of sight."""
        return forecast.exhausted(
            what=f"the range of {self.unit}",
            used=self.age,
            limit=STOP_AGE,
            per_second=self.per_second,
            unit=self.unit,
        )

    def severity(self, limits: TimeLeft) -> Severity | None:
        """Judge by the time left, once the forced vacuum is overdue: before that, age means nothing."""
        if not self.late:
            return None
        return "critical" if self.age >= FAILSAFE_AGE else limits.severity(self.coming)

    def evidence(self) -> Iterator[Evidence]:
        """Yield the age and the limit it has passed."""
        yield Evidence(
            what=f"age of the oldest {self.what}", value=self.age, unit=self.unit, source=self.source
        )
        yield Evidence(
            what="vacuum is forced from", value=self.forced_at, unit=self.unit, source=self.setting
        )

    def title(self, database: str) -> str:
        """Return what has passed which limit; a forecast may follow."""
        return (
            f"The oldest {self.what} of database {database} is {count(self.age)} {self.unit} old, beyond the {count(self.forced_at)} at "
            "which vacuum is forced"
        )


def evidence_of(coming: Forecast | None) -> tuple[Evidence, ...]:
    """Return the time left and how it was computed, nothing where no end is in sight."""
    return forecast.evidence("time left at this rate", coming)


def ending(coming: Forecast | None) -> str:
    """Return the end of a title, "" where no end is in sight."""
    return "" if coming is None else f"; if it goes on, {coming.what}"


def vacuum_oldest(
    tables: Iterable[TableRow],
    age_of: Callable[[TableRow], int | None],
    *,
    database_age: int,
    function: str,
    column: str,
    settings: tuple[str, ...],
    title: str,
    risk: str,
) -> Iterator[Remedy]:
    """Vacuum the oldest table of the database by ``age_of``, where the catalog read holds it; else say how to find it.

    ``function(database column)`` and ``function(c.column)`` give the ages; ``settings`` stand before the VACUUM.
    """
    oldest, age = max(
        ((row, age) for row in tables if row.kind == "r" and (age := age_of(row)) is not None),
        key=lambda one: one[1],
        default=(None, 0),
    )
    falls = f"{function}({'datfrozenxid' if function == 'age' else 'datminmxid'}) falls"
    # The toast table of a table, which is not read, may be a little older than the table itself.
    if oldest is not None and age >= 0.95 * database_age:
        name = remedy.qualified(oldest.schema, oldest.name)
        yield remedy.statement(
            sql=(*settings, f"VACUUM (VERBOSE, INDEX_CLEANUP off, TRUNCATE off) {name};"),
            title=title.format(name),
            expect=f"{falls} to the age of the next oldest table",
            risk=risk,
            lock="SHARE UPDATE EXCLUSIVE",
        )
        return
    yield remedy.statement(
        sql=(
            "SELECT format('VACUUM (VERBOSE, INDEX_CLEANUP off, TRUNCATE off) %I.%I;', n.nspname, c.relname), "
            f"{function}(c.{column}) FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace "
            f"WHERE c.relkind IN ('r', 'm', 't') ORDER BY {function}(c.{column}) DESC LIMIT 5;",
        ),
        title="List the tables that are oldest with the VACUUM of each, and run those from the top",
        expect=f"{falls} with each one that finishes",
        risk="each VACUUM reads its whole table, and writes what it freezes",
    )
