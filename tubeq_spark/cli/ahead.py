"""Makes calls of `tubeq` on Spark faster: they read the registry once, and read their tables in advance."""

from __future__ import annotations

import contextlib
import functools
import threading
from typing import TYPE_CHECKING, Any, cast

from tubeq_spark.model import validation
from tubeq_spark.queue import Queue
from tubeq_spark.storage.location import SESSIONS, Location
from tubeq_spark.storage.spark.jvm import is_classic
from tubeq_spark.storage.tables.registry import Registry

if TYPE_CHECKING:
    import uuid
    from collections.abc import Sequence

    from pyspark.sql import SparkSession

    from tubeq_spark.clock import Clock
    from tubeq_spark.storage.tables.registry import TubeRecord

#: Seconds after which a request has certainly left this process.
_SENT = 0.03


class _RegistryOfOneCall(Registry):
    """A registry that can return the result of its last read once more."""

    _newest: list[TubeRecord] | None = None
    _kept: list[TubeRecord] | None = None

    def records(self) -> list[TubeRecord]:
        """The records, as `Registry.records` returns them."""
        kept, self._kept = self._kept, None
        if kept is None:
            kept = self._newest = super().records()
        return kept

    def keep(self) -> None:
        """Make the next read return the result of the last one, if there was one."""
        self._kept = self._newest


class QueueOfOneCall(Queue):
    """A queue that is opened for one verb, which uses the registry as it was read at the opening."""

    _registry_type = _RegistryOfOneCall

    def __init__(
        self, spark: SparkSession, location: str, *, tube: str | None = None, **settings: Any
    ) -> None:
        """Open the queue.

        Args:
            spark: As for a `Queue`.
            location: As for a `Queue`.
            tube: The tube to which the verb will write, which may not exist.
            **settings: As for a `Queue`.
        """
        self._written = (
            [SESSIONS, tube] if tube is not None and validation.is_tube_name(tube) else []
        )
        super().__init__(spark, location, **settings)

    def _open(
        self, location: object, clock: Clock, other: uuid.UUID | None, *, create: bool
    ) -> None:
        engines = self._engines
        # Where commits are native, Spark reads nothing for a verb.
        spark = engines.spark if engines.spark is engines.rows else None
        if self._written and spark is not None:
            read_ahead(spark.own, location, *self._written)
        super()._open(location, clock, other, create=create)
        # Over Connect this read takes 0.15 to 0.2 s of the about 2 s of a call.
        cast("_RegistryOfOneCall", self._context.registry).keep()
        if spark is not None and not is_classic(spark.spark):
            # An embedded Spark would end with the call.
            self._context.close_engines = functools.partial(
                _read_for_next, spark.own, self.location, self._written
            )


def _read_for_next(spark: SparkSession, location: str, names: Sequence[str]) -> None:
    """Let a Spark Connect server read the written tables, for the next call.

    The server goes on with that after this process has ended. So the next call finds it done, unless others have
    written meanwhile. Releasing the session would stop the read, so the server must remove the session itself.
    """
    for name in names:
        read_ahead(spark, location, name).join(_SENT)


def read_ahead(spark: SparkSession, location: object, *names: str) -> threading.Thread:
    """Read the logs of some of a queue's tables in a thread.

    A statement that reads a table first rebuilds the state of its newest version, which takes half of the time of
    a small MERGE. A call makes several such statements in a row, to different tables, and a state that was read
    once serves all of them.

    Args:
        spark: The session.
        location: The location of the queue.
        names: The names of tables, in the order in which they are needed. Missing tables do no harm.

    Returns:
        The thread, which ends with the process at the latest.
    """
    tables = [Location.parse(location).table(name) for name in names]

    def read() -> None:
        for table in tables:
            # If a table cannot be read, the statement that needs it raises the error.
            with contextlib.suppress(Exception):
                spark.sql(f"DESCRIBE DETAIL {table}").collect()

    # The tables are read one after the other, because parallel reads would delay the one for which the call waits.
    reader = threading.Thread(target=read, name="tubeq-ahead", daemon=True)
    reader.start()
    return reader
