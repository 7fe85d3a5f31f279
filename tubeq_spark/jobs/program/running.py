"""Runs a program on the queue that its arguments name; prints the lines of its log."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, TextIO

from tubeq_spark import Queue, SystemClock
from tubeq_spark.programs import open_spark, printable, read_defaults, run_program

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable

    from pyspark.sql import SparkSession

    from tubeq_spark.programs import Defaults


def run(
    program: str,
    arguments: argparse.Namespace,
    work: Callable[[SparkSession, Queue], int],
    *,
    create: bool = False,
) -> int:
    """Open a Spark session and the queue that the arguments name, work with them, and close it.

    Args:
        program: Its name, for its messages.
        arguments: The arguments of `arguments.add_queue_options`.
        work: Returns the exit code.
        create: Whether to create the queue if the location has none.

    Returns:
        The exit code of `work`, or that of its error, which is printed as a sentence.
    """

    def on_spark() -> int:
        settings = _settings(arguments)
        location = settings.queue_location()
        spark = _session(program, settings)
        with Queue(
            spark, location, config=settings.config, engine=settings.committer(), create=create
        ) as queue:
            _set_lease(queue, settings)
            return work(spark, queue)

    return run_program(program, on_spark, verbose=arguments.verbose)


def run_on_queue(program: str, arguments: argparse.Namespace, work: Callable[[Queue], int]) -> int:
    """Do what `run` does, for work that needs no Spark itself. It opens a session only if the queue needs one."""

    def on_queue() -> int:
        settings = _settings(arguments)
        if settings.needs_spark():
            return run(program, arguments, lambda _spark, queue: work(queue))
        with Queue(
            None,
            settings.queue_location(),
            config=settings.config,
            engine="native",
            create=False,
        ) as queue:
            _set_lease(queue, settings)
            return work(queue)

    return run_program(program, on_queue, verbose=arguments.verbose, on_spark=False)


def _settings(arguments: argparse.Namespace) -> Defaults:
    return read_defaults(
        arguments.config,
        location=arguments.location,
        remote=arguments.remote,
        engine=arguments.engine,
    )


def _session(program: str, settings: Defaults) -> SparkSession:
    # On a terminal Spark's own bar shows the progress of a long statement.
    progress = {"spark.ui.showConsoleProgress": "true"} if sys.stderr.isatty() else {}
    return open_spark(
        f"tubeq-{program.removeprefix('tubeq ').removesuffix('.py')}", settings.remote, **progress
    )


def _set_lease(queue: Queue, settings: Defaults) -> None:
    if settings.ttr is not None:
        queue.cfg(ttr=settings.ttr)


def tell(sentence: str, stream: TextIO | None = None) -> None:
    """Print a line of a log, with the time; what controls a terminal is escaped."""
    stream = stream or sys.stdout
    stream.write(f"{SystemClock().now():%Y-%m-%dT%H:%M:%SZ} {printable(sentence)}\n")
    stream.flush()  # a log is read while it is written
