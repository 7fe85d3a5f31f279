"""What `tubeq consume` does, in a loop: take a batch, hand it to the handler, store what it returns, ack.

The steps have this order, so that the program can be killed at any moment:

1. `take_df` takes a batch.
2. The handler gets it as a DataFrame. If it returns a DataFrame, this is evaluated while it is added to the
   table of results by one commit. The commit leaves out tasks that have rows there already, and tasks that the
   handler names as failed. If the handler raises, it gets the halves of the batch, until the failing tasks
   are found.
3. The tasks that failed are released, and the others acked.

A crash after 1 or during 2 leaves taken tasks, which are taken again after the end of the dead session's lease, or of
their own. After a crash after 2, the handler also gets the batch once more, and its results add nothing. So results
are stored once, and all other effects of a handler may happen twice.
"""

from __future__ import annotations

import logging
import sys
import time
from dataclasses import dataclass, fields
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from pyspark.cloudpickle import register_pickle_by_value

from tubeq_spark import Batch, BatchReport, FailedTasks, Queue, Tube, TubeqError
from tubeq_spark.jobs.results import ResultTable
from tubeq_spark.programs import GAVE_UP, BadUseError, ExitCode, Stop, load_function, reason_of

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from pyspark.sql import DataFrame, SparkSession


log = logging.getLogger(__name__)

#: Results and failed tasks.
_PAIR = 2
#: Seconds that a take waits for tasks; a request to stop is seen as often.
_WAIT_S = 2.0


class Ending(StrEnum):
    """Why a consumer ended."""

    FINISHED = "finished"
    STOPPED = "stopped"
    GAVE_UP = "gave up"


@dataclass(kw_only=True)
class Consumer:
    """Consumes a tube.

    Attributes:
        tube: The tube.
        handler: Called with `Batch.df`. Returns results, the failed tasks, or a pair of both; `None` is nothing.
            Its results, without those of failed tasks, go to `results`. The failed tasks are `FailedTasks`, or
            rows with the columns `task_id` and `error` alone.
        results: The table of results; `None` if the handler returns none.
        stop: Called between two batches; the consumer ends when it is true.
        once: Whether to end when no task is ready, instead of waiting for more.
        batch_size: The most tasks in a batch, >= 1; commits are per batch.
        per_utube: The most tasks of one sub-queue in a batch, >= 1.
        max_failures: Give up after this many failed batches in a row; 0 = never.
        done: The number of tasks that were acked.
        failed_batches: The number of batches of which no task succeeded.
        failed_tasks: The number of failed tasks of batches with other tasks that succeeded.
    """

    tube: Tube
    handler: Callable[[DataFrame], Any]
    results: ResultTable | None
    stop: Callable[[], bool]
    once: bool = False
    batch_size: int = 1_000
    per_utube: int = 1
    max_failures: int = 3
    done: int = 0
    failed_batches: int = 0
    failed_tasks: int = 0
    _added: int = 0

    def run(self) -> Ending:
        """Consume until it ends.

        Raises:
            BadUseError: The result of the handler cannot be used; its batch was given back.
            KeyboardInterrupt: The current batch was given back.
        """
        wait = 0.0 if self.once else _WAIT_S
        in_a_row = 0
        while not self.stop():
            batch = self.tube.take_df(self.batch_size, timeout=wait, per_utube=self.per_utube)
            if not batch.count:
                if self.once:
                    return Ending.FINISHED
                continue
            if self._do(batch):
                in_a_row = 0
                continue
            in_a_row += 1
            self.failed_batches += 1
            if in_a_row == self.max_failures:
                log.warning("%s", GAVE_UP)
                return Ending.GAVE_UP
        return Ending.STOPPED

    def _do(self, batch: Batch) -> bool:
        """Process a batch; return whether that succeeded. Leaving the block gives the remaining tasks back."""
        began, before = time.monotonic(), self._added
        try:
            with batch:
                report = batch.process(
                    self._handle,
                    stop=self.stop,
                    # No task causes an error of the storage.
                    raises=(BadUseError, TubeqError),
                )
        except BadUseError:
            raise
        except Exception as error:
            said = "a batch of %d failed, and its tasks were released: %s"
            log.warning(said, batch.count, reason_of(error), exc_info=error)
            return False
        self.done += report.done
        if report.error is not None or not report.done:
            self._tell_failed(batch, report)
            return False
        self.failed_tasks += report.failed
        results = f", {self._added - before:,} results" * (self.results is not None)
        failed = f", {report.failed:,} failed ({report.buried:,} buried)" * bool(report.failed)
        seconds = time.monotonic() - began
        said = f"{self.done:,} tasks done: {report.done:,} in {seconds:.1f} s{results}{failed}"
        log.info("%s", said)
        return True

    def _handle(self, df: DataFrame) -> Any:
        """Call the handler, store its results, and return the failed tasks that it has named."""
        results: Any = self.handler(df)
        failed: Any = None
        if isinstance(results, tuple) and len(results) == _PAIR:
            results, failed = results
        if results is None or isinstance(results, FailedTasks) or _names_failed(results):
            return failed if results is None else results
        if not hasattr(results, "sparkSession"):
            msg = f"the handler must return a DataFrame or None, not {type(results).__name__}"
            raise BadUseError(msg)
        if self.results is None:
            msg = "the handler returns a DataFrame: name a table for it by --results"
            raise BadUseError(msg)
        failed = self._evaluated(failed, df)
        # If results of failed tasks were stored, those of a later attempt would not be added.
        self._added += self.results.add(results, but=_failed_ids(failed))
        return failed

    def _evaluated(self, failed: Any, df: DataFrame) -> Any:
        """Evaluate failed tasks in this process, before the results, so that all read the same failed tasks."""
        if not _names_failed(failed):
            return failed
        # Without the tasks of other batches, and the further reasons of a task, the rows are no more than the batch has.
        failed = failed.where("error IS NOT NULL")
        ours = failed.join(df.select("task_id"), "task_id", "left_semi")
        return ours.dropDuplicates(["task_id"]).toArrow()

    def _tell_failed(self, batch: Batch, report: BatchReport) -> None:
        fate = f"{report.failed - report.buried:,} tasks released, {report.buried:,} buried"
        if report.given_back:
            fate += f", {report.given_back:,} not tried"
        if report.done:
            fate = f"{report.done:,} tasks done, {fate}"
        why = "the handler says so" if report.error is None else reason_of(report.error)
        log.warning("a batch of %d failed, %s: %s", batch.count, fate, why, exc_info=report.error)


