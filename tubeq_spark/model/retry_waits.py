"""The number of retries and the waits between them (full jitter, with a cap).

Under a lock the caps double with each conflict. Without a lock between writers, a writer that has lost often would
then wait the longest, and the others would commit all the time. So there the caps depend on the number of rivals,
and are the same after each conflict.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


@dataclass(frozen=True, slots=True)
class RetryWaits:
    """Waits between the attempts of one operation.

    With full jitter (a wait between 0 and the cap) rivals that lost at the same time do not meet again.

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
