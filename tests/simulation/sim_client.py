"""Gives one process the files of one table on the simulated storage."""

from __future__ import annotations

import math
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any, TypeVar

from tubeq_spark.storage.store.store import Entry, ExistsError, RequestError, Store

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from tests.simulation.sim_store import Process

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
            status=status,
            # A server that fails may have done the request before, as far as the client knows.
            was_sent=status is not None and status != 403,
            passes=status != 403,
        )


def _is_a_store(client: Client) -> Store:
    """The client, for the check of types."""
    return client