def _names_failed(made: Any) -> bool:
    """Whether a DataFrame has no results, but names failed tasks."""
    return hasattr(made, "sparkSession") and sorted(made.columns) == ["error", "task_id"]


def _failed_ids(failed: Any) -> list[int]:
    """The ids of failed tasks: in `FailedTasks`, or in a table of Arrow."""
    if isinstance(failed, FailedTasks):
        return [*failed.reasons]
    if sorted(getattr(failed, "column_names", ())) != ["error", "task_id"]:
        return []
    pairs = zip(failed["task_id"].to_pylist(), failed["error"].to_pylist(), strict=True)
    return [task_id for task_id, error in pairs if task_id is not None and error is not None]


def run(
    spark: SparkSession,
    queue: Queue,
    given: Mapping[str, Any],
    tell: Callable[[str], None],
    show: Callable[[dict[str, Any], str], object],
) -> int:
    """Run a consumer until it ends.

    Args:
        spark: The session of the handler.
        queue: The queue.
        given: The options of the command.
        tell: Prints a message.
        show: Prints the result.

    Returns:
        The exit code.
    """
    handler = load_function(given["handler"], given["path"])
    # The definitions of its module are sent to executors by value, so they need not have the file.
    module = sys.modules[given["handler"].partition(":")[0]]
    register_pickle_by_value(module)  # type: ignore[no-untyped-call]
    tube = queue.tube(given["tube"])
    results = None
    if given["results"] is not None:
        results = ResultTable(spark, given["results"])
        results.check_apart_from(queue.location, tube)
    if given["lease"] is not None:
        queue.cfg(ttr=given["lease"])
    with Stop(tell) as stop:
        has = {**given, "tube": tube, "handler": handler, "results": results, "stop": stop}
        consumer = Consumer(**{of.name: has[of.name] for of in fields(Consumer) if of.name in has})
        ending = consumer.run()
    counts = {of: getattr(consumer, of) for of in ("done", "failed_batches", "failed_tasks")}
    show(
        {"tube": tube.name, "ending": str(ending), **counts},
        f"{ending}: {consumer.done:,} tasks, {consumer.failed_batches:,} failed batches"
        + f", {consumer.failed_tasks:,} failures of single tasks" * bool(consumer.failed_tasks),
    )
    if ending is Ending.GAVE_UP:
        return ExitCode.FAILED
    is_bad = given["strict"] and (consumer.failed_batches or consumer.failed_tasks)
    return ExitCode.TASKS_FAILED if is_bad else ExitCode.DONE
