"""How long until an id counter stops the server: shared by the checks of transaction ids and MultiXactIds.

Both counters are 32 bits wide and compare modulo 2^32, so at most half of it, 2^31, may lie between the oldest id still in use and the
newest. varsup.c and multixact.c refuse new ids three million before that.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from pgqdoctor.finding import Severity

STOP_AGE: Final = 2**31 - 3_000_000
"""Age in ids at which the server assigns no more (xidStopLimit, multiStopLimit)."""
FAILSAFE_AGE: Final = 1_600_000_000
"""Default of vacuum_failsafe_age and vacuum_multixact_failsafe_age."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Countdown:
    """The age of the oldest id, how fast it grows (per second) and where autovacuum was to have stepped in."""

    age: int
    per_second: float
    forced_at: int
    """autovacuum_freeze_max_age or its MultiXact kin: vacuum is forced from this age on."""

    @property
    def late(self) -> bool:
        """True where the forced vacuum is overdue: it had a tenth of its limit's time to finish."""
        return self.age * 10 >= self.forced_at * 11

    @property
    def left_s(self) -> float | None:
        """Seconds until the server assigns no more ids, None where none are used now."""
        return max(STOP_AGE - self.age, 0) / self.per_second if self.per_second > 0 else None

    def severity(self, critical_s: float, warning_s: float) -> Severity | None:
        """Judge by the time left, once the forced vacuum is overdue: before that, age means nothing."""
        if not self.late:
            return None
        left = self.left_s
        if self.age >= FAILSAFE_AGE or (left is not None and left < critical_s):
            return "critical"
        if left is not None and left < warning_s:
            return "warning"
        return "notice"
