"""The tube types, each a declaration: data that the verbs read. A driver never commits."""

from __future__ import annotations

from dataclasses import dataclass, replace

__all__ = [
    "BUILT_IN",
    "COMMON_OPTIONS",
    "FIFO",
    "FIFOTTL",
    "LIMFIFOTTL",
    "TIMED_OPTIONS",
    "UTUBE",
    "UTUBETTL",
    "Driver",
]

#: Options of `create_tube` that every type has.
COMMON_OPTIONS = frozenset({"temporary", "schema", "max_attempts", "change_feed"})
#: Options of tubes and puts of the types whose tasks have a life of their own.
TIMED_OPTIONS = frozenset({"pri", "ttl", "ttr", "delay"})
_TUBE_OPTIONS = COMMON_OPTIONS | TIMED_OPTIONS | {"capacity", "storage_mode"}
_PUT_OPTIONS = TIMED_OPTIONS | {"utube"}
_ORDERS = (("task_id",), ("pri", "task_id"))


@dataclass(frozen=True, slots=True)
class Driver:
    """A tube type: which options it has, in which order its tasks come, and what holds them back.

    The five types are declarations of this and nothing more; `Queue.register_driver` adds others.

    Attributes:
        name: As given to `create_tube`.
        tube_options: The options of `create_tube` that it has.
        put_options: The options of `put` that it has.
        order: Columns that tasks are taken and kicked in: `("task_id",)` or `("pri", "task_id")`.
        timed: Whether touch and release with a delay are allowed.
        limited: Whether a put can find the tube full, and wait for room: it has a `capacity`.
        subqueues: Whether only one take at a time holds tasks of a utube.
    """

    name: str
    tube_options: frozenset[str]
    put_options: frozenset[str]
    order: tuple[str, ...]
    timed: bool
    limited: bool = False
    subqueues: bool = False

    def problem(self) -> str | None:
        """What it would have to be; `None`: it can be had as declared."""
        if self.order not in _ORDERS:
            return f"order one of {_ORDERS}"
        if not self.tube_options <= _TUBE_OPTIONS:
            return f"tube_options among {', '.join(sorted(_TUBE_OPTIONS))}"
        if not self.put_options <= _PUT_OPTIONS:
            return f"put_options among {', '.join(sorted(_PUT_OPTIONS))}"
        if "utube" in self.put_options and not self.subqueues:
            return "subqueues=True, where utube is an option of put"
        if "capacity" in self.tube_options and not self.limited:
            return "limited=True, where capacity is an option of create_tube"
        return None


#: fifo: tasks come out in the order they were put, and nothing else.
FIFO = Driver(
    name="fifo",
    tube_options=COMMON_OPTIONS,
    put_options=frozenset(),
    order=("task_id",),
    timed=False,
)

#: fifottl: fifo with priorities, delays, a time to live and a time to run.
FIFOTTL = Driver(
    name="fifottl",
    tube_options=COMMON_OPTIONS | TIMED_OPTIONS,
    put_options=TIMED_OPTIONS,
    order=("pri", "task_id"),
    timed=True,
)

#: limfifottl: fifottl that holds only so many tasks, in whatever state.
LIMFIFOTTL = replace(
    FIFOTTL,
    name="limfifottl",
    tube_options=FIFOTTL.tube_options | {"capacity"},
    limited=True,
)

#: utube: fifo in sub-queues, of each of which one consumer at a time has tasks.
UTUBE = replace(
    FIFO,
    name="utube",
    tube_options=FIFO.tube_options | {"storage_mode"},
    put_options=FIFO.put_options | {"utube"},
    subqueues=True,
)

#: utubettl: fifottl in sub-queues, of each of which one consumer at a time has tasks.
UTUBETTL = replace(
    FIFOTTL,
    name="utubettl",
    tube_options=FIFOTTL.tube_options | {"storage_mode"},
    put_options=FIFOTTL.put_options | {"utube"},
    subqueues=True,
)

#: The types that every queue knows.
BUILT_IN = {driver.name: driver for driver in (FIFO, FIFOTTL, LIMFIFOTTL, UTUBE, UTUBETTL)}
