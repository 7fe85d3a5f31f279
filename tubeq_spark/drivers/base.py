"""What a tube type is: data that the verbs read. A driver never commits."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["COMMON_OPTIONS", "TIMED_OPTIONS", "Driver"]

#: Options of `create_tube` that every type has.
COMMON_OPTIONS = frozenset({"temporary", "schema", "max_attempts", "change_feed"})
#: Options of tubes and puts of the types whose tasks have a life of their own.
TIMED_OPTIONS = frozenset({"pri", "ttl", "ttr", "delay"})


@dataclass(frozen=True, slots=True)
class Driver:
    """A tube type.

    Attributes:
        name: As given to `create_tube`.
        tube_options: The options of `create_tube` that it has.
        put_options: The options of `put` that it has.
        order: Columns that tasks are taken and kicked in, always ending in `task_id`.
        timed: Whether touch and release with a delay are allowed.
        limited: Whether a put can find the tube full, and wait for room.
    """

    name: str
    tube_options: frozenset[str]
    put_options: frozenset[str]
    order: tuple[str, ...]
    timed: bool
    limited: bool = False
