"""Retries: their number and their waits (capped exponential, full jitter)."""

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
        first: Cap of the first wait, in seconds; it doubles each time.
        most: Cap of all waits, in seconds.
    """

    attempts: int
    seconds: float
    first: float
    most: float

    def waits(self, elapsed: Callable[[], float], uniform: Callable[[], float]) -> Iterator[float]:
        """Yield the wait before each further attempt until the budget is used up.

        Args:
            elapsed: Seconds since the operation began.
            uniform: A random number from 0 to 1.
        """
        for number in range(self.attempts - 1):
            if elapsed() >= self.seconds:
                return
            # 2**number overflows a float long before anyone waits that often.
            yield uniform() * min(self.most, self.first * 2 ** min(number, 30))
