"""How fast the tasks of a sub-queue may begin."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from tubeq_spark.model import validation
from tubeq_spark.model.times import US, us_from_seconds

if TYPE_CHECKING:
    from collections.abc import Sequence

#: The most leases that a rate counts: a sub-queue keeps the moment of each.
MOST_TASKS = 1_000
#: A period of unlimited length.
_NEVER_US = 1 << 62
#: Seconds that a wait ends late, so that no clock rounds it to before the moment.
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
        """Check the ranges, and make plain numbers of others, which are stored as JSON."""
        tasks = validation.count("tasks", self.tasks, least=1)
        if tasks > MOST_TASKS:
            validation.refuse("tasks", self.tasks, f"at most {MOST_TASKS:,}")
        object.__setattr__(self, "tasks", tasks)
        object.__setattr__(self, "seconds", validation.lease("seconds", self.seconds))

    @property
    def period_us(self) -> int:
        """The length of the period, in microseconds; of one that never ends a very long time."""
        return us_from_seconds(self.seconds) or _NEVER_US

    def room(self, moments: Sequence[int], now_us: int) -> int:
        """How many leases may begin now.

        Args:
            moments: When leases began.
            now_us: The moment. What lies ahead of it, by the clock of another host, counts as now.
        """
        since_us = now_us - self.period_us
        return max(0, self.tasks - sum(moment > since_us for moment in moments))

    def next_us(self, moments: Sequence[int], now_us: int) -> int:
        """When the next lease may begin."""
        last = sorted(min(moment, now_us) for moment in moments)[-self.tasks :]
        return now_us if len(last) < self.tasks else max(now_us, last[0] + self.period_us)


class NextBegin:
    """When a take that found nothing may find something, though nobody commits: a rate lets it."""

    def __init__(self) -> None:
        """Know of no such moment."""
        self.at_us: int | None = None

    def seconds(self, now_us: int) -> float | None:
        """How long until then; `None`: no such moment is known."""
        if self.at_us is None:
            return None
        return max(0, self.at_us - now_us) / US + _LATER


@dataclass(frozen=True, slots=True)
class UtubeMoments:
    """When the last leases of a sub-queue began.

    Attributes:
        utube: The sub-queue; `None` is one too.
        text: As it is stored; `None`: there is no row.
        moments: In microseconds, the newest last.
        turn: Grows with each take that serves a sub-queue of the tube: it decides among leases of one moment.
    """

    utube: str | None
    text: str | None = None
    moments: tuple[int, ...] = ()
    turn: int = 0

    @classmethod
    def parse(cls, utube: str | None, text: str) -> UtubeMoments:
        """Read what `NewMoments.text` wrote."""
        turn, *moments = map(int, text.split())
        return cls(utube, text, tuple(moments), turn)


@dataclass(frozen=True, slots=True)
class NewMoments:
    """The moments of a sub-queue, in place of those that were read."""

    utube: str | None
    before: str | None
    moments: Sequence[int]
    turn: int = 0

    @property
    def text(self) -> str:
        """As it is stored."""
        return " ".join(map(str, (self.turn, *self.moments)))


def begun(moments: Sequence[int], now_us: int, count: int, most: int) -> list[int]:
    """The last `most` moments of a sub-queue after so many leases began now; none lies ahead.

    No fewer than there were: another program may know of a greater rate already, which counts them.
    """
    most = max(most, len(moments))
    return [*(min(moment, now_us) for moment in moments), *[now_us] * count][-most:]
