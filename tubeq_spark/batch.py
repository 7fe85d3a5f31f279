"""A batch of taken tasks, as `take_df` and `take_arrow` return it."""

from __future__ import annotations

import contextlib
import logging
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Any, Self, TypeAlias, TypeVar

import pyarrow as pa

from tubeq_spark.clock import from_us
from tubeq_spark.errors import NotTakenError
from tubeq_spark.markup import fields
from tubeq_spark.model import arguments, validation
from tubeq_spark.model.error_text import reason_of
from tubeq_spark.model.failures import PATIENCE, Bury, FailedTasks, Trial, error_text, halves
from tubeq_spark.model.ids import is_id
from tubeq_spark.model.reports import BatchReport
from tubeq_spark.model.validation import require_run
from tubeq_spark.payloads.shown_table import (
    has_reasons,
    named_reasons,
    named_tasks,
    not_in_batch,
    part_of,
)
from tubeq_spark.storage.arrow.columns import array
from tubeq_spark.verbs import settle
from tubeq_spark.verbs.settle_batch import HeldBatch

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from collections.abc import Set as AbstractSet

    from pyspark.sql import DataFrame

    from tubeq_spark.model.arguments import Seconds
    from tubeq_spark.model.failures import ErrorTexts, GivenError, Reason
    from tubeq_spark.payloads.shown_table import Ids
    from tubeq_spark.runtime.context import TubeContext
    from tubeq_spark.runtime.current_tube import CurrentTube
    from tubeq_spark.runtime.held_tasks import Taken
    from tubeq_spark.verbs.settle import Verb

    #: Settles some tasks of a batch; returns their number.
    Settle: TypeAlias = Callable[[Sequence[int]], int]

__all__ = ["Batch"]

T = TypeVar("T")

log = logging.getLogger(__name__)
#: The most reasons of failed tasks of a batch in the log.
_TOLD = 10


