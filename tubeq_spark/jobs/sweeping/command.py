"""The command line of `tubeq sweeper` and `jobs/sweeper.py`."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from tubeq_spark.jobs.program.arguments import add_queue_options, seconds
from tubeq_spark.jobs.program.running import run, run_on_queue
from tubeq_spark.jobs.program.stopping import Stop
from tubeq_spark.jobs.sweeping.passes import Passes
from tubeq_spark.programs import BadUseError, ExitCode, is_classic, note, start_ticking

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import SparkSession

    from tubeq_spark import Queue

PROGRAM = "sweeper.py"
#: Seconds between two looks at whether to stop, whole ones.
_LOOK = 1


def _parser(program: str) -> argparse.ArgumentParser:
    """The command line."""
    parse = argparse.ArgumentParser(
        prog=program,
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
    parse.set_defaults(program=program)
    return parse


def _interval(text: str) -> float:
    number = seconds(text)
    if not 0.1 <= number <= 86_400:
        msg = "must be from 0.1 seconds to a day"
        raise argparse.ArgumentTypeError(msg)
    return number


def main(argv: Sequence[str] | None = None, program: str = PROGRAM) -> int:
    """Run the program; returns its exit code."""
    arguments = _parser(program).parse_args(argv)
    if arguments.once:
        return run_on_queue(program, arguments, _sweep_once)
    return run(program, arguments, lambda spark, queue: _sweep(spark, queue, arguments))


def _sweep_once(queue: Queue) -> int:
    return ExitCode.DONE if Passes(queue, verbose=True).make() else ExitCode.FAILED


def _sweep(spark: SparkSession, queue: Queue, arguments: argparse.Namespace) -> int:
    if not is_classic(spark):
        msg = "a Spark Connect server cannot run the query of this program: add --once"
        raise BadUseError(msg)
    passes = Passes(queue, verbose=arguments.verbose)
    return _sweep_on(spark, passes, arguments)


def _sweep_on(spark: SparkSession, passes: Passes, arguments: argparse.Namespace) -> int:
    """Make passes until a signal comes; returns the exit code."""
    trigger = f"{round(arguments.interval * 1000)} milliseconds"
    with Stop(lambda _: note(arguments.program, "finishing the pass that goes on")) as stop:
        query = start_ticking(
            spark, passes.tick, trigger, name="tubeq-sweeper", checkpoint=arguments.checkpoint
        )
        while query.isActive and not stop():
            query.awaitTermination(_LOOK)
        if not query.isActive:
            note(arguments.program, f"the streaming query ended: {query.exception()}")
            return ExitCode.FAILED
        query.stop()  # waits for the pass that goes on
    note(arguments.program, f"stopped after {passes.count:,} passes")
    return ExitCode.DONE
