"""Makes the errors that several modules raise, so that they have the same texts."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tubeq_spark.errors import (
    InvalidOptionError,
    NotTakenError,
    QueueNotFoundError,
    QueueStateError,
    StoreError,
    TaskNotFoundError,
    TubeBusyError,
    TubeMovedError,
    TubeNotFoundError,
)
from tubeq_spark.model.states import QueueState

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tubeq_spark.model.tube_types import Driver
    from tubeq_spark.task import TaskState


def require_running(state: QueueState) -> None:
    """Refuse a verb outside RUNNING.

    Raises:
        QueueStateError: The queue is closed or closing.
    """
    if state is not QueueState.RUNNING:
        said = {QueueState.ENDING: "is being closed", QueueState.WAITING: "was closed"}
        msg = f"the queue {said.get(state, 'is not open yet')}"
        raise QueueStateError(msg)


def was_moved(name: str, place: str) -> TubeMovedError:
    """The error for a verb that changes a tube which is used at another place now."""
    return TubeMovedError(
        f"tube {name!r} was moved to {place}: use the queue there; `Tube.resume` opens this one again"
    )


def loss_without_repair() -> InvalidOptionError:
    """The error for `accept_loss` without `repair`."""
    return InvalidOptionError("accept_loss=True says how far to repair: it takes repair=True")


def require_subqueues(what: str, driver: Driver) -> None:
    """Refuse a verb about sub-queues in a type without sub-queues.

    Raises:
        InvalidOptionError: The type has none.
    """
    if not driver.subqueues:
        msg = f"{what}: a {driver.name} has no sub-queues"
        raise InvalidOptionError(msg)


def in_other_state(
    task_id: int, state: TaskState, states: Iterable[TaskState]
) -> TaskNotFoundError:
    """The error for a task that is in none of the states of a verb."""
    wanted = " or ".join(each.name.lower() for each in states)
    return TaskNotFoundError(f"task {task_id} is {state.name.lower()}, not {wanted}")


def not_held(task_id: int) -> NotTakenError:
    """The error for a holder's verb on a task that this session does not hold."""
    return NotTakenError(
        f"task {task_id} was not taken by this session, or its time to run has ended"
    )


def no_task(task_id: int) -> TaskNotFoundError:
    """The error for other verbs on a missing task."""
    return TaskNotFoundError(f"task {task_id} not found")


def no_queue(place: object) -> QueueNotFoundError:
    """The error for a location without a queue."""
    return QueueNotFoundError(f"no queue at {place}")


def was_forked(process: int, other: int, what: str) -> StoreError:
    """The error in a forked process, which lacks the locks and threads of its parent.

    Args:
        process: The id of the forked process.
        other: The id of its parent.
        what: The predicate of a sentence about the parent.
    """
    return StoreError(
        f"process {process} was forked from {other}, which {what}: "
        "start workers by multiprocessing's spawn or forkserver"
    )


def no_tube(name: object) -> TubeNotFoundError:
    """The error for an unknown tube name."""
    return TubeNotFoundError(f"no tube named {name!r}")


def was_dropped(name: str) -> TubeNotFoundError:
    """The error for a verb on a dropped tube."""
    return TubeNotFoundError(f"tube {name!r} was dropped")


def has_taken_tasks(name: str) -> TubeBusyError:
    """The error for a drop while tasks are taken."""
    return TubeBusyError(f"tube {name!r} has taken tasks")


def no_spark() -> StoreError:
    """The error for a verb with DataFrames or streams without a Spark session."""
    return StoreError(
        "DataFrames and streams need a Spark session: open the queue with one, as Queue(spark, location); "
        "without Spark there are put_arrow and take_arrow"
    )
