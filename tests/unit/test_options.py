"""The package checks each argument and option once, refuses it by its name, and keeps it as plain data."""

from __future__ import annotations

import datetime as dt
import decimal
import enum
import uuid
from dataclasses import replace
from fractions import Fraction
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest

from tests import bad_values as no
from tubeq_spark.clock import US
from tubeq_spark.config import QueueConfig
from tubeq_spark.errors import InvalidOptionError, SessionError
from tubeq_spark.model import validation
from tubeq_spark.model.failures import Backoff
from tubeq_spark.model.options import TubeOptions, put_options, tube_options
from tubeq_spark.model.stored_task import PutCall, new_task, prepare
from tubeq_spark.model.takes import Rate
from tubeq_spark.model.tube_types import BUILT_IN
from tubeq_spark.task import PutItem, TaskState

if TYPE_CHECKING:
    from collections.abc import Callable

NO_COUNTS = [*no.NO_COUNTS, 0]
#: What each option of a put refuses, and each of a tube.
NO_PUT_OPTIONS = {
    "pri": no.NO_PRIS,
    "ttl": [*no.NO_DURATIONS, -1e-9, decimal.Decimal(1), -(10**400)],
    "ttr": [*no.NO_LEASES, 1e-9],
    "delay": no.NO_DURATIONS,
    "utube": no.NO_UTUBES,
}
NO_TUBE_OPTIONS = {name: NO_PUT_OPTIONS[name] for name in ("pri", "ttl", "ttr", "delay")} | {
    "capacity": NO_COUNTS,
    "max_attempts": [*NO_COUNTS, 2**31],
    "parallel": [*NO_COUNTS, 1.0, Fraction(1)],
    "most_taken": NO_COUNTS,
    "storage_mode": [*no.NO_STORAGE_MODES, "memory"],
    "schema": ["", 1, True],
    "change_feed": no.NO_BOOLEANS,
    "temporary": no.NO_BOOLEANS,
}
#: Values that any type would take which has the option.
GOOD = {"pri": 0, "ttl": 5, "ttr": 5, "delay": 0, "utube": "a", "capacity": 1}
NO_QUEUE_OPTIONS = {
    "attempts": [0],
    "retry_seconds": [0],
    "backoff_first": [-1],
    "segment_rows": [0],
    "largest_payload": [0],
    "number_horizon": [0, 1e300],
    "fold_segments": [-1],
    "observer": ["print"],
    "clock_skew": [float("nan")],
}
utube, unique = partial(validation.utube, "utube"), partial(validation.unique, "unique")
#: Checks of arguments, with what each refuses.
CHECKS: dict[str, tuple[Callable[[Any], Any], list[Any]]] = {
    "count": (partial(validation.count, "n"), no.NO_COUNTS),
    "count from 1": (partial(validation.count, "n", least=1), [0]),
    "task_id": (validation.task_id, no.NO_IDS),
    "utube": (utube, [None]),
    "text": (partial(validation.text, "key"), ["", 7]),
    "moment": (partial(validation.moment, "now"), [dt.datetime(2026, 1, 1), dt.date(2026, 1, 1)]),  # noqa: DTZ001
    "tube name": (validation.tube_name, no.NO_NAMES),
}
NOW = 1_000_000_000
FIFOTTL = BUILT_IN["fifottl"]


class Index:
    """An integer that is no int, as numpy has them."""

    def __index__(self) -> int:
        return 5


class Named(str, enum.Enum):  # noqa: UP042  (as programs have them)
    """A text that says of itself that it is another one."""

    MINE = "mine"


# -- arguments ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", CHECKS)
def test_check_of_a_value_of_another_kind_is_refused(name: str) -> None:
    check, values = CHECKS[name]
    for value in values:
        with pytest.raises(InvalidOptionError):
            check(value)


@pytest.mark.parametrize("value", ["", "not one", 7, None, b"\0" * 16])
def test_session_uuid_of_anything_else_is_a_session_error(value: Any) -> None:
    wanted = uuid.uuid4()
    assert validation.session_uuid(wanted) == validation.session_uuid(str(wanted)) == wanted
    with pytest.raises(SessionError):
        validation.session_uuid(value)


def test_numbers_and_names_are_those_that_are_meant() -> None:
    assert validation.count("n", Index()) == validation.task_id(Index()) == 5
    assert validation.task_id(-(10**30)) == -(10**30)
    assert [validation.seconds("ttl", v) for v in (1, Fraction(1, 2), 1e300)] == [1.0, 0.5, 1e300]
    assert validation.seconds("ttl", 10**400) > validation.seconds("ttl", 1e299)
    assert [utube(v) for v in (7, -1, "", "é", Index())] == ["7", "-1", "", "é", "5"]
    names = ["a", "A1", "0", "a_b", "x" * 32]
    assert [validation.tube_name(name) for name in names] == names
    for check in (utube, unique, validation.tube_name):
        assert (type(check(Named.MINE)), check(Named.MINE)) == (str, "mine")


