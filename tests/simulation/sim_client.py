"""Gives one process the files of one table on the simulated storage, and opens tables there as programs do."""

from __future__ import annotations

import datetime as dt
import math
import random
import uuid
from concurrent.futures import Future
from contextlib import ExitStack, contextmanager, suppress
from typing import TYPE_CHECKING, Any, TypeVar
from unittest.mock import patch

from tests.simulation.sim_store import BEGINS, Faults, SimStore
from tubeq_spark.clock import SystemClock
from tubeq_spark.errors import TubeqError
from tubeq_spark.storage.log import tidying
from tubeq_spark.storage.log.actions import UnknownLogError
from tubeq_spark.storage.native.plain_table import store_table
from tubeq_spark.storage.store import store
from tubeq_spark.storage.store.store import (
    Entry,
    ExistsError,
    Patience,
    RequestError,
    Store,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence
    from random import Random

    from tests.simulation.sim_store import Process
    from tubeq_spark.storage.native.plain_table import PlainTable


T = TypeVar("T")

#: The seconds after which a lost write may still arrive. Stores refuse requests that were
#: signed more than a quarter of an hour ago.
_LATENESS = (0.5, 5.0, 60.0, 600.0, math.inf)


class Client(Store):
    """The files below one directory of the storage, as one process sees them: a `Store`."""

    def __init__(self, process: Process, directory: str) -> None:
        """Use the files below a directory, such as that of a table."""
        self.process, self.directory = process, directory

    def __str__(self) -> str:
        return f"sim://store/{self.directory}"

    def get(
        self, name: str, *, size: int = 0, span: tuple[int, int] | None = None
    ) -> tuple[bytes, str | None]:
        """Read a file."""
        del size

        def read() -> tuple[bytes, str | None]:
            file = self.process.world.files.get(self._whole(name))
            if file is None:
                # Clients of object stores raise this error without a number.
                raise FileNotFoundError(f"{self}/{name}")
            return (file.content if span is None else file.content[slice(*span)]), file.tag

        return self._repeated("GET", name, read)

    def put(self, name: str, content: bytes) -> None:
        """Write or replace a file, as a whole."""
        world, who = self.process.world, self.process.name
        self._repeated("PUT", name, lambda: world.write(who, self._whole(name), content))

    def put_if_absent(self, name: str, content: bytes, needs: Sequence[str] = ()) -> str | None:
        """Write a file that does not exist yet."""
        del needs
        world, who = self.process.world, self.process.name
        return self._once("CREATE", name, lambda: world.create(who, self._whole(name), content))

    def list(self, directory: str, after: str = "", most: int | None = None) -> Sequence[Entry]:
        """List files, page by page."""
        found: list[Entry] = []
        size = self.process.world.page if most is None else min(most, self.process.world.page)
        page = self._page(directory, after, size)
        found += page
        while len(page) == size and (most is None or len(found) < most):
            page = self._page(directory, page[-1].name, size)
            found += page
        return found

    def _page(self, directory: str, after: str, size: int) -> Sequence[Entry]:
        return self._repeated("LIST", directory, lambda: self._listed(directory, after)[:size])

    def _listed(self, directory: str, after: str) -> Sequence[Entry]:
        world = self.process.world
        start = f"{self._whole(directory)}/" if directory else f"{self.directory}/"
        found = [
            Entry(name[len(start) :], len(file.content), file.at, file.tag)
            for name, file in world.files.items()
            if name.startswith(start) and name[len(start) :] > after
        ]
        if found and world.rng.random() < self.process.faults.old:
            newest = max(found, key=lambda entry: int(entry.tag or 0))
            found.remove(newest)
        return sorted(found, key=lambda entry: entry.name)

    def delete(self, names: Sequence[str]) -> None:
        """Remove files."""
        world, who = self.process.world, self.process.name
        whole = [self._whole(name) for name in names]

        def remove() -> None:
            # A client sends several requests for many files. Some of them may have been done.
            is_whole = world.rng.random() >= self.process.faults.lost
            count = len(whole) if is_whole else world.rng.randint(0, len(whole))
            world.remove(who, world.rng.sample(whole, count))
            if count < len(whole):
                raise RequestError("not all files were removed", was_sent=True, passes=True)

        self._repeated("DELETE", ", ".join(names), remove)

    def together(self, call: Callable[[Any], T], items: Iterable[Any]) -> Sequence[T]:
        """Call a function for several items, in any order."""
        some = list(items)
        order = self.process.world.rng.sample(range(len(some)), len(some))
        found = {place: call(some[place]) for place in order}
        return [found[place] for place in range(len(some))]

    def beside(self, call: Callable[[], T]) -> Future[T] | None:
        """Call a function at once."""
        done: Future[T] = Future()
        try:
            done.set_result(call())
        except Exception as error:  # noqa: BLE001  (whoever asks for the result gets it)
            done.set_exception(error)
        return done

    def _whole(self, name: str) -> str:
        return f"{self.directory}/{name}"

    def _repeated(self, request: str, name: str, work: Callable[[], T]) -> T:
        """Send a request; repeat it after errors that pass, until the client gives up."""
        while True:
            try:
                return self._once(request, name, work)
            except RequestError as error:
                if not error.passes or self.process.world.rng.random() < 0.2:
                    raise
                self.process.sleep(self.process.world.rng.uniform(0.1, 2.0))

    def _once(self, request: str, name: str, work: Callable[[], T]) -> T:
        """Send a request once, with its faults."""
        process, world, rng = self.process, self.process.world, self.process.world.rng
        told = f"{request} {name}"
        process.step(told)
        if rng.random() < process.faults.refused:
            raise self._refusal(told)
        is_lost = rng.random() < process.faults.lost
        if is_lost and rng.random() < 0.5:
            if request in {"PUT", "CREATE", "DELETE"}:
                world.send_late(rng.choice(_LATENESS), work)
            raise self._loss(told)
        try:
            done = work()
        except (FileNotFoundError, ExistsError) as error:
            if is_lost:
                raise self._loss(told) from error
            world.note(process.name, f"{told}: {type(error).__name__}")
            raise
        if is_lost:
            raise self._loss(told)
        world.note(process.name, told)
        process.end_perhaps(f"the answer to {told}")
        return done

    def _loss(self, told: str) -> RequestError:
        self.process.failures += 1
        self.process.world.note(self.process.name, f"{told}: no answer")
        self.process.world.pass_time(self.process.world.rng.uniform(0.0, 5.0))
        return RequestError(f"no answer: {told}", was_sent=True, passes=True)

    def _refusal(self, told: str) -> RequestError:
        self.process.failures += 1
        status = self.process.world.rng.choice((None, 403, 429, 500, 503))
        self.process.world.note(self.process.name, f"{told}: refused with {status}")
        return RequestError(
            f"refused with {status}: {told}",
            # A server that fails may have done the request before, as far as the client knows.
            was_sent=status is not None and status != 403,
            passes=status != 403,
        )


# -- tables of object stores -----------------------------------------------------------------------


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
