"""The rate at which leases of a sub-queue may begin."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from tubeq_spark.model import validation
from tubeq_spark.model.times import US, us_from_seconds

if TYPE_CHECKING:
    from collections.abc import Sequence

#: The most leases of a rate, because the moment of each lease is stored.
MOST_TASKS = 1_000
#: A period of unlimited length.
_NEVER_US = 1 << 62
#: A wait ends so many seconds late, so that no clock's rounding ends it before the moment.
_LATER = 0.001


@dataclass(frozen=True, slots=True)
class Rate:
    """How many leases of one sub-queue may begin in some seconds.

    Attributes:
        tasks: The largest number of leases, 1 to 1,000.
        seconds: The length of the period in seconds, > 0: the limit holds for any period of this
            length.

    Raises:
        InvalidOptionError: A value is out of range.
    """

    tasks: int
    seconds: float

    def __post_init__(self) -> None:
        """Check the ranges, and convert the values to plain numbers, because they are stored as JSON."""
        tasks = validation.count("tasks", self.tasks, least=1)
        if tasks > MOST_TASKS:
            validation.refuse("tasks", self.tasks, f"at most {MOST_TASKS:,}")
        object.__setattr__(self, "tasks", tasks)
        object.__setattr__(self, "seconds", validation.lease("seconds", self.seconds))

    @property
    def period_us(self) -> int:
        """The length of the period, in microseconds; a very large number if it never ends."""
        return us_from_seconds(self.seconds) or _NEVER_US

    def room(self, moments: Sequence[int], now_us: int) -> int:
        """How many leases may begin now.

        Args:
            moments: The moments at which leases began.
            now_us: The moment. Later moments, by the clock of another host, count as this one.
        """
        since_us = now_us - self.period_us
        return max(0, self.tasks - sum(moment > since_us for moment in moments))

    def next_us(self, moments: Sequence[int], now_us: int) -> int:
        """The moment at which the next lease may begin."""
        last = sorted(min(moment, now_us) for moment in moments)[-self.tasks :]
        return now_us if len(last) < self.tasks else max(now_us, last[0] + self.period_us)


class NextBegin:
    """The moment at which a rate lets a waiting take find a task, without any commit."""

    def __init__(self) -> None:
        """Know of no such moment."""
        self.at_us: int | None = None

    def seconds(self, now_us: int) -> float | None:
        """The seconds until that moment; `None` if none is known."""
        if self.at_us is None:
            return None
        return max(0, self.at_us - now_us) / US + _LATER


@dataclass(frozen=True, slots=True)
class UtubeMoments:
    """The moments at which the last leases of a sub-queue began.

    Attributes:
        utube: The sub-queue. `None` is a sub-queue, too.
        moments: The moments in microseconds, the newest last.
        turn: A number that grows with each take from the tube. It orders leases of the same moment.
    """

    utube: str | None
    moments: tuple[int, ...] = ()
    turn: int = 0

    @classmethod
    def parse(cls, utube: str | None, text: str) -> UtubeMoments:
        """Parse a text of `moments_text`."""
        turn, *moments = map(int, text.split())
        return cls(utube, tuple(moments), turn)


def moments_text(turn: int, moments: Sequence[int]) -> str:
    """The turn and the moments of a sub-queue, as they are stored."""
    return " ".join(map(str, (turn, *moments)))


def begun(moments: Sequence[int], now_us: int, count: int, most: int) -> list[int]:
    """The moments of a sub-queue after `count` leases began now: the last `most`, and none later than now.

    It keeps at least as many moments as before, because another program may already know of a greater rate.
    """
    most = max(most, len(moments))
    return [*(min(moment, now_us) for moment in moments), *[now_us] * count][-most:]
