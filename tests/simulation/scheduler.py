"""Switches threads by a seed: exactly one runs at a time, and the time is a number.

Each thread is one of the system, because the code under test keeps values by thread. It hands over at each request
to the storage, at locks, and whenever it waits. Waits end by the virtual time alone.
"""

from __future__ import annotations

import _thread
import random
import threading
from typing import TYPE_CHECKING, Any, NamedTuple

from tests.simulation.sim_store import Crash, Faults, Process, SimStore

if TYPE_CHECKING:
    from collections.abc import Callable

#: A commit is this many times as likely to stall as another request.
_AT_COMMITS = 3
#: After a take has checked its leases for the last time, it sends fewer requests than this.
_LAST = 4
#: How many seconds a stalled request takes.
_STALLS = (0.5, 2.0, 3.0, 5.0, 12.0)

#: The scheduler of the running simulation.
running: list[Scheduler] = []


class StuckError(Exception):
    """No thread can go on."""


class Actor(Process):
    """A program with one queue object: its requests are steps of the scheduler."""

    def __init__(self, scheduler: Scheduler, name: str, faults: Faults, drift: float) -> None:
        super().__init__(scheduler.world, name, faults, drift)
        self.scheduler = scheduler
        #: Until when it is paused, and all times in which it was silent.
        self.frozen = 0.0
        self.silent: list[tuple[float, float]] = []
        self._fuses: list[tuple[list[str], float | None]] = []

    def step(self, request: str) -> None:
        """Go on to the next request."""
        world = self.world
        self.require_life()
        world.pass_time(world.rng.uniform(0.002, 0.05))
        self._burn(request)
        self.scheduler.note(request)
        self.scheduler.hand_over(_AT_COMMITS if request.startswith("CREATE") else 1)

    def fuse(self, requests: int, seconds: float | None, kind: str = "") -> None:
        """Arrange a pause, or a crash if `seconds` is `None`, at a later request.

        Args:
            requests: The number of the request, from 1 on.
            seconds: The length of the pause.
            kind: Only requests that begin with this text count.
        """
        self._fuses.append(([kind] * requests, seconds))

    def _burn(self, request: str) -> None:
        for fuse in self._fuses.copy():
            left, seconds = fuse
            if left and request.startswith(left[-1]):
                left.pop()
            if left:
                continue
            self._fuses.remove(fuse)
            if seconds is None:
                self.end(request)
            else:
                # None of its threads runs for a while.
                self.frozen = self.world.now + seconds
                self.silent.append((self.world.now, self.frozen))
                self.world.note(self.name, f"is paused for {seconds:.0f} s")

    def sleep(self, seconds: float) -> None:
        """Wait."""
        self.scheduler.wait(lambda: False, seconds)

    def end(self, request: str) -> None:
        """End the process at a request."""
        self.silent.append((self.world.now, float("inf")))
        super().end(request)

    def close(self) -> None:
        """Note that it has ended as it should."""
        self.silent.append((self.world.now, float("inf")))


class SimThread:
    """A thread of the simulation, with what `threading.Thread` has."""

    def __init__(
        self, *, target: Callable[..., object], name: str = "", args: Any = (), daemon: bool = False,
        actor: Actor | None = None,
    ) -> None:  # fmt: skip
        self.target, self.args, self.name, self.daemon = target, args, name, daemon
        self.scheduler = running[-1]
        self.actor = actor or self.scheduler.actor
        self.gate = _thread.allocate_lock()
        self.gate.acquire()
        self.ready: Callable[[], bool] = lambda: True
        self.deadline = float("inf")
        self.is_over = False
        #: The commits that it has sent, and the times of all requests.
        self.commits, self.times = 0, [0.0] * _LAST
        self.error: BaseException | None = None

    def start(self) -> None:
        """Let it run when its turn comes."""
        self.scheduler.threads.append(self)
        _thread.start_new_thread(self.run, ())

    def is_alive(self) -> bool:
        """Whether it runs."""
        return not self.is_over

    def join(self, timeout: float | None = None) -> None:
        """Wait for its end."""
        if not self.is_over:
            self.scheduler.wait(lambda: self.is_over, timeout)

    def run(self) -> None:
        """Run its function, on a thread of the system."""
        self.gate.acquire()
        try:
            # If its process has ended before it began, its first request says so.
            self.target(*self.args)
        except Crash:
            pass
        except BaseException as error:  # noqa: BLE001  (the simulation tells it)
            self.error = error
        finally:
            self.is_over = True
            self.scheduler.leave(self)

    def may_run(self, now: float) -> bool:
        """Whether it can go on now."""
        if self.actor.is_dead:
            return True
        if self.actor.frozen > now:
            return False
        return self.deadline <= now or self.ready()


