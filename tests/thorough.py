"""Cases of which another stands for all in `make test`: left to `make test-rest`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

import pytest

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    from _pytest.mark import ParameterSet


class Named(Protocol):
    """A case of a table of cases."""

    @property
    def name(self) -> str:
        """By which it is chosen."""
        ...


def thorough(*cases: object) -> list[ParameterSet]:
    """Parameters that go through the code of the cases beside them.

    Args:
        *cases: Values of one parameter, or a tuple for several.
    """
    return [
        pytest.param(*(case if isinstance(case, tuple) else (case,)), marks=pytest.mark.thorough)
        for case in cases
    ]


def with_thorough(cases: Iterable[Named], more: Collection[str]) -> list[object]:
    """A table of cases as parameters, those named in `more` marked."""
    return [case if case.name not in more else thorough(case)[0] for case in cases]
