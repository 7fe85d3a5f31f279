"""Simulates a shared storage in memory whose requests fail by a seed, to prove what programs promise for it.

Programs are not threads. Before each request of a program the hook `between` may let other programs act, so all that
happens follows from the seed. Time is a number that each request moves.
"""

from __future__ import annotations

import math
from contextlib import contextmanager
from dataclasses import dataclass, field
from operator import itemgetter
from typing import TYPE_CHECKING, Any

from tubeq_spark.storage.store.store import ExistsError, RequestError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from pathlib import Path
    from random import Random

#: When each simulation begins, in seconds since 1970.
BEGINS = 1_760_000_000.0
#: The seconds of a pause.
_PAUSES = (60.0, 900.0, 4_000.0, 10_000.0, 90_000.0, 900_000.0)


class Crash(BaseException):
    """A process ends here. All its later requests raise this, too."""


@dataclass(frozen=True, slots=True)
class Faults:
    """How probable each fault of a request is.

    Attributes:
        lost: The answer is lost; the request is done before, is done later, or never.
        refused: The store refuses it, or cannot be reached.
        crash: The process ends before it, or after it.
        pause: The process stops for minutes to days before it.
        old: A listing lacks the newest file.
    """

    lost: float = 0.0
    refused: float = 0.0
    crash: float = 0.0
    pause: float = 0.0
    old: float = 0.0


NONE = Faults()


@dataclass(frozen=True, slots=True)
class File:
    """A file of the storage: its content, when it was written by the storage's clock, and its tag."""

    content: bytes
    at: float
    tag: str


@dataclass(frozen=True, slots=True)
class Event:
    """A change of the storage: who changed which file at which time; without content, a removal.

    Attributes:
        paused: For how long the process was paused before this request.
    """

    at: float
    process: str
    name: str
    content: bytes | None
    tag: str = ""
    paused: float = 0.0


@dataclass(slots=True)
class SimStore:
    """The files that all programs share, by their whole names.

    Attributes:
        rng: The randomness of all that happens.
        between: Called before each request with the process and the request; it may let others act.
        page: The files of one page of a listing; each page is a request.
        skew: The clocks of the storage's hosts differ from the right time by so many seconds, at most.
        now: The right time.
        journal: All changes of files, in their order.
        trace: All requests with their ends, for people.
        current: The process that runs.
    """

    rng: Random
    between: Callable[[Process, str], None] = lambda _process, _request: None
    page: int = 1_000
    skew: float = 0.5
    now: float = BEGINS
    files: dict[str, File] = field(default_factory=dict)
    journal: list[Event] = field(default_factory=list)
    trace: list[str] = field(default_factory=list)
    current: Process | None = None
    _under_way: list[tuple[float, Callable[[], object]]] = field(default_factory=list)
    _tags: int = 0

    def sync_all(self, path: str | Path) -> None:
        """Do nothing: what a store has answered is durable."""

    def create(self, process: str, name: str, content: bytes) -> str:
        """Create a file, and return its tag.

        Raises:
            ExistsError: It exists.
        """
        if name in self.files:
            raise ExistsError(name)
        return self.write(process, name, content)

    def write(self, process: str, name: str, content: bytes) -> str:
        """Write or replace a file, and return its tag."""
        self._tags += 1
        # Most storages list times in whole seconds.
        at = math.floor(self.now + self.rng.uniform(-self.skew, self.skew))
        self.files[name] = File(content, at, str(self._tags))
        paused = 0.0 if self.current is None else self.current.paused
        self.journal.append(Event(self.now, process, name, content, str(self._tags), paused))
        return str(self._tags)

    def remove(self, process: str, names: Iterable[str]) -> None:
        """Remove files."""
        for name in names:
            if self.files.pop(name, None) is not None:
                self.journal.append(Event(self.now, process, name, None))

    def send_late(self, seconds: float, work: Callable[[], object]) -> None:
        """Do the work of a request that is under way after so many seconds."""
        self._under_way.append((self.now + seconds, work))

    def pass_time(self, seconds: float) -> None:
        """Move the clock; requests under way arrive."""
        self.now += seconds
        due = [late for late in self._under_way if late[0] <= self.now]
        self._under_way = [late for late in self._under_way if late[0] > self.now]
        for _, work in sorted(due, key=itemgetter(0)):
            try:
                work()
            except (ExistsError, RequestError) as error:
                self.note("late", str(error))

    def note(self, who: str, what: str) -> None:
        """Note a line for people."""
        self.trace.append(f"{self.now - BEGINS:12.1f} {who:>8} {what}")


class Process:
    """A program that runs: its requests fail, and it ends at a crash."""

    def __init__(
        self, world: SimStore, name: str, faults: Faults = NONE, drift: float = 0.0
    ) -> None:
        """Begin.

        Args:
            world: The shared storage.
            name: Its name.
            faults: The faults of its requests.
            drift: Seconds by which its clock is ahead of the right time.
        """
        self.world, self.name, self.faults, self.drift = world, name, faults, drift
        self.is_dead = False
        #: For how long it was paused before its current request.
        self.paused = 0.0
        #: How many requests were refused, or their answers lost.
        self.failures = 0
        #: What modules remember for it, by names.
        self.memory: dict[str, Any] = {}

    @property
    def now(self) -> float:
        """The time by its own clock."""
        return self.world.now + self.drift

    @contextmanager
    def running(self) -> Iterator[None]:
        """Let it be the current process in a block."""
        before, self.world.current = self.world.current, self
        try:
            yield
        finally:
            self.world.current = before

    def step(self, request: str) -> None:
        """Go on to the next request: time passes, others act, and the process may be paused or end here."""
        world, rng, began = self.world, self.world.rng, self.world.now
        self.require_life()
        world.pass_time(rng.uniform(0.005, 0.2))
        self.pause_perhaps()
        world.between(self, request)
        self.paused = world.now - began
        self.end_perhaps(request)

    def pause_perhaps(self, factor: float = 1.0) -> None:
        """Be paused, perhaps; so many times as probably as before a request."""
        rng = self.world.rng
        if rng.random() < self.faults.pause * factor:
            self._pause(rng.choice(_PAUSES), rng.randint(2, 12))

    def fails_perhaps(self) -> bool:
        """Whether a call of the system fails."""
        return self.world.rng.random() < self.faults.refused

    def _pause(self, seconds: float, parts: int) -> None:
        self.world.note(self.name, f"is paused for {seconds:.0f} s")
        for _ in range(parts):
            self.world.pass_time(seconds / parts)
            self.world.between(self, "pause")

    def sleep(self, seconds: float) -> None:
        """Wait."""
        self.require_life()
        self.world.pass_time(seconds)
        self.world.between(self, "sleep")

    def require_life(self) -> None:
        """Raise Crash if it has ended: nothing that it still calls has an effect."""
        if self.is_dead:
            raise Crash

    def end_perhaps(self, request: str) -> None:
        """End the process, perhaps."""
        if self.world.rng.random() < self.faults.crash:
            self.end(request)

    def end(self, request: str) -> None:
        """End the process at a request."""
        self.is_dead = True
        self.world.note(self.name, f"crashes at {request}")
        raise Crash
