"""Rules of takes: what they ask for, how long leases last, at which rate they may begin, and where a take begins."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from tubeq_spark.clock import US, due, plus, us_from_seconds
from tubeq_spark.model import validation

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence


@dataclass(frozen=True, slots=True)
class TakeRequest:
    """The request of a take.

    Attributes:
        count: The most tasks.
        per_utube: The most tasks of one sub-queue.
        utubes: The sub-queues from which it takes; `None` is all of them.
        as_batch: Whether it takes a batch, whose rows are not read.
    """

    count: int
    per_utube: int = 1
    utubes: frozenset[str | None] | None = None
    as_batch: bool = False


def take_request(
    name: str, count: Any, per_utube: Any, utube: Any = None, *, plain_type: str | None = None
) -> TakeRequest:
    """Check the request of a take.

    Args:
        name: The name of the argument with the number of tasks.
        count: The number of tasks.
        per_utube: The most tasks of one sub-queue; `None` is 1.
        utube: The sub-queues; `None` is all of them.
        plain_type: The type of the tube if it has no sub-queues.
    """
    if utube is not None and plain_type is not None:
        validation.refuse("utube", utube, f"None: a {plain_type} has no sub-queues")
    asked = TakeRequest(
        validation.count(name, count),
        1 if per_utube is None else validation.count("per_utube", per_utube, least=1),
        None if utube is None else validation.utubes(utube),
    )
    if asked.per_utube != 1 and plain_type is not None:
        validation.refuse("per_utube", per_utube, f"1: a {plain_type} has no sub-queues")
    return asked


#: The most leases of a rate, because the moment of each lease is stored.
MOST_TASKS = 1_000
#: A period of unlimited length.
_NEVER_US = 1 << 62


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


@dataclass(frozen=True, slots=True)
class UtubeMoments:
    """The moments at which the last leases of a sub-queue began.

    Attributes:
        moments: The moments in microseconds, the newest last.
        turn: A number that grows with each take from the tube. It orders leases of the same moment.
    """

    moments: tuple[int, ...] = ()
    turn: int = 0

    @classmethod
    def parse(cls, text: str) -> UtubeMoments:
        """Parse a text of `moments_text`."""
        turn, *moments = map(int, text.split())
        return cls(tuple(moments), turn)


def moments_text(turn: int, moments: Sequence[int]) -> str:
    """The turn and the moments of a sub-queue, as they are stored."""
    return " ".join(map(str, (turn, *moments)))


def begun(moments: Sequence[int], now_us: int, count: int, most: int) -> list[int]:
    """The moments of a sub-queue after `count` leases began now: the last `most`, and none later than now.

    It keeps at least as many moments as before, because another program may already know of a greater rate.
    """
    most = max(most, len(moments))
    return [*(min(moment, now_us) for moment in moments), *[now_us] * count][-most:]


#: A lease is extended only by what the expected duration of the commit exceeds this share of the ttr (one to this many).
UNNOTICED: Final = 8
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
        """The end of a lease; `None` is never. `storage.tables.tube_table` has the same as an expression."""
        if ttr_us is None:
            return None
        return plus(self.at_us, max(ttr_us, ttr_us - ttr_us // UNNOTICED + self.headroom_us))


def is_mostly_left(next_event_us: int | None, ttr_us: int | None, now_us: int) -> bool:
    """Whether most of the ttr is left in a lease."""
    if next_event_us is None or ttr_us is None:
        return True
    # A consumer gets at least three quarters of the ttr; otherwise the lease is renewed first.
    return not due(next_event_us, now_us) and (next_event_us - now_us) * 4 >= ttr_us * 3


class TakeTimes:
    """The durations of the takes of one tube, and the moment of the next one, by the queue's clock."""

    def __init__(self) -> None:
        """Begin without a measured take."""
        self._last_us = self._before_us = 0
        #: The moment at which a rate lets a waiting take find a task, without any commit; `None` if none is known.
        self.next_us: int | None = None

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


def segments_of_group(
    segments: Iterable[tuple[int, int]], wanted: int, rivals: int, who: str
) -> Sequence[int]:
    """The segments that a take reads instead of the first ones, if other programs take without a lock between them.

    A take from a segment rewrites the rest of it. So of several takes of the first tasks only one succeeds, and the
    others have read and written for nothing. If each takes from segments of its own, all succeed.

    The first segments are divided into groups, one for each take of a rival and one for the take itself. A group is
    one segment, or as many as have the wanted tasks. A session prefers the group with the highest hash, which does not
    change if earlier segments do. If that is the first group, the take begins with the first task.

    Args:
        segments: The first segments of ready tasks, all of the priority of the tube's first task, in their order, each
            with the number of its tasks.
        wanted: The number of tasks that the take wants, >= 1.
        rivals: The number of recent takes of other programs.
        who: A text that is different for each session.

    Returns:
        The segments. If empty, the take begins with the first task, as it always does without rivals.
    """
    groups: list[list[int]] = []
    lacks = 0
    for segment, rows in segments:
        if lacks <= 0:
            if len(groups) > rivals:
                break
            groups.append([])
            lacks = wanted
        groups[-1].append(segment)
        lacks -= rows
    if lacks > 0:
        groups.pop()

    def preference(group: Sequence[int]) -> bytes:
        return hashlib.blake2b(f"{who}/{group[0]}".encode(), digest_size=8).digest()

    chosen = max(groups, key=preference, default=[])
    return () if chosen in groups[:1] else chosen
