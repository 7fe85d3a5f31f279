"""Spares a call of `tubeq` some waiting: it looks at the tubes once, and reads its tables ahead."""

from __future__ import annotations

import contextlib
import threading
from typing import TYPE_CHECKING, Any

from tubeq_spark.model import validation
from tubeq_spark.model.states import QueueState
from tubeq_spark.queue import Queue
from tubeq_spark.storage.location import SESSIONS, Location
from tubeq_spark.storage.spark.jvm import is_classic
from tubeq_spark.storage.tables.registry import Registry

if TYPE_CHECKING:
    import uuid

    from pyspark.sql import SparkSession

    from tubeq_spark.clock import Clock
    from tubeq_spark.storage.tables.registry import TubeRecord

#: Seconds after which a request has left this process.
_SENT = 0.03


class _RegistryOfOneCall(Registry):
    """Can answer a look at the tubes by what the one before has found."""

    _newest: list[TubeRecord] | None = None
    _kept: list[TubeRecord] | None = None

    def records(self) -> list[TubeRecord]:
        """As those of `Registry`."""
        kept, self._kept = self._kept, None
        if kept is None:
            kept = self._newest = super().records()
        return kept

    def keep(self) -> None:
        """Have the next look find what the last one has found, if there was one."""
        self._kept = self._newest


class QueueOfOneCall(Queue):
    """A queue that is opened for one verb, which uses the look at the tubes that opened it."""

    _registry_type = _RegistryOfOneCall
    _registry: _RegistryOfOneCall

    def __init__(
        self, spark: SparkSession, location: str, *, tube: str | None = None, **settings: Any
    ) -> None:
        """Open it.

        Args:
            spark: As of a `Queue`.
            location: As of a `Queue`.
            tube: What the verb will write to, if it is there.
            **settings: As of a `Queue`.
        """
        self._written = (
            [SESSIONS, tube] if tube is not None and validation.is_tube_name(tube) else []
        )
        super().__init__(spark, location, **settings)

    def _open(
        self, location: object, clock: Clock, other: uuid.UUID | None, *, create: bool
    ) -> None:
        if self._written and self._engines.spark is not None:
            read_ahead(self._engines.spark.own, location, *self._written)
        super()._open(location, clock, other, create=create)
        # Over Connect a look takes 0.15 to 0.2 s of the some 2 s of a call.
        self._registry.keep()

    def _end(self) -> None:
        """Be closed; a Spark Connect server then reads what was written, for the next call.

        The server goes on with that when this process is gone, so the next call finds it done
        unless others have written meanwhile; an embedded Spark would end with the call. A session
        that is released would stop there, so the server is left to forget it.
        """
        spark = self._engines.spark
        if spark is None or is_classic(spark.spark):
            super()._end()
            return
        self._context.state = QueueState.WAITING
        for name in self._written:
            read_ahead(spark.own, self.location, name).join(_SENT)


def read_ahead(spark: SparkSession, location: object, *names: str) -> threading.Thread:
    """Read the logs of some of a queue's tables, and do not wait for it.

    A statement that reads a table first rebuilds the state of its newest version, which is half of
    what a small MERGE costs. A call has several such statements in a row, to different tables, and
    what one has read serves all.

    Args:
        spark: The session.
        location: Of the queue.
        names: Names of tables, in the order of their need; those that are not there do no harm.

    Returns:
        What reads, until the process ends at the latest.
    """
    tables = [Location.parse(location).table(name) for name in names]

    def read() -> None:
        for table in tables:
            # Whoever needs the table meets what is wrong with it.
            with contextlib.suppress(Exception):
                spark.sql(f"DESCRIBE DETAIL {table}").collect()

    # One after the other: more at once would only hold up what the call is waiting for.
    reader = threading.Thread(target=read, name="tubeq-ahead", daemon=True)
    reader.start()
    return reader
