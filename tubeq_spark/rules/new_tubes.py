"""Checks arguments of a queue (new tubes, types, settings) before anything is done."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from tubeq_spark.rules import refusals, validation
from tubeq_spark.rules.options import TubeOptions, tube_options
from tubeq_spark.rules.tube_types import Driver

if TYPE_CHECKING:
    from collections.abc import Mapping, MutableMapping

__all__ = [
    "NewTube",
    "Settings",
    "check_new",
    "check_settings",
    "driver_of",
    "refuse_other",
    "register_driver",
]


@dataclass(frozen=True, slots=True)
class NewTube:
    """A checked request for a tube."""

    name: str
    driver: Driver
    options: TubeOptions


@dataclass(frozen=True, slots=True)
class Settings:
    """A checked request for other settings; `None` leaves one as it is."""

    ttr: float | None
    in_replicaset: bool | None


def driver_of(drivers: Mapping[str, Driver], type_name: object) -> Driver:
    """The driver of a type.

    Raises:
        InvalidOptionError: There is none.
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
        InvalidOptionError: The name is bad or taken, or the driver declares what nothing can do.
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
    drivers[name] = replace(driver, name=name)


def check_new(
    drivers: Mapping[str, Driver],
    name: object,
    type_name: object,
    options: Mapping[str, Any],
    *,
    in_replicaset: bool,
) -> NewTube:
    """Check the arguments of `create_tube`; the engine checks a `schema`.

    Raises:
        InvalidOptionError: Any of it is bad.
    """
    temporary = validation.boolean("temporary", options["temporary"])
    change_feed = validation.boolean("change_feed", options["change_feed"])
    validation.boolean("if_not_exists", options["if_not_exists"])
    validation.callback("on_task_change", options["on_task_change"])
    checked_name = validation.tube_name(name)
    driver = driver_of(drivers, type_name)
    own = {
        name: value
        for name, value in options.items()
        if name not in ("if_not_exists", "on_task_change")
    }
    # An option with its default value counts as not given.
    own |= {"temporary": temporary or None, "change_feed": change_feed or None}
    checked = tube_options(own, driver.tube_options, driver.name)
    if temporary and in_replicaset:
        validation.refuse("temporary", temporary, "False while in_replicaset is True")
    return NewTube(checked_name, driver, checked)


def refuse_other(
    name: str, type_name: str, options: TubeOptions, new: NewTube, *, if_not_exists: bool
) -> None:
    """Refuse to create a tube if its name is used, unless the existing one may be returned.

    Raises:
        TubeExistsError: It may not; the message says how that one differs.
    """
    if if_not_exists and (name, type_name) == (new.name, new.driver.name):
        return
    there = {"type": type_name, **options}
    wanted = {"type": new.driver.name, **new.options}
    differing = {of: (there[of], wanted[of]) for of in wanted if there[of] != wanted[of]}
    raise refusals.tube_exists(name, differing)


def check_settings(given: Mapping[str, Any], *, has_temporary: bool) -> Settings:
    """Check the arguments of `cfg`.

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
    return Settings(seconds, in_replicaset)
