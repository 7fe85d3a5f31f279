"""The order of the 1.5 dialect in one number: a rank that its verbs set, then the user's priority.

Tarantool 1.5 takes tasks by (ipri, pri): an internal priority that `urgent` and `requeue` set, and
the program's own from 0 to 255, higher first. In this dialect the rank is normally 0, below 0 after
`urgent` and above 0 after `requeue`. The column `pri` contains both, as `rank * 256 + 255 -
priority`. So a task always keeps its id and its priority, and tubes are still in the order (pri,
task_id). Tasks that other verbs put with a `pri` of 0 to 255 are between the urgent and the
requeued tasks.
"""

from __future__ import annotations

from tubeq_spark.rules.validation import PRI_MAX

__all__ = [
    "USUAL_FIRST",
    "USUAL_LAST",
    "USUAL_PRI",
    "priority_of",
    "rank_before",
    "rank_behind",
    "rank_of",
    "stored_pri",
]

#: The priority of a task that was put without one.
USUAL_PRI = 127
_PRIORITIES = 256
#: The first and last stored `pri` of rank 0.
USUAL_FIRST, USUAL_LAST = 0, _PRIORITIES - 1
#: All ranks fit into the INT of the column.
_LAST_RANK = PRI_MAX // _PRIORITIES
_FIRST_RANK = -_LAST_RANK - 1


def stored_pri(priority: int, rank: int = 0) -> int:
    """The `pri` of a task with a priority from 0 to 255 (the highest) at a rank."""
    return rank * _PRIORITIES + USUAL_LAST - priority


def priority_of(stored: int) -> int:
    """The priority in a stored `pri`."""
    return USUAL_LAST - stored % _PRIORITIES


def rank_of(stored: int) -> int:
    """The rank in a stored `pri`."""
    return stored // _PRIORITIES


def rank_before(first: int | None) -> int:
    """The rank of an urgent task: before the first stored `pri` (`None`: none is below the usual).

    If no lower rank is left, it shares the first one.
    """
    rank = 0 if first is None else min(0, rank_of(first))
    return max(_FIRST_RANK, rank - 1)


def rank_behind(last: int | None) -> int:
    """The rank of a requeued task: behind the last stored `pri` (`None`: none is above the usual).

    If no higher rank is left, it shares the last one.
    """
    rank = 0 if last is None else max(0, rank_of(last))
    return min(_LAST_RANK, rank + 1)
