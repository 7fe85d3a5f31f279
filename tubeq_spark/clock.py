"""The clock of a queue, moments and durations as whole microseconds, and the waits between retries.

No other module asks the operating system for the time. All code inside the package counts in microseconds since 1970
(UTC). Only public functions have seconds and datetimes.
"""

from __future__ import annotations

import datetime as dt
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, runtime_checkable

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


@runtime_checkable
class Clock(Protocol):
    """The source of time for a queue: verbs compare its times and wait by its `sleep`."""

    def now(self) -> dt.datetime:
        """Return the current time, timezone-aware, in UTC."""
        ...

    def monotonic(self) -> float:
        """Return seconds that never go back, for measuring how long something took."""
        ...

    def sleep(self, seconds: float) -> None:
        """Wait for `seconds` (>= 0)."""
        ...


class SystemClock:
    """The clock of the machine."""

    def now(self) -> dt.datetime:
        """Return the wall clock's time in UTC."""
        return dt.datetime.now(dt.UTC)

    def monotonic(self) -> float:
        """Return the monotonic clock's seconds."""
        return time.monotonic()

    def sleep(self, seconds: float) -> None:
        """Block the calling thread for `seconds`."""
        time.sleep(seconds)


#: Microseconds in a second.
US = 1_000_000
#: A duration of a hundred years or more means "never ends", as in the reference implementation.
FOREVER_S = 100 * 365 * 86400.0
#: The same in microseconds.
FOREVER_US = int(FOREVER_S) * US
_EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
#: Moments beyond the year 9000 are "never": Python and Spark both end with the year 9999.
LAST_US = int((dt.datetime(9000, 1, 1, tzinfo=dt.UTC) - _EPOCH).total_seconds()) * US


def to_us(moment: dt.datetime) -> int:
    """Microseconds since 1970 of an aware datetime."""
    delta = moment - _EPOCH
    return (delta.days * 86400 + delta.seconds) * US + delta.microseconds


def from_us(moment_us: int | None) -> dt.datetime | None:
    """The aware UTC datetime of `moment_us`; `None` stays `None`."""
    return None if moment_us is None else of_us(moment_us)


def of_us(moment_us: int) -> dt.datetime:
    """The aware UTC datetime of a moment that is not `None`."""
    return _EPOCH + dt.timedelta(microseconds=moment_us)


def us_from_seconds(seconds: float | None) -> int | None:
    """Whole microseconds of a duration; `None` for never and for a hundred years or more."""
    if seconds is None or seconds >= FOREVER_S:
        return None
    return round(seconds * US)


def limited_us(seconds: float) -> int:
    """Whole microseconds of a duration that is added to moments; a hundred years for an unlimited one."""
    found = us_from_seconds(seconds)
    return FOREVER_US if found is None else found


def seconds_from_us(duration_us: int | None) -> float | None:
    """Seconds of a duration in microseconds; `None` stays `None`."""
    return None if duration_us is None else duration_us / US


def plus(moment_us: int | None, duration_us: int | None) -> int | None:
    """Add a duration to a time (or a duration). A sum that is too large is `None`, which is never."""
    if moment_us is None or duration_us is None:
        return None
    total = moment_us + duration_us
    return None if total > LAST_US else total


@dataclass(frozen=True, slots=True)
class RetryWaits:
    """The number of attempts of one operation, and the waits between them.

    With full jitter (a wait between 0 and the cap) rivals that lost at the same time do not meet again. Under a lock
    the caps double with each conflict. Without a lock between writers, a writer that has lost often would then wait the
    longest, and the others would commit all the time. So there the caps depend on the number of rivals, and are the
    same after each conflict.

    Attributes:
        attempts: The number of attempts, including the first.
        seconds: The time after which no further attempt begins.
        first: The cap of the first wait, in seconds. It doubles each time, or is multiplied by the number of rivals.
        most: The cap of all waits, in seconds.
    """

    attempts: int
    seconds: float
    first: float
    most: float

    def waits(
        self,
        elapsed: Callable[[], float],
        uniform: Callable[[], float],
        rivals: Callable[[], int] = lambda: 0,
    ) -> Iterator[float]:
        """Yield the wait before each further attempt until the budget is used up.

        Args:
            elapsed: Seconds since the operation began.
            uniform: Returns a random number from 0 to 1.
            rivals: Returns the number of other programs' commits that came before the last ones; 0 under a lock.
        """
        for number in range(self.attempts - 1):
            if elapsed() >= self.seconds:
                return
            # Without the limit, 2**number would overflow a float after many retries.
            times = rivals() or 2 ** min(number, 30)
            yield uniform() * min(self.most, self.first * times)


def due(moment_us: int | None, now_us: int) -> bool:
    """Whether a time is reached; `None`, never, is not."""
    return moment_us is not None and moment_us <= now_us
