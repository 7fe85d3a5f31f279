"""Opens tables on a simulated object store, as programs do."""

from __future__ import annotations

import datetime as dt
import random
import uuid
from contextlib import ExitStack, contextmanager, suppress
from typing import TYPE_CHECKING, Any
from unittest.mock import patch

from tests.simulation.sim_client import Client
from tests.simulation.sim_store import BEGINS, Faults, SimStore
from tubeq_spark.clock import SystemClock
from tubeq_spark.errors import TubeqError
from tubeq_spark.storage.log import tidying
from tubeq_spark.storage.log.actions import UnknownLogError
from tubeq_spark.storage.native.plain_table import store_table
from tubeq_spark.storage.store import store
from tubeq_spark.storage.store.store import Patience

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from random import Random

    from tests.simulation.sim_store import Process
    from tubeq_spark.storage.native.plain_table import PlainTable

#: Versions between two checkpoints, fewer than usual: a simulated table has few.
EVERY = 4


class SimBackground:
    """The work that follows the commits of a process, done after its act."""

    def __init__(self, process: Process) -> None:
        """Have nothing to do."""
        self._process = process
        self.work: list[Callable[[], object]] = []

    def run(self, work: Callable[[], object]) -> None:
        """Do some work later."""
        self.work.append(work)

    def catch_up(self) -> None:
        """Do the work; a failure of it fails nothing else."""
        while self.work:
            self._process.pause_perhaps(10.0)
            with suppress(OSError, TubeqError, UnknownLogError), store.one_patience():
                self.work.pop(0)()


class _PatientClient(Client):
    """A client that says for how long a commit is sent again."""

    patience = Patience(5, 30.0)


class _Verb:
    """What the store client remembers of the verb of a thread, for each process by itself."""

    def __init__(self, world: SimStore) -> None:
        self.__dict__["_world"] = world

    def __getattr__(self, name: str) -> Any:
        return self._world.current.memory.get(name)

    def __setattr__(self, name: str, value: object) -> None:
        self._world.current.memory[name] = value


class StoreTables:
    """Opens tables of object stores."""

    faults = (
        Faults(lost=0.08, refused=0.02, crash=0.004, pause=0.004),
        Faults(lost=0.02, crash=0.01, pause=0.02),
        Faults(lost=0.2, refused=0.05),
        Faults(pause=0.02),
    )
    #: There is no lock.
    is_locked = False

    def __init__(self, rng: Random, directory: str) -> None:
        """Make a storage for the table at a directory."""
        self.world, self._directory = SimStore(rng, page=rng.choice((3, 1_000))), directory

    def open(self, process: Process) -> PlainTable:
        """Open the table for a process."""
        client: Any = _PatientClient(process, self._directory)
        background: Any = process.memory.setdefault("background", SimBackground(process))
        return store_table(client, background)

    @contextmanager
    def patched(self) -> Iterator[None]:
        """Let the modules of a table use the time and the randomness of the simulation."""
        with ExitStack() as stack, virtual_time(self.world):
            stack.enter_context(patch.object(tidying, "EVERY", EVERY))
            stack.enter_context(patch.object(store, "_verb", _Verb(self.world)))
            yield


@contextmanager
def virtual_time(world: SimStore) -> Iterator[None]:
    """Let the system's clock tell the time of the simulation, and random ids follow from its seed."""

    def now(_: SystemClock) -> dt.datetime:
        at = world.now if world.current is None else world.current.now
        return dt.datetime.fromtimestamp(at, dt.UTC)

    def sleep(_: SystemClock, seconds: float) -> None:
        assert world.current is not None
        world.current.sleep(seconds)

    def new_id() -> uuid.UUID:
        return uuid.UUID(int=world.rng.getrandbits(128), version=4)

    with (
        patch.object(SystemClock, "now", now),
        patch.object(SystemClock, "monotonic", lambda _: world.now - BEGINS),
        patch.object(SystemClock, "sleep", sleep),
        patch.object(uuid, "uuid4", new_id),
        patch.object(random, "random", world.rng.random),
    ):
        yield
