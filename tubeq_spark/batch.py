"""A batch of taken tasks, as `take_df` and `take_arrow` return it."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any, Self

from tubeq_spark.errors import InvalidOptionError, NotTakenError
from tubeq_spark.markup import fields
from tubeq_spark.model import arguments, validation
from tubeq_spark.model.changes import Event, GiveBack, Touch, released
from tubeq_spark.model.failures import error_text
from tubeq_spark.model.times import FOREVER_S, from_us
from tubeq_spark.payloads.shown_table import named_tasks, not_in_batch
from tubeq_spark.runtime.tracebacks import short_tracebacks
from tubeq_spark.task import TaskState
from tubeq_spark.verbs.settle_batch import HeldBatch

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    import pyarrow as pa
    from pyspark.sql import DataFrame

    from tubeq_spark.model.changes import Change
    from tubeq_spark.model.failures import ErrorTexts, GivenError
    from tubeq_spark.payloads.shown_table import Ids
    from tubeq_spark.runtime.context import TubeContext
    from tubeq_spark.runtime.current_tube import CurrentTube
    from tubeq_spark.runtime.group_commit import GroupCommit
    from tubeq_spark.runtime.taken import LeasedBatch
    from tubeq_spark.verbs.settlement import MakeChange

__all__ = ["Batch"]


@short_tracebacks
class Batch:
    """Tasks that this session holds together, as one lease segment; a context manager.

    Leaving the block acks the remaining tasks; an exception releases them with the exception as their
    error. If no task was ready,
    the batch is empty: it has `count` 0, an empty `df` and an empty `table`, and its methods do
    nothing. When the first lease of a batch has ended, its tasks can no longer be settled: the next
    method releases the other tasks and raises `NotTakenError`.

    Attributes:
        count: The number of tasks when the batch was taken.
    """

    def __init__(
        self,
        current: CurrentTube,
        leased: LeasedBatch | None,
        acks: GroupCommit[HeldBatch, int],
    ) -> None:
        """Wrap taken tasks; `Tube.take_df` and `Tube.take_arrow` call this."""
        self._current = current
        self._held = HeldBatch(current, leased)
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

    def __exit__(
        self, error_type: type[BaseException] | None, error: BaseException | None, *_: object
    ) -> None:
        if not self._held.is_left:
            return
        if error_type is None:
            self.ack()
        else:
            # An interrupt of the program is no failure of a task.
            failed = error if isinstance(error, Exception) else None
            # When the lease has ended the tasks are back in the tube; the error is the story.
            with contextlib.suppress(NotTakenError):
                self.release(error=failed)

    @property
    def _ctx(self) -> TubeContext:
        return self._current.ctx

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

    def release(
        self,
        df: DataFrame | Ids | None = None,
        delay: float | None = None,
        *,
        error: GivenError = None,
    ) -> int:
        """Give tasks of the batch back to the tube.

        Args:
            df: Rows with `task_id` (a DataFrame, a `pyarrow.Table` or what Arrow makes one of), or
                ids; all that is left by default. Where it has a column `error` (strings), each task
                has its own error; NULL in all rows is none.
            delay: Seconds before they are ready again, >= 0; needs a type with ttl. `None`: the
                tube's backoff where they have failed and it has one, else 0.
            error: Why they have failed, as for `Tube.release`: one for all, in place of the column.

        Returns:
            The number of tasks, including those that `max_attempts` buries.

        Raises:
            NotTakenError: A lease has ended, or `df` names a task that is not in the batch.
            InvalidOptionError: `delay` or `error` is bad, or the type has no delays; or `df` has no
                ids, or an error for some of its tasks only. Nothing was written.

        Commits: 1. Conflicts only with commits that end one of these leases. On the native engine
        it sometimes compacts, as `Tube.put`. The first error in a tube adds columns, as `Tube.alter` does.
        """
        now_us, text = self._ctx.queue.now_us(), error_text(error)
        arguments.release(delay, text, self._ctx.driver)

        def make_change(errors: ErrorTexts | None) -> MakeChange[Change]:
            ctx = self._ctx
            how = arguments.release(delay, errors, ctx.driver).delay(ctx.backoff)
            return lambda dest, _: released(dest, how, now_us, ctx.max_attempts, errors)

        return self._settle("release", df, make_change, text)

    def bury(self, df: DataFrame | Ids | None = None, *, error: GivenError = None) -> int:
        """Set tasks of the batch aside until they are kicked.

        Arguments, result, errors and commits are those of `release`, without a delay.
        """

        def make_change(errors: ErrorTexts | None) -> MakeChange[Change]:
            bury = Event("bury")
            return lambda dest, _: GiveBack(dest, TaskState.BURIED, event=bury, error=errors)

        return self._settle("bury", df, make_change, error_text(error))

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
        touched = self._settle("touch", None, lambda _: lambda _, moves: Touch(moves, amount_us))
        self._held.longer(amount_us)
        return touched

    # -- inside -------------------------------------------------------------------------------

    def _settle(
        self,
        event: str,
        df: DataFrame | Ids | None,
        make_change: Callable[[ErrorTexts | None], MakeChange[Change]] | None,
        error: str | None = None,
    ) -> int:
        """Settle tasks; `make_change` makes their change by their errors, `None` removes them."""
        is_frame = hasattr(df, "sparkSession")
        return self._ctx.queue.uninterrupted(
            lambda: self._settled(event, df, make_change, error), on_spark=is_frame
        )

    def _settled(
        self,
        event: str,
        df: DataFrame | Ids | None,
        make_change: Callable[[ErrorTexts | None], MakeChange[Change]] | None,
        error: str | None,
    ) -> int:
        self._ctx.queue.require_running()
        named, errors = (None, None) if df is None else self._named(df)
        if not self._held.is_left:
            if named:
                raise not_in_batch(named)
            return 0
        if make_change is None and named is None:
            return self._acks.submit(self._held)
        if make_change is None:
            return self._held.settle(event, named)
        texts = error if errors is None or error is not None else errors
        if texts is not None:
            self._current.upgrade()
        return self._held.settle(event, named, make_change(texts))

    def _named(self, df: Any) -> tuple[set[int], Mapping[int, str] | None]:
        """The ids that a program passes, in a DataFrame, a table or an iterable, and their errors."""
        return named_tasks(self._table_of(df) if hasattr(df, "sparkSession") else df)

    def _table_of(self, df: DataFrame) -> pa.Table:
        """Evaluate a DataFrame of ids once; collect at most one id more than the batch has."""
        kind = df.schema["task_id"].dataType if "task_id" in df.columns else None
        if kind is None or kind.typeName() not in ("long", "integer"):
            validation.refuse("df", df.columns, "a DataFrame with a column task_id BIGINT")
        # Mostly it is derived from the property `df`, and may not be evaluated yet.
        self._ctx.frames.engine.prepare(self._ctx.table.name)
        names = [name for name in ("task_id", "error") if name in df.columns]
        return df.select(names).dropDuplicates(["task_id"]).limit(self.count + 1).toArrow()
