"""Tasks in memory that were taken together: what `take_arrow` of a tube in memory hands out."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa

from tubeq_spark.errors import InvalidOptionError, NotTakenError
from tubeq_spark.memory.context import needs_spark
from tubeq_spark.rules import arguments, validation
from tubeq_spark.rules.lifecycle import due
from tubeq_spark.rules.microseconds import plus
from tubeq_spark.rules.named_ids import named_ids, not_in_batch
from tubeq_spark.rules.row_changes import GiveBack, Remove, Touch, released
from tubeq_spark.rules.shown_table import shown_table
from tubeq_spark.task import TaskState

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from pyspark.sql import DataFrame

    # To a type checker it is a Batch, so that functions which take one take this, too.
    from tubeq_spark.batch import Batch
    from tubeq_spark.memory.verbs import Verbs
    from tubeq_spark.rules.named_ids import Ids
    from tubeq_spark.rules.row_changes import Change
    from tubeq_spark.rules.stored_task import StoredTask
else:
    from tubeq_spark.with_block import WithBlock as Batch

__all__ = ["InMemoryBatch"]

_STORED = {
    "task_id": pa.int64(),
    "data": pa.string(),
    "pri": pa.int32(),
    "utube": pa.string(),
    "ttl": pa.int64(),
    "ttr": pa.int64(),
    "attempts": pa.int32(),
    "created": pa.int64(),
}


class InMemoryBatch(Batch):
    """A batch of an `InMemoryTube`; its `table` and its methods are those of `Batch`."""

    def __init__(
        self, verbs: Verbs, do: Callable[[Callable[[], Any]], Any], rows: Sequence[StoredTask]
    ) -> None:
        """Wrap what was taken.

        Args:
            verbs: Of the tube.
            do: Runs a verb of the tube, alone.
            rows: The tasks as the take has left them.
        """
        self._verbs = verbs
        self._do = do
        self.count = len(rows)
        self._take_id = (rows[0].take_id if rows else None) or 0
        self._owner = (rows[0].owner if rows else None) or ""
        ends = [row.next_event for row in rows if row.next_event is not None]
        self._until = min(ends, default=None)
        self._left = bool(rows)

    @property
    def df(self) -> DataFrame:
        """Raises `StoreError`."""
        raise needs_spark("a batch's DataFrame")

    @property
    def table(self) -> pa.Table:
        """As `Batch.table`."""
        rows: list[StoredTask] = self._do(self._rows)
        payload = self._verbs.tube.payload_type
        kinds = _STORED if payload is None else _STORED | {"data": payload}
        arrays = [pa.array([getattr(r, name) for r in rows], kind) for name, kind in kinds.items()]
        stored = pa.Table.from_arrays(arrays, list(kinds))
        return shown_table(stored, self._verbs.driver.order, typed=payload is not None)

    @property
    def _is_left(self) -> bool:
        return self._left

    def ack(self, df: DataFrame | Ids | None = None) -> int:
        """As `Batch.ack`."""
        return self._change("ack", df, Remove())

    def release(self, df: DataFrame | Ids | None = None, delay: float = 0) -> int:
        """As `Batch.release`."""
        delay_us = arguments.delay(delay, self._verbs.driver)
        now_us = self._verbs.queue.now_us()
        change = released(0, delay_us, now_us, self._verbs.max_attempts)
        return self._change("release", df, change)

    def bury(self, df: DataFrame | Ids | None = None) -> int:
        """As `Batch.bury`."""
        return self._change("bury", df, GiveBack(0, TaskState.BURIED))

    def touch(self, increment: float | None) -> int:
        """As `Batch.touch`."""
        try:
            amount_us = arguments.increment(increment, self._verbs.driver)
        except InvalidOptionError:
            validation.seconds("increment", increment)
            msg = f"increment={increment!r}: {self._verbs.driver.name} has no ttr to add to"
            raise InvalidOptionError(msg) from None
        if amount_us is None:
            return 0
        touched = self._change(
            "touch", None, Touch({self._take_id: self._take_id}, amount_us), ends=False
        )
        self._until = plus(self._until, amount_us)
        return touched

    # -- inside -------------------------------------------------------------------------------

    def _rows(self) -> list[StoredTask]:
        return self._verbs.held_by_take(self._take_id, self._owner) if self.count else []

    def _change(
        self, event: str, df: DataFrame | Ids | None, change: Change, *, ends: bool = True
    ) -> int:
        named = None if df is None else named_ids(df)

        def verb() -> int:
            if not self._left:
                if named:
                    raise not_in_batch(named)
                return 0
            self._require_lease()
            rows = self._rows()
            if not rows:
                self._left = False
                msg = "the batch's tasks are no longer held by this session"
                raise NotTakenError(msg)
            foreign = set() if named is None else named.difference(row.task_id for row in rows)
            if foreign:
                raise not_in_batch(foreign)
            chosen = [row for row in rows if named is None or row.task_id in named]
            self._left = len(chosen) < len(rows) or not ends
            return self._verbs.settle_batch(event, chosen, change)

        settled: int = self._do(verb)
        return settled

    def _require_lease(self) -> None:
        """Give back what is held in longer leases when the first has ended.

        Raises:
            NotTakenError: It has.
        """
        if not due(self._until, self._verbs.queue.now_us()):
            return
        self._left = False
        self._verbs.give_up_batch(self._rows())
        msg = f"the batch's lease has ended: the first of its {self.count} tasks ran out of ttr"
        raise NotTakenError(msg)