class Batch:
    """Tasks that this session holds together, as one lease segment; a context manager.

    Leaving the block acks the remaining tasks; an exception releases them with the exception as their
    error. `FailedTasks` as the exception releases the tasks that it names, each with its own error, acks
    the others, and is swallowed. If it names a task that is not in this batch, or not any more, nothing is acked,
    because nobody can say which tasks are done: the remaining tasks are released, the attempt does not count, and the
    exception propagates. If the release fails, the log has a warning, and the exception propagates all the
    same: the tasks are ready again when their leases end.

    If no task was ready, the batch is empty: it has `count` 0, an empty `df` and an empty `table`, and
    its methods do nothing. When any lease has ended, no task of the batch can be settled: the next method
    releases the other tasks and raises `NotTakenError`.

    Attributes:
        count: The number of tasks when the batch was taken.
    """

    def __init__(self, current: CurrentTube, taken: Taken | None, *, as_arrow: bool) -> None:
        """Wrap taken tasks; `Tube.take_df` and `Tube.take_arrow` call this."""
        self._as_arrow = as_arrow
        self._current, self._run, self._read = current, current.run, current.read
        self._held = HeldBatch(current, taken)
        self.count = self._held.count

    def __repr__(self) -> str:
        return f"Batch({self._ctx.record.name!r}, count={self.count}, lease={self._lease!r})"

    def _repr_html_(self) -> str:
        """HTML for notebooks: tube, count and lease. It reads nothing."""
        return fields(
            "Batch",
            [("tube", self._ctx.record.name), ("count", self.count), ("lease", self._lease)],
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, _type: type[BaseException] | None, error: BaseException | None, _: object
    ) -> bool | None:
        # The type is not `bool`, because type checkers would then regard the end of every block as reachable.
        if isinstance(error, FailedTasks):
            return self._end_failed(error.reasons)
        if not self._held.is_left:
            return None
        if error is None:
            self.ack()
        else:
            # An interrupt of the program is not an error of the tasks.
            failed = error if isinstance(error, Exception) else None
            with self._beside_an_error():
                self.release(error=failed)
        return None

    @contextlib.contextmanager
    def _beside_an_error(self) -> Iterator[None]:
        """Give tasks back after an error of the program. That error propagates even if this fails."""
        try:
            yield
        except NotTakenError:
            # Their lease has ended, so they are back in the tube.
            pass
        except Exception:
            log.warning(
                "tube %s: tasks of a batch are not released", self._ctx.record.name, exc_info=True
            )

    @property
    def _ctx(self) -> TubeContext:
        return self._current.ctx

    @property
    def _lease(self) -> str:
        """A text about the end of the lease, as far as this object knows it."""
        if not self._held.is_left:
            return "nothing is left"
        until = self._held.until
        return "without end" if until is None else f"until {from_us(until):%Y-%m-%d %H:%M:%S} UTC"

    @property
    def df(self) -> DataFrame:
        """The remaining tasks as a lazy DataFrame, which reads only the files of the batch.

        Columns `task_id`, `data` (or the schema's columns), `pri`, `utube`, `ttl`, `ttr`, `attempts` and
        `created`; durations in seconds, NULL is unlimited. Each evaluation reads the current state
        of the tasks in the tube. It makes no commit. In a session without the recommended settings
        each access to this property runs a small query, so that later queries read the table's log
        faster.

        Raises:
            StoreError: The queue has no Spark session.
        """
        return self._ctx.frames.batch(self._held.take_id, self._held.owner)

    @property
    def table(self) -> pa.Table:
        """The remaining tasks, as a `pyarrow.Table` in this process.

        Columns as for `df`; `data` is JSON text, or the schema's columns, and `created` is in UTC. The rows are
        in the tube's order. Each access reads the current state of the tasks in the tube. It makes no commit.

        Raises:
            QueueStateError: The queue was closed.
            StoreError: Storage could not be read.
        """
        return self._read(
            lambda ctx: ctx.reader.batch(self._held.take_id, self._held.owner, self.count)
        )

    def ack(self, df: DataFrame | Ids | None = None) -> int:
        """Ack tasks of the batch, that is, remove them from the tube.

        Args:
            df: Rows with `task_id` (a DataFrame, a `pyarrow.Table` or what Arrow makes one of), or
                ids; all that is left by default.

        Returns:
            The number of tasks; 0 if no task remains, for example after a method has raised because
            a lease had ended.

        Raises:
            NotTakenError: A lease has ended, or `df` names a task that is not in the batch.
            InvalidOptionError: `df` has no ids.

        Commits: 1, for all remaining tasks a deletion of the lease segment's partition; 1 more if `Tube.touch` has
        extended some leases. Conflicts only with commits that end one of these leases.
        """
        return self._settle("ack", df, lambda _: settle.ACK)

    def release(
        self,
        df: DataFrame | Ids | None = None,
        delay: Seconds | None = None,
        *,
        error: GivenError = None,
    ) -> int:
        """Release tasks of the batch.

        Args:
            df: Rows with `task_id` (a DataFrame, a `pyarrow.Table` or what Arrow makes one of), or
                ids; all that is left by default. With a column `error` (strings) each task has its
                own error; a column of NULLs only counts as no errors.
            delay: Seconds before they are ready again, >= 0; needs a type with ttl. `None`: the
                tube's backoff if it has one and the tasks have errors, else 0.
            error: One error for all tasks, as for `Tube.release`, instead of the column.

        Returns:
            The number of tasks, including those that `max_attempts` buries.

        Raises:
            NotTakenError: A lease has ended, or `df` names a task that is not in the batch.
            InvalidOptionError: `delay` or `error` is bad, or the type has no delays; or `df` has no
                ids, or an error for some of its tasks only. Nothing was written.

        Commits: 1, or 2 as `ack`. Conflicts only with commits that end one of these leases. On the native engine it
        sometimes compacts, as `Tube.put`.
        """
        text = error_text(error)
        arguments.release(delay, text, self._ctx.tube_type)

        def verb(errors: ErrorTexts | None) -> Verb:
            return settle.release(arguments.release(delay, errors, self._ctx.tube_type))

        return self._settle("release", df, verb, text)

    def bury(self, df: DataFrame | Ids | None = None, *, error: GivenError = None) -> int:
        """Set tasks of the batch aside until they are kicked.

        Arguments, errors and commits are those of `release`, without a delay.

        Returns:
            The number of tasks.
        """
        return self._settle("bury", df, settle.bury, error_text(error))

    def touch(self, increment: Seconds | None, df: DataFrame | Ids | None = None) -> int:
        """Give tasks of the batch more time, as `Tube.touch` does.

        Args:
            increment: Seconds to add, >= 0; `None`, 0 and 500 years or more change nothing.
            df: Rows with `task_id` (a DataFrame, a `pyarrow.Table` or what Arrow makes one of), or
                ids; all that is left by default.

        Returns:
            The number of tasks; 0 if nothing was changed.

        Raises:
            NotTakenError: A lease has ended, or `df` names a task that is not in the batch.
            InvalidOptionError: `increment` is bad, or the type has no ttr; or `df` has no ids.

        Commits: 1, or 2 as `ack`; none if nothing is changed. Conflicts only with commits that end one of these
        leases.
        """
        amount_us = arguments.increment(increment, self._ctx.tube_type)
        if amount_us is None:
            return 0
        return self._settle("touch", df, lambda _: settle.touch(amount_us))

    def fail(
        self,
        reasons: Mapping[int, Reason] | FailedTasks | DataFrame | Any,
        delay: Seconds | None = None,
    ) -> int:
        """Release failed tasks of the batch, each with its reason.

        Args:
            reasons: Texts or exceptions by task id, or rows (a DataFrame, a `pyarrow.Table`) with the columns
                `task_id` and `error`; rows without an error are left out. A task whose reason is `Bury` is
                buried at once.
            delay: As for `release`.

        Returns:
            The number of tasks, including those that are buried.

        Raises:
            NotTakenError: A lease has ended, or a task is not in the batch.
            InvalidOptionError: `reasons` has no reasons, or `delay` is bad.

        Commits: 1 for the released tasks, 1 for the buried ones; as `release`.
        """
        found = named_reasons(self._evaluated(reasons) if has_reasons(reasons) else reasons)
        strange = [number for number in found if not is_id(number)]
        if strange:
            raise not_in_batch(strange)
        buried = {task_id for task_id, reason in found.items() if isinstance(reason, Bury)}
        return self._fail(found, buried, delay)

    def process(
        self,
        handler: Callable[[Any], object],
        *,
        halves: bool = True,
        delay: Seconds | None = None,
        stop: Callable[[], bool] | None = None,
        raises: tuple[type[Exception], ...] = (),
    ) -> BatchReport:
        """Call a handler with the batch; ack the tasks that it has done, and release the failed ones.

        The handler names the failed tasks: it returns or raises `FailedTasks`, or returns rows with the
        columns `task_id` and `error` alone. All other tasks are acked.

        If it raises anything else, nobody knows which task is bad. It is called again with each half of the
        tasks, and so on, until the bad ones are found: only these have failed. So a handler may get a task
        several times and must be idempotent for each task; `halves=False` switches this off. If less than half
        of the lease is left before a further call, the leases are renewed. If the handler fails 32 times in a row, it
        or something that it needs is broken: the tasks that were not tried alone are released, and the attempt does
        not count.

        Args:
            handler: `handler(df)` with the columns of `df`; for a batch of `take_arrow`, `handler(table)`. It is no
                coroutine function.
            halves: Whether to search a batch for its bad tasks; otherwise all tasks count as
                failed.
            delay: Seconds before failed tasks are ready again, as for `release`; `None`: the tube's backoff, else 0.
            stop: Called before each further call; if it returns true, the tasks that were not tried
                are released, and the attempt does not count.
            raises: Errors not caused by tasks: `process` re-raises them and does not change the batch.

        Returns:
            A `BatchReport`: the counts of done, failed, buried and untried tasks, and the error of the handler
            if no task succeeded.

        Raises:
            NotTakenError: A lease has ended; nothing was acked, and the tasks are back in the tube.
            InvalidOptionError: A bad argument, or bad reasons from the handler.
            StoreError: Reading the tasks or renewing their leases failed. They are released, and the attempt does
                not count; if that fails, too, the batch stays as it is.

        Commits: 1 if all is done; 1 for the released, 1 for the buried tasks, 1 for those that were not tried,
        and 1 for each renewal. Conflicts as `release`.
        """
        validation.function("handler", handler, "a function of the batch's tasks")
        arguments.release(delay, None, self._ctx.tube_type)
        if not self._held.is_left:
            return BatchReport()
        trial = self._tried(handler, halves, stop or (lambda: False), raises)
        return self._settle_trial(trial, delay)

    # -- inside -------------------------------------------------------------------------------

    def _tried(
        self,
        handler: Callable[[Any], object],
        searches: bool,  # noqa: FBT001  (`halves` of `process`)
        stop: Callable[[], bool],
        raises: tuple[type[Exception], ...],
    ) -> Trial:
        """Call a handler with the batch, and then with halves of the tasks at which it fails."""
        trial, failing, last = Trial(), 0, None
        #: The ids of the tasks of a call; `None` is all, whose ids are read only if they are needed.
        part: Sequence[int] | None = None
        parts: list[Sequence[int]] = []
        while True:
            tasks = self._blameless(partial(self._part, part))
            try:
                result = self._called(handler, tasks)
            except raises:
                raise
            except Exception as error:  # noqa: BLE001  (a handler may raise anything)
                ids = self._blameless(self._ids) if part is None else part
                if part is None:
                    log.warning("a batch of %d tasks failed: %s", len(ids), reason_of(error))
                    trial.error = error
                if searches and len(ids) > 1:
                    parts += halves(ids)
                else:
                    trial.failed.update(dict.fromkeys(ids, error))
                failing, last = failing + 1, error
            else:
                trial.failed.update(_failed_of(result, part))
                trial.error, failing = None, 0
            is_broken = failing == PATIENCE
            if parts and (is_broken or not self._goes_on(stop)):
                trial.untried = [task_id for rest in parts for task_id in rest]
                trial.error = last if is_broken else trial.error
                parts = []
            if not parts:
                return trial
            part = parts.pop()

    def _goes_on(self, stop: Callable[[], bool]) -> bool:
        """Renew the leases before a further call; False if no more calls are made."""
        if stop():
            return False
        self._blameless(lambda: self._run("touch", lambda _: self._held.renew()))
        return True

    def _called(self, handler: Callable[[Any], object], tasks: Any) -> Any:
        """Call a handler with some tasks; return its result. A DataFrame of failed tasks is evaluated."""
        try:
            with self._ctx.queue.traces.of_handler(self._ctx.record, tasks):
                result = handler(tasks)
            require_run(result)
        except FailedTasks as named:
            return named
        return self._evaluated(result, among=self._ids) if has_reasons(result) else result

    def _blameless(self, verb: Callable[[], T]) -> T:
        """Read or renew tasks for a handler. If that fails, no task has caused it, so none loses an attempt."""
        try:
            return verb()
        except Exception:
            with self._beside_an_error():
                self._give_back()
            raise

    def _part(self, ids: Sequence[int] | None) -> Any:
        """Consecutive tasks of the batch in the form that the handler gets; `None` is all of them."""
        rows = self.table if self._as_arrow else self.df
        if ids is None:
            return rows
        if self._as_arrow:
            return part_of(rows, ids[0], ids[-1])
        return rows.where((rows["task_id"] >= ids[0]) & (rows["task_id"] <= ids[-1]))

    def _ids(self) -> list[int]:
        return self._read(lambda _: self._held.ids())

    def _end_failed(self, reasons: Mapping[int, Reason]) -> bool | None:
        """End a block with failed tasks; return whether the batch still had all of them."""
        left = set(self._ids()) if self._held.is_left else set()
        if left.issuperset(reasons):
            if left:
                self._settle_trial(Trial(dict(reasons)))
            return True
        if left:
            ours = _within(reasons, left)
            with self._beside_an_error():
                self._settle_trial(Trial(ours, sorted(left.difference(ours))))
        return None

    def _settle_trial(self, trial: Trial, delay: Seconds | None = None) -> BatchReport:
        """Ack the done tasks, and release the rest. Tasks that other verbs have settled meanwhile are left out."""
        failed, before = trial.failed, self._held.buried
        if failed:
            failed = _within(failed, set(self._ids()))
        untried = self._settle_left(self._give_back, trial.untried)
        buried = {task_id for task_id, reason in failed.items() if isinstance(reason, Bury)}
        settled = self._fail(failed, buried, delay, self._settle_left)
        done = self.ack()
        worn = self._held.buried - before
        return BatchReport(done, settled, len(buried) + worn, untried, trial.error)

    def _give_back(self, ids: Sequence[int] | None = None) -> int:
        """Give back tasks as if they had not been taken; by default all remaining ones."""
        return self._settle("release", ids, lambda _: settle.GIVE_BACK)

    def _settle_left(self, settle: Settle, ids: Sequence[int]) -> int:
        """Settle those of some tasks that the batch still has; return their number."""
        while ids:
            try:
                return settle(ids)
            except NotTakenError:
                left = set(self._ids()) if self._held.is_left else set(ids)
                if left.issuperset(ids):
                    raise
                ids = [task_id for task_id in ids if task_id in left]
        return 0

    def _fail(
        self,
        reasons: Mapping[int, Reason],
        buried: AbstractSet[int],
        delay: Seconds | None,
        by: Callable[[Settle, Sequence[int]], int] = lambda settle, ids: settle(ids),
    ) -> int:
        """Bury some failed tasks, and release the others.

        The tasks keep the reasons as their errors, and the log has some of them.
        """
        for task_id, reason in islice(reasons.items(), _TOLD):
            said = reason if isinstance(reason, str) else reason_of(reason)
            log.warning("task %d failed: %s", task_id, said)
        if len(reasons) > _TOLD:
            log.warning("%d more tasks failed", len(reasons) - _TOLD)
        released = [task_id for task_id in reasons if task_id not in buried]

        def told(ids: Sequence[int]) -> pa.Table:
            texts = [error_text(reasons[task_id]) or "" for task_id in ids]
            columns = [array(ids, pa.int64()), array(texts, pa.string())]
            return pa.Table.from_arrays(columns, names=["task_id", "error"])

        count = by(lambda ids: self.bury(told(ids)), sorted(buried)) if buried else 0
        if released:
            count += by(lambda ids: self.release(told(ids), delay), released)
        return count

    def _evaluated(self, rows: Any, among: Callable[[], list[int]] | None = None) -> Any:
        """Evaluate rows of failed tasks in this process; at most one row more than the batch has tasks.

        Args:
            rows: The rows. A DataFrame is evaluated once, and again if it has more rows than the batch.
            among: Reads the ids of tasks that the rows may name; rows of other tasks are left out.
        """
        if not hasattr(rows, "sparkSession"):
            return rows
        failed = rows.where(rows["error"].isNotNull())
        found = failed.limit(self.count + 1).toArrow()
        if found.num_rows <= self.count:
            return found
        # Some task has several reasons, or is in another batch. A failed task in a cut-off row would be acked.
        if among is not None:
            from tubeq_spark.storage.spark.jvm import frame_of  # noqa: PLC0415  Spark is optional

            ids = pa.table({"task_id": array(among(), pa.int64())})
            failed = failed.join(frame_of(rows.sparkSession, ids), "task_id", "left_semi")
        return failed.dropDuplicates(["task_id"]).limit(self.count + 1).toArrow()

    def _settle(
        self,
        name: str,
        df: DataFrame | Ids | None,
        verb_of: Callable[[ErrorTexts | None], Verb],
        error: str | None = None,
    ) -> int:
        """Settle tasks by a verb that is made from their errors: those of `df`, or one for all."""

        def settled(_: TubeContext) -> int:
            named, errors = (None, None) if df is None else self._named(df)
            if not self._held.is_left:
                if named:
                    raise not_in_batch(named)
                return 0
            return self._held.settle(verb_of(errors if error is None else error), named)

        # Spark may also settle a large batch.
        on_spark = not self._as_arrow or hasattr(df, "sparkSession")
        return self._run(name, settled, on_spark=on_spark)

    def _named(self, df: Any) -> tuple[set[int], Mapping[int, str] | None]:
        """The ids that a program passes, in a DataFrame, a table or an iterable, and their errors."""
        return named_tasks(self._table_of(df) if hasattr(df, "sparkSession") else df)

    def _table_of(self, df: DataFrame) -> pa.Table:
        """Evaluate a DataFrame of ids once; collect at most one id more than the batch has."""
        kind = df.schema["task_id"].dataType if "task_id" in df.columns else None
        if kind is None or kind.typeName() not in ("long", "integer"):
            validation.refuse("df", df.columns, "a DataFrame with a column task_id BIGINT")
        # Usually the DataFrame is derived from the property `df`, and may not be evaluated yet.
        self._ctx.frames.engine.prepare(self._ctx.table.name)
        names = [name for name in ("task_id", "error") if name in df.columns]
        return df.select(names).dropDuplicates(["task_id"]).limit(self.count + 1).toArrow()


def _within(reasons: Mapping[int, Reason], ids: AbstractSet[int]) -> dict[int, Reason]:
    """The reasons of tasks that a handler was given."""
    strange = reasons.keys() - ids
    if strange:
        log.warning(
            "tasks were named that are not in the batch: %s", sorted(strange, key=str)[:_TOLD]
        )
    return {task_id: reason for task_id, reason in reasons.items() if task_id in ids}


def _failed_of(result: Any, part: Sequence[int] | None) -> dict[int, Reason]:
    """The failed tasks that a handler has named, among the tasks of its call; `None` is the whole batch."""
    if not (isinstance(result, FailedTasks) or has_reasons(result)):
        return {}
    found = named_reasons(result)
    return found if part is None else _within(found, set(part))
