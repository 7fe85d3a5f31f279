"""The tube types, as declarations that the verbs read, and the order in which a tube hands out its tasks."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from tubeq_spark.model.options import ALL, LIMITED, OPTIONS, PUT_OPTIONS, SUBQUEUES, TIMED

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tubeq_spark.model.options import Option, TubeOptions

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
        if not self.tube_options <= set(OPTIONS):
            return f"tube_options among {', '.join(sorted(OPTIONS))}"
        if not self.put_options <= set(PUT_OPTIONS):
            return f"put_options among {', '.join(sorted(PUT_OPTIONS))}"
        if "utube" in self.put_options and not self.subqueues:
            return "subqueues=True, where utube is an option of put"
        if "capacity" in self.tube_options and not self.limited:
            return "limited=True, where capacity is an option of create_tube"
        return None


def _built_in(name: str, *groups: str) -> Driver:
    """A type that has the options of some groups."""

    def names(options: Mapping[str, Option]) -> frozenset[str]:
        return frozenset(name for name, option in options.items() if option.of in (ALL, *groups))

    return Driver(
        name,
        names(OPTIONS),
        names(PUT_OPTIONS),
        order=_ORDERS[TIMED in groups],
        timed=TIMED in groups,
        limited=LIMITED in groups,
        subqueues=SUBQUEUES in groups,
    )


#: The built-in types.
BUILT_IN = {
    # Tasks are taken in the order of put.
    "fifo": _built_in("fifo"),
    # With priorities, delays, a time to live and a time to run.
    "fifottl": _built_in("fifottl", TIMED),
    # With a limit for the number of tasks in all states, too.
    "limfifottl": _built_in("limfifottl", TIMED, LIMITED),
    # With sub-queues: one consumer at a time holds tasks of one.
    "utube": _built_in("utube", SUBQUEUES),
    "utubettl": _built_in("utubettl", TIMED, SUBQUEUES),
}


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
