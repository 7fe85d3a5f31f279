"""Replaces threads, locks, times, randomness and storage of the code under test."""

from __future__ import annotations

import datetime as dt
import functools
import importlib
import os
import pkgutil
import random
import sys
import threading
import types
import uuid
from contextlib import ExitStack, contextmanager
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Any
from unittest import mock

import pyarrow as pa

from tests.simulation.scheduler import Scheduler, SimThread, running
from tests.simulation.sim_client import Client
from tests.simulation.sim_store import BEGINS
from tubeq_spark import Backoff
from tubeq_spark.clock import SystemClock
from tubeq_spark.runtime import context, session
from tubeq_spark.storage.locks import table_lock
from tubeq_spark.storage.log import tidying
from tubeq_spark.storage.native.handles import Handles
from tubeq_spark.storage.native.tables import NativeTables
from tubeq_spark.storage.store.store import Patience
from tubeq_spark.workers import source

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

#: The queue. Each table there is a directory of the simulated storage.
LOCATION = "s3://sim/q"
#: The monotonic time at the begin.
_MONOTONIC = 1_000.0
#: A lock hands over this often.
_AT_LOCKS = 0.05


class SimLock:
    """A lock."""

    _is_reentrant = False

    def __init__(self) -> None:
        self._holder: SimThread | None = None
        self._count = 0

    def acquire(self, blocking: bool = True, timeout: float = -1) -> bool:
        """Take it."""
        scheduler = running[-1]
        me = scheduler.current
        if scheduler.rng.random() < _AT_LOCKS:
            scheduler.hand_over()
        if self._count and not (self._is_reentrant and self._holder is me):
            if not blocking:
                return False
            if not scheduler.wait(lambda: not self._count, None if timeout < 0 else timeout):
                return False
        self._holder = me
        self._count += 1
        return True

    def release(self) -> None:
        """Give it back."""
        if not self._count:
            # The threads of a process that has ended do not wait for locks.
            running[-1].actor.require_life()
            msg = "release unlocked lock"
            raise RuntimeError(msg)
        self._count -= 1

    def __enter__(self) -> bool:
        return self.acquire()

    def __exit__(self, *_: object) -> None:
        self.release()


class SimRLock(SimLock):
    """A lock that its holder may take again."""

    _is_reentrant = True


class SimEvent:
    """An event."""

    def __init__(self) -> None:
        self._is_set = False

    def is_set(self) -> bool:
        """Whether it has come."""
        return self._is_set

    def set(self) -> None:
        """Let it come."""
        self._is_set = True

    def wait(self, timeout: float | None = None) -> bool:
        """Wait for it."""
        return running[-1].wait(self.is_set, timeout)


class SimCondition:
    """A condition. A thread that waits looks by itself, so nobody needs to notify it."""

    def __init__(self, lock: SimLock) -> None:
        self._lock = lock

    def wait_for(self, is_so: Callable[[], bool], timeout: float | None = None) -> bool:
        """Wait until something is so."""
        self._lock.release()
        try:
            return running[-1].wait(is_so, timeout)
        finally:
            self._lock.acquire()

    def notify(self) -> None:
        """Wake a thread."""


class SimQueue:
    """A `SimpleQueue`."""

    def __init__(self) -> None:
        self._items: list[Any] = []

    def put(self, item: Any) -> None:
        """Add an item."""
        self._items.append(item)

    def get(self, block: bool = True, timeout: float | None = None) -> Any:
        """Take an item."""
        if not running[-1].wait(lambda: bool(self._items), timeout if block else 0.0):
            raise Empty
        return self._items.pop(0)

    def get_nowait(self) -> Any:
        """Take an item that is there."""
        return self.get(block=False)


def _like(module: types.ModuleType, **replaced: Any) -> types.SimpleNamespace:
    return types.SimpleNamespace(**{**vars(module), **replaced})


#: The rooms whose modules a simulation runs. All are imported before it begins, so that each is given its threads.
_ROOMS = ("admin", "verbs", "runtime", "payloads", "model", "workers", "observe", "storage")
#: Modules whose threads are none of the simulation: they serve the main thread, or the end of the process.
_REAL = ("tubeq_spark.storage.uninterrupted", "tubeq_spark.model.json_payload")


