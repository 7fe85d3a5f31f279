"""What `tubeq consume` does: it opens the tables, and runs a consumer."""

from __future__ import annotations

import sys
from dataclasses import fields
from typing import TYPE_CHECKING, Any

from pyspark.cloudpickle import register_pickle_by_value

from tubeq_spark.jobs.consumer.loop import Consumer, Ending, Settings
from tubeq_spark.jobs.consumer.results import ResultTable
from tubeq_spark.programs import ExitCode, Stop, load_function

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from pyspark.sql import SparkSession

    from tubeq_spark import Queue


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
    settings = Settings(**{field.name: given[field.name] for field in fields(Settings)})
    with Stop(tell) as stop:
        consumer = Consumer(tube, handler, results, settings, stop)
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
