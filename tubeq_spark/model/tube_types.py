"""The tube types, as declarations that the verbs read, and the order in which a tube hands out its tasks."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tubeq_spark.model.options import TubeOptions
    from tubeq_spark.model.stored_task import StoredTask

#: Options of `create_tube` that every type has.
COMMON_OPTIONS = frozenset(
    {"temporary", "schema", "max_attempts", "change_feed", "most_taken", "unique_for"}
)
#: Options of tubes and puts in types with ttl.
TIMED_OPTIONS = frozenset({"pri", "ttl", "ttr", "delay"})
#: Options of `create_tube` in types with ttl.
TIMED_TUBE_OPTIONS = TIMED_OPTIONS | {"backoff", "aging"}
#: Options of `create_tube` in types with sub-queues.
SUBQUEUE_OPTIONS = frozenset({"storage_mode", "parallel", "rate", "order"})
_TUBE_OPTIONS = COMMON_OPTIONS | TIMED_TUBE_OPTIONS | SUBQUEUE_OPTIONS | {"capacity"}
#: Options of puts that every type has.
COMMON_PUT_OPTIONS = frozenset({"unique"})
PUT_OPTIONS = COMMON_PUT_OPTIONS | TIMED_OPTIONS | {"utube"}
_ORDERS = (("task_id",), ("pri", "task_id"))
#: The order of a tube with aging.
AGED = ("rank", "task_id")


@dataclass(frozen=True, slots=True)
class Driver:
    """A tube type: its options and the order of its tasks.

    The five built-in types are such declarations; `Queue.register_driver` adds others.

    Attributes:
        name: The `type` of `create_tube`.
        tube_options: The options of `create_tube` that it has.
        put_options: The options of `put` that it has; `unique` belongs to every type.
        order: Columns by which tasks are taken and kicked: `("task_id",)` or `("pri", "task_id")`.
        timed: Whether touch and release with a delay are allowed.
        limited: Whether tubes have a `capacity`, so that a put can find a tube full and wait.
        subqueues: Whether only one take at a time holds tasks of a sub-queue.
    """

    name: str
    tube_options: frozenset[str]
    put_options: frozenset[str]
    order: tuple[str, ...]
    timed: bool
    limited: bool = False
    subqueues: bool = False

    def problem(self) -> str | None:
        """A sentence about the error in the declaration; `None` if it is valid."""
        if self.order not in _ORDERS:
            return f"order one of {_ORDERS}"
        if not self.tube_options <= _TUBE_OPTIONS:
            return f"tube_options among {', '.join(sorted(_TUBE_OPTIONS))}"
        if not self.put_options <= PUT_OPTIONS:
            return f"put_options among {', '.join(sorted(PUT_OPTIONS))}"
        if "utube" in self.put_options and not self.subqueues:
            return "subqueues=True, where utube is an option of put"
        if "capacity" in self.tube_options and not self.limited:
            return "limited=True, where capacity is an option of create_tube"
        return None


#: fifo: tasks are taken in the order of put.
FIFO = Driver("fifo", COMMON_OPTIONS, COMMON_PUT_OPTIONS, order=("task_id",), timed=False)

#: fifottl: fifo with priorities, delays, a time to live and a time to run.
FIFOTTL = Driver(
    name="fifottl",
    tube_options=COMMON_OPTIONS | TIMED_TUBE_OPTIONS,
    put_options=COMMON_PUT_OPTIONS | TIMED_OPTIONS,
    order=("pri", "task_id"),
    timed=True,
)

#: limfifottl: fifottl with a limit for the number of tasks in all states.
LIMFIFOTTL = replace(
    FIFOTTL,
    name="limfifottl",
    tube_options=FIFOTTL.tube_options | {"capacity"},
    limited=True,
)

#: utube: fifo with sub-queues; one consumer at a time holds tasks of a sub-queue.
UTUBE = replace(
    FIFO,
    name="utube",
    tube_options=FIFO.tube_options | SUBQUEUE_OPTIONS,
    put_options=FIFO.put_options | {"utube"},
    subqueues=True,
)

#: utubettl: fifottl with sub-queues; one consumer at a time holds tasks of a sub-queue.
UTUBETTL = replace(
    FIFOTTL,
    name="utubettl",
    tube_options=FIFOTTL.tube_options | SUBQUEUE_OPTIONS,
    put_options=FIFOTTL.put_options | {"utube"},
    subqueues=True,
)

#: The built-in types.
BUILT_IN = {driver.name: driver for driver in (FIFO, FIFOTTL, LIMFIFOTTL, UTUBE, UTUBETTL)}


@dataclass(frozen=True, slots=True, order=True)
class OrderPosition:
    """A position in the order of a tube: it includes everything up to it.

    Attributes:
        key: The value that is compared before the id: the priority; in a tube with aging, the rank; 0 if only the id
            decides.
        task_id: The id.
    """

    key: int
    task_id: int


def order_of(driver: Driver, options: TubeOptions) -> tuple[str, ...]:
    """The columns by which the tasks of a tube are taken and kicked."""
    return driver.order if options.aging is None else AGED


def position_of(row: StoredTask, order: tuple[str, ...]) -> OrderPosition:
    """The position of a task in an order."""
    if order == AGED:
        return OrderPosition(row.rank, row.task_id)
    return OrderPosition(row.pri if "pri" in order else 0, row.task_id)
