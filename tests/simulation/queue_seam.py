"""The one place where queue objects of a simulation get their storage.

Each table at `s3://sim/…` is a directory of the simulated storage, seen by the client of the actor that runs.
"""

from __future__ import annotations

from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING
from unittest import mock

import pyarrow as pa

from tests.simulation.sim_store import Client
from tubeq_spark.storage.native import tables
from tubeq_spark.storage.native.handles import Handles
from tubeq_spark.storage.store.patience import Patience

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.simulation.scheduler import Scheduler

#: The queue.
LOCATION = "s3://sim/q"


class _Client(Client):
    """The files of a table, as an actor sees them. Files that it has read or written once are not read again."""

    patience = Patience(5, 30.0)

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


@contextmanager
def storage(scheduler: Scheduler) -> Iterator[None]:
    """Let all tables be on the simulated storage in a block."""

    def client(_handles: Handles, path: str) -> _Client:
        return _Client(scheduler.actor, path.removeprefix("s3://"))

    with ExitStack() as stack:
        for place, name, value in (
            (Handles, "store", client),
            (tables.NativeTables, "clock_drift", lambda _tables, _location: None),
            (tables.NativeTables, "overwrites", lambda _tables, _location: None),
        ):
            stack.enter_context(mock.patch.object(place, name, value))
        yield
