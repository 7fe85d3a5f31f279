"""Chooses how many examples a state machine runs: few on Spark, more where a step takes milliseconds."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from hypothesis import HealthCheck, Phase, settings

if TYPE_CHECKING:
    from tests.acceptance.support import OnSpark

__all__ = ["examples_on"]

#: The same example in each run: what a few do not come to is for the nightly profile, not for more of them.
_SAME: dict[str, Any] = {
    "derandomize": True,
    "database": None,
    "phases": [Phase.explicit, Phase.generate],
}


def examples_on(engine: OnSpark, steps: int, times: int, nightly: int) -> settings:
    """The settings for an engine.

    The environment's `TUBEQ_HYPOTHESIS_PROFILE=nightly` chooses many examples of 50 steps, `TUBEQ_EXAMPLES=100` how
    many times the examples of Spark the native engine runs (`make test-model`). A step on Spark takes seconds, so
    Spark runs a tenth of the nightly examples.

    Args:
        engine: On which it runs.
        steps: Of an example.
        times: How many times the one example of Spark the other engines run.
        nightly: How many examples there are in the nightly profile.
    """
    is_nightly = os.environ.get("TUBEQ_HYPOTHESIS_PROFILE", "ci") == "nightly"
    count = nightly if is_nightly else 1
    if engine.spark is None:
        count *= int(os.environ.get("TUBEQ_EXAMPLES", times))
    elif is_nightly:
        count //= 10
    return settings(
        max_examples=count,
        stateful_step_count=50 if is_nightly else steps,
        deadline=None,
        suppress_health_check=list(HealthCheck),
        **{"print_blob": True} if is_nightly else _SAME,
    )