def test_task_ids_of_very_many_when_one_is_named_twice_names_it() -> None:
    with pytest.raises(InvalidOptionError, match=r"^task_ids=199999: must be named once$"):
        validation.task_ids([*range(200_000), 199_999])


# -- options of puts and tubes ------------------------------------------------------------------------


def refused(option: str, check: Callable[..., object], *args: Any) -> None:
    with pytest.raises(InvalidOptionError, match=f"^{option}="):
        check(*args)


@pytest.mark.parametrize("option", NO_PUT_OPTIONS)
def test_put_options_of_a_call_and_of_an_item_when_bad_are_refused_by_name(option: str) -> None:
    everything = replace(FIFOTTL, put_options=frozenset(NO_PUT_OPTIONS))
    for value in NO_PUT_OPTIONS[option]:
        refused(option, put_options, {option: value}, everything.put_options, "any")
        call = PutCall([PutItem("data", **{option: value})], {}, 0.0)
        refused(option, prepare, call, everything, TubeOptions(), str, NOW)


@pytest.mark.parametrize("option", NO_TUBE_OPTIONS)
def test_tube_options_when_bad_are_refused_by_name_whatever_the_type(option: str) -> None:
    for driver in BUILT_IN.values():
        for value in NO_TUBE_OPTIONS[option]:
            refused(option, tube_options, {option: value}, driver.tube_options, driver.name)


@pytest.mark.parametrize("type_name", BUILT_IN)
def test_options_that_a_type_lacks_are_refused_by_name_for_tubes_and_puts(type_name: str) -> None:
    driver = BUILT_IN[type_name]
    for option, value in GOOD.items():
        if option not in driver.put_options:
            refused(option, put_options, {option: value}, driver.put_options, type_name)
            assert put_options({option: None}, driver.put_options, type_name) == {}
        if option not in driver.tube_options:
            refused(option, tube_options, {option: value}, driver.tube_options, type_name)


@pytest.mark.parametrize("option", NO_QUEUE_OPTIONS)
def test_queue_config_with_a_value_out_of_range_is_refused(option: str) -> None:
    for value in NO_QUEUE_OPTIONS[option]:
        with pytest.raises(InvalidOptionError, match=option):
            QueueConfig(**{option: value})


def test_new_task_takes_the_tubes_defaults_where_it_has_none_and_a_delay_makes_its_life_longer() -> (
    None
):
    tube = tube_options(
        {"pri": 3, "ttl": 100, "ttr": 7, "delay": 1}, FIFOTTL.tube_options, "fifottl"
    )
    own = {"pri": 0, "ttl": 5, "ttr": 2, "delay": 0}
    task, other = (new_task(given, tube, "null", NOW) for given in ({}, own))

    assert (task.pri, task.state, task.attempts) == (3, TaskState.DELAYED, 0)
    assert (task.ttl, task.ttr) == (101 * US, 7 * US)
    assert (task.next_event, task.expires_at) == (NOW + US, NOW + 101 * US)
    assert (other.pri, other.state, other.ttl, other.ttr) == (0, TaskState.READY, 5 * US, 2 * US)
    assert (other.next_event, other.expires_at) == (NOW + 5 * US, NOW + 5 * US)
    endless = new_task({"ttl": 1e200, "delay": 1e200}, TubeOptions(), "null", NOW)
    assert (endless.ttl, endless.expires_at, endless.next_event) == (None, None, None)
    assert new_task({"ttl": 10}, TubeOptions(), "null", NOW).ttr == 10 * US


def test_storage_mode_of_another_type_is_refused() -> None:
    driver, mode = FIFOTTL.tube_options, "storage_mode"
    assert tube_options({mode: "default"}, driver, "fifottl") == TubeOptions()
    refused(mode, tube_options, {mode: "ready_buffer"}, driver, "fifottl")


def test_item_keeps_the_options_of_the_call_that_it_does_not_name() -> None:
    call = PutCall([PutItem("data", pri=0), "other"], {"pri": 5, "ttl": 9}, 0.0)

    news = prepare(call, FIFOTTL, TubeOptions(), str, NOW)

    assert [(new.pri, new.ttl) for new in news] == [(0, 9 * US), (5, 9 * US)]


def test_tube_options_come_back_from_their_json() -> None:
    options = TubeOptions(
        pri=1, ttl=2.5, ttr=1, delay=0, schema="a INT", max_attempts=3,
        rate=Rate(Index(), Fraction(5, 2)),
        backoff=Backoff(Fraction(1, 4), Fraction(3), 10**400, Fraction(1, 8)),
    )  # fmt: skip

    assert TubeOptions.from_json(options.to_json()) == options
    assert options.rate == Rate(5, 2.5)
    assert options.backoff == Backoff(0.25, 3.0, 1e300, 0.125)


def test_tube_options_are_a_mapping_whose_ttr_follows_the_ttl() -> None:
    options = TubeOptions(ttl=20)

    assert (options["ttr"], options.ttr, options["ttl"]) == (20, None, 20)
    assert {"pri", "ttl", "max_attempts", "storage_mode"} <= set(options)
    assert len(options) == len(dict(options))
    with pytest.raises(KeyError):
        options["to_json"]
