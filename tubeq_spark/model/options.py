"""The options of tubes and of puts, each described once.

`TubeOptions` has those of tubes, and `PUT_OPTIONS` those of puts. The checks, the types of tubes, the record in the
registry, `alter`, `tubeq create`, `tubeq alter` and `tubeq show` all follow from these tables. Only the signatures of
`Queue.create_tube`, `Tube.put` and `PutItem` repeat the names; a test compares them and the docs.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from functools import partial
from typing import Any, get_args, get_type_hints

from tubeq_spark.clock import limited_us
from tubeq_spark.errors import InvalidOptionError
from tubeq_spark.model import validation
from tubeq_spark.model.failures import Backoff
from tubeq_spark.model.takes import Rate

#: The tube types that have an option, as the docs name them.
ALL, TIMED, LIMITED, SUBQUEUES = "all", "ttl types", "limfifottl", "utube types"
#: The least and the greatest rank; greater and smaller ones are stored as these.
LEAST_RANK, MOST_RANK = -(1 << 63) + 1, (1 << 63) - 1
#: The checks of the values of a type, for options without a check of their own.
_CHECKS: dict[Any, Callable[[str, Any], Any]] = {
    int: partial(validation.count, least=1),
    float: validation.seconds,
    bool: validation.boolean,
    Backoff: partial(validation.instance, kind=Backoff),
    Rate: partial(validation.instance, kind=Rate),
}


@dataclass(frozen=True, slots=True)
class Option:
    """An option of tubes or of puts. Durations are in seconds.

    Attributes:
        of: The tube types that have it.
        text: What it is.
        check: Returns a value, given after the name, as it is stored; refuses one that is out of range. By default
            that of its type.
        alterable: Whether `alter` can change it.
    """

    of: str
    text: str
    check: Callable[[str, Any], Any] | None = None
    alterable: bool = True


def _option(of: str, text: str, default: Any = None, check: Any = None, **more: bool) -> Any:
    """A field with its default and its `Option`."""
    return field(default=default, metadata={"option": Option(of, text, check, **more)})


@dataclass(frozen=True, slots=True)
class TubeOptions(Mapping[str, Any]):
    """The options of a tube, readable as attributes and as a mapping. `None` sets no limit, or no default."""

    pri: int = _option(TIMED, "Default priority of its tasks; 0 is the highest", 0, validation.pri)
    ttl: float | None = _option(TIMED, "Default time to live")
    ttr: float | None = _option(
        TIMED, "Default time to run of a taken task", None, validation.lease
    )
    delay: float = _option(TIMED, "Default delay", 0.0)
    capacity: int | None = _option(LIMITED, "Largest number of tasks")
    storage_mode: str = _option(
        SUBQUEUES,
        "default or ready_buffer",
        "default",
        partial(validation.one_of, allowed=("default", "ready_buffer")),
        alterable=False,
    )
    schema: str | None = _option(ALL, "DDL of a payload", None, validation.text, alterable=False)
    max_attempts: int | None = _option(
        ALL, "Bury a failed task that was taken this many times", None, validation.attempts
    )
    change_feed: bool = _option(
        ALL, "Enable Delta's change data feed", default=False, alterable=False
    )
    temporary: bool = _option(ALL, "Drop it with its queue object", default=False, alterable=False)
    backoff: Backoff | None = _option(  # noqa: RUF009  (a field)
        TIMED, "Delays of failed tasks, such as first=1,factor=2,most=1h,jitter=0.1"
    )
    parallel: int = _option(SUBQUEUES, "Tasks of a sub-queue that may be taken at a time", 1)
    rate: Rate | None = _option(  # noqa: RUF009  (as above)
        SUBQUEUES, "Most takes from a sub-queue, such as 5/1s or 100/1m"
    )
    order: str = _option(
        SUBQUEUES,
        "Order of sub-queues: fifo or fair",
        "fifo",
        partial(validation.one_of, allowed=("fifo", "fair")),
    )
    most_taken: int | None = _option(ALL, "Tasks of the tube that may be taken at a time")
    aging: float | None = _option(
        TIMED, "Waiting time that equals one priority step", None, validation.lease
    )
    unique_for: float | None = _option(
        ALL, "A unique key is in use at least this long from the put", alterable=False
    )

    def __post_init__(self) -> None:
        """Refuse a combination that is not allowed."""
        if self.aging is not None and self.order == "fair":
            validation.refuse("order", self.order, "'fifo' in a tube with aging")

    def __getitem__(self, key: str) -> Any:
        if key not in OPTIONS:
            raise KeyError(key)
        # The ttr of a task if neither the put nor the tube sets one.
        return self.ttl if key == "ttr" and self.ttr is None else getattr(self, key)

    def __iter__(self) -> Iterator[str]:
        return iter(OPTIONS)

    def __len__(self) -> int:
        return len(OPTIONS)

    @property
    def aging_us(self) -> int | None:
        """`aging` in microseconds, at most a hundred years; `None` if waiting does not matter."""
        return None if self.aging is None else limited_us(self.aging)

    @property
    def unique_for_us(self) -> int | None:
        """`unique_for` in microseconds, at most a hundred years; `None` frees a key with the end of its task."""
        return limited_us(self.unique_for) if self.unique_for else None

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
        options = {name: found[name] for name in OPTIONS if name in found}
        # In the registry the value of `temporary` may be the owner of the tube.
        options["temporary"] = bool(options.get("temporary"))
        for name, kind in KINDS.items():
            if kind in (Backoff, Rate) and options.get(name) is not None:
                options[name] = kind(**options[name])
        return cls(**options)


#: The options of tubes by name, and the types of their values.
OPTIONS: dict[str, Option] = {f.name: f.metadata["option"] for f in fields(TubeOptions)}
KINDS: dict[str, Any] = {
    name: next(iter(get_args(hint)), hint) for name, hint in get_type_hints(TubeOptions).items()
}
#: The options of puts. The first ones have their defaults in the tube.
PUT_OPTIONS = {name: OPTIONS[name] for name in ("pri", "ttl", "ttr", "delay")} | {
    "utube": Option(SUBQUEUES, "Its sub-queue", validation.utube),
    "unique": Option(ALL, "Its key, which no other stored task has", validation.unique),
}
#: The check of each option of a tube or a put.
_CHECK_OF = {
    name: option.check or _CHECKS[KINDS[name]] for name, option in (OPTIONS | PUT_OPTIONS).items()
}
#: Default values that count as not given, so that every type allows them.
_PLAIN = {f.name: f.default for f in fields(TubeOptions) if f.name not in ("pri", "delay")}


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
    unknown = given.keys() - OPTIONS.keys()
    if unknown:
        msg = f"alter() got an unexpected keyword argument {min(unknown)!r}"
        raise TypeError(msg)
    for name in given:
        if not OPTIONS[name].alterable:
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
    return {n: _CHECK_OF[n](n, value) for n, value in given.items() if value is not None}


def _refuse_foreign(given: Mapping[str, Any], allowed: frozenset[str], type_name: str) -> None:
    """Refuse an option that the type lacks, with any value but `None`."""
    for name in given:
        if name not in allowed and given[name] is not None:
            has = ", ".join(sorted(allowed)) or "none"
            msg = f"{name}={validation.shown(given[name])}: {type_name} has no such option (it has: {has})"
            raise InvalidOptionError(msg)


def rank_of(created_us: int, pri: int, aging_us: int) -> int:
    """The rank of a task in a tube with aging. The task with the smaller rank comes first.

    A program that has not yet seen `alter(aging=…)` puts tasks with the rank of a tube without aging, which is less
    than that of all others.

    Args:
        created_us: The moment at which the task was put.
        pri: Its priority.
        aging_us: The waiting time that counts as one step of priority.
    """
    return max(LEAST_RANK, min(MOST_RANK, created_us + pri * aging_us))
