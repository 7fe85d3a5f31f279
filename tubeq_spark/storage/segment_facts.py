"""Results of reads about the segments of a tube. Plain data."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tubeq_spark.rules.order import OrderPosition
    from tubeq_spark.task import TaskState

__all__ = [
    "BadFile",
    "DueGroup",
    "SegmentSelection",
    "SegmentSpan",
    "SubqueueHead",
    "UtubeLock",
    "Waiting",
]


@dataclass(frozen=True, slots=True)
class BadFile:
    """A data file of a tube that is not as it was written, so that reads leave its segment out.

    Attributes:
        path: Where it is.
        fault: What is wrong with it, without the subject.
        segment: Its segment.
        rows: How many rows it has, by the log; `None`: that does not tell.
    """

    path: str
    fault: str
    segment: int | None
    rows: int | None


@dataclass(frozen=True, slots=True)
class SegmentSelection:
    """The result of a selection in one segment, and for one sub-queue if grouped."""

    segment: int
    count: int
    last: OrderPosition
    in_lease_segment: bool
    delayed: int
    shortest_ttr: int | None
    utube: str | None = None


@dataclass(frozen=True, slots=True)
class SegmentSpan:
    """A segment, its highest task id, and whether it is a lease segment."""

    segment: int
    last: int
    in_lease_segment: bool


@dataclass(frozen=True, slots=True)
class DueGroup:
    """Tasks of one segment with the same change by time.

    Attributes:
        segment: Where they are.
        state: As stored.
        over: Whether their life has ended.
        worn: Whether they are buried rather than readied.
        count: How many.
    """

    segment: int
    state: TaskState
    over: bool
    worn: bool
    count: int


@dataclass(frozen=True, slots=True)
class Waiting:
    """The work of a sweep in a tube.

    Attributes:
        due: Tasks whose state has changed by time and is not written yet.
        owners: Who holds tasks, in ended leases too.
        leftovers: Segments with rows of tubes that had this name before, or gone rows.
        tiny: Segments of few tasks, none of them taken.
    """

    due: int
    owners: tuple[str, ...]
    leftovers: int
    tiny: int


@dataclass(frozen=True, slots=True)
class SubqueueHead:
    """A sub-queue with ready tasks: the first of them and their number."""

    utube: str | None
    first: OrderPosition
    count: int
    in_lease_segment: bool


@dataclass(frozen=True, slots=True)
class UtubeLock:
    """A lock on a sub-queue.

    Attributes:
        utube: The sub-queue; `None` is one too.
        take_id: The number of the take: the segment its tasks were moved to.
        owner: Session and epoch that locked it.
        taken_at: When, in microseconds.
    """

    utube: str | None
    take_id: int
    owner: str
    taken_at: int
