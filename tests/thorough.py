"""Cases of which another stands for all in `make test`: left to `make test-all`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from _pytest.mark import ParameterSet


def thorough(*cases: object) -> list[ParameterSet]:
    """Parameters that go through the code of the cases beside them.

    Args:
        *cases: Values of one parameter, or a tuple for several.
    """
    return [
        pytest.param(*(case if isinstance(case, tuple) else (case,)), marks=pytest.mark.thorough)
        for case in cases
    ]
