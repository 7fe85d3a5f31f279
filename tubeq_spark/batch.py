"""A batch of taken tasks, as `take_df` and `take_arrow` return it."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any, Self

from tubeq_spark.errors import InvalidOptionError, NotTakenError
from tubeq_spark.markup import fields
from tubeq_spark.model import validation
from tubeq_spark.model.changes import Event, GiveBack, Touch, released
from tubeq_spark.model.times import FOREVER_S, from_us, us_from_seconds
from tubeq_spark.payloads.shown_table import named_ids, not_in_batch
from tubeq_spark.runtime.tracebacks import short_tracebacks
from tubeq_spark.task import TaskState
from tubeq_spark.verbs.settle_batch import HeldBatch

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame

    from tubeq_spark.model.changes import Change
    from tubeq_spark.payloads.shown_table import Ids
    from tubeq_spark.runtime.context import TubeContext
    from tubeq_spark.runtime.group_commit import GroupCommit
    from tubeq_spark.runtime.taken import LeasedBatch
    from tubeq_spark.verbs.settlement import MakeChange

__all__ = ["Batch"]


@short_tracebacks
class Batch:
    """Tasks that this session holds together, as one lease segment; a context manager.

    Leaving the block acks the remaining tasks; an exception releases them. If no task was ready,
    the batch is empty: it has `count` 0, an empty `df` and an empty `table`, and its methods do
    nothing. When the first lease of a batch has ended, its tasks can no longer be settled: the next
    method releases the other tasks and raises `NotTakenError`.

    Attributes:
        count: The number of tasks when the batch was taken.
    """

    def __init__(
        self, ctx: TubeContext, leased: LeasedBatch | None, acks: GroupCommit[HeldBatch, int]
    ) -> None:
        """Wrap taken tasks; `Tube.take_df` and `Tube.take_arrow` call this."""
        self._ctx = ctx
        self._held = HeldBatch(ctx, leased)
        self._acks = acks
        self.count = self._held.count

    def __repr__(self) -> str:
        return f"Batch({self._ctx.record.name!r}, count={self.count}, lease={self._lease!r})"

    def _repr_html_(self) -> str:
        """What a notebook shows: tube, count and lease. It reads nothing."""
        return fields(
            "Batch",
            [("tube", self._ctx.record.name), ("count", self.count), ("lease", self._lease)],
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, error_type: type[BaseException] | None, *_: object) -> None:
        if not self._held.is_left:
            return
        if error_type is None:
            self.ack()
        else:
            # When the lease has ended the tasks are back in the tube; the error is the story.
            with contextlib.suppress(NotTakenError):
                self.release()

    @property
    def _lease(self) -> str:
        """Until when it is held, as far as this object knows."""
        if not self._held.is_left:
            return "nothing is left"
        until = self._held.until
        return "without end" if until is None else f"until {from_us(until):%Y-%m-%d %H:%M:%S} UTC"

    @property
    def df(self) -> DataFrame:
        """The remaining tasks as a lazy DataFrame, which reads only the files of the batch.

        Columns `task_id, data` (or the schema's columns)`, pri, utube, ttl, ttr, attempts,
        created`; durations in seconds, NULL is unlimited. Each evaluation reads the current state
        of the tasks in the tube. It makes no commit. In a session without the recommended settings
        each access to this property runs a small query, so that later queries read the table's log
        faster.
        """
        return self._ctx.frames.batch(self._held.take_id, self._held.owner)

    @property
    def table(self) -> pa.Table:
        """The remaining tasks, as a `pyarrow.Table` in this process.

        Columns as of `df`: `task_id, data` (JSON text, or the schema's columns)`, pri, utube, ttl, ttr,
        attempts, created`; durations in seconds, null is unlimited, `created` in UTC. The rows are
        in the tube's order. Each access reads the current state of the tasks in the tube. It makes
        no commit.

        Raises:
            QueueStateError: The queue was closed.
            StoreError: Storage could not be read.
        """
        self._ctx.queue.require_running()
        read = self._ctx.reader.batch
        return self._ctx.queue.uninterrupted(
            lambda: read(self._held.take_id, self._held.owner, self.count)
        )

    def ack(self, df: DataFrame | Ids | None = None) -> int:
        """Ack tasks of the batch, that is, remove them from the tube.

        Args:
            df: Rows with `task_id` (a DataFrame, a `pyarrow.Table` or what Arrow makes one of), or
                ids; all that is left by default.

        Returns:
            The number of tasks; 0 if no task remains, also after a method has raised because a
            lease has ended.

        Raises:
            NotTakenError: A lease has ended, or `df` names a task that is not in the batch.
            InvalidOptionError: `df` has no ids.

        Commits: 1; for all remaining tasks, it is a deletion of the lease segment's partition.
        Conflicts only with commits that end one of these leases.
        """
        return self._settle("ack", df, None)

    def release(self, df: DataFrame | Ids | None = None, delay: float = 0) -> int:
        """Give tasks of the batch back to the tube.

        Args:
            df: Rows with `task_id` (a DataFrame, a `pyarrow.Table` or what Arrow makes one of), or
                ids; all that is left by default.
            delay: Seconds before they are ready again, >= 0; needs a type with ttl.

        Returns:
            The number of tasks, including those that `max_attempts` buries.

        Raises:
            NotTakenError: A lease has ended, or `df` names a task that is not in the batch.
            InvalidOptionError: `delay` is bad, or the type has no delays; or `df` has no ids.

        Commits: 1. Conflicts only with commits that end one of these leases. On the native engine
        it sometimes compacts, as `Tube.put`.
        """
        seconds = validation.seconds("delay", delay)
        if seconds and not self._ctx.driver.timed:
            validation.refuse("delay", delay, f"0 in a {self._ctx.driver.name}")
        delay_us = us_from_seconds(seconds)
        now_us = self._ctx.queue.now_us()
        return self._settle(
            "release", df, lambda dest, _: released(dest, delay_us, now_us, self._ctx.max_attempts)
        )

    def bury(self, df: DataFrame | Ids | None = None) -> int:
        """Set tasks of the batch aside until they are kicked.

        Arguments, result, errors and commits are those of `release`, without a delay.
        """
        return self._settle(
            "bury",
            df,
            lambda dest, _: GiveBack(dest, TaskState.BURIED, event=Event("bury")),
        )

    def touch(self, increment: float | None) -> int:
        """Give all remaining tasks more time, as `Tube.touch` does.

        Args:
            increment: Seconds to add, >= 0; `None`, 0 and 500 years or more change nothing.

        Returns:
            The number of tasks; 0 if nothing was changed.

        Raises:
            NotTakenError: A lease has ended.
            InvalidOptionError: `increment` is bad, or the type has no ttr.

        Commits: 1, none if nothing is changed. Conflicts only with commits that end one of these
        leases.
        """
        seconds = 0.0 if increment is None else validation.seconds("increment", increment)
        if seconds == 0 or seconds >= 5 * FOREVER_S:
            return 0
        if not self._ctx.driver.timed:
            msg = f"increment={increment!r}: {self._ctx.driver.name} has no ttr to add to"
            raise InvalidOptionError(msg)
        amount_us = round(seconds * 1_000_000)
        touched = self._settle("touch", None, lambda _, moves: Touch(moves, amount_us))
        self._held.longer(amount_us)
        return touched

    # -- inside -------------------------------------------------------------------------------

    def _settle(
        self, event: str, df: DataFrame | Ids | None, make_change: MakeChange[Change] | None
    ) -> int:
        is_frame = hasattr(df, "sparkSession")
        return self._ctx.queue.uninterrupted(
            lambda: self._settled(event, df, make_change), on_spark=is_frame
        )

    def _settled(
        self, event: str, df: DataFrame | Ids | None, make_change: MakeChange[Change] | None
    ) -> int:
        self._ctx.queue.require_running()
        named = None if df is None else self._named(df)
        if not self._held.is_left:
            if named:
                raise not_in_batch(named)
            return 0
        if make_change is None and named is None:
            return self._acks.submit(self._held)
        return self._held.settle(event, named, make_change)

    def _named(self, df: Any) -> set[int]:
        """The ids that a program passes, in a DataFrame, a table or an iterable."""
        return self._ids_of(df) if hasattr(df, "sparkSession") else named_ids(df)

    def _ids_of(self, df: DataFrame) -> set[int]:
        """Evaluate a DataFrame of ids once; collect at most one id more than the batch has."""
        kind = df.schema["task_id"].dataType if "task_id" in df.columns else None
        if kind is None or kind.typeName() not in ("long", "integer"):
            validation.refuse("df", df.columns, "a DataFrame with a column task_id BIGINT")
        # Mostly it is derived from the property `df`, and may not be evaluated yet.
        self._ctx.frames.engine.prepare(self._ctx.table.name)
        ids = df.select("task_id").distinct().limit(self.count + 1).toArrow()
        return set(ids.column("task_id").to_pylist())
