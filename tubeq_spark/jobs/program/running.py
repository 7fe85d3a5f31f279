"""Runs a program on the queue that its arguments name; prints the lines of its log."""

from __future__ import annotations

import sys
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any, TextIO

from tubeq_spark import Queue, SystemClock
from tubeq_spark.programs import (
    open_spark,
    printable,
    quiet_loggers,
    read_defaults,
    run_program,
)

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable


def run(
    arguments: argparse.Namespace,
    work: Callable[[Any, Queue], int],
    *,
    create: bool = False,
    on_spark: bool = True,
) -> int:
    """Open the queue that the arguments name, work with it, and close it.

    Args:
        arguments: The arguments of `arguments.add_queue_options`, and the name of the program as `program`.
        work: Gets the Spark session and the queue; returns the exit code.
        create: Whether to create the queue if the location has none.
        on_spark: Whether the work itself needs the session. If not, it gets `None` where commits are native.

    Returns:
        The exit code of `work`, or that of its error, which is printed as a sentence.
    """
    program: str = arguments.program

    def on_queue() -> int:
        settings = read_defaults(
            arguments.config,
            location=arguments.location,
            remote=arguments.remote,
            engine=arguments.engine,
        )
        committer = settings.committer()
        with ExitStack() as stack:
            spark = None
            if on_spark or committer != "native":
                stack.enter_context(quiet_loggers(verbose=arguments.verbose, of_spark=True))
                # On a terminal Spark's own bar shows the progress of a long statement.
                bar = {"spark.ui.showConsoleProgress": "true"} if sys.stderr.isatty() else {}
                name = program.removeprefix("tubeq ").removesuffix(".py")
                spark = open_spark(f"tubeq-{name}", settings.remote, **bar)
            queue = stack.enter_context(
                Queue(
                    spark,
                    settings.queue_location(),
                    config=settings.config,
                    engine=committer,
                    create=create,
                )
            )
            if settings.ttr is not None:
                queue.cfg(ttr=settings.ttr)
            return work(spark, queue)

    return run_program(program, on_queue, verbose=arguments.verbose, on_spark=False)


def tell(sentence: str, stream: TextIO | None = None) -> None:
    """Print a line of a log, with the time; what controls a terminal is escaped."""
    stream = stream or sys.stdout
    stream.write(f"{SystemClock().now():%Y-%m-%dT%H:%M:%SZ} {printable(sentence)}\n")
    stream.flush()  # a log is read while it is written
