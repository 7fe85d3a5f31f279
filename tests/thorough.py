"""Marks cases that `make test` or Spark leaves out, because another case stands for them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterable

    from _pytest.mark import ParameterSet


def thorough(*cases: object) -> list[ParameterSet]:
    """Parameters that are left to `make test-rest`: they go another way than those beside them.

    Args:
        *cases: Values of one parameter, or a tuple for several.
    """
    return _marked(pytest.mark.thorough, cases)


def nightly(*cases: object) -> list[ParameterSet]:
    """Parameters that are left to `make test-nightly`: each of their values is in a test that runs before."""
    return _marked(pytest.mark.nightly, cases)


def one_in(every: int, cases: Iterable[object]) -> list[ParameterSet]:
    """A grid of cases: one in so many is left to `make test-rest`, the others to `make test-nightly`.

    Choose a number with no common divisor with the length of a row: all columns are then chosen.
    """
    return [(nightly if number % every else thorough)(case)[0] for number, case in enumerate(cases)]


def without_spark(*cases: object) -> list[ParameterSet]:
    """Parameters of cases that go the way of those beside them on Spark: run on the other engines."""
    return _marked(pytest.mark.without_spark, cases)


def _marked(mark: pytest.MarkDecorator, cases: Iterable[object]) -> list[ParameterSet]:
    return [
        pytest.param(*(case if isinstance(case, tuple) else (case,)), marks=mark) for case in cases
    ]
