"""Retries: their number and their waits (full jitter, capped).

Under a lock the caps double with each conflict. Where no lock keeps writers apart, that would leave
everything to who commits without a conflict: a writer that has lost often would wait the longest. So the
caps go by the number of rivals there, and are the same after each conflict.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


@dataclass(frozen=True, slots=True)
class RetryWaits:
    """Waits between the attempts of one operation.

    Full jitter (a wait between nothing and the cap) keeps rivals that lost together from
    meeting again.

    Attributes:
        attempts: Attempts in all, the first included.
        seconds: Total time after which no further attempt begins.
        first: Cap of the first wait, in seconds; it doubles each time, or is as many times as long as there
            are rivals.
        most: Cap of all waits, in seconds.
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
            uniform: A random number from 0 to 1.
            rivals: How many commits of others the last ones had to give way to; 0 under a lock.
        """
        for number in range(self.attempts - 1):
            if elapsed() >= self.seconds:
                return
            # 2**number overflows a float long before anyone waits that often.
            times = rivals() or 2 ** min(number, 30)
            yield uniform() * min(self.most, self.first * times)
