"""A program's run: it opens the queue, works, and ends with a code and, if it must, a sentence."""

from __future__ import annotations

import logging
import sys
import traceback
from contextlib import contextmanager, nullcontext
from typing import TYPE_CHECKING, TextIO

from pyspark.logger import PySparkLogger

from tubeq_spark import (
    InvalidOptionError,
    Queue,
    SystemClock,
    TubeExistsError,
    TubeNotFoundError,
    local_session,
)
from tubeq_spark.programs import read_defaults, reason_of

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable, Iterator

    from pyspark.sql import SparkSession

__all__ = [
    "EXIT_BAD_USE",
    "EXIT_FAILED",
    "EXIT_INTERRUPTED",
    "BadUseError",
    "note",
    "run",
    "sentence_of",
    "tell",
]

#: Print each error of a statement as JSON, before it is raised.
_SPARKS_OWN = ("DataFrameQueryContextLogger", "SQLQueryContextLogger")

EXIT_FAILED = 1
EXIT_BAD_USE = 2
EXIT_INTERRUPTED = 130


class BadUseError(Exception):
    """The program cannot do what it was asked; the message says why. Nothing was written."""


def run(
    program: str, arguments: argparse.Namespace, work: Callable[[SparkSession, Queue], int]
) -> int:
    """Open the queue that the arguments name, work with it, and close it.

    Args:
        program: Its name, for its sentences.
        arguments: Those of `arguments.add_queue_options`.
        work: Returns the exit code.

    Returns:
        The exit code: `work`'s, or that of what was raised, which is told in a sentence.
    """
    try:
        with nullcontext() if arguments.verbose else _quiet():
            return _run(program, arguments, work)
    except (BadUseError, InvalidOptionError, TubeExistsError, TubeNotFoundError) as error:
        code, sentence = EXIT_BAD_USE, sentence_of(error)
    except KeyboardInterrupt:
        code, sentence = EXIT_INTERRUPTED, "stopped at once; what was taken is given back"
    except Exception as error:  # noqa: BLE001  the last one to hear of it
        code, sentence = EXIT_FAILED, sentence_of(error)
        if arguments.verbose:
            traceback.print_exc()
    note(program, sentence)
    return code


@contextmanager
def _quiet() -> Iterator[None]:
    """What goes wrong is a sentence of ours; where it did is for those who ask."""
    loggers = [
        logging.getLogger("tubeq_spark"),
        *(PySparkLogger.getLogger(name) for name in _SPARKS_OWN),
    ]
    before = [logger.level for logger in loggers]
    try:
        for logger in loggers:
            logger.setLevel(logging.CRITICAL)
        yield
    finally:
        for logger, level in zip(loggers, before, strict=True):
            logger.setLevel(level)


def _run(
    program: str, arguments: argparse.Namespace, work: Callable[[SparkSession, Queue], int]
) -> int:
    defaults = read_defaults(arguments.config)
    location = arguments.location or defaults.location
    if location is None:
        msg = "which queue? give --location, or set TUBEQ_LOCATION, or name it in tubeq.toml"
        raise BadUseError(msg)
    spark = _session(program, arguments.remote or defaults.remote)
    with Queue(spark, location, config=defaults.config) as queue:
        if defaults.ttr is not None:
            queue.cfg(ttr=defaults.ttr)
        return work(spark, queue)


def _session(program: str, remote: str | None) -> SparkSession:
    if remote is not None:
        from pyspark.sql import SparkSession  # noqa: PLC0415  what a server needs, it has

        return SparkSession.builder.remote(remote).getOrCreate()  # noqa: TID251
    # On a terminal Spark's own bar shows how far a long statement is.
    progress = {"spark.ui.showConsoleProgress": "true"} if sys.stderr.isatty() else {}
    return local_session(f"tubeq-{program.partition('.')[0]}", **progress)


def sentence_of(error: BaseException) -> str:
    """One line: what an error says, and its first cause."""
    return reason_of(error)


def note(program: str, sentence: str) -> None:
    """Say something that is no result."""
    sys.stderr.write(f"{program}: {sentence}\n")
    sys.stderr.flush()


def tell(sentence: str, stream: TextIO | None = None) -> None:
    """Print a line of a log, with the time."""
    stream = stream or sys.stdout
    stream.write(f"{SystemClock().now():%Y-%m-%dT%H:%M:%SZ} {sentence}\n")
    stream.flush()  # a log is read while it is written
