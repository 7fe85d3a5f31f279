"""A queue of procrastinate, on a server of Postgres."""

from __future__ import annotations

import asyncio
import importlib
import importlib.metadata
import logging
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from bench.peers.peer import Verb
from bench.peers.postgres import connect, durability, missing_server
from bench.subjects import payload

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator, Sequence

    from bench.peers.peer import Until

__all__ = ["ProcrastinatePeer", "missing"]

_PACKAGE = "procrastinate"
#: Jobs that are put at once before a load.
_FILL = 5_000
#: Connections of a process: as many as the pool of its connector has, and at most.
_POOL = (4, 16)


def missing() -> str | None:
    """Why it cannot be measured here, in a sentence."""
    return missing_server(_PACKAGE, _PACKAGE, "psycopg")


@dataclass(frozen=True, slots=True)
class ProcrastinatePeer:
    """A schema of a server; as `peer.Peer` says.

    Attributes:
        uri: Of the server.
        schema: A schema for this run alone.
    """

    uri: str
    schema: str
    name = _PACKAGE
    shares = frozenset({Verb.PUT})
    takes_batches = False

    @property
    def about(self) -> str:
        """Its version, and which commits a power cut may lose."""
        version = importlib.metadata.version(_PACKAGE)
        return f"{_PACKAGE} {version} on {durability(self.uri)}"

    def renew(self, waiting: int) -> None:
        """Begin with new tables."""
        self.remove()
        with connect(self.uri) as connection:
            connection.execute(f"CREATE SCHEMA {self.schema}")
        with self._opened(1) as hand:
            hand.create()
            for done in range(0, waiting, _FILL):
                hand.put(min(_FILL, waiting - done))
        # Else the server plans for an empty table, until it looks by itself a minute later.
        with connect(self.uri, self.schema) as connection:
            connection.execute("ANALYZE procrastinate_jobs")

    def commits(self) -> int | None:
        """The hands count them."""
        return None

    @contextmanager
    def open(self, threads: int) -> Iterator[_ProcrastinateHand]:
        """An app whose pool has up to a connection for each call at a time."""
        with self._opened(threads) as hand:
            yield hand

    def remove(self) -> None:
        """Remove the schema."""
        with connect(self.uri) as connection:
            connection.execute("SET client_min_messages = warning")
            connection.execute(f"DROP SCHEMA IF EXISTS {self.schema} CASCADE")

    @contextmanager
    def _opened(self, threads: int) -> Iterator[_ProcrastinateHand]:
        least, most = _POOL
        procrastinate = importlib.import_module(_PACKAGE)
        logging.getLogger(_PACKAGE).setLevel(logging.ERROR)
        connector = procrastinate.PsycopgConnector(
            conninfo=self.uri,
            kwargs={"options": f"-c search_path={self.schema}"},
            min_size=least,
            max_size=max(least, min(threads, most)),
        )
        with asyncio.Runner() as runner:
            hand = _ProcrastinateHand(procrastinate.App(connector=connector), runner)
            with hand.opened():
                yield hand


class _ProcrastinateHand:
    """An app, and the loop that its calls run in."""

    def __init__(self, app: Any, runner: asyncio.Runner) -> None:
        self._app = app
        self._runner = runner
        self._called: Callable[[], None] = lambda: None
        self.commits = 0
        self._task = app.task(name="nothing")(self._nothing)

    @contextmanager
    def opened(self) -> Iterator[None]:
        """Open the app for a block."""
        self._runner.run(_await(self._app.open_async()))
        try:
            yield
        finally:
            self._runner.run(_await(self._app.close_async()))

    def create(self) -> None:
        """Create its tables."""
        self._runner.run(_await(self._app.schema_manager.apply_schema_async()))

    def put(self, count: int) -> int:
        """Add jobs in one commit; returns how many."""
        self._runner.run(self._put(count))
        return count

    def take(self, count: int) -> Sequence[Any]:
        """Its workers take one job at a time, and by themselves."""
        raise NotImplementedError

    def ack(self, taken: Sequence[Any]) -> int:
        """As `take`."""
        raise NotImplementedError

    def put_by(self, threads: int, batch: int, until: Until) -> int:
        """Add `batch` jobs a commit by each of some coroutines; returns how many."""

        async def loop() -> int:
            await self._put(batch)
            done = batch
            while not until():
                await self._put(batch)
                done += batch
            return done

        async def loops() -> int:
            return sum(await asyncio.gather(*(loop() for _ in range(threads))))

        return self._runner.run(loops())

    def consume(self, threads: int, batch: int, until: Until) -> int:
        """Its worker is the way to take jobs."""
        return self.work(threads, batch, until)

    def work(self, threads: int, _batch: int, until: Until) -> int:
        """Run its worker with so many jobs at a time."""
        return self._runner.run(self._work(threads, until))

    async def _put(self, count: int) -> None:
        if count == 1:
            await self._task.defer_async(**payload(0))
        else:
            await self._task.batch_defer_async(*map(payload, range(count)))
        self.commits += 1

    async def _work(self, threads: int, until: Until) -> int:
        over, done = asyncio.Event(), 0

        def called() -> None:
            nonlocal done
            done += 1
            if until():
                over.set()

        self._called = called
        worker = asyncio.create_task(
            self._app.run_worker_async(
                concurrency=threads, wait=False, install_signal_handlers=False
            )
        )
        waiting = asyncio.create_task(over.wait())
        await asyncio.wait({worker, waiting}, return_when=asyncio.FIRST_COMPLETED)
        # It finishes the jobs in hand.
        worker.cancel()
        waiting.cancel()
        with suppress(asyncio.CancelledError):
            await worker
        # One commit fetches a job, and one finishes it.
        self.commits += 2 * done
        return done

    async def _nothing(self, **_: object) -> None:
        self._called()


async def _await(awaitable: Awaitable[object]) -> None:
    """Makes a coroutine, which a runner asks for."""
    await awaitable
