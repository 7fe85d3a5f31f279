"""The verbs of a tube as the benchmark calls them; the floors have the bare calls beside them."""

from __future__ import annotations

import datetime as dt
import json
from typing import TYPE_CHECKING, Any, Protocol

import pyarrow as pa
import pyarrow.compute as pc

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from tubeq_spark import Batch, Task, Tube

__all__ = ["PUT_COLUMNS", "QueueArrow", "QueueMany", "Subject", "new_rows", "payload", "payloads"]

#: Columns of a tube's table that a put writes.
PUT_COLUMNS = ("segment", "tube", "task_id", "state", "pri", "data", "created", "attempts")
_NOW = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)


class Subject(Protocol):
    """Something whose put, take and ack are measured; each returns how many tasks it was for."""

    def prepare(self) -> None:
        """Make what the next put is given; not measured."""
        ...

    def put(self) -> int:
        """Add a batch."""
        ...

    def take(self) -> int:
        """Take it."""
        ...

    def ack(self) -> int:
        """Remove what was taken."""
        ...

    def version(self) -> int:
        """The latest version of the table."""
        ...


class QueueMany:
    """put_many, take_many, ack_many."""

    def __init__(self, tube: Tube, batch: int, version: Callable[[], int]) -> None:
        """Measure a tube.

        Args:
            tube: An empty tube.
            batch: Tasks in a batch.
            version: Tells the latest version of its table.
        """
        self._tube = tube
        self._batch = batch
        self.version = version
        self._items: list[Any] = []
        self._taken: Sequence[Task] = ()

    def prepare(self) -> None:
        """Make the payloads."""
        self._items = [payload(number) for number in range(self._batch)]

    def put(self) -> int:
        """Add a batch."""
        return len(self._tube.put_many(self._items))

    def take(self) -> int:
        """Take it."""
        self._taken = self._tube.take_many(self._batch)
        return len(self._taken)

    def ack(self) -> int:
        """Remove what was taken."""
        return len(self._tube.ack_many([task.task_id for task in self._taken]))


class QueueArrow:
    """put_arrow, take_arrow with a look at its tasks, Batch.ack."""

    def __init__(self, tube: Tube, batch: int, version: Callable[[], int]) -> None:
        """Measure a tube; arguments as of `QueueMany`."""
        self._tube = tube
        self._size = batch
        self.version = version
        self._rows = pa.table({"data": payloads(batch)})
        self._batch: Batch | None = None

    def prepare(self) -> None:
        """Nothing: the rows are the same each time."""

    def put(self) -> int:
        """Add a batch."""
        return self._tube.put_arrow(self._rows).count

    def take(self) -> int:
        """Take it, and have its tasks."""
        self._batch = self._tube.take_arrow(self._size)
        return int(self._batch.table.num_rows)

    def ack(self) -> int:
        """Remove what was taken."""
        return 0 if self._batch is None else self._batch.ack()


def payload(number: int) -> dict[str, Any]:
    """What a task carries."""
    return {"url": f"http://example.org/page/{number}", "depth": 3}


def payloads(count: int) -> Any:
    """`payload` as JSON text, of so many tasks, in Arrow."""
    numbers = pa.array(range(count), pa.int64()).cast(pa.string())
    return pc.binary_join_element_wise(
        '{"url":"http://example.org/page/', numbers, '","depth":3}', ""
    )


def new_rows(first: int, count: int, segment_rows: int) -> pa.Table:
    """Ready tasks as they are stored, ids and segments from a number on (`PUT_COLUMNS`)."""
    places = range(count)
    columns = [
        pa.array([first + i - i % segment_rows for i in places], pa.int64()),
        pa.array([1] * count, pa.int64()),
        pa.array([first + i for i in places], pa.int64()),
        pa.array(["r"] * count),
        pa.array([0] * count, pa.int32()),
        pa.array([json.dumps(payload(i)) for i in places]),
        pa.array([_NOW] * count, pa.timestamp("us", "UTC")),
        pa.array([0] * count, pa.int32()),
    ]
    return pa.table(dict(zip(PUT_COLUMNS, columns, strict=True)))