class Pace(NamedTuple):
    """How threads change hands.

    Attributes:
        goes_on: The probability that a thread goes on at a request, although others could.
        stalls: The probability that a request of a program takes seconds.
        every: The number of versions from one checkpoint of a log to the next. Each may shorten the log.
    """

    goes_on: float = 0.3
    stalls: float = 0.0
    every: int = 50


class Scheduler:
    """Hands the one turn to a thread."""

    def __init__(self, seed: int, world: SimStore, pace: Pace) -> None:
        self.pace = pace
        self.rng = random.Random(f"turns {seed}")
        self.ids = random.Random(f"ids {seed}")
        self.world = world
        self.threads: list[SimThread] = []
        self.errors: list[tuple[SimThread, BaseException]] = []
        self.current: SimThread | None = None
        self._over = threading.Event()
        self._stuck = False

    @property
    def actor(self) -> Actor:
        """The actor of the running thread."""
        assert self.current is not None
        return self.current.actor

    def run(self) -> None:
        """Run all threads to their ends."""
        self._pass_on()
        # A signal that another thread gets does not end a wait.
        while not self._over.wait(1.0):
            pass
        if self._stuck:
            raise StuckError(", ".join(thread.name for thread in self.threads))

    def note(self, request: str) -> None:
        """Count a request of the running thread."""
        assert self.current is not None
        self.current.commits += request.startswith("CREATE") and request.endswith(".json")
        self.current.times.append(self.world.now)

    def hand_over(self, factor: int = 1) -> None:
        """Perhaps let another thread run, or stall. `factor` multiplies the probability to stall."""
        me = self.current
        if me is None or len(self.threads) == 1:
            return
        if self.rng.random() < self.pace.goes_on and me.actor.frozen <= self.world.now:
            return
        # A thread stalls only if it has the name of its program. The threads that renew the session have other names.
        if me.name == me.actor.name and self.rng.random() < self.pace.stalls * factor:
            self.wait(lambda: False, self.rng.choice(_STALLS))
            return
        me.ready, me.deadline = lambda: True, float("inf")
        self._turn(me)

    def wait(self, ready: Callable[[], bool], seconds: float | None = None) -> bool:
        """Wait until something is so, or seconds have passed; whether it is so."""
        me = self.current
        if me is None:
            return ready()
        me.actor.require_life()
        if ready():
            return True
        me.ready = ready
        me.deadline = float("inf") if seconds is None else self.world.now + max(seconds, 0.0)
        self._turn(me)
        return ready()

    def _turn(self, me: SimThread) -> None:
        following = self._next()
        if following is not me:
            self._give_to(following)
            me.gate.acquire()
        me.actor.require_life()

    def leave(self, thread: SimThread) -> None:
        """End a thread."""
        self.threads.remove(thread)
        if thread.error is not None:
            self.errors.append((thread, thread.error))
        self._pass_on()

    def _pass_on(self) -> None:
        self.current = None
        if self.threads:
            self._give_to(self._next())
        else:
            self._over.set()

    def _give_to(self, following: SimThread | None) -> None:
        """Give the turn to a thread, or end all threads if none can go on."""
        if following is None:
            self._give_up()
        else:
            self.current = following
            following.gate.release()

    def _next(self) -> SimThread | None:
        """The next thread; time passes until one can go on."""
        while True:
            now = self.world.now
            ready = [thread for thread in self.threads if thread.may_run(now)]
            if ready:
                return ready[0] if len(ready) == 1 else self.rng.choice(ready)
            moments = [
                moment
                for thread in self.threads
                for moment in (thread.actor.frozen, thread.deadline)
                if now < moment < float("inf")
            ]
            if not moments:
                return None
            self.world.pass_time(max(min(moments) - now, 1e-6))

    def _give_up(self) -> None:
        """Nobody can go on: end all threads."""
        self._stuck = True
        for thread in self.threads:
            thread.actor.is_dead = True
        self._pass_on()

    def sent(self) -> tuple[int, int, int, int]:
        """How many commits and requests the running thread has sent, how many failed, and when the last ones began."""
        assert self.current is not None
        times = self.current.times
        failures = self.current.actor.failures
        return self.current.commits, len(times), failures, round(times[-_LAST] * 1e6)

    def now_us(self) -> int:
        """The true time, in microseconds."""
        return round(self.world.now * 1e6)
