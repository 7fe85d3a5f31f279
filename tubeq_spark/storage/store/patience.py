"""The repetition of requests, and how much time a verb may lose by them."""

from __future__ import annotations

import math
import random
import threading
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, TypeVar

from tubeq_spark.clock import SystemClock
from tubeq_spark.model.retry_waits import RetryWaits
from tubeq_spark.storage.store.store import RequestError
from tubeq_spark.storage.store.store_options import plain, seconds_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

T = TypeVar("T")
V = TypeVar("V")
_CLOCK = SystemClock()

#: A verb repeats several requests together, so one of them fails more often. By default only time limits this.
_RETRIES, _SECONDS = 1_000, 30.0


@dataclass(frozen=True, slots=True)
class Patience:
    """How often, and for how many seconds, requests are repeated after errors that may pass."""

    retries: int
    seconds: float

    @classmethod
    def parse(cls, options: Mapping[str, str]) -> Patience:
        """The values of the options `max_retries` and `retry_timeout`, or the defaults for what is none."""
        named = {plain(name): value for name, value in options.items()}
        retries = named.get("max_retries", "")
        return cls(
            int(retries) if retries.isdecimal() else _RETRIES,
            seconds_of(named.get("retry_timeout", "")) or _SECONDS,
        )


def passes(error: BaseException) -> bool:
    """Whether a failed request may succeed if it is repeated."""
    return isinstance(error, RequestError) and error.passes


def patiently(call: Callable[[], T], patience: Patience) -> T:
    """Run a request that may be repeated, and repeat it after errors that may pass."""
    for wait in waits(patience):
        try:
            return call()
        except Exception as error:
            if wait is None or not passes(error):
                raise
        sleep(wait)
    raise AssertionError  # never: the last wait is `None`


@dataclass(slots=True)
class _Lost:
    """The time that a verb has lost by failed requests.

    Attributes:
        seconds: By requests that are not about a commit that was sent.
        of_commits: By commits, and by finding out their outcome.
        is_over: Whether `seconds` has reached its limit, so that no failed request is repeated.
    """

    seconds: float = 0.0
    of_commits: float = 0.0
    is_over: bool = False

    def add(self, other: _Lost) -> None:
        """Count the time that another thread has lost at the same moment."""
        self.seconds = max(self.seconds, other.seconds)
        self.of_commits = max(self.of_commits, other.of_commits)
        self.is_over = self.is_over or other.is_over


class _Verb(threading.local):
    """The verb and the operation of this thread.

    Attributes:
        lost: The lost time of its verb, or of its operation outside a verb; `None` if it runs neither.
        began: When its operation began, or made its last commit, by the monotonic clock; `None` if it runs none.
        made: The version that this commit has made.
    """

    lost: _Lost | None = None
    began: float | None = None
    made: object = None


_verb = _Verb()


@contextmanager
def verb_patience() -> Iterator[None]:
    """Let all requests of a verb share one `Patience`, and its commits another one.

    Only failed requests and the waits after them count: a block without failures may take any time. A block
    within a block has limits of its own.
    """
    outer, _verb.lost = _verb.lost, _Lost()
    try:
        yield
    finally:
        _verb.lost = outer


@contextmanager
def one_patience() -> Iterator[None]:
    """Run an operation. Outside a verb it has the limits of a verb; within another operation it is a part of that.

    It may be an attempt after another one that failed, so versions that were read before it do not count as new.
    """
    if _verb.began is not None:
        has_made(None)
        yield
        return
    _verb.began = _CLOCK.monotonic()
    try:
        with verb_patience() if _verb.lost is None else nullcontext():
            yield
    finally:
        _verb.began = _verb.made = None


def is_patience_over() -> bool:
    """Whether the verb of this thread has lost all of its time, so that no failed request is repeated."""
    return _verb.lost is not None and _verb.lost.is_over


@contextmanager
def finding_out() -> Iterator[None]:
    """Run a block that finds out the outcome of a commit: its lost time counts as that of commits."""
    lost = _verb.lost
    if lost is None:
        yield
        return
    _verb.lost = _Lost(lost.of_commits, lost.of_commits)
    try:
        yield
    finally:
        lost.of_commits = max(lost.of_commits, _verb.lost.seconds)
        _verb.lost = lost


def has_made(what: object) -> None:
    """Note a commit of this thread's operation: versions that it has read before are old now."""
    if _verb.began is not None:
        _verb.began, _verb.made = _CLOCK.monotonic(), what


def is_fresh(what: object, at: float) -> bool:
    """Whether a version was the newest during this thread's operation, after the commits that it has made.

    So one look serves all reads of the operation, and its statement: its commit fails if there is a newer version.

    Args:
        what: The version.
        at: When it was known to be the newest, by the monotonic clock.
    """
    return _verb.began is not None and (at >= _verb.began or what is _verb.made)


@contextmanager
def shared_by_threads() -> Iterator[Callable[[Callable[[V], T]], Callable[[V], T]]]:
    """Yield a wrapper: calls of a wrapped function in other threads share the limits of this one, in the block."""
    lost, others = _verb.lost, list[_Lost]()

    def carried(call: Callable[[V], T]) -> Callable[[V], T]:
        def run(thing: V) -> T:
            _verb.lost = None if lost is None else replace(lost)
            try:
                return call(thing)
            finally:
                others.extend([] if _verb.lost is None else [_verb.lost])
                _verb.lost = None

        return run

    try:
        yield carried
    finally:
        if lost is not None:
            for other in others:
                lost.add(other)


def impatient(call: Callable[[], T]) -> Callable[[], T]:
    """A call for another thread that repeats no failed request."""

    def run() -> T:
        _verb.lost = _Lost(seconds=math.inf)
        try:
            return call()
        finally:
            _verb.lost = None

    return run


def waits(patience: Patience, *, of_commit: bool = False) -> Iterator[float | None]:
    """The waits after failures; `None` after the last one.

    Args:
        patience: The limits.
        of_commit: Whether a commit may be on its way whose outcome must be found out. The commits of a verb
            have limits of their own, whatever was lost before.
    """
    shared, began = _verb.lost, _CLOCK.monotonic()
    name = "of_commits" if of_commit else "seconds"
    before: float = 0.0 if shared is None else getattr(shared, name)

    def lost() -> float:
        # If this is called again, the attempt in between has failed.
        seconds = before + _CLOCK.monotonic() - began
        if shared is not None:
            setattr(shared, name, seconds)
            shared.is_over = shared.is_over or (not of_commit and seconds >= patience.seconds)
        return seconds

    retry_waits = RetryWaits(patience.retries + 1, patience.seconds, first=0.1, most=2.0)
    yield from retry_waits.waits(lost, random.random)
    yield None


def sleep(seconds: float) -> None:
    """Wait, in real time."""
    _CLOCK.sleep(seconds)
