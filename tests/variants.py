"""Cases that differ from another in a name or a form only: left to `make test-all`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from _pytest.mark import ParameterSet


def variants(*cases: object) -> list[ParameterSet]:
    """Parameters whose code is that of the cases beside them.

    Args:
        *cases: Values of one parameter, or a tuple for several.
    """
    return [
        pytest.param(*(case if isinstance(case, tuple) else (case,)), marks=pytest.mark.variant)
        for case in cases
    ]
