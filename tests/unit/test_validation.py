"""Checks of single arguments: what passes, and what a refusal says."""

from __future__ import annotations

import datetime as dt
import decimal
import enum
import fractions
import uuid
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.bad_values import (
    NO_COUNTS,
    NO_DURATIONS,
    NO_IDS,
    NO_LEASES,
    NO_NAMES,
    NO_PRIS,
    NO_UTUBES,
)
from tubeq_spark.errors import InvalidOptionError, SessionError
from tubeq_spark.model import arguments, validation

if TYPE_CHECKING:
    from collections.abc import Callable

utube, unique = partial(validation.utube, "utube"), partial(validation.unique, "unique")


class Index:
    """An integer that is no int, as numpy has them."""

    def __index__(self) -> int:
        return 5


def test_refuse_names_the_argument_the_value_and_what_is_allowed() -> None:
    with pytest.raises(InvalidOptionError, match=r"^pri=-1: must be a whole number from 0"):
        validation.pri("pri", -1)


@pytest.mark.parametrize("value", [0, 0.0, 1, 1e300, fractions.Fraction(1, 2)])
def test_seconds_of_a_real_number_is_a_float(value: Any) -> None:
    assert validation.seconds("ttl", value) == float(value)


@pytest.mark.parametrize(
    "value", [*NO_DURATIONS, -1e-9, None, decimal.Decimal(1), -(10**400)], ids=repr
)
def test_seconds_of_anything_else_is_refused(value: Any) -> None:
    with pytest.raises(InvalidOptionError):
        validation.seconds("ttl", value)


def test_seconds_of_an_integer_too_large_for_a_float_is_without_end() -> None:
    assert validation.seconds("ttl", 10**400) > validation.seconds("ttl", 1e299)


@pytest.mark.parametrize("value", [*NO_LEASES, 1e-9], ids=repr)
def test_lease_of_nothing_is_refused(value: Any) -> None:
    with pytest.raises(InvalidOptionError):
        validation.lease("ttr", value)


@given(st.integers(0, validation.PRI_MAX))
def test_pri_of_a_whole_number_in_range_is_kept(value: int) -> None:
    assert validation.pri("pri", value) == value


@pytest.mark.parametrize(
    ("check", "value"),
    [
        *((lambda v: validation.pri("pri", v), value) for value in NO_PRIS),
        *((lambda v: validation.count("n", v), value) for value in NO_COUNTS),
        (lambda v: validation.count("n", v, least=1), 0),
        *((validation.task_id, value) for value in NO_IDS),
        *((utube, value) for value in NO_UTUBES),
        (utube, None),
        (lambda v: validation.boolean("change_feed", v), 1),
        (lambda v: validation.text("key", v), ""),
        (lambda v: validation.text("key", v), 7),
        (lambda v: validation.moment("now", v), dt.datetime(2026, 1, 1)),  # noqa: DTZ001
        (lambda v: validation.moment("now", v), dt.date(2026, 1, 1)),
    ],
)
def test_check_of_a_value_of_another_kind_is_refused(
    check: Callable[[Any], Any], value: Any
) -> None:
    with pytest.raises(InvalidOptionError):
        check(value)


def test_whole_numbers_are_whatever_has_an_index() -> None:
    assert validation.count("n", Index()) == validation.task_id(Index()) == 5
    assert validation.task_id(-(10**30)) == -(10**30)


def test_task_ids_of_very_many_when_one_is_named_twice_names_it() -> None:
    with pytest.raises(InvalidOptionError, match=r"^task_ids=199999: must be named once$"):
        arguments.task_ids([*range(200_000), 199_999])


def test_utube_of_an_int_is_its_decimal_text_and_empty_is_one() -> None:
    assert [utube(v) for v in (7, -1, "", "é", Index())] == ["7", "-1", "", "é", "5"]


class Named(str, enum.Enum):  # noqa: UP042  (as programs have them)
    """A text that says of itself that it is another one."""

    MINE = "mine"


@pytest.mark.parametrize("check", [utube, unique, validation.tube_name])
def test_name_that_is_a_member_of_an_enum_is_its_text(check: Callable[[Any], Any]) -> None:
    assert (type(check(Named.MINE)), check(Named.MINE)) == (str, "mine")


@pytest.mark.parametrize("name", ["a", "A1", "0", "a_b", "x" * 32])
def test_tube_name_of_letters_digits_and_underscores_is_kept(name: str) -> None:
    assert validation.tube_name(name) == name


@pytest.mark.parametrize("name", NO_NAMES, ids=repr)
def test_tube_name_of_anything_else_is_refused(name: Any) -> None:
    assert not validation.is_tube_name(name)
    with pytest.raises(InvalidOptionError):
        validation.tube_name(name)


def test_session_uuid_of_a_uuid_or_its_text_is_the_uuid() -> None:
    wanted = uuid.uuid4()

    assert validation.session_uuid(wanted) == validation.session_uuid(str(wanted)) == wanted


@pytest.mark.parametrize("value", ["", "not one", 7, None, b"\0" * 16])
def test_session_uuid_of_anything_else_is_a_session_error(value: Any) -> None:
    with pytest.raises(SessionError):
        validation.session_uuid(value)
