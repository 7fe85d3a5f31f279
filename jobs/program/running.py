"""Runs a program on the queue that its arguments name; prints the lines of its log."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, TextIO

from tubeq_spark import Queue, SystemClock
from tubeq_spark.programs import open_spark, read_defaults, run_program

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable

    from pyspark.sql import SparkSession

__all__ = ["run", "tell"]


def run(
    program: str, arguments: argparse.Namespace, work: Callable[[SparkSession, Queue], int]
) -> int:
    """Open the queue that the arguments name, work with it, and close it.

    Args:
        program: Its name, for its sentences.
        arguments: Those of `arguments.add_queue_options`.
        work: Returns the exit code.

    Returns:
        The exit code: `work`'s, or that of what was raised, which is said in a sentence.
    """

    def on_queue() -> int:
        settings = read_defaults(
            arguments.config, location=arguments.location, remote=arguments.remote
        )
        location = settings.queue_location()
        # On a terminal Spark's own bar shows how far a long statement is.
        progress = {"spark.ui.showConsoleProgress": "true"} if sys.stderr.isatty() else {}
        spark = open_spark(f"tubeq-{program.partition('.')[0]}", settings.remote, **progress)
        with Queue(spark, location, config=settings.config) as queue:
            if settings.ttr is not None:
                queue.cfg(ttr=settings.ttr)
            return work(spark, queue)

    return run_program(program, on_queue, verbose=arguments.verbose)


def tell(sentence: str, stream: TextIO | None = None) -> None:
    """Print a line of a log, with the time."""
    stream = stream or sys.stdout
    stream.write(f"{SystemClock().now():%Y-%m-%dT%H:%M:%SZ} {sentence}\n")
    stream.flush()  # a log is read while it is written
