"""The command line of `jobs/sweeper.py`."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from program.arguments import add_queue_options, seconds
from program.running import run, run_on_queue
from program.stopping import Stop

from sweeping.passes import Passes
from tubeq_spark.programs import BadUseError, ExitCode, is_classic, note, start_ticking

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import SparkSession

    from tubeq_spark import Queue

__all__ = ["main"]

PROGRAM = "sweeper.py"
#: Seconds between two looks at whether to stop, whole ones.
_LOOK = 1


def _parser() -> argparse.ArgumentParser:
    """The command line."""
    parse = argparse.ArgumentParser(
        prog=PROGRAM,
        description="Write down what time has changed in all tubes of a queue: ended leases, "
        "delays and lives, tasks of sessions that died; and tidy up. Stop it at any time.",
        epilog="Exit codes: 0 done or stopped by a signal, 2 bad use, 3 failed (with --once also "
        "when a tube failed), 130 after a second signal.",
    )
    add_queue_options(parse)
    add = parse.add_argument
    add("--once", action="store_true", help="make one pass and end")
    add(
        "--interval",
        type=_interval,
        default=10.0,
        metavar="S",
        help="seconds from the start of a pass to the next (%(default)g)",
    )
    add("--checkpoint", metavar="DIR", help="of the streaming query (a temporary one)")
    return parse


def _interval(text: str) -> float:
    number = seconds(text)
    if not 0.1 <= number <= 86_400:
        msg = "must be from 0.1 seconds to a day"
        raise argparse.ArgumentTypeError(msg)
    return number


def main(argv: Sequence[str] | None = None) -> int:
    """Run the program; returns its exit code."""
    arguments = _parser().parse_args(argv)
    if arguments.once:
        return run_on_queue(PROGRAM, arguments, _sweep_once)
    return run(PROGRAM, arguments, lambda spark, queue: _sweep(spark, queue, arguments))


def _sweep_once(queue: Queue) -> int:
    return ExitCode.DONE if Passes(queue, verbose=True).make() else ExitCode.FAILED


def _sweep(spark: SparkSession, queue: Queue, arguments: argparse.Namespace) -> int:
    if not is_classic(spark):
        msg = "a Spark Connect server cannot run the query of this program: add --once"
        raise BadUseError(msg)
    passes = Passes(queue, verbose=arguments.verbose)
    return _sweep_on(spark, passes, arguments.interval, arguments.checkpoint)


def _sweep_on(spark: SparkSession, passes: Passes, interval: float, checkpoint: str | None) -> int:
    """Make passes until a signal comes; returns the exit code."""
    trigger = f"{round(interval * 1000)} milliseconds"
    with Stop(lambda _: note(PROGRAM, "finishing the pass that goes on")) as stop:
        query = start_ticking(
            spark, passes.tick, trigger, name="tubeq-sweeper", checkpoint=checkpoint
        )
        while query.isActive and not stop():
            query.awaitTermination(_LOOK)
        if not query.isActive:
            note(PROGRAM, f"the streaming query ended: {query.exception()}")
            return ExitCode.FAILED
        query.stop()  # waits for the pass that goes on
    note(PROGRAM, f"stopped after {passes.count:,} passes")
    return ExitCode.DONE
