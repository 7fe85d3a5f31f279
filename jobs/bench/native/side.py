"""The native engine's side: no session, no JVM."""

from __future__ import annotations

import importlib.metadata
from typing import TYPE_CHECKING

import pyarrow as pa
from deltalake import DeltaTable

from bench.native.floor import NativeFloor
from bench.plan import Form, Session
from bench.subjects import QueueArrow, QueueMany, payloads
from tubeq_spark import Queue, QueueConfig

if TYPE_CHECKING:
    from collections.abc import Callable

    from bench.subjects import Subject
    from bench.subqueues import Load
    from tubeq_spark import Batch, Tube

__all__ = ["NativeSide"]


class NativeSide:
    """A queue that `deltalake` works on; as `sides.Side` says."""

    session = Session.NONE

    def __init__(self, location: str) -> None:
        """Open a queue below a location."""
        self._location = location
        self._config = QueueConfig()
        self.queue = Queue(None, f"{location}/queue", config=self._config, engine="native")

    def versions(self) -> dict[str, str]:
        """The versions of the libraries."""
        return {name: importlib.metadata.version(name) for name in ("deltalake", "pyarrow")}

    def version(self, tube: Tube) -> int:
        """The latest version of a tube's table."""
        return DeltaTable(self._path(tube)).version()

    def subject(self, tube: Tube, form: Form, batch: int) -> Subject:
        """The verbs of a tube."""
        kind = QueueMany if form is Form.MANY else QueueArrow
        return kind(tube, batch, lambda: self.version(tube))

    def floor(self, tube: Tube, form: Form, batch: int) -> Subject:
        """The bare calls, which have Arrow's rows in any form."""
        path = f"{self._location}/floor_{tube.name}"
        return NativeFloor(path, self._path(tube), batch, self._config.segment_rows)

    def filling(self, tube: Tube, load: Load) -> Callable[[], int]:
        """Puts all tasks of a load as one Arrow table."""
        utubes = pa.array([f"u{number}" for number in range(load.utubes)])
        places = pa.array([number % load.utubes for number in range(load.tasks)], pa.int32())
        rows = pa.table({"data": payloads(load.tasks), "utube": utubes.take(places)})
        return lambda: tube.put_arrow(rows).count

    def take(self, tube: Tube, n: int, per_utube: int) -> Batch:
        """Take, and have the tasks in this process."""
        batch = tube.take_arrow(n, per_utube=per_utube)
        _ = batch.table
        return batch

    def _path(self, tube: Tube) -> str:
        return f"{self.queue.location}/{tube.name}"