@functools.cache
def _places() -> list[tuple[types.ModuleType, str, Any]]:
    """Each name in a module of the package that refers to threads, randomness or ids: module, name and value."""
    for room in _ROOMS:
        package = importlib.import_module(f"tubeq_spark.{room}")
        for found in pkgutil.walk_packages(package.__path__, f"tubeq_spark.{room}."):
            if "spark." not in found.name.removeprefix("tubeq_spark."):
                importlib.import_module(found.name)
    return [
        (module, name, value)
        for place, module in list(sys.modules.items())
        if place.startswith("tubeq_spark") and place not in _REAL
        for name, value in list(vars(module).items())
        if any(value is each for each in (threading, random, uuid, uuid.uuid4, SimpleQueue))
    ]


@contextmanager
def simulated(scheduler: Scheduler) -> Iterator[None]:
    """Give the code under test threads, times and randomness of a simulation in a block."""
    ids = scheduler.ids
    threads = _like(
        threading,
        Thread=SimThread,
        Lock=SimLock,
        RLock=SimRLock,
        Event=SimEvent,
        Condition=SimCondition,
        current_thread=lambda: scheduler.current or threading.current_thread(),
    )
    chances = _like(
        random,
        Random=lambda *seed: random.Random(*(seed or (ids.getrandbits(64),))),
        getrandbits=ids.getrandbits,
    )
    used = context.UsedTubes
    names = _like(uuid, uuid4=lambda: uuid.UUID(int=ids.getrandbits(128), version=4))
    replaced = {
        threading: threads, random: chances, uuid: names, uuid.uuid4: names.uuid4,
        SimpleQueue: SimQueue,
    }  # fmt: skip
    with ExitStack() as stack:
        running.append(scheduler)
        stack.callback(running.pop)
        for module, name, value in _places():
            stack.enter_context(mock.patch.object(module, name, replaced[value]))
        for place, name, value in (
            (session, "os", _like(os, getpid=lambda: 1)),
            (tidying, "EVERY", scheduler.pace.every),
            # Each actor stands for a process, so it has its own locks.
            (table_lock, "_table_locks", _OfActors(scheduler)),
            # The default of its field was made before the simulation began.
            (context, "UsedTubes", lambda: used(lock=SimRLock())),
            # A worker delays failed tasks by a jitter that depends on the task id. The checker expects none.
            (source, "Backoff", functools.partial(Backoff, jitter=0.0)),
            (
                Handles,
                "store",
                lambda _handles, path: FileClient(scheduler.actor, path[len("s3://") :]),
            ),
            (NativeTables, "overwrites", lambda _tables, _location: None),
        ):
            stack.enter_context(mock.patch.object(place, name, value))
        stack.enter_context(mock.patch.multiple(SystemClock, **_times(scheduler)))
        yield


class FileClient(Client):
    """The files of a table, as an actor sees them. Files that it has read or written once are not read again."""

    patience = Patience(5, 30.0)

    def is_cached(self, name: str) -> bool:
        """Whether a file was read or written."""
        return self._whole(name) in self.process.memory.get("files", {})

    def open_file(self, name: str, size: int) -> pa.NativeFile:
        """Open a file that never changes."""
        del size
        cached: dict[str, bytes] = self.process.memory.setdefault("files", {})
        key = self._whole(name)
        if key not in cached:
            cached[key] = self.get(name)[0]
        return pa.BufferReader(cached[key])

    def put(self, name: str, content: bytes) -> None:
        """Write a file."""
        super().put(name, content)
        self.process.memory.setdefault("files", {})[self._whole(name)] = content


class _OfActors(dict[Any, Any]):
    """What each process has once."""

    def __init__(self, scheduler: Scheduler) -> None:
        super().__init__()
        self._scheduler = scheduler

    def get(self, key: Any, default: Any = None) -> Any:
        return super().get((self._scheduler.actor.name, key), default)

    def __setitem__(self, key: Any, value: Any) -> None:
        super().__setitem__((self._scheduler.actor.name, key), value)


def _times(scheduler: Scheduler) -> dict[str, Any]:
    def now(_clock: SystemClock) -> dt.datetime:
        drift = scheduler.actor.drift if scheduler.current is not None else 0.0
        return dt.datetime.fromtimestamp(scheduler.world.now + drift, dt.UTC)

    def monotonic(_clock: SystemClock) -> float:
        return scheduler.world.now - BEGINS + _MONOTONIC

    def sleep(_clock: SystemClock, seconds: float) -> None:
        scheduler.wait(lambda: False, seconds)

    return {"now": now, "monotonic": monotonic, "sleep": sleep}
