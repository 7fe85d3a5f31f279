"""Checks the arguments of verbs before they read or write anything. `stored_task` checks those of puts."""

from __future__ import annotations

import logging
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from tubeq_spark.clock import FOREVER_S, us_from_seconds
from tubeq_spark.errors import InvalidOptionError, TubeExistsError
from tubeq_spark.model import validation
from tubeq_spark.model.changes import Release
from tubeq_spark.model.options import TubeOptions, given_options, tube_options
from tubeq_spark.model.stored_task import state_of
from tubeq_spark.model.tube_types import BUILT_IN, Driver
from tubeq_spark.task import Task, TaskState

if TYPE_CHECKING:
    import datetime as dt
    from collections.abc import Collection, Mapping, MutableMapping

    from tubeq_spark.model.failures import ErrorTexts

    #: A task: its id, or a `Task`.
    TaskId: TypeAlias = int | Task
    #: A duration: seconds, or a timedelta.
    Seconds: TypeAlias = float | dt.timedelta
    #: A sub-queue that a take names, or several. `None` among several is the sub-queue of tasks without `utube`.
    Utubes: TypeAlias = str | int | Collection[str | int | None]

log = logging.getLogger(__name__)


def release(delay: Any, error: ErrorTexts | None, driver: Driver) -> Release:
    """How to release tasks.

    Args:
        delay: Seconds; `None` is the tube's backoff if there is an error.
        error: The error of the tasks.
        driver: The type of the tube.

    Raises:
        InvalidOptionError: `delay` is bad, or the type has no delays.
    """
    if delay is None:
        return Release(0, error, by_backoff=True)
    seconds = validation.seconds("delay", delay)
    if seconds and not driver.timed:
        validation.refuse("delay", delay, f"0 in a {driver.name}: it has no delays")
    return Release(us_from_seconds(seconds), error)


def increment(value: Any, driver: Driver) -> int | None:
    """The increment of a touch in microseconds; `None` if the touch does nothing."""
    seconds = 0.0 if value is None else validation.seconds("increment", value)
    if seconds == 0 or seconds >= 5 * FOREVER_S:
        return None
    if not driver.timed:
        validation.refuse("increment", value, f"None or 0 in a {driver.name}: it has no ttr")
    return round(seconds * 1_000_000)


def task_state(value: Any) -> TaskState:
    """A state, its name in any case, or its letter."""
    state = state_of(value) if isinstance(value, str) else None
    if state is None:
        letters = " ".join(state.value for state in TaskState)
        names = ", ".join(state.name.lower() for state in TaskState)
        validation.refuse("state", value, f"a TaskState, one of {names}, or a letter: {letters}")
    return state


@dataclass(frozen=True, slots=True)
class NewTube:
    """A checked request for a tube.

    Attributes:
        name: Its name.
        driver: Its type.
        options: Its options.
        given: The names of the options that the program gave.
        if_not_exists: Whether an existing tube may be returned, only with these options (`"same"`) or with any.
    """

    name: str
    driver: Driver
    options: TubeOptions
    given: frozenset[str]
    if_not_exists: bool | Literal["same"]


def driver_of(drivers: Mapping[str, Driver], type_name: object) -> Driver:
    """The driver of a type.

    Raises:
        InvalidOptionError: No driver has this name.
    """
    driver = drivers.get(type_name) if isinstance(type_name, str) else None
    if driver is None:
        validation.refuse("type", type_name, f"one of {', '.join(sorted(drivers))}")
    return driver


def register_driver(
    drivers: MutableMapping[str, Driver], type_name: object, driver: object
) -> None:
    """Add a tube type.

    Raises:
        InvalidOptionError: The name is bad or in use, or the driver's declaration is not valid.
    """
    name = validation.tube_name(type_name)
    if name in drivers:
        validation.refuse(
            "type_name", name, "a new name: overriding a registered driver is not allowed"
        )
    if not isinstance(driver, Driver):
        validation.refuse("driver", driver, "a tubeq_spark.Driver")
    problem = driver.problem()
    if problem is not None:
        validation.refuse("driver", driver, problem)
    # Every type has the options of the plainest one.
    put_options = driver.put_options | BUILT_IN["fifo"].put_options
    drivers[name] = replace(driver, name=name, put_options=put_options)


def check_new(
    drivers: Mapping[str, Driver],
    name: object,
    type_name: object,
    options: Mapping[str, Any],
    *,
    in_replicaset: bool,
) -> NewTube:
    """Check the arguments of `create_tube`, except a `schema`, which the engine checks.

    Raises:
        InvalidOptionError: An argument is bad.
    """
    own = dict(options)
    if_not_exists = own.pop("if_not_exists") or False
    if if_not_exists != "same" and not isinstance(if_not_exists, bool):
        validation.refuse("if_not_exists", if_not_exists, "True, False or 'same'")
    validation.callback("on_task_change", own.pop("on_task_change"))
    checked_name = validation.tube_name(name)
    driver = driver_of(drivers, type_name)
    checked = tube_options(own, driver.tube_options, driver.name)
    if checked.temporary and in_replicaset:
        validation.refuse("temporary", checked.temporary, "False while in_replicaset is True")
    return NewTube(checked_name, driver, checked, given_options(own), if_not_exists)


def refuse_other(name: str, type_name: str, options: TubeOptions, new: NewTube) -> None:
    """Refuse to create a tube if its name is used, unless the existing one may be returned.

    Raises:
        TubeExistsError: The existing tube may not be returned; the message says how it differs.
        InvalidOptionError: It may only be returned with the given options, and has others.
    """
    there = {"type": type_name, **options}
    wanted = {"type": new.driver.name, **new.options}
    returned = new.if_not_exists and (name, type_name) == (new.name, new.driver.name)
    compared = new.given if returned else wanted
    how = [
        f", with {of}={there[of]!r}, not {wanted[of]!r}"
        for of in wanted
        if of in compared and there[of] != wanted[of]
    ]
    text = f"tube {name!r} exists already{''.join(how)}"
    if not returned:
        raise TubeExistsError(text)
    if how and new.if_not_exists == "same":
        raise InvalidOptionError(text)
    if how:
        log.warning("%s: its own options stay in force; Tube.alter changes them", text)


def check_settings(
    given: Mapping[str, Any], *, has_temporary: bool
) -> tuple[float | None, bool | None]:
    """Check the arguments of `cfg`, and return `ttr` and `in_replicaset`; `None` leaves one as it is.

    Args:
        given: Settings by name; `None` leaves one as it is.
        has_temporary: Whether the queue knows of temporary tubes.

    Raises:
        InvalidOptionError: An unknown setting or a bad value.
    """
    for name, value in given.items():
        if name not in ("ttr", "in_replicaset"):
            validation.refuse(name, value, "absent: the settings are ttr and in_replicaset")
    ttr, in_replicaset = given.get("ttr"), given.get("in_replicaset")
    seconds = None if ttr is None else validation.lease("ttr", ttr)
    if in_replicaset is not None:
        validation.boolean("in_replicaset", in_replicaset)
        if in_replicaset and has_temporary:
            validation.refuse(
                "in_replicaset", in_replicaset, "False while there are temporary tubes"
            )
    return seconds, in_replicaset


def require_subqueues(what: str, driver: Driver) -> None:
    """Refuse a verb about sub-queues in a type without sub-queues.

    Raises:
        InvalidOptionError: The type has none.
    """
    if not driver.subqueues:
        msg = f"{what}: a {driver.name} has no sub-queues"
        raise InvalidOptionError(msg)
