"""Durations of leases, which count from the moment at which a take has its tasks, not from its decision."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from tubeq_spark.model.states import due
from tubeq_spark.model.times import US, plus

#: A lease is extended by the expected duration of the commit beyond the ttr divided by this.
UNNOTICED: Final = 8
#: A consumer gets at least this share of the ttr; otherwise the lease is renewed first.
_MOST = (3, 4)
#: The longest extension of a lease, in microseconds. Slower takes renew their leases.
_LONGEST = 300 * US


@dataclass(frozen=True, slots=True)
class NewLease:
    """The leases that one statement begins.

    Attributes:
        owner: The session and epoch that will hold them.
        at_us: The moment of the decision, in microseconds.
        headroom_us: The expected duration of the commit, in microseconds.
    """

    owner: str
    at_us: int
    headroom_us: int = 0

    def end(self, ttr_us: int | None) -> int | None:
        """The end of a lease; `None` is never. `storage.tables.predicates` has the same as an expression."""
        if ttr_us is None:
            return None
        return plus(self.at_us, max(ttr_us, ttr_us - ttr_us // UNNOTICED + self.headroom_us))


def is_mostly_left(next_event_us: int | None, ttr_us: int | None, now_us: int) -> bool:
    """Whether most of the ttr is left in a lease."""
    if next_event_us is None or ttr_us is None:
        return True
    part, whole = _MOST
    return not due(next_event_us, now_us) and (next_event_us - now_us) * whole >= ttr_us * part


class Headroom:
    """The durations of the takes of one tube, by the queue's clock."""

    def __init__(self) -> None:
        """Begin without a measured take."""
        self._last_us = self._before_us = 0

    def took(self, duration_us: int) -> None:
        """Record the time from a take's decision until it has the tasks."""
        self._before_us, self._last_us = self._last_us, max(0, duration_us)

    def renewed(self, duration_us: int) -> None:
        """Record the time for renewing the leases of the last take, if it is longer than that of the take."""
        self._last_us = max(self._last_us, duration_us)

    @property
    def expected_us(self) -> int:
        """The expected time of the next take: the shorter of the last two."""
        return min(self._last_us, self._before_us, _LONGEST)

    @property
    def last_us(self) -> int:
        """The time of the last take, for a step that follows it at once."""
        return min(self._last_us, _LONGEST)
