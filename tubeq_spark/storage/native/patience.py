"""Repeats requests to an object store after errors that pass, if the client does not repeat them."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, TypeVar

from tubeq_spark.clock import SystemClock
from tubeq_spark.rules.backoff import Backoff
from tubeq_spark.storage.native import errors

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tubeq_spark.storage.native.client_options import Patience

__all__ = ["patiently", "sleep", "waits"]

T = TypeVar("T")
_CLOCK = SystemClock()


def patiently(call: Callable[[], T], patience: Patience) -> T:
    """Run a repeatable request, and again after errors that pass."""
    for wait in waits(patience):
        try:
            return call()
        except Exception as error:
            if wait is None or not errors.may_pass(error):
                raise
        sleep(wait)
    raise AssertionError  # never: the last wait is `None`


def waits(patience: Patience) -> Iterator[float | None]:
    """The waits after failures; `None` after the last one."""
    began = _CLOCK.monotonic()
    backoff = Backoff(patience.retries + 1, patience.seconds, first=0.1, most=2.0)
    yield from backoff.waits(lambda: _CLOCK.monotonic() - began, random.random)
    yield None


def sleep(seconds: float) -> None:
    """Wait, in real time."""
    _CLOCK.sleep(seconds)
