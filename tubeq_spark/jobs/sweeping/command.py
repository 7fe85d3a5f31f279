"""The command line of `tubeq sweeper` and `jobs/sweeper.py`."""

from __future__ import annotations

import argparse
import sys
from typing import TYPE_CHECKING

from tubeq_spark.cli.exit_codes import EPILOG
from tubeq_spark.jobs.program.arguments import add_queue_options, seconds
from tubeq_spark.jobs.program.running import run, tell
from tubeq_spark.programs import (
    BadUseError,
    ExitCode,
    Stop,
    is_classic,
    note,
    reason_of,
    start_ticking,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from pyspark.sql import SparkSession

    from tubeq_spark import Queue, SweepReport

PROGRAM = "sweeper.py"
#: Seconds between two looks at whether to stop, whole ones.
_LOOK = 1


def _parser(program: str) -> argparse.ArgumentParser:
    """The command line."""
    parse = argparse.ArgumentParser(
        prog=program,
        description="Write down what time has changed in all tubes of a queue: ended leases, "
        "delays and lives, tasks of sessions that died; and tidy up. Stop it at any time.",
        epilog=EPILOG,
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
    return seconds(text, least=0.1)


def main(argv: Sequence[str] | None = None, program: str = PROGRAM) -> int:
    """Run the program; returns its exit code."""
    arguments = _parser(program).parse_args(argv)
    work = _sweep_once if arguments.once else lambda spark, queue: _sweep(spark, queue, arguments)
    return run(arguments, work, on_spark=not arguments.once)


def _sweep_once(_spark: SparkSession | None, queue: Queue) -> int:
    return ExitCode.DONE if _make_pass(queue, verbose=True) else ExitCode.FAILED


def _sweep(spark: SparkSession, queue: Queue, arguments: argparse.Namespace) -> int:
    """Make passes until a signal comes; returns the exit code."""
    if not is_classic(spark):
        msg = "a Spark Connect server cannot run the query of this program: add --once"
        raise BadUseError(msg)
    count = 0

    def tick(_goes_on: Callable[[], bool]) -> None:
        nonlocal count
        count += 1
        try:
            _make_pass(queue, verbose=arguments.verbose)
        except Exception as error:  # noqa: BLE001  storage may be back for the next one
            tell(f"the pass failed: {reason_of(error)}", sys.stderr)

    trigger = f"{round(arguments.interval * 1000)} milliseconds"
    with Stop(lambda _: note(arguments.program, "finishing the pass that goes on")) as stop:
        query = start_ticking(
            spark, tick, trigger, name="tubeq-sweeper", checkpoint=arguments.checkpoint
        )
        while query.isActive and not stop():
            query.awaitTermination(_LOOK)
        if not query.isActive:
            note(arguments.program, f"the streaming query ended: {query.exception()}")
            return ExitCode.FAILED
        query.stop()  # waits for the pass that goes on
    note(arguments.program, f"stopped after {count:,} passes")
    return ExitCode.DONE


def _make_pass(queue: Queue, *, verbose: bool) -> bool:
    """Make a pass, and print what it changed; returns whether all of it went well.

    Args:
        queue: The queue.
        verbose: Whether to print a line for a pass that changed nothing, too.
    """
    report = queue.sweep()
    changed = _changed(report)
    if not changed and verbose and report.idle:
        changed = f"nothing to do in {len(report.tubes):,} tube{'s' * (len(report.tubes) != 1)}"
    if changed:
        tell(changed)
    failed = {name: tube.error for name, tube in report.tubes.items() if tube.error is not None}
    for name, error in failed.items():
        tell(f"tube {name} failed: {error}", sys.stderr)
    return not failed


def _changed(report: SweepReport) -> str:
    """What a pass changed, tube by tube."""
    lines = []
    for name, tube in report.tubes.items():
        counts = {
            "readied": tube.readied,
            "expired": tube.expired,
            "released": tube.released,
            "segments folded": tube.folded,
            "kept rows removed": tube.removed,
        }
        changes = ", ".join(f"{count:,} {what}" for what, count in counts.items() if count)
        if changes:
            lines.append(f"{name}: {changes}")
    lines += [f"{name}: a temporary tube, dropped" for name in report.dropped]
    lines += [f"{name or 'system tables'}: dead files removed" for name in report.vacuumed]
    return "; ".join(lines)
