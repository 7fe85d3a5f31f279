"""How many examples a machine runs: few on Spark, so many times more where a step takes milliseconds."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from hypothesis import settings

if TYPE_CHECKING:
    from tests.acceptance.support import OnSpark

__all__ = ["examples_on"]


def examples_on(engine: OnSpark, usual: settings, nightly: settings, times: int = 5) -> settings:
    """The settings for an engine.

    The environment's `TUBEQ_HYPOTHESIS_PROFILE=nightly` chooses the other settings, `TUBEQ_EXAMPLES=100` how
    many times the examples of Spark the native engine runs (`make test-model`). A step on Spark takes seconds, so
    Spark runs a tenth of the nightly examples.
    """
    is_nightly = os.environ.get("TUBEQ_HYPOTHESIS_PROFILE", "ci") == "nightly"
    profile = nightly if is_nightly else usual
    if engine.spark is not None:
        return settings(nightly, max_examples=nightly.max_examples // 10) if is_nightly else usual
    times = int(os.environ.get("TUBEQ_EXAMPLES", times))
    return settings(profile, max_examples=times * profile.max_examples)
