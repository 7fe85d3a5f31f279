"""Requests of ours that hang, in imagined time: the real store is asked, or the time of a hung request passes at once.

Requests of the library itself are answered, and take no time.
"""

from __future__ import annotations

import contextlib
import threading
import time
from random import Random
from typing import TYPE_CHECKING, Any

import obstore
from obstore.exceptions import GenericError

from tubeq_spark.storage.native import (
    plain_table,
)
from tubeq_spark.storage.store import patience
from tubeq_spark.storage.store.bucket import Bucket
from tubeq_spark.storage.store.patience import shared_by_threads
from tubeq_spark.storage.store.store import RequestError
from tubeq_spark.testing import ManualClock

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator

    import pytest

__all__ = ["Hanging", "OwnTime"]

#: The methods of requests, by the names of the functions that send them.
_METHODS = {"get": "GET", "put": "PUT", "list": "GET", "delete": "POST"}
_ALL = (*_METHODS, "put_if_absent")


class OwnTime(ManualClock):
    """A clock whose time passes for each thread by itself, and only by what it waits for."""

    def __init__(self) -> None:
        """Begin at nought."""
        super().__init__()
        self._local = threading.local()

    @property
    def passed(self) -> float:
        """Seconds of this thread."""
        return getattr(self._local, "passed", 0.0)

    @passed.setter
    def passed(self, seconds: float) -> None:
        self._local.passed = seconds

    def monotonic(self) -> float:
        """What is real runs on, as far as one thing is before another."""
        return self.passed + time.monotonic()

    def sleep(self, seconds: float) -> None:
        """Let it pass."""
        self.passed += seconds


class Hanging:
    """A share of the requests hangs, each for so many seconds."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, seconds: float) -> None:
        """Let none hang yet."""
        self.clock = OwnTime()
        self.failed = 0
        self._seconds, self._random, self._share = seconds, Random(), 0.0
        self._names: Collection[str] = ()
        for module in (patience, plain_table):
            monkeypatch.setattr(module, "_CLOCK", self.clock)
        for name, method in _METHODS.items():
            request = getattr(obstore, name)
            monkeypatch.setattr(obstore, name, self._hanging(name, request, method))
        monkeypatch.setattr(
            Bucket, "together", lambda _, call, items: self._together(call, list(items))
        )

    @contextlib.contextmanager
    def some(
        self, share: float = 1.0, seed: int = 0, names: Collection[str] = _ALL
    ) -> Iterator[None]:
        """Let a share of the requests of such names hang for a block."""
        self._share, self._random, self._names, self.failed = share, Random(seed), names, 0
        try:
            yield
        finally:
            self._share = 0.0

    def _hanging(self, name: str, request: Callable[..., Any], method: str) -> Callable[..., Any]:
        def run(client: object, key: object, *args: Any, **more: Any) -> Any:
            kind = "put_if_absent" if more.get("mode") == "create" else name
            if kind not in self._names or self._random.random() >= self._share:
                return request(client, key, *args, **more)
            self.failed += 1
            self.clock.sleep(self._seconds)
            msg = (
                f"Generic S3 error: Error performing {method} http://store/bucket/{key} in 1s - "
                "HTTP error: error sending request\n\nDebug source:\nkind: Timeout"
            )
            raise GenericError(msg)

        return run

    def _together(self, call: Callable[[Any], Any], some: list[Any]) -> list[Any]:
        """One after the other; what they take is the time of the longest."""
        began, ends, found = self.clock.passed, [self.clock.passed], list[Any]()
        if len(some) < 2:
            return [call(thing) for thing in some]
        failed: Exception | None = None
        outer = patience._verb.lost
        with shared_by_threads() as carried:
            run = carried(call)
            for thing in some:
                self.clock.passed = began
                try:
                    found.append(run(thing))
                except RequestError as error:
                    failed = failed or error
                finally:
                    ends.append(self.clock.passed)
                    patience._verb.lost = outer
        self.clock.passed = max(ends)
        if failed is not None:
            raise failed
        return found
