"""The options of tubes and puts: they are validated once, and then plain data."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, fields, replace
from typing import Any

from tubeq_spark.errors import InvalidOptionError
from tubeq_spark.model import validation
from tubeq_spark.model.failures import Backoff
from tubeq_spark.model.takes import Rate
from tubeq_spark.model.times import FOREVER_S, US

#: Options whose values are objects with fields.
_PARTS = {"backoff": Backoff, "rate": Rate}


def _ddl(name: str, value: Any) -> str:
    if not (isinstance(value, str) and value.strip()):
        validation.refuse(
            name, value, "the DDL of the payload's columns, such as 'url STRING, n INT'"
        )
    return value


#: The check of each option of a tube or a put.
_CHECKS = {
    "pri": validation.pri,
    "ttl": validation.seconds,
    "ttr": validation.lease,
    "delay": validation.seconds,
    "capacity": lambda name, value: validation.count(name, value, least=1),
    "max_attempts": validation.attempts,
    "change_feed": validation.boolean,
    "temporary": validation.boolean,
    "backoff": lambda name, value: validation.instance(name, value, Backoff),
    "parallel": lambda name, value: validation.count(name, value, least=1),
    "rate": lambda name, value: validation.instance(name, value, Rate),
    "order": lambda name, value: validation.one_of(name, value, ("fifo", "fair")),
    "most_taken": lambda name, value: validation.count(name, value, least=1),
    "aging": validation.lease,
    "unique_for": validation.seconds,
    "storage_mode": lambda name, value: validation.one_of(name, value, ("default", "ready_buffer")),
    "schema": _ddl,
    "utube": validation.utube,
    "unique": validation.unique,
}
#: The least and the greatest rank; greater and smaller ones are stored as these.
LEAST_RANK, MOST_RANK = -(1 << 63) + 1, (1 << 63) - 1


@dataclass(frozen=True, slots=True)
class TubeOptions(Mapping[str, Any]):
    """The options of a tube, readable as attributes and as a mapping.

    Attributes:
        pri: Default priority of its tasks.
        ttl: Default time to live in seconds; `None` is unlimited.
        ttr: Default time to run in seconds; `None` means the task's ttl.
        delay: Default delay in seconds.
        capacity: Most tasks that it may hold; `None` is unlimited.
        storage_mode: `"default"` or `"ready_buffer"`.
        schema: DDL of its typed payload; `None` is JSON.
        max_attempts: A task that was taken this many times is buried when it is released or its lease ends; `None`:
            never.
        change_feed: Whether Delta's change data feed is on.
        temporary: Whether it is dropped when the queue object that created it closes.
        backoff: The delays of failed tasks; `None`: they are ready at once.
        parallel: How many tasks of one sub-queue may be taken at a time; with 1 one take holds it.
        rate: How many leases of one sub-queue may begin in some seconds; `None` is any number.
        order: `"fifo"`, or `"fair"` among sub-queues of one priority.
        most_taken: How many tasks of the tube may be taken at a time; `None` is any number.
        aging: Seconds of waiting that weigh as much as one step of priority; `None`: waiting weighs nothing.
        unique_for: A unique key is in use while its task is stored, and at least this many seconds from the put.
    """

    pri: int = 0
    ttl: float | None = None
    ttr: float | None = None
    delay: float = 0.0
    capacity: int | None = None
    storage_mode: str = "default"
    schema: str | None = None
    max_attempts: int | None = None
    change_feed: bool = False
    temporary: bool = False
    backoff: Backoff | None = None
    parallel: int = 1
    rate: Rate | None = None
    order: str = "fifo"
    most_taken: int | None = None
    aging: float | None = None
    unique_for: float | None = None

    def __post_init__(self) -> None:
        """Refuse a combination that is not allowed."""
        if self.aging is not None and self.order == "fair":
            validation.refuse("order", self.order, "'fifo' in a tube with aging")

    def __getitem__(self, key: str) -> Any:
        if key not in _NAMES:
            raise KeyError(key)
        # The ttr of a task if neither the put nor the tube sets one.
        return self.ttl if key == "ttr" and self.ttr is None else getattr(self, key)

    def __iter__(self) -> Iterator[str]:
        return iter(_NAMES)

    def __len__(self) -> int:
        return len(_NAMES)

    @property
    def aging_us(self) -> int | None:
        """`aging` in microseconds, at most a hundred years; `None` if waiting does not matter."""
        return None if self.aging is None else round(min(self.aging, FOREVER_S) * US)

    @property
    def unique_for_us(self) -> int | None:
        """`unique_for` in microseconds, at most a hundred years; `None` frees a key with the end of its task."""
        return round(min(self.unique_for, FOREVER_S) * US) if self.unique_for else None

    def to_json(self) -> str:
        """Return the options as JSON text for the registry."""
        return json.dumps(asdict(self), sort_keys=True)

    @property
    def limit_takes(self) -> bool:
        """Whether a prefetched task could prevent takes of other tasks, or delay the turn of another sub-queue."""
        limits = self.rate is not None or self.most_taken is not None
        return limits or self.parallel > 1 or self.order == "fair"

    @classmethod
    def from_json(cls, text: str) -> TubeOptions:
        """Parse the text of `to_json`."""
        found = json.loads(text)
        options = {name: found[name] for name in _NAMES if name in found}
        # In the registry the value of `temporary` may be the owner of the tube.
        options["temporary"] = bool(options.get("temporary"))
        for name, kind in _PARTS.items():
            if options.get(name) is not None:
                options[name] = kind(**options[name])
        return cls(**options)


_NAMES = tuple(f.name for f in fields(TubeOptions))
#: Default values that count as not given, so that every type allows them.
_PLAIN = {f.name: f.default for f in fields(TubeOptions) if f.name not in ("pri", "delay")}
#: Options that `alter` changes.
ALTERABLE = frozenset(_NAMES) - {"storage_mode", "schema", "change_feed", "temporary", "unique_for"}


def tube_options(given: Mapping[str, Any], allowed: frozenset[str], type_name: str) -> TubeOptions:
    """Check the options of a new tube.

    Args:
        given: Options by name; `None` means "not given".
        allowed: The options that the type has.
        type_name: The type, for the message.

    Raises:
        InvalidOptionError: A value is out of range, or the type lacks the option.
    """
    checked = _checked(given)
    _refuse_foreign({name: given[name] for name in given_options(checked)}, allowed, type_name)
    return TubeOptions(**checked)


def given_options(options: Mapping[str, Any]) -> frozenset[str]:
    """The names of the options that a program gave. A plain default counts as not given."""
    return frozenset(
        name for name, value in options.items() if value is not None and value != _PLAIN.get(name)
    )


def altered(
    options: TubeOptions, given: Mapping[str, Any], allowed: frozenset[str], type_name: str
) -> TubeOptions:
    """Check the options of `alter`, and apply them to those of a tube.

    Args:
        options: The options of the tube.
        given: The new values by name; `None` is the default of a new tube.
        allowed: The options that the type has.
        type_name: The type, for the message.

    Raises:
        InvalidOptionError: A value is out of range, or the type or `alter` lacks the option.
        TypeError: There is no such option.
    """
    unknown = set(given) - set(_NAMES)
    if unknown:
        msg = f"alter() got an unexpected keyword argument {min(unknown)!r}"
        raise TypeError(msg)
    for name in given:
        if name not in ALTERABLE:
            validation.refuse(name, given[name], "absent: only create_tube sets it")
    checked = tube_options(given, allowed, type_name)
    # With a capacity the `key` of a put is stored in another way, so after a change the same key would put twice.
    if "capacity" in given and (checked.capacity is None) != (options.capacity is None):
        keeps = "absent: a tube that was made without a capacity keeps none"
        if options.capacity is not None:
            keeps = "a number: a tube that was made with a capacity keeps one"
        validation.refuse("capacity", given["capacity"], keeps)
    return replace(options, **{name: getattr(checked, name) for name in given})


def put_options(
    given: Mapping[str, Any], allowed: frozenset[str], type_name: str
) -> dict[str, Any]:
    """Check the options of a put. Options that are not given, or are `None`, are absent from the result.

    Raises:
        InvalidOptionError: A value is out of range, or the type lacks the option.
    """
    _refuse_foreign(given, allowed, type_name)
    return _checked(given)


def _checked(given: Mapping[str, Any]) -> dict[str, Any]:
    return {name: _CHECKS[name](name, value) for name, value in given.items() if value is not None}


def _refuse_foreign(given: Mapping[str, Any], allowed: frozenset[str], type_name: str) -> None:
    """Refuse an option that the type lacks, with any value but `None`."""
    for name in given:
        if name not in allowed and given[name] is not None:
            has = ", ".join(sorted(allowed)) or "none"
            msg = f"{name}={validation.shown(given[name])}: {type_name} has no such option (it has: {has})"
            raise InvalidOptionError(msg)


def rank_of(created_us: int, pri: int, aging_us: int | None) -> int:
    """The rank of a task. In a tube with aging the one with the smaller rank comes first.

    A program that has not yet seen `alter(aging=…)` puts tasks with the rank of a tube without aging, which is less
    than that of all others.

    Args:
        created_us: The moment at which the task was put.
        pri: Its priority.
        aging_us: The waiting time that counts as much as one step of priority; `None` in a tube without aging.
    """
    if aging_us is None:
        return pri
    return max(LEAST_RANK, min(MOST_RANK, created_us + pri * aging_us))
