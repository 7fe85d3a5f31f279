"""The options of tubes and puts: they are validated once, and then plain data."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any

from tubeq_spark.errors import InvalidOptionError
from tubeq_spark.model import validation
from tubeq_spark.model.times import plus, us_from_seconds
from tubeq_spark.task import PutItem, TaskState


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
        max_attempts: After this many takes a task is buried instead of made ready again; `None` is
            never.
        change_feed: Whether Delta's change data feed is on.
        temporary: Whether it is dropped when the queue object that created it closes.
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

    def __getitem__(self, key: str) -> Any:
        if key not in _NAMES:
            raise KeyError(key)
        # The ttr of a task if neither the put nor the tube sets one.
        return self.ttl if key == "ttr" and self.ttr is None else getattr(self, key)

    def __iter__(self) -> Iterator[str]:
        return iter(_NAMES)

    def __len__(self) -> int:
        return len(_NAMES)

    def to_json(self) -> str:
        """Return the options as JSON text for the registry."""
        return json.dumps(asdict(self), sort_keys=True)

    @classmethod
    def from_json(cls, text: str) -> TubeOptions:
        """Read options that `to_json` wrote."""
        options = json.loads(text)
        # In the registry `temporary` may be the owner of the tube.
        return cls(**options | {"temporary": bool(options.get("temporary"))})


_NAMES = tuple(f.name for f in fields(TubeOptions))

#: The check of each option of a tube.
_CHECKS = {
    "pri": validation.pri,
    "ttl": validation.seconds,
    "ttr": validation.lease,
    "delay": validation.seconds,
    "capacity": lambda name, value: validation.count(name, value, least=1),
    "max_attempts": validation.attempts,
    "change_feed": validation.boolean,
    "temporary": validation.boolean,
}


def tube_options(given: Mapping[str, Any], allowed: frozenset[str], type_name: str) -> TubeOptions:
    """Check the options of a new tube.

    Args:
        given: Options by name; `None` means "not given".
        allowed: The options that the type has.
        type_name: The type, for the message.

    Raises:
        InvalidOptionError: A value is out of range, or the type lacks the option.
    """
    present = {name: value for name, value in given.items() if value is not None}
    if present.get("storage_mode") == "default":
        del present["storage_mode"]
    checked = {name: _checked(name, value) for name, value in present.items()}
    refuse_foreign(checked, allowed, type_name)
    return TubeOptions(**checked)


def _checked(name: str, value: Any) -> Any:
    if name == "storage_mode" and value != "ready_buffer":
        validation.refuse(name, value, "'default' or 'ready_buffer'")
    if name == "schema" and not (isinstance(value, str) and value.strip()):
        validation.refuse(
            name, value, "the DDL of the payload's columns, such as 'url STRING, n INT'"
        )
    return _CHECKS[name](name, value) if name in _CHECKS else value


def refuse_foreign(given: Mapping[str, Any], allowed: frozenset[str], type_name: str) -> None:
    """Refuse an option that the type lacks.

    Raises:
        InvalidOptionError: Such an option is given, with any value but `None`.
    """
    for name in given:
        if name not in allowed and given[name] is not None:
            has = ", ".join(sorted(allowed)) or "none"
            msg = f"{name}={given[name]!r}: {type_name} has no such option (it has: {has})"
            raise InvalidOptionError(msg)


@dataclass(frozen=True, slots=True)
class PutDefaults:
    """The checked options of one put call; `None` means the tube's default."""

    pri: int | None = None
    ttl: float | None = None
    ttr: float | None = None
    delay: float | None = None
    utube: str | None = None

    @classmethod
    def parse(
        cls, options: Mapping[str, Any], allowed: frozenset[str], type_name: str
    ) -> PutDefaults:
        """Check the options of a put.

        Raises:
            InvalidOptionError: A value is out of range, or the type lacks the option.
        """
        refuse_foreign(options, allowed, type_name)
        present = {name: value for name, value in options.items() if value is not None}
        checked: dict[str, Any] = {
            name: validation.utube(value) if name == "utube" else _CHECKS[name](name, value)
            for name, value in present.items()
        }
        return cls(**checked)

    def over(self, item: PutItem, allowed: frozenset[str], type_name: str) -> PutDefaults:
        """Return the item's own options, and these where the item has none."""
        own = {name: getattr(item, name) for name in _PUT_NAMES}
        if all(value is None for value in own.values()):
            return self
        mine = PutDefaults.parse(own, allowed, type_name)
        merged = {
            name: getattr(self, name) if getattr(mine, name) is None else getattr(mine, name)
            for name in _PUT_NAMES
        }
        return PutDefaults(**merged)


_PUT_NAMES = tuple(f.name for f in fields(PutDefaults))


@dataclass(frozen=True, slots=True)
class NewTask:
    """A new task without its id, payload and segment. Times are in microseconds."""

    created: int
    state: TaskState
    pri: int
    utube: str | None
    ttl: int | None
    ttr: int | None
    next_event: int | None
    expires_at: int | None


def new_task(put: PutDefaults, tube: TubeOptions, now_us: int) -> NewTask:
    """Apply a tube's defaults: the delay is added to the ttl; the default ttr is the given ttl."""
    ttl_s = tube.ttl if put.ttl is None else put.ttl
    ttr_s = tube.ttr if put.ttr is None else put.ttr
    ttr = us_from_seconds(ttl_s if ttr_s is None else ttr_s)
    delay = us_from_seconds(tube.delay if put.delay is None else put.delay)
    ttl = plus(us_from_seconds(ttl_s), delay)
    expires_at = plus(now_us, ttl)
    delayed = delay != 0
    return NewTask(
        created=now_us,
        state=TaskState.DELAYED if delayed else TaskState.READY,
        pri=tube.pri if put.pri is None else put.pri,
        utube=put.utube,
        ttl=ttl,
        ttr=ttr,
        next_event=plus(now_us, delay) if delayed else expires_at,
        expires_at=expires_at,
    )
