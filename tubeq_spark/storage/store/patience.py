"""The repetition of requests, how much time a verb may lose by them, and the client's errors as ours.

No other module reads messages of the client of object stores.
"""

from __future__ import annotations

import math
import random
import re
import threading
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, TypeVar
from urllib.parse import unquote

from tubeq_spark.clock import SystemClock
from tubeq_spark.model.times import RetryWaits
from tubeq_spark.storage.store.error_text import in_one_line
from tubeq_spark.storage.store.store import RequestError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

T = TypeVar("T")
V = TypeVar("V")
_CLOCK = SystemClock()

#: A verb repeats several requests together, so one of them fails more often. By default only time limits this.
_RETRIES, _SECONDS = 1_000, 30.0

#: The prefixes of each store's own names, in options and in the environment.
STORE_PREFIX = re.compile(r"^(?:aws|azure|google)_")
_PART = re.compile(r"([0-9]+)\s*(ns|us|ms|milli|s|m|h|d)[a-z]*\s*")
_UNITS = {"ns": 1e-9, "us": 1e-6, "ms": 1e-3, "milli": 1e-3, "s": 1, "m": 60, "h": 3600, "d": 86400}


def plain(name: str) -> str:
    """The name of an option without the store's prefix."""
    return STORE_PREFIX.sub("", name.lower())


def _seconds_of(text: str) -> float | None:
    """Parse a duration such as `1m 30s`; `None` if it is not one."""
    if _PART.sub("", text).strip():
        return None
    return sum(int(count) * _UNITS[unit] for count, unit in _PART.findall(text)) or None


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
            _seconds_of(named.get("retry_timeout", "")) or _SECONDS,
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


#: How the client names the request that failed, and the status of the answer.
_REQUEST = re.compile(r"Error performing ([A-Z]+) (\S+) in ")
_STATUS = re.compile(r"non-2xx status code: (\d{3})")
#: The client writes this in place of an address that has a secret, such as a SAS token of Azure.
_HIDDEN = "REDACTED"
#: The client's text for a request that it cannot build, such as one by http that is not allowed.
_NOT_MADE = "builder error"
#: Codes for expired credentials, which stores send with other statuses than 401 and 403.
_EXPIRED = re.compile(r"ExpiredToken|TokenRefreshRequired|RequestExpired")
#: A missing bucket has the same status as a missing object.
_NO_BUCKET = re.compile("NoSuchBucket|ContainerNotFound|The specified bucket does not exist")
#: Statuses from 400 to 499 after which a repetition may succeed: the request was slow, or came too often.
_PASSING = (408, 429)
#: After this the client has details for its developers, with causes that its message leaves out.
_DEBUG = "\n\nDebug source:"
_NO_CONNECTION = "client error (Connect)"
_CAUSES = (
    (re.compile(r"kind: Connect\b"), _NO_CONNECTION),
    (re.compile(r"\bBadScheme\b"), "URL scheme is not allowed"),
    (re.compile(r"kind: Timeout\b|\bTimedOut\b"), "operation timed out"),
)
#: Texts of deeper causes in these details.
_SAID = re.compile(r'^\s*(?:message: )?"([^"]+)",?$', re.MULTILINE)
#: Between two causes in its message.
_BETWEEN = re.compile(r": (?=Error performing|<)| - ")


def request_error(error: BaseException, bucket: str, key: str) -> RequestError:
    """The error of a failed request, from the client's error and the URI of the bucket and the key."""
    causes = _causes(error)
    text = "\n".join(causes)
    request, found = _REQUEST.search(text), _STATUS.search(text)
    status = None if found is None else int(found[1])
    is_refused = _NOT_MADE in text or (
        status is not None and 400 <= status < 500 and status not in _PASSING
    )
    # A request for credentials comes before it, to another address. The client of Google encodes most characters.
    is_other = request is not None and not (
        request[2] == _HIDDEN or unquote(request[2].partition("?")[0]).endswith(f"/{key}")
    )
    is_of_credentials = status in (401, 403) or _EXPIRED.search(text) is not None
    return RequestError(
        text_of(error, bucket, key),
        status=status,
        was_sent=not (is_other or is_refused or _NO_CONNECTION in causes),
        passes=request is not None and not is_refused,
        is_of_credentials=request is not None and status is not None and is_of_credentials,
    )


def text_of(error: BaseException, bucket: str, key: str) -> str:
    """The message of the client's error in one line, with the address of the request."""
    hidden, address = f" {_HIDDEN} in ", f" {bucket}/{key} in "
    return in_one_line(cause.replace(hidden, address) for cause in _causes(error))


def is_of_file(error: FileNotFoundError) -> bool:
    """Whether a file that should be read or removed is missing; otherwise its bucket is."""
    text = str(error)
    request = _REQUEST.search(text)
    is_put = request is not None and request[1] == "PUT"
    return not is_put and _NO_BUCKET.search(text) is None


def _causes(error: BaseException) -> list[str]:
    """The causes in the message of an error, the outermost first."""
    said, _, debug = str(error).partition(_DEBUG)
    causes = [cause for pattern, cause in _CAUSES if pattern.search(debug)]
    return [*_BETWEEN.split(said), *causes, *_SAID.findall(debug)]
