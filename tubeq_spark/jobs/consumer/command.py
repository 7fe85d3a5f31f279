"""The command line of `tubeq consume` and `jobs/consume.py`."""

from __future__ import annotations

import argparse
import sys
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING

from pyspark.cloudpickle import register_pickle_by_value

from tubeq_spark.cli.exit_codes import EPILOG
from tubeq_spark.jobs.consumer.loop import Consumer, Ending, Settings
from tubeq_spark.jobs.consumer.results import ResultTable
from tubeq_spark.jobs.program.arguments import add_queue_options, count, positive_count, seconds
from tubeq_spark.jobs.program.running import run
from tubeq_spark.programs import ExitCode, Stop, load_function, note

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import SparkSession

    from tubeq_spark import Queue

PROGRAM = "consume.py"


def _parser(program: str) -> argparse.ArgumentParser:
    """The command line."""
    parse = argparse.ArgumentParser(
        prog=program,
        description="Hand the tasks of a tube to a function, a batch at a time; ack a batch when "
        "the function has returned. When it raised, it gets halves of the batch, until the tasks "
        "that it fails at are found: these are given back. Without --once it goes on until it is "
        "stopped.",
        epilog=EPILOG,
    )
    add = parse.add_argument
    add("handler", metavar="MODULE:FUNCTION", help="gets a DataFrame, returns one or None")
    add_queue_options(parse)
    add("--tube", required=True, help="whose tasks")
    add("--once", action="store_true", help="end when no task is ready")
    add("--strict", action="store_true", help="exit with 4 if tasks failed or were buried")
    add("--results", metavar="TABLE", help="path or name of the table of what it returns")
    add("--path", type=Path, default=Path(), metavar="DIR", help="of the module (%(default)s)")
    add("--batch-size", type=positive_count, default=1_000, metavar="N", help="(%(default)s)")
    add("--per-utube", type=positive_count, default=1, metavar="N", help="(%(default)s)")
    add(
        "--retry-delay",
        type=seconds,
        default=0.0,
        metavar="S",
        help="before a failed batch is ready again, in types with delays (%(default)g s)",
    )
    add(
        "--max-attempts",
        type=positive_count,
        metavar="N",
        help="bury tasks that failed so often (what the tube says)",
    )
    add(
        "--max-failures",
        type=count,
        default=3,
        metavar="N",
        help="give up after so many failed batches in a row; 0 is never (%(default)s)",
    )
    add(
        "--no-halves",
        dest="halves",
        action="store_false",
        help="do not call the function again with halves of a failed batch to find its bad tasks",
    )
    add("--lease", type=seconds, metavar="S", help="of a dead consumer's batch (60 s)")
    parse.set_defaults(program=program)
    return parse


def main(argv: Sequence[str] | None = None, program: str = PROGRAM) -> int:
    """Run the program; returns its exit code."""
    arguments = _parser(program).parse_args(argv)
    return run(arguments, lambda spark, queue: _consume(spark, queue, arguments))


def _consume(spark: SparkSession, queue: Queue, arguments: argparse.Namespace) -> int:
    handler = load_function(arguments.handler, arguments.path)
    # The definitions of its module are sent to executors by value, so they need not have the file.
    module = sys.modules[arguments.handler.partition(":")[0]]
    register_pickle_by_value(module)  # type: ignore[no-untyped-call]
    tube = queue.tube(arguments.tube)
    results = None
    if arguments.results is not None:
        results = ResultTable(spark, arguments.results)
        results.check_apart_from(queue.location, tube)
    if arguments.lease is not None:
        queue.cfg(ttr=arguments.lease)
    given = {field.name: getattr(arguments, field.name) for field in fields(Settings)}
    with Stop(lambda sentence: note(arguments.program, sentence)) as stop:
        consumer = Consumer(tube, handler, results, Settings(**given), stop)
        ending = consumer.run()
    note(
        arguments.program,
        f"{ending}: {consumer.done:,} tasks, {consumer.failed_batches:,} failed batches"
        + f", {consumer.failed_tasks:,} failures of single tasks" * bool(consumer.failed_tasks),
    )
    if ending is Ending.GAVE_UP:
        return ExitCode.FAILED
    has_failed = consumer.failed_batches or consumer.failed_tasks
    return ExitCode.TASKS_FAILED if arguments.strict and has_failed else ExitCode.DONE
