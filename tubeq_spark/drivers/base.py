"""What a tube type is: data that the verbs read. A driver never commits."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["COMMON_OPTIONS", "TIMED_OPTIONS", "Driver"]

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
