"""Options of tubes and puts: checked once, defaults applied, then plain data."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.bad_values import (
    NO_BOOLEANS,
    NO_COUNTS,
    NO_DURATIONS,
    NO_LEASES,
    NO_PRIS,
    NO_STORAGE_MODES,
    NO_UTUBES,
)
from tubeq_spark.config import QueueConfig
from tubeq_spark.errors import InvalidOptionError
from tubeq_spark.model.arguments import PutCall, prepare
from tubeq_spark.model.failures import Backoff
from tubeq_spark.model.options import TubeOptions, put_options, tube_options
from tubeq_spark.model.stored_task import StoredTask, new_task
from tubeq_spark.model.takes import Rate
from tubeq_spark.model.times import US
from tubeq_spark.model.tube_types import BUILT_IN
from tubeq_spark.task import PutItem, TaskState

#: What each option of a put refuses, and each of a tube.
NO_PUT_OPTIONS = {
    "pri": NO_PRIS,
    "ttl": NO_DURATIONS,
    "ttr": NO_LEASES,
    "delay": NO_DURATIONS,
    "utube": NO_UTUBES,
}
NO_TUBE_OPTIONS = {
    "pri": NO_PRIS,
    "ttl": NO_DURATIONS,
    "ttr": NO_LEASES,
    "delay": NO_DURATIONS,
    "capacity": [*NO_COUNTS, 0],
    "max_attempts": [*NO_COUNTS, 0],
    "parallel": [*NO_COUNTS, 0, 1.0, Fraction(1)],
    "most_taken": [*NO_COUNTS, 0],
    "storage_mode": NO_STORAGE_MODES,
    "schema": ["", " ", 1, True],
    "change_feed": NO_BOOLEANS,
    "temporary": NO_BOOLEANS,
}
#: Values that any type would take which has the option.
GOOD = {"pri": 0, "ttl": 5, "ttr": 5, "delay": 0, "utube": "a", "capacity": 1}
NOW = 1_000_000_000
FIFOTTL = BUILT_IN["fifottl"]
FIFO = BUILT_IN["fifo"]
SECONDS = st.one_of(st.none(), st.floats(0, 1e12))


class Index:
    """An integer that is no int, as numpy has them."""

    def __index__(self) -> int:
        return 5


def put(tube: TubeOptions | None = None, **options: Any) -> StoredTask:
    checked = put_options(options, FIFOTTL.put_options, "fifottl")
    return new_task(checked, tube or TubeOptions(), "null", NOW)


def of_tube(**options: Any) -> TubeOptions:
    return tube_options(options, FIFOTTL.tube_options, "fifottl")


def test_new_task_when_nothing_is_given_is_ready_and_unlimited() -> None:
    unset = dict.fromkeys(("utube", "ttl", "ttr", "next_event", "expires_at", "owner", "take_id"))

    assert put() == StoredTask(
        0, 0, TaskState.READY, 0, data="null", created=NOW, attempts=0, **unset
    )


def test_new_task_with_delay_adds_it_to_the_life_but_not_to_the_ttr() -> None:
    task = put(ttl=10, delay=5)

    assert (task.state, task.ttl, task.ttr) == (TaskState.DELAYED, 15_000_000, 10_000_000)
    assert (task.next_event, task.expires_at) == (NOW + 5_000_000, NOW + 15_000_000)


def test_new_task_takes_the_tubes_defaults_where_it_has_none() -> None:
    tube = of_tube(pri=3, ttl=100, ttr=7, delay=1)
    own = put(tube, pri=0, ttl=5, ttr=2, delay=0)

    assert put(tube).pri == 3
    assert (put(tube).ttl, put(tube).ttr) == (101_000_000, 7_000_000)
    assert (own.pri, own.ttl, own.ttr, own.state) == (0, 5_000_000, 2_000_000, TaskState.READY)


def test_new_task_with_ttl_0_ends_at_once() -> None:
    task = put(ttl=0)

    assert (task.state, task.expires_at) == (TaskState.READY, NOW)


def test_new_task_with_huge_durations_is_unlimited() -> None:
    task = put(ttl=1e200, ttr=10**400)

    assert (task.ttl, task.ttr, task.expires_at, task.next_event) == (None, None, None, None)


def test_new_task_with_an_endless_delay_is_delayed_for_ever() -> None:
    task = put(ttl=10, delay=1e200)

    assert (task.state, task.next_event) == (TaskState.DELAYED, None)


@given(SECONDS, SECONDS, SECONDS)
def test_new_task_is_consistent_whatever_the_durations(
    ttl: float | None, ttr: float | None, delay: float | None
) -> None:
    if ttr is not None and ttr < 1e-6:
        ttr = None
    task = put(ttl=ttl, ttr=ttr, delay=delay)

    assert (task.expires_at is None) == (task.ttl is None)
    if task.expires_at is not None and task.ttl is not None:
        assert task.expires_at == NOW + task.ttl
    if task.state is TaskState.READY:
        assert task.next_event == task.expires_at
    assert all(v is None or v >= 0 for v in (task.ttl, task.ttr, task.next_event))


@pytest.mark.parametrize("name", ["pri", "ttl", "ttr", "delay", "utube"])
def test_put_option_that_the_type_lacks_is_refused_whatever_its_value(name: str) -> None:
    with pytest.raises(InvalidOptionError, match=f"{name}=0: fifo has no such option"):
        put_options({name: 0}, FIFO.put_options, "fifo")
    assert put_options({name: None}, FIFO.put_options, "fifo") == {}


def test_item_keeps_the_options_of_the_call_that_it_does_not_name() -> None:
    call = PutCall([PutItem("data", pri=0), "other"], {"pri": 5, "ttl": 9}, 0.0)

    news = prepare(call, FIFOTTL, TubeOptions(), str, NOW)

    assert [(new.pri, new.ttl) for new in news] == [(0, 9 * US), (5, 9 * US)]


def of_item(option: str, value: Any) -> PutCall:
    return PutCall([PutItem("data", **{option: value})], {}, 0.0)


@pytest.mark.parametrize("option", NO_PUT_OPTIONS)
def test_put_options_of_a_call_and_of_an_item_when_bad_are_refused_by_name(option: str) -> None:
    everything = frozenset(NO_PUT_OPTIONS)
    for value in NO_PUT_OPTIONS[option]:
        with pytest.raises(InvalidOptionError, match=f"^{option}="):
            put_options({option: value}, everything, "any")
        with pytest.raises(InvalidOptionError, match=f"^{option}="):
            prepare(
                of_item(option, value),
                replace(FIFOTTL, put_options=everything),
                TubeOptions(),
                str,
                NOW,
            )


@pytest.mark.parametrize("option", NO_TUBE_OPTIONS)
def test_tube_options_when_bad_are_refused_by_name_whatever_the_type(option: str) -> None:
    for driver in BUILT_IN.values():
        for value in NO_TUBE_OPTIONS[option]:
            with pytest.raises(InvalidOptionError, match=f"^{option}="):
                tube_options({option: value}, driver.tube_options, driver.name)


@pytest.mark.parametrize("type_name", BUILT_IN)
def test_options_that_a_type_lacks_are_refused_by_name_for_tubes_and_puts(type_name: str) -> None:
    driver = BUILT_IN[type_name]
    for option, value in GOOD.items():
        if option not in driver.put_options:
            with pytest.raises(InvalidOptionError, match=f"^{option}="):
                put_options({option: value}, driver.put_options, type_name)
        if option not in driver.tube_options:
            with pytest.raises(InvalidOptionError, match=f"^{option}="):
                tube_options({option: value}, driver.tube_options, type_name)


def test_tube_options_come_back_from_their_json() -> None:
    options = of_tube(pri=1, ttl=2.5, ttr=1, delay=0, schema="a INT", max_attempts=3)

    assert TubeOptions.from_json(options.to_json()) == options


def test_tube_options_when_their_numbers_are_of_another_kind_come_back_from_their_json() -> None:
    options = TubeOptions(
        rate=Rate(Index(), Fraction(5, 2)),
        backoff=Backoff(Fraction(1, 4), Fraction(3), 10**400, Fraction(1, 8)),
    )

    assert TubeOptions.from_json(options.to_json()) == options
    assert options.rate == Rate(5, 2.5)
    assert options.backoff == Backoff(0.25, 3.0, 1e300, 0.125)


def test_tube_options_are_a_mapping_whose_ttr_follows_the_ttl() -> None:
    options = of_tube(ttl=20)

    assert (options["ttr"], options.ttr, options["ttl"]) == (20, None, 20)
    assert {"pri", "ttl", "max_attempts", "storage_mode"} <= set(options)
    assert len(options) == len(dict(options))
    with pytest.raises(KeyError):
        options["to_json"]


def test_tube_options_allow_the_default_storage_mode_everywhere() -> None:
    checked = tube_options({"storage_mode": "default"}, FIFO.tube_options, "fifo")

    assert checked == TubeOptions()


@pytest.mark.parametrize(
    "options",
    [
        {"ttr": 0},
        {"ttl": -1},
        {"delay": "1"},
        {"pri": -1},
        {"max_attempts": 0},
        {"max_attempts": 2**31},
        {"max_attempts": True},
        {"storage_mode": "ready_buffer"},
        {"storage_mode": "memory"},
        {"schema": " "},
        {"schema": 7},
        {"change_feed": 1},
        {"capacity": 5},
    ],
)
def test_tube_options_that_are_bad_or_foreign_are_refused(options: dict[str, Any]) -> None:
    with pytest.raises(InvalidOptionError):
        of_tube(**options)


@pytest.mark.parametrize(
    "settings",
    [
        {"attempts": 0},
        {"retry_seconds": 0},
        {"backoff_first": -1},
        {"segment_rows": 0},
        {"largest_payload": 0},
        {"number_horizon": 0},
        {"number_horizon": 1e300},
        {"fold_segments": -1},
        {"observer": "print"},
        {"clock_skew": float("nan")},
    ],
)
def test_queue_config_with_a_value_out_of_range_is_refused(settings: dict[str, Any]) -> None:
    with pytest.raises(InvalidOptionError):
        QueueConfig(**settings)
